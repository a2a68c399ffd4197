//! Records stored by workers while their group is open or has just been frozen, so that less is left for sync.

use std::sync::Arc;

use super::state::Engine;
use crate::{space::Class, tree::Record, units::Txg};

impl Engine {
    /// See [`Head::submit`](crate::txg::Head::submit).
    pub(in crate::txg) fn submit(self: &Arc<Self>, record: &Arc<Record>) {
        if !self.take_off(record.txg()) {
            return;
        }
        let Some(bytes) = record.seal() else { return self.end_early(record.txg()) };
        let (engine, record) = (self.clone(), record.clone());
        self.workers.spawn(move || {
            engine.store_early(&record, bytes);
            engine.end_early(record.txg());
        });
    }

    fn store_early(&self, record: &Record, bytes: Arc<Vec<u8>>) {
        match self.storage.write_blocks(record.txg(), Class::Data, &[record.payload(bytes)]) {
            Ok(pointers) => record.stored(pointers[0], self.sector()),
            Err(error) => self.fail(&error),
        }
    }

    /// Counts a record that a worker will store, unless its group is frozen: then sync stores the remaining records.
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
