//! Which chunks to move where, so that all vdevs are about equally full: what rebalancing goes by.
//!
//! A vdev that was added is empty, and the older ones stay as full as they were: then most reads go to those, and most writes
//! to the new one. So chunks of the vdevs that are fuller than all are together come to lie on those that are emptier. Vdevs
//! that are there for different things are balanced by themselves.
//!
//! Where sectors are allocated by the same unit, a chunk changes places with an empty one. Each choice takes the vdev that is
//! furthest above the average and the one furthest below it, and of the former the chunk that comes nearest to what they
//! should exchange. It is made only if that brings the two nearer to the average. Where units differ, chunks are packed: see
//! [`pieces`]. What is next is, in this order:
//!
//! 1. Chunks that change places, between vdevs that are above the average of all and below it.
//! 2. Chunks that are packed, between the same.
//! 3. Chunks that change places, by the average of the vdevs of one unit: where nothing may be packed, these are level at least.
//!
//! There is an end to it. Let *steepness* be the sum, over all vdevs, of the square of what is used, divided by the size. When
//! `x` sectors go from a vdev that is more than `x / 2` above some level to one that is more than `x / 2` below it, and take no
//! more there, steepness falls; so it does with each chunk that changes places, and none goes back. Chunks that are packed may
//! take more there. Either they are hosts, and steepness falls even if they take as much as they can; or they are not, and
//! there is one chunk less that is neither packed nor a host: nobody makes such a chunk but who writes. So the pair of the number
//! of these and of steepness falls always, in this order. What is left is a fraction of a chunk a vdev, and what may not move.
//!
//! Nothing here changes anything: it is arithmetic on how full the chunks are at the moment.

mod pieces;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Space,
    chunk::{Chunk, Standing},
    layout::{Ground, Layout, Vdev},
    moving::{Packs, Regions, Targets},
};
use crate::{
    format::space::Class,
    units::{ChunkId, VdevId},
};

/// At most so many chunks are moved together.
pub(super) const BATCH: u32 = 64;
/// Of the empty chunks that nobody is kept for, a batch takes one of so many.
pub(super) const SHARE: u32 = 4;
/// A chunk that is less full than one of so many parts is not worth a region.
const LEAST: u64 = 16;
/// A vdev is about as full as all together if no more than one of so many parts of it is missing or too much.
const NEAR: i128 = 100;
/// All vdevs are about equally full if no more than one of so many parts of any is missing or too much.
const LEVEL: i128 = 32;

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
    /// There are no two vdevs for the same.
    NoPeers,
    /// All that are for the same are about equally full.
    Level,
    /// There are no empty chunks beside those that are kept for metadata.
    NoRoom,
    /// They are not equally full, but rows differ in width, and nothing may be packed.
    Unpacked,
    /// They are not equally full, but what is too much is metadata between different rows, too little for a region, or lies in
    /// pieces that might take more room than they leave.
    Kept,
}

/// Chunks that are moved together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Where they lie.
    pub regions: Regions,
    /// The vdevs that they go to.
    pub targets: Targets,
    /// Whether they are packed there.
    pub packs: Packs,
}

/// A vdev, in sectors.
#[derive(Clone, Debug)]
struct Shelf {
    vdev: VdevId,
    /// By which its sectors are allocated.
    units: BTreeSet<u32>,
    size: u64,
    used: u64,
    /// What is allocated in its chunks.
    chunks: Vec<Held>,
    /// How many of its chunks are empty.
    spare: u32,
}

/// A chunk of a vdev, in sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    region: u32,
    /// How many are allocated.
    sectors: u32,
    unit: u32,
    /// Whether it may be packed: it holds data, and nobody allocates in it.
    is_loose: bool,
    /// Whether something in it is of a chunk that was packed.
    is_host: bool,
}

/// A chunk that is to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Choice {
    from: (VdevId, u32),
    to: VdevId,
    sectors: u32,
    packs: Packs,
}

/// How full some vdevs are together, in sectors.
#[derive(Clone, Copy, Debug)]
struct Level {
    size: u64,
    used: u64,
}

impl Level {
    fn of(shelves: &[Shelf]) -> Level {
        let sum = |of: fn(&Shelf) -> u64| shelves.iter().map(of).sum();
        Level { size: sum(|shelf| shelf.size), used: sum(|shelf| shelf.used) }
    }

    /// By how much a vdev is above it.
    fn excess(self, shelf: &Shelf) -> i128 {
        let even = (i128::from(self.used) * i128::from(shelf.size)).checked_div(self.size.into()).unwrap_or(0);
        i128::from(shelf.used) - even
    }

    /// The same as a share of the vdev's size.
    fn share(self, shelf: &Shelf) -> i128 {
        (self.excess(shelf) << 32).checked_div(shelf.size.into()).unwrap_or(0)
    }

    /// Whether it is as near as it has to come.
    fn is_near(self, shelf: &Shelf, region: u64) -> bool {
        self.excess(shelf).abs() <= (i128::from(shelf.size) / NEAR).max(i128::from(region) / 2)
    }

    /// Whether nobody would say that it is fuller or emptier than others.
    fn is_about(self, shelf: &Shelf, region: u64) -> bool {
        self.excess(shelf).abs() <= (i128::from(shelf.size) / LEVEL).max(i128::from(region) * 2)
    }
}

impl Shelf {
    /// Whether chunks of another vdev may change places with those here.
    fn is_like(&self, other: &Shelf) -> bool {
        self.units.len() == 1 && self.units == other.units
    }
}

impl Space {
    /// What rebalancing would move in the end, if nothing else happens and chunks may be packed, or may not.
    pub fn imbalance(&self, may_pack: bool) -> Imbalance {
        let layout = self.layout.load();
        let mut grounds = shelves(&layout);
        let reason = why_not(&grounds, may_pack, &layout);
        let (mut chunks, mut sectors) = (0, 0);
        for shelves in &mut grounds {
            loop {
                let choices = next(shelves, u32::MAX, may_pack, &layout);
                if choices.is_empty() {
                    break;
                }
                chunks += choices.len() as u32;
                sectors += choices.iter().map(|choice| u64::from(choice.sectors)).sum::<u64>();
                choices.iter().for_each(|choice| make(choice, shelves));
            }
        }
        match reason {
            Some(_) => Imbalance { chunks: 0, bytes: 0, reason },
            None => Imbalance { chunks, bytes: sectors * u64::from(layout.sector), reason },
        }
    }

    /// The chunks that are to be moved next: no more than a part of the empty ones that nobody is kept for, so that what is
    /// set aside is not missed. `None` if there is nothing to do, or no room to do it.
    pub fn next_batch(&self, may_pack: bool) -> Option<Batch> {
        let layout = self.layout.load();
        let most = room(&layout).div_ceil(SHARE).min(BATCH);
        let mut choices = shelves(&layout).into_iter().map(|shelves| next(&shelves, most, may_pack, &layout));
        let choices = choices.find(|choices| !choices.is_empty())?;
        let regions: BTreeSet<(VdevId, u32)> = choices.iter().map(|choice| choice.from).collect();
        let targets = choices.iter().map(|choice| choice.to).collect();
        Some(Batch { regions: Regions::These(regions), targets: Targets::Vdevs(targets), packs: choices[0].packs })
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

/// The vdevs, by what they are for.
fn shelves(layout: &Layout) -> Vec<Vec<Shelf>> {
    let hosts = layout.hosts();
    let mut shelves: BTreeMap<Ground, Vec<Shelf>> = BTreeMap::new();
    for vdev in layout.vdevs.iter().filter(|vdev| vdev.is_open()) {
        let open = vdev.chunks.iter().filter(|chunk| chunk.standing() == Standing::Open);
        let units = vdev.zones.iter().map(|zone| zone.unit).collect();
        let mut shelf = Shelf { vdev: vdev.id, units, size: 0, used: 0, chunks: Vec::new(), spare: 0 };
        open.for_each(|chunk| shelf.put(chunk, hosts.contains(&chunk.id)));
        shelves.entry(vdev.ground).or_default().push(shelf);
    }
    shelves.into_values().collect()
}

impl Shelf {
    fn put(&mut self, chunk: &Chunk, is_host: bool) {
        let sectors = chunk.allocated();
        let is_loose = chunk.class_hint() == Some(Class::Data) && !chunk.active_hint();
        self.size += u64::from(chunk.sectors);
        self.used += u64::from(sectors);
        self.chunks.push(Held { region: chunk.region(), sectors, unit: chunk.unit, is_loose, is_host });
        self.spare += u32::from(chunk.is_spare());
    }
}

impl Layout {
    /// The chunks in which something is of chunks that were packed.
    fn hosts(&self) -> BTreeSet<ChunkId> {
        self.packed.values().flat_map(|packing| packing.hosts()).collect()
    }
}

/// Why vdevs have nothing to move.
fn why_not(grounds: &[Vec<Shelf>], may_pack: bool, layout: &Layout) -> Option<Balanced> {
    let region = u64::from(layout.chunk_sectors());
    if grounds.iter().all(|shelves| shelves.len() < 2) {
        return Some(Balanced::NoPeers);
    }
    if grounds.iter().any(|shelves| !next(shelves, u32::MAX, may_pack, layout).is_empty()) {
        return (room(layout) == 0).then_some(Balanced::NoRoom);
    }
    let uneven = |shelves: &&Vec<Shelf>| {
        let level = Level::of(shelves);
        shelves.iter().any(|shelf| !level.is_about(shelf, region))
    };
    let Some(shelves) = grounds.iter().find(uneven) else { return Some(Balanced::Level) };
    let level = Level::of(shelves);
    let has_room = |shelf: &&Shelf| level.excess(shelf) < 0 && shelf.spare > 0;
    let are_alike = || shelves.iter().all(|shelf| shelf.is_like(&shelves[0]));
    Some(match shelves.iter().any(|shelf| has_room(&shelf)) {
        false => Balanced::NoRoom,
        true if !may_pack && !are_alike() => Balanced::Unpacked,
        true => Balanced::Kept,
    })
}

/// What of vdevs that are for the same is to be moved next, in one way.
fn next(shelves: &[Shelf], most: u32, may_pack: bool, layout: &Layout) -> Vec<Choice> {
    let all = Level::of(shelves);
    let alike = alike(shelves);
    let exchanged = |level: fn(&[Shelf], Level) -> Level| {
        let choices = alike.iter().map(|alike| choose(alike.clone(), level(alike, all), most, layout));
        choices.into_iter().find(|choices| !choices.is_empty())
    };
    let packed = || Some(pieces::choose(shelves, most, layout)).filter(|choices| may_pack && !choices.is_empty());
    let found = exchanged(|_, all| all).or_else(packed);
    found.or_else(|| exchanged(|alike, _| Level::of(alike))).unwrap_or_default()
}

/// Those that may exchange chunks.
fn alike(shelves: &[Shelf]) -> Vec<Vec<Shelf>> {
    let mut alike: BTreeMap<u32, Vec<Shelf>> = BTreeMap::new();
    for shelf in shelves.iter().filter(|shelf| shelf.units.len() == 1) {
        let unit = shelf.units.first().copied().unwrap_or(1);
        alike.entry(unit).or_default().push(shelf.clone());
    }
    alike.into_values().collect()
}

/// Chooses at most so many chunks of vdevs that may exchange them, above and below such a level.
fn choose(mut shelves: Vec<Shelf>, level: Level, most: u32, layout: &Layout) -> Vec<Choice> {
    let region = u64::from(layout.chunk_sectors());
    let mut choices = Vec::new();
    // Vdevs that nothing can be taken from any more.
    let mut done: BTreeSet<VdevId> = BTreeSet::new();
    while (choices.len() as u64) < u64::from(most) {
        let usable = || (0..shelves.len()).filter(|at| !done.contains(&shelves[*at].vdev));
        let fullest = usable().max_by_key(|at| level.share(&shelves[*at]));
        let emptiest = usable().filter(|at| shelves[*at].spare > 0).min_by_key(|at| level.share(&shelves[*at]));
        let (Some(fullest), Some(emptiest)) = (fullest, emptiest) else { break };
        let (from, to) = (&shelves[fullest], &shelves[emptiest]);
        let wanted = level.excess(from).min(-level.excess(to));
        if wanted <= 0 || level.is_near(from, region) && level.is_near(to, region) {
            break;
        }
        let Some(held) = nearest(from.chunks.iter().filter(|held| is_worth_it(held, wanted, region)), wanted) else {
            done.insert(from.vdev);
            continue;
        };
        choices.push(Choice {
            from: (from.vdev, held.region),
            to: to.vdev,
            sectors: held.sectors,
            packs: Packs::Never,
        });
        make(&choices[choices.len() - 1], &mut shelves);
    }
    choices
}

/// Whether two vdevs come nearer to a level if one gives a chunk to the other, and they should exchange so much.
fn is_worth_it(held: &Held, wanted: i128, region: u64) -> bool {
    u64::from(held.sectors) * LEAST >= region && i128::from(held.sectors) < 2 * wanted
}

/// The chunk that comes nearest to so much.
fn nearest<'a>(chunks: impl Iterator<Item = &'a Held>, wanted: i128) -> Option<Held> {
    chunks.min_by_key(|held| (i128::from(held.sectors) - wanted).abs()).copied()
}

/// Makes a choice: what has moved is not moved again by those that follow.
fn make(choice: &Choice, shelves: &mut [Shelf]) {
    let sectors = u64::from(choice.sectors);
    if let Some(from) = shelves.iter_mut().find(|shelf| shelf.vdev == choice.from.0) {
        from.used -= sectors;
        from.chunks.retain(|held| held.region != choice.from.1);
    }
    if let Some(to) = shelves.iter_mut().find(|shelf| shelf.vdev == choice.to) {
        to.used += sectors;
        // Of a packed one it is more if blocks are rounded up, and less if others fill the same host.
        to.spare = to.spare.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests;
