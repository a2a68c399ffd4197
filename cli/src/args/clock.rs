//! The time above each report: `-T u` and `-T d`.

use clap::{Args, ValueEnum};
use pool::env::{Env, SystemEnv};

use crate::output::time::{self, Zone};

const NANOS: i64 = 1_000_000_000;

/// How a time is shown.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Clock {
    /// As seconds since 1970.
    #[value(name = "u")]
    Seconds,
    /// As a date.
    #[value(name = "d")]
    Date,
}

/// The option for the time above each report.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Stamp {
    /// Print the time above each report: u as seconds since 1970, d as a date
    #[arg(short = 'T', value_name = "u|d")]
    clock: Option<Clock>,
}

impl Stamp {
    /// The line with the present time; empty without the option.
    pub fn line(self, zone: Zone) -> String {
        let now = SystemEnv.now().div_euclid(NANOS);
        match self.clock {
            None => String::new(),
            Some(Clock::Seconds) => format!("{now}\n"),
            Some(Clock::Date) => time::scan(now, zone) + "\n",
        }
    }
}
