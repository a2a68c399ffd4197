//! Decides which job takes the next step, the size of the step, and the wait before it. Nothing runs by itself: the
//! owner of the pool calls [`Scheduler::turn`] repeatedly, and waits in between for the returned time. The service does
//! so in a thread; the crash simulator between the operations of users, with a simulated clock.
//!
//! Jobs take turns in the order of [`Kind::IN_ORDER`]. A working or waiting job delays all later jobs: missing
//! redundancy is more urgent than moving data, and a scrub examines data that no longer moves.
//!
//! Users have priority over jobs. After each step the scheduler checks whether the devices were used meanwhile. If so,
//! the wait is twice the time of the step: jobs get at most a third of the devices' time, and a user waits for at most
//! one step, of at most 100 ms. Otherwise the next step follows at once and may be longer. A pass over free space rests
//! as long as each step takes; an initialization rests only beside users.

use std::time::Duration;

use pool::{admin::Pool, device::IoPurpose, env::Env};

use super::{
    job::{Job, Step},
    kind::Kind,
    pace::Pace,
    stride::Stride,
};
use crate::{
    admin::{Datasets, Progress},
    error::Result,
};

/// The interval at which an idle scheduler looks for work.
const INTERVAL: Duration = Duration::from_secs(1);
/// The pause after a step in which other users of the devices can be noticed.
const GLANCE: Duration = Duration::from_millis(1);
/// The interval at which a pass without work looks for work.
const PASS_INTERVAL: Duration = Duration::from_secs(2);
/// The bytes trimmed by one step.
const TRIM_STEP: u64 = 64 << 20;
/// The interval at which the progress of jobs is saved.
const SAVE_EVERY: Duration = Duration::from_secs(10);

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Whether a step was made; more work may follow.
    pub worked: bool,
    /// The job that had the turn: the job worked, or delays all later jobs.
    pub job: Option<Kind>,
    /// The wait before the next turn.
    pub wait: Duration,
}

/// The sizes of steps.
enum Strides {
    /// A fixed number of bytes: for simulations.
    Fixed(u64),
    /// Sizes adapted so that a step takes a given time.
    Measured { scrub: Stride, copying: Stride, initializing: Stride },
}

/// The bytes handled and the time, for jobs with a limit. All jobs that move chunks are counted together.
#[derive(Default)]
struct Paces {
    resilver: Pace,
    moving: Pace,
    scrub: Pace,
    trim: Pace,
    initialization: Pace,
}

/// The turns of a pass over free space, apart from the turns of the ordered jobs.
struct PassTurns {
    kind: Kind,
    /// The uptime of the next turn.
    next: Duration,
    /// Whether a pass is under way: otherwise the pass only looks for work, in the turns of the other jobs.
    is_under_way: bool,
}

impl Paces {
    fn of(&mut self, kind: Kind) -> &mut Pace {
        match kind {
            Kind::Resilver => &mut self.resilver,
            Kind::Scrub => &mut self.scrub,
            Kind::Trim => &mut self.trim,
            Kind::Initialize => &mut self.initialization,
            _ => &mut self.moving,
        }
    }
}

/// Schedules the jobs of one pool.
pub struct Scheduler {
    strides: Strides,
    paces: Paces,
    /// The sum of device operations after the last turn.
    operations: u64,
    /// The uptime when the progress of jobs was last saved.
    saved: Duration,
    /// The uptime of the next turn of the ordered jobs, if a turn of a pass under way comes before.
    next: Option<Duration>,
    passes: [PassTurns; 2],
}

impl Scheduler {
    /// A scheduler with short steps of measured size.
    pub fn new(datasets: &Datasets) -> Scheduler {
        let [copying, initializing] = [(); 2].map(|()| Stride::of_copying());
        Scheduler::with(Strides::Measured { scrub: Stride::of_scrub(), copying, initializing }, datasets)
    }

    /// A scheduler with steps of about `bytes` bytes, however long a step takes.
    pub fn of_steps(bytes: u64, datasets: &Datasets) -> Scheduler {
        Scheduler::with(Strides::Fixed(bytes), datasets)
    }

    fn with(strides: Strides, datasets: &Datasets) -> Scheduler {
        let saved = datasets.engine().env().uptime();
        let operations = operations(datasets);
        let passes = Kind::PASSES.map(|kind| PassTurns { kind, next: Duration::ZERO, is_under_way: false });
        Scheduler { strides, paces: Paces::default(), operations, saved, next: None, passes }
    }

    /// Lets the next turn come at once, because a command may have given work to a job.
    pub fn wake(&mut self) {
        self.next = None;
        self.passes.iter_mut().for_each(|pass| pass.next = Duration::ZERO);
    }

    /// Lets each pass make a step, if due. Then repairs blocks reported by readers, and lets one job make a step,
    /// unless only passes are due.
    ///
    /// # Errors
    /// If a device or the pool fails. The next turn tries again.
    pub fn turn(&mut self, datasets: &Datasets, pool: &Pool) -> Result<Turn> {
        let env = datasets.engine().env();
        let mut passed = false;
        for number in 0..self.passes.len() {
            passed |= self.pass_turn(number, datasets, pool)?;
        }
        let ordered = match self.next.filter(|next| env.uptime() < *next) {
            Some(next) => Turn { worked: false, job: None, wait: next.saturating_sub(env.uptime()) },
            None => self.ordered_turn(datasets, pool)?,
        };
        let now = env.uptime();
        let next = now + ordered.wait;
        let under_way = self.passes.iter().filter(|pass| pass.is_under_way).min_by_key(|pass| pass.next);
        let sooner = under_way.map(|pass| pass.next).filter(|due| *due < next);
        self.next = sooner.map(|_| next);
        Ok(Turn {
            worked: ordered.worked || passed,
            job: ordered.job.or(under_way.map(|pass| pass.kind)),
            wait: sooner.map_or(ordered.wait, |due| due.saturating_sub(now)),
        })
    }

    /// Lets a pass make a step, if due. Returns whether a step was made.
    fn pass_turn(&mut self, number: usize, datasets: &Datasets, pool: &Pool) -> Result<bool> {
        let env = datasets.engine().env();
        let (begun, kind) = (env.uptime(), self.passes[number].kind);
        if begun < self.passes[number].next {
            return Ok(false);
        }
        let before = operations(datasets);
        let is_alone = before == self.operations;
        let step = self.step(&*kind.of(datasets), env, pool)?;
        // A pass itself is no use of the devices by others.
        self.operations += operations(datasets).saturating_sub(before);
        let now = env.uptime();
        let next = match step {
            Step::Worked | Step::Done if is_alone && kind == Kind::Initialize => now + GLANCE,
            Step::Worked | Step::Done => now + now.saturating_sub(begun).min(PASS_INTERVAL),
            Step::Wait(until) => until.min(now + PASS_INTERVAL),
            Step::Idle => now + PASS_INTERVAL,
        };
        self.passes[number] = PassTurns { kind, next, is_under_way: step != Step::Idle };
        Ok(matches!(step, Step::Worked | Step::Done))
    }

    /// Repairs blocks that readers have reported, and lets one job of the order make a step.
    fn ordered_turn(&mut self, datasets: &Datasets, pool: &Pool) -> Result<Turn> {
        let env = datasets.engine().env();
        let (begun, is_busy) = (env.uptime(), operations(datasets) != self.operations);
        self.strides.set_alone(!is_busy);
        let done = self.round(datasets, pool, Kind::IN_ORDER.map(|kind| kind.of(datasets)));
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

    /// Finishes at export: repairs blocks that readers have reported, because the reports are in memory only, and saves
    /// the progress of jobs.
    pub fn finish(&mut self, datasets: &Datasets) {
        while matches!(datasets.repair_step(), Ok(Progress::Worked)) {}
        self.save(datasets);
    }

    /// Returns whether a step was made, the job that made the step or is waited for, and until when.
    ///
    /// # Errors
    /// The first error. A job whose step fails does not delay later jobs: a job that fails again and again would
    /// otherwise keep a scrub from ever repairing the cause.
    pub(super) fn round<'a>(
        &mut self,
        datasets: &Datasets,
        pool: &Pool,
        jobs: impl IntoIterator<Item = Box<dyn Job + 'a>>,
    ) -> Result<(bool, Option<Kind>, Option<Duration>)> {
        let movers = Kind::IN_ORDER.iter().filter(|kind| kind.is_mover() && kind.of(datasets).is_under_way());
        assert!(movers.count() <= 1, "JOB-1: several jobs that move chunks are in progress");
        let repaired = IoPurpose::Scrub.during(|| datasets.repair_step());
        let (mut worked, mut failed) = (matches!(repaired, Ok(Progress::Worked)), repaired.err());
        let (mut has_turn, mut soonest) = (None, None);
        for job in jobs {
            match self.step(&*job, datasets.engine().env(), pool) {
                Ok(Step::Worked | Step::Done) => {
                    (worked, has_turn, soonest) = (true, Some(job.kind()), None);
                    break;
                }
                Ok(Step::Idle) => {}
                Ok(Step::Wait(until)) => {
                    has_turn = has_turn.or(Some(job.kind()));
                    soonest = Some(soonest.map_or(until, |soonest: Duration| soonest.min(until)));
                    if job.kind().keeps_turn() {
                        break;
                    }
                }
                Err(error) => {
                    tracing::debug!("a step of {:?} fails: {error}", job.kind());
                    failed = failed.or(Some(error));
                }
            }
        }
        failed.map_or(Ok((worked, has_turn, soonest)), Err)
    }

    /// Lets a job make a step, if the job's limit permits.
    fn step(&mut self, job: &dyn Job, env: &dyn Env, pool: &Pool) -> Result<Step> {
        let (now, is_running) = (env.uptime(), job.is_under_way() && !job.is_paused());
        let limit = job.limit().filter(|_| is_running);
        // A paused job does not wait for its limit: later jobs have the turn.
        if is_running {
            let rest = self.paces.of(job.kind()).wait(now, job.handled(), limit);
            if !rest.is_zero() {
                return Ok(Step::Wait(now + rest));
            }
        }
        let purpose = purpose(job.kind());
        let step = purpose.during(|| job.step(pool, Pace::step(self.strides.bytes(job.kind()), limit)))?;
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
            (Strides::Fixed(_), _) | (_, Kind::Trim) => None,
            (Strides::Measured { scrub, .. }, Kind::Scrub) => Some(scrub),
            (Strides::Measured { initializing, .. }, Kind::Initialize) => Some(initializing),
            (Strides::Measured { copying, .. }, _) => Some(copying),
        }
    }

    fn bytes(&mut self, kind: Kind) -> u64 {
        match self {
            Strides::Fixed(bytes) => *bytes,
            _ => self.of(kind).map_or(TRIM_STEP, |stride| stride.bytes()),
        }
    }

    fn took(&mut self, kind: Kind, time: Duration) {
        if let Some(stride) = self.of(kind) {
            stride.took(time);
        }
    }

    fn set_alone(&mut self, is_alone: bool) {
        if let Strides::Measured { scrub, copying, initializing } = self {
            [scrub, copying, initializing].into_iter().for_each(|stride| stride.set_alone(is_alone));
        }
    }
}

/// The purpose of the requests that a job of a kind makes.
fn purpose(kind: Kind) -> IoPurpose {
    match kind {
        Kind::Scrub => IoPurpose::Scrub,
        Kind::Resilver => IoPurpose::Resilver,
        _ => IoPurpose::Background,
    }
}

/// The sum of all device operations.
pub fn operations(datasets: &Datasets) -> u64 {
    let vdevs = datasets.engine().storage().vdevs.all();
    let counts = vdevs.iter().flat_map(|vdev| vdev.leaves()).map(|leaf| leaf.counters().snapshot());
    counts.map(|counts| counts.reads + counts.writes).sum()
}
