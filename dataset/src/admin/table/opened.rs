//! Open datasets and snapshots, and the table of the open datasets.

use std::{collections::BTreeMap, sync::Arc};

use pool::{
    format::pointer::BlockPointer,
    txg::{Engine, Head, Sync},
};

use super::{limits::Limits, quotas::Quotas};
use crate::{catalogue::Transaction, error::Result, fs::FileSystem};

/// An open dataset, shared by all users of the dataset.
pub struct Dataset {
    pub(in crate::admin) id: u64,
    pub(in crate::admin) head: Arc<Head>,
    pub(in crate::admin) fs: Arc<FileSystem>,
    pub(in crate::admin) limits: Arc<Limits>,
}

impl Dataset {
    /// The dataset's id; stable across renames.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The dataset's tree.
    pub fn head(&self) -> &Arc<Head> {
        &self.head
    }

    /// The dataset's file system.
    pub fn fs(&self) -> &Arc<FileSystem> {
        &self.fs
    }
}

/// An open snapshot, which never changes.
pub struct OpenSnapshot {
    /// The snapshot's id; stable across renames.
    pub id: u64,
    /// The snapshot's tree.
    pub head: Arc<Head>,
    /// The snapshot's file system, read-only.
    pub fs: Arc<FileSystem>,
}

/// The open datasets, sorted by id, so that every run handles the datasets in the same order.
#[derive(Default)]
pub(in crate::admin) struct OpenTable {
    pub(in crate::admin) datasets: BTreeMap<u64, Arc<Dataset>>,
    pub(in crate::admin) quotas: Arc<Quotas>,
}

impl OpenTable {
    /// Shows another tree in an open dataset.
    pub(in crate::admin) fn replace(&self, id: u64, root: BlockPointer, level: u8) {
        if let Some(dataset) = self.datasets.get(&id) {
            dataset.head.replace(root, level);
        }
    }

    /// Closes a destroyed dataset.
    pub(in crate::admin) fn close(&mut self, engine: &Engine, id: u64) {
        self.datasets.remove(&id);
        engine.close_head(id);
    }

    /// Updates the limits of the open datasets.
    pub(in crate::admin) fn refresh(&self, sync: &mut Sync<'_>) -> Result<()> {
        let (room, now) = (sync.engine().available(), sync.engine().env().now());
        for dataset in self.datasets.values() {
            let newest = sync.catalogue(|view, _| dataset.limits.renew(&Transaction::new(*view, now), room))?;
            dataset.head.set_newest_snapshot(newest);
        }
        self.quotas.turn();
        Ok(())
    }
}
