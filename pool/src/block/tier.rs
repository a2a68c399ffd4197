//! Copying blocks to an archive: verified, as stored, to places that a [`Sitting`] hands out.
//!
//! Blocks are read in the order of their addresses and written in the same order. So neighbours at home are neighbours
//! on the archive: reads and writes are long, and the second places of a file are few runs. While one batch is written
//! the next one is read.
//!
//! Stored in pieces (gang), or without a checksum, a block is not copied: a copy of the header would not protect the
//! pieces, and nothing would verify the bytes when the copy is needed.

use std::thread;

use crate::{
    block::{Spares, Stored, storage::Storage},
    device::IoPurpose,
    error::Result,
    format::pointer::{Address, BlockPointer, Checksum},
    space::{Seen, Sitting},
    units::{MIB, VdevId},
};

/// How many stored bytes are read before they are written.
const BATCH: u64 = 8 * MIB;
/// The longest write, in bytes, unless a single block is longer.
const MAX_WRITE: usize = MIB as usize;

/// Copies being written, and the outcome of each.
type Writing<'a> = thread::ScopedJoinHandle<'a, Vec<(Copy, Result<()>)>>;

/// A copy to be written.
struct Copy {
    block: usize,
    address: Address,
    vdev: VdevId,
    offset: u64,
    stored: Stored,
}

impl Storage {
    /// Copies the blocks that need a second place to the sitting's archive. Returns for each block, in order, how many
    /// bytes were copied.
    ///
    /// # Errors
    /// Of each block: if it cannot be read, if the archive has no room, or refuses the write. Then the block has no
    /// place in the sitting.
    pub(crate) fn tier(&self, blocks: &[BlockPointer], seen: Seen, sitting: &mut Sitting) -> Vec<Result<u64>> {
        let mut order: Vec<usize> = (0..blocks.len()).filter(|&at| can_be_archived(&blocks[at])).collect();
        order.sort_unstable_by_key(|&at| (blocks[at].addresses[0].chunk, blocks[at].addresses[0].sector));
        let mut outcomes: Vec<Result<u64>> = blocks.iter().map(|_| Ok(0)).collect();
        let purpose = IoPurpose::current();
        thread::scope(|scope| {
            let mut writing: Option<Writing<'_>> = None;
            for batch in batches(&order, blocks) {
                let read = self.read_batch(batch, blocks, seen, &mut outcomes);
                settle(writing.take(), sitting, &mut outcomes);
                let copies = self.hand_out(read, blocks, sitting, &mut outcomes);
                writing = Some(scope.spawn(move || purpose.during(|| self.write_copies(copies))));
            }
            settle(writing, sitting, &mut outcomes);
        });
        outcomes
    }

    /// The stored bytes of the blocks that can be read.
    fn read_batch(
        &self,
        batch: &[usize],
        blocks: &[BlockPointer],
        seen: Seen,
        outcomes: &mut [Result<u64>],
    ) -> Vec<(usize, Stored)> {
        let mut left: Vec<usize> = batch.to_vec();
        let mut read = Vec::with_capacity(left.len());
        while !left.is_empty() {
            let pointers: Vec<BlockPointer> = left.iter().map(|&at| blocks[at]).collect();
            let mut all = vec![None; left.len()];
            let failed = self.read_all_stored(&pointers, &mut all, seen, &Spares::default()).err();
            let mut behind = Vec::new();
            let mut failed = failed.into_iter();
            for (at, stored) in left.into_iter().zip(all) {
                match stored {
                    Some(stored) => read.push((at, stored)),
                    // Reading stopped at the first block without bytes: the error is of that block.
                    None => match failed.next() {
                        Some(error) => outcomes[at] = Err(error),
                        None => behind.push(at),
                    },
                }
            }
            left = behind;
        }
        read
    }

    /// Places for all copies of the blocks that need any.
    fn hand_out(
        &self,
        read: Vec<(usize, Stored)>,
        blocks: &[BlockPointer],
        sitting: &mut Sitting,
        outcomes: &mut [Result<u64>],
    ) -> Vec<Copy> {
        let mut copies = Vec::with_capacity(read.len());
        for (block, stored) in read {
            for &address in blocks[block].addresses() {
                match self.space.hand_out(sitting, address, blocks[block].stored, &self.vdevs) {
                    Ok(Some((vdev, offset))) => {
                        copies.push(Copy { block, address, vdev, offset, stored: stored.clone() });
                    }
                    Ok(None) => {}
                    Err(error) => outcomes[block] = Err(error),
                }
            }
        }
        copies
    }

    /// Writes copies, adjacent ones together.
    fn write_copies(&self, copies: Vec<Copy>) -> Vec<(Copy, Result<()>)> {
        let mut written = Vec::with_capacity(copies.len());
        let mut rest = copies.into_iter().peekable();
        while let Some(first) = rest.next() {
            let (vdev, offset) = (first.vdev, first.offset);
            let mut bytes = self.padded(&first);
            let mut run = vec![first];
            while let Some(next) = rest.next_if(|next| {
                (next.vdev, next.offset) == (vdev, offset + bytes.len() as u64) && bytes.len() < MAX_WRITE
            }) {
                bytes.extend(self.padded(&next));
                run.push(next);
            }
            let is_written = self.vdevs.get(vdev).and_then(|vdev| vdev.write(offset, &bytes)).is_ok();
            for copy in run {
                let outcome = if is_written { Ok(()) } else { self.write_alone(&copy) };
                written.push((copy, outcome));
            }
        }
        written
    }

    fn write_alone(&self, copy: &Copy) -> Result<()> {
        self.vdevs.get(copy.vdev)?.write(copy.offset, &self.padded(copy))
    }

    /// A copy's bytes, with zeros up to a whole sector.
    fn padded(&self, copy: &Copy) -> Vec<u8> {
        let mut bytes = copy.stored.to_vec();
        bytes.resize(bytes.len().next_multiple_of(self.sector as usize), 0);
        bytes
    }
}

/// Whether a copy of the stored bytes can take the block's place.
pub(crate) fn can_be_archived(pointer: &BlockPointer) -> bool {
    !pointer.gang && pointer.checksum_kind != Checksum::Off && !pointer.addresses().is_empty()
}

/// Waits for copies to be written, and notes the outcome.
fn settle(writing: Option<Writing<'_>>, sitting: &mut Sitting, outcomes: &mut [Result<u64>]) {
    let Some(writing) = writing else { return };
    let written = writing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    for (copy, written) in written {
        match written {
            Ok(()) => {
                if let Ok(bytes) = &mut outcomes[copy.block] {
                    *bytes += copy.stored.len() as u64;
                }
            }
            Err(error) => {
                sitting.forget(copy.address);
                outcomes[copy.block] = Err(error);
            }
        }
    }
}

/// The blocks in parts of about [`BATCH`] bytes.
fn batches<'a>(order: &'a [usize], blocks: &'a [BlockPointer]) -> impl Iterator<Item = &'a [usize]> {
    let mut rest = order;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |at: &&usize| {
            let is_first = bytes == 0;
            bytes += u64::from(blocks[**at].stored).max(1);
            is_first || bytes <= BATCH
        };
        let count = rest.iter().take_while(fits).count();
        let (batch, after) = rest.split_at(count);
        rest = after;
        (!batch.is_empty()).then_some(batch)
    })
}
