//! Examining and rewriting the copies of a block.
//!
//! Examining is quiet: its caller does not know whether the pointer is still current, or another block lies there by
//! now. Rewriting and counting are for callers that do know, because no commit can come in between: see
//! [`crate::txg::Still`].
//!
//! A copy may have several sources (the members of a mirror). Each is examined, and rewritten alone: a power failure
//! tears only a source that was bad before.
//!
//! A gang block is rewritten only part by part, from other sources of each part: see [`super::gang`].

use std::sync::Arc;

use crate::{
    block::{
        checksum::verify,
        read::{describe, mismatch},
        storage::Storage,
    },
    error::{Error, Result},
    format::pointer::{Address, BlockPointer, Checksum},
    space::{Extent, Seen},
    units::{Guid, Txg, VdevId},
    vdev,
};

/// The destination of copied blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copying {
    /// Members being resilvered.
    Members,
    /// The twins of chunks that are about to move.
    Twins,
}

/// The result of examining a block's copies.
#[derive(Debug, Default)]
pub struct Examined {
    /// The stored bytes, from the first good copy.
    pub good: Option<Vec<u8>>,
    /// The sources with bad bytes.
    pub bad: Vec<Bad>,
}

/// A bad source of a copy.
#[derive(Debug)]
pub struct Bad {
    /// The index of the copy, from zero.
    pub copy: usize,
    /// Its vdev, its device, and the offset in the vdev; `None` if unknown.
    pub source: Option<(VdevId, Guid, u64)>,
    /// The error of the read, or the checksum mismatch.
    pub error: Error,
    /// The right bytes, for a part of a gang with another good source.
    pub(super) part: Option<Arc<Vec<u8>>>,
    /// Whether the device has refused the read, which is counted already.
    pub(super) is_refused: bool,
}

impl Bad {
    pub(super) fn nowhere(copy: usize, error: Error) -> Bad {
        Bad { copy, source: None, error, part: None, is_refused: false }
    }

    pub(super) fn at(
        copy: usize,
        source: (VdevId, Guid, u64),
        refused: Option<Error>,
        mismatch: impl Fn() -> Error,
    ) -> Bad {
        let is_refused = refused.is_some();
        Bad { copy, source: Some(source), error: refused.unwrap_or_else(mismatch), part: None, is_refused }
    }
}

impl Examined {
    /// Whether every copy is good.
    pub fn is_whole(&self) -> bool {
        self.bad.is_empty()
    }
}

impl Storage {
    /// Reads every copy of a block, from every source.
    pub fn examine(&self, pointer: &BlockPointer) -> Examined {
        let mut examined = Examined::default();
        for copy in 0..usize::from(pointer.copies) {
            let Examined { good, mut bad } = self.examine_copy(pointer, copy);
            examined.good = examined.good.or(good);
            examined.bad.append(&mut bad);
        }
        examined
    }

    /// Reads one copy of a block, from every source.
    pub(super) fn examine_copy(&self, pointer: &BlockPointer, copy: usize) -> Examined {
        let examined = match pointer.gang {
            true => self.examine_gang_copy(pointer, copy),
            false => self.examine_plain_copy(pointer, copy),
        };
        examined.unwrap_or_else(|error| Examined { good: None, bad: vec![Bad::nowhere(copy, error)] })
    }

    fn examine_plain_copy(&self, pointer: &BlockPointer, copy: usize) -> Result<Examined> {
        let (id, offset) = self.space.resolve(pointer.addresses[copy], pointer.stored)?;
        let vdev = self.vdevs.get(id)?;
        let is_good = |bytes: &[u8]| verify(pointer.checksum_kind, bytes, &pointer.checksum);
        let len = pointer.stored as usize;
        let vdev::Examined { good, bad } = match pointer.checksum_kind {
            Checksum::Off => vdev.examine(offset, len, &is_good),
            _ => vdev.examine_surely(offset, len, &is_good),
        };
        let mismatch = || mismatch(pointer, &*vdev);
        let bad = bad.into_iter().map(|(source, refused)| Bad::at(copy, (id, source, offset), refused, mismatch));
        Ok(Examined { good, bad: bad.collect() })
    }

    /// Counts a bad copy at its device. A refused read is counted already.
    pub(crate) fn note_bad(&self, bad: &Bad) {
        if let Some((id, source, _)) = bad.source.filter(|_| !bad.is_refused)
            && let Ok(vdev) = self.vdevs.get(id)
        {
            vdev.note_checksum_error(source);
        }
    }

    /// Rewrites a bad source with the verified bytes `good`, and reads it back.
    pub(crate) fn rewrite(&self, pointer: &BlockPointer, bad: &Bad, good: &Arc<Vec<u8>>) -> Result<()> {
        let good = if pointer.gang { bad.part.as_ref() } else { Some(good) };
        let (Some((id, source, offset)), Some(good)) = (bad.source, good) else {
            return Err(Error::damaged(describe(pointer), "this copy cannot be rewritten in place"));
        };
        self.vdevs.get(id)?.repair(source, offset, good)?;
        let again = self.examine_copy(pointer, bad.copy).bad;
        match again.into_iter().find(|still| still.source == bad.source) {
            Some(still) => Err(still.error),
            None => Ok(()),
        }
    }

    /// Writes a block to the places where it is missing. Returns the bytes read for this. The pool is held still, or
    /// the group with the block is being written.
    pub(crate) fn copy(&self, pointer: &BlockPointer, to: Copying) -> Result<u64> {
        if !self.is_missing(pointer, to) {
            return Ok(0);
        }
        let bytes = Arc::new(self.read_stored(pointer, Seen::HELD, || {})?);
        let mut lost = Vec::new();
        for copy in 0..usize::from(pointer.copies) {
            match self.copy_copy(pointer, copy, &bytes, to) {
                // The place of its pieces is lost: no device has this copy.
                Err(error @ Error::Damaged { .. }) if pointer.gang => lost.push(error),
                resilvered => resilvered?,
            }
        }
        match lost.len() < usize::from(pointer.copies) {
            true => Ok(pointer.stored.into()),
            false => Err(lost.swap_remove(0)),
        }
    }

    fn copy_copy(&self, pointer: &BlockPointer, copy: usize, bytes: &Arc<Vec<u8>>, to: Copying) -> Result<()> {
        match pointer.gang {
            true => self.copy_gang_copy(pointer, copy, bytes, to),
            false => self.copy_part(pointer.addresses[copy], bytes, to),
        }
    }

    /// Writes the verified bytes of an address to the places where they are missing.
    pub(super) fn copy_part(&self, address: Address, bytes: &Arc<Vec<u8>>, to: Copying) -> Result<()> {
        let len = bytes.len() as u32;
        match to {
            Copying::Members => {
                let (id, offset) = self.space.resolve(address, len)?;
                self.vdevs.get(id)?.resilver(offset, bytes)
            }
            Copying::Twins => match self.space.twin(address, len)? {
                Some((id, offset)) => self.vdevs.get(id)?.write_shared(offset, bytes.clone()),
                None => Ok(()),
            },
        }
    }

    /// Copies the stored bytes of a block to the twins of their chunks, unverified: a bad copy is no worse there.
    ///
    /// # Errors
    /// If a device cannot be read, or the place of a gang's pieces is unknown: then bytes may be left behind.
    pub(crate) fn copy_as_it_is(&self, pointer: &BlockPointer) -> Result<()> {
        self.extents(pointer)?.into_iter().try_for_each(|extent| self.copy_extent_as_it_is(extent))
    }

    fn copy_extent_as_it_is(&self, extent: Extent) -> Result<()> {
        let address = Address { chunk: extent.chunk, sector: extent.sector };
        let len = extent.sectors * self.sector;
        if self.space.moves(address, len) {
            let (id, offset) = self.space.resolve(address, len)?;
            let mut bytes = vec![0; len as usize];
            self.vdevs.get(id)?.read(offset, &mut bytes)?;
            self.copy_part(address, &Arc::new(bytes), Copying::Twins)?;
        }
        Ok(())
    }

    /// Copies leaked space in chunks being packed: allocated, but without references.
    pub(crate) fn copy_unclaimed(&self) -> Result<()> {
        let unclaimed = self.space.unplaced(&self.vdevs)?;
        if let Some(first) = unclaimed.first() {
            let sectors: u64 = unclaimed.iter().map(|extent| u64::from(extent.sectors)).sum();
            let bytes = sectors * u64::from(self.sector);
            tracing::warn!(
                "{bytes} bytes are allocated and nothing refers to them, the first at sector {} of chunk {}: they move as \
                 they are; pool check names them",
                first.sector,
                first.chunk
            );
        }
        unclaimed.into_iter().try_for_each(|extent| self.copy_extent_as_it_is(extent))
    }

    /// Whether a copy at this address is to be copied.
    pub(super) fn is_copied(&self, pointer: &BlockPointer, address: Address, to: Copying) -> bool {
        match to {
            Copying::Members => {
                let vdev = self.space.resolve(address, pointer.stored).and_then(|(id, _)| self.vdevs.get(id));
                let since = vdev.ok().and_then(|vdev| vdev.resilvering());
                since.is_some_and(|since| pointer.birth.max(self.space.arrived(address)) > since)
            }
            Copying::Twins => self.space.moves(address, pointer.stored),
        }
    }

    /// Whether a block may be missing there. The pieces of a gang may lie anywhere.
    fn is_missing(&self, pointer: &BlockPointer, to: Copying) -> bool {
        if pointer.gang {
            let has_all = |since| pointer.birth <= since;
            let lacks = |vdev: &dyn vdev::Vdev| self.resilvering(vdev).is_some_and(|since| !has_all(since));
            return to == Copying::Twins || self.vdevs.all().iter().any(|vdev| lacks(&**vdev));
        }
        pointer.addresses().iter().any(|address| self.is_copied(pointer, *address, to))
    }

    /// The transaction group after which blocks are missing on a device being resilvered. If a chunk moved onto the
    /// vdev later, it brought old blocks along: then any block may be missing, and the result is zero.
    pub(crate) fn resilvering(&self, vdev: &dyn vdev::Vdev) -> Option<Txg> {
        vdev.resilvering().map(|since| self.lacks_since(vdev.id(), since))
    }

    /// As [`Storage::resilvering`], for a device that has everything written to the vdev up to `since`.
    pub(crate) fn lacks_since(&self, vdev: VdevId, since: Txg) -> Txg {
        if self.space.last_arrival(vdev) > since { Txg::ZERO } else { since }
    }
}
