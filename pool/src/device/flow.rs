//! How requests flow to a device: their waits, their sizes, and how many are under way.
//!
//! A request of a device with threads of its own ([`DeadlineDevice`](super::DeadlineDevice)) has two stages: it waits for
//! a thread, and then the kernel carries it out. A read that its caller does itself has the second stage only. There are
//! no other queues: threads are started as needed.
//!
//! The class of a request follows from its kind and from the [`IoPurpose`] of the thread that makes it. All counters are
//! relaxed atomics in fixed arrays; a snapshot taken while requests run may be a request apart in two of them.

use std::{
    array,
    cell::Cell,
    collections::VecDeque,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Number of buckets of a wait: bucket `n` counts waits of `2^n` up to `2^(n+1) - 1` nanoseconds, the last all longer.
pub const WAITS: usize = 37;
/// Number of buckets of a size: bucket `n` counts requests of `2^n` up to `2^(n+1) - 1` bytes, the last all larger.
pub const SIZES: usize = 25;

/// Why a thread makes requests to devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoPurpose {
    /// A program waits for the request.
    #[default]
    Waiting,
    /// Writes of a commit, reads ahead, moves: no program waits for this request.
    Background,
    /// A scrub, and its repairs.
    Scrub,
    /// A resilver of devices.
    Resilver,
}

thread_local! {
    static PURPOSE: Cell<IoPurpose> = const { Cell::new(IoPurpose::Waiting) };
    static IS_MERGED: Cell<bool> = const { Cell::new(false) };
}

impl IoPurpose {
    /// The purpose of this thread's requests.
    pub fn current() -> IoPurpose {
        PURPOSE.get()
    }

    /// Runs `work` with this purpose on this thread.
    pub fn during<T>(self, work: impl FnOnce() -> T) -> T {
        let before = PURPOSE.replace(self);
        let result = work();
        PURPOSE.set(before);
        result
    }
}

/// Runs `work`, whose requests each carry several blocks if `is_merged`.
pub(crate) fn merged<T>(is_merged: bool, work: impl FnOnce() -> T) -> T {
    let before = IS_MERGED.replace(is_merged);
    let result = work();
    IS_MERGED.set(before);
    result
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    Discard,
    Flush,
}

/// A class of requests, as OpenZFS groups them in `zpool iostat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoClass {
    /// Reads for which a program waits.
    SyncRead,
    /// Writes for which a program waits: of the intent log, and whatever fsync stores at once.
    SyncWrite,
    /// Reads ahead, and reads of commits and moves.
    AsyncRead,
    /// Writes of commits and moves.
    AsyncWrite,
    /// Requests of a scrub.
    Scrub,
    /// Discards of unused space.
    Trim,
    /// Requests of a resilver.
    Rebuild,
}

/// Number of classes.
pub const CLASSES: usize = 7;

impl IoClass {
    /// All classes, in the order of the arrays of [`Flow`].
    pub const ALL: [IoClass; CLASSES] = [
        IoClass::SyncRead,
        IoClass::SyncWrite,
        IoClass::AsyncRead,
        IoClass::AsyncWrite,
        IoClass::Scrub,
        IoClass::Trim,
        IoClass::Rebuild,
    ];

    /// The name in JSON and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            IoClass::SyncRead => "sync_read",
            IoClass::SyncWrite => "sync_write",
            IoClass::AsyncRead => "async_read",
            IoClass::AsyncWrite => "async_write",
            IoClass::Scrub => "scrub",
            IoClass::Trim => "trim",
            IoClass::Rebuild => "rebuild",
        }
    }

    /// The class of a request on this thread. A flush has none.
    fn of(kind: Kind, purpose: IoPurpose) -> Option<IoClass> {
        Some(match (kind, purpose) {
            (Kind::Flush, _) => return None,
            (Kind::Discard, _) => IoClass::Trim,
            (_, IoPurpose::Scrub) => IoClass::Scrub,
            (_, IoPurpose::Resilver) => IoClass::Rebuild,
            (Kind::Read, IoPurpose::Waiting) => IoClass::SyncRead,
            (Kind::Read, IoPurpose::Background) => IoClass::AsyncRead,
            (Kind::Write, IoPurpose::Waiting) => IoClass::SyncWrite,
            (Kind::Write, IoPurpose::Background) => IoClass::AsyncWrite,
        })
    }
}

/// Waits of requests: their sum, and how many were how long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// Sum of the waits, in nanoseconds.
    pub nanos: u64,
    /// Number of waits in each bucket, up to the last that is not 0; at most [`WAITS`].
    pub buckets: Vec<u64>,
}

impl Waits {
    /// Number of the waits.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The average wait in nanoseconds; `None` without waits.
    pub fn average(&self) -> Option<u64> {
        self.nanos.checked_div(self.count())
    }

    fn joined(&self, other: &Waits, join: Join) -> Waits {
        Waits { nanos: join(self.nanos, other.nanos), buckets: joined(&self.buckets, &other.buckets, join) }
    }
}

/// Sizes of requests of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// Number of requests for one block in each bucket, up to the last that is not 0; at most [`SIZES`].
    pub alone: Vec<u64>,
    /// Likewise of requests for several adjacent blocks.
    pub merged: Vec<u64>,
}

/// How requests flowed to a device, or to the devices of a vdev or pool, since import. Arrays of [`CLASSES`] are in the
/// order of [`IoClass::ALL`]; pairs are reads and writes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// Waits from the request to its answer, of reads and writes.
    pub total_wait: [Waits; 2],
    /// Waits for the kernel and the device alone.
    pub disk_wait: [Waits; 2],
    /// Waits for a thread, by class. Requests that need no thread are left out.
    pub queue_wait: [Waits; CLASSES],
    /// Sizes of the requests, by class.
    pub sizes: [Sizes; CLASSES],
    /// Requests that wait for a thread now, by class.
    pub pending: [u64; CLASSES],
    /// Requests that the kernel carries out now, by class.
    pub active: [u64; CLASSES],
}

type Join = fn(u64, u64) -> u64;

impl Flow {
    /// The flow after an earlier sample of the same device; requests under way are the present ones.
    pub fn since(&self, before: &Flow) -> Flow {
        Flow { pending: self.pending, active: self.active, ..self.joined(before, u64::saturating_sub) }
    }

    /// Adds the flow to another device.
    pub fn add(&mut self, other: &Flow) {
        *self = self.joined(other, u64::saturating_add);
    }

    fn joined(&self, other: &Flow, join: Join) -> Flow {
        Flow {
            total_wait: array::from_fn(|at| self.total_wait[at].joined(&other.total_wait[at], join)),
            disk_wait: array::from_fn(|at| self.disk_wait[at].joined(&other.disk_wait[at], join)),
            queue_wait: array::from_fn(|at| self.queue_wait[at].joined(&other.queue_wait[at], join)),
            sizes: array::from_fn(|at| Sizes {
                alone: joined(&self.sizes[at].alone, &other.sizes[at].alone, join),
                merged: joined(&self.sizes[at].merged, &other.sizes[at].merged, join),
            }),
            pending: array::from_fn(|at| join(self.pending[at], other.pending[at])),
            active: array::from_fn(|at| join(self.active[at], other.active[at])),
        }
    }
}

fn joined(one: &[u64], other: &[u64], join: Join) -> Vec<u64> {
    let get = |buckets: &[u64], at: usize| buckets.get(at).copied().unwrap_or(0);
    trimmed((0..one.len().max(other.len())).map(|at| join(get(one, at), get(other, at))).collect())
}

/// The buckets up to the last that is not 0.
fn trimmed(mut buckets: Vec<u64>) -> Vec<u64> {
    buckets.truncate(buckets.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1));
    buckets
}

/// The bucket of a value among `count` buckets.
fn bucket(value: u64, count: usize) -> usize {
    (value.max(1).ilog2() as usize).min(count - 1)
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[derive(Debug)]
struct Buckets<const N: usize>([AtomicU64; N]);

impl<const N: usize> Default for Buckets<N> {
    fn default() -> Buckets<N> {
        Buckets(array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl<const N: usize> Buckets<N> {
    fn note(&self, value: u64) {
        add(&self.0[bucket(value, N)], 1);
    }

    fn snapshot(&self) -> Vec<u64> {
        trimmed(self.0.iter().map(get).collect())
    }
}

#[derive(Debug, Default)]
struct LiveWaits {
    nanos: AtomicU64,
    buckets: Buckets<WAITS>,
}

impl LiveWaits {
    fn note(&self, wait: Duration) {
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        add(&self.nanos, nanos);
        self.buckets.note(nanos);
    }

    fn snapshot(&self) -> Waits {
        Waits { nanos: get(&self.nanos), buckets: self.buckets.snapshot() }
    }
}

/// When requests, and a device, count as slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowLimits {
    /// A request that takes longer is slow.
    pub request: Duration,
    /// A device is slow after so many slow requests; at most [`SlowLimits::MOST`].
    pub count: u64,
    /// But only if all of these requests ended within this time.
    pub within: Duration,
}

impl SlowLimits {
    /// The greatest number of requests in [`SlowLimits::count`].
    pub const MOST: u64 = 1000;
}

impl Default for SlowLimits {
    fn default() -> SlowLimits {
        SlowLimits { request: Duration::from_secs(30), count: 10, within: Duration::from_secs(30) }
    }
}

/// The slow requests of a device.
#[derive(Debug, Default)]
struct Slow {
    /// The limit of a request, in nanoseconds; 0 until one is set.
    limit: AtomicU64,
    limits: Mutex<SlowLimits>,
    count: AtomicU64,
    is_device_slow: AtomicBool,
    /// When the last slow requests ended, oldest first.
    recent: Mutex<VecDeque<Instant>>,
}

impl Slow {
    fn note(&self, took: Duration, now: Instant) {
        let limit = get(&self.limit);
        if limit == 0 || took.as_nanos() <= u128::from(limit) {
            return;
        }
        add(&self.count, 1);
        let (limits, mut recent) = (*self.limits.lock(), self.recent.lock());
        recent.push_back(now);
        while recent.len() as u64 > limits.count.clamp(1, SlowLimits::MOST) {
            recent.pop_front();
        }
        let first = recent.front().copied().unwrap_or(now);
        if recent.len() as u64 == limits.count && now.saturating_duration_since(first) <= limits.within {
            self.is_device_slow.store(true, Ordering::Relaxed);
        }
    }
}

/// The live counters of a device's requests, in about 6 KiB.
#[derive(Debug, Default)]
pub struct Meter {
    total_wait: [LiveWaits; 2],
    disk_wait: [LiveWaits; 2],
    queue_wait: [LiveWaits; CLASSES],
    /// Of requests for one block, and for several.
    sizes: [[Buckets<SIZES>; 2]; CLASSES],
    pending: [AtomicU64; CLASSES],
    active: [AtomicU64; CLASSES],
    slow: Slow,
}

/// What the meter has to know of a request from its beginning on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    kind: Kind,
    class: Option<IoClass>,
    bytes: u64,
    is_merged: bool,
}

impl Asked {
    /// A request of this thread.
    pub(crate) fn new(kind: Kind, bytes: usize) -> Asked {
        let class = IoClass::of(kind, IoPurpose::current());
        Asked { kind, class, bytes: bytes as u64, is_merged: IS_MERGED.get() }
    }
}

impl Meter {
    /// The counts at this instant.
    pub fn snapshot(&self) -> Flow {
        Flow {
            total_wait: array::from_fn(|at| self.total_wait[at].snapshot()),
            disk_wait: array::from_fn(|at| self.disk_wait[at].snapshot()),
            queue_wait: array::from_fn(|at| self.queue_wait[at].snapshot()),
            sizes: array::from_fn(|at| {
                let [alone, merged] = &self.sizes[at];
                Sizes { alone: alone.snapshot(), merged: merged.snapshot() }
            }),
            pending: array::from_fn(|at| get(&self.pending[at])),
            active: array::from_fn(|at| get(&self.active[at])),
        }
    }

    /// Sets when requests and the device count as slow, from now on.
    pub fn set_slow_limits(&self, limits: SlowLimits) {
        let nanos = u64::try_from(limits.request.as_nanos()).unwrap_or(u64::MAX).max(1);
        *self.slow.limits.lock() = limits;
        self.slow.limit.store(nanos, Ordering::Relaxed);
    }

    /// Number of slow requests since the pool was opened, or since [`Meter::clear_slow`].
    pub fn slow(&self) -> u64 {
        get(&self.slow.count)
    }

    /// Whether the device was slow since the pool was opened, or since [`Meter::clear_slow`].
    pub fn is_slow(&self) -> bool {
        self.slow.is_device_slow.load(Ordering::Relaxed)
    }

    /// Forgets the slow requests, as `pool clear` does.
    pub fn clear_slow(&self) {
        self.slow.recent.lock().clear();
        self.slow.count.store(0, Ordering::Relaxed);
        self.slow.is_device_slow.store(false, Ordering::Relaxed);
    }

    /// A request begins to wait for a thread.
    pub(crate) fn queued(&self, asked: Asked) {
        if let Some(class) = asked.class {
            add(&self.pending[class as usize], 1);
        }
    }

    /// A request no longer waits for a thread.
    pub(crate) fn unqueued(&self, asked: Asked) {
        if let Some(class) = asked.class {
            self.pending[class as usize].fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The kernel begins to carry out a request.
    pub(crate) fn begun(&self, asked: Asked) {
        if let Some(class) = asked.class {
            add(&self.active[class as usize], 1);
        }
    }

    /// The kernel could not carry out a request without a wait, and has not begun.
    pub(crate) fn not_done(&self, asked: Asked) {
        if let Some(class) = asked.class {
            self.active[class as usize].fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The kernel has answered, after `disk` in the kernel and `queue` for a thread, if a thread was needed.
    pub(crate) fn ended(&self, asked: Asked, queue: Option<Duration>, disk: Duration, now: Instant) {
        self.slow.note(disk + queue.unwrap_or_default(), now);
        let Some(class) = asked.class else { return };
        let at = class as usize;
        self.active[at].fetch_sub(1, Ordering::Relaxed);
        self.sizes[at][usize::from(asked.is_merged)].note(asked.bytes);
        if let Some(queue) = queue {
            self.queue_wait[at].note(queue);
        }
        let direction = match asked.kind {
            Kind::Read => 0,
            Kind::Write => 1,
            Kind::Discard | Kind::Flush => return,
        };
        self.disk_wait[direction].note(disk);
        self.total_wait[direction].note(disk + queue.unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_and_sizes_are_counted_by_powers_of_two() {
        let meter = Meter::default();
        let asked = Asked::new(Kind::Read, 4096);
        for (queue, disk) in [(None, 1), (Some(1), 2), (Some(1 << 50), 1023)] {
            meter.begun(asked);
            meter.ended(asked, queue.map(Duration::from_nanos), Duration::from_nanos(disk), Instant::now());
        }
        let flow = meter.snapshot();
        assert_eq!(flow.disk_wait[0].buckets, [1, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!((flow.total_wait[0].buckets.len(), flow.total_wait[0].count()), (WAITS, 3));
        assert_eq!((flow.queue_wait[0].count(), flow.active), (2, [0; CLASSES]));
        assert_eq!(flow.sizes[0].alone, [vec![0; 12], vec![3]].concat());
        assert_eq!(flow.disk_wait[0].average(), Some(1026 / 3));
        assert_eq!((flow.disk_wait[1].average(), flow.since(&flow).total_wait[0].count()), (None, 0));
    }

    #[test]
    fn a_device_is_slow_after_many_slow_requests_within_a_time() {
        let (meter, start, asked) = (Meter::default(), Instant::now(), Asked::new(Kind::Flush, 0));
        let second = Duration::from_secs(1);
        meter.set_slow_limits(SlowLimits { request: second, count: 2, within: 10 * second });
        let end = |took, at: u32| {
            meter.ended(asked, None, took, start + at * second);
            (meter.slow(), meter.is_slow())
        };
        assert_eq!(end(second, 0), (0, false), "no longer than the limit");
        assert_eq!(end(2 * second, 1), (1, false));
        assert_eq!(end(2 * second, 12), (2, false), "the requests are too far apart");
        assert_eq!(end(2 * second, 20), (3, true));
        meter.clear_slow();
        assert_eq!(end(2 * second, 21), (1, false));
    }

    #[test]
    fn the_class_follows_from_the_purpose_of_the_thread() {
        let class = |kind| Asked::new(kind, 1).class;
        assert_eq!([Kind::Read, Kind::Write].map(class), [Some(IoClass::SyncRead), Some(IoClass::SyncWrite)]);
        let inside = IoPurpose::Scrub.during(|| [Kind::Read, Kind::Discard, Kind::Flush].map(class));
        assert_eq!(inside, [Some(IoClass::Scrub), Some(IoClass::Trim), None]);
        assert_eq!(IoPurpose::current(), IoPurpose::Waiting);
        assert!(merged(true, || Asked::new(Kind::Write, 1).is_merged) && !Asked::new(Kind::Write, 1).is_merged);
    }

    #[test]
    fn a_sum_and_a_difference_keep_what_only_one_has() {
        let flow = |nanos, buckets: &[u64]| {
            let mut flow = Flow::default();
            flow.total_wait[1] = Waits { nanos, buckets: buckets.to_vec() };
            flow
        };
        let mut sum = flow(10, &[1, 2]);
        sum.add(&flow(5, &[0, 0, 4]));
        assert_eq!(sum, flow(15, &[1, 2, 4]));
        assert_eq!(sum.since(&flow(5, &[0, 0, 4])), flow(10, &[1, 2]));
    }
}
