//! The scrub as a job: starting, pausing and stopping, and its steps. [`crate::scrub`] explains the scrub, and argues
//! that it finds everything.
//!
//! Nothing here runs by itself: the [`Scheduler`](super::Scheduler) makes the steps, and before each calls
//! [`Datasets::repair_step`]. The position is in memory; the catalogue has the position last saved.

use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use pool::{
    admin::Pool,
    format::key::Key,
    space::OwnCursor,
    txg::{CATALOGUE, Place, Suspect, Verdict},
    units::Txg,
};

use super::{
    job::{Job, Step},
    kind::Kind,
    record::{Detail, JobRecord, JobState},
};
use crate::underway::scrub::Stepping;
use crate::{
    admin::{Datasets, Progress},
    error::{Error, Result},
};
use crate::{
    catalogue::{POOL, ScrubPosition, ScrubRow, ScrubState, Transaction, kind},
    scrub::{
        damage::{self, Damage},
        members,
        pass::{self, Budget, Found, Part},
        repair,
    },
};

const SCRUB: Key = Key::new(POOL, kind::SCRUB, 0);

/// The number of examined bytes after which the position is saved without a request.
const SAVE_EVERY: u64 = 16 << 30;

/// The most bytes of the space maps' blocks read per step, while the pool is held still.
pub(crate) const SPACE_STEP: u64 = 16 << 20;

/// The most retries of a step from the same key, when the tree changes meanwhile.
pub(crate) const RETRIES: u32 = 3;

/// The status of a scrub: see [`ScrubRow`].
pub type ScrubStatus = ScrubRow;

/// The scrub of a pool.
pub struct Scrub<'a> {
    pub(super) datasets: &'a Datasets,
}

impl Job for Scrub<'_> {
    fn kind(&self) -> Kind {
        Kind::Scrub
    }

    fn is_under_way(&self) -> bool {
        // Before the first step after an import, only the catalogue has the row.
        let status = self.in_memory().or_else(|| self.stored().ok().flatten());
        status.is_some_and(|status| matches!(status.state, ScrubState::Running | ScrubState::Paused))
    }

    fn step(&self, _pool: &Pool, budget: u64) -> Result<Step> {
        Ok(match self.advance(budget)? {
            Progress::Worked if self.is_under_way() => Step::Worked,
            Progress::Worked => Step::Done,
            Progress::Idle => Step::Idle,
        })
    }

    fn is_paused(&self) -> bool {
        self.in_memory().is_some_and(|status| status.state == ScrubState::Paused)
    }

    fn limit(&self) -> Option<u64> {
        self.datasets.throttle(Kind::Scrub).limit()
    }

    fn handled(&self) -> u64 {
        self.datasets.jobs.scrubber.handled.load(Ordering::Relaxed)
    }

    /// Pauses the scrub, also across export and import.
    fn pause(&self) -> Result<()> {
        self.end(ScrubState::Paused, |state| state == ScrubState::Running)
    }

    /// Cancels the scrub.
    fn stop(&self, _pool: &Pool) -> Result<()> {
        self.give_up()
    }

    fn record(&self, _pool: &Pool) -> Result<Option<JobRecord>> {
        const NANOS: u64 = 1_000_000_000;
        Ok(self.status()?.map(|row| JobRecord {
            kind: Kind::Scrub,
            state: match row.state {
                ScrubState::Running => JobState::Running,
                ScrubState::Paused => JobState::Paused,
                ScrubState::Finished => JobState::Finished,
                ScrubState::Stopped => JobState::Canceled,
            },
            begun: row.start,
            ended: row.end,
            seconds: row.elapsed / NANOS,
            rate: row.examined.checked_div(row.elapsed / NANOS).unwrap_or(0),
            total: row.total,
            done: row.examined,
            repaired: row.repaired,
            errors: row.errors,
            limit: self.limit().filter(|_| self.is_under_way()),
            detail: Detail::None,
        }))
    }
}

impl Scrub<'_> {
    /// Cancels the scrub, as [`Job::stop`].
    pub fn give_up(&self) -> Result<()> {
        self.end(ScrubState::Stopped, |state| matches!(state, ScrubState::Running | ScrubState::Paused))
    }

    /// Starts a scrub without a limit, or resumes a paused scrub.
    pub fn start(&self) -> Result<()> {
        self.start_at(None)
    }

    /// Starts a scrub with a limit in bytes per second, if any. A paused scrub resumes; a running scrub gets the new
    /// limit. The limit 0 means none.
    pub fn start_at(&self, limit: Option<u64>) -> Result<()> {
        self.datasets.engine().writable()?;
        let mut stepping = self.stepping()?;
        let before = self.datasets.jobs.scrubber.row.lock().clone();
        let goes_on = |row: &ScrubRow| matches!(row.state, ScrubState::Running | ScrubState::Paused);
        if let Some(limit) = limit.or_else(|| (!before.as_ref().is_some_and(goes_on)).then_some(0)) {
            self.datasets.throttle(Kind::Scrub).reset(Some(limit))?;
        }
        let row = match before.map(|row| (row.state, row)) {
            Some((ScrubState::Running, _)) if limit.is_some() => return Ok(()),
            Some((ScrubState::Running, _)) => {
                return Err(Error::Scrub {
                    problem: "a scrub is already in progress",
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
            return Err(Error::Scrub { problem: "there is no active scrub", remedy: "to start a scrub: pool scrub" });
        };
        self.put(&mut stepping, ScrubRow { state, end: self.datasets.now(), ..row })
    }

    /// The current scrub, or the last.
    pub fn status(&self) -> Result<Option<ScrubStatus>> {
        self.in_memory().map_or_else(|| self.stored(), |row| Ok(Some(row)))
    }

    /// The row in the catalogue. Does not ask for the time, which would advance the clock of a simulation.
    fn stored(&self) -> Result<Option<ScrubRow>> {
        let find = |tx: &Transaction<'_>| Ok(tx.find::<ScrubRow>(SCRUB)?.map(|(row, _)| row));
        self.datasets.engine().catalogue().read(|view| find(&Transaction::new(*view, 0)))
    }

    /// As [`Scrub::status`], from memory only.
    pub fn in_memory(&self) -> Option<ScrubStatus> {
        self.datasets.jobs.scrubber.row.lock().clone()
    }

    /// Makes a step of the scrub: examines about `budget` bytes, and repairs bad copies.
    pub fn advance(&self, budget: u64) -> Result<Progress> {
        if self.datasets.engine().writable().is_err() {
            return Ok(Progress::Idle);
        }
        let mut stepping = self.stepping()?;
        let before = self.datasets.jobs.scrubber.row.lock().clone();
        let Some(mut row) = before.filter(|row| row.state == ScrubState::Running) else { return Ok(Progress::Idle) };
        let examined = row.examined;
        let is_done = match row.position {
            ScrubPosition::Labels => self.labels(&mut row),
            ScrubPosition::Space { vdev, offset } => self.space(&mut row, OwnCursor { vdev, offset }, budget)?,
            ScrubPosition::Catalogue { cursor } => self.catalogue(&mut stepping, &mut row, key(cursor), budget)?,
            ScrubPosition::Datasets { .. } => self.data_sets(&mut stepping, &mut row, budget)?,
        };
        let now = self.datasets.now();
        row.elapsed = row.elapsed.saturating_add(u64::try_from(now - stepping.clock).unwrap_or(0));
        stepping.clock = now;
        self.datasets.jobs.scrubber.handled.fetch_add(row.examined.saturating_sub(examined), Ordering::Relaxed);
        let is_due = row.examined.saturating_sub(stepping.saved) >= SAVE_EVERY;
        *self.datasets.jobs.scrubber.row.lock() = Some(row.clone());
        if is_done {
            // If the catalogue does not take the end, the last step is retried.
            self.put(&mut stepping, ScrubRow { state: ScrubState::Finished, end: now, ..row })?;
            self.datasets.engine().note_scrub_ends();
        } else if is_due {
            self.put(&mut stepping, row)?;
        }
        Ok(Progress::Worked)
    }

    /// Saves the position in the catalogue, so that a crash costs only later work.
    pub fn save(&self) -> Result<()> {
        let mut stepping = self.stepping()?;
        let row = self.datasets.jobs.scrubber.row.lock().clone();
        match row.filter(|row| row.state == ScrubState::Running && row.examined != stepping.saved) {
            Some(row) => self.put(&mut stepping, row),
            None => Ok(()),
        }
    }

    /// Runs a request that moves snapshots between datasets: a scrub among the datasets restarts at the first.
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

    /// Excludes other users of the scrub, and loads the row.
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
        let mut examined = self.datasets.engine().hold_still().repair_labels();
        examined += self.datasets.engine().repair_labels_apart();
        row.repaired += examined.repaired;
        row.position = ScrubPosition::Space { vdev: 0, offset: 0 };
        false
    }

    fn space(&self, row: &mut ScrubRow, from: OwnCursor, budget: u64) -> Result<bool> {
        let examined = self.datasets.engine().hold_still().repair_space(from, budget.min(SPACE_STEP));
        row.examined += examined.bytes;
        row.repaired += examined.repaired;
        row.errors += examined.lost;
        row.position = match examined.next {
            Some(OwnCursor { vdev, offset }) => ScrubPosition::Space { vdev, offset },
            None => ScrubPosition::Catalogue { cursor: cursor(Key::MIN) },
        };
        self.datasets.note_damage(if examined.lost > 0 { vec![Damage::of_space()] } else { Vec::new() })?;
        Ok(false)
    }

    fn catalogue(&self, stepping: &mut Stepping, row: &mut ScrubRow, from: Key, budget: u64) -> Result<bool> {
        let root = repair::committed_root(self.datasets.engine(), CATALOGUE)?;
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
                // All other blocks are the roots of trees.
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

    /// Continues with the datasets; true if all are done.
    fn data_sets(&self, stepping: &mut Stepping, row: &mut ScrubRow, budget: u64) -> Result<bool> {
        let ScrubPosition::Datasets { dataset, done, member: before, cursor: at } = row.position else {
            return Ok(true);
        };
        let (found, seen) = self.datasets.read(|tx| Ok((members::next_member(tx, dataset, done)?, tx.seen())))?;
        let found = found.filter(|_| dataset != 0);
        let Some(member) = found else { return self.next_data_set(row, dataset) };
        // The tree of the previous step may have become a snapshot; its keys are done there too.
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

    /// Examines a part of a tree, and repairs bad copies. Returns the key to continue at.
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
            let outcome = repair::repair(self.datasets.engine(), suspect, true)?;
            match outcome.verdict {
                Verdict::Repaired { copies } => {
                    row.repaired += stored(suspect, self.datasets.engine().sector()) * copies as u64
                }
                Verdict::Lost => row.errors += 1,
                // Everything below was skipped, and is below a younger node now.
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
    /// Whether a step was retried often enough: a constantly changing tree must not block the scrub.
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

/// Moves a scrub among the datasets back to the first dataset.
fn go_back(row: &mut ScrubRow) {
    if let ScrubPosition::Datasets { dataset, done, member, cursor: at } = &mut row.position {
        (*dataset, *done, *member, *at) = (0, Txg::ZERO, 0, cursor(Key::MIN));
    }
}

/// The bytes of one copy of a block.
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
