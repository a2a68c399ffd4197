//! The block pointer: a block's addresses, its form, and its checksum.
//!
//! A block is named by chunk and sector, never by device, so that a chunk can move to another device without rewriting
//! pointers. Coded with variable length; see `pool/FORMAT.md`, "Block pointer".
//!
//! Invariants:
//! 1. `copies >= 1`, and `addresses[copies..]` are default.
//! 2. `stored <= logical`; both are 1 to 16 MiB. A block that did not shrink is stored uncompressed.
//! 3. `birth <= logical_birth`: a block is written before or when it is put under its key.
//! 4. If the pointer is `shared`, then `birth <= since <= logical_birth`.
//!
//! A block may have several independent owners, by *references* (OpenZFS: block cloning). The first reference belongs
//! to the block's writer; each further one is `shared`, and records its transaction group. All items of one reference
//! stand near each other, see [`BlockPointer::reference`]. Whether a tree had a block at some time is decided by
//! [`BlockPointer::entered`]; the bytes are identified by the birth.

use crate::{
    format::{
        codec::{Malformed, Reader, Writer, malformed},
        key::Key,
    },
    units::{ChunkId, Txg},
};

/// The largest block, before and after compression, in bytes.
pub const MAX_BLOCK: u32 = 16 << 20;

/// The longest coded block pointer, in bytes.
pub const MAX_POINTER: usize = 3 + 3 * (5 + 5) + 2 * 4 + 32 + 3 * 10 + 1;

/// The sizes of the ranges of shared references, as powers of two: the record sizes.
pub const SCOPES: std::ops::RangeInclusive<u8> = 12..=24;

/// The start of one copy of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The chunk's number: the index of its row in the chunk table.
    pub chunk: ChunkId,
    /// The offset in the chunk, in sectors (the pool's allocation unit).
    pub sector: u32,
}

/// A block's compression, as needed by a reader: levels are not recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Compression {
    /// Stored uncompressed.
    #[default]
    Off = 0,
    /// A block in LZ4 block format.
    Lz4 = 1,
    /// A Zstandard frame.
    Zstd = 2,
    /// A zlib stream, as written by gzip compression.
    Zlib = 3,
}

/// How a block's checksum is made. The checksum covers the bytes as stored, and is zero-padded to 32 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Checksum {
    /// None: only for file data, with `checksum=off`.
    Off = 0,
    /// BLAKE3 of 256 bits, the default.
    #[default]
    Blake3 = 1,
    /// XXH3, 128 bits, little-endian: not against an adversary.
    Xxh3 = 2,
    /// SHA-256, of FIPS 180-4.
    Sha256 = 3,
}

/// The additional fields of a pointer to a block with another writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared {
    /// The transaction group in which this reference was taken, and so the block entered the tree.
    pub since: Txg,
    /// All items of this reference have offsets in one aligned range of this size, a power of two.
    pub scope: u8,
}

/// Identifies a reference among all present and past references of one tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    /// Where the block lies.
    pub address: Address,
    /// The transaction group in which it was taken: see [`BlockPointer::entered`].
    pub entered: Txg,
    /// For a shared reference, the object and the number of its range.
    pub place: Option<(u64, u64)>,
}

/// A reference to a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockPointer {
    /// Where the copies lie; the first `copies` are meant.
    pub addresses: [Address; 3],
    /// How many copies there are, 1 to 3.
    pub copies: u8,
    /// The size of the content, in bytes.
    pub logical: u32,
    /// The size as stored, after compression, in bytes. Space is taken in whole sectors.
    pub stored: u32,
    /// Whether the block is stored in pieces: each address leads to a [`crate::format::gang`] header.
    pub gang: bool,
    /// How the content was compressed.
    pub compression: Compression,
    /// How the checksum is made.
    pub checksum_kind: Checksum,
    /// The checksum of the stored bytes.
    pub checksum: [u8; 32],
    /// When the block was written (its physical birth).
    pub birth: Txg,
    /// The transaction group in which the pointer was put under its key, used by incremental streams.
    pub logical_birth: Txg,
    /// Set for a further reference to a block that has or had another.
    pub shared: Option<Shared>,
}

impl BlockPointer {
    /// The addresses of all copies.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses[..usize::from(self.copies)]
    }

    /// The transaction group in which the block entered the tree, used by deadlists.
    pub fn entered(&self) -> Txg {
        self.shared.map_or(self.birth, |shared| shared.since)
    }

    /// The reference that the item under `key` belongs to. Items with equal results share one reference.
    pub fn reference(&self, key: Key) -> Reference {
        let place = self.shared.map(|shared| (key.object, key.offset >> shared.scope));
        Reference { address: self.addresses[0], entered: self.entered(), place }
    }

    /// The pointer of a new reference to the same block, taken in `txg` by items in one range of the size `1 << scope`.
    pub fn share(&self, txg: Txg, scope: u8) -> BlockPointer {
        assert!(SCOPES.contains(&scope) && self.birth <= txg);
        BlockPointer { logical_birth: txg, shared: Some(Shared { since: txg, scope }), ..*self }
    }

    /// The space of all copies together, in bytes, given the pool's sector size.
    pub fn allocated(&self, sector: u32) -> u64 {
        u64::from(self.copies) * u64::from(self.stored.div_ceil(sector) + u32::from(self.gang)) * u64::from(sector)
    }

    /// Appends the coded form.
    pub fn encode(&self, out: &mut impl Writer) {
        let moved = self.logical_birth != self.birth;
        let shared = self.shared.is_some();
        out.put_u8(self.copies | u8::from(moved) << 2 | u8::from(self.gang) << 3 | u8::from(shared) << 4);
        out.put_u8(self.compression as u8 | (self.checksum_kind as u8) << 4);
        out.put_varint(u64::from(self.logical));
        out.put_varint(u64::from(self.logical - self.stored));
        for address in self.addresses() {
            out.put_varint(u64::from(address.chunk.0));
            out.put_varint(u64::from(address.sector));
        }
        out.put_varint(self.birth.0);
        if moved {
            out.put_varint(self.logical_birth.0 - self.birth.0);
        }
        if let Some(Shared { since, scope }) = self.shared {
            out.put_varint(since.0 - self.birth.0);
            out.put_u8(scope);
        }
        out.put_bytes(&self.checksum[..checksum_len(self.checksum_kind)]);
    }

    /// Takes a pointer off the reader, and verifies its invariants.
    pub fn decode(reader: &mut Reader<'_>) -> Result<BlockPointer, Malformed> {
        const WHAT: &str = "block pointer";
        let flags = reader.u8(WHAT)?;
        let (copies, moved, gang, shared) = (flags & 3, flags & 4 != 0, flags & 8 != 0, flags & 16 != 0);
        if copies == 0 || flags & !31 != 0 {
            return malformed("block pointer's flags");
        }
        let kinds = reader.u8(WHAT)?;
        let compression = decode_compression(kinds & 0x0f)?;
        let checksum_kind = decode_checksum(kinds >> 4)?;
        let logical = reader.varint32(WHAT)?;
        let saved = reader.varint32(WHAT)?;
        if logical == 0 || logical > MAX_BLOCK || saved >= logical {
            return malformed("block pointer's sizes");
        }
        if (compression == Compression::Off) != (saved == 0) {
            return malformed("block pointer's compression");
        }
        let mut addresses = [Address::default(); 3];
        for address in &mut addresses[..usize::from(copies)] {
            *address = Address { chunk: ChunkId(reader.varint32(WHAT)?), sector: reader.varint32(WHAT)? };
        }
        let birth = Txg(reader.varint(WHAT)?);
        let later = if moved { reader.varint(WHAT)? } else { 0 };
        if moved && later == 0 {
            return malformed("block pointer's births");
        }
        let logical_birth = Txg(birth.0.checked_add(later).ok_or(Malformed { what: "block pointer's births" })?);
        let shared = if shared { Some(decode_shared(reader, birth, later)?) } else { None };
        let mut checksum = [0; 32];
        let len = checksum_len(checksum_kind);
        checksum[..len].copy_from_slice(reader.bytes(len, WHAT)?);
        let stored = logical - saved;
        Ok(BlockPointer {
            addresses,
            copies,
            logical,
            stored,
            gang,
            compression,
            checksum_kind,
            checksum,
            birth,
            logical_birth,
            shared,
        })
    }
}

/// `later` is the logical birth minus the birth.
fn decode_shared(reader: &mut Reader<'_>, birth: Txg, later: u64) -> Result<Shared, Malformed> {
    const WHAT: &str = "shared block pointer";
    let (since, scope) = (reader.varint(WHAT)?, reader.u8(WHAT)?);
    if since > later || !SCOPES.contains(&scope) {
        return malformed(WHAT);
    }
    Ok(Shared { since: Txg(birth.0 + since), scope })
}

/// How many bytes a checksum takes in a coded pointer.
fn checksum_len(kind: Checksum) -> usize {
    match kind {
        Checksum::Off => 0,
        Checksum::Xxh3 => 16,
        Checksum::Blake3 | Checksum::Sha256 => 32,
    }
}

fn decode_compression(code: u8) -> Result<Compression, Malformed> {
    match code {
        0 => Ok(Compression::Off),
        1 => Ok(Compression::Lz4),
        2 => Ok(Compression::Zstd),
        3 => Ok(Compression::Zlib),
        _ => malformed("compression"),
    }
}

fn decode_checksum(code: u8) -> Result<Checksum, Malformed> {
    match code {
        0 => Ok(Checksum::Off),
        1 => Ok(Checksum::Blake3),
        2 => Ok(Checksum::Xxh3),
        3 => Ok(Checksum::Sha256),
        _ => malformed("checksum kind"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Any pointer that keeps the invariants.
    pub(crate) fn any_pointer() -> impl Strategy<Value = BlockPointer> {
        let kinds = (0u8..4).prop_map(|code| decode_checksum(code).unwrap());
        (
            1u8..4,
            any::<[(u32, u32); 3]>(),
            1..=MAX_BLOCK,
            any::<u32>(),
            1u8..4,
            kinds,
            any::<[u8; 32]>(),
            any::<u64>(),
            (0u64..9, prop::option::of((0u64..9, SCOPES))),
        )
            .prop_map(
                |(copies, places, logical, saved, compression, checksum_kind, mut checksum, birth, (later, shared))| {
                    let mut addresses = [Address::default(); 3];
                    for (address, (chunk, sector)) in addresses.iter_mut().zip(places).take(copies.into()) {
                        *address = Address { chunk: ChunkId(chunk), sector };
                    }
                    let saved = saved % logical;
                    checksum[checksum_len(checksum_kind)..].fill(0);
                    let birth = birth >> 1;
                    BlockPointer {
                        addresses,
                        copies,
                        logical,
                        stored: logical - saved,
                        gang: saved % 5 == 0,
                        compression: if saved == 0 {
                            Compression::Off
                        } else {
                            decode_compression(compression).unwrap()
                        },
                        checksum_kind,
                        checksum,
                        birth: Txg(birth),
                        logical_birth: Txg(birth + later),
                        shared: shared.map(|(since, scope)| Shared { since: Txg(birth + since.min(later)), scope }),
                    }
                },
            )
    }

    proptest! {
        #[test]
        fn round_trips(pointer in any_pointer()) {
            let mut bytes = Vec::new();
            pointer.encode(&mut bytes);
            prop_assert!(bytes.len() <= MAX_POINTER);
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(BlockPointer::decode(&mut reader), Ok(pointer));
            prop_assert_eq!(reader.remaining(), 0);
        }

        #[test]
        fn garbage_is_refused_or_is_a_pointer_that_keeps_the_invariants(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            if let Ok(pointer) = BlockPointer::decode(&mut Reader::new(&bytes)) {
                prop_assert!((1..=3).contains(&pointer.copies));
                prop_assert!(pointer.stored >= 1 && pointer.stored <= pointer.logical && pointer.logical <= MAX_BLOCK);
                prop_assert!(pointer.birth <= pointer.entered() && pointer.entered() <= pointer.logical_birth);
            }
        }
    }
}
