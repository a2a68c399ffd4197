//! The thread that scrubs, mends, fills devices, moves chunks and has spares step in, in the background, and the requests about
//! it.
//!
//! What is done, and why it is safe, stands in `dataset::scrub`; here is only when. A scrub comes after everybody else: it
//! works in short steps, and after each it looks away for a moment. If the devices were used meanwhile, somebody else is
//! at work, and it waits for twice as long as its step took; so it takes a third of the devices' time at most, and nobody
//! waits behind more than one step. Otherwise it goes on at once.

use std::{
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use dataset::{
    admin::{Datasets, Progress, Scope, ScrubStatus, Stride},
    catalogue::ScrubState,
    fs::FileType,
    name::Name,
};
use pool::admin::Pool;
use protocol::{ExaminedRecord, Failure, Location, ScanKind, ScanRecord, ScrubAction, ScrubPart};

use super::{
    expansion, files, growth, job::Job, members, open_pool::OpenPool, pace::Pace, refusal::OrRefused, removal, resize,
    spares, vital::Vital,
};

/// About how many bytes one step of the scrub of a part reads.
const PART_STEP: u64 = 4 << 20;
/// How often it is looked for something to do.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long it looks away after a step, to see whether somebody else is at work.
const GLANCE: Duration = Duration::from_millis(1);
/// How often the scrub's progress is saved.
const SAVE_EVERY: Duration = Duration::from_secs(10);
/// How often who waits for a scrub looks at it.
const WATCH: Duration = Duration::from_millis(50);

const NANOS: i64 = 1_000_000_000;

/// The thread; it ends when this is dropped, with the scrub's progress saved.
pub(crate) struct Scrubbing {
    orders: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Scrubbing {
    /// Starts the thread.
    pub(crate) fn start(datasets: Arc<Datasets>, pool: Arc<Pool>, is_service: bool) -> Scrubbing {
        let (orders, received) = unbounded();
        let thread = thread::Builder::new().name("cenote-scrub".into());
        let thread =
            thread.spawn(move || run(&datasets, &pool, is_service, &received)).expect("the system can start threads");
        Scrubbing { orders: Some(orders), thread: Some(thread) }
    }

    /// Says that there may be something to do.
    pub(super) fn wake(&self) {
        let orders = self.orders.as_ref().expect("it runs until it is dropped");
        // The thread ends early only by a defect, which was logged.
        let _ = orders.send(());
    }
}

impl Drop for Scrubbing {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

fn run(datasets: &Datasets, pool: &Pool, is_service: bool, orders: &Receiver<()>) {
    let _vital = Vital::new(datasets.engine(), "thread that scrubs and moves");
    let mut saved = Instant::now();
    let mut patience = GLANCE;
    let mut looked = None;
    let mut growth = growth::Watch::new();
    let mut strides = Strides {
        scrub: Stride::of_scrub(),
        copying: Stride::of_copying(),
        pace: Pace::new(Instant::now()),
        rest: None,
    };
    loop {
        let before = operations(datasets);
        if let Err(RecvTimeoutError::Disconnected) = orders.recv_timeout(patience) {
            break;
        }
        let is_busy = operations(datasets) != before;
        strides.set_alone(!is_busy);
        if is_service && looked.is_none_or(|looked: Instant| looked.elapsed() >= INTERVAL) {
            spares::step(datasets, pool);
            growth.step(datasets, pool);
            looked = Some(Instant::now());
        }
        let begun = Instant::now();
        let worked = work(datasets, pool, &mut strides).unwrap_or_else(|error| {
            tracing::warn!("cannot scrub: {error}");
            false
        });
        patience = match (worked, is_busy) {
            (false, _) => strides.rest.map_or(INTERVAL, |rest| rest.min(INTERVAL)),
            (true, true) => GLANCE + begun.elapsed() * 2,
            (true, false) => GLANCE,
        };
        if saved.elapsed() >= SAVE_EVERY {
            saved = Instant::now();
            save(datasets);
        }
    }
    // What readers have met is mended before the pool is closed: nobody would know of it afterwards.
    while matches!(datasets.mend_step(), Ok(Progress::Worked)) {}
    save(datasets);
}

/// How much each kind of work takes on in a step.
struct Strides {
    scrub: Stride,
    /// Of resilvers, removals, rebalances, defragmentations and resizes.
    copying: Stride,
    /// Of removals, rebalances, defragmentations, resizes and expansions.
    pace: Pace,
    /// How long these have to wait.
    rest: Option<Duration>,
}

impl Strides {
    fn set_alone(&mut self, is_alone: bool) {
        [&mut self.scrub, &mut self.copying].into_iter().for_each(|stride| stride.set_alone(is_alone));
    }
}

/// Does a step of some work.
fn stride(
    stride: &mut Stride,
    step: impl FnOnce(u64) -> dataset::admin::Result<Progress>,
) -> dataset::admin::Result<Progress> {
    let begun = Instant::now();
    let progress = step(stride.bytes())?;
    if progress == Progress::Worked {
        stride.took(begun.elapsed());
    }
    Ok(progress)
}

/// Does a step; whether there may be more to do. What moves chunks waits for a resilver: what lacks something is more urgent; an expansion waits for all of them, and a scrub, too, but for none that is paused, or waits itself.
fn work(datasets: &Datasets, pool: &Pool, strides: &mut Strides) -> dataset::admin::Result<bool> {
    strides.rest = None;
    let mended = datasets.mend_step()?;
    if stride(&mut strides.copying, |bytes| datasets.resilver_step(bytes))? == Progress::Worked {
        return Ok(true);
    }
    if datasets.engine().writable().is_ok() {
        // Also what an earlier owner of the pool has left.
        pool.finish_replacing()?;
    }
    if datasets.is_resilvering() {
        return Ok(mended == Progress::Worked);
    }
    if datasets.is_moving() && !datasets.is_moving_paused() {
        let is_worked = moved(datasets, pool, strides)? || mended == Progress::Worked;
        if is_worked || datasets.resize_obstacle().is_none() {
            return Ok(is_worked);
        }
    }
    if pool.widening().is_some() && paced(datasets, strides, |bytes| expansion::work(datasets, pool, bytes))? {
        return Ok(true);
    }
    let scrubbed = stride(&mut strides.scrub, |bytes| datasets.scrub_step(bytes))?;
    Ok([mended, scrubbed].contains(&Progress::Worked))
}

/// Does a step of the removal, the rebalance, the defragmentation or the resize, if it is due; whether there may be more to do at once.
fn moved(datasets: &Datasets, pool: &Pool, strides: &mut Strides) -> dataset::admin::Result<bool> {
    paced(datasets, strides, |bytes| match (datasets.is_removing(), datasets.is_rebalancing()) {
        (true, _) => removal::work(datasets, pool, bytes),
        (_, true) => datasets.rebalance_step(bytes),
        _ if datasets.is_resizing() => resize::work(datasets, pool, bytes),
        _ => datasets.defragment_step(bytes),
    })
}

/// Does a step of what moves chunks, if it is due by the limit that somebody has set.
fn paced(
    datasets: &Datasets,
    strides: &mut Strides,
    step: impl FnOnce(u64) -> dataset::admin::Result<Progress>,
) -> dataset::admin::Result<bool> {
    let limit = datasets.moving_limit();
    let rest = strides.pace.wait(Instant::now(), datasets.moved(), limit);
    strides.rest = Some(rest).filter(|rest| !rest.is_zero());
    if strides.rest.is_some() {
        return Ok(false);
    }
    let progress = stride(&mut strides.copying, |bytes| step(Pace::step(bytes, limit)))?;
    Ok(progress == Progress::Worked)
}

fn save(datasets: &Datasets) {
    if datasets.engine().writable().is_err() {
        return;
    }
    if let Err(error) = datasets.save_scrub() {
        tracing::warn!("how far the scrub has come is not saved: {error}");
    }
    if let Err(error) = datasets.save_resilver() {
        tracing::warn!("how far the resilver has come is not saved: {error}");
    }
}

/// How many operations the devices were asked for.
fn operations(datasets: &Datasets) -> u64 {
    let vdevs = datasets.engine().storage().vdevs.all();
    let counts = vdevs.iter().flat_map(|vdev| vdev.leaves()).map(|leaf| leaf.counters().snapshot());
    counts.map(|counts| counts.reads + counts.writes).sum()
}

impl OpenPool {
    /// Starts, resumes, pauses or stops the scrub.
    pub(super) fn scrub(&self, action: ScrubAction) -> Result<(), Failure> {
        let done = match action {
            ScrubAction::Start => self.datasets.start_scrub(),
            ScrubAction::Pause => self.datasets.pause_scrub(),
            ScrubAction::Stop => self.datasets.stop_scrub(),
        };
        done.or_refused("scrub", self.name())?;
        self.scrubbing.wake();
        Ok(())
    }

    /// Examines a part and mends what can be mended, while the caller waits.
    pub(super) fn scrub_part(&self, part: &ScrubPart, job: &mut Job<'_>) -> Result<ExaminedRecord, Failure> {
        let (scope, shown) = match part {
            ScrubPart::Damage => (Scope::Damage, self.name().to_string()),
            ScrubPart::Place(location) => (self.scope(location)?, location.name.to_string()),
        };
        let mut examination = self.datasets.begin_examination(&scope).or_refused("scrub", &shown)?;
        let what = format!("scrubbing {shown}");
        while self.datasets.examination_step(&mut examination, PART_STEP).or_refused("scrub", &shown)?
            == Progress::Worked
        {
            job.check()?;
            job.tell(&what, examination.found().examined, None);
        }
        let found = examination.found();
        Ok(ExaminedRecord { examined: found.examined, repaired: found.repaired, errors: found.errors })
    }

    /// What a place stands for: a file, or the whole tree whose root directory it is.
    fn scope(&self, location: &Location) -> Result<Scope, Failure> {
        let name = &location.name;
        if location.path.0.iter().all(|byte| *byte == b'/') {
            return Ok(Scope::Tree(name.clone()));
        }
        let (tree, fs) = match name {
            Name::Dataset(name) => {
                let dataset = self.datasets.open_dataset(name).or_refused("open", name)?;
                (dataset.id(), dataset.fs().clone())
            }
            Name::Snapshot(name) => {
                let snapshot = self.datasets.open_snapshot(name).or_refused("open", name)?;
                (snapshot.id, snapshot.fs)
            }
            Name::Bookmark(name) => return Err(Failure::cannot("scrub", name, "a bookmark has no files")),
        };
        let shown = format!("{name}:{}", location.path.to_text());
        let found = files::find(&fs, &location.path.0);
        let found = found.map_err(|errno| Failure::cannot("scrub", &shown, files::reason(errno)))?;
        match found.file_type {
            FileType::Directory => {
                let hint = format!("name a file, or the whole: pool scrub {name}");
                Err(Failure::cannot("scrub", shown, "it is a directory").hint(hint))
            }
            _ => Ok(Scope::File(tree, found.identity())),
        }
    }

    /// Returns when no scrub runs, and says what the last one has found.
    pub(super) fn wait_for_scrub(&self, job: &mut Job<'_>) -> Result<ExaminedRecord, Failure> {
        let what = format!("scrubbing {}", self.name());
        loop {
            let status = self.datasets.scrub_status().or_refused("scrub", self.name())?;
            let Some(status) = status else { return Ok(ExaminedRecord { examined: 0, repaired: 0, errors: 0 }) };
            if status.state != ScrubState::Running {
                let ScrubStatus { examined, repaired, errors, .. } = status;
                return Ok(ExaminedRecord { examined, repaired, errors });
            }
            self.engine().writable().or_refused("scrub", self.name())?;
            job.check()?;
            job.tell(&what, status.examined, Some(status.total.max(status.examined)));
            thread::sleep(WATCH);
        }
    }

    /// How the scrub or the resilver stands that runs or was the last one.
    pub(super) fn scan(&self) -> Result<Option<ScanRecord>, Failure> {
        let status = self.datasets.scrub_status().or_refused("open", self.name())?;
        if let Some(resilver) = self.datasets.resilver_status() {
            let is_later = status.as_ref().is_none_or(|scrub| scrub.start < resilver.start);
            if self.datasets.is_resilvering() || is_later {
                return Ok(Some(members::scan(&resilver, self.engine().env().now())));
            }
        }
        Ok(status.map(|status| ScanRecord {
            kind: ScanKind::Scrub,
            state: status.state.into(),
            start: status.start.div_euclid(NANOS),
            end: status.end.div_euclid(NANOS),
            seconds: status.elapsed / NANOS.unsigned_abs(),
            rate: status.examined.checked_div(status.elapsed / NANOS.unsigned_abs()).unwrap_or(0),
            total: status.total,
            examined: status.examined,
            repaired: status.repaired,
            errors: status.errors,
        }))
    }

    /// Forgets the errors of the pool's devices, or of one of them.
    pub(super) fn clear_counters(&self, device: Option<&str>) -> Result<(), Failure> {
        let vdevs = self.engine().storage().vdevs.all();
        let is_meant = |name: &str, guid: u64| device.is_none_or(|device| device == name || device == guid.to_string());
        let leaves = vdevs.iter().flat_map(|vdev| vdev.leaves());
        let meant: Vec<_> = leaves.filter(|leaf| is_meant(leaf.name(), leaf.guid().0)).collect();
        if let Some(device) = device.filter(|_| meant.is_empty()) {
            return Err(Failure::cannot("clear errors for", device, "no such device in pool"));
        }
        meant.iter().for_each(|leaf| leaf.counters().clear_errors());
        Ok(())
    }
}
