//! Jobs of a real pool, stepped by the scheduler.

mod due;
mod resuming;

use std::{sync::Arc, time::Duration};

use pool::{
    admin::{self, CreateOptions, NewVdev, OpenOptions, Pool},
    device::{Device, MemoryDevice},
    env::SeededEnv,
    error::Error as PoolError,
    format::key::Key,
    units::MIB,
};

use super::{Job, JobRecord, JobState, Kind, Pass, Scheduler, Step, Turn};
use crate::{
    admin::{
        Datasets,
        tests::world::{World, name, noise, refusal, settings},
    },
    catalogue::{POOL, RemovalRow, ScrubState, kind},
    error::Result,
};

const LEN: usize = 1 << 20;
const FILES: u64 = 40;
const STEP: u64 = 1 << 20;

fn disk(name: &str, size: u64) -> Arc<dyn Device> {
    Arc::new(MemoryDevice::new(name, size))
}

/// A pool with an almost full disk and an empty one.
struct Bench {
    pool: Pool,
    world: World,
}

impl Bench {
    fn new(seed: u64) -> Bench {
        let devices = [disk("a", 64 * MIB), disk("b", 96 * MIB)];
        let bench = Bench::of(vec![NewVdev::Disk(devices[0].clone())], &devices, seed);
        (0..FILES).for_each(|number| bench.world.write("tank", &number.to_string(), &noise(number, LEN)));
        bench.world.engine.commit().unwrap();
        bench.pool.begin_add(vec![NewVdev::Disk(devices[1].clone())]).unwrap().finish().unwrap();
        bench.world.engine.commit_anyway().unwrap();
        bench
    }

    /// A new pool of the vdevs, made of some of the devices.
    fn of(vdevs: Vec<NewVdev>, devices: &[Arc<dyn Device>], seed: u64) -> Bench {
        let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
        let pool = admin::create_of(&vdevs, &options, Arc::new(SeededEnv::new(seed))).unwrap();
        let engine = pool.engine().clone();
        let datasets = Datasets::create_root(engine.clone(), name("tank"), (0, 0)).unwrap();
        Bench { pool, world: World { devices: devices.to_vec(), engine, datasets } }
    }

    /// The pool of the devices, opened.
    fn open(devices: Vec<Arc<dyn Device>>, seed: u64) -> Bench {
        let options = OpenOptions { settings: settings(), ..OpenOptions::default() };
        let pool = admin::open(devices.clone(), &options, Arc::new(SeededEnv::new(seed))).unwrap();
        let engine = pool.engine().clone();
        let datasets = Datasets::open(engine.clone(), name("tank")).unwrap();
        Bench { pool, world: World { devices, engine, datasets } }
    }

    /// Lets jobs take turns until none is under way. Returns the turns with progress, and the virtual time of all.
    fn turns(&self, scheduler: &mut Scheduler) -> (Vec<Turn>, Duration) {
        let (datasets, env) = (&self.world.datasets, self.world.engine.env());
        let (mut turns, begun) = (Vec::new(), env.uptime());
        for _ in 0..10_000 {
            let turn = scheduler.turn(datasets, &self.pool).unwrap();
            if !turn.worked && turn.job.is_none() {
                return (turns, env.uptime() - begun);
            }
            if turn.worked {
                turns.push(turn);
            } else {
                self.world.work();
                self.world.engine.commit_anyway().unwrap();
            }
            env.sleep(turn.wait);
        }
        panic!("jobs do not end: {:?}", turns.last());
    }

    fn in_order(&self, scheduler: &mut Scheduler) -> Vec<Kind> {
        let mut kinds: Vec<Kind> = self.turns(scheduler).0.iter().filter_map(|turn| turn.job).collect();
        kinds.dedup();
        kinds
    }
}

#[test]
fn a_resilver_comes_before_a_mover_and_that_before_a_scrub() {
    let bench = Bench::new(1);
    let datasets = &bench.world.datasets;
    let mut scheduler = Scheduler::of_steps(STEP, datasets);
    datasets.scrub().start().unwrap();
    datasets.rebalance().start(None).unwrap();
    // Both jobs have begun when an empty device is attached.
    for _ in 0..4 {
        assert_eq!(scheduler.turn(datasets, &bench.pool).unwrap().job, Some(Kind::Rebalance));
    }
    bench.pool.attach("b", disk("c", 96 * MIB), false).unwrap();
    assert_eq!(bench.in_order(&mut scheduler), [Kind::Resilver, Kind::Rebalance, Kind::Scrub]);
    assert_eq!(datasets.scrub().status().unwrap().unwrap().state, ScrubState::Finished);
    bench.world.judge();
}

#[test]
fn a_paused_mover_lets_a_scrub_go_on() {
    let bench = Bench::new(2);
    let datasets = &bench.world.datasets;
    let mut scheduler = Scheduler::of_steps(STEP, datasets);
    datasets.scrub().start().unwrap();
    datasets.rebalance().start(None).unwrap();
    let rebalance = Kind::Rebalance.of(datasets);
    assert_eq!(scheduler.turn(datasets, &bench.pool).unwrap().job, Some(Kind::Rebalance));
    rebalance.pause().unwrap();
    assert_eq!(bench.in_order(&mut scheduler), [Kind::Scrub]);
    assert!(rebalance.is_under_way());
    rebalance.stop(&bench.pool).unwrap();
    assert!(!rebalance.is_under_way());
    assert_eq!(bench.in_order(&mut scheduler), []);
    // An expansion would share the pause.
    assert!(!datasets.moving().is_paused());
}

#[test]
fn a_paused_mover_with_a_limit_lets_a_scrub_go_on_at_once() {
    let bench = Bench::new(7);
    let datasets = &bench.world.datasets;
    let mut scheduler = Scheduler::of_steps(STEP, datasets);
    datasets.scrub().start().unwrap();
    datasets.rebalance().start(Some(1)).unwrap();
    let waits = |turn: &Turn| !turn.worked && turn.job == Some(Kind::Rebalance);
    let waiting = (0..1000).map(|_| scheduler.turn(datasets, &bench.pool).unwrap()).find(waits);
    assert!(waiting.is_some(), "it waits for its limit");
    Kind::Rebalance.of(datasets).pause().unwrap();
    assert_eq!(bench.in_order(&mut scheduler), [Kind::Scrub]);
}

/// A job whose every step has the same result.
struct Fixed(Kind, fn() -> Result<Step>);

impl Job for Fixed {
    fn kind(&self) -> Kind {
        self.0
    }

    fn is_under_way(&self) -> bool {
        true
    }

    fn step(&self, _pool: &Pool, _budget: u64) -> Result<Step> {
        self.1()
    }

    fn record(&self, _pool: &Pool) -> Result<Option<JobRecord>> {
        Ok(None)
    }

    fn pause(&self) -> Result<()> {
        unreachable!("no test pauses it")
    }

    fn stop(&self, _pool: &Pool) -> Result<()> {
        unreachable!("no test stops it")
    }
}

#[test]
fn a_job_whose_step_fails_lets_later_jobs_go_on() {
    let bench = Bench::new(8);
    let datasets = &bench.world.datasets;
    let mut scheduler = Scheduler::of_steps(STEP, datasets);
    let fails = || Err(PoolError::Request("no device answers".to_owned()).into());
    datasets.scrub().start().unwrap();
    let examined = || datasets.scrub().in_memory().unwrap();
    for _ in 0..3 {
        let before = examined();
        let jobs: [Box<dyn Job>; 2] = [Box::new(Fixed(Kind::Remove, fails)), Kind::Scrub.of(datasets)];
        let error = scheduler.round(datasets, &bench.pool, jobs).unwrap_err();
        assert!(error.to_string().contains("no device answers"), "{error}");
        assert_ne!(examined(), before);
    }
    // A job that waits does delay later jobs.
    let before = examined();
    let waits = || Ok(Step::Wait(Duration::from_secs(9)));
    let jobs: [Box<dyn Job>; 2] = [Box::new(Fixed(Kind::Remove, waits)), Kind::Scrub.of(datasets)];
    let turn = scheduler.round(datasets, &bench.pool, jobs).unwrap();
    assert_eq!(turn, (false, Some(Kind::Remove), Some(Duration::from_secs(9))));
    assert_eq!(examined(), before);
}

#[test]
fn a_scrub_is_under_way_from_the_import_on() {
    let bench = Bench::new(9);
    bench.world.datasets.scrub().start().unwrap();
    let devices = bench.world.devices.clone();
    drop(bench);
    let bench = Bench::open(devices, 9);
    assert!(Kind::Scrub.of(&bench.world.datasets).is_under_way());
    assert_eq!(bench.in_order(&mut Scheduler::of_steps(STEP, &bench.world.datasets)), [Kind::Scrub]);
    assert!(!Kind::Scrub.of(&bench.world.datasets).is_under_way());
}

#[test]
fn while_a_mover_is_under_way_no_other_one_begins() {
    let bench = Bench::new(3);
    let datasets = &bench.world.datasets;
    let leaving = bench.pool.find_vdev("b").unwrap().id();
    let shrink = bench.pool.plan_shrink("b", admin::Wanted::By(8 * MIB)).unwrap();
    datasets.rebalance().start(None).unwrap();
    let others = [
        datasets.removal().start(leaving, "b", 0, None),
        datasets.defragment().start(None).map(drop),
        datasets.resize().start(&shrink, None),
    ];
    for other in others {
        assert!(refusal(other).to_string().contains("a rebalance is in progress"));
    }
    let movers = || Kind::IN_ORDER.into_iter().filter(|kind| kind.is_mover() && kind.of(datasets).is_under_way());
    assert_eq!(movers().collect::<Vec<_>>(), [Kind::Rebalance]);
    Kind::Rebalance.of(datasets).stop(&bench.pool).unwrap();
    datasets.removal().start(leaving, "b", 0, None).unwrap();
    assert!(refusal(datasets.rebalance().start(None).map(drop)).to_string().contains("a removal is in progress"));
    assert_eq!(movers().collect::<Vec<_>>(), [Kind::Remove]);
}

#[test]
fn an_import_continues_one_of_several_running_rows() {
    let bench = Bench::new(11);
    let datasets = &bench.world.datasets;
    let leaving = bench.pool.find_vdev("b").unwrap().id();
    datasets.rebalance().start(None).unwrap();
    let row = RemovalRow { vdev: leaving.0.into(), name: "b".to_owned(), ..RemovalRow::default() };
    let forged = datasets.run(move |tx| {
        tx.put(Key::new(POOL, kind::REMOVAL, 0), &row, None);
        Ok(())
    });
    forged.unwrap();
    let devices = bench.world.devices.clone();
    drop(bench);
    let bench = Bench::open(devices, 11);
    assert!(!bench.world.datasets.rebalance().is_under_way());
    assert_eq!(bench.in_order(&mut Scheduler::of_steps(STEP, &bench.world.datasets)), [Kind::Remove]);
    bench.world.judge();
}

#[test]
fn a_mover_keeps_to_its_limit_by_the_clock_of_the_pool() {
    const LIMIT: u64 = 1 << 20;
    let bench = Bench::new(4);
    let datasets = &bench.world.datasets;
    datasets.rebalance().start(Some(LIMIT)).unwrap();
    let (_, time) = bench.turns(&mut Scheduler::of_steps(u64::MAX, datasets));
    let copied = datasets.rebalance().status().unwrap().copied;
    assert!(copied > 10 * LIMIT, "{copied}");
    // Bytes beyond the due bytes of a step delay the next step.
    assert!(time.as_secs() + 2 >= copied / LIMIT, "{copied} bytes in {time:?}");
}

#[test]
fn a_scrub_keeps_to_its_limit_until_another_one_is_set() {
    const LIMIT: u64 = 4 << 20;
    let bench = Bench::new(6);
    let datasets = &bench.world.datasets;
    let mut scheduler = Scheduler::of_steps(STEP, datasets);
    datasets.scrub().start_at(Some(LIMIT)).unwrap();
    let (_, time) = bench.turns(&mut scheduler);
    let examined = datasets.scrub().in_memory().unwrap().examined;
    assert!(examined > 5 * LIMIT, "{examined}");
    assert!(time.as_secs() + 2 >= examined / LIMIT, "{examined} bytes in {time:?}");
    // The next one has none, and one that is under way may get another.
    datasets.scrub().start().unwrap();
    assert_eq!(datasets.scrub().limit(), None);
    datasets.scrub().start_at(Some(7)).unwrap();
    assert_eq!(datasets.scrub().limit(), Some(7));
    datasets.scrub().pause().unwrap();
    datasets.scrub().start().unwrap();
    assert_eq!(datasets.scrub().limit(), Some(7));
    datasets.scrub().start_at(Some(0)).unwrap();
    assert_eq!(datasets.scrub().limit(), None);
    let (_, unlimited) = bench.turns(&mut scheduler);
    assert!(unlimited < time / 10, "{unlimited:?}");
}

#[test]
fn a_step_handles_no_more_than_its_budget() {
    let bench = Bench::new(5);
    let datasets = &bench.world.datasets;
    let mut scheduler = Scheduler::of_steps(STEP, datasets);
    datasets.scrub().start().unwrap();
    loop {
        let before = datasets.scrub().in_memory().unwrap();
        let turn = scheduler.turn(datasets, &bench.pool).unwrap();
        let after = datasets.scrub().in_memory().unwrap();
        // A step ends with the leaf in which the budget is used up.
        assert!(after.examined - before.examined <= 4 * STEP, "{before:?} {after:?}");
        if after.state != ScrubState::Running {
            return assert!(turn.worked);
        }
    }
}

#[test]
fn a_pass_runs_beside_other_jobs_and_keeps_to_its_limit() {
    let bench = Bench::new(7);
    bench.world.datasets.scrub().start_at(Some(1)).unwrap();
    try_pass(&bench, &bench.world.datasets.trim());
    try_pass(&bench, &bench.world.datasets.initialization());
}

fn try_pass(bench: &Bench, pass: &Pass<'_>) {
    const LIMIT: u64 = 8 << 20;
    let datasets = &bench.world.datasets;
    let mut scheduler = Scheduler::of_steps(STEP, datasets);
    let vdevs: Vec<_> = ["a", "b"].map(|name| bench.pool.find_vdev(name).unwrap().id()).into();
    let planned = pass.plan(&bench.pool, &vdevs).unwrap();
    pass.start(&vdevs, Some(LIMIT)).unwrap();
    // The scrub waits for years, and the pass does not wait for the scrub.
    let (env, begun) = (bench.world.engine.env(), bench.world.engine.env().uptime());
    let state = |number: usize| pass.record_of(vdevs[number]).map(|record| record.state);
    while state(1) == Some(JobState::Running) {
        let turn = scheduler.turn(datasets, &bench.pool).unwrap();
        env.sleep(turn.wait);
    }
    assert_eq!([state(0), state(1)], [const { Some(JobState::Finished) }; 2]);
    let handled = pass.handled();
    assert!(handled > 4 * LIMIT && handled <= planned + LIMIT, "{handled} of {planned}");
    let time = env.uptime() - begun;
    assert!(time.as_secs() + 2 >= handled / LIMIT, "{handled} bytes in {time:?}");
    assert_eq!(datasets.scrub().in_memory().unwrap().state, ScrubState::Running);
    pass.start(&vdevs, None).unwrap();
    assert!(refusal(pass.forget(&vdevs)).to_string().contains("is in progress"));
    pass.pause().unwrap();
    assert_eq!(state(0), Some(JobState::Paused));
    assert!(refusal(pass.pause()).to_string().contains("there is no active"));
    pass.stop(&bench.pool).unwrap();
    assert_eq!([state(0), state(1)], [const { None }; 2]);
    pass.forget(&vdevs).unwrap();
}

#[test]
fn a_pause_of_a_resilver_ends_with_the_resilver() {
    let bench = Bench::new(8);
    let datasets = &bench.world.datasets;
    let mut scheduler = Scheduler::of_steps(STEP, datasets);
    let resilver = datasets.resilver();
    assert!(refusal(resilver.pause()).to_string().contains("no resilver is in progress"));
    bench.pool.attach("b", disk("c", 96 * MIB), false).unwrap();
    resilver.start(Some(STEP)).unwrap();
    scheduler.turn(datasets, &bench.pool).unwrap();
    assert_eq!(scheduler.turn(datasets, &bench.pool).unwrap().job, Some(Kind::Resilver));
    resilver.pause().unwrap();
    assert!(refusal(resilver.pause()).to_string().contains("already paused"));
    datasets.scrub().start().unwrap();
    assert_eq!(bench.in_order(&mut scheduler), [Kind::Scrub], "a paused resilver keeps no job waiting");
    let record = resilver.record(&bench.pool).unwrap().unwrap();
    assert_eq!((record.state, record.limit), (JobState::Paused, Some(STEP)));
    // Without the devices there is nothing to pause.
    bench.pool.detach("c").unwrap();
    assert_eq!(bench.in_order(&mut scheduler), []);
    assert!(!resilver.is_paused() && resilver.limit().is_none());
    bench.pool.attach("b", disk("d", 96 * MIB), false).unwrap();
    resilver.pause().unwrap();
    assert_eq!(bench.in_order(&mut scheduler), [Kind::Resilver], "only its beginning");
    resilver.start(None).unwrap();
    let (_, time) = bench.turns(&mut scheduler);
    assert_eq!(resilver.record(&bench.pool).unwrap().unwrap().state, JobState::Finished, "{time:?}");
    bench.world.judge();
}
