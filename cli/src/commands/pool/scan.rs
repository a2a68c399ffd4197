//! The scrub or resilver in `pool status`, in the wording of `zpool status`, as scripts expect.

use dataset::property::size::format_bytes;
use protocol::{ScanKind, ScanRecord, ScanState};
use serde_json::{Value, json};

use crate::output::time::{self, Zone};

/// The text after `scan:`.
pub(super) fn render(scan: &ScanRecord, zone: Zone) -> String {
    let (start, end) = (time::scan(scan.start, zone), time::scan(scan.end, zone));
    let name = scan.kind.as_str();
    match scan.state {
        ScanState::Scanning if scan.kind == ScanKind::Resilver => {
            format!("resilver in progress since {start}\n{}", progress(scan))
        }
        ScanState::Finished if scan.kind == ScanKind::Resilver => format!(
            "resilvered {} in {} with {} errors on {end}",
            format_bytes(scan.repaired),
            duration(scan.seconds),
            scan.errors
        ),
        ScanState::Scanning => format!("scrub in progress since {start}\n{}", progress(scan)),
        ScanState::Paused => format!("scrub paused since {end}\nscrub started on {start}\n{}", progress(scan)),
        ScanState::Finished => format!(
            "scrub repaired {} in {} with {} errors on {end}",
            format_bytes(scan.repaired),
            duration(scan.seconds),
            scan.errors
        ),
        ScanState::Canceled => format!("{name} canceled on {end}"),
    }
}

fn progress(scan: &ScanRecord) -> String {
    // Data allocated since the start is not in `total`, so the end may be a little later.
    let total = scan.total.max(scan.examined);
    let permyriad = (u128::from(scan.examined) * 10_000).checked_div(total.into()).unwrap_or(0);
    let is_running = scan.state == ScanState::Scanning;
    let speed = if is_running { format!(" at {}/s", format_bytes(scan.rate)) } else { String::new() };
    let left = match (total - scan.examined).checked_div(scan.rate) {
        _ if !is_running => String::new(),
        Some(seconds) => format!(", {} to go", duration(seconds)),
        None => ", no estimated completion time".to_owned(),
    };
    format!(
        "{} / {} scanned{speed}\n{} {}, {}.{:02}% done{left}",
        format_bytes(scan.examined),
        format_bytes(total),
        format_bytes(scan.repaired),
        if scan.kind == ScanKind::Resilver { "resilvered" } else { "repaired" },
        permyriad / 100,
        permyriad % 100
    )
}

/// Duration as `01:02:03`, after a number of days if above zero.
fn duration(seconds: u64) -> String {
    let (days, seconds) = (seconds / 86_400, seconds % 86_400);
    let clock = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if days > 0 { format!("{days} days {clock}") } else { clock }
}

/// The scrub or resilver in JSON.
pub(super) fn encode(scan: &ScanRecord) -> Value {
    let state = match scan.state {
        ScanState::Scanning | ScanState::Paused => "SCANNING",
        ScanState::Finished => "FINISHED",
        ScanState::Canceled => "CANCELED",
    };
    json!({
        "function": scan.kind.as_str().to_uppercase(),
        "state": state,
        "paused": scan.state == ScanState::Paused,
        "start_time": scan.start.to_string(),
        "end_time": scan.end.to_string(),
        "seconds": scan.seconds.to_string(),
        "to_examine": scan.total.to_string(),
        "examined": scan.examined.to_string(),
        "repaired": scan.repaired.to_string(),
        "errors": scan.errors.to_string(),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use jiff::tz::TimeZone;

    pub(in super::super) fn scan(state: ScanState) -> ScanRecord {
        ScanRecord {
            kind: ScanKind::Scrub,
            state,
            start: 1_762_506_330,
            end: 1_762_506_330,
            seconds: 12,
            rate: 25 << 20,
            total: 1 << 30,
            examined: 300 << 20,
            repaired: 8192,
            errors: 2,
        }
    }

    #[test]
    fn each_state_has_its_words() {
        let of = |state| render(&scan(state), || TimeZone::UTC);
        insta::assert_snapshot!(of(ScanState::Scanning), @r"
        scrub in progress since Fri Nov  7 09:05:30 2025
        300M / 1G scanned at 25M/s
        8K repaired, 29.29% done, 00:00:28 to go
        ");
        insta::assert_snapshot!(of(ScanState::Paused), @r"
        scrub paused since Fri Nov  7 09:05:30 2025
        scrub started on Fri Nov  7 09:05:30 2025
        300M / 1G scanned
        8K repaired, 29.29% done
        ");
        insta::assert_snapshot!(of(ScanState::Finished), @"scrub repaired 8K in 00:00:12 with 2 errors on Fri Nov  7 09:05:30 2025");
        insta::assert_snapshot!(of(ScanState::Canceled), @"scrub canceled on Fri Nov  7 09:05:30 2025");
    }

    #[test]
    fn a_resilver_has_its_own_words() {
        let of = |state| render(&ScanRecord { kind: ScanKind::Resilver, ..scan(state) }, || TimeZone::UTC);
        insta::assert_snapshot!(of(ScanState::Scanning), @r"
        resilver in progress since Fri Nov  7 09:05:30 2025
        300M / 1G scanned at 25M/s
        8K resilvered, 29.29% done, 00:00:28 to go
        ");
        insta::assert_snapshot!(of(ScanState::Finished), @"resilvered 8K in 00:00:12 with 2 errors on Fri Nov  7 09:05:30 2025");
    }

    #[test]
    fn numbers_at_their_ends_neither_divide_by_zero_nor_overflow() {
        let fresh = ScanRecord { seconds: 0, rate: 0, examined: 0, total: 0, ..scan(ScanState::Scanning) };
        assert!(render(&fresh, || TimeZone::UTC).ends_with("8K repaired, 0.00% done, no estimated completion time"));
        let huge = ScanRecord { examined: u64::MAX, seconds: 1, rate: u64::MAX, ..scan(ScanState::Scanning) };
        assert!(render(&huge, || TimeZone::UTC).contains("100.00% done, 00:00:00 to go"));
        assert_eq!(duration(100_000), "1 days 03:46:40");
    }
}
