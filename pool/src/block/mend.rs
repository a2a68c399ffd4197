//! Examining and rewriting the copies of a block.
//!
//! Examining is quiet: who finds a bad copy does not know whether the pointer still stands, or whether another block
//! lies there by now. Rewriting and counting are for who knows, because no commit can come in between: see
//! [`crate::txg::Still`].
//!
//! A gang block is never rewritten in place. Where its pieces lie is said by a header that its own checksum covers and no
//! pointer: an old version of the sector would verify too, and would lead to what lies there today.

use std::sync::Arc;

use crate::{
    block::storage::Storage,
    error::{Error, ErrorKind, Result},
    format::pointer::BlockPointer,
};

/// What was found in the places of a block's copies.
#[derive(Debug)]
pub struct Examined {
    /// The bytes as stored, from the first copy that is good.
    pub good: Option<Vec<u8>>,
    /// Each copy that is not, and why.
    pub bad: Vec<(usize, Error)>,
}

impl Examined {
    /// Whether every copy is good.
    pub fn is_whole(&self) -> bool {
        self.bad.is_empty()
    }
}

impl Storage {
    /// Reads every copy of a block.
    pub fn examine(&self, pointer: &BlockPointer) -> Examined {
        let mut examined = Examined { good: None, bad: Vec::new() };
        for copy in 0..usize::from(pointer.copies) {
            let mut bytes = vec![0; pointer.stored as usize];
            match self.read_copy(pointer, copy, &mut bytes) {
                Ok(()) => {
                    examined.good.get_or_insert(bytes);
                }
                Err(error) => examined.bad.push((copy, error)),
            }
        }
        examined
    }

    /// Counts a bad copy at the device that it is on. One that the device refused to read is counted already.
    pub(crate) fn note_bad_copy(&self, pointer: &BlockPointer, copy: usize, error: &Error) {
        if error.kind() != ErrorKind::Damage {
            return;
        }
        let place = self.space.resolve(pointer.addresses[copy], self.sector);
        if let Ok((vdev, offset)) = place.and_then(|(id, offset)| Ok((self.vdevs.get(id)?, offset))) {
            vdev.note_checksum_error(offset);
        }
    }

    /// Writes a copy again, of which `good` are the verified bytes, and reads it back.
    pub(crate) fn rewrite_copy(&self, pointer: &BlockPointer, copy: usize, good: &[u8]) -> Result<()> {
        if pointer.gang {
            return Err(Error::damaged("gang block", "its copies cannot be rewritten in place"));
        }
        self.write_run(pointer.addresses[copy], Arc::new(good.to_vec()))?;
        self.read_copy(pointer, copy, &mut vec![0; good.len()])
    }
}
