//! Requests that change the devices of a pool.

use serde::{Deserialize, Serialize};

use crate::record::{VdevSpec, VdevTreeSpec};

/// A request that changes the devices of the pool. The comment on each variant
/// ends with the [`Response`](crate::Response) it expects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeviceRequest {
    /// Add vdevs, cache devices and spares. `Layout`
    AddVdevs {
        /// New vdevs and cache devices.
        vdevs: Vec<VdevTreeSpec>,
        /// New spares, initially available.
        spares: Vec<VdevSpec>,
        /// Use devices that contain data, which is destroyed; allow vdevs of different redundancy.
        force: bool,
        /// Report the resulting layout, and change nothing.
        dry_run: bool,
    },
    /// Attach a device: form or extend a mirror, expand a RAID-Z, or replace a device. `Layout`
    Attach {
        /// Path or GUID of the existing device.
        device: String,
        /// The device to attach.
        new: VdevSpec,
        /// Replace `device`, which is detached once the new device is resilvered.
        replace: bool,
        /// Use the new device even if it contains data, which is destroyed.
        force: bool,
        /// RAID-Z expansion: limit on copying, in bytes per second.
        limit: Option<u64>,
        /// Report the resulting layout, and change nothing.
        dry_run: bool,
    },
    /// Detach a device from its mirror. `Layout`
    Detach {
        /// Path or GUID of the device.
        device: String,
        /// Detach even if the replacement lacks blocks without another good copy.
        force: bool,
    },
    /// Split one device off each mirror into a new pool, left exported. `Split`
    Split {
        /// Name of the new pool.
        name: String,
        /// Paths or GUIDs of the devices for the new pool; mirrors without a device here give up the last.
        devices: Vec<String>,
        /// Report the devices to split off, and change nothing.
        dry_run: bool,
    },
    /// Take a device of a redundant vdev, or a cache device, offline. `Done`
    Offline {
        /// Path or GUID of the device.
        device: String,
        /// Offline only until the next import.
        temporary: bool,
    },
    /// Bring a device online. `Done`
    Online {
        /// Path or GUID of the device.
        device: String,
        /// Use added space of the device.
        expand: bool,
    },
}
