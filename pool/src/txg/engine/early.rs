//! Records stored by workers while their group is open or has just been frozen, so that less is left for sync.

use std::sync::Arc;

use super::state::Engine;
use crate::{block::Payload, space::Class, tree::Record, units::Txg};

/// The size of a batch of records, which a worker stores side by side, in bytes of content.
const BATCH: usize = 1 << 20;

impl Engine {
    /// See [`Head::submit`](crate::txg::Head::submit).
    pub(in crate::txg) fn submit(self: &Arc<Self>, record: &Arc<Record>) {
        self.submit_batch(vec![record.clone()]);
    }

    /// See [`Head::submit_all`](crate::txg::Head::submit_all).
    pub(in crate::txg) fn submit_all(self: &Arc<Self>, records: Vec<Arc<Record>>) {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for record in records {
            bytes += record.size().unwrap_or_default();
            batch.push(record);
            if bytes >= BATCH {
                self.submit_batch(std::mem::take(&mut batch));
                bytes = 0;
            }
        }
        if !batch.is_empty() {
            self.submit_batch(batch);
        }
    }

    /// Lets a worker store records of one transaction group and one number of copies.
    fn submit_batch(self: &Arc<Self>, mut batch: Vec<Arc<Record>>) {
        let (txg, copies) = (batch[0].txg(), batch[0].policy().copies);
        let is_alike = |record: &Arc<Record>| record.txg() == txg && record.policy().copies == copies;
        assert!(batch.iter().all(is_alike), "TXG-7: a batch of records of {txg} has others among them");
        if !self.take_off(txg) {
            return;
        }
        let mut payloads = Vec::with_capacity(batch.len());
        batch.retain(|record| match record.seal() {
            Some(bytes) => {
                payloads.push(record.payload(bytes));
                true
            }
            None => false,
        });
        if batch.is_empty() {
            return self.end_early(txg);
        }
        let engine = self.clone();
        self.workers.spawn(move || {
            engine.store_early(txg, &batch, &payloads);
            engine.end_early(txg);
        });
    }

    fn store_early(&self, txg: Txg, batch: &[Arc<Record>], payloads: &[Payload]) {
        match self.storage.write_blocks(txg, Class::Data, payloads) {
            Ok(pointers) => {
                batch.iter().zip(pointers).for_each(|(record, pointer)| record.stored(pointer, self.sector()));
            }
            Err(error) => self.fail(&error),
        }
    }

    /// Counts a batch that a worker will store, unless its group is frozen: then sync stores the remaining records.
    fn take_off(&self, txg: Txg) -> bool {
        let gate = self.enter();
        let open = *gate == txg;
        if open {
            self.early_writes.lock()[(txg.0 % 2) as usize] += 1;
        }
        open
    }

    fn end_early(&self, txg: Txg) {
        self.early_writes.lock()[(txg.0 % 2) as usize] -= 1;
        self.early_written.notify_all();
    }

    /// Waits until no worker is storing a record of `txg`, a frozen group.
    pub(in crate::txg) fn wait_early(&self, txg: Txg) {
        let mut early_writes = self.early_writes.lock();
        while early_writes[(txg.0 % 2) as usize] > 0 {
            self.early_written.wait(&mut early_writes);
        }
    }
}
