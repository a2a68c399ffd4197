//! Shares of each user in lasting connections: live views, downloads, uploads, orders of tokens,
//! questions to services, and running commands.
//!
//! The owner has almost all places. All remaining users share few, so no user can use up the descriptors and threads of the
//! server.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Kinds of lasting connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lasting {
    /// A live view of a browser.
    View,
    /// A download or an upload.
    Transfer,
    /// An order of a token.
    Order,
    /// A page or a dry run that a service is asked for.
    Question,
    /// A running command.
    Command,
}

impl Lasting {
    /// Most places of the owner, of a user besides, and of all users besides.
    const fn most(self) -> (usize, usize, usize) {
        match self {
            Lasting::View => (1500, 32, 256),
            Lasting::Transfer => (32, 4, 16),
            Lasting::Order => (16, 4, 64),
            Lasting::Question => (1000, 8, 24),
            Lasting::Command => (16, 2, 8),
        }
    }
}

type Counts = BTreeMap<(Lasting, Option<u32>), usize>;

/// The places in use, by user; the owner has no number here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quota(Arc<Mutex<Counts>>);

/// A place in use, until dropped.
#[derive(Debug)]
pub(crate) struct Place {
    quota: Quota,
    key: (Lasting, Option<u32>),
}

impl Quota {
    /// Takes a place for a user, or for the owner with `None`; `None` if the share is used up.
    pub(crate) fn enter(&self, lasting: Lasting, user: Option<u32>) -> Option<Place> {
        let (of_owner, of_one, of_others) = lasting.most();
        let mut counts = self.0.lock();
        let key = (lasting, user);
        let own = counts.get(&key).copied().unwrap_or(0);
        let is_other = |(kind, user): &(Lasting, Option<u32>)| *kind == lasting && user.is_some();
        let all_others: usize = counts.iter().filter(|(key, _)| is_other(key)).map(|(_, count)| count).sum();
        let is_full = match user {
            None => own >= of_owner,
            Some(_) => own >= of_one || all_others >= of_others,
        };
        if is_full {
            return None;
        }
        counts.insert(key, own + 1);
        Some(Place { quota: self.clone(), key })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.quota.0.lock();
        match counts.get_mut(&self.key) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(counts.remove(&self.key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_users_leave_places_for_the_owner() {
        let quota = Quota::default();
        let of = |user| std::iter::from_fn(|| quota.enter(Lasting::Transfer, user)).collect::<Vec<_>>();
        let places: Vec<Vec<Place>> = (1..=5).map(|user| of(Some(user))).collect();
        assert_eq!(places.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 4, 4, 0]);
        assert_eq!(of(None).len(), 32);
        drop(places);
        assert_eq!(of(Some(9)).len(), 4);
        assert!(quota.0.lock().is_empty());
    }
}
