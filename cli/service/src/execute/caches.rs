//! Cache devices: adding, removing, bringing online, and display.

use std::sync::Arc;

use pool::vdev::{Health, Leaf};
use protocol::{CacheSample, Failure, IoCounts, RemovalPlan, VdevKind, VdevRecord, VdevRole, VdevSpec};

use super::{devices::NewDevices, memory, open_pool::OpenPool, refusal::OrRefused};

impl OpenPool {
    /// Takes devices and adds the devices as cache devices.
    pub(crate) fn add_caches(&self, caches: &[VdevSpec], force: bool) -> Result<(), Failure> {
        const ACTION: &str = "add to";
        if caches.is_empty() {
            return Ok(());
        }
        let taken = NewDevices::take(caches, ACTION, self.name().as_str(), force)?;
        let devices = taken.devices();
        // From here on a label may name the devices, even after a failure.
        taken.keep();
        self.pool.add_caches(&devices).or_refused(ACTION, self.name())
    }

    /// Removes a cache device at once, because no data has to move.
    pub(super) fn remove_cache(&self, name: &str, dry_run: bool) -> Result<RemovalPlan, Failure> {
        let bytes = self.pool.find_cache(name).map_or(0, |leaf| self.engine().secondary().held(leaf.guid()));
        if !dry_run {
            self.pool.remove_cache(name).or_refused("remove", name)?;
        }
        let left = (!dry_run).then(|| self.layout());
        Ok(RemovalPlan { vdev: name.to_owned(), bytes, needed: 0, available: 0, region: 0, left })
    }

    /// Brings failed or missing cache devices back online: all, or only `device`. A device that is still missing
    /// stays out of use.
    pub(super) fn take_caches_back(&self, device: Option<&str>) {
        let is_out = |leaf: &Arc<Leaf>| matches!(leaf.health(), Health::Faulted | Health::Unavailable);
        for leaf in self.pool.caches().iter().filter(|leaf| is_out(leaf)) {
            let (name, guid) = (leaf.name(), leaf.guid().to_string());
            if device.is_none_or(|device| device == name || device == guid)
                && let Err(error) = self.pool.put_online(&guid, &|path| self.reopen(path))
            {
                tracing::warn!("the cache device {name} stays out of use: {error}");
            }
        }
    }

    /// Paths of the pool's cache devices.
    pub(super) fn cache_paths(&self) -> Vec<String> {
        self.pool.caches().iter().map(|leaf| leaf.name().to_owned()).collect()
    }

    /// The cache devices, as shown by `pool status` and `pool list`.
    pub(super) fn cache_records(&self) -> Vec<VdevRecord> {
        let record = |leaf: &Arc<Leaf>| {
            let counts = leaf.counters().snapshot();
            let (state, note) = self.images.sight().state(leaf);
            VdevRecord {
                kind: VdevKind::Disk,
                role: VdevRole::Cache,
                path: leaf.name().to_owned(),
                members: Vec::new(),
                note,
                guid: leaf.guid().0,
                state,
                size: leaf.size(),
                allocated: self.engine().secondary().held(leaf.guid()),
                fragmentation: 0,
                read_errors: counts.read_errors,
                write_errors: counts.write_errors,
                checksum_errors: counts.checksum_errors,
                trim: None,
                initialization: None,
                slow: Some(leaf.meter().slow()),
            }
        };
        self.pool.caches().iter().map(record).collect()
    }

    /// Counters of the cache devices, which are not part of the pool's totals.
    pub(super) fn cache_counts(&self) -> Vec<IoCounts> {
        let counts = |leaf: &Arc<Leaf>| {
            let counts = leaf.counters().snapshot();
            let allocated = self.engine().secondary().held(leaf.guid());
            IoCounts {
                name: leaf.name().to_owned(),
                role: VdevRole::Cache,
                allocated,
                free: leaf.size().saturating_sub(allocated),
                reads: counts.reads,
                writes: counts.writes,
                read_bytes: counts.read_bytes,
                written_bytes: counts.written_bytes,
                flow: leaf.meter().snapshot(),
                members: Vec::new(),
            }
        };
        self.pool.caches().iter().map(counts).collect()
    }

    /// Figures of the caches since import, and the memory of this process.
    pub(super) fn cache_figures(&self) -> CacheSample {
        CacheSample { elapsed: self.elapsed(), figures: self.engine().cache_figures(), resident: memory::resident() }
    }

    /// Time since import, in nanoseconds.
    pub(super) fn elapsed(&self) -> u64 {
        self.engine().env().uptime().saturating_sub(self.opened).as_nanos().try_into().unwrap_or(u64::MAX)
    }

    /// Path of a cache device that is missing or failed, if any.
    pub(super) fn cache_out(&self) -> Option<String> {
        let is_out = |leaf: &Arc<Leaf>| matches!(leaf.health(), Health::Faulted | Health::Unavailable);
        self.pool.caches().iter().find(|leaf| is_out(leaf)).map(|leaf| leaf.name().to_owned())
    }
}
