//! Cache devices in a label: devices of the pool in no vdev, with copies of blocks that were read.
//!
//! ```text
//! caches := count varint, each: length varint, cache
//! cache  := guid u64, size varint, path text (as a device of a vdev)
//! ```
//!
//! They are in the order of their addition. No device occurs twice.

use crate::format::{
    codec::{Malformed, Reader, Writer, malformed},
    vdev_config::LeafConfig,
};

/// The most cache devices of a pool.
pub const MAX_CACHES: usize = 256;

/// A cache device: it holds copies of blocks, and its loss costs nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// The device, described as in a vdev.
    pub leaf: LeafConfig,
}

/// The coded form of some caches.
pub(super) fn encoded(caches: &[CacheConfig]) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_varint(caches.len() as u64);
    caches.iter().for_each(|cache| out.put_prefixed(&cache.leaf.encoded()));
    out
}

/// The caches of a section.
pub(super) fn decode(payload: &[u8]) -> Result<Vec<CacheConfig>, Malformed> {
    const WHAT: &str = "number of caches";
    let mut reader = Reader::new(payload);
    let count = usize::try_from(reader.varint(WHAT)?).unwrap_or(usize::MAX);
    if !(1..=MAX_CACHES).contains(&count) {
        return malformed(WHAT);
    }
    let mut caches: Vec<CacheConfig> = Vec::new();
    for _ in 0..count {
        let leaf = LeafConfig::decode(reader.prefixed("cache")?)?;
        if caches.iter().any(|other| other.leaf.guid == leaf.guid) {
            return malformed("cache that stands twice");
        }
        caches.push(CacheConfig { leaf });
    }
    reader.finish("end of caches")?;
    Ok(caches)
}
