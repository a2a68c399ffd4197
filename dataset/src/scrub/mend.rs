//! A suspect is looked at again while the pool is held still, mended if a copy is good, and else everybody is found who
//! has lost it.
//!
//! Members of a line share blocks, and clones share those of their origins, always under the same key: so who else has a
//! lost block is found by looking for it in all members that can have it. At most about `SHARERS` are looked at. Who has it
//! by a reference of another line is found when that one is scrubbed, or read.

use pool::{
    format::pointer::BlockPointer,
    space::Seen,
    txg::{CATALOGUE, Engine, Still, Suspect, Verdict},
    units::Txg,
};

use super::damage::Damage;
use crate::{
    admin::Result,
    catalogue::{DatasetRow, SnapshotRow, Transaction, dataset_key, snapshot_key},
    lineage::snapshot,
};

/// In about so many snapshots and datasets a lost block is looked for at most. A test shall not need as many.
pub(crate) const SHARERS: usize = if cfg!(test) { 16 } else { 4096 };

/// What became of a suspect.
#[derive(Debug)]
pub struct Outcome {
    /// What was found when it was looked at again.
    pub verdict: Verdict,
    /// What is lost with it.
    pub damage: Vec<Damage>,
}

/// The root of a tree, and its level.
pub type Root = (BlockPointer, u8);

/// Looks at a suspect again and mends it. With `count`, its bad copies are counted.
pub fn mend(engine: &Engine, suspect: &Suspect, count: bool) -> Result<Outcome> {
    let still = engine.hold_still();
    let Some(root) = read(engine, |tx| root_of(engine, tx, suspect.tree))? else {
        return Ok(Outcome { verdict: Verdict::Gone, damage: Vec::new() });
    };
    let verdict = still.mend(root, suspect, count);
    let damage = match &verdict {
        Verdict::Lost => lost(&still, suspect)?,
        _ => Vec::new(),
    };
    Ok(Outcome { verdict, damage })
}

/// The root that a tree has in the committed state, and what it takes to read it; none if it is gone.
pub fn committed_root(engine: &Engine, tree: u64) -> Result<Option<(Root, Seen)>> {
    let still = engine.hold_still();
    let root = read(engine, |tx| root_of(engine, tx, tree))?;
    Ok(root.map(|root| (root, still.seen())))
}

/// What is lost with a block: in its own tree, and in every other that has it.
fn lost(still: &Still<'_>, suspect: &Suspect) -> Result<Vec<Damage>> {
    let mut damage = vec![Damage::at(suspect.tree, &suspect.place)];
    if suspect.tree == CATALOGUE {
        return Ok(damage);
    }
    let engine = still.engine();
    let sharers = read(engine, |tx| family(tx, suspect.tree, suspect.pointer.entered()))?;
    for (id, root) in sharers {
        let own = Suspect { tree: id, ..*suspect };
        // A way that cannot be read is damage of its own.
        if still.stands(root, &own).unwrap_or(false) {
            damage.push(Damage::at(id, &own.place));
        }
    }
    Ok(damage)
}

/// What the catalogue says now; the pool is held still, so that is what was committed.
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

/// All snapshots and datasets that can have a block of `tree` that entered it in `birth`, but for `tree` itself: those of
/// the line that were taken since, of the lines that it is a clone of, and of the clones of all of them.
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
