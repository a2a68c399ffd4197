//! Scrubs that start by themselves when due.
//!
//! A scrub is due `scrub_interval` after the end of the last scrub, or after the creation of the pool. A stopped scrub
//! counts as ended, and nothing resumes a paused scrub.
//!
//! A due scrub starts after a minute with few requests to the devices. On devices without such a minute the scrub
//! starts after a tenth of the interval, and after a day at the latest. Each start has a random delay, so pools with the
//! same interval and age do not all begin at once. After an import nothing starts for [`AFTER_IMPORT`] and a random
//! time, for the same reason: after a long pause all pools of a machine may be due.
//!
//! The owner of the pool calls [`DueScrub::step`] again and again; time and chance come from the pool's
//! [`Env`](pool::env::Env).

use std::time::Duration;

use pool::env::Nanos;

use super::{Job, kind::Kind, scheduler::operations};
use crate::{
    admin::Datasets,
    catalogue::{DatasetRow, ROOT, ScrubState, dataset_key},
    error::Result,
    property::pool::SCRUB_INTERVAL,
};

const NANOS: Nanos = 1_000_000_000;
/// The shortest time between an import and the start of a due scrub.
const AFTER_IMPORT: Duration = Duration::from_secs(5 * 60);
/// The most that chance adds to [`AFTER_IMPORT`] or to the time of a due scrub, in seconds.
const SPREAD: u64 = 25 * 60;
/// The period over which the requests to the devices are counted.
const PERIOD: Duration = Duration::from_secs(60);
/// The most requests in a period of idle devices: two a second.
const QUIET: u64 = 120;
/// The longest delay of a due scrub whose devices are never idle, in seconds.
const LATEST: Nanos = 86_400;

/// The times of a pool's next scrub, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// The scrub may start from here on.
    pub from: Nanos,
    /// The scrub starts by then even if the devices are busy, and is overdue from here on.
    pub latest: Nanos,
}

impl Datasets {
    /// The times of the next scrub; `None` with `scrub_interval=off`, while a scrub runs, if the pool takes no changes,
    /// or if the catalogue cannot be read.
    pub fn due_scrub(&self) -> Option<Due> {
        let seconds = Nanos::try_from(self.pool_setting(&SCRUB_INTERVAL)).ok().filter(|seconds| *seconds > 0)?;
        self.engine().writable().ok()?;
        let last = self.last_scrub().ok()??;
        let from = last.saturating_add(seconds.saturating_mul(NANOS));
        Some(Due { from, latest: from.saturating_add((seconds / 10).min(LATEST) * NANOS) })
    }

    /// The end of the last scrub, or the start of a paused one, or else the creation of the pool. `None` while a scrub
    /// runs: a scrub may take longer than the interval.
    fn last_scrub(&self) -> Result<Option<Nanos>> {
        match self.scrub().status()? {
            Some(row) if row.state == ScrubState::Running => Ok(None),
            Some(row) if row.state == ScrubState::Paused || row.end == 0 => Ok(Some(row.start)),
            Some(row) => Ok(Some(row.end)),
            None => self.read(|tx| Ok(Some(tx.row::<DatasetRow>(dataset_key(ROOT))?.creation))),
        }
    }
}

/// Watches the devices of an open pool for a good moment.
pub struct DueScrub {
    /// No scrub starts before this uptime.
    not_before: Duration,
    /// The begin of the period, and the requests to the devices up to then.
    begun: Duration,
    requests: u64,
    /// Whether the devices were idle during the last full period.
    is_idle: bool,
    /// The random delay of the scrub due at this time.
    delay: (Nanos, Nanos),
}

impl DueScrub {
    /// For a pool that was just opened.
    pub fn new(datasets: &Datasets) -> DueScrub {
        let env = datasets.engine().env();
        let begun = env.uptime();
        let not_before = begun + AFTER_IMPORT + Duration::from_secs(env.random() % SPREAD);
        DueScrub { not_before, begun, requests: operations(datasets), is_idle: false, delay: (0, 0) }
    }

    /// Starts a scrub if one is due and the moment is good. Returns whether a scrub was started. The limit of the last
    /// scrub applies to this one too.
    ///
    /// # Errors
    /// If the pool takes no changes. The next step tries again.
    pub fn step(&mut self, datasets: &Datasets) -> Result<bool> {
        let env = datasets.engine().env();
        let now = env.uptime();
        if now.saturating_sub(self.begun) >= PERIOD {
            let requests = operations(datasets);
            self.is_idle = requests.saturating_sub(self.requests) <= QUIET;
            (self.begun, self.requests) = (now, requests);
        }
        let engine = datasets.engine();
        if now < self.not_before || engine.writable().is_err() || engine.suspension().is_suspended() {
            return Ok(false);
        }
        let Some(due) = datasets.due_scrub() else { return Ok(false) };
        let (time, is_under_way) = (env.now(), datasets.scrub().is_under_way());
        let delay = self.delay(due, env.random());
        let is_moment =
            time >= due.latest.saturating_sub(delay) || time >= due.from.saturating_add(delay) && self.is_idle;
        if !is_moment || is_under_way || datasets.resilver().is_under_way() {
            return Ok(false);
        }
        datasets.scrub().start_at(datasets.throttle(Kind::Scrub).limit())?;
        Ok(true)
    }

    /// The delay of a due scrub. Also the start on busy devices moves, to an earlier time, so it is never overdue.
    fn delay(&mut self, due: Due, random: u64) -> Nanos {
        if self.delay.0 != due.from {
            let room = SPREAD.min((due.latest.abs_diff(due.from)) / NANOS.unsigned_abs() / 2).max(1);
            self.delay = (due.from, (random % room).cast_signed() * NANOS);
        }
        self.delay.1
    }

    /// Leaves out requests that the owner of the pool has made by itself since the last turn.
    pub fn overlook(&mut self, requests: u64) {
        self.requests = self.requests.saturating_add(requests);
    }
}
