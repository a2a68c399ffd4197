//! Requests about shrinking devices. The job runs in the thread of [`super::jobs`].

use std::thread;

use dataset::{catalogue::ResizeRow, jobs::Job as _};
use pool::{
    admin::Wanted,
    size::{format_bytes, format_bytes_up},
};
use protocol::{Failure, NewSize, RemovalEnd, ResizePlan, ResizeRecord};

use super::{
    job::Job,
    open_pool::OpenPool,
    rebalance::{Stood, WATCH},
    refusal::OrRefused,
};

const ACTION: &str = "resize";

impl OpenPool {
    /// Starts to shrink a device; with `dry_run`, only returns the plan.
    pub(super) fn resize(
        &self,
        device: &str,
        size: NewSize,
        limit: Option<u64>,
        dry_run: bool,
        job: &mut Job<'_>,
    ) -> Result<ResizePlan, Failure> {
        let wanted = match size {
            NewSize::To(size) => Wanted::To(size),
            NewSize::By(less) => Wanted::By(less),
        };
        let plan = self.pool.plan_shrink(device, wanted).or_refused(ACTION, device)?;
        let moving = plan.moving;
        let (needed, available) = match moving.fits_whole() {
            true => (moving.needed, moving.available),
            false => (moving.packed, moving.spare),
        };
        let shown = ResizePlan {
            name: plan.name.clone(),
            asked: plan.asked,
            size: plan.size,
            bytes: moving.bytes,
            needed,
            available,
            region: moving.region,
            least: plan.least,
            is_done: !dry_run && self.mounts.is_none(),
        };
        if dry_run {
            return Ok(shown);
        }
        if !self.datasets.resize().is_under_way() && !moving.fits() {
            let why = format!(
                "the data at its end needs {needed} empty regions of {} elsewhere, and {available} are available",
                format_bytes(moving.region)
            );
            let least = format_bytes_up(plan.least);
            let hint = format!("smallest possible size: {least}; free some space, or add a device: pool add");
            return Err(Failure::cannot(ACTION, device, why).hint(hint));
        }
        self.datasets.resize().start(&plan, limit).or_refused(ACTION, device)?;
        self.jobs.wake();
        if self.mounts.is_none() {
            // Without a service, the command itself has to wait for the job.
            self.wait_for_resize(job)?;
        }
        Ok(shown)
    }

    /// Waits for a running resize. Returns the devices larger than the space used by the pool.
    pub(super) fn wait_for_resize(&self, job: &mut Job<'_>) -> Result<Vec<String>, Failure> {
        loop {
            let Some(ResizeRecord { moved, name, obstacle, .. }) = self.resize_record() else { return Ok(Vec::new()) };
            let refused = |why: &str| Err(Failure::cannot(ACTION, &name, why));
            match moved.ended {
                None if moved.paused => return refused("it is paused"),
                None => {}
                Some(RemovalEnd::Finished) => return Ok(self.larger_devices()),
                Some(RemovalEnd::Canceled) => return refused("it was stopped"),
                Some(RemovalEnd::Unreadable) => return refused("data at its end could not be read"),
                Some(RemovalEnd::NoRoom) => return refused("too few empty regions on other vdevs"),
            }
            self.engine().writable().or_refused(ACTION, &name)?;
            if let Some(obstacle) = obstacle.filter(|_| !self.is_filling()) {
                return refused(&obstacle);
            }
            job.check()?;
            job.tell(&format!("emptying the end of {name}"), moved.copied, Some(moved.total.max(moved.copied)));
            thread::sleep(WATCH);
        }
    }

    /// Devices of the last resized vdev that are larger than the space used by the pool.
    fn larger_devices(&self) -> Vec<String> {
        let label = self.pool.label();
        let last = self.datasets.resize().status().map(|row| row.vdev);
        let vdevs = self.engine().storage().vdevs.all();
        let leaves = vdevs.iter().filter(|vdev| Some(u64::from(vdev.id().0)) == last).flat_map(|vdev| vdev.leaves());
        let larger = leaves.filter(|leaf| label.end_of(leaf.guid()).is_some());
        larger.map(|leaf| leaf.name().to_owned()).collect()
    }

    /// The running or the last resize.
    pub(super) fn resize_record(&self) -> Option<ResizeRecord> {
        let ResizeRow { state, name, size, start, end, total, copied, errors, .. } = self.datasets.resize().status()?;
        let mut moved = self.batches_record(Stood { state, start, end, total, copied, errors });
        if moved.ended.is_none() {
            moved.seconds = self.seconds_at_work(start);
        }
        let obstacle = self.datasets.resize().obstacle();
        Some(ResizeRecord { moved, name, size, obstacle })
    }
}
