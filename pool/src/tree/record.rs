//! The content of a block on its way to the devices.
//!
//! Dirty data stands in the tree as a record: bytes now, an address later. The open tree and the frozen one share it,
//! so whoever comes first finds bytes and whoever comes later finds a pointer.
//!
//! Invariants:
//! 1. The bytes change only while the record is *open*: in the transaction group that made it, and before a worker has
//!    taken it. Once sealed they never change again.
//! 2. There are bytes or there is a pointer, or both; once there is a pointer, it stays.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::{
    block::{
        Payload,
        compression::{CompressionChoice, decompress},
    },
    format::pointer::{BlockPointer, Checksum},
    txg::{Births, Usage},
    units::Txg,
};

/// How a block is to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The compression to try.
    pub compression: CompressionChoice,
    /// The checksum to make.
    pub checksum: Checksum,
    /// How many copies to write, 1 to 3.
    pub copies: u8,
}

/// The content of a block that is not stored yet, or was just now.
#[derive(Debug)]
pub struct Record {
    txg: Txg,
    policy: Policy,
    /// If the bytes are not the content, but the content as it was stored elsewhere.
    as_stored: Option<BlockPointer>,
    births: Arc<Births>,
    state: Mutex<State>,
    pointer: OnceLock<BlockPointer>,
}

#[derive(Debug)]
struct State {
    bytes: Option<Arc<Vec<u8>>>,
    sealed: bool,
}

impl Record {
    /// A record of transaction group `txg`, which must be the open one.
    pub(crate) fn new(txg: Txg, policy: Policy, bytes: Vec<u8>, births: Arc<Births>) -> Arc<Record> {
        assert!(!bytes.is_empty());
        let state = Mutex::new(State { bytes: Some(Arc::new(bytes)), sealed: false });
        Arc::new(Record { txg, policy, as_stored: None, births, state, pointer: OnceLock::new() })
    }

    /// A record of a block that comes as it was stored elsewhere. It is never edited.
    pub(crate) fn as_stored(txg: Txg, pointer: BlockPointer, stored: Arc<Vec<u8>>, births: Arc<Births>) -> Arc<Record> {
        assert_eq!(stored.len(), pointer.stored as usize);
        let policy =
            Policy { compression: CompressionChoice::Off, checksum: pointer.checksum_kind, copies: pointer.copies };
        let state = Mutex::new(State { bytes: Some(stored), sealed: false });
        Arc::new(Record { txg, policy, as_stored: Some(pointer), births, state, pointer: OnceLock::new() })
    }

    /// What is to be written of it.
    pub(crate) fn payload(&self, bytes: Arc<Vec<u8>>) -> Payload {
        Payload { bytes, policy: self.policy, as_stored: self.as_stored }
    }

    /// The transaction group that made it.
    pub fn txg(&self) -> Txg {
        self.txg
    }

    /// How it is to be stored.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Its size in bytes, while it is in memory.
    pub fn size(&self) -> Option<usize> {
        let logical = self.as_stored.map(|pointer| pointer.logical as usize);
        self.state.lock().bytes.as_ref().map(|bytes| logical.unwrap_or(bytes.len()))
    }

    /// The bytes, unless they were stored and let go; then [`Record::pointer`] is there.
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

    /// Edits the bytes in place if the record is still open in `txg`, the open transaction group. Otherwise the caller
    /// makes a new record.
    pub fn edit<T>(&self, txg: Txg, edit: impl FnOnce(&mut Vec<u8>) -> T) -> Option<T> {
        let mut state = self.state.lock();
        if self.txg != txg || state.sealed || self.as_stored.is_some() {
            return None;
        }
        let bytes = state.bytes.as_mut().expect("an open record has its bytes");
        Some(edit(Arc::make_mut(bytes)))
    }

    /// Closes the record to edits and hands out the bytes for storing; `None` if somebody has done so before.
    pub(crate) fn seal(&self) -> Option<Arc<Vec<u8>>> {
        let mut state = self.state.lock();
        if state.sealed {
            return None;
        }
        state.sealed = true;
        state.bytes.clone()
    }

    /// Where it was stored.
    pub fn pointer(&self) -> Option<&BlockPointer> {
        self.pointer.get()
    }

    /// Tells where it was stored, and lets go of the bytes. `sector` is the pool's unit of allocation.
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
        format::pointer::Compression,
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
        assert!(record.edit(Txg(5), Vec::clear).is_none());
        assert_eq!(record.seal(), Some(stored));
    }
}
