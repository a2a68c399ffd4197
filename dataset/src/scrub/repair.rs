//! Rereads a suspect block while the pool is held still, and repairs the block if a copy is good. If none is, finds all
//! trees that have lost the block.
//!
//! Members of a line share blocks, and clones share blocks with their origins, always under the same key. So the other
//! owners of a lost block are found by looking in all members that can have the block, up to about `SHARERS`. Owners by
//! a reference of another line are found when that line is scrubbed or read.

use std::sync::Arc;

use pool::{
    format::pointer::BlockPointer,
    space::Seen,
    txg::{CATALOGUE, Engine, Still, Suspect, Verdict},
    units::Txg,
};

use super::damage::Damage;
use crate::{
    catalogue::{DatasetRow, SnapshotRow, Transaction, dataset_key, snapshot_key},
    error::Result,
    lineage::snapshot,
};

/// The approximate number of snapshots and datasets searched for a lost block. Fewer in tests.
pub(crate) const SHARERS: usize = if cfg!(test) { 16 } else { 4096 };

/// The result for a suspect.
#[derive(Debug)]
pub struct Outcome {
    /// The result of the second read.
    pub verdict: Verdict,
    /// The damage, if no copy is good.
    pub damage: Vec<Damage>,
}

/// The root of a tree, and its level.
pub type Root = (BlockPointer, u8);

/// Rereads and repairs a suspect. With `count`, bad copies increment the devices' error counters.
pub fn repair(engine: &Engine, suspect: &Suspect, count: bool) -> Result<Outcome> {
    repair_from(engine, suspect, None, count)
}

/// As [`repair`], with the stored bytes of the block from outside the pool: see [`Still::repair_from`].
pub fn repair_from(engine: &Engine, suspect: &Suspect, outside: Option<&Arc<Vec<u8>>>, count: bool) -> Result<Outcome> {
    let still = engine.hold_still();
    let Some(root) = read(engine, |tx| root_of(engine, tx, suspect.tree))? else {
        return Ok(Outcome { verdict: Verdict::Gone, damage: Vec::new() });
    };
    let verdict = still.repair_from(root, suspect, outside, count);
    let damage = match &verdict {
        Verdict::Lost => lost(&still, suspect)?,
        _ => Vec::new(),
    };
    Ok(Outcome { verdict, damage })
}

/// A tree's root in the committed state, and the moment needed to read the root; `None` if the tree is gone.
pub fn committed_root(engine: &Engine, tree: u64) -> Result<Option<(Root, Seen)>> {
    let still = engine.hold_still();
    let root = read(engine, |tx| root_of(engine, tx, tree))?;
    Ok(root.map(|root| (root, still.seen())))
}

/// The damage if a block is lost: in its own tree, and in all others with the block.
fn lost(still: &Still<'_>, suspect: &Suspect) -> Result<Vec<Damage>> {
    let mut damage = vec![Damage::at(suspect.tree, &suspect.place)];
    if suspect.tree == CATALOGUE {
        return Ok(damage);
    }
    let engine = still.engine();
    let sharers = read(engine, |tx| family(tx, suspect.tree, suspect.pointer.entered()))?;
    for (id, root) in sharers {
        let own = Suspect { tree: id, ..*suspect };
        // An unreadable path is damage of its own.
        if still.stands(root, &own).unwrap_or(false) {
            damage.push(Damage::at(id, &own.place));
        }
    }
    Ok(damage)
}

/// Reads the catalogue; while the pool is held still, its content is the committed content.
fn read<T>(engine: &Engine, mut look: impl FnMut(&Transaction<'_>) -> Result<T>) -> Result<T> {
    engine.catalogue().read(|view| look(&Transaction::new(*view, 0)))
}

fn root_of(engine: &Engine, tx: &Transaction<'_>, tree: u64) -> Result<Option<Root>> {
    if tree == CATALOGUE {
        return Ok(engine.catalogue().clean_root());
    }
    if let Some((row, root)) = tx.find::<SnapshotRow>(snapshot_key(tree))? {
        return Ok(root.map(|root| (root, row.level)));
    }
    let found = tx.find::<DatasetRow>(dataset_key(tree))?;
    Ok(found.and_then(|(row, root)| Some((root?, row.level))))
}

/// All snapshots and datasets other than `tree` that can have a block which entered `tree` in `birth`: later members of
/// the line, members of the lines that it was cloned from, and clones of all of these.
fn family(tx: &Transaction<'_>, tree: u64, birth: Txg) -> Result<Vec<(u64, Root)>> {
    let snapshot = tx.find::<SnapshotRow>(snapshot_key(tree))?;
    let mut top = snapshot.map_or(tree, |(row, _)| row.dataset);
    while let Some((row, _)) = tx.find::<DatasetRow>(dataset_key(top))?.filter(|(row, _)| birth <= row.origin_txg) {
        top = tx.row::<SnapshotRow>(snapshot_key(row.origin))?.dataset;
    }
    let mut found = Vec::new();
    let mut lines = vec![top];
    while let Some(dataset) = lines.pop().filter(|_| found.len() < SHARERS) {
        for id in snapshot::line(tx, dataset)? {
            let (row, root) = tx.row_and_block::<SnapshotRow>(snapshot_key(id))?;
            if row.createtxg >= birth {
                found.extend(root.map(|root| (id, (root, row.level))));
                lines.extend(snapshot::clones(tx, id)?);
            }
        }
        let head = tx.find::<DatasetRow>(dataset_key(dataset))?;
        found.extend(head.and_then(|(row, root)| Some((dataset, (root?, row.level)))));
    }
    found.retain(|(id, _)| *id != tree);
    Ok(found)
}
