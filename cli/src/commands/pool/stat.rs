//! `pool stat`: what the caches of pools hold and have answered, and what memory is used for.

use clap::Args;
use dataset::property::size::{format_bytes, format_count};
use pool::txg::CacheFigures;
use protocol::{CacheSample, Exit, Failure, PoolRequest, Response, Unit, cache_figures, unexpected_answer};
use serde_json::{Map, Value, json};

use crate::args::clock::Stamp;
use crate::commands::schedule::{Round, Schedule};
use crate::context::Context;

/// Arguments of `pool stat`.
#[derive(Args, Debug)]
#[command(
    after_help = "Prints the figures of the caches: first since the import, then of each interval. Sizes are present sizes.

  data       content of files
  metadata   nodes of the trees of datasets and of the pool
  prefetch   misses answered by a block that was being read already, ahead of its reader
  devices    misses answered by a cache device, and by none
  dirty      writes not yet committed, outside of the cache
  resident   memory of the whole service, with its program and its mounts

What the kernel answers from its own cache never reaches these caches. The property cache_size sets the target.

Examples:
  pool stat                                  all pools, since import
  pool stat 5 tank                           every five seconds
  pool stat --cache -j tank                  as JSON"
)]
pub struct Arguments {
    /// Show the caches; the default, and so far the only choice
    #[arg(long)]
    cache: bool,
    /// Scripted mode: a line for each pool, fields separated by one tab
    #[arg(short = 'H')]
    scripted: bool,
    /// Print exact numbers
    #[arg(short = 'p')]
    exact: bool,
    #[command(flatten)]
    stamp: Stamp,
    /// Print JSON, one document per report
    #[arg(short = 'j', long)]
    json: bool,
    /// An interval in seconds, a number of reports (default: no end), and pools (default: all)
    #[arg(value_name = "INTERVAL|COUNT|POOL")]
    words: Vec<String>,
}

/// Prints the figures once, or at each interval.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let schedule = Schedule::parse_mixed(&arguments.words)?.stamped(arguments.stamp);
    let mut before: Vec<(String, CacheSample)> = Vec::new();
    schedule.run(context, |_, context| {
        let mut now = Vec::new();
        for pool in context.pools(&schedule.pools)? {
            match context.call_each(&schedule.pools, &pool, PoolRequest::CacheFigures)? {
                Some(Response::Cache(sample)) => now.push((pool, sample)),
                None => {}
                _ => return Err(unexpected_answer()),
            }
        }
        let earlier = |pool: &str| before.iter().find(|(other, _)| other == pool).map(|(_, sample)| sample);
        let since: Vec<(&str, CacheFigures, u64)> =
            now.iter().map(|(pool, sample)| (&**pool, sample.since(earlier(pool)), sample.resident)).collect();
        match arguments.json {
            true => context.print_json("stat", "pools", encode(&since))?,
            false => context.print(&render(&since, arguments))?,
        }
        before = now;
        Ok(Round::Whole)
    })
}

fn render(pools: &[(&str, CacheFigures, u64)], arguments: &Arguments) -> String {
    let number = |unit, figure: u64| match unit {
        _ if arguments.exact => figure.to_string(),
        Unit::Count => format_count(figure),
        Unit::Bytes => format_bytes(figure),
    };
    if arguments.scripted {
        let line = |(pool, figures, resident): &(&str, CacheFigures, u64)| {
            let figures = cache_figures(figures, *resident).map(|(_, unit, figure)| number(unit, figure));
            format!("{pool}\t{}\n", figures.join("\t"))
        };
        return pools.iter().map(line).collect();
    }
    let page = |(pool, figures, resident): &(&str, CacheFigures, u64)| page(pool, figures, *resident, &number);
    pools.iter().map(page).collect::<Vec<_>>().join("\n")
}

/// The figures of a pool for people.
fn page(pool: &str, figures: &CacheFigures, resident: u64, number: &dyn Fn(Unit, u64) -> String) -> String {
    let lookups = &figures.lookups;
    let mut text = format!("  pool: {pool}\n\n  lookups       hits   misses  hit%\n");
    for (name, hits, misses) in [
        ("data", lookups.data_hits, Some(lookups.data_misses)),
        ("metadata", lookups.metadata_hits, Some(lookups.metadata_misses)),
        ("prefetch", lookups.prefetch_hits, None),
        ("devices", lookups.device_hits, Some(lookups.device_misses)),
    ] {
        let share = misses.and_then(|misses| (hits * 100).checked_div(hits + misses));
        let share = share.map_or_else(|| "-".to_owned(), |share| share.to_string());
        let misses = misses.map_or_else(|| "-".to_owned(), |misses| number(Unit::Count, misses));
        text += &format!("  {name:10} {:>7}  {misses:>7}  {share:>4}\n", number(Unit::Count, hits));
    }
    text += "\n  memory        size\n";
    let bytes = |figure| number(Unit::Bytes, figure);
    for (name, size, more) in [
        (
            "cache",
            figures.size,
            format!("of {}, evictions {}", bytes(figures.target), number(Unit::Count, figures.evictions)),
        ),
        ("  data", figures.data, String::new()),
        ("  metadata", figures.metadata, String::new()),
        ("dirty", figures.dirty, format!("of {}", bytes(figures.dirty_limit))),
        ("prefetch", figures.prefetch, String::new()),
        (
            "index",
            figures.device_index,
            format!(
                "of {} blocks, {} on cache devices",
                number(Unit::Count, figures.device_blocks),
                bytes(figures.devices)
            ),
        ),
        ("resident", resident, String::new()),
    ] {
        text += format!("  {name:10} {:>7}  {more}", bytes(size)).trim_end();
        text += "\n";
    }
    text
}

fn encode(pools: &[(&str, CacheFigures, u64)]) -> Value {
    let object = |(pool, figures, resident): &(&str, CacheFigures, u64)| {
        let figures = cache_figures(figures, *resident).into_iter();
        let figures: Map<_, _> =
            figures.map(|(name, _, figure)| (name.to_owned(), json!(figure.to_string()))).collect();
        ((*pool).to_owned(), json!({ "cache": figures }))
    };
    Value::Object(pools.iter().map(object).collect())
}
