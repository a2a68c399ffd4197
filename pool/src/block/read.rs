//! Reading blocks: any copy that verifies.
//!
//! A reader may hold a pointer for longer than the block lives. So each read carries the time when the block was seen
//! in a tree ([`Seen`]). If the bytes may belong to another block by now, the read fails with [`Error::Stale`], and
//! nothing is counted.
//!
//! A bad copy is reported and left unchanged: the engine examines the block again while the pool is held still
//! ([`crate::txg::Still`]).

use crate::{
    block::{checksum::verify, compression::decompress, storage::Storage},
    error::{Error, Result},
    format::pointer::{BlockPointer, Checksum},
    space::Seen,
    vdev::{Found, Vdev},
};

impl Storage {
    /// The content of a block: verified and decompressed.
    pub(crate) fn read_block(&self, pointer: &BlockPointer, seen: Seen) -> Result<Vec<u8>> {
        unpacked(pointer, self.read_stored(pointer, seen, || {})?)
    }

    /// A block's stored bytes, verified; calls `bad` for each bad copy met.
    ///
    /// # Errors
    /// [`Error::Stale`] if the block may have been freed since it was seen, and its space used again.
    pub(crate) fn read_stored(&self, pointer: &BlockPointer, seen: Seen, mut bad: impl FnMut()) -> Result<Vec<u8>> {
        let mut bytes = vec![0; pointer.stored as usize];
        let mut last = Error::damaged(describe(pointer), "it has no copy");
        for copy in 0..usize::from(pointer.copies) {
            let read = self.read_copy(pointer, copy, &mut bytes, seen);
            if !self.space.stands(seen) {
                return Err(Error::Stale);
            }
            match read {
                Ok(Found::Good) => return Ok(bytes),
                Ok(_) => {
                    tracing::warn!("{} was read from another device than the first", describe(pointer));
                    bad();
                    return Ok(bytes);
                }
                Err(error) => {
                    tracing::warn!("{error}");
                    bad();
                    last = error;
                }
            }
        }
        Err(last)
    }

    /// Whether one copy of a block verifies from all of its sources.
    pub fn verify_copy(&self, pointer: &BlockPointer, copy: usize) -> Result<()> {
        self.examine_copy(pointer, copy).bad.into_iter().next().map_or(Ok(()), |bad| Err(bad.error))
    }

    /// Reads one copy; never [`Found::Bad`]. A mismatch is counted at its device, unless the bytes may belong to
    /// another block by now: then no device is at fault, so they pass here, and the caller checks `seen`.
    fn read_copy(&self, pointer: &BlockPointer, copy: usize, bytes: &mut [u8], seen: Seen) -> Result<Found> {
        if pointer.gang {
            return self.read_gang_copy(pointer, copy, bytes, seen);
        }
        let (id, offset) = self.space.resolve(pointer.addresses[copy], pointer.stored)?;
        let vdev = self.vdevs.get(id)?;
        let is_good =
            |bytes: &[u8]| verify(pointer.checksum_kind, bytes, &pointer.checksum) || !self.space.stands(seen);
        let found = match pointer.checksum_kind {
            Checksum::Off => vdev.read_checked(offset, bytes, &is_good)?,
            _ => vdev.read_surely(offset, bytes, &is_good)?,
        };
        match found {
            Found::Bad => Err(mismatch(pointer, &*vdev)),
            found => Ok(found),
        }
    }
}

/// The content of a block with these stored bytes.
pub(crate) fn unpacked(pointer: &BlockPointer, stored: Vec<u8>) -> Result<Vec<u8>> {
    if pointer.stored == pointer.logical {
        return Ok(stored);
    }
    decompress(pointer.compression, &stored, pointer.logical as usize)
        .map_err(|problem| Error::damaged(describe(pointer), problem))
}

/// The error of a copy that does not match its pointer.
pub(super) fn mismatch(pointer: &BlockPointer, vdev: &dyn Vdev) -> Error {
    Error::damaged(describe(pointer), format!("its checksum does not match on {}", name(vdev)))
}

pub(super) fn describe(pointer: &BlockPointer) -> String {
    let address = pointer.addresses[0];
    format!("block at chunk {} sector {}, born in {}", address.chunk, address.sector, pointer.birth)
}

pub(super) fn name(vdev: &dyn Vdev) -> String {
    let leaves = vdev.committing();
    leaves.iter().map(|leaf| leaf.name()).collect::<Vec<_>>().join(", ")
}
