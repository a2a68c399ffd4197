//! The snapshots of a mounted dataset, as shown in `.zfs`.

use std::sync::Arc;

use dataset::{
    admin::{Datasets, ListRequest, Listed},
    error::Error,
    fs::{Errno, FileSystem},
    name::{DatasetName, Name},
    property::{Kinds, dataset::CREATION},
};
use fuse_mount::{SnapshotEntry, Snapshots};
use pool::{env::Nanos, error::Error as PoolError};

/// The snapshots of a mounted dataset, for its `.zfs`.
pub(super) struct SnapshotsOf {
    pub(super) datasets: Arc<Datasets>,
    pub(super) id: u64,
}

/// The snapshots of a snapshot: none.
pub(super) struct NoSnapshots;

impl Snapshots for NoSnapshots {
    fn list(&self) -> Vec<SnapshotEntry> {
        Vec::new()
    }

    fn open(&self, _name: &str) -> Result<Arc<FileSystem>, Errno> {
        Err(Errno::NOENT)
    }
}

impl SnapshotsOf {
    fn find_all(&self, roots: impl FnOnce(DatasetName) -> Option<Name>, depth: usize) -> Vec<SnapshotEntry> {
        let listed = self.datasets.dataset_name(self.id).ok().and_then(roots).and_then(|root| {
            let request = ListRequest { roots: vec![root], depth: Some(depth), kinds: Kinds::SNAPSHOT };
            self.datasets.list(&request).ok()
        });
        listed.unwrap_or_default().iter().filter_map(entry).collect()
    }
}

impl Snapshots for SnapshotsOf {
    fn list(&self) -> Vec<SnapshotEntry> {
        self.find_all(|dataset| Some(Name::Dataset(dataset)), 1)
    }

    fn find(&self, name: &str) -> Option<SnapshotEntry> {
        self.find_all(|dataset| dataset.snapshot(name).ok().map(Name::Snapshot), 0).pop()
    }

    fn open(&self, name: &str) -> Result<Arc<FileSystem>, Errno> {
        let dataset = self.datasets.dataset_name(self.id).map_err(|_| Errno::STALE)?;
        let snapshot = dataset.snapshot(name).map_err(|_| Errno::NOENT)?;
        self.datasets.open_snapshot(&snapshot).map(|opened| opened.fs).map_err(|error| match error {
            Error::NotFound { .. } => Errno::NOENT,
            Error::Pool(PoolError::Stale) => Errno::STALE,
            error => {
                tracing::warn!("cannot open '{snapshot}': {error}");
                Errno::IO
            }
        })
    }
}

/// A snapshot's name and creation time. The seconds are the creation; the nanoseconds are the creation txg, which
/// differs between any two snapshots with the same name.
fn entry(listed: &Listed) -> Option<SnapshotEntry> {
    const SECOND: Nanos = 1_000_000_000;
    let Name::Snapshot(name) = &listed.name else { return None };
    let creation = Nanos::try_from(listed.find(&CREATION)?).ok()?;
    let part = Nanos::try_from(listed.createtxg() % SECOND as u64).ok()?;
    Some(SnapshotEntry { name: name.snapshot().to_owned(), creation: creation.saturating_mul(SECOND) + part })
}
