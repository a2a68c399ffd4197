//! A stream file as an archive: records, ranges of items and blocks, in any order.
//!
//! A record ends with its chain, and the next record's chain begins from there. So each record is verified on its own,
//! wherever reading starts: the 32 bytes before the record are the chain before. A range tells the sizes of its blocks,
//! so blocks are skipped without reading, and a block is found without reading the blocks before.
//!
//! An [`Archive`] knows the streams of a file, and where ranges start: from the index at the end, or, without a good
//! index, by a walk from range to range. [`Layers`] are a stream and the streams that it builds on.
//!
//! Memory is bounded by the index and a few ranges and blocks. Files are distrusted as everywhere: an error names the
//! place, and no content causes a panic or a large allocation.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Seek, SeekFrom},
    os::unix::fs::FileExt,
    sync::Arc,
};

use parking_lot::Mutex;
use pool::format::{codec::Malformed, key::Key};

pub use super::layers::{Item, Layers};
use super::{
    census::MOST_RECORDS,
    error::Error as StreamError,
    frame::{Chain, HEAD, Kind, PREAMBLE, SUM, check_preamble, head_of},
    index::{Index, Trailer},
    range::{BlockInfo, Origin, Range},
    records::{Begin, Start, Totals},
};

/// The length of a TRAILER record with head and chain.
const TRAILER: u64 = (HEAD + 8 + SUM + SUM) as u64;
/// The bytes read at once with the head of a record.
const AT_ONCE: usize = 64 << 10;
/// The least distance of two known ranges, in bytes, if there is no index.
const STEP: u64 = 1 << 20;
/// The most memory for decoded ranges, in bytes, their most number, and the most decompressed blocks.
const KEPT_RANGES: usize = 16 << 20;
const MOST_RANGES: usize = 256;
const KEPT_BLOCKS: usize = 4;

/// Why a part of an archive cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file is no stream, or of another version.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The file cannot be read.
    #[error("cannot read at byte {offset}: {source}")]
    Read {
        /// The offset in the file, in bytes.
        offset: u64,
        /// The operating system's error.
        source: io::Error,
    },
    /// The file ends within a record.
    #[error("the file ends too early, at byte {size}")]
    Truncated {
        /// The length of the file, in bytes.
        size: u64,
    },
    /// Bytes differ from the bytes sent, or violate the format.
    #[error("the file is damaged at byte {offset}: {problem}")]
    Damaged {
        /// The offset of the record, in bytes.
        offset: u64,
        /// The problem of the record.
        problem: String,
    },
    /// Two increments cannot become one.
    #[error(
        "the increments share a block of '{base}' in a way that one increment cannot express; merge them together with the \
         stream of '{base}'"
    )]
    Unmergeable {
        /// The base: dataset, and `@snapshot` or `#bookmark`.
        base: String,
    },
    /// The sought part is unchanged since a base that is not among the streams.
    #[error("it is unchanged since '{base}', and no given file contains that snapshot")]
    Base {
        /// The base: dataset, and `@snapshot` or `#bookmark`.
        base: String,
    },
}

/// The result of reading an archive.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Bytes that can be read anywhere.
pub trait Bytes: Send + Sync {
    /// Reads some bytes from `offset` on; 0 only at the end.
    ///
    /// # Errors
    /// Those of the operating system.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// The number of bytes.
    ///
    /// # Errors
    /// Those of the operating system, also for a pipe.
    fn size(&self) -> io::Result<u64>;
}

impl Bytes for File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buf, offset)
    }

    fn size(&self) -> io::Result<u64> {
        // The metadata of a block device have no size. The position is not used otherwise.
        let mut file = self;
        file.seek(SeekFrom::End(0))
    }
}

impl Bytes for Vec<u8> {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let from = usize::try_from(offset).map_or(self.len(), |offset| offset.min(self.len()));
        let len = buf.len().min(self.len() - from);
        buf[..len].copy_from_slice(&self[from..from + len]);
        Ok(len)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
}

/// A stream of an archive.
#[derive(Debug)]
pub struct Stored {
    /// The start of the package.
    pub start: Arc<Start>,
    /// The head of the stream.
    pub begin: Begin,
    /// The offset of the head in the file.
    pub offset: u64,
    /// The size of the stream; `None` if the file ends before.
    pub totals: Option<Totals>,
    /// The offset of the record after the head.
    pub(super) first: u64,
    /// Low ends and offsets of ranges, ascending; not of all ranges.
    ranges: Vec<(Key, u64)>,
}

impl Stored {
    /// The full name of the snapshot.
    pub fn name(&self) -> String {
        format!("{}@{}", self.begin.dataset, self.begin.snapshot)
    }

    /// The full name of the base, for an increment.
    pub fn base(&self) -> Option<String> {
        self.begin.base.as_ref().map(|base| format!("{}{}", self.begin.dataset, base.name))
    }
}

/// A file with one or several streams.
pub struct Archive {
    bytes: Box<dyn Bytes>,
    size: u64,
    streams: Vec<Stored>,
    is_indexed: bool,
    ended: Option<Error>,
    /// The offsets of damaged heads: their streams cannot be read.
    lost: Vec<u64>,
    ranges: Mutex<VecDeque<Arc<Loaded>>>,
    blocks: Mutex<VecDeque<(u64, Arc<Vec<u8>>)>>,
}

/// A record whose chain was verified.
struct Record {
    kind: Kind,
    /// The payload; of a block only the checksum.
    payload: Vec<u8>,
    /// The offset of the next record.
    next: u64,
}

/// A range with the places of its blocks.
pub(super) struct Loaded {
    /// The offset of the record.
    pub(super) offset: u64,
    pub(super) range: Range,
    /// The offset of each block's record.
    pub(super) blocks: Vec<u64>,
    /// The offset of the record after the blocks.
    pub(super) next: u64,
}

/// The streams of an index, with their damage.
#[derive(Default)]
struct Indexed {
    streams: Vec<Stored>,
    /// The first damage found.
    ended: Option<Error>,
    /// The offsets of damaged heads.
    lost: Vec<u64>,
}

impl Indexed {
    fn note(&mut self, damage: Error) {
        self.ended.get_or_insert(damage);
    }
}

impl Archive {
    /// Opens a stream file. Damage and a cut are no errors here: [`Archive::ended`] tells them, and what comes before
    /// can be read.
    ///
    /// # Errors
    /// If the file cannot be read, or does not begin as a stream does.
    pub fn open(bytes: impl Bytes + 'static) -> Result<Archive> {
        let size = bytes.size().map_err(|source| Error::Read { offset: 0, source })?;
        let mut archive = Archive {
            bytes: Box::new(bytes),
            size,
            streams: Vec::new(),
            is_indexed: false,
            ended: None,
            lost: Vec::new(),
            ranges: Mutex::default(),
            blocks: Mutex::default(),
        };
        archive.preamble(0)?;
        if let Ok(found) = archive.by_index() {
            let Indexed { streams, ended, lost } = found;
            (archive.streams, archive.ended, archive.lost, archive.is_indexed) = (streams, ended, lost, true);
            return Ok(archive);
        }
        let mut base = 0;
        while base < size && archive.ended.is_none() {
            match archive.walk(base) {
                Ok(end) => base = end,
                Err(error) => archive.ended = Some(error),
            }
        }
        Ok(archive)
    }

    /// The length of the file, in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The streams, in the order of the file.
    pub fn streams(&self) -> &[Stored] {
        &self.streams
    }

    /// Whether the index was used; otherwise the file was walked through.
    pub fn is_indexed(&self) -> bool {
        self.is_indexed
    }

    /// The damage or the cut at which a walk through the file has ended, or the first damage of a stream in the index.
    pub fn ended(&self) -> Option<&Error> {
        self.ended.as_ref()
    }

    /// The stream whose records an offset is in, and the key of the item whose block is there, if it is a block.
    pub fn at(&self, offset: u64) -> Option<(&Stored, Option<Key>)> {
        let stream = &self.streams[self.streams.partition_point(|stream| stream.offset <= offset).checked_sub(1)?];
        if self.lost.iter().any(|lost| (stream.offset..=offset).contains(lost)) {
            return None;
        }
        let known = stream.ranges.partition_point(|(_, at)| *at <= offset);
        let mut at = known.checked_sub(1).map_or(stream.first, |last| stream.ranges[last].1);
        while let Ok(Some(loaded)) = self.load(at, stream.begin.base.is_some()) {
            if offset < loaded.next {
                let number = loaded.blocks.partition_point(|block| *block <= offset).checked_sub(1);
                let is_it =
                    |item: &&super::range::Item| number.is_some_and(|number| item.origin == Origin::New(number as u32));
                return Some((stream, loaded.range.items.iter().find(is_it).map(|item| item.key)));
            }
            at = loaded.next;
        }
        Some((stream, None))
    }

    /// Passes each record of the file, a line each, and with `items` the items of ranges.
    ///
    /// # Errors
    /// At the first damage or cut, and those of `each`.
    pub fn dump<E: From<Error>>(&self, items: bool, each: &mut dyn FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        let mut base = 0;
        while base < self.size {
            let mut before = Some(self.preamble(base)?);
            each(&format!("{base:>12}  package"))?;
            let (mut at, mut is_increment) = (base + PREAMBLE as u64, false);
            base = loop {
                let record = self.record_after(at, before.take())?;
                let said = described(&record, &mut is_increment).map_err(malformed(at))?;
                each(&format!("{at:>12}  {said}"))?;
                if record.kind == Kind::Range && items {
                    let range = Range::decode(&record.payload, is_increment).map_err(malformed(at))?;
                    for item in &range.items {
                        let (key, len) = (item.key, range.body(item).len());
                        each(&format!("{:>14}{key}: {len} bytes, block {}", "", origin(item.origin)))?;
                    }
                }
                if record.kind == Kind::Trailer {
                    break record.next;
                }
                at = record.next;
            };
        }
        Ok(())
    }

    /// The chain after the preamble at `base`.
    fn preamble(&self, base: u64) -> Result<Chain> {
        let mut preamble = [0; PREAMBLE];
        let got = self.fill(&mut preamble, base)?;
        Ok(check_preamble(&preamble, got, base)?.1)
    }

    /// The start of the package at `base`, and the offset of the record after START and census.
    fn start_of(&self, base: u64) -> Result<(Start, u64)> {
        let at = base + PREAMBLE as u64;
        let record = self.record_after(at, Some(self.preamble(base)?))?;
        if record.kind != Kind::Start {
            return Err(damaged(at, "a package does not start here"));
        }
        let mut start = Start::decode(&record.payload).map_err(malformed(at))?;
        let mut at = record.next;
        for _ in 0..=MOST_RECORDS {
            let record = self.record(at)?;
            if record.kind != Kind::Census {
                return Ok((start, at));
            }
            let census = start.census.get_or_insert_default();
            census.extend(&record.payload).map_err(malformed(at))?;
            at = record.next;
        }
        Err(damaged(at, "the census is too long"))
    }

    /// The index at the end of the file.
    fn index(&self) -> Result<Index> {
        let at = self.size.checked_sub(TRAILER).ok_or(Error::Truncated { size: self.size })?;
        let record = self.record(at)?;
        if record.kind != Kind::Trailer {
            return Err(damaged(at, "it is no trailer"));
        }
        let trailer = Trailer::decode(&record.payload).map_err(malformed(at))?;
        let (mut index, mut next, mut before) = (Index::default(), trailer.index, Some(trailer.before));
        while next != at {
            let record = self.record_after(next, before.take())?;
            if record.kind != Kind::Index || next > at {
                return Err(damaged(next, "it is no index"));
            }
            index.extend(&record.payload).map_err(malformed(next))?;
            next = record.next;
        }
        Ok(index)
    }

    /// The streams of a file with one package and a good index. Damage of one stream leaves the others.
    fn by_index(&self) -> Result<Indexed> {
        let (start, _) = self.start_of(0)?;
        let start = Arc::new(start);
        let index = self.index()?;
        let (mut found, mut heads, mut is_lost) = (Indexed::default(), 0, false);
        for entry in index.entries() {
            match (entry.low, found.streams.last_mut()) {
                (None, _) => {
                    heads += 1;
                    let head = self.head(entry.offset, &start);
                    is_lost = head.is_err();
                    match head {
                        Ok(stream) => found.streams.push(stream),
                        Err(error) => {
                            found.lost.push(entry.offset);
                            found.note(of_head(error, heads, start.streams));
                        }
                    }
                }
                (Some(_), _) if is_lost => {}
                (Some(low), Some(stream)) => stream.add(low, entry.offset)?,
                (Some(_), None) => return Err(damaged(entry.offset, "a range of no stream")),
            }
        }
        if heads != start.streams {
            return Err(damaged(self.size - TRAILER, "the index does not have all streams"));
        }
        for number in 0..found.streams.len() {
            match self.totals(&found.streams[number]) {
                Ok(totals) => found.streams[number].totals = Some(totals),
                Err(error) => found.note(error),
            }
        }
        Ok(found)
    }

    /// The size of a stream, from the end behind its last range.
    fn totals(&self, stream: &Stored) -> Result<Totals> {
        let (mut at, is_increment) = (stream.last(), stream.begin.base.is_some());
        while let Some(loaded) = self.load(at, is_increment)? {
            at = loaded.next;
        }
        self.end(at)
    }

    /// The damages of the file, up to `most`: reading goes on with the next record, or else with the next record of
    /// the index. Only records and blocks are examined, not whether they fit together.
    pub fn damages(&self, most: usize) -> Vec<Error> {
        let (mut found, mut base) = (Vec::new(), 0);
        let index = self.index().unwrap_or_default();
        while base < self.size && found.len() < most {
            let mut before = match self.preamble(base) {
                Ok(chain) => Some(chain),
                Err(error) => {
                    found.push(error);
                    break;
                }
            };
            // After a damaged head the form of the ranges is unknown.
            let (mut at, mut is_increment) = (base + PREAMBLE as u64, None);
            base = loop {
                match self.record_after(at, before.take()) {
                    Ok(record) if record.kind == Kind::Trailer => break record.next,
                    Ok(record) => at = self.examine(at, &record, &mut is_increment, &mut found),
                    Err(error) => {
                        found.push(error);
                        let Some((next, is_known)) = self.record_behind(at, &index) else { return found };
                        is_increment = is_increment.filter(|_| is_known);
                        at = next;
                    }
                }
                if found.len() >= most {
                    found.truncate(most);
                    return found;
                }
            };
        }
        found
    }

    /// Adds the damages of a good record's content and blocks; returns the offset behind the blocks.
    fn examine(&self, at: u64, record: &Record, is_increment: &mut Option<bool>, found: &mut Vec<Error>) -> u64 {
        match (record.kind, *is_increment) {
            (Kind::Begin, _) => {
                let begin = Begin::decode(&record.payload).map_err(malformed(at));
                *is_increment = begin.as_ref().ok().map(|begin| begin.base.is_some());
                found.extend(begin.err());
            }
            (Kind::Range, Some(is_increment)) => match Range::decode(&record.payload, is_increment) {
                Ok(range) => {
                    let (blocks, next) = offsets(&range.blocks, record.next);
                    let loaded = Loaded { offset: at, range, blocks, next };
                    let damage = (0..loaded.blocks.len() as u32).filter_map(|number| self.check_block(&loaded, number));
                    found.extend(damage);
                    return next;
                }
                Err(problem) => found.push(malformed(at)(problem)),
            },
            _ => {}
        }
        record.next
    }

    fn check_block(&self, loaded: &Loaded, number: u32) -> Option<Error> {
        let (offset, info) = (loaded.blocks[number as usize], loaded.range.blocks[number as usize]);
        let stored = self.stored_block(loaded, number);
        let checked =
            stored.and_then(|(sum, bytes)| info.verified(&bytes, &sum).map_err(|problem| damaged(offset, problem)));
        checked.err()
    }

    /// A good record behind the damaged record at `offset`, and whether the record belongs to the same stream. Lengths
    /// of a few records are believed, if a good record follows; else the index decides.
    fn record_behind(&self, offset: u64, index: &Index) -> Option<(u64, bool)> {
        let mut at = offset;
        for _ in 0..3 {
            let mut head = [0; HEAD];
            let got = self.fill(&mut head, at).ok()?;
            let Some((kind, len)) = head_of(head).ok().filter(|_| got == HEAD) else { break };
            at += (HEAD + len + SUM) as u64;
            if self.record(at).is_ok() {
                return Some((at, kind != Kind::Begin));
            }
        }
        let behind = index.entries().iter().filter(|entry| entry.offset > offset);
        let entry = behind.into_iter().find(|entry| self.record(entry.offset).is_ok())?;
        Some((entry.offset, entry.low.is_some()))
    }

    /// Adds the streams of the package at `base`, from record to record. Returns the end of the package.
    fn walk(&mut self, base: u64) -> Result<u64> {
        let (start, mut at) = self.start_of(base)?;
        let start = Arc::new(start);
        let mut is_inside = false;
        loop {
            let record = self.record(at)?;
            match (record.kind, is_inside) {
                (Kind::Begin, false) => {
                    let stream = self.head(at, &start)?;
                    self.streams.push(stream);
                    is_inside = true;
                }
                (Kind::Range, true) => {
                    let stream = self.streams.last_mut().expect("a stream has begun");
                    let range = Range::decode(&record.payload, stream.begin.base.is_some()).map_err(malformed(at))?;
                    if at - stream.last() >= STEP {
                        stream.add(range.low, at)?;
                    }
                    at = offsets(&range.blocks, record.next).1;
                    if at > self.size {
                        return Err(Error::Truncated { size: self.size });
                    }
                    continue;
                }
                (Kind::End, true) => {
                    let totals = Totals::decode(&record.payload).map_err(malformed(at))?;
                    self.streams.last_mut().expect("a stream has begun").totals = Some(totals);
                    is_inside = false;
                }
                (Kind::Finish | Kind::Index, false) => {}
                (Kind::Trailer, false) => return Ok(record.next),
                (kind, _) => return Err(damaged(at, format!("a record of kind {kind:?} must not stand here"))),
            }
            at = record.next;
        }
    }

    fn head(&self, offset: u64, start: &Arc<Start>) -> Result<Stored> {
        let record = self.record(offset)?;
        if record.kind != Kind::Begin {
            return Err(damaged(offset, "a stream does not begin here"));
        }
        let begin = Begin::decode(&record.payload).map_err(malformed(offset))?;
        let (start, first) = (start.clone(), record.next);
        Ok(Stored { start, begin, offset, totals: None, first, ranges: Vec::new() })
    }

    pub(super) fn end(&self, offset: u64) -> Result<Totals> {
        let record = self.record(offset)?;
        match record.kind {
            Kind::End => Totals::decode(&record.payload).map_err(malformed(offset)),
            kind => Err(damaged(offset, format!("a record of kind {kind:?} must not stand here"))),
        }
    }

    /// The first range of a stream that ends after `key`; `None` after the last.
    pub(super) fn range_after(&self, stream: &Stored, key: Key) -> Result<Option<Arc<Loaded>>> {
        let known = stream.ranges.partition_point(|(low, _)| *low <= key);
        let mut at = known.checked_sub(1).map_or(stream.first, |last| stream.ranges[last].1);
        while let Some(loaded) = self.load(at, stream.begin.base.is_some())? {
            if loaded.range.high > key {
                return Ok(Some(loaded));
            }
            at = loaded.next;
        }
        Ok(None)
    }

    /// The range at an offset; `None` if another record stands there.
    pub(super) fn load(&self, offset: u64, is_increment: bool) -> Result<Option<Arc<Loaded>>> {
        if let Some(loaded) = self.ranges.lock().iter().find(|loaded| loaded.offset == offset) {
            return Ok(Some(loaded.clone()));
        }
        let record = self.record(offset)?;
        if record.kind != Kind::Range {
            return Ok(None);
        }
        let range = Range::decode(&record.payload, is_increment).map_err(malformed(offset))?;
        let (blocks, next) = offsets(&range.blocks, record.next);
        let loaded = Arc::new(Loaded { offset, range, blocks, next });
        let mut kept = self.ranges.lock();
        kept.push_front(loaded.clone());
        let mut weight = 0;
        kept.truncate(MOST_RANGES);
        kept.retain(|loaded| {
            weight += loaded.range.weight() + 8 * loaded.blocks.len();
            weight <= KEPT_RANGES || loaded.offset == offset
        });
        Ok(Some(loaded))
    }

    /// The content of a block of a range.
    pub(super) fn block(&self, loaded: &Loaded, number: u32) -> Result<Arc<Vec<u8>>> {
        let (offset, info) = (loaded.blocks[number as usize], loaded.range.blocks[number as usize]);
        if let Some((_, content)) = self.blocks.lock().iter().find(|(at, _)| *at == offset) {
            return Ok(content.clone());
        }
        let (checksum, bytes) = self.stored_block(loaded, number)?;
        let unpacked = info.verified(&bytes, &checksum).map_err(|problem| damaged(offset, problem))?;
        let content = unpacked.unwrap_or(bytes);
        let content = Arc::new(content);
        let mut kept = self.blocks.lock();
        kept.push_front((offset, content.clone()));
        kept.truncate(KEPT_BLOCKS);
        Ok(content)
    }

    /// The checksum of a block of a range, and the block as stored, not verified by the checksum.
    pub(super) fn stored_block(&self, loaded: &Loaded, number: u32) -> Result<([u8; SUM], Vec<u8>)> {
        const FRONT: usize = SUM + HEAD + SUM;
        let (offset, info) = (loaded.blocks[number as usize], loaded.range.blocks[number as usize]);
        let mut bytes = vec![0; FRONT + info.stored as usize + SUM];
        // The record behind the last byte of the file was found by sizes alone.
        self.exact(&mut bytes, offset - SUM as u64)?;
        let (before, rest) = bytes.split_first_chunk::<SUM>().expect("a chain comes first");
        let (head, rest) = rest.split_first_chunk::<HEAD>().expect("then a head");
        let (checksum, rest) = rest.split_first_chunk::<SUM>().expect("then a checksum");
        let is_announced = head_of(*head) == Ok((Kind::Block, SUM + info.stored as usize));
        if !is_announced {
            return Err(damaged(offset, "it is not the block that its range announces"));
        }
        if Chain(*before).after(head, checksum).0 != rest[info.stored as usize..] {
            return Err(damaged(offset, "its checksum does not match"));
        }
        let checksum = *checksum;
        bytes.truncate(FRONT + info.stored as usize);
        bytes.drain(..FRONT);
        Ok((checksum, bytes))
    }

    /// The record at an offset after another record.
    fn record(&self, offset: u64) -> Result<Record> {
        self.record_after(offset, None)
    }

    /// The record at an offset. The chain `before` is found before the record, unless given.
    fn record_after(&self, offset: u64, before: Option<Chain>) -> Result<Record> {
        let from = if before.is_none() { offset.checked_sub(SUM as u64) } else { Some(offset) };
        let from = from.ok_or_else(|| damaged(offset, "no record can stand here"))?;
        let mut front = vec![0; AT_ONCE];
        let got = self.fill(&mut front, from)?;
        front.truncate(got);
        let chain = front.get(..(offset - from) as usize);
        let chain = chain.map(|chain| before.unwrap_or_else(|| Chain(chain.try_into().expect("32 bytes"))));
        let front = front.split_off(got.min((offset - from) as usize));
        let (Some(chain), Some((head, rest))) = (chain, front.split_first_chunk::<HEAD>()) else {
            return Err(Error::Truncated { size: self.size });
        };
        let (kind, len) = head_of(*head).map_err(|problem| damaged(offset, problem))?;
        let next = offset + (HEAD + len + SUM) as u64;
        if next > self.size {
            return Err(Error::Truncated { size: self.size });
        }
        let covered = if kind == Kind::Block { SUM } else { len };
        let part = |at: usize, len: usize| match rest.get(at..at + len) {
            Some(part) => Ok(part.to_vec()),
            None => {
                let mut part = vec![0; len];
                self.exact(&mut part, offset + (HEAD + at) as u64).map(|()| part)
            }
        };
        let (payload, sum) = (part(0, covered)?, part(len, SUM)?);
        if chain.after(head, &payload).0 != sum[..] {
            return Err(damaged(offset, "its checksum does not match"));
        }
        Ok(Record { kind, payload, next })
    }

    fn exact(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        if self.fill(buf, offset)? < buf.len() { Err(Error::Truncated { size: self.size }) } else { Ok(()) }
    }

    /// Reads until `buf` is full or the file ends; returns the number of bytes read.
    fn fill(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let mut got = 0;
        while got < buf.len() {
            let at = offset + got as u64;
            match self.bytes.read_at(&mut buf[got..], at) {
                Ok(0) => break,
                Ok(read) => got += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(Error::Read { offset: at, source }),
            }
        }
        Ok(got)
    }
}

impl Stored {
    /// The offset of the last known range, or of the first record.
    fn last(&self) -> u64 {
        self.ranges.last().map_or(self.first, |(_, offset)| *offset)
    }

    /// Adds a known range: low ends and offsets ascend, so a lookup finds what it seeks and ends.
    fn add(&mut self, low: Key, offset: u64) -> Result<()> {
        if offset < self.last() || self.ranges.last().is_some_and(|(last, _)| *last >= low) {
            return Err(damaged(offset, "its range stands before an earlier range"));
        }
        self.ranges.push((low, offset));
        Ok(())
    }
}

/// A record in words. Notes whether ranges that follow belong to an increment.
fn described(record: &Record, is_increment: &mut bool) -> Result<String, Malformed> {
    let payload = &record.payload;
    Ok(match record.kind {
        Kind::Start => {
            let Start { root, replicate, streams, .. } = Start::decode(payload)?;
            format!("START   of {root}, {streams} streams{}", if replicate { ", with descendants" } else { "" })
        }
        Kind::Census => format!("CENSUS  {} bytes", payload.len()),
        Kind::Begin => {
            let Begin { dataset, snapshot, guid, createtxg, base, resumed, .. } = Begin::decode(payload)?;
            *is_increment = base.is_some();
            let base = base.map(|base| format!(", since {} (GUID {})", base.name, base.guid.0)).unwrap_or_default();
            let resumed = resumed.map(|key| format!(", resumed at {key}")).unwrap_or_default();
            format!("BEGIN   {dataset}@{snapshot}, GUID {}, txg {}{base}{resumed}", guid.0, createtxg.0)
        }
        Kind::Range => {
            let range = Range::decode(payload, *is_increment)?;
            let (items, blocks) = (range.items.len(), range.blocks.len());
            format!("RANGE   {} to {}: {items} items, {blocks} blocks", range.low, range.high)
        }
        Kind::Block => "BLOCK".to_owned(),
        Kind::End => {
            let Totals { ranges, items, blocks, stored, logical } = Totals::decode(payload)?;
            format!("END     {ranges} ranges, {items} items, {blocks} blocks, {stored} bytes stored, {logical} logical")
        }
        Kind::Finish => "FINISH".to_owned(),
        Kind::Index => format!("INDEX   {} bytes", payload.len()),
        Kind::Trailer => format!("TRAILER index at {}", Trailer::decode(payload)?.index),
    })
}

fn origin(origin: Origin) -> String {
    match origin {
        Origin::None => "none".to_owned(),
        Origin::New(number) => format!("{number}, new"),
        Origin::Unchanged => "unchanged".to_owned(),
        Origin::Shared(index) => format!("of item {index}"),
    }
}

/// The damage of a stream's head, with the stream's number.
fn of_head(error: Error, number: u64, all: u64) -> Error {
    match error {
        Error::Damaged { offset, problem } => {
            damaged(offset, format!("the head of stream {number} of {all}: {problem}"))
        }
        error => error,
    }
}

/// The offset of each block's record, the first at `at`, and the offset behind the last.
fn offsets(blocks: &[BlockInfo], mut at: u64) -> (Vec<u64>, u64) {
    let each = blocks.iter().map(|block| {
        let offset = at;
        at += (HEAD + SUM + SUM) as u64 + u64::from(block.stored);
        offset
    });
    (each.collect(), at)
}

pub(super) fn damaged(offset: u64, problem: impl ToString) -> Error {
    Error::Damaged { offset, problem: problem.to_string() }
}

fn malformed(offset: u64) -> impl Fn(Malformed) -> Error {
    move |malformed| damaged(offset, malformed)
}
