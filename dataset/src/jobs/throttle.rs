//! Pause and limit of a job, as the administrator set them, in rows of the catalogue: one for all jobs that move
//! chunks, one for the resilver, and one for the scrub.
//!
//! The rows are stored under the feature `rebalance`. Without the feature, a limit of scrub or resilver, and a pause of
//! the resilver, last until the pool is closed.

use parking_lot::Mutex;
use pool::format::{key::Key, label::REBALANCE};

use super::kind::Kind;
use crate::catalogue::{POOL, PaceRow, kind};
use crate::{
    admin::{Datasets, table::feature},
    error::Result,
};

/// The offset of the row of the jobs that move chunks.
const MOVING: usize = 0;

/// Pause and limit of one job, or of all jobs that move chunks.
pub(crate) struct Throttle<'a> {
    datasets: &'a Datasets,
    offset: usize,
}

impl Datasets {
    /// Pause and limit of a job. All jobs that move chunks share a throttle, because at most one is under way.
    pub(crate) fn throttle(&self, kind: Kind) -> Throttle<'_> {
        let offset = match kind {
            Kind::Resilver => 1,
            Kind::Scrub => 2,
            _ => MOVING,
        };
        Throttle { datasets: self, offset }
    }

    /// Loads all rows of an opened pool.
    pub(crate) fn load_throttles(&self) {
        [Kind::Rebalance, Kind::Resilver, Kind::Scrub].into_iter().for_each(|kind| self.throttle(kind).load());
    }
}

impl Throttle<'_> {
    fn load(&self) {
        // The feature is activated before the row is written.
        if self.datasets.engine().is_active(REBALANCE) {
            *self.row().lock() = self.datasets.moving().stored(self.key()).unwrap_or_default();
        }
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.row().lock().paused
    }

    /// The limit in bytes per second, if set.
    pub(crate) fn limit(&self) -> Option<u64> {
        Some(self.row().lock().limit).filter(|limit| *limit > 0)
    }

    pub(crate) fn pause(&self) -> Result<()> {
        let limit = self.row().lock().limit;
        self.set(PaceRow { paused: true, limit })
    }

    /// Resumes, with the given or the previous limit. The limit 0 means none.
    pub(crate) fn go_on(&self, limit: Option<u64>) -> Result<()> {
        let limit = limit.unwrap_or(self.row().lock().limit);
        self.set(PaceRow { paused: false, limit })
    }

    /// Ends a pause, and sets or removes the limit.
    pub(crate) fn reset(&self, limit: Option<u64>) -> Result<()> {
        self.set(PaceRow { paused: false, limit: limit.unwrap_or(0) })
    }

    fn set(&self, row: PaceRow) -> Result<()> {
        if *self.row().lock() == row {
            return Ok(());
        }
        if self.is_durable()? {
            self.datasets.engine().activate(REBALANCE)?;
            let (key, stored) = (self.key(), row.clone());
            self.datasets.run(move |tx| {
                tx.put(key, &stored, None);
                Ok(())
            })?;
        }
        *self.row().lock() = row;
        Ok(())
    }

    /// Whether the row may be stored.
    ///
    /// # Errors
    /// If the feature is disabled, for a job that moves chunks: such jobs continue after an export, with their limit.
    fn is_durable(&self) -> Result<bool> {
        if self.offset == MOVING {
            return self.datasets.check_feature(REBALANCE).map(|()| true);
        }
        let is_active = self.datasets.engine().is_active(REBALANCE);
        Ok(is_active || self.datasets.read(|tx| feature::is_enabled(tx, REBALANCE))?)
    }

    fn key(&self) -> Key {
        Key::new(POOL, kind::PACE, self.offset as u64)
    }

    fn row(&self) -> &Mutex<PaceRow> {
        &self.datasets.jobs.throttles.0[self.offset]
    }
}
