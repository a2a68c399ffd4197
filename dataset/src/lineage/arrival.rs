//! Receiving a stream: hidden datasets, and making the received content visible.
//!
//! A stream fills a dataset hidden below the pool's root, under a name that no user can type. At the end of the stream,
//! one transaction makes the hidden dataset visible under its own name, or moves its tree to an existing target: the
//! dataset whose newest snapshot the hidden dataset was cloned from. Hidden datasets left by a crash are destroyed at
//! the next import.
//!
//! A receive that can be resumed has a row besides, made with its hidden dataset and deleted with it, or when the
//! dataset becomes visible: the import keeps a hidden dataset that has a row. If the receive creates a dataset, then
//! the hidden dataset stands at its final place from the start, so users see it, and can destroy it. Power fails
//!
//! * before the commit of the row: nothing has happened;
//! * between the row and the last step: the tree is the one of some commit, and its item
//!   [`Position`](crate::stream::Position) was committed with exactly the steps that it counts;
//! * after the position was removed, and before the dataset becomes visible in a later commit: the tree is complete, and
//!   a resumed receive starts at the first key, which changes nothing but places;
//! * at the commit that makes the dataset visible: row and hidden dataset are there, or the snapshot is.
//!
//! The charge of a target T that is replaced by a hidden clone C of its newest snapshot S: T equals S, so the blocks on
//! C's deadlist are the blocks that T loses, and the blocks born in C are the blocks that T gains. C's deadlist becomes
//! T's.

use pool::{
    env::Nanos,
    format::pointer::BlockPointer,
    units::{Guid, Txg},
};

use super::{branch, charge, dataset, deadlist, snapshot, work};
use crate::{
    catalogue::{
        DatasetRow, Effect, Named, POOL, ROOT, ReceivingRow, SnapshotRow, Transaction, Value, dataset_key, keys,
        keys_of, kind, receiving_key, snapshot_key,
    },
    error::{Error, Result},
};

/// A received value of a hidden dataset: its receive can be resumed, and its stream has received values only. The name
/// is a user property's, so older programs read the row and ignore it.
const BACKUP: &str = "cenote:backup";

/// Creates a hidden dataset: empty, or with the content of the snapshot `base`.
pub fn begin(tx: &mut Transaction<'_>, base: Option<u64>, guid: Guid) -> Result<u64> {
    let name = format!("%receive-{guid:016x}", guid = guid.0);
    let id = match base {
        Some(base) => branch::clone(tx, base, ROOT, &name, guid)?,
        None => dataset::create(tx, ROOT, &name, guid, (0, 0))?,
    };
    charge::edit(tx, id, |row| row.hidden = true)?;
    Ok(id)
}

/// Creates the hidden dataset of a receive that can be resumed: below `parent` under the name that the dataset gets, or
/// hidden, for the dataset in the row. Returns its id.
pub fn begin_lasting(
    tx: &mut Transaction<'_>,
    base: Option<u64>,
    place: Option<(u64, &str)>,
    row: &ReceivingRow,
    guid: Guid,
) -> Result<u64> {
    let id = match (place, base) {
        (None, _) => begin(tx, base, guid)?,
        (Some((parent, name)), Some(base)) => branch::clone(tx, base, parent, name, guid)?,
        (Some((parent, name)), None) => dataset::create(tx, parent, name, guid, (0, 0))?,
    };
    charge::edit(tx, id, |row| row.hidden = true)?;
    let target = if place.is_some() { id } else { row.target };
    tx.put(receiving_key(id), &ReceivingRow { target, ..row.clone() }, None);
    Ok(id)
}

/// The receive that can be resumed and brings content to `target`: its hidden dataset's id and its row.
pub fn receiving(tx: &Transaction<'_>, target: u64) -> Result<Option<(u64, ReceivingRow)>> {
    let rows = tx.rows::<ReceivingRow>(keys(POOL, kind::RECEIVING))?;
    Ok(rows.into_iter().map(|(key, row)| (key.offset, row)).find(|(_, row)| row.target == target))
}

/// Notes that the stream of a receive that can be resumed has received values only.
pub fn note_backup(tx: &mut Transaction<'_>, hidden: u64) -> Result<()> {
    tx.put_named(hidden, kind::RECEIVED, &Value { name: BACKUP.to_owned(), value: Some("on".to_owned()) })
}

/// Whether the stream of a receive that can be resumed has received values only.
pub fn is_backup(tx: &Transaction<'_>, hidden: u64) -> Result<bool> {
    Ok(tx.find_named::<Value>(hidden, kind::RECEIVED, BACKUP)?.is_some())
}

/// The ids of hidden datasets that no receive can use any more.
pub fn unfinished(tx: &Transaction<'_>) -> Result<Vec<u64>> {
    let mut left = Vec::new();
    for id in hidden(tx)? {
        if !tx.contains(receiving_key(id))? {
            left.push(id);
        }
    }
    Ok(left)
}

/// The ids of all hidden datasets without a place of their own.
pub fn hidden(tx: &Transaction<'_>) -> Result<Vec<u64>> {
    let below = dataset::children(tx, ROOT)?.into_iter().map(|(_, id)| id);
    let rows = below.map(|id| Ok((id, tx.row::<DatasetRow>(dataset_key(id))?)));
    let rows: Vec<_> = rows.collect::<Result<_>>()?;
    Ok(rows.into_iter().filter(|(_, row)| row.hidden).map(|(id, _)| id).collect())
}

/// Destroys a hidden dataset, if still there.
pub fn abandon(tx: &mut Transaction<'_>, id: u64) -> Result<()> {
    if tx.contains(dataset_key(id))? { dataset::destroy(tx, id) } else { Ok(()) }
}

/// Makes a hidden dataset visible under a parent and name.
pub fn show(tx: &mut Transaction<'_>, id: u64, parent: u64, name: &str) -> Result<()> {
    let row: DatasetRow = tx.row(dataset_key(id))?;
    if row.parent != parent || row.name != name {
        dataset::move_to(tx, id, parent, name)?;
    }
    tx.delete(receiving_key(id));
    tx.delete_named::<Value>(id, kind::RECEIVED, BACKUP)?;
    // From now on the dataset is opened by its name.
    tx.effect(Effect::Close(id));
    charge::edit(tx, id, |row| row.hidden = false)
}

/// Whether a dataset has changed since its newest snapshot.
pub fn is_modified(tx: &Transaction<'_>, id: u64) -> Result<bool> {
    let (row, root) = tx.row_and_block::<DatasetRow>(dataset_key(id))?;
    Ok(root.is_none_or(|root| root.birth > row.newest_txg))
}

/// Replaces the tree of `target` by a hidden clone of the target's newest snapshot. The target must equal that
/// snapshot.
pub fn replace(tx: &mut Transaction<'_>, target: u64, hidden: u64) -> Result<()> {
    let new: DatasetRow = tx.row(dataset_key(hidden))?;
    let old: DatasetRow = tx.row(dataset_key(target))?;
    if new.origin != old.newest || new.snapshots != 0 {
        return Err(Error::damaged(hidden, "a received dataset is no clone of its target"));
    }
    let lost = deadlist::space_from(tx, new.deadlist, old.origin_txg)?;
    let root = take_apart(tx, hidden, &new)?;
    branch::remove_clone(tx, new.origin, hidden)?;
    charge::edit(tx, target, |row| {
        row.used_head = row.used_head - lost + new.used_head;
        row.used_snapshots += lost;
        row.deadlist = new.deadlist;
        row.dead = new.dead;
    })?;
    put_tree(tx, target, &new, root)
}

/// Replaces the tree of `target`, which has no snapshot, by a hidden dataset that is not a clone. The target's old tree
/// is freed in the background.
pub fn overwrite(tx: &mut Transaction<'_>, target: u64, hidden: u64) -> Result<()> {
    let new: DatasetRow = tx.row(dataset_key(hidden))?;
    let (old, old_root) = tx.row_and_block::<DatasetRow>(dataset_key(target))?;
    if new.origin != 0 || old.newest != 0 {
        return Err(Error::damaged(hidden, "a received dataset cannot be put in the place of its target"));
    }
    let root = take_apart(tx, hidden, &new)?;
    if let Some(old_root) = old_root {
        work::free_tree(tx, old_root, old.level, Txg::ZERO, old.used_head)?;
    }
    charge::edit(tx, target, |row| row.used_head = new.used_head)?;
    put_tree(tx, target, &new, root)
}

/// Removes all rows of a hidden dataset except its tree and deadlist, which move to the target.
fn take_apart(tx: &mut Transaction<'_>, hidden: u64, row: &DatasetRow) -> Result<BlockPointer> {
    let (_, root) = tx.row_and_block::<DatasetRow>(dataset_key(hidden))?;
    tx.delete_range(keys_of(hidden))?;
    tx.delete(receiving_key(hidden));
    tx.delete_named::<Named>(row.parent, kind::CHILD, &row.name)?;
    charge::forget(tx, row)?;
    charge::detach(tx, row.parent, row)?;
    tx.effect(Effect::Close(hidden));
    root.ok_or_else(|| Error::damaged(hidden, "a dataset without a tree"))
}

fn put_tree(tx: &mut Transaction<'_>, target: u64, new: &DatasetRow, root: BlockPointer) -> Result<()> {
    charge::edit(tx, target, |row| (row.level, row.referenced) = (new.level, new.referenced))?;
    let row: DatasetRow = tx.row(dataset_key(target))?;
    tx.put(dataset_key(target), &row, Some(root));
    tx.effect(Effect::Replace { id: target, root, level: new.level });
    Ok(())
}

/// Takes the snapshot announced by a stream, with the original GUID and creation time.
pub fn take_snapshot(tx: &mut Transaction<'_>, dataset: u64, name: &str, guid: Guid, creation: Nanos) -> Result<u64> {
    let id = snapshot::take(tx, dataset, name, guid)?;
    snapshot::edit(tx, id, |row: &mut SnapshotRow| row.creation = creation)?;
    Ok(id)
}

/// The snapshot of `dataset` with the given GUID.
pub fn snapshot_with(tx: &Transaction<'_>, dataset: u64, guid: Guid) -> Result<Option<u64>> {
    for id in snapshot::line(tx, dataset)? {
        if tx.row::<SnapshotRow>(snapshot_key(id))?.guid == guid {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

/// The current tree of a dataset: its root and the root's level.
pub fn tree(tx: &Transaction<'_>, id: u64) -> Result<(BlockPointer, u8)> {
    let (row, root) = tx.row_and_block::<DatasetRow>(dataset_key(id))?;
    Ok((root.ok_or_else(|| Error::damaged(id, "a dataset without a tree"))?, row.level))
}
