//! `pool iostat`: operations and bytes per second, and how long requests take.
//!
//! The executor returns counters since import. The first table shows their average since import, each further table the
//! difference from the previous table.
//!
//! ```text
//! rates       differences of two samples      table       one row for each pool, vdev and device
//! histograms  waits and sizes, with -w and -r encoded     the same as JSON
//! ```

mod encoded;
mod histograms;
mod rates;
mod table;

use std::collections::HashMap;
use std::path::Path;

use clap::Args;
use dataset::property::pool::GUID;
use protocol::{Exit, Failure, IoCounts, IoSample, PoolRequest, Response, unexpected_answer};

use self::{
    rates::Rates,
    table::{Columns, Detail, Page},
};
use super::status::lines;
use crate::args::{clock::Stamp, common::vdev_name, names::DeviceNames};
use crate::commands::schedule::{Round, Schedule};
use crate::context::Context;

/// Arguments of `pool iostat`.
#[derive(Args, Debug, Default)]
#[command(
    after_help = "Prints operations and bytes per second: first the average since import, then one report per interval.

With -l, -q, -w and -r the columns are those of OpenZFS. A request to a device has two stages here: it may wait for a
thread, and then the kernel carries it out. There are no other queues.

  total_wait    from the request to the answer
  disk_wait     the second stage alone
  syncq_wait    the first stage, of requests for which a program waits
  asyncq_wait   the first stage, of commits, moves and reads ahead
  scrub, trim   the first stage, of these jobs
  rebuild       the first stage, of resilvers
  ind, agg      requests for one block, and for several adjacent blocks
  pend, activ   requests in the first stage now, and in the second

A read that the page cache can answer, or that its reader carries out itself, has no first stage. A column without
requests shows '-'.

Examples:
  pool iostat                                averages since import
  pool iostat -v tank 5                      every five seconds, with devices
  pool iostat tank mirror-0 /dev/sdc         only these vdevs and devices
  pool iostat tank 1 10                      ten reports, one per second
  pool iostat -vlq tank 5                    latency and queues of each device
  pool iostat -w tank                        how many requests took how long"
)]
pub struct Arguments {
    /// Include vdevs and devices
    #[arg(short = 'v')]
    verbose: bool,
    /// Include average latency, by stage and class
    #[arg(short = 'l', conflicts_with_all = ["waits", "sizes"])]
    latency: bool,
    /// Include active and pending requests, by class
    #[arg(short = 'q', conflicts_with_all = ["waits", "sizes"])]
    queues: bool,
    /// Print histograms of latency instead
    #[arg(short = 'w')]
    waits: bool,
    /// Print histograms of request sizes instead
    #[arg(short = 'r')]
    sizes: bool,
    /// Scripted mode: no header, fields separated by one tab
    #[arg(short = 'H')]
    scripted: bool,
    /// Print exact numbers
    #[arg(short = 'p')]
    exact: bool,
    /// Print the header once
    #[arg(short = 'n')]
    one_head: bool,
    #[command(flatten)]
    names: DeviceNames,
    #[command(flatten)]
    stamp: Stamp,
    /// Omit the first report, the averages since import
    #[arg(short = 'y')]
    skip_first: bool,
    /// Print JSON, one document per report
    #[arg(short = 'j', long)]
    json: bool,
    /// Pools (default: all), or vdevs and devices, then an interval in seconds, then a number of reports (default: no end)
    #[arg(value_name = "POOL|INTERVAL|COUNT")]
    words: Vec<String>,
}

/// Prints rates once, or at each interval.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let schedule = Schedule::parse(&arguments.words)?.stamped(arguments.stamp);
    let skips_first = arguments.skip_first && schedule.is_repeated();
    let schedule = if skips_first { schedule.with_one_more() } else { schedule };
    let (pools, vdevs) = sorted_out(&schedule.pools, context)?;
    let mut before: Vec<IoSample> = Vec::new();
    let mut page = Page { has_one_head: arguments.one_head, ..Page::default() };
    schedule.run(context, |time, context| {
        let samples = samples(&pools, &vdevs, arguments.names, context)?;
        let rate = |now: &IoSample| Rates::between(before.iter().find(|before| before.pool.name == now.pool.name), now);
        let rates: Vec<Rates> = samples.iter().map(rate).collect();
        before = samples;
        if time > 0 || !skips_first {
            print(&rates, !vdevs.is_empty(), arguments, &mut page, context)?;
        }
        Ok(Round::Whole)
    })
}

/// The pools and the vdevs among the words. A word is a vdev if a path or a group such as mirror-0; vdevs are in the
/// named pools, or in any.
fn sorted_out(words: &[String], context: &mut Context<'_>) -> Result<(Vec<String>, Vec<String>), Failure> {
    let known = context.executor.known_pools()?;
    let mut sorted = (Vec::new(), Vec::new());
    for word in words {
        let name = vdev_name(word).ok().filter(|name| !known.contains(word) && (name.starts_with('/') || name == word));
        match name.filter(|name| name == word || Path::new(name).exists()) {
            Some(vdev) => sorted.1.push(vdev),
            None => sorted.0.push(word.clone()),
        }
    }
    Ok(sorted)
}

/// Keeps the given vdevs and devices of a pool; a device stands for itself.
fn keep_only(vdevs: &[String], sample: &mut IoSample) {
    let all = std::mem::take(&mut sample.vdevs);
    let members = |vdev: &IoCounts| vdev.members.iter().map(|it| IoCounts { role: vdev.role, ..it.clone() }).collect();
    let with_members = all.into_iter().flat_map(|vdev| {
        let members: Vec<IoCounts> = members(&vdev);
        std::iter::once(vdev).chain(members)
    });
    sample.vdevs = with_members.filter(|vdev| vdevs.contains(&vdev.name)).collect();
}

fn samples(
    pools: &[String],
    vdevs: &[String],
    names: DeviceNames,
    context: &mut Context<'_>,
) -> Result<Vec<IoSample>, Failure> {
    let mut samples = Vec::new();
    for pool in context.pools(pools)? {
        match context.call_each(pools, &pool, PoolRequest::IoCounters)? {
            Some(Response::IoCounters(mut sample)) => {
                if !vdevs.is_empty() {
                    keep_only(vdevs, &mut sample);
                }
                let guids = if names.needs_guids() { guids(&pool, context)? } else { HashMap::new() };
                sample.vdevs.iter_mut().for_each(|vdev| rename(vdev, names, &guids));
                samples.push(*sample);
            }
            None => {}
            _ => return Err(unexpected_answer()),
        }
    }
    match vdevs {
        [vdev, ..] if samples.iter().all(|sample| sample.vdevs.is_empty()) => {
            Err(Failure::cannot("open", vdev, "no such vdev in the pools").hint("to list vdevs: pool status"))
        }
        _ => Ok(samples),
    }
}

/// The GUIDs of the vdevs and devices, by name.
fn guids(pool: &str, context: &mut Context<'_>) -> Result<HashMap<String, u64>, Failure> {
    let request = PoolRequest::Pool { properties: vec![GUID.name.to_owned()], vdevs: true };
    let Response::Pool(record) = context.call(pool, request)? else { return Err(unexpected_answer()) };
    Ok(record.vdevs.iter().flat_map(lines).map(|(_, vdev)| (vdev.path.clone(), vdev.guid)).collect())
}

/// Gives a vdev and its members their printed names. A device that just left the pool has GUID 0.
fn rename(counts: &mut IoCounts, names: DeviceNames, guids: &HashMap<String, u64>) {
    counts.name = names.name(&counts.name, guids.get(&counts.name).copied().unwrap_or(0));
    counts.members.iter_mut().for_each(|member| rename(member, names, guids));
}

fn print(
    rates: &[Rates],
    only_vdevs: bool,
    arguments: &Arguments,
    page: &mut Page,
    context: &mut Context<'_>,
) -> Result<(), Failure> {
    if arguments.json {
        return context.print_json("iostat", "pools", encoded::encode(rates, arguments));
    }
    let detail = if only_vdevs {
        Detail::Vdevs
    } else if arguments.verbose {
        Detail::Both
    } else {
        Detail::Pools
    };
    let text = match arguments.waits || arguments.sizes {
        true => histograms::render(rates, detail, arguments),
        false => table::render(rates, detail, &Columns::of(arguments), arguments.scripted, page),
    };
    context.print(&text)
}
