//! Space: which sectors of the devices are free.
//!
//! Devices are cut into *regions* of one size. On each lies a *chunk*: the unit of bookkeeping, of class (data or
//! metadata, a preference and never a wall) and of placement. A block's address names a chunk and a sector in it.
//!
//! Below lie only `format` and the raw devices, through [`SpaceIo`]. Above, `block` allocates, the layers that drop
//! blocks free them, and the transaction groups call [`Space::sync`] last of all and [`Space::committed`] after the
//! uberblock.
//!
//! # What must hold
//!
//! 1. No block of the last [`SAFE_STATES`] committed states is overwritten: space freed by transaction group N is
//!    allocated again only after N and [`DEFERRED_GROUPS`] more groups were committed.
//! 2. The account stored for group N matches N's tree exactly, although allocations for N+1 go on meanwhile: every
//!    change is filed under its own group.
//! 3. Data leaves whole empty chunks to metadata, so that a full pool can still be emptied. Metadata leaves some of
//!    these to the space layer itself, so that a commit that frees can always be stored.
//! 4. Where a device writes several sectors together, its *unit*, the allocator allocates whole units: no two blocks
//!    share a unit.
//! 5. A device's class for metadata is a preference and never a wall: no block is refused that would find room with all
//!    devices in one class. The space of a log device does not count as the pool's, and only the log lies there.
//! 6. Opening reads the chunk table, the log and the maps of packed chunks, never a checkpoint. So its cost depends on
//!    the number of regions and of packed pieces, and never on the amount of data in the pool.
//!
//! # How it is stored
//!
//! Each chunk has a *checkpoint* of its free sectors, and one *log* records the later allocations and frees of each
//! group. The space layer's own blocks are allocated like all others: first in memory, then counted into the log, then
//! written. A checkpoint written in group N describes the end of N-1, so that writing it does not change its content. A
//! crash before the uberblock leaves the former root, whose table, checkpoints and log are not yet reused by 1.
//!
//! # What is where
//!
//! ```text
//! layout     devices, chunks, addresses       chunk      one chunk: map, counts, changes by group; its stored side
//! allocator  which chunk a block goes to      free_map   free sectors of a chunk, next-fit
//! mend       repair of its own blocks
//! sync       a group's changes to disk        span_set   sets of sectors
//! open       and back                         wheel      turns among devices
//! hold       keeping an older state whole     seen       checked reads: the token of a read without a lock
//! moving     regions are emptied: their chunks move elsewhere
//! balance    which chunks to move so that vdevs are equally full
//! holes      which chunks to pack into fewer
//! packing    chunks without a region: their blocks lie in other chunks
//! history    how long frees are deferred
//! ```

mod allocator;
mod balance;
mod chunk;
mod free_map;
mod history;
mod hold;
mod holes;
mod io;
mod layout;
mod mend;
mod moving;
mod open;
mod packing;
mod seen;
mod span_set;
mod sync;
mod trim;
mod wheel;

#[cfg(test)]
mod class_tests;
#[cfg(test)]
mod tests;

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;

pub use self::{
    balance::{Balanced, Batch, Imbalance},
    history::{DEFERRED_GROUPS, SAFE_STATES},
    hold::Hold,
    holes::{Dense, Fragmentation},
    io::SpaceIo,
    layout::{VdevShape, region_size},
    mend::{OwnCursor, OwnExamined},
    moving::{MovingPlan, Packs, Regions, Targets},
    packing::Hosted,
    seen::Seen,
    trim::{TrimCursor, TrimWhat, Trimmed},
};
use self::{
    chunk::Standing, history::History, hold::Holds, io::Disk, layout::Ground, layout::Layout, moving::Moves,
    span_set::normalize, sync::Stored, wheel::Wheel,
};
pub use crate::format::space::{Class, SpaceRoot, Span};
use crate::{
    error::Result,
    format::{pointer::Address, space::PhysicalPointer},
    units::{ChunkId, Txg, VdevId},
};

/// A run of sectors of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// The chunk's number.
    pub chunk: ChunkId,
    /// The first sector, counted from the chunk's start.
    pub sector: u32,
    /// The number of sectors.
    pub sectors: u32,
}

/// Where the copies of a new block go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    /// The addresses; the first `copies` are meant.
    pub addresses: [Address; 3],
    /// The number of copies, 1 to 3.
    pub copies: u8,
}

impl Allocation {
    /// The addresses of all copies.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses[..usize::from(self.copies)]
    }
}

/// The preferred place of a record, while there is room for data. None by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Placement {
    /// The number of the record's file, if a file is to lie on one device as a whole. Files with consecutive numbers
    /// take the devices in turn.
    pub file: Option<u64>,
    /// The devices to prefer.
    pub preferred: Preferred,
}

impl Placement {
    /// Nothing is wished for.
    pub const ANYWHERE: Placement = Placement { file: None, preferred: Preferred { numbers: 0, special: false } };
}

/// Some of a pool's devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Preferred {
    /// Devices by number, a bit for each.
    numbers: u64,
    /// All special devices.
    special: bool,
}

impl Preferred {
    /// Devices with a number below this can be preferred by number.
    pub const NUMBERS: u32 = u64::BITS;

    /// Adds a device; a number beyond [`Preferred::NUMBERS`] is ignored.
    #[must_use]
    pub fn and(self, vdev: VdevId) -> Preferred {
        Preferred { numbers: self.numbers | 1u64.checked_shl(vdev.0).unwrap_or(0), ..self }
    }

    /// Adds all special devices.
    #[must_use]
    pub fn and_special(self) -> Preferred {
        Preferred { special: true, ..self }
    }

    /// Whether no device is preferred.
    pub fn is_none(self) -> bool {
        self == Preferred::default()
    }

    fn has(self, vdev: VdevId) -> bool {
        self.numbers.checked_shr(vdev.0).unwrap_or(0) & 1 == 1
    }
}

/// The purpose of a block, which decides the preferred devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// A record of a file.
    Data,
    /// A record with a placement.
    Placed(Placement),
    /// A record small enough to lie with metadata on special devices, if there are any.
    SmallData,
    /// Everything else.
    Metadata,
}

impl Purpose {
    /// The class of the block's chunk.
    pub fn class(self) -> Class {
        match self {
            Purpose::Data | Purpose::Placed(_) | Purpose::SmallData => Class::Data,
            Purpose::Metadata => Class::Metadata,
        }
    }
}

impl From<Class> for Purpose {
    fn from(class: Class) -> Purpose {
        match class {
            Class::Data => Purpose::Data,
            Class::Metadata => Purpose::Metadata,
        }
    }
}

/// Space of a device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VdevTotals {
    /// The vdev.
    pub vdev: VdevId,
    /// All allocatable space.
    pub size: u64,
    /// Allocated space.
    pub allocated: u64,
}

/// Space of the pool, in bytes. `size == allocated + deferred + free`. Log devices do not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceTotals {
    /// All allocatable space.
    pub size: u64,
    /// Allocated space.
    pub allocated: u64,
    /// Freed space that is not yet reusable.
    pub deferred: u64,
    /// Space that can be allocated now.
    pub free: u64,
    /// The part of `free` kept from data.
    pub slop: u64,
    /// The part of `slop` kept for the space layer itself.
    pub last_resort: u64,
    /// The totals of each vdev, log vdevs included.
    pub vdevs: Vec<VdevTotals>,
}

impl SpaceTotals {
    /// The space that can be allocated now for `class`.
    pub fn free_for(&self, class: Class) -> u64 {
        match class {
            Class::Data => self.free.saturating_sub(self.slop),
            Class::Metadata => self.free.saturating_sub(self.last_resort),
        }
    }
}

/// The space of a pool. All methods may be called from many threads; exceptions say so.
#[derive(Debug)]
pub struct Space {
    layout: ArcSwap<Layout>,
    /// By class of block, and by class of device.
    wheels: [[Mutex<Wheel>; 3]; 2],
    /// Held while a chunk for a class is looked for.
    choosing: [Mutex<()>; 2],
    history: Mutex<History>,
    /// Frees up to this group may be in use again. Stored before their sectors are given out: see [`Seen`].
    reusable: AtomicU64,
    holds: Holds,
    /// For a second view of a held state, the hold.
    kept_by: OnceLock<Arc<Hold>>,
    stored: Mutex<Stored>,
    moves: ArcSwapOption<Moves>,
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

    fn assemble(layout: Layout, stored: Stored, history: History) -> Space {
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
    pub fn is_unused(&self, id: VdevId, regions: std::ops::Range<u32>) -> bool {
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
            assert!(chunk.is_free(), "a region that is given up holds something");
            chunk.set_standing(Standing::Resting, Default::default());
        }
        let mut closed = std::collections::BTreeSet::clone(&vdev.closed_regions);
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

    /// How many devices take blocks other than the intent log.
    pub fn spread(&self) -> usize {
        self.layout.load().vdevs.iter().filter(|vdev| vdev.ground != Ground::Log).count()
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

    /// Frees `stored` bytes at `address`, in `txg`. An invalid or free address is an error: the pool is damaged.
    pub fn free(&self, txg: Txg, address: Address, stored: u32) -> Result<()> {
        let layout = self.layout.load();
        let (chunk, span) = layout.locate(address, stored)?;
        let hosted = layout.freed_with(chunk, span)?;
        chunk.free(txg, span)?;
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

    /// Notes that `txg` is committed. Frees from [`DEFERRED_GROUPS`] commits before become reusable, and are returned.
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

    /// Gives up all holds: their space becomes reusable at most [`DEFERRED_GROUPS`] commits later.
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
            if vdev.ground != Ground::Log {
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
    /// The chunks' checkpoints, and the maps of packed chunks.
    pub checkpoints: Vec<PhysicalPointer>,
    /// The space log.
    pub log: Vec<PhysicalPointer>,
}

fn own_blocks(stored: &Stored, layout: &Layout) -> OwnBlocks {
    OwnBlocks {
        table: stored.table_pointers().collect(),
        checkpoints: layout.chunks.iter().flat_map(|chunk| chunk.blocks()).collect(),
        log: stored.log_pointers().collect(),
    }
}

fn extent(chunk: ChunkId, span: Span) -> Extent {
    Extent { chunk, sector: span.start, sectors: span.len }
}
