//! The shapes of a pool's vdevs, by its label.

use crate::{
    device::Device,
    error::{Error, Result},
    format::{
        label::{Label, device_size},
        vdev_config::{RaidZConfig, VdevConfig, VdevTree, Zone},
    },
    space::VdevShape,
    vdev::raidz::zones::Zones,
};

/// The shapes of a vdev for the space layer: one, or one for each zone of a RAID-Z.
pub(super) fn shapes_of(label: &Label, config: &VdevConfig) -> Vec<VdevShape> {
    let vdev = config.id;
    let class = label.sections.classes.get(&vdev).copied();
    match &config.tree {
        VdevTree::RaidZ(raidz) if !raidz.zones.is_empty() => {
            let shape = |zone: &Zone| VdevShape {
                vdev,
                first_region: zone.first_region,
                size: u64::from(zone.regions).saturating_mul(label.region_size),
                unit: u32::from(zone.columns.saturating_sub(raidz.parity)),
                class,
            };
            raidz.zones.iter().map(shape).collect()
        }
        tree => vec![VdevShape { vdev, first_region: 0, size: label.size_of(config), unit: tree.unit(), class }],
    }
}

/// The layout of the rows of a RAID-Z, by a label.
pub(super) fn zones(label: &Label, raidz: &RaidZConfig) -> Result<Zones> {
    let zones = Zones::of(raidz, 1 << label.ashift, label.region_size);
    zones.ok_or_else(|| Error::damaged(format!("pool {}", label.pool_name), "it describes no raidz that can be"))
}

/// The error of a device too small for `usable` usable bytes.
pub(super) fn shrunk(device: &dyn Device, usable: u64) -> Error {
    Error::Shrunk { device: device.name().to_owned(), size: device.size(), needed: device_size(usable) }
}
