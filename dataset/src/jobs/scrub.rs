//! Scrubbing the pool: starting, pausing and stopping it, its steps, and what is damaged for good. What a scrub is and why
//! it finds everything is argued in [`crate::scrub`].
//!
//! Nothing here runs by itself: the [`Scheduler`](super::Scheduler) calls for step after step, and before each for
//! [`Datasets::mend_step`]. How far the scrub has come stands in memory, and in the catalogue as of the last time that it was saved.

use std::collections::BTreeSet;

use parking_lot::{Mutex, MutexGuard};
use pool::{
    admin::Pool,
    env::Nanos,
    format::key::Key,
    space::OwnCursor,
    txg::{CATALOGUE, Place, Suspect, Verdict},
    units::Txg,
};

use super::{Job, Kind, Step};
use crate::admin::{Datasets, Error, Progress, Result};
use crate::{
    catalogue::{POOL, ScrubPosition, ScrubRow, ScrubState, Transaction, kind},
    scrub::{
        damage::{self, Damage},
        members, mend,
        pass::{self, Budget, Found, Part},
    },
};

const SCRUB: Key = Key::new(POOL, kind::SCRUB, 0);

/// After so many bytes examined the scrub is saved without being asked to.
const SAVE_EVERY: u64 = 16 << 30;

/// At most so many bytes of the space layer's own blocks are gone through in a step, while the pool is held still.
pub(crate) const SPACE_STEP: u64 = 16 << 20;

/// How often a step is tried again from one key because the tree changed under it.
pub(crate) const RETRIES: u32 = 3;

/// How a scrub stands: see [`ScrubRow`].
pub type ScrubStatus = ScrubRow;

/// The scrub of an opened pool.
#[derive(Default)]
pub(crate) struct Scrubber {
    /// Held for a step, and by whoever starts, pauses or stops.
    steps: Mutex<Stepping>,
    /// How it stands. Read at any time.
    pub(crate) row: Mutex<Option<ScrubRow>>,
    /// Damage that was met in a pool that was opened to be read only.
    pub(crate) unwritten: Mutex<BTreeSet<Damage>>,
}

#[derive(Default)]
struct Stepping {
    /// Whether the row was read from the catalogue.
    is_loaded: bool,
    /// When it was last told how long the scrub has worked.
    clock: Nanos,
    /// How much was examined when it was last saved.
    saved: u64,
    /// From which key the last step has to be tried again, and how often it was.
    retried: Option<(Key, u32)>,
}

/// The scrub of a pool.
pub struct Scrub<'a> {
    pub(super) datasets: &'a Datasets,
}

impl Job for Scrub<'_> {
    fn kind(&self) -> Kind {
        Kind::Scrub
    }

    fn is_under_way(&self) -> bool {
        let status = self.in_memory();
        status.is_some_and(|status| matches!(status.state, ScrubState::Running | ScrubState::Paused))
    }

    fn step(&self, _pool: &Pool, budget: u64) -> Result<Step> {
        Ok(match self.advance(budget)? {
            Progress::Worked if self.is_under_way() => Step::Worked,
            Progress::Worked => Step::Done,
            Progress::Idle => Step::Idle,
        })
    }

    /// Pauses the scrub; it stays paused over export and import.
    fn pause(&self) -> Result<()> {
        self.end(ScrubState::Paused, |state| state == ScrubState::Running)
    }

    /// Gives the scrub up.
    fn stop(&self, _pool: &Pool) -> Result<()> {
        self.give_up()
    }
}

impl Scrub<'_> {
    /// Gives the scrub up, as [`Job::stop`] does.
    pub fn give_up(&self) -> Result<()> {
        self.end(ScrubState::Stopped, |state| matches!(state, ScrubState::Running | ScrubState::Paused))
    }

    /// Begins a scrub, or goes on with one that is paused.
    pub fn start(&self) -> Result<()> {
        self.datasets.engine().writable()?;
        let mut stepping = self.stepping()?;
        let before = self.datasets.jobs.scrubber.row.lock().clone();
        let row = match before.map(|row| (row.state, row)) {
            Some((ScrubState::Running, _)) => {
                return Err(Error::Scrub {
                    problem: "a scrub is in progress already",
                    remedy: "use pool scrub -s to stop it",
                });
            }
            Some((ScrubState::Paused, row)) => ScrubRow { state: ScrubState::Running, end: 0, ..row },
            _ => {
                self.datasets.engine().note_scrub_begins();
                let limit = self.datasets.engine().commit()?;
                let total = self.datasets.engine().space_totals().allocated;
                ScrubRow { start: self.datasets.now(), limit, total, ..ScrubRow::default() }
            }
        };
        self.put(&mut stepping, row)
    }

    fn end(&self, state: ScrubState, is_right: impl Fn(ScrubState) -> bool) -> Result<()> {
        self.datasets.engine().writable()?;
        let mut stepping = self.stepping()?;
        let before = self.datasets.jobs.scrubber.row.lock().clone();
        let Some(row) = before.filter(|row| is_right(row.state)) else {
            return Err(Error::Scrub { problem: "there is no active scrub", remedy: "pool scrub begins one" });
        };
        self.put(&mut stepping, ScrubRow { state, end: self.datasets.now(), ..row })
    }

    /// The scrub that runs, or the last one.
    pub fn status(&self) -> Result<Option<ScrubStatus>> {
        if let Some(row) = self.datasets.jobs.scrubber.row.lock().clone() {
            return Ok(Some(row));
        }
        self.datasets.read(|tx| Ok(tx.find::<ScrubRow>(SCRUB)?.map(|(row, _)| row)))
    }

    /// The same as far as it stands in memory: nothing is read for it.
    pub fn in_memory(&self) -> Option<ScrubStatus> {
        self.datasets.jobs.scrubber.row.lock().clone()
    }

    /// Does a step of the scrub: examines about `budget` bytes and mends what can be mended.
    pub fn advance(&self, budget: u64) -> Result<Progress> {
        if self.datasets.engine().writable().is_err() {
            return Ok(Progress::Idle);
        }
        let mut stepping = self.stepping()?;
        let before = self.datasets.jobs.scrubber.row.lock().clone();
        let Some(mut row) = before.filter(|row| row.state == ScrubState::Running) else { return Ok(Progress::Idle) };
        let is_done = match row.position {
            ScrubPosition::Labels => self.labels(&mut row),
            ScrubPosition::Space { vdev, offset } => self.space(&mut row, OwnCursor { vdev, offset }, budget)?,
            ScrubPosition::Catalogue { cursor } => self.catalogue(&mut stepping, &mut row, key(cursor), budget)?,
            ScrubPosition::Datasets { .. } => self.data_sets(&mut stepping, &mut row, budget)?,
        };
        let now = self.datasets.now();
        row.elapsed = row.elapsed.saturating_add(u64::try_from(now - stepping.clock).unwrap_or(0));
        stepping.clock = now;
        if is_done {
            (row.state, row.end) = (ScrubState::Finished, now);
            self.datasets.engine().note_scrub_ends();
        }
        let is_due = row.examined.saturating_sub(stepping.saved) >= SAVE_EVERY;
        *self.datasets.jobs.scrubber.row.lock() = Some(row.clone());
        if is_done || is_due {
            self.put(&mut stepping, row)?;
        }
        Ok(Progress::Worked)
    }

    /// Writes to the catalogue how far the scrub has come, so that a crash costs no more than what comes after.
    pub fn save(&self) -> Result<()> {
        let mut stepping = self.stepping()?;
        let row = self.datasets.jobs.scrubber.row.lock().clone();
        match row.filter(|row| row.state == ScrubState::Running && row.examined != stepping.saved) {
            Some(row) => self.put(&mut stepping, row),
            None => Ok(()),
        }
    }

    /// Runs a request that moves snapshots between datasets: a scrub among them starts again at the first one.
    pub(crate) fn going_back_with<T, F>(&self, mut request: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Transaction<'_>) -> Result<T> + Send + 'static,
    {
        let _stepping = self.stepping()?;
        let moved = self.datasets.jobs.moved.clone();
        let answer = self.datasets.run(move |tx| {
            let answer = request(tx)?;
            moved.note();
            if let Some((mut row, _)) = tx.find::<ScrubRow>(SCRUB)? {
                go_back(&mut row);
                tx.put(SCRUB, &row, None);
            }
            Ok(answer)
        })?;
        if let Some(row) = &mut *self.datasets.jobs.scrubber.row.lock() {
            go_back(row);
        }
        Ok(answer)
    }

    /// Keeps everybody else from the scrub, whose row is in memory then.
    fn stepping(&self) -> Result<MutexGuard<'_, Stepping>> {
        let mut stepping = self.datasets.jobs.scrubber.steps.lock();
        if !stepping.is_loaded {
            let row = self.datasets.read(|tx| Ok(tx.find::<ScrubRow>(SCRUB)?.map(|(row, _)| row)))?;
            stepping.saved = row.as_ref().map_or(0, |row| row.examined);
            stepping.clock = self.datasets.now();
            stepping.is_loaded = true;
            *self.datasets.jobs.scrubber.row.lock() = row;
        }
        Ok(stepping)
    }

    fn put(&self, stepping: &mut Stepping, row: ScrubRow) -> Result<()> {
        let stored = row.clone();
        self.datasets.run(move |tx| {
            if stored.state == ScrubState::Finished {
                damage::forget(tx, stored.limit)?;
            }
            tx.put(SCRUB, &stored, None);
            Ok(())
        })?;
        stepping.saved = row.examined;
        stepping.clock = self.datasets.now();
        *self.datasets.jobs.scrubber.row.lock() = Some(row);
        Ok(())
    }

    fn labels(&self, row: &mut ScrubRow) -> bool {
        let mut examined = self.datasets.engine().hold_still().mend_labels();
        examined += self.datasets.engine().mend_labels_apart();
        row.repaired += examined.mended;
        row.position = ScrubPosition::Space { vdev: 0, offset: 0 };
        false
    }

    fn space(&self, row: &mut ScrubRow, from: OwnCursor, budget: u64) -> Result<bool> {
        let examined = self.datasets.engine().hold_still().mend_space(from, budget.min(SPACE_STEP));
        row.examined += examined.bytes;
        row.repaired += examined.mended;
        row.errors += examined.lost;
        row.position = match examined.next {
            Some(OwnCursor { vdev, offset }) => ScrubPosition::Space { vdev, offset },
            None => ScrubPosition::Catalogue { cursor: cursor(Key::MIN) },
        };
        self.datasets.note_damage(if examined.lost > 0 { vec![Damage::of_space()] } else { Vec::new() })?;
        Ok(false)
    }

    fn catalogue(&self, stepping: &mut Stepping, row: &mut ScrubRow, from: Key, budget: u64) -> Result<bool> {
        let root = mend::committed_root(self.datasets.engine(), CATALOGUE)?;
        let next = match root {
            Some(((root, level), seen)) => {
                let part = Part {
                    tree: CATALOGUE,
                    root,
                    level,
                    seen,
                    after: Txg::ZERO,
                    since: Txg::ZERO,
                    limit: row.limit,
                    from,
                    to: Key::MAX,
                };
                // The other blocks are the roots of trees.
                self.examine(stepping, row, &part, budget, |key| key.kind == kind::PAGE)?
            }
            None => Key::MAX,
        };
        row.position = match next {
            Key::MAX => ScrubPosition::Datasets { dataset: 0, done: Txg::ZERO, member: 0, cursor: cursor(Key::MIN) },
            next => ScrubPosition::Catalogue { cursor: cursor(next) },
        };
        Ok(false)
    }

    /// Goes on with the datasets; whether all of them are done.
    fn data_sets(&self, stepping: &mut Stepping, row: &mut ScrubRow, budget: u64) -> Result<bool> {
        let ScrubPosition::Datasets { dataset, done, member: before, cursor: at } = row.position else {
            return Ok(true);
        };
        let (found, seen) = self.datasets.read(|tx| Ok((members::next_member(tx, dataset, done)?, tx.seen())))?;
        let found = found.filter(|_| dataset != 0);
        let Some(member) = found else { return self.next_data_set(row, dataset) };
        // The tree that the step before was at may have become a snapshot; then its keys are done there too.
        let goes_on = member.id == before || before == dataset;
        let from = if goes_on { key(at) } else { Key::MIN };
        let (tree, limit) = (member.id, row.limit);
        let part = Part {
            tree,
            root: member.root,
            level: member.level,
            seen,
            after: done,
            since: Txg::ZERO,
            limit,
            from,
            to: Key::MAX,
        };
        let next = self.examine(stepping, row, &part, budget, |_| true)?;
        row.position = match (next, member.taken) {
            (Key::MAX, None) => return self.next_data_set(row, dataset),
            (Key::MAX, Some(taken)) => {
                ScrubPosition::Datasets { dataset, done: taken, member: 0, cursor: cursor(Key::MIN) }
            }
            (next, _) => ScrubPosition::Datasets { dataset, done, member: member.id, cursor: cursor(next) },
        };
        Ok(false)
    }

    fn next_data_set(&self, row: &mut ScrubRow, after: u64) -> Result<bool> {
        let next = self.datasets.read(|tx| match members::next_dataset(tx, after)? {
            Some(next) => Ok(Some((next, members::done_before(tx, next)?))),
            None => Ok(None),
        })?;
        let Some((dataset, done)) = next else { return Ok(true) };
        row.position = ScrubPosition::Datasets { dataset, done, member: 0, cursor: cursor(Key::MIN) };
        Ok(false)
    }

    /// Examines a part of a tree and mends what can be mended. Returns the key from which to go on.
    fn examine(
        &self,
        stepping: &mut Stepping,
        row: &mut ScrubRow,
        part: &Part,
        budget: u64,
        is_meant: impl Fn(Key) -> bool,
    ) -> Result<Key> {
        let Found { bytes, suspects, unread, next } =
            pass::examine(self.datasets.engine(), part, Budget::freely(budget), is_meant);
        let reached = next.unwrap_or(part.from);
        let (mut next, mut lost) = (reached, Vec::new());
        row.examined += bytes;
        for suspect in &suspects {
            let outcome = mend::mend(self.datasets.engine(), suspect, true)?;
            match outcome.verdict {
                Verdict::Mended { copies } => {
                    row.repaired += stored(suspect, self.datasets.engine().sector()) * copies as u64
                }
                Verdict::Lost => row.errors += 1,
                // What is below it was passed over, and stands under a younger node now.
                Verdict::Gone if unread.contains(&suspect.place) => {
                    next = next.min(start(&suspect.place).max(part.from))
                }
                Verdict::Gone | Verdict::Whole => {}
                Verdict::Weak(error) | Verdict::Unknown(error) => tracing::warn!("scrub: {error}"),
            }
            lost.extend(outcome.damage);
        }
        self.datasets.note_damage(lost)?;
        Ok(if stepping.gives_up(part.from, next) { reached } else { next })
    }
}

impl Stepping {
    /// Whether a step has been tried often enough: a tree that changes again and again under it must not hold the scrub up.
    fn gives_up(&mut self, from: Key, next: Key) -> bool {
        if next > from {
            self.retried = None;
            return false;
        }
        let tries = self.retried.filter(|(key, _)| *key == from).map_or(0, |(_, tries)| tries) + 1;
        self.retried = Some((from, tries));
        tries >= RETRIES
    }
}

/// Takes a scrub that is at the datasets back to the first one.
fn go_back(row: &mut ScrubRow) {
    if let ScrubPosition::Datasets { dataset, done, member, cursor: at } = &mut row.position {
        (*dataset, *done, *member, *at) = (0, Txg::ZERO, 0, cursor(Key::MIN));
    }
}

/// What one copy of a block takes, in bytes.
pub(crate) fn stored(suspect: &Suspect, sector: u32) -> u64 {
    u64::from(suspect.pointer.stored).next_multiple_of(sector.into())
}

/// The first key of a place.
pub(crate) fn start(place: &Place) -> Key {
    match place {
        Place::Node { low, .. } => *low,
        Place::Item(key) => *key,
    }
}

fn key((object, kind, offset): (u64, u8, u64)) -> Key {
    Key::new(object, kind, offset)
}

fn cursor(key: Key) -> (u64, u8, u64) {
    (key.object, key.kind, key.offset)
}
