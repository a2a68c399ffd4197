//! Opening datasets and snapshots.

use std::sync::Arc;

use pool::{
    error::Error as PoolError,
    format::label::{BLOCK_CLONING, FILE_ATTRIBUTES, PROJECT_QUOTA},
    tree::View,
    txg::{Due, Head, Reclaimer},
};
use rustix::io::Errno;

use super::{
    property::values,
    table::{
        datasets::{Datasets, Mount, Progress},
        feature,
        limits::Limits,
        names::Names,
        opened::{Dataset, OpenSnapshot},
    },
};
use crate::{
    catalogue::{DatasetRow, SnapshotRow, Transaction, dataset_key, snapshot_key},
    error::{Error, Result},
    fs::{FileSystem, Options, REAPING_STEPS},
    name::{DatasetName, SnapshotName},
};

impl Datasets {
    /// Opens a dataset, or returns the open dataset.
    pub fn open_dataset(&self, name: &DatasetName) -> Result<Arc<Dataset>> {
        let names = self.names();
        let mut table = self.table().lock();
        let (id, row, root, options) = self.read(|tx| {
            let id = names.dataset(tx, name)?;
            names.check_whole(tx, id)?;
            let (row, root) = tx.row_and_block::<DatasetRow>(dataset_key(id))?;
            Ok((id, row, root, self.options(tx, &names, id)?))
        })?;
        if let Some(dataset) = table.datasets.get(&id) {
            return Ok(dataset.clone());
        }
        let root = root.ok_or_else(|| Error::damaged(id, "a dataset without a tree"))?;
        let limits = Limits::new(id, self.engine(), table.quotas.clone());
        let room = self.engine().available();
        let newest = row.newest_txg;
        self.read(|tx| limits.set(tx, room))?;
        // From here on a failure closes the tree.
        let head = self.engine().open_head(id, Some((root, row.level)));
        head.keep_log();
        head.set_newest_snapshot(newest);
        let fs = FileSystem::open(head.clone(), options).map_err(|errno| {
            self.engine().close_head(id);
            unreadable(name.as_str(), errno)
        })?;
        fs.set_room(limits.clone());
        let dataset = Arc::new(Dataset { id, head, fs, limits });
        table.datasets.insert(id, dataset.clone());
        Ok(dataset)
    }

    /// Opens a snapshot; every call opens a new file system.
    pub fn open_snapshot(&self, name: &SnapshotName) -> Result<OpenSnapshot> {
        let names = self.names();
        let (id, row, root, options) = self.read(|tx| {
            let id = names.snapshot(tx, name)?;
            let (row, root) = tx.row_and_block::<SnapshotRow>(snapshot_key(id))?;
            let options = Options { readonly: true, ..self.options(tx, &names, row.dataset)? };
            Ok((id, row, root, options))
        })?;
        let root = root.ok_or_else(|| Error::damaged(id, "it has no tree"))?;
        let head = self.engine().open_frozen(id, root, row.level);
        // A request that destroyed the snapshot before the tree was open has not closed the tree. Does not ask for the
        // time, which would advance the clock of a simulation.
        let is_there = |view: &View<'_>| Transaction::new(*view, 0).contains(snapshot_key(id));
        if !self.engine().catalogue().read(is_there)? {
            return Err(Error::no_snapshot(name));
        }
        open_files(id, name.as_str(), head, options)
    }

    /// Opens the committed tree of a dataset, read-only. The tree stays readable while the pool has room for the freed
    /// blocks; then reading fails.
    pub(super) fn open_as_written(&self, name: &DatasetName) -> Result<OpenSnapshot> {
        let names = self.names();
        let pinned = self.engine().pin();
        let (id, row, root, options) = self.read(|tx| {
            let id = names.dataset(tx, name)?;
            names.check_whole(tx, id)?;
            let (row, root) = tx.row_and_block::<DatasetRow>(dataset_key(id))?;
            let options = Options { readonly: true, ..self.options(tx, &names, id)? };
            Ok((id, row, root, options))
        })?;
        let root = root.ok_or_else(|| Error::damaged(id, "it has no tree"))?;
        let head = self.engine().open_pinned(id, root, row.level, pinned);
        open_files(id, name.as_str(), head, options)
    }

    /// Frees a bounded number of removed files in all open datasets. True if more are left.
    pub fn reap_files(&self) -> bool {
        // Each dataset has its turn, whatever the work in the others.
        self.open_datasets().iter().filter(|dataset| dataset.fs.reap_orphans(REAPING_STEPS)).count() > 0
    }

    /// Frees a bounded number of removed files in all open datasets, for a caller that needs room.
    pub(super) fn free_due_files(&self) -> Due {
        let freed = self.open_datasets().iter().map(|dataset| dataset.fs.free_due(REAPING_STEPS)).max();
        freed.unwrap_or(Due::Nothing)
    }

    fn open_datasets(&self) -> Vec<Arc<Dataset>> {
        self.table().lock().datasets.values().cloned().collect()
    }

    /// Commits and closes an unused dataset.
    pub fn close_dataset(&self, id: u64) -> Result<()> {
        let Some(dataset) = self.table().lock().datasets.get(&id).cloned() else { return Ok(()) };
        let _quiet = dataset.head.exclude_changes();
        if !self.engine().read_only() {
            self.engine().commit()?;
        }
        self.table().lock().close(self.engine(), id);
        Ok(())
    }

    /// The open ones among some datasets, always in the same order, for excluding changes.
    pub(super) fn open_with_ids(&self, mut ids: Vec<u64>) -> Vec<Arc<Dataset>> {
        ids.sort_unstable();
        let table = self.table().lock();
        ids.into_iter().filter_map(|id| table.datasets.get(&id).cloned()).collect()
    }

    /// Commits and closes all datasets.
    pub fn close_all(&self) -> Result<()> {
        let open: Vec<u64> = self.table().lock().datasets.keys().copied().collect();
        open.into_iter().try_for_each(|id| self.close_dataset(id))
    }

    /// Applies changed properties to the open file systems.
    pub(super) fn reload_options(&self) -> Result<()> {
        let names = self.names();
        let room = self.engine().available();
        let table = self.table().lock();
        for dataset in table.datasets.values() {
            let options = self.read(|tx| {
                dataset.limits.set(tx, room)?;
                self.options(tx, &names, dataset.id)
            })?;
            // A mount and the kernel have agreed on ACLs until the next mount.
            let acl = if self.mount_of(dataset.id).is_some() { dataset.fs.options().acl } else { options.acl };
            dataset.fs.set_options(Options { acl, ..options });
        }
        Ok(())
    }

    /// Applies the properties of one open dataset, when a mount begins or ends.
    pub(super) fn reload_options_of(&self, id: u64) -> Result<()> {
        let names = self.names();
        let table = self.table().lock();
        let Some(dataset) = table.datasets.get(&id) else { return Ok(()) };
        dataset.fs.set_options(self.read(|tx| self.options(tx, &names, id))?);
        Ok(())
    }

    pub(super) fn options(&self, tx: &Transaction<'_>, names: &Names, id: u64) -> Result<Options> {
        let mut effective = values::effective(tx, names, id)?;
        if let Some(mount) = self.mount_of(id) {
            values::overlay(&mut effective, &mount);
        }
        let mut options = Options::from_properties(&effective);
        options.readonly |= self.engine().read_only();
        options.sharing = feature::is_enabled(tx, BLOCK_CLONING)?;
        options.attributes = feature::is_enabled(tx, FILE_ATTRIBUTES)?;
        options.accounts = feature::is_enabled(tx, PROJECT_QUOTA)?;
        Ok(options)
    }
}

impl Datasets {
    /// Records that a dataset is mounted, or with `None` unmounted, for its properties.
    ///
    /// Values that hold for one mount only are applied to the open file system, and removed again, here.
    pub fn note_mount(&self, id: u64, mount: Option<Mount>) {
        let is_temporary = |mount: Option<&Mount>| mount.is_some_and(|mount| !mount.temporary.is_empty());
        let mut concerned = is_temporary(mount.as_ref());
        {
            let mut mounts = self.mounts.lock();
            let before = match mount {
                Some(mount) => mounts.insert(id, mount),
                None => mounts.remove(&id),
            };
            concerned |= before.is_some();
        }
        if concerned && let Err(error) = self.reload_options_of(id) {
            tracing::warn!("dataset {id} keeps the options it had: {error}");
        }
    }

    /// The recorded mount of a dataset, if mounted.
    pub fn mount_of(&self, id: u64) -> Option<Mount> {
        self.mounts.lock().get(&id).cloned()
    }
}

impl Reclaimer for Datasets {
    /// Frees some of the removed files, and makes a step of the background work left by destroys.
    fn free_due(&self) -> Due {
        let files = self.free_due_files();
        let work = match self.background_step() {
            Ok(Progress::Worked) => Due::Freed,
            Ok(Progress::Idle) => Due::Nothing,
            Err(error) => {
                tracing::warn!("cannot free what was destroyed: {error}");
                Due::Nothing
            }
        };
        files.max(work)
    }

    fn due(&self) -> u64 {
        self.freeing().unwrap_or_default()
    }
}

fn open_files(id: u64, name: &str, head: Arc<Head>, options: Options) -> Result<OpenSnapshot> {
    let fs = FileSystem::open(head.clone(), options).map_err(|errno| unreadable(name, errno))?;
    Ok(OpenSnapshot { id, head, fs })
}

fn unreadable(name: &str, errno: Errno) -> Error {
    if errno == Errno::STALE {
        return PoolError::Stale.into();
    }
    PoolError::damaged(format!("dataset {name}"), format!("cannot be opened: {errno}")).into()
}
