//! Opening datasets and snapshots.

use std::{collections::BTreeMap, sync::Arc};

use pool::{
    error::Error as PoolError,
    format::{
        label::{BLOCK_CLONING, FILE_ATTRIBUTES, PROJECT_QUOTA},
        pointer::BlockPointer,
    },
    tree::View,
    txg::{Due, Engine, Head, Sync},
};
use rustix::io::Errno;

use super::{
    datasets::Datasets,
    error::{Error, Result},
    feature,
    limits::Limits,
    property,
    quotas::Quotas,
    resolve::Names,
};
use crate::{
    catalogue::{DatasetRow, SnapshotRow, Transaction, dataset_key, snapshot_key},
    fs::{FileSystem, Options, REAPING_STEPS},
    name::{DatasetName, SnapshotName},
};

/// An open dataset. There is one for each, shared by all who use it.
pub struct Dataset {
    id: u64,
    head: Arc<Head>,
    fs: Arc<FileSystem>,
    limits: Arc<Limits>,
}

impl Dataset {
    /// Its id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Its tree.
    pub fn head(&self) -> &Arc<Head> {
        &self.head
    }

    /// Its files.
    pub fn fs(&self) -> &Arc<FileSystem> {
        &self.fs
    }
}

/// An open snapshot: it never changes.
pub struct OpenSnapshot {
    /// Its id.
    pub id: u64,
    /// Its tree.
    pub head: Arc<Head>,
    /// Its files.
    pub fs: Arc<FileSystem>,
}

/// The datasets that are open, by id: work on all of them has the same order in every run.
#[derive(Default)]
pub(super) struct OpenTable {
    datasets: BTreeMap<u64, Arc<Dataset>>,
    quotas: Arc<Quotas>,
}

impl OpenTable {
    /// Shows another tree in an open dataset.
    pub(super) fn replace(&self, id: u64, root: BlockPointer, level: u8) {
        if let Some(dataset) = self.datasets.get(&id) {
            dataset.head.replace(root, level);
        }
    }

    /// Forgets a dataset that was destroyed.
    pub(super) fn close(&mut self, engine: &Engine, id: u64) {
        self.datasets.remove(&id);
        engine.close_head(id);
    }

    /// Tells the open datasets how much room they have now.
    pub(super) fn refresh(&self, sync: &mut Sync<'_>) -> Result<()> {
        let (room, now) = (sync.engine().available(), sync.engine().env().now());
        for dataset in self.datasets.values() {
            let newest = sync.catalogue(|view, _| dataset.limits.renew(&Transaction::new(*view, now), room))?;
            dataset.head.set_newest_snapshot(newest);
        }
        self.quotas.turn();
        Ok(())
    }
}

impl Datasets {
    /// Opens a dataset, or returns it if it is open.
    pub fn open_dataset(&self, name: &DatasetName) -> Result<Arc<Dataset>> {
        let names = self.names();
        let mut table = self.table().lock();
        let (id, row, root, options) = self.read(|tx| {
            let id = names.dataset(tx, name)?;
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
        // From here on a failure closes the tree again.
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

    /// Opens a snapshot. Every call opens it anew.
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
        // A request that destroyed it since has not met the open tree.
        // Without asking for the time: in a simulated world that moves the clock.
        let is_there = |view: &View<'_>| Transaction::new(*view, 0).contains(snapshot_key(id));
        if !self.engine().catalogue().read(is_there)? {
            return Err(Error::not_found("snapshot", name));
        }
        open_files(id, name.as_str(), head, options)
    }

    /// Opens the tree of a dataset as the catalogue has it, to be read only. It stays as it is for as long as the pool has room;
    /// when that is given up, reading fails.
    pub(super) fn open_as_written(&self, name: &DatasetName) -> Result<OpenSnapshot> {
        let names = self.names();
        let pinned = self.engine().pin();
        let (id, row, root, options) = self.read(|tx| {
            let id = names.dataset(tx, name)?;
            let (row, root) = tx.row_and_block::<DatasetRow>(dataset_key(id))?;
            let options = Options { readonly: true, ..self.options(tx, &names, id)? };
            Ok((id, row, root, options))
        })?;
        let root = root.ok_or_else(|| Error::damaged(id, "it has no tree"))?;
        let head = self.engine().open_pinned(id, root, row.level, pinned);
        open_files(id, name.as_str(), head, options)
    }

    /// Goes on freeing files that have lost their last name, in all datasets that are open, by a bounded amount. Returns
    /// whether there is more to do.
    pub fn reap_files(&self) -> bool {
        // Each has its turn, whatever the others have to do.
        self.open_datasets().iter().filter(|dataset| dataset.fs.reap_orphans(REAPING_STEPS)).count() > 0
    }

    /// Frees a bounded part of what files hold that have lost their last name, in all datasets that are open.
    pub(super) fn free_due_files(&self) -> Due {
        let freed = self.open_datasets().iter().map(|dataset| dataset.fs.free_due(REAPING_STEPS)).max();
        freed.unwrap_or(Due::Nothing)
    }

    fn open_datasets(&self) -> Vec<Arc<Dataset>> {
        self.table().lock().datasets.values().cloned().collect()
    }

    /// Closes a dataset that nobody uses any more, after a commit.
    pub fn close_dataset(&self, id: u64) -> Result<()> {
        let Some(dataset) = self.table().lock().datasets.get(&id).cloned() else { return Ok(()) };
        let _quiet = dataset.head.exclude_changes();
        if !self.engine().read_only() {
            self.engine().commit()?;
        }
        self.table().lock().close(self.engine(), id);
        Ok(())
    }

    /// Those of some datasets that are open, always in the same order, for who wants to exclude changes of them.
    pub(super) fn open_with_ids(&self, mut ids: Vec<u64>) -> Vec<Arc<Dataset>> {
        ids.sort_unstable();
        let table = self.table().lock();
        ids.into_iter().filter_map(|id| table.datasets.get(&id).cloned()).collect()
    }

    /// Closes all datasets, after a commit.
    pub fn close_all(&self) -> Result<()> {
        let open: Vec<u64> = self.table().lock().datasets.keys().copied().collect();
        open.into_iter().try_for_each(|id| self.close_dataset(id))
    }

    /// Has the open file systems follow properties that have changed.
    pub(super) fn reload_options(&self) -> Result<()> {
        let names = self.names();
        let room = self.engine().available();
        let table = self.table().lock();
        for dataset in table.datasets.values() {
            let options = self.read(|tx| {
                dataset.limits.set(tx, room)?;
                self.options(tx, &names, dataset.id)
            })?;
            // What a mount and the kernel have agreed on stays so until there is a new mount.
            let acl = if self.mount_of(dataset.id).is_some() { dataset.fs.options().acl } else { options.acl };
            dataset.fs.set_options(Options { acl, ..options });
        }
        Ok(())
    }

    /// Has one dataset, if it is open, follow its properties when a mount of it begins or has ended.
    pub(super) fn reload_options_of(&self, id: u64) -> Result<()> {
        let names = self.names();
        let table = self.table().lock();
        let Some(dataset) = table.datasets.get(&id) else { return Ok(()) };
        dataset.fs.set_options(self.read(|tx| self.options(tx, &names, id))?);
        Ok(())
    }

    pub(super) fn options(&self, tx: &Transaction<'_>, names: &Names, id: u64) -> Result<Options> {
        let mut effective = property::effective(tx, names, id)?;
        if let Some(mount) = self.mount_of(id) {
            property::overlay(&mut effective, &mount);
        }
        let mut options = Options::from_properties(&effective);
        options.readonly |= self.engine().read_only();
        options.sharing = feature::is_enabled(tx, BLOCK_CLONING)?;
        options.attributes = feature::is_enabled(tx, FILE_ATTRIBUTES)?;
        options.accounts = feature::is_enabled(tx, PROJECT_QUOTA)?;
        Ok(options)
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
