//! TRIM: telling the devices of a pool which space is free. On demand, all free space of a vdev; with `autotrim=on`,
//! newly freed space after some seconds. A thread of its own works in short steps, so that no step delays a commit.
//!
//! The progress of a demanded trim is only in memory and ends with the service; space already trimmed stays trimmed.

use std::{
    collections::BTreeMap,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use dataset::admin::Datasets;
use dataset::property::pool::AUTOTRIM;
use parking_lot::Mutex;
use pool::{admin::Pool, space::TrimCursor, units::VdevId, vdev::Leaf};
use protocol::{Failure, TrimAction, TrimRecord, TrimState};

use super::{job::Job, open_pool::OpenPool, refusal::OrRefused, vital::Vital};

/// Approximate number of bytes trimmed per step.
const STEP: u64 = 64 << 20;
/// Interval between two checks for newly freed space.
const INTERVAL: Duration = Duration::from_secs(2);
/// Pause after a step, as a multiple of the step's duration: the devices are free for other I/O.
const REST: u32 = 1;
/// Polling interval of a waiting command.
const WATCH: Duration = Duration::from_millis(20);

const NANOS: i64 = 1_000_000_000;
const ACTION: &str = "trim";

/// The trimming thread, which ends on drop.
pub(crate) struct Trimming {
    trimmer: Arc<Trimmer>,
    orders: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Trimming {
    /// Starts the trimming thread.
    pub(crate) fn start(datasets: Arc<Datasets>, pool: Arc<Pool>) -> Trimming {
        let (orders, received) = unbounded();
        let trimmer = Arc::new(Trimmer { datasets, pool, tasks: Mutex::default(), pace: Mutex::default() });
        let at_work = trimmer.clone();
        let thread = thread::Builder::new().name("cenote-trim".into());
        let thread = thread.spawn(move || at_work.run(&received)).expect("the system can start threads");
        Trimming { trimmer, orders: Some(orders), thread: Some(thread) }
    }

    fn wake(&self) {
        let orders = self.orders.as_ref().expect("it runs until it is dropped");
        // The thread ends early only after a panic, which was logged.
        let _ = orders.send(());
    }
}

impl Drop for Trimming {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            // The thread's panic was already reported.
            let _ = thread.join();
        }
    }
}

struct Trimmer {
    datasets: Arc<Datasets>,
    pool: Arc<Pool>,
    /// The last demanded trim of each vdev.
    tasks: Mutex<BTreeMap<VdevId, Task>>,
    pace: Mutex<Pace>,
}

/// A trim of a vdev's free space.
#[derive(Clone, Debug)]
struct Task {
    state: State,
    cursor: TrimCursor,
    bytes: u64,
    start: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Running,
    Suspended,
    /// End, in seconds since the epoch.
    Finished(i64),
    /// The error that ended the trim.
    Failed(String),
}

/// Rate limit in bytes per second (`None` for no limit), start as uptime of the environment, and bytes trimmed since.
#[derive(Default)]
struct Pace {
    rate: Option<u64>,
    begun: Duration,
    bytes: u64,
}

impl Pace {
    /// Time to wait before the rate limit allows more.
    fn rest(&self, now: Duration) -> Duration {
        let due = self.rate.map_or(Duration::ZERO, |rate| due(self.bytes, rate));
        due.saturating_sub(now.saturating_sub(self.begun))
    }
}

impl Trimmer {
    fn run(&self, orders: &Receiver<()>) {
        let _vital = Vital::new(self.pool.engine(), "thread that trims");
        let (mut patience, mut fresh) = (INTERVAL, None);
        while orders.recv_timeout(patience) != Err(RecvTimeoutError::Disconnected) {
            let engine = self.pool.engine();
            let begun = engine.env().uptime();
            if engine.writable().is_err() || engine.suspension().is_suspended() {
                patience = INTERVAL;
                continue;
            }
            let worked = self.demanded_step() || self.fresh_step(&mut fresh);
            let now = engine.env().uptime();
            let rest = if worked { now.saturating_sub(begun) * REST } else { INTERVAL };
            patience = rest.max(self.pace.lock().rest(now)).min(INTERVAL);
        }
    }

    fn now(&self) -> i64 {
        self.pool.engine().env().now().div_euclid(NANOS)
    }

    /// Executes a step of a demanded trim. Returns whether work may be left.
    fn demanded_step(&self) -> bool {
        let next =
            self.tasks.lock().iter().find(|(_, task)| task.state == State::Running).map(|(id, t)| (*id, t.clone()));
        let Some((vdev, task)) = next else { return false };
        let budget = {
            let pace = self.pace.lock();
            if !pace.rest(self.pool.engine().env().uptime()).is_zero() {
                return true;
            }
            pace.rate.map_or(STEP, |rate| rate.div_ceil(4).min(STEP))
        };
        let step = self.pool.trim(vdev, task.cursor, budget);
        self.pace.lock().bytes += step.as_ref().map_or(0, |step| step.bytes);
        // A trim started meanwhile is a different trim.
        if let Some(task) = self.tasks.lock().get_mut(&vdev).filter(|now| now.cursor == task.cursor) {
            match step {
                Ok(step) => {
                    task.bytes += step.bytes;
                    task.cursor = step.next.unwrap_or_default();
                    if step.next.is_none() {
                        task.state = State::Finished(self.now());
                    }
                }
                Err(error) => {
                    tracing::warn!("cannot trim: {error}");
                    task.state = State::Failed(error.to_string());
                }
            }
        }
        true
    }

    /// Trims newly freed space, if `autotrim` is on. Returns whether work may be left.
    fn fresh_step(&self, from: &mut Option<TrimCursor>) -> bool {
        if !self.datasets.pool_setting(&AUTOTRIM) {
            return false;
        }
        match self.pool.trim_fresh(from.unwrap_or_default(), STEP) {
            Ok(step) => *from = step.next,
            Err(error) => {
                tracing::warn!("what has become free is not given back: {error}");
                *from = None;
            }
        }
        from.is_some()
    }

    fn start(&self, vdevs: &[VdevId], rate: Option<u64>) -> Result<(), &'static str> {
        let mut tasks = self.tasks.lock();
        let is_running = |vdev: &VdevId| tasks.get(vdev).is_some_and(|task| task.state == State::Running);
        if rate.is_none() && vdevs.iter().any(is_running) {
            return Err("a trim is already in progress; use -s to suspend or -c to cancel the trim");
        }
        *self.pace.lock() = Pace { rate, begun: self.pool.engine().env().uptime(), bytes: 0 };
        let fresh = Task { state: State::Running, cursor: TrimCursor::default(), bytes: 0, start: self.now() };
        for vdev in vdevs {
            let task = tasks.entry(*vdev).or_insert_with(|| fresh.clone());
            match task.state {
                State::Running | State::Suspended => task.state = State::Running,
                State::Finished(_) | State::Failed(_) => *task = fresh.clone(),
            }
        }
        Ok(())
    }

    fn suspend(&self, vdevs: &[VdevId]) -> Result<(), &'static str> {
        let mut tasks = self.tasks.lock();
        let meant = tasks.iter_mut().filter(|(vdev, task)| vdevs.contains(vdev) && task.state == State::Running);
        match meant.map(|(_, task)| task.state = State::Suspended).count() {
            0 => Err("there is no active trim"),
            _ => Ok(()),
        }
    }

    fn cancel(&self, vdevs: &[VdevId]) -> Result<(), &'static str> {
        let mut tasks = self.tasks.lock();
        let is_open = |task: &Task| matches!(task.state, State::Running | State::Suspended);
        let open: Vec<VdevId> = vdevs.iter().filter(|vdev| tasks.get(vdev).is_some_and(is_open)).copied().collect();
        open.iter().for_each(|vdev| drop(tasks.remove(vdev)));
        if open.is_empty() { Err("there is no active trim") } else { Ok(()) }
    }

    /// Progress of a vdev: chunks done, and all chunks.
    fn progress(&self, vdev: VdevId, task: &Task) -> (u64, u64) {
        self.pool.engine().storage().space.trim_progress(vdev, task.cursor)
    }
}

impl OpenPool {
    /// Starts, suspends or cancels a trim of all vdevs, or of the vdevs with these devices. Returns the bytes trimmed
    /// if started and awaited.
    pub(super) fn trim(
        &self,
        (action, devices): (TrimAction, &[String]),
        rate: Option<u64>,
        wait: bool,
        job: &mut Job<'_>,
    ) -> Result<Option<u64>, Failure> {
        self.engine().writable().or_refused(ACTION, self.name())?;
        let vdevs = self.trimmed_vdevs(devices)?;
        let trimmer = &self.trimming.trimmer;
        let (verb, done) = match action {
            TrimAction::Start => (ACTION, trimmer.start(&vdevs, rate)),
            TrimAction::Suspend => ("suspend trimming", trimmer.suspend(&vdevs)),
            TrimAction::Cancel => ("cancel trimming", trimmer.cancel(&vdevs)),
        };
        done.map_err(|why| Failure::cannot(verb, self.name(), why))?;
        self.trimming.wake();
        // Without a service, the command itself has to wait for the trim.
        match action == TrimAction::Start && (wait || self.mounts.is_none()) {
            true => self.wait_for_trim(&vdevs, job).map(Some),
            false => Ok(None),
        }
    }

    fn trimmed_vdevs(&self, devices: &[String]) -> Result<Vec<VdevId>, Failure> {
        if devices.is_empty() {
            let vdevs = self.engine().storage().vdevs.all();
            return Ok(vdevs.iter().filter(|vdev| !vdev.is_lost()).map(|vdev| vdev.id()).collect());
        }
        let vdev = |name: &String| match self.pool.find_device(name) {
            Ok((vdev, _)) => Ok(vdev),
            Err(_) => self.pool.find_vdev(name),
        };
        devices.iter().map(|name| Ok(vdev(name).or_refused(ACTION, name)?.id())).collect()
    }

    fn wait_for_trim(&self, vdevs: &[VdevId], job: &mut Job<'_>) -> Result<u64, Failure> {
        let what = format!("trimming {}", self.name());
        loop {
            let tasks = self.trimming.trimmer.tasks.lock().clone();
            let bytes = vdevs.iter().filter_map(|vdev| tasks.get(vdev)).map(|task| task.bytes).sum();
            let mut running = false;
            for vdev in vdevs {
                match tasks.get(vdev).map(|task| &task.state) {
                    Some(State::Running) => running = true,
                    Some(State::Finished(_)) => {}
                    Some(State::Failed(why)) => return Err(Failure::cannot(ACTION, self.name(), why)),
                    Some(State::Suspended) => return Err(Failure::cannot(ACTION, self.name(), "it was suspended")),
                    None => return Err(Failure::cannot(ACTION, self.name(), "it was canceled")),
                }
            }
            if !running {
                return Ok(bytes);
            }
            self.engine().writable().or_refused(ACTION, self.name())?;
            job.check()?;
            job.report(&what, bytes, None);
            thread::sleep(WATCH);
        }
    }

    /// Approximate number of bytes left to trim; `None` if no trim is running.
    pub(super) fn left_to_trim(&self) -> Option<u64> {
        let trimmer = &self.trimming.trimmer;
        let tasks = trimmer.tasks.lock().clone();
        let running: Vec<_> = tasks.iter().filter(|(_, task)| task.state == State::Running).collect();
        let left = running.iter().map(|(vdev, task)| trimmer.progress(**vdev, task)).map(|(done, total)| total - done);
        (!running.is_empty()).then(|| left.sum::<u64>() * self.engine().storage().space.region())
    }

    /// The trim status of a device, for `pool status -t`.
    pub(super) fn trim_record(&self, vdev: VdevId, leaf: &Leaf) -> TrimRecord {
        let trimmer = &self.trimming.trimmer;
        let task = trimmer.tasks.lock().get(&vdev).cloned();
        let start = task.as_ref().map_or(0, |task| task.start);
        let percent = || {
            let (done, total) = task.as_ref().map_or((0, 1), |task| trimmer.progress(vdev, task));
            done * 100 / total.max(1)
        };
        let record = |state, percent, end| TrimRecord { state, percent, start, end };
        match task.as_ref().map(|task| &task.state) {
            _ if !leaf.device().can_discard() => record(TrimState::Unsupported, 0, 0),
            Some(State::Running) => record(TrimState::Active, percent(), 0),
            Some(State::Suspended) => record(TrimState::Suspended, percent(), 0),
            Some(State::Finished(end)) => record(TrimState::Complete, 100, *end),
            None | Some(State::Failed(_)) => record(TrimState::Untrimmed, 0, 0),
        }
    }
}

/// The time that the rate allows for `bytes`.
fn due(bytes: u64, rate: u64) -> Duration {
    let milliseconds = u128::from(bytes) * 1000 / u128::from(rate.max(1));
    Duration::from_millis(u64::try_from(milliseconds).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_says_when_bytes_are_due() {
        assert_eq!(due(10 << 20, 5 << 20), Duration::from_secs(2));
        assert_eq!(due(u64::MAX, 0), Duration::from_millis(u64::MAX));
    }
}
