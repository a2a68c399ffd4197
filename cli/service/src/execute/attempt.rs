//! The action and the object of a request about datasets, for `cannot ACTION 'WHAT': …`.

use dataset::{
    admin::Caller,
    name::{Name, SnapshotName},
    property::OwnerKind,
};
use protocol::{DatasetRequest, Failure, MountRequest, Request, StreamRequest, UnmountTarget, shell_word};

use crate::owners;

/// An action and its object.
pub(super) type Attempt = (&'static str, String);

/// What a request attempts; `None` for a request that is not about one dataset or stream.
pub(super) fn attempt(request: &Request) -> Option<Attempt> {
    Some(match request {
        Request::Dataset(request) => of_datasets(request),
        Request::Stream(request) => of_streams(request),
        _ => return None,
    })
}

/// Turns the failure of a request whose pool is not known into the one that names the request's dataset.
pub fn within_pool(request: &Request) -> impl FnOnce(Failure) -> Failure + use<> {
    let attempt = attempt(request).or_else(|| of_mounts(request)).filter(|(_, what)| !what.is_empty());
    move |failure| match attempt {
        Some((action, what)) => failure.within_pool(action, &what),
        None => failure,
    }
}

fn of_mounts(request: &Request) -> Option<Attempt> {
    match request {
        Request::Mount(MountRequest::Mount { name: Some(name), .. }) => Some(("mount", name.to_string())),
        Request::Mount(MountRequest::MountAt { name, .. }) => Some(("mount", name.to_string())),
        Request::Mount(MountRequest::Unmount { target: Some(UnmountTarget::Dataset(name)), .. }) => {
            Some(("unmount", name.to_string()))
        }
        _ => None,
    }
}

fn of_datasets(request: &DatasetRequest) -> Attempt {
    let first = |names: &[SnapshotName]| names.first().map(SnapshotName::to_string).unwrap_or_default();
    match request {
        DatasetRequest::List { root, .. } => ("list", root.as_ref().map(Name::to_string).unwrap_or_default()),
        DatasetRequest::Create { name, .. } | DatasetRequest::Clone { to: name, .. } => ("create", name.to_string()),
        DatasetRequest::Destroy { name, .. } => ("destroy", name.to_string()),
        DatasetRequest::DestroySnapshots { set, .. } => ("destroy", String::from(set.clone())),
        DatasetRequest::DestroyBookmark { name, .. } => ("destroy", name.to_string()),
        DatasetRequest::Set { name, .. } => ("set property for", name.to_string()),
        DatasetRequest::Inherit { name, .. } => ("inherit property for", name.to_string()),
        DatasetRequest::Rename { from, .. } => ("rename", from.to_string()),
        DatasetRequest::Snapshot { names, .. } => ("create snapshot", first(names)),
        DatasetRequest::Rollback { to, .. } => ("rollback to", to.to_string()),
        DatasetRequest::Promote { name } => ("promote", name.to_string()),
        DatasetRequest::Hold { names, .. } => ("hold snapshot", first(names)),
        DatasetRequest::Holds { names, .. } => ("open", first(names)),
        DatasetRequest::Release { names, .. } => ("release hold from snapshot", first(names)),
        DatasetRequest::Bookmark { to, .. } => ("create bookmark", to.to_string()),
        DatasetRequest::Accounts { name, .. } => ("get used/quota for", name.to_string()),
        DatasetRequest::Allow { name, .. } | DatasetRequest::Unallow { name, .. } => (ALLOWING, name.to_string()),
        DatasetRequest::Allowances { name } => ("open", name.to_string()),
    }
}

fn of_streams(request: &StreamRequest) -> Attempt {
    match request {
        StreamRequest::Diff { from, .. } => ("diff", from.to_string()),
        StreamRequest::Send { what, .. } => ("send", what.snapshot.to_string()),
        StreamRequest::SendSaved { dataset, .. } => ("send the partial state of", dataset.to_string()),
        StreamRequest::Receive(spec) => ("receive into", spec.target.to_string()),
        StreamRequest::Correct(spec) => ("repair", spec.target.to_string()),
        StreamRequest::DiscardPartial(name) => ("discard the partial state of", name.to_string()),
    }
}

/// The action of `fs allow` and `fs unallow`.
pub(super) const ALLOWING: &str = "set permissions on";

/// The command by which the owner of the pool permits a request of the caller.
pub(super) fn remedy(caller: &Caller, dataset: &str, permissions: &str) -> String {
    let user = owners::names(OwnerKind::User).remove(&caller.user).unwrap_or_else(|| caller.user.to_string());
    let (user, dataset) = (shell_word(&user), shell_word(dataset));
    format!("the owner of the pool can permit it: fs allow {user} {permissions} {dataset}")
}
