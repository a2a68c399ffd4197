//! Many processes at once in one mounted tree, each with a model of its expected content.
//!
//! Every process has a home of its own, and a model of it: each operation is done on the disk and in the model, and the
//! two must agree in each byte, name, attribute and error. In between the processes meet in a common folder, where any
//! file may be replaced, moved or removed at any instant, but must be whole whenever it is read. Meanwhile snapshots
//! are made and destroyed. At the end the homes are compared with the models, the pool is exported and checked,
//! imported, and compared again.
//!
//! ```text
//! cargo test -p cli --test stress                            the dose for every change
//! cargo test -p cli --test stress -- round SEED [OPERATIONS] one round again, or a longer round
//! cargo test --release -p cli --test stress -- soak [SEED]   new seeds without end, until a finding
//!
//! model      the expected content of a home
//! manifest   a tree as text, from a model or from the disk
//! home       a process's operations on its home and the model: this file picks, its parts act
//! commons    what processes do in the common folder
//! content    self-describing files
//! process    one process, from its first operation to its last
//! round      a pool, its processes, and the judgement
//! ```
//!
//! A process's operations in its home follow only from the seed and its number, so a finding there can be replayed. The
//! common folder depends on timing. The target does not use the test harness, which would hide the seeds.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is a program of its own, and reports")]

#[path = "../lab/mod.rs"]
mod lab;

mod commons;
mod content;
mod home;
mod manifest;
mod model;
mod process;
mod round;

use std::{process::ExitCode, time::SystemTime};

use round::Round;

/// A result; the error is a finding, in words.
type Outcome<T> = Result<T, String>;

/// The seed of the dose for every change, and the number of operations of each process.
const SEED: u64 = 1;
const OPERATIONS: u64 = 4000;
/// The operations of each process between two judgements of a soak.
const SOAKED: u64 = 10_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments[..] {
        ["process", ref words @ ..] => process::main(words),
        // Options and filters of the test harness.
        [.., "--list"] => Ok(()),
        [.., filter] if !filter.starts_with('-') && !is_ours(arguments[0]) && !"stress".contains(filter) => Ok(()),
        _ if !lab::can_mount() => Ok(()),
        ["soak"] => soak(seed_of_the_day()),
        ["soak", seed] => number(seed).and_then(soak),
        ["round", seed] => number(seed).and_then(|seed| Round::new(false).run(seed, OPERATIONS)),
        ["round", seed, operations] => number(seed).and_then(|seed| Round::new(false).run(seed, number(operations)?)),
        _ => Round::new(false).run(SEED, OPERATIONS),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

fn is_ours(word: &str) -> bool {
    ["soak", "round"].contains(&word)
}

fn number(word: &str) -> Outcome<u64> {
    word.parse().map_err(|error| format!("{word}: {error}"))
}

/// Tries new seeds in one aging pool, with a kernel that drops its caches, until a finding.
fn soak(first: u64) -> Outcome<()> {
    let round = Round::new(true);
    (first..).try_for_each(|seed| round.run(seed, SOAKED))
}

/// A new seed, from the clock.
fn seed_of_the_day() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_secs() << 16
}
