//! Writers, a committer and a device in virtual time: how long writers wait, with turns and without.

use std::{collections::BTreeSet, time::Duration};

use super::*;
use crate::{
    txg::throttle::Throttle,
    units::{KIB, MIB, Txg},
};

const LIMIT: u64 = 4 * MIB;
const WRITE: u64 = 4096;
const WRITERS: usize = 8;
/// The time of a write to the device, and the number of writes of a commit beside its data.
const DEVICE_WRITE: Duration = Duration::from_millis(20);
const FIXED: u64 = 12;
/// The size of a leaf in memory, with both copies, and how many random writes add a leaf to the tree.
const LEAF: u64 = 18 * KIB;
const WRITES_PER_LEAF: usize = 64;
/// The time between two writes of a writer.
const THINK: Duration = Duration::from_micros(10);
const RUN: Duration = Duration::from_secs(60);
/// How long a tree takes to grow from where data fills memory to where nodes do.
const GROWTH: Duration = Duration::from_secs(20);

/// A thread that writes without end.
#[derive(Clone, Copy)]
struct Writer {
    began: Duration,
    wakes: Duration,
    turn: Option<Turn>,
}

/// The engine's part in miniature: two groups, one commit at a time, writers that go on when their turn has come.
struct World {
    throttle: Throttle,
    paced: bool,
    /// The dirty leaves of the open group, if the writes are random.
    scattered: Option<BTreeSet<usize>>,
    now: Duration,
    open: Txg,
    /// When the commit under way ends.
    ends: Option<Duration>,
    busy: Duration,
    fullest: u64,
    waits: Vec<Duration>,
}

impl World {
    fn new(paced: bool) -> World {
        World {
            throttle: Throttle::new(LIMIT),
            paced,
            scattered: None,
            now: Duration::ZERO,
            open: Txg(1),
            ends: None,
            busy: Duration::ZERO,
            fullest: 0,
            waits: Vec::new(),
        }
    }

    /// Random writes in a growing tree.
    fn scattered() -> World {
        World { scattered: Some(BTreeSet::new()), ..World::new(true) }
    }

    /// Runs all writers for as long.
    fn run(mut self, time: Duration) -> World {
        let writer = Writer { began: Duration::ZERO, wakes: Duration::ZERO, turn: None };
        let mut writers = [writer; WRITERS];
        while self.now < time {
            let next = (0..WRITERS).min_by_key(|&index| writers[index].wakes).unwrap();
            match self.ends.filter(|ends| *ends <= writers[next].wakes) {
                Some(ends) => self.end_commit(ends),
                None => {
                    self.now = writers[next].wakes;
                    self.step(&mut writers[next]);
                }
            }
        }
        self
    }

    fn step(&mut self, writer: &mut Writer) {
        if self.throttle.is_worth_a_commit(self.open) && self.ends.is_none() {
            self.begin_commit();
        }
        if self.paced && writer.turn.is_none() && !self.throttle.is_light() {
            writer.turn = self.throttle.queue(WRITE, self.now);
        }
        if let Some(wait) = writer.turn.and_then(|turn| self.throttle.wait(turn, self.now)) {
            writer.wakes = self.now + wait;
        } else if self.throttle.data.is_full(WRITE) || self.throttle.nodes.is_full(0) {
            writer.wakes = self.ends.expect("a full group is worth a commit");
        } else {
            self.throttle.data.add(self.open, WRITE);
            self.throttle.add_work(self.open, WRITE);
            let nodes = self.dirty_leaf();
            self.throttle.add_update(self.open, nodes);
            self.fullest = self.fullest.max(self.throttle.data.dirty());
            self.waits.push(self.now - writer.began);
            let next = self.now + THINK;
            *writer = Writer { began: next, wakes: next, turn: None };
        }
    }

    /// Bytes of nodes made dirty by the next write.
    fn dirty_leaf(&mut self) -> u64 {
        let writes = self.waits.len();
        let leaf = writes * 7919 % (1 + writes / WRITES_PER_LEAF);
        self.scattered.as_mut().map_or(0, |dirty| if dirty.insert(leaf) { LEAF } else { 0 })
    }

    fn begin_commit(&mut self) {
        let bytes = self.throttle.data.dirty();
        self.throttle.syncing(self.open, self.now);
        self.open = self.open.next();
        self.scattered.iter_mut().for_each(BTreeSet::clear);
        let took = DEVICE_WRITE * (FIXED + bytes.div_ceil(MIB)) as u32;
        self.ends = Some(self.now + took);
        self.busy += took;
    }

    fn end_commit(&mut self, now: Duration) {
        self.now = now;
        self.ends = None;
        self.throttle.committed(self.open.back(1), now);
    }

    fn wait_at(&self, share: f64) -> Duration {
        let mut waits = self.waits.clone();
        waits.sort_unstable();
        waits[((waits.len() - 1) as f64 * share) as usize]
    }

    /// The device's time for as many bytes as the dirty limit.
    fn time_for_the_limit(&self) -> Duration {
        self.busy.mul_f64(LIMIT as f64 / (self.waits.len() as u64 * WRITE) as f64)
    }
}

#[test]
fn an_overloaded_device_slows_writers_evenly() {
    let world = World::new(true).run(RUN);
    let (median, p99, max) = (world.wait_at(0.5), world.wait_at(0.99), world.wait_at(1.0));
    assert!(p99 <= 5 * median, "median {median:?}, 99th percentile {p99:?}");
    assert!(max <= 2 * world.time_for_the_limit(), "longest {max:?}, the limit takes {:?}", world.time_for_the_limit());
    assert!(world.fullest <= LIMIT);
    assert!(world.busy > RUN.mul_f64(0.95), "the device idles: busy for {:?}", world.busy);
}

#[test]
fn writers_all_over_a_tree_are_slowed_evenly_too() {
    let world = World::scattered().run(GROWTH);
    let (median, p99, max) = (world.wait_at(0.5), world.wait_at(0.99), world.wait_at(1.0));
    assert!(p99 <= 5 * median, "median {median:?}, 99th percentile {p99:?}");
    assert!(max <= world.time_for_the_limit() / 4, "longest {max:?}");
    assert!(world.busy > GROWTH.mul_f64(0.95), "the device idles: busy for {:?}", world.busy);
}

#[test]
fn without_turns_writers_run_and_stop() {
    let world = World::new(false).run(RUN);
    assert!(world.wait_at(0.5) < Duration::from_millis(1));
    assert!(world.wait_at(0.99) > 5 * world.wait_at(0.5));
}

fn load(work: u64) -> Load {
    Load { work, fullness: work as f64 / LIMIT as f64 }
}

/// A pace measured on a device of 16 MiB a second.
fn measured() -> Pace {
    let mut pace = Pace::default();
    pace.syncing(load(MIB), Duration::ZERO);
    pace.committed(Duration::from_secs(1) / 16);
    pace
}

#[test]
fn nobody_waits_while_little_is_dirty_or_nothing_is_known() {
    let now = Duration::from_secs(2);
    assert!(measured().queue(WRITE, load(MIB), now).is_none());
    assert!(Pace::default().queue(WRITE, load(LIMIT), now).is_none());
}

#[test]
fn writers_are_slower_the_more_is_dirty() {
    let last_waits = |dirty: u64| {
        let (mut pace, now) = (measured(), Duration::from_secs(2));
        let first = pace.queue(WRITE, load(dirty), now).unwrap();
        assert!(pace.wait(first, load(dirty), now).is_none(), "the first of a queue goes on at once");
        let mut last = first;
        for _ in 0..16 {
            last = pace.queue(WRITE, load(dirty), now).unwrap();
        }
        pace.wait(last, load(dirty), now).unwrap()
    };
    let waits = [5 * MIB / 4, 3 * MIB / 2, 7 * MIB / 4].map(last_waits);
    assert!(waits.is_sorted_by(|a, b| a < b), "{waits:?}");
}

#[test]
fn a_commit_that_does_not_end_slows_the_clock() {
    let mut pace = measured();
    pace.syncing(load(MIB), Duration::from_secs(2));
    let speed = |pace: &Pace, at: u64| pace.speed(load(3 * MIB), Duration::from_secs(at)).unwrap();
    assert!(speed(&pace, 20) < speed(&pace, 4));
    assert!(speed(&pace, 20) > 0.0);
}

#[test]
fn who_waits_goes_on_when_the_pressure_is_gone() {
    let (mut pace, now) = (measured(), Duration::from_secs(2));
    let _ = pace.queue(64 * MIB, load(2 * MIB), now).unwrap();
    let turn = pace.queue(WRITE, load(2 * MIB), now).unwrap();
    assert!(pace.wait(turn, load(2 * MIB), now).is_some());
    assert!(pace.wait(turn, load(MIB), now).is_none());
}
