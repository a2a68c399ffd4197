//! The ledger: all references, extent by extent.
//!
//! Each block is kept once, and has a number; sets of blocks are sets of numbers. A block takes about 120 bytes until
//! the check ends. Each shared reference to a block has a number of its own, because it counts like a block; only the
//! balance treats them as one.
//!
//! A block of a packed chunk is counted twice, as it is allocated: in the packed chunk, by its references, and in the
//! host, by the chunk's map.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;

use super::finding::{Code, Finding};
use crate::{
    block::storage::Storage,
    error::Result,
    format::{
        key::Key,
        pointer::{Address, BlockPointer, Checksum, Reference},
    },
    space::{Extent, Hosted},
    txg::Engine,
    units::ChunkId,
};

/// All referenced blocks, each once, and the findings.
#[derive(Debug, Default)]
pub struct Ledger {
    /// A block's index is its number.
    blocks: Vec<BlockPointer>,
    /// The numbers by the place of the first copy.
    numbers: HashMap<Address, u32>,
    /// The numbers of shared references; trees of different lineages may share one.
    shared: HashMap<Reference, u32>,
    findings: Vec<Finding>,
}

impl Ledger {
    /// Enters a block, and returns its number. Further references to the same are normal, by snapshots and clones.
    pub fn refer(&mut self, pointer: &BlockPointer, what: &str) -> u32 {
        let place = match self.numbers.entry(pointer.addresses[0]) {
            Entry::Vacant(place) => {
                let number = u32::try_from(self.blocks.len()).expect("so many blocks take 512 GiB of memory");
                place.insert(number);
                self.blocks.push(*pointer);
                return number;
            }
            Entry::Occupied(known) => *known.get(),
        };
        let known = &self.blocks[place as usize];
        if known.birth != pointer.birth || known.checksum != pointer.checksum {
            let address = pointer.addresses[0];
            let problem = format!(
                "{what}: chunk {} sector {} holds a block born in {} and one born in {}",
                address.chunk, address.sector, known.birth, pointer.birth
            );
            self.find(Finding::new(Code::Overlap, problem));
        }
        place
    }

    /// As [`Ledger::refer`], for the block of the item under `key`: a shared reference has a number of its own.
    pub fn refer_at(&mut self, key: Key, pointer: &BlockPointer, what: &str) -> u32 {
        if pointer.shared.is_none() {
            return self.refer(pointer, what);
        }
        match self.shared.entry(pointer.reference(key)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(place) => {
                let number = u32::try_from(self.blocks.len()).expect("so many blocks take 512 GiB of memory");
                self.blocks.push(*pointer);
                *place.insert(number)
            }
        }
    }

    /// Enters a block without a number, for references that are not counted.
    pub fn hold(&mut self, pointer: &BlockPointer) {
        self.blocks.push(*pointer);
    }

    /// The number of the entered block with the same first copy, if any.
    pub fn number(&self, pointer: &BlockPointer) -> Option<u32> {
        self.number_at(pointer.addresses[0])
    }

    /// The number of the block with its first copy here, if one was entered by a reference that is not shared.
    pub fn number_at(&self, place: Address) -> Option<u32> {
        self.numbers.get(&place).copied()
    }

    /// Each block once, in the order of first copies: a disk is read in its own order.
    pub fn distinct(&self) -> Vec<&BlockPointer> {
        // Pointers on deadlists have no checksums.
        let mut all: Vec<&BlockPointer> = self.blocks.iter().collect();
        all.sort_unstable_by_key(|block| (block.addresses[0], block.checksum_kind == Checksum::Off));
        all.dedup_by_key(|block| block.addresses[0]);
        all
    }

    /// The entered blocks and shared references, by number.
    pub fn blocks(&self) -> &[BlockPointer] {
        &self.blocks
    }

    /// Adds a finding; the check continues.
    pub fn find(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// The findings so far.
    pub fn take_findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
    }

    /// Reads every copy of every block, by as many threads as the engine has workers.
    pub(super) fn verify_copies(&mut self, engine: &Arc<Engine>, goes_on: &(dyn Fn(u64) -> bool + Sync)) {
        let blocks = self.distinct();
        let next = AtomicUsize::new(0);
        let found = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..engine.worker_count().max(1) {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(block) = blocks.get(index).filter(|_| goes_on(index as u64)) else { return };
                        found.lock().extend(damaged_copies(engine.storage(), block));
                    }
                });
            }
        });
        let mut found = found.into_inner();
        found.sort_by(|one, two| one.what.cmp(&two.what));
        self.findings.extend(found);
    }

    /// Compares the references with the allocations.
    pub(super) fn balance(&mut self, storage: &Storage, log: Option<Extent>) -> Result<()> {
        self.compare_shared();
        let mut referred = self.referred(storage);
        referred.extend(storage.space.own_extents()?);
        referred.extend(log);
        let Hosted { hosts, lost } = storage.space.hosted_extents(&storage.vdevs)?;
        referred.extend(hosts);
        for extent in &lost {
            self.findings.push(Finding::new(Code::NotAllocated, format!("{} lie nowhere", name(extent))));
        }
        referred.sort_unstable();
        for pair in referred.windows(2) {
            if end(&pair[0]) > (pair[1].chunk, pair[1].sector) {
                self.findings.push(Finding::new(Code::Overlap, format!("{} and {}", name(&pair[0]), name(&pair[1]))));
            }
        }
        let allocated = storage.space.allocated_extents(&storage.vdevs)?;
        let (referred, allocated) = (merge(referred), merge(allocated));
        for extent in difference(&referred, &allocated) {
            self.findings.push(Finding::new(Code::NotAllocated, name(&extent)));
        }
        for extent in difference(&allocated, &referred) {
            self.findings.push(Finding::new(Code::Leaked, name(&extent)));
        }
        Ok(())
    }

    fn referred(&mut self, storage: &Storage) -> Vec<Extent> {
        let mut extents = Vec::with_capacity(self.blocks.len());
        let mut findings = Vec::new();
        for pointer in self.distinct() {
            match storage.extents(pointer) {
                Ok(all) => extents.extend(all),
                Err(error) => findings.push(Finding::new(Code::DamagedCopy, error.to_string())),
            }
        }
        self.findings.extend(findings);
        extents
    }

    /// Checks that all references to a block agree.
    fn compare_shared(&mut self) {
        let mut all: Vec<&BlockPointer> = self.blocks.iter().collect();
        all.sort_unstable_by_key(|block| block.addresses[0]);
        let is_other = |one: &BlockPointer, two: &BlockPointer| {
            let has_checksums = [one, two].iter().all(|block| block.checksum_kind != Checksum::Off);
            one.birth != two.birth || (has_checksums && one.checksum != two.checksum)
        };
        let pairs = all.windows(2).filter(|pair| pair[0].addresses[0] == pair[1].addresses[0]);
        let others = pairs.filter(|pair| is_other(pair[0], pair[1]));
        let problem = |pair: &[&BlockPointer]| {
            let (place, one, two) = (pair[0].addresses[0], pair[0].birth, pair[1].birth);
            let problem =
                format!("references to chunk {} sector {}, born in {one} and {two}", place.chunk, place.sector);
            Finding::new(Code::Overlap, problem)
        };
        let findings: Vec<Finding> = others.map(problem).collect();
        self.findings.extend(findings);
    }
}

fn damaged_copies(storage: &Storage, pointer: &BlockPointer) -> Vec<Finding> {
    let copies = 0..usize::from(pointer.copies);
    let problems = copies.filter_map(|copy| storage.verify_copy(pointer, copy).err());
    problems.map(|error| Finding::new(Code::DamagedCopy, error.to_string())).collect()
}

fn end(extent: &Extent) -> (ChunkId, u32) {
    (extent.chunk, extent.sector.saturating_add(extent.sectors))
}

fn name(extent: &Extent) -> String {
    format!("chunk {} sectors {}+{}", extent.chunk, extent.sector, extent.sectors)
}

/// Joins neighbours and overlaps. In order.
fn merge(mut extents: Vec<Extent>) -> Vec<Extent> {
    extents.sort_unstable();
    let mut merged: Vec<Extent> = Vec::with_capacity(extents.len());
    for extent in extents {
        match merged.last_mut() {
            Some(last) if end(last) >= (extent.chunk, extent.sector) && last.chunk == extent.chunk => {
                let stop = end(last).1.max(end(&extent).1);
                last.sectors = stop - last.sector;
            }
            _ => merged.push(extent),
        }
    }
    merged
}

/// The extents of `one` without those of `two`, both merged.
fn difference(one: &[Extent], two: &[Extent]) -> Vec<Extent> {
    let mut rest = Vec::new();
    let mut others = two.iter().peekable();
    for extent in one {
        let (mut start, stop) = (extent.sector, end(extent).1);
        while others.next_if(|other| end(other) <= (extent.chunk, start)).is_some() {}
        let mut ahead = others.clone();
        while let Some(other) = ahead.next_if(|other| (other.chunk, other.sector) < (extent.chunk, stop)) {
            if other.sector > start {
                rest.push(Extent { chunk: extent.chunk, sector: start, sectors: other.sector - start });
            }
            start = end(other).1.min(stop).max(start);
        }
        if start < stop {
            rest.push(Extent { chunk: extent.chunk, sector: start, sectors: stop - start });
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn extent((chunk, sector, sectors): (u32, u32, u32)) -> Extent {
        Extent { chunk: ChunkId(chunk), sector, sectors }
    }

    fn sectors(extents: &[Extent]) -> BTreeSet<(u32, u32)> {
        extents.iter().flat_map(|e| (e.sector..e.sector + e.sectors).map(move |sector| (e.chunk.0, sector))).collect()
    }

    proptest! {
        #[test]
        fn the_difference_is_that_of_the_sets(
            one in prop::collection::vec((0u32..3, 0u32..60, 1u32..9), 0..20),
            two in prop::collection::vec((0u32..3, 0u32..60, 1u32..9), 0..20)) {
            let one = merge(one.into_iter().map(extent).collect());
            let two = merge(two.into_iter().map(extent).collect());
            let wanted: BTreeSet<_> = sectors(&one).difference(&sectors(&two)).copied().collect();
            prop_assert_eq!(sectors(&difference(&one, &two)), wanted);
        }
    }
}
