//! The space of a pool in memory: its devices and chunks, and what is known of committed states.

use std::{
    collections::BTreeSet,
    ops::Range,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;

use super::{
    chunk::Standing,
    history::History,
    hold::{Hold, Holds},
    io::{Disk, SpaceIo},
    layout::{Ground, Layout, VdevShape},
    moving::moves::Moves,
    places::{Extent, extent},
    span_set::normalize,
    sync::stored::Stored,
    totals::{SpaceTotals, VdevTotals},
    wheel::Wheel,
};
use crate::{
    error::Result,
    format::{
        pointer::Address,
        space::{Class, PhysicalPointer, Span, packing::Entry},
    },
    units::{Txg, VdevId},
};

/// The space of a pool. All methods may be called from many threads; exceptions say so.
#[derive(Debug)]
pub struct Space {
    pub(super) layout: ArcSwap<Layout>,
    /// By class of block, and by class of device.
    pub(super) wheels: [[Mutex<Wheel>; 4]; 2],
    /// Held while a chunk for a class is looked for.
    pub(super) choosing: [Mutex<()>; 2],
    pub(super) history: Mutex<History>,
    /// Frees up to this group may be in use again. Stored before their sectors are given out: see [`Seen`](super::seen::Seen).
    pub(super) reusable: AtomicU64,
    pub(super) holds: Holds,
    /// For a second view of a held state, the hold.
    pub(super) kept_by: OnceLock<Arc<Hold>>,
    pub(super) stored: Mutex<Stored>,
    pub(super) moves: ArcSwapOption<Moves>,
}

impl Space {
    /// The space of a new pool. Nothing is stored before the first [`Space::sync`].
    ///
    /// # Panics
    /// If a region has no room for the unit of a device.
    pub fn create(sector: u32, region: u64, vdevs: &[VdevShape]) -> Space {
        let empty = Layout::new(sector, region);
        let layout = vdevs.iter().fold(empty, |layout, &vdev| layout.with_vdev(vdev));
        Space::assemble(layout, Stored::default(), History::default())
    }

    pub(super) fn assemble(layout: Layout, stored: Stored, history: History) -> Space {
        Space {
            layout: ArcSwap::from_pointee(layout),
            wheels: Default::default(),
            choosing: Default::default(),
            reusable: AtomicU64::new(history.reusable().0),
            history: Mutex::new(history),
            holds: Holds::default(),
            kept_by: OnceLock::new(),
            stored: Mutex::new(stored),
            moves: ArcSwapOption::empty(),
        }
    }

    /// Adds a device, or gives chunks to the regions of a known device. Must be called in the transaction group that
    /// makes the change, when all labels name the device with this size.
    ///
    /// # Panics
    /// If a region has no room for the device's unit, or the unit of a known region differs.
    pub fn add_vdev(&self, vdev: VdevShape) {
        let _stored = self.stored.lock();
        let layout = self.layout.load().with_vdev(vdev);
        // Older states may have blocks in a region that returns.
        layout.rest_after(self.history.lock().reusable());
        self.layout.store(Arc::new(layout));
    }

    /// Whether regions of a device are closed and empty.
    pub fn is_unused(&self, id: VdevId, regions: Range<u32>) -> bool {
        let layout = self.layout.load();
        let Some(vdev) = layout.vdevs.iter().find(|vdev| vdev.id == id) else { return false };
        let chunks = vdev.chunks.iter().filter(|chunk| regions.contains(&chunk.region()));
        regions.clone().all(|region| vdev.is_closed(region)) && chunks.into_iter().all(|chunk| chunk.is_free())
    }

    /// Gives a device exactly these regions, as its labels say. The regions it loses must be empty, and their chunks
    /// are no longer used; new regions get chunks. Must be called in the transaction group that makes the change.
    ///
    /// # Panics
    /// If a lost region is not empty.
    pub fn rezone(&self, id: VdevId, shapes: &[VdevShape]) {
        let _stored = self.stored.lock();
        let mut layout = Layout::clone(&self.layout.load());
        let at = layout.vdevs.iter().position(|vdev| vdev.id == id).expect("it has other regions from now on");
        let vdev = layout.vdevs[at].with_zones(shapes.iter().map(|shape| layout.zone_of(shape)).collect());
        let (chunks, gone): (Vec<_>, Vec<_>) = vdev.chunks.iter().cloned().partition(|chunk| vdev.has(chunk));
        for chunk in &gone {
            assert!(chunk.is_free(), "SPACE-5: a region that is given up has allocated sectors");
            chunk.set_standing(Standing::Resting, Default::default());
        }
        let mut closed = BTreeSet::clone(&vdev.closed_regions);
        closed.retain(|region| vdev.unit_of(*region).is_some());
        layout.vdevs[at] = Arc::new(vdev.with_chunks(chunks).with_closed(closed));
        let layout = shapes.iter().fold(layout, |layout, &shape| layout.with_vdev(shape));
        self.layout.store(Arc::new(layout));
    }

    /// How many regions of a device have a chunk.
    pub fn chunks_of(&self, vdev: VdevId) -> usize {
        let layout = self.layout.load();
        layout.vdevs.iter().find(|known| known.id == vdev).map_or(0, |vdev| vdev.chunks.len())
    }

    /// Whether a device takes the intent log and nothing else.
    pub fn is_for_log(&self, vdev: VdevId) -> bool {
        self.layout.load().vdevs.iter().any(|known| known.id == vdev && known.ground == Ground::Log)
    }

    /// How many devices the allocator spreads blocks over: neither logs nor archives.
    pub fn spread(&self) -> usize {
        self.layout.load().vdevs.iter().filter(|vdev| vdev.ground.counts()).count()
    }

    /// Whether there is a log device, and the log's area at this address is not on one.
    pub fn is_log_astray(&self, area: Address) -> bool {
        let layout = self.layout.load();
        let mut for_it = layout.vdevs.iter().filter(|vdev| vdev.ground == Ground::Log && !vdev.closed).peekable();
        let there = layout.chunks.get(area.chunk.0 as usize).map(|chunk| chunk.vdev());
        for_it.peek().is_some() && for_it.all(|vdev| Some(vdev.id) != there)
    }

    /// The allocation unit at an address, in sectors; 1 if there is no such chunk.
    pub fn unit_at(&self, address: Address) -> u32 {
        self.layout.load().chunks.get(address.chunk.0 as usize).map_or(1, |chunk| chunk.unit)
    }

    /// The largest allocation unit of a device, in sectors; 1 if the device is unknown.
    pub fn unit_of(&self, vdev: VdevId) -> u32 {
        self.layout.load().vdevs.iter().find(|known| known.id == vdev).map_or(1, |known| known.unit)
    }

    /// The largest allocation unit of the pool, in sectors: the most that one block may be rounded up to.
    pub fn unit(&self) -> u32 {
        self.layout.load().unit()
    }

    /// The sectors that `bytes` bytes at `address` would take, in whole units.
    pub fn extent(&self, address: Address, bytes: u32) -> Extent {
        self.layout.load().extent(address, bytes)
    }

    /// Frees `stored` bytes at `address`, in `txg`, with their second places. An invalid or free address is an error: the pool is damaged.
    pub fn free(&self, txg: Txg, address: Address, stored: u32) -> Result<()> {
        let layout = self.layout.load();
        let (chunk, span) = layout.locate(address, stored)?;
        let hosted = layout.freed_with(chunk, span)?;
        for Entry { span, host } in chunk.free_block(txg, span)? {
            layout.chunks[host.chunk.0 as usize].free(txg, Span::new(host.sector, span.len))?;
        }
        hosted.map_or(Ok(()), |(host, span)| host.free(txg, span))
    }

    /// The device and the offset in its usable space where `bytes` bytes at `address` lie.
    pub fn resolve(&self, address: Address, bytes: u32) -> Result<(VdevId, u64)> {
        let layout = self.layout.load();
        let (chunk, span) = layout.locate(address, bytes)?;
        let (chunk, span) = layout.seat(chunk, span)?;
        let place = layout.place(chunk, span.start);
        Ok((place.vdev, place.offset))
    }

    /// Notes that `txg` is committed. Frees from [`DEFERRED_GROUPS`](super::DEFERRED_GROUPS) commits before become reusable, and are returned.
    pub fn committed(&self, txg: Txg) -> Vec<Extent> {
        let release = self.history.lock().commit(txg, |due| self.holds.limit(due));
        if let Some(release) = release {
            self.reusable.store(release.0, Ordering::SeqCst);
        }
        let layout = self.layout.load();
        let mut released = Vec::new();
        for chunk in &layout.chunks {
            let spans = normalize(chunk.commit(txg, release));
            released.extend(spans.into_iter().map(|span| extent(chunk.id, span)));
        }
        self.settle_moves(txg);
        self.wake_rested();
        released
    }

    /// Keeps the state of `txg`, the last committed group, from being overwritten.
    pub fn hold(&self, txg: Txg) -> Arc<Hold> {
        self.holds.add(txg)
    }

    /// Gives up all holds: their space becomes reusable at most [`DEFERRED_GROUPS`](super::DEFERRED_GROUPS) commits later.
    pub fn give_up_holds(&self) {
        if self.holds.give_up() {
            tracing::info!("a state that was being read is given up: its space is needed");
        }
    }

    /// Gives up all holds if more space is deferred than free.
    pub fn ease_holds(&self) {
        if self.holds.any() && self.totals().deferred > self.free_for(Class::Data) {
            self.give_up_holds();
        }
    }

    /// Whether older states are held.
    pub fn is_holding(&self) -> bool {
        self.holds.any()
    }

    /// Whether more commits change nothing about frees up to `txg`: they are reusable, or kept back by a
    /// [hold](Space::hold).
    pub fn is_settled(&self, txg: Txg) -> bool {
        let is_through = |held| self.history.lock().is_through(txg, held);
        is_through(false) || is_through(self.holds.any()) || self.totals().deferred == 0
    }

    /// The counts. Cheap: no lock is taken.
    pub fn totals(&self) -> SpaceTotals {
        let layout = self.layout.load();
        let bytes = |sectors: u64| sectors * u64::from(layout.sector);
        let (mut all, mut taken, mut free, mut deferred) = (0, 0, 0, 0);
        let mut vdevs = Vec::new();
        for vdev in &layout.vdevs {
            // Sectors may move between two loads, so the difference may be negative.
            let (size, unused, waiting) = (vdev.sectors(), vdev.unused(), vdev.deferred());
            let allocated = size.saturating_sub(unused).saturating_sub(waiting);
            vdevs.push(VdevTotals { vdev: vdev.id, size: bytes(size), allocated: bytes(allocated) });
            if vdev.ground.counts() {
                all += size;
                taken += allocated;
                free += unused;
                deferred += waiting;
            }
        }
        SpaceTotals {
            size: bytes(all),
            allocated: bytes(taken),
            deferred: bytes(deferred),
            free: bytes(free),
            slop: u64::from(layout.reserve()) * layout.region,
            last_resort: u64::from(layout.last_resort()) * layout.region,
            vdevs,
        }
    }

    /// How many bytes can be allocated now for `class`: as [`SpaceTotals::free_for`], at the cost of two loads.
    pub fn free_for(&self, class: Class) -> u64 {
        let layout = self.layout.load();
        let kept = match class {
            Class::Data => u64::from(layout.reserve()) * layout.region,
            Class::Metadata => u64::from(layout.last_resort()) * layout.region,
        };
        (layout.free() * u64::from(layout.sector)).saturating_sub(kept)
    }

    /// The bytes kept back from data, as whole empty chunks.
    pub fn slop(&self) -> u64 {
        let layout = self.layout.load();
        u64::from(layout.reserve()) * layout.region
    }

    /// The allocation unit, in bytes.
    pub fn sector(&self) -> u32 {
        self.layout.load().sector
    }

    /// The size of a region, in bytes: no block may be larger.
    pub fn region(&self) -> u64 {
        self.layout.load().region
    }

    /// The sectors allocated at the end of the last synced transaction group, by chunk. Loads every chunk.
    pub fn allocated_extents(&self, io: &dyn SpaceIo) -> Result<Vec<Extent>> {
        let stored = self.stored.lock();
        let layout = self.layout.load();
        let disk = Disk { layout: &layout, io };
        let mut extents = Vec::new();
        for chunk in &layout.chunks {
            let spans = chunk.allocated_at(stored.txg, &disk)?;
            extents.extend(spans.into_iter().map(|span| extent(chunk.id, span)));
        }
        Ok(extents)
    }

    /// The space layer's own blocks at the end of the last synced transaction group.
    pub fn own_blocks(&self) -> OwnBlocks {
        own_blocks(&self.stored.lock(), &self.layout.load())
    }

    /// The extents of all copies of its own blocks, sorted.
    pub fn own_extents(&self) -> Result<Vec<Extent>> {
        // While the lock is held no chunk changes its place.
        let stored = self.stored.lock();
        let layout = self.layout.load();
        let OwnBlocks { table, checkpoints, log } = own_blocks(&stored, &layout);
        let mut extents = Vec::new();
        for pointer in table.into_iter().chain(checkpoints).chain(log) {
            for &place in pointer.places() {
                extents.push(layout.extent(layout.address(place)?, pointer.len));
            }
        }
        extents.sort_unstable();
        Ok(extents)
    }
}

/// The space layer's own blocks, by kind.
#[derive(Clone, Debug, Default)]
pub struct OwnBlocks {
    /// The chunk table: its root and pages.
    pub table: Vec<PhysicalPointer>,
    /// The chunks' checkpoints, the maps of packed chunks, and the places of chunks with blocks on archives.
    pub checkpoints: Vec<PhysicalPointer>,
    /// The blocks of the space log.
    pub log: Vec<PhysicalPointer>,
}

fn own_blocks(stored: &Stored, layout: &Layout) -> OwnBlocks {
    OwnBlocks {
        table: stored.table_pointers().collect(),
        checkpoints: layout.chunks.iter().flat_map(|chunk| chunk.blocks()).collect(),
        log: stored.log_pointers().collect(),
    }
}
