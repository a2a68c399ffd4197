//! Many lives on all cores: handing out seeds, counting, and printing findings.

use std::{
    any::Any,
    collections::BTreeMap,
    fmt,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use crate::{
    damage::judge::{Subject, Tally as Damaged},
    judge::{Counts, Point, judge_life, judge_point},
    layout::{MANY, seed_of_many},
    workload::{Done, Life, Promise, STEPS},
    world::Outcome,
};

/// A case that the line printed with a finding can replay.
#[derive(Clone, Copy, Debug)]
enum Again {
    /// The life of this seed.
    Life(u64),
    /// A life up to a power failure.
    Point(Point),
    /// A life up to its end (its seed), and the damage of this number.
    Damage(u64, u64),
}

impl fmt::Display for Again {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Again::Life(seed) => write!(f, "life {seed}"),
            Again::Point(point) => write!(f, "crash {point}"),
            Again::Damage(seed, case) => write!(f, "damage {seed}:{case}"),
        }
    }
}

/// The counts of all threads.
struct Tally {
    since: Instant,
    next: AtomicU64,
    found: AtomicBool,
    sums: Mutex<Sums>,
}

#[derive(Default)]
struct Sums {
    lives: u64,
    operations: u64,
    /// How often a pool was suspended and resumed.
    suspensions: u64,
    crashes: Counts,
    damaged: Damaged,
    /// For pools of many devices: how many lives each layout had, and what was done with devices.
    layouts: BTreeMap<String, u64>,
    done: Done,
}

impl Tally {
    fn new(first: u64) -> Tally {
        let (next, found) = (AtomicU64::new(first), AtomicBool::new(false));
        Tally { since: Instant::now(), next, found, sums: Mutex::default() }
    }

    fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn has_found(&self) -> bool {
        self.found.load(Ordering::SeqCst)
    }

    fn add(&self, life: &Sums) {
        let mut sums = self.sums.lock().expect("nobody panics with it");
        sums.lives += life.lives;
        sums.operations += life.operations;
        sums.suspensions += life.suspensions;
        sums.crashes.add(&life.crashes);
        sums.damaged.add(life.damaged);
        life.layouts.iter().for_each(|(layout, lives)| *sums.layouts.entry(layout.clone()).or_default() += lives);
        life.done.iter().for_each(|(kind, times)| *sums.done.entry(kind).or_default() += times);
    }

    fn report(&self, again: Again, what: &str) {
        self.found.store(true, Ordering::SeqCst);
        let line = format!("replay: cargo test -p dataset --test crash -- {again}");
        println!("\nFOUND at {again}: {what}\n{line}\n");
    }

    /// The events expected in lives of pools of many devices that did not happen.
    fn missed(&self) -> Vec<&'static str> {
        let sums = self.sums.lock().expect("nobody panics with it");
        let of = |wanted: &[&'static str], counts: &Done| -> Vec<&'static str> {
            wanted.iter().filter(|kind| !counts.contains_key(*kind)).copied().collect()
        };
        [of(&UNDER_WAY, &sums.crashes.under_way), of(&DONE, &sums.done), sums.crashes.losses.missed()].concat()
    }

    fn print_many(&self) {
        let sums = self.sums.lock().expect("nobody panics with it");
        let Sums { lives, operations, suspensions, crashes, layouts, done, .. } = &*sums;
        let listed = |counts: &Done| -> String {
            let counts: Vec<String> = counts.iter().map(|(kind, times)| format!("{times} {kind}")).collect();
            counts.join(", ")
        };
        println!(
            "pools of many devices: {lives} lives of {} layouts, {operations} device operations, suspended {suspensions} \
             times; {} crash points ({} single, {} double), under way at these: {}; {}; with devices: {}; {} s",
            layouts.len(),
            crashes.single + crashes.double,
            crashes.single,
            crashes.double,
            listed(&crashes.under_way),
            crashes.losses,
            listed(done),
            self.since.elapsed().as_secs(),
        );
    }

    fn print(&self) {
        let sums = self.sums.lock().expect("nobody panics with it");
        let (Sums { lives, operations, suspensions, crashes, damaged, .. }, seconds) =
            (&*sums, self.since.elapsed().as_secs());
        println!(
            "{} crash points ({} single, {} double) at {operations} device operations of {lives} lives, suspended {suspensions} \
             times; {} damaged pools \
             ({} in something in use: {} survived, {} opened with losses, {} refused); {seconds} s",
            crashes.single + crashes.double,
            crashes.single,
            crashes.double,
            damaged.cases,
            damaged.hit,
            damaged.survived,
            damaged.partly,
            damaged.refused,
        );
    }
}

/// Lives these seeds, judges all their points, and damages the end of each `cases` times. Returns true if at least
/// `points` crash points were judged without a finding.
pub(crate) fn run(seeds: Range<u64>, cases: u64, points: u64) -> bool {
    let tally = Tally::new(seeds.start);
    on_all_cores(|| {
        while let Some(seed) = Some(tally.next()).filter(|seed| *seed < seeds.end) {
            live_and_judge(seed, cases, &tally);
        }
    });
    tally.print();
    let judged = tally.sums.lock().expect("nobody panics with it").crashes.clone();
    let is_enough = judged.single + judged.double >= points;
    if !(tally.has_found() || is_enough) {
        println!("that is less than the {points} crash points that every change has to survive: add lives");
    }
    !tally.has_found() && is_enough
}

/// Tries new seeds until a finding.
pub(crate) fn soak(first: u64, cases: u64) -> bool {
    println!("from seed {first} on, until something is found");
    let tally = Tally::new(first);
    on_all_cores(|| {
        while !tally.has_found() {
            live_and_judge(tally.next(), cases, &tally);
            tally.print();
        }
    });
    false
}

/// The jobs that have to be under way at some points in every change's run,
const UNDER_WAY: [&str; 9] = [
    "cache in use",
    "defragmentation",
    "expansion",
    "rebalance",
    "removal",
    "resilver",
    "resize",
    "rows behind the smallest device in use",
    "spare in use",
];
/// and the operations on devices that have to be in its lives.
const DONE: [&str; 36] = [
    "add",
    "attach",
    "ballast at the end",
    "cache fed",
    "defragment",
    "defragmented",
    "detach",
    "expand",
    "fail",
    "initialize",
    "initialized",
    "longer",
    "offline",
    "online",
    "rebalance",
    "rebalanced",
    "refuse",
    "refused",
    "regain",
    "remove",
    "remove packed",
    "removed",
    "replace",
    "resilvered",
    "resized",
    "scrub",
    "shrink",
    "spare available",
    "spare in use",
    "spare stays",
    "trim",
    "trimmed",
    "trimmed as it comes",
    "upkeep",
    "use growth",
    "widened",
];

/// A life in which the spare is released after a replacement, a rare event.
const RELEASES_SPARE: u64 = MANY.start + 12;

/// Lives `lives` lives of pools of many devices and the one with a rare event, and judges their points. Returns true if
/// there was no finding, and all expected events have happened.
pub(crate) fn run_many(lives: u64) -> bool {
    let seeds: Vec<u64> = (MANY.start..MANY.start + lives).chain([RELEASES_SPARE]).collect();
    let tally = Tally::new(0);
    on_all_cores(|| {
        while let Some(seed) = usize::try_from(tally.next()).ok().and_then(|next| seeds.get(next)) {
            live_and_judge_many(*seed, &tally);
        }
    });
    tally.print_many();
    let missed = tally.missed();
    if !missed.is_empty() {
        println!("nothing of this has happened in these lives, so nothing is known of it: {}", missed.join(", "));
    }
    !tally.has_found() && missed.is_empty()
}

/// Tries new seeds of pools of many devices until a finding.
pub(crate) fn soak_many(first: u64) -> bool {
    println!("pools of many devices, from seed {first} on, until something is found");
    let tally = Tally::new(first);
    on_all_cores(|| {
        while !tally.has_found() {
            live_and_judge_many(seed_of_many(tally.next() - MANY.start), &tally);
            tally.print_many();
        }
    });
    false
}

fn live_and_judge_many(seed: u64, tally: &Tally) {
    let mut again = Again::Life(seed);
    let judged = guarded(|| {
        let life = Life::live(seed, STEPS)?;
        let (operations, suspensions) = (life.recorder.len() as u64, life.operator.calls());
        let layouts = BTreeMap::from([(life.layout.to_string(), 1)]);
        let done = life.done.clone();
        let mut sums = Sums { lives: 1, operations, suspensions, layouts, done, ..Sums::default() };
        sums.crashes = judge_life(&life, seed, &mut |point| again = Again::Point(point))?;
        tally.add(&sums);
        Ok(())
    });
    if let Err(what) = judged {
        tally.report(again, &what);
    }
}

/// One life, with all its power failures and damage.
fn live_and_judge(seed: u64, cases: u64, tally: &Tally) {
    let mut again = Again::Life(seed);
    let judged = guarded(|| {
        let life = Life::live(seed, STEPS)?;
        let (operations, suspensions) = (life.recorder.len() as u64, life.operator.calls());
        let mut sums = Sums { lives: 1, operations, suspensions, ..Sums::default() };
        sums.crashes = judge_life(&life, seed, &mut |point| again = Again::Point(point))?;
        again = Again::Life(seed);
        let subject = Subject::of(seed, life)?;
        for case in 0..cases {
            again = Again::Damage(seed, case);
            subject.judge(case, &mut sums.damaged)?;
        }
        tally.add(&sums);
        Ok(())
    });
    if let Err(what) = judged {
        tally.report(again, &what);
    }
}

/// Replays a life, prints its steps up to the power failure, if one is given, and judges the point.
pub(crate) fn replay_crash(seed: u64, point: Option<Point>) -> bool {
    let judged = guarded(|| {
        let life = Life::live(seed, STEPS)?;
        let until = point.map_or(usize::MAX, |point| point.first.at);
        for (at, step) in life.history.steps.iter().enumerate().filter(|(_, step)| step.begin < until) {
            let sign = match step.promise {
                Promise::Nothing => ' ',
                Promise::Files(_) => '.',
                Promise::Everything => '!',
            };
            println!("{at:4}{sign} {:6}..{:<6} {}", step.begin, step.end, step.what);
        }
        println!("with devices: {:?}", life.done);
        point.map_or(Ok(()), |point| judge_point(&life, point))
    });
    reported(judged)
}

/// Replays a damage to the end of a life.
pub(crate) fn replay_damage(seed: u64, case: u64) -> bool {
    let subject = guarded(|| Subject::of(seed, Life::live(seed, STEPS)?));
    reported(subject.and_then(|subject| guarded(|| subject.judge(case, &mut Damaged::default()))))
}

fn reported(judged: Outcome<()>) -> bool {
    match &judged {
        Ok(()) => println!("nothing is found"),
        Err(what) => println!("FOUND: {what}"),
    }
    judged.is_ok()
}

/// Turns a panic into an error.
fn guarded<T>(judge: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    catch_unwind(AssertUnwindSafe(judge)).unwrap_or_else(|panic| Err(format!("a panic: {}", message(&*panic))))
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

fn on_all_cores(work: impl Fn() + Sync) {
    let cores = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(&work);
        }
    });
}
