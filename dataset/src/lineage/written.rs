//! After a changed tree was written: its new root goes into the catalogue, its births are counted, and each dropped
//! block is given up or goes to the deadlist.

use pool::{
    format::pointer::BlockPointer,
    tree::Batch,
    txg::{Sync, Written},
};

use super::{
    charge,
    deadlist::{self, Addition, look},
    reference, work,
};
use crate::{
    catalogue::{DatasetRow, Effect, Space, Transaction, dataset_key},
    error::{Error, Result},
};

/// Records the written trees. The new references of all trees are taken first.
pub fn take_over_all(sync: &mut Sync<'_>, written: Vec<Written>) -> Result<()> {
    reference::take(sync, written.iter().flat_map(|written| &written.shares).copied().collect())?;
    written.into_iter().try_for_each(|written| take_over(sync, written))
}

/// Records one written tree.
fn take_over(sync: &mut Sync<'_>, written: Written) -> Result<()> {
    let id = written.head.id();
    let Some(row) = look(sync, |tx| Ok(tx.find::<DatasetRow>(dataset_key(id))?.map(|(row, _)| row)))? else {
        return abandon(sync, &written);
    };
    let sector = sync.engine().sector();
    let (free, dead): (Vec<_>, Vec<_>) = written.kills.iter().partition(|kill| kill.entered() > row.newest_txg);
    let freed: Space = free.iter().map(|block| Space::of(block, sector)).sum();
    let taken: Space = written.shares.iter().map(|block| Space::of(block, sector)).sum();
    let additions = deadlist::prepare(sync, id, row.deadlist, dead)?;
    run(sync, |tx| record(tx, &row, id, &written, (freed, taken), &additions))?;
    reference::give_up(sync, free)
}

fn record(
    tx: &mut Transaction<'_>,
    row: &DatasetRow,
    id: u64,
    written: &Written,
    (freed, taken): (Space, Space),
    additions: &[Addition],
) -> Result<()> {
    for addition in additions {
        deadlist::add(tx, row.deadlist, addition)?;
    }
    let dead: Space = additions.iter().map(|addition| addition.space).sum();
    let own = additions.iter().filter(|addition| addition.start >= row.origin_txg);
    let own: Space = own.map(|addition| addition.space).sum();
    // A shared reference counts as a block of its own.
    let births = Space::from(written.births) + taken;
    charge::edit(tx, id, |row| {
        row.level = written.level;
        row.referenced = row.referenced + births - freed - dead;
        row.used_head = row.used_head + births - freed - own;
        row.used_snapshots += own;
        row.dead += dead;
    })?;
    let row: DatasetRow = tx.row(dataset_key(id))?;
    tx.put(dataset_key(id), &row, Some(written.root));
    Ok(())
}

/// Handles a dataset that was destroyed while the txg was open. The destroying txg queued the tree as of then for
/// freeing; blocks written since are freed in the same way. Blocks dropped since need nothing if in the queued tree;
/// all other dropped blocks are given up here, being in neither tree.
fn abandon(sync: &mut Sync<'_>, written: &Written) -> Result<()> {
    let before = sync.txg().back(1);
    run(sync, |tx| work::free_tree(tx, written.root, written.level, before, Space::ZERO))?;
    reference::give_up(sync, written.kills.iter().filter(|kill| kill.entered() > before).copied().collect())
}

/// Runs a transaction without effects in syncing context.
fn run(sync: &mut Sync<'_>, mut f: impl FnMut(&mut Transaction<'_>) -> Result<()>) -> Result<()> {
    let effects = transact(sync, |tx| f(tx))?.1;
    assert!(effects.is_empty());
    Ok(())
}

/// Runs a transaction in syncing context and applies the changes. The caller carries out the returned effects.
pub fn transact<T>(
    sync: &mut Sync<'_>,
    mut f: impl FnMut(&mut Transaction<'_>) -> Result<T>,
) -> Result<(T, Vec<Effect>)> {
    let now = sync.engine().env().now();
    sync.catalogue(|view, batch: &mut Batch| {
        let mut tx = Transaction::new(*view, now);
        let value = f(&mut tx)?;
        Ok::<_, Error>((value, tx.finish(batch)))
    })
}

/// Sets the first tree of a dataset whose row was written without a tree.
pub fn put_first(sync: &mut Sync<'_>, id: u64, root: BlockPointer, level: u8) -> Result<()> {
    let born = Space::of(&root, sync.engine().sector());
    run(sync, |tx| {
        charge::edit(tx, id, |row| {
            row.level = level;
            row.referenced = born;
            row.used_head = born;
        })?;
        let row: DatasetRow = tx.row(dataset_key(id))?;
        tx.put(dataset_key(id), &row, Some(root));
        Ok(())
    })
}
