//! Checksums for bytes from a fuzzer.
//!
//! The layouts of `pool/FORMAT.md` and `dataset/STREAM.md`, coded here a second time: with the programs' own writers a
//! target could seal only the output of those writers.

/// `head`, its version and the length of `payload`, the payload, zeros, and a checksum in the last 32 of `size` bytes:
/// labels and uberblocks. `None` if the payload is too long. `place` is hashed before the block.
pub(super) fn block(magic: &[u8; 8], version: u32, payload: &[u8], size: usize, place: &[u8]) -> Option<Vec<u8>> {
    let content = size - 32;
    let mut block = Vec::with_capacity(size);
    block.extend_from_slice(magic);
    block.extend_from_slice(&version.to_le_bytes());
    block.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    block.extend_from_slice(payload);
    if block.len() > content {
        return None;
    }
    block.resize(content, 0);
    let checksum = blake3::Hasher::new().update(place).update(&block).finalize();
    block.extend_from_slice(checksum.as_bytes());
    Some(block)
}

/// The kind of a stream's record with a block.
const BLOCK: u8 = 4;
/// The kind of the record at the head of a stream.
const BEGIN: u8 = 2;
/// The kind of a record with a range of keys, which begins with its lowest key.
const RANGE: u8 = 3;
/// The length of a key in a range, in bytes.
const KEY: usize = 17;
/// The least distance of a stream's index entries, in bytes.
const INDEX_STEP: u64 = 1 << 20;

/// A stream without its checksums: a sequence of records, each with a byte of kind, a length of three bytes, and so
/// many bytes (fewer at the end). The first byte of a block is the algorithm of its checksum, as in a block pointer.
pub(super) struct Records<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Records<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (head, rest) = self.0.split_first_chunk::<4>()?;
        let len = u32::from_le_bytes([head[1], head[2], head[3], 0]) as usize;
        let (payload, rest) = rest.split_at(len.min(rest.len()));
        self.0 = rest;
        Some((head[0], payload))
    }
}

impl Records<'_> {
    /// The whole stream: with its checksums, and with a fitting end if the records have none.
    pub(super) fn sealed(self) -> Vec<u8> {
        let mut stream = Stream::new();
        for (kind, payload) in self {
            stream.record(kind, payload);
        }
        stream.finish()
    }
}

/// A stream under construction.
struct Stream {
    bytes: Vec<u8>,
    chain: [u8; 32],
    /// The points where reading may start: an offset, the chain before it, and the lowest key of a range.
    index: Vec<(u64, [u8; 32], Option<[u8; KEY]>)>,
}

impl Stream {
    fn new() -> Stream {
        let preamble = [&b"CENOTESTREAM"[..], &1u32.to_le_bytes()].concat();
        let chain = blake3::hash(&preamble).into();
        Stream { bytes: preamble, chain, index: Vec::new() }
    }

    fn record(&mut self, kind: u8, payload: &[u8]) {
        let offset = self.bytes.len() as u64;
        let is_due = |last: &(u64, [u8; 32], _)| offset - last.0 >= INDEX_STEP;
        match (kind, payload.first_chunk::<KEY>()) {
            (BEGIN, _) => self.index.push((offset, self.chain, None)),
            (RANGE, Some(low)) if self.index.last().is_none_or(is_due) => {
                self.index.push((offset, self.chain, Some(*low)));
            }
            _ => {}
        }
        match (kind, payload.split_first()) {
            (BLOCK, Some((sum, data))) => self.put(kind, &checksum(*sum, data), data),
            _ => self.put(kind, payload, &[]),
        }
    }

    fn put(&mut self, kind: u8, covered: &[u8], data: &[u8]) {
        let mut head = [kind, 0, 0, 0, 0, 0, 0, 0];
        head[4..].copy_from_slice(&((covered.len() + data.len()) as u32).to_le_bytes());
        self.chain = blake3::Hasher::new().update(&self.chain).update(&head).update(covered).finalize().into();
        for part in [&head[..], covered, data, &self.chain] {
            self.bytes.extend_from_slice(part);
        }
    }

    /// Adds the end of the package, the index and the trailer.
    fn finish(mut self) -> Vec<u8> {
        self.put(6, &[], &[]);
        let (at, before) = (self.bytes.len() as u64, self.chain);
        let mut index = vec![self.index.len() as u8 & 0x7f];
        for (offset, chain, low) in std::mem::take(&mut self.index).into_iter().take(0x7f) {
            index.push(low.is_some().into());
            index.extend_from_slice(&offset.to_le_bytes());
            index.extend_from_slice(low.as_ref().map_or(&[], |low| &low[..]));
            index.extend_from_slice(&chain);
        }
        self.put(7, &index, &[]);
        self.put(8, &[&at.to_le_bytes()[..], &before].concat(), &[]);
        self.bytes
    }
}

/// The checksum of a block's bytes, by the algorithm `kind`; BLAKE3 if the block has none of its own.
fn checksum(kind: u8, bytes: &[u8]) -> [u8; 32] {
    use pool::{block::checksum::checksum, format::pointer::Checksum};
    let kind = match kind {
        2 => Checksum::Xxh3,
        3 => Checksum::Sha256,
        _ => Checksum::Blake3,
    };
    checksum(kind, bytes)
}
