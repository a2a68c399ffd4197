//! Quotas and reservations: the space available to a dataset, and the admission of writes.
//!
//! A quota bounds the space used by a dataset and its descendants, a refquota the space referenced by the dataset
//! itself. A reservation reserves space for the dataset and its descendants, a refreservation for the dataset alone.
//! Used space is known exactly after a txg is written. Until then admitted bytes count in full, and for two txgs,
//! because a write may go into the next txg. If the admitted bytes alone would refuse a write, the txgs are committed
//! first, and the write is judged by the space really used. If reservations leave too little room, commits continue
//! until all freed space is usable again and no older state is held any longer; but only if the commits can provide
//! enough room.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use pool::{
    env::Nanos,
    error::Error as PoolError,
    txg::{Engine, SETTLING_COMMITS},
    units::Txg,
};
use rustix::io::Errno;

use super::{
    names::Names,
    quotas::{Admitted, Quotas},
};
use crate::{
    catalogue::{DatasetRow, ROOT, Transaction, dataset_key},
    error::{Error, Result},
    fs::Room,
    name::MAX_DEPTH,
};

/// The number of commits after which all bytes admitted before are counted as used, or were never written.
const COUNTED_AFTER: usize = 2;

/// A dataset and its ancestors, the dataset first: ids and rows.
fn upwards(tx: &Transaction<'_>, id: u64) -> Result<Vec<(u64, DatasetRow)>> {
    let mut rows = Vec::new();
    let mut at = id;
    while at != 0 {
        if rows.len() > MAX_DEPTH {
            return Err(Error::damaged(id, "datasets are nested too deep"));
        }
        let row: DatasetRow = tx.row(dataset_key(at))?;
        let above = row.parent;
        rows.push((at, row));
        at = above;
    }
    Ok(rows)
}

/// The unused bytes of all reservations. `rows` ends with the pool's root dataset.
fn set_aside(tx: &Transaction<'_>, rows: &[(u64, DatasetRow)]) -> Result<u64> {
    Ok(match rows.last() {
        Some((_, root)) => root.used().allocated.saturating_sub(tx.master()?.physical.allocated),
        None => 0,
    })
}

/// The bytes that a dataset and its descendants may still use, with `room` bytes available in the pool. Reservations of
/// other datasets are not available; reservations of the dataset and its ancestors are.
pub(in crate::admin) fn available(tx: &Transaction<'_>, id: u64, room: u64) -> Result<u64> {
    let rows = upwards(tx, id)?;
    let mut left = room.saturating_sub(set_aside(tx, &rows)?);
    for (_, row) in rows.iter().rev() {
        let used = row.used().allocated;
        left = left.saturating_add(row.reservation.saturating_sub(used));
        if row.quota != 0 {
            left = left.min(row.quota.saturating_sub(used));
        }
    }
    Ok(left)
}

/// The bytes that may still be written to a dataset itself.
pub(in crate::admin) fn available_to_head(tx: &Transaction<'_>, id: u64, room: u64) -> Result<u64> {
    let row: DatasetRow = tx.row(dataset_key(id))?;
    let left = available(tx, id, room)?.saturating_add(row.reserved_for_head());
    Ok(match row.refquota {
        0 => left,
        quota => left.min(quota.saturating_sub(row.referenced.allocated)),
    })
}

/// The reason for a refusal of more than [`available_to_head`]: EDQUOT for a quota, or ENOSPC if all remaining room is
/// reserved for other datasets.
fn refusal(tx: &Transaction<'_>, id: u64, room: u64) -> Result<Errno> {
    let rows = upwards(tx, id)?;
    let mut left = room.saturating_sub(set_aside(tx, &rows)?);
    for (at, row) in rows.iter().rev() {
        let used = row.used().allocated;
        left = left.saturating_add(row.reservation.saturating_sub(used));
        let quota = row.quota != 0 && row.quota.saturating_sub(used) < left;
        let refquota = *at == id && row.refquota != 0 && row.refquota.saturating_sub(row.referenced.allocated) < left;
        if quota || refquota {
            return Ok(Errno::DQUOT);
        }
    }
    Ok(Errno::NOSPC)
}

/// The quotas above a dataset, its own first: the id of the quota's dataset, and the bytes left.
fn quotas_of(rows: &[(u64, DatasetRow)]) -> Vec<(u64, u64)> {
    let rows = rows.iter().filter(|(_, row)| row.quota != 0);
    rows.map(|(id, row)| (*id, row.quota.saturating_sub(row.used().allocated))).collect()
}

/// The unused bytes of other datasets' reservations.
fn set_aside_for_others(tx: &Transaction<'_>, id: u64) -> Result<u64> {
    let rows = upwards(tx, id)?;
    let own = rows.iter().map(|(_, row)| row.reservation.saturating_sub(row.used().allocated));
    let own = own.fold(rows[0].1.reserved_for_head(), u64::saturating_add);
    Ok(set_aside(tx, &rows)?.saturating_sub(own))
}

/// Whether a quota or a reservation limits writes to a dataset.
fn is_limited(tx: &Transaction<'_>, rows: &[(u64, DatasetRow)]) -> Result<bool> {
    let has_quota =
        rows.iter().any(|(_, row)| row.quota != 0) || rows.first().is_some_and(|(_, row)| row.refquota != 0);
    let root: DatasetRow = tx.row(dataset_key(ROOT))?;
    Ok(has_quota || root.used().allocated > tx.master()?.physical.allocated)
}

/// Checks quotas after space moved from the dataset `from` to `id`: the quotas of `id` and its ancestors, except
/// ancestors shared with `from`.
pub(in crate::admin) fn check_moved(tx: &Transaction<'_>, names: &Names, from: u64, id: u64) -> Result<()> {
    let shared: Vec<u64> = upwards(tx, from)?.into_iter().map(|(id, _)| id).collect();
    for (above, row) in upwards(tx, id)? {
        if shared.contains(&above) {
            break;
        }
        if row.quota != 0 && row.used().allocated > row.quota {
            return Err(Error::Quota { name: names.of_dataset(tx, above)?.to_string() });
        }
    }
    Ok(())
}

/// Checks the limits after a stream became the tree of `id`: the refquota, the quotas of `id` and its ancestors, and
/// that `room` bytes available in the pool still cover the reservations.
pub(in crate::admin) fn check_landed(tx: &Transaction<'_>, names: &Names, id: u64, room: u64) -> Result<()> {
    let rows = upwards(tx, id)?;
    for (at, row) in &rows {
        let quota = row.quota != 0 && row.used().allocated > row.quota;
        let refquota = *at == id && row.refquota != 0 && row.referenced.allocated > row.refquota;
        if quota || refquota {
            return Err(Error::Quota { name: names.of_dataset(tx, *at)?.to_string() });
        }
    }
    if set_aside(tx, &rows)? > room { Err(PoolError::OutOfSpace.into()) } else { Ok(()) }
}

/// The limits of an open dataset, consulted by its file system.
pub(in crate::admin) struct Limits {
    id: u64,
    engine: Weak<Engine>,
    /// The quotas shared with other datasets, whose admitted bytes count as well.
    quotas: Arc<Quotas>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The bytes that may be written beyond the catalogue's counters; `None` if only the pool's room is the limit.
    left: Option<u64>,
    /// The bytes of the pool's room reserved for other datasets.
    others: u64,
    /// The errno for a refused write.
    refusal: Option<Errno>,
    admitted: Admitted,
    /// The datasets with a quota that applies.
    above: Vec<u64>,
    /// The number of syncs that have updated the state.
    syncs: u64,
}

/// The limits according to the catalogue.
struct Found {
    left: Option<u64>,
    others: u64,
    refusal: Option<Errno>,
    /// The datasets with a quota that applies, each with the bytes left.
    above: Vec<(u64, u64)>,
    /// The txg of the newest snapshot.
    newest: Txg,
}

impl Limits {
    pub(in crate::admin) fn new(id: u64, engine: &Arc<Engine>, quotas: Arc<Quotas>) -> Arc<Limits> {
        Arc::new(Limits { id, engine: Arc::downgrade(engine), quotas, state: Mutex::default() })
    }

    /// Updates the limits from the catalogue.
    pub(in crate::admin) fn set(&self, tx: &Transaction<'_>, room: u64) -> Result<()> {
        let found = self.look(tx, room)?;
        self.take(&mut self.state.lock(), found);
        Ok(())
    }

    /// As [`Limits::set`], at the end of a sync. Returns the txg of the newest snapshot, from the same row.
    pub(in crate::admin) fn renew(&self, tx: &Transaction<'_>, room: u64) -> Result<Txg> {
        let found = self.look(tx, room)?;
        let newest = found.newest;
        let mut state = self.state.lock();
        self.take(&mut state, found);
        state.admitted.turn();
        state.syncs += 1;
        Ok(newest)
    }

    /// As [`Limits::set`], between two syncs: the last sync recorded the room before its commit released any. A sync
    /// meanwhile has newer numbers, which stay.
    fn look_again(&self) -> Result<()> {
        let syncs = self.state.lock().syncs;
        let found = self.read(|tx, room| self.look(tx, room))?;
        let mut state = self.state.lock();
        if state.syncs == syncs {
            self.take(&mut state, found);
        }
        Ok(())
    }

    fn look(&self, tx: &Transaction<'_>, room: u64) -> Result<Found> {
        let rows = upwards(tx, self.id)?;
        let limited = is_limited(tx, &rows)?;
        Ok(Found {
            left: limited.then(|| available_to_head(tx, self.id, room)).transpose()?,
            refusal: limited.then(|| refusal(tx, self.id, room)).transpose()?,
            others: if limited { set_aside_for_others(tx, self.id)? } else { 0 },
            above: quotas_of(&rows),
            newest: rows[0].1.newest_txg,
        })
    }

    fn take(&self, state: &mut State, found: Found) {
        found.above.iter().for_each(|&(quota, left)| self.quotas.set(quota, left));
        state.above = found.above.into_iter().map(|(quota, _)| quota).collect();
        state.left = found.left;
        state.others = found.others;
        state.refusal = found.refusal;
    }

    fn read<T>(&self, mut look: impl FnMut(&Transaction<'_>, u64) -> Result<T>) -> Result<T> {
        let closed = || Error::from(PoolError::Closed("it is being closed".into()));
        let engine = self.engine.upgrade().ok_or_else(closed)?;
        let room = engine.available();
        engine.catalogue().read(|view| look(&Transaction::new(*view, Nanos::default()), room))
    }

    /// Admits bytes within the quotas and outside other datasets' reservations. Bytes admitted to any dataset are no
    /// longer available, so many concurrent writers cannot use reserved space either.
    fn try_admit(&self, bytes: u64) -> bool {
        let available = self.engine.upgrade().map_or(0, |engine| engine.available());
        let mut state = self.state.lock();
        let Some(left) = state.left else { return true };
        let admitted = available >= bytes.saturating_add(state.others)
            && state.admitted.fits(bytes, left)
            && self.quotas.admit(&state.above, bytes);
        if admitted {
            state.admitted.add(bytes);
        }
        admitted
    }

    /// The admitted bytes that may not be counted as used yet, or may never be written.
    fn uncounted(&self) -> u64 {
        let state = self.state.lock();
        state.admitted.sum().max(self.quotas.most_admitted(&state.above))
    }

    /// Makes one more commit, after `commits` earlier ones, if the commit could make room for `bytes`, and updates the
    /// limits. False if it could not: otherwise writers that keep retrying in a full pool would cause endless commits.
    fn make_room(&self, bytes: u64, commits: usize) -> Result<bool> {
        let Some(engine) = self.engine.upgrade() else { return Ok(false) };
        let is_quota = self.state.lock().refusal == Some(Errno::DQUOT);
        let (uncounted, missing) = (self.uncounted(), bytes.saturating_sub(self.available()));
        let could_count = match is_quota {
            // After these commits all admitted bytes are counted as used; quotas do not wait for space to be released.
            true => commits < COUNTED_AFTER && (uncounted > 0 || !engine.is_at_rest()),
            false => uncounted > 0 && missing <= uncounted,
        };
        let has_committed = !is_quota && engine.make_room(missing)?;
        if !has_committed && could_count {
            engine.commit_anyway()?;
        }
        if has_committed || could_count {
            self.look_again()?;
        }
        Ok(has_committed || could_count)
    }

    /// Repeats `attempt` to find room for `bytes`, with commits in between as long as commits can help.
    fn find_room(&self, bytes: u64, attempt: impl Fn() -> bool) -> Result<(), Errno> {
        self.look_again().map_err(|_| Errno::IO)?;
        for commits in 0..=SETTLING_COMMITS {
            if attempt() {
                return Ok(());
            }
            if commits == SETTLING_COMMITS || !self.make_room(bytes, commits).map_err(|_| Errno::IO)? {
                break;
            }
        }
        Err(self.state.lock().refusal.unwrap_or(Errno::NOSPC))
    }
}

impl Room for Limits {
    fn admit(&self, bytes: u64) -> Result<(), Errno> {
        if self.try_admit(bytes) {
            return Ok(());
        }
        self.find_room(bytes, || self.try_admit(bytes))
    }

    fn look_for(&self, bytes: u64) -> Result<(), Errno> {
        self.find_room(bytes, || bytes <= self.available())
    }

    fn space(&self) -> (u64, u64) {
        self.space_within(self.engine.upgrade().map_or(0, |engine| engine.available_soon()))
    }
}

impl Limits {
    /// The bytes that may be added now.
    fn available(&self) -> u64 {
        self.space_within(self.engine.upgrade().map_or(0, |engine| engine.available())).1
    }

    /// The bytes referenced by the dataset, and the bytes that may be added with `room` bytes in the pool.
    fn space_within(&self, room: u64) -> (u64, u64) {
        let numbers = self.read(|tx, _| {
            let row: DatasetRow = tx.row(dataset_key(self.id))?;
            Ok((row.referenced.allocated, available_to_head(tx, self.id, room)?))
        });
        let (referenced, available) = numbers.unwrap_or_else(|error| {
            tracing::warn!("the room of a dataset is not known: {error}");
            (0, 0)
        });
        let state = self.state.lock();
        let admitted = if state.left.is_some() { state.admitted.sum() } else { 0 };
        (referenced, available.saturating_sub(admitted))
    }
}
