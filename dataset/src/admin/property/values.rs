//! The values of all properties of a dataset or snapshot, with their sources, from the rows of the catalogue.

use std::collections::BTreeMap;

use crate::{
    admin::{
        delegation::grant,
        table::{datasets::Mount, names::Names},
    },
    catalogue::{DatasetRow, Transaction, Value, dataset_key, keys, kind},
    error::{Error, Result},
    name::{DatasetName, MAX_DEPTH},
    property::{
        Backing, DATASET, Definition, Effective, Kinds, Nature, Property, Source, dataset::MOUNTPOINT, definition,
    },
};

/// The received values of a dataset, by name.
pub(in crate::admin) fn received(tx: &Transaction<'_>, id: u64) -> Result<BTreeMap<String, String>> {
    Ok(rows(tx, id, kind::RECEIVED)?.into_iter().filter_map(|row| Some((row.name, row.value?))).collect())
}

/// The values of all settable properties of a dataset; limits only if they have rows.
pub(in crate::admin) fn effective(tx: &Transaction<'_>, names: &Names, id: u64) -> Result<Effective> {
    let mut path = vec![id];
    let mut row: DatasetRow = tx.row(dataset_key(id))?;
    // A valid name has a bounded number of components, and so has the path.
    let name = names.of_dataset(tx, id)?;
    while row.parent != 0 {
        if path.len() > MAX_DEPTH {
            return Err(Error::damaged(id, "datasets are nested too deep"));
        }
        path.push(row.parent);
        row = tx.row(dataset_key(row.parent))?;
    }
    let above = std::iter::successors(Some(name), DatasetName::parent);
    let steps: Vec<(u64, DatasetName)> = path.into_iter().zip(above).collect();
    let mut values = defaults(steps.last().map(|(_, pool)| pool));
    for (index, (id, name)) in steps.iter().rev().enumerate() {
        if index > 0 {
            values = inherited(&values, name);
        }
        own(tx, *id, &mut values)?;
    }
    Ok(values)
}

/// The values that the dataset `name` inherits from a parent with `values`.
pub(in crate::admin) fn inherited(values: &Effective, name: &DatasetName) -> Effective {
    let above = name.parent().map(|parent| parent.to_string()).unwrap_or_default();
    let mut below = defaults(None);
    for (property, valued) in values {
        let is_own = |row: &Definition| row.nature != Nature::Inheritable;
        if definition(DATASET, property).map_or(!property.contains(':'), is_own) {
            continue;
        }
        let source = match &valued.source {
            Source::Local | Source::Received | Source::Temporary => Source::Inherited(above.clone()),
            other => other.clone(),
        };
        let value = match MOUNTPOINT.is(property) {
            true => mountpoint_below(&valued.value, name.leaf()),
            false => valued.value.clone(),
        };
        below.insert(property, value, source);
    }
    below
}

fn mountpoint_below(above: &str, component: &str) -> String {
    match above {
        "none" | "legacy" => above.to_owned(),
        path => format!("{}/{component}", path.trim_end_matches('/')),
    }
}

/// Applies the values set on, or received by, a dataset or snapshot.
pub(in crate::admin) fn own(tx: &Transaction<'_>, id: u64, values: &mut Effective) -> Result<()> {
    let local: Vec<Value> = rows(tx, id, kind::PROPERTY)?;
    for Value { name, value } in rows(tx, id, kind::RECEIVED)? {
        let is_hidden = local.iter().any(|row| row.name == name);
        if let Some(value) = value.filter(|_| !is_hidden) {
            values.insert(name, value, Source::Received);
        }
    }
    for Value { name, value } in local {
        if let Some(value) = value.filter(|_| !grant::is_grant(&name)) {
            values.insert(name, value, Source::Local);
        }
    }
    Ok(())
}

/// Applies the values of a mount, which override all others.
pub(in crate::admin) fn overlay(values: &mut Effective, mount: &Mount) {
    for (name, value) in &mount.temporary {
        values.insert(name, value, Source::Temporary);
    }
}

fn rows(tx: &Transaction<'_>, id: u64, kind: u8) -> Result<Vec<Value>> {
    Ok(tx.rows::<Value>(keys(id, kind))?.into_iter().map(|(_, row)| row).collect())
}

/// The defaults; for the pool's root dataset with the default mountpoint.
fn defaults(pool: Option<&DatasetName>) -> Effective {
    let kept = |definition: &&Definition| definition.backing == Backing::Row;
    let mut values = Effective::default();
    for definition in DATASET.iter().filter(kept) {
        if let Some(value) = definition.default {
            values.insert(definition.name, value, Source::Default);
        }
    }
    if let Some(pool) = pool {
        values.insert(MOUNTPOINT.name, format!("/{pool}"), Source::Default);
    }
    values
}

/// The values that snapshots have from their dataset `above`: those that apply to snapshots.
pub(in crate::admin) fn for_snapshots(above: &DatasetName, dataset: &Effective) -> Effective {
    let mut values = Effective::default();
    for (property, valued) in dataset {
        let applies = Property::of_dataset(property).is_ok_and(|property| property.applies_to(Kinds::SNAPSHOT));
        if applies {
            let source = match &valued.source {
                Source::Local | Source::Received => Source::Inherited(above.to_string()),
                other => other.clone(),
            };
            values.insert(property, &valued.value, source);
        }
    }
    values
}

/// The values of a snapshot, given those from its dataset.
pub(in crate::admin) fn of_snapshot(tx: &Transaction<'_>, id: u64, mut above: Effective) -> Result<Effective> {
    own(tx, id, &mut above)?;
    Ok(above)
}
