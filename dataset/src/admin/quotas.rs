//! What the datasets below a quota were admitted together.
//!
//! A quota bounds a dataset and all below it, and each of these is written to by somebody else. So what is left of it
//! until the next commit is counted once, here, and not by each of them: together they could use it several times over.
//! [`super::limits`] stands above: it knows which quotas a dataset is under, and what the catalogue says of them.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// The quotas that open datasets are under, by the id of the dataset that has it.
#[derive(Default)]
pub(super) struct Quotas(Mutex<BTreeMap<u64, Quota>>);

#[derive(Default)]
struct Quota {
    /// What the catalogue leaves of it.
    left: u64,
    /// Somebody has told what is left since the last sync; otherwise nobody is under it any more.
    current: bool,
    admitted: Admitted,
}

/// Bytes that were admitted and may not be counted as used yet.
///
/// What is admitted while a transaction group is written belongs to the next one, which cannot be told apart from what
/// belongs to this one. So all is remembered for two.
#[derive(Clone, Copy, Default)]
pub(super) struct Admitted {
    /// Since the last sync.
    now: u64,
    /// In the one before.
    before: u64,
}

impl Admitted {
    pub(super) fn sum(self) -> u64 {
        self.now + self.before
    }

    /// Whether `bytes` more fit into what is left by the catalogue.
    pub(super) fn fits(self, bytes: u64, left: u64) -> bool {
        self.sum().saturating_add(bytes) <= left
    }

    pub(super) fn add(&mut self, bytes: u64) {
        self.now += bytes;
    }

    /// A group was synced, and what it used is in the catalogue.
    pub(super) fn turn(&mut self) {
        *self = Admitted { now: 0, before: self.now };
    }
}

impl Quotas {
    /// Takes what the catalogue says is left of a quota.
    pub(super) fn set(&self, id: u64, left: u64) {
        let mut quotas = self.0.lock();
        let quota = quotas.entry(id).or_default();
        (quota.left, quota.current) = (left, true);
    }

    /// Admits `bytes` under all of these quotas, or under none.
    pub(super) fn admit(&self, ids: &[u64], bytes: u64) -> bool {
        let mut quotas = self.0.lock();
        let fits = |id| quotas.get(id).is_none_or(|quota: &Quota| quota.admitted.fits(bytes, quota.left));
        let admitted = ids.iter().all(fits);
        for id in ids.iter().filter(|_| admitted) {
            quotas.entry(*id).or_default().admitted.add(bytes);
        }
        admitted
    }

    /// The most bytes admitted under one of these quotas that may not be counted as used yet.
    pub(super) fn most_admitted(&self, ids: &[u64]) -> u64 {
        let quotas = self.0.lock();
        ids.iter().filter_map(|id| quotas.get(id)).map(|quota| quota.admitted.sum()).max().unwrap_or(0)
    }

    /// A group was synced. To be called when all that is left has been [set](Quotas::set): the other way round, what
    /// the group wrote would count neither as admitted nor as used for a moment.
    pub(super) fn turn(&self) {
        let mut quotas = self.0.lock();
        quotas.retain(|_, quota| std::mem::take(&mut quota.current));
        quotas.values_mut().for_each(|quota| quota.admitted.turn());
    }
}
