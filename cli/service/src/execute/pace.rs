//! How fast chunks are moved, if somebody has set a limit: after each step it is waited until what was copied is due.

use std::time::{Duration, Instant};

/// So much of what was not copied in time may be caught up on.
const SLACK: Duration = Duration::from_secs(1);
/// A step takes on as much as is due in such a part of a second.
const STEPS_A_SECOND: u64 = 4;

/// What was copied since when.
pub(super) struct Pace {
    limit: Option<u64>,
    begun: Instant,
    /// How much had been copied then.
    copied: u64,
}

impl Pace {
    /// No limit yet.
    pub(super) fn new(now: Instant) -> Pace {
        Pace { limit: None, begun: now, copied: 0 }
    }

    /// How long nothing is to be copied, if `copied` bytes were copied up to `now` and `limit` is how many may be a second.
    pub(super) fn wait(&mut self, now: Instant, copied: u64, limit: Option<u64>) -> Duration {
        let due = |pace: &Pace, limit: u64| {
            let millis = u128::from(copied.saturating_sub(pace.copied)) * 1000 / u128::from(limit.max(1));
            Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
        };
        let Some(rate) = limit else {
            *self = Pace { limit, begun: now, copied };
            return Duration::ZERO;
        };
        let elapsed = now.saturating_duration_since(self.begun);
        if self.limit != limit || elapsed > due(self, rate).saturating_add(SLACK) {
            *self = Pace { limit, begun: now, copied };
            return Duration::ZERO;
        }
        due(self, rate).saturating_sub(elapsed)
    }

    /// How many of `bytes` bytes the next step takes on.
    pub(super) fn step(bytes: u64, limit: Option<u64>) -> u64 {
        limit.map_or(bytes, |limit| bytes.min(limit.div_ceil(STEPS_A_SECOND)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_copied_keeps_to_the_limit_however_it_is_asked_for() {
        let start = Instant::now();
        let (limit, mut now, mut copied) = (1_000_000, start, 5000);
        let mut pace = Pace::new(start);
        for round in 0..200u64 {
            now += pace.wait(now, copied, Some(limit));
            assert_eq!(pace.wait(now, copied, Some(limit)), Duration::ZERO);
            copied += Pace::step(64 << 20, Some(limit)) * (round % 3);
            now += Duration::from_millis(round % 7);
        }
        let seconds = (now - start).as_secs_f64();
        let rate = (copied - 5000) as f64 / seconds;
        assert!((900_000.0..1_020_000.0).contains(&rate), "{rate}");
    }

    #[test]
    fn without_a_limit_nobody_waits_and_idle_time_is_not_saved_up() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        assert_eq!(pace.wait(start, u64::MAX, None), Duration::ZERO);
        assert_eq!(Pace::step(7, None), 7);
        assert_eq!(pace.wait(start, 0, Some(1000)), Duration::ZERO);
        let later = start + Duration::from_secs(3600);
        assert_eq!(pace.wait(later, 10, Some(1000)), Duration::ZERO);
        assert_eq!(pace.wait(later, 2010, Some(1000)), Duration::from_secs(2));
        assert_eq!(pace.wait(later, u64::MAX, Some(1)), Duration::ZERO, "another limit begins anew");
    }
}
