//! Which job takes the next step, how large the step is, and how long to wait before it. Nothing runs by itself: the owner of
//! the pool calls [`Scheduler::turn`] again and again, and waits in between for as long as it says. The service does so in a
//! thread; the crash simulator between what users do, with a clock of its own.
//!
//! Jobs take turns in the order of [`Kind::IN_ORDER`]. A job that works, or is about to go on, keeps those behind it waiting:
//! what lacks something is more urgent than what moves, and a scrub examines what has come to rest.
//!
//! Jobs come after the users of the pool. After each step the scheduler looks whether the devices were used meanwhile. If so, it
//! waits for twice as long as the step took: jobs get a third of the devices' time at most, and a user waits behind one step,
//! of 100 ms at most. Otherwise the next step comes at once and may be longer.

use std::time::Duration;

use pool::{admin::Pool, env::Env};

use super::{Job, Kind, Step, Stride, pace::Pace};
use crate::admin::{Datasets, Progress, Result};

/// How often the scheduler looks for something to do.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long the scheduler lets others have the devices after a step, to see whether there are any.
const GLANCE: Duration = Duration::from_millis(1);
/// How often the progress of jobs is saved.
const SAVE_EVERY: Duration = Duration::from_secs(10);

/// What a turn has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Whether something was done, and there may be more to do.
    pub worked: bool,
    /// The job that had the turn: it worked, or those behind it wait for it.
    pub job: Option<Kind>,
    /// How long to wait before the next turn.
    pub wait: Duration,
}

/// The size of steps.
enum Strides {
    /// All of so many bytes: for simulations.
    Fixed(u64),
    /// As long as a step should take.
    Measured { scrub: Stride, copying: Stride },
}

/// What was handled in what time, of jobs that have a limit. What moves chunks is counted together.
#[derive(Default)]
struct Paces {
    resilver: Pace,
    moving: Pace,
    scrub: Pace,
}

impl Paces {
    fn of(&mut self, kind: Kind) -> &mut Pace {
        match kind {
            Kind::Resilver => &mut self.resilver,
            Kind::Scrub => &mut self.scrub,
            _ => &mut self.moving,
        }
    }
}

/// Has the jobs of one pool take turns.
pub struct Scheduler {
    strides: Strides,
    paces: Paces,
    /// The operations that devices had been asked for after the last turn.
    operations: u64,
    /// When the progress of jobs was saved last.
    saved: Duration,
}

impl Scheduler {
    /// A scheduler whose steps take moments.
    pub fn new(datasets: &Datasets) -> Scheduler {
        let strides = Strides::Measured { scrub: Stride::of_scrub(), copying: Stride::of_copying() };
        Scheduler::with(strides, datasets)
    }

    /// A scheduler whose steps handle about `bytes` bytes, however long that takes.
    pub fn of_steps(bytes: u64, datasets: &Datasets) -> Scheduler {
        Scheduler::with(Strides::Fixed(bytes), datasets)
    }

    fn with(strides: Strides, datasets: &Datasets) -> Scheduler {
        let saved = datasets.engine().env().uptime();
        Scheduler { strides, paces: Paces::default(), operations: operations(datasets), saved }
    }

    /// Repairs what readers have met, and has one job do a step.
    ///
    /// # Errors
    /// If a device or the pool refuses. The next turn tries again.
    pub fn turn(&mut self, datasets: &Datasets, pool: &Pool) -> Result<Turn> {
        let env = datasets.engine().env();
        let (begun, is_busy) = (env.uptime(), operations(datasets) != self.operations);
        self.strides.set_alone(!is_busy);
        let done = self.round(datasets, pool);
        let took = env.uptime().saturating_sub(begun);
        if env.uptime().saturating_sub(self.saved) >= SAVE_EVERY {
            self.saved = env.uptime();
            self.save(datasets);
        }
        self.operations = operations(datasets);
        let (worked, job, until) = done?;
        let wait = match (worked, is_busy) {
            (false, _) => until.map_or(INTERVAL, |until| until.saturating_sub(env.uptime()).min(INTERVAL)),
            (true, true) => GLANCE + took * 2,
            (true, false) => GLANCE,
        };
        Ok(Turn { worked, job, wait })
    }

    /// What the owner of the pool has asked of devices since the last turn is no use by others.
    pub fn overlook(&mut self, datasets: &Datasets) {
        self.operations = operations(datasets);
    }

    /// Ends the work: repairs what readers have met, which nobody would know of afterwards, and saves how far jobs have come.
    pub fn finish(&mut self, datasets: &Datasets) {
        while matches!(datasets.mend_step(), Ok(Progress::Worked)) {}
        self.save(datasets);
    }

    /// Whether something was done, by which job, or which one is waited for, until when.
    fn round(&mut self, datasets: &Datasets, pool: &Pool) -> Result<(bool, Option<Kind>, Option<Duration>)> {
        let mended = datasets.mend_step()? == Progress::Worked;
        let (mut waits, mut soonest) = (None, None);
        for kind in Kind::IN_ORDER {
            match self.step(&*kind.of(datasets), datasets.engine().env(), pool)? {
                Step::Worked | Step::Done => return Ok((true, Some(kind), None)),
                Step::Idle => {}
                Step::Wait(until) => {
                    waits = waits.or(Some(kind));
                    soonest = Some(soonest.map_or(until, |soonest: Duration| soonest.min(until)));
                    if kind.keeps_turn() {
                        break;
                    }
                }
            }
        }
        Ok((mended, waits, soonest))
    }

    /// Has a job do a step, if it is due by its limit.
    fn step(&mut self, job: &dyn Job, env: &dyn Env, pool: &Pool) -> Result<Step> {
        let (now, limit) = (env.uptime(), job.limit().filter(|_| job.is_under_way()));
        if job.is_under_way() {
            let rest = self.paces.of(job.kind()).wait(now, job.handled(), limit);
            if !rest.is_zero() {
                return Ok(Step::Wait(now + rest));
            }
        }
        let step = job.step(pool, Pace::step(self.strides.bytes(job.kind()), limit))?;
        if matches!(step, Step::Worked | Step::Done) {
            self.strides.took(job.kind(), env.uptime().saturating_sub(now));
        }
        Ok(step)
    }

    fn save(&self, datasets: &Datasets) {
        if datasets.engine().writable().is_err() {
            return;
        }
        if let Err(error) = datasets.scrub().save() {
            tracing::warn!("the progress of the scrub is not saved: {error}");
        }
        if let Err(error) = datasets.resilver().save() {
            tracing::warn!("the progress of the resilver is not saved: {error}");
        }
    }
}

impl Strides {
    fn of(&mut self, kind: Kind) -> Option<&mut Stride> {
        match (self, kind) {
            (Strides::Fixed(_), _) => None,
            (Strides::Measured { scrub, .. }, Kind::Scrub) => Some(scrub),
            (Strides::Measured { copying, .. }, _) => Some(copying),
        }
    }

    fn bytes(&mut self, kind: Kind) -> u64 {
        match self {
            Strides::Fixed(bytes) => *bytes,
            _ => self.of(kind).map_or(0, |stride| stride.bytes()),
        }
    }

    fn took(&mut self, kind: Kind, time: Duration) {
        if let Some(stride) = self.of(kind) {
            stride.took(time);
        }
    }

    fn set_alone(&mut self, is_alone: bool) {
        if let Strides::Measured { scrub, copying } = self {
            scrub.set_alone(is_alone);
            copying.set_alone(is_alone);
        }
    }
}

/// The operations that the devices were asked for.
fn operations(datasets: &Datasets) -> u64 {
    let vdevs = datasets.engine().storage().vdevs.all();
    let counts = vdevs.iter().flat_map(|vdev| vdev.leaves()).map(|leaf| leaf.counters().snapshot());
    counts.map(|counts| counts.reads + counts.writes).sum()
}
