//! What a pool is, or shall be, made of: vdevs asked for, whether they fit to each other, and how they are shown.

use std::sync::Arc;

use pool::{
    admin::NewVdev,
    device::Device,
    format::label::usable_size,
    space::region_size,
    vdev::{Leaf, Vdev},
};

use crate::{
    failure::Failure,
    protocol::{LayoutVdev, VdevKind, VdevSpec, VdevTreeSpec},
};

/// The devices of all vdevs, in order.
pub(crate) fn devices_of(vdevs: &[VdevTreeSpec]) -> Vec<VdevSpec> {
    vdevs.iter().flat_map(|vdev| vdev.devices.iter().cloned()).collect()
}

/// The vdevs, of the devices that [`devices_of`] named.
pub(crate) fn grouped(vdevs: &[VdevTreeSpec], devices: Vec<Arc<dyn Device>>) -> Vec<NewVdev> {
    let mut devices = devices.into_iter();
    let group = |vdev: &VdevTreeSpec| {
        let mut own: Vec<_> = devices.by_ref().take(vdev.devices.len()).collect();
        match vdev.kind {
            VdevKind::Disk => NewVdev::Disk(own.remove(0)),
            VdevKind::Mirror => NewVdev::Mirror(own),
        }
    };
    vdevs.iter().map(group).collect()
}

/// How many devices of a vdev hold the same.
type Width = usize;

fn words(width: Width) -> String {
    if width == 1 { "disk".to_owned() } else { format!("{width}-way mirror") }
}

/// Refuses vdevs that keep unequally much if devices fail: among each other, or beside those that the pool has.
pub(crate) fn check_replication(
    vdevs: &[VdevTreeSpec],
    present: &[Arc<dyn Vdev>],
    action: &str,
    pool: &str,
) -> Result<(), Failure> {
    let refused = |why: String| {
        let hint = "use -f to have it so: data is spread over all vdevs, and lost with any of them";
        Err(Failure::cannot(action, pool, format!("mismatched replication level: {why}")).hint(hint))
    };
    let width = |vdev: &VdevTreeSpec| vdev.devices.len();
    let first = vdevs.first().map_or(1, width);
    if let Some(other) = vdevs.iter().map(width).find(|other| *other != first) {
        return refused(format!("both {} and {} vdevs are named", words(first), words(other)));
    }
    match present.iter().map(|vdev| vdev.leaves().len()).max() {
        Some(has) if has != first => refused(format!("pool uses {} and new vdev is {}", words(has), words(first))),
        _ => Ok(()),
    }
}

/// How much space these vdevs would give to a pool with regions of this size, in bytes, on devices that are so large; to a
/// new pool without one.
pub(crate) fn size_of(vdevs: &[VdevTreeSpec], devices: &[u64], region: Option<u64>) -> u64 {
    let mut devices = devices.iter().map(|size| usable_size(*size));
    let gives = |vdev: &VdevTreeSpec| {
        let own: Vec<u64> = devices.by_ref().take(vdev.devices.len()).collect();
        vdev.kind.gives(&own)
    };
    let vdevs: Vec<u64> = vdevs.iter().map(gives).collect();
    let region = region.unwrap_or_else(|| region_size(vdevs.iter().copied().min().unwrap_or(0)));
    vdevs.iter().map(|size| size / region * region).sum()
}

/// How the vdevs would be shown that are asked for; the first gets the number `first`.
pub(crate) fn asked(vdevs: &[VdevTreeSpec], first: usize) -> Vec<LayoutVdev> {
    let show = |(number, vdev): (usize, &VdevTreeSpec)| {
        let may_lose = vdev.kind.may_lose(vdev.devices.len());
        let paths: Vec<String> = vdev.devices.iter().map(|device| device.path.to_text()).collect();
        match vdev.kind {
            VdevKind::Disk => LayoutVdev { name: paths.join(" "), devices: Vec::new(), may_lose },
            VdevKind::Mirror => LayoutVdev { name: format!("mirror-{number}"), devices: paths, may_lose },
        }
    };
    (first..).zip(vdevs).map(show).collect()
}

/// How a vdev of an open pool is shown.
pub(crate) fn shown(vdev: &dyn Vdev) -> LayoutVdev {
    let paths = vdev.leaves().iter().map(|leaf| leaf.name().to_owned()).collect();
    let may_lose = may_lose(vdev);
    match vdev.as_mirror() {
        Some(_) => LayoutVdev { name: name_of(vdev), devices: paths, may_lose },
        None => LayoutVdev { name: name_of(vdev), devices: Vec::new(), may_lose },
    }
}

/// How many devices a vdev may lose of those that lack nothing.
pub(crate) fn may_lose(vdev: &dyn Vdev) -> usize {
    vdev.committing().len().saturating_sub(1)
}

/// The name of a vdev: `mirror-0`, or the device's path.
pub(crate) fn name_of(vdev: &dyn Vdev) -> String {
    match vdev.as_mirror() {
        Some(_) => format!("mirror-{}", vdev.id()),
        None => vdev.leaves().iter().map(|leaf: &Arc<Leaf>| leaf.name().to_owned()).collect::<Vec<_>>().join(" "),
    }
}
