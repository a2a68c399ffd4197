//! The counters of a dataset and of those above it.
//!
//! Whatever changes a dataset's row goes through [`edit`], which carries the difference of its charge up to the root
//! and keeps the pool's total. So `used` of every dataset is always right, and no command ever walks to compute it.

use crate::{
    admin::{Error, Result},
    catalogue::{DatasetRow, Space, Transaction, dataset_key},
    name::MAX_DEPTH,
};

/// Changes the row of a dataset, and what those above it are charged.
pub fn edit<T>(tx: &mut Transaction<'_>, id: u64, edit: impl FnOnce(&mut DatasetRow) -> T) -> Result<T> {
    let mut row: DatasetRow = tx.row(dataset_key(id))?;
    let (charged, held) = (row.charge(), physical(&row));
    let value = edit(&mut row);
    tx.set(dataset_key(id), &row)?;
    count(tx, held, physical(&row))?;
    carry(tx, row.parent, charged, row.charge())?;
    Ok(value)
}

/// Charges the dataset `parent` for a new child, or for one that was moved there.
pub fn attach(tx: &mut Transaction<'_>, parent: u64, child: &DatasetRow) -> Result<()> {
    edit(tx, parent, |row| row.children = row.children.saturating_add(1))?;
    carry(tx, parent, Space::ZERO, child.charge())
}

/// No longer charges the dataset `parent` for a child that goes.
pub fn detach(tx: &mut Transaction<'_>, parent: u64, child: &DatasetRow) -> Result<()> {
    edit(tx, parent, |row| row.children = row.children.saturating_sub(1))?;
    carry(tx, parent, child.charge(), Space::ZERO)
}

/// Forgets what a dataset that is destroyed has held itself.
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

/// Carries the change of a child's charge upwards.
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
