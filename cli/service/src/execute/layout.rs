//! What a pool is, or shall be, made of: vdevs asked for, whether they fit to each other, and how they are shown.

use std::sync::Arc;

use pool::{
    admin::{ClassedVdev, NewVdev, suitable_region},
    device::Device,
    format::label::{
        classes::{VdevClass, VdevClasses},
        usable_size,
    },
    units::VdevId,
    vdev::{Leaf, Vdev, raidz::zones},
};
use protocol::{Failure, LayoutVdev, VdevKind, VdevRole, VdevSpec, VdevTreeSpec};

/// The vdevs among these, and the cache devices.
pub(crate) fn apart(specs: &[VdevTreeSpec]) -> (Vec<VdevTreeSpec>, Vec<VdevSpec>) {
    let (caches, vdevs): (Vec<_>, Vec<_>) = specs.iter().cloned().partition(|vdev| vdev.role == VdevRole::Cache);
    (vdevs, devices_of(&caches))
}

/// How cache devices of these paths are shown.
pub(crate) fn shown_caches(paths: impl Iterator<Item = String>) -> impl Iterator<Item = LayoutVdev> {
    paths.map(|name| LayoutVdev { role: VdevRole::Cache, name, devices: Vec::new(), may_lose: 0, unused: 0 })
}

/// The devices of all vdevs, in order.
pub(crate) fn devices_of(vdevs: &[VdevTreeSpec]) -> Vec<VdevSpec> {
    vdevs.iter().flat_map(|vdev| vdev.devices.iter().cloned()).collect()
}

/// The vdevs, of the devices that [`devices_of`] named.
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

/// What a vdev of an open pool is there for, by its label.
pub(crate) fn role_of(vdev: VdevId, classes: &VdevClasses) -> VdevRole {
    match classes.get(&vdev) {
        Some(VdevClass::Special) => VdevRole::Special,
        Some(VdevClass::Log) => VdevRole::Log,
        Some(VdevClass::Other(_)) | None => VdevRole::Normal,
    }
}

/// What a vdev can stand: how it keeps its data, and how many of its devices may be lost.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    /// One device, or several that hold the same: how many.
    Copies(usize),
    /// A RAID-Z of this parity, of however many devices.
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

/// Refuses vdevs that keep unequally much if devices fail: among each other, or beside those that the pool has. Of those for
/// metadata as many devices may be lost at least as of the others, for the pool is lost with either; with a log it is not.
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
    // Of several kinds, which takes an -f as well, that which stands most counts.
    let rank = |level: &Level| match *level {
        Level::Copies(width) => (width - 1, 0),
        Level::Parity(parity) => (parity, 1),
    };
    match present.iter().map(|vdev| Level::present(&**vdev)).max_by_key(rank) {
        Some(has) if has != first => refused(format!("pool uses {} and new vdev is {}", has.words(), first.words())),
        _ => Ok(()),
    }
}

/// What each device of a vdev gives, and how many of them are parity.
type Shape = (Vec<u64>, Option<u8>);

/// How much space these vdevs would give to a pool with sectors and regions of these sizes, in bytes, on devices that are so
/// large; to a new pool without regions. Where they are `shown`, in the same order, what is of no use is noted.
pub(crate) fn estimate(
    shown: &mut [LayoutVdev],
    vdevs: &[VdevTreeSpec],
    devices: &[u64],
    sector: u64,
    region: Option<u64>,
) -> u64 {
    let mut devices = devices.iter().map(|size| usable_size(*size));
    let shape = |vdev: &VdevTreeSpec| {
        let width = vdev.devices.len();
        (vdev.role, (devices.by_ref().take(width).collect(), vdev.kind.parity()))
    };
    let shapes: Vec<(VdevRole, Shape)> = vdevs.iter().map(shape).collect();
    let least = |sizes: &[u64]| sizes.iter().min().copied().unwrap_or(0);
    let capacity = |(sizes, parity): &Shape| {
        let data = parity.map_or(1, |parity| sizes.len().saturating_sub(parity.into()));
        least(sizes).saturating_mul(data as u64)
    };
    let smallest = |is_normal: bool| {
        let alike = shapes.iter().filter(|(role, _)| (*role == VdevRole::Normal) == is_normal);
        alike.map(|(_, shape)| capacity(shape)).min()
    };
    let region = region.unwrap_or_else(|| suitable_region(smallest(true).unwrap_or(0), smallest(false)));
    assert!(shown.len() >= shapes.len(), "each is shown");
    let mut size = 0;
    for (shown, (role, (sizes, parity))) in shown.iter_mut().zip(shapes) {
        let least = least(&sizes);
        let space;
        (space, shown.unused) = match parity {
            Some(parity) => (
                zones::space_on(sizes.clone(), parity, sector, region),
                zones::unused_on(sizes, parity, sector, region),
            ),
            None => (least / region * region, sizes.iter().map(|size| size - least).sum()),
        };
        // What is for the intent log is none of the pool's.
        size += if role == VdevRole::Log { 0 } else { space };
    }
    size
}

/// How the vdevs would be shown that are asked for; the first gets the number `first`.
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

/// How a vdev of an open pool is shown.
pub(crate) fn shown(vdev: &dyn Vdev, classes: &VdevClasses) -> LayoutVdev {
    let role = role_of(vdev.id(), classes);
    let paths = vdev.leaves().iter().map(|leaf| leaf.name().to_owned()).collect();
    let may_lose = vdev.as_group().map_or(0, |group| group.may_lose());
    let devices = if vdev.group_name().is_some() { paths } else { Vec::new() };
    LayoutVdev { role, name: name_of(vdev), devices, may_lose, unused: 0 }
}

/// The name of a vdev: `mirror-0`, `raidz2-0`, or the device's path.
pub(crate) fn name_of(vdev: &dyn Vdev) -> String {
    match vdev.group_name() {
        Some(name) => name.to_owned(),
        None => vdev.leaves().iter().map(|leaf: &Arc<Leaf>| leaf.name().to_owned()).collect::<Vec<_>>().join(" "),
    }
}

/// What a vdev of an open pool is.
pub(crate) fn kind_of(vdev: &dyn Vdev) -> VdevKind {
    let word = vdev.group_name().and_then(|name| name.split('-').next());
    word.and_then(VdevKind::of_word).unwrap_or(VdevKind::Disk)
}

#[cfg(test)]
mod tests {
    use pool::units::{GIB, MIB};

    use super::*;

    #[test]
    fn what_is_of_no_use_is_noted_of_the_vdev_whose_devices_they_are() {
        let vdev = |kind: VdevKind, devices: usize| {
            let device = VdevSpec { path: "/disk".into(), create: None };
            VdevTreeSpec { role: VdevRole::Normal, kind, devices: vec![device; devices] }
        };
        let vdevs = [vdev(VdevKind::Disk, 1), vdev(VdevKind::Mirror, 3), vdev(VdevKind::RaidZ1, 3)];
        // A cache device and a spare stand behind them.
        let caches = shown_caches(["/cache".to_owned()].into_iter());
        let mut shown: Vec<LayoutVdev> = asked(&vdevs, 0).into_iter().chain(caches).collect();
        let devices = [9, 7, 5, 6, 13, 17, 15, 99, 99].map(|size| size * GIB);
        let size = estimate(&mut shown, &vdevs, &devices, 4096, Some(MIB));
        let unused: Vec<u64> = shown.iter().map(|vdev| vdev.unused / GIB).collect();
        assert_eq!(unused, [0, 3, 2, 0], "rows of two columns reach as far as the second largest");
        assert_eq!(size.div_ceil(GIB), 9 + 5 + 2 * 13 + 2);
    }
}
