//! The next tree to examine: datasets in the order of their ids, and the members of each line.

use pool::{
    format::{key::Key, pointer::BlockPointer},
    units::Txg,
};

use crate::{
    catalogue::{DatasetRow, Named, SnapshotRow, Transaction, dataset_key, keys_from, kind, snapshot_key},
    error::Result,
};

/// A tree to examine.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// The id of the snapshot or dataset.
    pub id: u64,
    /// The root of the tree.
    pub root: BlockPointer,
    /// The root's level, 0 for a leaf.
    pub level: u8,
    /// The txg of the snapshot; `None` for the dataset itself, the last member of the line.
    pub taken: Option<Txg>,
}

/// The first dataset with an id above `id`.
pub fn next_dataset(tx: &Transaction<'_>, id: u64) -> Result<Option<u64>> {
    let mut above = id.checked_add(1);
    // Snapshots and lists have ids in between: each costs one lookup.
    while let Some(object) = above {
        let Some(key) = tx.first_key(Key::new(object, 0, 0)..Key::MAX)? else { break };
        if tx.contains(dataset_key(key.object))? {
            return Ok(Some(key.object));
        }
        above = key.object.checked_add(1);
    }
    Ok(None)
}

/// The txg up to which a dataset's blocks are already examined at its turn: the blocks that a clone shares with its
/// origin, if the origin's dataset came before.
pub fn done_before(tx: &Transaction<'_>, dataset: u64) -> Result<Txg> {
    let Some((row, _)) = tx.find::<DatasetRow>(dataset_key(dataset))? else { return Ok(Txg::ZERO) };
    let origin = tx.find::<SnapshotRow>(snapshot_key(row.origin))?;
    let was_before = origin.is_some_and(|(origin, _)| origin.dataset < dataset);
    Ok(if was_before { row.origin_txg } else { Txg::ZERO })
}

/// The first member of a dataset's line taken after `done`; `None` if the dataset is gone.
pub fn next_member(tx: &Transaction<'_>, dataset: u64, done: Txg) -> Result<Option<Member>> {
    let next = match done.0.checked_add(1) {
        Some(after) => tx.first_key(keys_from(dataset, kind::SNAPSHOT_TXG, after))?,
        None => None,
    };
    if let Some(key) = next {
        let id = tx.row::<Named>(key)?.id;
        if let (row, Some(root)) = tx.row_and_block::<SnapshotRow>(snapshot_key(id))? {
            // The txg comes from the key: a row with another txg must not lead the scrub back.
            return Ok(Some(Member { id, root, level: row.level, taken: Some(Txg(key.offset)) }));
        }
    }
    let found = tx.find::<DatasetRow>(dataset_key(dataset))?;
    Ok(found.and_then(|(row, root)| Some(Member { id: dataset, root: root?, level: row.level, taken: None })))
}
