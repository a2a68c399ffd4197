//! The output of `create -n` and `add -n`: devices, space, and the effect of device failures.

use std::{collections::BTreeMap, iter};

use dataset::property::size::format_bytes;
use pool::units::MIB;
use protocol::{Layout, LayoutVdev, VdevRole};

use crate::args::names::DeviceNames;

/// Renders the layout; `verb` is the command.
pub(super) fn render(layout: &Layout, verb: &str) -> String {
    let Layout { pool, mut vdevs, mut spares, size } = layout.clone();
    let rename = |name: &mut String| *name = DeviceNames::default().name(name, 0);
    vdevs.iter_mut().flat_map(|vdev| iter::once(&mut vdev.name).chain(&mut vdev.devices)).for_each(rename);
    spares.iter_mut().for_each(rename);
    let vdev = |LayoutVdev { name, devices, .. }: &LayoutVdev| {
        let devices: String = devices.iter().map(|device| format!("\t    {device}\n")).collect();
        format!("\t  {name}\n{devices}")
    };
    let group = |(role, vdevs): (VdevRole, Vec<&LayoutVdev>)| {
        let heading = role.heading().map(|heading| format!("\t{heading}\n")).unwrap_or_default();
        heading + &vdevs.into_iter().map(vdev).collect::<String>()
    };
    let mut devices: String = VdevRole::groups(&vdevs, |vdev| vdev.role).into_iter().map(group).collect();
    if !spares.is_empty() {
        devices += "\tspares\n";
        devices.extend(spares.iter().map(|spare| format!("\t  {spare}\n")));
    }
    let head = match verb {
        "create" => format!("would create '{pool}' with the following layout:"),
        _ => format!("would update '{pool}' to the following configuration:"),
    };
    format!("{head}\n\n\t{pool}\n{devices}\nspace: {}\n{}{}", format_bytes(size), unused(&vdevs), losses(&vdevs))
}

/// Smaller differences are not reported: disks sold with the same size differ a little.
const ALIKE: u64 = 16 * MIB;

/// Reports unusable space on the larger devices of a vdev.
fn unused(vdevs: &[LayoutVdev]) -> String {
    let line = |LayoutVdev { name, unused, .. }: &LayoutVdev| {
        format!("{name}: its devices differ in size; {} of the larger devices is unused\n", format_bytes(*unused))
    };
    vdevs.iter().filter(|vdev| vdev.unused >= ALIKE).map(line).collect()
}

/// The effect of device failures; vdevs with the same redundancy share a line.
fn losses(vdevs: &[LayoutVdev]) -> String {
    let mut groups: BTreeMap<(bool, usize), Vec<&str>> = BTreeMap::new();
    // The failure of a cache device loses no data.
    for LayoutVdev { role, name, may_lose, .. } in vdevs.iter().filter(|vdev| vdev.role != VdevRole::Cache) {
        groups.entry((*role == VdevRole::Log, *may_lose)).or_default().push(name);
    }
    let line = |(&(is_log, may_lose), names): (&(bool, usize), &Vec<&str>)| {
        let of_each = if names.len() > 1 { " of each" } else { "" };
        let what = match is_log {
            true => "synchronous writes since the last commit are lost if power fails as well",
            false => "the pool is lost",
        };
        let cost = match may_lose {
            0 => format!("no redundancy: if any device fails, {what}"),
            1 => format!("any one device{of_each} may fail; if a second device of the same vdev fails, {what}"),
            n => format!("any {n} devices{of_each} may fail; if one more device of the same vdev fails, {what}"),
        };
        format!("{}: {cost}\n", names.join(", "))
    };
    groups.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vdev(name: &str, devices: &[&str], may_lose: usize) -> LayoutVdev {
        let devices = devices.iter().map(|device| (*device).to_owned()).collect();
        LayoutVdev { role: VdevRole::Normal, name: name.into(), devices, may_lose, unused: 0 }
    }

    #[test]
    fn vdevs_for_something_stand_below_what_they_are_for() {
        let log = LayoutVdev { role: VdevRole::Log, ..vdev("/e.img", &[], 0) };
        let special = LayoutVdev { role: VdevRole::Special, ..vdev("mirror-1", &["/c.img", "/d.img"], 1) };
        let vdevs = vec![vdev("mirror-0", &["/a.img", "/b.img"], 1), log, special];
        let layout = Layout { pool: "tank".into(), vdevs, spares: vec!["/dev/e".into()], size: 3 << 29 };
        insta::assert_snapshot!(render(&layout, "create"), @r"
        would create 'tank' with the following layout:

        	tank
        	  mirror-0
        	    /a.img
        	    /b.img
        	special
        	  mirror-1
        	    /c.img
        	    /d.img
        	logs
        	  /e.img
        	spares
        	  e

        space: 1.50G
        mirror-0, mirror-1: any one device of each may fail; if a second device of the same vdev fails, the pool is lost
        /e.img: no redundancy: if any device fails, synchronous writes since the last commit are lost if power fails as well
        ");
    }

    #[test]
    fn a_dry_run_shows_the_devices_and_what_their_loss_costs() {
        let vdevs = vec![
            vdev("/a.img", &[], 0),
            vdev("mirror-1", &["/b.img", "/c.img"], 1),
            vdev("mirror-2", &["/d.img", "/e.img"], 1),
            vdev("mirror-3", &["/f.img", "/g.img", "/h.img"], 2),
        ];
        let layout = Layout { pool: "tank".into(), vdevs, spares: vec!["/i.img".into()], size: 3 << 29 };
        insta::assert_snapshot!(render(&layout, "create"), @r"
        would create 'tank' with the following layout:

        	tank
        	  /a.img
        	  mirror-1
        	    /b.img
        	    /c.img
        	  mirror-2
        	    /d.img
        	    /e.img
        	  mirror-3
        	    /f.img
        	    /g.img
        	    /h.img
        	spares
        	  /i.img

        space: 1.50G
        /a.img: no redundancy: if any device fails, the pool is lost
        mirror-1, mirror-2: any one device of each may fail; if a second device of the same vdev fails, the pool is lost
        mirror-3: any 2 devices may fail; if one more device of the same vdev fails, the pool is lost
        ");
    }

    #[test]
    fn what_is_of_no_use_is_said_of_each_vdev() {
        let mut vdevs = vec![vdev("mirror-0", &["/a.img", "/b.img"], 1), vdev("mirror-1", &["/c.img", "/d.img"], 1)];
        (vdevs[0].unused, vdevs[1].unused) = (ALIKE - 1, 3 << 30);
        let layout = Layout { pool: "tank".into(), vdevs, spares: Vec::new(), size: 3 << 29 };
        let text = render(&layout, "create");
        let said = text.lines().skip_while(|line| !line.starts_with("space")).nth(1);
        assert_eq!(said, Some("mirror-1: its devices differ in size; 3G of the larger devices is unused"));
    }
}
