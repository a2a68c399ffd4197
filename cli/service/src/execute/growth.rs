//! Devices enlarged while their pool is open: the service notices, and with `autoexpand=on` the pool uses the added
//! space. A shrunk device does not count as enlarged, no matter how large its file is; its released space returns
//! only on request.

use std::time::Duration;

use dataset::{admin::Datasets, jobs::Job as _, property::pool::AUTOEXPAND};
use pool::{admin::Pool, size::format_bytes};
use protocol::Failure;

use super::{open_pool::OpenPool, refusal::OrRefused, spares::note};

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

impl OpenPool {
    /// Expands the vdev of a device into the added space of its devices.
    pub(super) fn expand_vdev_of(&self, device: &str) -> Result<(), Failure> {
        const ACTION: &str = "expand";
        self.pool.remeasure().or_refused(ACTION, device)?;
        let (vdev, _) = self.pool.find_device(device).or_refused(ACTION, device)?;
        if self.datasets.resize().is_under_way() {
            let why = "a resize is under way; use pool resize -s to stop it";
            return Err(Failure::cannot(ACTION, device, why));
        }
        self.pool.regain(vdev.id()).or_refused(ACTION, device)?;
        self.pool.expand(Some(vdev.id())).or_refused(ACTION, device)?;
        // The expansion may leave narrow rows in a RAID-Z, for a job to widen.
        self.jobs.wake();
        Ok(())
    }

    /// Measures the devices.
    pub(super) fn remeasure(&self) -> Result<(), Failure> {
        self.pool.remeasure().or_refused("reopen", self.name()).map(drop)
    }
}
