//! What a service does with devices by itself: failed devices are replaced, spares step in, and added space is used.
//!
//! A device may be enlarged while its pool is open. The service notices, and with `autoexpand=on` the pool uses the
//! added space. A shrunk device does not count as enlarged, no matter how large its file is; its released space returns
//! only on request.

use std::time::Duration;

use dataset::{
    admin::Datasets,
    jobs::{DueScrub, Job as _},
    property::pool::{AUTOEXPAND, AUTOREPLACE},
};
use pool::{
    admin::{Pool, SpareChange},
    size::format_bytes,
};

use super::devices;

/// Interval between two measurements of the devices.
const INTERVAL: Duration = Duration::from_secs(3);

/// Uptime of the environment at which the next measurement is due.
pub(super) struct Watch(Duration);

impl Watch {
    /// The first measurement is due after an interval: opening the pool has just measured the devices.
    pub(super) fn new(now: Duration) -> Watch {
        Watch(now + INTERVAL)
    }

    /// Measures the devices when due, and expands the pool if `autoexpand` is on.
    pub(super) fn step(&mut self, datasets: &Datasets, pool: &Pool) {
        let now = pool.engine().env().uptime();
        if now < self.0 || pool.engine().writable().is_err() || pool.engine().suspension().is_suspended() {
            return;
        }
        match pool.remeasure() {
            Ok(false) => {}
            Ok(true) => {
                tracing::info!("devices of pool '{}' have grown", pool.name());
                report_outgrown(pool);
            }
            Err(error) => tracing::warn!("devices that have grown cannot be taken note of: {error}"),
        }
        // Even without news: `autoexpand` may have been set since, or a device replaced by a larger device.
        expand_if_wanted(datasets, pool);
        self.0 = pool.engine().env().uptime() + INTERVAL;
    }
}

/// Logs the vdevs that cannot use the added space of their devices.
pub(super) fn report_outgrown(pool: &Pool) {
    pool.outgrown().iter().for_each(|(_, why)| tracing::warn!("{why}"));
}

/// Expands the pool into known added space, if `autoexpand` is on.
pub(super) fn expand_if_wanted(datasets: &Datasets, pool: &Pool) {
    let is_wanted = || datasets.pool_setting(&AUTOEXPAND);
    // A resize shrinks a device; no expansion meanwhile.
    if pool.engine().read_only() || datasets.resize().is_under_way() || pool.growth() == 0 || !is_wanted() {
        return;
    }
    match pool.expand(None) {
        Ok(0) => {}
        Ok(bytes) => note(datasets, &format!("expanded by {}", format_bytes(bytes))),
        Err(error) => tracing::warn!("space added to devices is not used: {error}"),
    }
}

/// One automatic step: replaces a failed device by a new device at its path, if `autoreplace` is on, and moves spares
/// into use or back to AVAIL. The history records each action. Failed actions are retried in the next step.
pub(super) fn replace_failed(datasets: &Datasets, pool: &Pool) {
    let is_wanted = || datasets.pool_setting(&AUTOREPLACE);
    match pool.autoreplace_step(&is_wanted, &|path| devices::open_new(path)) {
        Ok(replaced) => {
            replaced.iter().for_each(|path| note(datasets, &format!("replaced {path} by the new device at its path")))
        }
        Err(error) => tracing::warn!("what has failed is not replaced: {error}"),
    }
    match pool.spare_step() {
        Ok(changes) => changes.iter().for_each(|change| note(datasets, &described(change))),
        Err(error) => tracing::warn!("spares cannot step in: {error}"),
    }
}

/// Starts a due scrub at a good moment. The history records the start.
pub(super) fn start_due_scrub(datasets: &Datasets, due: &mut DueScrub) {
    match due.step(datasets) {
        Ok(true) => note(datasets, "started a scrub that was due"),
        Ok(false) => {}
        Err(error) => tracing::warn!("a scrub that is due cannot start: {error}"),
    }
}

fn described(change: &SpareChange) -> String {
    match change {
        SpareChange::InUse { spare, device } => format!("spare {spare} replaced {device}"),
        SpareChange::Available { spare } => format!("spare {spare} is available again"),
        SpareChange::Faulted { device } => format!("faulted {device}: too many errors"),
    }
}

/// Adds an internal line to the pool's history.
fn note(datasets: &Datasets, what: &str) {
    if let Err(error) = datasets.record(what, "", &devices::host().1) {
        tracing::warn!("the history lacks '{what}': {error}");
    }
}
