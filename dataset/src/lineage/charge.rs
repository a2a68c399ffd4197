//! The counters of a dataset and its ancestors.
//!
//! Every change of a dataset's row goes through [`edit`], which propagates the change of its charge to the root and
//! updates the pool's total. So `used` of every dataset is always exact, and no command walks the tree to compute a
//! sum.

use crate::{
    catalogue::{DatasetRow, Space, Transaction, dataset_key},
    error::{Error, Result},
    name::MAX_DEPTH,
};

/// Changes the row of a dataset, and updates the charges of its ancestors.
pub fn edit<T>(tx: &mut Transaction<'_>, id: u64, edit: impl FnOnce(&mut DatasetRow) -> T) -> Result<T> {
    let mut row: DatasetRow = tx.row(dataset_key(id))?;
    let (charged, held) = (row.charge(), physical(&row));
    let value = edit(&mut row);
    tx.set(dataset_key(id), &row)?;
    count(tx, held, physical(&row))?;
    carry(tx, row.parent, charged, row.charge())?;
    Ok(value)
}

/// Charges the dataset `parent` for a new or moved child.
pub fn attach(tx: &mut Transaction<'_>, parent: u64, child: &DatasetRow) -> Result<()> {
    edit(tx, parent, |row| row.children = row.children.saturating_add(1))?;
    carry(tx, parent, Space::ZERO, child.charge())
}

/// Stops charging the dataset `parent` for a child.
pub fn detach(tx: &mut Transaction<'_>, parent: u64, child: &DatasetRow) -> Result<()> {
    edit(tx, parent, |row| row.children = row.children.saturating_sub(1))?;
    carry(tx, parent, child.charge(), Space::ZERO)
}

/// Subtracts the own space of a destroyed dataset from the pool's total.
pub fn forget(tx: &mut Transaction<'_>, row: &DatasetRow) -> Result<()> {
    count(tx, physical(row), Space::ZERO)
}

fn physical(row: &DatasetRow) -> Space {
    row.used_head + row.used_snapshots
}

fn count(tx: &mut Transaction<'_>, before: Space, after: Space) -> Result<()> {
    if before == after {
        return Ok(());
    }
    tx.edit_master(|master| master.physical = master.physical + after - before)
}

/// Propagates the change of a child's charge upwards.
fn carry(tx: &mut Transaction<'_>, parent: u64, before: Space, after: Space) -> Result<()> {
    let (mut id, mut before, mut after) = (parent, before, after);
    for _ in 0..=MAX_DEPTH {
        if id == 0 || before == after {
            return Ok(());
        }
        let mut row: DatasetRow = tx.row(dataset_key(id))?;
        let charged = row.charge();
        row.used_children = row.used_children + after - before;
        tx.set(dataset_key(id), &row)?;
        (before, after) = (charged, row.charge());
        id = row.parent;
    }
    Err(Error::damaged(parent, "datasets are nested too deep"))
}
