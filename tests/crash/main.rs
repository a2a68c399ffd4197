//! The simulator that shows what survives: random lives of a pool on simulated devices, cut by power failures at every
//! write, and damaged in every region.
//!
//! The real engine and the real data sets run on recording devices, everything from one seed and each life on one
//! thread, so that whatever is found is found again by the line that is printed with it.
//!
//! ```text
//! cargo test -p dataset --test crash                        the dose for every change: trust, crashes, damage
//! cargo test -p dataset --test crash -- crash               only the crashes; `damage` only the damage
//! cargo test -p dataset --test crash -- replay POINT        one point again, with what was done before it
//! cargo test -p dataset --test crash -- damage SEED CASE    one damaged pool again
//! cargo test --release -p dataset --test crash -- soak [SEED]   new seeds without end, until something is found
//!
//! model      what users may expect to find: maps and bytes
//! world      a pool as its service opens it, and all its checks
//! observe    reading an opened pool into a model
//! workload   the random lives
//! judge      one power failure, and what comes up after it
//! damage     damage in every region, and what is left then
//! trust      the simulator's own checks: replays, and planted defects
//! campaign   many lives on all cores; counting
//! ```
//!
//! It does not use the test harness, which would hide the counts.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is a program of its own, and reports")]

mod campaign;
mod damage;
mod judge;
mod model;
mod observe;
mod trust;
mod workload;
mod world;

use std::{process::ExitCode, time::SystemTime};

/// How many lives every change has to survive.
const LIVES: u64 = 12;
/// How many times the end of each is damaged.
const CASES: u64 = 500;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let succeeded = match arguments[..] {
        ["soak"] => campaign::soak(seed_of_the_day()),
        ["soak", seed] => seed.parse().is_ok_and(campaign::soak),
        ["replay", point] => campaign::replay(point),
        ["trust"] => trusted(),
        ["crash"] => campaign::run(0..LIVES),
        ["damage"] => campaign::damage(0..LIVES, CASES),
        ["damage", seed, case] => match (seed.parse(), case.parse()) {
            (Ok(seed), Ok(case)) => campaign::damage_again(seed, case),
            _ => false,
        },
        // The test harness's own options and filters.
        [.., filter] if !filter.starts_with('-') && !"crash".contains(filter) => true,
        [.., "--list"] => true,
        _ => trusted() & campaign::run(0..LIVES) & campaign::damage(0..LIVES, CASES),
    };
    if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn trusted() -> bool {
    match trust::check() {
        Ok(()) => true,
        Err(problem) => {
            println!("the simulator cannot be trusted: {problem}");
            false
        }
    }
}

/// A seed that no run had before.
fn seed_of_the_day() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_secs() << 16
}
