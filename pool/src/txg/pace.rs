//! Pacing of writers: a virtual clock that runs as fast as the devices drain dirty data.
//!
//! When much is dirty, a writer asks for a turn. Turns stand in a queue of *work*, counted in bytes. A clock that also
//! counts work moves along the queue, and a turn has come when the clock reaches its place. So a writer waits a little
//! for each change, in proportion to its size, instead of a whole commit now and then.
//!
//! The clock's speed follows three estimates:
//!
//! * *The drain*, in work a second: the rate of recent commits, the last ones counting most, and never more than if the
//!   commit under way ended now. So a slow or unmeasured device slows the clock during its first commit, and not only
//!   afterwards.
//! * *The capacity*: how much work fills the dirty limit, as shown by the last groups. A node becomes dirty at its
//!   first change in a group and not again, so the number of dirty nodes says little in the middle of a group.
//! * *The rest*: the dirty work minus the work that the devices should have done by now. Dirty work itself falls by a
//!   whole group when a commit ends, which would make writers run and stop in turns. Records of the open group are
//!   stored while the group is open, so a commit may take away much more or less than was done during the commit; most
//!   of the difference is carried over, and evens out with the next.
//!
//! While the rest is up to a quarter of the capacity, no writer waits. Above, the clock runs at twice the drain and
//! ever slower: just as fast as the drain at three eighths, where the next group becomes as large as the one being
//! written. Both together stay below the dirty limit, and a commit slower than the ones before has a quarter of the
//! limit as slack, at a falling speed. Whatever the estimates say, the speed falls to the least at the dirty limit. The
//! estimates forget soon: with random changes in a growing tree, the same work makes more nodes dirty with every group,
//! and the groups become smaller.
//!
//! All times come from the caller. Nothing here sleeps or enforces a limit: the clock never stands still, so a caller
//! with a hard bound checks it when the turn has come.

use std::time::Duration;

/// Fullness up to which no writer waits.
pub(super) const FREE: f64 = 1.0 / 4.0;
/// Fullness at which writers are as fast as the devices.
const EVEN: f64 = 3.0 / 8.0;
/// Fullness at which writers would stand still.
const FULL: f64 = 1.0 / 2.0;
/// The bounds of their speed, as a multiple of the devices'.
const SLOWEST: f64 = 1.0 / 8.0;
const FASTEST: f64 = 2.0;
/// The least fullness of a group from which the drain and the capacity are estimated: a commit has fixed costs.
const NOTICEABLE: f64 = 1.0 / 8.0;
/// The weight of a commit relative to the next one, and the part of its deviation that is carried over.
const KEEP: f64 = 1.0 / 2.0;
/// How far the clock runs ahead of an empty queue: systems wake sleepers late.
const CREDIT: Duration = Duration::from_millis(1);
/// The shortest sleep of a writer, and the longest before another look.
const SLEEP_MIN: Duration = Duration::from_micros(1);
const SLEEP_MAX: Duration = Duration::from_millis(20);

/// A place in the queue, in bytes of work since the start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn(f64);

/// Dirty work and memory, of both groups or of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Bytes of work done by writers.
    pub(super) work: u64,
    /// The part of the dirty limit in use, 0 to 1.
    pub(super) fullness: f64,
}

impl Load {
    fn is_noticeable(self) -> bool {
        self.fullness >= NOTICEABLE && self.work > 0
    }
}

/// The group being written.
#[derive(Debug)]
struct Syncing {
    load: Load,
    since: Duration,
}

/// The clock and its queue.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The work drained by commits, and their seconds: weighted sums.
    taken: f64,
    took: f64,
    /// The work that fills the dirty limit; none before the first group with [`NOTICEABLE`] fullness.
    capacity: Option<f64>,
    syncing: Option<Syncing>,
    /// The devices' estimated work that no commit has taken away yet; negative if commits took more.
    carried: f64,
    /// Where the queue ends, and where the clock stands.
    end: f64,
    clock: f64,
    /// When the clock was last moved.
    moved: Duration,
}

impl Pace {
    /// The writing of a group has begun.
    pub(super) fn syncing(&mut self, load: Load, now: Duration) {
        if load.is_noticeable() {
            let shown = load.work as f64 / load.fullness;
            self.capacity = Some(self.capacity.map_or(shown, |capacity| (capacity + shown) / 2.0));
        }
        self.syncing = Some(Syncing { load, since: now });
    }

    /// The group is committed.
    pub(super) fn committed(&mut self, now: Duration) {
        let done = self.done(self.drain(self.capacity.unwrap_or_default(), now).unwrap_or_default(), now);
        let Some(Syncing { load, since }) = self.syncing.take() else { return };
        let work = load.work as f64;
        self.carried = ((done - work) * KEEP).clamp(-work, work);
        if load.is_noticeable() {
            self.taken = self.taken * KEEP + work;
            self.took = self.took * KEEP + seconds(since, now);
        }
    }

    /// Forgets the capacity after a change of the dirty limit: the next groups show the new one.
    pub(super) fn forget_capacity(&mut self) {
        self.capacity = None;
    }

    /// Takes the last place in the queue for `work`; `None` if no wait is needed.
    pub(super) fn queue(&mut self, work: u64, load: Load, now: Duration) -> Option<Turn> {
        self.advance(load, now)?;
        let turn = Turn(self.end);
        self.end += work as f64;
        Some(turn)
    }

    /// How long to sleep before looking again, or nothing if the turn has come.
    pub(super) fn wait(&mut self, turn: Turn, load: Load, now: Duration) -> Option<Duration> {
        let speed = self.advance(load, now)?;
        let ahead = turn.0 - self.clock;
        (ahead > 0.0).then(|| Duration::from_secs_f64((ahead / speed).min(1.0)).clamp(SLEEP_MIN, SLEEP_MAX))
    }

    /// Moves the clock to `now`, and returns its speed. Without a need to wait the clock is at the end of the queue.
    fn advance(&mut self, load: Load, now: Duration) -> Option<f64> {
        let speed = self.speed(load, now);
        let passed = seconds(self.moved, now);
        self.moved = self.moved.max(now);
        self.clock = match speed {
            Some(speed) => (self.clock + speed * passed).min(self.end + speed * CREDIT.as_secs_f64()),
            None => self.end,
        };
        speed
    }

    fn speed(&self, load: Load, now: Duration) -> Option<f64> {
        let work = load.work as f64;
        let capacity = self.capacity.unwrap_or(work / load.fullness);
        let drain = self.drain(capacity, now)?;
        let left = (work - self.done(drain, now)) / capacity;
        let left = left.max(load.fullness - (1.0 - FULL));
        (left > FREE).then(|| drain * ((FULL - left) / (FULL - EVEN)).clamp(SLOWEST, FASTEST))
    }

    /// The dirty work that the devices should have done by now.
    fn done(&self, drain: f64, now: Duration) -> f64 {
        self.carried + self.syncing.as_ref().map_or(0.0, |group| drain * seconds(group.since, now))
    }

    /// The devices' rate in work a second, as far as known. A small group counts as one just worth a commit, because
    /// its fixed costs are unknown.
    fn drain(&self, capacity: f64, now: Duration) -> Option<f64> {
        let known = self.taken / self.took;
        let shown = self.syncing.as_ref().map_or(known, |group| {
            let work = (group.load.work as f64).max(capacity * FREE);
            (self.taken + work) / (self.took + seconds(group.since, now))
        });
        Some(known.min(shown)).filter(|drain| drain.is_finite())
    }
}

fn seconds(since: Duration, now: Duration) -> f64 {
    now.saturating_sub(since).as_secs_f64()
}

#[cfg(test)]
#[path = "pace_tests.rs"]
mod tests;
