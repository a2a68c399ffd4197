//! The RAID-Z expansion in `pool status`.

use dataset::property::size::format_bytes;
use protocol::{ExpansionPause, ExpansionRecord};
use serde_json::{Value, json};

use super::removal;

/// The text after `expand:`.
pub(super) fn render(expansion: &ExpansionRecord) -> String {
    let ExpansionRecord { name, columns, .. } = expansion;
    let done = permyriad(expansion.rows_done, expansion.rows);
    let done = format!("{}.{:02}% of its rows use all {columns} devices", done / 100, done % 100);
    match expansion.pause {
        None => {
            let limit = removal::limit(expansion.limit);
            format!("expansion of {name} in progress\n{done}\n{}{limit}", progress(expansion))
        }
        Some(ExpansionPause::Operator) => {
            format!("expansion of {name} is paused\n{done}\nto continue: pool attach POOL {name}")
        }
        Some(ExpansionPause::NoRoom) => format!(
            "expansion of {name} waits for free space\n{done}\nit continues when wide rows have free space for the remaining data"
        ),
        Some(ExpansionPause::Degraded) => {
            format!("expansion of {name} waits until all of its devices are resilvered\n{done}")
        }
        Some(ExpansionPause::Unreadable) => {
            format!("expansion of {name} has stopped: data could not be read\n{done}")
        }
    }
}

fn progress(expansion: &ExpansionRecord) -> String {
    if expansion.regions == 0 {
        return "looking for free space".to_owned();
    }
    // A block with several copies counts once, and data freed meanwhile is not copied.
    let total = expansion.total.max(expansion.copied);
    let rate = expansion.copied.checked_div(expansion.seconds).unwrap_or(0);
    let left = match (total - expansion.copied).checked_div(rate) {
        Some(seconds) => format!("{}h{}m to go", seconds / 3600, seconds / 60 % 60),
        None => "no estimated time".to_owned(),
    };
    format!(
        "{} of {} copied at {}/s for the next rows, {left}",
        format_bytes(expansion.copied),
        format_bytes(total),
        format_bytes(rate)
    )
}

fn permyriad(part: u64, whole: u64) -> u64 {
    let of_whole = (u128::from(part) * 10_000).checked_div(whole.into()).unwrap_or(0);
    u64::try_from(of_whole).unwrap_or(10_000).min(10_000)
}

/// The expansion in JSON.
pub(super) fn encode(expansion: &ExpansionRecord) -> Value {
    let state = match expansion.pause {
        None => "SCANNING",
        Some(_) => "WAITING",
    };
    json!({
        "name": expansion.name,
        "state": state,
        "rows": expansion.rows.to_string(),
        "rows_done": expansion.rows_done.to_string(),
        "to_copy": expansion.total.to_string(),
        "copied": expansion.copied.to_string(),
        "seconds": expansion.seconds.to_string(),
        "limit": expansion.limit.map(|limit| limit.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expansion(pause: Option<ExpansionPause>) -> ExpansionRecord {
        ExpansionRecord {
            name: "raidz1-0".into(),
            pause,
            columns: 4,
            rows: 16_384,
            rows_done: 4096,
            regions: 12,
            total: 3 << 30,
            copied: 1 << 30,
            seconds: 64,
            limit: None,
        }
    }

    #[test]
    fn an_expansion_is_shown_in_eighty_columns() {
        insta::assert_snapshot!(render(&expansion(None)), @r"
        expansion of raidz1-0 in progress
        25.00% of its rows use all 4 devices
        1G of 3G copied at 16M/s for the next rows, 0h2m to go
        ");
        insta::assert_snapshot!(render(&expansion(Some(ExpansionPause::NoRoom))), @r"
        expansion of raidz1-0 waits for free space
        25.00% of its rows use all 4 devices
        it continues when wide rows have free space for the remaining data
        ");
        let shown = [
            None,
            Some(ExpansionPause::NoRoom),
            Some(ExpansionPause::Degraded),
            Some(ExpansionPause::Unreadable),
            Some(ExpansionPause::Operator),
        ];
        for shown in shown.map(|pause| render(&expansion(pause))) {
            assert!(shown.lines().all(|line| line.len() + 8 <= 82), "{shown}");
        }
        let huge = ExpansionRecord { copied: u64::MAX, rows: 0, seconds: 0, ..expansion(None) };
        assert!(render(&huge).contains("0.00%"));
    }
}
