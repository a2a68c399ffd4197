//! Quotas and reservations: how much room a dataset has, and who may write.
//!
//! A quota bounds what a dataset and everything below it uses, a refquota what the dataset itself refers to; a
//! reservation sets room aside for it and those below, a refreservation for it alone. Used space is known exactly when a
//! transaction group is written. Until then what was admitted counts in full: it may have been written by the next
//! group, so it is remembered for two. Where that would refuse a write, the groups are committed first and the write is
//! judged by what is really used. Where reservations leave too little room, commits go on until all that was freed can be
//! used again, and no older state is held any longer; but only if that would do.

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
    error::{Error, Result},
    quotas::{Admitted, Quotas},
    resolve::Names,
};
use crate::{
    catalogue::{DatasetRow, ROOT, Transaction, dataset_key},
    fs::Room,
    name::MAX_DEPTH,
};

/// After so many commits, all that was admitted before them is counted as used, or was never written.
const COUNTED_AFTER: usize = 2;

/// A dataset and those above it, itself first: ids and rows.
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

/// How many bytes reservations set aside that are not used yet. `rows` end with the pool's root.
fn set_aside(tx: &Transaction<'_>, rows: &[(u64, DatasetRow)]) -> Result<u64> {
    Ok(match rows.last() {
        Some((_, root)) => root.used().allocated.saturating_sub(tx.master()?.physical.allocated),
        None => 0,
    })
}

/// How many bytes more a dataset and those below it may use, with `room` bytes available in the pool. Reservations of
/// others are not available; its own and those of the datasets above are.
pub(super) fn available(tx: &Transaction<'_>, id: u64, room: u64) -> Result<u64> {
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

/// How many bytes more may be written to a dataset itself.
pub(super) fn available_to_head(tx: &Transaction<'_>, id: u64, room: u64) -> Result<u64> {
    let row: DatasetRow = tx.row(dataset_key(id))?;
    let left = available(tx, id, room)?.saturating_add(row.reserved_for_head());
    Ok(match row.refquota {
        0 => left,
        quota => left.min(quota.saturating_sub(row.referenced.allocated)),
    })
}

/// What refuses a dataset more than what [`available_to_head`] says: a quota, or that there is no room but what is set
/// aside for others.
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

/// The quotas that a dataset is under, its own first: whose it is, and how much of it is left.
fn quotas_of(rows: &[(u64, DatasetRow)]) -> Vec<(u64, u64)> {
    let rows = rows.iter().filter(|(_, row)| row.quota != 0);
    rows.map(|(id, row)| (*id, row.quota.saturating_sub(row.used().allocated))).collect()
}

/// How many bytes reservations of others set aside, which a dataset must leave.
fn set_aside_for_others(tx: &Transaction<'_>, id: u64) -> Result<u64> {
    let rows = upwards(tx, id)?;
    let own = rows.iter().map(|(_, row)| row.reservation.saturating_sub(row.used().allocated));
    let own = own.fold(rows[0].1.reserved_for_head(), u64::saturating_add);
    Ok(set_aside(tx, &rows)?.saturating_sub(own))
}

/// Whether anything but the pool's own room limits what is written to a dataset.
fn is_limited(tx: &Transaction<'_>, rows: &[(u64, DatasetRow)]) -> Result<bool> {
    let has_quota =
        rows.iter().any(|(_, row)| row.quota != 0) || rows.first().is_some_and(|(_, row)| row.refquota != 0);
    let root: DatasetRow = tx.row(dataset_key(ROOT))?;
    Ok(has_quota || root.used().allocated > tx.master()?.physical.allocated)
}

/// After `id` got space that `from` had before: checks the quotas of `id` and of those above it that are not above `from`.
pub(super) fn check_moved(tx: &Transaction<'_>, names: &Names, from: u64, id: u64) -> Result<()> {
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

/// After a stream became the tree of `id`: checks its refquota, the quotas of it and of those above it, and that with
/// `room` bytes available in the pool, what is set aside for others is still there.
pub(super) fn check_landed(tx: &Transaction<'_>, names: &Names, id: u64, room: u64) -> Result<()> {
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

/// The limits of an open dataset, as its file system asks them.
pub(super) struct Limits {
    id: u64,
    engine: Weak<Engine>,
    /// What others below the same quotas were admitted counts as well.
    quotas: Arc<Quotas>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What may be written beyond what is in the catalogue; `None` if only the pool's room is the limit.
    left: Option<u64>,
    /// What must be left of the pool's room, whoever else writes meanwhile.
    others: u64,
    /// What whoever wants to write more is told.
    refusal: Option<Errno>,
    admitted: Admitted,
    /// The quotas that it is under.
    above: Vec<u64>,
    /// How many syncs have told what there is.
    syncs: u64,
}

/// What the catalogue says of the limits, as [`State`] takes it.
struct Found {
    left: Option<u64>,
    others: u64,
    refusal: Option<Errno>,
    /// The quotas that it is under, each with what is left of it.
    above: Vec<(u64, u64)>,
    /// The group of its newest snapshot.
    newest: Txg,
}

impl Limits {
    pub(super) fn new(id: u64, engine: &Arc<Engine>, quotas: Arc<Quotas>) -> Arc<Limits> {
        Arc::new(Limits { id, engine: Arc::downgrade(engine), quotas, state: Mutex::default() })
    }

    /// Takes what the catalogue says now.
    pub(super) fn set(&self, tx: &Transaction<'_>, room: u64) -> Result<()> {
        let found = self.look(tx, room)?;
        self.take(&mut self.state.lock(), found);
        Ok(())
    }

    /// As [`Limits::set`], at the end of a sync; the group of the newest snapshot, which stands in the same row.
    pub(super) fn renew(&self, tx: &Transaction<'_>, room: u64) -> Result<Txg> {
        let found = self.look(tx, room)?;
        let newest = found.newest;
        let mut state = self.state.lock();
        self.take(&mut state, found);
        state.admitted.turn();
        state.syncs += 1;
        Ok(newest)
    }

    /// As [`Limits::set`], between two syncs: the last has told what there was before its commit released anything. If
    /// one comes meanwhile, it knows better.
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

    /// Admits what neither a quota refuses nor takes what is set aside for others. What all datasets were admitted
    /// is no longer available, so many writers together cannot take it either.
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

    /// How many bytes that were admitted may not be counted as used yet, or may never be written.
    fn uncounted(&self) -> u64 {
        let state = self.state.lock();
        state.admitted.sum().max(self.quotas.most_admitted(&state.above))
    }

    /// Another commit after so many, if it could make room for `bytes`, and what there is then. False if it could not:
    /// those who try again and again where there is no room would otherwise have the pool commit without end.
    fn make_room(&self, bytes: u64, commits: usize) -> Result<bool> {
        let Some(engine) = self.engine.upgrade() else { return Ok(false) };
        let is_quota = self.state.lock().refusal == Some(Errno::DQUOT);
        let (uncounted, missing) = (self.uncounted(), bytes.saturating_sub(self.available()));
        let could_count = match is_quota {
            // By then all that was admitted is counted as used, and a quota does not wait for space to be released.
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

    /// Has `attempt` try to find room for `bytes`, and makes commits as long as they could help.
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

    /// The bytes that the dataset refers to, and those that may be added with so much `room` in the pool.
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
