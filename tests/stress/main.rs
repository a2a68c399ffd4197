//! Many processes at once in one mounted tree, each of which knows what it must find.
//!
//! Every process has a home that nobody else touches, and a model of it: whatever it does there, it also does to the
//! model, and the two must agree in each byte, name, attribute and error. In between it meets the others in the commons,
//! where any file may be replaced, moved or removed at any instant, but must be whole whenever it is read. Meanwhile
//! snapshots come and go. At the end the homes are compared with the models, the pool is exported and checked, imported,
//! and compared again.
//!
//! ```text
//! cargo test -p cli --test stress                            the dose for every change
//! cargo test -p cli --test stress -- round SEED [OPERATIONS] one round again, or a longer one
//! cargo test --release -p cli --test stress -- soak [SEED]   new seeds without end, until something is found
//!
//! model      what a home must hold
//! manifest   a tree as text, from a model or from the disk
//! home       a process's operations on its home and the model: this file picks, its parts act
//! commons    what processes do among each other
//! content    files that say themselves what they must hold
//! process    one process, from its first operation to its last
//! round      a pool, its processes, and the judgement
//! ```
//!
//! What a process does in its home follows from the seed and its number alone, so a finding there is found again; what
//! happens in the commons depends on who is first. The target does not use the test harness, which would hide the seeds.

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

/// A problem that was found, in words.
type Outcome<T> = Result<T, String>;

/// The seed of the dose for every change, and how much each process does then.
const SEED: u64 = 1;
const OPERATIONS: u64 = 4000;
/// How much each process does between two judgements of a soak.
const SOAKED: u64 = 10_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments[..] {
        ["process", ref words @ ..] => process::main(words),
        // The test harness's own options and filters.
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

/// Goes on with new seeds in one pool, which ages meanwhile, and with a kernel that forgets, until something is found.
fn soak(first: u64) -> Outcome<()> {
    let round = Round::new(true);
    (first..).try_for_each(|seed| round.run(seed, SOAKED))
}

/// A seed that no run had before.
fn seed_of_the_day() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_secs() << 16
}
