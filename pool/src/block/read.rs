//! Reading blocks: any copy that verifies.
//!
//! A reader may hold a pointer for longer than the block lives. So it says when it has seen the block in a tree ([`Seen`]), and
//! what may be another block by now is neither handed out nor counted: the read fails with [`Error::Stale`].
//!
//! A bad copy is reported and left as it is: the engine has it looked at again by who holds the pool still
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

    /// The bytes of a block as they are stored, verified; calls `bad` for each copy on the way that is not good.
    ///
    /// # Errors
    /// [`Error::Stale`] if the block may have been freed and its place used again since it was seen.
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

    /// Whether one copy of a block verifies, from every source that there is for it.
    pub fn verify_copy(&self, pointer: &BlockPointer, copy: usize) -> Result<()> {
        self.examine_copy(pointer, copy).bad.into_iter().next().map_or(Ok(()), |bad| Err(bad.error))
    }

    /// Reads one copy; never [`Found::Bad`]. What does not verify is counted beside its device, unless it may be another block's
    /// by now: that is nobody's fault, so it passes here, and the caller asks whether the block stands.
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

/// The content of a block that was stored as these bytes.
pub(crate) fn unpacked(pointer: &BlockPointer, stored: Vec<u8>) -> Result<Vec<u8>> {
    if pointer.stored == pointer.logical {
        return Ok(stored);
    }
    decompress(pointer.compression, &stored, pointer.logical as usize)
        .map_err(|problem| Error::damaged(describe(pointer), problem))
}

/// The error of a copy that is not what the pointer says.
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
