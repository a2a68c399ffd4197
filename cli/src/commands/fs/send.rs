//! `fs send`: a snapshot, full or incremental, as a stream on standard output.

mod append;

use std::os::fd::AsFd;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use dataset::name::{DatasetName, Name, SnapshotName};
use dataset::property::size::format_bytes;
use dataset::stream::{Token, TokenError};
use protocol::{Exit, Failure, Response, SendSpec, SentRecord, StreamFormat, StreamRequest, unexpected_answer};
use serde_json::{Value, json};

use super::stream::fields;
use crate::args::common::name;
use crate::args::transfer::Transfer;
use crate::context::Context;

/// Arguments of `fs send`.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
#[command(
    after_help = "Blocks are always sent as stored, compressed. The OpenZFS options -L, -e, -c and -w are accepted and change nothing.

With -v, lines on standard error show rate and remaining time. --progress json prints objects with the members operation,
snapshot, bytes, total, rate and remaining_seconds.

Examples:
  fs send tank/home@monday > home.stream
  fs send -i @monday tank/home@tuesday > increment
  fs send -I @monday tank/home@friday | ssh host fs receive -d backup
  fs send -R tank@friday | fs receive -F backup/tank
  fs send -R -X tank/home/cache tank/home@friday > all-but-cache
  fs send -nv -i '#monday' tank/home@tuesday  print the size only
  fs send --format zfs tank/home@monday | ssh host zfs receive data/home
  fs send -t TOKEN | fs receive -s backup/home  continue an interrupted receive
  fs send -S backup/home | fs receive -s vault/home  pass on a partial state
  fs send --resume tank/home@monday home.stream  complete a stream file that was cut"
)]
pub struct Arguments {
    /// Incremental from this snapshot or bookmark, also as '@NAME' or '#NAME'
    #[arg(short = 'i', value_name = "SNAPSHOT|BOOKMARK", conflicts_with = "all_since")]
    since: Option<String>,
    /// Incremental with all intermediate snapshots
    #[arg(short = 'I', value_name = "SNAPSHOT")]
    all_since: Option<String>,
    /// Replicate: all descendants, snapshots, properties and clones
    #[arg(short = 'R', long = "replicate")]
    replicate: bool,
    /// With -R: skip file systems without the snapshot
    #[arg(short = 's', long = "skip-missing", requires = "replicate")]
    skip_missing: bool,
    /// Include properties
    #[arg(short = 'p', long = "props")]
    properties: bool,
    /// Format of the stream
    #[arg(long, value_name = "FORMAT", default_value = "cenote", conflicts_with_all = ["token", "resume"])]
    format: Format,
    /// Dry run: send nothing
    #[arg(short = 'n', long = "dryrun")]
    dry_run: bool,
    /// Verbose: print the estimated size of each stream, and the progress
    #[arg(short = 'v', long = "verbose")]
    verbose: bool,
    /// Print parsable lines
    #[arg(short = 'P', long = "parsable")]
    parsable: bool,
    /// With -n: print JSON
    #[arg(short = 'j', long, requires = "dry_run")]
    json: bool,
    /// Continue an interrupted receive with -s: the property receive_resume_token of its target
    #[arg(
        short = 't',
        value_name = "TOKEN",
        conflicts_with_all = ["since", "all_since", "replicate", "properties", "backup", "holds", "snapshot"]
    )]
    token: Option<String>,
    /// Send the partial state of an interrupted receive -s into a file system; the receiver keeps it as a partial state
    #[arg(
        short = 'S',
        long = "saved",
        conflicts_with_all = [
            "since", "all_since", "replicate", "properties", "backup", "holds", "token", "resume", "format"
        ]
    )]
    saved: bool,
    /// Send received values of properties only, also those that local values override
    #[arg(short = 'b', long = "backup")]
    backup: bool,
    /// Include the holds on the snapshots
    #[arg(short = 'h', long = "holds")]
    holds: bool,
    /// With -R: leave out FILESYSTEM and its descendants
    #[arg(short = 'X', long = "exclude", value_name = "FILESYSTEM[,...]", value_delimiter = ',', requires = "replicate", action = clap::ArgAction::Append)]
    exclude: Vec<String>,
    /// Show the progress in the name of the process, which ps(1) shows
    #[arg(short = 'V', long = "proctitle")]
    names_process: bool,
    #[command(flatten)]
    transfer: Transfer,
    /// Continue FILE, the cut stream of SNAPSHOT, after verifying it
    #[arg(
        long,
        conflicts_with_all = [
            "since", "all_since", "replicate", "properties", "backup", "holds", "dry_run", "verbose", "parsable", "token", "progress",
            "limit"
        ]
    )]
    resume: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// The snapshot; with -S the file system
    #[arg(required_unless_present = "token")]
    snapshot: Option<String>,
    /// With --resume: the stream file to continue
    #[arg(value_name = "FILE", requires = "resume")]
    file: Option<PathBuf>,
}

/// Formats of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For Cenote
    Cenote,
    /// For zfs receive of OpenZFS
    Zfs,
    /// For zfs receive of zfs-fuse
    ZfsFuse,
}

/// Sends a stream to standard output.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    if let (Some(snapshot), Some(file)) = (&arguments.snapshot, &arguments.file) {
        return append::run(snapshot, file, context);
    }
    let mut what = What::of(arguments)?;
    if arguments.dry_run {
        return estimate(arguments, what, context);
    }
    context.refuse_terminal()?;
    let pool = what.pool();
    let shows_plan = arguments.verbose || arguments.parsable;
    let mut reporting = arguments.transfer.reporting(arguments.verbose && !arguments.parsable);
    reporting.names_process = arguments.names_process;
    if shows_plan || reporting.shows_total() {
        let plan = sent(context.call(&pool, what.clone().request(true))?)?;
        reporting.total = Some(plan.iter().map(|record| record.bytes).sum());
        if let What::Snapshots(spec) = &mut what {
            spec.size = reporting.total;
        }
        if shows_plan {
            context.note(&announced(arguments, &plan))?;
        }
    }
    let stream = std::io::stdout().as_fd().try_clone_to_owned()?;
    let name = what.progress();
    let records = sent(context.call_reporting(&pool, what.request(false), stream, &mut reporting)?)?;
    reporting.finish(&name, records.iter().map(|record| record.bytes).sum(), context.console.error);
    Ok(Exit::Done)
}

/// What is sent.
#[derive(Clone)]
enum What {
    Snapshots(SendSpec),
    /// The partial state of an interrupted receive into the file system.
    Saved {
        dataset: DatasetName,
        limit: Option<u64>,
    },
}

impl What {
    fn of(arguments: &Arguments) -> Result<What, Failure> {
        if !arguments.saved {
            return specification(arguments).map(What::Snapshots);
        }
        let dataset = name("send the partial state of", arguments.snapshot.as_deref().unwrap_or_default())?;
        Ok(What::Saved { dataset, limit: arguments.transfer.limit()? })
    }

    fn pool(&self) -> String {
        match self {
            What::Snapshots(spec) => spec.snapshot.dataset().pool().to_owned(),
            What::Saved { dataset, .. } => dataset.pool().to_owned(),
        }
    }

    fn progress(&self) -> String {
        match self {
            What::Snapshots(spec) => format!("sending {}", spec.snapshot),
            What::Saved { dataset, .. } => format!("sending the partial state of {dataset}"),
        }
    }

    fn request(self, dry_run: bool) -> StreamRequest {
        match self {
            What::Snapshots(what) => StreamRequest::Send { what, dry_run },
            What::Saved { dataset, limit } => StreamRequest::SendSaved { dataset, dry_run, limit },
        }
    }
}

fn estimate(arguments: &Arguments, what: What, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let pool = what.pool();
    let plan = sent(context.call(&pool, what.request(true))?)?;
    match (arguments.json, arguments.verbose || arguments.parsable) {
        (true, _) => context.print_json("send", "streams", encode(&plan))?,
        (false, true) => context.print(&announced(arguments, &plan))?,
        (false, false) => {}
    }
    Ok(Exit::Done)
}

fn sent(response: Response) -> Result<Vec<SentRecord>, Failure> {
    match response {
        Response::Sent(records) => Ok(records),
        _ => Err(unexpected_answer()),
    }
}

fn specification(arguments: &Arguments) -> Result<SendSpec, Failure> {
    let limit = arguments.transfer.limit()?;
    if let Some(token) = token(arguments) {
        return Ok(SendSpec { limit, ..rest(token)? });
    }
    let what = arguments.snapshot.as_deref().unwrap_or_default();
    if !what.contains(['@', '#']) && what.parse::<DatasetName>().is_ok() {
        let hint = format!("to list snapshots: fs list -t snapshot {what}; to take one: fs snapshot {what}@NAME");
        return Err(Failure::cannot("send", what, "only a snapshot can be sent, DATASET@SNAPSHOT").hint(hint));
    }
    let snapshot: SnapshotName = name("send", what)?;
    let base = arguments.since.as_ref().or(arguments.all_since.as_ref());
    let base = base.map(|text| base_name(text, &snapshot)).transpose()?;
    if let (Some(Name::Bookmark(bookmark)), true) = (&base, arguments.all_since.is_some()) {
        return Err(Failure::cannot("send since", bookmark, "-I needs a snapshot").hint("use a bookmark with -i"));
    }
    Ok(SendSpec {
        snapshot,
        base,
        intermediates: arguments.all_since.is_some() || arguments.replicate,
        replicate: arguments.replicate,
        skip_missing: arguments.skip_missing,
        properties: arguments.properties || arguments.replicate,
        backup: arguments.backup,
        exclude: arguments.exclude.iter().map(|text| excluded(text)).collect::<Result<_, _>>()?,
        holds: arguments.holds,
        size: None,
        resume: None,
        limit,
        format: match arguments.format {
            Format::Cenote => StreamFormat::Cenote,
            Format::Zfs => StreamFormat::Zfs,
            Format::ZfsFuse => StreamFormat::ZfsFuse,
        },
    })
}

/// The token to continue with. In OpenZFS, --resume is the long form of -t.
fn token(arguments: &Arguments) -> Option<&String> {
    arguments.token.as_ref().or(arguments.snapshot.as_ref().filter(|_| arguments.resume))
}

/// The rest of the stream for a token.
fn rest(text: &str) -> Result<SendSpec, Failure> {
    let refused = |error| {
        let failure = Failure::new(format!("cannot resume send: {error}"));
        failure.hint("to print the token: fs get -H -o value receive_resume_token FILESYSTEM")
    };
    let Token { snapshot, properties, .. } = text.parse().map_err(|error: TokenError| refused(error))?;
    Ok(SendSpec { properties, resume: Some(text.to_owned()), ..SendSpec::full(snapshot) })
}

/// A file system to leave out.
fn excluded(text: &str) -> Result<DatasetName, Failure> {
    let dataset: DatasetName = name("leave out", text)?;
    match dataset.is_pool() {
        true => Err(Failure::cannot("leave out", dataset, "-X needs a file system below the pool's")),
        false => Ok(dataset),
    }
}

/// The base by its short name: `@a`, `#a` and `a` belong to the dataset of `snapshot`, and `a` is a snapshot.
fn base_name(text: &str, snapshot: &SnapshotName) -> Result<Name, Failure> {
    let dataset = snapshot.dataset();
    let full = match text {
        text if text.starts_with(['@', '#']) => format!("{dataset}{text}"),
        text if text.contains(['@', '#']) => text.to_owned(),
        text => format!("{dataset}@{text}"),
    };
    let base: Name = name("send since", &full)?;
    match base == Name::Snapshot(snapshot.clone()) {
        true => Err(Failure::cannot("send", snapshot, "it cannot be its own base")),
        false => Ok(base),
    }
}

/// The lines before a stream. With -v a token is shown first, as in OpenZFS: programs look there for the name of its snapshot.
fn announced(arguments: &Arguments, plan: &[SentRecord]) -> String {
    let token = token(arguments).filter(|_| arguments.verbose).and_then(|text| text.parse().ok());
    let contents = token.as_ref().map(|token| format!("resume token contents:\n{}", fields(token))).unwrap_or_default();
    contents + &render(plan, arguments.parsable)
}

fn render(plan: &[SentRecord], parsable: bool) -> String {
    let total: u64 = plan.iter().map(|record| record.bytes).sum();
    let lines = plan.iter().map(|record| line(record, parsable));
    let sum = match parsable {
        true => format!("size\t{total}\n"),
        false => format!("total estimated size is {}\n", format_bytes(total)),
    };
    lines.chain([sum]).collect()
}

fn line(SentRecord { base, snapshot, bytes }: &SentRecord, parsable: bool) -> String {
    let short = |base: &Name| match base {
        Name::Snapshot(base) if base.dataset() == snapshot.dataset() => format!("@{}", base.snapshot()),
        Name::Bookmark(base) if base.dataset() == snapshot.dataset() => format!("#{}", base.bookmark()),
        other => other.to_string(),
    };
    match (base, parsable) {
        (None, true) => format!("full\t{snapshot}\t{bytes}\n"),
        (Some(base), true) => format!("incremental\t{}\t{snapshot}\t{bytes}\n", short(base).trim_start_matches('@')),
        (None, false) => format!("full send of {snapshot} estimated size is {}\n", format_bytes(*bytes)),
        (Some(base), false) => {
            format!("send from {} to {snapshot} estimated size is {}\n", short(base), format_bytes(*bytes))
        }
    }
}

fn encode(plan: &[SentRecord]) -> Value {
    let entry = |record: &SentRecord| {
        json!({
            "snapshot": record.snapshot.as_str(),
            "base": record.base.as_ref().map(Name::as_str),
            "size": record.bytes.to_string(),
        })
    };
    Value::Array(plan.iter().map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dry_run_says_what_would_be_sent() {
        let record = |base: Option<&str>, snapshot: &str, bytes| SentRecord {
            base: base.map(|base| base.parse().unwrap()),
            snapshot: snapshot.parse().unwrap(),
            bytes,
        };
        let plan = [
            record(None, "tank/home@a", 3 << 29),
            record(Some("tank/home@a"), "tank/home@b", 4096),
            record(Some("tank/home#c"), "tank/home@d", 512),
            record(Some("tank/home@a"), "tank/clone@a", 512),
        ];
        insta::assert_snapshot!(render(&plan, false), @r"
        full send of tank/home@a estimated size is 1.50G
        send from @a to tank/home@b estimated size is 4K
        send from #c to tank/home@d estimated size is 512B
        send from tank/home@a to tank/clone@a estimated size is 512B
        total estimated size is 1.50G
        ");
        insta::assert_snapshot!(render(&plan, true), @r"
        full	tank/home@a	1610612736
        incremental	a	tank/home@b	4096
        incremental	#c	tank/home@d	512
        incremental	tank/home@a	tank/clone@a	512
        size	1610617856
        ");
    }

    #[test]
    fn a_base_may_be_short() {
        let base = |text| base_name(text, &"tank/home@b".parse().unwrap()).map(|name| name.to_string()).ok();
        assert_eq!(base("@a").as_deref(), Some("tank/home@a"));
        assert_eq!(base("a").as_deref(), Some("tank/home@a"));
        assert_eq!(base("#a").as_deref(), Some("tank/home#a"));
        assert_eq!(base("tank/origin@a").as_deref(), Some("tank/origin@a"));
        assert_eq!(base("@b"), None);
    }
}
