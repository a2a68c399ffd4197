//! Transaction groups: how changes become a committed state.
//!
//! At any time one group is *open*: every change belongs to it. A commit takes three steps:
//!
//! 1. *Quiesce.* The gate is closed for an instant, in which every changed tree is frozen (an `Arc` clone of its root)
//!    and the next group is opened. Changes go on in the next group right away.
//! 2. *Sync.* What the frozen trees hold and no device does yet is written: records, then nodes from the leaves up; then
//!    the catalogue, which holds the trees' roots; then the space layer's account of all that. Nothing that the last
//!    uberblock refers to is overwritten.
//! 3. *Commit.* Flush all devices; write the uberblock; flush again.
//!
//! Power may fail at any of these instants:
//!
//! * Before or during the first flush: the last uberblock stands, and with it a state no byte of which was touched: what
//!   was written went to space that was free in it and in the three states before.
//! * While the uberblock is written: its slot held the uberblock of 32 groups ago. It is torn and fails its checksum, and
//!   the last one stands; or it is whole on some label of some device, and then everything it refers to is stable.
//! * After the second flush: the new state stands.
//!
//! ```text
//! engine     an opened pool: what its parts share; opening, reading, admitting, committing
//! head       one tree and its life through the groups
//! births     what a tree's records take, group by group
//! sync       the second and third step
//! streams    who reads in order, and what they will ask for next
//! still      no commit for a while: looking at blocks again, and mending them
//! fill       devices that lack something get it
//! evacuate   a vdev is vacated, to leave the pool
//! workers    the threads that compress, checksum and write
//! durable    the intent log's side: durable before the next commit
//! committer  the thread that commits every few seconds
//! throttle   how much may be dirty
//! pace       how fast writers may go on when much is
//! ```

mod births;
mod committer;
mod durable;
mod engine;
mod evacuate;
mod fill;
mod head;
mod pace;
mod still;
mod streams;
mod sync;
mod throttle;
mod workers;

pub(crate) use births::Births;
pub use births::Usage;
pub use committer::Committer;
pub use durable::LogStats;
pub use engine::{
    Ancestry, CATALOGUE, Caching, Due, Engine, Found, Opening, Pinned, Reclaimer, SETTLING_COMMITS, Settings,
};
pub(crate) use engine::{Features, REPEATS, state_of};
pub use evacuate::{Evacuation, Vacating};
pub use fill::{FILLING_COUNTERS, Filling, FillingNote};
pub use head::{Head, OpError, Plain, Quiet, TreeEpoch};
pub use still::{Place, Still, Suspect, Verdict};
pub use streams::Outlook;
pub use sync::{Sync, SyncClient, Written};

#[cfg(test)]
mod tests;
