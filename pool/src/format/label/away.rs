//! Devices of archives that are away: how up to date each was when the pool went on without the archive.
//!
//! ```text
//! away   := count varint, devices
//! device := guid u64, has mark, may have mark
//! ```
//!
//! Guids ascend. The marks are those of an incomplete member, see [`Behind`]. A device of an archive that returns is
//! compared with the marks, so that an older copy of the device is distinguished from the device.

use std::collections::BTreeMap;

use crate::{
    format::{codec::Malformed, label::by_guid, vdev_config::Behind},
    units::Guid,
};

/// The most devices in the section.
pub const MAX_AWAY: usize = 256;

/// The state of each device in the section.
pub type AllAway = BTreeMap<Guid, Behind>;

/// The coded form of some devices.
pub(super) fn encoded(devices: &AllAway) -> Vec<u8> {
    by_guid::encoded(devices, |behind, out| behind.encode(out))
}

/// The devices of a section.
pub(super) fn decode(payload: &[u8]) -> Result<AllAway, Malformed> {
    let names = ("devices of archives that are away", "end of the devices that are away");
    by_guid::decode(payload, MAX_AWAY, names, Behind::decode)
}
