//! `fs receive`: creates snapshots from the stream on standard input.

mod corrective;

use std::os::fd::AsFd;

use clap::Args;
use dataset::name::{DatasetName, Name, SnapshotName};
use dataset::property::Property;
use dataset::property::dataset::ORIGIN;
use dataset::property::size::format_bytes;
use protocol::{Exit, Failure, ReceiveNaming, ReceiveSpec, ReceivedRecord, Response, StreamRequest, unexpected_answer};

use crate::args::common::{assignments, name, property_list, split_assignment};
use crate::args::transfer::Transfer;
use crate::context::Context;

/// Arguments of `fs receive`.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
#[command(
    after_help = "Creates snapshots from the streams on standard input, until the input ends. A snapshot is received completely or not at all. If a
later stream is damaged or cut, the earlier snapshots remain and are named; the exit status is 1.

With -s, an interrupted receive keeps what it has stored, even across an export or a crash. The property receive_resume_token of
the target then has the token for fs send -t. The target accepts only the rest of the stream, or, with -s, the same stream once
more: the stored part is skipped. -A discards the stored part.

-o sets a property on the topmost received file system; descendants inherit the value. -o origin=SNAPSHOT receives the first
stream as a clone of SNAPSHOT.

With -F, a replicated increment (fs send -R -i or -I) also destroys datasets and snapshots missing at the sender, and
snapshots newer than its base. If the first stream is refused, nothing is destroyed. An increment of more than about 200,000
datasets or 500,000 snapshots has no list of the sender's datasets, and destroys nothing.

-c repairs damaged blocks of an existing snapshot, with the stream of the same snapshot, and changes nothing else. Blocks
that the stream lacks and metadata are not repaired. As in a scrub, the exit status is 3 if damaged blocks are left.

Streams of OpenZFS's zfs send are recognised and received too: full streams, increments and packages. Redacted, raw encrypted,
deduplicated and resumed streams, and volumes, are refused.

Open files of the target show the received content; files no longer present return ESTALE.

Examples:
  fs receive backup/home < home.stream
  fs receive -F backup/home < increment      discard local changes first
  fs receive -d backup < home.stream         receive as backup/home
  fs receive -u -o readonly=on -x mountpoint backup/home < home.stream
  fs receive -nv backup/home < home.stream   dry run: list the streams
  fs receive -s backup/home < home.stream    keep what is stored if interrupted; the same command continues
  fs receive -A backup/home                  discard what an interrupted receive has stored
  fs receive -c tank/home < home.stream      repair damaged files from a backup"
)]
pub struct Arguments {
    /// Roll back to the base of the increment; replicated: destroy datasets missing at the sender
    #[arg(short = 'F')]
    force: bool,
    /// Dry run: receive nothing
    #[arg(short = 'n')]
    dry_run: bool,
    /// Verbose: print each received stream
    #[arg(short = 'v')]
    verbose: bool,
    /// Resumable: if interrupted, keep what is stored
    #[arg(short = 's')]
    resumable: bool,
    /// Abort: discard what an interrupted receive with -s has stored
    #[arg(
        short = 'A',
        conflicts_with_all = ["force", "dry_run", "no_mount", "resumable", "without_pool", "last_component", "properties", "exclude"]
    )]
    abort: bool,
    /// Corrective: repair damaged blocks of an existing snapshot
    #[arg(
        short = 'c',
        conflicts_with_all = ["force", "abort", "no_mount", "resumable", "properties", "exclude"]
    )]
    corrective: bool,
    /// Do not mount received file systems
    #[arg(short = 'u')]
    no_mount: bool,
    /// Append the sent name, without its pool, to the target
    #[arg(short = 'd', conflicts_with = "last_component")]
    without_pool: bool,
    /// Append the last component of the sent name to the target
    #[arg(short = 'e')]
    last_component: bool,
    /// Set a property, overriding the stream; origin=SNAPSHOT receives a clone of SNAPSHOT
    #[arg(short = 'o', value_name = "PROPERTY=VALUE", value_parser = split_assignment)]
    properties: Vec<(String, String)>,
    /// Ignore a property of the stream
    #[arg(short = 'x', value_name = "PROPERTY")]
    exclude: Vec<String>,
    /// Skip the holds in the stream
    #[arg(short = 'h')]
    skip_holds: bool,
    #[command(flatten)]
    transfer: Transfer,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// The file system to receive into, or the snapshot to create
    #[arg(value_name = "FILESYSTEM|SNAPSHOT")]
    target: String,
}

/// Receives a stream and reports its parts.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    if arguments.abort {
        let dataset: DatasetName = name("discard the partial state of", &arguments.target)?;
        let pool = dataset.pool().to_owned();
        context.call(&pool, StreamRequest::DiscardPartial(dataset))?;
        return Ok(Exit::Done);
    }
    let specification = specification(arguments)?;
    if context.console.terminals.input {
        let failure = Failure::new("Backup stream can not be read from a terminal.");
        return Err(failure.hint("you must redirect standard input"));
    }
    let pool = specification.target.pool().to_owned();
    let stream = std::io::stdin().as_fd().try_clone_to_owned()?;
    if arguments.corrective {
        let mut reporting = arguments.transfer.reporting(arguments.verbose);
        return corrective::run(specification, arguments.verbose, stream, &mut reporting, context);
    }
    let mut reporting = arguments.transfer.reporting(arguments.verbose);
    let name = format!("receiving {}", specification.target);
    let request = StreamRequest::Receive(specification);
    let Response::Received { records, skipped, unmounted } =
        context.call_reporting(&pool, request, stream, &mut reporting)?
    else {
        return Err(unexpected_answer());
    };
    reporting.finish(&name, records.iter().map(|record| record.bytes).sum(), context.console.error);
    if arguments.verbose {
        context.print(&there_already(&skipped, arguments.dry_run))?;
        context.print(&render(&records, arguments.dry_run))?;
    }
    context.note(&left_out(&records))?;
    unmounted.map_or(Ok(Exit::Done), Err)
}

fn specification(arguments: &Arguments) -> Result<ReceiveSpec, Failure> {
    let action = "receive into";
    let target: Name = name(action, &arguments.target)?;
    let naming = match (arguments.without_pool, arguments.last_component) {
        (true, _) => ReceiveNaming::WithoutPool,
        (_, true) => ReceiveNaming::LastComponent,
        _ => ReceiveNaming::Exact,
    };
    match &target {
        Name::Bookmark(_) => return Err(Failure::cannot(action, target, "that is a bookmark")),
        Name::Snapshot(_) if naming != ReceiveNaming::Exact => {
            return Err(Failure::cannot(action, target, "-d and -e need a file system"));
        }
        _ => {}
    }
    let (origins, pairs): (Vec<_>, Vec<_>) =
        arguments.properties.iter().cloned().partition(|(name, _)| ORIGIN.is(name));
    let origin = match origins.as_slice() {
        [] => None,
        [(_, text)] => Some(name::<SnapshotName>(action, text)?),
        _ => return Err(Failure::usage("property 'origin' specified multiple times")),
    };
    let assignments = assignments(&pairs, Property::of_dataset, false, action, &arguments.target)?;
    let mut exclude = Vec::new();
    for text in &arguments.exclude {
        let listed = property_list(text, Property::of_dataset)?;
        exclude.extend(listed.iter().map(|property| property.name().to_owned()));
    }
    if let Some(both) = assignments.iter().find(|assignment| exclude.contains(&assignment.name)) {
        let problem = format!("property '{}' is given to both -o and -x", both.name);
        return Err(Failure::cannot(action, &target, problem).hint("remove either option"));
    }
    Ok(ReceiveSpec {
        naming,
        force: arguments.force,
        no_mount: arguments.no_mount,
        dry_run: arguments.dry_run,
        assignments,
        exclude,
        origin,
        skip_holds: arguments.skip_holds,
        resumable: arguments.resumable,
        limit: arguments.transfer.limit()?,
        target,
    })
}

fn render(records: &[ReceivedRecord], dry_run: bool) -> String {
    records.iter().map(|record| lines(record, dry_run)).collect()
}

/// A line for each skipped snapshot.
fn there_already(skipped: &[SnapshotName], dry_run: bool) -> String {
    let verb = if dry_run { "would skip" } else { "skipped" };
    skipped.iter().map(|name| format!("{verb} the stream of {name}, which exists already\n")).collect()
}

/// A line for each snapshot whose holds were not placed.
fn left_out(records: &[ReceivedRecord]) -> String {
    let lacking = records.iter().filter(|record| record.left_out_holds > 0);
    let line = |record: &ReceivedRecord| {
        let ReceivedRecord { received, left_out_holds: count, .. } = record;
        let holds = if *count == 1 { "hold of the stream is" } else { "holds of the stream are" };
        format!("{received}: {count} {holds} left out, because this user lacks the permission 'hold'\n")
    };
    lacking.map(line).collect()
}

fn lines(record: &ReceivedRecord, dry_run: bool) -> String {
    let kind = if record.incremental { "incremental" } else { "full" };
    let verb = if dry_run { "would receive" } else { "receiving" };
    let first = format!("{verb} {kind} stream of {} into {}\n", record.sent, record.received);
    if dry_run {
        return first;
    }
    let seconds = record.milliseconds as f64 / 1000.0;
    let rate = (u128::from(record.bytes) * 1000 / u128::from(record.milliseconds.max(1))) as u64;
    format!(
        "{first}received {} stream in {seconds:.2} seconds ({}/sec)\n",
        format_bytes(record.bytes),
        format_bytes(rate)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_says_what_became_of_it() {
        let record = ReceivedRecord {
            sent: "tank/home@a".parse().unwrap(),
            received: "backup/home@a".parse().unwrap(),
            incremental: false,
            bytes: 3 << 29,
            milliseconds: 1500,
            left_out_holds: 0,
        };
        insta::assert_snapshot!(lines(&record, false), @r"
        receiving full stream of tank/home@a into backup/home@a
        received 1.50G stream in 1.50 seconds (1G/sec)
        ");
        insta::assert_snapshot!(lines(&record, true), @"would receive full stream of tank/home@a into backup/home@a");
        assert_eq!(left_out(std::slice::from_ref(&record)), "");
        let held = ReceivedRecord { left_out_holds: 2, ..record };
        insta::assert_snapshot!(left_out(&[held]), @"backup/home@a: 2 holds of the stream are left out, because this user lacks the permission 'hold'");
    }
}
