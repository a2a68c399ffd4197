//! Holds: keeping a committed state whole for longer than frees are deferred anyway.
//!
//! While a [`Hold`] on the state of group N lives, no space freed after N is used again, so every block of that state
//! keeps its content, the space layer's own blocks included. This allows reading an older state while the pool is in
//! use. Holds are not stored: after a crash no reader is left.
//!
//! Held space is missing elsewhere. So a hold is only a request: when the pool runs short, holds are given up, and the
//! owner must check at the end ([`Hold::is_lost`]) whether the read was still consistent.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;

use crate::units::Txg;

/// Keeps the state of a transaction group until dropped.
#[derive(Debug)]
pub struct Hold {
    txg: Txg,
    lost: AtomicBool,
}

impl Hold {
    /// Whether the state may have been overwritten since.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }
}

/// The holds of a pool.
#[derive(Debug, Default)]
pub(super) struct Holds(Mutex<Vec<Weak<Hold>>>);

impl Holds {
    /// A hold on the state of `txg`, all of whose blocks must still be intact.
    pub(super) fn add(&self, txg: Txg) -> Arc<Hold> {
        let hold = Arc::new(Hold { txg, lost: AtomicBool::new(false) });
        self.0.lock().push(Arc::downgrade(&hold));
        hold
    }

    /// Gives up all holds. Returns whether there were any.
    pub(super) fn give_up(&self) -> bool {
        let given_up: Vec<Arc<Hold>> = self.0.lock().drain(..).filter_map(|hold| hold.upgrade()).collect();
        given_up.iter().for_each(|hold| hold.lost.store(true, Ordering::Release));
        !given_up.is_empty()
    }

    /// The group up to which frees may be reused: `release`, or less because of holds.
    pub(super) fn limit(&self, release: Txg) -> Txg {
        let mut holds = self.0.lock();
        holds.retain(|hold| hold.strong_count() > 0);
        let oldest = holds.iter().filter_map(|hold| Some(hold.upgrade()?.txg)).min();
        oldest.map_or(release, |held| held.min(release))
    }

    /// Whether there are any.
    pub(super) fn any(&self) -> bool {
        self.0.lock().iter().any(|hold| hold.strong_count() > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_hold_counts_until_it_is_dropped_or_given_up() {
        let holds = Holds::default();
        assert_eq!(holds.limit(Txg(9)), Txg(9));
        let (old, new) = (holds.add(Txg(5)), holds.add(Txg(7)));
        assert_eq!((holds.limit(Txg(9)), holds.limit(Txg(3))), (Txg(5), Txg(3)));
        drop(old);
        assert_eq!(holds.limit(Txg(9)), Txg(7));
        assert!(holds.any() && !new.is_lost());
        assert!(holds.give_up() && new.is_lost() && !holds.any());
        assert_eq!(holds.limit(Txg(9)), Txg(9));
        assert!(!holds.give_up());
    }
}
