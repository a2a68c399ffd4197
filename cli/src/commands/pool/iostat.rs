//! `pool iostat`: operations and bytes per second.
//!
//! The executor returns counters since import. The first table shows their average since import, each further table the
//! difference from the previous table.

use std::collections::HashMap;
use std::path::Path;

use clap::Args;
use dataset::property::pool::GUID;
use dataset::property::size::{format_bytes, format_count};
use protocol::{Exit, Failure, IoCounts, IoSample, PoolRequest, Response, VdevRole, unexpected_answer};
use serde_json::{Map, Value, json};

use super::status::lines;
use crate::args::{clock::Stamp, common::vdev_name, names::DeviceNames};
use crate::commands::schedule::{Round, Schedule};
use crate::context::Context;

/// Arguments of `pool iostat`.
#[derive(Args, Debug)]
#[command(
    after_help = "Prints operations and bytes per second: first the average since import, then one report per interval.

Examples:
  pool iostat                                averages since import
  pool iostat -v tank 5                      every five seconds, with devices
  pool iostat tank mirror-0 /dev/sdc         only these vdevs and devices
  pool iostat tank 1 10                      ten reports, one per second"
)]
pub struct Arguments {
    /// Include vdevs and devices
    #[arg(short = 'v')]
    verbose: bool,
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
                samples.push(sample);
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

/// Rates per second of a pool and its vdevs; allocated and free space are the present values.
#[derive(Debug)]
struct Rates {
    pool: IoCounts,
    vdevs: Vec<IoCounts>,
}

impl Rates {
    fn between(before: Option<&IoSample>, now: &IoSample) -> Rates {
        // A restarted service counts from zero again.
        let before = before.filter(|before| before.elapsed < now.elapsed);
        let nanoseconds = now.elapsed - before.map_or(0, |before| before.elapsed);
        let rate = |now: &IoCounts, before: Option<&IoCounts>| per_second(now, before, nanoseconds);
        let vdev = |now: &IoCounts| {
            let before = before.and_then(|before| before.vdevs.iter().find(|vdev| vdev.name == now.name));
            rate(now, before)
        };
        Rates { pool: rate(&now.pool, before.map(|before| &before.pool)), vdevs: now.vdevs.iter().map(vdev).collect() }
    }
}

fn per_second(now: &IoCounts, before: Option<&IoCounts>, nanoseconds: u64) -> IoCounts {
    let rate = |now: u64, before: Option<u64>| {
        let difference = now.saturating_sub(before.unwrap_or(0));
        (u128::from(difference) * 1_000_000_000 / u128::from(nanoseconds.max(1))) as u64
    };
    IoCounts {
        name: now.name.clone(),
        role: now.role,
        allocated: now.allocated,
        free: now.free,
        reads: rate(now.reads, before.map(|before| before.reads)),
        writes: rate(now.writes, before.map(|before| before.writes)),
        read_bytes: rate(now.read_bytes, before.map(|before| before.read_bytes)),
        written_bytes: rate(now.written_bytes, before.map(|before| before.written_bytes)),
        members: now
            .members
            .iter()
            .map(|member| {
                let before = before.and_then(|before| before.members.iter().find(|other| other.name == member.name));
                per_second(member, before, nanoseconds)
            })
            .collect(),
    }
}

/// State of the header above the rows, repeated after a screen of rows.
#[derive(Default)]
struct Page {
    /// Widths of the name and number columns, and number of rows below the header.
    head: Option<(usize, usize, usize)>,
    /// Whether the header is printed once.
    has_one_head: bool,
}

/// Lines of a screen, after which the header repeats.
const SCREEN: usize = 24;

impl Page {
    /// Widths of the columns, and whether the rows need a new header; wider columns do.
    fn add(&mut self, names: usize, numbers: usize, rows: usize) -> (usize, usize, bool) {
        match self.head {
            Some((n, m, _)) if self.has_one_head => (n, m, false),
            Some((n, m, below)) if names <= n && numbers <= m && below + rows <= SCREEN => {
                self.head = Some((n, m, below + rows));
                (n, m, false)
            }
            _ => {
                self.head = Some((names, numbers, rows));
                (names, numbers, true)
            }
        }
    }
}

fn print(
    rates: &[Rates],
    only_vdevs: bool,
    arguments: &Arguments,
    page: &mut Page,
    context: &mut Context<'_>,
) -> Result<(), Failure> {
    if arguments.json {
        return context.print_json("iostat", "pools", encode(rates));
    }
    let detail = if only_vdevs {
        Detail::Vdevs
    } else if arguments.verbose {
        Detail::Both
    } else {
        Detail::Pools
    };
    context.print(&render(rates, detail, arguments.exact, arguments.scripted, page))
}

/// The rows to print.
#[derive(Clone, Copy, PartialEq)]
enum Detail {
    Pools,
    Vdevs,
    Both,
}

fn render(rates: &[Rates], detail: Detail, exact: bool, scripted: bool, page: &mut Page) -> String {
    let mut rows = Vec::new();
    for pool in rates {
        if detail != Detail::Vdevs {
            rows.push(cells(&pool.pool, "", exact));
        }
        if detail != Detail::Pools {
            let indent = if scripted || detail == Detail::Vdevs { "" } else { "  " };
            for (role, vdevs) in VdevRole::groups(&pool.vdevs, |vdev| vdev.role) {
                let none = || "-".to_owned();
                rows.extend(
                    role.heading().map(|name| [name.to_owned(), none(), none(), none(), none(), none(), none()]),
                );
                for vdev in vdevs {
                    rows.push(cells(vdev, indent, exact));
                    rows.extend(vdev.members.iter().map(|member| member_cells(member, &indent.repeat(2), exact)));
                }
            }
        }
    }
    if scripted {
        return rows.iter().map(|row| row.join("\t") + "\n").collect();
    }
    let width = |index: usize| rows.iter().map(|row| row[index].chars().count()).max().unwrap_or(0);
    // A table of several rows has rules above and below, at every interval.
    let is_table = rows.len() > 1;
    let (names, numbers) = (width(0).max(10), (1..7).map(width).max().unwrap_or(0).max(5));
    let (names, numbers, has_head) = page.add(names, numbers, rows.len() + usize::from(is_table));
    let group = 2 * numbers + 2;
    let rule = format!("{}{}\n", "-".repeat(names), format!("  {}", "-".repeat(numbers)).repeat(6));
    let mut text =
        format!("{:names$}  {:^group$}  {:^group$}  {:^group$}\n", "", "capacity", "operations", "bandwidth");
    let head = ["pool", "alloc", "free", "read", "write", "read", "write"].map(str::to_owned);
    let line = |row: &[String; 7]| {
        let numbers: String = row[1..].iter().map(|cell| format!("  {cell:>numbers$}")).collect();
        format!("{:names$}{numbers}\n", row[0])
    };
    text += &line(&head);
    text += &rule;
    if !has_head {
        text.clear();
    }
    text.extend(rows.iter().map(line));
    if is_table {
        text += &rule;
    }
    text.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

fn cells(counts: &IoCounts, indent: &str, exact: bool) -> [String; 7] {
    let bytes = |bytes: u64| if exact { bytes.to_string() } else { format_bytes(bytes) };
    let count = |count: u64| if exact { count.to_string() } else { format_count(count) };
    [
        format!("{indent}{}", counts.name),
        bytes(counts.allocated),
        bytes(counts.free),
        count(counts.reads),
        count(counts.writes),
        bytes(counts.read_bytes),
        bytes(counts.written_bytes),
    ]
}

/// The cells of a device in a mirror; its space is shown for the mirror.
fn member_cells(counts: &IoCounts, indent: &str, exact: bool) -> [String; 7] {
    let [name, _, _, rest @ ..] = cells(counts, indent, exact);
    let [reads, writes, read, written] = rest;
    [name, "-".to_owned(), "-".to_owned(), reads, writes, read, written]
}

fn encode(rates: &[Rates]) -> Value {
    let numbers = |counts: &IoCounts| {
        json!({
            "name": counts.name,
            "alloc_space": counts.allocated.to_string(),
            "free_space": counts.free.to_string(),
            "read_ops": counts.reads.to_string(),
            "write_ops": counts.writes.to_string(),
            "read_bytes": counts.read_bytes.to_string(),
            "write_bytes": counts.written_bytes.to_string(),
        })
    };
    let pool = |rates: &Rates| {
        let of_vdev = |vdev: &IoCounts| {
            let mut object = numbers(vdev);
            if !vdev.members.is_empty() {
                let members: Map<_, _> = vdev.members.iter().map(|m| (m.name.clone(), numbers(m))).collect();
                object["vdevs"] = Value::Object(members);
            }
            object
        };
        let vdevs: Map<_, _> = rates.vdevs.iter().map(|vdev| (vdev.name.clone(), of_vdev(vdev))).collect();
        let mut object = numbers(&rates.pool);
        object["vdevs"] = Value::Object(vdevs);
        (rates.pool.name.clone(), object)
    };
    Value::Object(rates.iter().map(pool).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(elapsed: u64, reads: u64) -> IoSample {
        let counts = |name: &str| IoCounts {
            role: VdevRole::Normal,
            name: name.into(),
            allocated: 3 << 29,
            free: 10 << 30,
            reads,
            writes: 2 * reads,
            read_bytes: reads << 17,
            written_bytes: reads << 18,
            members: Vec::new(),
        };
        IoSample { elapsed, pool: counts("tank"), vdevs: vec![counts("/srv/tank.img")] }
    }

    #[test]
    fn rates_are_differences_over_time() {
        let rates = Rates::between(Some(&sample(1_000_000_000, 100)), &sample(3_000_000_000, 300));
        assert_eq!((rates.pool.reads, rates.pool.writes), (100, 200));
        let first = Rates::between(None, &sample(2_000_000_000, 100));
        assert_eq!(first.pool.reads, 50);
        insta::assert_snapshot!(render(&[rates], Detail::Both, false, false, &mut Page::default()), @r"
                           capacity     operations    bandwidth
        pool             alloc   free   read  write   read  write
        ---------------  -----  -----  -----  -----  -----  -----
        tank             1.50G    10G    100    200  12.5M    25M
          /srv/tank.img  1.50G    10G    100    200  12.5M    25M
        ---------------  -----  -----  -----  -----  -----  -----
        ");
    }

    #[test]
    fn the_devices_of_a_mirror_stand_below_it() {
        let mirrored = |elapsed, reads| {
            let mut sample = sample(elapsed, reads);
            let device = |name: &str| IoCounts { name: name.into(), ..sample.vdevs[0].clone() };
            sample.vdevs[0].members = vec![device("/a"), device("/b")];
            sample.vdevs[0].name = "mirror-0".into();
            sample
        };
        let rates = Rates::between(Some(&mirrored(1_000_000_000, 100)), &mirrored(3_000_000_000, 300));
        assert_eq!(encode(std::slice::from_ref(&rates))["tank"]["vdevs"]["mirror-0"]["vdevs"]["/b"]["read_ops"], "100");
        insta::assert_snapshot!(render(&[rates], Detail::Both, false, false, &mut Page::default()), @r"
                      capacity     operations    bandwidth
        pool        alloc   free   read  write   read  write
        ----------  -----  -----  -----  -----  -----  -----
        tank        1.50G    10G    100    200  12.5M    25M
          mirror-0  1.50G    10G    100    200  12.5M    25M
            /a          -      -    100    200  12.5M    25M
            /b          -      -    100    200  12.5M    25M
        ----------  -----  -----  -----  -----  -----  -----
        ");
    }

    #[test]
    fn the_head_stands_once_on_a_screen() {
        let mut page = Page::default();
        let mut shown = |reads| {
            let rates = Rates::between(None, &sample(1_000_000_000, reads));
            render(&[rates], Detail::Pools, true, false, &mut page).lines().count()
        };
        assert_eq!(shown(100), 4, "a head of three lines, and no rule below a single pool");
        assert!((1..SCREEN).all(|_| shown(100) == 1));
        assert_eq!(shown(100), 4, "the next screen");
        assert_eq!(shown(100), 1);
        assert_eq!(shown(1 << 40), 4, "wider columns");
        let mut page = Page { has_one_head: true, ..Page::default() };
        let rates = Rates::between(None, &sample(1_000_000_000, 100));
        let mut shown = || render(std::slice::from_ref(&rates), Detail::Pools, true, false, &mut page).lines().count();
        assert_eq!(shown(), 4);
        assert!((0..2 * SCREEN).all(|_| shown() == 1), "with -n the head stands once");
    }
}
