//! `pool check`: verifies every block of a pool, and counts every reference.

use std::path::PathBuf;

use clap::Args;
use dataset::property::size::format_bytes;
use protocol::{CheckReport, Exit, Failure, HostRequest, HostResponse, unexpected_answer};
use serde_json::{Value, json};

use super::import::selector;
use crate::args::common::absolute;
use crate::context::Context;

/// Arguments of `pool check`.
#[derive(Args, Debug)]
#[command(
    after_help = "Verifies every block and every counter, and changes nothing. Of an imported pool the last commit is verified while the pool
stays in use. The exit status is 0 for a clean pool, 3 for a damaged pool, and 1 if the check cannot be made. Each finding has a
code of fixed meaning:

  C001  unreadable node
  C002  damaged block
  C003  overlapping blocks
  C004  unallocated block
  C005  leaked space
  C006  unreadable pool
  C100  catalogue (MOS)
  C101  wrong counter
  C102  deadlist
  C103  references of shared blocks
  C200  file system

The source describes the codes, and their details L01 to L19 and F01 to F24, in dataset/CHECK.md.

Examples:
  pool check tank                            while imported
  pool check -d /var/lib tank
  pool check -d /dev/sdb 1234567890 && echo clean"
)]
pub struct Arguments {
    /// Search this directory or device instead of /dev; may be repeated
    #[arg(short = 'd', value_name = "DIRECTORY|DEVICE")]
    search: Vec<PathBuf>,
    /// Print JSON
    #[arg(short = 'j', long)]
    json: bool,
    /// In JSON, print numbers as integers instead of strings
    #[arg(long, requires = "json")]
    json_int: bool,
    /// The name or GUID of the pool
    #[arg(value_name = "POOL|GUID")]
    pool: String,
}

/// Verifies a pool and prints the report.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let pool = selector("check", &arguments.pool)?;
    let search = arguments.search.iter().map(absolute).collect::<Result<_, _>>()?;
    let HostResponse::Checked(report) = context.host(HostRequest::Check { pool, search })? else {
        return Err(unexpected_answer());
    };
    match arguments.json {
        true => context.print_json("check", "pools", encode(&report, arguments.json_int))?,
        false => context.print(&render(&report))?,
    }
    Ok(if report.findings.is_empty() { Exit::Done } else { Exit::Damage })
}

fn render(report: &CheckReport) -> String {
    let mut text = format!(
        "checked pool '{}' at transaction group {}: {}, {} blocks, {}\n",
        report.pool,
        report.txg,
        datasets(report.datasets),
        report.blocks,
        format_bytes(report.bytes)
    );
    if report.orphans > 0 {
        text += &format!("{} without a name still to be freed\n", files(report.orphans));
    }
    for finding in &report.findings {
        text += &format!("  {}: {}\n", finding.kind, finding.detail);
    }
    text + &match report.findings.len() {
        0 => "no errors found\n".to_owned(),
        1 => "1 error found\n".to_owned(),
        count => format!("{count} errors found\n"),
    }
}

fn datasets(count: u64) -> String {
    if count == 1 { "1 dataset".to_owned() } else { format!("{count} datasets and snapshots") }
}

fn files(count: u64) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}

fn encode(report: &CheckReport, integers: bool) -> Value {
    let number = |number: u64| if integers { json!(number) } else { json!(number.to_string()) };
    let findings: Vec<Value> = report
        .findings
        .iter()
        .map(|finding| json!({ "code": finding.code, "kind": finding.kind, "detail": finding.detail }))
        .collect();
    json!({ report.pool.as_str(): {
        "name": report.pool,
        "type": "POOL",
        "pool_guid": number(report.guid),
        "txg": number(report.txg),
        "datasets": number(report.datasets),
        "orphans": number(report.orphans),
        "blocks": number(report.blocks),
        "bytes": number(report.bytes),
        "findings": findings,
    } })
}

#[cfg(test)]
mod tests {
    use protocol::CheckFinding;

    use super::*;

    #[test]
    fn findings_are_listed_and_counted() {
        let mut report = CheckReport {
            pool: "tank".into(),
            guid: 1,
            txg: 42,
            blocks: 1000,
            bytes: 3 << 29,
            datasets: 5,
            orphans: 0,
            findings: vec![],
        };
        insta::assert_snapshot!(render(&report), @r"
        checked pool 'tank' at transaction group 42: 5 datasets and snapshots, 1000 blocks, 1.50G
        no errors found
        ");
        report.findings.push(CheckFinding {
            code: 5,
            kind: "leaked space".into(),
            detail: "C005 chunk 3 sectors 8+8".into(),
        });
        report.orphans = 2;
        insta::assert_snapshot!(render(&report), @r"
        checked pool 'tank' at transaction group 42: 5 datasets and snapshots, 1000 blocks, 1.50G
        2 files without a name still to be freed
          leaked space: C005 chunk 3 sectors 8+8
        1 error found
        ");
    }
}
