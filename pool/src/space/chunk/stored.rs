//! The stored side of a chunk: its row, its checkpoint, its part of the log, and its map read back from them.

use std::sync::atomic::Ordering::Relaxed;

use super::{Chunk, Map, Replay, State};
use crate::{
    error::Result,
    format::space::{
        PhysicalPointer, Span,
        checkpoint::Checkpoint,
        log::ChunkChanges,
        table::{Row, Seat},
    },
    space::{
        free_map::FreeMap,
        io::Disk,
        span_set::{SpanSet, are_whole, complement, normalize, total},
    },
    units::Txg,
};

impl Chunk {
    /// The changes of `txg`, for the log.
    pub(in crate::space) fn changes(&self, txg: Txg) -> Option<ChunkChanges> {
        let state = self.state.lock();
        let changes = state.changes.iter().find(|changes| changes.txg == txg)?;
        Some(ChunkChanges {
            chunk: self.id,
            allocated: normalize(changes.allocated.clone()),
            freed: changes.freed.iter().collect(),
        })
    }

    /// Notes that the changes of `txg` are in the log.
    pub(in crate::space) fn mark_logged(&self, txg: Txg, changes: &ChunkChanges) {
        let mut state = self.state.lock();
        let (allocated, freed) = (total(changes.allocated.iter().copied()), total(changes.freed.iter().copied()));
        state.logged = (u64::from(state.logged) + allocated).saturating_sub(freed) as u32;
        state.oldest_logged.get_or_insert(txg);
    }

    /// Sectors allocated at the end of the last synced transaction group.
    pub(in crate::space) fn logged(&self) -> u32 {
        self.state.lock().logged
    }

    /// The oldest transaction group in the log that the checkpoint does not cover.
    pub(in crate::space) fn oldest_logged(&self) -> Option<Txg> {
        self.state.lock().oldest_logged
    }

    /// The newest checkpoint; `None` if the chunk was empty.
    pub(in crate::space) fn checkpoint(&self) -> Option<PhysicalPointer> {
        self.state.lock().checkpoint
    }

    /// The blocks named by the row: the checkpoint, and the map or the places.
    pub(in crate::space) fn blocks(&self) -> impl Iterator<Item = PhysicalPointer> + use<> {
        let state = self.state.lock();
        state.checkpoint.into_iter().chain(state.map_at)
    }

    /// The spans allocated at the end of `txg`, which must be the last synced group.
    pub(in crate::space) fn allocated_at(&self, txg: Txg, disk: &Disk<'_>) -> Result<Vec<Span>> {
        let mut state = self.state.lock();
        Ok(complement(&self.free_at(&mut state, txg, disk)?, self.sectors))
    }

    /// A checkpoint of the end of `txg`, which must be the last synced group.
    pub(in crate::space) fn describe(&self, txg: Txg, disk: &Disk<'_>) -> Result<Checkpoint> {
        let mut state = self.state.lock();
        let free = self.free_at(&mut state, txg, disk)?;
        Ok(Checkpoint { chunk: self.id, described: txg, sectors: self.sectors, free })
    }

    /// Sets a new checkpoint of the end of `txg`, once the table names it, and returns the old one.
    pub(in crate::space) fn set_checkpoint(
        &self,
        txg: Txg,
        checkpoint: Option<PhysicalPointer>,
    ) -> Option<PhysicalPointer> {
        let mut state = self.state.lock();
        state.described = txg;
        state.allocated_then = state.logged;
        // Changes of later groups are noted as logged when their log is written.
        state.oldest_logged = None;
        std::mem::replace(&mut state.checkpoint, checkpoint)
    }

    /// The row with a new checkpoint of the end of `txg`, which must be the last synced group.
    pub(in crate::space) fn row_on(&self, txg: Txg, checkpoint: Option<PhysicalPointer>) -> Row {
        Row { described: txg, allocated: self.logged(), checkpoint, ..self.row() }
    }

    /// The chunk's row of the table.
    pub(in crate::space) fn row(&self) -> Row {
        let state = self.state.lock();
        let (vdev, region) = self.seat();
        let (entered, places) = state.stored_places();
        let seat = match self.is_packed() {
            true => Seat::Packed { map: state.map_at.filter(|_| places.is_none()) },
            false => Seat::Region { vdev, region },
        };
        Row {
            seat,
            unit: self.unit,
            arrived: self.arrived(),
            class: state.class,
            described: state.described,
            allocated: state.allocated_then,
            checkpoint: state.checkpoint,
            entered,
            places,
        }
    }

    /// The spans free at the end of `txg`, the last synced group.
    fn free_at(&self, state: &mut State, txg: Txg, disk: &Disk<'_>) -> Result<Vec<Span>> {
        let free = self.free_until(state, txg, disk)?;
        if total(free.iter().copied()) != u64::from(self.sectors - state.logged) {
            return Err(self.damaged("the map does not add up"));
        }
        Ok(free)
    }

    /// The spans allocated at the end of `txg`, the group being synced or the open one.
    pub(in crate::space) fn live_at(&self, txg: Txg, disk: &Disk<'_>) -> Result<Vec<Span>> {
        let mut state = self.state.lock();
        Ok(complement(&self.free_until(&mut state, txg, disk)?, self.sectors))
    }

    /// The spans free at the end of `txg`: free now, freed until then, or allocated since.
    fn free_until(&self, state: &mut State, txg: Txg, disk: &Disk<'_>) -> Result<Vec<Span>> {
        let mut free: Vec<Span> = self.load(state, disk)?.spans().collect();
        for changes in &state.changes {
            if changes.txg <= txg {
                free.extend(changes.freed.iter());
            } else {
                free.extend(&changes.allocated);
            }
        }
        Ok(normalize(free))
    }

    /// The map, read from the checkpoint if it is not loaded.
    pub(super) fn load<'a>(&self, state: &'a mut State, disk: &Disk<'_>) -> Result<&'a mut FreeMap> {
        if let Map::Unloaded(replay) = &state.map {
            let map = self.read_map(state, replay, disk)?;
            self.hints.largest.store(map.largest(), Relaxed);
            state.map = Map::Loaded(map);
        }
        match &mut state.map {
            Map::Loaded(map) => Ok(map),
            Map::Unloaded(_) => unreachable!("the map was just loaded"),
        }
    }

    pub(super) fn read_map(&self, state: &State, replay: &[Replay], disk: &Disk<'_>) -> Result<FreeMap> {
        let mut free = SpanSet::from_spans(self.read_checkpoint(state, disk)?);
        for change in replay {
            match *change {
                Replay::Allocated(span) => free.subtract(span),
                Replay::Freed(span) => free.union(span),
            }
        }
        for span in state.changes.iter().flat_map(|changes| changes.freed.iter()) {
            free.subtract(span);
        }
        if total(free.iter()) != u64::from(state.free) {
            return Err(self.damaged("its checkpoint and the log do not add up"));
        }
        Ok(FreeMap::from_spans(free.iter()))
    }

    fn read_checkpoint(&self, state: &State, disk: &Disk<'_>) -> Result<Vec<Span>> {
        let Some(pointer) = &state.checkpoint else { return Ok(vec![Span::new(0, self.sectors)]) };
        let bytes = disk.read(pointer, "checkpoint")?;
        let checkpoint = Checkpoint::decode(&bytes, self.sectors).map_err(|error| self.damaged(error))?;
        if (checkpoint.chunk, checkpoint.described) != (self.id, state.described) {
            return Err(self.damaged("the checkpoint is of another chunk or time"));
        }
        if total(checkpoint.free.iter().copied()) != u64::from(self.sectors - state.allocated_then) {
            return Err(self.damaged("the checkpoint does not match its row"));
        }
        if !are_whole(&checkpoint.free, self.unit) {
            return Err(self.damaged("the checkpoint has parts of units"));
        }
        Ok(checkpoint.free)
    }
}
