//! The index at the end, which makes the file an archive: the offset of each stream, and of keys within a stream.
//!
//! The index has an entry for each stream's head, and one for each range that starts 1 MiB or more after the previous
//! entry. So the index takes a few thousandths of a percent of the file, and a reader looking for a key reads at most a
//! megabyte and one range too much. Each entry has the chain before its record: reading may start at the record and is
//! verified from there on. The trailer has a fixed length and comes last; it contains the offset of the index, and the
//! chain before the index.
//!
//! Reader and writer both collect the entries as records pass, so the reader verifies the index by comparison.

use pool::format::{
    codec::{Malformed, Reader, Writer, malformed},
    key::Key,
};

use super::frame::{Chain, SUM};

/// The least distance between two entries for ranges, in bytes.
const STEP: u64 = 1 << 20;
/// The most entries of one record.
const PER_RECORD: usize = 4096;

/// The position of a record where reading can start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The offset of the record, in bytes from the start of the package.
    pub(super) offset: u64,
    /// The low end of a range; `None` for a stream's head.
    pub(super) low: Option<Key>,
    /// The chain before the record.
    before: Chain,
}

/// Collects the entries as records pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    entries: Vec<Entry>,
}

impl Index {
    /// Adds a stream's head at `offset`.
    pub(super) fn begin(&mut self, offset: u64, before: Chain) {
        self.entries.push(Entry { offset, low: None, before });
    }

    /// Adds a range at `offset`, if far enough from the previous entry.
    pub(super) fn range(&mut self, offset: u64, low: Key, before: Chain) {
        let due = self.entries.last().is_none_or(|last| offset - last.offset >= STEP);
        if due {
            self.entries.push(Entry { offset, low: Some(low), before });
        }
    }

    /// The payloads of the index records: at least one.
    pub(super) fn encode(&self) -> Vec<Vec<u8>> {
        if self.entries.is_empty() {
            return vec![encode(&[])];
        }
        self.entries.chunks(PER_RECORD).map(encode).collect()
    }

    /// Appends the entries of one index record.
    pub(super) fn extend(&mut self, payload: &[u8]) -> Result<(), Malformed> {
        const WHAT: &str = "index of a stream";
        let mut reader = Reader::new(payload);
        let count = reader.varint(WHAT)?;
        if count > PER_RECORD as u64 {
            return malformed(WHAT);
        }
        for _ in 0..count {
            let is_range = reader.u8(WHAT)?;
            let offset = reader.u64(WHAT)?;
            let low = match is_range {
                0 => None,
                1 => Some(Key { object: reader.u64(WHAT)?, kind: reader.u8(WHAT)?, offset: reader.u64(WHAT)? }),
                _ => return malformed(WHAT),
            };
            self.entries.push(Entry { offset, low, before: Chain(reader.array::<SUM>(WHAT)?) });
        }
        reader.finish(WHAT)
    }

    /// The entries of records before `offset`.
    pub(super) fn before(mut self, offset: u64) -> Index {
        self.entries.retain(|entry| entry.offset < offset);
        self
    }

    /// The entries, in the order of the file.
    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

fn encode(entries: &[Entry]) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_varint(entries.len() as u64);
    for entry in entries {
        out.put_u8(u8::from(entry.low.is_some()));
        out.put_u64(entry.offset);
        if let Some(low) = entry.low {
            out.put_u64(low.object);
            out.put_u8(low.kind);
            out.put_u64(low.offset);
        }
        out.put_bytes(&entry.before.0);
    }
    out
}

/// The last record: the offset of the index, and the chain before the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trailer {
    pub(super) index: u64,
    pub(super) before: Chain,
}

impl Trailer {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u64(self.index);
        out.put_bytes(&self.before.0);
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Trailer, Malformed> {
        const WHAT: &str = "trailer of a stream";
        let mut reader = Reader::new(bytes);
        let trailer = Trailer { index: reader.u64(WHAT)?, before: Chain(reader.array(WHAT)?) };
        reader.finish(WHAT)?;
        Ok(trailer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_close_together_share_an_entry() {
        let mut index = Index::default();
        index.begin(16, Chain([1; SUM]));
        index.range(100, Key::MIN, Chain([2; SUM]));
        index.range(STEP + 16, Key::new(5, 0, 0), Chain([3; SUM]));
        index.range(STEP + 17, Key::new(6, 0, 0), Chain([4; SUM]));
        assert_eq!(index.entries.iter().map(|entry| entry.offset).collect::<Vec<_>>(), [16, STEP + 16]);
    }

    proptest! {
        #[test]
        fn an_index_of_several_records_round_trips(count in 0usize..9000) {
            let mut index = Index::default();
            for number in 0..count as u64 {
                let chain = Chain([number as u8; SUM]);
                match number % 3 {
                    0 => index.begin(number * STEP, chain),
                    _ => index.range(number * STEP, Key::new(number, 1, 2), chain),
                }
            }
            let mut read = Index::default();
            for payload in index.encode() {
                read.extend(&payload).unwrap();
            }
            prop_assert_eq!(read, index);
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let _ = (Index::default().extend(&bytes), Trailer::decode(&bytes));
        }
    }
}
