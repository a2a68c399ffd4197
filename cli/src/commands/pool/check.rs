//! `pool check`: every block of a pool that is not imported is verified, every reference counted.

use std::path::PathBuf;

use clap::Args;
use dataset::property::size::format_bytes;
use serde_json::{Value, json};

use super::import::selector;
use crate::args::common::absolute;
use crate::context::{Context, unexpected_answer};
use crate::failure::{Exit, Failure};
use crate::protocol::{CheckReport, HostRequest, HostResponse};

/// Arguments of `pool check`.
#[derive(Args, Debug)]
#[command(after_help = "The exit code is 0 if the pool is clean, 3 if something is wrong with it. Nothing is changed.

Examples:
  pool check -d /var/lib tank
  pool check -d /dev/sdb 1234567890 && echo clean")]
pub struct Arguments {
    /// Look in this directory, or at this device; may be given several times
    #[arg(short = 'd', value_name = "DIRECTORY|DEVICE")]
    search: Vec<PathBuf>,
    /// Print JSON
    #[arg(short = 'j', long)]
    json: bool,
    /// The pool's name or number
    #[arg(value_name = "POOL|GUID")]
    pool: String,
}

/// Checks.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let pool = selector("check", &arguments.pool)?;
    let search = arguments.search.iter().map(absolute).collect::<Result<_, _>>()?;
    let HostResponse::Checked(report) = context.host(HostRequest::Check { pool, search })? else {
        return Err(unexpected_answer());
    };
    match arguments.json {
        true => context.print_json("check", "pools", encode(&report))?,
        false => context.print(&render(&report))?,
    }
    Ok(if report.findings.is_empty() { Exit::Done } else { Exit::Damage })
}

fn render(report: &CheckReport) -> String {
    let mut text = format!(
        "checked pool '{}' at transaction group {}: {} data sets and snapshots, {} blocks, {}\n",
        report.pool,
        report.txg,
        report.datasets,
        report.blocks,
        format_bytes(report.bytes)
    );
    for finding in &report.findings {
        text += &format!("  {}: {}\n", finding.kind, finding.detail);
    }
    text + &match report.findings.len() {
        0 => "no errors found\n".to_owned(),
        1 => "1 error found\n".to_owned(),
        count => format!("{count} errors found\n"),
    }
}

fn encode(report: &CheckReport) -> Value {
    let findings: Vec<Value> =
        report.findings.iter().map(|finding| json!({ "kind": finding.kind, "detail": finding.detail })).collect();
    json!({ report.pool.as_str(): {
        "name": report.pool,
        "type": "POOL",
        "pool_guid": report.guid.to_string(),
        "txg": report.txg.to_string(),
        "datasets": report.datasets,
        "blocks": report.blocks,
        "bytes": report.bytes,
        "findings": findings,
    } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::CheckFinding;

    #[test]
    fn findings_are_listed_and_counted() {
        let mut report = CheckReport {
            pool: "tank".into(),
            guid: 1,
            txg: 42,
            blocks: 1000,
            bytes: 3 << 29,
            datasets: 5,
            findings: vec![],
        };
        insta::assert_snapshot!(render(&report), @r"
        checked pool 'tank' at transaction group 42: 5 data sets and snapshots, 1000 blocks, 1.50G
        no errors found
        ");
        report.findings.push(CheckFinding { kind: "leaked space".into(), detail: "chunk 3, sectors 8 to 15".into() });
        insta::assert_snapshot!(render(&report), @r"
        checked pool 'tank' at transaction group 42: 5 data sets and snapshots, 1000 blocks, 1.50G
          leaked space: chunk 3, sectors 8 to 15
        1 error found
        ");
    }
}
