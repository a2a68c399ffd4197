//! Requests about shrinking devices. The job runs in the thread of [`super::jobs`].

use dataset::jobs::{Job as _, Kind};
use pool::{
    admin::Wanted,
    size::{format_bytes, format_bytes_up},
};
use protocol::{Failure, NewSize, ResizePlan};

use super::{job::Job, open_pool::OpenPool, refusal::OrRefused};

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
        self.work_at(Kind::Resize, job)?;
        Ok(shown)
    }

    /// Devices of the last resized vdev that are larger than the space used by the pool.
    pub(super) fn larger_devices(&self) -> Vec<String> {
        let label = self.pool.label();
        let last = self.datasets.resize().status().map(|row| row.vdev);
        let vdevs = self.engine().storage().vdevs.all();
        let leaves = vdevs.iter().filter(|vdev| Some(u64::from(vdev.id().0)) == last).flat_map(|vdev| vdev.leaves());
        let larger = leaves.filter(|leaf| label.end_of(leaf.guid()).is_some());
        larger.map(|leaf| leaf.name().to_owned()).collect()
    }
}
