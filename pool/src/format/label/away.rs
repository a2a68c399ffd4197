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
    format::{
        codec::{Malformed, Reader, Writer, malformed},
        vdev_config::Behind,
    },
    units::Guid,
};

/// The most devices in the section.
pub const MAX_AWAY: usize = 256;

/// The state of each device in the section.
pub type AllAway = BTreeMap<Guid, Behind>;

/// The coded form of some devices.
pub(super) fn encoded(devices: &AllAway) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_varint(devices.len() as u64);
    for (device, behind) in devices {
        out.put_u64(device.0);
        behind.encode(&mut out);
    }
    out
}

/// The devices of a section.
pub(super) fn decode(payload: &[u8]) -> Result<AllAway, Malformed> {
    const WHAT: &str = "devices of archives that are away";
    let mut reader = Reader::new(payload);
    let count = usize::try_from(reader.varint(WHAT)?).unwrap_or(usize::MAX);
    if !(1..=MAX_AWAY).contains(&count) {
        return malformed(WHAT);
    }
    let mut devices = AllAway::new();
    for _ in 0..count {
        let device = Guid(reader.u64(WHAT)?);
        let behind = Behind::decode(&mut reader)?;
        if devices.last_key_value().is_some_and(|(last, _)| *last >= device) {
            return malformed(WHAT);
        }
        devices.insert(device, behind);
    }
    reader.finish("end of the devices that are away")?;
    Ok(devices)
}
