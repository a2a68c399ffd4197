//! Whether a dataset was changed since its newest snapshot, or only read.
//!
//! Reading sets access times, and so writes the tree anew. Whoever would replace that tree by a later state of the
//! snapshot takes nothing away from anybody: access times are no content. Whether there is nothing else is found by
//! comparing the two trees, outside of any transaction; the answer is the root that was compared, and it holds as long as
//! the dataset has that root.

use pool::{error::Error as PoolError, format::pointer::BlockPointer};

use super::{
    datasets::Datasets,
    error::{Error, Result},
};
use crate::{
    catalogue::{DatasetRow, SnapshotRow, Transaction, dataset_key, snapshot_key},
    fs::{inode::Inode, key::INODE},
    lineage::{
        arrival,
        difference::{self, Change, Found},
    },
    name::DatasetName,
};

/// When so many items differ, a dataset counts as changed without looking further.
const ITEMS_MAX: usize = 4096;

impl Datasets {
    /// The root of a dataset of which only access times have changed since its newest snapshot; `None` if it is as that
    /// was, or has changed, or is not there. To be called while it is kept still: what was done to it is committed first.
    pub(super) fn only_read(&self, name: &DatasetName) -> Result<Option<BlockPointer>> {
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
            if items <= ITEMS_MAX && is_reading(&change)? { Ok(()) } else { Err(Error::exists("change", name)) }
        });
        match compared {
            Ok(()) => Ok(Some(new.0)),
            Err(Error::Exists { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A tree's root and the root's level.
type Tree = (BlockPointer, u8);

/// The trees of a dataset's newest snapshot and of itself, if it has another.
fn trees(tx: &Transaction<'_>, id: u64) -> Result<Option<(Tree, Tree)>> {
    let (row, root) = tx.row_and_block::<DatasetRow>(dataset_key(id))?;
    if row.newest == 0 || !arrival::is_modified(tx, id)? {
        return Ok(None);
    }
    let (snapshot, old) = tx.row_and_block::<SnapshotRow>(snapshot_key(row.newest))?;
    Ok(old.zip(root).map(|(old, new)| ((old, snapshot.level), (new, row.level))))
}

/// Whether reading can have made this difference.
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
