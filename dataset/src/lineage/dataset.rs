//! Creating, moving and destroying datasets.

use pool::{format::key::Key, units::Guid};

use super::{branch, charge, snapshot, work};
use crate::{
    catalogue::{
        DatasetRow, Effect, FIRST_ID, MASTER, Master, Named, ROOT, Transaction, dataset_key, keys, keys_of, kind,
        receiving_key,
    },
    error::{Error, Result},
};

/// Writes the first rows of an empty catalogue: the pool's root dataset, with a root directory owned by `owner`.
pub fn create_root(tx: &mut Transaction<'_>, guid: Guid, owner: (u32, u32)) -> Result<()> {
    tx.put(MASTER, &Master { next_id: FIRST_ID, ..Master::default() }, None);
    let deadlist = tx.new_id()?;
    let row = DatasetRow { guid, creation: tx.now(), createtxg: tx.txg(), deadlist, ..DatasetRow::default() };
    tx.put(dataset_key(ROOT), &row, None);
    tx.effect(Effect::Format { id: ROOT, owner });
    Ok(())
}

/// Creates an empty dataset below `parent`. The first tree is made when the transaction's effects are carried out.
pub fn create(tx: &mut Transaction<'_>, parent: u64, name: &str, guid: Guid, owner: (u32, u32)) -> Result<u64> {
    let (id, deadlist) = (tx.new_id()?, tx.new_id()?);
    let row = DatasetRow {
        parent,
        name: name.to_owned(),
        guid,
        creation: tx.now(),
        createtxg: tx.txg(),
        deadlist,
        ..DatasetRow::default()
    };
    tx.put(dataset_key(id), &row, None);
    tx.put_named(parent, kind::CHILD, &Named { name: name.to_owned(), id })?;
    charge::attach(tx, parent, &row)?;
    tx.effect(Effect::Format { id, owner });
    Ok(id)
}

/// Changes the parent and name of a dataset.
pub fn move_to(tx: &mut Transaction<'_>, id: u64, parent: u64, name: &str) -> Result<()> {
    let row: DatasetRow = tx.row(dataset_key(id))?;
    tx.delete_named::<Named>(row.parent, kind::CHILD, &row.name)?;
    charge::detach(tx, row.parent, &row)?;
    let moved = DatasetRow { parent, name: name.to_owned(), ..row };
    tx.set(dataset_key(id), &moved)?;
    tx.put_named(parent, kind::CHILD, &Named { name: name.to_owned(), id })?;
    charge::attach(tx, parent, &moved)
}

/// The children of a dataset, sorted by name: names and ids.
pub fn children(tx: &Transaction<'_>, id: u64) -> Result<Vec<(String, u64)>> {
    let rows = tx.rows::<Named>(keys(id, kind::CHILD))?;
    let mut children: Vec<_> = rows.into_iter().map(|(_, row)| (row.name, row.id)).collect();
    children.sort();
    Ok(children)
}

/// Destroys a dataset without children and snapshots. The tree is freed in the background.
pub fn destroy(tx: &mut Transaction<'_>, id: u64) -> Result<()> {
    let (row, root) = tx.row_and_block::<DatasetRow>(dataset_key(id))?;
    // The caller has checked both; the counters in the row may still differ.
    if row.children != 0 || row.snapshots != 0 {
        return Err(Error::damaged(id, "a dataset counts children or snapshots that it has not"));
    }
    if let Some(root) = root {
        work::free_tree(tx, root, row.level, row.newest_txg, row.used_head)?;
    }
    // Without snapshots of its own, the dataset has only blocks of its origin on the deadlist.
    let dropped = snapshot::whole_deadlist(tx, row.deadlist)?;
    work::forget_lists(tx, &dropped)?;
    if row.origin != 0 {
        branch::remove_clone(tx, row.origin, id)?;
        snapshot::destroy_if_due(tx, row.origin)?;
    }
    tx.delete_range(keys_of(id))?;
    tx.delete(receiving_key(id));
    tx.delete_named::<Named>(row.parent, kind::CHILD, &row.name)?;
    charge::forget(tx, &row)?;
    charge::detach(tx, row.parent, &row)?;
    tx.effect(Effect::Close(id));
    Ok(())
}

/// The id of a dataset's child with the given name.
pub fn child(tx: &Transaction<'_>, parent: u64, name: &str) -> Result<Option<u64>> {
    Ok(tx.find_named::<Named>(parent, kind::CHILD, name)?.map(|(_, row)| row.id))
}

/// The id of a dataset's snapshot with the given name.
pub fn snapshot_named(tx: &Transaction<'_>, dataset: u64, name: &str) -> Result<Option<u64>> {
    Ok(tx.find_named::<Named>(dataset, kind::SNAPSHOT_NAME, name)?.map(|(_, row)| row.id))
}

/// The id of a dataset's oldest snapshot.
pub fn oldest_snapshot(tx: &Transaction<'_>, dataset: u64) -> Result<Option<u64>> {
    let Some(key) = tx.first_key(keys(dataset, kind::SNAPSHOT_TXG))? else { return Ok(None) };
    Ok(Some(tx.row::<Named>(Key::new(dataset, kind::SNAPSHOT_TXG, key.offset))?.id))
}
