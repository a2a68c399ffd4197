//! When what was freed can be allocated again.
//!
//! What group N frees stays as it is until [`DEFERRED_GROUPS`] more groups were committed, so that as many states before
//! the newest are whole: a crash returns to the newest or to the one before it, and whoever finds the newest unreadable
//! goes back as far as that (see [`crate::admin::rewind`]). A [hold](super::Hold) keeps an older state for longer.
//!
//! Groups count here as they are committed, not by number: numbers may be left out between two imports.
//!
//! Nothing here knows what was freed: the chunks file that under its group, and ask up to which one it may go.

use std::collections::VecDeque;

use crate::units::Txg;

/// What a group frees can be allocated again when so many more groups were committed.
pub const DEFERRED_GROUPS: usize = 3;

/// Of so many states, the newest among them, nothing was overwritten.
pub const SAFE_STATES: usize = DEFERRED_GROUPS + 1;

/// The groups committed last, and how far frees have got.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Those whose frees are deferred, oldest first: at most [`DEFERRED_GROUPS`].
    deferred: VecDeque<Txg>,
    /// Up to this group frees were deferred for long enough.
    due: Txg,
    /// Up to this group they are reusable. Less than `due` while a state is held.
    reusable: Txg,
}

impl History {
    /// Of a pool that is opened: these groups were committed last, oldest first.
    pub(super) fn after(deferred: VecDeque<Txg>) -> History {
        let due = deferred.front().map_or(Txg::ZERO, |first| first.back(1));
        History { deferred, due, reusable: due }
    }

    /// Notes that `txg` is committed. Returns up to which group frees are now reusable, if none but `limit` has a say in
    /// it: it gets the group that is due, and returns that or an older one.
    pub(super) fn commit(&mut self, txg: Txg, limit: impl FnOnce(Txg) -> Txg) -> Option<Txg> {
        let last = self.deferred.back();
        assert!(last.is_none_or(|&last| last < txg), "transaction group {txg} is committed out of turn");
        self.deferred.push_back(txg);
        if self.deferred.len() <= DEFERRED_GROUPS {
            return None;
        }
        self.due = self.deferred.pop_front()?;
        self.reusable = self.reusable.max(limit(self.due));
        Some(self.reusable)
    }

    /// The group up to which what was freed can be allocated again.
    pub(super) fn reusable(&self) -> Txg {
        self.reusable
    }

    /// Whether what `txg` freed can be allocated again, or could if no state was `held` that keeps it: then more commits
    /// change nothing about it.
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
    fn frees_are_reusable_when_as_many_groups_were_committed_after_them() {
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
    fn while_a_state_is_held_commits_do_not_help_and_after_it_one_does() {
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
