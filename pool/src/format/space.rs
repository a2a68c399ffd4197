//! The structures of the space layer: the root in the uberblock, the chunk table, checkpoints and the space log.
//!
//! ```text
//! uberblock -> SpaceRoot -+-> table root -> table pages -> a checkpoint per chunk   (which sectors were free, when)
//!                         |                            |-> a map per packed chunk  (where its blocks went)
//!                         |                            \-> places per chunk with any on archives
//!                         +-> space log: the newest block -> the one before -> ...  (what changed since)
//! ```
//!
//! The structures must be readable before any chunk can be resolved, so they are linked by *physical* pointers: device
//! and byte offset, three copies, length and BLAKE3 checksum. A structure is decoded only after its checksum was
//! verified, and its fields are checked all the same.

pub mod checkpoint;
pub mod log;
pub mod packing;
pub mod places;
pub mod table;

use crate::{
    format::{
        codec::{Malformed, Reader, Writer, malformed},
        pointer::MAX_BLOCK,
    },
    units::{Txg, VdevId},
};

/// The longest coded [`SpaceRoot`], in bytes: the room reserved in the uberblock.
pub const MAX_SPACE_ROOT: usize = 2048;

/// The longest coded [`PhysicalPointer`], in bytes.
pub const MAX_PHYSICAL_POINTER: usize = 1 + 3 * (5 + 10) + 5 + 32;

/// The version of the structures here.
const VERSION: u8 = 1;

/// A run of sectors inside one chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// The first sector, from the chunk's beginning.
    pub start: u32,
    /// The length, in sectors.
    pub len: u32,
}

impl Span {
    /// A span from its parts.
    pub const fn new(start: u32, len: u32) -> Span {
        Span { start, len }
    }

    /// The first sector after the span.
    pub fn end(self) -> u32 {
        self.start + self.len
    }
}

/// The preferred class of blocks in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Class {
    /// Contents of files.
    Data = 1,
    /// Nodes, and all other blocks.
    Metadata = 2,
}

impl Class {
    /// The class with this code; zero is a chunk without a class.
    pub fn decode(code: u8) -> Result<Option<Class>, Malformed> {
        match code {
            0 => Ok(None),
            1 => Ok(Some(Class::Data)),
            2 => Ok(Some(Class::Metadata)),
            _ => malformed("chunk's class"),
        }
    }
}

/// The start of one copy of a space structure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The vdev that stores the copy.
    pub vdev: VdevId,
    /// The offset in the device's usable space, in bytes.
    pub offset: u64,
}

/// A reference to a space structure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhysicalPointer {
    /// Where the copies lie; the first `copies` are meant.
    pub places: [Place; 3],
    /// How many copies there are, 1 to 3.
    pub copies: u8,
    /// The length in bytes, without the padding to a whole sector.
    pub len: u32,
    /// BLAKE3 of the `len` bytes.
    pub checksum: [u8; 32],
}

impl PhysicalPointer {
    /// The places of all copies.
    pub fn places(&self) -> &[Place] {
        &self.places[..usize::from(self.copies)]
    }

    /// Appends the coded form.
    pub fn encode(&self, out: &mut impl Writer) {
        out.put_u8(self.copies);
        for place in self.places() {
            out.put_varint(u64::from(place.vdev.0));
            out.put_varint(place.offset);
        }
        out.put_varint(u64::from(self.len));
        out.put_bytes(&self.checksum);
    }

    /// Appends the coded form of a pointer or of its absence.
    pub fn encode_option(pointer: Option<&PhysicalPointer>, out: &mut impl Writer) {
        match pointer {
            Some(pointer) => pointer.encode(out),
            None => out.put_u8(0),
        }
    }

    /// Takes a pointer off the reader.
    pub fn decode(reader: &mut Reader<'_>) -> Result<PhysicalPointer, Malformed> {
        Self::decode_option(reader)?.ok_or(Malformed { what: "physical pointer" })
    }

    /// Takes a pointer or its absence off the reader.
    pub fn decode_option(reader: &mut Reader<'_>) -> Result<Option<PhysicalPointer>, Malformed> {
        const WHAT: &str = "physical pointer";
        let copies = reader.u8(WHAT)?;
        if copies == 0 {
            return Ok(None);
        }
        let mut places = [Place::default(); 3];
        for place in places.get_mut(..usize::from(copies)).ok_or(Malformed { what: WHAT })? {
            *place = Place { vdev: VdevId(reader.varint32(WHAT)?), offset: reader.varint(WHAT)? };
        }
        let len = reader.varint32(WHAT)?;
        if len == 0 || len > MAX_BLOCK {
            return malformed(WHAT);
        }
        Ok(Some(PhysicalPointer { places, copies, len, checksum: reader.array(WHAT)? }))
    }
}

/// The root of the space layer in the uberblock, from which all its structures are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceRoot {
    /// The chunk table's root.
    pub table: PhysicalPointer,
    /// The newest block of the space log.
    pub log_head: PhysicalPointer,
    /// The oldest transaction group needed from the log.
    pub log_tail: Txg,
    /// The number of the next new chunk.
    pub next_chunk: u32,
    /// The sectors allocated, in all chunks, at the end of the transaction group.
    pub allocated: u64,
}

impl SpaceRoot {
    /// Appends the coded form, of at most [`MAX_SPACE_ROOT`] bytes.
    pub fn encode(&self, out: &mut impl Writer) {
        out.put_u8(VERSION);
        self.table.encode(out);
        self.log_head.encode(out);
        out.put_varint(self.log_tail.0);
        out.put_varint(u64::from(self.next_chunk));
        out.put_varint(self.allocated);
    }

    /// Takes a root off the reader.
    pub fn decode(reader: &mut Reader<'_>) -> Result<SpaceRoot, Malformed> {
        const WHAT: &str = "space root";
        if reader.u8(WHAT)? != VERSION {
            return malformed("space root's version");
        }
        Ok(SpaceRoot {
            table: PhysicalPointer::decode(reader)?,
            log_head: PhysicalPointer::decode(reader)?,
            log_tail: Txg(reader.varint(WHAT)?),
            next_chunk: reader.varint32(WHAT)?,
            allocated: reader.varint(WHAT)?,
        })
    }
}

/// Appends the head common to all stored structures.
fn put_head(magic: &[u8; 4], out: &mut Vec<u8>) {
    out.put_bytes(magic);
    out.put_u8(VERSION);
}

/// Takes the head off, and verifies the magic.
fn take_head(magic: &[u8; 4], reader: &mut Reader<'_>, what: &'static str) -> Result<(), Malformed> {
    if reader.array::<4>(what)? != *magic || reader.u8(what)? != VERSION {
        return malformed(what);
    }
    Ok(())
}

/// Appends sorted, disjoint spans, each as its distance from the previous end and its length.
fn put_spans(spans: &[Span], out: &mut Vec<u8>) {
    let mut end = 0;
    for span in spans {
        out.put_varint(u64::from(span.start - end));
        out.put_varint(u64::from(span.len));
        end = span.end();
    }
}

/// Takes `count` spans off the reader; fails unless they are sorted, disjoint and not empty.
fn take_spans(count: u64, reader: &mut Reader<'_>, what: &'static str) -> Result<Vec<Span>, Malformed> {
    if count > reader.remaining() as u64 / 2 {
        return malformed(what);
    }
    let mut spans = Vec::with_capacity(count as usize);
    let mut end = 0u32;
    for _ in 0..count {
        let start = end.checked_add(reader.varint32(what)?).ok_or(Malformed { what })?;
        let len = reader.varint32(what)?;
        end = start.checked_add(len).filter(|_| len > 0).ok_or(Malformed { what })?;
        spans.push(Span { start, len });
    }
    Ok(spans)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Any valid physical pointer.
    pub(crate) fn any_physical() -> impl Strategy<Value = PhysicalPointer> {
        (1u8..4, any::<[(u32, u64); 3]>(), 1..=MAX_BLOCK, any::<[u8; 32]>()).prop_map(|(copies, at, len, checksum)| {
            let mut places = [Place::default(); 3];
            for (place, (vdev, offset)) in places.iter_mut().zip(at).take(copies.into()) {
                *place = Place { vdev: VdevId(vdev), offset };
            }
            PhysicalPointer { places, copies, len, checksum }
        })
    }

    proptest! {
        #[test]
        fn the_root_round_trips(table in any_physical(), log_head in any_physical(), tail: u64, next_chunk: u32, allocated: u64) {
            let root = SpaceRoot { table, log_head, log_tail: Txg(tail), next_chunk, allocated };
            let mut bytes = Vec::new();
            root.encode(&mut bytes);
            prop_assert!(bytes.len() <= MAX_SPACE_ROOT);
            prop_assert_eq!(SpaceRoot::decode(&mut Reader::new(&bytes)), Ok(root));
        }

        #[test]
        fn garbage_never_panics(mut bytes in prop::collection::vec(any::<u8>(), 1..300)) {
            let _ = PhysicalPointer::decode_option(&mut Reader::new(&bytes));
            bytes[0] = VERSION;
            let _ = SpaceRoot::decode(&mut Reader::new(&bytes));
            let _ = take_spans(5, &mut Reader::new(&bytes), "spans");
        }
    }
}
