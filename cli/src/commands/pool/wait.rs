//! `pool wait`: waits for background activity to finish.

use std::{
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use dataset::property::size::format_bytes;
use protocol::{Activity, ActivityRecord, Exit, Failure, PoolRequest, Response, unexpected_answer};

use crate::args::{clock::Stamp, common::pool_name};
use crate::commands::schedule::interval;
use crate::context::Context;

/// Interval between requests.
const WATCH: Duration = Duration::from_millis(200);

/// An activity of OpenZFS that has always finished here: pools have no checkpoints.
const DISCARD: &str = "discard";

/// Arguments of `pool wait`.
#[derive(Args, Debug)]
#[command(
    after_help = "Waits for all activities, or for the activities given by -t. Paused and suspended activities count as finished. With an interval,
prints the bytes left of each activity, or '-' when finished.

  defragment    consolidation of free space
  free          freeing of destroyed datasets
  discard       discarding of checkpoints; always finished, because pools have no checkpoints
  raidz_expand  RAID-Z expansion; finished if no room is left to continue
  rebalance     spreading of data over all vdevs
  remove        removal of a vdev
  replace       replacement of devices
  resilver      resilver; finished even if blocks have no good copy
  resize        shrinking of a device; finished while waiting for a device
  scrub         scrub
  trim          TRIM started by 'pool trim'
  initialize    initialization started by 'pool initialize'

The exit status is 0 even if a scrub found damage; 'pool scrub -w' exits with 3.

Examples:
  pool wait tank                             wait for all activities
  pool wait -t scrub,resilver tank
  pool wait -t scrub tank 5                  print the bytes left every five seconds"
)]
pub struct Arguments {
    /// Scripted mode: no header, fields separated by one tab
    #[arg(short = 'H')]
    scripted: bool,
    /// Print exact numbers
    #[arg(short = 'p')]
    exact: bool,
    #[command(flatten)]
    stamp: Stamp,
    /// Activities to wait for, separated by commas (default: all)
    #[arg(short = 't', value_name = "ACTIVITY", value_delimiter = ',')]
    activities: Vec<String>,
    /// The pool
    #[arg(value_name = "POOL")]
    pool: String,
    /// Print the bytes left every INTERVAL seconds
    #[arg(value_name = "INTERVAL")]
    interval: Option<String>,
}

/// Waits for the activities, printing the work left at each interval.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let pool = pool_name("wait for", &arguments.pool)?;
    let wanted = wanted(&arguments.activities)?;
    let interval = arguments.interval.as_deref().map(interval).transpose()?;
    let mut shown: Option<Instant> = None;
    loop {
        let Response::Activities(mut records) = context.call(&pool, PoolRequest::Activities)? else {
            return Err(unexpected_answer());
        };
        records.retain(|record| wanted.contains(&record.activity));
        let is_over = records.iter().all(|record| record.left.is_none());
        if let Some(interval) = interval
            && shown.is_none_or(|shown| is_over || shown.elapsed() >= interval)
        {
            let is_first = shown.replace(Instant::now()).is_none();
            show(&records, is_first, arguments, context)?;
        }
        if is_over {
            return Ok(Exit::Done);
        }
        thread::sleep(interval.map_or(WATCH, |interval| interval.min(WATCH)));
    }
}

/// The activities with the given names; all without names.
fn wanted(names: &[String]) -> Result<Vec<Activity>, Failure> {
    if names.is_empty() {
        return Ok(Activity::ALL.to_vec());
    }
    let find = |name: &String| {
        // The activity's name in former versions of the programs.
        let name = if name == "freeing" { Activity::Freeing.as_str() } else { name };
        let known = Activity::ALL.iter().find(|activity| activity.as_str() == name);
        let unknown = || Failure::usage(format!("unknown activity '{name}'")).hint(format!("activities: {}", all()));
        known.copied().ok_or_else(unknown)
    };
    names.iter().filter(|name| *name != DISCARD).map(find).collect()
}

fn all() -> String {
    Activity::ALL.map(Activity::as_str).join(", ")
}

fn show(
    records: &[ActivityRecord],
    with_head: bool,
    arguments: &Arguments,
    context: &mut Context<'_>,
) -> Result<(), Failure> {
    let rows = rows(records, with_head, arguments.scripted, arguments.exact);
    context.print(&(arguments.stamp.line(context.zone) + &rows))?;
    Ok(context.console.output.flush()?)
}

/// A row of numbers, with a header on request.
fn rows(records: &[ActivityRecord], with_head: bool, scripted: bool, exact: bool) -> String {
    let number = |bytes: u64| if exact { bytes.to_string() } else { format_bytes(bytes) };
    let values: Vec<String> = records.iter().map(|record| record.left.map_or_else(|| "-".to_owned(), number)).collect();
    if scripted {
        return values.join("\t") + "\n";
    }
    let names: Vec<String> = records.iter().map(|record| record.activity.as_str().to_owned()).collect();
    // A column has the largest possible width, because later rows are unknown.
    let width = |name: &str| name.len().max(if exact { 20 } else { 5 });
    let line = |cells: &[String]| {
        let cells = cells.iter().zip(&names).map(|(cell, name)| format!("{cell:>width$}", width = width(name)));
        cells.collect::<Vec<_>>().join("  ") + "\n"
    };
    let head = if with_head { line(&names) } else { String::new() };
    head + &line(&values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::failure::render;

    #[test]
    fn rows_stand_below_their_names() {
        let record = |activity, left| ActivityRecord { activity, left };
        let records = [record(Activity::Freeing, None), record(Activity::Scrub, Some(3 << 29))];
        insta::assert_snapshot!(rows(&records, true, false, false), @r"
         free  scrub
            -  1.50G
        ");
        insta::assert_snapshot!(rows(&records, false, false, true), @"                   -            1610612736");
        assert_eq!(rows(&records, true, true, true), "-\t1610612736\n");
    }

    #[test]
    fn activities_have_the_names_of_openzfs() {
        let wanted = |text: &str| wanted(&text.split(',').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(wanted("scrub,freeing").unwrap(), [Activity::Scrub, Activity::Freeing]);
        assert_eq!(wanted("scrub,discard,free").unwrap(), [Activity::Scrub, Activity::Freeing]);
        assert_eq!(wanted("discard").unwrap(), []);
        insta::assert_snapshot!(render(&wanted("sleep").unwrap_err(), ""), @r"
        unknown activity 'sleep'
          activities: defragment, free, raidz_expand, rebalance, remove, replace, resilver, resize, scrub, trim, initialize
        ");
        assert_eq!(wanted("sleep").unwrap_err().exit, Exit::Usage);
    }
}
