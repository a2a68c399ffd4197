//! Requests about device removal. The job runs in the thread of [`super::jobs`].

use dataset::jobs::{Job as _, Kind};
use pool::size::format_bytes;
use protocol::{Failure, RemovalPlan};

use super::{job::Job, layout, open_pool::OpenPool, refusal::OrRefused};

const ACTION: &str = "remove";

impl OpenPool {
    /// Starts the removal of a vdev; with `dry_run`, only returns the plan.
    pub(super) fn remove(
        &self,
        name: &str,
        limit: Option<u64>,
        dry_run: bool,
        job: &mut Job<'_>,
    ) -> Result<RemovalPlan, Failure> {
        if self.pool.spares().iter().any(|spare| spare.leaf.name() == name || spare.leaf.guid().to_string() == name) {
            return self.remove_spare(name, dry_run);
        }
        if self.pool.find_cache(name).is_some() {
            return self.remove_cache(name, dry_run);
        }
        let vdev = self.pool.find_vdev(name).or_refused(ACTION, name)?;
        let plan = self.pool.plan_removal(vdev.id()).or_refused(ACTION, name)?;
        let shown = RemovalPlan {
            vdev: layout::name_of(&*vdev),
            bytes: plan.bytes,
            needed: if plan.fits_whole() { plan.needed } else { plan.packed },
            available: if plan.fits_whole() { plan.available } else { plan.spare },
            region: plan.region,
            left: None,
        };
        if dry_run {
            return Ok(shown);
        }
        if !self.datasets.removal().is_under_way() && !plan.fits() {
            let why = format!(
                "its data needs {} empty regions of {} on other vdevs, and {} are available",
                plan.packed,
                format_bytes(plan.region),
                plan.spare
            );
            return Err(Failure::cannot(ACTION, name, why).hint("free some space, or add a device: pool add"));
        }
        self.datasets.removal().start(vdev.id(), &shown.vdev, plan.bytes, limit).or_refused(ACTION, name)?;
        self.work_at(Kind::Remove, job)?;
        Ok(shown)
    }

    /// Removes an AVAIL spare, which needs no job.
    fn remove_spare(&self, name: &str, dry_run: bool) -> Result<RemovalPlan, Failure> {
        if !dry_run {
            self.pool.remove_spare(name).or_refused(ACTION, name)?;
        }
        let left = (!dry_run).then(|| self.layout());
        Ok(RemovalPlan { vdev: name.to_owned(), bytes: 0, needed: 0, available: 0, region: 0, left })
    }
}
