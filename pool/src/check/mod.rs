//! The check (OpenZFS: `zdb -b`): verifies a pool that is not being changed.
//!
//! A check walks everything reachable, reads every copy of every block, and compares the references with the space
//! layer's allocations. The owner of the trees (the datasets' layer) enters its references into a [`Ledger`]; this
//! module enters the catalogue's nodes, the space layer's own blocks and the intent log's area, and draws the balance.
//!
//! Nothing is repaired here, and a finding never stops the walk.

mod finding;
mod ledger;

use std::sync::Arc;

pub use self::{
    finding::{Code, Finding},
    ledger::Ledger,
};
use crate::{
    error::Result,
    format::pointer::BlockPointer,
    tree::{Event, Miss, Node, Root, Walker},
    txg::Engine,
    units::Txg,
};

/// Enters every node of a stored tree born after `born_after`, and calls `visit` for each leaf. An unreadable node
/// becomes a finding and is skipped.
pub fn walk_tree(
    engine: &Engine,
    root: (BlockPointer, u8),
    born_after: Txg,
    ledger: &mut Ledger,
    what: &str,
    mut visit: impl FnMut(&mut Ledger, &Node),
) {
    let root = Miss::root(&Root::stored(root.0, root.1)).expect("a stored root has an address");
    // The pool should not change meanwhile; if it does, freed nodes are not read.
    let seen = engine.seen();
    let mut walker = Walker::new(root, crate::format::key::Key::MIN, born_after);
    loop {
        match walker.next(|miss| engine.load_node(miss, seen)) {
            Ok(Some(Event::Enter(place, node))) => {
                ledger.refer(&place.pointer, what);
                if node.leaf().is_some() {
                    visit(ledger, &node);
                }
            }
            Ok(Some(Event::Leave(..))) => {}
            Ok(None) => return,
            Err(error) => {
                ledger.find(Finding::new(Code::UnreadableNode, format!("{what}: {error}")));
                walker.skip();
            }
        }
    }
}

/// Enters the catalogue's own nodes.
pub fn enter_catalogue(engine: &Engine, ledger: &mut Ledger) {
    if let Some(root) = engine.catalogue().clean_root() {
        walk_tree(engine, root, Txg::ZERO, ledger, "catalogue", |_, _| {});
    }
}

/// Reads the space maps of all chunks; fails if any is unreadable.
pub fn space_is_readable(engine: &Engine) -> Result<()> {
    let storage = engine.storage();
    storage.space.own_extents()?;
    storage.space.allocated_extents(&storage.vdevs).map(drop)
}

/// Reads every copy of every entered block and draws the balance with the space layer. The pool must be in its
/// committed state: opened read-only, or unchanged since the last commit.
pub fn conclude(engine: &Arc<Engine>, ledger: &mut Ledger) -> Result<Vec<Finding>> {
    conclude_while(engine, ledger, &|_| true)
}

/// As [`conclude`], while `goes_on` returns true; its argument is the number of verified blocks. After an early stop
/// the findings are incomplete.
pub fn conclude_while(
    engine: &Arc<Engine>,
    ledger: &mut Ledger,
    goes_on: &(dyn Fn(u64) -> bool + Sync),
) -> Result<Vec<Finding>> {
    ledger.verify_copies(engine, goes_on);
    ledger.balance(engine.storage(), engine.log_area())?;
    Ok(ledger.take_findings())
}
