//! The world outside the engine: the clock and the source of random numbers.
//!
//! The engine never asks the operating system for either, so that a test can replay a run from a seed.

use std::{
    sync::LazyLock,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use rand::{RngCore, SeedableRng, rngs::StdRng};

/// Nanoseconds since 1970-01-01 00:00:00 UTC, as a signed number: files may be older.
pub type Nanos = i64;

/// The clock and the source of randomness of a pool.
pub trait Env: Send + Sync {
    /// The time of day, in nanoseconds since 1970.
    fn now(&self) -> Nanos;

    /// The time since some instant, never going back: to measure how long something takes.
    fn uptime(&self) -> Duration;

    /// Lets so much time pass.
    fn sleep(&self, time: Duration);

    /// 64 random bits; tests draw them from a seed.
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

    fn uptime(&self) -> Duration {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        START.elapsed()
    }

    fn sleep(&self, time: Duration) {
        thread::sleep(time);
    }

    fn random(&self) -> u64 {
        rand::rng().next_u64()
    }
}

/// A clock that advances by a microsecond at each read, and random numbers from a seed: the same calls see the same
/// world. A sleep advances the clock without waiting; the uptime is the time slept.
#[derive(Debug)]
pub struct SeededEnv {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    now: Nanos,
    slept: Duration,
    random: StdRng,
}

impl SeededEnv {
    /// The world of `seed`. The clock starts at 2026-01-01.
    pub fn new(seed: u64) -> SeededEnv {
        let state =
            State { now: 1_767_225_600_000_000_000, slept: Duration::ZERO, random: StdRng::seed_from_u64(seed) };
        SeededEnv { state: Mutex::new(state) }
    }
}

impl Env for SeededEnv {
    fn now(&self) -> Nanos {
        let mut state = self.state.lock();
        state.now += 1_000;
        state.now
    }

    fn uptime(&self) -> Duration {
        self.state.lock().slept
    }

    fn sleep(&self, time: Duration) {
        let mut state = self.state.lock();
        state.slept += time;
        state.now = state.now.saturating_add_unsigned(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    fn random(&self) -> u64 {
        self.state.lock().random.next_u64()
    }
}

/// Bytes that do not compress, the same for the same seed.
#[cfg(test)]
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}
