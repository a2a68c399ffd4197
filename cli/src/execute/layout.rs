//! What a pool is, or shall be, made of: vdevs asked for, whether they fit to each other, and how they are shown.

use std::{cmp::Reverse, sync::Arc};

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

use crate::{
    failure::Failure,
    protocol::{LayoutVdev, VdevKind, VdevRole, VdevSpec, VdevTreeSpec},
};

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
                "mismatched replication level: {needed} {devices} may be lost of other vdevs, and {than} of the special {}",
                Level::asked(weak).words()
            );
            let hint = "use -f to have it so: the pool is lost with a special vdev as with any other";
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
        let hint = "use -f to have it so: data is spread over all vdevs, and lost with any of them";
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
/// large; to a new pool without regions.
pub(crate) fn size_of(vdevs: &[VdevTreeSpec], devices: &[u64], sector: u64, region: Option<u64>) -> u64 {
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
    let space = |(sizes, parity): Shape| match parity {
        Some(parity) => zones::space_on(sizes, parity, sector, region),
        None => least(&sizes) / region * region,
    };
    // What is for the intent log is none of the pool's.
    shapes.into_iter().filter(|(role, _)| *role != VdevRole::Log).map(|(_, shape)| space(shape)).sum()
}

/// How many bytes of such devices lie behind the end of so many others that nothing can be kept there as it is to be.
fn unused(vdev: &VdevTreeSpec, mut sizes: Vec<u64>) -> u64 {
    let fewest = vdev.kind.parity().map_or(vdev.devices.len(), |parity| usize::from(parity) + 1);
    sizes.sort_unstable_by_key(|size| Reverse(*size));
    let end = sizes.get(fewest - 1).copied().unwrap_or(0);
    sizes.iter().map(|size| size.saturating_sub(end)).sum()
}

/// How the vdevs would be shown that are asked for, of devices that are so large; the first gets the number `first`.
pub(crate) fn asked(vdevs: &[VdevTreeSpec], first: usize, devices: &[u64]) -> Vec<LayoutVdev> {
    let mut sizes = devices.iter().copied();
    let show = |(number, vdev): (usize, &VdevTreeSpec)| {
        let (role, may_lose) = (vdev.role, vdev.kind.may_lose(vdev.devices.len()));
        let unused = unused(vdev, sizes.by_ref().take(vdev.devices.len()).collect());
        let paths: Vec<String> = vdev.devices.iter().map(|device| device.path.to_text()).collect();
        match vdev.kind {
            VdevKind::Disk => LayoutVdev { role, name: paths.join(" "), devices: Vec::new(), may_lose, unused },
            kind => {
                let name = format!("{}-{number}", kind.as_str());
                LayoutVdev { role, name, devices: paths, may_lose, unused }
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
    use super::*;

    #[test]
    fn what_lies_behind_the_end_of_too_many_devices_is_of_no_use() {
        let unused = |kind: VdevKind, sizes: &[u64]| {
            let device = VdevSpec { path: "/disk".into(), create: None };
            let vdev = VdevTreeSpec { role: VdevRole::Normal, kind, devices: vec![device; sizes.len()] };
            asked(&[vdev], 0, sizes)[0].unused
        };
        assert_eq!(unused(VdevKind::Disk, &[7]), 0);
        assert_eq!(unused(VdevKind::Mirror, &[7, 5, 6]), 3);
        assert_eq!(unused(VdevKind::RaidZ1, &[3, 7, 5]), 2, "rows of two columns reach as far as the second largest");
        assert_eq!(unused(VdevKind::RaidZ2, &[3, 7, 5]), 6);
        assert_eq!(unused(VdevKind::RaidZ2, &[3, 7, 5, 4]), 4);
    }
}
