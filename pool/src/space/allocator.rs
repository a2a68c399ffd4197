//! Which chunk a block goes to.
//!
//! Per device and class one chunk is *active* and takes block after block: the common allocation loads a pointer, takes
//! the chunk's lock and advances a cursor. When the active chunk has no room left in one piece, another is chosen, in
//! this order over all devices, the one with the most free space first:
//!
//! 1. one of the class that is at least three quarters free (before touching new ground),
//! 2. an empty one beyond the reserve,
//! 3. any of the class,
//! 4. for metadata: an empty one of the reserve,
//! 5. one of the other class: the last free space serves everyone,
//! 6. one that another slot is working on.
//!
//! Copies of a block go to devices that have none yet, else to a chunk of another slot, else anywhere. Data is refused
//! when it would eat into the slop; the reserve of empty chunks keeps that slop in large pieces. The space layer itself
//! has a last resort of its own in it, that other metadata is refused.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use smallvec::SmallVec;

use super::{
    Allocation, Space,
    chunk::{Chunk, Standing},
    io::{Disk, SpaceIo},
    layout::{Layout, Vdev, whole_units},
};
use crate::{
    error::{Error, Result},
    format::{
        pointer::Address,
        space::{Class, Span},
    },
    units::Txg,
};

/// What is asked for.
#[derive(Clone, Copy)]
struct Request<'a> {
    txg: Txg,
    class: Class,
    /// The sectors of each of the blocks that shall follow each other.
    each: &'a [u32],
    /// Their sum; the most there is if it is too large.
    sectors: u32,
    /// For the space layer itself.
    own: bool,
}

impl<'a> Request<'a> {
    fn new(txg: Txg, class: Class, each: &'a [u32]) -> Request<'a> {
        let sectors = each.iter().fold(0, |sum: u32, &each| sum.saturating_add(each));
        Request { txg, class, each, sectors, own: false }
    }

    /// How many sectors that is where they are allocated in such units: each block is rounded up.
    fn sectors_in(&self, unit: u32) -> u32 {
        match unit {
            1 => self.sectors,
            _ => self.each.iter().fold(0, |sum: u32, &each| sum.saturating_add(whole_units(each, unit))),
        }
    }

    /// How many empty chunks it has to leave to others in any case.
    fn keeps(&self, layout: &Layout) -> u32 {
        match self.class {
            Class::Data => layout.reserve(),
            Class::Metadata if self.own => 0,
            Class::Metadata => layout.last_resort(),
        }
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

/// Devices by index, those to try first in front, each with the number of copies that lie there already.
type Order = SmallVec<[(usize, usize); 8]>;

impl Space {
    /// Allocates `bytes` bytes in one piece, `copies` times (1 to 3), for a block of `txg`.
    ///
    /// [`Error::OutOfSpace`] means that no free piece is as long, or that data has to leave the rest to metadata; then
    /// [`Space::largest_piece`] tells what would fit. No block may be larger than a region.
    pub fn allocate(&self, txg: Txg, class: Class, bytes: u32, copies: u8, io: &dyn SpaceIo) -> Result<Allocation> {
        let sectors = self.layout.load().sectors_for(bytes);
        self.allocate_sectors(Request::new(txg, class, &[sectors]), copies, io)
    }

    /// As [`Space::allocate`], for a block of the space layer itself: out of everything there is.
    pub(super) fn allocate_own(&self, txg: Txg, bytes: u32, copies: u8, io: &dyn SpaceIo) -> Result<Allocation> {
        let sectors = self.layout.load().sectors_for(bytes);
        self.allocate_sectors(Request { own: true, ..Request::new(txg, Class::Metadata, &[sectors]) }, copies, io)
    }

    /// Allocates many blocks, in one contiguous run if there is room for one and else in as few as can be found by
    /// halving. The blocks of a run follow each other, so that the caller writes them at once.
    pub fn allocate_run(
        &self,
        txg: Txg,
        class: Class,
        bytes_each: &[u32],
        copies: u8,
        io: &dyn SpaceIo,
    ) -> Result<Vec<Allocation>> {
        let layout = self.layout.load();
        let sectors: Vec<u32> = bytes_each.iter().map(|&bytes| layout.sectors_for(bytes)).collect();
        let mut run = Vec::with_capacity(sectors.len());
        if let Err(error) = self.allocate_pieces(txg, class, &sectors, copies, io, &mut run) {
            for (allocation, &sectors) in run.iter().zip(&sectors) {
                self.take_back(&Request::new(txg, class, &[sectors]), allocation);
            }
            return Err(error);
        }
        Ok(run)
    }

    fn allocate_pieces(
        &self,
        txg: Txg,
        class: Class,
        sectors: &[u32],
        copies: u8,
        io: &dyn SpaceIo,
        run: &mut Vec<Allocation>,
    ) -> Result<()> {
        if sectors.is_empty() {
            return Ok(());
        }
        match self.allocate_sectors(Request::new(txg, class, sectors), copies, io) {
            Ok(allocation) => run.extend(cut(&self.layout.load(), allocation, sectors)),
            Err(Error::OutOfSpace) if sectors.len() > 1 => {
                let (front, back) = sectors.split_at(sectors.len() / 2);
                self.allocate_pieces(txg, class, front, copies, io, run)?;
                self.allocate_pieces(txg, class, back, copies, io, run)?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Allocates exactly `bytes` bytes at `address`: for blocks of the intent log, whose allocation is in no space log,
    /// after opening and before anything else is allocated.
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

    /// The largest block, in bytes, that can now be allocated for `class`: after a failed allocation, what to split
    /// into. Zero when there is nothing left.
    pub fn largest_piece(&self, class: Class) -> u32 {
        let layout = self.layout.load();
        let keep = Request::new(Txg::ZERO, class, &[1]).keeps(&layout);
        let room = layout.free().saturating_sub(u64::from(keep) * u64::from(layout.chunk_sectors()));
        let room = room - room % u64::from(layout.unit());
        let empties = layout.empty.load(Relaxed) > keep;
        let open = layout.vdevs.iter().filter(|vdev| !vdev.closed).flat_map(|vdev| &vdev.chunks);
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
        let first = self.first_vdev(&disk, &request);
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

    /// The device whose turn it is.
    fn first_vdev(&self, disk: &Disk<'_>, request: &Request<'_>) -> usize {
        match disk.layout.vdevs.len() {
            1 => 0,
            _ => self.wheels[request.class as usize - 1].lock().next(disk.layout, request.sectors),
        }
    }

    /// Allocates one copy of a block that has copies on the devices `used`; returns the device, too.
    fn allocate_copy(
        &self,
        disk: &Disk<'_>,
        request: &Request<'_>,
        first: usize,
        used: &[usize],
    ) -> Result<(usize, Address)> {
        let order = order(&disk.layout.vdevs, first, used);
        let &(index, copies) = order.first().ok_or(Error::OutOfSpace)?;
        if let Some(address) = take_from_slot(disk, request, &disk.layout.vdevs[index], copies) {
            return Ok((index, address));
        }
        let _choosing = self.choosing[request.class as usize - 1].lock();
        // Another thread may have chosen meanwhile.
        if let Some(address) = take_from_slot(disk, request, &disk.layout.vdevs[index], copies) {
            return Ok((index, address));
        }
        for step in STEPS {
            for &(index, copies) in &order {
                if let Some(address) = open_chunk(disk, request, step, &disk.layout.vdevs[index], copies) {
                    return Ok((index, address));
                }
            }
        }
        let guest = order.iter().find_map(|&(index, _)| {
            take_as_guest(disk, request, &disk.layout.vdevs[index]).map(|address| (index, address))
        });
        guest.ok_or(Error::OutOfSpace)
    }

    /// Undoes an allocation that nobody has seen.
    fn take_back(&self, request: &Request<'_>, allocation: &Allocation) {
        let layout = self.layout.load();
        for address in allocation.addresses() {
            let chunk = &layout.chunks[address.chunk.0 as usize];
            chunk.untake(request.txg, Span::new(address.sector, request.sectors_in(chunk.unit)));
        }
    }
}

/// Refuses what would eat into the space that is kept from it.
fn admit(disk: &Disk<'_>, request: &Request<'_>, copies: u8) -> Result<()> {
    let layout = disk.layout;
    let slop = u64::from(request.keeps(layout)) * u64::from(layout.chunk_sectors());
    let wanted = u64::from(request.sectors_in(layout.unit())) * u64::from(copies);
    if request.sectors > layout.chunk_sectors() || layout.free() < slop + wanted {
        return Err(Error::OutOfSpace);
    }
    Ok(())
}

/// The devices from `first` on, those with fewer copies in front.
fn order(vdevs: &[Arc<Vdev>], first: usize, used: &[usize]) -> Order {
    let mut order: Order = (0..vdevs.len())
        .map(|step| (first + step) % vdevs.len())
        .filter(|&index| !vdevs[index].closed)
        .map(|index| (index, used.iter().filter(|&&used| used == index).count()))
        .collect();
    if !used.is_empty() {
        order.sort_by_key(|&(_, copies)| copies);
    }
    order
}

/// Allocates in a chunk. One that cannot be read is as good as full.
fn take(disk: &Disk<'_>, request: &Request<'_>, chunk: &Chunk) -> Option<Address> {
    match chunk.take(request.txg, request.sectors_in(chunk.unit), disk) {
        Ok(sector) => sector.map(|sector| Address { chunk: chunk.id, sector }),
        Err(error) => {
            tracing::warn!(chunk = chunk.id.0, %error, "nothing can be allocated in a chunk");
            None
        }
    }
}

fn take_from_slot(disk: &Disk<'_>, request: &Request<'_>, vdev: &Vdev, copies: usize) -> Option<Address> {
    let active = vdev.slot(request.class, copies).load();
    // Whoever was putting it there when it was closed has left it there, and it may lie elsewhere by now.
    active.as_ref().filter(|chunk| chunk.vdev() == vdev.id).and_then(|chunk| take(disk, request, chunk))
}

/// Finds a new chunk for a slot, and allocates in it.
fn open_chunk(disk: &Disk<'_>, request: &Request<'_>, step: Step, vdev: &Vdev, copies: usize) -> Option<Address> {
    let keep = match step {
        Step::Reserve if request.class == Class::Data => return None,
        Step::Reserve => request.keeps(disk.layout),
        _ => disk.layout.reserve(),
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

/// Allocates in a chunk that another slot works on.
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

/// The chunks that suit and may have room, those with the most free space first.
///
/// Others allocate meanwhile: each hint is read once, or the order would change under the sort, which panics.
fn candidates<'a>(vdev: &'a Vdev, request: &Request<'_>, suits: impl Fn(&Chunk) -> bool) -> Vec<&'a Arc<Chunk>> {
    let sectors = request.sectors_in(vdev.unit);
    let mut found: Vec<_> =
        vdev.chunks.iter().filter(|chunk| chunk.largest_hint() >= sectors && suits(chunk)).collect();
    found.sort_by_cached_key(|chunk| std::cmp::Reverse(chunk.free_hint()));
    found
}

/// Cuts one allocation into blocks that follow each other, each in whole units.
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
