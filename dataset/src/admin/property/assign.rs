//! Setting and inheriting properties, and the source of a value.
//!
//! A local value overrides a received value, which overrides the parent's value; without any, the default counts.
//! Inheriting a property removes the local value, and hides a received value.
//!
//! Quotas and reservations are numbers in the dataset's row, so that writing and accounting need no lookup. The rows of
//! their values only record the source of the number, and the value if received. A number without such a row was set
//! locally by an older program.

use std::collections::BTreeMap;

use pool::{error::Error as PoolError, format::label::RESUMABLE_RECEIVE};

use crate::{
    admin::{
        report::foreseen::{self, Foreseen},
        table::{
            counts,
            datasets::Datasets,
            history, limits,
            names::{self, Names, Target},
        },
    },
    catalogue::{DatasetRow, POOL, Transaction, Value, dataset_key, keys, kind},
    error::{Error, Result},
    lineage::charge,
    name::Name,
    property::{Backing, EXTENSIBLE_DATASET, FEATURE, Kinds, Limit, Property, Setting, Typed, size::format_apart},
};

/// A property and its new value, as typed by a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The property's name or alias.
    pub property: String,
    /// The value, not yet validated.
    pub value: String,
}

impl Datasets {
    /// Sets properties of datasets or snapshots. A reservation may use recently freed space.
    pub fn set(&self, targets: &[Name], assignments: &[Assignment]) -> Result<()> {
        let room = self.engine().available();
        match self.set_with_room(targets, assignments, room) {
            Err(Error::Limit { missing: Some(missing), .. }) if self.finds_room(room.saturating_add(missing))? => {
                self.set_with_room(targets, assignments, self.engine().available())
            }
            other => other,
        }
    }

    /// Waits until `bytes` are free, if commits can provide the space.
    fn finds_room(&self, bytes: u64) -> Result<bool> {
        match self.engine().wait_for_room(bytes) {
            Err(PoolError::OutOfSpace) => Ok(false),
            found => Ok(found.map(|()| true)?),
        }
    }

    fn set_with_room(&self, targets: &[Name], assignments: &[Assignment], room: u64) -> Result<()> {
        self.run(self.setting(targets, assignments, room)?)?;
        self.reload_options()
    }

    /// The changes of [`Datasets::set`], by its rules. Only its wait for space is left out.
    pub fn foresee_set(&self, targets: &[Name], assignments: &[Assignment]) -> Result<Foreseen> {
        let (names, room) = (self.names(), self.engine().available());
        let setting = self.setting(targets, assignments, room)?;
        self.foresee(setting, |before, after, ids| foreseen::compared(before, after, &names, &ids))
    }

    /// Sets properties, and returns the ids of the targets.
    fn setting(
        &self,
        targets: &[Name],
        assignments: &[Assignment],
        room: u64,
    ) -> Result<impl FnMut(&mut Transaction<'_>) -> Result<Vec<u64>> + Send + use<>> {
        let (names, targets, assignments) = (self.names(), targets.to_vec(), self.with_vdevs_named(assignments)?);
        Ok(move |tx: &mut Transaction<'_>| {
            let ids = targets.iter().map(|target| owner(tx, &names, target)).collect::<Result<Vec<_>>>()?;
            for id in &ids {
                assign_all(tx, &names, *id, &assignments, false, room)?;
            }
            let values: Vec<String> =
                assignments.iter().map(|Assignment { property, value }| format!("{property}={value}")).collect();
            history::log_each(tx, &format!("set {} of", values.join(" ")), &targets)?;
            Ok(ids)
        })
    }

    /// Inherits a property; with `recursive` in all descendants too. With `received` a received value counts again
    /// instead.
    pub fn inherit(&self, targets: &[Name], property: &str, recursive: bool, received: bool) -> Result<()> {
        self.run(self.inheriting(targets, property, recursive, received)?)?;
        self.reload_options()
    }

    /// The changes of [`Datasets::inherit`], by its rules.
    pub fn foresee_inherit(
        &self,
        targets: &[Name],
        property: &str,
        recursive: bool,
        received: bool,
    ) -> Result<Foreseen> {
        let names = self.names();
        let inheriting = self.inheriting(targets, property, recursive, received)?;
        self.foresee(inheriting, |before, after, ids| foreseen::compared(before, after, &names, &ids))
    }

    /// Inherits a property, and returns the ids of the targets.
    fn inheriting(
        &self,
        targets: &[Name],
        property: &str,
        recursive: bool,
        received: bool,
    ) -> Result<impl FnMut(&mut Transaction<'_>) -> Result<Vec<u64>> + Send + use<>> {
        let (names, targets) = (self.names(), targets.to_vec());
        let property = Property::of_dataset(property)?;
        if !property.is_inheritable() && !received {
            return Err(Error::NotInheritable { property: property.name().to_owned() });
        }
        let room = self.engine().available();
        Ok(move |tx: &mut Transaction<'_>| {
            let mut tops = Vec::new();
            for target in &targets {
                let id = owner(tx, &names, target)?;
                tops.push(id);
                let is_dataset = matches!(target, Name::Dataset(_));
                let ids = if recursive && is_dataset { names::subtree(tx, id)? } else { vec![id] };
                for id in ids {
                    inherit(tx, id, property.name(), received)?;
                    if let Some(limit) = limit_of(&property) {
                        follow_rows(tx, &names, id, property.name(), limit, room)?;
                    }
                }
            }
            history::log_each(tx, &format!("inherit {property} of"), &targets)?;
            Ok(tops)
        })
    }

    /// The stored value of a pool property.
    pub fn pool_property(&self, name: &str) -> Result<Option<String>> {
        self.read(|tx| {
            let found = tx.find_named::<Value>(POOL, kind::PROPERTY, name)?;
            Ok(found.and_then(|(_, row)| row.value))
        })
    }

    /// The stored value of a pool property; `None` if never set.
    pub fn pool_value<T: Setting>(&self, property: &Typed<T>) -> Result<Option<T>> {
        Ok(self.pool_property(property.name)?.and_then(|value| property.read(&value)))
    }

    /// The value of a pool property; the default if never set, or unreadable because devices are missing.
    pub fn pool_setting<T: Setting>(&self, property: &Typed<T>) -> T {
        self.pool_value(property).ok().flatten().unwrap_or_else(|| property.default())
    }

    /// The user properties of the pool: names and values, by name.
    pub fn pool_user_properties(&self) -> Result<BTreeMap<String, String>> {
        self.read(|tx| {
            let rows = tx.rows::<Value>(keys(POOL, kind::PROPERTY))?.into_iter().map(|(_, row)| row);
            let own = rows.filter(|row| matches!(Property::of_pool(&row.name), Ok(Property::User(_))));
            Ok(own.filter_map(|row| Some((row.name, row.value?))).collect())
        })
    }

    /// Keeps a value for the pool as a whole. A constant of OpenZFS has its value anyhow. A user property without a
    /// value is removed.
    pub fn set_pool_property(&self, name: &str, value: &str) -> Result<()> {
        if Property::of_pool(name).is_ok_and(|property| property.is_constant()) {
            return Ok(());
        }
        self.run(pool_setting(name, value))?;
        // An enabled feature changes the options of every file system.
        self.reload_options()
    }

    /// Fails as [`Datasets::set_pool_property`] would, and changes nothing.
    pub fn try_pool_property(&self, name: &str, value: &str) -> Result<()> {
        self.attempt(pool_setting(name, value))
    }
}

/// Keeps a value for the pool as a whole.
fn pool_setting(name: &str, value: &str) -> impl FnMut(&mut Transaction<'_>) -> Result<()> + Send + use<> {
    let is_removed = value.is_empty() && matches!(Property::of_pool(name), Ok(Property::User(_)));
    let name = match name.strip_prefix(FEATURE) {
        Some(EXTENSIBLE_DATASET) => format!("{FEATURE}{RESUMABLE_RECEIVE}"),
        _ => name.to_owned(),
    };
    let value = value.to_owned();
    move |tx| {
        if is_removed {
            return tx.delete_named::<Value>(POOL, kind::PROPERTY, &name).map(drop);
        }
        let row = Value { name: name.clone(), value: Some(value.clone()) };
        tx.put_named(POOL, kind::PROPERTY, &row)
    }
}

fn owner(tx: &Transaction<'_>, names: &Names, target: &Name) -> Result<u64> {
    match names.target(tx, target)? {
        Target::Dataset(id) | Target::Snapshot(id) => Ok(id),
        Target::Bookmark(..) => {
            Err(Error::NotApplicable { property: "a property".into(), what: "bookmark", name: target.to_string() })
        }
    }
}

/// Sets properties of a dataset or snapshot. `creating` is true for a new dataset.
pub(in crate::admin) fn assign_all(
    tx: &mut Transaction<'_>,
    names: &Names,
    id: u64,
    assignments: &[Assignment],
    creating: bool,
    room: u64,
) -> Result<()> {
    let is_dataset = tx.contains(dataset_key(id))?;
    let kinds = if is_dataset { Kinds::FILESYSTEM } else { Kinds::SNAPSHOT };
    for assignment in assignments {
        let property = Property::of_dataset(&assignment.property)?;
        let is_user = matches!(property, Property::User(_));
        // Accounts are stored with the files: see `crate::fs::account`.
        let is_account = matches!(property, Property::Account(_));
        if is_account || !property.applies_to(kinds) || (!is_dataset && !is_user) {
            let (what, name) = match is_dataset {
                true => ("dataset", names.of_dataset(tx, id)?.to_string()),
                false => ("snapshot", names.of_snapshot(tx, id)?.to_string()),
            };
            return Err(Error::NotApplicable { property: property.name().to_owned(), what, name });
        }
        let value = property.parse_value(&assignment.value, creating)?;
        if property.is_constant() {
            continue;
        }
        if let Some(limit) = limit_of(&property) {
            set_limit(tx, names, id, limit, value.parse().unwrap_or(0), room)?;
        }
        counts::mark(tx, property.name())?;
        let row = Value { name: property.name().to_owned(), value: Some(value) };
        tx.put_named(id, kind::PROPERTY, &row)?;
    }
    Ok(())
}

/// Stores a received value; a local value stays in force. A limit that cannot be met is omitted, because the data
/// matter more. True if stored.
pub(in crate::admin) fn take_received(
    tx: &mut Transaction<'_>,
    names: &Names,
    id: u64,
    property: &Property,
    value: String,
    room: u64,
) -> Result<bool> {
    let (name, row) = (property.name(), Value { name: property.name().to_owned(), value: Some(value) });
    let Some(limit) = limit_of(property) else {
        counts::mark(tx, name)?;
        tx.put_named(id, kind::RECEIVED, &row)?;
        return Ok(true);
    };
    let before = tx.find_named::<Value>(id, kind::RECEIVED, name)?;
    let number = limit.of(&tx.row(dataset_key(id))?);
    if number != 0 && before.is_none() && tx.find_named::<Value>(id, kind::PROPERTY, name)?.is_none() {
        let own = Value { name: name.to_owned(), value: Some(number.to_string()) };
        tx.put_named(id, kind::PROPERTY, &own)?;
    }
    tx.put_named(id, kind::RECEIVED, &row)?;
    match follow_rows(tx, names, id, name, limit, room) {
        Err(Error::Limit { .. }) => {
            match before {
                Some((_, before)) => tx.put_named(id, kind::RECEIVED, &before)?,
                None => _ = tx.delete_named::<Value>(id, kind::RECEIVED, name)?,
            }
            Ok(false)
        }
        done => done.map(|()| true),
    }
}

/// Sets a limit to the value in its rows.
fn follow_rows(tx: &mut Transaction<'_>, names: &Names, id: u64, name: &str, limit: Limit, room: u64) -> Result<()> {
    let value = match tx.find_named::<Value>(id, kind::PROPERTY, name)? {
        Some((_, own)) => own.value,
        None => tx.find_named::<Value>(id, kind::RECEIVED, name)?.and_then(|(_, received)| received.value),
    };
    set_limit(tx, names, id, limit, value.and_then(|value| value.parse().ok()).unwrap_or(0), room)
}

/// Whether a dataset has a local value, or an explicit choice to inherit.
pub(in crate::admin) fn is_local(tx: &Transaction<'_>, id: u64, property: &Property) -> Result<bool> {
    Ok(tx.find_named::<Value>(id, kind::PROPERTY, property.name())?.is_some())
}

/// Inherits a property; with `received` a received value counts again instead.
pub(in crate::admin) fn inherit(tx: &mut Transaction<'_>, id: u64, name: &str, received: bool) -> Result<()> {
    let was_received = tx.find_named::<Value>(id, kind::RECEIVED, name)?.is_some();
    if was_received && !received {
        return tx.put_named(id, kind::PROPERTY, &Value { name: name.to_owned(), value: None });
    }
    tx.delete_named::<Value>(id, kind::PROPERTY, name).map(drop)
}

impl Limit {
    /// The limit of a dataset in bytes; 0 is none.
    pub(in crate::admin) fn of(self, row: &DatasetRow) -> u64 {
        match self {
            Limit::Quota => row.quota,
            Limit::Refquota => row.refquota,
            Limit::Reservation => row.reservation,
            Limit::Refreservation => row.refreservation,
        }
    }
}

fn limit_of(property: &Property) -> Option<Limit> {
    match property.definition()?.backing {
        Backing::Limit(limit) => Some(limit),
        _ => None,
    }
}

fn set_limit(tx: &mut Transaction<'_>, names: &Names, id: u64, limit: Limit, value: u64, room: u64) -> Result<()> {
    let row: DatasetRow = tx.row(dataset_key(id))?;
    let refuse = |value: String, problem: String, missing| {
        let property = limit.row().name;
        let name = names.of_dataset(tx, id)?.to_string();
        Err(Error::Limit { property, name, value, problem, missing })
    };
    let (used, referenced) = (row.used().allocated, row.referenced.allocated);
    let free = limits::available(tx, id, room)?;
    let too_low = |least: u64, state: &str| {
        let (value, least) = format_apart(value, least);
        refuse(value, format!("{least} {state}"), None)
    };
    let too_high = |available: u64| {
        let (most, value_shown) = format_apart(available, value);
        refuse(value_shown, format!("at most {most} can be reserved"), Some(value - available))
    };
    match limit {
        Limit::Quota if value != 0 && value < used.max(row.reservation) => {
            return too_low(used.max(row.reservation), "are used or reserved");
        }
        Limit::Refquota if value != 0 && value < referenced => return too_low(referenced, "are referenced"),
        Limit::Reservation if value > used.saturating_add(free) => return too_high(used.saturating_add(free)),
        Limit::Refreservation => {
            let available = row.unique().allocated.max(row.refreservation).saturating_add(free);
            if value > available {
                return too_high(available);
            }
        }
        _ => {}
    }
    charge::edit(tx, id, |row| match limit {
        Limit::Quota => row.quota = value,
        Limit::Refquota => row.refquota = value,
        Limit::Reservation => row.reservation = value,
        Limit::Refreservation => row.refreservation = value,
    })
}
