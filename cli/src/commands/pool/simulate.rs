//! `pool simulate`: what would become of a pool.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::args::common::{device_name, pool_name};
use crate::context::{Context, unexpected_answer};
use crate::failure::{Exit, Failure};
use crate::output::table::{Column, Table};
use crate::protocol::{DatasetLoss, LossReport, Request, Response, VdevRole};

/// Arguments of `pool simulate`.
#[derive(Args, Debug)]
#[command(after_help = "Nothing is changed. The exit code is 0 if nothing would be lost, 1 if something would be.

Examples:
  pool simulate lose tank /dev/sdb
  pool simulate lose tank /dev/sdb /dev/sdc  both at once")]
pub struct Arguments {
    /// What is to be imagined.
    #[command(subcommand)]
    what: What,
}

/// What is to be imagined.
#[derive(Subcommand, Debug)]
enum What {
    /// Devices are lost, all at once
    Lose(Lose),
}

/// Arguments of `pool simulate lose`.
#[derive(Args, Debug)]
struct Lose {
    /// Print JSON
    #[arg(short = 'j', long)]
    json: bool,
    /// The pool
    #[arg(value_name = "POOL")]
    pool: String,
    /// The devices, by their paths or numbers
    #[arg(value_name = "DEVICE", required = true)]
    devices: Vec<String>,
}

/// Says it.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let What::Lose(lose) = &arguments.what;
    let pool = pool_name("simulate a loss in", &lose.pool)?;
    let devices = lose.devices.iter().map(|device| device_name(device)).collect::<Result<_, _>>()?;
    let Response::Losses(report) = context.call(&pool, Request::Losses { devices })? else {
        return Err(unexpected_answer());
    };
    match lose.json {
        true => context.print_json("simulate", "losses", encode(&report))?,
        false => context.print(&render(&report))?,
    }
    Ok(if report.survives() { Exit::Done } else { Exit::Failed })
}

fn render(report: &LossReport) -> String {
    let vdev = |vdev: &crate::protocol::VdevLoss| {
        let (name, lost) = (&vdev.name, vdev.lost.join(", "));
        match (vdev.survives, vdev.left) {
            (true, 1) => format!("{name} without {lost}: one device is left, and holds everything\n"),
            (true, left) => format!("{name} without {lost}: {left} devices are left, and hold everything\n"),
            (false, _) if vdev.role == VdevRole::Log => {
                format!(
                    "{name} without {lost}: lost, with what was promised since the last commit if power fails as well\n"
                )
            }
            (false, _) => format!("{name} without {lost}: lost\n"),
        }
    };
    let vdevs: String = report.vdevs.iter().map(vdev).collect();
    let verdict = match report.survives() {
        true => "nothing would be lost",
        false => "the pool could not be imported; this is what would have a copy left, and what would not",
    };
    format!("{vdevs}\n{verdict}:\n\n{}", table(&report.datasets))
}

fn table(datasets: &[DatasetLoss]) -> String {
    let numbers = ["BLOCKS", "LOST", "FILES", "LOST"].map(Column::right);
    let mut table = Table::new([Column::left("NAME")].into_iter().chain(numbers).chain([Column::left("")]).collect());
    for loss in datasets {
        let [blocks, files] = [loss.blocks, loss.blocks.map(|_| loss.files)];
        let count = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
        let word = if loss.lost_blocks == 0 { "survives" } else { "damaged" };
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
    let vdev = |vdev: &crate::protocol::VdevLoss| json!({ "name": vdev.name, "lost": vdev.lost, "left": vdev.left.to_string(), "survives": vdev.survives });
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
        "datasets": report.datasets.iter().map(dataset).collect::<Vec<_>>(),
    })
}
