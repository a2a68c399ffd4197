//! Metrics in the format of OpenMetrics.
//!
//! Names, labels and units are those of pdf/zfs_exporter with its default properties and more, and of node_exporter's ZFS
//! collector for pools, datasets and the cache, so dashboards made for ZFS work. The number of series is bounded: at most
//! [`MOST`] datasets have series, and `cenote_datasets_left_out` counts the rest.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use axum::extract::{Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use dataset::name::Name;
use dataset::property::Kinds;
use dataset::property::dataset::{
    AVAILABLE, COMPRESSRATIO, LOGICALREFERENCED, LOGICALUSED, QUOTA, REFCOMPRESSRATIO, REFQUOTA, REFRESERVATION,
    RESERVATION, USED, USEDBYCHILDREN, USEDBYDATASET, USEDBYREFRESERVATION, USEDBYSNAPSHOTS,
};
use dataset::property::pool::{DEDUPRATIO, EXPANDSIZE, FRAGMENTATION, LEAKED, READONLY};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use protocol::{
    DatasetRecord, DatasetRequest, Failure, FileCounts, FileSample, MountRequest, PoolRecord, PoolRequest,
    PropertyRecord, VdevRecord, cache_figures,
};
use serde::Deserialize;
use tokio::task::spawn_blocking;

use crate::app::App;
use crate::gate;
use crate::influx::{INFLUX, influx};
use crate::latency::latency;
use crate::watch::Sight;

/// Most datasets with series.
pub(crate) const MOST: usize = 1000;

/// The content type of OpenMetrics.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The states of a pool in the order of zfs_exporter's numbers.
const STATES: [protocol::State; 7] = [
    protocol::State::Online,
    protocol::State::Degraded,
    protocol::State::Faulted,
    protocol::State::Offline,
    protocol::State::Unavail,
    protocol::State::Removed,
    protocol::State::Suspended,
];

/// Converts the value of a property to that of the metric.
type Convert = fn(f64) -> f64;

const AS_IT_IS: Convert = |value| value;
/// zfs_exporter divides percentages by 100,
const OF_PERCENT: Convert = |percent| percent / 100.0;
/// and reports the size after by the size before.
const INVERSE: Convert = |ratio| 1.0 / ratio;

/// A numeric property, its metric, the help, and the conversion.
type Row = (&'static str, &'static str, &'static str, Convert);

/// Numeric properties of a pool.
const POOL: [Row; 10] = [
    ("allocated", "zfs_pool_allocated_bytes", "Allocated space in the pool", AS_IT_IS),
    ("free", "zfs_pool_free_bytes", "Free space in the pool", AS_IT_IS),
    ("size", "zfs_pool_size_bytes", "Total size of the pool", AS_IT_IS),
    ("freeing", "zfs_pool_freeing_bytes", "Space of destroyed datasets that is still to be freed", AS_IT_IS),
    (LEAKED.row().name, "zfs_pool_leaked_bytes", "Space that was lost; always 0", AS_IT_IS),
    (READONLY.row().name, "zfs_pool_readonly", "Whether the pool is imported read-only", AS_IT_IS),
    ("capacity", "zfs_pool_capacity_ratio", "Share of the pool that is allocated", OF_PERCENT),
    (EXPANDSIZE.row().name, "zfs_pool_expand_size_bytes", "Space that the pool can grow by", AS_IT_IS),
    (FRAGMENTATION.row().name, "zfs_pool_fragmentation_ratio", "Share of the free space in small pieces", OF_PERCENT),
    (
        DEDUPRATIO.row().name,
        "zfs_pool_deduplication_ratio",
        "Size with deduplication by size without; always 1",
        INVERSE,
    ),
];

/// Numeric properties of a dataset.
const DATASET: [Row; 16] = [
    (AVAILABLE.row().name, "zfs_dataset_available_bytes", "Space available to the dataset", AS_IT_IS),
    (
        LOGICALREFERENCED.row().name,
        "zfs_dataset_logical_referenced_bytes",
        "Referenced space before compression",
        AS_IT_IS,
    ),
    (LOGICALUSED.row().name, "zfs_dataset_logical_used_bytes", "Used space before compression", AS_IT_IS),
    (QUOTA.row().name, "zfs_dataset_quota_bytes", "Quota of the dataset; 0 for none", AS_IT_IS),
    ("referenced", "zfs_dataset_referenced_bytes", "Space that the dataset references", AS_IT_IS),
    (USED.row().name, "zfs_dataset_used_bytes", "Used space with descendants", AS_IT_IS),
    (USEDBYDATASET.row().name, "zfs_dataset_used_by_dataset_bytes", "Used space of the dataset itself", AS_IT_IS),
    (USEDBYSNAPSHOTS.row().name, "zfs_dataset_used_by_snapshot_bytes", "Used space of snapshots", AS_IT_IS),
    (USEDBYCHILDREN.row().name, "zfs_dataset_used_by_children_bytes", "Used space of datasets below", AS_IT_IS),
    ("written", "zfs_dataset_written_bytes", "Space written since the newest snapshot", AS_IT_IS),
    (REFQUOTA.row().name, "zfs_dataset_referenced_quota_bytes", "Quota of the referenced space; 0 for none", AS_IT_IS),
    (RESERVATION.row().name, "zfs_dataset_reservation_bytes", "Space guaranteed with descendants", AS_IT_IS),
    (
        REFRESERVATION.row().name,
        "zfs_dataset_referenced_reservation_bytes",
        "Space guaranteed to the dataset",
        AS_IT_IS,
    ),
    (
        USEDBYREFRESERVATION.row().name,
        "zfs_dataset_used_by_reference_reservation_bytes",
        "Used space of the reservation of the dataset",
        AS_IT_IS,
    ),
    (COMPRESSRATIO.row().name, "zfs_dataset_compression_ratio", "Used space by its size uncompressed", INVERSE),
    (
        REFCOMPRESSRATIO.row().name,
        "zfs_dataset_referenced_compression_ratio",
        "Referenced space by its size uncompressed",
        INVERSE,
    ),
];

/// The format of the answer.
#[derive(Default, Deserialize)]
pub(crate) struct Wanted {
    #[serde(default)]
    format: String,
}

/// All figures of all pools, as text.
pub(crate) async fn metrics(State(app): State<Arc<App>>, _: gate::Reader, Query(wanted): Query<Wanted>) -> Response {
    let collected = spawn_blocking(move || match wanted.format.as_str() {
        "influx" => (INFLUX, influx(&app)),
        _ => (OPENMETRICS, openmetrics(&app)),
    });
    match collected.await {
        Ok((kind, text)) => ([(header::CONTENT_TYPE, kind)], text).into_response(),
        Err(_) => axum::http::StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

pub(crate) type Labels = Vec<(String, String)>;

/// The metrics of an answer.
#[derive(Default)]
pub(crate) struct Metrics(Registry);

impl Metrics {
    /// Adds a gauge; each row has labels and a value.
    pub(crate) fn gauge(&mut self, name: &str, help: &str, rows: impl IntoIterator<Item = (Labels, f64)>) {
        let family = Family::<Labels, Gauge<f64, AtomicU64>>::default();
        for (labels, value) in rows {
            family.get_or_create(&labels).set(value);
        }
        self.0.register(name, help, family);
    }

    /// All metrics, in the format of OpenMetrics.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // The text is kept in memory, so encoding cannot fail.
        let _ = encode(&mut text, &self.0);
        text
    }
}

/// Labels of a series, with escaped values: the encoder writes values as they are, and a device path in the label of a foreign
/// pool may have any bytes.
pub(crate) fn labels(pairs: &[(&str, &str)]) -> Labels {
    let escaped = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    pairs.iter().map(|(name, value)| ((*name).to_owned(), escaped(value))).collect()
}

fn openmetrics(app: &App) -> String {
    let pools: Vec<(String, Arc<Sight>, bool)> =
        app.watch.all().into_iter().map(|(name, seen)| (name, seen.sight(), seen.silence().is_some())).collect();
    let mut metrics = Metrics::default();
    health(&mut metrics, &pools);
    let answering: Vec<&str> = pools
        .iter()
        .filter(|(_, sight, silent)| !silent && sight.failure.is_none())
        .map(|(name, ..)| name.as_str())
        .collect();
    let records: Vec<PoolRecord> = answering.iter().filter_map(|pool| record(app, pool).ok()).collect();
    for (property, name, help, convert) in POOL {
        let rows = records.iter().filter_map(|record| {
            Some((labels(&[("pool", &record.name)]), convert(number(&record.properties, property)?)))
        });
        metrics.gauge(name, help, rows);
    }
    devices(&mut metrics, &pools);
    latency(&mut metrics, &pools);
    caches(&mut metrics, app, &answering);
    files(&mut metrics, app, &answering);
    datasets(&mut metrics, app, &answering);
    metrics.text()
}

/// The value of a property as a number. A property that does not apply, as the space that the pool can grow by, is 0.
fn number(properties: &[PropertyRecord], name: &str) -> Option<f64> {
    match properties.iter().find(|known| known.name == name)?.value.as_str() {
        "on" => Some(1.0),
        "off" | "-" => Some(0.0),
        value => value.parse().ok(),
    }
}

fn health(metrics: &mut Metrics, pools: &[(String, Arc<Sight>, bool)]) {
    let state = |sight: &Sight, silent: bool| match &sight.status {
        Some(status) if !silent => status.state,
        _ => protocol::State::Unavail,
    };
    let number = |present: protocol::State| STATES.iter().position(|state| *state == present).unwrap_or(4) as f64;
    let rows = pools.iter().map(|(name, sight, silent)| (labels(&[("pool", name)]), number(state(sight, *silent))));
    metrics.gauge(
        "zfs_pool_health",
        "Health: 0 online, 1 degraded, 2 faulted, 3 offline, 4 unavailable, 5 removed, 6 suspended",
        rows,
    );
    let rows = pools.iter().flat_map(|(name, sight, silent)| {
        let present = state(sight, *silent);
        STATES.map(|word| {
            let value = if word == present { 1.0 } else { 0.0 };
            (labels(&[("zpool", name), ("state", &word.as_str().to_ascii_lowercase())]), value)
        })
    });
    metrics.gauge("node_zfs_zpool_state", "Whether the pool is in the state", rows);
}

/// Errors of each device.
fn devices(metrics: &mut Metrics, pools: &[(String, Arc<Sight>, bool)]) {
    fn leaves<'a>(vdev: &'a VdevRecord, all: &mut Vec<&'a VdevRecord>) {
        match vdev.members.is_empty() {
            true => all.push(vdev),
            false => vdev.members.iter().for_each(|member| leaves(member, all)),
        }
    }
    let mut rows = Vec::new();
    for (name, sight, _) in pools {
        let mut all = Vec::new();
        sight.status.iter().flat_map(|status| &status.vdevs).for_each(|vdev| leaves(vdev, &mut all));
        for vdev in all.into_iter().take(MOST) {
            for (kind, count) in
                [("read", vdev.read_errors), ("write", vdev.write_errors), ("checksum", vdev.checksum_errors)]
            {
                rows.push((labels(&[("pool", name), ("device", &vdev.path), ("type", kind)]), count as f64));
            }
        }
    }
    metrics.gauge("cenote_device_errors", "Errors of a device since they were cleared", rows);
}

/// Figures of the cache under the names of node_exporter: the metric, and the figures it is the sum of.
const ARC: &[(&str, &[&str])] = &[
    ("node_zfs_arc_hits", &["data_hits", "metadata_hits"]),
    ("node_zfs_arc_misses", &["data_misses", "metadata_misses"]),
    ("node_zfs_arc_demand_data_hits", &["data_hits"]),
    ("node_zfs_arc_demand_data_misses", &["data_misses"]),
    ("node_zfs_arc_demand_metadata_hits", &["metadata_hits"]),
    ("node_zfs_arc_demand_metadata_misses", &["metadata_misses"]),
    ("node_zfs_arc_l2_hits", &["device_hits"]),
    ("node_zfs_arc_l2_misses", &["device_misses"]),
    ("node_zfs_arc_l2_size", &["device_size"]),
    ("node_zfs_arc_l2_hdr_size", &["device_index_size"]),
    ("node_zfs_arc_size", &["size"]),
    ("node_zfs_arc_c", &["target"]),
    ("node_zfs_arc_c_max", &["target"]),
    ("node_zfs_arc_data_size", &["data_size"]),
    ("node_zfs_arc_metadata_size", &["metadata_size"]),
];

/// Lookups and sizes of the caches, by pool and for the machine: the service of each pool has a cache of its own.
fn caches(metrics: &mut Metrics, app: &App, pools: &[&str]) {
    let (mut rows, mut all) = (BTreeMap::<&str, Vec<(Labels, f64)>>::new(), BTreeMap::<&str, f64>::new());
    for pool in pools {
        let answer = app.reader(app.config.owner).call(pool, PoolRequest::CacheFigures.into(), None, &mut |_| Ok(None));
        let Ok(protocol::Response::Cache(sample)) = answer else { continue };
        for (name, _, value) in cache_figures(&sample.figures, sample.resident) {
            rows.entry(name).or_default().push((labels(&[("pool", pool)]), value as f64));
            for (arc, parts) in ARC {
                *all.entry(*arc).or_default() += if parts.contains(&name) { value as f64 } else { 0.0 };
            }
        }
    }
    for (name, rows) in rows {
        metrics.gauge(&format!("cenote_cache_{name}"), "A figure of pool stat --cache", rows);
    }
    for (name, value) in all {
        metrics.gauge(name, "A figure of the caches of all pools", [(Labels::new(), value)]);
    }
}

/// A figure of the requests to a mount.
type FileFigure = fn(&FileCounts) -> u64;

/// Requests of the kernel to each mount: a figure, and its name in node_exporter or here.
const FILES: [(&str, FileFigure); 9] = [
    ("node_zfs_zpool_dataset_reads", |counts| counts.reads),
    ("node_zfs_zpool_dataset_nread", |counts| counts.read_bytes),
    ("node_zfs_zpool_dataset_writes", |counts| counts.writes),
    ("node_zfs_zpool_dataset_nwritten", |counts| counts.written_bytes),
    ("node_zfs_zpool_dataset_nunlinks", |counts| counts.name_removals),
    ("cenote_dataset_new_files", |counts| counts.new_files),
    ("cenote_dataset_lookups", |counts| counts.lookups),
    ("cenote_dataset_attribute_gets", |counts| counts.attribute_gets),
    ("cenote_dataset_directory_reads", |counts| counts.directory_reads),
];

/// The requests to each mount since the mount; at most [`MOST`] mounts.
fn files(metrics: &mut Metrics, app: &App, pools: &[&str]) {
    let mut samples = Vec::<FileSample>::new();
    for pool in pools {
        let answer =
            app.reader(app.config.owner).call(pool, MountRequest::FileCounters.into(), None, &mut |_| Ok(None));
        if let Ok(protocol::Response::FileCounters(more)) = answer {
            samples.extend(more);
        }
    }
    samples.truncate(MOST);
    for (name, figure) in FILES {
        let rows = samples.iter().map(|sample| {
            let dataset = sample.dataset.as_str();
            (labels(&[("zpool", sample.dataset.pool()), ("dataset", dataset)]), figure(&sample.counts) as f64)
        });
        metrics.gauge(name, "Requests of the kernel, or their bytes, since the mount", rows);
    }
}

fn datasets(metrics: &mut Metrics, app: &App, pools: &[&str]) {
    let mut all: Vec<DatasetRecord> = Vec::new();
    let mut left_out = 0;
    for pool in pools {
        let records = list(app, pool).unwrap_or_default();
        let room = MOST - all.len();
        left_out += records.len().saturating_sub(room);
        all.extend(records.into_iter().take(room));
    }
    for (property, name, help, convert) in DATASET {
        let rows = all.iter().filter_map(|record| {
            let own = [("name", record.name.as_str()), ("pool", record.name.pool()), ("type", "filesystem")];
            Some((labels(&own), convert(number(&record.properties, property)?)))
        });
        metrics.gauge(name, help, rows);
    }
    metrics.gauge("cenote_datasets_left_out", "Datasets without series", [(Labels::new(), left_out as f64)]);
}

fn record(app: &App, pool: &str) -> Result<PoolRecord, Failure> {
    let properties = POOL.map(|(property, ..)| property.to_owned()).to_vec();
    let request = PoolRequest::Pool { properties, vdevs: false };
    match app.reader(app.config.owner).call(pool, request.into(), None, &mut |_| Ok(None))? {
        protocol::Response::Pool(record) => Ok(record),
        _ => Err(protocol::unexpected_answer()),
    }
}

fn list(app: &App, pool: &str) -> Result<Vec<DatasetRecord>, Failure> {
    let request = DatasetRequest::List {
        root: Some(pool.parse::<Name>().map_err(|error| Failure::cannot("list", pool, error))?),
        depth: None,
        kinds: Kinds::FILESYSTEM,
        properties: DATASET.map(|(property, ..)| property.to_owned()).to_vec(),
        range: None,
    };
    crate::ask::collect(&mut *app.reader(app.config.owner), pool, request.into(), (crate::ask::MOST, Some))
        .map(|(records, _)| records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_forges_no_line() {
        let forged = "m2\"} 1\nzfs_pool_health{pool=\"tank\\";
        assert_eq!(labels(&[("vdev", forged)])[0].1, r#"m2\"} 1\nzfs_pool_health{pool=\"tank\\"#);
    }
}
