//! Jobs in `pool status`: scrub, resilver and removal in the wording of `zpool status`, as scripts expect, and the
//! others alike.

use dataset::{
    jobs::{Detail, JobRecord, JobState, Kind, Reason},
    property::size::format_bytes,
};
use serde_json::{Value, json};

use crate::output::time::{self, Zone};

const NANOS: i64 = 1_000_000_000;

/// Title of a kind's lines, its key in JSON, and the kinds, in the order of the lines.
pub(super) const ROWS: [(&str, &str, &[Kind]); 6] = [
    ("  scan", "scan_stats", &[Kind::Scrub, Kind::Resilver]),
    ("remove", "removal_stats", &[Kind::Remove]),
    ("expand", "raidz_expand_stats", &[Kind::Expand]),
    ("rebalance", "rebalance_stats", &[Kind::Rebalance]),
    ("defragment", "defragment_stats", &[Kind::Defragment]),
    ("resize", "resize_stats", &[Kind::Resize]),
];

/// The record of one of the kinds.
pub(super) fn find<'a>(jobs: &'a [JobRecord], kinds: &[Kind]) -> Option<&'a JobRecord> {
    jobs.iter().find(|job| kinds.contains(&job.kind))
}

/// The text after the title of a job.
pub(super) fn render(job: &JobRecord, zone: Zone) -> String {
    let [start, end] = [job.begun, job.ended].map(|time| time::scan(seconds(time), zone));
    match (&job.detail, job.kind) {
        (Detail::Removal { name, vdev }, _) => removal(job, name, *vdev, (&start, &end)),
        (Detail::Expansion { name, columns, rows, rows_done, regions }, _) => {
            let done = format!("{} of its rows use all {columns} devices", percent(*rows_done, *rows));
            expansion(job, name, &done, *regions)
        }
        (Detail::Defragment { wanted, emptied, taken, maps, .. }, _) => {
            let of = if is_under_way(job) { format!(" of {wanted}") } else { String::new() };
            let moved = batches(job, &start, &end);
            format!(
                "{moved}\n{emptied}{of} regions emptied, {taken} filled\n{} of memory used for maps",
                format_bytes(*maps)
            )
        }
        (Detail::Resize { name, size }, _) => {
            let becomes = if job.state == JobState::Finished { "is now" } else { "shrinks to" };
            let obstacle = job.why().filter(|_| is_under_way(job));
            let obstacle = obstacle.map_or_else(String::new, |obstacle| format!("\n{obstacle}"));
            format!("{}\n{name} {becomes} {}{obstacle}", batches(job, &start, &end), format_bytes(*size))
        }
        (Detail::None, Kind::Scrub | Kind::Resilver) => scan(job, &start, &end),
        (Detail::None | Detail::Pass { .. }, _) => batches(job, &start, &end),
    }
}

fn is_under_way(job: &JobRecord) -> bool {
    matches!(job.state, JobState::Running | JobState::Paused | JobState::Waiting(_))
}

fn scan(job: &JobRecord, start: &str, end: &str) -> String {
    let (name, repaired) = match job.kind {
        Kind::Resilver => ("resilver", "resilvered"),
        _ => ("scrub", "scrub repaired"),
    };
    match job.state {
        JobState::Running | JobState::Waiting(_) => {
            format!("{name} in progress since {start}\n{}{}", scanned(job), limit(job))
        }
        // No row records when a resilver was paused.
        JobState::Paused if job.kind == Kind::Resilver => {
            format!("resilver paused, started on {start}\n{}", scanned(job))
        }
        JobState::Paused => format!("{name} paused since {end}\n{name} started on {start}\n{}", scanned(job)),
        JobState::Finished => format!(
            "{repaired} {} in {} with {} errors on {end}",
            format_bytes(job.repaired),
            clock(job.seconds),
            job.errors
        ),
        JobState::Canceled | JobState::Failed(_) => format!("{name} canceled on {end}"),
    }
}

fn scanned(job: &JobRecord) -> String {
    // Data allocated since the start is not in `total`, so the end may be a little later.
    let (done, total) = job.bytes();
    let is_running = job.state == JobState::Running;
    let speed = if is_running { format!(" at {}/s", format_bytes(job.rate)) } else { String::new() };
    let left = match (total - done).checked_div(job.rate) {
        _ if !is_running => String::new(),
        Some(seconds) => format!(", {} to go", clock(seconds)),
        None => ", no estimated completion time".to_owned(),
    };
    let verb = if job.kind == Kind::Resilver { "resilvered" } else { "repaired" };
    let [scanned, all, repaired] = [done, total, job.repaired].map(format_bytes);
    format!("{scanned} / {all} scanned{speed}\n{repaired} {verb}, {} done{left}", percent(done, total))
}

fn removal(job: &JobRecord, name: &str, vdev: u64, (start, end): (&str, &str)) -> String {
    match &job.state {
        JobState::Paused => format!("Evacuation of {name} paused, started on {start}\n{}", copied(job)),
        JobState::Running | JobState::Waiting(_) => {
            let progress = copying(job, "no estimated completion time");
            format!("Evacuation of {name} in progress since {start}\n{progress}{}", limit(job))
        }
        JobState::Finished => {
            let (copied, time) = (format_bytes(job.done), duration(job.seconds));
            format!("Removal of vdev {vdev} copied {copied} in {time}, completed on {end}")
        }
        JobState::Canceled => format!("Removal of {name} canceled on {end}"),
        JobState::Failed(_) => format!("Removal of {name} failed on {end}: {}", job.why().unwrap_or_default()),
    }
}

/// A rebalance, or the common lines of jobs that move data in batches.
fn batches(job: &JobRecord, start: &str, end: &str) -> String {
    match &job.state {
        JobState::Paused => format!("paused, started on {start}\n{}", copied(job)),
        JobState::Running | JobState::Waiting(_) => {
            format!("in progress since {start}\n{}{}", copying(job, "no estimate yet"), limit(job))
        }
        JobState::Finished => format!("moved {} in {} on {end}", format_bytes(job.done), duration(job.seconds)),
        JobState::Canceled => format!("canceled on {end}"),
        JobState::Failed(_) => format!("failed on {end}:\n{}", job.why().unwrap_or_default()),
    }
}

fn expansion(job: &JobRecord, name: &str, done: &str, regions: u64) -> String {
    match &job.state {
        JobState::Paused => format!("expansion of {name} is paused\n{done}\nto continue: pool attach POOL {name}"),
        JobState::Waiting(Reason::NoRoom) => format!(
            "expansion of {name} waits for free space\n{done}\nit continues when wide rows have free space for the remaining data"
        ),
        JobState::Waiting(Reason::Degraded) => {
            format!("expansion of {name} waits until all of its devices are resilvered\n{done}")
        }
        JobState::Waiting(_) => {
            format!("expansion of {name} has stopped: {}\n{done}", job.why().unwrap_or_default())
        }
        _ if regions == 0 => format!("expansion of {name} in progress\n{done}\nlooking for free space{}", limit(job)),
        _ => {
            let (copied, total) = job.bytes();
            let left = time_left(job).map_or_else(|| "no estimated time".to_owned(), |time| format!("{time} to go"));
            let [copied, total, rate] = [copied, total, job.rate].map(format_bytes);
            let line = format!("{copied} of {total} copied at {rate}/s for the next rows, {left}");
            format!("expansion of {name} in progress\n{done}\n{line}{}", limit(job))
        }
    }
}

fn copied(job: &JobRecord) -> String {
    let (done, total) = job.bytes();
    format!("{} copied out of {}, {} done", format_bytes(done), format_bytes(total), percent(done, total))
}

/// Progress with rate and remaining time; `unknown` replaces an unknown time.
fn copying(job: &JobRecord, unknown: &str) -> String {
    // A block with several copies counts once, and data freed meanwhile is not copied.
    let (done, total) = job.bytes();
    let left = time_left(job).map_or_else(|| unknown.to_owned(), |time| format!("{time} to go"));
    let [copied, all, rate] = [done, total, job.rate].map(format_bytes);
    format!("{copied} copied out of {all} at {rate}/s, {} done, {left}", percent(done, total))
}

fn time_left(job: &JobRecord) -> Option<String> {
    let (done, total) = job.bytes();
    (total - done).checked_div(job.rate).map(duration)
}

fn limit(job: &JobRecord) -> String {
    job.limit.map_or_else(String::new, |limit| format!("\nlimited to {}/s", format_bytes(limit)))
}

/// Share of the whole, as `29.29%`.
fn percent(part: u64, whole: u64) -> String {
    let of_whole = (u128::from(part) * 10_000).checked_div(whole.into()).unwrap_or(0).min(10_000);
    format!("{}.{:02}%", of_whole / 100, of_whole % 100)
}

/// Hours and minutes, as `1h2m`.
fn duration(seconds: u64) -> String {
    format!("{}h{}m", seconds / 3600, seconds / 60 % 60)
}

/// Duration as `01:02:03`, after a number of days if above zero.
fn clock(seconds: u64) -> String {
    let (days, seconds) = (seconds / 86_400, seconds % 86_400);
    let clock = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if days > 0 { format!("{days} days {clock}") } else { clock }
}

/// A job in JSON: OpenZFS's keys, where OpenZFS has the job.
pub(super) fn encode(job: &JobRecord) -> Value {
    let mut value = if job.kind.is_scan() { encode_scan(job) } else { encode_move(job) };
    let number = |number: &u64| Value::from(number.to_string());
    let more = match &job.detail {
        Detail::None | Detail::Pass { .. } => vec![],
        Detail::Removal { name, vdev } => {
            vec![("name", json!(name)), ("vdev", number(vdev)), ("removing_vdev", number(vdev))]
        }
        Detail::Expansion { name, rows, rows_done, .. } => vec![
            ("name", json!(name)),
            ("rows", number(rows)),
            ("rows_done", number(rows_done)),
            ("to_reflow", number(&job.total)),
            ("reflowed", number(&job.done)),
        ],
        Detail::Resize { name, size } => {
            let obstacle = job.why().filter(|_| is_under_way(job));
            vec![("name", json!(name)), ("size", number(size)), ("obstacle", json!(obstacle))]
        }
        Detail::Defragment { wanted, emptied, taken, packed, maps } => vec![
            ("regions_to_empty", number(wanted)),
            ("regions_emptied", number(emptied)),
            ("regions_filled", number(taken)),
            ("packed_chunks", number(packed)),
            ("map_memory", number(maps)),
        ],
    };
    let object = value.as_object_mut().expect("it is one");
    object.extend(more.into_iter().map(|(name, value)| (name.to_owned(), value)));
    value
}

fn encode_scan(scan: &JobRecord) -> Value {
    json!({
        "function": if scan.kind == Kind::Resilver { "RESILVER" } else { "SCRUB" },
        "state": if scan.state == JobState::Paused { "SCANNING" } else { state(&scan.state) },
        "paused": scan.state == JobState::Paused,
        "start_time": seconds(scan.begun).to_string(),
        "end_time": seconds(scan.ended).to_string(),
        "seconds": scan.seconds.to_string(),
        "limit": scan.limit.map(|limit| limit.to_string()),
        "to_examine": scan.total.to_string(),
        "examined": scan.done.to_string(),
        "repaired": scan.repaired.to_string(),
        "errors": scan.errors.to_string(),
        // Further fields of OpenZFS: a scan reads each block once, in a single pass over all imports.
        "skipped": "0",
        "processed": scan.repaired.to_string(),
        "bytes_per_scan": scan.done.to_string(),
        "issued_bytes_per_scan": scan.done.to_string(),
        "issued": scan.done.to_string(),
        "pass_start": seconds(scan.begun).to_string(),
    })
}

fn encode_move(job: &JobRecord) -> Value {
    json!({
        "state": state(&job.state),
        "start_time": seconds(job.begun).to_string(),
        "end_time": seconds(job.ended).to_string(),
        "seconds": job.seconds.to_string(),
        "limit": job.limit.map(|limit| limit.to_string()),
        "to_copy": job.total.to_string(),
        "copied": job.done.to_string(),
        "errors": job.errors.to_string(),
    })
}

fn state(state: &JobState) -> &'static str {
    match state {
        JobState::Running => "SCANNING",
        JobState::Paused => "PAUSED",
        JobState::Waiting(_) => "WAITING",
        JobState::Finished => "FINISHED",
        JobState::Canceled | JobState::Failed(_) => "CANCELED",
    }
}

fn seconds(time: i64) -> i64 {
    time.div_euclid(NANOS)
}

#[cfg(test)]
pub(super) mod tests {
    use jiff::tz::TimeZone;

    use super::*;

    /// A scrub in some state.
    pub(in super::super) fn scan(state: JobState) -> JobRecord {
        JobRecord { seconds: 12, rate: 25 << 20, repaired: 8192, errors: 2, ..job(Kind::Scrub, state, Detail::None) }
    }

    fn job(kind: Kind, state: JobState, detail: Detail) -> JobRecord {
        JobRecord {
            kind,
            state,
            begun: 1_762_506_330 * NANOS,
            ended: 1_762_506_330 * NANOS,
            seconds: 3700,
            rate: (300 << 20) / 3700,
            total: 1 << 30,
            done: 300 << 20,
            repaired: 0,
            errors: 0,
            limit: None,
            detail,
        }
    }

    fn removal(state: JobState) -> JobRecord {
        job(Kind::Remove, state, Detail::Removal { name: "mirror-1".into(), vdev: 1 })
    }

    fn rebalance(state: JobState) -> JobRecord {
        job(Kind::Rebalance, state, Detail::None)
    }

    fn expansion(state: JobState) -> JobRecord {
        let detail =
            Detail::Expansion { name: "raidz1-0".into(), columns: 4, rows: 16_384, rows_done: 4096, regions: 12 };
        let (done, total, rate) = (1 << 30, 3 << 30, 16 << 20);
        JobRecord { done, total, rate, ..job(Kind::Expand, state, detail) }
    }

    fn shown(job: &JobRecord) -> String {
        render(job, || TimeZone::UTC)
    }

    #[test]
    fn each_state_of_a_scrub_has_its_words() {
        let of = |state| shown(&scan(state));
        insta::assert_snapshot!(of(JobState::Running), @r"
        scrub in progress since Fri Nov  7 09:05:30 2025
        300M / 1G scanned at 25M/s
        8K repaired, 29.29% done, 00:00:28 to go
        ");
        insta::assert_snapshot!(of(JobState::Paused), @r"
        scrub paused since Fri Nov  7 09:05:30 2025
        scrub started on Fri Nov  7 09:05:30 2025
        300M / 1G scanned
        8K repaired, 29.29% done
        ");
        insta::assert_snapshot!(of(JobState::Finished), @"scrub repaired 8K in 00:00:12 with 2 errors on Fri Nov  7 09:05:30 2025");
        insta::assert_snapshot!(of(JobState::Canceled), @"scrub canceled on Fri Nov  7 09:05:30 2025");
    }

    #[test]
    fn a_resilver_has_its_own_words() {
        let of = |state| shown(&JobRecord { kind: Kind::Resilver, ..scan(state) });
        insta::assert_snapshot!(of(JobState::Running), @r"
        resilver in progress since Fri Nov  7 09:05:30 2025
        300M / 1G scanned at 25M/s
        8K resilvered, 29.29% done, 00:00:28 to go
        ");
        insta::assert_snapshot!(of(JobState::Paused), @r"
        resilver paused, started on Fri Nov  7 09:05:30 2025
        300M / 1G scanned
        8K resilvered, 29.29% done
        ");
        insta::assert_snapshot!(of(JobState::Finished), @"resilvered 8K in 00:00:12 with 2 errors on Fri Nov  7 09:05:30 2025");
    }

    #[test]
    fn each_state_of_a_removal_has_its_words() {
        let of = |state| shown(&removal(state));
        insta::assert_snapshot!(of(JobState::Running), @r"
        Evacuation of mirror-1 in progress since Fri Nov  7 09:05:30 2025
        300M copied out of 1G at 83.0K/s, 29.29% done, 2h28m to go
        ");
        insta::assert_snapshot!(of(JobState::Finished), @"Removal of vdev 1 copied 300M in 1h1m, completed on Fri Nov  7 09:05:30 2025");
        insta::assert_snapshot!(of(JobState::Canceled), @"Removal of mirror-1 canceled on Fri Nov  7 09:05:30 2025");
        assert!(of(JobState::Failed(Reason::Unreadable)).ends_with("could not be read"));
        assert!(of(JobState::Failed(Reason::NoRoom)).ends_with("empty regions on other vdevs"));
    }

    #[test]
    fn a_rebalance_shows_how_far_it_is_in_lines_that_fit() {
        let running = JobRecord { limit: Some(20 << 20), ..rebalance(JobState::Running) };
        insta::assert_snapshot!(shown(&running), @r"
        in progress since Fri Nov  7 09:05:30 2025
        300M copied out of 1G at 83.0K/s, 29.29% done, 2h28m to go
        limited to 20M/s
        ");
        insta::assert_snapshot!(shown(&rebalance(JobState::Paused)), @r"
        paused, started on Fri Nov  7 09:05:30 2025
        300M copied out of 1G, 29.29% done
        ");
        insta::assert_snapshot!(shown(&rebalance(JobState::Finished)), @"moved 300M in 1h1m on Fri Nov  7 09:05:30 2025");
        let fresh = JobRecord { done: 0, seconds: 0, rate: 0, ..running };
        let reasons = [Reason::Unreadable, Reason::NoRoom].map(JobState::Failed);
        let ends = reasons.into_iter().chain([JobState::Canceled]).map(rebalance);
        for shown in ends.chain([fresh]).map(|job| shown(&job)) {
            // `pool status` puts a title and a tab before each line.
            assert!(shown.lines().all(|line| line.len() <= 69), "{shown}");
        }
    }

    #[test]
    fn a_defragmentation_says_what_it_gains_and_costs() {
        let detail = || Detail::Defragment { wanted: 60, emptied: 41, taken: 12, packed: 41, maps: 5000 };
        insta::assert_snapshot!(shown(&job(Kind::Defragment, JobState::Running, detail())), @r"
        in progress since Fri Nov  7 09:05:30 2025
        300M copied out of 1G at 83.0K/s, 29.29% done, 2h28m to go
        41 of 60 regions emptied, 12 filled
        4.88K of memory used for maps
        ");
        let finished = job(Kind::Defragment, JobState::Finished, detail());
        insta::assert_snapshot!(shown(&finished), @r"
        moved 300M in 1h1m on Fri Nov  7 09:05:30 2025
        41 regions emptied, 12 filled
        4.88K of memory used for maps
        ");
        let json = encode(&finished);
        assert_eq!((&json["regions_emptied"], &json["map_memory"]), (&json!("41"), &json!("5000")));
    }

    #[test]
    fn a_resize_says_what_becomes_of_which_device() {
        let detail = || Detail::Resize { name: "mirror-0".into(), size: 10 << 30 };
        insta::assert_snapshot!(shown(&job(Kind::Resize, JobState::Running, detail())), @r"
        in progress since Fri Nov  7 09:05:30 2025
        300M copied out of 1G at 83.0K/s, 29.29% done, 2h28m to go
        mirror-0 shrinks to 10G
        ");
        let waits = JobState::Waiting(Reason::Device("it is waiting for /b, which is missing or incomplete".into()));
        let waits = job(Kind::Resize, waits, detail());
        assert!(shown(&waits).ends_with("shrinks to 10G\nit is waiting for /b, which is missing or incomplete"));
        assert_eq!(encode(&waits)["obstacle"], "it is waiting for /b, which is missing or incomplete");
        let finished = job(Kind::Resize, JobState::Finished, detail());
        insta::assert_snapshot!(shown(&finished), @r"
        moved 300M in 1h1m on Fri Nov  7 09:05:30 2025
        mirror-0 is now 10G
        ");
        let json = encode(&finished);
        assert_eq!(
            (&json["name"], &json["size"], &json["state"], &json["obstacle"]),
            (&json!("mirror-0"), &json!("10737418240"), &json!("FINISHED"), &Value::Null)
        );
    }

    #[test]
    fn an_expansion_is_shown_in_eighty_columns() {
        insta::assert_snapshot!(shown(&expansion(JobState::Running)), @r"
        expansion of raidz1-0 in progress
        25.00% of its rows use all 4 devices
        1G of 3G copied at 16M/s for the next rows, 0h2m to go
        ");
        insta::assert_snapshot!(shown(&expansion(JobState::Waiting(Reason::NoRoom))), @r"
        expansion of raidz1-0 waits for free space
        25.00% of its rows use all 4 devices
        it continues when wide rows have free space for the remaining data
        ");
        let reasons = [Reason::NoRoom, Reason::Degraded, Reason::Unreadable].map(JobState::Waiting);
        for shown in reasons.into_iter().chain([JobState::Running, JobState::Paused]).map(|s| shown(&expansion(s))) {
            assert!(shown.lines().all(|line| line.len() + 8 <= 82), "{shown}");
        }
    }

    #[test]
    fn numbers_at_their_ends_neither_divide_by_zero_nor_overflow() {
        let fresh = |job| JobRecord { seconds: 0, rate: 0, done: 0, total: 0, ..job };
        let huge = |job| JobRecord { done: u64::MAX, seconds: 1, rate: u64::MAX, ..job };
        let [scan, moved] = [scan(JobState::Running), removal(JobState::Running)];
        assert!(shown(&fresh(scan.clone())).ends_with("8K repaired, 0.00% done, no estimated completion time"));
        assert!(shown(&huge(scan)).contains("100.00% done, 00:00:00 to go"));
        assert!(shown(&fresh(moved.clone())).ends_with("0.00% done, no estimated completion time"));
        assert!(shown(&huge(moved)).contains("100.00% done, 0h0m to go"));
        let detail = Detail::Expansion { name: String::new(), columns: 4, rows: 0, rows_done: 9, regions: 1 };
        assert!(shown(&JobRecord { detail, ..huge(expansion(JobState::Running)) }).contains("0.00%"));
        assert_eq!(clock(100_000), "1 days 03:46:40");
    }
}
