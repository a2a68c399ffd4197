//! Dry runs: what a request would change.
//!
//! The request runs on the current catalogue, as in syncing context, with the same judgements and refusals. The changes
//! are then compared with the catalogue before, and discarded. So a dry run has no rules of its own.

use std::collections::BTreeMap;

use crate::{
    admin::{
        property::values,
        table::{
            datasets::Datasets,
            names::{self, Names},
        },
    },
    catalogue::{DatasetRow, SnapshotRow, Transaction, dataset_key, snapshot_key},
    error::{Error, Result},
    name::DatasetName,
    property::{
        Backing, CanMount, DATASET, Effective, Source, Valued,
        dataset::{CANMOUNT, MOUNTPOINT, OVERLAY},
        definition,
    },
};

/// The effects of a request on datasets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Foreseen {
    /// Names before and after, of datasets and snapshots.
    pub renamed: Vec<(String, String)>,
    /// File systems created.
    pub created: Vec<DatasetName>,
    /// Values that differ, parents before children; with the names after the request.
    pub values: Vec<ForeseenValue>,
    /// Where the datasets concerned would be mounted, by id.
    pub places: BTreeMap<u64, ForeseenPlace>,
    /// Snapshots, bookmarks and clones destroyed.
    pub destroyed: Vec<String>,
    /// Space freed, in bytes.
    pub reclaimed: u64,
}

/// The properties after a request that decide where a dataset is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeseenPlace {
    /// Name of the dataset.
    pub name: DatasetName,
    /// The property `mountpoint`.
    pub mountpoint: Valued,
    /// Whether the dataset is mounted.
    pub canmount: CanMount,
    /// Whether the mount may hide the content of its directory.
    pub overlay: bool,
}

/// A value before and after a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeseenValue {
    /// Name of the dataset or snapshot after the request.
    pub name: String,
    /// Name of the property.
    pub property: String,
    /// The value before; `None` for a user property that was not set.
    pub before: Option<Valued>,
    /// The value after; `None` for a user property that is no longer set.
    pub after: Option<Valued>,
}

impl Datasets {
    /// Runs a request on the current catalogue, with the refusals of [`Datasets::run`]. `look` compares the catalogues
    /// before and after the request, and the changes are discarded.
    pub(in crate::admin) fn foresee<T>(
        &self,
        mut request: impl FnMut(&mut Transaction<'_>) -> Result<T>,
        mut look: impl FnMut(&Transaction<'_>, &Transaction<'_>, T) -> Result<Foreseen>,
    ) -> Result<Foreseen> {
        let mut seen = None;
        let tried = self.attempt(|tx| {
            let done = request(tx)?;
            seen = Some(look(&tx.before(), tx, done)?);
            Ok(())
        });
        match tried {
            // The real run waits for the next txg, or activates the feature.
            Ok(()) | Err(Error::Inactive { .. } | Error::NextGroup) => Ok(seen.unwrap_or_default()),
            Err(error) => Err(error),
        }
    }
}

/// What a request changes in the values of datasets with all their descendants, or of snapshots.
pub(in crate::admin) fn compared(
    before: &Transaction<'_>,
    after: &Transaction<'_>,
    names: &Names,
    tops: &[u64],
) -> Result<Foreseen> {
    let mut found = Foreseen::default();
    for top in tops {
        if !after.contains(dataset_key(*top))? {
            let name = names.of_snapshot(after, *top)?.to_string();
            differences(&name, &of_snapshot(before, names, *top)?, &of_snapshot(after, names, *top)?, &mut found);
            continue;
        }
        for id in names::subtree(after, *top)? {
            if !after.row::<DatasetRow>(dataset_key(id))?.is_listed() {
                continue;
            }
            let name = names.of_dataset(after, id)?;
            let (old, new) = (of_dataset(before, names, id)?, of_dataset(after, names, id)?);
            let former = names.of_dataset(before, id)?;
            if former != name {
                found.renamed.push((former.to_string(), name.to_string()));
            }
            differences(name.as_str(), &old, &new, &mut found);
            if let Some(mountpoint) = new.valued(MOUNTPOINT.name).cloned() {
                let (canmount, overlay) = (new.get(&CANMOUNT), new.get(&OVERLAY));
                found.places.insert(id, ForeseenPlace { name, mountpoint, canmount, overlay });
            }
        }
    }
    Ok(found)
}

fn of_snapshot(tx: &Transaction<'_>, names: &Names, id: u64) -> Result<Effective> {
    let dataset = tx.row::<SnapshotRow>(snapshot_key(id))?.dataset;
    let above = values::effective(tx, names, dataset)?;
    values::of_snapshot(tx, id, values::for_snapshots(&names.of_dataset(tx, dataset)?, &above))
}

/// The values of a dataset, with the limits that have no row of their own.
fn of_dataset(tx: &Transaction<'_>, names: &Names, id: u64) -> Result<Effective> {
    let mut values = values::effective(tx, names, id)?;
    let row: DatasetRow = tx.row(dataset_key(id))?;
    for property in DATASET {
        let Backing::Limit(limit) = property.backing else { continue };
        if values.valued(property.name).is_none() {
            let bytes = limit.of(&row);
            let source = if bytes == 0 { Source::Default } else { Source::Local };
            values.insert(property.name, bytes.to_string(), source);
        }
    }
    Ok(values)
}

/// Adds the values that differ. A source alone differs only if the value is inherited from another dataset.
fn differences(name: &str, before: &Effective, after: &Effective, found: &mut Foreseen) {
    let mut note = |property: &str, before: Option<&Valued>, after: Option<&Valued>| {
        let (name, property) = (name.to_owned(), property.to_owned());
        found.values.push(ForeseenValue { name, property, before: before.cloned(), after: after.cloned() });
    };
    for (property, new) in after {
        match before.valued(property) {
            Some(old) if old == new => {}
            // An inherited value that stays the same, from a dataset with another name.
            Some(old) if old.value == new.value && is_inherited(old) && is_inherited(new) => {}
            old => note(property, old, Some(new)),
        }
    }
    for (property, old) in before {
        if after.valued(property).is_none() && definition(DATASET, property).is_none() {
            note(property, Some(old), None);
        }
    }
}

fn is_inherited(valued: &Valued) -> bool {
    matches!(valued.source, Source::Inherited(_) | Source::Default)
}
