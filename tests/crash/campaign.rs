//! Many lives on all cores: who gets which seed, what was counted, and what is said about a finding.

use std::{
    any::Any,
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
    judge::{Counts, Cut, Finding, Point, judge_life, judge_point},
    workload::{Life, STEPS},
};

/// What all threads count.
#[derive(Default)]
struct Tally {
    next: AtomicU64,
    lives: AtomicU64,
    single: AtomicU64,
    double: AtomicU64,
    writes: AtomicU64,
    found: AtomicBool,
    speaking: Mutex<()>,
}

impl Tally {
    fn add(&self, counts: Counts, writes: usize) {
        self.lives.fetch_add(1, Ordering::Relaxed);
        self.single.fetch_add(counts.single, Ordering::Relaxed);
        self.double.fetch_add(counts.double, Ordering::Relaxed);
        self.writes.fetch_add(writes as u64, Ordering::Relaxed);
    }

    fn line(&self, since: Instant) -> String {
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let (single, double) = (get(&self.single), get(&self.double));
        format!(
            "{} crash points ({single} single, {double} double) at {} device operations of {} lives in {:.0} s",
            single + double,
            get(&self.writes),
            get(&self.lives),
            since.elapsed().as_secs_f64(),
        )
    }

    fn report(&self, finding: &Finding) {
        let _speaking = self.speaking.lock();
        self.found.store(true, Ordering::SeqCst);
        println!("\nFOUND at {}: {}", finding.point, finding.what);
        println!("replay: cargo test -p dataset --test crash -- replay {}\n", finding.point);
    }
}

/// Lives the lives of these seeds and judges all their points. Returns whether nothing was found.
pub(crate) fn run(seeds: Range<u64>) -> bool {
    let (tally, since) = (Tally::default(), Instant::now());
    tally.next.store(seeds.start, Ordering::Relaxed);
    on_all_cores(|| {
        while let Some(seed) = Some(tally.next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < seeds.end) {
            life_of(seed, &tally);
        }
    });
    println!("crash: {}", tally.line(since));
    !tally.found.load(Ordering::SeqCst)
}

/// Goes on with new seeds until something is found.
pub(crate) fn soak(first: u64) -> bool {
    let (tally, since) = (Tally::default(), Instant::now());
    println!("soak: from seed {first} on, until something is found");
    tally.next.store(first, Ordering::Relaxed);
    on_all_cores(|| {
        while !tally.found.load(Ordering::SeqCst) {
            life_of(tally.next.fetch_add(1, Ordering::Relaxed), &tally);
            println!("soak: {}", tally.line(since));
        }
    });
    false
}

/// Judges one point again, and shows what was done before it.
pub(crate) fn replay(text: &str) -> bool {
    let point: Point = match text.parse() {
        Ok(point) => point,
        Err(problem) => {
            eprintln!("{problem}");
            return false;
        }
    };
    let tally = Tally::default();
    let judged = guarded(&mut |tell| {
        tell(point);
        let life = live(point.seed)?;
        for (at, step) in life.history.steps.iter().enumerate().filter(|(_, step)| step.begin < point.first.at) {
            let sign = if step.acknowledged { '!' } else { ' ' };
            println!("{at:4}{sign} {:6}..{:<6} {}", step.begin, step.end, step.what);
        }
        if point.first.at == 0 { Ok(Counts::default()) } else { judge_point(&life, point).map(|()| Counts::default()) }
    });
    match judged {
        Ok(_) => println!("nothing is found at {point}"),
        Err(finding) => tally.report(&finding),
    }
    !tally.found.load(Ordering::SeqCst)
}

fn live(seed: u64) -> Result<Life, Finding> {
    let nowhere = Point { seed, first: Cut { at: 0, fate: 0 }, second: None };
    Life::live(seed, STEPS).map_err(|what| Finding { point: nowhere, what })
}

fn life_of(seed: u64, tally: &Tally) {
    let judged = guarded(&mut |tell| {
        tell(Point { seed, first: Cut { at: 0, fate: 0 }, second: None });
        let life = live(seed)?;
        let counts = judge_life(&life, seed, tell)?;
        tally.add(counts, life.recorder.len());
        Ok(counts)
    });
    if let Err(finding) = judged {
        tally.report(&finding);
    }
}

type Judging<'a> = dyn FnMut(&mut dyn FnMut(Point)) -> Result<Counts, Finding> + 'a;

/// Makes a panic a finding at the point that was told last.
fn guarded(judge: &mut Judging<'_>) -> Result<Counts, Finding> {
    let mut last = None;
    let outcome = catch_unwind(AssertUnwindSafe(|| judge(&mut |point| last = Some(point))));
    outcome.unwrap_or_else(|panic| {
        let point = last.expect("every judging tells where it is before it begins");
        Err(Finding { point, what: format!("a panic: {}", message(&*panic)) })
    })
}

/// Damages the ends of the lives of these seeds, each `cases` times. Returns whether nothing was found.
pub(crate) fn damage(seeds: Range<u64>, cases: u64) -> bool {
    let (next, total, found, since) =
        (AtomicU64::new(seeds.start), Mutex::new(Damaged::default()), AtomicBool::new(false), Instant::now());
    on_all_cores(|| {
        while let Some(seed) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < seeds.end) {
            if let Err((case, what)) = damage_one(seed, 0..cases, &total) {
                found.store(true, Ordering::SeqCst);
                println!("\nFOUND at {seed}:{case}: {what}");
                println!("replay: cargo test -p dataset --test crash -- damage {seed} {case}\n");
            }
        }
    });
    let Damaged { cases, hit, survived, partly, refused } = *total.lock().expect("nobody panics with it");
    let seconds = since.elapsed().as_secs_f64();
    println!(
        "damage: {cases} cases, {hit} of them of something in use: {survived} survived, {partly} opened with losses, \
         {refused} refused, in {seconds:.0} s"
    );
    !found.load(Ordering::SeqCst)
}

/// Judges one case again.
pub(crate) fn damage_again(seed: u64, case: u64) -> bool {
    match damage_one(seed, case..case + 1, &Mutex::default()) {
        Ok(()) => println!("nothing is found at {seed}:{case}"),
        Err((_, what)) => println!("FOUND at {seed}:{case}: {what}"),
    }
    true
}

fn damage_one(seed: u64, cases: Range<u64>, total: &Mutex<Damaged>) -> Result<(), (u64, String)> {
    let subject = Life::live(seed, STEPS).and_then(|life| Subject::of(seed, life)).map_err(|what| (0, what))?;
    let mut tally = Damaged::default();
    for case in cases {
        let judged = catch_unwind(AssertUnwindSafe(|| subject.judge(case, &mut tally)));
        judged.unwrap_or_else(|panic| Err(format!("a panic: {}", message(&*panic)))).map_err(|what| (case, what))?;
    }
    total.lock().expect("nobody panics with it").add(tally);
    Ok(())
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
