//! Expanding a RAID-Z: it has got a column more, and its rows become as wide, while everything is in use. Why nothing is lost
//! is argued in the pool's `admin::columns`, [`pool::txg::Vacating`] and `space`; the steps are [`super::moving`]'s.
//!
//! It goes in rounds. The first regions of those with narrow rows are closed, as many as leave half of the room that there
//! is; what lies there is copied to others of the same width; then these regions become fewer and wider ones. When too few
//! of the same width are empty even for one, what lies there is packed instead, block by block: in wide rows as long as some
//! are empty, for those are not emptied again. When there is no room for a round, it waits for some. A removal, a rebalance,
//! a defragmentation and a resize come first, and do not begin while there is a round.
//!
//! How much room a round takes that is packed shows when it is, and one that is not may find that others have taken what it
//! was to be copied to. A round that finds too little is given up; of its kind only one half as large follows, or one that begins with more
//! room than it did. Each that comes to its end leaves fewer narrow rows, so there is an end to them.
//!
//! That an expansion is under way is what the labels say: there are rows that have not all columns that reach there. So no row of the catalogue
//! is needed, and nothing is stored of a round.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | before the regions of a round are wide | narrow rows: a round begins, perhaps with other regions |
//! | after that | fewer narrow rows, or none |
//!
//! An operator may have it wait, or limit how fast it copies: the row of the catalogue that says so is the one of a removal
//! and a rebalance ([`super::moving`]), and whatever of the three is begun next begins with that anew. What waits has no
//! round: its regions are given back. To stop for good is not possible, and to wait for ever is the same: the rows that are
//! narrow stay so.
//!
//! Nothing runs by itself: the [`Scheduler`](super::Scheduler) calls for step after step, and a step of
//! [`Job::step`] makes the rows wide when [`Expansion::advance`] says so.

use parking_lot::Mutex;
use pool::{
    admin::Pool,
    env::Nanos,
    format::vdev_config::Zone,
    space::{MovingPlan, Packs, Regions, Targets},
    units::{Txg, VdevId},
    vdev::State,
};

use super::{
    Job, Kind, Step,
    moving::{Emptying, Work, refused},
};
use crate::admin::{Datasets, Progress, Result};

/// What a step of an expansion has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expanding {
    /// A step was done, or nothing can be done now.
    Went(Progress),
    /// Nothing is in so many regions of this vdev any more, from its first narrow one on, and no state needs them. They are to
    /// become wide, and then [`Expansion::has_widened`] to be called.
    Widens(VdevId, u32),
}

/// Why an expansion does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// What lies in narrow rows finds too little room in others.
    NoRoom,
    /// Not all devices of the RAID-Z hold everything.
    Degraded,
    /// Something could not be read. It is tried again when the pool is opened the next time.
    Unreadable,
    /// The operator has said so, until he says otherwise.
    Operator,
}

/// How the round of an expansion stands, since the pool was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpansionStatus {
    /// Why it does not go on.
    pub pause: Option<Pause>,
    /// When the round began.
    pub start: Nanos,
    /// How many regions become wide with it; none if there is no round.
    pub regions: u32,
    /// The bytes that lie there.
    pub total: u64,
    /// Those that were copied.
    pub copied: u64,
}

/// The expansion of an opened pool.
#[derive(Default)]
pub(crate) struct Expander {
    /// Changed by whoever does the mover's work.
    round: Mutex<Option<Round>>,
    /// How it stands. Read at any time.
    status: Mutex<ExpansionStatus>,
    /// The state in which there was no room for a round.
    looked: Mutex<Txg>,
    /// The last round that was not to be packed and for which there was too little room, since one came to its end.
    short_whole: Mutex<Option<Short>>,
    /// The same of those that were to be packed.
    short_packed: Mutex<Option<Short>>,
}

/// A round of so many regions did not find room, though so many were empty when it began.
#[derive(Clone, Copy)]
struct Short {
    count: u32,
    empty: u32,
}

impl Short {
    /// Whether a round has more room, or is smaller by so much that few follow.
    fn allows(&self, count: u32, empty: u32) -> bool {
        2 * count <= self.count || empty > self.empty
    }
}

/// Regions of a vdev that are emptied.
#[derive(Clone)]
struct Round {
    vdev: VdevId,
    count: u32,
    regions: Regions,
    /// What it was to take when it began.
    plan: MovingPlan,
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
            // It waits for room, a device or the operator, or for a resize that waits for a device.
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

    fn limit(&self) -> Option<u64> {
        self.datasets.moving().limit()
    }

    fn handled(&self) -> u64 {
        self.datasets.moving().copied()
    }

    /// Has the expansion wait that is under way, until it is told to go on; also after the next import.
    fn pause(&self) -> Result<()> {
        self.datasets.engine().writable()?;
        let mut work = self.datasets.moving().work();
        self.check_expands_next()?;
        if self.datasets.moving().is_paused() {
            return refused("it is paused already".to_owned());
        }
        self.datasets.moving().pause()?;
        self.rest(&mut work);
        Ok(())
    }

    fn stop(&self, _pool: &Pool) -> Result<()> {
        refused("an expansion cannot be stopped: rows that are wide stay so".to_owned())
    }
}

impl Expansion<'_> {
    /// How the expansion stands, if one is under way.
    pub fn status(&self) -> ExpansionStatus {
        *self.datasets.jobs.expander.status.lock()
    }

    /// An expansion is about to begin, at `limit` bytes a second if there is one.
    pub fn prepare(&self, limit: Option<u64>) -> Result<()> {
        let _work = self.datasets.moving().work();
        match self.datasets.moving().is_under_way() {
            // It waits for these, and goes by what was said of them.
            true if limit.is_none() => Ok(()),
            true => refused(
                "a removal, a rebalance, a defragmentation or a resize is under way, and has its own limit".to_owned(),
            ),
            false => self.datasets.moving().set_limit(limit),
        }
    }

    /// Has an expansion that waits go on, or gives the one that is under way another limit, in bytes a second.
    pub fn go_on(&self, limit: Option<u64>) -> Result<()> {
        self.datasets.engine().writable()?;
        let _work = self.datasets.moving().work();
        self.check_expands_next()?;
        if !self.datasets.moving().is_paused() && limit.is_none() {
            return refused("it is under way already".to_owned());
        }
        self.go_on(limit)?;
        let mut status = self.datasets.jobs.expander.status.lock();
        status.pause = status.pause.filter(|pause| *pause != Pause::Operator);
        // It looks for room at once, whatever found too little before.
        *self.datasets.jobs.expander.looked.lock() = Txg::ZERO;
        self.forget_short();
        Ok(())
    }

    fn check_expands_next(&self) -> Result<()> {
        if !self.is_under_way() {
            return refused("no raidz is being expanded".to_owned());
        }
        match self.datasets.moving().is_under_way() {
            true => refused("it waits for a removal, a rebalance, a defragmentation or a resize".to_owned()),
            false => Ok(()),
        }
    }

    /// Has no round, because the operator has said so; `false` as long as chunks are changing places.
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

    /// Does a step of expanding the RAID-Z `vdev`, whose first narrow rows are these: copies about `budget` bytes while the
    /// pool is held still, or makes a few commits. Regions of another one that are being emptied come first.
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
                // Rows of all columns want all of these to be complete.
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

    /// The regions of the round are wide.
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

    /// Refuses to empty other regions while there is a round.
    pub(crate) fn check_none(&self) -> Result<()> {
        match *self.datasets.jobs.expander.round.lock() {
            Some(_) => refused("a raidz is being expanded; pool wait -t raidz_expand waits for it".to_owned()),
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
        // In a state that was looked at there is no more room than there was.
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

    /// Whether every device of a vdev holds everything.
    fn are_complete(&self, vdev: VdevId) -> Result<bool> {
        let members = self.datasets.engine().storage().vdevs.get(vdev)?.as_group().map(|group| group.members());
        Ok(members.is_some_and(|members| members.iter().all(|member| member.state() == State::Complete)))
    }

    /// How many of the narrow regions can be emptied together, and how much lies there: as many as leave half of the room,
    /// or one.
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

    /// The same if what lies there is packed, which may be done where it has to.
    fn next_packed_round(&self, vdev: VdevId, narrow: &Zone) -> Result<Option<(u32, MovingPlan)>> {
        let space = &self.datasets.engine().storage().space;
        let first = narrow.first_region;
        let plan = |count| space.moving_plan(&Regions::Range(vdev, first..first + count), &Targets::Anywhere);
        let short = *self.datasets.jobs.expander.short_packed.lock();
        let count = most(narrow.regions, |count| {
            let plan = plan(count);
            let is_easy = u64::from(plan.packed) * 2 <= u64::from(plan.spare);
            // One more than they are, as blocks do not fill regions to the last sector.
            plan.packed < plan.spare
                && (count == 1 || is_easy)
                && short.is_none_or(|short| short.allows(count, plan.spare))
        });
        Ok((count > 0 && self.datasets.moving().may_pack(|| true)?).then(|| (count, plan(count))))
    }

    /// Gives a round up for which there was too little room. Whether there is for another one is looked at next, so nobody is
    /// told yet that it waits.
    fn fall_short(&self, work: &mut Work, round: &Round) {
        let (short, empty) = match round.plan.fits_whole() {
            true => (&self.datasets.jobs.expander.short_whole, round.plan.available),
            false => (&self.datasets.jobs.expander.short_packed, round.plan.spare),
        };
        *short.lock() = Some(Short { count: round.count, empty });
        *self.datasets.jobs.expander.looked.lock() = Txg::ZERO;
        self.give_round_up(work, round, None);
    }

    /// Gives a round up, unless chunks are changing places: then it goes on. Nobody holds the pool still.
    fn give_round_up(&self, work: &mut Work, round: &Round, pause: Option<Pause>) {
        if self.datasets.moving().unpair(work) && self.datasets.engine().reopen(&round.regions) {
            *self.datasets.jobs.expander.round.lock() = None;
            *self.datasets.jobs.expander.status.lock() = ExpansionStatus { pause, ..ExpansionStatus::default() };
        }
    }
}

/// The largest number up to `limit` that fits, where all smaller ones do; zero if none does.
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
    fn after_a_round_for_which_there_was_too_little_room_a_smaller_one_follows_or_one_with_more_room() {
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
        // There is no smaller one.
        found_too_little(1, plan.spare);
        assert_eq!(counts(), None);
        let idle = Expanding::Went(Progress::Idle);
        assert_eq!(datasets.expansion().advance(vdev, narrow, 1 << 20).unwrap(), idle);
        assert_eq!(datasets.expansion().status().pause, Some(Pause::NoRoom));
        // Whoever has it go on has it look for room whatever was found.
        datasets.expansion().pause().unwrap();
        datasets.expansion().go_on(None).unwrap();
        assert_eq!(counts(), Some(count));
    }

    #[test]
    fn a_round_whose_twins_others_have_taken_does_not_keep_the_next_one_from_being_packed() {
        let life = before_packing();
        let (datasets, widening) = (&life.world.datasets, life.pool.widening().unwrap());
        let (vdev, narrow) = (widening.vdev, &widening.narrow);
        let regions = Regions::Range(vdev, narrow.first_region..narrow.first_region + 1);
        // As if its twins had been there when it began.
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
