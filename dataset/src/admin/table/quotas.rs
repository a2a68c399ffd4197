//! The bytes admitted under each quota.
//!
//! A quota bounds a dataset and all its descendants, and each of the datasets has writers of its own. So the bytes left
//! until the next commit are counted once, here. If each dataset counted alone, the datasets together could use the
//! quota several times. [`super::limits`] is above: it determines the quotas of a dataset, and their bytes left
//! according to the catalogue.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// The quotas of open datasets, by the id of the dataset with the quota.
#[derive(Default)]
pub(in crate::admin) struct Quotas(Mutex<BTreeMap<u64, Quota>>);

#[derive(Default)]
struct Quota {
    /// The bytes left according to the catalogue.
    left: u64,
    /// Whether a dataset has updated `left` since the last sync; if not, no open dataset is under the quota any more.
    current: bool,
    admitted: Admitted,
}

/// Admitted bytes that may not be counted as used yet.
///
/// Bytes admitted while a txg is written belong to the next txg, but cannot be distinguished from the bytes of the txg
/// being written. So all admitted bytes are remembered for two txgs.
#[derive(Clone, Copy, Default)]
pub(in crate::admin) struct Admitted {
    /// Since the last sync.
    now: u64,
    /// In the period before the last sync.
    before: u64,
}

impl Admitted {
    pub(in crate::admin) fn sum(self) -> u64 {
        self.now + self.before
    }

    /// Whether `bytes` more fit into the `left` bytes of the catalogue.
    pub(in crate::admin) fn fits(self, bytes: u64, left: u64) -> bool {
        self.sum().saturating_add(bytes) <= left
    }

    pub(in crate::admin) fn add(&mut self, bytes: u64) {
        self.now += bytes;
    }

    /// Begins a new period after a txg was synced: its used bytes are in the catalogue.
    pub(in crate::admin) fn turn(&mut self) {
        *self = Admitted { now: 0, before: self.now };
    }
}

impl Quotas {
    /// Sets the bytes left under a quota, from the catalogue.
    pub(in crate::admin) fn set(&self, id: u64, left: u64) {
        let mut quotas = self.0.lock();
        let quota = quotas.entry(id).or_default();
        (quota.left, quota.current) = (left, true);
    }

    /// Admits `bytes` under all of the quotas, or under none.
    pub(in crate::admin) fn admit(&self, ids: &[u64], bytes: u64) -> bool {
        let mut quotas = self.0.lock();
        let fits = |id| quotas.get(id).is_none_or(|quota: &Quota| quota.admitted.fits(bytes, quota.left));
        let admitted = ids.iter().all(fits);
        for id in ids.iter().filter(|_| admitted) {
            quotas.entry(*id).or_default().admitted.add(bytes);
        }
        admitted
    }

    /// The most bytes admitted under one of the quotas that may not be counted as used yet.
    pub(in crate::admin) fn most_admitted(&self, ids: &[u64]) -> u64 {
        let quotas = self.0.lock();
        ids.iter().filter_map(|id| quotas.get(id)).map(|quota| quota.admitted.sum()).max().unwrap_or(0)
    }

    /// Begins a new period after a txg was synced. The caller has already [set](Quotas::set) all bytes left: in the
    /// reverse order, the bytes written by the txg would for a moment count neither as admitted nor as used.
    pub(in crate::admin) fn turn(&self) {
        let mut quotas = self.0.lock();
        quotas.retain(|_, quota| std::mem::take(&mut quota.current));
        quotas.values_mut().for_each(|quota| quota.admitted.turn());
    }
}
