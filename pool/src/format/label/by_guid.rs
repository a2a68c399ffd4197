//! Sections with a value for each of some devices: the count, then guid and value of each, in the order of the guids.

use std::collections::BTreeMap;

use crate::{
    format::codec::{Malformed, Reader, Writer, malformed},
    units::Guid,
};

/// The coded form of some devices; `encode` appends a value.
pub(super) fn encoded<T>(devices: &BTreeMap<Guid, T>, encode: impl Fn(&T, &mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_varint(devices.len() as u64);
    for (device, value) in devices {
        out.put_u64(device.0);
        encode(value, &mut out);
    }
    out
}

/// The devices of a section, at least one and at most `most`; `decode` takes a value off the reader. An error names
/// `what`, or `end` if bytes follow.
pub(super) fn decode<T>(
    payload: &[u8],
    most: usize,
    (what, end): (&'static str, &'static str),
    decode: impl Fn(&mut Reader<'_>) -> Result<T, Malformed>,
) -> Result<BTreeMap<Guid, T>, Malformed> {
    let mut reader = Reader::new(payload);
    let count = usize::try_from(reader.varint(what)?).unwrap_or(usize::MAX);
    if !(1..=most).contains(&count) {
        return malformed(what);
    }
    let mut devices = BTreeMap::new();
    for _ in 0..count {
        let device = Guid(reader.u64(what)?);
        let value = decode(&mut reader)?;
        if devices.last_key_value().is_some_and(|(last, _)| *last >= device) {
            return malformed(what);
        }
        devices.insert(device, value);
    }
    reader.finish(end)?;
    Ok(devices)
}
