//! Whether what is read is still what was meant: the token of a checked read.
//!
//! A reader looks a block up and reads it later, without a lock. Meanwhile the block may be freed, and its sectors written
//! again with another's data. Its checksum tells, if it has one; a block without one would be taken for what it was, and a
//! mismatch would be counted at a healthy device. So every read carries a [`Seen`]: the transaction group that was to be
//! committed next when the tree was looked at. It is believed only if nothing that was freed in that group or a later one
//! can be in use again.
//!
//! Why that is enough. *What a tree refers to at an instant was not freed by a group that was committed by then.* A live
//! tree still has the block, so the change that drops it comes later, in an open group. A snapshot that is open has its
//! row, for the sync that takes the row out closes the tree before it commits. The catalogue changes only in the sync of
//! the group that is to be committed next. So the block is freed in the group that [`Seen`] names, at the earliest. What
//! group N frees is allocated again only after [`Space::committed`] has made N reusable (invariant 1), and that is said here
//! *before* a sector is given out. A reader that finds N not reusable after its bytes have come has read them before.
//!
//! The same holds for regions that chunks have left: they rest until the group of the move is reusable.
//!
//! A cached block needs no token: it is known by address and birth, which no two blocks share, and it was kept by a read
//! that passed, or by who wrote it.

use std::sync::{Arc, atomic::Ordering};

use super::{Hold, Space};
use crate::units::Txg;

/// When a block was seen in a tree: nothing that the tree referred to then was freed before this group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen(Txg);

impl Seen {
    /// Of a block that cannot be freed meanwhile: the group that might free it is being written by the caller, or waits for
    /// a pool that is held still.
    pub(crate) const HELD: Seen = Seen(Txg::LIMIT);

    /// Never: of what was seen in no tree of a pool.
    pub(crate) const NEVER: Seen = Seen(Txg::ZERO);

    /// Of what is looked at now, when these groups are committed.
    pub(crate) fn after(committed: Txg) -> Seen {
        Seen(committed.next())
    }
}

impl Space {
    /// Whether the bytes of a block that was seen then, and that were read by now, are its own.
    pub(crate) fn stands(&self, seen: Seen) -> bool {
        // As strong as can be: the bytes were read before this is asked, and what is said here was said before they changed.
        self.reusable.load(Ordering::SeqCst) < seen.0.0 && self.kept_by.get().is_none_or(|hold| !hold.is_lost())
    }

    /// Keeps what was seen then from being overwritten, for as long as the pool has room. `None` if it may have been.
    pub(crate) fn hold_seen(&self, seen: Seen) -> Option<Arc<Hold>> {
        let hold = self.hold(seen.0.back(1));
        // Commits from now on know of the hold; those before may have gone further.
        self.stands(seen).then_some(hold)
    }

    /// Says that this is another look at a state that is kept by a hold, and changes without telling when that is given up.
    pub(crate) fn is_kept_by(&self, hold: Arc<Hold>) {
        assert!(self.kept_by.set(hold).is_ok(), "a state is kept by one hold");
    }
}
