//! The content of a block on its way to the devices.
//!
//! Dirty data stands in the tree as a record: bytes now, an address later. The open tree and the frozen tree share the
//! record, so early readers find bytes and later readers a pointer.
//!
//! Invariants:
//! 1. The bytes change only while the record is *open*: in the transaction group that made it, and before a worker has
//!    taken it. Once sealed they never change again.
//! 2. There are bytes or there is a pointer, or both; once there is a pointer, it stays.

use std::{
    ops::Range,
    sync::{Arc, OnceLock},
};

use parking_lot::Mutex;

use crate::{
    block::{
        Payload, Policy,
        compression::{CompressionChoice, decompress},
    },
    format::pointer::BlockPointer,
    space::Placement,
    tree::births::{Births, Usage},
    units::Txg,
};

/// The content of a block not yet stored, or stored just now.
#[derive(Debug)]
pub struct Record {
    txg: Txg,
    policy: Policy,
    /// Set if the bytes are in stored form, from a stream.
    as_stored: Option<BlockPointer>,
    births: Arc<Births>,
    state: Mutex<State>,
    pointer: OnceLock<BlockPointer>,
}

#[derive(Debug)]
struct State {
    bytes: Option<Arc<Vec<u8>>>,
    sealed: bool,
    logged: Option<Logged>,
}

/// The intent log's knowledge of a record.
#[derive(Debug)]
struct Logged {
    block: u64,
    /// The bytes changed since then; empty if none.
    changed: Range<usize>,
}

/// A record's part in a frame of the intent log.
#[derive(Debug)]
pub(crate) enum LogPart {
    /// Unchanged since the log recorded it under this number.
    Known(u64),
    /// Bytes not yet in the log.
    Bytes {
        /// The record's number in the log.
        block: u64,
        /// All of the record.
        bytes: Arc<Vec<u8>>,
        /// The bytes not yet in the log.
        range: Range<usize>,
    },
    /// The record's address, as soon as it is stored: the record is closed to edits, or too large to be written twice.
    Address,
}

impl Record {
    /// A record of `txg`, the open transaction group.
    pub(crate) fn new(txg: Txg, policy: Policy, bytes: Vec<u8>, births: Arc<Births>) -> Arc<Record> {
        assert!(!bytes.is_empty());
        let state = Mutex::new(State { bytes: Some(Arc::new(bytes)), sealed: false, logged: None });
        Arc::new(Record { txg, policy, as_stored: None, births, state, pointer: OnceLock::new() })
    }

    /// A record of a block in stored form, from a stream. It is never edited.
    pub(crate) fn as_stored(txg: Txg, pointer: BlockPointer, stored: Arc<Vec<u8>>, births: Arc<Births>) -> Arc<Record> {
        assert_eq!(stored.len(), pointer.stored as usize);
        let policy = Policy {
            compression: CompressionChoice::Off,
            checksum: pointer.checksum_kind,
            copies: pointer.copies,
            small_blocks: 0,
            placement: Placement::ANYWHERE,
        };
        let state = Mutex::new(State { bytes: Some(stored), sealed: false, logged: None });
        Arc::new(Record { txg, policy, as_stored: Some(pointer), births, state, pointer: OnceLock::new() })
    }

    /// The form in which to write the record.
    pub(crate) fn payload(&self, bytes: Arc<Vec<u8>>) -> Payload {
        Payload { bytes, policy: self.policy, as_stored: self.as_stored }
    }

    /// The transaction group that made the record.
    pub fn txg(&self) -> Txg {
        self.txg
    }

    /// The storage policy.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// The content's size in bytes; `None` once the bytes were released.
    pub fn size(&self) -> Option<usize> {
        let logical = self.as_stored.map(|pointer| pointer.logical as usize);
        self.state.lock().bytes.as_ref().map(|bytes| logical.unwrap_or(bytes.len()))
    }

    /// The content; `None` once it was stored and released, and then [`Record::pointer`] is set.
    pub fn bytes(&self) -> Option<Arc<Vec<u8>>> {
        let bytes = self.state.lock().bytes.clone()?;
        match self.as_stored.filter(|pointer| pointer.stored != pointer.logical) {
            None => Some(bytes),
            Some(BlockPointer { compression, logical, .. }) => {
                let content = decompress(compression, &bytes, logical as usize);
                Some(Arc::new(content.expect("whoever brought a block as stored has verified it")))
            }
        }
    }

    /// Whether the record may be edited in `txg`, the open transaction group, right now.
    pub fn is_open(&self, txg: Txg) -> bool {
        self.txg == txg && self.as_stored.is_none() && !self.state.lock().sealed
    }

    /// Writes `data` at `at`, extending the record if needed. Returns `false` without a change if the record is not
    /// open in `txg`: then the caller makes a new record.
    pub fn write(&self, txg: Txg, at: usize, data: &[u8]) -> bool {
        let mut state = self.state.lock();
        if self.txg != txg || state.sealed || self.as_stored.is_some() {
            return false;
        }
        let State { bytes, logged, .. } = &mut *state;
        let bytes = Arc::make_mut(bytes.as_mut().expect("an open record has its bytes"));
        // Bytes between the old end and `at` are new as well.
        let changed = at.min(bytes.len())..at + data.len();
        if bytes.len() < changed.end {
            bytes.resize(changed.end, 0);
        }
        bytes[at..changed.end].copy_from_slice(data);
        if let Some(Logged { changed: before, .. }) = logged {
            *before = if Range::is_empty(before) {
                changed
            } else {
                before.start.min(changed.start)..before.end.max(changed.end)
            };
        }
        true
    }

    /// The record's part in a frame of `txg`, the open group: its bytes only if at most `limit`. From then on the log
    /// counts as knowing the bytes, under the number from `number`.
    pub(crate) fn log_part(&self, txg: Txg, limit: usize, number: impl FnOnce() -> u64) -> LogPart {
        let mut state = self.state.lock();
        let State { bytes: Some(bytes), sealed: false, logged } = &mut *state else { return LogPart::Address };
        let range = logged.as_ref().map_or(0..bytes.len(), |logged| logged.changed.clone());
        if self.txg != txg || self.as_stored.is_some() || range.len() > limit {
            return LogPart::Address;
        }
        let block = logged.as_ref().map_or_else(number, |logged| logged.block);
        *logged = Some(Logged { block, changed: 0..0 });
        if Range::is_empty(&range) {
            LogPart::Known(block)
        } else {
            LogPart::Bytes { block, bytes: bytes.clone(), range }
        }
    }

    /// Closes the record to edits and returns the bytes for storing; `None` if the record was sealed before.
    pub(crate) fn seal(&self) -> Option<Arc<Vec<u8>>> {
        let mut state = self.state.lock();
        if state.sealed {
            return None;
        }
        state.sealed = true;
        state.bytes.clone()
    }

    /// The pointer, once the record is stored.
    pub fn pointer(&self) -> Option<&BlockPointer> {
        self.pointer.get()
    }

    /// Sets the pointer of the stored record, and releases the bytes. `sector` is the pool's allocation unit.
    pub(crate) fn stored(&self, pointer: BlockPointer, sector: u32) {
        self.births.count(self.txg, Usage::of(&pointer, sector));
        self.pointer.set(pointer).expect("a record is stored once");
        self.state.lock().bytes = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        block::compression::{Compressor, compress},
        format::pointer::{Checksum, Compression},
    };

    #[test]
    fn a_record_as_stored_reads_as_its_content_and_is_never_edited() {
        let content = vec![7; 40_000];
        let mut scratch = Compressor::new();
        let (compression, stored) = compress(CompressionChoice::Lz4, &content, 4096, &mut scratch).unwrap();
        assert_eq!(compression, Compression::Lz4);
        let (logical, stored) = (content.len() as u32, Arc::new(stored));
        let pointer =
            BlockPointer { copies: 2, logical, stored: stored.len() as u32, compression, ..BlockPointer::default() };
        let record = Record::as_stored(Txg(5), pointer, stored.clone(), Arc::default());
        assert_eq!(record.bytes().unwrap().as_slice(), content);
        assert_eq!((record.size(), record.policy().copies), (Some(content.len()), 2));
        assert!(!record.is_open(Txg(5)) && !record.write(Txg(5), 0, &[1]));
        assert_eq!(record.seal(), Some(stored));
    }

    #[test]
    fn the_log_gets_what_has_changed_since() {
        let policy = Policy {
            compression: CompressionChoice::Off,
            checksum: Checksum::Blake3,
            copies: 1,
            small_blocks: 0,
            placement: Placement::ANYWHERE,
        };
        let record = Record::new(Txg(5), policy, vec![1; 100], Arc::default());
        let part = |limit| match record.log_part(Txg(5), limit, || 77) {
            LogPart::Known(block) => (block, 0..0),
            LogPart::Bytes { block, range, .. } => (block, range),
            LogPart::Address => (0, 0..0),
        };
        assert_eq!(part(99), (0, 0..0));
        assert_eq!(part(100), (77, 0..100));
        assert_eq!(part(100), (77, 0..0));
        assert!(record.write(Txg(5), 10, &[2; 5]) && record.write(Txg(5), 120, &[3; 10]));
        assert_eq!(part(100), (0, 0..0));
        assert_eq!(part(1000), (77, 10..130));
        assert!(!record.write(Txg(6), 10, &[2; 5]));
        record.seal();
        assert_eq!(part(1000), (0, 0..0));
    }
}
