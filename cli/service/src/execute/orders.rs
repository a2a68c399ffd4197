//! Orders to jobs: an [`Order`] for a [`Kind`]. The file of each kind, beside this one, plans and starts; pause, stop
//! and waiting are common to all.

use std::{thread, time::Duration};

use dataset::jobs::{JobRecord, JobState, Kind, Reason};
use protocol::{ExaminedRecord, Failure, JobTarget, Order, Response};

use super::{job::Job, open_pool::OpenPool, refusal::OrRefused};

/// Polling interval of a command that waits for a job.
pub(super) const WATCH: Duration = Duration::from_millis(50);

impl OpenPool {
    pub(super) fn order(&self, kind: Kind, order: Order, job: &mut Job<'_>) -> Result<Response, Failure> {
        match order {
            Order::Plan(target) => self.begin_job(kind, target, None, true, job),
            Order::Start { target, limit } => self.begin_job(kind, target, limit, false, job),
            Order::Pause(target) => {
                let paused = match target {
                    JobTarget::Devices(devices) if kind.is_pass() => {
                        self.passes(kind).suspend(&self.vdevs_of(kind, &devices)?)
                    }
                    _ => kind.of(&self.datasets).pause(),
                };
                paused.or_refused(&verb("pause", kind), self.name()).map(|()| Response::Done)
            }
            Order::Stop(target) => {
                let stopped = match target {
                    JobTarget::Devices(devices) if kind.is_pass() => {
                        self.passes(kind).cancel(&self.vdevs_of(kind, &devices)?)
                    }
                    _ => kind.of(&self.datasets).stop(&self.pool),
                };
                stopped.or_refused(&verb("stop", kind), self.name()).map(|()| Response::Done)
            }
            Order::Forget(JobTarget::Devices(devices)) if kind.is_pass() => {
                let forgotten = self.passes(kind).forget(&self.vdevs_of(kind, &devices)?);
                forgotten.or_refused(&verb("forget", kind), self.name()).map(|()| Response::Done)
            }
            Order::Wait(JobTarget::Devices(devices)) if kind.is_pass() => {
                self.wait_for_pass(kind, &self.vdevs_of(kind, &devices)?, job).map(Response::Bytes)
            }
            Order::Wait(JobTarget::Device(device)) if kind == Kind::Resilver => {
                self.wait_for_resilver(&device, job).map(|()| Response::Done)
            }
            Order::Wait(JobTarget::Pool) if kind != Kind::Resilver && !kind.is_pass() => {
                let record = self.wait_for(kind, job)?;
                Ok(self.outcome(kind, record.as_ref()))
            }
            Order::Forget(_) | Order::Wait(_) => Err(unfit()),
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
            (Kind::Resilver, JobTarget::Pool) if !dry_run => self.start_resilver(limit).map(done),
            (Kind::Scrub, JobTarget::Pool) if dry_run => Ok(Response::Bytes(self.engine().space_totals().allocated)),
            (Kind::Scrub, JobTarget::Pool) => self.start_scrub(limit).map(done),
            (Kind::Trim | Kind::Initialize, JobTarget::Devices(devices)) => match dry_run {
                true => self.plan_pass(kind, &devices).map(Response::Bytes),
                false => self.start_pass(kind, &devices, limit, job),
            },
            _ => Err(unfit()),
        }
    }

    /// The record of the current or the last job.
    pub(super) fn record_of(&self, kind: Kind) -> Result<Option<JobRecord>, Failure> {
        kind.of(&self.datasets).record(&self.pool).or_refused(action(kind), self.name())
    }

    /// Lets a started job work. Without a service, the command itself has to wait for the job.
    pub(super) fn work_at(&self, kind: Kind, job: &mut Job<'_>) -> Result<(), Failure> {
        self.jobs.wake();
        match self.mounts {
            Some(_) => Ok(()),
            None => self.wait_for(kind, job).map(drop),
        }
    }

    /// Waits for a running job, and returns its last record. An error if the job is paused, was stopped or has failed.
    /// A scrub ends the wait without an error in any state, and so does an expansion that is complete as far as
    /// possible.
    fn wait_for(&self, kind: Kind, job: &mut Job<'_>) -> Result<Option<JobRecord>, Failure> {
        loop {
            let Some(record) = self.record_of(kind)? else { return Ok(None) };
            let refused = |why: &str| Err(Failure::cannot(action(kind), self.subject(&record), why));
            match &record.state {
                JobState::Finished | JobState::Waiting(Reason::NoRoom) => return Ok(Some(record)),
                JobState::Paused | JobState::Canceled if kind == Kind::Scrub => return Ok(Some(record)),
                JobState::Paused => return refused("it is paused"),
                JobState::Canceled => return refused("it was stopped"),
                _ if self.goes_on(&record) => self.watch(kind, Some(&record), job)?,
                _ => return refused(record.why().unwrap_or_default()),
            }
        }
    }

    /// Whether a job makes progress, or soon will: a resize waits for a device that is being resilvered.
    pub(super) fn goes_on(&self, record: &JobRecord) -> bool {
        match record.state {
            JobState::Running => true,
            JobState::Waiting(Reason::Device(_)) => self.is_resilvering(),
            _ => false,
        }
    }

    /// Reports the progress of a job, and waits a moment.
    pub(super) fn watch(&self, kind: Kind, record: Option<&JobRecord>, job: &mut Job<'_>) -> Result<(), Failure> {
        let subject = record.map_or_else(|| self.name().to_string(), |record| self.subject(record));
        self.engine().writable().or_refused(action(kind), &subject)?;
        job.check()?;
        if let Some(record) = record {
            let (done, total) = record.progress();
            job.report(&format!("{} {subject}", doing(kind)), done, Some(total));
        }
        thread::sleep(WATCH);
        Ok(())
    }

    /// The vdev or pool that a job works on.
    fn subject(&self, record: &JobRecord) -> String {
        record.vdev().map_or_else(|| self.name().to_string(), str::to_owned)
    }

    /// The answer to a command that has waited for a job.
    fn outcome(&self, kind: Kind, record: Option<&JobRecord>) -> Response {
        match kind {
            Kind::Remove | Kind::Expand => Response::Layout(self.layout()),
            Kind::Resize => Response::Resized(record.map(|_| self.larger_devices()).unwrap_or_default()),
            Kind::Scrub => {
                let found = record.map_or((0, 0, 0), |record| (record.done, record.repaired, record.errors));
                let (examined, repaired, errors) = found;
                Response::Examined(ExaminedRecord { examined, repaired, errors })
            }
            Kind::Resilver | Kind::Rebalance | Kind::Defragment | Kind::Trim | Kind::Initialize => Response::Done,
        }
    }
}

/// The answer to an order that no command sends.
fn unfit() -> Failure {
    Failure::new("this job takes no such order")
}

/// The action of a job, for the text of a refusal.
pub(super) fn action(kind: Kind) -> &'static str {
    match kind {
        Kind::Resilver => "resilver",
        Kind::Remove => "remove",
        Kind::Rebalance => "rebalance",
        Kind::Resize => "resize",
        Kind::Defragment => "defragment",
        Kind::Expand => "expand",
        Kind::Scrub => "scrub",
        Kind::Trim => "trim",
        Kind::Initialize => "initialize",
    }
}

/// The work of a job, for progress.
pub(super) fn doing(kind: Kind) -> &'static str {
    match kind {
        Kind::Resilver => "resilvering",
        Kind::Remove => "evacuating",
        Kind::Rebalance => "rebalancing",
        Kind::Resize => "emptying the end of",
        Kind::Defragment => "defragmenting",
        Kind::Expand => "expanding",
        Kind::Scrub => "scrubbing",
        Kind::Trim => "trimming",
        Kind::Initialize => "initializing",
    }
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
        Kind::Trim | Kind::Initialize => {
            let verb = match verb {
                "pause" => "suspend",
                "stop" => "cancel",
                verb => verb,
            };
            format!("{verb} {}", doing(kind))
        }
    }
}
