//! The watch: looks at every pool once a second, so that pages show the present state at once.
//!
//! Each pool has a thread of its own, so a service that does not answer delays no other pool. A look asks only running
//! services and never opens a pool. The last hour of throughput is kept in a ring of [`POINTS`] points a pool.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use dataset::property::pool::HEALTH;
use parking_lot::Mutex;
use protocol::{Executors, Failure, IoCounts, IoSample, PoolRecord, PoolRequest, PoolStatus, Response};

/// Interval between looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// A look without an answer for this long means that the service is silent.
const SILENT: Duration = Duration::from_millis(800);

/// Interval and number of the points in the history: one hour.
const STEP: Duration = Duration::from_secs(5);
pub(crate) const POINTS: usize = 720;

/// Maximum number of pools on watch.
const MOST: usize = 256;

/// The properties of a pool in each look.
const PROPERTIES: [&str; 5] = ["size", "allocated", "free", "capacity", HEALTH.row().name];

/// The watch over all pools.
pub(crate) struct Watch {
    pools: Arc<Mutex<BTreeMap<String, Arc<Seen>>>>,
}

/// The sightings of a pool.
pub(crate) struct Seen {
    asked: Mutex<Option<Instant>>,
    sight: Mutex<Arc<Sight>>,
    points: Mutex<VecDeque<Point>>,
}

/// The state of a pool at the last look.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sight {
    /// State, devices, jobs and errors.
    pub(crate) status: Option<Arc<PoolStatus>>,
    /// The same without what only the owner may see.
    pub(crate) status_for_all: Option<Arc<PoolStatus>>,
    /// Sizes and health, as properties.
    pub(crate) pool: Option<Arc<PoolRecord>>,
    /// Rates of the pool and its devices since the look before, per second.
    pub(crate) rates: Option<Arc<Rates>>,
    /// The counters since import.
    pub(crate) sample: Option<Arc<IoSample>>,
    /// Why the last look failed.
    pub(crate) failure: Option<Failure>,
}

impl Sight {
    /// The status for the owner, or for other users.
    pub(crate) fn status_for(&self, is_owner: bool) -> Option<&Arc<PoolStatus>> {
        if is_owner { self.status.as_ref() } else { self.status_for_all.as_ref() }
    }

    /// Why the last look failed, in words for the owner or for other users.
    pub(crate) fn failure_for(&self, is_owner: bool) -> Option<Failure> {
        let failure = self.failure.as_ref()?;
        Some(if is_owner { failure.clone() } else { Failure::new("the pool is unavailable") })
    }
}

/// Rates per second of a pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    /// Rates of the whole pool.
    pub(crate) pool: Rate,
    /// Rates of each vdev and device, by name or path.
    pub(crate) devices: BTreeMap<String, Rate>,
}

/// Throughput of a pool or a device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rate {
    /// Reads, per second.
    pub(crate) reads: f64,
    /// Writes, per second.
    pub(crate) writes: f64,
    /// Bytes read per second.
    pub(crate) read: f64,
    /// Bytes written per second.
    pub(crate) written: f64,
    /// Mean latency of a read, in seconds.
    pub(crate) read_wait: f64,
    /// Mean latency of a write, in seconds.
    pub(crate) write_wait: f64,
    /// Requests that wait or are carried out, at the later sample.
    pub(crate) queue: f64,
}

/// A point in the history of a pool: the mean of a [`STEP`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    /// Seconds since 1970.
    pub(crate) time: u64,
    /// The mean throughput.
    pub(crate) rate: Rate,
}

impl Watch {
    /// Starts the watch; `owner` is the user of this process.
    pub(crate) fn start(executors: Executors, owner: u32) -> Result<Watch, Failure> {
        let pools: Arc<Mutex<BTreeMap<String, Arc<Seen>>>> = Arc::default();
        let shared = pools.clone();
        thread::Builder::new().name("watch".into()).spawn(move || {
            loop {
                // An error of the registry leaves the pools that are known.
                if let Ok(names) = executors("pool web".to_owned(), None).known_pools() {
                    follow(&shared, &names, &executors, owner);
                }
                thread::sleep(INTERVAL);
            }
        })?;
        Ok(Watch { pools })
    }

    /// The pools, by name.
    pub(crate) fn all(&self) -> Vec<(String, Arc<Seen>)> {
        self.pools.lock().iter().map(|(name, seen)| (name.clone(), seen.clone())).collect()
    }

    /// The sightings of a pool.
    pub(crate) fn get(&self, pool: &str) -> Option<Arc<Seen>> {
        self.pools.lock().get(pool).cloned()
    }

    /// How long the service of a pool has not answered; `None` if the service answers.
    pub(crate) fn silence(&self, pool: &str) -> Option<Duration> {
        self.get(pool)?.silence()
    }
}

impl Seen {
    /// What the last look saw.
    pub(crate) fn sight(&self) -> Arc<Sight> {
        self.sight.lock().clone()
    }

    /// The throughput of the last hour, oldest first.
    pub(crate) fn points(&self) -> Vec<Point> {
        self.points.lock().iter().copied().collect()
    }

    /// How long the service has not answered; `None` if the service answers.
    pub(crate) fn silence(&self) -> Option<Duration> {
        self.asked.lock().map(|since| since.elapsed()).filter(|silence| *silence > SILENT)
    }
}

/// Begins the watch over new pools, and ends the watch over pools that are gone.
fn follow(pools: &Arc<Mutex<BTreeMap<String, Arc<Seen>>>>, names: &[String], executors: &Executors, owner: u32) {
    let mut known = pools.lock();
    known.retain(|name, _| names.contains(name));
    for name in names {
        if known.contains_key(name) || known.len() >= MOST {
            continue;
        }
        let seen = Arc::new(Seen { asked: Mutex::default(), sight: Mutex::default(), points: Mutex::default() });
        let (shared, executors, pool) = (pools.clone(), executors.clone(), name.clone());
        let own = seen.clone();
        let is_watched = move || shared.lock().get(&pool).is_some_and(|known| Arc::ptr_eq(known, &own));
        let (pool, seen_by) = (name.clone(), seen.clone());
        let begun = thread::Builder::new().name("pool-watch".into()).spawn(move || {
            let mut before = Before::default();
            while is_watched() {
                look(&pool, &seen_by, &executors, owner, &mut before);
                thread::sleep(INTERVAL);
            }
        });
        if begun.is_ok() {
            known.insert(name.clone(), seen);
        }
    }
}

/// The counters of earlier looks.
#[derive(Default)]
struct Before {
    last: Option<IoSample>,
    /// The counters at the last point of the history.
    point: Option<(Instant, IoSample)>,
}

/// Looks once at a pool.
fn look(pool: &str, seen: &Seen, executors: &Executors, owner: u32, before: &mut Before) {
    *seen.asked.lock() = Some(Instant::now());
    let ask = |request: PoolRequest| {
        executors("pool web".to_owned(), Some(owner)).call(pool, request.into(), None, &mut |_| Ok(None))
    };
    let mut sight = Sight::default();
    match ask(PoolRequest::Status) {
        Ok(Response::Status(status)) => {
            if let Response::Status(open) = Response::Status(status.clone()).for_all() {
                sight.status_for_all = Some(Arc::from(open));
            }
            sight.status = Some(Arc::from(status));
        }
        Ok(_) => {}
        Err(failure) => sight.failure = Some(failure),
    }
    let properties = PROPERTIES.map(str::to_owned).to_vec();
    if let Ok(Response::Pool(record)) = ask(PoolRequest::Pool { properties, vdevs: false }) {
        sight.pool = Some(Arc::new(record));
    }
    if let Ok(Response::IoCounters(sample)) = ask(PoolRequest::IoCounters) {
        sight.rates = before.last.as_ref().and_then(|last| rates(last, &sample)).map(Arc::new);
        note_point(seen, before, &sample);
        before.last = Some((*sample).clone());
        sight.sample = Some(Arc::from(sample));
    }
    *seen.sight.lock() = Arc::new(sight);
    *seen.asked.lock() = None;
}

/// Adds a point to the history when a step is complete.
fn note_point(seen: &Seen, before: &mut Before, sample: &IoSample) {
    let now = Instant::now();
    match &before.point {
        Some((since, _)) if now.duration_since(*since) < STEP => return,
        Some((_, earlier)) => {
            if let Some(rates) = rates(earlier, sample) {
                let time = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
                let mut points = seen.points.lock();
                if points.len() == POINTS {
                    points.pop_front();
                }
                points.push_back(Point { time, rate: rates.pool });
            }
        }
        None => {}
    }
    before.point = Some((now, sample.clone()));
}

/// The rates between two samples; `None` if the counters began anew.
fn rates(earlier: &IoSample, later: &IoSample) -> Option<Rates> {
    let seconds = later.elapsed.checked_sub(earlier.elapsed).filter(|nanos| *nanos > 0)? as f64 / 1e9;
    let pool = rate(&earlier.pool, &later.pool, seconds)?;
    let mut devices = BTreeMap::new();
    let before: BTreeMap<&str, &IoCounts> = flat(&earlier.vdevs).map(|counts| (counts.name.as_str(), counts)).collect();
    for counts in flat(&later.vdevs) {
        if let Some(rate) = before.get(counts.name.as_str()).and_then(|before| rate(before, counts, seconds)) {
            devices.insert(counts.name.clone(), rate);
        }
    }
    Some(Rates { pool, devices })
}

fn flat(vdevs: &[IoCounts]) -> impl Iterator<Item = &IoCounts> {
    vdevs.iter().flat_map(|vdev| std::iter::once(vdev).chain(&vdev.members))
}

fn rate(earlier: &IoCounts, later: &IoCounts, seconds: f64) -> Option<Rate> {
    let per_second = |later: u64, earlier: u64| later.checked_sub(earlier).map(|count| count as f64 / seconds);
    let flow = later.flow.since(&earlier.flow);
    let wait = |kind: usize| flow.total_wait[kind].average().unwrap_or(0) as f64 / 1e9;
    Some(Rate {
        reads: per_second(later.reads, earlier.reads)?,
        writes: per_second(later.writes, earlier.writes)?,
        read: per_second(later.read_bytes, earlier.read_bytes)?,
        written: per_second(later.written_bytes, earlier.written_bytes)?,
        read_wait: wait(0),
        write_wait: wait(1),
        queue: flow.pending.iter().chain(&flow.active).sum::<u64>() as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(elapsed: u64, reads: u64) -> IoSample {
        let counts = |name: &str| IoCounts { name: name.into(), reads, read_bytes: reads << 10, ..IoCounts::default() };
        let vdev = IoCounts { members: vec![counts("/a"), counts("/b")], ..counts("mirror-0") };
        IoSample { elapsed, pool: counts("tank"), vdevs: vec![vdev] }
    }

    #[test]
    fn rates_are_per_second_and_begin_anew_with_the_counters() {
        let rates_of = |one, other| rates(&one, &other);
        let shown = rates_of(sample(1_000_000_000, 10), sample(3_000_000_000, 30)).unwrap();
        assert_eq!((shown.pool.reads, shown.pool.read, shown.devices["/b"].reads), (10.0, 10240.0, 10.0));
        assert_eq!(rates_of(sample(2, 10), sample(1, 30)), None, "the pool was imported again");
        assert_eq!(rates_of(sample(1, 30), sample(2, 10)), None);
    }
}
