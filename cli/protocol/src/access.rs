//! Which requests every user may make of a pool's service, and what of an answer only the owner is to see.
//!
//! As in OpenZFS every user may `list`, `get` and ask for the `status`. Everything else is for the owner of the service and for
//! root: what changes something, what reads files, names of files or the history, and what waits or works for long.

use super::{PoolStatus, Request, Response};

impl Request {
    /// Whether every user may ask. Each request says so by itself: a new one does not compile until it is entered here.
    pub fn is_open_to_all(&self) -> bool {
        match self {
            // `pool list`, `pool get`, `pool status`, `fs list`, `fs get`, and the paths that these take.
            Request::Ping | Request::Pool { .. } | Request::Status | Request::List { .. } | Request::Mounts => true,
            // What commands were given, what files are called, what is in them, and who has how much.
            Request::History { .. }
            | Request::Losses { .. }
            | Request::Events { .. }
            | Request::Activities
            | Request::IoCounters
            | Request::Holds { .. }
            | Request::Diff { .. }
            | Request::Send { .. }
            | Request::Entries { .. }
            | Request::FileAttributes { .. }
            | Request::Accounts { .. }
            | Request::Projects { .. }
            | Request::Read { .. }
            | Request::CopyOut { .. } => false,
            // What changes a pool.
            Request::Shutdown { .. }
            | Request::Abandon
            | Request::SetPool { .. }
            | Request::Sync
            | Request::Check
            | Request::Scrub { .. }
            | Request::ScrubPart(_)
            | Request::Clear { .. }
            | Request::Trim { .. }
            | Request::ClearEvents
            | Request::Reopen
            | Request::Resilver
            | Request::AddVdevs { .. }
            | Request::Attach { .. }
            | Request::Detach { .. }
            | Request::Split { .. }
            | Request::Renumber { .. }
            | Request::Remove { .. }
            | Request::PauseRemoval
            | Request::StopRemoval
            | Request::PauseExpansion
            | Request::ResumeExpansion { .. }
            | Request::Rebalance { .. }
            | Request::PauseRebalance
            | Request::StopRebalance
            | Request::Defragment { .. }
            | Request::PauseDefragment
            | Request::StopDefragment
            | Request::Resize { .. }
            | Request::PauseResize
            | Request::StopResize
            | Request::Offline { .. }
            | Request::Online { .. } => false,
            // What waits.
            Request::WaitForScrub
            | Request::WaitForRemoval
            | Request::WaitForExpansion
            | Request::WaitForRebalance
            | Request::WaitForDefragment
            | Request::WaitForResize
            | Request::WaitForResilver { .. } => false,
            // What changes datasets and files.
            Request::Create { .. }
            | Request::Destroy { .. }
            | Request::DestroySnapshots { .. }
            | Request::DestroyBookmark { .. }
            | Request::Set { .. }
            | Request::Inherit { .. }
            | Request::Rename { .. }
            | Request::Mount { .. }
            | Request::MountAt { .. }
            | Request::Unmount { .. }
            | Request::Snapshot { .. }
            | Request::Rollback { .. }
            | Request::Clone { .. }
            | Request::Promote { .. }
            | Request::Hold { .. }
            | Request::Release { .. }
            | Request::Bookmark { .. }
            | Request::Receive(_)
            | Request::SetFileAttributes { .. }
            | Request::SetProject { .. }
            | Request::CopyIn { .. }
            | Request::CopyWithin { .. } => false,
        }
    }
}

impl Response {
    /// The answer as other users get it: without the names of files.
    pub fn for_all(self) -> Response {
        match self {
            Response::Status(status) => {
                let damaged = status.damaged.map(|names| names.iter().map(|name| without_path(name)).collect());
                Response::Status(Box::new(PoolStatus { damaged, ..*status }))
            }
            other => other,
        }
    }
}

/// A damaged file as other users see it: the dataset or snapshot it is in.
fn without_path(name: &str) -> String {
    name.split_once(':').map_or_else(|| name.to_owned(), |(dataset, _)| format!("{dataset}:<hidden>"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_users_learn_where_damage_is_and_no_names() {
        assert_eq!(without_path("tank/home@a:/secret: plan"), "tank/home@a:<hidden>");
        assert_eq!(without_path("the catalogue"), "the catalogue");
    }
}
