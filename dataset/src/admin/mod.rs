//! Administration: all requests to the datasets of an opened pool.
//!
//! A request is checked and carried out as one [`Transaction`](crate::catalogue::Transaction) in the syncing context of
//! one txg, and the caller gets the answer after the commit. So a request is done entirely or not at all, recursive
//! requests are atomic, and an acknowledged request survives a crash. A dry run executes the same closure on the
//! current catalogue, and discards the changes.
//!
//! ```text
//! datasets   the pool's datasets: running requests, reading the catalogue
//! client     the syncing context
//! resolve    names to ids, and back
//! format     the tree of a new dataset
//! open       opening datasets and snapshots: file systems, options
//! create, destroy, rename, snapshot, rollback, clone, hold, bookmark
//! property   setting, inheriting; the source of a value
//! feature    the features of the pool's format
//! list, value     the objects of a pool, and the value of each property
//! limits, quotas  the space available to a dataset, and shared by all datasets below a quota
//! send, receive   planning streams, and landing streams
//! replaced   the differences for a mount when its file system's tree is replaced
//! modified   whether a dataset was modified or only read
//! compare    the files that differ between two snapshots
//! history    the pool's history
//! examine    scrubs a part of the pool, on demand; for everything else that takes long see [`crate::jobs`]
//! losses     the loss if devices were missing
//! damage     the names of permanently damaged files
//! ```
//!
//! Requests and answers are plain types without formatting; commands print them.

mod bookmark;
mod client;
mod clone;
mod compare;
mod create;
mod damage;
mod datasets;
mod destroy;
mod error;
mod examine;
pub(crate) mod feature;
mod format;
mod history;
mod hold;
mod limits;
mod list;
mod long_hold;
mod losses;
mod modified;
mod open;
mod placement;
mod property;
mod quotas;
mod receive;
mod rename;
mod replaced;
mod replay;
mod resolve;
mod rollback;
mod send;
mod snapshot;
mod value;

#[cfg(test)]
pub(crate) mod tests;

pub use compare::{Difference, DifferenceKind};
pub use create::CreateRequest;
pub use datasets::{Datasets, Mount, Progress};
pub use destroy::{DestroyRequest, DestroySnapshotsRequest, Destroyed};
pub use error::{Error, Result};
pub use examine::{Examination, Examined, Scope};
pub use feature::Sharing;
pub use history::Event;
pub use hold::HoldInfo;
pub use list::{ListRequest, Listed, Listing};
pub use long_hold::{Holder, LongHold, Reader};
pub use losses::{Loss, Survivors};
pub use open::{Dataset, OpenSnapshot};
pub use property::{Assignment, Valued};
pub use receive::{Arrived, ArrivedSnapshot, Naming, ReceiveRequest};
pub use rename::Renamed;
pub use replaced::{Differing, Replaced};
pub use resolve::Target;
pub use rollback::{RollbackRequest, RolledBack};
pub use send::{Planned, SendFrom, SendRequest};

pub use crate::jobs::{
    DefragmentStatus, Expanding, ExpansionStatus, Pause, RebalanceStatus, RemovalStatus, Removing, ResilverState,
    ResilverStatus, ResizeStatus, Resizing, Resumed, ScrubStatus, Stride,
};
