//! The chunks of a pool and their places: translation between addresses and places.
//!
//! A layout never changes; adding a device makes a new layout that shares the chunks. So readers resolve addresses
//! without a lock.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::{Arc, atomic::AtomicU32, atomic::Ordering::Relaxed},
};

use arc_swap::ArcSwapOption;

use super::{
    chunk::{Chunk, CountedIn, Counters, Standing},
    packing::map::Packing,
    places::Extent,
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

/// How many blocks of one unit the reserve for metadata has room for. A commit of a nearly idle pool writes some dozen,
/// and the replaced blocks are free again four commits later.
const RESERVED_UNITS: u64 = 256;

/// The size of a pool's regions, for the smallest device's size in bytes: at least 64 regions where a region of 1 MiB
/// allows it, and fewer than 128 up to 64 GiB.
pub fn region_size(smallest: u64) -> u64 {
    let wanted = (smallest / 64).max(1);
    (1u64 << wanted.ilog2()).clamp(MIB, GIB)
}

/// The regions of a device with one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VdevShape {
    /// The vdev of the regions.
    pub vdev: VdevId,
    /// The number of the first region. A device with regions of several units has a shape for each unit; missing
    /// numbers were given up.
    pub first_region: u32,
    /// The space given to the pool, in bytes.
    pub size: u64,
    /// The allocation unit, in sectors: from 1 to [`MAX_UNIT`].
    pub unit: u32,
    /// The device's class; `None` for normal devices.
    pub class: Option<VdevClass>,
}

/// The devices for one purpose; blocks prefer them while they have room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ground {
    /// Devices for everything.
    Normal,
    /// Devices for metadata.
    Special,
    /// Devices for the intent log; their space does not count as the pool's.
    Log,
    /// Devices for copies of blocks, and for blocks released from the others. The allocator takes nothing there, and
    /// their space does not count as the pool's.
    Archive,
}

impl Ground {
    pub(super) fn of(class: Option<VdevClass>) -> Ground {
        match class {
            Some(VdevClass::Log) => Ground::Log,
            Some(VdevClass::Special) => Ground::Special,
            Some(VdevClass::Archive) => Ground::Archive,
            // A pool with an unknown class is not opened.
            Some(VdevClass::Other(_)) | None => Ground::Normal,
        }
    }

    /// Whether the space counts as the pool's.
    pub(super) fn counts(self) -> bool {
        matches!(self, Ground::Normal | Ground::Special)
    }
}

/// `sectors` rounded up to whole units, capped at `u32::MAX`.
pub(super) fn whole_units(sectors: u32, unit: u32) -> u32 {
    match unit {
        1 => sectors,
        _ => sectors.checked_next_multiple_of(unit).unwrap_or(u32::MAX),
    }
}

/// The active chunks of a device: by class, and by the number of copies of the block already there.
type Slots = [[ArcSwapOption<Chunk>; 3]; 2];

/// Regions of a device of the same unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Zone {
    pub(super) regions: Range<u32>,
    /// How many sectors are allocated together.
    pub(super) unit: u32,
}

/// A vdev with its regions and chunks.
#[derive(Debug)]
pub(super) struct Vdev {
    pub(super) id: VdevId,
    /// The largest allocation unit, in sectors.
    pub(super) unit: u32,
    pub(super) ground: Ground,
    /// The end of the highest region's number.
    pub(super) regions: u32,
    /// The regions, by unit.
    pub(super) zones: Vec<Zone>,
    /// Nothing is allocated on the device any more, because it is to leave. Its space does not count as the pool's.
    pub(super) closed: bool,
    /// Single closed regions, which are being emptied.
    pub(super) closed_regions: Arc<BTreeSet<u32>>,
    /// The sector counts of open chunks.
    pub(super) counters: Arc<Counters>,
    /// The sector counts of closed chunks.
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

    /// Whether the device's space counts as the pool's: it is not about to leave, and is no log or archive.
    pub(super) fn is_open(&self) -> bool {
        !self.closed && self.ground.counts()
    }

    /// This device with a zone added, or grown if it starts at the same region.
    pub(super) fn with_zone(&self, zone: Zone) -> Vdev {
        let mut zones = self.zones.clone();
        match zones.iter_mut().find(|known| known.regions.start == zone.regions.start) {
            Some(known) => {
                assert_eq!(known.unit, zone.unit, "SPACE-4: the unit of a region changes");
                known.regions.end = known.regions.end.max(zone.regions.end);
            }
            None => zones.push(zone),
        }
        self.with_zones(zones)
    }

    /// This device with exactly these zones.
    pub(super) fn with_zones(&self, zones: Vec<Zone>) -> Vdev {
        Vdev {
            unit: zones.iter().map(|zone| zone.unit).max().unwrap_or(1),
            regions: zones.iter().map(|zone| zone.regions.end).max().unwrap_or(0),
            zones,
            ..self.same()
        }
    }

    /// Sets aside an empty chunk of the unit. If the device is emptied from its start, it is the last chunk, because
    /// the next regions to be emptied are the first.
    pub(super) fn take_spare(&self, unit: u32) -> Option<Arc<Chunk>> {
        let mut suitable: Vec<&Arc<Chunk>> = self.chunks.iter().filter(|chunk| chunk.unit == unit).collect();
        if suitable.first().is_some_and(|first| self.is_closed(first.region())) {
            suitable.reverse();
        }
        suitable.into_iter().find(|chunk| chunk.hold()).cloned()
    }

    /// Whether a chunk lies in one of the device's regions.
    pub(super) fn has(&self, chunk: &Chunk) -> bool {
        let (vdev, region) = chunk.seat();
        vdev == self.id && self.unit_of(region).is_some()
    }

    /// The allocation unit of a region, in sectors; `None` if the device does not have the region.
    pub(super) fn unit_of(&self, region: u32) -> Option<u32> {
        self.zones.iter().find(|zone| zone.regions.contains(&region)).map(|zone| zone.unit)
    }

    /// This device, open or closed.
    pub(super) fn opened(&self, is_open: bool) -> Vdev {
        Vdev { closed: !is_open, ..self.same() }
    }

    /// This device with exactly these regions closed.
    pub(super) fn with_closed(&self, regions: BTreeSet<u32>) -> Vdev {
        Vdev { closed_regions: Arc::new(regions), ..self.same() }
    }

    /// This device with other chunks. Their counters must be the device's.
    pub(super) fn with_chunks(&self, mut chunks: Vec<Arc<Chunk>>) -> Vdev {
        chunks.sort_by_key(|chunk| chunk.region());
        Vdev { chunks, ..self.same() }
    }

    /// A copy that shares the counters and the allocator's slots.
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

    /// The active chunk of `class` for blocks with `copies` copies on this device already.
    pub(super) fn slot(&self, class: Class, copies: usize) -> &ArcSwapOption<Chunk> {
        &self.slots[class as usize - 1][copies]
    }

    /// The active chunks of all slots.
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

    /// About how many sectors were freed and are not yet reusable.
    pub(super) fn deferred(&self) -> u64 {
        self.counters.deferred.load(Relaxed)
    }

    /// How many sectors count as the device's: all of open chunks, the allocated ones of closed chunks, none of chunks
    /// that are set aside.
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
    /// A chunk's index is its number.
    pub(super) chunks: Vec<Arc<Chunk>>,
    /// The maps of packed chunks.
    pub(super) packed: BTreeMap<ChunkId, Arc<Packing>>,
    /// How many chunks are empty and without a class.
    pub(super) empty: Arc<AtomicU32>,
}

impl Layout {
    /// A layout without devices.
    pub(super) fn new(sector: u32, region: u64) -> Layout {
        assert!(sector.is_power_of_two() && region.is_power_of_two() && region >= u64::from(sector));
        assert!(region / u64::from(sector) <= 1 << 31, "a chunk has too many sectors");
        Layout { sector, region, vdevs: Vec::new(), chunks: Vec::new(), packed: BTreeMap::new(), empty: Arc::default() }
    }

    /// Whether regions have room for units of this size.
    pub(super) fn suits(&self, unit: u32) -> bool {
        (1..=MAX_UNIT.min(self.chunk_sectors())).contains(&unit)
    }

    /// This layout with a chunk on each region of a device. The device is new, or has chunks on some regions or on
    /// none; existing chunks and the allocator's slots stay. A region that the device had before it shrank still has
    /// its empty chunk: that chunk is used again, and no other is made.
    pub(super) fn with_vdev(&self, shape: VdevShape) -> Layout {
        let VdevShape { vdev: id, unit, class, .. } = shape;
        assert!(self.suits(unit), "SPACE-4: a region has no room for units of {unit} sectors");
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

    /// The counters for chunks of a device with this role.
    pub(super) fn counted(&self, vdev: &Vdev, standing: Standing) -> CountedIn {
        match standing {
            Standing::Open => {
                // Empty chunks of logs and archives do not count as the pool's.
                let empty = if vdev.ground.counts() { self.empty.clone() } else { Arc::default() };
                CountedIn { counters: vdev.counters.clone(), empty }
            }
            Standing::Closed => CountedIn { counters: vdev.closed_counters.clone(), empty: Arc::default() },
            Standing::Target | Standing::Resting | Standing::Packed => CountedIn::default(),
        }
    }

    /// Whether small records lie with metadata: a special device has at least a quarter free.
    pub(super) fn takes_small(&self) -> bool {
        self.vdevs.iter().any(|vdev| vdev.is_open() && vdev.ground == Ground::Special && !vdev.is_short())
    }

    /// Whether there is an archive.
    pub(super) fn has_archive(&self) -> bool {
        self.vdevs.iter().any(|vdev| vdev.ground == Ground::Archive)
    }

    /// Whether a chunk lies on an archive.
    pub(super) fn is_on_archive(&self, chunk: &Chunk) -> bool {
        let there = chunk.vdev();
        self.vdevs.iter().any(|vdev| vdev.id == there && vdev.ground == Ground::Archive)
    }

    /// Whether nothing is allocated on a device any more.
    pub(super) fn is_closed(&self, id: VdevId) -> bool {
        self.vdevs.iter().any(|vdev| vdev.id == id && vdev.closed)
    }

    /// The regions of a shape.
    pub(super) fn zone_of(&self, shape: &VdevShape) -> Zone {
        let regions = u32::try_from(shape.size / self.region).unwrap_or(u32::MAX);
        Zone { regions: shape.first_region..shape.first_region.saturating_add(regions), unit: shape.unit }
    }

    /// Whether the region of a place is closed.
    pub(super) fn is_closed_at(&self, place: &Place) -> bool {
        let region = u32::try_from(place.offset / self.region).unwrap_or(u32::MAX);
        self.vdevs.iter().any(|vdev| vdev.id == place.vdev && vdev.is_closed(region))
    }

    /// How many sectors a region has.
    pub(super) fn chunk_sectors(&self) -> u32 {
        (self.region / u64::from(self.sector)) as u32
    }

    /// How many sectors a chunk with this unit has: the rest at the end of the region is not used.
    pub(super) fn capacity(&self, unit: u32) -> u32 {
        self.chunk_sectors() / unit * unit
    }

    /// The largest unit of any device: the most that one block may be rounded up to.
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

    /// The zone of a place.
    fn zone_at(&self, place: &Place) -> Option<&Zone> {
        let region = u32::try_from(place.offset / self.region).ok()?;
        let vdev = self.vdevs.iter().find(|vdev| vdev.id == place.vdev)?;
        vdev.zones.iter().find(|zone| zone.regions.contains(&region))
    }

    /// The allocation unit at a place, in sectors; 1 if there is no such place.
    pub(super) fn unit_at(&self, place: &Place) -> u32 {
        self.zone_at(place).map_or(1, |zone| zone.unit)
    }

    /// `bytes` rounded up to the units allocated at a place.
    pub(super) fn padded_at(&self, place: &Place, bytes: u32) -> usize {
        whole_units(self.sectors_for(bytes), self.unit_at(place)) as usize * self.sector as usize
    }

    /// The end of the zone of a place, in bytes; zero if there is no such place.
    pub(super) fn end_at(&self, place: &Place) -> u64 {
        self.zone_at(place).map_or(0, |zone| u64::from(zone.regions.end) * self.region)
    }

    /// Whether a chunk's region no longer exists: its device was removed, gave it up, or shrank. A device with units of
    /// several sectors never shrinks.
    pub(super) fn is_gone(&self, id: VdevId, region: u32) -> bool {
        let vdev = self.vdevs.iter().find(|vdev| vdev.id == id);
        let may_end_before = |vdev: &Vdev| region < vdev.regions || vdev.unit == 1;
        vdev.is_none_or(|vdev| vdev.unit_of(region).is_none() && may_end_before(vdev))
    }

    /// Free sectors of all vdevs.
    pub(super) fn free(&self) -> u64 {
        self.vdevs.iter().map(|vdev| vdev.free()).sum()
    }

    /// How many empty chunks are kept for metadata alone: a 32nd of the pool but at least 8 MiB and two chunks, at most
    /// a quarter of the pool. With units of several sectors, the few blocks of every commit take more room: the reserve
    /// then holds [`RESERVED_UNITS`] units.
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

    /// How many chunks of the reserve are kept for the space layer itself, so that a commit that frees space can always
    /// be stored: a quarter, at most 64 MiB, at least one.
    pub(super) fn last_resort(&self) -> u32 {
        let most = (64 * MIB / self.region).max(1) as u32;
        self.reserve().div_ceil(4).min(most)
    }

    /// The chunk and the sectors of `bytes` bytes at `address`. An error if they are not inside a chunk, or do not
    /// begin at a unit.
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

    /// The sectors that `bytes` bytes at `address` would take.
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
        // The last of the 256 sectors of a region is no unit.
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
