//! How `create -n` and `add -n` show what would be: the devices, how much they give, and what the loss of devices would cost.

use std::collections::BTreeMap;

use dataset::property::size::format_bytes;

use crate::protocol::{Layout, LayoutVdev};

pub(super) fn render(layout: &Layout, verb: &str) -> String {
    let Layout { pool, vdevs, spares, size } = layout;
    let vdev = |LayoutVdev { name, devices, .. }: &LayoutVdev| {
        let devices: String = devices.iter().map(|device| format!("\t    {device}\n")).collect();
        format!("\t  {name}\n{devices}")
    };
    let mut devices: String = vdevs.iter().map(vdev).collect();
    if !spares.is_empty() {
        devices += "\tspares\n";
        devices.extend(spares.iter().map(|spare| format!("\t  {spare}\n")));
    }
    let head = match verb {
        "create" => format!("would create '{pool}' with the following layout:"),
        _ => format!("would update '{pool}' to the following configuration:"),
    };
    format!("{head}\n\n\t{pool}\n{devices}\nspace: {}\n{}", format_bytes(*size), losses(vdevs))
}

/// What the loss of devices costs; vdevs of which equally many may be lost are told of together.
fn losses(vdevs: &[LayoutVdev]) -> String {
    let mut groups: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for LayoutVdev { name, may_lose, .. } in vdevs {
        groups.entry(*may_lose).or_default().push(name);
    }
    let line = |(may_lose, names): (&usize, &Vec<&str>)| {
        let of_each = if names.len() > 1 { " of each" } else { "" };
        let cost = match may_lose {
            0 => "with any device of these, the pool is lost".to_owned(),
            1 => format!("any one device{of_each} may be lost; with a second one of the same vdev, the pool is lost"),
            n => format!("any {n} devices{of_each} may be lost; with one more of the same vdev, the pool is lost"),
        };
        format!("{}: {cost}\n", names.join(", "))
    };
    groups.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vdev(name: &str, devices: &[&str], may_lose: usize) -> LayoutVdev {
        LayoutVdev { name: name.into(), devices: devices.iter().map(|device| (*device).to_owned()).collect(), may_lose }
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
        /a.img: with any device of these, the pool is lost
        mirror-1, mirror-2: any one device of each may be lost; with a second one of the same vdev, the pool is lost
        mirror-3: any 2 devices may be lost; with one more of the same vdev, the pool is lost
        ");
    }
}
