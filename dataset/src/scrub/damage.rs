//! The list of permanent damage in the catalogue: trees and objects.

use std::collections::BTreeMap;

use pool::{
    format::key::Key,
    txg::{CATALOGUE, Place},
    units::Txg,
};

use crate::{
    catalogue::{DamageRow, POOL, Transaction, keys, kind},
    error::Result,
    fs::key::INODE,
};

/// The most entries. A pool with more damage is lost as a whole, and the first entries show so.
pub const MAX_ENTRIES: usize = 1024;

/// The object number for the blocks of the space maps.
pub const SPACE: u64 = u64::MAX;

/// Objects of a tree with lost data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Damage {
    /// The dataset or snapshot; 0 for the pool's own structures.
    pub tree: u64,
    /// The first damaged object.
    pub first: u64,
    /// The last object: equal to the first, unless a node of the tree is lost.
    pub last: u64,
}

impl Damage {
    /// The damage if the block at a place is lost.
    pub fn at(tree: u64, place: &Place) -> Damage {
        match place {
            Place::Item(key) => Damage { tree, first: key.object, last: key.object },
            Place::Node { low, high, .. } => Damage { tree, first: low.object, last: last_object(*low, *high) },
        }
    }

    /// The damage if a block of the space maps is lost.
    pub const fn of_space() -> Damage {
        Damage { tree: CATALOGUE, first: SPACE, last: SPACE }
    }
}

/// The last object that can have keys in a range. In a dataset's tree, the first key of an object is its inode's.
fn last_object(low: Key, high: Key) -> u64 {
    let is_outside = high.kind <= INODE && high.offset == 0;
    if is_outside { high.object.saturating_sub(1).max(low.object) } else { high.object }
}

/// The given damage that is not in the list, or was last seen in `since` or before.
pub fn unknown(tx: &Transaction<'_>, damage: &[Damage], since: Txg) -> Result<Vec<Damage>> {
    let rows = tx.rows::<DamageRow>(keys(POOL, kind::DAMAGE))?;
    let is_known = |damage: &Damage| {
        rows.iter().any(|(_, row)| {
            (row.tree, row.first, row.last) == (damage.tree, damage.first, damage.last) && row.seen > since
        })
    };
    Ok(damage.iter().filter(|damage| !is_known(damage)).copied().collect())
}

/// Records damage found in the current txg, replacing older entries.
pub fn note(tx: &mut Transaction<'_>, damage: &[Damage]) -> Result<()> {
    let rows = tx.rows::<DamageRow>(keys(POOL, kind::DAMAGE))?;
    let mut free = rows.last().map_or(0, |(key, _)| key.offset.saturating_add(1));
    let mut count = rows.len();
    let mut known: BTreeMap<Damage, (Key, i64)> = BTreeMap::new();
    for (key, DamageRow { tree, first, last, time, .. }) in rows {
        known.insert(Damage { tree, first, last }, (key, time));
    }
    for &damage in damage {
        let (key, time) = match known.get(&damage) {
            Some(known) => *known,
            None if count < MAX_ENTRIES => {
                let entry = (Key::new(POOL, kind::DAMAGE, free), tx.now());
                (free, count) = (free.saturating_add(1), count + 1);
                known.insert(damage, entry);
                entry
            }
            None => continue,
        };
        let Damage { tree, first, last } = damage;
        tx.put(key, &DamageRow { tree, first, last, time, seen: tx.txg() }, None);
    }
    Ok(())
}

/// Deletes the entries not seen after `limit`: a complete scrub that began then has not found the damage.
pub fn forget(tx: &mut Transaction<'_>, limit: Txg) -> Result<()> {
    for (key, row) in tx.rows::<DamageRow>(keys(POOL, kind::DAMAGE))? {
        if row.seen <= limit {
            tx.delete(key);
        }
    }
    Ok(())
}

/// Deletes an entry not seen after `limit`.
pub fn forget_entry(tx: &mut Transaction<'_>, entry: Damage, limit: Txg) -> Result<()> {
    for (key, DamageRow { tree, first, last, seen, .. }) in tx.rows::<DamageRow>(keys(POOL, kind::DAMAGE))? {
        if (Damage { tree, first, last }) == entry && seen <= limit {
            tx.delete(key);
        }
    }
    Ok(())
}

/// All entries, sorted.
pub fn list(tx: &Transaction<'_>) -> Result<Vec<Damage>> {
    let rows = tx.rows::<DamageRow>(keys(POOL, kind::DAMAGE))?;
    let mut list: Vec<Damage> =
        rows.into_iter().map(|(_, DamageRow { tree, first, last, .. })| Damage { tree, first, last }).collect();
    list.sort_unstable();
    Ok(list)
}
