//! The report of `pool import -F` about a rewind: lost transaction groups and times.

use protocol::{RewindReport, StateRecord};
use serde_json::{Value, json};

use crate::output::time::{self, Zone};

/// The report as text for people.
pub(super) fn render(report: &RewindReport, zone: Zone) -> String {
    let name = |state: &StateRecord| format!("transaction group {}, of {}", state.txg, time::exact(state.time, zone));
    let written = if report.dry_run { " Nothing was written." } else { "" };
    if report.taken == report.newest {
        let (newest, lost) = (name(&report.newest), if report.dry_run { "would be" } else { "was" });
        return format!(
            "the newest state of pool '{}' is readable: {newest}\nNothing {lost} lost.{written}\n",
            report.pool
        );
    }
    let back = span(report.newest.time - report.taken.time);
    let (goes, takes, is_lost) = match report.dry_run {
        true => ("would be rewound by", "would take", "would be lost"),
        false => ("was rewound by", "took", "are lost"),
    };
    let mut text = format!("pool '{}' {goes} {back}\n", report.pool);
    text += &format!("  newest: {}\n", name(&report.newest));
    for passed in &report.passed {
        text += &format!("  damaged: {}: {}\n", name(&passed.state), passed.problem);
    }
    text += &format!("  {takes}: {}\n", name(&report.taken));
    text += &format!("All changes of the {back} after that {is_lost}.{written}\n");
    if report.dry_run {
        // No newer state is damaged, so the user chose the state by txg.
        let which = if report.passed.is_empty() { format!("-T {} ", report.taken.txg) } else { String::new() };
        text += &format!("to rewind: pool import -F {which}{}\n", report.pool);
    }
    text
}

fn span(seconds: i64) -> String {
    if seconds == 1 { "1 second".to_owned() } else { format!("{seconds} seconds") }
}

/// The report as JSON for programs.
pub(super) fn encode(report: &RewindReport) -> Value {
    let state = |state: &StateRecord| json!({ "txg": state.txg.to_string(), "time": state.time });
    let passed = |passed: &protocol::PassedState| json!({ "txg": passed.state.txg.to_string(), "time": passed.state.time, "problem": passed.problem });
    json!({ report.pool.as_str(): {
        "name": report.pool,
        "type": "POOL",
        "newest": state(&report.newest),
        "taken": state(&report.taken),
        "passed": report.passed.iter().map(passed).collect::<Vec<_>>(),
        "lost_seconds": report.newest.time - report.taken.time,
    } })
}

#[cfg(test)]
mod tests {
    use protocol::PassedState;

    use super::*;

    fn report() -> RewindReport {
        let newest = StateRecord { txg: 120, time: 1_762_506_330 };
        let taken = StateRecord { txg: 118, time: 1_762_506_320 };
        let passed = vec![PassedState { state: newest, problem: "its catalogue cannot be read".into() }];
        RewindReport { pool: "tank".into(), newest, taken, passed, dry_run: true }
    }

    #[test]
    fn what_would_be_lost_is_said_in_words_and_times() {
        insta::assert_snapshot!(render(&report(), || jiff::tz::TimeZone::UTC), @r"
        pool 'tank' would be rewound by 10 seconds
          newest: transaction group 120, of 2025-11-07 09:05:30
          damaged: transaction group 120, of 2025-11-07 09:05:30: its catalogue cannot be read
          would take: transaction group 118, of 2025-11-07 09:05:20
        All changes of the 10 seconds after that would be lost. Nothing was written.
        to rewind: pool import -F tank
        ");
        insta::assert_snapshot!(render(&RewindReport { dry_run: false, ..report() }, || jiff::tz::TimeZone::UTC), @r"
        pool 'tank' was rewound by 10 seconds
          newest: transaction group 120, of 2025-11-07 09:05:30
          damaged: transaction group 120, of 2025-11-07 09:05:30: its catalogue cannot be read
          took: transaction group 118, of 2025-11-07 09:05:20
        All changes of the 10 seconds after that are lost.
        ");
    }

    #[test]
    fn a_pool_whose_newest_state_can_be_read_loses_nothing() {
        let whole = RewindReport { taken: report().newest, passed: Vec::new(), ..report() };
        insta::assert_snapshot!(render(&whole, || jiff::tz::TimeZone::UTC), @r"
        the newest state of pool 'tank' is readable: transaction group 120, of 2025-11-07 09:05:30
        Nothing would be lost. Nothing was written.
        ");
    }
}
