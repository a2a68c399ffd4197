//! Permissions and other traits of every request, in one table with a row per request, by subject.
//!
//! A new request does not compile without a row. A row starts from the permission, and adds only differences from the
//! default: a request that may take long, needs a commit, and leaves no line in the history.

use super::request::{
    DatasetRequest, DeviceRequest, FileRequest, MountRequest, PoolRequest, Request, ServiceRequest, StreamRequest,
};

/// Required permission of a request. The service judges each call by the peer uid from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Every user, as in OpenZFS: `list`, `get` and `status`, and the path arguments of `list` and `get`.
    Everyone,
    /// The owner of the service, root, and each user to whom `fs allow` has given all permissions that the request
    /// needs: changes of datasets, streams, and numbers about the files of other users.
    Delegated,
    /// The owner of the service, and root: changes of the pool, mounts, files and file names, the history, and requests
    /// that wait or run for long.
    Owner,
}

/// Treatment of a request while the pool is suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspended {
    /// Executed: the request needs no device, or is about the suspension itself.
    Answered,
    /// Executed until a wait for a device, then given up: the request only reads, perhaps from memory alone.
    Tried,
    /// Refused at once: the request needs a commit, and none can complete.
    Refused,
}

/// Traits of a request, known before execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// Users with permission for the request.
    pub permission: Permission,
    /// Treatment while the pool is suspended.
    pub suspended: Suspended,
    /// The pool's history records the command line, if the request succeeds.
    pub is_recorded: bool,
    /// The answer comes at once: a service silent for several seconds is not responding.
    pub is_quick: bool,
    /// A file descriptor accompanies the call.
    pub needs_stream: bool,
    /// The service ends after the request.
    pub ends_service: bool,
}

const OWNER: Traits = Traits {
    permission: Permission::Owner,
    suspended: Suspended::Refused,
    is_recorded: false,
    is_quick: false,
    needs_stream: false,
    ends_service: false,
};

const DELEGATED: Traits = Traits { permission: Permission::Delegated, ..OWNER };

const EVERYONE: Traits = Traits { permission: Permission::Everyone, ..OWNER };

impl Traits {
    const fn answered(self) -> Traits {
        Traits { suspended: Suspended::Answered, ..self }
    }

    const fn tried(self) -> Traits {
        Traits { suspended: Suspended::Tried, ..self }
    }

    const fn quick(self) -> Traits {
        Traits { is_quick: true, ..self }
    }

    const fn recorded(self) -> Traits {
        Traits { is_recorded: true, ..self }
    }

    /// A dry run changes nothing, so the history omits the command.
    const fn recorded_unless(self, dry_run: bool) -> Traits {
        Traits { is_recorded: !dry_run, ..self }
    }

    const fn with_stream(self) -> Traits {
        Traits { needs_stream: true, ..self }
    }

    const fn ending(self) -> Traits {
        Traits { ends_service: true, ..self }
    }
}

impl Request {
    /// The request's row in the table.
    pub fn traits(&self) -> Traits {
        match self {
            Request::Service(request) => request.traits(),
            Request::Pool(request) => request.traits(),
            Request::Device(request) => request.traits(),
            Request::Dataset(request) => request.traits(),
            Request::Mount(request) => request.traits(),
            Request::Stream(request) => request.traits(),
            Request::File(request) => request.traits(),
            // A plan changes nothing, and a waiting caller did not start the job.
            Request::Job { order, .. } => OWNER.recorded_unless(!order.is_mutating()),
            Request::ScrubPart(_) => OWNER.recorded(),
        }
    }
}

impl ServiceRequest {
    fn traits(&self) -> Traits {
        match self {
            ServiceRequest::Ping => EVERYONE.quick().answered(),
            ServiceRequest::Shutdown { .. } => OWNER.ending(),
            ServiceRequest::Abandon => OWNER.answered().ending(),
        }
    }
}

impl PoolRequest {
    fn traits(&self) -> Traits {
        match self {
            PoolRequest::Status => EVERYONE.quick().answered(),
            PoolRequest::Pool { .. } => EVERYONE.quick().tried(),
            // The history has command lines of users.
            PoolRequest::History { .. } => OWNER.quick().tried(),
            PoolRequest::IoCounters | PoolRequest::CacheFigures => OWNER.quick().answered(),
            // Events are state of the service, in memory.
            PoolRequest::Events { .. } | PoolRequest::ClearEvents => OWNER.answered(),
            PoolRequest::Activities | PoolRequest::Losses { .. } => OWNER,
            // Long work, or a wait.
            PoolRequest::Check | PoolRequest::Sync => OWNER,
            // Both may end a suspension.
            PoolRequest::Clear { .. } | PoolRequest::Reopen => OWNER.recorded().answered(),
            PoolRequest::SetPool { dry_run, .. } => OWNER.recorded_unless(*dry_run),
            PoolRequest::Renumber { .. } => OWNER.recorded(),
        }
    }
}

impl DeviceRequest {
    fn traits(&self) -> Traits {
        match self {
            DeviceRequest::Detach { .. } | DeviceRequest::Offline { .. } | DeviceRequest::Online { .. } => {
                OWNER.recorded()
            }
            DeviceRequest::AddVdevs { dry_run, .. }
            | DeviceRequest::Attach { dry_run, .. }
            | DeviceRequest::Split { dry_run, .. } => OWNER.recorded_unless(*dry_run),
        }
    }
}

impl DatasetRequest {
    fn traits(&self) -> Traits {
        match self {
            DatasetRequest::List { .. } | DatasetRequest::Allowances { .. } => EVERYONE.quick().tried(),
            DatasetRequest::Holds { .. } | DatasetRequest::Accounts { .. } => DELEGATED.tried(),
            DatasetRequest::Snapshot { .. }
            | DatasetRequest::Clone { .. }
            | DatasetRequest::Promote { .. }
            | DatasetRequest::Hold { .. }
            | DatasetRequest::Release { .. }
            | DatasetRequest::Bookmark { .. }
            | DatasetRequest::Allow { .. }
            | DatasetRequest::Unallow { .. } => DELEGATED.recorded(),
            DatasetRequest::Create { dry_run, .. }
            | DatasetRequest::Set { dry_run, .. }
            | DatasetRequest::Inherit { dry_run, .. }
            | DatasetRequest::Rename { dry_run, .. }
            | DatasetRequest::Rollback { dry_run, .. }
            | DatasetRequest::Destroy { dry_run, .. }
            | DatasetRequest::DestroySnapshots { dry_run, .. }
            | DatasetRequest::DestroyBookmark { dry_run, .. } => DELEGATED.recorded_unless(*dry_run),
        }
    }
}

impl MountRequest {
    fn traits(&self) -> Traits {
        match self {
            MountRequest::Mounts | MountRequest::FileCounters => EVERYONE.quick().answered(),
            // Names of files are looked up.
            MountRequest::Activity => OWNER.quick().tried(),
            // Mounts are state of the service, in memory.
            MountRequest::Mount { .. } | MountRequest::MountAt { .. } | MountRequest::Unmount { .. } => OWNER,
        }
    }
}

impl StreamRequest {
    fn traits(&self) -> Traits {
        match self {
            StreamRequest::Diff { .. } => DELEGATED,
            StreamRequest::Send { dry_run: false, .. } => DELEGATED.tried().with_stream(),
            StreamRequest::SendSaved { dry_run: false, .. } => DELEGATED.tried().with_stream(),
            StreamRequest::Send { dry_run: true, .. } | StreamRequest::SendSaved { dry_run: true, .. } => {
                DELEGATED.tried()
            }
            StreamRequest::DiscardPartial(_) => DELEGATED.recorded(),
            StreamRequest::Receive(spec) => DELEGATED.recorded_unless(spec.dry_run).with_stream(),
            StreamRequest::Correct(spec) => OWNER.recorded_unless(spec.dry_run).with_stream(),
        }
    }
}

impl FileRequest {
    /// Names and contents of files are for the owner of the service only.
    fn traits(&self) -> Traits {
        match self {
            FileRequest::Entries { .. }
            | FileRequest::FileAttributes { .. }
            | FileRequest::Projects { .. }
            | FileRequest::CopyOut { .. } => OWNER.tried(),
            FileRequest::Read { .. } => OWNER.tried().with_stream(),
            FileRequest::SetFileAttributes { .. }
            | FileRequest::SetProject { .. }
            | FileRequest::CopyIn { .. }
            | FileRequest::CopyWithin { .. } => OWNER,
        }
    }
}

#[cfg(test)]
mod tests {
    use dataset::jobs::Kind;

    use super::*;
    use crate::{JobTarget, Order};

    #[test]
    fn what_every_user_may_ask_has_no_stream_and_changes_nothing() {
        let pool = PoolRequest::Pool { properties: vec![], vdevs: true };
        let all = [ServiceRequest::Ping.into(), PoolRequest::Status.into(), MountRequest::Mounts.into(), pool.into()];
        for Traits { permission, is_recorded, needs_stream, ends_service, .. } in
            all.map(|request: Request| request.traits())
        {
            assert_eq!(
                (permission, is_recorded, needs_stream, ends_service),
                (Permission::Everyone, false, false, false)
            );
        }
    }

    #[test]
    fn a_dry_run_is_not_recorded() {
        let rebalance = |order| Request::job(Kind::Rebalance, order).traits().is_recorded;
        let start = Order::Start { target: JobTarget::Pool, limit: None };
        assert_eq!([start, Order::Plan(JobTarget::Pool)].map(rebalance), [true, false]);
    }
}
