//! Deferred frees: when freed space can be allocated again.
//!
//! Space freed by group N keeps its content until [`DEFERRED_GROUPS`] more groups were committed, so as many states
//! before the newest are whole. A crash returns to the newest state or to the one before it. An import that finds the
//! newest unreadable can rewind through all of them (see [`crate::admin::rewind`]). A [hold](super::Hold) keeps an
//! older state for longer.
//!
//! Groups count here as they are committed, not by number: an import may skip numbers.
//!
//! This file does not know the freed sectors. The chunks file frees under their group, and ask up to which group frees
//! are reusable.

use std::collections::VecDeque;

use crate::units::Txg;

/// How many more groups must be committed before a group's frees can be allocated again.
pub const DEFERRED_GROUPS: usize = 3;

/// The number of newest states with all of their blocks intact.
pub const SAFE_STATES: usize = DEFERRED_GROUPS + 1;

/// The groups committed last, and how far frees have got.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The groups whose frees are deferred, oldest first: at most [`DEFERRED_GROUPS`].
    deferred: VecDeque<Txg>,
    /// Frees up to this group were deferred for long enough.
    due: Txg,
    /// Frees up to this group are reusable. Less than `due` while a state is held.
    reusable: Txg,
}

impl History {
    /// The history of a pool being opened: the groups committed last, oldest first.
    pub(super) fn after(deferred: VecDeque<Txg>) -> History {
        let due = deferred.front().map_or(Txg::ZERO, |first| first.back(1));
        History { deferred, due, reusable: due }
    }

    /// Notes that `txg` is committed. `limit` lowers the group now due to the newest one that holds allow. Returns the
    /// group up to which frees are now reusable; `None` for the first groups of a pool.
    pub(super) fn commit(&mut self, txg: Txg, limit: impl FnOnce(Txg) -> Txg) -> Option<Txg> {
        let last = self.deferred.back();
        assert!(last.is_none_or(|&last| last < txg), "TXG-1: transaction group {txg} is committed out of turn");
        self.deferred.push_back(txg);
        if self.deferred.len() <= DEFERRED_GROUPS {
            return None;
        }
        self.due = self.deferred.pop_front()?;
        self.reusable = self.reusable.max(limit(self.due));
        assert!(
            self.reusable <= self.due,
            "SPACE-3: space freed by {} is given out, {} is due",
            self.reusable,
            self.due
        );
        Some(self.reusable)
    }

    /// The group up to which frees can be allocated again.
    pub(super) fn reusable(&self) -> Txg {
        self.reusable
    }

    /// Whether more commits change nothing about frees of `txg`: they are reusable, or only kept back because a state
    /// is `held`.
    pub(super) fn is_through(&self, txg: Txg, held: bool) -> bool {
        self.reusable >= txg || held && self.due >= txg
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commits(history: &mut History, txgs: std::ops::Range<u64>) -> Option<Txg> {
        txgs.map(Txg).filter_map(|txg| history.commit(txg, |due| due)).last()
    }

    #[test]
    fn frees_are_reusable_three_commits_later() {
        let mut history = History::default();
        let groups = DEFERRED_GROUPS as u64;
        assert_eq!(commits(&mut history, 5..5 + groups), None);
        assert!(!history.is_through(Txg(5), false));
        // Numbers may be left out.
        assert_eq!(history.commit(Txg(100), |due| due), Some(Txg(5)));
        assert!(history.is_through(Txg(5), false) && !history.is_through(Txg(6), false));
    }

    #[test]
    fn what_was_deferred_when_the_pool_was_closed_still_is() {
        let groups = DEFERRED_GROUPS as u64;
        let mut history = History::after((10..10 + groups).map(Txg).collect());
        assert!(history.is_through(Txg(9), false) && !history.is_through(Txg(10), false));
        assert_eq!(history.commit(Txg(20), |due| due), Some(Txg(10)));
    }

    #[test]
    fn commits_release_no_frees_while_a_state_is_held() {
        let mut history = History::default();
        let groups = DEFERRED_GROUPS as u64;
        for txg in 5..=6 + groups {
            history.commit(Txg(txg), |due| due.min(Txg(5)));
        }
        assert!(history.is_through(Txg(6), true) && !history.is_through(Txg(6), false));
        assert!(!history.is_through(Txg(7), true), "it is not due yet");
        assert_eq!(history.commit(Txg(7 + groups), |due| due), Some(Txg(7)));
        assert!(history.is_through(Txg(6), false));
    }
}
