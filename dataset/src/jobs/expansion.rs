//! RAID-Z expansion: after a column was added, rows become as wide as the vdev, while the pool is in use. For the
//! argument that nothing is lost see the pool's `admin::columns`, [`pool::txg::Vacating`] and `space`; the steps are in
//! [`super::moving`].
//!
//! The expansion proceeds in rounds. A round closes the first regions with narrow rows, as many as leave half of the
//! free space; copies their content to other regions of the same width; and turns the emptied regions into fewer, wider
//! regions. If too few regions of the same width are empty even for one, the content is packed instead, block by block:
//! into wide rows if some are empty, because wide rows are not emptied again. Without space for a round, the expansion
//! waits. A removal, a rebalance, a defragmentation and a resize have priority, and do not start during a round.
//!
//! The space needed by a packed round shows only during the round, and another round may find its target space taken. A
//! round that runs out of space is given up. The next round of the same kind is at most half as large, or begins with
//! more space. Each completed round leaves fewer narrow rows, so the expansion terminates.
//!
//! The labels show that an expansion is under way: some rows do not use all columns. So no row of the catalogue is
//! needed, and nothing is stored about a round.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | before the regions of a round are wide | narrow rows: a round begins, perhaps with other regions |
//! | after that | fewer narrow rows, or none |
//!
//! The administrator may pause the expansion, or limit its speed, in the same row of the catalogue as a removal or a
//! rebalance ([`super::moving`]); the next job of the three resets the row. A paused expansion has no round: its
//! regions are reopened. An expansion cannot be cancelled; a permanent pause has the same effect: narrow rows stay
//! narrow.
//!
//! Nothing runs by itself: the [`Scheduler`](super::Scheduler) requests the steps, and [`Job::step`] widens the rows
//! when [`Expansion::advance`] reports so.

use pool::{
    admin::{Pool, Widening},
    format::vdev_config::Zone,
    space::{MovingPlan, Packs, Regions, Targets},
    units::{Txg, VdevId},
    vdev::State,
};

use super::{
    job::{Job, Step},
    kind::Kind,
    moving::{Emptying, Moving, refused},
    record::{Detail, JobRecord, JobState, Reason, seconds_between},
};
use crate::underway::expansion::{ExpansionStatus, Pause, Round, Short};
use crate::underway::moving::Work;
use crate::{
    admin::{Datasets, Progress},
    error::Result,
};

/// The result of a step of an expansion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expanding {
    /// A step was made, or no step is possible now.
    Went(Progress),
    /// From the vdev's first narrow region on, the given number of regions is empty, and no state needs the old
    /// content. The caller widens the regions, and then calls [`Expansion::has_widened`].
    Widens(VdevId, u32),
}

impl From<Pause> for JobState {
    fn from(pause: Pause) -> JobState {
        match pause {
            Pause::NoRoom => JobState::Waiting(Reason::NoRoom),
            Pause::Degraded => JobState::Waiting(Reason::Degraded),
            Pause::Unreadable => JobState::Waiting(Reason::Unreadable),
            Pause::Operator => JobState::Paused,
        }
    }
}

impl Short {
    /// Whether a round has more space, or is so much smaller that few more can fail.
    fn allows(&self, count: u32, empty: u32) -> bool {
        2 * count <= self.count || empty > self.empty
    }
}

/// The expansion of a RAID-Z.
pub struct Expansion<'a> {
    pub(super) datasets: &'a Datasets,
}

impl Job for Expansion<'_> {
    fn kind(&self) -> Kind {
        Kind::Expand
    }

    fn is_under_way(&self) -> bool {
        let vdevs = self.datasets.engine().storage().vdevs.all();
        vdevs.iter().any(|vdev| vdev.as_raidz().is_some_and(|raidz| raidz.zones().is_narrow()))
    }

    fn step(&self, pool: &Pool, budget: u64) -> Result<Step> {
        let Some(widening) = pool.widening() else { return Ok(Step::Idle) };
        Ok(match self.advance(widening.vdev, &widening.narrow, budget)? {
            Expanding::Went(Progress::Worked) => Step::Worked,
            // The expansion waits for space, a device or the administrator, or for a resize that waits for a device.
            Expanding::Went(Progress::Idle)
                if self.status().pause.is_some() || self.datasets.moving().is_under_way() =>
            {
                Step::Idle
            }
            Expanding::Went(Progress::Idle) => self.datasets.a_while(),
            Expanding::Widens(vdev, count) => {
                pool.widen(vdev, count)?;
                self.has_widened();
                Step::Worked
            }
        })
    }

    fn mover(&self) -> Option<Moving<'_>> {
        Some(self.datasets.moving())
    }

    /// Pauses the current expansion until resumed, also after the next import.
    fn pause(&self) -> Result<()> {
        self.datasets.engine().writable()?;
        let mut work = self.datasets.moving().work();
        self.check_expands_next()?;
        if self.datasets.moving().is_paused() {
            return refused("it is already paused".to_owned());
        }
        self.datasets.moving().pause()?;
        self.rest(&mut work);
        Ok(())
    }

    fn stop(&self, _pool: &Pool) -> Result<()> {
        refused("an expansion cannot be stopped: rows that are wide stay so".to_owned())
    }

    /// The record of a running expansion only: labels do not tell of a finished expansion.
    fn record(&self, pool: &Pool) -> Result<Option<JobRecord>> {
        let Some(Widening { name, columns, rows, done: rows_done, .. }) = pool.widening() else { return Ok(None) };
        let ExpansionStatus { pause, start, regions, total, copied } = self.status();
        let seconds = if regions == 0 { 0 } else { seconds_between(start, self.datasets.now()) };
        Ok(Some(JobRecord {
            kind: Kind::Expand,
            state: pause.map_or(JobState::Running, JobState::from),
            begun: start,
            ended: 0,
            seconds,
            rate: copied.checked_div(seconds).unwrap_or(0),
            total,
            done: copied,
            repaired: 0,
            errors: 0,
            limit: self.limit(),
            detail: Detail::Expansion { name, columns: columns as u64, rows, rows_done, regions: regions.into() },
        }))
    }
}

impl Expansion<'_> {
    /// The status of the current expansion.
    pub fn status(&self) -> ExpansionStatus {
        *self.datasets.jobs.expander.status.lock()
    }

    /// Prepares the start of an expansion, with a limit in bytes per second, if any.
    pub fn prepare(&self, limit: Option<u64>) -> Result<()> {
        let _work = self.datasets.moving().work();
        match self.datasets.moving().is_under_way() {
            // The expansion waits for the other job, and shares its limit.
            true if limit.is_none() => Ok(()),
            true => refused(
                "another job (removal, rebalance, defragmentation or resize) is running, with its own limit".to_owned(),
            ),
            false => self.datasets.moving().set_limit(limit),
        }
    }

    /// Resumes a paused expansion, or changes the limit, in bytes per second.
    pub fn go_on(&self, limit: Option<u64>) -> Result<()> {
        self.datasets.engine().writable()?;
        let _work = self.datasets.moving().work();
        self.check_expands_next()?;
        if !self.datasets.moving().is_paused() && limit.is_none() {
            return refused("it is already running".to_owned());
        }
        self.datasets.moving().go_on(limit)?;
        let mut status = self.datasets.jobs.expander.status.lock();
        status.pause = status.pause.filter(|pause| *pause != Pause::Operator);
        // Looks for space at once, whatever was found before.
        *self.datasets.jobs.expander.looked.lock() = Txg::ZERO;
        self.forget_short();
        Ok(())
    }

    fn check_expands_next(&self) -> Result<()> {
        if !self.is_under_way() {
            return refused("no RAID-Z expansion is in progress".to_owned());
        }
        match self.datasets.moving().is_under_way() {
            true => refused("it is waiting for another job (removal, rebalance, defragmentation or resize)".to_owned()),
            false => Ok(()),
        }
    }

    /// Ends the round because the administrator has paused the expansion; false while chunks are changing places.
    fn rest(&self, work: &mut Work) -> bool {
        let round = self.datasets.jobs.expander.round.lock().clone();
        if let Some(round) = round {
            self.give_round_up(work, &round, Some(Pause::Operator));
        }
        let has_none = self.datasets.jobs.expander.round.lock().is_none();
        if has_none {
            self.datasets.jobs.expander.status.lock().pause = Some(Pause::Operator);
        }
        has_none
    }

    /// Makes a step of expanding the RAID-Z `vdev`, with the given first narrow rows: copies about `budget` bytes while
    /// the pool is held still, or makes a few commits. Regions of another vdev already being emptied come first.
    pub fn advance(&self, vdev: VdevId, narrow: &Zone, budget: u64) -> Result<Expanding> {
        let mut work = self.datasets.moving().work();
        let idle = Ok(Expanding::Went(Progress::Idle));
        if self.datasets.engine().writable().is_err() || self.datasets.moving().is_under_way() {
            return idle;
        }
        if self.datasets.moving().is_paused() && self.rest(&mut work) {
            return idle;
        }
        let round = self.datasets.jobs.expander.round.lock().clone();
        let Some(round) = round else { return self.begin_round(&mut work, vdev, narrow) };
        let packs = if self.datasets.moving().may_pack(|| false)? { Packs::IfNeeded } else { Packs::Never };
        match self.datasets.moving().empty_step(&mut work, (&round.regions, &Targets::Anywhere), packs, budget)? {
            Emptying::Worked { copied, .. } => self.datasets.jobs.expander.status.lock().copied += copied,
            Emptying::Idle => return idle,
            Emptying::Vacated => {
                // Rows over all columns require all devices to be complete.
                if !self.are_complete(round.vdev)? {
                    self.datasets.jobs.expander.status.lock().pause = Some(Pause::Degraded);
                    return idle;
                }
                self.datasets.jobs.expander.status.lock().pause = None;
                self.datasets.engine().outlast_states()?;
                return Ok(Expanding::Widens(round.vdev, round.count));
            }
            Emptying::Unreadable => self.give_round_up(&mut work, &round, Some(Pause::Unreadable)),
            Emptying::NoRoom => self.fall_short(&mut work, &round),
        }
        Ok(Expanding::Went(Progress::Worked))
    }

    /// Ends the round after its regions were widened.
    pub fn has_widened(&self) {
        let _work = self.datasets.moving().work();
        *self.datasets.jobs.expander.round.lock() = None;
        self.forget_short();
        *self.datasets.jobs.expander.status.lock() = ExpansionStatus::default();
    }

    fn forget_short(&self) {
        *self.datasets.jobs.expander.short_whole.lock() = None;
        *self.datasets.jobs.expander.short_packed.lock() = None;
    }

    /// Fails during a round, for jobs that would empty other regions.
    pub(crate) fn check_none(&self) -> Result<()> {
        match *self.datasets.jobs.expander.round.lock() {
            Some(_) => refused("a RAID-Z is being expanded; pool wait -t raidz_expand waits for it".to_owned()),
            None => Ok(()),
        }
    }

    fn begin_round(&self, work: &mut Work, vdev: VdevId, narrow: &Zone) -> Result<Expanding> {
        let idle = Ok(Expanding::Went(Progress::Idle));
        let engine = self.datasets.engine();
        let paused = |pause| self.datasets.jobs.expander.status.lock().pause = Some(pause);
        if self.status().pause == Some(Pause::Unreadable) {
            return idle;
        }
        if !self.are_complete(vdev)? {
            paused(Pause::Degraded);
            return idle;
        }
        // The state was examined before, and offers no more space.
        let state = engine.committed();
        if std::mem::replace(&mut *self.datasets.jobs.expander.looked.lock(), state) == state {
            return idle;
        }
        let next = match self.next_round(vdev, narrow) {
            None => self.next_packed_round(vdev, narrow)?,
            whole => whole,
        };
        let Some((count, plan)) = next else {
            paused(Pause::NoRoom);
            return idle;
        };
        let regions = Regions::Range(vdev, narrow.first_region..narrow.first_region + count);
        let status =
            ExpansionStatus { pause: None, start: self.datasets.now(), regions: count, total: plan.bytes, copied: 0 };
        *self.datasets.jobs.expander.status.lock() = status;
        work.begin(None);
        engine.close(&regions);
        *self.datasets.jobs.expander.round.lock() = Some(Round { vdev, count, regions, plan });
        Ok(Expanding::Went(Progress::Worked))
    }

    /// Whether all devices of a vdev are complete.
    fn are_complete(&self, vdev: VdevId) -> Result<bool> {
        let members = self.datasets.engine().storage().vdevs.get(vdev)?.as_group().map(|group| group.members());
        Ok(members.is_some_and(|members| members.iter().all(|member| member.state() == State::Complete)))
    }

    /// The number of narrow regions that can be emptied together, and the plan: as many as leave half of the free
    /// space, or one.
    fn next_round(&self, vdev: VdevId, narrow: &Zone) -> Option<(u32, MovingPlan)> {
        let space = &self.datasets.engine().storage().space;
        let first = narrow.first_region;
        let plan = |count| space.moving_plan(&Regions::Range(vdev, first..first + count), &Targets::Anywhere);
        let room = plan(1).available;
        let leaves_half = |plan: &MovingPlan| (plan.available - plan.needed) * 2 >= room;
        let short = *self.datasets.jobs.expander.short_whole.lock();
        let count = most(narrow.regions, |count| {
            let plan = plan(count);
            plan.fits_whole()
                && (count == 1 || leaves_half(&plan))
                && short.is_none_or(|short| short.allows(count, plan.available))
        });
        (count > 0).then(|| (count, plan(count)))
    }

    /// As `next_round`, for a packed round where packing is necessary.
    fn next_packed_round(&self, vdev: VdevId, narrow: &Zone) -> Result<Option<(u32, MovingPlan)>> {
        let space = &self.datasets.engine().storage().space;
        let first = narrow.first_region;
        let plan = |count| space.moving_plan(&Regions::Range(vdev, first..first + count), &Targets::Anywhere);
        let short = *self.datasets.jobs.expander.short_packed.lock();
        let count = most(narrow.regions, |count| {
            let plan = plan(count);
            let is_easy = u64::from(plan.packed) * 2 <= u64::from(plan.spare);
            // One more region than the blocks need, because blocks do not fill regions to the last sector.
            plan.packed < plan.spare
                && (count == 1 || is_easy)
                && short.is_none_or(|short| short.allows(count, plan.spare))
        });
        Ok((count > 0 && self.datasets.moving().may_pack(|| true)?).then(|| (count, plan(count))))
    }

    /// Gives up a round that ran out of space. The expansion does not report a pause yet, because another round may
    /// still fit.
    fn fall_short(&self, work: &mut Work, round: &Round) {
        let (short, empty) = match round.plan.fits_whole() {
            true => (&self.datasets.jobs.expander.short_whole, round.plan.available),
            false => (&self.datasets.jobs.expander.short_packed, round.plan.spare),
        };
        *short.lock() = Some(Short { count: round.count, empty });
        *self.datasets.jobs.expander.looked.lock() = Txg::ZERO;
        self.give_round_up(work, round, None);
    }

    /// Gives up a round, unless chunks are changing places. The caller does not hold the pool still.
    fn give_round_up(&self, work: &mut Work, round: &Round, pause: Option<Pause>) {
        if self.datasets.moving().unpair(work) && self.datasets.engine().reopen(&round.regions) {
            *self.datasets.jobs.expander.round.lock() = None;
            *self.datasets.jobs.expander.status.lock() = ExpansionStatus { pause, ..ExpansionStatus::default() };
        }
    }
}

/// The largest number up to `limit` that fits, given that all smaller numbers fit; 0 if none does.
fn most(limit: u32, fits: impl Fn(u32) -> bool) -> u32 {
    let (mut least, mut beyond) = (0, limit.saturating_add(1));
    while beyond - least > 1 {
        let middle = least + (beyond - least) / 2;
        match fits(middle) {
            true => least = middle,
            false => beyond = middle,
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::tests::raidz::before_packing;

    #[test]
    fn a_round_without_room_is_followed_by_a_smaller_or_roomier_one() {
        let life = before_packing();
        let (datasets, widening) = (&life.world.datasets, life.pool.widening().unwrap());
        let (vdev, narrow) = (widening.vdev, &widening.narrow);
        assert!(datasets.expansion().next_round(vdev, narrow).is_none());
        let next = || datasets.expansion().next_packed_round(vdev, narrow).unwrap();
        let (count, plan) = next().unwrap();
        let found_too_little =
            |count, empty| *datasets.jobs.expander.short_packed.lock() = Some(Short { count, empty });
        let counts = || next().map(|(count, _)| count);
        found_too_little(count, plan.spare - 1);
        assert_eq!(counts(), Some(count));
        found_too_little(count, plan.spare);
        assert!(counts() < Some(count), "{:?} of {count}", counts());
        found_too_little(2 * count, plan.spare);
        assert_eq!(counts(), Some(count));
        // No smaller round is possible.
        found_too_little(1, plan.spare);
        assert_eq!(counts(), None);
        let idle = Expanding::Went(Progress::Idle);
        assert_eq!(datasets.expansion().advance(vdev, narrow, 1 << 20).unwrap(), idle);
        assert_eq!(datasets.expansion().status().pause, Some(Pause::NoRoom));
        // Resuming looks for space again, whatever was found before.
        datasets.expansion().pause().unwrap();
        datasets.expansion().go_on(None).unwrap();
        assert_eq!(counts(), Some(count));
    }

    #[test]
    fn a_round_whose_twins_were_taken_lets_the_next_be_packed() {
        let life = before_packing();
        let (datasets, widening) = (&life.world.datasets, life.pool.widening().unwrap());
        let (vdev, narrow) = (widening.vdev, &widening.narrow);
        let regions = Regions::Range(vdev, narrow.first_region..narrow.first_region + 1);
        // As if the twins had been there at the start.
        let plan = life.world.engine.storage().space.moving_plan(&regions, &Targets::Anywhere);
        let plan = MovingPlan { available: plan.needed, ..plan };
        datasets.moving().work().begin(None);
        datasets.engine().close(&regions);
        *datasets.jobs.expander.round.lock() = Some(Round { vdev, count: 1, regions, plan });
        let worked = Expanding::Went(Progress::Worked);
        while datasets.jobs.expander.round.lock().is_some() {
            assert_eq!(datasets.expansion().advance(vdev, narrow, 1 << 20).unwrap(), worked);
        }
        assert_eq!(datasets.expansion().status().pause, None, "it is not known yet whether it waits");
        assert_eq!(datasets.expansion().advance(vdev, narrow, 1 << 20).unwrap(), worked);
        assert!(datasets.expansion().status().regions > 0);
    }
}
