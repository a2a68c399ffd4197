//! Requests about passes over free space: trim and initialization. The jobs run in the thread of [`super::jobs`].

use std::thread;

use dataset::jobs::{Detail, JobState, Kind, Pass};
use pool::{units::VdevId, vdev::Leaf};
use protocol::{Failure, PassRecord, PassState, Response};

use super::{
    job::Job,
    open_pool::OpenPool,
    orders::{WATCH, action, doing},
    refusal::OrRefused,
};

const NANOS: i64 = 1_000_000_000;

impl OpenPool {
    /// The passes of a kind.
    pub(super) fn passes(&self, kind: Kind) -> Pass<'_> {
        if kind == Kind::Trim { self.datasets.trim() } else { self.datasets.initialization() }
    }

    /// Starts or resumes a pass over all vdevs, or the vdevs with these devices. Without a service, the command itself
    /// has to wait for the pass, and the response tells the bytes trimmed or written.
    pub(super) fn start_pass(
        &self,
        kind: Kind,
        devices: &[String],
        limit: Option<u64>,
        job: &mut Job<'_>,
    ) -> Result<Response, Failure> {
        let vdevs = self.vdevs_of(kind, devices)?;
        self.passes(kind).start(&vdevs, limit).or_refused(action(kind), self.name())?;
        self.jobs.wake();
        match self.mounts {
            Some(_) => Ok(Response::Done),
            None => self.wait_for_pass(kind, &vdevs, job).map(Response::Bytes),
        }
    }

    /// The bytes to be trimmed or written by a pass.
    pub(super) fn plan_pass(&self, kind: Kind, devices: &[String]) -> Result<u64, Failure> {
        let vdevs = self.vdevs_of(kind, devices)?;
        self.passes(kind).plan(&self.pool, &vdevs).or_refused(action(kind), self.name())
    }

    pub(super) fn vdevs_of(&self, kind: Kind, devices: &[String]) -> Result<Vec<VdevId>, Failure> {
        self.engine().writable().or_refused(action(kind), self.name())?;
        if devices.is_empty() {
            let vdevs = self.engine().storage().vdevs.all();
            return Ok(vdevs.iter().filter(|vdev| !vdev.is_lost()).map(|vdev| vdev.id()).collect());
        }
        let vdev = |name: &String| match self.pool.find_device(name) {
            Ok((vdev, _)) => Ok(vdev),
            Err(_) => self.pool.find_vdev(name),
        };
        devices.iter().map(|name| Ok(vdev(name).or_refused(action(kind), name)?.id())).collect()
    }

    /// Waits for passes over vdevs. Returns the bytes trimmed or written. An error if a pass is suspended, was canceled
    /// or has failed.
    pub(super) fn wait_for_pass(&self, kind: Kind, vdevs: &[VdevId], job: &mut Job<'_>) -> Result<u64, Failure> {
        let what = format!("{} {}", doing(kind), self.name());
        let refused = |why: &str| Err(Failure::cannot(action(kind), self.name(), why));
        loop {
            let (mut handled, mut is_running) = (0, false);
            for vdev in vdevs {
                let Some(record) = self.passes(kind).record_of(*vdev) else { return refused("it was canceled") };
                match record.state {
                    JobState::Running => is_running = true,
                    JobState::Finished => {}
                    JobState::Paused => return refused("it was suspended"),
                    _ => return refused(record.why().unwrap_or_default()),
                }
                if let Detail::Pass { bytes } = record.detail {
                    handled += bytes;
                }
            }
            if !is_running {
                return Ok(handled);
            }
            self.engine().writable().or_refused(action(kind), self.name())?;
            job.check()?;
            job.report(&what, handled, None);
            thread::sleep(WATCH);
        }
    }

    /// The status of a pass on a device, for `pool status -t` and `-i`.
    pub(super) fn pass_record(&self, kind: Kind, vdev: VdevId, leaf: &Leaf) -> PassRecord {
        if kind == Kind::Trim && !leaf.device().can_discard() {
            return PassRecord::idle(PassState::Unsupported);
        }
        let Some(pass) = self.passes(kind).record_of(vdev) else { return PassRecord::idle(PassState::Idle) };
        let state = match pass.state {
            JobState::Running => PassState::Active,
            JobState::Paused => PassState::Suspended,
            JobState::Finished => PassState::Complete,
            JobState::Failed(_) => PassState::Failed,
            _ => PassState::Idle,
        };
        let percent = pass.done.checked_mul(100).and_then(|done| done.checked_div(pass.total)).unwrap_or(0);
        PassRecord {
            state,
            percent: if state == PassState::Complete { 100 } else { percent },
            bytes: if let Detail::Pass { bytes } = pass.detail { bytes } else { 0 },
            total: pass.total,
            start: pass.begun.div_euclid(NANOS),
            end: match state {
                PassState::Complete | PassState::Failed => pass.ended.div_euclid(NANOS),
                _ => 0,
            },
        }
    }
}
