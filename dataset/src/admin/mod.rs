//! Administration: everything that can be asked of the datasets of an opened pool.
//!
//! A request is checked and carried out as one [`Transaction`](crate::catalogue::Transaction) in the syncing context of
//! one transaction group, and the caller gets the answer when that group is committed. So a request happens entirely or
//! not at all, recursive ones are atomic, and what was answered survives a crash. The same closure over the catalogue as
//! it is, with its changes thrown away, is a dry run.
//!
//! ```text
//! datasets   the pool's datasets: running requests, reading the catalogue
//! client     what happens in the syncing context
//! resolve    from names to ids and back
//! format     the tree of a new dataset
//! open       opening datasets and snapshots: file systems, options
//! create, destroy, rename, snapshot, rollback, clone, hold, bookmark
//! property   setting, inheriting; where a value comes from
//! feature    the features of the pool's format
//! list, value     what there is, and the value of each property
//! limits, quotas  what a dataset may use, and what those below a quota may use together
//! send, receive   what goes into a stream, and what becomes of one
//! replaced   what differs for a mount when another tree takes the place of its file system's
//! modified   whether a dataset was changed or only read
//! compare    which files differ between two snapshots
//! history    what was done to the pool
//! examine    examining and mending a part of the pool, on demand; all of it, and whatever else takes long, is [`crate::jobs`]'s
//! losses     what would be lost if devices were
//! damage     the names of what is damaged for good
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
