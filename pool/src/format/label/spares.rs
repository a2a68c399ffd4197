//! Spares in a label: devices of the pool in no vdev, available to replace a failed device.
//!
//! ```text
//! spares := count varint, each: length varint, spare
//! spare  := guid u64, size varint, path text (as a device of a vdev)
//! ```
//!
//! They are in the order of their addition. No device occurs twice.

use crate::format::{
    codec::{Malformed, Reader, Writer, malformed},
    vdev_config::LeafConfig,
};

/// The most spares of a pool.
pub const MAX_SPARES: usize = 256;

/// A spare: a device that replaces a failed one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpareConfig {
    /// The device, described as in a vdev.
    pub leaf: LeafConfig,
}

/// The coded form of some spares.
pub(super) fn encoded(spares: &[SpareConfig]) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_varint(spares.len() as u64);
    spares.iter().for_each(|spare| out.put_prefixed(&spare.leaf.encoded()));
    out
}

/// The spares of a section.
pub(super) fn decode(payload: &[u8]) -> Result<Vec<SpareConfig>, Malformed> {
    const WHAT: &str = "number of spares";
    let mut reader = Reader::new(payload);
    let count = usize::try_from(reader.varint(WHAT)?).unwrap_or(usize::MAX);
    if !(1..=MAX_SPARES).contains(&count) {
        return malformed(WHAT);
    }
    let mut spares: Vec<SpareConfig> = Vec::new();
    for _ in 0..count {
        let leaf = LeafConfig::decode(reader.prefixed("spare")?)?;
        if spares.iter().any(|other| other.leaf.guid == leaf.guid) {
            return malformed("spare that stands twice");
        }
        spares.push(SpareConfig { leaf });
    }
    reader.finish("end of spares")?;
    Ok(spares)
}
