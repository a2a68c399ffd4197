//! Taking and destroying snapshots.

use pool::{format::key::Key, units::Guid};

use super::{charge, deadlist, work};
use crate::{
    catalogue::{
        Bucket, DatasetRow, Effect, Hold, Named, SnapshotRow, Space, Transaction, dataset_key, keys, keys_of, kind,
        snapshot_key,
    },
    error::{Error, Result},
};

/// Takes a snapshot: its row gets the dataset's root and deadlist, and the dataset begins a new deadlist. Fails with
/// [`Error::NextGroup`] if the dataset already has a snapshot from the current txg.
pub fn take(tx: &mut Transaction<'_>, dataset: u64, name: &str, guid: Guid) -> Result<u64> {
    let (row, root) = tx.row_and_block::<DatasetRow>(dataset_key(dataset))?;
    let (txg, now) = (tx.txg(), tx.now());
    if row.newest_txg >= txg {
        return Err(Error::NextGroup);
    }
    let root = root.ok_or_else(|| Error::damaged(dataset, "a dataset without a tree"))?;
    let (id, new_deadlist) = (tx.new_id()?, tx.new_id()?);
    let snapshot = SnapshotRow {
        dataset,
        name: name.to_owned(),
        guid,
        creation: now,
        createtxg: txg,
        level: row.level,
        previous: row.newest,
        previous_txg: row.newest_txg,
        referenced: row.referenced,
        deadlist: row.deadlist,
        dead: row.dead,
        ..SnapshotRow::default()
    };
    tx.put(snapshot_key(id), &snapshot, Some(root));
    tx.put_named(dataset, kind::SNAPSHOT_NAME, &Named { name: name.to_owned(), id })?;
    place(tx, dataset, &snapshot, id);
    set_next(tx, dataset, row.newest, id)?;
    charge::edit(tx, dataset, |row| {
        row.newest = id;
        row.newest_txg = txg;
        row.newest_referenced = row.referenced;
        row.deadlist = new_deadlist;
        row.dead = Space::ZERO;
        row.snapshots = row.snapshots.saturating_add(1);
        row.snapshots_changed = now;
    })?;
    Ok(id)
}

/// Writes a snapshot's position in the line of its dataset: a name row with the id and an empty name.
pub(super) fn place(tx: &mut Transaction<'_>, dataset: u64, snapshot: &SnapshotRow, id: u64) {
    let key = Key::new(dataset, kind::SNAPSHOT_TXG, snapshot.createtxg.0);
    tx.put(key, &Named { name: String::new(), id }, None);
}

/// Sets the successor of `snapshot` in the line of `dataset`. A snapshot of another dataset, the origin, is left alone.
pub(super) fn set_next(tx: &mut Transaction<'_>, dataset: u64, snapshot: u64, next: u64) -> Result<()> {
    if snapshot == 0 {
        return Ok(());
    }
    let mut row: SnapshotRow = tx.row(snapshot_key(snapshot))?;
    if row.dataset != dataset {
        return Ok(());
    }
    row.next = next;
    tx.set(snapshot_key(snapshot), &row)
}

/// The ids of a dataset's snapshots, oldest first.
pub fn line(tx: &Transaction<'_>, dataset: u64) -> Result<Vec<u64>> {
    Ok(tx.rows::<Named>(keys(dataset, kind::SNAPSHOT_TXG))?.into_iter().map(|(_, row)| row.id).collect())
}

/// The ids of the clones of a snapshot.
pub fn clones(tx: &Transaction<'_>, snapshot: u64) -> Result<Vec<u64>> {
    Ok(tx.bodies(keys(snapshot, kind::CLONE))?.into_keys().map(|key| key.offset).collect())
}

/// The holds on a snapshot.
pub fn holds(tx: &Transaction<'_>, snapshot: u64) -> Result<Vec<Hold>> {
    Ok(tx.rows(keys(snapshot, kind::HOLD))?.into_iter().map(|(_, hold)| hold).collect())
}

/// The deadlist of the next member after a snapshot.
pub fn next_deadlist(tx: &Transaction<'_>, snapshot: &SnapshotRow) -> Result<u64> {
    if snapshot.next == 0 {
        return Ok(tx.row::<DatasetRow>(dataset_key(snapshot.dataset))?.deadlist);
    }
    Ok(tx.row::<SnapshotRow>(snapshot_key(snapshot.next))?.deadlist)
}

/// The space held by this snapshot alone, freed by destroying the snapshot.
pub fn unique(tx: &Transaction<'_>, snapshot: &SnapshotRow) -> Result<Space> {
    deadlist::space_from(tx, next_deadlist(tx, snapshot)?, snapshot.previous_txg)
}

/// Destroys a snapshot without clones and holds. The returned space, held by the snapshot alone, is freed in the
/// background.
pub fn destroy(tx: &mut Transaction<'_>, id: u64) -> Result<Space> {
    let row: SnapshotRow = tx.row(snapshot_key(id))?;
    // The caller has checked both; the counters in the row may still differ.
    if row.clones != 0 || row.holds != 0 {
        return Err(Error::damaged(id, "a snapshot counts clones or holds that it has not"));
    }
    let dataset = row.dataset;
    let after = next_deadlist(tx, &row)?;
    let only = deadlist::take_from(tx, after, row.previous_txg)?;
    let freed = only.space;
    remove_rows(tx, id, &row)?;
    deadlist::merge(tx, dataset, row.deadlist, after)?;
    relink(tx, &row, freed)?;
    work::free_lists(tx, &only)?;
    let now = tx.now();
    charge::edit(tx, dataset, |row| {
        row.used_snapshots -= freed;
        row.snapshots = row.snapshots.saturating_sub(1);
        row.snapshots_changed = now;
    })?;
    tx.effect(Effect::Close(id));
    Ok(freed)
}

fn remove_rows(tx: &mut Transaction<'_>, id: u64, row: &SnapshotRow) -> Result<()> {
    tx.delete_range(keys_of(id))?;
    tx.delete(Key::new(row.dataset, kind::SNAPSHOT_TXG, row.createtxg.0));
    tx.delete_named::<Named>(row.dataset, kind::SNAPSHOT_NAME, &row.name)?;
    Ok(())
}

/// Links the neighbours of a destroyed snapshot.
fn relink(tx: &mut Transaction<'_>, gone: &SnapshotRow, freed: Space) -> Result<()> {
    set_next(tx, gone.dataset, gone.previous, gone.next)?;
    if gone.next != 0 {
        let mut next: SnapshotRow = tx.row(snapshot_key(gone.next))?;
        next.previous = gone.previous;
        next.previous_txg = gone.previous_txg;
        next.dead = next.dead - freed + gone.dead;
        return tx.set(snapshot_key(gone.next), &next);
    }
    let referenced = match gone.previous {
        0 => Space::ZERO,
        previous => tx.row::<SnapshotRow>(snapshot_key(previous))?.referenced,
    };
    charge::edit(tx, gone.dataset, |head| {
        head.newest = gone.previous;
        head.newest_txg = gone.previous_txg;
        head.newest_referenced = referenced;
        head.dead = head.dead - freed + gone.dead;
    })
}

/// Destroys a snapshot marked for deferred destruction, if the last hold and clone are gone.
pub fn destroy_if_due(tx: &mut Transaction<'_>, id: u64) -> Result<bool> {
    let row: SnapshotRow = tx.row(snapshot_key(id))?;
    let due = row.deferred && row.holds == 0 && row.clones == 0;
    if due {
        destroy(tx, id)?;
    }
    Ok(due)
}

/// Adds a hold. False if the tag exists already.
pub fn hold(tx: &mut Transaction<'_>, id: u64, tag: &str) -> Result<bool> {
    if tx.find_named::<Hold>(id, kind::HOLD, tag)?.is_some() {
        return Ok(false);
    }
    tx.put_named(id, kind::HOLD, &Hold { name: tag.to_owned(), time: tx.now() })?;
    edit(tx, id, |row| row.holds = row.holds.saturating_add(1))?;
    Ok(true)
}

/// Removes a hold. False if the tag does not exist.
pub fn release(tx: &mut Transaction<'_>, id: u64, tag: &str) -> Result<bool> {
    if tx.delete_named::<Hold>(id, kind::HOLD, tag)?.is_none() {
        return Ok(false);
    }
    edit(tx, id, |row| row.holds = row.holds.saturating_sub(1))?;
    destroy_if_due(tx, id)?;
    Ok(true)
}

/// Changes the row of a snapshot.
pub(super) fn edit<T>(tx: &mut Transaction<'_>, id: u64, edit: impl FnOnce(&mut SnapshotRow) -> T) -> Result<T> {
    let mut row: SnapshotRow = tx.row(snapshot_key(id))?;
    let value = edit(&mut row);
    tx.set(snapshot_key(id), &row)?;
    Ok(value)
}

/// Removes all buckets of a deadlist, and joins the buckets to one.
pub(super) fn whole_deadlist(tx: &mut Transaction<'_>, deadlist: u64) -> Result<Bucket> {
    deadlist::take_from(tx, deadlist, pool::units::Txg::ZERO)
}
