//! Records: a header of 312 bytes and a payload, under a running checksum.
//!
//! Numbers are little-endian. Each record but the first carries the sums of all bytes before its own checksum, and the
//! last record carries the sums of all before the record.

use std::io::Write;

use crate::{
    error::Result,
    stream::Error as StreamError,
    zfs::{
        fields::Order,
        fletcher::Fletcher,
        record::{CLONE, FILE_SYSTEM, HEADER, MAGIC, MAGIC_AT, SUMMED},
    },
};

/// The length of a snapshot's name, with its NUL.
const NAME: usize = 256;
const TO_THE_END: u64 = u64::MAX;
const STREAM: u64 = 1;
const PACKAGE: u64 = 2;

const BEGIN: u32 = 0;
const OBJECT: u32 = 1;
const FREE_OBJECTS: u32 = 2;
const WRITE: u32 = 3;
const FREE: u32 = 4;
const END: u32 = 5;

/// The head of a stream.
#[derive(Clone, Debug)]
pub(super) struct Head {
    /// The snapshot's full name.
    pub(super) name: String,
    pub(super) guid: u64,
    /// The GUID of the base; 0 for a full stream.
    pub(super) from: u64,
    /// Seconds since 1970.
    pub(super) creation: u64,
    /// Whether the base is a snapshot of another dataset.
    pub(super) clone: bool,
}

/// An object's description.
#[derive(Clone, Debug)]
pub(super) struct Object<'a> {
    pub(super) number: u64,
    pub(super) type_: u32,
    pub(super) bonus_type: u32,
    /// The size of its blocks, in bytes: a multiple of 512.
    pub(super) block: u32,
    pub(super) bonus: &'a [u8],
}

/// The output, and the sums so far.
pub(super) struct Frames<'a> {
    out: &'a mut dyn Write,
    progress: &'a mut dyn FnMut(u64),
    written: u64,
    sums: Fletcher,
    /// The GUID of the stream under way, which every record repeats.
    guid: u64,
}

/// A header under construction.
struct Header([u8; HEADER]);

impl Header {
    fn new(type_: u32) -> Header {
        Header([0; HEADER]).u32(0, type_)
    }

    fn u8(mut self, at: usize, value: u8) -> Header {
        self.0[at] = value;
        self
    }

    fn u32(mut self, at: usize, value: u32) -> Header {
        self.0[at..at + 4].copy_from_slice(&value.to_le_bytes());
        self
    }

    fn u64(mut self, at: usize, value: u64) -> Header {
        self.0[at..at + 8].copy_from_slice(&value.to_le_bytes());
        self
    }

    /// Sets the name of a snapshot. A longer name is cut: receivers choose their own.
    fn name(&mut self, name: &str) {
        let name = &name.as_bytes()[..name.len().min(NAME - 1)];
        self.0[56..56 + name.len()].copy_from_slice(name);
    }

    fn sums(self, at: usize, sums: [u64; 4]) -> Header {
        (0..).zip(sums).fold(self, |header, (index, sum)| header.u64(at + index * 8, sum))
    }
}

impl<'a> Frames<'a> {
    pub(super) fn new(out: &'a mut dyn Write, progress: &'a mut dyn FnMut(u64)) -> Frames<'a> {
        Frames { out, progress, written: 0, sums: Fletcher::default(), guid: 0 }
    }

    /// Begins the stream of a snapshot.
    pub(super) fn begin(&mut self, head: &Head) -> Result<()> {
        (self.sums, self.guid) = (Fletcher::default(), head.guid);
        let mut header = Header::new(BEGIN)
            .u64(MAGIC_AT, MAGIC)
            .u64(16, STREAM)
            .u64(24, head.creation)
            .u32(32, FILE_SYSTEM)
            .u32(36, if head.clone { CLONE } else { 0 })
            .u64(40, head.guid)
            .u64(48, head.from);
        header.name(&head.name);
        self.put(&header.0, &[])
    }

    /// Begins a package of streams. `name` is the full name of the last snapshot.
    pub(super) fn begin_package(&mut self, name: &str, description: &[u8]) -> Result<()> {
        (self.sums, self.guid) = (Fletcher::default(), 0);
        let mut header = Header::new(BEGIN).u32(4, description.len() as u32).u64(MAGIC_AT, MAGIC).u64(16, PACKAGE);
        header.name(name);
        self.put(&header.0, description)?;
        // As OpenZFS writes it, without the record's own checksum.
        self.put(&Header::new(END).sums(8, self.sums.0).0, &[])
    }

    /// Ends the list of a package's streams.
    pub(super) fn end_package(&mut self) -> Result<()> {
        self.put(&Header::new(END).0, &[])
    }

    /// Describes an object, whose blocks follow.
    pub(super) fn object(&mut self, object: &Object<'_>) -> Result<()> {
        const SLOTS: u8 = 1;
        let header = Header::new(OBJECT)
            .u64(8, object.number)
            .u32(16, object.type_)
            .u32(20, object.bonus_type)
            .u32(24, object.block)
            .u32(28, object.bonus.len() as u32)
            .u8(34, SLOTS)
            .u64(40, self.guid);
        let mut bonus = object.bonus.to_vec();
        bonus.resize(bonus.len().next_multiple_of(8), 0);
        self.record(header, &bonus)
    }

    /// Deletes `count` objects from `first` on.
    pub(super) fn free_objects(&mut self, first: u64, count: u64) -> Result<()> {
        self.record(Header::new(FREE_OBJECTS).u64(8, first).u64(16, count).u64(24, self.guid), &[])
    }

    /// Writes one whole block.
    pub(super) fn write(&mut self, object: u64, type_: u32, offset: u64, block: &[u8]) -> Result<()> {
        let header = Header::new(WRITE)
            .u64(8, object)
            .u32(16, type_)
            .u64(24, offset)
            .u64(32, block.len() as u64)
            .u64(40, self.guid);
        self.record(header, block)
    }

    /// Makes a range of an object a hole.
    pub(super) fn free(&mut self, object: u64, offset: u64, len: u64) -> Result<()> {
        self.record(Header::new(FREE).u64(8, object).u64(16, offset).u64(24, len).u64(32, self.guid), &[])
    }

    /// Ends an object at `offset`.
    pub(super) fn cut(&mut self, object: u64, offset: u64) -> Result<()> {
        self.free(object, offset, TO_THE_END)
    }

    /// Ends the stream of a snapshot.
    pub(super) fn end(&mut self) -> Result<()> {
        let header = Header::new(END).sums(8, self.sums.0).u64(40, self.guid);
        self.record(header, &[])
    }

    /// Returns the number of bytes written.
    pub(super) fn flush(&mut self) -> Result<u64> {
        self.out.flush().map_err(|source| self.failed(source))?;
        Ok(self.written)
    }

    fn record(&mut self, header: Header, payload: &[u8]) -> Result<()> {
        let mut sums = self.sums;
        sums.add(&header.0[..SUMMED], Order::Little);
        let header = header.sums(SUMMED, sums.0);
        self.put(&header.0, payload)
    }

    fn put(&mut self, header: &[u8; HEADER], payload: &[u8]) -> Result<()> {
        for bytes in [&header[..], payload] {
            self.sums.add(bytes, Order::Little);
            self.out.write_all(bytes).map_err(|source| self.failed(source))?;
            self.written += bytes.len() as u64;
        }
        (self.progress)(self.written);
        Ok(())
    }

    fn failed(&self, source: std::io::Error) -> StreamError {
        StreamError::Write { offset: self.written, source }
    }
}
