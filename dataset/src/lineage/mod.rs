//! How snapshots, clones and deletions share blocks, and which dataset is charged.
//!
//! Terms. The *line* of a dataset is the sequence of its snapshots, oldest first, followed by the dataset itself; the
//! line of a clone continues backwards from its origin. A block is *born* when written; a dataset *drops* a block when
//! its tree no longer refers to the block. The *deadlist* of a member of a line contains the blocks of the previous
//! member that the member no longer has.
//!
//! Invariants, for each member X of a line and its predecessor P:
//! 1. The deadlist of X contains exactly the blocks of P that are not in X.
//! 2. A block of X is not in P if and only if the block was born after P was taken.
//! 3. A deadlist is divided into buckets by birth: bucket `t` contains blocks born after `t`, and no existing snapshot
//!    of the line was taken between `t` and their births.
//! 4. `referenced` counts the blocks of a tree, `dead` the blocks of a deadlist, and `space` the blocks of a bucket.
//!
//! The costs follow from the invariants. A block dropped by a dataset is free if born after the newest snapshot, and
//! otherwise goes to the dataset's deadlist. The space held by a snapshot S alone is on the deadlist of the next
//! member, in the buckets from P's txg on: a sum over few rows. Destroying S frees these lists, and links the rest of
//! both deadlists without moving entries. Taking a snapshot, cloning and rolling back change a handful of rows, however
//! large the dataset. Trees and lists to be freed become background work, done in batches; see `work`.
//!
//! After a copy that shares blocks, a block may be referred to from several independent places. Then all of the above
//! is about *references*: each reference is born when entering its tree and counts as a block of its own. Only freeing
//! checks for further references; see `reference`.
//!
//! ```text
//! reference  blocks with several references: which drop frees them
//! charge     the counters of a dataset and of those above it
//! deadlist   buckets: finding, adding, linking, summing
//! written    a changed tree: its births and the blocks it dropped
//! snapshot   taking, destroying; holds
//! since      the space written between two members of a line
//! branch     cloning, promoting, rolling back
//! arrival    where a stream lands
//! dataset    creating, moving, destroying a dataset
//! work       freeing trees and lists in the background
//! nodes      reading stored trees outside of any open head
//! difference the difference of two trees
//! check      recomputes all of the above from the trees
//! ```
//!
//! Nothing here knows names, properties or files; that is `admin`.

pub mod arrival;
pub mod branch;
pub mod charge;
pub mod check;
pub mod dataset;
pub mod deadlist;
pub mod difference;
pub mod nodes;
pub mod reference;
pub mod since;
pub mod snapshot;
pub mod work;
pub mod written;
