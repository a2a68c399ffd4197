//! Rollback, clone and promote.

use pool::{
    format::key::Key,
    units::{Guid, Txg},
};

use super::{charge, deadlist, snapshot, work};
use crate::{
    catalogue::{
        Bookmark, DatasetRow, Effect, Named, SnapshotRow, Space, Transaction, dataset_key, keys, kind, snapshot_key,
    },
    error::{Error, Result},
};

/// Rolls a dataset back to its newest snapshot. The current tree is freed in the background, and the blocks on the
/// dataset's deadlist are in use again. Later bookmarks are deleted, because their states are no longer part of the
/// line.
pub fn roll_back(tx: &mut Transaction<'_>, dataset: u64) -> Result<()> {
    let (row, old_root) = tx.row_and_block::<DatasetRow>(dataset_key(dataset))?;
    let (target, root) = tx.row_and_block::<SnapshotRow>(snapshot_key(row.newest))?;
    if target.dataset != dataset {
        return Err(Error::damaged(dataset, "the newest snapshot of a dataset belongs to another"));
    }
    let root = root.ok_or_else(|| Error::damaged(row.newest, "a snapshot without a tree"))?;
    let lost = row.unique();
    let back = deadlist::space_from(tx, row.deadlist, row.origin_txg)?;
    if let Some(old_root) = old_root {
        work::free_tree(tx, old_root, row.level, row.newest_txg, lost)?;
    }
    let dropped = snapshot::whole_deadlist(tx, row.deadlist)?;
    work::forget_lists(tx, &dropped)?;
    charge::edit(tx, dataset, |row| {
        row.level = target.level;
        row.referenced = target.referenced;
        row.dead = Space::ZERO;
        row.used_head = row.used_head - lost + back;
        row.used_snapshots -= back;
    })?;
    let row: DatasetRow = tx.row(dataset_key(dataset))?;
    tx.put(dataset_key(dataset), &row, Some(root));
    for (key, bookmark) in tx.rows::<Bookmark>(keys(dataset, kind::BOOKMARK))? {
        if bookmark.createtxg > target.createtxg {
            tx.delete(key);
        }
    }
    tx.effect(Effect::Replace { id: dataset, root, level: target.level });
    Ok(())
}

/// Creates a dataset with the content of a snapshot.
pub fn clone(tx: &mut Transaction<'_>, origin: u64, parent: u64, name: &str, guid: Guid) -> Result<u64> {
    let (snapshot, root) = tx.row_and_block::<SnapshotRow>(snapshot_key(origin))?;
    let (id, deadlist) = (tx.new_id()?, tx.new_id()?);
    let row = DatasetRow {
        parent,
        name: name.to_owned(),
        guid,
        creation: tx.now(),
        createtxg: tx.txg(),
        level: snapshot.level,
        newest: origin,
        newest_txg: snapshot.createtxg,
        newest_referenced: snapshot.referenced,
        origin,
        origin_txg: snapshot.createtxg,
        referenced: snapshot.referenced,
        deadlist,
        ..DatasetRow::default()
    };
    tx.put(dataset_key(id), &row, root);
    tx.put_named(parent, kind::CHILD, &Named { name: name.to_owned(), id })?;
    charge::attach(tx, parent, &row)?;
    add_clone(tx, origin, id)?;
    Ok(id)
}

fn add_clone(tx: &mut Transaction<'_>, origin: u64, clone: u64) -> Result<()> {
    tx.put_body(Key::new(origin, kind::CLONE, clone), Default::default());
    snapshot::edit(tx, origin, |row| row.clones = row.clones.saturating_add(1))
}

/// Removes a clone from `origin`, without destroying an origin marked for deferred destruction.
pub(super) fn remove_clone(tx: &mut Transaction<'_>, origin: u64, clone: u64) -> Result<()> {
    tx.delete(Key::new(origin, kind::CLONE, clone));
    snapshot::edit(tx, origin, |row| row.clones = row.clones.saturating_sub(1))
}

/// The effects of a promotion.
#[derive(Clone, Debug)]
pub struct Promotion {
    /// The dataset that owned the origin, and becomes a clone.
    pub former: u64,
    /// The snapshots with a new owner, oldest first: ids and names.
    pub snapshots: Vec<(u64, String)>,
    /// The space whose charge moves from the former owner to the promoted dataset.
    pub space: Space,
}

/// Makes a clone the owner of its origin and of all earlier snapshots: the clone's line becomes the main line, and the
/// dataset it was cloned from becomes a clone of the same snapshot. No block and no deadlist changes.
///
/// Fails with [`Error::Exists`] if a moved snapshot has the same name as a snapshot of the clone.
pub fn promote(tx: &mut Transaction<'_>, clone: u64) -> Result<Promotion> {
    let row: DatasetRow = tx.row(dataset_key(clone))?;
    let origin: SnapshotRow = tx.row(snapshot_key(row.origin))?;
    let former = origin.dataset;
    let moved = moved_snapshots(tx, former, origin.createtxg)?;
    for (_, snapshot) in &moved {
        if tx.find_named::<Named>(clone, kind::SNAPSHOT_NAME, &snapshot.name)?.is_some() {
            return Err(Error::snapshot_exists(&snapshot.name));
        }
    }
    let former_row: DatasetRow = tx.row(dataset_key(former))?;
    let share = share(tx, &row, &origin, &former_row, &moved)?;
    for (id, snapshot) in &moved {
        move_snapshot(tx, *id, snapshot, clone)?;
    }
    let first_of_clone = snapshot::line(tx, clone)?.get(moved.len()).copied().unwrap_or(0);
    snapshot::set_next(tx, clone, row.origin, first_of_clone)?;
    swap_origins(tx, clone, &row, former, &former_row)?;
    settle(tx, clone, former, moved.len() as u64, &share)?;
    let snapshots = moved.into_iter().map(|(id, snapshot)| (id, snapshot.name)).collect();
    Ok(Promotion { former, snapshots, space: share.total() })
}

/// The snapshots of a dataset up to the txg `until`, oldest first.
fn moved_snapshots(tx: &Transaction<'_>, dataset: u64, until: Txg) -> Result<Vec<(u64, SnapshotRow)>> {
    let ids = snapshot::line(tx, dataset)?;
    let rows = ids.into_iter().map(|id| Ok((id, tx.row::<SnapshotRow>(snapshot_key(id))?)));
    let rows: Vec<_> = rows.collect::<Result<_>>()?;
    Ok(rows.into_iter().filter(|(_, row)| row.createtxg <= until).collect())
}

fn move_snapshot(tx: &mut Transaction<'_>, id: u64, row: &SnapshotRow, to: u64) -> Result<()> {
    tx.delete(Key::new(row.dataset, kind::SNAPSHOT_TXG, row.createtxg.0));
    tx.delete_named::<Named>(row.dataset, kind::SNAPSHOT_NAME, &row.name)?;
    tx.put_named(to, kind::SNAPSHOT_NAME, &Named { name: row.name.clone(), id })?;
    snapshot::place(tx, to, row, id);
    tx.set(snapshot_key(id), &SnapshotRow { dataset: to, ..row.clone() })
}

fn swap_origins(
    tx: &mut Transaction<'_>,
    clone: u64,
    clone_row: &DatasetRow,
    former: u64,
    former_row: &DatasetRow,
) -> Result<()> {
    remove_clone(tx, clone_row.origin, clone)?;
    add_clone(tx, clone_row.origin, former)?;
    if former_row.origin != 0 {
        remove_clone(tx, former_row.origin, former)?;
        add_clone(tx, former_row.origin, clone)?;
    }
    charge::edit(tx, clone, |row| (row.origin, row.origin_txg) = (former_row.origin, former_row.origin_txg))?;
    charge::edit(tx, former, |row| (row.origin, row.origin_txg) = (clone_row.origin, clone_row.origin_txg))
}

/// The charges of a promotion. O is the origin; "old" blocks were born after the former dataset's origin and up to O.
struct Share {
    /// Old blocks dropped within the moved snapshots: the old blocks on their deadlists.
    moved: Space,
    /// Old blocks in the tree of O.
    at_origin: Space,
    /// Old blocks of O that the former line has dropped since.
    lost_by_former: Space,
    /// Old blocks of O that the clone's line has dropped since.
    lost_by_clone: Space,
}

impl Share {
    fn total(&self) -> Space {
        self.moved + self.at_origin
    }
}

fn share(
    tx: &Transaction<'_>,
    clone: &DatasetRow,
    origin: &SnapshotRow,
    former: &DatasetRow,
    moved: &[(u64, SnapshotRow)],
) -> Result<Share> {
    let mut share = Share {
        moved: Space::ZERO,
        at_origin: origin.referenced,
        lost_by_former: Space::ZERO,
        lost_by_clone: Space::ZERO,
    };
    let mut older = match former.origin {
        0 => Space::ZERO,
        id => tx.row::<SnapshotRow>(snapshot_key(id))?.referenced,
    };
    for (_, snapshot) in moved {
        let own = deadlist::space_from(tx, snapshot.deadlist, former.origin_txg)?;
        share.moved += own;
        older = older + own - snapshot.dead;
    }
    share.at_origin -= older;
    share.lost_by_former = lost(tx, origin.dataset, former, origin, former.origin_txg)?;
    share.lost_by_clone = lost(tx, 0, clone, origin, former.origin_txg)?;
    Ok(share)
}

/// The blocks born after `from` and up to the origin that a line has dropped after the origin. `dataset` is the
/// origin's dataset for its own line, and 0 for the line of a clone.
fn lost(tx: &Transaction<'_>, dataset: u64, head: &DatasetRow, origin: &SnapshotRow, from: Txg) -> Result<Space> {
    let mut lost = Space::ZERO;
    let old = |deadlist| -> Result<Space> {
        Ok(deadlist::space_from(tx, deadlist, from)? - deadlist::space_from(tx, deadlist, origin.createtxg)?)
    };
    lost += old(head.deadlist)?;
    let mut id = head.newest;
    while id != 0 {
        let row: SnapshotRow = tx.row(snapshot_key(id))?;
        let is_own = if dataset == 0 { row.dataset != origin.dataset } else { row.dataset == dataset };
        if !is_own || row.createtxg <= origin.createtxg {
            break;
        }
        lost += old(row.deadlist)?;
        id = row.previous;
    }
    Ok(lost)
}

fn settle(tx: &mut Transaction<'_>, clone: u64, former: u64, moved: u64, share: &Share) -> Result<()> {
    let now = tx.now();
    charge::edit(tx, former, |row| {
        row.used_head = row.used_head + share.lost_by_former - share.at_origin;
        row.used_snapshots = row.used_snapshots - share.moved - share.lost_by_former;
        row.snapshots = row.snapshots.saturating_sub(moved);
        row.snapshots_changed = now;
    })?;
    charge::edit(tx, clone, |row| {
        row.used_head = row.used_head + share.at_origin - share.lost_by_clone;
        row.used_snapshots = row.used_snapshots + share.moved + share.lost_by_clone;
        row.snapshots = row.snapshots.saturating_add(moved);
        row.snapshots_changed = now;
    })
}
