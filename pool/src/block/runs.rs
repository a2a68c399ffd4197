//! Many blocks at once: adjacent blocks are read by one request, and requests for different places are under way
//! together.
//!
//! A run is verified as a whole: if a source returns bytes in which every block is good, all of these copies are good.
//! If not, its blocks are read one by one, as if there were no runs. So runs are only about speed.
//!
//! Copying a run writes it, too, so such a run has no gaps: another block, just being written, may lie between two of
//! its blocks. The padding of a block's last sectors is written as zeros.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
    thread,
};

use parking_lot::Mutex;

use crate::{
    block::{Spares, Stored, checksum::verify, compression::decompress, repair::Copying, storage::Storage},
    device::{IoPurpose, merged},
    error::Result,
    format::pointer::{Address, BlockPointer},
    space::{Seen, Space},
    units::{KIB, MIB, VdevId},
    vdev::{Begun, Found, Sources},
};

/// The longest run, in bytes, unless a single block is longer.
const MAX_RUN: u64 = MIB;
/// A gap of at most so many bytes between two blocks is read with them: cheaper than another request.
const MAX_GAP: u64 = 64 * KIB;

/// A copy of a block, and its place.
#[derive(Clone, Copy)]
pub(super) struct Copy {
    vdev: VdevId,
    offset: u64,
    /// The bytes allocated there.
    takes: u64,
    pub(super) block: usize,
    address: Address,
    /// The largest gap before this copy in a run, in bytes.
    gap: u64,
}

/// Copies read together, in order.
pub(super) type Run = Vec<Copy>;

impl Storage {
    /// The indices of blocks with a bad copy in any source, with so many requests under way at a time.
    pub(crate) fn suspects(&self, blocks: &[BlockPointer], requests: usize) -> BTreeSet<usize> {
        let suspects = Mutex::new(BTreeSet::new());
        let is_meant = |_: &Copy| true;
        let is_whole = |run: &Run, begun: Begun| begun(&|bytes| is_good(bytes, run, blocks)).is_some();
        self.go_through(blocks, (MAX_GAP, Sources::All), requests, is_meant, is_whole, |block| {
            if !self.examine(&blocks[block]).is_whole() {
                suspects.lock().insert(block);
            }
        });
        suspects.into_inner()
    }

    /// Copies blocks as [`Storage::copy`] does, and returns the outcome of each, in order, with so many requests under
    /// way at a time.
    pub(crate) fn copy_together(&self, blocks: &[BlockPointer], to: Copying, requests: usize) -> Vec<Result<u64>> {
        let outcomes = Mutex::new(BTreeMap::new());
        let is_meant = |copy: &Copy| self.is_copied(&blocks[copy.block], copy.address, to);
        let copy_run = |run: &Run, begun: Begun| {
            let is_copied = self.copy_run(run, blocks, begun, to);
            for copy in run.iter().filter(|_| is_copied) {
                outcomes.lock().entry(copy.block).or_insert(Ok(blocks[copy.block].stored.into()));
            }
            is_copied
        };
        self.go_through(blocks, (0, Sources::Any), requests, is_meant, copy_run, |block| {
            let outcome = self.copy(&blocks[block], to);
            // One failure counts, even if the block's other copy succeeds.
            let mut outcomes = outcomes.lock();
            if outcome.is_err() || !outcomes.contains_key(&block) {
                outcomes.insert(block, outcome);
            }
        });
        let mut outcomes = outcomes.into_inner();
        (0..blocks.len()).map(|block| outcomes.remove(&block).unwrap_or(Ok(0))).collect()
    }

    /// Reads the chosen copies of blocks from the given sources, in runs with gaps up to `gap`, and calls `run` for
    /// each run once its read has begun. Calls `one` for blocks without a run, and for blocks of a run for which `run`
    /// returns false.
    ///
    /// Devices get the requests in order of offset, so that they read sequentially.
    fn go_through(
        &self,
        blocks: &[BlockPointer],
        (gap, sources): (u64, Sources),
        requests: usize,
        is_meant: impl Fn(&Copy) -> bool,
        run: impl Fn(&Run, Begun) -> bool + Sync,
        one: impl Fn(usize) + Sync,
    ) {
        let (mut copies, mut alone) = (Vec::new(), Vec::new());
        for (block, pointer) in blocks.iter().enumerate() {
            for address in pointer.addresses() {
                match self.place(block, pointer, *address) {
                    Some(copy) => copies.extend(is_meant(&copy).then_some(copy)),
                    None => alone.push(block),
                }
            }
        }
        alone.dedup();
        let runs = self.runs(copies, blocks, gap).into_iter().map(Piece::Run);
        let pieces: Vec<Piece> = runs.chain(alone.into_iter().map(Piece::Block)).collect();
        let others = requests.min(pieces.len()).saturating_sub(1);
        let pieces = Mutex::new(pieces.into_iter());
        let next = || {
            let mut pieces = pieces.lock();
            let piece = pieces.next()?;
            let begun = match &piece {
                Piece::Run(run) => self.begin(run, blocks, sources),
                Piece::Block(_) => None,
            };
            Some((piece, begun))
        };
        let work = || {
            while let Some((piece, begun)) = next() {
                match piece {
                    Piece::Run(copies) => {
                        if !begun.is_some_and(|begun| run(&copies, begun)) {
                            copies.iter().for_each(|copy| one(copy.block));
                        }
                    }
                    Piece::Block(block) => one(block),
                }
            }
        };
        let purpose = IoPurpose::current();
        thread::scope(|scope| {
            (0..others).for_each(|_| drop(scope.spawn(|| purpose.during(work))));
            work();
        });
    }

    /// Begins to read a run; `None` if its vdev is missing.
    fn begin(&self, run: &Run, blocks: &[BlockPointer], sources: Sources) -> Option<Begun> {
        let vdev = self.vdevs.get(run[0].vdev).ok()?;
        Some(merged(run.len() > 1, || vdev.begin(run[0].offset, len(run, blocks), sources)))
    }

    /// Copies a run, if all of it verifies at once. Bad copies are counted later, when their blocks are read singly.
    fn copy_run(&self, run: &Run, blocks: &[BlockPointer], begun: Begun, to: Copying) -> bool {
        let Some(mut bytes) = begun(&|bytes| is_good(bytes, run, blocks)) else { return false };
        for pair in run.windows(2) {
            bytes[range(&pair[0], run, blocks).end..range(&pair[1], run, blocks).start].fill(0);
        }
        let stored = |copy: &Copy| blocks[copy.block].stored;
        if to == Copying::Twins && self.space.packs(run[0].address, stored(&run[0])) {
            let mut parts = run.iter().map(|copy| (copy, Arc::new(bytes[range(copy, run, blocks)].to_vec())));
            return parts.all(|(copy, part)| self.copy_part(copy.address, &part, to).is_ok());
        }
        self.copy_part(run[0].address, &Arc::new(bytes), to).is_ok()
    }

    /// The place of a block's copy, unless it is a gang.
    fn place(&self, block: usize, pointer: &BlockPointer, address: Address) -> Option<Copy> {
        let (vdev, offset) = self.space.resolve(address, pointer.stored).ok().filter(|_| !pointer.gang)?;
        let takes = u64::from(self.space.extent(address, pointer.stored).sectors) * u64::from(self.sector);
        // The parity of rows never written may be wrong.
        let gap = if self.space.unit_of(vdev) > 1 { 0 } else { MAX_GAP };
        Some(Copy { vdev, offset, takes, block, address, gap })
    }

    /// Joins copies to runs within a region, with gaps of at most `gap` bytes.
    fn runs(&self, copies: Vec<Copy>, blocks: &[BlockPointer], gap: u64) -> Vec<Run> {
        runs(copies, blocks, self.space.region(), gap)
    }

    /// Reads blocks that lie near others of the list, and calls `each` with the index, the stored bytes and the content
    /// of each verified block. Left out are single blocks, blocks that do not verify at once, and blocks that may have
    /// been overwritten since they were seen: callers read these singly.
    pub(crate) fn read_together(
        &self,
        blocks: &[BlockPointer],
        seen: Seen,
        mut each: impl FnMut(usize, &[u8], Vec<u8>),
    ) {
        let runs = self.runs_of(blocks);
        let many = runs.iter().filter(|run| run.len() > 1);
        many.for_each(|run| self.read_run(run, blocks, seen, &mut each));
    }

    /// The first copies of blocks in runs, without gang blocks.
    pub(super) fn runs_of(&self, blocks: &[BlockPointer]) -> Vec<Run> {
        let first =
            |(block, pointer): (usize, &BlockPointer)| self.place(block, pointer, *pointer.addresses().first()?);
        self.runs(blocks.iter().enumerate().filter_map(first).collect(), blocks, MAX_GAP)
    }

    /// Reads a run; `false` if a block does not verify at once, or may have been overwritten. The later read of the
    /// single block reports the bad copy.
    fn fill(&self, bytes: &mut [u8], run: &Run, blocks: &[BlockPointer], seen: Seen) -> bool {
        let Ok(vdev) = self.vdevs.get(run[0].vdev) else { return false };
        let found = vdev.read_simply(run[0].offset, bytes, &|bytes| is_good(bytes, run, blocks));
        matches!(found, Ok(Found::Good)) && self.space.stands(seen)
    }

    /// Reads a run, as [`Storage::read_together`] does.
    pub(super) fn read_run(
        &self,
        run: &Run,
        blocks: &[BlockPointer],
        seen: Seen,
        each: &mut impl FnMut(usize, &[u8], Vec<u8>),
    ) {
        let mut bytes = vec![0; len(run, blocks)];
        if !self.fill(&mut bytes, run, blocks, seen) {
            return;
        }
        for copy in run {
            let stored = &bytes[range(copy, run, blocks)];
            if let Some(content) = content(&blocks[copy.block], stored) {
                each(copy.block, stored, content);
            }
        }
    }

    /// Puts the stored bytes of blocks, verified, in their places in `all`, unless they are there. Neighbours are read by
    /// one request. Blocks that do not verify in their run are read singly.
    ///
    /// # Errors
    /// As [`Storage::read_stored`]. What was read until then stays in `all`.
    pub(crate) fn read_all_stored(
        &self,
        blocks: &[BlockPointer],
        all: &mut [Option<Stored>],
        seen: Seen,
        spares: &Spares,
    ) -> Result<()> {
        for run in self.runs_of(blocks) {
            if run.iter().any(|copy| all[copy.block].is_none()) {
                self.read_stored_run(&run, blocks, all, seen, spares);
            }
        }
        for (block, stored) in blocks.iter().zip(all) {
            if stored.is_none() {
                *stored = Some(self.read_stored(block, seen, || {})?.into());
            }
        }
        Ok(())
    }

    fn read_stored_run(
        &self,
        run: &Run,
        blocks: &[BlockPointer],
        all: &mut [Option<Stored>],
        seen: Seen,
        spares: &Spares,
    ) {
        let mut bytes = spares.take(len(run, blocks));
        if !self.fill(&mut bytes, run, blocks, seen) {
            return;
        }
        let wanted: usize = run.iter().map(|copy| blocks[copy.block].stored as usize).sum();
        // Blocks with large gaps between them do not keep the gaps in memory.
        let is_dense = 2 * wanted >= bytes.len();
        let bytes = spares.lend(bytes);
        for copy in run {
            let range = range(copy, run, blocks);
            all[copy.block] = Some(match is_dense {
                true => Stored::new(bytes.clone(), range),
                false => bytes[range].to_vec().into(),
            });
        }
    }

    /// Begins to read a run of blocks seen with this token.
    pub(super) fn begin_run(&self, run: &Run, blocks: &[BlockPointer], seen: Seen) -> Option<UnderWay> {
        let begun = self.begin(run, blocks, Sources::Any)?;
        let parts = run.iter().map(|copy| (blocks[copy.block], range(copy, run, blocks))).collect();
        Some(UnderWay { parts, seen, begun })
    }
}

/// A run being read: its blocks, and their ranges in the run.
pub(super) struct UnderWay {
    parts: Vec<(BlockPointer, Range<usize>)>,
    seen: Seen,
    begun: Begun,
}

impl UnderWay {
    pub(super) fn blocks(&self) -> impl Iterator<Item = &BlockPointer> {
        self.parts.iter().map(|(pointer, _)| pointer)
    }

    /// The bytes of the run.
    pub(super) fn bytes(&self) -> u64 {
        self.parts.last().map_or(0, |(_, range)| range.end as u64)
    }

    /// Waits for the run, and drops it.
    pub(super) fn wait(self) {
        drop((self.begun)(&|_| false));
    }

    /// Waits for the run. If all blocks verify and are not stale, calls `each` with the pointer, the stored bytes and
    /// the content of every block. Otherwise the later read of the single block reports the bad copy.
    pub(super) fn finish(self, space: &Space, mut each: impl FnMut(&BlockPointer, &[u8], Vec<u8>)) {
        let UnderWay { parts, seen, begun } = self;
        let good = |bytes: &[u8], (pointer, range): &(BlockPointer, Range<usize>)| {
            verify(pointer.checksum_kind, &bytes[range.clone()], &pointer.checksum)
        };
        let come = begun(&|bytes| parts.iter().all(|part| good(bytes, part)));
        let Some(bytes) = come.filter(|_| space.stands(seen)) else { return };
        for (pointer, range) in &parts {
            let stored = &bytes[range.clone()];
            if let Some(content) = content(pointer, stored) {
                each(pointer, stored, content);
            }
        }
    }
}

/// The content of a block with these stored bytes; `None` if they do not decompress.
fn content(pointer: &BlockPointer, stored: &[u8]) -> Option<Vec<u8>> {
    match pointer.stored == pointer.logical {
        true => Some(stored.to_vec()),
        false => decompress(pointer.compression, stored, pointer.logical as usize).ok(),
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

/// Whether all copies of a run verify in `bytes`.
fn is_good(bytes: &[u8], run: &[Copy], blocks: &[BlockPointer]) -> bool {
    run.iter().all(|copy| {
        let pointer = &blocks[copy.block];
        verify(pointer.checksum_kind, &bytes[range(copy, run, blocks)], &pointer.checksum)
    })
}

/// A piece of the work.
enum Piece {
    Run(Run),
    /// A block without a run.
    Block(usize),
}

/// Joins copies to runs within regions of this size, with gaps of at most `gap` bytes.
fn runs(mut copies: Vec<Copy>, blocks: &[BlockPointer], region: u64, gap: u64) -> Vec<Run> {
    copies.sort_unstable_by_key(|copy| (copy.vdev, copy.offset));
    let mut runs: Vec<Run> = Vec::new();
    for copy in copies {
        let joins = |run: &Run| {
            let (first, last) = (&run[0], &run[run.len() - 1]);
            // A corrupt pointer may overlap another block: no run then.
            let between = copy.offset.checked_sub(last.offset + last.takes);
            let is_near = between.is_some_and(|between| between <= gap.min(copy.gap));
            let is_there = first.vdev == copy.vdev && first.offset / region == copy.offset / region;
            is_there && is_near && copy.offset + u64::from(blocks[copy.block].stored) - first.offset <= MAX_RUN
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

    /// Runs of blocks with one copy each, given as device, offset and length.
    fn joined(copies: &[(u32, u64, u32)]) -> Vec<Vec<usize>> {
        let block = |&(_, _, stored): &(u32, u64, u32)| BlockPointer { stored, ..BlockPointer::default() };
        let blocks: Vec<BlockPointer> = copies.iter().map(block).collect();
        let copy = |(block, &(vdev, offset, stored)): (usize, &(u32, u64, u32))| {
            let takes = stored.next_multiple_of(4096).into();
            Copy { vdev: VdevId(vdev), offset, takes, block, address: Address::default(), gap: MAX_GAP }
        };
        let runs = runs(copies.iter().enumerate().map(copy).collect(), &blocks, 4 * MAX_RUN, MAX_GAP);
        runs.into_iter().map(|run| run.into_iter().map(|copy| copy.block).collect()).collect()
    }

    #[test]
    fn neighbours_are_a_run_and_others_are_not() {
        let near = 12288 + MAX_GAP;
        let far = near + 4096 + MAX_GAP + 1;
        let found = joined(&[(0, near, 10), (0, 0, 4096), (0, 4096, 4097), (1, 8192, 10), (0, far, 9)]);
        assert_eq!(found, [vec![1, 2, 0], vec![4], vec![3]]);
        assert_eq!(joined(&[(0, 4 * MAX_RUN - 4096, 9), (0, 4 * MAX_RUN, 9)]), [[0], [1]], "another region");
    }

    #[test]
    fn runs_are_bounded_and_their_blocks_do_not_overlap() {
        let half = (MAX_RUN / 2) as u32;
        let found = joined(&[(0, 0, half), (0, half.into(), half), (0, MAX_RUN, 1), (0, MAX_RUN, 2)]);
        assert_eq!(found, [vec![0, 1], vec![2], vec![3]]);
    }
}
