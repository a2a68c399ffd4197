//! The figures of the pools in the line protocol of InfluxDB, with the measurements, tags and fields of `zpool_influxdb`.
//!
//! A vdev is named by its place: `root` is the pool, `root/mirror-0` a vdev, `root/mirror-0/disk-1` the second device of
//! the mirror. A device has a tag `path` as well. Buckets of a histogram hold their own requests only; the name of a
//! bucket, `le`, is its upper bound. Numbers are unsigned. The receiver adds the time.

use std::fmt::Write as _;

use dataset::jobs::{JobRecord, JobState, Kind};
use dataset::property::pool::FRAGMENTATION;
use pool::device::{IoClass, SIZES, WAITS};
use protocol::{IoCounts, VdevRecord};

use crate::app::App;
use crate::watch::Sight;

/// The content type of the line protocol.
pub(crate) const INFLUX: &str = "text/plain; charset=utf-8";

/// The first buckets that are reported; the buckets below count there: 1 µs, and 512 bytes.
const LEAST_WAIT: usize = 10;
const LEAST_SIZE: usize = 9;

const NANOS_IN_A_SECOND: i64 = 1_000_000_000;

/// All pools that answer.
pub(crate) fn influx(app: &App) -> String {
    let mut text = String::new();
    for (name, seen) in app.watch.all() {
        of_pool(&mut text, &name, &seen.sight());
    }
    text
}

fn of_pool(text: &mut String, name: &str, sight: &Sight) {
    let (Some(status), Some(sample)) = (&sight.status, &sight.sample) else { return };
    let sum = |errors: fn(&VdevRecord) -> u64| status.vdevs.iter().map(errors).fold(0, u64::saturating_add);
    let pool = VdevRecord {
        read_errors: sum(|vdev| vdev.read_errors),
        write_errors: sum(|vdev| vdev.write_errors),
        checksum_errors: sum(|vdev| vdev.checksum_errors),
        ..VdevRecord::idle(String::new(), status.state)
    };
    of_vdev(text, name, "root", &pool, &sample.pool);
    for (number, counts) in sample.vdevs.iter().enumerate() {
        let record = status.vdevs.iter().find(|known| known.path == counts.name);
        below(text, name, ("root", number), record, counts);
    }
    status.jobs.iter().for_each(|job| of_job(text, name, job));
}

/// A vdev and its devices. A vdev that has changed between the two answers is left out.
fn below(text: &mut String, pool: &str, (above, number): (&str, usize), vdev: Option<&VdevRecord>, counts: &IoCounts) {
    let Some(vdev) = vdev else { return };
    let place = match vdev.path.starts_with('/') {
        true => format!("{above}/disk-{number}"),
        false => format!("{above}/{}", vdev.path),
    };
    of_vdev(text, pool, &place, vdev, counts);
    for (number, member) in counts.members.iter().enumerate() {
        let record = vdev.members.iter().find(|known| known.path == member.name);
        below(text, pool, (&place, number), record, member);
    }
}

fn of_vdev(text: &mut String, pool: &str, place: &str, vdev: &VdevRecord, counts: &IoCounts) {
    let path = if vdev.path.starts_with('/') { format!("path={},", tag(&vdev.path)) } else { String::new() };
    let (pool, tags) = (tag(pool), format!("{path}vdev={}", tag(place)));
    let fields = [
        ("alloc", counts.allocated),
        ("free", counts.free),
        ("size", counts.allocated.saturating_add(counts.free)),
        ("read_bytes", counts.read_bytes),
        ("read_errors", vdev.read_errors),
        ("read_ops", counts.reads),
        ("write_bytes", counts.written_bytes),
        ("write_errors", vdev.write_errors),
        ("write_ops", counts.writes),
        ("checksum_errors", vdev.checksum_errors),
        (FRAGMENTATION.row().name, vdev.fragmentation),
    ];
    line(text, "zpool_stats", &format!("name={pool},state={},{tags}", vdev.state), fields);
    queues(text, &format!("name={pool},{tags}"), counts);
    waits(text, &format!("name={pool},{tags}"), counts);
    sizes(text, &format!("name={pool},{tags}"), counts);
}

fn queues(text: &mut String, tags: &str, counts: &IoCounts) {
    let short = |class: IoClass| match class {
        IoClass::SyncRead => "sync_r",
        IoClass::SyncWrite => "sync_w",
        IoClass::AsyncRead => "async_r",
        IoClass::AsyncWrite => "async_w",
        IoClass::Scrub => "async_scrub",
        IoClass::Trim => "trim",
        IoClass::Rebuild => "rebuild",
    };
    let all = [("active", &counts.flow.active), ("pend", &counts.flow.pending)];
    let fields = all.into_iter().flat_map(|(state, numbers)| {
        IoClass::ALL
            .into_iter()
            .zip(numbers)
            .map(move |(class, number)| (format!("{}_{state}_queue", short(class)), *number))
    });
    line(text, "zpool_vdev_queue", tags, fields);
}

fn waits(text: &mut String, tags: &str, counts: &IoCounts) {
    let flow = &counts.flow;
    let named = [("total_read", &flow.total_wait[0]), ("total_write", &flow.total_wait[1])];
    let on_disk = [("disk_read", &flow.disk_wait[0]), ("disk_write", &flow.disk_wait[1])];
    let queued = IoClass::ALL.into_iter().zip(&flow.queue_wait).map(|(class, waits)| (class.as_str(), waits));
    let all: Vec<(&str, &[u64])> =
        named.into_iter().chain(on_disk).chain(queued).map(|(name, waits)| (name, waits.buckets.as_slice())).collect();
    let bound = |bucket: usize| format!("{:.6}", (bucket as f64).exp2() / NANOS_IN_A_SECOND as f64);
    histogram(text, "zpool_latency", tags, &all, LEAST_WAIT..WAITS, bound);
}

fn sizes(text: &mut String, tags: &str, counts: &IoCounts) {
    let name = |class: IoClass| match class {
        IoClass::Scrub => "scrub_read",
        IoClass::Trim => "trim_write",
        IoClass::Rebuild => "rebuild_write",
        class => class.as_str(),
    };
    let mut all = Vec::new();
    for (class, sizes) in IoClass::ALL.into_iter().zip(&counts.flow.sizes) {
        all.push((format!("{}_ind", name(class)), sizes.alone.as_slice()));
        all.push((format!("{}_agg", name(class)), sizes.merged.as_slice()));
    }
    let all: Vec<(&str, &[u64])> = all.iter().map(|(name, buckets)| (name.as_str(), *buckets)).collect();
    histogram(text, "zpool_io_size", tags, &all, LEAST_SIZE..SIZES, |bucket| (1u64 << bucket).to_string());
}

/// A line for each bucket in `reported`, with a field for each histogram. The first bucket includes all smaller ones, and
/// the last has no bound.
fn histogram(
    text: &mut String,
    measurement: &str,
    tags: &str,
    all: &[(&str, &[u64])],
    reported: std::ops::Range<usize>,
    bound: impl Fn(usize) -> String,
) {
    let last = reported.end - 1;
    for bucket in reported.clone() {
        let below = if bucket == reported.start { 0 } else { bucket };
        let count = |buckets: &[u64]| {
            buckets.iter().take(bucket + 1).skip(below).fold(0, |sum: u64, one| sum.saturating_add(*one))
        };
        let le = if bucket == last { "+Inf".to_owned() } else { bound(bucket) };
        line(text, measurement, &format!("le={le},{tags}"), all.iter().map(|(name, buckets)| (name, count(buckets))));
    }
}

/// The current or last scrub or resilver.
fn of_job(text: &mut String, pool: &str, job: &JobRecord) {
    let function = match job.kind {
        Kind::Scrub => "scrub",
        Kind::Resilver => "resilver",
        _ => return,
    };
    let state = match &job.state {
        JobState::Finished => "finished",
        JobState::Canceled | JobState::Failed(_) => "canceled",
        _ => "scanning",
    };
    let seconds = |nanos: i64| u64::try_from(nanos / NANOS_IN_A_SECOND).unwrap_or(0);
    let is_over = state != "scanning";
    let left = if is_over { 0 } else { job.total.saturating_sub(job.done) };
    let fields = [
        ("end_ts", if is_over { seconds(job.ended) } else { 0 }),
        ("errors", job.errors),
        ("examined", job.done),
        ("issued", job.done),
        ("paused_ts", if is_over { 0 } else { seconds(job.ended) }),
        ("processed", job.repaired),
        ("rate", job.rate),
        ("remaining_t", left.checked_div(job.rate).unwrap_or(0)),
        ("start_ts", seconds(job.begun)),
        ("to_examine", job.total),
    ];
    line(text, "zpool_scan_stats", &format!("function={function},name={},state={state}", tag(pool)), fields);
}

fn line(text: &mut String, measurement: &str, tags: &str, fields: impl IntoIterator<Item = (impl AsRef<str>, u64)>) {
    let fields: Vec<String> = fields.into_iter().map(|(name, value)| format!("{}={value}u", name.as_ref())).collect();
    // A string takes all that is written.
    let _ = writeln!(text, "{measurement},{tags} {}", fields.join(","));
}

/// The value of a tag: the path of a foreign device may have any bytes.
fn tag(value: &str) -> String {
    let mut escaped = String::new();
    for character in value.chars().filter(|character| !character.is_control()) {
        if matches!(character, ',' | '=' | ' ' | '\\') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_keep_their_difference_and_forge_no_line() {
        assert_eq!(tag("a,b"), "a\\,b");
        assert_eq!(tag("a b=c\\"), "a\\ b\\=c\\\\");
        assert_eq!(tag("x\nzpool_stats"), "xzpool_stats");
    }

    #[test]
    fn buckets_hold_their_own_requests_and_the_first_all_smaller() {
        let mut text = String::new();
        histogram(&mut text, "m", "name=t", &[("a", &[1, 2, 4, 8, 16]), ("b", &[])], 1..4, |bucket| bucket.to_string());
        assert_eq!(text, "m,le=1,name=t a=3u,b=0u\nm,le=2,name=t a=4u,b=0u\nm,le=+Inf,name=t a=8u,b=0u\n");
    }
}
