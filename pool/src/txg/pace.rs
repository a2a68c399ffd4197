//! How fast writers may go on: a virtual clock that runs as fast as the devices take what is dirty.
//!
//! Whoever changes something while much is dirty asks for a turn. Turns stand in a queue of *work*, which is counted in
//! bytes; a clock that counts work as well moves along it, and a turn has come when the clock has reached it. So a writer
//! waits a little for each change, in proportion to its size, instead of a whole commit now and then.
//!
//! The clock's speed follows three estimates:
//!
//! * *The drain*, in work a second: what commits have taken away, the last ones counting most, and never more than it
//!   would be if the commit under way ended now. So a device that becomes slow, or was never measured, slows the clock
//!   while its first commit lasts, and not only after it.
//! * *The capacity*: how much work fills what may be dirty, as the last groups have shown. Nodes become dirty at the first
//!   change in each and not again, so that their number says little in the middle of a group.
//! * *What is left*: the work that is dirty without that which the devices should have done by now. What is dirty falls by
//!   a whole group when a commit ends, and would have writers run and stop in turns. Records of the open group are stored
//!   while it is open, so a commit may take away much more or less than was done while it lasted; most of the difference
//!   is carried over, and evens out with the next.
//!
//! With up to a quarter of the capacity left nobody waits. Above, the clock runs at twice the drain and ever slower: just
//! as fast as the drain at three eighths, where the next group becomes as large as the one being written while that is
//! written. Both together stay below what may be dirty, and a commit that takes longer than the ones before has a
//! quarter of it to do so, at a speed that falls. Whatever the estimates say, the speed falls to the least when all that
//! may be dirty is. They forget soon: where changes go all over a tree that grows, the same work makes more nodes dirty
//! with every group, and the groups become smaller.
//!
//! All times come from the caller. Nothing here sleeps, and nothing here keeps a limit: the clock never stands still, so
//! who must not go beyond a bound checks it when the turn has come.

use std::time::Duration;

/// Fullness up to which nobody waits.
pub(super) const FREE: f64 = 1.0 / 4.0;
/// Fullness at which writers are as fast as the devices.
const EVEN: f64 = 3.0 / 8.0;
/// Fullness at which they would stand still.
const FULL: f64 = 1.0 / 2.0;
/// The bounds of their speed, as a multiple of the devices'.
const SLOWEST: f64 = 1.0 / 8.0;
const FASTEST: f64 = 2.0;
/// How full a group at least has to be to tell anything: a commit has costs that do not depend on its size.
const TELLING: f64 = 1.0 / 8.0;
/// How much a commit counts beside the one after it, and how much of what it did otherwise than expected is carried over.
const KEEP: f64 = 1.0 / 2.0;
/// How far the clock runs ahead of the queue when nobody comes: systems wake sleepers late.
const CREDIT: Duration = Duration::from_millis(1);
/// How long a writer sleeps at least, and at most before it looks again.
const SLEEP_MIN: Duration = Duration::from_micros(1);
const SLEEP_MAX: Duration = Duration::from_millis(20);

/// A place in the queue, in work since it began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn(f64);

/// What is dirty, in both groups or in one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// The work that has made it so.
    pub(super) work: u64,
    /// How much it is of what may be.
    pub(super) fullness: f64,
}

impl Load {
    fn is_telling(self) -> bool {
        self.fullness >= TELLING && self.work > 0
    }
}

/// The group that is being written.
#[derive(Debug)]
struct Syncing {
    load: Load,
    since: Duration,
}

/// The clock and its queue.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The work that commits have taken away, and the seconds that they took: weighted sums.
    taken: f64,
    took: f64,
    /// The work that fills what may be dirty; none before the first group that tells.
    capacity: Option<f64>,
    syncing: Option<Syncing>,
    /// The work that was done, it seems, and that no commit has taken away.
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
        if load.is_telling() {
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
        if load.is_telling() {
            self.taken = self.taken * KEEP + work;
            self.took = self.took * KEEP + seconds(since, now);
        }
    }

    /// What may be dirty has changed: groups will show how much work that is.
    pub(super) fn forget_capacity(&mut self) {
        self.capacity = None;
    }

    /// Takes the last place in the queue for `work`, if anybody has to wait.
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

    /// Moves the clock to `now`, and returns its speed. Where nobody has to wait it is at the end of the queue.
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

    /// The work of what is dirty that the devices should have done.
    fn done(&self, drain: f64, now: Duration) -> f64 {
        self.carried + self.syncing.as_ref().map_or(0.0, |group| drain * seconds(group.since, now))
    }

    /// How much work a second the devices do, as far as anything is known. A small group shows no less than one that is
    /// worth a commit would: nobody knows how much of its time it takes for its work.
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
