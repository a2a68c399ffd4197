//! Requests about trim. The job runs in the thread of [`super::jobs`].

use std::thread;

use dataset::jobs::{Detail, JobState};
use pool::{units::VdevId, vdev::Leaf};
use protocol::{Failure, Response, TrimRecord, TrimState};

use super::{job::Job, open_pool::OpenPool, orders::WATCH, refusal::OrRefused};

const NANOS: i64 = 1_000_000_000;
const ACTION: &str = "trim";

impl OpenPool {
    /// Starts or resumes a trim of all vdevs, or of the vdevs with these devices. Without a service, the command itself
    /// has to wait for the trim, and the response tells the bytes trimmed.
    pub(super) fn trim(&self, devices: &[String], limit: Option<u64>, job: &mut Job<'_>) -> Result<Response, Failure> {
        let vdevs = self.trimmed_vdevs(devices)?;
        self.datasets.trim().start(&vdevs, limit).or_refused(ACTION, self.name())?;
        self.jobs.wake();
        match self.mounts {
            Some(_) => Ok(Response::Done),
            None => self.wait_for_trim(&vdevs, job).map(Response::Bytes),
        }
    }

    /// The bytes that a trim would discard.
    pub(super) fn plan_trim(&self, devices: &[String]) -> Result<u64, Failure> {
        let plan = |vdev: &VdevId| self.pool.plan_trim(*vdev).or_refused(ACTION, self.name());
        self.trimmed_vdevs(devices)?.iter().map(plan).sum()
    }

    pub(super) fn trimmed_vdevs(&self, devices: &[String]) -> Result<Vec<VdevId>, Failure> {
        self.engine().writable().or_refused(ACTION, self.name())?;
        if devices.is_empty() {
            let vdevs = self.engine().storage().vdevs.all();
            return Ok(vdevs.iter().filter(|vdev| !vdev.is_lost()).map(|vdev| vdev.id()).collect());
        }
        let vdev = |name: &String| match self.pool.find_device(name) {
            Ok((vdev, _)) => Ok(vdev),
            Err(_) => self.pool.find_vdev(name),
        };
        devices.iter().map(|name| Ok(vdev(name).or_refused(ACTION, name)?.id())).collect()
    }

    /// Waits for trims of vdevs. Returns the bytes trimmed. An error if a trim is suspended, was canceled or has failed.
    pub(super) fn wait_for_trim(&self, vdevs: &[VdevId], job: &mut Job<'_>) -> Result<u64, Failure> {
        let what = format!("trimming {}", self.name());
        let refused = |why: &str| Err(Failure::cannot(ACTION, self.name(), why));
        loop {
            let (mut trimmed, mut is_running) = (0, false);
            for vdev in vdevs {
                let Some(record) = self.datasets.trim().record_of(*vdev) else { return refused("it was canceled") };
                match record.state {
                    JobState::Running => is_running = true,
                    JobState::Finished => {}
                    JobState::Paused => return refused("it was suspended"),
                    _ => return refused(record.why().unwrap_or_default()),
                }
                if let Detail::Trim { bytes } = record.detail {
                    trimmed += bytes;
                }
            }
            if !is_running {
                return Ok(trimmed);
            }
            self.engine().writable().or_refused(ACTION, self.name())?;
            job.check()?;
            job.report(&what, trimmed, None);
            thread::sleep(WATCH);
        }
    }

    /// The trim status of a device, for `pool status -t`.
    pub(super) fn trim_record(&self, vdev: VdevId, leaf: &Leaf) -> TrimRecord {
        let record = |state, percent, start, end| TrimRecord { state, percent, start, end };
        let Some(trim) = self.datasets.trim().record_of(vdev).filter(|_| leaf.device().can_discard()) else {
            let can_discard = leaf.device().can_discard();
            return record(if can_discard { TrimState::Untrimmed } else { TrimState::Unsupported }, 0, 0, 0);
        };
        let (start, end) = (trim.begun.div_euclid(NANOS), trim.ended.div_euclid(NANOS));
        let percent = trim.done.checked_mul(100).and_then(|done| done.checked_div(trim.total)).unwrap_or(0);
        match trim.state {
            JobState::Running => record(TrimState::Active, percent, start, 0),
            JobState::Paused => record(TrimState::Suspended, percent, start, 0),
            JobState::Finished => record(TrimState::Complete, 100, start, end),
            _ => record(TrimState::Untrimmed, 0, start, 0),
        }
    }
}
