//! `[POOL]... [INTERVAL [COUNT]]`: what is shown, how often, and how many times, as the words of `pool iostat`, `pool list`
//! and `pool status` say.

use std::thread;
use std::time::Duration;

use crate::context::Context;
use crate::failure::{Exit, Failure};

/// What to show, how often.
#[derive(Debug, PartialEq)]
pub struct Schedule {
    /// The pools that are named; none for all.
    pub pools: Vec<String>,
    interval: Option<Duration>,
    count: Option<u64>,
}

impl Schedule {
    /// Numbers at the end are interval and count: no pool's name begins with a digit.
    pub fn parse(words: &[String]) -> Result<Schedule, Failure> {
        let first_number = words.iter().position(|word| word.starts_with(|c: char| c.is_ascii_digit()));
        let (pools, numbers) = words.split_at(first_number.unwrap_or(words.len()));
        let bad = |what: &str, text: &str| Failure::usage(format!("{what} '{text}' is not a number above 0"));
        let interval = |text: &String| {
            let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0);
            seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).ok_or_else(|| bad("interval", text))
        };
        let count = |text: &String| text.parse().ok().filter(|count| *count > 0).ok_or_else(|| bad("count", text));
        let (interval, count) = match numbers {
            [] => (None, None),
            [every] => (Some(interval(every)?), None),
            [every, times] => (Some(interval(every)?), Some(count(times)?)),
            _ => return Err(Failure::usage("at most an interval and a count follow the pools")),
        };
        Ok(Schedule { pools: pools.to_vec(), interval, count })
    }

    /// Whether it is shown more than once.
    pub fn is_repeated(&self) -> bool {
        self.interval.is_some()
    }

    /// Shows it so often, or until somebody interrupts it. `show` is told which time this is, from 0 on; the worst that it
    /// returns is returned.
    pub fn run(
        &self,
        context: &mut Context<'_>,
        mut show: impl FnMut(u64, &mut Context<'_>) -> Result<Exit, Failure>,
    ) -> Result<Exit, Failure> {
        let mut worst = Exit::Done;
        for time in 0.. {
            worst = worst.max(show(time, context)?);
            context.console.output.flush()?;
            match (self.interval, self.count) {
                (None, _) => break,
                (Some(_), Some(count)) if time + 1 >= count => break,
                (Some(interval), _) => thread::sleep(interval),
            }
        }
        Ok(worst)
    }

    /// The same, once more.
    pub fn with_one_more(mut self) -> Schedule {
        self.count = self.count.map(|count| count.saturating_add(1));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailing_numbers_are_interval_and_count() {
        let parse = |words: &[&str]| Schedule::parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        let schedule = parse(&["tank", "0.5", "3"]).unwrap();
        assert_eq!(
            (schedule.pools.len(), schedule.interval, schedule.count),
            (1, Some(Duration::from_millis(500)), Some(3))
        );
        assert_eq!(parse(&[]).unwrap().interval, None);
        for words in [&["0"][..], &["1", "0"], &["1", "2", "3"], &["1x"], &["1e99"]] {
            assert_eq!(parse(words).unwrap_err().exit, Exit::Usage, "{words:?}");
        }
    }
}
