//! `fs top`: live activity on mounted file systems by user, process and file.

use std::{collections::HashMap, thread, time::Duration};

use clap::Args;
use dataset::name::Name;
use dataset::property::OwnerKind;
use dataset::property::size::{format_bytes, format_count};
use protocol::{
    Exit, Failure, MountRequest, PathBytes, Response, WatchCounts, WatchRow, WatchSample, unexpected_answer,
};
use serde_json::{Map, Value, json};
use service::owners;

use crate::args::common;
use crate::commands::schedule::interval;
use crate::context::Context;
use crate::output::names;
use crate::output::table::{Column, Table};

/// Arguments of `fs top`.
#[derive(Args, Debug)]
#[command(
    after_help = "Prints the requests of the kernel during each interval, a row for each user, process and file, the busiest first. On a terminal
the rows are refreshed until Ctrl-C; otherwise one report is printed.

Requests are counted by file only while a top is watching, in up to 1,024 rows for each mount; '(others)' counts the rest.
What the kernel answers from its own cache is not counted. Process 0 is the kernel, as when it writes back mapped files.

Examples:
  fs top                                     refreshed each second
  fs top -n 3 -d 5 tank/home                 three reports, five seconds each
  fs top -j -n 1                             as JSON"
)]
pub struct Arguments {
    /// Number of reports
    #[arg(short = 'n', value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Seconds of each interval
    #[arg(short = 'd', value_name = "SECONDS", default_value = "1")]
    delay: String,
    /// Scripted mode: no header, fields separated by one tab
    #[arg(short = 'H')]
    scripted: bool,
    /// Print exact numbers
    #[arg(short = 'p')]
    exact: bool,
    /// Print JSON, one document per report
    #[arg(short = 'j', long)]
    json: bool,
    /// Mounted datasets (default: all)
    #[arg(value_name = "DATASET")]
    names: Vec<String>,
}

/// The longest interval: later the services stop counting.
const LONGEST: Duration = Duration::from_secs(8);
/// Clears a terminal, and moves the cursor to its beginning.
const CLEAR: &str = "\x1b[H\x1b[2J";
/// The most rows on a terminal.
const SCREEN: usize = 22;

/// Prints reports, each after an interval.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let delay = interval(&arguments.delay)?;
    if delay > LONGEST {
        return Err(Failure::usage(format!("-d takes at most {} seconds", LONGEST.as_secs())));
    }
    let only: Vec<Name> = common::names("show", &arguments.names)?;
    let is_live = context.console.terminals.output && arguments.count.is_none() && !arguments.json;
    let count = arguments.count.unwrap_or(if is_live { u64::MAX } else { 1 });
    let mut before = samples(&only, context)?;
    for _ in 0..count {
        thread::sleep(delay);
        let now = samples(&only, context)?;
        let mut rows = rows(&now, &before);
        if is_live {
            rows.truncate(SCREEN);
            context.console.output.write_all(CLEAR.as_bytes())?;
        }
        match arguments.json {
            true => context.print_json("top", "activity", encode(&rows))?,
            false => context.print_called(&render(&rows, arguments))?,
        }
        context.console.output.flush()?;
        before = now;
    }
    Ok(Exit::Done)
}

/// The counts of the named mounts, else of all mounts.
fn samples(only: &[Name], context: &mut Context<'_>) -> Result<Vec<WatchSample>, Failure> {
    let mut pools: Vec<String> = only.iter().map(|name| name.pool().to_owned()).collect();
    pools.sort();
    pools.dedup();
    let mut samples = Vec::new();
    for pool in context.pools(&pools)? {
        match context.call_each(&pools, &pool, MountRequest::Activity)? {
            Some(Response::Activity(found)) => samples.extend(found),
            None => {}
            _ => return Err(unexpected_answer()),
        }
    }
    if let Some(name) = only.iter().find(|name| samples.iter().all(|sample| sample.dataset != **name)) {
        return Err(Failure::cannot("show", name, "not mounted").hint(format!("to mount it: fs mount {name}")));
    }
    samples.retain(|sample| only.is_empty() || only.contains(&sample.dataset));
    Ok(samples)
}

/// The requests of an interval in one row.
struct Row<'a> {
    dataset: &'a Name,
    /// `None` for the requests without a row of their own.
    who: Option<&'a WatchRow>,
    counts: WatchCounts,
}

/// The rows with requests since `before`, the busiest first.
fn rows<'a>(now: &'a [WatchSample], before: &[WatchSample]) -> Vec<Row<'a>> {
    let mut rows = Vec::new();
    for sample in now {
        let before = before.iter().find(|it| it.dataset == sample.dataset && it.elapsed < sample.elapsed);
        let key = |row: &WatchRow| (row.user, row.process, row.node);
        let old: HashMap<_, WatchCounts> =
            before.iter().flat_map(|before| &before.rows).map(|row| (key(row), row.counts)).collect();
        let dataset = &sample.dataset;
        rows.extend(sample.rows.iter().map(|row| Row {
            dataset,
            who: Some(row),
            counts: row.counts.since(old.get(&key(row))),
        }));
        let others = sample.others.since(before.map(|before| &before.others));
        rows.push(Row { dataset, who: None, counts: others });
    }
    rows.retain(|row| row.counts.requests > 0);
    rows.sort_by_key(|row| {
        let bytes = row.counts.read_bytes.saturating_add(row.counts.written_bytes);
        std::cmp::Reverse((row.counts.requests, bytes))
    });
    rows
}

/// A path for people; a file without a name is shown by its number.
fn path(row: &WatchRow) -> String {
    match &row.path {
        PathBytes(path) if path.is_empty() => format!("(no name, file {})", row.node),
        PathBytes(path) => names::visible(path),
    }
}

fn render(rows: &[Row<'_>], arguments: &Arguments) -> String {
    let users = owners::names(OwnerKind::User);
    let count = |count: u64| if arguments.exact { count.to_string() } else { format_count(count) };
    let bytes = |bytes: u64| if arguments.exact { bytes.to_string() } else { format_bytes(bytes) };
    let numbers = ["OPS", "READ", "WRITE"].map(Column::right);
    let columns = [Column::left("USER"), Column::right("PID"), Column::left("PROGRAM")].into_iter().chain(numbers);
    let mut table = Table::new(columns.chain([Column::left("DATASET"), Column::left("PATH")]).collect());
    for row in rows {
        let [user, process, program, path] = match row.who {
            Some(who) => [
                users.get(&who.user).cloned().unwrap_or_else(|| who.user.to_string()),
                who.process.to_string(),
                names::visible(who.program.as_bytes()),
                path(who),
            ],
            None => ["-", "-", "-", "(others)"].map(str::to_owned),
        };
        let WatchCounts { requests, read_bytes, written_bytes, .. } = row.counts;
        let numbers = [count(requests), bytes(read_bytes), bytes(written_bytes)];
        table
            .push([user, process, program].into_iter().chain(numbers).chain([row.dataset.to_string(), path]).collect());
    }
    match rows.is_empty() && !arguments.scripted {
        true => "no requests in this interval\n".to_owned(),
        false => table.render(arguments.scripted),
    }
}

fn encode(rows: &[Row<'_>]) -> Value {
    let row = |row: &Row<'_>| {
        let mut object = Map::new();
        object.insert("dataset".to_owned(), json!(row.dataset.as_str()));
        if let Some(who) = row.who {
            object.insert("uid".to_owned(), json!(who.user.to_string()));
            object.insert("pid".to_owned(), json!(who.process.to_string()));
            object.insert("program".to_owned(), json!(who.program));
            names::put(&mut object, "path", &who.path.0);
        }
        let WatchCounts { requests, reads, read_bytes, writes, written_bytes } = row.counts;
        for (name, figure) in [
            ("ops", requests),
            ("read_ops", reads),
            ("read_bytes", read_bytes),
            ("write_ops", writes),
            ("write_bytes", written_bytes),
        ] {
            object.insert(name.to_owned(), json!(figure.to_string()));
        }
        Value::Object(object)
    };
    rows.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(elapsed: u64, requests: u64) -> WatchSample {
        let counts =
            WatchCounts { requests, writes: requests, written_bytes: requests << 10, ..WatchCounts::default() };
        let row = |process, path: &str| WatchRow {
            user: 4_000_000_000,
            process,
            program: "cp\x1b".into(),
            node: 7,
            path: path.into(),
            counts,
        };
        let busy = WatchRow { counts: WatchCounts { requests: 3 * requests, ..counts }, ..row(9, "") };
        let others = WatchCounts { requests: 1, ..WatchCounts::default() };
        WatchSample { dataset: "tank".parse().unwrap(), elapsed, rows: vec![row(8, "/a\nb"), busy], others }
    }

    #[test]
    fn the_busiest_come_first_and_names_are_escaped() {
        let (before, now) = ([sample(1, 2)], [sample(2, 5)]);
        let rows = rows(&now, &before);
        let arguments =
            Arguments { count: None, delay: "1".into(), scripted: false, exact: false, json: false, names: Vec::new() };
        insta::assert_snapshot!(render(&rows, &arguments), @r"
        USER        PID  PROGRAM  OPS  READ  WRITE  DATASET  PATH
        4000000000    9  cp\033     9    0B     3K  tank     (no name, file 7)
        4000000000    8  cp\033     3    0B     3K  tank     /a\nb
        ");
        assert_eq!(encode(&rows)[1]["path"], "/a\nb");
        let anew = super::rows(&before, &now);
        assert_eq!(anew.len(), 3, "a mount made anew counts from its beginning, with the requests without a row");
    }
}
