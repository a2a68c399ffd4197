//! Which chunks to move where, so that all vdevs are about equally full: what rebalancing goes by.
//!
//! A vdev that was added is empty, and the older ones stay as full as they were: then most reads go to those, and most writes
//! to the new one. So chunks of the vdevs that are fuller than all are together change places with empty chunks of those that
//! are emptier. A chunk suits where sectors are allocated by the same unit; each unit is balanced by itself.
//!
//! Each choice takes the vdev that is furthest above the average and the one furthest below it, and of the former the chunk
//! that comes nearest to what they should exchange. It is made only if that brings the two nearer to the average, so choices
//! come to an end, and none is taken back by a later one. What is left is a fraction of a chunk a vdev.
//!
//! Nothing here changes anything: it is arithmetic on how full the chunks are at the moment.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Space,
    chunk::Standing,
    layout::{Ground, Layout, Vdev},
    moving::{Regions, Targets},
};
use crate::units::VdevId;

/// At most so many chunks are moved together.
pub(super) const BATCH: u32 = 64;
/// Of the empty chunks that nobody is kept for, a batch takes one of so many.
pub(super) const SHARE: u32 = 4;
/// A chunk that is less full than one of so many parts is not worth a region.
const LEAST: u64 = 16;
/// A vdev is about as full as all together if no more than one of so many parts of it is missing or too much.
const NEAR: i128 = 100;

/// What rebalancing would move, all in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Imbalance {
    /// How many chunks.
    pub chunks: u32,
    /// What is allocated in them, in bytes.
    pub bytes: u64,
    /// Why that is nothing.
    pub reason: Option<Balanced>,
}

/// Why rebalancing has nothing to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balanced {
    /// There are no two vdevs that may exchange chunks.
    NoPeers,
    /// All that may are about equally full.
    Level,
    /// There are no empty chunks beside those that are kept for metadata.
    NoRoom,
}

/// Chunks that are moved together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Where they lie.
    pub regions: Regions,
    /// The vdevs that they go to.
    pub targets: Targets,
}

/// A vdev, in sectors.
#[derive(Clone, Debug)]
struct Shelf {
    vdev: VdevId,
    size: u64,
    used: u64,
    /// How much is allocated in which region.
    chunks: Vec<(u32, u32)>,
    /// How many of its chunks are empty.
    spare: u32,
}

/// A chunk that is to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Choice {
    from: (VdevId, u32),
    to: VdevId,
    sectors: u32,
}

impl Space {
    /// What rebalancing would move in the end, if nothing else happens.
    pub fn imbalance(&self) -> Imbalance {
        let layout = self.layout.load();
        let shelves = shelves(&layout);
        let reason = match shelves.values().any(|peers| peers.len() > 1) {
            false => Some(Balanced::NoPeers),
            true => None,
        };
        let choices: Vec<Choice> = shelves.into_values().flat_map(|peers| choose(peers, u32::MAX, &layout)).collect();
        let sectors: u64 = choices.iter().map(|choice| u64::from(choice.sectors)).sum();
        let reason = reason.or(match (choices.is_empty(), room(&layout)) {
            (true, _) => Some(Balanced::Level),
            (false, 0) => Some(Balanced::NoRoom),
            (false, _) => None,
        });
        match reason {
            Some(_) => Imbalance { chunks: 0, bytes: 0, reason },
            None => Imbalance { chunks: choices.len() as u32, bytes: sectors * u64::from(layout.sector), reason },
        }
    }

    /// The chunks that are to be moved next: no more than a part of the empty ones that nobody is kept for, so that what is
    /// set aside is not missed. `None` if there is nothing to do, or no room to do it.
    pub fn next_batch(&self) -> Option<Batch> {
        let layout = self.layout.load();
        let most = room(&layout).div_ceil(SHARE).min(BATCH);
        let choices = shelves(&layout).into_values().map(|peers| choose(peers, most, &layout));
        let choices = choices.into_iter().find(|choices| !choices.is_empty())?;
        let regions: BTreeSet<(VdevId, u32)> = choices.iter().map(|choice| choice.from).collect();
        let targets = choices.iter().map(|choice| choice.to).collect();
        Some(Batch { regions: Regions::These(regions), targets: Targets::Vdevs(targets) })
    }
}

/// How many empty chunks there are beside those that are kept for metadata.
fn room(layout: &Layout) -> u32 {
    spare(layout).saturating_sub(layout.reserve())
}

/// How many empty chunks there are.
pub(super) fn spare(layout: &Layout) -> u32 {
    let open = layout.vdevs.iter().filter(|vdev| vdev.is_open()).flat_map(|vdev| &vdev.chunks);
    open.filter(|chunk| chunk.is_spare()).count() as u32
}

/// Whether all regions of a vdev have one unit: one that is being expanded sees to its own.
pub(super) fn is_settled(vdev: &&Arc<Vdev>) -> bool {
    vdev.zones.iter().all(|zone| zone.unit == vdev.unit)
}

/// The vdevs that may exchange chunks, by what they are for and the unit of the chunks.
fn shelves(layout: &Layout) -> BTreeMap<(Ground, u32), Vec<Shelf>> {
    let mut shelves: BTreeMap<(Ground, u32), BTreeMap<VdevId, Shelf>> = BTreeMap::new();
    for vdev in layout.vdevs.iter().filter(|vdev| vdev.is_open()).filter(is_settled) {
        for chunk in vdev.chunks.iter().filter(|chunk| chunk.standing() == Standing::Open) {
            let peers = shelves.entry((vdev.ground, chunk.unit)).or_default();
            let empty = || Shelf { vdev: vdev.id, size: 0, used: 0, chunks: Vec::new(), spare: 0 };
            let shelf = peers.entry(vdev.id).or_insert_with(empty);
            let allocated = chunk.allocated();
            shelf.size += u64::from(chunk.sectors);
            shelf.used += u64::from(allocated);
            shelf.chunks.push((chunk.region(), allocated));
            shelf.spare += u32::from(chunk.is_spare());
        }
    }
    shelves.into_iter().map(|(kind, peers)| (kind, peers.into_values().collect())).collect()
}

/// Chooses at most so many chunks of vdevs that may exchange them.
fn choose(mut shelves: Vec<Shelf>, most: u32, layout: &Layout) -> Vec<Choice> {
    let region = u64::from(layout.chunk_sectors());
    let (size, used) = shelves.iter().fold((0, 0), |sums, shelf| (sums.0 + shelf.size, sums.1 + shelf.used));
    let mut choices = Vec::new();
    // Vdevs that nothing can be taken from or given to any more.
    let mut done: BTreeSet<VdevId> = BTreeSet::new();
    while (choices.len() as u64) < u64::from(most) {
        let excess = |shelf: &Shelf| {
            i128::from(shelf.used) - (i128::from(used) * i128::from(shelf.size)).checked_div(size.into()).unwrap_or(0)
        };
        let is_near =
            |shelf: &Shelf| excess(shelf).abs() <= (i128::from(shelf.size) / NEAR).max(i128::from(region) / 2);
        // By how much of a vdev's size it is off.
        let share = |shelf: &Shelf| (excess(shelf) << 32).checked_div(shelf.size.into()).unwrap_or(0);
        let usable = || (0..shelves.len()).filter(|at| !done.contains(&shelves[*at].vdev));
        let fullest = usable().max_by_key(|at| share(&shelves[*at]));
        let emptiest = usable().filter(|at| shelves[*at].spare > 0).min_by_key(|at| share(&shelves[*at]));
        let (Some(fullest), Some(emptiest)) = (fullest, emptiest) else { break };
        let wanted = excess(&shelves[fullest]).min(-excess(&shelves[emptiest]));
        if wanted <= 0 || is_near(&shelves[fullest]) && is_near(&shelves[emptiest]) {
            break;
        }
        let is_worth_it = |sectors: u32| u64::from(sectors) * LEAST >= region && i128::from(sectors) < 2 * wanted;
        let off = |sectors: u32| (i128::from(sectors) - wanted).abs();
        let chunks = shelves[fullest].chunks.iter().enumerate().filter(|(_, (_, sectors))| is_worth_it(*sectors));
        let Some((index, _)) = chunks.min_by_key(|(_, (_, sectors))| off(*sectors)) else {
            done.insert(shelves[fullest].vdev);
            continue;
        };
        let (region, sectors) = shelves[fullest].chunks.swap_remove(index);
        shelves[fullest].used -= u64::from(sectors);
        shelves[emptiest].used += u64::from(sectors);
        shelves[emptiest].spare -= 1;
        choices.push(Choice { from: (shelves[fullest].vdev, region), to: shelves[emptiest].vdev, sectors });
    }
    choices
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::units::MIB;

    /// Regions of 256 sectors.
    fn layout() -> Layout {
        Layout::new(4096, MIB)
    }

    /// A vdev of so many regions, of which some hold so much.
    fn shelf(vdev: u32, regions: u32, used: &[u32]) -> Shelf {
        let chunks = (0..).zip(used.iter().copied().chain(std::iter::repeat(0))).take(regions as usize).collect();
        let used_all = used.iter().map(|used| u64::from(*used)).sum();
        let spare = regions - used.iter().filter(|used| **used > 0).count() as u32;
        Shelf { vdev: VdevId(vdev), size: u64::from(regions) * 256, used: used_all, chunks, spare }
    }

    /// How full they are afterwards, in percent.
    fn after(shelves: &[Shelf], choices: &[Choice]) -> Vec<u64> {
        let percent = |shelf: &Shelf| {
            let of = |is_meant: &dyn Fn(&&Choice) -> bool| {
                choices.iter().filter(is_meant).map(|choice| u64::from(choice.sectors)).sum::<u64>()
            };
            let (gone, come) = (of(&|choice| choice.from.0 == shelf.vdev), of(&|choice| choice.to == shelf.vdev));
            (shelf.used + come - gone) * 100 / shelf.size
        };
        shelves.iter().map(percent).collect()
    }

    #[test]
    fn a_vdev_that_was_added_gets_its_share() {
        let full = vec![250; 60];
        let shelves = [shelf(0, 100, &full), shelf(1, 100, &full), shelf(2, 200, &[])];
        let choices = choose(shelves.to_vec(), u32::MAX, &layout());
        let is_level = |choices: &[Choice]| after(&shelves, choices).iter().all(|percent| (28..=30).contains(percent));
        assert!(is_level(&choices));
        assert!(choices.iter().all(|choice| choice.to == VdevId(2)));
        // Some at a time lead to the same.
        let mut some = shelves.to_vec();
        let mut moved = Vec::new();
        for _ in 0..100 {
            for choice in choose(some.clone(), 3, &layout()) {
                moved.push(choice);
                let find = |vdev| some.iter().position(|shelf| shelf.vdev == vdev).unwrap();
                let (from, to) = (find(choice.from.0), find(choice.to));
                some[from].used -= u64::from(choice.sectors);
                some[from].chunks.retain(|(region, _)| *region != choice.from.1);
                some[to].used += u64::from(choice.sectors);
                some[to].spare -= 1;
            }
        }
        assert!(is_level(&moved));
        assert_eq!(moved.len(), choices.len());
    }

    #[test]
    fn what_is_level_or_has_no_peer_stays() {
        let level = [shelf(0, 100, &[256; 50]), shelf(1, 50, &[250; 25])];
        assert_eq!(choose(level.to_vec(), u32::MAX, &layout()), []);
        assert_eq!(choose(vec![shelf(0, 100, &[256; 90])], u32::MAX, &layout()), []);
        assert_eq!(choose(Vec::new(), u32::MAX, &layout()), []);
        let crumbs = [shelf(0, 100, &[3; 100]), shelf(1, 100, &[])];
        assert_eq!(choose(crumbs.to_vec(), u32::MAX, &layout()), [], "no chunk is worth a region");
        let full = [shelf(0, 100, &[200; 100]), shelf(1, 100, &[1; 100])];
        assert_eq!(choose(full.to_vec(), u32::MAX, &layout()), [], "no empty chunk is left");
    }

    proptest! {
        /// Whatever lies where, choices come to an end, each brings the vdevs nearer to the average, and none is undone.
        #[test]
        fn choices_bring_vdevs_together(
            used in prop::collection::vec(prop::collection::vec(0u32..=256, 0..40), 1..6),
            spare in prop::collection::vec(0u32..40, 6),
        ) {
            let shelves: Vec<Shelf> = (0..).zip(used.iter().zip(&spare))
                .map(|(vdev, (used, spare))| shelf(vdev, used.len() as u32 + spare, used))
                .filter(|shelf| shelf.size > 0)
                .collect();
            let (size, all) = shelves.iter().fold((0, 0), |sums, shelf| (sums.0 + shelf.size, sums.1 + shelf.used));
            let off = |used: &[u64]| -> i128 {
                let excess = |(shelf, used): (&Shelf, &u64)| {
                    (i128::from(*used) * i128::from(size) - i128::from(all) * i128::from(shelf.size)).abs()
                };
                shelves.iter().zip(used).map(excess).sum()
            };
            let mut used: Vec<u64> = shelves.iter().map(|shelf| shelf.used).collect();
            let (mut left, mut from) = (off(&used), BTreeSet::new());
            for choice in choose(shelves.clone(), u32::MAX, &layout()) {
                let find = |vdev| shelves.iter().position(|shelf| shelf.vdev == vdev).unwrap();
                used[find(choice.from.0)] -= u64::from(choice.sectors);
                used[find(choice.to)] += u64::from(choice.sectors);
                let now = off(&used);
                // The average is a whole number of sectors in there.
                prop_assert!(now <= left + 4 * i128::from(size));
                left = now;
                prop_assert!(from.insert(choice.from));
            }
        }
    }
}
