//! The simulator that shows what survives: random lives of a pool on simulated devices, cut by power failures at every
//! write, and damaged in every region.
//!
//! The real engine and the real datasets run on recording devices, with all randomness from one seed and each life on
//! one thread. So the line printed with a finding replays the finding.
//!
//! ```text
//! cargo test -p dataset --test crash                            the dose for every change
//! cargo test -p dataset --test crash -- crash POINT             replays one power failure, with the steps before it
//! cargo test -p dataset --test crash -- damage SEED:CASE        replays one damaged pool
//! cargo test -p dataset --test crash -- life SEED               prints the steps of a life
//! cargo test --release -p dataset --test crash -- soak [SEED]   new seeds without end, until a finding
//! cargo test -p dataset --test crash -- many dose               only the lives of pools of many devices
//! cargo test --release -p dataset --test crash -- many [SEED]   new seeds of pools of many devices, without end
//!
//! model      the expected content: maps and bytes
//! world      a pool as its service opens it, and all its checks
//! observe    reading an opened pool into a model
//! layout     the vdevs of a pool, and the main job of its life
//! upkeep     the service's work on devices
//! workload   the random lives: devices fail for a while, leave, return, grow, shrink, are replaced, added, removed and
//!            trimmed; spares are put in, and chunks move
//! judge      one power failure, and the pool that comes up after it
//! losses     the same with devices lost, rotten, stale or failing, spares and caches too, and a power failure in the repair
//! damage     damage in every region, and what survives
//! trust      the simulator's own checks: replays, and planted defects
//! campaign   many lives on all cores; counts, and whether all expected events have happened
//! ```
//!
//! The target does not use the test harness, which would hide the counts.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is a program of its own, and reports")]

mod campaign;
mod damage;
mod judge;
mod layout;
mod losses;
mod model;
mod observe;
mod trust;
mod upkeep;
mod workload;
mod world;

use std::{process::ExitCode, time::SystemTime};

use judge::Point;
use world::Outcome;

/// The crash points that every change has to survive, and the lives for them.
const POINTS: u64 = 20_000;
const LIVES: u64 = 8;
/// How many times the end of each life is damaged.
const CASES: u64 = 500;
/// The additional lives of pools of many devices: one of each layout.
const LIVES_OF_MANY: u64 = layout::COUNT;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let succeeded = match arguments[..] {
        ["soak"] => campaign::soak(seed_of_the_day(), CASES),
        ["soak", seed] => seed.parse().is_ok_and(|seed| campaign::soak(seed, CASES)),
        ["many"] => campaign::soak_many(layout::seed_of_many(seed_of_the_day())),
        ["many", "dose"] => is_trusted(trust::check_many()) && campaign::run_many(LIVES_OF_MANY),
        ["many", seed] => seed.parse().is_ok_and(campaign::soak_many),
        ["life", seed] => seed.parse().is_ok_and(|seed| campaign::replay_crash(seed, None)),
        ["crash", point] => point.parse().is_ok_and(|point: Point| campaign::replay_crash(point.seed, Some(point))),
        ["damage", case] => damage_case(case).is_some_and(|(seed, case)| campaign::replay_damage(seed, case)),
        // Options and filters of the test harness.
        [.., filter] if !filter.starts_with('-') && !"crash".contains(filter) => true,
        [.., "--list"] => true,
        _ => is_trusted(trust::check()) && campaign::run(0..LIVES, CASES, POINTS) && campaign::run_many(LIVES_OF_MANY),
    };
    if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A seed and the number of a damage, as printed.
fn damage_case(text: &str) -> Option<(u64, u64)> {
    let (seed, case) = text.split_once(':')?;
    Some((seed.parse().ok()?, case.parse().ok()?))
}

fn is_trusted(checked: Outcome<()>) -> bool {
    match checked {
        Ok(()) => true,
        Err(problem) => {
            println!("the simulator cannot be trusted: {problem}");
            false
        }
    }
}

/// A new seed, from the clock.
fn seed_of_the_day() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_secs() << 16
}
