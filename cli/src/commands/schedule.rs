//! `[POOL]... [INTERVAL [COUNT]]`: the pools, the interval and the number of reports of `pool iostat`, `pool list` and
//! `pool status`. `fs stat` takes datasets and the numbers in any order.

use std::thread;
use std::time::Duration;

use protocol::{Exit, Failure};

use crate::args::clock::Stamp;
use crate::context::Context;

/// Pools, interval and number of reports.
#[derive(Debug)]
pub(in crate::commands) struct Schedule {
    /// The named pools or datasets; empty for all.
    pub(in crate::commands) pools: Vec<String>,
    interval: Option<Duration>,
    count: Option<u64>,
    /// The time above each report.
    stamp: Stamp,
}

impl Schedule {
    /// Numbers at the end are interval and count: no pool's name begins with a digit.
    pub(in crate::commands) fn parse(words: &[String]) -> Result<Schedule, Failure> {
        let first_number = words.iter().position(|word| is_number(word));
        let (pools, numbers) = words.split_at(first_number.unwrap_or(words.len()));
        Schedule::of(pools, numbers)
    }

    /// Like [`Schedule::parse`], but names may follow the numbers too.
    pub(in crate::commands) fn parse_mixed(words: &[String]) -> Result<Schedule, Failure> {
        let (numbers, names): (Vec<String>, Vec<String>) = words.iter().cloned().partition(|word| is_number(word));
        Schedule::of(&names, &numbers)
    }

    fn of(pools: &[String], numbers: &[String]) -> Result<Schedule, Failure> {
        let count = |text: &String| {
            let count = text.parse().ok().filter(|count| *count > 0);
            count.ok_or_else(|| Failure::usage(format!("count '{text}' is not a number above 0")))
        };
        let (interval, count) = match numbers {
            [] => (None, None),
            [every] => (Some(interval(every)?), None),
            [every, times] => (Some(interval(every)?), Some(count(times)?)),
            _ => return Err(Failure::usage("the only numbers are an interval and a count")),
        };
        Ok(Schedule { pools: pools.to_vec(), interval, count, stamp: Stamp::default() })
    }

    /// The same schedule with the time above each report.
    pub(in crate::commands) fn stamped(self, stamp: Stamp) -> Schedule {
        Schedule { stamp, ..self }
    }

    /// Whether there may be more than one report.
    pub(in crate::commands) fn is_repeated(&self) -> bool {
        self.interval.is_some()
    }

    /// The same schedule with one more report.
    pub(in crate::commands) fn with_one_more(mut self) -> Schedule {
        self.count = self.count.map(|count| count.saturating_add(1));
        self
    }

    /// Calls `show` for each report, until the count is reached, no pool can be shown, or the user interrupts the
    /// command. `show` receives the number of earlier reports.
    pub(in crate::commands) fn run(
        &self,
        context: &mut Context<'_>,
        mut show: impl FnMut(u64, &mut Context<'_>) -> Result<Round, Failure>,
    ) -> Result<Exit, Failure> {
        let mut time = 0;
        let mut exit = Exit::Done;
        loop {
            context.print(&self.stamp.line(context.zone))?;
            let round = show(time, context)?;
            if round != Round::Whole {
                exit = Exit::Failed;
            }
            context.console.output.flush()?;
            time += 1;
            match self.interval {
                Some(interval) if round != Round::Empty && self.count.is_none_or(|count| time < count) => {
                    thread::sleep(interval);
                }
                _ => return Ok(exit),
            }
        }
    }
}

/// Outcome of one report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::commands) enum Round {
    /// All pools were shown.
    Whole,
    /// Some pools could not be shown.
    Partial,
    /// Pools exist, but none could be shown.
    Empty,
}

impl Round {
    /// The outcome with `shown` pools, from the exit status of the report.
    pub(in crate::commands) fn of(shown: usize, exit: Exit) -> Round {
        match (exit, shown) {
            (Exit::Done, _) => Round::Whole,
            (_, 0) => Round::Empty,
            _ => Round::Partial,
        }
    }
}

/// Whether a word is a number: no name of a pool begins with a digit.
fn is_number(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
}

/// Parses an interval in seconds, with fractions.
pub(in crate::commands) fn interval(text: &str) -> Result<Duration, Failure> {
    let interval = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let interval = interval.filter(|interval| !interval.is_zero());
    interval.ok_or_else(|| Failure::usage(format!("interval '{text}' is not a number above 0")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{Console, Terminals};
    use jiff::tz::TimeZone;
    use service::execute::NoPools;
    use std::io;

    fn parse(words: &[&str]) -> Result<Schedule, Failure> {
        Schedule::parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn trailing_numbers_are_interval_and_count() {
        let schedule = parse(&["tank", "0.5", "3"]).unwrap();
        assert_eq!(
            (schedule.pools.len(), schedule.interval, schedule.count),
            (1, Some(Duration::from_millis(500)), Some(3))
        );
        assert_eq!(parse(&[]).unwrap().interval, None);
        for words in [&["0"][..], &["1", "0"], &["1", "2", "3"], &["1x"], &["1e99"], &["1e-300"]] {
            assert_eq!(parse(words).unwrap_err().exit, Exit::Usage, "{words:?}");
        }
    }

    /// The result, and the number of reports if each has the same outcome.
    fn run(words: &[&str], mut show: impl FnMut(u64) -> Result<Round, Failure>) -> (Result<Exit, Failure>, u64) {
        let (mut input, mut output, mut error) = (io::empty(), Vec::new(), Vec::new());
        let console =
            Console { input: &mut input, output: &mut output, error: &mut error, terminals: Terminals::default() };
        let (program, zone) = ("pool", || TimeZone::UTC);
        let mut context = Context { executor: &mut NoPools, console, program, zone };
        let mut shown = 0;
        let result = parse(words).unwrap().run(&mut context, |time, _| {
            assert_eq!(time, shown);
            shown += 1;
            show(time)
        });
        (result, shown)
    }

    #[test]
    fn it_is_shown_as_often_as_asked_for_or_until_it_fails() {
        let done = |_| Ok(Round::of(0, Exit::Done));
        assert!(matches!(run(&[], done), (Ok(Exit::Done), 1)));
        assert!(matches!(run(&["0.001", "3"], done), (Ok(Exit::Done), 3)));
        let ends = |time| Ok(Round::of(4 - time as usize, if time == 2 { Exit::Done } else { Exit::Failed }));
        assert!(matches!(run(&["0.001"], ends), (Ok(Exit::Failed), 5)));
        assert!(matches!(run(&["0.001", "2"], ends), (Ok(Exit::Failed), 2)));
        let refused = |time| if time == 1 { Err(Failure::new("no")) } else { done(time) };
        assert!(matches!(run(&["0.001", "9"], refused), (Err(_), 2)));
    }
}
