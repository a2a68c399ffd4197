//! `pool events`: events of pools.

use std::{collections::BTreeMap, thread, time::Duration};

use clap::Args;
use protocol::{EventRecord, Exit, Failure, PoolRequest, Response, unexpected_answer};
use serde_json::{Map, Value, json};
use service::{notify, places::Places};

use crate::context::Context;
use crate::output::time::{self, Zone};

/// Interval between requests with `-f`.
const WATCH: Duration = Duration::from_millis(200);

const NANOS: i64 = 1_000_000_000;

/// Arguments of `pool events`.
#[derive(Args, Debug)]
#[command(
    after_help = "Event classes have OpenZFS's names: devices that change state, device errors, scrubs and resilvers, suspension, and commands
that change the pool. The last thousand events of a pool are kept on this machine. 'pool history' keeps the commands in the
pool. Programs in /etc/cenote/events.d run after events, with the variables of ZED.

What needs attention is an event of the class alert.fs.cenote.WORD, with alert_state active or cleared. /etc/cenote/notify.toml
names the targets of notifications, and for pools of other users ~/.config/cenote/notify.toml:

  [[mail]]                                   by sendmail
  to = \"root\"                               or a list of addresses
  severity = \"warning\"                      notice (the default), warning or critical
  events = [\"alert.*\", \"sysevent.fs.zfs.scrub_finish\"]
  hourly = 20                                most messages in an hour
  [[webhook]]                                an HTTP POST of JSON
  url = \"https://example.org/hook\"
  [[desktop]]                                by notify-send

Examples:
  pool events tank
  pool events -v tank                        with all details
  pool events -f                             follow new events
  pool events --test-notify tank             send a test message to all targets
  pool events -c tank                        clear the list"
)]
pub struct Arguments {
    /// Print all details of each event
    #[arg(short = 'v')]
    verbose: bool,
    /// Scripted mode: no header, fields separated by one tab
    #[arg(short = 'H')]
    scripted: bool,
    /// Follow: print new events as they occur
    #[arg(short = 'f')]
    follow: bool,
    /// Clear all previous events
    #[arg(short = 'c', conflicts_with_all = ["verbose", "scripted", "follow", "json"])]
    clear: bool,
    /// Print JSON
    #[arg(short = 'j', long, conflicts_with = "follow")]
    json: bool,
    /// Send a test message to every target of notify.toml
    #[arg(long, conflicts_with_all = ["verbose", "scripted", "follow", "json", "clear"])]
    test_notify: bool,
    /// The pools (default: all)
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

/// An event, and the name of its pool.
type Event = (String, EventRecord);

/// Prints events, or clears the recorded events.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let pools = context.pools(&arguments.pools)?;
    if arguments.clear {
        return clear(&arguments.pools, &pools, context);
    }
    if arguments.test_notify {
        return test_notify(&arguments.pools, &pools, context);
    }
    let mut seen = BTreeMap::new();
    let (mut is_first, mut has_header) = (true, false);
    if arguments.json {
        let events = news(&arguments.pools, &pools, &mut seen, context)?;
        context.print_json("events", "events", encode(&events))?;
        return Ok(Exit::Done);
    }
    loop {
        let events = news(&arguments.pools, &pools, &mut seen, context)?;
        if !arguments.scripted && !has_header {
            context.print(&format!("{:<30} CLASS\n", "TIME"))?;
            has_header = true;
        }
        show(&events, &mut is_first, arguments, context)?;
        if !arguments.follow {
            return Ok(Exit::Done);
        }
        thread::sleep(WATCH);
    }
}

fn clear(named: &[String], pools: &[String], context: &mut Context<'_>) -> Result<Exit, Failure> {
    let mut count = 0;
    for pool in pools {
        match context.call_each(named, pool, PoolRequest::ClearEvents)? {
            Some(Response::Cleared(cleared)) => count += cleared,
            None => {}
            _ => return Err(unexpected_answer()),
        }
    }
    context.print(&format!("cleared {count} events\n"))?;
    Ok(Exit::Done)
}

/// Sends a test message about each pool, and prints the result for each target.
fn test_notify(named: &[String], pools: &[String], context: &mut Context<'_>) -> Result<Exit, Failure> {
    let mut exit = Exit::Done;
    for pool in pools {
        // A mistyped name gets no message.
        context.call_each(named, pool, PoolRequest::Events { after: u64::MAX })?;
        for tried in notify::test(&Places::of_this_user(), pool)? {
            match tried.problem {
                None => context.print(&format!("{pool}: {}: sent\n", tried.target))?,
                Some(problem) => {
                    exit = Exit::Failed;
                    context.report(&Failure::cannot("notify", tried.target, problem))?;
                }
            }
        }
    }
    Ok(exit)
}

/// The events of `pools` newer than the events in `seen`, in order of time.
fn news(
    named: &[String],
    pools: &[String],
    seen: &mut BTreeMap<String, u64>,
    context: &mut Context<'_>,
) -> Result<Vec<Event>, Failure> {
    let mut events: Vec<Event> = Vec::new();
    for pool in pools {
        let after = seen.get(pool).copied().unwrap_or(0);
        let records = match context.call_each(named, pool, PoolRequest::Events { after })? {
            Some(Response::Events(records)) => records,
            None => continue,
            _ => return Err(unexpected_answer()),
        };
        if let Some(last) = records.last() {
            seen.insert(pool.clone(), last.number);
        }
        events.extend(records.into_iter().map(|record| (pool.clone(), record)));
    }
    events.sort_by_key(|(_, event)| event.time);
    Ok(events)
}

/// With details, an empty line separates events; `is_first` is true until the first event is printed.
fn show(
    events: &[Event],
    is_first: &mut bool,
    arguments: &Arguments,
    context: &mut Context<'_>,
) -> Result<(), Failure> {
    let zone = context.zone;
    let mut text = String::new();
    for event in events {
        text += if arguments.verbose && !*is_first { "\n" } else { "" };
        text += &render(event, arguments.verbose, arguments.scripted, zone);
        *is_first = false;
    }
    context.print(&text)?;
    Ok(context.console.output.flush()?)
}

fn render((pool, event): &Event, verbose: bool, scripted: bool, zone: Zone) -> String {
    let (seconds, rest) = (event.time.div_euclid(NANOS), event.time.rem_euclid(NANOS));
    let time = format!("{}.{rest:09}", time::events(seconds, zone));
    let line = match scripted {
        true => format!("{time}\t{}\n", event.class),
        false => format!("{time:<30} {}\n", event.class),
    };
    if !verbose {
        return line;
    }
    let details: String = event.details.iter().map(|(name, value)| format!("        {name} = \"{value}\"\n")).collect();
    format!("{line}        pool = \"{pool}\"\n{details}        eid = {}\n", event.number)
}

fn encode(events: &[Event]) -> Value {
    let encode = |(pool, event): &Event| {
        let details: Map<_, _> = event.details.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        json!({
            "pool": pool,
            "eid": event.number.to_string(),
            "time": event.time.div_euclid(NANOS).to_string(),
            "nanoseconds": event.time.rem_euclid(NANOS).to_string(),
            "class": event.class,
            "details": details,
        })
    };
    Value::Array(events.iter().map(encode).collect())
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;

    #[test]
    fn an_event_has_its_line_and_its_details() {
        let event = EventRecord {
            number: 7,
            time: 1_762_506_330_000_012_000,
            class: "ereport.fs.zfs.checksum".into(),
            details: vec![("vdev_path".into(), "/srv/a.img".into())],
        };
        let event = ("tank".to_owned(), event);
        assert!(render(&event, true, false, || TimeZone::UTC).ends_with("eid = 7\n"));
        insta::assert_snapshot!(render(&event, true, false, || TimeZone::UTC), @r#"
        Nov 07 2025 09:05:30.000012000 ereport.fs.zfs.checksum
                pool = "tank"
                vdev_path = "/srv/a.img"
                eid = 7
        "#);
        let line = render(&event, false, true, || TimeZone::UTC);
        assert_eq!(line, "Nov 07 2025 09:05:30.000012000\tereport.fs.zfs.checksum\n");
        assert_eq!(encode(&[event])[0]["details"]["vdev_path"], "/srv/a.img");
    }
}
