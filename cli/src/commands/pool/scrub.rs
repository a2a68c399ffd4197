//! `pool scrub`: verifies all data of a pool, or a part, and repairs from good copies.

use std::ffi::{OsStr, OsString};

use clap::Args;
use dataset::jobs::Kind;
use dataset::name::Name;
use dataset::property::size::format_bytes;
use protocol::{
    Exit, Failure, JobTarget, Location, Order, Place, Request, Response, ScrubPart, place, unexpected_answer,
};

use crate::args::common::name;
use crate::args::rate;
use crate::commands::fs::files::located;
use crate::context::Context;

/// Arguments of `pool scrub`.
#[derive(Args, Debug)]
#[command(
    after_help = "A scrub runs in the background at low priority; 'pool status' shows the progress and the result. A scrub continues after an
export and import, with its limit. The pool enables the feature rebalance for a limit; if the feature is disabled, the limit
lasts until export.

Parts of a pool are verified in the foreground: a file system without its snapshots, a snapshot, or a file (DATASET:/PATH, or
the path in a mount). With -e only known damage is verified; repaired entries leave the error list. The root file system of a
pool is written POOL:/.

With -w, or for parts of a pool, the exit status is 3 if damage without a good copy was found.

Examples:
  pool scrub tank
  pool scrub -w tank && pool status -v tank
  pool scrub -a                              all pools
  pool scrub -p tank                         pause; 'pool scrub tank' continues
  pool scrub --limit 50M tank                verify at most 50M a second; also changes a running scrub
  pool scrub tank/home                       a file system
  pool scrub tank/home@monday tank/home:/ann/notes
  pool scrub -e tank                         files listed by 'pool status -v'"
)]
pub struct Arguments {
    /// Dry run: show how much would be verified
    #[arg(short = 'n', conflicts_with_all = ["pause", "stop", "wait", "damage", "limit"])]
    dry_run: bool,
    /// Limit the scrub to RATE bytes per second; 'none' removes the limit
    #[arg(long = "limit", value_name = "RATE", conflicts_with_all = ["pause", "stop", "damage"])]
    limit: Option<String>,
    /// Pause the scrub
    #[arg(short = 'p', conflicts_with_all = ["stop", "wait", "damage"])]
    pause: bool,
    /// Stop the scrub
    #[arg(short = 's', conflicts_with_all = ["wait", "damage"])]
    stop: bool,
    /// Wait until the scrub finishes
    #[arg(short = 'w')]
    wait: bool,
    /// Verify only known damage
    #[arg(short = 'e')]
    damage: bool,
    /// All pools
    #[arg(short = 'a', conflicts_with = "targets")]
    all: bool,
    /// As in ZFS, continue after the last verified txg; the whole pool is verified
    #[arg(short = 'C', hide = true, conflicts_with_all = ["pause", "stop", "damage"])]
    since_last: bool,
    /// As in ZFS, verify data written from this date on; older data is verified too
    #[arg(short = 'S', value_name = "DATE", value_parser = date, hide = true)]
    from: Option<String>,
    /// As in ZFS, verify data written up to this date; newer data is verified too
    #[arg(short = 'E', value_name = "DATE", value_parser = date, hide = true)]
    to: Option<String>,
    /// Pools, file systems, snapshots or files
    #[arg(value_name = "POOL", required_unless_present = "all")]
    targets: Vec<OsString>,
}

/// The pool, or the parts of a pool, to scrub.
enum Target {
    Pool(String),
    Part { pool: String, part: ScrubPart },
}

/// Plans, starts, pauses or stops a scrub; scrubs parts.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let all = if arguments.all { context.executor.known_pools()? } else { Vec::new() };
    let all = all.into_iter().map(OsString::from);
    let texts: Vec<OsString> = arguments.targets.iter().cloned().chain(all).collect();
    let read = |text: &OsString| target(text, arguments, context);
    let targets: Vec<Target> = texts.iter().map(read).collect::<Result<_, _>>()?;
    if arguments.since_last || arguments.from.is_some() || arguments.to.is_some() {
        context.note("note: -C, -S and -E have no effect: a scrub verifies the data of all txgs and dates\n")?;
    }
    let limit = arguments.limit.as_deref().map(rate::limit).transpose()?;
    let order = match (arguments.pause, arguments.stop) {
        (true, _) => Order::Pause(JobTarget::Pool),
        (_, true) => Order::Stop(JobTarget::Pool),
        _ if arguments.dry_run => Order::Plan(JobTarget::Pool),
        _ => Order::Start { target: JobTarget::Pool, limit },
    };
    let pools = targets.iter().filter_map(|target| if let Target::Pool(pool) = target { Some(pool) } else { None });
    for pool in pools.clone() {
        match context.call(pool, Request::job(Kind::Scrub, order.clone()))? {
            Response::Done => {}
            Response::Bytes(bytes) => {
                context.print(&format!("{} of {pool} would be verified\n", format_bytes(bytes)))?;
            }
            _ => return Err(unexpected_answer()),
        }
    }
    let mut exit = Exit::Done;
    for (target, text) in targets.iter().zip(&texts) {
        if let Target::Part { pool, part } = target {
            exit = exit.max(examine(pool, part, text, context)?);
        }
    }
    for pool in pools.filter(|_| arguments.wait) {
        let Response::Examined(found) = context.call(pool, Request::wait(Kind::Scrub))? else {
            return Err(unexpected_answer());
        };
        if found.errors > 0 {
            context.note(&format!("{pool}: {} errors; to list the damage: pool status -v {pool}\n", found.errors))?;
        }
        exit = exit.max(Exit::of_scrub(found.errors));
    }
    Ok(exit)
}

/// Checks a date in the form of ZFS, such as `2025-11-07` or `2025-11-07 09:05`.
fn date(text: &str) -> Result<String, String> {
    let day = text.parse::<jiff::civil::Date>().is_ok() && !text.contains(['T', ' ']);
    let minute = jiff::civil::DateTime::strptime("%Y-%m-%d %H:%M", text).is_ok();
    let expected = || "expected a date such as '2025-11-07' or '2025-11-07 09:05'".to_owned();
    (day || minute).then(|| text.to_owned()).ok_or_else(expected)
}

fn target(text: &OsStr, arguments: &Arguments, context: &mut Context<'_>) -> Result<Target, Failure> {
    let location = match (place(text)?, text.to_string_lossy()) {
        (Place::Inside(location), _) => location,
        (Place::Outside(_), path) if path.starts_with(['/', '.']) => located(text, context)?,
        (Place::Outside(_), whole) => match name("scrub", &whole)? {
            Name::Dataset(pool) if pool.is_pool() && arguments.damage => {
                return Ok(Target::Part { pool: pool.to_string(), part: ScrubPart::Damage });
            }
            Name::Dataset(pool) if pool.is_pool() => return Ok(Target::Pool(pool.to_string())),
            Name::Bookmark(_) => return Err(Failure::cannot("scrub", whole, "a bookmark has no files")),
            name => Location { name, path: "/".into() },
        },
    };
    if arguments.pause || arguments.stop || arguments.damage {
        return Err(Failure::usage("-p, -s and -e apply to whole pools"));
    }
    if arguments.dry_run || arguments.limit.is_some() {
        return Err(Failure::usage("-n and --limit are of whole pools"));
    }
    Ok(Target::Part { pool: location.name.pool().to_owned(), part: ScrubPart::Place(location) })
}

/// Scrubs a part, and prints the result.
fn examine(pool: &str, part: &ScrubPart, text: &OsStr, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let Response::Examined(found) = context.call(pool, Request::ScrubPart(part.clone()))? else {
        return Err(unexpected_answer());
    };
    let [examined, repaired] = [found.examined, found.repaired].map(format_bytes);
    let text = text.to_string_lossy();
    context.print(&format!("{text}: {examined} verified, {repaired} repaired, {} errors\n", found.errors))?;
    if found.errors > 0 {
        context.note(&format!("to list the damage: pool status -v {pool}\n"))?;
    }
    Ok(Exit::of_scrub(found.errors))
}
