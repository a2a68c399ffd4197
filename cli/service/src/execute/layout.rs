//! The vdevs of a pool, existing or requested: their devices, replication levels and display.

use std::sync::Arc;

use pool::{
    admin::{ClassedVdev, NewVdev},
    device::Device,
    format::label::classes::{VdevClass, VdevClasses},
    units::VdevId,
    vdev::{Leaf, Vdev},
};
use protocol::{Failure, LayoutVdev, Outline, VdevKind, VdevRole, VdevSpec, VdevTreeSpec, region_of};

/// Splits the requested vdevs into vdevs and cache devices.
pub(crate) fn apart(specs: &[VdevTreeSpec]) -> (Vec<VdevTreeSpec>, Vec<VdevSpec>) {
    let (caches, vdevs): (Vec<_>, Vec<_>) = specs.iter().cloned().partition(|vdev| vdev.role == VdevRole::Cache);
    (vdevs, devices_of(&caches))
}

/// Cache devices at these paths, for display.
pub(crate) fn shown_caches(paths: impl Iterator<Item = String>) -> impl Iterator<Item = LayoutVdev> {
    paths.map(|name| LayoutVdev { role: VdevRole::Cache, name, devices: Vec::new(), may_lose: 0, unused: 0 })
}

/// The devices of all vdevs, in order of the request.
pub(crate) fn devices_of(vdevs: &[VdevTreeSpec]) -> Vec<VdevSpec> {
    vdevs.iter().flat_map(|vdev| vdev.devices.iter().cloned()).collect()
}

/// Groups devices in the order of [`devices_of`] into vdevs.
pub(crate) fn grouped(vdevs: &[VdevTreeSpec], devices: Vec<Arc<dyn Device>>) -> Vec<ClassedVdev> {
    let mut devices = devices.into_iter();
    let group = |vdev: &VdevTreeSpec| {
        let mut own: Vec<_> = devices.by_ref().take(vdev.devices.len()).collect();
        let made = match vdev.kind {
            VdevKind::Disk => NewVdev::Disk(own.remove(0)),
            VdevKind::Mirror => NewVdev::Mirror(own),
            VdevKind::RaidZ1 => NewVdev::RaidZ { parity: 1, devices: own },
            VdevKind::RaidZ2 => NewVdev::RaidZ { parity: 2, devices: own },
            VdevKind::RaidZ3 => NewVdev::RaidZ { parity: 3, devices: own },
            VdevKind::Spare => unreachable!("no word asks for it"),
        };
        let class = match vdev.role {
            VdevRole::Normal => None,
            VdevRole::Special => Some(VdevClass::Special),
            VdevRole::Log => Some(VdevClass::Log),
            VdevRole::Cache => unreachable!("it is no vdev: see apart"),
        };
        ClassedVdev { vdev: made, class }
    };
    vdevs.iter().map(group).collect()
}

/// The role of a vdev of an open pool, by its label.
pub(crate) fn role_of(vdev: VdevId, classes: &VdevClasses) -> VdevRole {
    match classes.get(&vdev) {
        Some(VdevClass::Special) => VdevRole::Special,
        Some(VdevClass::Log) => VdevRole::Log,
        Some(VdevClass::Archive | VdevClass::Other(_)) | None => VdevRole::Normal,
    }
}

/// The replication level of a vdev.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    /// A mirror of this many devices; 1 for a single device.
    Copies(usize),
    /// A RAID-Z with this parity and any number of devices.
    Parity(usize),
}

impl Level {
    fn asked(vdev: &VdevTreeSpec) -> Level {
        vdev.kind.parity().map_or(Level::Copies(vdev.devices.len()), |parity| Level::Parity(parity.into()))
    }

    fn present(vdev: &dyn Vdev) -> Level {
        match vdev.as_group() {
            Some(_) => kind_of(vdev).parity().map_or(Level::Copies(vdev.leaves().len()), |p| Level::Parity(p.into())),
            None => Level::Copies(1),
        }
    }

    fn words(self) -> String {
        match self {
            Level::Copies(1) => "disk".to_owned(),
            Level::Copies(width) => format!("{width}-way mirror"),
            Level::Parity(parity) => format!("raidz{parity}"),
        }
    }
}

/// Refuses mismatched replication levels, among new vdevs or between new and present vdevs. A special vdev must
/// tolerate at least as many failures as the other vdevs, because the loss of either loses the pool; the loss of a
/// log does not.
pub(crate) fn check_replication(
    vdevs: &[VdevTreeSpec],
    present: &[Arc<dyn Vdev>],
    classes: &VdevClasses,
    action: &str,
    pool: &str,
) -> Result<(), Failure> {
    let with_role = |role| -> Vec<VdevTreeSpec> { vdevs.iter().filter(|vdev| vdev.role == role).cloned().collect() };
    let normal: Vec<Arc<dyn Vdev>> = present.iter().filter(|vdev| !classes.contains_key(&vdev.id())).cloned().collect();
    check_alike(&with_role(VdevRole::Normal), &normal, action, pool)?;
    let may_lose = |vdev: &VdevTreeSpec| vdev.kind.may_lose(vdev.devices.len());
    let asked = vdevs.iter().filter(|vdev| vdev.role == VdevRole::Normal).map(may_lose);
    let had = normal.iter().map(|vdev| vdev.as_group().map_or(0, |group| group.may_lose()));
    let Some(needed) = asked.chain(had).max() else { return Ok(()) };
    match with_role(VdevRole::Special).iter().find(|vdev| may_lose(vdev) < needed) {
        Some(weak) => {
            let devices = if needed == 1 { "device" } else { "devices" };
            let than = if may_lose(weak) == 0 { "none".to_owned() } else { format!("only {}", may_lose(weak)) };
            let why = format!(
                "mismatched replication level: other vdevs tolerate the loss of {needed} {devices}, the special {} of {than}",
                Level::asked(weak).words()
            );
            let hint = "use -f to override; the pool is lost if the special vdev fails";
            Err(Failure::cannot(action, pool, why).hint(hint))
        }
        None => Ok(()),
    }
}

fn check_alike(vdevs: &[VdevTreeSpec], present: &[Arc<dyn Vdev>], action: &str, pool: &str) -> Result<(), Failure> {
    if vdevs.is_empty() {
        return Ok(());
    }
    let refused = |why: String| {
        let hint = "use -f to override; the pool is lost if any vdev fails";
        Err(Failure::cannot(action, pool, format!("mismatched replication level: {why}")).hint(hint))
    };
    let first = vdevs.first().map_or(Level::Copies(1), Level::asked);
    if let Some(other) = vdevs.iter().map(Level::asked).find(|other| *other != first) {
        return refused(format!("both {} and {} vdevs are named", first.words(), other.words()));
    }
    // With mixed levels in the pool (only possible with `-f`), the highest counts.
    let rank = |level: &Level| match *level {
        Level::Copies(width) => (width - 1, 0),
        Level::Parity(parity) => (parity, 1),
    };
    match present.iter().map(|vdev| Level::present(&**vdev)).max_by_key(rank) {
        Some(has) if has != first => refused(format!("pool uses {} and new vdev is {}", has.words(), first.words())),
        _ => Ok(()),
    }
}

/// Estimates the space, in bytes, that the requested vdevs add to a pool with these sector and region sizes; `region`
/// is `None` for a new pool. `devices` are the device sizes. Unusable space is noted in `shown`, which is in the same
/// order.
pub(crate) fn estimate(
    shown: &mut [LayoutVdev],
    vdevs: &[VdevTreeSpec],
    devices: &[u64],
    sector: u64,
    region: Option<u64>,
) -> u64 {
    let mut devices = devices.iter().copied();
    let outline = |vdev: &VdevTreeSpec| {
        let sizes = devices.by_ref().take(vdev.devices.len()).collect();
        Outline { role: vdev.role, kind: vdev.kind, sizes }
    };
    let outlines: Vec<Outline> = vdevs.iter().map(outline).collect();
    let region = region.unwrap_or_else(|| region_of(&outlines));
    assert!(shown.len() >= outlines.len(), "each is shown");
    for (shown, outline) in shown.iter_mut().zip(&outlines) {
        shown.unused = outline.unused(sector, region);
    }
    // A log vdev adds no space to the pool.
    let storing = outlines.iter().filter(|outline| outline.role != VdevRole::Log);
    storing.map(|outline| outline.space(sector, region)).sum()
}

/// The requested vdevs for display; numbering starts with `first`.
pub(crate) fn asked(vdevs: &[VdevTreeSpec], first: usize) -> Vec<LayoutVdev> {
    let show = |(number, vdev): (usize, &VdevTreeSpec)| {
        let (role, may_lose) = (vdev.role, vdev.kind.may_lose(vdev.devices.len()));
        let paths: Vec<String> = vdev.devices.iter().map(|device| device.path.to_text()).collect();
        match vdev.kind {
            VdevKind::Disk => LayoutVdev { role, name: paths.join(" "), devices: Vec::new(), may_lose, unused: 0 },
            kind => {
                let name = format!("{}-{number}", kind.as_str());
                LayoutVdev { role, name, devices: paths, may_lose, unused: 0 }
            }
        }
    };
    (first..).zip(vdevs).map(show).collect()
}

/// A vdev of an open pool, for display.
pub(crate) fn shown(vdev: &dyn Vdev, classes: &VdevClasses) -> LayoutVdev {
    let role = role_of(vdev.id(), classes);
    let paths = vdev.leaves().iter().map(|leaf| leaf.name().to_owned()).collect();
    let may_lose = vdev.as_group().map_or(0, |group| group.may_lose());
    let devices = if vdev.group_name().is_some() { paths } else { Vec::new() };
    LayoutVdev { role, name: name_of(vdev), devices, may_lose, unused: 0 }
}

/// Adds a device to a vdev in a layout; a single device becomes a mirror.
pub(crate) fn widen(shown: &mut LayoutVdev, id: VdevId, path: String) {
    let is_raidz = shown.name.starts_with("raidz") && !shown.devices.is_empty();
    if shown.devices.is_empty() {
        shown.devices = vec![std::mem::replace(&mut shown.name, format!("mirror-{id}"))];
    }
    shown.devices.push(path);
    if !is_raidz {
        shown.may_lose = VdevKind::Mirror.may_lose(shown.devices.len());
    }
}

/// The name of a vdev: `mirror-0`, `raidz2-0`, or the device's path.
pub(crate) fn name_of(vdev: &dyn Vdev) -> String {
    match vdev.group_name() {
        Some(name) => name.to_owned(),
        None => vdev.leaves().iter().map(|leaf: &Arc<Leaf>| leaf.name().to_owned()).collect::<Vec<_>>().join(" "),
    }
}

/// The kind of a vdev of an open pool.
pub(crate) fn kind_of(vdev: &dyn Vdev) -> VdevKind {
    let word = vdev.group_name().and_then(|name| name.split('-').next());
    word.and_then(VdevKind::of_word).unwrap_or(VdevKind::Disk)
}

#[cfg(test)]
mod tests {
    use pool::units::{GIB, MIB};

    use super::*;

    #[test]
    fn unused_space_is_noted_at_the_vdev_of_its_devices() {
        let vdev = |kind: VdevKind, devices: usize| {
            let device = VdevSpec { path: "/disk".into(), create: None };
            VdevTreeSpec { role: VdevRole::Normal, kind, devices: vec![device; devices] }
        };
        let vdevs = [vdev(VdevKind::Disk, 1), vdev(VdevKind::Mirror, 3), vdev(VdevKind::RaidZ1, 3)];
        // Cache devices and spares follow the vdevs.
        let caches = shown_caches(["/cache".to_owned()].into_iter());
        let mut shown: Vec<LayoutVdev> = asked(&vdevs, 0).into_iter().chain(caches).collect();
        let devices = [9, 7, 5, 6, 13, 17, 15, 99, 99].map(|size| size * GIB);
        let size = estimate(&mut shown, &vdevs, &devices, 4096, Some(MIB));
        let unused: Vec<u64> = shown.iter().map(|vdev| vdev.unused / GIB).collect();
        assert_eq!(unused, [0, 3, 2, 0], "rows of two columns reach as far as the second largest");
        assert_eq!(size.div_ceil(GIB), 9 + 5 + 2 * 13 + 2);
    }
}
