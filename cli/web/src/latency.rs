//! Metrics of the requests to devices: their number, bytes, latency, and how many were slow.
//!
//! The pool has histograms; a device has sums, so the number of series is bounded: [`SERIES`] for each pool, and
//! [`OF_DEVICE`] for each of at most [`MOST`] devices.

use std::sync::Arc;

use protocol::{IoCounts, IoSample, VdevRecord};

use crate::figures::{Labels, MOST, Metrics, labels};
use crate::watch::Sight;

/// Series of a pool: requests, bytes, and two histograms.
#[cfg(test)]
const SERIES: usize = 4 + 2 * (BOUNDS.len() + 3);

/// Series of a device: requests and bytes of reads and writes, waits by stage, queues, slow requests.
#[cfg(test)]
const OF_DEVICE: usize = 2 + 2 + 4 + 2 + 1;

/// Upper bounds of the buckets, as exponents of two in nanoseconds: 8 µs to 34 s.
const BOUNDS: [u32; 12] = [13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33, 35];

const NANOS: f64 = 1e9;

/// Reads and writes, in the order of the pairs of a flow.
const KINDS: [&str; 2] = ["read", "write"];

/// The figures of all pools.
pub(crate) fn latency(metrics: &mut Metrics, pools: &[(String, Arc<Sight>, bool)]) {
    let samples: Vec<(&str, &IoSample)> = pools
        .iter()
        .filter(|(_, _, silent)| !silent)
        .filter_map(|(name, sight, _)| Some((name.as_str(), sight.sample.as_deref()?)))
        .collect();
    totals(metrics, &samples);
    histograms(metrics, &samples);
    let leaves: Vec<(&str, &IoCounts)> = samples
        .iter()
        .flat_map(|(pool, sample)| sample.vdevs.iter().flat_map(leaves).map(|leaf| (*pool, leaf)))
        .take(MOST)
        .collect();
    devices(metrics, &leaves);
    slow(metrics, pools);
}

fn leaves(counts: &IoCounts) -> Vec<&IoCounts> {
    match counts.members.is_empty() {
        true => vec![counts],
        false => counts.members.iter().flat_map(leaves).collect(),
    }
}

/// A figure of the counters of a pool.
type Figure = fn(&IoCounts) -> u64;

/// Requests and bytes of each pool, under the names of node_exporter.
fn totals(metrics: &mut Metrics, samples: &[(&str, &IoSample)]) {
    let all: [(&str, Figure); 4] = [
        ("node_zfs_zpool_reads", |counts| counts.reads),
        ("node_zfs_zpool_writes", |counts| counts.writes),
        ("node_zfs_zpool_nread", |counts| counts.read_bytes),
        ("node_zfs_zpool_nwritten", |counts| counts.written_bytes),
    ];
    for (name, figure) in all {
        let rows = samples.iter().map(|(pool, sample)| (labels(&[("zpool", pool)]), figure(&sample.pool) as f64));
        metrics.gauge(name, "Requests to the devices of the pool, or their bytes, since the import", rows);
    }
}

/// How long the requests of each pool took, in buckets that include the smaller ones.
fn histograms(metrics: &mut Metrics, samples: &[(&str, &IoSample)]) {
    let (mut buckets, mut sums, mut counts) = (Vec::new(), Vec::new(), Vec::new());
    for (pool, sample) in samples {
        for (kind, waits) in KINDS.into_iter().zip(&sample.pool.flow.total_wait) {
            let own = [("pool", *pool), ("type", kind)];
            for bound in BOUNDS {
                // Bucket n counts waits below 2 to the power n + 1.
                let below =
                    waits.buckets.iter().take(bound as usize).fold(0, |sum: u64, count| sum.saturating_add(*count));
                let le = (f64::from(bound).exp2() / NANOS).to_string();
                buckets.push((labels(&[own[0], own[1], ("le", &le)]), below as f64));
            }
            buckets.push((labels(&[own[0], own[1], ("le", "+Inf")]), waits.count() as f64));
            sums.push((labels(&own), waits.nanos as f64 / NANOS));
            counts.push((labels(&own), waits.count() as f64));
        }
    }
    let help = "Time of the requests to the devices of the pool since the import";
    metrics.gauge("cenote_pool_wait_seconds_bucket", help, buckets);
    metrics.gauge("cenote_pool_wait_seconds_sum", help, sums);
    metrics.gauge("cenote_pool_wait_seconds_count", help, counts);
}

fn devices(metrics: &mut Metrics, leaves: &[(&str, &IoCounts)]) {
    let (mut requests, mut bytes, mut waits, mut queues) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (pool, leaf) in leaves {
        let of = |more: &[(&str, &str)]| -> Labels {
            labels(&[&[("pool", *pool), ("device", leaf.name.as_str())], more].concat())
        };
        let counts = [(leaf.reads, leaf.read_bytes), (leaf.writes, leaf.written_bytes)];
        for (at, (kind, (count, size))) in KINDS.into_iter().zip(counts).enumerate() {
            requests.push((of(&[("type", kind)]), count as f64));
            bytes.push((of(&[("type", kind)]), size as f64));
            for (stage, flow) in [("total", &leaf.flow.total_wait), ("disk", &leaf.flow.disk_wait)] {
                waits.push((of(&[("type", kind), ("stage", stage)]), flow[at].nanos as f64 / NANOS));
            }
        }
        for (state, count) in [("pending", &leaf.flow.pending), ("active", &leaf.flow.active)] {
            queues.push((of(&[("state", state)]), count.iter().sum::<u64>() as f64));
        }
    }
    metrics.gauge("cenote_device_requests", "Requests to the device since the import", requests);
    metrics.gauge("cenote_device_bytes", "Bytes of the requests to the device since the import", bytes);
    metrics.gauge("cenote_device_wait_seconds", "Sum of the waits of the requests to the device, by stage", waits);
    metrics.gauge("cenote_device_queue", "Requests that wait for the device or are carried out now", queues);
}

/// Requests that took longer than the property `slow_io_ms`.
fn slow(metrics: &mut Metrics, pools: &[(String, Arc<Sight>, bool)]) {
    fn of<'a>(vdev: &'a VdevRecord, all: &mut Vec<(&'a str, u64)>) {
        all.extend(vdev.slow.filter(|_| vdev.members.is_empty()).map(|count| (vdev.path.as_str(), count)));
        vdev.members.iter().for_each(|member| of(member, all));
    }
    let mut rows = Vec::new();
    for (name, sight, _) in pools {
        let mut all = Vec::new();
        sight.status.iter().flat_map(|status| &status.vdevs).for_each(|vdev| of(vdev, &mut all));
        rows.extend(
            all.into_iter().map(|(device, count)| (labels(&[("pool", name), ("device", device)]), count as f64)),
        );
    }
    rows.truncate(MOST);
    metrics.gauge(
        "cenote_device_slow_requests",
        "Requests that took longer than slow_io_ms since the last clear",
        rows,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_add_up_and_the_number_of_series_is_bounded() {
        let mut flow = IoCounts::default().flow;
        flow.total_wait[0].buckets = vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 5, 0, 6];
        flow.total_wait[1].nanos = 3_000_000_000;
        let leaf = |at: usize| IoCounts { name: format!("/dev/{at}"), flow: flow.clone(), ..IoCounts::default() };
        let mirror = IoCounts { members: (0..2000).map(leaf).collect(), ..IoCounts::default() };
        let pool = IoCounts { flow: flow.clone(), reads: 15, ..IoCounts::default() };
        let sample = Arc::new(IoSample { elapsed: 1, pool, vdevs: vec![mirror] });
        let sight = Sight { sample: Some(sample), ..Sight::default() };
        let mut metrics = Metrics::default();
        latency(&mut metrics, &[("tank".into(), Arc::new(sight), false)]);
        let text = metrics.text();
        for line in [
            "node_zfs_zpool_reads{zpool=\"tank\"} 15.0",
            "cenote_pool_wait_seconds_bucket{pool=\"tank\",type=\"read\",le=\"0.000008192\"} 4.0",
            "cenote_pool_wait_seconds_bucket{pool=\"tank\",type=\"read\",le=\"0.000032768\"} 9.0",
            "cenote_pool_wait_seconds_bucket{pool=\"tank\",type=\"read\",le=\"+Inf\"} 15.0",
            "cenote_pool_wait_seconds_sum{pool=\"tank\",type=\"write\"} 3.0",
        ] {
            assert!(text.lines().any(|known| known == line), "{line}\n{}", &text[..4000]);
        }
        let series = text.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(series, SERIES + MOST * (OF_DEVICE - 1), "a sample alone has no slow requests");
    }
}
