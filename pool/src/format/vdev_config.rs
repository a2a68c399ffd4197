//! The description of a pool's virtual devices, as each label holds it.
//!
//! A pool has top-level vdevs, over which space is spread. Each is a tree: today a single device (a leaf). Trees of the
//! other kinds have their numbers already, and a length, so that this version can step over them and refuse the pool by
//! the kind's name instead of calling the label damaged.
//!
//! ```text
//! vdev  := id varint, kind u8, length varint, payload
//! leaf  := guid u64, size varint, path text (payload of kind 1)
//! ```

use crate::{
    error::{Error, Result},
    format::codec::{Malformed, Reader, Writer, malformed},
    units::{Guid, VdevId},
};

/// The most top-level vdevs.
pub const MAX_VDEVS: usize = 1024;
/// The longest path of a device, in bytes, as in Linux.
pub const MAX_PATH: usize = 4096;

const LEAF: u8 = 1;
/// The names of the kinds, by their number.
const KINDS: [&str; 6] = ["none", "disk", "mirror", "raidz", "draid", "object store"];

/// A top-level vdev.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VdevConfig {
    /// Its position in the pool, never reused.
    pub id: VdevId,
    /// What it is made of.
    pub tree: VdevTree,
}

/// What a vdev is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VdevTree {
    /// One device.
    Leaf(LeafConfig),
    /// A kind that this version does not know: its number and its coded form.
    Other {
        /// The kind's number.
        kind: u8,
        /// Its coded form.
        payload: Vec<u8>,
    },
}

/// One device of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafConfig {
    /// Its name for life.
    pub guid: Guid,
    /// The space that it gives to the pool, in bytes: without the labels.
    pub size: u64,
    /// Where it was last seen. Only a hint: devices move.
    pub path: String,
}

impl VdevTree {
    /// The kind's name.
    pub fn kind_name(&self) -> String {
        let number = match self {
            VdevTree::Leaf(_) => LEAF,
            VdevTree::Other { kind, .. } => *kind,
        };
        KINDS.get(usize::from(number)).map_or_else(|| format!("kind {number}"), |name| (*name).to_owned())
    }

    /// The devices that it is made of, as far as this version knows.
    pub fn leaves(&self) -> &[LeafConfig] {
        match self {
            VdevTree::Leaf(leaf) => std::slice::from_ref(leaf),
            VdevTree::Other { .. } => &[],
        }
    }

    /// Refuses the kinds that this version does not know, by name.
    pub fn check_supported(&self) -> Result<()> {
        match self {
            VdevTree::Leaf(_) => Ok(()),
            VdevTree::Other { .. } => Err(Error::Unsupported {
                what: format!("a {} vdev", self.kind_name()),
                problem: "this version of Cenote knows single devices only".to_owned(),
            }),
        }
    }
}

impl VdevConfig {
    /// Appends the coded form.
    pub fn encode(&self, out: &mut impl Writer) {
        out.put_varint(u64::from(self.id.0));
        match &self.tree {
            VdevTree::Leaf(leaf) => {
                let mut payload = Vec::new();
                leaf.encode(&mut payload);
                out.put_u8(LEAF);
                out.put_prefixed(&payload);
            }
            VdevTree::Other { kind, payload } => {
                out.put_u8(*kind);
                out.put_prefixed(payload);
            }
        }
    }

    /// Takes a vdev off the reader.
    pub fn decode(reader: &mut Reader<'_>) -> Result<VdevConfig, Malformed> {
        let id = VdevId(reader.varint32("vdev's id")?);
        let kind = reader.u8("vdev's kind")?;
        let payload = reader.prefixed("vdev")?;
        let tree = match kind {
            0 => return malformed("vdev's kind"),
            LEAF => VdevTree::Leaf(LeafConfig::decode(payload)?),
            kind => VdevTree::Other { kind, payload: payload.to_vec() },
        };
        Ok(VdevConfig { id, tree })
    }
}

impl LeafConfig {
    fn encode(&self, out: &mut impl Writer) {
        out.put_u64(self.guid.0);
        out.put_varint(self.size);
        out.put_prefixed(self.path.as_bytes());
    }

    fn decode(payload: &[u8]) -> Result<LeafConfig, Malformed> {
        let mut reader = Reader::new(payload);
        let guid = Guid(reader.u64("device's guid")?);
        let size = reader.varint("device's size")?;
        let path = reader.text("device's path")?.to_owned();
        if path.len() > MAX_PATH {
            return malformed("device's path");
        }
        reader.finish("end of a device")?;
        Ok(LeafConfig { guid, size, path })
    }
}

/// Appends the coded form of all vdevs.
pub fn encode_all(vdevs: &[VdevConfig], out: &mut impl Writer) {
    out.put_varint(vdevs.len() as u64);
    vdevs.iter().for_each(|vdev| vdev.encode(out));
}

/// Takes all vdevs off the reader; their ids must ascend.
pub fn decode_all(reader: &mut Reader<'_>) -> Result<Vec<VdevConfig>, Malformed> {
    let count = reader.varint("number of vdevs")?;
    if count > MAX_VDEVS as u64 {
        return malformed("number of vdevs");
    }
    let vdevs = (0..count).map(|_| VdevConfig::decode(reader)).collect::<Result<Vec<_>, _>>()?;
    if vdevs.is_sorted_by(|a, b| a.id < b.id) { Ok(vdevs) } else { malformed("order of vdevs") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn leaf(id: u32) -> VdevConfig {
        let leaf = LeafConfig { guid: Guid(u64::from(id) + 1000), size: 1 << 30, path: format!("/disks/{id}") };
        VdevConfig { id: VdevId(id), tree: VdevTree::Leaf(leaf) }
    }

    #[test]
    fn leaves_and_unknown_kinds_round_trip() {
        let mirror = VdevConfig { id: VdevId(7), tree: VdevTree::Other { kind: 2, payload: vec![1, 2, 3] } };
        let vdevs = vec![leaf(0), leaf(3), mirror];
        let mut bytes = Vec::new();
        encode_all(&vdevs, &mut bytes);
        let mut reader = Reader::new(&bytes);
        assert_eq!(decode_all(&mut reader), Ok(vdevs));
        assert_eq!(reader.remaining(), 0);
        for len in 0..bytes.len() {
            assert!(decode_all(&mut Reader::new(&bytes[..len])).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn an_unknown_kind_is_refused_by_name() {
        let refusal = |kind| VdevTree::Other { kind, payload: Vec::new() }.check_supported().unwrap_err();
        assert_eq!(refusal(2).kind(), ErrorKind::Unsupported);
        assert!(refusal(2).to_string().starts_with("a mirror vdev is not supported"));
        assert!(refusal(99).to_string().starts_with("a kind 99 vdev is not supported"));
        assert!(leaf(0).tree.check_supported().is_ok());
    }

    #[test]
    fn a_vdev_that_stands_twice_is_refused() {
        let mut bytes = Vec::new();
        encode_all(&[leaf(1), leaf(1)], &mut bytes);
        assert_eq!(decode_all(&mut Reader::new(&bytes)), malformed("order of vdevs"));
    }
}
