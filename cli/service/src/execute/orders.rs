//! Orders to jobs: an [`Order`] for a [`Kind`]. The file of each kind, beside this one, plans, starts and waits;
//! pause and stop are common to all.

use dataset::jobs::Kind;
use protocol::{Failure, JobTarget, Order, Response};

use super::{job::Job, open_pool::OpenPool, refusal::OrRefused};

impl OpenPool {
    pub(super) fn order(&self, kind: Kind, order: Order, job: &mut Job<'_>) -> Result<Response, Failure> {
        match order {
            Order::Plan(target) => self.begin_job(kind, target, None, true, job),
            Order::Start { target, limit } => self.begin_job(kind, target, limit, false, job),
            Order::Pause => {
                let paused = kind.of(&self.datasets).pause();
                paused.or_refused(&verb("pause", kind), self.name()).map(|()| Response::Done)
            }
            Order::Stop => {
                let stopped = kind.of(&self.datasets).stop(&self.pool);
                stopped.or_refused(&verb("stop", kind), self.name()).map(|()| Response::Done)
            }
            Order::Wait(target) => self.wait_for_job(kind, target, job),
        }
    }

    fn begin_job(
        &self,
        kind: Kind,
        target: JobTarget,
        limit: Option<u64>,
        dry_run: bool,
        job: &mut Job<'_>,
    ) -> Result<Response, Failure> {
        let done = |()| Response::Done;
        match (kind, target) {
            (Kind::Remove, JobTarget::Device(vdev)) => self.remove(&vdev, limit, dry_run, job).map(Response::Removal),
            (Kind::Resize, JobTarget::Size(device, size)) => {
                self.resize(&device, size, limit, dry_run, job).map(Response::Resize)
            }
            (Kind::Rebalance, JobTarget::Pool) => self.rebalance(limit, dry_run, job).map(Response::Rebalance),
            (Kind::Defragment, JobTarget::Pool) => self.defragment(limit, dry_run, job).map(Response::Defragment),
            (Kind::Expand, JobTarget::Pool) if !dry_run => self.resume_expansion(limit).map(done),
            (Kind::Resilver, JobTarget::Pool) if !dry_run => self.restart_resilver().map(done),
            (Kind::Scrub, JobTarget::Pool) if dry_run => Ok(Response::Planned(self.engine().space_totals().allocated)),
            (Kind::Scrub, JobTarget::Pool) => self.start_scrub(limit).map(done),
            _ => Err(unfit()),
        }
    }

    fn wait_for_job(&self, kind: Kind, target: JobTarget, job: &mut Job<'_>) -> Result<Response, Failure> {
        let done = |()| Response::Done;
        match (kind, target) {
            (Kind::Resilver, JobTarget::Device(device)) => self.wait_for_resilver(&device, job).map(done),
            (Kind::Remove, JobTarget::Pool) => self.wait_for_removal(job).map(Response::Layout),
            (Kind::Expand, JobTarget::Pool) => self.wait_for_expansion(job).map(Response::Layout),
            (Kind::Rebalance, JobTarget::Pool) => self.wait_for_rebalance(job).map(done),
            (Kind::Defragment, JobTarget::Pool) => self.wait_for_defragment(job).map(done),
            (Kind::Resize, JobTarget::Pool) => self.wait_for_resize(job).map(Response::Resized),
            (Kind::Scrub, JobTarget::Pool) => self.wait_for_scrub(job).map(Response::Examined),
            _ => Err(unfit()),
        }
    }
}

/// The answer to an order that no command sends.
fn unfit() -> Failure {
    Failure::new("this job takes no such order")
}

/// The action of an order, for the text of a refusal.
fn verb(verb: &str, kind: Kind) -> String {
    match kind {
        Kind::Scrub => "scrub".to_owned(),
        Kind::Resilver => format!("{verb} the resilver of"),
        Kind::Remove => format!("{verb} the removal of a vdev from"),
        Kind::Rebalance => format!("{verb} the rebalance of"),
        Kind::Resize => format!("{verb} the resize of a device of"),
        Kind::Defragment => format!("{verb} the defragmentation of"),
        Kind::Expand => format!("{verb} the expansion in"),
    }
}
