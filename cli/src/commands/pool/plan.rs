//! `pool plan`: compares layouts for a new pool.

use clap::Args;
use dataset::property::Precision;
use dataset::property::size::{format_bytes, parse_size};
use pool::units::MIB;
use protocol::{
    Exit, Failure, HostRequest, HostResponse, LayoutPlan, PLAN_DISKS, PlanDisk, PlanWishes, VdevSpec, plan_layouts,
    shell_word, unexpected_answer,
};
use serde_json::{Value, json};

use crate::args::common::{Format, vdev};
use crate::context::Context;
use crate::output::json::Encoder;
use crate::output::table::{Column, Table};
use crate::output::wrap::wrapped;

/// Layouts with details below the table.
const DETAILED: usize = 3;
/// Width of the details, in columns, without their indent.
const WIDTH: usize = 76;
/// Smaller differences between disks are not reported.
const ALIKE: u64 = 16 * MIB;

/// Arguments of `pool plan`.
#[derive(Args, Debug)]
#[command(
    after_help = "Compares stripes, mirrors and RAID-Z of all disks, in one or several vdevs and with spares. Layouts that meet the wishes come
first, then those with the most space. Nothing is written. A disk is:

  PATH                  a disk or image file, whose size is read
  SIZE:PATH             an image file to create
  SIZE                  an imagined disk, named disk1, disk2... in the commands
  N*SIZE                N imagined disks; quote the word for the shell, or write NxSIZE

  SPACE                 the size of the pool, as in 'pool list'; file systems have a little less
  OVERHEAD              share of redundancy, spares and unused space
  SURVIVES              failed disks in any combination, and at best
  RANDOM                random reads/writes at a time, in units of one disk
  STREAM                bandwidth of sequential reads/writes, in units of one disk
  MEETS                 whether the layout meets the wishes

The speeds are rules of thumb from the number of disks, for records larger than a row of a RAID-Z; nothing is measured.
The exit status is 0 if a layout meets the wishes, 1 otherwise.

Examples:
  pool plan /dev/sdb /dev/sdc /dev/sdd /dev/sde
  pool plan --survive 2 --space 20T '6*8T'
  pool plan --spares 1 2x4T 3x8T             disks of two sizes
  pool plan -j --name tank 12x16T            all layouts with all details, in JSON"
)]
pub struct Arguments {
    #[command(flatten)]
    format: Format,
    /// Least space of the pool
    #[arg(long, value_name = "SIZE")]
    space: Option<String>,
    /// Number of failed disks to survive, in any combination (default: 1, or 0 for a single disk)
    #[arg(long, value_name = "N")]
    survive: Option<usize>,
    /// Number of spares (default: compare 0 to 2)
    #[arg(long, value_name = "N")]
    spares: Option<usize>,
    /// The pool in the commands
    #[arg(long, value_name = "POOL", default_value = "tank")]
    name: String,
    /// Disks: PATH, SIZE:PATH, SIZE or N*SIZE
    #[arg(value_name = "DISK", required = true)]
    disks: Vec<String>,
}

/// A disk of the command line.
#[derive(Debug, PartialEq)]
enum Word {
    /// So many imagined disks of a size in bytes.
    Imagined(usize, u64),
    /// A device, and the word for it in `pool create`.
    Device(VdevSpec, String),
}

/// Prints the layouts.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let pool = &arguments.name;
    let words = arguments.disks.iter().map(|text| word(pool, text)).collect::<Result<Vec<Word>, Failure>>()?;
    let disks = measured(pool, &words, context)?;
    let space = arguments.space.as_deref().map(parse_size).transpose();
    let wishes = PlanWishes {
        pool: pool.clone(),
        space: space.map_err(|error| Failure::usage(format!("bad space: {error}")))?.unwrap_or(0),
        survive: arguments.survive.unwrap_or(usize::from(disks.len() > 1)),
        spares: arguments.spares,
    };
    let plans = plan_layouts(&disks, &wishes)?;
    let encoder = context.encoder(&arguments.format);
    let exit = if plans.iter().any(LayoutPlan::meets) { Exit::Done } else { Exit::Failed };
    if exit == Exit::Failed {
        context.note("note: no layout meets the wishes\n")?;
    }
    match (arguments.format.json, arguments.format.scripted) {
        (true, _) => context.print_json("plan", "plan", encode(&plans, &wishes, &encoder))?,
        (false, true) => context.print(&table(&plans, &encoder).render(true))?,
        (false, false) => {
            let text = table(&plans, &encoder).render(false);
            let details = plans.iter().take(DETAILED).map(|plan| detail(plan, &encoder, context.program));
            context.print(&format!("{text}{}", details.collect::<String>()))?;
        }
    }
    Ok(exit)
}

/// Parses a disk. A word that reads as a size, alone or behind `N*`, is imagined; a file of this name is `./NAME`.
fn word(pool: &str, text: &str) -> Result<Word, Failure> {
    let imagined = match text.split_once(['*', 'x']) {
        Some((count, size)) => count.parse::<usize>().ok().zip(parse_size(size).ok()),
        None => parse_size(text).ok().map(|size| (1, size)),
    };
    if let Some((count, size)) = imagined {
        return match (1..=PLAN_DISKS).contains(&count) {
            true => Ok(Word::Imagined(count, size)),
            false => Err(Failure::usage(format!("bad disk '{text}': 1 to {PLAN_DISKS} disks are possible"))),
        };
    }
    let spec = vdev("plan", pool, text)?;
    let path = spec.path.to_text();
    let size = text.split_once(':').filter(|_| spec.create.is_some()).map(|(size, _)| size);
    let word = size.map_or_else(|| path.clone(), |size| format!("{size}:{path}"));
    Ok(Word::Device(spec, word))
}

/// The disks with their sizes. Notes the content that `pool create` would refuse to overwrite.
fn measured(pool: &str, words: &[Word], context: &mut Context<'_>) -> Result<Vec<PlanDisk>, Failure> {
    let device = |word: &Word| match word {
        Word::Device(spec, _) => Some(spec.clone()),
        Word::Imagined(..) => None,
    };
    let devices: Vec<VdevSpec> = words.iter().filter_map(device).collect();
    let mut found = Vec::new();
    if !devices.is_empty() {
        let request = HostRequest::Measure { pool: pool.to_owned(), devices };
        let HostResponse::Measured(measured) = context.host(request)? else { return Err(unexpected_answer()) };
        found = measured;
    }
    let mut found = found.into_iter();
    let mut disks = Vec::new();
    let mut imagined = 0;
    for word in words {
        match word {
            Word::Imagined(count, size) => disks.extend((0..*count).map(|_| {
                imagined += 1;
                PlanDisk { name: format!("disk{imagined}"), size: *size }
            })),
            Word::Device(_, name) => {
                let device = found.next().ok_or_else(unexpected_answer)?;
                if let Some(what) = device.holds {
                    let name = shell_word(name);
                    context.note(&format!("note: {name} holds {what}; pool create refuses the disk without -f\n"))?;
                }
                disks.push(PlanDisk { name: name.clone(), size: device.size });
            }
        }
    }
    Ok(disks)
}

/// A size in bytes, exact with `-p`.
fn size(bytes: u64, encoder: &Encoder) -> String {
    match encoder.style.precision {
        Precision::Exact => bytes.to_string(),
        Precision::Human => format_bytes(bytes),
    }
}

fn table(plans: &[LayoutPlan], encoder: &Encoder) -> Table {
    let numbers = ["SPACE", "OVERHEAD", "SURVIVES", "RANDOM", "STREAM"].map(Column::right);
    let mut table =
        Table::new([Column::left("LAYOUT")].into_iter().chain(numbers).chain([Column::left("MEETS")]).collect());
    let percent = if encoder.style.precision == Precision::Exact { "" } else { "%" };
    for plan in plans {
        let range = match plan.at_best == plan.survives {
            true => plan.survives.to_string(),
            false => format!("{}-{}", plan.survives, plan.at_best),
        };
        table.push(vec![
            plan.name.clone(),
            size(plan.space, encoder),
            format!("{}{percent}", plan.overhead()),
            range,
            format!("{}/{}", plan.speed.random_reads, plan.speed.random_writes),
            format!("{}/{}", plan.speed.stream_reads, plan.speed.stream_writes),
            if plan.meets() { "yes" } else { "no" }.to_owned(),
        ]);
    }
    table
}

/// A layout in full: space, cost of failures, command.
fn detail(plan: &LayoutPlan, encoder: &Encoder, program: &str) -> String {
    let missing = plan.misses.iter().map(|miss| format!("wish not met: {miss}"));
    let unused =
        (plan.unused >= ALIKE).then(|| format!("{} of the larger disks stays unused", size(plan.unused, encoder)));
    let lines = missing.chain(unused).chain(plan.costs());
    let lines: String = lines.flat_map(|line| wrapped(&line, WIDTH)).map(|line| format!("  {line}\n")).collect();
    let command = called(&plan.command, program);
    format!("\n{}: {} of {}\n{lines}  {command}\n", plan.name, size(plan.space, encoder), size(plan.raw, encoder))
}

/// The command under the program's name; the names of the disks stay as they are.
fn called(command: &str, program: &str) -> String {
    match (program, command.strip_prefix("pool ")) {
        ("zpool", Some(rest)) => format!("zpool {rest}"),
        _ => command.to_owned(),
    }
}

fn encode(plans: &[LayoutPlan], wishes: &PlanWishes, encoder: &Encoder) -> Value {
    let count = |count: usize| encoder.number(count as u64);
    let disks = |disks: &[PlanDisk]| -> Vec<Value> {
        disks.iter().map(|disk| json!({ "name": disk.name, "size": encoder.number(disk.size) })).collect()
    };
    let layout = |plan: &LayoutPlan| {
        let vdev = |vdev: &protocol::PlannedVdev| {
            json!({
                "vdev_type": plan.kind.as_str(),
                "disks": disks(&vdev.disks),
                "space": encoder.number(vdev.space),
                "unused": encoder.number(vdev.unused),
                "may_lose": count(vdev.may_lose),
            })
        };
        let odds = |odds: &protocol::LossOdds| {
            json!({
                "failed": count(odds.failed),
                "lost": encoder.number(odds.lost),
                "combinations": encoder.number(odds.combinations),
                "percent": encoder.number(odds.percent()),
            })
        };
        json!({
            "name": plan.name,
            "meets": plan.meets(),
            "misses": plan.misses,
            "space": encoder.number(plan.space),
            "raw": encoder.number(plan.raw),
            "unused": encoder.number(plan.unused),
            "overhead": encoder.number(plan.overhead()),
            "survives": count(plan.survives),
            "at_best": count(plan.at_best),
            "losses": plan.losses.iter().map(odds).collect::<Vec<_>>(),
            "costs": plan.costs(),
            "speed": {
                "random_reads": count(plan.speed.random_reads),
                "random_writes": count(plan.speed.random_writes),
                "stream_reads": count(plan.speed.stream_reads),
                "stream_writes": count(plan.speed.stream_writes),
            },
            "resilver_reads": count(plan.resilver_reads),
            "vdevs": plan.vdevs.iter().map(vdev).collect::<Vec<_>>(),
            "spares": disks(&plan.spares),
            "command": plan.command,
        })
    };
    json!({
        "wishes": {
            "space": encoder.number(wishes.space),
            "survive": count(wishes.survive),
            "spares": wishes.spares.map(count),
        },
        "layouts": plans.iter().map(layout).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_a_size_or_a_path() {
        let read = |text: &str| word("tank", text).map_err(|failure| failure.to_string());
        let tib = 1 << 40;
        assert_eq!(read("8T"), Ok(Word::Imagined(1, 8 * tib)));
        assert_eq!(read("4*8T"), Ok(Word::Imagined(4, 8 * tib)));
        assert_eq!(read("64x1T"), Ok(Word::Imagined(64, tib)));
        for (text, created, name) in [
            ("/dev/sdx", None, "/dev/sdx"),
            ("/4x8T", None, "/4x8T"),
            ("1.5G:/a b.img", Some(3 << 29), "1.5G:/a b.img"),
        ] {
            let Ok(Word::Device(spec, word)) = read(text) else { panic!("{text}") };
            assert_eq!((spec.create, word.as_str()), (created, name));
        }
        for text in ["0*8T", "65*8T", "99999999999x8T"] {
            assert_eq!(read(text), Err(format!("bad disk '{text}': 1 to 64 disks are possible")));
        }
        assert!(read("9Q:/a").is_err() && read("draid").is_err());
    }

    #[test]
    fn the_command_is_of_the_program_in_use() {
        assert_eq!(called("pool create tank '/pool create'", "zpool"), "zpool create tank '/pool create'");
        assert_eq!(called("pool create tank /a", "pool"), "pool create tank /a");
    }
}
