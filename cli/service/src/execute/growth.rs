//! Added space of devices, used on request. With `autoexpand=on` a service uses the space by itself: see `automatic`.

use dataset::jobs::Job as _;
use protocol::Failure;

use super::{open_pool::OpenPool, refusal::OrRefused};

impl OpenPool {
    /// Expands the vdev of a device into the added space of its devices.
    pub(super) fn expand_vdev_of(&self, device: &str) -> Result<(), Failure> {
        const ACTION: &str = "expand";
        self.pool.remeasure().or_refused(ACTION, device)?;
        let (vdev, _) = self.pool.find_device(device).or_refused(ACTION, device)?;
        if self.datasets.resize().is_under_way() {
            let why = "a resize is in progress; use pool resize -s to stop it";
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
