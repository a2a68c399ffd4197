//! Scrubs that start by themselves, with a simulated clock.

use super::*;
use crate::jobs::{Due, DueScrub, operations};

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

/// A small pool that is scrubbed every ten days.
fn bench(seed: u64) -> Bench {
    let devices = [disk("a", 64 * MIB)];
    let bench = Bench::of(vec![NewVdev::Disk(devices[0].clone())], &devices, seed);
    bench.world.datasets.set_pool_property("scrub_interval", "10d").unwrap();
    bench.world.write("tank", "file", &noise(1, LEN));
    bench.world.engine.commit().unwrap();
    bench
}

impl Bench {
    /// Lets seconds pass, with a step each ten seconds; `busy` uses the devices meanwhile. Returns the seconds until a
    /// scrub started.
    fn pass(&self, due: &mut DueScrub, seconds: u64, busy: bool) -> Option<u64> {
        let (datasets, env) = (&self.world.datasets, self.world.engine.env());
        for passed in (0..seconds).step_by(10) {
            env.sleep(Duration::from_secs(10));
            if busy {
                let before = operations(datasets);
                while operations(datasets) - before <= 20 {
                    self.world.engine.commit_anyway().unwrap();
                }
            }
            if due.step(datasets).unwrap() {
                return Some(passed + 10);
            }
        }
        None
    }

    fn due(&self) -> Due {
        self.world.datasets.due_scrub().unwrap()
    }

    fn finish_scrub(&self) {
        let mut scheduler = Scheduler::of_steps(STEP, &self.world.datasets);
        self.turns(&mut scheduler);
        assert_eq!(self.scrub_state(), Some(ScrubState::Finished));
    }

    fn scrub_state(&self) -> Option<ScrubState> {
        self.world.datasets.scrub().status().unwrap().map(|row| row.state)
    }
}

#[test]
fn a_due_scrub_starts_when_the_devices_are_idle() {
    let bench = bench(1);
    let mut due = DueScrub::new(&bench.world.datasets);
    assert_eq!(bench.pass(&mut due, 10 * DAY - HOUR, false), None, "nothing is due");
    let started = bench.pass(&mut due, 2 * HOUR, false).expect("it is due");
    assert!((HOUR..=HOUR + 25 * 60 + 70).contains(&started), "{started}");
    bench.finish_scrub();
    // The next one is due ten days after the end.
    assert!(bench.due().from > bench.world.engine.env().now() + 9 * (DAY as i64) * 1_000_000_000);
    assert_eq!(bench.pass(&mut due, 9 * DAY, false), None);
    assert!(bench.pass(&mut due, 2 * DAY, false).is_some());
}

#[test]
fn a_scrub_of_busy_devices_waits_for_a_bounded_time() {
    let bench = bench(2);
    let wait = |bench: &Bench| (bench.due().latest - bench.due().from) / 1_000_000_000;
    assert_eq!(wait(&bench), DAY as i64);
    bench.world.datasets.set_pool_property("scrub_interval", "400d").unwrap();
    assert_eq!(wait(&bench), DAY as i64);
    bench.world.datasets.set_pool_property("scrub_interval", "10h").unwrap();
    assert_eq!(wait(&bench), HOUR as i64);
    let mut due = DueScrub::new(&bench.world.datasets);
    assert_eq!(bench.pass(&mut due, 9 * HOUR + HOUR / 2, false), None, "nothing is due");
    assert_eq!(bench.pass(&mut due, HOUR, true), None, "the devices are busy");
    let started = bench.pass(&mut due, HOUR, true).expect("a tenth of the interval has passed");
    assert!((5 * 60..=HOUR / 2 + 10).contains(&started), "{started}");
}

#[test]
fn overdue_pools_begin_one_after_the_other() {
    let mut begins = Vec::new();
    for seed in 0..4 {
        let bench = bench(seed);
        bench.world.engine.env().sleep(Duration::from_secs(40 * DAY));
        let mut due = DueScrub::new(&bench.world.datasets);
        begins.push(bench.pass(&mut due, HOUR, false).unwrap());
    }
    begins.sort_unstable();
    assert!(begins[0] >= 300 && begins[3] <= 1810, "{begins:?}");
    assert!(begins.windows(2).all(|two| two[0] < two[1]), "{begins:?}");
}

#[test]
fn pools_of_one_age_begin_one_after_the_other() {
    for busy in [false, true] {
        let mut begins = Vec::new();
        for seed in 0..3 {
            let bench = bench(seed);
            bench.world.datasets.set_pool_property("scrub_interval", "10h").unwrap();
            let mut due = DueScrub::new(&bench.world.datasets);
            assert_eq!(bench.pass(&mut due, 9 * HOUR, busy), None, "nothing is due");
            begins.push(bench.pass(&mut due, 2 * HOUR, busy).unwrap());
        }
        begins.sort_unstable();
        assert!(begins.windows(2).all(|two| two[0] < two[1]), "{busy}: {begins:?}");
    }
}

#[test]
fn a_scrub_that_takes_longer_than_the_interval_is_not_overdue() {
    let bench = bench(5);
    bench.world.datasets.scrub().start_at(None).unwrap();
    bench.world.engine.env().sleep(Duration::from_secs(20 * DAY));
    assert_eq!(bench.world.datasets.due_scrub(), None);
    bench.finish_scrub();
    assert!(bench.due().from > bench.world.engine.env().now());
}

#[test]
fn paused_and_stopped_scrubs_stay_as_they_are() {
    let bench = bench(3);
    let datasets = &bench.world.datasets;
    let mut due = DueScrub::new(datasets);
    datasets.scrub().start_at(Some(7 << 20)).unwrap();
    datasets.scrub().pause().unwrap();
    assert_eq!(bench.pass(&mut due, 20 * DAY, false), None);
    assert_eq!(bench.scrub_state(), Some(ScrubState::Paused));
    assert!(bench.due().latest < bench.world.engine.env().now(), "and it is overdue");
    datasets.scrub().give_up().unwrap();
    assert_eq!(bench.pass(&mut due, 9 * DAY, false), None, "ten days count from the stop");
    assert!(bench.pass(&mut due, 2 * DAY, false).is_some());
    assert_eq!(datasets.scrub().limit(), Some(7 << 20), "with the limit of the scrub before");
}

#[test]
fn without_an_interval_nothing_starts() {
    let bench = bench(4);
    bench.world.datasets.set_pool_property("scrub_interval", "off").unwrap();
    let mut due = DueScrub::new(&bench.world.datasets);
    assert_eq!(bench.pass(&mut due, 40 * DAY, false), None);
    assert_eq!(bench.world.datasets.due_scrub(), None);
}
