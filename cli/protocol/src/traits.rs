//! What is to be known of a request before it is carried out: the one table, with a row for each.
//!
//! A new request does not compile until it has its row here. A row begins with who may ask, and adds what differs from a
//! request that takes its time, needs a commit, and leaves no line in the history.

use crate::Request;

/// Who may make a request. Each call is judged by the uid that the kernel gives of its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Every user, as in OpenZFS: `list`, `get` and `status`, and the paths that these take.
    Everyone,
    /// The owner of the service, and root: changes, files and their names, the history, and what waits or works for long.
    Owner,
}

/// What becomes of a request while the pool is suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspended {
    /// It is answered: it asks no device, or is about the suspension itself.
    Answered,
    /// It is tried, as it only reads what may be in memory, and given up if it waits for a device.
    Tried,
    /// It is refused at once: it needs a commit, which would not come.
    Refused,
}

/// What is to be known of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// Who may make it.
    pub permission: Permission,
    /// What becomes of it while the pool is suspended.
    pub suspended: Suspended,
    /// The pool's history gets the command line, if the request succeeds.
    pub is_recorded: bool,
    /// It is answered at once: a service that is silent for seconds does not answer at all.
    pub is_quick: bool,
    /// A descriptor goes with it.
    pub needs_stream: bool,
    /// It ends the service.
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

    /// A dry run changes nothing.
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
    /// The request's row.
    pub fn traits(&self) -> Traits {
        match self {
            // What every user may see.
            Request::Ping | Request::Status | Request::Mounts => EVERYONE.quick().answered(),
            Request::Pool { .. } | Request::List { .. } => EVERYONE.quick().tried(),

            // What commands were given, what files are called, what is in them, and who has how much.
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

            // What works or waits.
            Request::Check | Request::Sync => OWNER,

            // The service, and what it keeps in memory.
            Request::Shutdown { .. } => OWNER.ending(),
            Request::Abandon => OWNER.answered().ending(),
            Request::ClearEvents => OWNER.answered(),
            Request::Mount { .. } | Request::MountAt { .. } | Request::Unmount { .. } => OWNER,

            // A plan changes nothing, and one who waits did not begin it.
            Request::Job { order, .. } => OWNER.recorded_unless(!order.is_mutating()),

            // What changes the pool.
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

            // What changes datasets.
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

            // What changes files.
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
