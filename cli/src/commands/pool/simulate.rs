//! `pool simulate`: predicts the effect of device failures.

use clap::{Args, Subcommand};
use protocol::{DatasetLoss, Exit, Failure, LossReport, PoolRequest, Response, VdevRole, unexpected_answer};
use serde_json::{Value, json};

use crate::args::common::{pool_name, vdev_name};
use crate::context::Context;
use crate::output::table::{Column, Table};

/// Help after the options, of `pool simulate` and of its only subcommand.
const HELP: &str = "Changes nothing. The exit status is 0 if nothing would be lost, 1 otherwise.

If devices are lost: a pool with a missing data or special vdev cannot be imported, even if other vdevs are intact. The table
then counts the blocks with a remaining copy, although no program can read them.

Examples:
  pool simulate lose tank /dev/sdb
  pool simulate lose tank /dev/sdb /dev/sdc  both at once
  pool simulate lose tank mirror-0           all devices of the mirror";

/// Arguments of `pool simulate`.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct Arguments {
    /// What to simulate.
    #[command(subcommand)]
    what: What,
}

/// What to simulate.
#[derive(Subcommand, Debug)]
enum What {
    /// Show the cost of losing devices, all at once
    Lose(Lose),
}

/// Arguments of `pool simulate lose`.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
struct Lose {
    /// Print JSON
    #[arg(short = 'j', long)]
    json: bool,
    /// The pool
    #[arg(value_name = "POOL")]
    pool: String,
    /// Devices (paths or GUIDs), or vdevs such as mirror-0
    #[arg(value_name = "DEVICE", required = true)]
    devices: Vec<String>,
}

/// Prints the predicted loss.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let What::Lose(lose) = &arguments.what;
    let pool = pool_name("simulate a loss in", &lose.pool)?;
    let devices = lose.devices.iter().map(|device| vdev_name(device)).collect::<Result<_, _>>()?;
    let Response::Losses(report) = context.call(&pool, PoolRequest::Losses { devices })? else {
        return Err(unexpected_answer());
    };
    match lose.json {
        true => context.print_json("simulate", "losses", encode(&report))?,
        false => context.print(&render(&report))?,
    }
    Ok(if report.survives() { Exit::Done } else { Exit::Failed })
}

fn render(report: &LossReport) -> String {
    let vdev = |vdev: &protocol::VdevLoss| {
        let (name, lost) = (&vdev.name, vdev.lost.join(", "));
        match (vdev.survives, vdev.left) {
            (true, 1) => format!("{name} without {lost}: one complete device is left\n"),
            (true, left) => format!("{name} without {lost}: {left} devices are left, with all data\n"),
            (false, _) if vdev.role == VdevRole::Log => {
                format!(
                    "{name} without {lost}: lost, with synchronous writes since the last commit if power fails as well\n"
                )
            }
            (false, _) => format!("{name} without {lost}: lost\n"),
        }
    };
    let idle = report.idle.iter().map(|idle| format!("the {} {}: nothing is lost with it\n", idle.kind, idle.path));
    let vdevs: String = report.vdevs.iter().map(vdev).chain(idle).collect();
    let needed: Vec<&str> = report.needed().map(|vdev| vdev.name.as_str()).collect();
    let verdict = match needed.is_empty() {
        true => "nothing would be lost".to_owned(),
        false => format!(
            "the pool could not be imported without {};\nblocks with and without a remaining copy",
            needed.join(", ")
        ),
    };
    format!("{vdevs}\n{verdict}:\n\n{}", table(report))
}

fn table(report: &LossReport) -> String {
    let numbers = ["BLOCKS", "LOST", "FILES", "LOST"].map(Column::right);
    let mut table = Table::new([Column::left("NAME")].into_iter().chain(numbers).chain([Column::left("")]).collect());
    // A dataset in a pool that cannot be imported does not survive.
    let whole = if report.survives() { "survives" } else { "all blocks remain" };
    for loss in &report.datasets {
        let [blocks, files] = [loss.blocks, loss.blocks.map(|_| loss.files)];
        let count = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
        let word = if loss.lost_blocks == 0 { whole } else { "damaged" };
        table.push(vec![
            loss.name.clone(),
            count(blocks),
            loss.lost_blocks.to_string(),
            count(files),
            loss.lost_files.to_string(),
            word.to_owned(),
        ]);
    }
    table.render(false)
}

fn encode(report: &LossReport) -> Value {
    let vdev = |vdev: &protocol::VdevLoss| json!({ "name": vdev.name, "lost": vdev.lost, "left": vdev.left.to_string(), "survives": vdev.survives });
    let dataset = |loss: &DatasetLoss| {
        json!({
            "name": loss.name,
            "blocks": loss.blocks.map(|blocks| blocks.to_string()),
            "lost_blocks": loss.lost_blocks.to_string(),
            "files": loss.blocks.map(|_| loss.files.to_string()),
            "lost_files": loss.lost_files.to_string(),
        })
    };
    json!({
        "survives": report.survives(),
        "vdevs": report.vdevs.iter().map(vdev).collect::<Vec<_>>(),
        "others": report.idle.iter().map(|idle| json!({ "name": idle.path })).collect::<Vec<_>>(),
        "datasets": report.datasets.iter().map(dataset).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use protocol::{IdleLoss, VdevLoss};

    use super::*;

    fn vdev(name: &str, role: VdevRole, survives: bool) -> VdevLoss {
        VdevLoss { name: name.into(), role, lost: vec![format!("{name}.img")], left: usize::from(survives), survives }
    }

    fn dataset(name: &str, lost: u64) -> DatasetLoss {
        DatasetLoss { name: name.into(), blocks: Some(9), lost_blocks: lost, files: 4, lost_files: lost }
    }

    #[test]
    fn nothing_survives_in_a_pool_that_could_not_be_imported() {
        let datasets = vec![dataset("tank/twice", 0), dataset("tank/once", 2)];
        let mut vdevs = vec![vdev("mirror-0", VdevRole::Normal, true), vdev("log", VdevRole::Log, false)];
        let idle = vec![IdleLoss { kind: "spare".into(), path: "s.img".into() }];
        let report = LossReport { vdevs: vdevs.clone(), idle, datasets: datasets[..1].to_vec() };
        let said = render(&report);
        assert!(said.contains("\nnothing would be lost:\n") && said.contains("survives"), "{said}");
        assert!(said.contains("\nthe spare s.img: nothing is lost with it\n"), "{said}");
        vdevs.extend([vdev("raidz1-1", VdevRole::Normal, false), vdev("disk", VdevRole::Special, false)]);
        insta::assert_snapshot!(render(&LossReport { vdevs, idle: Vec::new(), datasets }), @r"
        mirror-0 without mirror-0.img: one complete device is left
        log without log.img: lost, with synchronous writes since the last commit if power fails as well
        raidz1-1 without raidz1-1.img: lost
        disk without disk.img: lost

        the pool could not be imported without raidz1-1, disk;
        blocks with and without a remaining copy:

        NAME        BLOCKS  LOST  FILES  LOST
        tank/twice       9     0      4     0  all blocks remain
        tank/once        9     2      4     2  damaged
        ");
    }
}
