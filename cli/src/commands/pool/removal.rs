//! How `pool status` shows a removal: in the words of `zpool status`, which scripts look for.

use dataset::property::size::format_bytes;
use serde_json::{Value, json};

use crate::output::time::{self, Zone};
use crate::protocol::{RemovalEnd, RemovalRecord};

/// What stands behind `remove:`.
pub(super) fn render(removal: &RemovalRecord, zone: Zone) -> String {
    let (start, end) = (time::scan(removal.start, zone), time::scan(removal.end, zone));
    match removal.ended {
        None => format!("Evacuation of {} in progress since {start}\n{}", removal.name, progress(removal)),
        Some(RemovalEnd::Finished) => format!(
            "Removal of vdev {} copied {} in {}, completed on {end}",
            removal.vdev,
            format_bytes(removal.copied),
            duration(removal.seconds)
        ),
        Some(RemovalEnd::Canceled) => format!("Removal of {} canceled on {end}", removal.name),
        Some(RemovalEnd::Unreadable) => {
            format!("Removal of {} given up on {end}: something on it could not be read", removal.name)
        }
        Some(RemovalEnd::NoRoom) => {
            format!("Removal of {} given up on {end}: there were too few empty regions elsewhere", removal.name)
        }
    }
}

fn progress(removal: &RemovalRecord) -> String {
    // Blocks with several copies there count once, and what is freed meanwhile is not copied.
    let total = removal.total.max(removal.copied);
    let permyriad = (u128::from(removal.copied) * 10_000).checked_div(total.into()).unwrap_or(0);
    let rate = removal.copied.checked_div(removal.seconds).unwrap_or(0);
    let left = match (total - removal.copied).checked_div(rate) {
        Some(seconds) => format!(", {} to go", duration(seconds)),
        None => ", no estimated completion time".to_owned(),
    };
    format!(
        "{} copied out of {} at {}/s, {}.{:02}% done{left}",
        format_bytes(removal.copied),
        format_bytes(total),
        format_bytes(rate),
        permyriad / 100,
        permyriad % 100
    )
}

/// `1h2m`.
fn duration(seconds: u64) -> String {
    format!("{}h{}m", seconds / 3600, seconds / 60 % 60)
}

/// The same as JSON.
pub(super) fn encode(removal: &RemovalRecord) -> Value {
    let state = match removal.ended {
        None => "SCANNING",
        Some(RemovalEnd::Finished) => "FINISHED",
        Some(_) => "CANCELED",
    };
    json!({
        "name": removal.name,
        "vdev": removal.vdev.to_string(),
        "state": state,
        "start_time": removal.start.to_string(),
        "end_time": removal.end.to_string(),
        "seconds": removal.seconds.to_string(),
        "to_copy": removal.total.to_string(),
        "copied": removal.copied.to_string(),
        "errors": removal.errors.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz::TimeZone;

    fn removal(ended: Option<RemovalEnd>) -> RemovalRecord {
        RemovalRecord {
            name: "mirror-1".into(),
            vdev: 1,
            ended,
            start: 1_762_506_330,
            end: 1_762_506_330,
            seconds: 3700,
            total: 1 << 30,
            copied: 300 << 20,
            errors: 0,
        }
    }

    #[test]
    fn each_state_has_its_words() {
        let of = |ended| render(&removal(ended), || TimeZone::UTC);
        insta::assert_snapshot!(of(None), @r"
        Evacuation of mirror-1 in progress since Fri Nov  7 09:05:30 2025
        300M copied out of 1G at 83.0K/s, 29.29% done, 2h28m to go
        ");
        insta::assert_snapshot!(of(Some(RemovalEnd::Finished)), @"Removal of vdev 1 copied 300M in 1h1m, completed on Fri Nov  7 09:05:30 2025");
        insta::assert_snapshot!(of(Some(RemovalEnd::Canceled)), @"Removal of mirror-1 canceled on Fri Nov  7 09:05:30 2025");
        assert!(of(Some(RemovalEnd::Unreadable)).ends_with("could not be read"));
        assert!(of(Some(RemovalEnd::NoRoom)).ends_with("empty regions elsewhere"));
    }

    #[test]
    fn numbers_at_their_ends_neither_divide_by_zero_nor_overflow() {
        let fresh = RemovalRecord { seconds: 0, copied: 0, total: 0, ..removal(None) };
        assert!(render(&fresh, || TimeZone::UTC).ends_with("0.00% done, no estimated completion time"));
        let huge = RemovalRecord { copied: u64::MAX, seconds: 1, ..removal(None) };
        assert!(render(&huge, || TimeZone::UTC).contains("100.00% done, 0h0m to go"));
    }
}
