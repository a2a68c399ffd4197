//! Every kind of job continues after a power failure anywhere during the job, and reaches the end that it reaches
//! without one.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use pool::{
    admin::{NewVdev, SAFE_STATES, Wanted},
    device::{Device, Fate, Recorder, cuts},
    units::MIB,
    vdev::{State, labels},
};

use super::{Bench, Job, Kind, Scheduler, noise};
use crate::{
    admin::tests::{cuts::recorded, world::Files},
    catalogue::{MoveState, ScrubState},
};

/// The bytes of a step, so that every job takes many steps.
const STEP: u64 = 512 << 10;
/// The bytes of a file.
const LEN: usize = 512 << 10;
/// The number of fates of the writes before a cut, with `CENOTE_CUTS=all`.
const FATES: u64 = 3;
/// The approximate number of cuts of each job, unless all are tried.
const CUTS: usize = 24;
/// The number of turns of an idle pool after which a job that is under way is stuck: longer than a resize waits before
/// it tries to shrink devices again.
const PATIENCE: usize = 100;

/// The number of turns between two commits of users during a resilver.
const COMMIT_EVERY: usize = 4;

/// A kind of job, with a pool in which the job has something to do.
struct Row {
    kind: Kind,
    /// The sizes of the devices in MiB.
    sizes: &'static [u64],
    /// Makes the pool with its files, before anything is recorded.
    make: fn(&[Arc<dyn Device>]) -> Bench,
    /// Starts the job.
    start: fn(&Bench),
    /// Whether the job has reached its end.
    is_over: fn(&Bench) -> bool,
}

const ROWS: [Row; 7] = [
    Row {
        kind: Kind::Resilver,
        sizes: &[64, 64],
        make: |devices| filled(Bench::of(vec![NewVdev::Disk(devices[0].clone())], devices, 1), 0..16),
        start: |bench| bench.pool.attach("a", bench.world.devices[1].clone(), false).unwrap(),
        is_over: |bench| {
            let vdevs = bench.world.engine.storage().vdevs.all();
            let members = vdevs[0].as_group().map(|group| group.members());
            let states = members.map(|members| members.iter().map(|member| member.state()).collect::<Vec<_>>());
            states == Some(vec![State::Complete; 2])
        },
    },
    Row {
        kind: Kind::Remove,
        sizes: &[64, 64],
        make: |devices| {
            let vdevs = devices.iter().cloned().map(NewVdev::Disk).collect();
            filled(Bench::of(vdevs, devices, 2), 0..20)
        },
        start: |bench| {
            let leaving = bench.pool.find_vdev("b").unwrap().id();
            let plan = bench.pool.plan_removal(leaving).unwrap();
            bench.world.datasets.removal().start(leaving, "b", plan.bytes, None).unwrap();
        },
        is_over: |bench| {
            let is_recorded = |state| state == Some(MoveState::Finished);
            let state = bench.world.datasets.removal().status().map(|row| row.state);
            bench.pool.label().vdevs.len() == 1 && is_recorded(state)
        },
    },
    Row {
        kind: Kind::Rebalance,
        sizes: &[64, 64],
        make: |devices| {
            let bench = filled(Bench::of(vec![NewVdev::Disk(devices[0].clone())], devices, 3), 0..70);
            bench.pool.begin_add(vec![NewVdev::Disk(devices[1].clone())]).unwrap().finish().unwrap();
            bench.world.engine.commit_anyway().unwrap();
            bench
        },
        start: |bench| assert_eq!(bench.world.datasets.rebalance().start(None).unwrap(), None),
        is_over: |bench| {
            let status = bench.world.datasets.rebalance().status();
            status.is_some_and(|row| row.state == MoveState::Finished)
        },
    },
    Row {
        kind: Kind::Resize,
        sizes: &[96],
        make: |devices| {
            let bench = Bench::of(vec![NewVdev::Disk(devices[0].clone())], devices, 4);
            sparse(filled(bench, 0..150), |number| number >= 130)
        },
        start: |bench| {
            let plan = bench.pool.plan_shrink("a", Wanted::To(SMALL)).unwrap();
            assert!(plan.moving.bytes > 0, "{plan:?}");
            bench.world.datasets.resize().start(&plan, None).unwrap();
        },
        is_over: |bench| {
            let is_recorded = |state| state == Some(MoveState::Finished);
            let state = bench.world.datasets.resize().status().map(|row| row.state);
            bench.world.devices[0].size() == SMALL && is_recorded(state)
        },
    },
    Row {
        kind: Kind::Defragment,
        sizes: &[64],
        make: |devices| {
            let bench = Bench::of(vec![NewVdev::Disk(devices[0].clone())], devices, 5);
            sparse(filled(bench, 0..90), |number| number % 4 == 0)
        },
        start: |bench| assert_eq!(bench.world.datasets.defragment().start(None).unwrap(), None),
        is_over: |bench| {
            let status = bench.world.datasets.defragment().status();
            status.is_some_and(|row| row.state == MoveState::Finished)
        },
    },
    Row {
        kind: Kind::Expand,
        sizes: &[64, 64, 64, 64],
        make: |devices| {
            let vdev = NewVdev::RaidZ { parity: 1, devices: devices[..3].to_vec() };
            filled(Bench::of(vec![vdev], devices, 6), 0..30)
        },
        start: |bench| {
            bench.pool.attach_column("raidz1-0", bench.world.devices[3].clone()).unwrap();
        },
        is_over: |bench| {
            let vdevs = bench.world.engine.storage().vdevs.all();
            let members = vdevs[0].as_group().map(|group| group.members().len());
            members == Some(4) && bench.pool.widening().is_none()
        },
    },
    Row {
        kind: Kind::Scrub,
        sizes: &[64, 64],
        make: |devices| filled(Bench::of(vec![NewVdev::Mirror(devices.to_vec())], devices, 7), 0..24),
        start: |bench| bench.world.datasets.scrub().start().unwrap(),
        is_over: |bench| {
            let status = bench.world.datasets.scrub().status().unwrap();
            // A write torn by the power failure is repaired.
            status.is_some_and(|row| (row.state, row.errors) == (ScrubState::Finished, 0))
        },
    },
];

/// The size of the device that becomes smaller.
const SMALL: u64 = 66 * MIB + MIB / 2;

/// The pool with files of these numbers.
fn filled(bench: Bench, numbers: std::ops::Range<u64>) -> Bench {
    for number in numbers {
        bench.world.write("tank", &number.to_string(), &noise(number, LEN));
        if number % 8 == 0 {
            bench.world.engine.commit().unwrap();
        }
    }
    bench.world.snapshot("tank@before").unwrap();
    bench.world.destroy("tank@before", false, false).unwrap();
    bench.world.work();
    bench.world.engine.commit().unwrap();
    bench
}

/// The pool with only some of its files.
fn sparse(bench: Bench, stays: fn(u64) -> bool) -> Bench {
    for file in bench.world.files("tank").into_keys() {
        if !stays(file.parse().unwrap()) {
            bench.world.remove("tank", &file);
        }
    }
    bench.world.work();
    (0..=SAFE_STATES).for_each(|_| _ = bench.world.engine.commit_anyway().unwrap());
    bench
}

impl Bench {
    /// Lets jobs take turns until none is under way, as a service does: a pool at rest makes no commits.
    fn drive(&self, what: &str) {
        let (datasets, engine) = (&self.world.datasets, &self.world.engine);
        let mut scheduler = Scheduler::of_steps(STEP, datasets);
        let mut idle = 0;
        for number in 0..20_000 {
            // The position of a resilver is in uberblocks.
            if number % COMMIT_EVERY == 0 && datasets.resilver().is_under_way() {
                engine.commit_anyway().unwrap();
            }
            let turn = scheduler.turn(datasets, &self.pool).unwrap_or_else(|error| panic!("{what}: {error}"));
            let under_way: Vec<Kind> =
                Kind::IN_ORDER.into_iter().filter(|kind| kind.of(datasets).is_under_way()).collect();
            assert!(under_way.iter().filter(|kind| kind.is_mover()).count() <= 1, "JOB-1: {under_way:?}, {what}");
            if !turn.worked {
                self.world.work();
                if under_way.is_empty() && engine.is_at_rest() {
                    return;
                }
                match engine.is_at_rest() {
                    true => idle += 1,
                    false => drop(engine.commit_anyway().unwrap()),
                }
                assert!(idle < PATIENCE, "{under_way:?} is stuck, {:?}, {what}", datasets.expansion().status());
            }
            engine.env().sleep(turn.wait.max(Duration::from_millis(1)));
        }
        panic!("jobs do not end, {what}");
    }

    /// Asserts that the job has reached its end, and nothing is lost.
    fn judge_end(&self, row: &Row, files: &Files, what: &str) {
        assert!((row.is_over)(self), "{what}");
        assert!(self.world.files("tank") == *files, "{what}");
        self.world.settle();
        self.world.engine.forget_read();
        match row.kind {
            // The scrub counts what the power failure has torn in uberblocks.
            Kind::Scrub => self.world.judge_damaged(),
            _ => self.world.judge(),
        }
        assert!(self.world.files("tank") == *files, "{what}");
    }

    /// The size of the pool, and the allocated bytes.
    fn space(&self) -> (u64, u64) {
        let totals = self.world.engine.space_totals();
        (totals.size, totals.allocated)
    }
}

fn resumes_at_every_cut(row: &Row) {
    let recorder = Recorder::new();
    let devices = recorded(&recorder, row.sizes);
    let bench = (row.make)(&devices);
    let files = bench.world.files("tank");
    let begin = recorder.len();
    (row.start)(&bench);
    bench.drive("without a power failure");
    bench.judge_end(row, &files, "without a power failure");
    let (size, allocated) = bench.space();
    drop(bench);
    let end = recorder.len();
    let all: Vec<(usize, u64)> = cuts(begin..=end, FATES).collect();
    let is_all = all.len() > end - begin + 1;
    let step = if is_all { 1 } else { all.len().div_ceil(CUTS) };
    let mut kinds_of_start = BTreeSet::new();
    for (cut, seed) in all.into_iter().step_by(step) {
        let what = format!("{:?}, cut {cut} of {begin} to {end}, seed {seed}", row.kind);
        let images = recorder.images_at(cut, &mut Fate::seeded(seed ^ cut as u64));
        let images: Vec<Arc<dyn Device>> = images.into_iter().map(|image| Arc::new(image) as Arc<dyn Device>).collect();
        let is_member = |image: &&Arc<dyn Device>| labels::read_label(&***image).unwrap().is_some();
        let mut bench = Bench::open(images.iter().filter(is_member).cloned().collect(), seed);
        // A device that is not yet in the pool joins by the start.
        bench.world.devices = images;
        assert!(bench.world.files("tank") == files, "{what}");
        let is_under_way = row.kind.of(&bench.world.datasets).is_under_way();
        kinds_of_start.insert(is_under_way);
        bench.drive(&what);
        if !(row.is_over)(&bench) {
            assert!(!is_under_way, "the job has ended early, {what}");
            (row.start)(&bench);
            bench.drive(&what);
        }
        bench.judge_end(row, &files, &what);
        let (size_then, allocated_then) = bench.space();
        assert_eq!(size_then, size, "{what}");
        assert!(allocated_then.abs_diff(allocated) < MIB, "{allocated_then} and not {allocated} bytes, {what}");
    }
    assert!(kinds_of_start.contains(&true), "no cut was during the job");
}

macro_rules! resumes {
    ($($name:ident: $row:expr,)*) => {
        $(
            #[test]
            fn $name() {
                resumes_at_every_cut(&ROWS[$row]);
            }
        )*
    };
}

resumes! {
    a_resilver_continues_after_every_cut: 0,
    a_removal_continues_after_every_cut: 1,
    a_rebalance_continues_after_every_cut: 2,
    a_resize_continues_after_every_cut: 3,
    a_defragmentation_continues_after_every_cut: 4,
    an_expansion_continues_after_every_cut: 5,
    a_scrub_continues_after_every_cut: 6,
}
