//! Decides whether a committed state is complete enough for a rewind; runs on a pool opened at that state.
//!
//! No block of the last few states has been overwritten, so there it is enough to read the roots ([`roots`]). An older
//! state may have lost any node, so all of its metadata is read ([`all_metadata`]). Neither reads the blocks of files.

use pool::{
    check::{Ledger, space_is_readable},
    error::Error as PoolError,
    txg::Engine,
};

use super::{Report, rows};
use crate::{
    error::{Error, Result},
    lineage::nodes,
};

/// Reads the space maps, the whole catalogue, and the root of each dataset and snapshot.
pub fn roots(engine: &Engine) -> Result<()> {
    space_is_readable(engine)?;
    let mut report = Report::default();
    let pinned = engine.pin();
    let rows = rows::load(engine, &mut report)?;
    first_finding(&report)?;
    let datasets = rows.datasets.iter().map(|(id, (row, root))| (*id, *root, row.level));
    let snapshots = rows.snapshots.iter().map(|(id, (row, root))| (*id, *root, row.level));
    for (id, root, level) in datasets.chain(snapshots) {
        let root = root.ok_or_else(|| Error::damaged(id, "it has no tree"))?;
        nodes::read(engine, &nodes::root(root, level), pinned.seen())?;
    }
    Ok(())
}

/// Also reads every node of every tree, and compares everything in the catalogue with the nodes.
pub fn all_metadata(engine: &Engine) -> Result<()> {
    space_is_readable(engine)?;
    first_finding(&super::check(engine, &mut Ledger::default())?)
}

fn first_finding(report: &Report) -> Result<()> {
    match report.findings.first() {
        Some(finding) => Err(PoolError::damaged("datasets", finding).into()),
        None => Ok(()),
    }
}
