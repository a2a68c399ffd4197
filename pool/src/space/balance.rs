//! The choice of chunks to move so that all vdevs become about equally full, for a rebalance.
//!
//! A new vdev is empty, and the older ones stay as full as they were: then most reads go to the old ones, and most
//! writes to the new one. So chunks move from vdevs above the average fill to vdevs below. Each class of vdevs is
//! balanced by itself.
//!
//! Between vdevs of the same unit, a chunk changes places with an empty one. Each choice takes the vdev furthest above
//! the average and the vdev furthest below, and the former's chunk nearest to the amount that they should exchange. The
//! choice is made only if both come nearer to the average. Between vdevs of different units, chunks are packed: see
//! [`pieces`]. The order of choices is:
//!
//! 1. Chunks that change places, between vdevs above and below the average of all.
//! 2. Chunks that are packed, between the same vdevs.
//! 3. Chunks that change places, by the average of the vdevs of one unit: where nothing may be packed, these at least
//!    become level.
//!
//! The job ends. Let *steepness* be the sum, over all vdevs, of the square of the used sectors, divided by the size.
//! Suppose `x` sectors go from a vdev more than `x / 2` above some level to a vdev more than `x / 2` below it, and take
//! no more room there. Then steepness falls; so it does with each chunk that changes places, and none goes back. Packed
//! chunks may take more room there. If they are hosts, steepness falls even at the largest rounding. If they are not,
//! there is one chunk less that is neither packed nor a host, and only new writes create such chunks. So the pair of
//! the number of such chunks and of steepness, in this order, always falls. The rest is a fraction of a chunk per vdev,
//! and chunks that may not move.
//!
//! Nothing here changes state: the choice is arithmetic on the chunks' present fill.

mod pieces;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    chunk::{Chunk, Standing},
    layout::{Ground, Layout, Vdev},
    moving::regions::{Packs, Regions, Targets},
    state::Space,
};
use crate::{
    format::space::Class,
    units::{ChunkId, VdevId},
};

/// At most so many chunks are moved together.
pub(super) const BATCH: u32 = 64;
/// A batch takes one part in so many of the empty chunks beyond the reserve.
pub(super) const SHARE: u32 = 4;
/// A chunk filled to less than one part in so many is not worth a region.
const LEAST: u64 = 16;
/// A vdev is near the average if it deviates by at most one part in so many of its size.
const NEAR: i128 = 100;
/// All vdevs are about equally full if each deviates by at most one part in so many of its size.
const LEVEL: i128 = 32;

/// The total that a rebalance would move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Imbalance {
    /// The number of chunks.
    pub chunks: u32,
    /// Bytes allocated in the chunks.
    pub bytes: u64,
    /// Why there is nothing to move.
    pub reason: Option<Balanced>,
}

/// Why rebalancing has nothing to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balanced {
    /// There are no two vdevs for the same.
    NoPeers,
    /// All vdevs of each class are about equally full.
    Level,
    /// There are no empty chunks beyond the reserve for metadata.
    NoRoom,
    /// Vdevs are uneven, but rows differ in width, and packing is disabled.
    Unpacked,
    /// Vdevs are uneven, but the excess is metadata between different rows, less than a region, or lies in pieces that
    /// might take more room than they leave.
    Kept,
}

/// Chunks to be moved together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The regions of the chunks.
    pub regions: Regions,
    /// The receiving vdevs.
    pub targets: Targets,
    /// Whether the chunks are packed there.
    pub packs: Packs,
}

/// A vdev, in sectors.
#[derive(Clone, Debug)]
struct Shelf {
    vdev: VdevId,
    /// The allocation units of its regions.
    units: BTreeSet<u32>,
    size: u64,
    used: u64,
    /// The chunks in use on the vdev.
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
    /// Whether the chunk may be packed: it holds data and is not active.
    is_loose: bool,
    /// Whether blocks of packed chunks lie in the chunk.
    is_host: bool,
}

/// A chunk to be moved.
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

    /// By how many sectors a vdev is above the level.
    fn excess(self, shelf: &Shelf) -> i128 {
        let even = (i128::from(self.used) * i128::from(shelf.size)).checked_div(self.size.into()).unwrap_or(0);
        i128::from(shelf.used) - even
    }

    /// The same as a share of the vdev's size.
    fn share(self, shelf: &Shelf) -> i128 {
        (self.excess(shelf) << 32).checked_div(shelf.size.into()).unwrap_or(0)
    }

    /// Whether a vdev is near enough to the level.
    fn is_near(self, shelf: &Shelf, region: u64) -> bool {
        self.excess(shelf).abs() <= (i128::from(shelf.size) / NEAR).max(i128::from(region) / 2)
    }

    /// Whether a vdev deviates from the level too little to matter to an administrator.
    fn is_about(self, shelf: &Shelf, region: u64) -> bool {
        self.excess(shelf).abs() <= (i128::from(shelf.size) / LEVEL).max(i128::from(region) * 2)
    }
}

impl Shelf {
    /// Whether the two vdevs may exchange chunks.
    fn is_like(&self, other: &Shelf) -> bool {
        self.units.len() == 1 && self.units == other.units
    }
}

impl Space {
    /// The total that a rebalance would move without other changes, with packing allowed or not.
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

    /// The chunks to move next: at most a share of the empty chunks beyond the reserve, so that other allocations do
    /// not miss them. `None` if there is nothing to do, or no room.
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

/// How many empty chunks there are beyond the reserve for metadata.
fn room(layout: &Layout) -> u32 {
    spare(layout).saturating_sub(layout.reserve())
}

/// How many empty chunks there are.
pub(super) fn spare(layout: &Layout) -> u32 {
    let open = layout.vdevs.iter().filter(|vdev| vdev.is_open()).flat_map(|vdev| &vdev.chunks);
    open.filter(|chunk| chunk.is_spare()).count() as u32
}

/// Whether all regions of a vdev have one unit: a RAID-Z expansion moves its own chunks.
pub(super) fn is_settled(vdev: &&Arc<Vdev>) -> bool {
    vdev.zones.iter().all(|zone| zone.unit == vdev.unit)
}

/// The vdevs, by class.
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
    /// The chunks with blocks of packed chunks in them.
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

/// The next moves among the vdevs of one class, all of the same kind.
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

/// The groups of vdevs that may exchange chunks.
fn alike(shelves: &[Shelf]) -> Vec<Vec<Shelf>> {
    let mut alike: BTreeMap<u32, Vec<Shelf>> = BTreeMap::new();
    for shelf in shelves.iter().filter(|shelf| shelf.units.len() == 1) {
        let unit = shelf.units.first().copied().unwrap_or(1);
        alike.entry(unit).or_default().push(shelf.clone());
    }
    alike.into_values().collect()
}

/// Chooses at most `most` chunks of vdevs of one unit, above and below the level.
fn choose(mut shelves: Vec<Shelf>, level: Level, most: u32, layout: &Layout) -> Vec<Choice> {
    let region = u64::from(layout.chunk_sectors());
    let mut choices = Vec::new();
    // Vdevs with no further chunk to take.
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

/// Whether moving the chunk brings two vdevs nearer to the level, if they should exchange `wanted` sectors.
fn is_worth_it(held: &Held, wanted: i128, region: u64) -> bool {
    u64::from(held.sectors) * LEAST >= region && i128::from(held.sectors) < 2 * wanted
}

/// The chunk with the number of sectors nearest to `wanted`.
fn nearest<'a>(chunks: impl Iterator<Item = &'a Held>, wanted: i128) -> Option<Held> {
    chunks.min_by_key(|held| (i128::from(held.sectors) - wanted).abs()).copied()
}

/// Applies a choice to the shelves. Later choices do not move the chunk again.
fn make(choice: &Choice, shelves: &mut [Shelf]) {
    let sectors = u64::from(choice.sectors);
    if let Some(from) = shelves.iter_mut().find(|shelf| shelf.vdev == choice.from.0) {
        from.used -= sectors;
        from.chunks.retain(|held| held.region != choice.from.1);
    }
    if let Some(to) = shelves.iter_mut().find(|shelf| shelf.vdev == choice.to) {
        to.used += sectors;
        // A packed chunk takes more if blocks are rounded up, and less if others fill the same host.
        to.spare = to.spare.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests;
