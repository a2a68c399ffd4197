//! The choice of a chunk for a block.
//!
//! Per device and class one chunk is *active* and takes block after block. The common allocation loads a pointer, takes
//! the chunk's lock and advances a cursor. When the active chunk has no room left in one piece, another is chosen over
//! all devices, in this order, with the most free space first:
//!
//! 1. a chunk of the class, at least three quarters free (before using an empty one),
//! 2. an empty chunk beyond the reserve,
//! 3. any chunk of the class,
//! 4. for metadata: an empty chunk of the reserve,
//! 5. a chunk of the other class: the last free space serves both,
//! 6. a chunk active in another slot.
//!
//! Copies of a block go to devices without a copy, else to a chunk of another slot, else anywhere. Data is refused when
//! it would use the slop; the reserve of empty chunks keeps the slop in large pieces. The space layer itself has a last
//! resort within the slop, closed to other metadata.
//!
//! A record may come with a `Placement`. The allocator tries the placement first, in the steps that leave the reserve
//! for metadata alone. When the placement has no room, the record goes where it would go without.
//!
//! Devices may be *for* a class: metadata looks for room on special devices first, data on the others, each through all
//! steps above, and then on the rest. The class is a preference and never a wall: counts and reserves belong to the
//! whole pool, so a block finds room exactly if it would with all devices in one class. Only log devices are apart:
//! they take nothing else, and their space does not count as the pool's.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use smallvec::SmallVec;

use super::{
    chunk::{Chunk, Standing},
    io::{Disk, SpaceIo},
    layout::{Ground, Layout, Vdev, whole_units},
    places::{Allocation, Placement, Preferred, Purpose},
    state::Space,
};
use crate::{
    error::{Error, Result},
    format::{
        pointer::Address,
        space::{Class, Span},
    },
    units::Txg,
};

/// A request for space.
#[derive(Clone, Copy)]
struct Request<'a> {
    txg: Txg,
    class: Class,
    /// Whether the block is a record small enough to lie with metadata.
    small: bool,
    placement: Placement,
    /// The sectors of each of the consecutive blocks.
    each: &'a [u32],
    /// The sum of `each`, capped at `u32::MAX`.
    sectors: u32,
    /// Decides which reserves may be used.
    by: Asker,
}

/// The requester, which decides how much of the reserves may be used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asker {
    /// Any layer that stores blocks.
    Anybody,
    /// The space layer itself.
    Own,
    /// The intent log, for log devices.
    Log,
}

impl<'a> Request<'a> {
    fn new(txg: Txg, purpose: Purpose, each: &'a [u32]) -> Request<'a> {
        let sectors = each.iter().fold(0, |sum: u32, &each| sum.saturating_add(each));
        let small = purpose == Purpose::SmallData;
        let placement = if let Purpose::Placed(placement) = purpose { placement } else { Placement::ANYWHERE };
        Request { txg, class: purpose.class(), small, placement, each, sectors, by: Asker::Anybody }
    }

    /// The classes of devices to search, in order.
    fn grounds(&self, layout: &Layout) -> &'static [Ground] {
        let goes_with_metadata = || self.class == Class::Metadata || self.small && layout.takes_small();
        match self.by {
            Asker::Log => &[Ground::Log],
            _ if goes_with_metadata() => &[Ground::Special, Ground::Normal],
            _ => &[Ground::Normal, Ground::Special],
        }
    }

    /// The sectors of the request with this allocation unit: each block is rounded up.
    fn sectors_in(&self, unit: u32) -> u32 {
        match unit {
            1 => self.sectors,
            _ => self.each.iter().fold(0, |sum: u32, &each| sum.saturating_add(whole_units(each, unit))),
        }
    }

    /// How many empty chunks must be left in any case.
    fn keeps(&self, layout: &Layout) -> u32 {
        match (self.class, self.by) {
            (_, Asker::Log) => 0,
            (Class::Data, _) => layout.reserve(),
            (Class::Metadata, Asker::Own) => 0,
            (Class::Metadata, Asker::Anybody) => layout.last_resort(),
        }
    }

    /// How many empty chunks are left while other chunks have room.
    fn spares(&self, layout: &Layout) -> u32 {
        if self.by == Asker::Log { 0 } else { layout.reserve() }
    }
}

/// The steps of the search for a chunk, in order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Roomy,
    Spare,
    Own,
    Reserve,
    Foreign,
}

const STEPS: [Step; 5] = [Step::Roomy, Step::Spare, Step::Own, Step::Reserve, Step::Foreign];

/// The steps in which a file placed on one device stays there: while the device has room for data.
const AT_HOME: &[Step] = &[Step::Roomy, Step::Spare, Step::Own];

/// Devices by index, in order of preference, each with its number of copies of the block.
type Order = SmallVec<[(usize, usize); 8]>;

impl Space {
    /// Allocates `bytes` bytes in one piece, `copies` times (1 to 3), for a block of `txg`.
    ///
    /// [`Error::OutOfSpace`] means that no free piece is as long, or that only the reserve for metadata is left; then
    /// [`Space::largest_piece`] tells the size that would fit. No block may be larger than a region.
    pub fn allocate(
        &self,
        txg: Txg,
        purpose: impl Into<Purpose>,
        bytes: u32,
        copies: u8,
        io: &dyn SpaceIo,
    ) -> Result<Allocation> {
        let sectors = self.layout.load().sectors_for(bytes);
        self.allocate_sectors(Request::new(txg, purpose.into(), &[sectors]), copies, io)
    }

    /// Allocates `bytes` bytes in one piece for the intent log, on a log device with room. Without one, allocates as
    /// metadata if the pool has room for four times as much.
    pub fn allocate_log(&self, txg: Txg, bytes: u32, io: &dyn SpaceIo) -> Result<Allocation> {
        let sectors = [self.layout.load().sectors_for(bytes)];
        let request = Request::new(txg, Purpose::Metadata, &sectors);
        match self.allocate_sectors(Request { by: Asker::Log, ..request }, 1, io) {
            Err(Error::OutOfSpace) if self.free_for(Class::Data) >= u64::from(bytes) * 4 => {
                self.allocate_sectors(request, 1, io)
            }
            outcome => outcome,
        }
    }

    /// As [`Space::allocate`], for a block of the space layer itself: out of everything there is.
    pub(super) fn allocate_own(&self, txg: Txg, bytes: u32, copies: u8, io: &dyn SpaceIo) -> Result<Allocation> {
        let sectors = self.layout.load().sectors_for(bytes);
        let each = [sectors];
        let request = Request { by: Asker::Own, ..Request::new(txg, Purpose::Metadata, &each) };
        self.allocate_sectors(request, copies, io)
    }

    /// Allocates many blocks, in one contiguous run if there is room, and else in as few runs as halving finds. The
    /// blocks of a run are consecutive, so the caller writes a run at once.
    pub fn allocate_run(
        &self,
        txg: Txg,
        purpose: impl Into<Purpose>,
        bytes_each: &[u32],
        copies: u8,
        io: &dyn SpaceIo,
    ) -> Result<Vec<Allocation>> {
        let purpose = purpose.into();
        let layout = self.layout.load();
        let sectors: Vec<u32> = bytes_each.iter().map(|&bytes| layout.sectors_for(bytes)).collect();
        let mut run = Vec::with_capacity(sectors.len());
        if let Err(error) = self.allocate_pieces(txg, purpose, &sectors, copies, io, &mut run) {
            for (allocation, &sectors) in run.iter().zip(&sectors) {
                self.take_back(&Request::new(txg, purpose, &[sectors]), allocation);
            }
            return Err(error);
        }
        Ok(run)
    }

    fn allocate_pieces(
        &self,
        txg: Txg,
        purpose: Purpose,
        sectors: &[u32],
        copies: u8,
        io: &dyn SpaceIo,
        run: &mut Vec<Allocation>,
    ) -> Result<()> {
        if sectors.is_empty() {
            return Ok(());
        }
        match self.allocate_sectors(Request::new(txg, purpose, sectors), copies, io) {
            Ok(allocation) => run.extend(cut(&self.layout.load(), allocation, sectors)),
            Err(Error::OutOfSpace) if sectors.len() > 1 => {
                let (front, back) = sectors.split_at(sectors.len() / 2);
                self.allocate_pieces(txg, purpose, front, copies, io, run)?;
                self.allocate_pieces(txg, purpose, back, copies, io, run)?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Allocates exactly `bytes` bytes at `address`, for blocks of the intent log, whose allocation is in no space log.
    /// To be called after opening and before any other allocation.
    pub fn claim(&self, txg: Txg, address: Address, bytes: u32, io: &dyn SpaceIo) -> Result<()> {
        let layout = self.layout.load();
        let (chunk, span) = layout.locate(address, bytes)?;
        match chunk.claim(txg, span, &Disk { layout: &layout, io })? {
            true => Ok(()),
            false => {
                Err(Error::damaged("intent log", format!("sector {} of chunk {} is in use", span.start, chunk.id)))
            }
        }
    }

    /// The size in bytes of the largest block that can now be allocated for `class`: after a failed allocation, the
    /// size to split into. Zero when nothing is left.
    pub fn largest_piece(&self, class: Class) -> u32 {
        let layout = self.layout.load();
        let keep = Request::new(Txg::ZERO, class.into(), &[1]).keeps(&layout);
        let room = layout.free().saturating_sub(u64::from(keep) * u64::from(layout.chunk_sectors()));
        let room = room - room % u64::from(layout.unit());
        let empties = layout.empty.load(Relaxed) > keep;
        let open = layout.vdevs.iter().filter(|vdev| vdev.is_open()).flat_map(|vdev| &vdev.chunks);
        let usable =
            open.filter(|chunk| chunk.standing() == Standing::Open && (empties || chunk.class_hint().is_some()));
        let largest = usable.map(|chunk| u64::from(chunk.largest_hint())).max().unwrap_or(0);
        u32::try_from(largest.min(room) * u64::from(layout.sector)).unwrap_or(u32::MAX)
    }

    fn allocate_sectors(&self, request: Request<'_>, copies: u8, io: &dyn SpaceIo) -> Result<Allocation> {
        assert!((1..=3).contains(&copies) && request.sectors > 0, "a block has one to three copies and a length");
        let layout = self.layout.load();
        let disk = Disk { layout: &layout, io };
        admit(&disk, &request, copies)?;
        let first = self.first_vdev(&disk, &request, request.grounds(&layout)[0]);
        let mut allocation = Allocation::default();
        let mut used: SmallVec<[usize; 3]> = SmallVec::new();
        for copy in 0..usize::from(copies) {
            match self.allocate_copy(&disk, &request, first, &used) {
                Ok((vdev, address)) => {
                    allocation.addresses[copy] = address;
                    allocation.copies += 1;
                    used.push(vdev);
                }
                Err(error) => {
                    self.take_back(&request, &allocation);
                    return Err(error);
                }
            }
        }
        Ok(allocation)
    }

    /// The device whose turn it is, or the device of the placed file.
    fn first_vdev(&self, disk: &Disk<'_>, request: &Request<'_>, ground: Ground) -> usize {
        let vdevs = &disk.layout.vdevs;
        if let Some(file) = request.placement.file {
            let open = || (0..vdevs.len()).filter(|&index| !vdevs[index].closed && vdevs[index].ground == ground);
            let turn = file.checked_rem(open().count() as u64).unwrap_or(0);
            return open().nth(turn as usize).unwrap_or(0);
        }
        match vdevs.len() {
            1 => 0,
            _ => {
                let wheel = &self.wheels[request.class as usize - 1][ground as usize];
                wheel.lock().next(disk.layout, ground, request.sectors)
            }
        }
    }

    /// Allocates one copy of a block with copies on the devices `used`; returns the device, too.
    fn allocate_copy(
        &self,
        disk: &Disk<'_>,
        request: &Request<'_>,
        first: usize,
        used: &[usize],
    ) -> Result<(usize, Address)> {
        if let Some(found) = self.take_preferred(disk, request, first, used) {
            return Ok(found);
        }
        let grounds = request.grounds(disk.layout);
        let best = order(&disk.layout.vdevs, grounds[0], first, used);
        if let Some(found) = take_from_first(disk, request, &best) {
            return Ok(found);
        }
        let _choosing = self.choosing[request.class as usize - 1].lock();
        // Another thread may have chosen meanwhile.
        let at_home = || request.placement.file.and_then(|_| take_in_steps(disk, request, best.get(..1)?, AT_HOME));
        let found = take_from_first(disk, request, &best).or_else(at_home);
        if let Some(found) = found.or_else(|| take_anywhere(disk, request, &best)) {
            return Ok(found);
        }
        for &ground in &grounds[1..] {
            let others = order(&disk.layout.vdevs, ground, self.first_vdev(disk, request, ground), used);
            let found = take_from_first(disk, request, &others).or_else(|| take_anywhere(disk, request, &others));
            if let Some(found) = found {
                return Ok(found);
            }
        }
        Err(Error::OutOfSpace)
    }

    /// Allocates one copy on a preferred device without a copy.
    fn take_preferred(
        &self,
        disk: &Disk<'_>,
        request: &Request<'_>,
        first: usize,
        used: &[usize],
    ) -> Option<(usize, Address)> {
        let Placement { file, preferred } = request.placement;
        if preferred.is_none() {
            return None;
        }
        let mut order = preferred_order(disk.layout, preferred, file.map_or(first, |_| 0), used);
        if let (Some(file), 1..) = (file, order.len()) {
            order = order[file as usize % order.len()..][..1].into();
        }
        take_from_first(disk, request, &order).or_else(|| {
            let _choosing = self.choosing[request.class as usize - 1].lock();
            // Another thread may have chosen meanwhile.
            take_from_first(disk, request, &order).or_else(|| take_in_steps(disk, request, &order, AT_HOME))
        })
    }

    /// Undoes an allocation that no other thread has seen.
    fn take_back(&self, request: &Request<'_>, allocation: &Allocation) {
        let layout = self.layout.load();
        for address in allocation.addresses() {
            let chunk = &layout.chunks[address.chunk.0 as usize];
            chunk.untake(request.txg, Span::new(address.sector, request.sectors_in(chunk.unit)));
        }
    }
}

/// Refuses a request that would use a reserve closed to it.
fn admit(disk: &Disk<'_>, request: &Request<'_>, copies: u8) -> Result<()> {
    let layout = disk.layout;
    if request.by == Asker::Log {
        return Ok(());
    }
    let slop = u64::from(request.keeps(layout)) * u64::from(layout.chunk_sectors());
    let wanted = u64::from(request.sectors_in(layout.unit())) * u64::from(copies);
    if request.sectors > layout.chunk_sectors() || layout.free() < slop + wanted {
        return Err(Error::OutOfSpace);
    }
    Ok(())
}

/// The devices of `ground` from `first` on, those with fewer copies in front.
fn order(vdevs: &[Arc<Vdev>], ground: Ground, first: usize, used: &[usize]) -> Order {
    let mut order: Order = (0..vdevs.len())
        .map(|step| (first + step) % vdevs.len())
        .filter(|&index| !vdevs[index].closed && vdevs[index].ground == ground)
        .map(|index| (index, used.iter().filter(|&&used| used == index).count()))
        .collect();
    if !used.is_empty() {
        order.sort_by_key(|&(_, copies)| copies);
    }
    order
}

/// The preferred devices without a copy, from `first` on. Special devices with less than a quarter free are left out.
fn preferred_order(layout: &Layout, preferred: Preferred, first: usize, used: &[usize]) -> Order {
    let vdevs = &layout.vdevs;
    let is_meant = |vdev: &Vdev| match vdev.ground {
        Ground::Normal => preferred.has(vdev.id),
        Ground::Special => (preferred.special || preferred.has(vdev.id)) && !vdev.is_short(),
        Ground::Log | Ground::Archive => false,
    };
    (0..vdevs.len())
        .map(|step| (first + step) % vdevs.len())
        .filter(|index| !used.contains(index) && !vdevs[*index].closed && is_meant(&vdevs[*index]))
        .map(|index| (index, 0))
        .collect()
}

/// Allocates in a chunk. An unreadable chunk counts as full.
fn take(disk: &Disk<'_>, request: &Request<'_>, chunk: &Chunk) -> Option<Address> {
    match chunk.take(request.txg, request.sectors_in(chunk.unit), disk) {
        Ok(sector) => sector.map(|sector| Address { chunk: chunk.id, sector }),
        Err(error) => {
            tracing::warn!(chunk = chunk.id.0, %error, "nothing can be allocated in a chunk");
            None
        }
    }
}

/// Allocates in the active chunk of the first device.
fn take_from_first(disk: &Disk<'_>, request: &Request<'_>, order: &Order) -> Option<(usize, Address)> {
    let &(index, copies) = order.first()?;
    take_from_slot(disk, request, &disk.layout.vdevs[index], copies).map(|address| (index, address))
}

/// Allocates in another chunk of any of the devices.
fn take_anywhere(disk: &Disk<'_>, request: &Request<'_>, order: &Order) -> Option<(usize, Address)> {
    let vdevs = &disk.layout.vdevs;
    let found = take_in_steps(disk, request, order, &STEPS);
    found.or_else(|| order.iter().find_map(|&(index, _)| Some((index, take_as_guest(disk, request, &vdevs[index])?))))
}

/// Finds a new chunk on any of the devices, step by step.
fn take_in_steps(
    disk: &Disk<'_>,
    request: &Request<'_>,
    order: &[(usize, usize)],
    steps: &[Step],
) -> Option<(usize, Address)> {
    for &step in steps {
        for &(index, copies) in order {
            if let Some(address) = open_chunk(disk, request, step, &disk.layout.vdevs[index], copies) {
                return Some((index, address));
            }
        }
    }
    None
}

fn take_from_slot(disk: &Disk<'_>, request: &Request<'_>, vdev: &Vdev, copies: usize) -> Option<Address> {
    let active = vdev.slot(request.class, copies).load();
    // A thread that activated the chunk while it was being closed has left it in the slot, and the chunk may have moved
    // since.
    active.as_ref().filter(|chunk| chunk.vdev() == vdev.id).and_then(|chunk| take(disk, request, chunk))
}

/// Finds a new chunk for a slot, and allocates there.
fn open_chunk(disk: &Disk<'_>, request: &Request<'_>, step: Step, vdev: &Vdev, copies: usize) -> Option<Address> {
    let keep = match step {
        Step::Reserve if request.class == Class::Data => return None,
        Step::Reserve => request.keeps(disk.layout),
        _ => request.spares(disk.layout),
    };
    let suits = |chunk: &Chunk| !chunk.active_hint() && matches_step(chunk, step, request.class);
    for chunk in candidates(vdev, request, suits) {
        if !chunk.activate(request.class, keep) {
            continue;
        }
        match take(disk, request, chunk) {
            Some(address) => {
                if let Some(old) = vdev.slot(request.class, copies).swap(Some(chunk.clone())) {
                    old.deactivate();
                }
                return Some(address);
            }
            None => chunk.deactivate(),
        }
    }
    None
}

/// Allocates in a chunk active in another slot.
fn take_as_guest(disk: &Disk<'_>, request: &Request<'_>, vdev: &Vdev) -> Option<Address> {
    let suits = |chunk: &Chunk| chunk.class_hint().is_some();
    candidates(vdev, request, suits).into_iter().find_map(|chunk| take(disk, request, chunk))
}

fn matches_step(chunk: &Chunk, step: Step, class: Class) -> bool {
    match (step, chunk.class_hint()) {
        (Step::Roomy, Some(own)) => own == class && chunk.free_hint() >= chunk.sectors / 4 * 3,
        (Step::Spare | Step::Reserve, None) => true,
        (Step::Own, Some(own)) => own == class,
        (Step::Foreign, Some(other)) => other != class,
        _ => false,
    }
}

/// The suitable chunks with room, as far as the hints tell, those with the most free space first.
///
/// Each hint is read once, because concurrent allocations would change the order under the sort, which panics.
fn candidates<'a>(vdev: &'a Vdev, request: &Request<'_>, suits: impl Fn(&Chunk) -> bool) -> Vec<&'a Arc<Chunk>> {
    let has_room = |chunk: &Chunk| chunk.largest_hint() >= request.sectors_in(chunk.unit);
    let mut found: Vec<_> = vdev.chunks.iter().filter(|chunk| has_room(chunk) && suits(chunk)).collect();
    found.sort_by_cached_key(|chunk| std::cmp::Reverse(chunk.free_hint()));
    found
}

/// Cuts one allocation into consecutive blocks of whole units.
fn cut(layout: &Layout, whole: Allocation, sectors: &[u32]) -> impl Iterator<Item = Allocation> {
    let mut next = whole;
    sectors.iter().map(move |&sectors| {
        let block = next;
        for address in &mut next.addresses[..usize::from(whole.copies)] {
            address.sector += whole_units(sectors, layout.chunks[address.chunk.0 as usize].unit);
        }
        block
    })
}
