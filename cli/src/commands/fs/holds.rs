//! `fs holds`: the holds on snapshots.

use clap::Args;
use dataset::property::Precision;
use protocol::{DatasetRequest, Exit, Failure, HoldRecord, Response, unexpected_answer};
use serde_json::{Map, Value, json};

use super::snapshot::by_pool;
use crate::args::common::{Format, names};
use crate::context::Context;
use crate::output::table::{Column, Table};
use crate::output::time::{self, Zone};

/// Arguments of `fs holds`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fs holds tank/home@monday
  fs holds -r tank@2025")]
pub struct Arguments {
    #[command(flatten)]
    format: Format,
    /// Include same-named snapshots of all descendants
    #[arg(short = 'r')]
    recursive: bool,
    /// The snapshots
    #[arg(value_name = "SNAPSHOT", required = true)]
    names: Vec<String>,
}

/// Prints the holds on snapshots.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let mut holds = Vec::new();
    for (pool, names) in by_pool(names("open", &arguments.names)?) {
        match context.call(&pool, DatasetRequest::Holds { names, recursive: arguments.recursive })? {
            Response::Holds(found) => holds.extend(found),
            _ => return Err(unexpected_answer()),
        }
    }
    match arguments.format.json {
        true => context.print_json("holds", "datasets", encode(&holds))?,
        false => {
            let text = render(&holds, context.zone, arguments.format.precision(), arguments.format.scripted);
            context.print(&text)?;
        }
    }
    Ok(Exit::Done)
}

fn render(holds: &[HoldRecord], zone: Zone, precision: Precision, scripted: bool) -> String {
    let mut table = Table::new(vec![Column::left("NAME"), Column::left("TAG"), Column::left("TIMESTAMP")]);
    for hold in holds {
        let since = match precision {
            Precision::Human => time::long(hold.time, zone),
            Precision::Exact => hold.time.to_string(),
        };
        table.push(vec![hold.snapshot.to_string(), hold.tag.clone(), since]);
    }
    table.render(scripted)
}

fn encode(holds: &[HoldRecord]) -> Value {
    let mut datasets = Map::new();
    for hold in holds {
        let empty = || json!({ "name": hold.snapshot.as_str(), "type": "SNAPSHOT", "holds": {} });
        let snapshot = datasets.entry(hold.snapshot.to_string()).or_insert_with(empty);
        snapshot["holds"][&hold.tag] = json!({ "timestamp": hold.time.to_string() });
    }
    Value::Object(datasets)
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;

    #[test]
    fn every_hold_has_its_line() {
        let hold = |tag: &str| HoldRecord { snapshot: "tank@a".parse().unwrap(), tag: tag.into(), time: 1_762_506_330 };
        let holds = [hold("keep"), hold("audit")];
        insta::assert_snapshot!(render(&holds, || TimeZone::UTC, Precision::Human, false), @r"
        NAME    TAG    TIMESTAMP
        tank@a  keep   Fri Nov  7  9:05 2025
        tank@a  audit  Fri Nov  7  9:05 2025
        ");
        insta::assert_snapshot!(encode(&holds), @r#"{"tank@a":{"name":"tank@a","type":"SNAPSHOT","holds":{"keep":{"timestamp":"1762506330"},"audit":{"timestamp":"1762506330"}}}}"#);
    }
}
