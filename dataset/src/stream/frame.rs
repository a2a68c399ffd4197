//! Records on the wire: framed, bounded, and chained.
//!
//! ```text
//! preamble   magic (12 bytes), version (4)
//! record     kind (1), zeros (3), length of the payload (4), payload, chain (32)
//! ```
//!
//! The chain of a record is the BLAKE3 of the previous chain, the eight bytes of the record's head, and the payload; of
//! a block's payload only the first 32 bytes, the checksum of the rest. So a changed, removed, inserted or moved record
//! breaks the chain at that place, while the data of a block is hashed no more often than reading and writing require
//! anyway. The chain begins with the BLAKE3 of the preamble.
//!
//! The chain is a checksum, not a signature: it detects damage, not forgery. Readers must distrust the content of
//! records.

use std::{
    io::{self, Read, Write},
    sync::Arc,
};

use pool::{
    block::{Spares, Stored},
    format::{codec::Malformed, pointer::MAX_BLOCK},
};

use super::{
    error::{Error, Result},
    gather::Gather,
};

/// The first bytes of a stream.
pub(super) const MAGIC: [u8; 12] = *b"CENOTESTREAM";
/// The version of streams that any version of this program can read.
pub(super) const VERSION: u32 = 1;
/// The version of packages with a stream that starts at a key: older programs would take it for a complete stream.
pub(super) const RESUMED_VERSION: u32 = 2;
/// The length of magic and version.
pub(super) const PREAMBLE: usize = 16;
/// The length of a record's head.
pub(super) const HEAD: usize = 8;
/// The length of a checksum.
pub(super) const SUM: usize = 32;
/// The longest payload, except a block's.
pub(super) const MAX_PAYLOAD: usize = 1 << 20;

/// The kinds of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Start = 1,
    Begin = 2,
    Range = 3,
    Block = 4,
    End = 5,
    Finish = 6,
    Index = 7,
    Trailer = 8,
    Census = 9,
}

impl Kind {
    fn from_code(code: u8) -> Option<Kind> {
        use Kind::{Begin, Block, Census, End, Finish, Index, Range, Start, Trailer};
        [Start, Begin, Range, Block, End, Finish, Index, Trailer, Census].into_iter().find(|kind| *kind as u8 == code)
    }

    fn longest(self) -> usize {
        if self == Kind::Block { SUM + MAX_BLOCK as usize } else { MAX_PAYLOAD }
    }
}

/// The checksum of all records so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Chain(pub(super) [u8; SUM]);

impl Chain {
    pub(super) fn of_preamble(preamble: &[u8; PREAMBLE]) -> Chain {
        Chain(blake3::hash(preamble).into())
    }

    pub(super) fn after(&self, head: &[u8; HEAD], covered: &[u8]) -> Chain {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0).update(head).update(covered);
        Chain(hasher.finalize().into())
    }
}

fn preamble(version: u32) -> [u8; PREAMBLE] {
    let mut bytes = [0; PREAMBLE];
    bytes[..12].copy_from_slice(&MAGIC);
    bytes[12..].copy_from_slice(&version.to_le_bytes());
    bytes
}

/// Checks the first `got` bytes of a preamble at `base` of an input; returns the version, and the chain after the
/// preamble.
pub(super) fn check_preamble(bytes: &[u8; PREAMBLE], got: usize, base: u64) -> Result<(u32, Chain)> {
    let magic = got.min(MAGIC.len());
    if bytes[..magic] != MAGIC[..magic] {
        return Err(if base == 0 { Error::Foreign } else { Error::Trailing { offset: base } });
    }
    if got < PREAMBLE {
        return Err(Error::Truncated { offset: base + got as u64, record: 0 });
    }
    let version = u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
    match version {
        VERSION | RESUMED_VERSION => Ok((version, Chain::of_preamble(bytes))),
        _ => Err(Error::Version { version, known: RESUMED_VERSION }),
    }
}

/// Writes records, and chains their checksums.
pub(super) struct FrameWriter<'a> {
    out: Gather<'a>,
    offset: u64,
    chain: Chain,
}

impl<'a> FrameWriter<'a> {
    /// Writes the preamble.
    pub(super) fn new(out: &'a mut dyn Write, version: u32) -> Result<FrameWriter<'a>> {
        let preamble = preamble(version);
        let mut writer = FrameWriter::after(out, 0, Chain::of_preamble(&preamble));
        writer.out.put(&preamble);
        writer.end_record(PREAMBLE)?;
        Ok(writer)
    }

    /// Continues a stream behind its first `offset` bytes, after which the chain is `chain`.
    pub(super) fn after(out: &'a mut dyn Write, offset: u64, chain: Chain) -> FrameWriter<'a> {
        FrameWriter { out: Gather::new(out), offset, chain }
    }

    /// From now on writes records together, about `window` bytes at a time.
    pub(super) fn gathering(mut self, window: usize) -> FrameWriter<'a> {
        self.out.set_window(window);
        self
    }

    /// The offset of the next record. The last records may still be gathered.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The chain before the next record.
    pub(super) fn chain(&self) -> Chain {
        self.chain
    }

    /// Writes a record other than a block.
    pub(super) fn put(&mut self, kind: Kind, payload: &[u8]) -> Result<()> {
        assert!(kind != Kind::Block && payload.len() <= kind.longest());
        self.begin_record(kind, payload, 0);
        self.out.put(&self.chain.0);
        self.end_record(HEAD + payload.len() + SUM)
    }

    /// Writes a block: the checksum of the data, and the data.
    pub(super) fn put_block(&mut self, checksum: &[u8; SUM], data: impl Into<Stored>) -> Result<()> {
        let data = data.into();
        let len = data.len();
        assert!(len <= MAX_BLOCK as usize);
        self.begin_record(Kind::Block, checksum, len);
        self.out.put_block(data);
        self.out.put(&self.chain.0);
        self.end_record(HEAD + SUM + len + SUM)
    }

    /// Writes the head and the covered bytes of a record with `data` further bytes, and moves the chain on.
    fn begin_record(&mut self, kind: Kind, covered: &[u8], data: usize) {
        let mut head = [kind as u8, 0, 0, 0, 0, 0, 0, 0];
        head[4..].copy_from_slice(&((covered.len() + data) as u32).to_le_bytes());
        self.chain = self.chain.after(&head, covered);
        self.out.put(&head);
        self.out.put(covered);
    }

    fn end_record(&mut self, len: usize) -> Result<()> {
        self.out.end_record().map_err(|source| Error::Write { offset: self.offset, source })?;
        self.offset += len as u64;
        Ok(())
    }

    /// Flushes the output.
    pub(super) fn flush(&mut self) -> Result<()> {
        self.out.flush().map_err(|source| Error::Write { offset: self.offset, source })
    }
}

/// The kind of a record and the length of its payload, from the record's head; or what is wrong with the head.
pub(super) fn head_of(head: [u8; HEAD]) -> Result<(Kind, usize), String> {
    let [code, zeros @ .., a, b, c, d] = head;
    let len = u32::from_le_bytes([a, b, c, d]) as usize;
    let kind = Kind::from_code(code).filter(|_| zeros == [0; 3]).ok_or("it is of no known kind")?;
    if len > kind.longest() || kind == Kind::Block && len <= SUM {
        return Err(format!("its length of {len} bytes is out of bounds"));
    }
    Ok((kind, len))
}

/// The place of a record in its stream, for errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// The offset of the record's first byte in the input.
    pub(super) offset: u64,
    /// The number of the record, counted from 0.
    pub(super) record: u64,
}

impl Place {
    /// The error for a damaged record at the place.
    pub(super) fn damaged(self, problem: impl ToString) -> Error {
        Error::Damaged { offset: self.offset, record: self.record, problem: problem.to_string() }
    }

    /// As [`Place::damaged`], for a malformed field.
    pub(super) fn malformed(self) -> impl Fn(Malformed) -> Error {
        move |malformed| self.damaged(malformed)
    }
}

/// A record with a verified chain. The data of a block is not verified yet.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) place: Place,
    /// The chain before the record.
    pub(super) before: Chain,
    /// The payload; of a block only the checksum.
    pub(super) payload: Vec<u8>,
    /// The data of a block.
    pub(super) data: Arc<Vec<u8>>,
}

/// Reads records, and verifies the chain of their checksums.
pub(super) struct FrameReader<'a> {
    input: &'a mut dyn Read,
    version: u32,
    place: Place,
    offset: u64,
    chain: Chain,
    spares: Spares,
}

impl<'a> FrameReader<'a> {
    /// Reads the preamble at `base` of an input.
    pub(super) fn new(input: &'a mut dyn Read, base: u64) -> Result<FrameReader<'a>> {
        let (place, chain) = (Place::default(), Chain::default());
        let mut reader = FrameReader { input, version: 0, place, offset: base, chain, spares: Spares::default() };
        let mut bytes = [0; PREAMBLE];
        let got = reader.fill(&mut bytes)?;
        (reader.version, reader.chain) = check_preamble(&bytes, got, base)?;
        Ok(reader)
    }

    /// The chain after the records read so far.
    pub(super) fn chain(&self) -> Chain {
        self.chain
    }

    /// The version in the preamble.
    pub(super) fn version(&self) -> u32 {
        self.version
    }

    /// The number of bytes of the input read so far.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads a record and verifies its chain.
    pub(super) fn next(&mut self) -> Result<Frame> {
        self.place.offset = self.offset;
        let mut head = [0; HEAD];
        self.exact(&mut head)?;
        let (kind, len) = head_of(head).map_err(|problem| self.place.damaged(problem))?;
        let covered = if kind == Kind::Block { SUM } else { len };
        let (mut payload, mut data) = (vec![0; covered], self.spares.take(len - covered));
        self.exact(&mut payload)?;
        self.exact(&mut data)?;
        let before = self.chain;
        self.chain = before.after(&head, &payload);
        let mut sum = [0; SUM];
        self.exact(&mut sum)?;
        if sum != self.chain.0 {
            return Err(self.place.damaged("its checksum does not match"));
        }
        let frame = Frame { kind, place: self.place, before, payload, data: self.spares.lend(data) };
        self.place.record += 1;
        Ok(frame)
    }

    fn exact(&mut self, buf: &mut [u8]) -> Result<()> {
        if self.fill(buf)? < buf.len() { Err(self.truncated()) } else { Ok(()) }
    }

    /// Reads until `buf` is full or the input ends; returns the number of bytes read.
    fn fill(&mut self, buf: &mut [u8]) -> Result<usize> {
        let mut got = 0;
        while got < buf.len() {
            match self.input.read(&mut buf[got..]) {
                Ok(0) => break,
                Ok(read) => got += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(Error::Read { offset: self.offset + got as u64, source }),
            }
        }
        self.offset += got as u64;
        Ok(got)
    }

    fn truncated(&self) -> Error {
        Error::Truncated { offset: self.offset, record: self.place.record }
    }
}
