//! `fs stat`: the requests of the kernel to mounted file systems, in the columns of `fsstat`.

use clap::Args;
use dataset::name::Name;
use dataset::property::size::format_count;
use protocol::{Exit, Failure, FileCounts, FileSample, MountRequest, Response, unexpected_answer};
use serde_json::{Map, Value, json};

use crate::args::{clock::Stamp, common};
use crate::commands::schedule::{Round, Schedule};
use crate::context::Context;

/// Arguments of `fs stat`.
#[derive(Args, Debug)]
#[command(
    after_help = "Prints the requests of the kernel to each mounted dataset, and their total, in the columns of fsstat(8): first since the mount,
then of each interval. The numbers are sums, not rates.

What the kernel answers from its own cache is not counted: most lookups and attributes, and data that was read before.
Writes without O_DIRECT and reads ahead are counted in the form in which the kernel sends them.

  new file     create, mkdir, mknod, symlink
  name remov   unlink, rmdir
  name chng    rename, link
  rddir ops    parts of directories

Examples:
  fs stat                                    since each mount
  fs stat 1 10 tank/home                     ten reports, one per second
  fs stat -j                                 as JSON"
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
    /// Print JSON, one document per report
    #[arg(short = 'j', long)]
    json: bool,
    /// An interval in seconds, a number of reports (default: no end), and mounted datasets (default: all)
    #[arg(value_name = "INTERVAL|COUNT|DATASET")]
    words: Vec<String>,
}

/// Prints the activity since the mounts once, or then of each interval.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let schedule = Schedule::parse_mixed(&arguments.words)?.stamped(arguments.stamp);
    let names: Vec<Name> = common::names("show", &schedule.pools)?;
    let (mut before, mut below) = (Vec::<FileSample>::new(), None);
    schedule.run(context, |_, context| {
        let samples = samples(&names, context)?;
        let rows: Vec<(String, FileCounts)> = samples
            .iter()
            .map(|now| {
                let before = before.iter().find(|before| before.dataset == now.dataset);
                (now.dataset.to_string(), now.since(before))
            })
            .collect();
        before = samples;
        match arguments.json {
            true => context.print_json("stat", "figures", encode(&rows))?,
            false => context.print(&render(&rows, arguments, &mut below))?,
        }
        Ok(Round::Whole)
    })
}

/// The present counters of the named mounts, else of all mounts.
fn samples(names: &[Name], context: &mut Context<'_>) -> Result<Vec<FileSample>, Failure> {
    let mut pools: Vec<String> = names.iter().map(|name| name.pool().to_owned()).collect();
    pools.sort();
    pools.dedup();
    let mut samples = Vec::new();
    for pool in context.visible_pools(&pools)? {
        match context.call_each(&pools, &pool, MountRequest::FileCounters)? {
            Some(Response::FileCounters(found)) => samples.extend(found),
            None => {}
            _ => return Err(unexpected_answer()),
        }
    }
    if let Some(name) = names.iter().find(|name| samples.iter().all(|sample| sample.dataset != **name)) {
        return Err(Failure::cannot("show", name, "not mounted").hint(format!("to mount it: fs mount {name}")));
    }
    samples.retain(|sample| names.is_empty() || names.contains(&sample.dataset));
    Ok(samples)
}

/// The titles above the columns of numbers, in two lines.
const TITLES: [(&str, &str); 11] = [
    ("new", "file"),
    ("name", "remov"),
    ("name", "chng"),
    ("attr", "get"),
    ("attr", "set"),
    ("lookup", "ops"),
    ("rddir", "ops"),
    ("read", "ops"),
    ("read", "bytes"),
    ("write", "ops"),
    ("write", "bytes"),
];

/// Lines of a screen, after which the header repeats.
const SCREEN: usize = 24;

/// A row for each dataset, and one for their total. `below` is the number of rows below the last header, if any.
fn render(rows: &[(String, FileCounts)], arguments: &Arguments, below: &mut Option<usize>) -> String {
    let total = FileCounts::sum(rows.iter().map(|(_, counts)| counts));
    let named = rows.iter().map(|(name, counts)| (name.as_str(), counts)).chain([("total", &total)]);
    let lines: Vec<(Vec<String>, &str)> = named.map(|(name, counts)| (cells(counts, arguments.exact), name)).collect();
    if arguments.scripted {
        return lines.iter().map(|(cells, name)| format!("{}\t{name}\n", cells.join("\t"))).collect();
    }
    let widths: Vec<usize> = TITLES
        .iter()
        .enumerate()
        .map(|(at, (above, below))| {
            let cells = lines.iter().map(|(cells, _)| cells[at].len());
            cells.chain([above.len(), below.len(), 5]).max().expect("titles have a width")
        })
        .collect();
    let line = |cells: &mut dyn Iterator<Item = &str>, name: &str| {
        let cells: Vec<String> = cells.zip(&widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
        format!("{} {name}", cells.join(" ")).trim_end().to_owned() + "\n"
    };
    let mut text = String::new();
    match below {
        Some(rows) if *rows + lines.len() <= SCREEN => *rows += lines.len(),
        _ => {
            *below = Some(lines.len());
            text += &line(&mut TITLES.iter().map(|(above, _)| *above), "");
            text += &line(&mut TITLES.iter().map(|(_, below)| *below), "");
        }
    }
    text.extend(lines.iter().map(|(cells, name)| line(&mut cells.iter().map(String::as_str), name)));
    text
}

fn cells(counts: &FileCounts, exact: bool) -> Vec<String> {
    let cell = |figure: u64| if exact { figure.to_string() } else { format_count(figure) };
    counts.figures().into_iter().map(|(.., figure)| cell(figure)).collect()
}

fn encode(rows: &[(String, FileCounts)]) -> Value {
    let object = |counts: &FileCounts| {
        let figures = counts.figures().into_iter();
        Value::Object(figures.map(|(name, _, figure)| (name.to_owned(), json!(figure.to_string()))).collect())
    };
    let datasets: Map<_, _> = rows.iter().map(|(name, counts)| (name.clone(), object(counts))).collect();
    let total = FileCounts::sum(rows.iter().map(|(_, counts)| counts));
    json!({ "datasets": datasets, "total": object(&total) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_dataset_has_a_row_and_so_has_the_total() {
        let counts = |n: u64| FileCounts { new_files: n, read_bytes: n << 20, lookups: 3, ..FileCounts::default() };
        let rows = [("tank".to_owned(), counts(1)), ("tank/home".to_owned(), counts(1999))];
        let stamp = Stamp::default();
        let arguments = Arguments { scripted: false, exact: false, stamp, json: false, words: Vec::new() };
        let mut below = None;
        insta::assert_snapshot!(render(&rows, &arguments, &mut below), @r"
          new  name  name  attr  attr lookup rddir  read  read write write
         file remov  chng   get   set    ops   ops   ops bytes   ops bytes
            1     0     0     0     0      3     0     0    1M     0     0 tank
        1.95K     0     0     0     0      3     0     0 1.95G     0     0 tank/home
        1.95K     0     0     0     0      6     0     0 1.95G     0     0 total
        ");
        assert_eq!(render(&rows, &arguments, &mut below).lines().count(), 3, "the header is not repeated at once");
        let scripted = Arguments { scripted: true, exact: true, ..arguments };
        let text = render(&rows[..1], &scripted, &mut below);
        assert_eq!(text.lines().next().unwrap(), "1\t0\t0\t0\t0\t3\t0\t0\t1048576\t0\t0\ttank");
    }
}
