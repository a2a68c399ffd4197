//! The token of a checked read: whether the bytes read still belong to the block that was looked up.
//!
//! A reader looks a block up and reads it later, without a lock. Meanwhile the block may be freed, and its sectors
//! overwritten by another. The checksum tells, if the block has a checksum. Without a checksum the read would return
//! wrong data; with one, a mismatch would be counted at a healthy device. So every read carries a [`Seen`]: the
//! transaction group to be committed next at the time of the look-up. The bytes are believed only if no space freed in
//! that group or later can be in use again.
//!
//! Why this is enough. *A block in a tree at an instant was not freed by a group committed by then.* A live tree still
//! has the block, so the change that drops it comes later, in an open group. An open snapshot has its row, because the
//! sync that takes the row out closes the tree before the commit. The catalogue changes only in the sync of the next
//! group to be committed. So the block is freed in the group of its [`Seen`] at the earliest. Space freed by group N is
//! allocated again only after [`Space::committed`] has made N reusable (invariant 1), and N is published *before* a
//! sector is given out. A reader that finds N not reusable after the read has read the right bytes.
//!
//! The same holds for regions that chunks have left: they rest until the group of the move is reusable.
//!
//! A cached block needs no token: its key is its address and birth, unique in the pool's history, and a checked read or
//! the block's writer has put it there.

use std::sync::{Arc, atomic::Ordering};

use super::{hold::Hold, state::Space};
use crate::units::Txg;

/// The moment at which a block was seen in a tree: no block of the tree at that moment was freed before this group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen(Txg);

impl Seen {
    /// For a block that cannot be freed meanwhile: the group that might free it is being written by the caller, or
    /// waits for a pool held still.
    pub(crate) const HELD: Seen = Seen(Txg::LIMIT);

    /// Never valid: for pointers not found in a tree of the pool.
    pub(crate) const NEVER: Seen = Seen(Txg::ZERO);

    /// For pointers found now, when groups up to `committed` are committed.
    pub(crate) fn after(committed: Txg) -> Seen {
        Seen(committed.next())
    }
}

impl Space {
    /// Whether the bytes read so far for a pointer with this token are the block's own.
    pub(crate) fn stands(&self, seen: Seen) -> bool {
        // Sequentially consistent: the bytes were read before this load, and `reusable` is stored before they can
        // change.
        self.reusable.load(Ordering::SeqCst) < seen.0.0 && self.kept_by.get().is_none_or(|hold| !hold.is_lost())
    }

    /// Keeps blocks seen with this token from being overwritten, as long as the pool has room. `None` if they may have
    /// been already.
    pub(crate) fn hold_seen(&self, seen: Seen) -> Option<Arc<Hold>> {
        let hold = self.hold(seen.0.back(1));
        // Later commits respect the hold; earlier ones may have gone further.
        self.stands(seen).then_some(hold)
    }

    /// Declares this a second view of a state kept by a hold: reads fail when the hold is given up.
    pub(crate) fn is_kept_by(&self, hold: Arc<Hold>) {
        assert!(self.kept_by.set(hold).is_ok(), "a state is kept by one hold");
    }
}
