//! Examining everything that a pool refers to, while it is in use, and mending what has a good copy left.
//!
//! A scrub goes through the labels and uberblocks, the space layer's blocks, the catalogue, and then the datasets, and
//! reads every copy of every block. It works in steps of bounded size; between two steps nothing is held but a
//! [`ScrubRow`](crate::catalogue::ScrubRow), which is written to the catalogue now and then, so that a scrub goes on after
//! a pause, an export or a crash where it stood when the row was last written.
//!
//! # What is examined
//!
//! Blocks born up to the transaction group in which the scrub began; whoever wrote a younger one has just had it in hand.
//! Datasets are taken in the order of their ids, in each the snapshots from the oldest to the newest and then the dataset
//! itself. A block of a member that was born before the member before it was taken belongs to that one too, and was
//! examined there; so each block of a line is read once. For the same reason a clone begins after its origin, if the
//! origin's dataset came before; if not, it is examined whole.
//!
//! Things change meanwhile. Each step begins at the roots that the catalogue has then, at the key that the step before
//! reached:
//!
//! * A snapshot that is taken of the dataset that is being examined is its tree as it was, so it is examined first, from
//!   the same key on; the dataset itself has nothing old left after it that the snapshot has not.
//! * A snapshot that is destroyed while it is being examined leaves its blocks to the member after it, which is examined
//!   from its first key on.
//! * What was examined and is destroyed needs nothing; what was not, neither.
//! * A promotion moves snapshots between datasets that may lie on both sides of the scrub: it starts again at the first
//!   dataset.
//! * Background work frees trees and lists of blocks: they are not examined, for nobody will read them.
//!
//! # What is done about a bad copy
//!
//! What a step reads may have been freed since and belong to another block, so a bad copy says nothing by itself. The pool
//! is held still, the block is looked for in the committed tree, read again, counted, and mended: see
//! [`pool::txg::Still`], which also argues what a crash leaves. The same is done with blocks of which a reader met a bad
//! copy. A block without a good copy is damage: which objects it takes with it, in each member of the line and of the
//! clones that has it, is noted in the catalogue, until a whole scrub does not find it any more.
//!
//! ```text
//! members    what to examine next
//! pass       one step through a tree
//! mend       a suspect, its tree's root, and all who share it
//! damage     the list of what is lost
//! ```

pub mod damage;
pub mod members;
pub mod mend;
pub mod pass;
