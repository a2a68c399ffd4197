//! Transaction groups: how changes become a committed state.
//!
//! At any time one group is *open*: every change belongs to it. A commit takes three steps:
//!
//! 1. *Quiesce.* The gate is closed for an instant, in which every changed tree is frozen (an `Arc` clone of its root)
//!    and the next group is opened. Changes go on in the next group right away.
//! 2. *Sync.* The frozen trees' unwritten blocks are written: records, then nodes from the leaves up; then the
//!    catalogue, which holds the trees' roots; then the space layer's account of all of them. No block of the last
//!    uberblock's state is overwritten.
//! 3. *Commit.* Flush all devices; write the uberblock; flush again.
//!
//! Power may fail at any of these instants:
//!
//! * Before or during the first flush: the last uberblock stands, and its state is intact, because sync wrote only to
//!   space that was free in that state and in the three states before.
//! * While the uberblock is written: its slot held the uberblock of 32 groups ago. If it is torn, its checksum fails,
//!   and the last uberblock stands. If it is whole on some label of some device, every block of its state is stable.
//! * After the second flush: the new state stands.
//!
//! ```text
//! engine     an opened pool: shared state; opening, reading, admitting, committing
//! head       one tree and its life through the groups
//! sync       the second and third step
//! client     the layers above, as the engine calls them
//! streams    sequential readers, and the prefetch for them
//! suspects   blocks with a bad copy, until they are examined
//! still      no commit for a while: examining blocks, and repairing them
//! resilver   the engine's part of a resilver
//! evacuate   the engine's part of removal and of other jobs that move chunks
//! workers    the threads that compress, checksum and write
//! durable    the intent log's side: durable before the next commit
//! feeder     the thread that writes to cache devices
//! committer  the thread that commits every few seconds
//! throttle   how much may be dirty
//! pace       how fast writers may go on when much is dirty
//! ```

mod client;
mod committer;
mod durable;
mod engine;
mod evacuate;
mod feeder;
mod head;
mod pace;
mod resilver;
mod still;
mod streams;
mod suspects;
mod sync;
mod throttle;
mod tier;
mod workers;

pub(crate) use self::{
    client::Features,
    engine::{REPEATS, state_of},
};
pub use self::{
    client::{Sync, SyncClient, Written},
    committer::Committer,
    durable::rounds::LogStats,
    engine::{
        Ancestry, CATALOGUE, CacheFigures, Caching, DEFAULT_CACHE, DEFAULT_DIRTY, Due, Engine, Found, Opening, Pinned,
        Reclaimer, Redundancy, SETTLING_COMMITS, Settings, Still,
    },
    evacuate::{Evacuation, Vacating},
    feeder::Feeder,
    head::{Head, OpError, Plain, Quiet, TreeEpoch},
    resilver::note::{RESILVER_COUNTERS, ResilverNote, Resilvering},
    still::Verdict,
    streams::Outlook,
    suspects::{Place, Suspect},
};

#[cfg(test)]
mod tests;
