//! Many blocks at once: what lies one behind the other on a device is read by one request, and requests for different
//! places are under way together.
//!
//! A run is judged as a whole: if a source of it gives bytes in which every block is good, all of these copies are. If
//! not, its blocks are examined one by one, as if there were no runs. So reading in runs is about speed and nothing else.

use std::{collections::BTreeSet, ops::Range};

use parking_lot::Mutex;

use crate::{
    block::{checksum::verify, compression::decompress, storage::Storage},
    format::pointer::BlockPointer,
    units::{KIB, MIB, VdevId},
    vdev::{self, Found},
};

/// The longest run, in bytes, unless one block is longer.
const MAX_RUN: u64 = MIB;
/// What lies between two blocks of a run is read with them up to so many bytes: that takes less than another request.
const MAX_GAP: u64 = 64 * KIB;

/// A copy of a block, and where it lies.
#[derive(Clone, Copy)]
struct Copy {
    vdev: VdevId,
    offset: u64,
    block: usize,
}

/// Copies that are read together, in order.
type Run = Vec<Copy>;

impl Storage {
    /// The blocks among these of which a copy is not good in all its sources, by their places in the list. `each` is given
    /// all pieces of the work, and does them in any order or at the same time.
    pub(crate) fn suspects(
        &self,
        blocks: &[BlockPointer],
        each: impl FnOnce(Vec<Piece>, &(dyn Fn(Piece) + Sync)),
    ) -> BTreeSet<usize> {
        let (mut copies, mut alone) = (Vec::new(), Vec::new());
        for (block, pointer) in blocks.iter().enumerate() {
            for address in pointer.addresses() {
                match self.space.resolve(*address, pointer.stored) {
                    Ok((vdev, offset)) if !pointer.gang => copies.push(Copy { vdev, offset, block }),
                    _ => alone.push(block),
                }
            }
        }
        alone.dedup();
        let runs = runs(copies, blocks).into_iter().map(|run| Piece(Part::Run(run)));
        let pieces = runs.chain(alone.into_iter().map(|block| Piece(Part::Block(block)))).collect();
        let suspects = Mutex::new(BTreeSet::new());
        let examine = |piece: Piece| {
            let doubtful = match piece.0 {
                Part::Run(run) if self.is_whole_run(&run, blocks) => return,
                Part::Run(run) => run.into_iter().map(|copy| copy.block).collect(),
                Part::Block(block) => vec![block],
            };
            let bad = doubtful.into_iter().filter(|block| !self.examine(&blocks[*block]).is_whole());
            let bad: Vec<usize> = bad.collect();
            suspects.lock().extend(bad);
        };
        each(pieces, &examine);
        suspects.into_inner()
    }

    /// Whether all sources of a run are good.
    fn is_whole_run(&self, run: &[Copy], blocks: &[BlockPointer]) -> bool {
        let Ok(vdev) = self.vdevs.get(run[0].vdev) else { return false };
        let is_good = |bytes: &[u8]| is_good(bytes, run, blocks);
        let vdev::Examined { good, bad } = vdev.examine(run[0].offset, len(run, blocks), &is_good);
        good.is_some() && bad.is_empty()
    }

    /// The contents of those of these blocks that lie near others of them, verified and decompressed, by their places in
    /// the list. What is not found good at once is left out, like what lies alone: who needs it reads it.
    pub(crate) fn read_together(&self, blocks: &[BlockPointer]) -> Vec<(usize, Vec<u8>)> {
        let place = |(block, pointer): (usize, &BlockPointer)| {
            let (vdev, offset) = self.space.resolve(pointer.addresses[0], pointer.stored).ok()?;
            Some(Copy { vdev, offset, block })
        };
        let whole = blocks.iter().enumerate().filter(|(_, pointer)| !pointer.gang && pointer.copies > 0);
        let runs = runs(whole.filter_map(place).collect(), blocks);
        runs.iter().filter(|run| run.len() > 1).filter_map(|run| self.read_run(run, blocks)).flatten().collect()
    }

    fn read_run(&self, run: &[Copy], blocks: &[BlockPointer]) -> Option<Vec<(usize, Vec<u8>)>> {
        let mut bytes = vec![0; len(run, blocks)];
        let vdev = self.vdevs.get(run[0].vdev).ok()?;
        let found = vdev.read_checked(run[0].offset, &mut bytes, &|bytes| is_good(bytes, run, blocks));
        let content = |copy: &Copy| {
            let (pointer, stored) = (&blocks[copy.block], &bytes[range(copy, run, blocks)]);
            let content = match pointer.stored == pointer.logical {
                true => stored.to_vec(),
                false => decompress(pointer.compression, stored, pointer.logical as usize).ok()?,
            };
            Some((copy.block, content))
        };
        // Whoever reads a block alone says of which one a copy is bad.
        matches!(found, Ok(Found::Good)).then(|| run.iter().filter_map(content).collect())
    }
}

/// How many bytes a run takes.
fn len(run: &[Copy], blocks: &[BlockPointer]) -> usize {
    range(&run[run.len() - 1], run, blocks).end
}

/// Where a copy lies in its run.
fn range(copy: &Copy, run: &[Copy], blocks: &[BlockPointer]) -> Range<usize> {
    let start = (copy.offset - run[0].offset) as usize;
    start..start + blocks[copy.block].stored as usize
}

/// Whether all copies of a run verify, of which these are the bytes.
fn is_good(bytes: &[u8], run: &[Copy], blocks: &[BlockPointer]) -> bool {
    run.iter().all(|copy| {
        let pointer = &blocks[copy.block];
        verify(pointer.checksum_kind, &bytes[range(copy, run, blocks)], &pointer.checksum)
    })
}

/// A piece of the work: a run, or a block that is in none.
pub(crate) struct Piece(Part);

enum Part {
    Run(Run),
    Block(usize),
}

/// Joins copies to runs.
fn runs(mut copies: Vec<Copy>, blocks: &[BlockPointer]) -> Vec<Run> {
    copies.sort_unstable_by_key(|copy| (copy.vdev, copy.offset));
    let end = |copy: &Copy| copy.offset + u64::from(blocks[copy.block].stored);
    let mut runs: Vec<Run> = Vec::new();
    for copy in copies {
        let joins = |run: &Run| {
            let (first, last) = (&run[0], &run[run.len() - 1]);
            // A pointer that lies may overlap another one: that is no run.
            let gap = copy.offset.checked_sub(end(last));
            first.vdev == copy.vdev && gap.is_some_and(|gap| gap <= MAX_GAP) && end(&copy) - first.offset <= MAX_RUN
        };
        match runs.last_mut().filter(|run| joins(run)) {
            Some(run) => run.push(copy),
            None => runs.push(vec![copy]),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies of one block each on devices at offsets, and the blocks' lengths.
    fn joined(copies: &[(u32, u64, u32)]) -> Vec<Vec<usize>> {
        let block = |&(_, _, stored): &(u32, u64, u32)| BlockPointer { stored, ..BlockPointer::default() };
        let blocks: Vec<BlockPointer> = copies.iter().map(block).collect();
        let copy = |(block, &(vdev, offset, _))| Copy { vdev: VdevId(vdev), offset, block };
        let runs = runs(copies.iter().enumerate().map(copy).collect(), &blocks);
        runs.into_iter().map(|run| run.into_iter().map(|copy| copy.block).collect()).collect()
    }

    #[test]
    fn neighbours_are_a_run_and_others_are_not() {
        let near = 8192 + 1 + MAX_GAP;
        let found = joined(&[(0, near, 10), (0, 0, 4096), (0, 4096, 4097), (1, 8192, 10), (0, near + 11 + MAX_GAP, 9)]);
        assert_eq!(found, [vec![1, 2, 0], vec![4], vec![3]]);
    }

    #[test]
    fn a_run_is_no_longer_than_it_may_be_and_its_blocks_do_not_overlap() {
        let half = (MAX_RUN / 2) as u32;
        let found = joined(&[(0, 0, half), (0, half.into(), half), (0, MAX_RUN, 1), (0, MAX_RUN, 2)]);
        assert_eq!(found, [vec![0, 1], vec![2], vec![3]]);
    }
}
