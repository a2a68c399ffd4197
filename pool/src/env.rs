//! The world outside the engine: the clock and the source of random numbers.
//!
//! The engine never asks the operating system for either, so that a test can replay a run from one seed.

use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rand::{RngCore, SeedableRng, rngs::StdRng};

/// Nanoseconds since 1970-01-01 00:00:00 UTC, as a signed number: files may be older.
pub type Nanos = i64;

/// The clock and the source of randomness that a pool is opened with.
pub trait Env: Send + Sync {
    /// The time of day.
    fn now(&self) -> Nanos;

    /// 64 random bits.
    fn random(&self) -> u64;
}

/// The machine's own clock and randomness.
#[derive(Debug, Default)]
pub struct SystemEnv;

impl Env for SystemEnv {
    fn now(&self) -> Nanos {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    }

    fn random(&self) -> u64 {
        rand::rng().next_u64()
    }
}

/// A clock that advances by a microsecond whenever it is read, and random numbers from a seed: the same calls see the
/// same world.
#[derive(Debug)]
pub struct SeededEnv {
    state: Mutex<(Nanos, StdRng)>,
}

impl SeededEnv {
    /// The world of `seed`. The clock starts at 2026-01-01.
    pub fn new(seed: u64) -> SeededEnv {
        SeededEnv { state: Mutex::new((1_767_225_600_000_000_000, StdRng::seed_from_u64(seed))) }
    }
}

impl Env for SeededEnv {
    fn now(&self) -> Nanos {
        let mut state = self.state.lock();
        state.0 += 1_000;
        state.0
    }

    fn random(&self) -> u64 {
        self.state.lock().1.next_u64()
    }
}
