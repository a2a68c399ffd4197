//! What devices have grown while their pool was open: noticed by the service, and used if that is wanted. One that was made
//! smaller has not grown, however large it is; what it has given up is taken back when somebody asks for it.

use std::time::Duration;

use dataset::{admin::Datasets, jobs::Job as _, property::pool::AUTOEXPAND};
use pool::{admin::Pool, size::format_bytes};
use protocol::Failure;

use super::{open_pool::OpenPool, refusal::OrRefused, spares::note};

/// How often the devices are measured.
const INTERVAL: Duration = Duration::from_secs(3);

/// The uptime of the environment at which the devices are measured again.
pub(super) struct Watch(Duration);

impl Watch {
    /// Opening has just measured them.
    pub(super) fn new(now: Duration) -> Watch {
        Watch(now + INTERVAL)
    }

    /// Takes note of what has grown, if it is time, and has the pool use it if it is to.
    pub(super) fn step(&mut self, datasets: &Datasets, pool: &Pool) {
        let now = pool.engine().env().uptime();
        if now < self.0 || pool.engine().writable().is_err() || pool.engine().suspension().is_suspended() {
            return;
        }
        match pool.remeasure() {
            Ok(false) => {}
            Ok(true) => {
                tracing::info!("devices of pool '{}' have grown", pool.name());
                tell_outgrown(pool);
            }
            Err(error) => tracing::warn!("devices that have grown cannot be taken note of: {error}"),
        }
        // Also without news: the property may have been set since, or a larger device have taken another one's place.
        expand_if_wanted(datasets, pool);
        self.0 = pool.engine().env().uptime() + INTERVAL;
    }
}

/// Says which vdevs cannot use what their devices have grown.
pub(super) fn tell_outgrown(pool: &Pool) {
    pool.outgrown().iter().for_each(|(_, why)| tracing::warn!("{why}"));
}

/// Has the pool use what is known to have grown, if its property says so.
pub(super) fn expand_if_wanted(datasets: &Datasets, pool: &Pool) {
    let is_wanted = || datasets.pool_setting(&AUTOEXPAND);
    // What becomes smaller does not become larger meanwhile.
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
    /// Has the vdev of a device use what its devices have grown.
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
        // Rows of a raidz may have become narrow by it.
        self.jobs.wake();
        Ok(())
    }

    /// Takes note of what has grown.
    pub(super) fn remeasure(&self) -> Result<(), Failure> {
        self.pool.remeasure().or_refused("reopen", self.name()).map(drop)
    }
}
