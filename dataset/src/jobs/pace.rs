//! The speed limit of a job or a stream: after each step, its thread waits until the handled bytes are due.

use std::time::Duration;

/// The most lag that may be caught up on.
const SLACK: Duration = Duration::from_secs(1);
/// A step handles the bytes due in this part of a second.
const STEPS_A_SECOND: u64 = 4;

/// The bytes handled since a point in time. Times are those of [`Env::uptime`](pool::env::Env::uptime).
#[derive(Debug, Default)]
pub struct Pace {
    limit: Option<u64>,
    begun: Duration,
    /// The bytes handled at that time.
    handled: u64,
}

impl Pace {
    /// The time to wait if `handled` bytes were handled up to `now`, with a limit in bytes per second.
    pub fn wait(&mut self, now: Duration, handled: u64, limit: Option<u64>) -> Duration {
        let due = |pace: &Pace, limit: u64| {
            let millis = u128::from(handled.saturating_sub(pace.handled)) * 1000 / u128::from(limit.max(1));
            Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
        };
        let Some(rate) = limit else {
            *self = Pace { limit, begun: now, handled };
            return Duration::ZERO;
        };
        let elapsed = now.saturating_sub(self.begun);
        if self.limit != limit || elapsed > due(self, rate).saturating_add(SLACK) {
            *self = Pace { limit, begun: now, handled };
            return Duration::ZERO;
        }
        due(self, rate).saturating_sub(elapsed)
    }

    /// The size of the next step: `bytes`, reduced by the limit.
    pub(super) fn step(bytes: u64, limit: Option<u64>) -> u64 {
        limit.map_or(bytes, |limit| bytes.min(limit.div_ceil(STEPS_A_SECOND)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_copied_keeps_to_the_limit_however_it_is_asked_for() {
        let start = Duration::from_secs(77);
        let (limit, mut now, mut copied) = (1_000_000, start, 5000);
        let mut pace = Pace::default();
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
        let start = Duration::from_secs(77);
        let mut pace = Pace::default();
        assert_eq!(pace.wait(start, u64::MAX, None), Duration::ZERO);
        assert_eq!(Pace::step(7, None), 7);
        assert_eq!(pace.wait(start, 0, Some(1000)), Duration::ZERO);
        let later = start + Duration::from_secs(3600);
        assert_eq!(pace.wait(later, 10, Some(1000)), Duration::ZERO);
        assert_eq!(pace.wait(later, 2010, Some(1000)), Duration::from_secs(2));
        assert_eq!(pace.wait(later, u64::MAX, Some(1)), Duration::ZERO, "another limit begins anew");
    }
}
