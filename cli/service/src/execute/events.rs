//! The events of a pool: a bounded number, in memory. A service also logs the events ([`super::journal`]), continues the
//! log of the service before, and passes each event to the hooks (`hooks`) and to the notifications (`notify`).
//!
//! The engine does not report events. Instead a thread samples its state a few times a second, and every difference
//! from the last sample is an event. A state that comes and goes between two samples is missed, but counters are not:
//! errors are reported with their number. A sample accesses no device: all compared values are in memory, even while
//! the pool is suspended.
//!
//! Event classes and details have OpenZFS's names. Lasting records are in the history.

use std::{
    collections::{BTreeMap, VecDeque},
    path::PathBuf,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use dataset::{
    admin::Datasets,
    catalogue::{MoveState, ScrubState},
    jobs::ResilverState,
};
use parking_lot::Mutex;
use pool::{
    device::SlowLimits,
    env::Nanos,
    units::VdevId,
    vdev::{Counts, Leaf},
};
use protocol::{AlertRecord, EventRecord, State};

use super::{
    active::Active,
    images::Sight,
    journal::{Journal, KEPT},
};
use crate::health;

/// Interval between two samples.
const INTERVAL: Duration = Duration::from_millis(200);

/// The events, with the sampling thread, which ends on drop.
pub(crate) struct Events {
    watch: Arc<Mutex<Watch>>,
    orders: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Events {
    /// Starts the sampling thread.
    pub(crate) fn start(datasets: Arc<Datasets>, sight: Sight) -> Events {
        let watch = Arc::new(Mutex::new(Watch::new(datasets, sight)));
        let (orders, received) = bounded::<()>(0);
        let watching = watch.clone();
        let looking = move || {
            while received.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                watching.lock().look();
            }
        };
        let thread = thread::Builder::new().name("cenote-events".into());
        let thread = thread.spawn(looking).expect("the system can start threads");
        Events { watch, orders: Some(orders), thread: Some(thread) }
    }

    /// The events after event `number`, oldest first. A number not yet assigned comes from an earlier service; then
    /// all events are returned.
    pub(super) fn after(&self, number: u64) -> Vec<EventRecord> {
        let mut watch = self.watch.lock();
        watch.look();
        let number = if number < watch.next { number } else { 0 };
        watch.kept.iter().filter(|event| event.number > number).cloned().collect()
    }

    /// Continues the log in `path`, and passes this and every later event to the `listeners`.
    pub(super) fn attach(&self, path: PathBuf, listeners: Vec<Sender<EventRecord>>) {
        let (journal, mut kept) = Journal::open(path);
        let mut watch = self.watch.lock();
        let last = kept.back().map_or(0, |event| event.number);
        for mut event in std::mem::take(&mut watch.kept) {
            event.number = event.number.saturating_add(last);
            journal.append(&event);
            tell(&listeners, &event);
            kept.push_back(event);
        }
        watch.active = Active::restored(&kept, watch.datasets.engine().env().uptime());
        let surplus = kept.len().saturating_sub(KEPT);
        kept.drain(..surplus);
        (watch.kept, watch.next) = (kept, watch.next.saturating_add(last));
        (watch.journal, watch.listeners) = (Some(journal), listeners);
    }

    /// Takes a sample now.
    pub(super) fn look(&self) {
        self.watch.lock().look();
    }

    /// Sets when requests and devices of the pool count as slow, from now on.
    pub(super) fn set_slow_limits(&self, limits: SlowLimits) {
        let mut watch = self.watch.lock();
        watch.slow_limits = limits;
        watch.look();
    }

    /// Makes an event of each alert that begins or ends.
    pub(super) fn note_alerts(&self, alerts: &[AlertRecord]) {
        let mut watch = self.watch.lock();
        let now = watch.datasets.engine().env().uptime();
        let is_suspended = watch.datasets.engine().suspension().is_suspended();
        for (class, details) in watch.active.changes(alerts, is_suspended, now) {
            watch.note(&class, details);
        }
    }

    /// Removes all events. Returns their number.
    pub(super) fn clear(&self) -> u64 {
        let mut watch = self.watch.lock();
        watch.look();
        let count = watch.kept.len() as u64;
        watch.kept.clear();
        watch.journal.iter().for_each(Journal::clear);
        count
    }

    /// Records a command that has changed the pool.
    pub(super) fn note_command(&self, command: &str) {
        let mut watch = self.watch.lock();
        // Events caused by the command come before the event of the command.
        watch.look();
        watch.note("sysevent.fs.zfs.history_event", [("history_command", command.to_owned())]);
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            // The thread's panic was already reported.
            let _ = thread.join();
        }
    }
}

/// Start time of a job, its state, and whether the job is paused.
type Seen = (Nanos, MoveState, bool);

/// The last sample, and the events found.
struct Watch {
    datasets: Arc<Datasets>,
    sight: Sight,
    slow_limits: SlowLimits,
    opened: Nanos,
    leaves: BTreeMap<u64, Device>,
    /// The reason of the suspension, if suspended.
    suspended: Option<String>,
    scrub: Option<(Nanos, ScrubState)>,
    resilver: Option<(Nanos, ResilverState)>,
    rebalance: Option<Seen>,
    defragment: Option<Seen>,
    resize: Option<Seen>,
    active: Active,
    /// The number of the next event.
    next: u64,
    kept: VecDeque<EventRecord>,
    journal: Option<Journal>,
    listeners: Vec<Sender<EventRecord>>,
}

/// Passes an event to hooks and notifications, unless too many events wait there.
fn tell(listeners: &[Sender<EventRecord>], event: &EventRecord) {
    for listener in listeners {
        if let Err(error) = listener.try_send(event.clone()) {
            tracing::warn!("a hook or a notification misses event {}: {error}", event.number);
        }
    }
}

#[derive(Clone, PartialEq)]
struct Device {
    path: String,
    /// `None` for a cache device, which belongs to no vdev.
    vdev: Option<VdevId>,
    state: State,
    /// Without an answer for longer than [`health::SILENT`].
    is_silent: bool,
    counts: Counts,
    /// Number of slow requests.
    slow: u64,
}

impl Device {
    fn of(vdev: Option<VdevId>, leaf: &Leaf, sight: &Sight) -> Device {
        let is_silent = leaf.device().silence() >= health::SILENT;
        let (state, _) = sight.state(leaf);
        Device {
            path: leaf.name().to_owned(),
            vdev,
            state,
            is_silent,
            counts: leaf.counters().snapshot(),
            slow: leaf.meter().slow(),
        }
    }
}

impl Watch {
    fn new(datasets: Arc<Datasets>, sight: Sight) -> Watch {
        let opened = datasets.engine().env().now();
        let slow_limits = SlowLimits::default();
        let leaves = devices(&datasets, &sight, slow_limits);
        let mut watch = Watch {
            datasets,
            sight,
            slow_limits,
            opened,
            leaves,
            suspended: None,
            scrub: None,
            resilver: None,
            rebalance: None,
            defragment: None,
            resize: None,
            active: Active::default(),
            next: 1,
            kept: VecDeque::new(),
            journal: None,
            listeners: Vec::new(),
        };
        watch.note("sysevent.fs.zfs.pool_import", []);
        watch
    }

    /// Adds an event; the oldest is dropped when the list is full.
    fn note<'a>(&mut self, class: &str, details: impl IntoIterator<Item = (&'a str, String)>) {
        let details = details.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let (number, time) = (self.next, self.datasets.engine().env().now());
        self.next += 1;
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        let event = EventRecord { number, time, class: class.to_owned(), details };
        self.journal.iter().for_each(|journal| journal.append(&event));
        tell(&self.listeners, &event);
        self.kept.push_back(event);
    }

    /// Compares the current state with the last sample.
    fn look(&mut self) {
        self.look_at_devices();
        self.look_at_suspension();
        self.look_at_scrub();
        self.look_at_resilver();
        self.look_at_batches();
    }

    fn look_at_devices(&mut self) {
        let now = devices(&self.datasets, &self.sight, self.slow_limits);
        let before = std::mem::replace(&mut self.leaves, now.clone());
        for (guid, device) in &now {
            let of = |device: &Device| [("vdev_path", device.path.clone()), ("vdev_guid", guid.to_string())];
            let [path, number] = of(device);
            let Some(old) = before.get(guid) else {
                let is_known = device.vdev.is_some() && before.values().any(|other| other.vdev == device.vdev);
                let class = if is_known { "sysevent.fs.zfs.vdev_attach" } else { "sysevent.fs.zfs.vdev_add" };
                self.note(class, [path, number]);
                continue;
            };
            if device.is_silent && !old.is_silent {
                self.note("ereport.fs.zfs.deadman", of(device));
            }
            if old.state != device.state {
                let state = ("vdev_state", device.state.to_string());
                let last = ("vdev_laststate", old.state.to_string());
                self.note("resource.fs.zfs.statechange", [path, number, state, last]);
            }
            if device.slow > old.slow {
                let more = ("slow_requests", (device.slow - old.slow).to_string());
                let [path, number] = of(device);
                self.note("ereport.fs.zfs.delay", [path, number, more]);
            }
            self.look_at_counts(of(device), old.counts, device.counts);
        }
        for (guid, device) in before.iter().filter(|(guid, _)| !now.contains_key(guid)) {
            let details = [("vdev_path", device.path.clone()), ("vdev_guid", guid.to_string())];
            self.note("sysevent.fs.zfs.vdev_remove", details);
        }
    }

    fn look_at_counts(&mut self, device: [(&'static str, String); 2], before: Counts, now: Counts) {
        let [path, guid] = device;
        let counts = [
            ("ereport.fs.zfs.checksum", before.checksum_errors, now.checksum_errors),
            ("ereport.fs.zfs.io", before.read_errors, now.read_errors),
            ("ereport.fs.zfs.io", before.write_errors, now.write_errors),
        ];
        if counts.iter().any(|(_, before, now)| now < before) {
            self.note("sysevent.fs.zfs.vdev_clear", [path.clone(), guid.clone()]);
        }
        for ((class, before, now), what) in counts.into_iter().zip(["checksum", "read", "write"]) {
            let more = if now < before { now } else { now - before };
            if more > 0 {
                let (errors, what) = (("errors", more.to_string()), ("vdev_operation", what.to_owned()));
                self.note(class, [path.clone(), guid.clone(), what, errors]);
            }
        }
    }

    fn look_at_suspension(&mut self) {
        let now = self.datasets.engine().suspension().reason();
        match (self.suspended.is_some(), &now) {
            (false, Some(why)) => self.note("ereport.fs.zfs.io_failure", [("reason", why.clone())]),
            (true, None) => self.note("resource.fs.zfs.statechange", [("pool_state", State::Online.to_string())]),
            _ => {}
        }
        self.suspended = now;
    }

    fn look_at_scrub(&mut self) {
        let Some(status) = self.datasets.scrub().in_memory() else { return };
        let now = (status.start, status.state);
        let result = || examined(status.repaired, status.errors);
        let before = self.scrub.replace(now).filter(|(start, _)| *start == now.0);
        // A scrub started before the pool was opened continues; no event.
        let before = match before {
            Some((_, state)) => state,
            None if now.0 >= self.opened => {
                self.note("sysevent.fs.zfs.scrub_start", []);
                ScrubState::Running
            }
            None => return,
        };
        match (before, now.1) {
            (before, now) if before == now => {}
            (_, ScrubState::Running) => self.note("sysevent.fs.zfs.scrub_resume", []),
            (_, ScrubState::Paused) => self.note("sysevent.fs.zfs.scrub_paused", []),
            (_, ScrubState::Finished) => self.note("sysevent.fs.zfs.scrub_finish", result()),
            (_, ScrubState::Stopped) => self.note("sysevent.fs.zfs.scrub_abort", result()),
        }
    }

    fn look_at_resilver(&mut self) {
        let Some(status) = self.datasets.resilver().status() else { return };
        let now = (status.start, status.state);
        let before = self.resilver.replace(now).filter(|(start, _)| *start == now.0);
        if before.is_none() && status.resumed.is_none() {
            self.note("sysevent.fs.zfs.resilver_start", []);
        }
        match (before.map_or(ResilverState::Running, |(_, state)| state), now.1) {
            (ResilverState::Running, ResilverState::Finished) => {
                self.note("sysevent.fs.zfs.resilver_finish", examined(status.copied, status.errors));
            }
            (ResilverState::Running, ResilverState::Canceled) => self.note("sysevent.fs.zfs.resilver_abort", []),
            _ => {}
        }
    }

    fn look_at_batches(&mut self) {
        let is_paused = self.datasets.moving().is_paused();
        let seen = |start, state| (start, state, state == MoveState::Running && is_paused);
        if let Some(now) = self.datasets.rebalance().status().map(|status| seen(status.start, status.state)) {
            let before = self.rebalance.replace(now);
            self.compare("rebalance", before, now);
        }
        if let Some(now) = self.datasets.defragment().status().map(|status| seen(status.start, status.state)) {
            let before = self.defragment.replace(now);
            self.compare("defragment", before, now);
        }
        if let Some(now) = self.datasets.resize().status().map(|status| seen(status.start, status.state)) {
            let before = self.resize.replace(now);
            self.compare("resize", before, now);
        }
    }

    fn compare(&mut self, what: &str, before: Option<Seen>, now: Seen) {
        // A job started before the pool was opened continues; no event.
        let (state, was_paused) = match before.filter(|(start, ..)| *start == now.0) {
            Some((_, state, was_paused)) => (state, was_paused),
            None if now.0 >= self.opened => {
                self.note(&format!("sysevent.fs.cenote.{what}_start"), []);
                (MoveState::Running, false)
            }
            None => return,
        };
        let event = match (state, now.1) {
            (MoveState::Running, MoveState::Running) if was_paused != now.2 => {
                if now.2 {
                    "paused"
                } else {
                    "resume"
                }
            }
            (before, now) if before == now => return,
            (_, MoveState::Finished) => "finish",
            _ => "abort",
        };
        self.note(&format!("sysevent.fs.cenote.{what}_{event}"), []);
    }
}

/// The state of all devices by GUID. A device that has just joined gets the pool's limits here.
fn devices(datasets: &Datasets, sight: &Sight, slow_limits: SlowLimits) -> BTreeMap<u64, Device> {
    let vdevs = datasets.engine().storage().vdevs.all();
    let of = |leaf: &Arc<Leaf>, vdev| {
        leaf.meter().set_slow_limits(slow_limits);
        (leaf.guid().0, Device::of(vdev, leaf, sight))
    };
    let caches = datasets.engine().secondary().devices();
    let members = vdevs.iter().flat_map(|vdev| vdev.leaves().into_iter().map(|leaf| (Some(vdev.id()), leaf)));
    members.chain(caches.into_iter().map(|leaf| (None, leaf))).map(|(vdev, leaf)| of(&leaf, vdev)).collect()
}
/// What a scrub or a resilver has found: bytes rewritten, and blocks without a good copy.
fn examined(repaired: u64, errors: u64) -> [(&'static str, String); 2] {
    [("repaired_bytes", repaired.to_string()), ("errors", errors.to_string())]
}
