//! How snapshots, clones and deletions share blocks, and who pays for what.
//!
//! Terms. The *line* of a dataset is its snapshots from the oldest to the newest and then the dataset itself; the line
//! of a clone goes on backwards from its origin. A block is *born* when it is written; a dataset *drops* it when its
//! tree no longer refers to it. The *deadlist* of a member of a line holds the blocks that the member before it has and
//! it has not.
//!
//! Invariants, for each member X of a line and the member P before it:
//! 1. A block of P that is not in X is on the deadlist of X, and nothing else is.
//! 2. A block of X was born after P was taken if and only if it is not in P.
//! 3. A deadlist is divided into buckets by birth: the bucket `t` holds blocks born after `t`, and no snapshot of the
//!    line that is still there was taken between `t` and their births.
//! 4. `referenced` counts the blocks of a tree, `dead` those of a deadlist, a bucket's `space` its own.
//!
//! From this follows what everything costs. A block that a dataset drops is free if it was born after the newest
//! snapshot, and else goes to the dataset's deadlist. What a snapshot S holds alone is on the deadlist of the member
//! after it, in the buckets from P's txg on: a sum over few rows. Destroying S frees these lists, and links the rest of
//! both deadlists: no entry is moved. Taking a snapshot, cloning and rolling back change a handful of rows, however much
//! is stored. Trees and lists that are to be freed become background work, done in batches; see `work`.
//!
//! A block may be referred to from places that know nothing of each other, where files share what was copied. Then all
//! of the above is about *references*: each is born when it enters its tree and counts as a block of its own, and only
//! freeing it asks whether another is left; see `reference`.
//!
//! ```text
//! reference  blocks with several references: which drop frees them
//! charge     the counters of a dataset and of those above it
//! deadlist   buckets: finding, adding, linking, summing
//! written    a changed tree: its births and the blocks it dropped
//! snapshot   taking, destroying; holds
//! since      what was written between two members of a line
//! branch     cloning, promoting, rolling back
//! arrival    where a stream lands
//! dataset    creating, moving, destroying a dataset
//! work       freeing trees and lists in the background
//! nodes      reading stored trees outside of any open head
//! difference what differs between two trees
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
