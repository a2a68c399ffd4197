//! An extent: a mapping of a file's bytes to bytes of a block, or the bytes themselves.
//!
//! See `dataset/FORMAT.md`, "Extent".

use pool::{
    format::codec::{Malformed, Reader, Writer, malformed},
    tree::{Block, Entry, View},
};

use crate::fs::{
    change::Change,
    failure::{Failure, damaged},
    inode::MAX_SIZE,
    key::{self, Ino},
};

/// The longest content of a file stored in the tree itself, in bytes.
pub const INLINE_MAX: u64 = 1024;

const INLINE: u8 = 0;
const BLOCK: u8 = 1;

/// A decoded item of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent<'a> {
    /// The bytes themselves.
    Inline(&'a [u8]),
    /// A part of the item's block.
    Part {
        /// The number of bytes.
        len: u32,
        /// The offset in the block.
        start: u32,
    },
}

impl<'a> Extent<'a> {
    /// Encodes the body of an item.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match *self {
            Extent::Inline(bytes) => {
                out.reserve_exact(1 + bytes.len());
                out.put_u8(INLINE);
                out.put_bytes(bytes);
            }
            Extent::Part { len, start } => {
                out.put_u8(BLOCK);
                out.put_varint(len.into());
                out.put_varint(start.into());
            }
        }
        out
    }

    /// Decodes the body of an item.
    pub fn decode(body: &'a [u8]) -> Result<Extent<'a>, Malformed> {
        const WHAT: &str = "extent";
        let mut reader = Reader::new(body);
        match reader.u8(WHAT)? {
            INLINE => Ok(Extent::Inline(reader.rest())),
            BLOCK => {
                let (len, start) = (reader.varint32(WHAT)?, reader.varint32(WHAT)?);
                reader.finish(WHAT)?;
                if len == 0 || start.checked_add(len).is_none() {
                    return malformed("extent's part");
                }
                Ok(Extent::Part { len, start })
            }
            _ => malformed("extent's kind"),
        }
    }
}

/// The bytes of a piece.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// The bytes themselves.
    Inline(Vec<u8>),
    /// Part of a block, from the offset `start` on.
    Part { block: Block, start: u32 },
}

/// An extent with its offset in the file.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    /// The offset in the file.
    pub(super) offset: u64,
    /// The length in bytes.
    pub(super) len: u64,
    pub(super) content: Content,
}

impl Piece {
    /// The piece of an item.
    pub(super) fn decode(entry: &Entry) -> Result<Piece, Failure> {
        let key = entry.key();
        let piece = match Extent::decode(entry.body()).map_err(damaged(key))? {
            Extent::Inline(_) if key.offset != 0 => {
                return Err(damaged(key)(Malformed { what: "inline extent's place" }));
            }
            Extent::Inline(bytes) => {
                Piece { offset: key.offset, len: bytes.len() as u64, content: Content::Inline(bytes.to_vec()) }
            }
            Extent::Part { len, start } => {
                let block =
                    entry.block().ok_or(Malformed { what: "extent without its block" }).map_err(damaged(key))?;
                Piece { offset: key.offset, len: len.into(), content: Content::Part { block, start } }
            }
        };
        match piece.offset.checked_add(piece.len) {
            Some(end) if end <= MAX_SIZE => Ok(piece),
            _ => Err(damaged(key)(Malformed { what: "extent's range" })),
        }
    }

    /// The end of the piece in the file.
    pub(super) fn end(&self) -> u64 {
        self.offset + self.len
    }

    pub(super) fn block(&self) -> Option<&Block> {
        match &self.content {
            Content::Inline(_) => None,
            Content::Part { block, .. } => Some(block),
        }
    }

    /// Whether both pieces have the same item.
    pub(super) fn same(&self, other: &Piece) -> bool {
        let place = (self.offset, self.len) == (other.offset, other.len);
        place
            && match (&self.content, &other.content) {
                (Content::Inline(one), Content::Inline(two)) => one == two,
                (Content::Part { block: one, start: s }, Content::Part { block: two, start: t }) => {
                    s == t && one.same(two)
                }
                _ => false,
            }
    }

    /// Appends the part of the piece within the bytes `from..to` of the file; `bytes` is the content of the piece's
    /// block.
    pub(super) fn copy(&self, bytes: &[u8], from: u64, to: u64, out: &mut Vec<u8>) -> Result<(), Malformed> {
        let (from, to) = (from.max(self.offset) - self.offset, to.min(self.end()) - self.offset);
        let start = match self.content {
            Content::Inline(_) => 0,
            Content::Part { start, .. } => u64::from(start),
        };
        let part = bytes.get((start + from) as usize..(start + to) as usize);
        out.extend_from_slice(part.ok_or(Malformed { what: "extent that is longer than its block" })?);
        Ok(())
    }
}

/// Puts the target of a symbolic link.
pub(in crate::fs) fn put_inline(change: &mut Change<'_>, ino: Ino, bytes: &[u8]) {
    change.put(key::extent(ino, 0), Extent::Inline(bytes).encode(), None);
}

/// The target of a symbolic link.
pub(in crate::fs) fn load_inline(view: &View<'_>, ino: Ino) -> Result<Vec<u8>, Failure> {
    let key = key::extent(ino, 0);
    let missing = Malformed { what: "symbolic link without its target" };
    let entry = view.get(key)?.ok_or(missing).map_err(damaged(key))?;
    match Extent::decode(entry.body()).map_err(damaged(key))? {
        Extent::Inline(bytes) => Ok(bytes.to_vec()),
        Extent::Part { .. } => Err(damaged(key)(Malformed { what: "symbolic link's target" })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_extent_round_trips(bytes: Vec<u8>, len in 1u32..1 << 24, start in 0u32..1 << 24) {
            for extent in [Extent::Inline(&bytes), Extent::Part { len, start }] {
                let body = extent.encode();
            prop_assert_eq!(Extent::decode(&body), Ok(extent));
            }
        }

        #[test]
        fn garbage_never_panics(body: Vec<u8>) {
            let _ = Extent::decode(&body);
        }
    }
}
