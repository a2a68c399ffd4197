//! Administration: all requests to the datasets of an opened pool.
//!
//! A request is checked and carried out as one [`Transaction`](crate::catalogue::Transaction) in the syncing context of
//! one txg, and the caller gets the answer after the commit. So a request is done entirely or not at all, recursive
//! requests are atomic, and an acknowledged request survives a crash. A dry run executes the same closure on the
//! current catalogue, and discards the changes.
//!
//! ```text
//! table      the pool's datasets: running requests, names, open datasets, limits, history
//! property   setting and inheriting, values and their sources, features
//! delegation permissions of users other than the pool's owner
//! open       opening datasets and snapshots: file systems, options, mounts
//! replay     the intent log, after a crash
//! report     lists, differences, damage, losses
//! lifecycle  create, destroy, rename, snapshot, rollback, clone, hold, bookmark
//! transfer   send and receive
//! ```
//!
//! Requests and answers are plain types without formatting; commands print them.

mod delegation;
mod lifecycle;
mod open;
mod property;
mod replay;
mod report;
pub(crate) mod table;
mod transfer;

#[cfg(test)]
pub(crate) mod tests;

pub use delegation::{
    ALLOW, Allowance, BadPermission, Caller, Grant, Grantee, Judgement, Moment, Need, Reach, permission,
    permission_names, set_name,
};
pub use lifecycle::{
    create::CreateRequest,
    destroy::{DestroyRequest, DestroySnapshotsRequest, Destroyed},
    hold::HoldInfo,
    rename::Renamed,
    rollback::{RollbackRequest, RolledBack},
};
pub use property::{assign::Assignment, features::Sharing};
pub use report::{
    compare::{Difference, DifferenceKind},
    foreseen::{Foreseen, ForeseenPlace, ForeseenValue},
    list::{ListRequest, Listed, Listing},
    losses::{Loss, Survivors},
    near_quota::NearQuota,
    replaced::{Differing, Replaced},
};
pub use table::{
    datasets::{Datasets, Mount, Progress},
    history::Event,
    long_hold::LongHold,
    names::Target,
    opened::{Dataset, OpenSnapshot},
};
pub use transfer::{
    receive::{Arrived, ArrivedSnapshot, Corrected, Naming, ReceiveRequest},
    send::{Planned, SendFrom, SendRequest},
};
