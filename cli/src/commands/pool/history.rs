//! `pool history`: all commands with changes to a pool.

use clap::Args;
use protocol::{Exit, Failure, HistoryRecord, PoolRequest, Response, unexpected_answer};
use serde_json::{Map, Value, json};

use crate::context::Context;
use crate::output::time::{self, Zone};

/// Arguments of `pool history`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  pool history tank
  pool history -il tank                      with internal events, users and hosts")]
pub struct Arguments {
    /// Include internal events, with their transaction groups
    #[arg(short = 'i')]
    internal: bool,
    /// Long format: include user and host
    #[arg(short = 'l')]
    long: bool,
    /// Print JSON
    #[arg(short = 'j', long)]
    json: bool,
    /// The pools (default: all)
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

/// Prints the history, oldest line first.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let mut all = Vec::new();
    for pool in context.pools(&arguments.pools)? {
        match context.call_each(&arguments.pools, &pool, PoolRequest::History { internal: arguments.internal })? {
            Some(Response::History(records)) => all.push((pool, records)),
            None => {}
            _ => return Err(unexpected_answer()),
        }
    }
    if arguments.json {
        let content: Map<_, _> = all.iter().map(|(pool, list)| (pool.clone(), encode(list))).collect();
        context.print_json("history", "pools", Value::Object(content))?;
        return Ok(Exit::Done);
    }
    for (pool, records) in &all {
        let text = render(pool, records, arguments.long, context.zone);
        context.print(&text)?;
    }
    Ok(Exit::Done)
}

fn render(pool: &str, records: &[HistoryRecord], long: bool, zone: Zone) -> String {
    let line = |record: &HistoryRecord| {
        let time = time::history(record.time, zone);
        let text = match record.internal {
            true => format!("[internal] [txg:{}] {}", record.txg, record.text),
            false => record.text.clone(),
        };
        let who = match (&record.user, long) {
            (Some((user, host)), true) => format!(" [user {user} on {host}]"),
            _ => String::new(),
        };
        format!("{time} {text}{who}\n")
    };
    let lines: String = records.iter().map(line).collect();
    format!("History for '{pool}':\n{lines}\n")
}

fn encode(records: &[HistoryRecord]) -> Value {
    let entry = |record: &HistoryRecord| {
        json!({
            "time": record.time.to_string(),
            "txg": record.txg.to_string(),
            "command": record.text,
            "internal": record.internal,
            "user": record.user.as_ref().map(|(user, _)| user),
            "host": record.user.as_ref().map(|(_, host)| host),
        })
    };
    json!({ "history": records.iter().map(entry).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;

    #[test]
    fn every_command_has_its_line() {
        let record = |text: &str, internal| HistoryRecord {
            time: 1_762_506_330,
            txg: 42,
            text: text.into(),
            internal,
            user: (!internal).then(|| (1000, "box".into())),
        };
        let records = [record("pool create tank /a.img", false), record("freed tank/old", true)];
        insta::assert_snapshot!(render("tank", &records, true, || TimeZone::UTC), @r"
        History for 'tank':
        2025-11-07.09:05:30 pool create tank /a.img [user 1000 on box]
        2025-11-07.09:05:30 [internal] [txg:42] freed tank/old
        ");
    }
}
