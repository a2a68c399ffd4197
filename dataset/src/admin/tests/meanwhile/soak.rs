//! Random cells: any reader or writer, stopped anywhere, beside several commands in any order, with files of any size.
//!
//! ```text
//! CENOTE_MEANWHILE=3600 cargo test --release -p dataset --lib meanwhile::soak -- --nocapture     for 3600 seconds
//! CENOTE_MEANWHILE=seed:42 cargo test -p dataset --lib meanwhile::soak -- --nocapture            replay one cell
//! ```
//!
//! Without the variable a few cells are played, always the same. A cell depends on its seed alone, because only one
//! thread runs at any time. A finding prints the line that replays the cell.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    thread,
    time::{Duration, Instant, SystemTime},
};

use pool::env::{Env, SeededEnv};

use super::{CHANGES, Change, Kind, READERS, WRITERS, names, play, play_writer};

/// The duration, or the cell to replay.
const VARIABLE: &str = "CENOTE_MEANWHILE";
/// The number of cells played in every test run, beside the table.
const CELLS: u64 = 40;
/// The longest file in bytes, and the last read or step at which a thread is stopped.
const LONGEST: u64 = 900_000;
const LAST: u64 = 48;

/// Numbers from a seed.
struct Dice(SeededEnv);

impl Dice {
    fn below(&self, bound: u64) -> u64 {
        self.0.random() % bound
    }

    fn one<'a, T>(&self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }

    /// Small and large lengths are equally frequent.
    fn length(&self, longest: u64) -> usize {
        let bound = 1 << self.below(u64::from(longest.ilog2()) + 1);
        (1 + self.below(longest.min(bound * 2))) as usize
    }
}

/// Plays the cell of a seed, after passing its description to `report`.
fn cell(seed: u64, report: impl Fn(&str)) {
    let dice = Dice(SeededEnv::new(seed));
    let kind = Kind {
        seed,
        checksum: ["off", "on"][dice.below(2) as usize],
        lengths: [LONGEST, 60_000, 300, 200_000].map(|longest| dice.length(longest)),
        attribute: dice.length(60_000),
    };
    let mut changes: Vec<&Change> = Vec::new();
    for _ in 0..=dice.below(3) {
        let change = dice.one(CHANGES);
        let is_beside = |other: &&Change| other.name == change.name || other.defers && change.defers;
        if !changes.iter().any(is_beside) {
            changes.push(change);
        }
    }
    let stop = 1 + dice.below(1 + dice.below(LAST)) as usize;
    let row = dice.below((READERS.len() + WRITERS.len()) as u64) as usize;
    let name = READERS.get(row).map_or_else(|| WRITERS[row - READERS.len()].name, |reader| reader.name);
    report(&format!("{name} beside {} at {stop}, {kind:?}", names(&changes)));
    match READERS.get(row) {
        Some(reader) => play(&kind, reader, &changes, stop),
        None => play_writer(&kind, &WRITERS[row - READERS.len()], &changes, stop),
    };
}

/// Plays the cell of a seed; a finding prints the line that replays the cell.
#[expect(clippy::print_stdout, reason = "the line is for the terminal")]
fn reported_cell(seed: u64) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| cell(seed, |_| {}))) {
        println!("replay: {VARIABLE}=seed:{seed} cargo test -p dataset --lib meanwhile::soak -- --nocapture");
        resume_unwind(panic);
    }
}

/// Plays new seeds on all cores until the time is over.
#[expect(clippy::print_stdout, reason = "the counts are for the terminal")]
fn play_for(time: Duration) {
    let begun = Instant::now();
    let first = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs() << 24;
    let cores = thread::available_parallelism().map_or(2, |cores| cores.get() as u64);
    let played: u64 = thread::scope(|scope| {
        let on_one_core = |core: u64| {
            let seeds = (first + core..).step_by(cores as usize).take_while(move |_| begun.elapsed() < time);
            seeds.inspect(|seed| reported_cell(*seed)).count() as u64
        };
        let running: Vec<_> = (0..cores).map(|core| scope.spawn(move || on_one_core(core))).collect();
        running.into_iter().map(|core| core.join().unwrap()).sum()
    });
    println!("{played} cells from seed {first} on in {} s, and nothing is found", begun.elapsed().as_secs());
}

#[test]
#[expect(clippy::print_stdout, reason = "what is replayed is for the terminal")]
fn soak() {
    let said = std::env::var(VARIABLE).unwrap_or_default();
    match said.strip_prefix("seed:") {
        Some(seed) => cell(seed.parse().expect("seed:NUMBER"), |what| println!("{what}")),
        None if said.is_empty() => (0..CELLS).for_each(reported_cell),
        None => play_for(Duration::from_secs(said.parse().expect("seconds, or seed:NUMBER"))),
    }
}
