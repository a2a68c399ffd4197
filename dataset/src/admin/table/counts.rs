//! The numbers of file systems and snapshots below a dataset, and their limits.
//!
//! `filesystem_limit` and `snapshot_limit` belong to one dataset, and bound everything below the dataset. A request that
//! adds datasets or snapshots checks the limits afterwards, in its own transaction, so a refusal changes nothing. The
//! numbers are counted from the rows of the subtree, only where a limit is set. The first limit of a pool leaves a mark
//! among the pool's properties, which older programs ignore: a pool without limits pays for one lookup.

use std::collections::BTreeSet;

use super::names::{self, Names};
use crate::{
    catalogue::{DatasetRow, POOL, Transaction, Value, dataset_key, kind},
    error::{Error, Result},
    name::MAX_DEPTH,
    property::{
        Typed,
        dataset::{FILESYSTEM_LIMIT, SNAPSHOT_LIMIT},
    },
};

/// The name of the mark.
const MARK: &str = "counted";

/// The objects that a request has added.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::admin) enum Added {
    Filesystems,
    Snapshots,
    Both,
}

impl Added {
    /// The limits to check.
    fn limits(self) -> &'static [Typed<u64>] {
        const FILESYSTEMS: &[Typed<u64>] = &[FILESYSTEM_LIMIT];
        const SNAPSHOTS: &[Typed<u64>] = &[SNAPSHOT_LIMIT];
        const BOTH: &[Typed<u64>] = &[FILESYSTEM_LIMIT, SNAPSHOT_LIMIT];
        match self {
            Added::Filesystems => FILESYSTEMS,
            Added::Snapshots => SNAPSHOTS,
            Added::Both => BOTH,
        }
    }
}

/// What lies below a dataset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::admin) struct Counts {
    /// The number of descendants.
    pub(in crate::admin) filesystems: u64,
    /// The snapshots of the dataset and its descendants.
    pub(in crate::admin) snapshots: u64,
}

/// Leaves the mark if the property is a limit of a number.
pub(in crate::admin) fn mark(tx: &mut Transaction<'_>, property: &str) -> Result<()> {
    if !FILESYSTEM_LIMIT.is(property) && !SNAPSHOT_LIMIT.is(property) || is_marked(tx)? {
        return Ok(());
    }
    tx.put_named(POOL, kind::PROPERTY, &Value { name: MARK.to_owned(), value: Some(String::new()) })
}

fn is_marked(tx: &Transaction<'_>) -> Result<bool> {
    Ok(tx.find_named::<Value>(POOL, kind::PROPERTY, MARK)?.is_some())
}

/// What lies below a dataset; `None` if neither the dataset nor an ancestor has a limit.
pub(in crate::admin) fn below(tx: &Transaction<'_>, id: u64) -> Result<Option<Counts>> {
    if !is_marked(tx)? {
        return Ok(None);
    }
    for above in upwards(tx, id)? {
        for limit in Added::Both.limits() {
            if limit_of(tx, above, limit)?.is_some() {
                return count(tx, id).map(Some);
            }
        }
    }
    Ok(None)
}

/// Fails if a limit of one of the datasets or of an ancestor is exceeded. What is below `from` was counted before: the
/// limits of `from` and its ancestors are not checked.
pub(in crate::admin) fn check(
    tx: &Transaction<'_>,
    names: &Names,
    ids: &[u64],
    from: Option<u64>,
    added: Added,
) -> Result<()> {
    if !is_marked(tx)? {
        return Ok(());
    }
    let mut checked: BTreeSet<u64> = match from {
        Some(from) => upwards(tx, from)?.into_iter().collect(),
        None => BTreeSet::new(),
    };
    for id in ids {
        for above in upwards(tx, *id)? {
            if !checked.insert(above) {
                break;
            }
            check_own(tx, names, above, added)?;
        }
    }
    Ok(())
}

fn check_own(tx: &Transaction<'_>, names: &Names, id: u64, added: Added) -> Result<()> {
    for property in added.limits() {
        let Some(limit) = limit_of(tx, id, property)? else { continue };
        let counts = count(tx, id)?;
        let number = if FILESYSTEM_LIMIT.is(property.name) { counts.filesystems } else { counts.snapshots };
        if number > limit {
            let name = names.of_dataset(tx, id)?.to_string();
            return Err(Error::Count { property: property.name, name, limit });
        }
    }
    Ok(())
}

/// The limit of a dataset; `None` without a limit.
fn limit_of(tx: &Transaction<'_>, id: u64, property: &Typed<u64>) -> Result<Option<u64>> {
    let value = match tx.find_named::<Value>(id, kind::PROPERTY, property.name)? {
        Some((_, own)) => own.value,
        None => tx.find_named::<Value>(id, kind::RECEIVED, property.name)?.and_then(|(_, received)| received.value),
    };
    Ok(value.and_then(|value| value.parse().ok()).filter(|limit| *limit != u64::MAX))
}

/// A dataset and its ancestors.
fn upwards(tx: &Transaction<'_>, id: u64) -> Result<Vec<u64>> {
    let (mut ids, mut at) = (Vec::new(), id);
    while at != 0 {
        if ids.len() > MAX_DEPTH {
            return Err(Error::damaged(id, "datasets are nested too deep"));
        }
        ids.push(at);
        at = tx.row::<DatasetRow>(dataset_key(at))?.parent;
    }
    Ok(ids)
}

/// Counts the subtree. Datasets about to arrive or to be destroyed are hidden, and do not count.
fn count(tx: &Transaction<'_>, id: u64) -> Result<Counts> {
    let mut counts = Counts::default();
    for below in names::subtree(tx, id)? {
        let row: DatasetRow = tx.row(dataset_key(below))?;
        if below == id || !row.hidden {
            counts.filesystems += u64::from(below != id);
            counts.snapshots = counts.snapshots.saturating_add(row.snapshots);
        }
    }
    Ok(counts)
}
