//! Copies of blocks on archives: a *sitting* hands out places, and its *second places* are entered together.
//!
//! An archive holds, for blocks of the other vdevs, a copy of their sectors each: as stored, under the same address. No
//! pointer changes; the chunk of the address knows where its sectors have second places, and freeing the sectors frees
//! these too (see [`super::chunk::places`], and [`Places`] for what is stored).
//!
//! Copying takes long and happens while the pool is used. So a sitting takes places in memory alone: the allocator
//! takes nothing on an archive, and a crash finds free sectors. The caller keeps a [hold](Space::hold) on the state from which
//! it copied. A block that is still allocated in the end is then the block that was copied, since sectors freed
//! meanwhile were not used again. Entering is one instant of the open group, after the copies were flushed: the
//! archive's sectors are allocated and the places are stored, and the group's table is written in any case, or the group is not
//! committed.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | while blocks are copied, or after the places were stored, before the uberblock of the group whose table names them | free sectors on the archive |
//! | after that uberblock | the second places; the copies were flushed before |
//!
//! Blocks without a second place: the intent log, the space layer's own blocks (they have no address), and what already
//! lies on an archive.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use super::{
    chunk::{Chunk, Standing},
    io::{Disk, SpaceIo},
    layout::{Ground, Layout},
    packing::{joined, pieces},
    span_set::normalize,
    state::Space,
};
use crate::{
    error::{Error, Result},
    format::{
        pointer::{Address, MAX_BLOCK},
        space::{PhysicalPointer, Span, packing::Entry},
    },
    units::{ChunkId, Txg, VdevId},
};

/// Places on one archive for the copies of some blocks. Dropping a sitting gives the places back.
#[derive(Debug)]
pub struct Sitting {
    vdev: VdevId,
    /// The chunk of the archive being written, and what is left of its free spans.
    current: Option<(Arc<Chunk>, VecDeque<Span>)>,
    /// The chunks of the archive that were begun.
    begun: BTreeSet<ChunkId>,
    /// The copies, by the chunk of the address and the first sector.
    entries: BTreeMap<ChunkId, BTreeMap<u32, Entry>>,
    blocks: u64,
    bytes: u64,
}

/// Where the copies of a block lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// At home in the pool, without a second place.
    Home,
    /// At home in the pool, with a second place on an archive.
    Archived,
    /// On this archive alone.
    Released(VdevId),
}

/// The outcome of entering a sitting's second places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entered {
    /// Copies that are second places now.
    pub blocks: u64,
    /// Their bytes, in whole sectors.
    pub bytes: u64,
    /// Copies that were not entered: their blocks were freed, or have a second place already, or a free map cannot be
    /// read, or the places would be too long.
    pub dropped: u64,
}

/// The second places of one chunk with those of a sitting.
struct Plan {
    chunk: Arc<Chunk>,
    seconds: Vec<Entry>,
    coded: Vec<u8>,
}

impl Sitting {
    /// A sitting without copies, on this archive.
    pub fn new(vdev: VdevId) -> Sitting {
        Sitting { vdev, current: None, begun: BTreeSet::new(), entries: BTreeMap::new(), blocks: 0, bytes: 0 }
    }

    /// The archive with the places.
    pub fn vdev(&self) -> VdevId {
        self.vdev
    }

    /// How many places were handed out, and for how many bytes in whole sectors.
    pub fn handed_out(&self) -> (u64, u64) {
        (self.blocks, self.bytes)
    }

    /// Takes back the place of a copy that could not be read or written.
    pub fn forget(&mut self, address: Address) {
        if self.entries.get_mut(&address.chunk).and_then(|entries| entries.remove(&address.sector)).is_some() {
            self.blocks -= 1;
        }
    }

    /// Whether any of the sectors was handed a place.
    fn has_any(&self, chunk: ChunkId, span: Span) -> bool {
        let last = self.entries.get(&chunk).and_then(|entries| entries.range(..span.end()).next_back());
        last.is_some_and(|(_, entry)| entry.span.end() > span.start)
    }

    /// Free sectors in one piece, behind the last ones where possible.
    fn room(&mut self, len: u32, disk: &Disk<'_>) -> Result<Address> {
        loop {
            if let Some((chunk, spans)) = &mut self.current {
                while let Some(span) = spans.front_mut() {
                    if span.len >= len {
                        let sector = span.start;
                        *span = Span::new(sector + len, span.len - len);
                        return Ok(Address { chunk: chunk.id, sector });
                    }
                    spans.pop_front();
                }
            }
            let next = next_chunk(self.vdev, &self.begun, disk.layout).ok_or(Error::OutOfSpace)?;
            self.begun.insert(next.id);
            let spans = next.free_spans(disk)?.into();
            self.current = Some((next, spans));
        }
    }
}

/// The next chunk to fill: an empty one, in the order of the regions, or else the one with the most free sectors.
fn next_chunk(vdev: VdevId, begun: &BTreeSet<ChunkId>, layout: &Layout) -> Option<Arc<Chunk>> {
    let vdev = layout.vdevs.iter().find(|known| known.id == vdev && known.ground == Ground::Archive)?;
    let is_usable =
        |chunk: &&Arc<Chunk>| chunk.standing() == Standing::Open && chunk.free_hint() > 0 && !begun.contains(&chunk.id);
    let usable = || vdev.chunks.iter().filter(|_| !vdev.closed).filter(is_usable);
    let empty = usable().find(|chunk| chunk.free_hint() == chunk.sectors);
    empty.or_else(|| usable().max_by_key(|chunk| chunk.free_hint())).cloned()
}

impl Space {
    /// The archives in use, with the bytes that are free there.
    pub fn archives(&self) -> Vec<(VdevId, u64)> {
        let layout = self.layout.load();
        let open = layout.vdevs.iter().filter(|vdev| vdev.ground == Ground::Archive && !vdev.closed);
        open.map(|vdev| (vdev.id, vdev.unused() * u64::from(layout.sector))).collect()
    }

    /// Hands out a place on the sitting's archive for a copy of `bytes` bytes at `address`: the vdev and the offset in
    /// its usable space. None if the block needs none: it has a second place, or lies on an archive, or was handed one.
    ///
    /// # Errors
    /// [`Error::OutOfSpace`] if the archive has no piece of free space that is long enough; errors of an invalid address and
    /// of reading a free map.
    pub fn hand_out(
        &self,
        sitting: &mut Sitting,
        address: Address,
        bytes: u32,
        io: &dyn SpaceIo,
    ) -> Result<Option<(VdevId, u64)>> {
        let layout = self.layout.load();
        let (chunk, span) = layout.locate(address, bytes)?;
        let (home, _) = layout.seat(chunk, span)?;
        if layout.is_on_archive(home) || chunk.has_second(span) || sitting.has_any(chunk.id, span) {
            return Ok(None);
        }
        let host = sitting.room(span.len, &Disk { layout: &layout, io })?;
        sitting.entries.entry(chunk.id).or_default().insert(span.start, Entry { span, host });
        sitting.blocks += 1;
        sitting.bytes += u64::from(span.len) * u64::from(layout.sector);
        let place = layout.place(&layout.chunks[host.chunk.0 as usize], host.sector);
        Ok(Some((place.vdev, place.offset)))
    }

    /// Enters the copies of a sitting as second places, in the open group `txg`, while no group is synced and after the
    /// copies were flushed. Copies of blocks that were freed meanwhile are dropped.
    ///
    /// # Errors
    /// [`Error::OutOfSpace`] if the places find no room in the pool; then nothing has changed.
    pub fn enter(&self, txg: Txg, sitting: Sitting, io: &dyn SpaceIo) -> Result<Entered> {
        let mut stored = self.stored.lock();
        let layout = self.layout.load_full();
        let disk = Disk { layout: &layout, io };
        let mut entered = Entered::default();
        let mut plans = Vec::new();
        let mut taken: BTreeMap<ChunkId, Vec<Span>> = BTreeMap::new();
        for (id, entries) in &sitting.entries {
            let chunk = &layout.chunks[id.0 as usize];
            let kept = still_good(chunk, entries.values(), &disk);
            let planned = kept.and_then(|kept| Ok((plan(chunk, kept.clone(), txg, &disk)?, kept)));
            let (plan, kept) = match planned {
                Ok((Some(plan), kept)) if !kept.is_empty() => (plan, kept),
                other => {
                    if let Err(error) = other {
                        tracing::warn!(chunk = id.0, %error, "blocks get no second place");
                    }
                    entered.dropped += entries.len() as u64;
                    continue;
                }
            };
            for Entry { span, host } in &kept {
                taken.entry(host.chunk).or_default().push(Span::new(host.sector, span.len));
                entered.bytes += u64::from(span.len) * u64::from(layout.sector);
            }
            entered.blocks += kept.len() as u64;
            entered.dropped += (entries.len() - kept.len()) as u64;
            plans.push(plan);
        }
        if plans.is_empty() {
            return Ok(entered);
        }
        if !layout.has_room_for_table() {
            return Err(Error::OutOfSpace);
        }
        let pointers = self.store_maps(txg, plans.iter_mut().map(|plan| std::mem::take(&mut plan.coded)), &disk)?;
        // From here on only failures occur that are fatal to the caller.
        for (id, spans) in taken {
            let host = &layout.chunks[id.0 as usize];
            host.take_in(txg, &normalize(spans), layout.standing_in(host.seat()), &disk)?;
        }
        self.settle_plans(txg, plans, pointers, &layout)?;
        stored.is_packing = true;
        Ok(entered)
    }

    /// Puts the places of some chunks into force.
    fn settle_plans(&self, txg: Txg, plans: Vec<Plan>, pointers: Vec<PhysicalPointer>, layout: &Layout) -> Result<()> {
        for (Plan { chunk, seconds, .. }, pointer) in plans.into_iter().zip(pointers) {
            let former = chunk.enter(txg, seconds, pointer);
            self.drop_own(txg, former, layout)?;
        }
        Ok(())
    }

    /// Where a block has its second place: the vdev and the offset in its usable space.
    pub fn second(&self, address: Address, bytes: u32) -> Option<(VdevId, u64)> {
        let layout = self.layout.load();
        let (chunk, span) = layout.locate(address, bytes).ok()?;
        let host = chunk.second(span)?;
        let place = layout.place(layout.chunks.get(host.chunk.0 as usize)?, host.sector);
        Some((place.vdev, place.offset))
    }

    /// Whether a block is at home, has a second place as a whole, or is on an archive alone.
    ///
    /// # Errors
    /// As [`Space::resolve`].
    pub fn tier(&self, address: Address, bytes: u32) -> Result<Tier> {
        let layout = self.layout.load();
        let (chunk, span) = layout.locate(address, bytes)?;
        let (home, _) = layout.seat(chunk, span)?;
        if layout.is_on_archive(home) {
            return Ok(Tier::Released(home.vdev()));
        }
        Ok(if chunk.second(span).is_some() { Tier::Archived } else { Tier::Home })
    }

    /// The newest group that entered second places on an archive; zero if there are none. The state of this group and
    /// all later ones need the archive as of then.
    pub fn entered_on(&self, vdev: VdevId) -> Txg {
        let layout = self.layout.load();
        let is_there = |host: ChunkId| layout.chunks.get(host.0 as usize).is_some_and(|host| host.vdev() == vdev);
        let names = |chunk: &&Arc<Chunk>| {
            let seconds = chunk.seconds_at(Txg::LIMIT);
            let homes = layout.packed.get(&chunk.id).into_iter().flat_map(|packing| packing.hosts());
            chunk.entered() > Txg::ZERO && seconds.iter().map(|entry| entry.host.chunk).chain(homes).any(is_there)
        };
        layout.chunks.iter().filter(names).map(|chunk| chunk.entered()).max().unwrap_or_default()
    }
}

/// The copies whose blocks are still what was copied, by whole blocks, and whose places are still free.
fn still_good<'a>(chunk: &Arc<Chunk>, entries: impl Iterator<Item = &'a Entry>, disk: &Disk<'_>) -> Result<Vec<Entry>> {
    let layout = disk.layout;
    let live = chunk.live(disk)?;
    let mut free: BTreeMap<ChunkId, Vec<Span>> = BTreeMap::new();
    let mut kept = Vec::new();
    for &entry in entries {
        let Some(host) = layout.chunks.get(entry.host.chunk.0 as usize) else { continue };
        let free = match free.entry(host.id) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(unknown) => unknown.insert(host.free_spans(disk)?),
        };
        let is_at_home = layout.seat(chunk, entry.span).is_ok_and(|(home, _)| !layout.is_on_archive(home));
        let is_usable = host.standing() == Standing::Open && layout.is_on_archive(host);
        let is_free = contains(free, Span::new(entry.host.sector, entry.span.len));
        if contains(&live, entry.span) && is_at_home && is_usable && is_free && !chunk.has_second(entry.span) {
            kept.push(entry);
        }
    }
    Ok(kept)
}

/// Whether one of the spans, which are in order and do not touch, has all of `span`.
fn contains(spans: &[Span], span: Span) -> bool {
    let behind = spans.partition_point(|known| known.start <= span.start);
    behind.checked_sub(1).is_some_and(|before| spans[before].end() >= span.end())
}

/// A chunk's places with new second ones; none if they would be too long.
fn plan(chunk: &Arc<Chunk>, new: Vec<Entry>, txg: Txg, disk: &Disk<'_>) -> Result<Option<Plan>> {
    let mut seconds = chunk.seconds_at(txg);
    seconds.extend(new);
    seconds.sort_unstable_by_key(|entry| entry.span.start);
    let seconds = joined(seconds, chunk, disk.layout);
    let homes = match disk.layout.packed.get(&chunk.id) {
        Some(packing) => pieces(&packing.entries, &chunk.live_at(txg, disk)?, chunk, disk.layout),
        None => Vec::new(),
    };
    let coded = chunk.places(txg, homes, seconds.clone()).encode();
    let fits = coded.len() <= MAX_BLOCK as usize;
    Ok(fits.then(|| Plan { chunk: chunk.clone(), seconds, coded }))
}
