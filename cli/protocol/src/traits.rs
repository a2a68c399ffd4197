//! Permissions and other traits of every request, in one table with a row per request.
//!
//! A new request does not compile without a row. A row starts from the permission, and adds only differences from the
//! default: a request that may take long, needs a commit, and leaves no line in the history.

use super::request::Request;

/// Required permission of a request. The service judges each call by the peer uid from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Every user, as in OpenZFS: `list`, `get` and `status`, and the path arguments of `list` and `get`.
    Everyone,
    /// The owner of the service, and root: changes, files and file names, the history, and requests that wait or run
    /// for long.
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
            // Visible to every user.
            Request::Ping | Request::Status | Request::Mounts => EVERYONE.quick().answered(),
            Request::Pool { .. } | Request::List { .. } => EVERYONE.quick().tried(),

            // Command lines, names and contents of files, and usage by owner.
            Request::History { .. } => OWNER.quick().tried(),
            Request::IoCounters => OWNER.quick().answered(),
            Request::Events { .. } => OWNER.answered(),
            Request::Activities | Request::Losses { .. } | Request::Diff { .. } => OWNER,
            Request::Holds { .. }
            | Request::Accounts { .. }
            | Request::Entries { .. }
            | Request::FileAttributes { .. }
            | Request::Projects { .. }
            | Request::CopyOut { .. } => OWNER.tried(),
            Request::Read { .. } | Request::Send { dry_run: false, .. } => OWNER.tried().with_stream(),
            Request::Send { dry_run: true, .. } => OWNER.tried(),

            // Long work, or a wait.
            Request::Check | Request::Sync => OWNER,

            // The service, and its state in memory.
            Request::Shutdown { .. } => OWNER.ending(),
            Request::Abandon => OWNER.answered().ending(),
            Request::ClearEvents => OWNER.answered(),
            Request::Mount { .. } | Request::MountAt { .. } | Request::Unmount { .. } => OWNER,

            // A plan changes nothing, and a waiting caller did not start the job.
            Request::Job { order, .. } => OWNER.recorded_unless(!order.is_mutating()),

            // Changes of the pool.
            Request::Clear { .. } | Request::Reopen => OWNER.recorded().answered(),
            Request::SetPool { .. }
            | Request::ScrubPart(_)
            | Request::Trim { .. }
            | Request::Attach { .. }
            | Request::Detach { .. }
            | Request::Renumber { .. }
            | Request::Offline { .. }
            | Request::Online { .. } => OWNER.recorded(),
            Request::AddVdevs { dry_run, .. } | Request::Split { dry_run, .. } => OWNER.recorded_unless(*dry_run),

            // Changes of datasets.
            Request::Set { .. }
            | Request::Inherit { .. }
            | Request::Rename { .. }
            | Request::Snapshot { .. }
            | Request::Rollback { .. }
            | Request::Clone { .. }
            | Request::Promote { .. }
            | Request::Hold { .. }
            | Request::Release { .. }
            | Request::Bookmark { .. } => OWNER.recorded(),
            Request::Create { dry_run, .. }
            | Request::Destroy { dry_run, .. }
            | Request::DestroySnapshots { dry_run, .. }
            | Request::DestroyBookmark { dry_run, .. } => OWNER.recorded_unless(*dry_run),
            Request::Receive(spec) => OWNER.recorded_unless(spec.dry_run).with_stream(),

            // Requests that change files.
            Request::SetFileAttributes { .. }
            | Request::SetProject { .. }
            | Request::CopyIn { .. }
            | Request::CopyWithin { .. } => OWNER,
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
        let all = [Request::Ping, Request::Status, Request::Mounts, Request::Pool { properties: vec![], vdevs: true }];
        for Traits { permission, is_recorded, needs_stream, ends_service, .. } in all.map(|request| request.traits()) {
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
