//! Which chunks there are and where they lie: all that turns addresses into places and back.
//!
//! A layout never changes; adding a device makes a new one that shares the chunks. So readers resolve addresses without
//! a lock.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::{Arc, atomic::AtomicU32, atomic::Ordering::Relaxed},
};

use arc_swap::ArcSwapOption;

use super::{
    Extent,
    chunk::{Chunk, CountedIn, Counters, Standing},
    packing::Packing,
};
use crate::{
    error::{Error, Result},
    format::{
        label::classes::VdevClass,
        pointer::Address,
        space::{Class, Place, Span, table::MAX_UNIT},
    },
    units::{ChunkId, GIB, MIB, VdevId},
};

/// How many of the least blocks have room in what is kept for metadata: a commit of a pool in which little happens writes
/// some dozen, and what it replaces is free again four commits later.
const RESERVED_UNITS: u64 = 256;

/// The size of the regions of a pool whose smallest device has `smallest` bytes: at least 64 regions where a region
/// of 1 MiB allows it, and fewer than 128 up to 64 GiB.
pub fn region_size(smallest: u64) -> u64 {
    let wanted = (smallest / 64).max(1);
    (1u64 << wanted.ilog2()).clamp(MIB, GIB)
}

/// A device as the space layer is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VdevShape {
    /// The device.
    pub vdev: VdevId,
    /// The number of its first region. One that has regions of several units is told by as many shapes; numbers that none of
    /// them has were given up.
    pub first_region: u32,
    /// What it gives to the pool, in bytes.
    pub size: u64,
    /// How many sectors it writes together, and are allocated together there: from 1 to [`MAX_UNIT`].
    pub unit: u32,
    /// What it is there for, if not for everything.
    pub class: Option<VdevClass>,
}

/// The devices that blocks of one purpose go to, as long as there is room on one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ground {
    /// Those that take everything.
    Normal,
    /// Those for metadata.
    Special,
    /// Those for the intent log, whose space is not the pool's.
    Log,
}

impl Ground {
    pub(super) fn of(class: Option<VdevClass>) -> Ground {
        match class {
            Some(VdevClass::Log) => Ground::Log,
            Some(VdevClass::Special) => Ground::Special,
            // A pool with one of another class is not opened.
            Some(VdevClass::Other(_)) | None => Ground::Normal,
        }
    }
}

/// `sectors` rounded up to whole units; the most there is if that is too many.
pub(super) fn whole_units(sectors: u32, unit: u32) -> u32 {
    match unit {
        1 => sectors,
        _ => sectors.checked_next_multiple_of(unit).unwrap_or(u32::MAX),
    }
}

/// The chunks that the allocator works on at a device: by class, and by how many copies of the block lie there already.
type Slots = [[ArcSwapOption<Chunk>; 3]; 2];

/// Regions of a device of the same unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Zone {
    pub(super) regions: Range<u32>,
    /// How many sectors are allocated together.
    pub(super) unit: u32,
}

/// A device.
#[derive(Debug)]
pub(super) struct Vdev {
    pub(super) id: VdevId,
    /// The most sectors that are allocated together.
    pub(super) unit: u32,
    pub(super) ground: Ground,
    /// The number behind that of its last region.
    pub(super) regions: u32,
    /// Its regions.
    pub(super) zones: Vec<Zone>,
    /// Nothing is allocated on it any more: it is about to leave. Its space is not the pool's.
    pub(super) closed: bool,
    /// Regions of which the same is true: what lies there is about to leave them.
    pub(super) closed_regions: Arc<BTreeSet<u32>>,
    /// What its open chunks have.
    pub(super) counters: Arc<Counters>,
    /// What its closed chunks have.
    pub(super) closed_counters: Arc<Counters>,
    pub(super) chunks: Vec<Arc<Chunk>>,
    slots: Arc<Slots>,
}

impl Vdev {
    /// A device without regions yet.
    pub(super) fn new(id: VdevId, ground: Ground) -> Vdev {
        Vdev {
            id,
            unit: 1,
            ground,
            regions: 0,
            zones: Vec::new(),
            closed: false,
            closed_regions: Arc::default(),
            counters: Arc::default(),
            closed_counters: Arc::default(),
            chunks: Vec::new(),
            slots: Arc::default(),
        }
    }

    /// Whether its space is the pool's: it is not about to leave, and not for the intent log alone.
    pub(super) fn is_open(&self) -> bool {
        !self.closed && self.ground != Ground::Log
    }

    /// This device with these regions: more than it had, or others.
    pub(super) fn with_zone(&self, zone: Zone) -> Vdev {
        let mut zones = self.zones.clone();
        match zones.iter_mut().find(|known| known.regions.start == zone.regions.start) {
            Some(known) => {
                assert_eq!(known.unit, zone.unit, "the unit of a region never changes");
                known.regions.end = known.regions.end.max(zone.regions.end);
            }
            None => zones.push(zone),
        }
        self.with_zones(zones)
    }

    /// This device with these regions and no others.
    pub(super) fn with_zones(&self, zones: Vec<Zone>) -> Vdev {
        Vdev {
            unit: zones.iter().map(|zone| zone.unit).max().unwrap_or(1),
            regions: zones.iter().map(|zone| zone.regions.end).max().unwrap_or(0),
            zones,
            ..self.same()
        }
    }

    /// Sets an empty chunk aside that is allocated by such units: the last one if what is emptied lies before all that is not,
    /// as the next to be emptied will.
    pub(super) fn take_spare(&self, unit: u32) -> Option<Arc<Chunk>> {
        let mut suitable: Vec<&Arc<Chunk>> = self.chunks.iter().filter(|chunk| chunk.unit == unit).collect();
        if suitable.first().is_some_and(|first| self.is_closed(first.region())) {
            suitable.reverse();
        }
        suitable.into_iter().find(|chunk| chunk.hold()).cloned()
    }

    /// Whether a chunk lies in one of its regions.
    pub(super) fn has(&self, chunk: &Chunk) -> bool {
        let (vdev, region) = chunk.seat();
        vdev == self.id && self.unit_of(region).is_some()
    }

    /// How many sectors are allocated together in a region; none if it does not have it.
    pub(super) fn unit_of(&self, region: u32) -> Option<u32> {
        self.zones.iter().find(|zone| zone.regions.contains(&region)).map(|zone| zone.unit)
    }

    /// This device open or closed.
    pub(super) fn opened(&self, is_open: bool) -> Vdev {
        Vdev { closed: !is_open, ..self.same() }
    }

    /// This device with these regions closed, and no others.
    pub(super) fn with_closed(&self, regions: BTreeSet<u32>) -> Vdev {
        Vdev { closed_regions: Arc::new(regions), ..self.same() }
    }

    /// This device with other chunks, whose counters are its own.
    pub(super) fn with_chunks(&self, mut chunks: Vec<Arc<Chunk>>) -> Vdev {
        chunks.sort_by_key(|chunk| chunk.region());
        Vdev { chunks, ..self.same() }
    }

    /// The same device.
    fn same(&self) -> Vdev {
        Vdev {
            id: self.id,
            unit: self.unit,
            ground: self.ground,
            regions: self.regions,
            zones: self.zones.clone(),
            closed: self.closed,
            closed_regions: self.closed_regions.clone(),
            counters: self.counters.clone(),
            closed_counters: self.closed_counters.clone(),
            chunks: self.chunks.clone(),
            slots: self.slots.clone(),
        }
    }

    /// The chunk that blocks of `class` go to which have `copies` copies on this device already.
    pub(super) fn slot(&self, class: Class, copies: usize) -> &ArcSwapOption<Chunk> {
        &self.slots[class as usize - 1][copies]
    }

    /// The chunks that blocks go to, of all kinds.
    pub(super) fn slots(&self) -> impl Iterator<Item = &ArcSwapOption<Chunk>> {
        self.slots.iter().flatten()
    }

    /// Whether nothing is allocated in a region any more.
    pub(super) fn is_closed(&self, region: u32) -> bool {
        self.closed || self.closed_regions.contains(&region)
    }

    /// About how many sectors are free for use by the pool.
    pub(super) fn free(&self) -> u64 {
        if self.is_open() { self.counters.free.load(Relaxed) } else { 0 }
    }

    /// About how many sectors are free, also of a device for the intent log.
    pub(super) fn unused(&self) -> u64 {
        self.counters.free.load(Relaxed)
    }

    /// Whether less than a quarter is free.
    pub(super) fn is_short(&self) -> bool {
        self.free() < self.sectors() / 4
    }

    /// About how many sectors were freed and wait until they are free for use.
    pub(super) fn deferred(&self) -> u64 {
        self.counters.deferred.load(Relaxed)
    }

    /// How many sectors its chunks have, without those that are set aside. Of those that are closed it is what is allocated.
    pub(super) fn sectors(&self) -> u64 {
        let standing = |standing| self.chunks.iter().filter(move |chunk| chunk.standing() == standing);
        let sectors = |standing_so| standing(standing_so).map(|chunk| u64::from(chunk.sectors)).sum::<u64>();
        let Counters { free, deferred } = &*self.closed_counters;
        let unused = free.load(Relaxed).saturating_add(deferred.load(Relaxed));
        sectors(Standing::Open) + sectors(Standing::Closed).saturating_sub(unused)
    }

    /// How many chunks blocks may be allocated in, or will be.
    fn open_chunks(&self) -> u64 {
        match self.closed {
            true => 0,
            false => self.chunks.len().saturating_sub(self.closed_regions.len()) as u64,
        }
    }
}

/// The devices and chunks of a pool.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// The allocation unit, in bytes.
    pub(super) sector: u32,
    /// The size of a region, in bytes.
    pub(super) region: u64,
    pub(super) vdevs: Vec<Arc<Vdev>>,
    /// By number.
    pub(super) chunks: Vec<Arc<Chunk>>,
    /// Where that lies which is in chunks that are packed.
    pub(super) packed: BTreeMap<ChunkId, Arc<Packing>>,
    /// How many chunks are empty and without a class.
    pub(super) empty: Arc<AtomicU32>,
}

impl Layout {
    /// No devices yet.
    pub(super) fn new(sector: u32, region: u64) -> Layout {
        assert!(sector.is_power_of_two() && region.is_power_of_two() && region >= u64::from(sector));
        assert!(region / u64::from(sector) <= 1 << 31, "a chunk has too many sectors");
        Layout { sector, region, vdevs: Vec::new(), chunks: Vec::new(), packed: BTreeMap::new(), empty: Arc::default() }
    }

    /// Whether regions have room for such units at all.
    pub(super) fn suits(&self, unit: u32) -> bool {
        (1..=MAX_UNIT.min(self.chunk_sectors())).contains(&unit)
    }

    /// This layout with a chunk on each region of a device. The device is a new one, or one that has chunks on some of its
    /// regions or on none; those stay as they are, and so does what the allocator works on. A region that the device had
    /// before it was made smaller has its chunk already, which is empty, and gets no other: it is used again.
    pub(super) fn with_vdev(&self, shape: VdevShape) -> Layout {
        let VdevShape { vdev: id, unit, class, .. } = shape;
        assert!(self.suits(unit), "sectors are allocated {unit} at a time");
        let zone = self.zone_of(&shape);
        let before = self.vdevs.iter().position(|vdev| vdev.id == id);
        let mut vdev = match before {
            Some(at) => self.vdevs[at].with_zone(zone.clone()),
            None => Vdev::new(id, Ground::of(class)).with_zone(zone.clone()),
        };
        let seated: BTreeSet<u32> = vdev.chunks.iter().map(|chunk| chunk.region()).collect();
        let is_back = |chunk: &&Arc<Chunk>| {
            let is_there = zone.regions.contains(&chunk.region()) && !seated.contains(&chunk.region());
            chunk.vdev() == id && is_there && !chunk.is_packed() && !self.packed.contains_key(&chunk.id)
        };
        let back: Vec<Arc<Chunk>> = self.chunks.iter().filter(is_back).cloned().collect();
        let taken: BTreeSet<u32> = seated.iter().copied().chain(back.iter().map(|chunk| chunk.region())).collect();
        let bare = zone.regions.filter(|region| !taken.contains(region));
        let first = self.chunks.len() as u32;
        let chunks: Vec<_> = (first..)
            .zip(bare)
            .map(|(number, region)| {
                let place = (ChunkId(number), id, region);
                let chunk = Chunk::new(place, (self.capacity(unit), unit), self.counted(&vdev, Standing::Open));
                if vdev.is_closed(region) {
                    chunk.set_standing(Standing::Closed, self.counted(&vdev, Standing::Closed));
                }
                Arc::new(chunk)
            })
            .collect();
        let mut layout = self.clone();
        layout.chunks.extend(chunks.iter().cloned());
        vdev.chunks.extend(chunks);
        let back: Vec<_> = back.into_iter().filter(|chunk| chunk.unit == unit).collect();
        vdev.chunks.extend(back.iter().cloned());
        vdev.chunks.sort_by_key(|chunk| chunk.region());
        match before {
            Some(at) => layout.vdevs[at] = Arc::new(vdev),
            None => layout.vdevs.push(Arc::new(vdev)),
        }
        back.iter().for_each(|chunk| layout.let_stand(chunk));
        layout
    }

    /// Where the chunks of a device are counted that stand so.
    pub(super) fn counted(&self, vdev: &Vdev, standing: Standing) -> CountedIn {
        match standing {
            Standing::Open => {
                // What is for the intent log alone is nobody else's.
                let empty = if vdev.ground == Ground::Log { Arc::default() } else { self.empty.clone() };
                CountedIn { counters: vdev.counters.clone(), empty }
            }
            Standing::Closed => CountedIn { counters: vdev.closed_counters.clone(), empty: Arc::default() },
            Standing::Target | Standing::Resting | Standing::Packed => CountedIn::default(),
        }
    }

    /// Whether records that are to lie with metadata do so: there are devices for it, of which one has more free than what is
    /// left to metadata.
    pub(super) fn takes_small(&self) -> bool {
        self.vdevs.iter().any(|vdev| vdev.is_open() && vdev.ground == Ground::Special && !vdev.is_short())
    }

    /// Whether nothing is allocated on a device any more.
    pub(super) fn is_closed(&self, id: VdevId) -> bool {
        self.vdevs.iter().any(|vdev| vdev.id == id && vdev.closed)
    }

    /// The regions that a shape tells of.
    pub(super) fn zone_of(&self, shape: &VdevShape) -> Zone {
        let regions = u32::try_from(shape.size / self.region).unwrap_or(u32::MAX);
        Zone { regions: shape.first_region..shape.first_region.saturating_add(regions), unit: shape.unit }
    }

    /// Whether nothing is allocated in the region any more in which this lies.
    pub(super) fn is_closed_at(&self, place: &Place) -> bool {
        let region = u32::try_from(place.offset / self.region).unwrap_or(u32::MAX);
        self.vdevs.iter().any(|vdev| vdev.id == place.vdev && vdev.is_closed(region))
    }

    /// How many sectors a region has.
    pub(super) fn chunk_sectors(&self) -> u32 {
        (self.region / u64::from(self.sector)) as u32
    }

    /// How many of them a chunk has whose sectors are allocated together in such units: what is left at the end of the
    /// region is none of it.
    pub(super) fn capacity(&self, unit: u32) -> u32 {
        self.chunk_sectors() / unit * unit
    }

    /// The largest unit of any device: that many sectors are enough to round one block up, wherever it goes.
    pub(super) fn unit(&self) -> u32 {
        self.vdevs.iter().map(|vdev| vdev.unit).max().unwrap_or(1)
    }

    /// How many sectors `bytes` take.
    pub(super) fn sectors_for(&self, bytes: u32) -> u32 {
        bytes.div_ceil(self.sector)
    }

    /// `bytes` rounded up to whole sectors.
    pub(super) fn padded(&self, bytes: u32) -> usize {
        self.sectors_for(bytes) as usize * self.sector as usize
    }

    /// The regions that a place is one of.
    fn zone_at(&self, place: &Place) -> Option<&Zone> {
        let region = u32::try_from(place.offset / self.region).ok()?;
        let vdev = self.vdevs.iter().find(|vdev| vdev.id == place.vdev)?;
        vdev.zones.iter().find(|zone| zone.regions.contains(&region))
    }

    /// How many sectors are allocated together at a place; 1 if there is no such place.
    pub(super) fn unit_at(&self, place: &Place) -> u32 {
        self.zone_at(place).map_or(1, |zone| zone.unit)
    }

    /// `bytes` rounded up to what is allocated for them at a place.
    pub(super) fn padded_at(&self, place: &Place, bytes: u32) -> usize {
        whole_units(self.sectors_for(bytes), self.unit_at(place)) as usize * self.sector as usize
    }

    /// Where the regions end, in bytes, that a place is one of; zero if there is no such place.
    pub(super) fn end_at(&self, place: &Place) -> u64 {
        self.zone_at(place).map_or(0, |zone| u64::from(zone.regions.end) * self.region)
    }

    /// Whether the region that a chunk names is no more: its device was removed, gave it up, or was made smaller. One whose
    /// sectors are allocated together is never made smaller.
    pub(super) fn is_gone(&self, id: VdevId, region: u32) -> bool {
        let vdev = self.vdevs.iter().find(|vdev| vdev.id == id);
        let may_end_before = |vdev: &Vdev| region < vdev.regions || vdev.unit == 1;
        vdev.is_none_or(|vdev| vdev.unit_of(region).is_none() && may_end_before(vdev))
    }

    /// All free sectors.
    pub(super) fn free(&self) -> u64 {
        self.vdevs.iter().map(|vdev| vdev.free()).sum()
    }

    /// How many empty chunks are kept for metadata alone: a 32nd of the pool but at least 8 MiB and two chunks, at most
    /// a quarter of the pool. Where the least block takes several sectors, so do the few blocks that every commit writes:
    /// there is room for [`RESERVED_UNITS`] of these.
    pub(super) fn reserve(&self) -> u32 {
        self.reserve_of(self.vdevs.iter().filter(|vdev| vdev.is_open()).map(|vdev| vdev.open_chunks()).sum())
    }

    /// The same if there were so many chunks.
    pub(super) fn reserve_of(&self, chunks: u64) -> u32 {
        let units = match self.unit() {
            1 => 0,
            unit => RESERVED_UNITS * u64::from(unit) * u64::from(self.sector),
        };
        let least = units.max(8 * MIB).div_ceil(self.region).max(2);
        chunks.div_ceil(32).max(least).min(chunks / 4) as u32
    }

    /// How many of these are kept for the space layer itself, so that a commit that frees space can always be stored: a
    /// quarter, at most 64 MiB, at least one.
    pub(super) fn last_resort(&self) -> u32 {
        let most = (64 * MIB / self.region).max(1) as u32;
        self.reserve().div_ceil(4).min(most)
    }

    /// The chunk and the sectors that `bytes` bytes at `address` take, if they are inside a chunk and begin where
    /// something can that was allocated there.
    pub(super) fn locate(&self, address: Address, bytes: u32) -> Result<(&Arc<Chunk>, Span)> {
        let outside = || {
            let problem = format!("{bytes} bytes at sector {} of chunk {} are outside", address.sector, address.chunk);
            Error::damaged("block address", problem)
        };
        let chunk = self.chunks.get(address.chunk.0 as usize).ok_or_else(outside)?;
        let span = Span { start: address.sector, len: whole_units(self.sectors_for(bytes), chunk.unit) };
        let end = span.start.checked_add(span.len).filter(|&end| end <= chunk.sectors && span.len > 0);
        end.filter(|_| span.start.is_multiple_of(chunk.unit)).map(|_| (chunk, span)).ok_or_else(outside)
    }

    /// The sectors that `bytes` bytes at `address` take, were they there.
    pub(super) fn extent(&self, address: Address, bytes: u32) -> Extent {
        let unit = self.chunks.get(address.chunk.0 as usize).map_or(1, |chunk| chunk.unit);
        let sectors = whole_units(self.sectors_for(bytes), unit);
        Extent { chunk: address.chunk, sector: address.sector, sectors }
    }

    /// Where a sector of a chunk lies.
    pub(super) fn place(&self, chunk: &Chunk, sector: u32) -> Place {
        let (vdev, region) = chunk.seat();
        let offset = u64::from(region) * self.region + u64::from(sector) * u64::from(self.sector);
        Place { vdev, offset }
    }

    /// The address of a place on a device.
    pub(super) fn address(&self, place: Place) -> Result<Address> {
        let region = place.offset / self.region;
        let vdev = self.vdevs.iter().find(|vdev| vdev.id == place.vdev);
        let chunk = vdev.and_then(|vdev| {
            let index = vdev.chunks.binary_search_by_key(&region, |chunk| u64::from(chunk.region())).ok()?;
            Some(vdev.chunks[index].id)
        });
        let chunk = chunk.ok_or_else(|| Error::damaged("space structure", "it lies outside all chunks"))?;
        Ok(Address { chunk, sector: ((place.offset % self.region) / u64::from(self.sector)) as u32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(vdev: u32, size: u64) -> VdevShape {
        VdevShape { vdev: VdevId(vdev), first_region: 0, size, unit: 1, class: None }
    }

    #[test]
    fn regions_are_many_but_not_too_many() {
        assert_eq!(region_size(0), MIB);
        assert_eq!(region_size(64 * MIB), MIB);
        assert_eq!(region_size(GIB), 16 * MIB);
        assert_eq!(region_size(GIB + GIB / 2), 16 * MIB);
        assert_eq!(region_size(1 << 50), GIB);
    }

    #[test]
    fn an_address_is_found_again_from_its_place() {
        let layout = Layout::new(4096, MIB).with_vdev(plain(7, 4 * MIB)).with_vdev(plain(3, 2 * MIB + 5));
        let address = Address { chunk: ChunkId(5), sector: 17 };
        let (chunk, _) = layout.locate(address, 4096).unwrap();
        let place = layout.place(chunk, 17);
        assert_eq!(place, Place { vdev: VdevId(3), offset: MIB + 17 * 4096 });
        assert_eq!(layout.address(place).unwrap(), address);
        assert!(layout.address(Place { vdev: VdevId(3), offset: 2 * MIB }).is_err());
    }

    #[test]
    fn a_device_without_chunks_gets_them_in_its_place() {
        let bare = Layout::new(4096, MIB).with_vdev(plain(0, 0)).with_vdev(plain(1, MIB));
        let layout = bare.with_vdev(plain(0, 3 * MIB));
        let shape: Vec<_> = layout.vdevs.iter().map(|vdev| (vdev.id, vdev.chunks.len())).collect();
        assert_eq!(shape, [(VdevId(0), 3), (VdevId(1), 1)]);
    }

    #[test]
    fn a_device_that_has_grown_gets_chunks_behind_those_it_has() {
        let small = Layout::new(4096, MIB).with_vdev(plain(0, 2 * MIB)).with_vdev(plain(1, MIB));
        let layout = small.with_vdev(plain(0, 4 * MIB + 5)).with_vdev(plain(0, 3 * MIB));
        let chunks: Vec<_> = layout.vdevs[0].chunks.iter().map(|chunk| (chunk.id.0, chunk.region())).collect();
        assert_eq!(chunks, [(0, 0), (1, 1), (3, 2), (4, 3)]);
        assert_eq!(
            (layout.chunks.len(), layout.end_at(&Place { vdev: VdevId(0), offset: 0 }), layout.free()),
            (5, 4 * MIB, 5 * 256)
        );
        let slot = |layout: &Layout| std::ptr::from_ref(layout.vdevs[0].slot(Class::Data, 0));
        assert_eq!(slot(&small), slot(&layout));
    }

    #[test]
    fn an_address_outside_is_damage() {
        let layout = Layout::new(4096, MIB).with_vdev(plain(0, 2 * MIB));
        for (chunk, sector, bytes) in [(2, 0, 1), (0, 256, 1), (1, 255, 4097), (1, u32::MAX, 8192), (0, 0, 0)] {
            assert!(layout.locate(Address { chunk: ChunkId(chunk), sector }, bytes).is_err());
        }
        assert!(layout.locate(Address { chunk: ChunkId(1), sector: 255 }, 4096).is_ok());
    }

    #[test]
    fn what_is_allocated_in_units_begins_with_one_and_ends_with_one() {
        let layout =
            Layout::new(4096, MIB).with_vdev(VdevShape { unit: 3, ..plain(0, 2 * MIB) }).with_vdev(plain(1, MIB));
        // Of the 256 sectors of a region, the last one is no unit.
        assert_eq!((layout.free(), layout.vdevs[0].sectors(), layout.unit()), (2 * 255 + 256, 2 * 255, 3));
        let located = |sector, bytes| {
            let (_, span) = layout.locate(Address { chunk: ChunkId(1), sector }, bytes)?;
            Ok::<_, Error>((span.start, span.len))
        };
        assert_eq!(located(3, 1).unwrap(), (3, 3));
        assert_eq!(located(252, 3 * 4096).unwrap(), (252, 3));
        for (sector, bytes) in [(1, 1), (2, 4096), (252, 3 * 4096 + 1), (255, 1), (0, u32::MAX)] {
            assert!(located(sector, bytes).is_err(), "{bytes} bytes at {sector}");
        }
        let plain = Address { chunk: ChunkId(2), sector: 1 };
        assert_eq!(layout.locate(plain, 1).unwrap().1, Span::new(1, 1));
        assert_eq!((layout.extent(plain, 1).sectors, layout.extent(Address::default(), 1).sectors), (1, 3));
        let padded = |vdev| layout.padded_at(&Place { vdev: VdevId(vdev), offset: MIB / 2 }, 1);
        assert_eq!((padded(0), padded(1), padded(2)), (3 * 4096, 4096, 4096));
    }

    #[test]
    fn more_is_kept_where_the_least_block_is_large() {
        let kept = |unit| {
            let layout = Layout::new(4096, MIB).with_vdev(VdevShape { unit, ..plain(0, 512 * MIB) });
            u64::from(layout.reserve()) * MIB
        };
        assert_eq!([kept(1), kept(2), kept(31)], [16 * MIB, 16 * MIB, 31 * MIB]);
    }
}
