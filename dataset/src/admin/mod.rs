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
//! scrub      examining and mending everything           examine    a part of it, on demand
//! copying    everything walked, to copy it elsewhere: for resilver, and for moving
//! moving     regions emptied step by step: for evacuation, by which a vdev leaves, for resizing, by which
//!            its devices become smaller, for expansion, and for batches
//! batches    regions emptied some at a time: for rebalance and defragment
//! losses     what would be lost if devices were
//! damage     the names of what is damaged for good
//! ```
//!
//! Requests and answers are plain types without formatting; commands print them.

mod batches;
mod bookmark;
mod client;
mod clone;
mod compare;
mod copying;
mod create;
mod cursor;
mod damage;
mod datasets;
mod defragment;
mod destroy;
mod error;
mod evacuation;
mod examine;
mod expansion;
mod feature;
mod format;
mod history;
mod hold;
mod limits;
mod list;
mod long_hold;
mod losses;
mod modified;
mod moving;
mod open;
mod placement;
mod property;
mod quotas;
mod rebalance;
mod receive;
mod rename;
mod replaced;
mod replay;
mod resilver;
mod resizing;
mod resolve;
mod rollback;
mod scrub;
mod send;
mod snapshot;
mod stride;
mod value;

#[cfg(test)]
mod tests;

pub use compare::{Difference, DifferenceKind};
pub use create::CreateRequest;
pub use datasets::{Datasets, Mount, Progress};
pub use defragment::DefragmentStatus;
pub use destroy::{DestroyRequest, DestroySnapshotsRequest, Destroyed};
pub use error::{Error, Result};
pub use evacuation::{RemovalStatus, Removing};
pub use examine::{Examination, Examined, Scope};
pub use expansion::{Expanding, ExpansionStatus, Pause};
pub use feature::Sharing;
pub use history::Event;
pub use hold::HoldInfo;
pub use list::{ListRequest, Listed, Listing};
pub use long_hold::{Holder, LongHold, Reader};
pub use losses::{Loss, Survivors};
pub use open::{Dataset, OpenSnapshot};
pub use property::{Assignment, Valued};
pub use rebalance::RebalanceStatus;
pub use receive::{Arrived, ArrivedSnapshot, Naming, ReceiveRequest};
pub use rename::Renamed;
pub use replaced::{Differing, Replaced};
pub use resilver::{ResilverState, ResilverStatus, Resumed};
pub use resizing::{ResizeStatus, Resizing};
pub use resolve::Target;
pub use rollback::{RollbackRequest, RolledBack};
pub use scrub::ScrubStatus;
pub use send::{Planned, SendFrom, SendRequest};
pub use stride::Stride;
