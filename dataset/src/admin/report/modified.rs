//! Whether a dataset was modified since its newest snapshot, or only read.
//!
//! Reading sets access times, and so rewrites parts of the tree. Replacing such a tree by a later state of the snapshot
//! loses no user data: access times are not content. Comparing the two trees, outside of any transaction, shows whether
//! anything else has changed. The result is the root that was compared, and holds while the dataset has that root.

use pool::{error::Error as PoolError, format::pointer::BlockPointer};

use crate::{
    admin::table::datasets::Datasets,
    catalogue::{DatasetRow, SnapshotRow, Transaction, dataset_key, snapshot_key},
    error::{Error, Result},
    fs::{inode::Inode, key::INODE},
    lineage::{
        arrival,
        difference::{self, Change, Found},
    },
    name::DatasetName,
};

/// The number of differing items at which a dataset counts as modified, and the comparison stops.
const ITEMS_MAX: usize = 4096;

impl Datasets {
    /// The root of a dataset with only access times changed since its newest snapshot; `None` if the dataset is
    /// unchanged, modified, or missing. The caller excludes changes; earlier changes are committed first.
    pub(in crate::admin) fn only_read(&self, name: &DatasetName) -> Result<Option<BlockPointer>> {
        if !self.engine().read_only() {
            self.engine().commit()?;
        }
        let names = self.names();
        let pinned = self.engine().pin();
        let trees = self.read(|tx| match names.find(tx, name)? {
            Some(id) => trees(tx, id),
            None => Ok(None),
        })?;
        let Some((old, new)) = trees else { return Ok(None) };
        let open = |(root, level): (BlockPointer, u8)| self.engine().open_pinned(0, root, level, pinned.clone());
        let mut items = 0;
        let compared = difference::compare(Some(&open(old)), Some(&open(new)), |change| {
            items += 1;
            // An error ends the comparison.
            if items <= ITEMS_MAX && is_reading(&change)? { Ok(()) } else { Err(Error::Ended) }
        });
        match compared {
            Ok(()) => Ok(Some(new.0)),
            Err(Error::Ended) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A tree's root and the root's level.
type Tree = (BlockPointer, u8);

/// The trees of a dataset's newest snapshot and of the dataset, if different.
fn trees(tx: &Transaction<'_>, id: u64) -> Result<Option<(Tree, Tree)>> {
    let (row, root) = tx.row_and_block::<DatasetRow>(dataset_key(id))?;
    if row.newest == 0 || !arrival::is_modified(tx, id)? {
        return Ok(None);
    }
    let (snapshot, old) = tx.row_and_block::<SnapshotRow>(snapshot_key(row.newest))?;
    Ok(old.zip(root).map(|(old, new)| ((old, snapshot.level), (new, row.level))))
}

/// Whether reading alone can have caused the difference.
fn is_reading(change: &Change) -> Result<bool> {
    let (Some(old), Some(new)) = (&change.old, &change.new) else { return Ok(false) };
    if change.key.kind != INODE || change.key.object == 0 {
        return Ok(false);
    }
    let inode = |found: &Found| {
        Inode::decode(found.body()).map_err(|error| PoolError::damaged(format!("inode at {}", change.key), error))
    };
    let (old, new) = (inode(old)?, inode(new)?);
    Ok(Inode { atime: old.atime, ..new } == old)
}
