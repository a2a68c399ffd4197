//! Scrub: reads everything that a pool refers to while the pool is in use, and repairs bad copies of blocks with a good
//! copy left.
//!
//! A scrub covers the labels and uberblocks, the blocks of the space maps, the catalogue, and then the datasets, and
//! reads every copy of every block. It works in steps of bounded size. Between two steps the only state is a
//! [`ScrubRow`](crate::catalogue::ScrubRow), written to the catalogue now and then. So after a pause, an export or a
//! crash a scrub continues at the last written position.
//!
//! # What is examined
//!
//! Blocks born up to the txg in which the scrub began: younger blocks have just been written. Datasets are scrubbed in
//! the order of their ids, and in each dataset the snapshots from the oldest to the newest, then the dataset itself. A
//! block born before the previous member was taken also belongs to the previous member, and was examined there; so each
//! block of a line is read once. For the same reason the scrub of a clone begins after its origin, if the origin's
//! dataset came before; if not, the clone is examined completely.
//!
//! The pool changes meanwhile. Each step begins at the current roots in the catalogue, at the key that the previous
//! step reached:
//!
//! * A new snapshot of the dataset being examined is the dataset's tree, so the snapshot is examined first, from the
//!   same key on; the dataset itself then has no old blocks beyond the snapshot's.
//! * A snapshot destroyed while being examined leaves its blocks to the next member, which is examined from its first
//!   key on.
//! * Destroyed blocks need no examination.
//! * A promotion moves snapshots between datasets, possibly across the scrub's position: the scrub restarts at the
//!   first dataset.
//! * Trees and lists queued for freeing are not examined, because no user will read their blocks.
//!
//! # Bad copies of blocks
//!
//! A block read by a step may have been freed since, and its space reused, so a bad copy proves nothing. The pool is
//! held still, and the block is looked up in the committed tree, read again, counted, and repaired: see
//! [`pool::txg::Still`], which also covers crashes. The same is done for blocks of which a reader met a bad copy. A
//! block without a good copy is damage. The catalogue records the damaged objects in each member of the line and of the
//! clones with the block, until a complete scrub no longer finds the damage.
//!
//! ```text
//! members    the next tree to examine
//! pass       one step through a tree
//! repair     a suspect block, its tree's root, and all trees that share the block
//! damage     the list of permanent damage
//! ```

pub mod damage;
pub mod members;
pub mod pass;
pub mod repair;
