//! Ends of shrunken devices in a label: the pool uses a device only up to its end, and no longer the space behind.
//!
//! ```text
//! ends := count varint, each: guid u64, end varint
//! ```
//!
//! The end is in bytes from the start of the device, and the back labels stand before it. Guids ascend. Devices not
//! named are used to their physical end.

use std::collections::BTreeMap;

use crate::{
    format::{
        codec::{Malformed, Reader, Writer, malformed},
        label::{BACK_LABELS, DATA_START, LABEL_SIZE},
    },
    units::Guid,
};

/// The end of each shrunken device, in bytes.
pub type DeviceEnds = BTreeMap<Guid, u64>;

/// The most devices named.
pub const MAX_ENDS: usize = 4096;

/// The coded form of some ends.
pub(super) fn encoded(ends: &DeviceEnds) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_varint(ends.len() as u64);
    for (device, end) in ends {
        out.put_u64(device.0);
        out.put_varint(*end);
    }
    out
}

/// The ends of a section.
pub(super) fn decode(payload: &[u8]) -> Result<DeviceEnds, Malformed> {
    const WHAT: &str = "ends of devices";
    let mut reader = Reader::new(payload);
    let count = reader.varint(WHAT)?;
    if !(1..=MAX_ENDS as u64).contains(&count) {
        return malformed(WHAT);
    }
    let mut ends = DeviceEnds::new();
    for _ in 0..count {
        let (device, end) = (Guid(reader.u64(WHAT)?), reader.varint(WHAT)?);
        if end < DATA_START + BACK_LABELS || !end.is_multiple_of(LABEL_SIZE) {
            return malformed("end of a device");
        }
        if ends.last_key_value().is_some_and(|(last, _)| *last >= device) {
            return malformed("order of ends");
        }
        ends.insert(device, end);
    }
    reader.finish(WHAT)?;
    Ok(ends)
}
