//! Dry runs of requests that change properties, names or the present tree.
//!
//! The crate `dataset` runs the request on the current catalogue and compares; see [`Datasets::foresee_set`]. This module
//! adds what the service itself does in the real run: quotas in trees, and mounts.
//!
//! [`Datasets::foresee_set`]: dataset::admin::Datasets::foresee_set

use dataset::{
    admin::{Foreseen, ForeseenValue, RollbackRequest},
    name::{Name, SnapshotName},
    property::{Effect, Property, Source, Valued},
};
use protocol::{Assignment, Failure, ForeseenRecord, ForeseenValueRecord, PropertyRecord};

use super::{
    job::Job,
    open_pool::{OpenPool, given_to_datasets, owner},
    refusal::{OrAdvised, OrRefused, to_roll_back},
};

impl OpenPool {
    /// The effects of [`OpenPool::set`].
    pub(super) fn foresee_set(
        &self,
        name: &Name,
        assignments: &[Assignment],
        no_mount: bool,
        job: &Job<'_>,
    ) -> Result<ForeseenRecord, Failure> {
        let (_, others) = self.split_quotas(name, assignments)?;
        let given = given_to_datasets(&others);
        let foreseen = match given.is_empty() {
            true => Foreseen::default(),
            false => {
                self.datasets.foresee_set(std::slice::from_ref(name), &given).or_refused("set property for", name)?
            }
        };
        self.datasets.judge().or_refused("set property for", name)?;
        let properties: Vec<&str> = others.iter().map(|given| given.name.as_str()).collect();
        let mut record = self.with_mounts(name, &foreseen, &properties, no_mount)?;
        for given in assignments {
            let Ok(Property::Account(property)) = Property::of_dataset(&given.name) else { continue };
            let before = self.account_record(name, &property, job)?;
            let source = if given.value == "0" { Source::None } else { Source::Local };
            let after = PropertyRecord { name: given.name.clone(), value: given.value.clone(), source, received: None };
            if before.as_ref().is_none_or(|before| before.value != after.value) {
                record.values.push(ForeseenValueRecord { name: name.to_string(), before, after: Some(after) });
            }
        }
        Ok(record)
    }

    /// The effects of [`OpenPool::inherit`].
    pub(super) fn foresee_inherit(
        &self,
        name: &Name,
        property: &str,
        recursive: bool,
        received: bool,
        no_mount: bool,
    ) -> Result<ForeseenRecord, Failure> {
        let targets = std::slice::from_ref(name);
        let foreseen = self.datasets.foresee_inherit(targets, property, recursive, received);
        self.with_mounts(name, &foreseen.or_refused("inherit property for", name)?, &[property], no_mount)
    }

    /// The effects of [`OpenPool::set_pool`].
    pub(super) fn foresee_set_pool(&self, assignments: &[Assignment]) -> Result<ForeseenRecord, Failure> {
        self.check_settable(assignments)?;
        let names: Vec<String> = assignments.iter().map(|given| given.name.clone()).collect();
        let before = self.pool_record(&names, false)?.properties;
        let mut record = ForeseenRecord::default();
        for given in assignments {
            let tried = self.datasets.try_pool_property(&given.name, &given.value);
            tried.or_refused("set property for", self.name())?;
            let before = before.iter().find(|known| known.name == given.name).cloned();
            let is_constant = Property::of_pool(&given.name).is_ok_and(|property| property.is_constant());
            if !is_constant && before.as_ref().is_none_or(|before| before.value != given.value) {
                let (name, value) = (given.name.clone(), given.value.clone());
                let after = PropertyRecord { name, value, source: Source::Local, received: None };
                record.values.push(ForeseenValueRecord { name: self.name().to_string(), before, after: Some(after) });
            }
        }
        Ok(record)
    }

    /// The effects of [`OpenPool::rename`].
    pub(super) fn foresee_rename(
        &self,
        from: &Name,
        to: &Name,
        (parents, recursive, no_mount, force): (bool, bool, bool, bool),
    ) -> Result<ForeseenRecord, Failure> {
        match (from, to) {
            (Name::Dataset(from), Name::Dataset(to)) => {
                let foreseen = self.datasets.foresee_rename(from, to, parents, owner()).or_refused("rename", from)?;
                let mounts = match &self.mounts {
                    Some(mounts) if !no_mount => mounts.foresee_move(from, &foreseen.places, false, force)?,
                    _ => Vec::new(),
                };
                Ok(ForeseenRecord { mounts, ..self.effects(&foreseen) })
            }
            (Name::Snapshot(old), Name::Snapshot(new)) if old.dataset() == new.dataset() => {
                let foreseen = self.datasets.foresee_rename_snapshot(old, new.snapshot(), recursive);
                Ok(self.effects(&foreseen.or_refused("rename", from)?))
            }
            // Refused by its names alone.
            _ => self.rename(from, to, parents, recursive, no_mount, force).map(|()| ForeseenRecord::default()),
        }
    }

    /// The effects of [`OpenPool::rollback`].
    pub(super) fn foresee_rollback(
        &self,
        to: &SnapshotName,
        (destroy_newer, destroy_clones, force): (bool, bool, bool),
    ) -> Result<ForeseenRecord, Failure> {
        let request = RollbackRequest { snapshot: to.clone(), later: destroy_newer, dependents: destroy_clones };
        let foreseen = self.datasets.foresee_rollback(request).or_advised("rollback to", to, to_roll_back)?;
        let mounts = match &self.mounts {
            Some(mounts) => mounts.foresee_end(&foreseen.destroyed, force)?,
            None => Vec::new(),
        };
        Ok(ForeseenRecord { mounts, ..self.effects(&foreseen) })
    }

    /// The record of changed properties, with the effects on mounts.
    fn with_mounts(
        &self,
        name: &Name,
        foreseen: &Foreseen,
        properties: &[&str],
        no_mount: bool,
    ) -> Result<ForeseenRecord, Failure> {
        let mut record = self.effects(foreseen);
        let (Name::Dataset(dataset), Some(mounts), false) = (name, &self.mounts, no_mount) else { return Ok(record) };
        record.mounts = match properties.iter().any(|property| affects(property, Effect::PLACE)) {
            true => mounts.foresee_move(dataset, &foreseen.places, true, false)?,
            false => {
                let is_agreed = |value: &&ForeseenValue| affects(&value.property, Effect::REMOUNT);
                let stale: Vec<&str> =
                    foreseen.values.iter().filter(is_agreed).map(|value| value.name.as_str()).collect();
                mounts.foresee_remount(&stale)?
            }
        };
        Ok(record)
    }

    fn effects(&self, foreseen: &Foreseen) -> ForeseenRecord {
        let value = |value: &ForeseenValue| ForeseenValueRecord {
            name: value.name.clone(),
            before: value.before.as_ref().map(|valued| self.shown(&value.property, valued)),
            after: value.after.as_ref().map(|valued| self.shown(&value.property, valued)),
        };
        ForeseenRecord {
            renamed: foreseen.renamed.clone(),
            created: foreseen.created.clone(),
            values: foreseen.values.iter().map(value).collect(),
            mounts: Vec::new(),
            destroyed: foreseen.destroyed.clone(),
            reclaim: foreseen.reclaimed,
        }
    }

    /// A value as lists show it: mount points with the prefixes of this machine.
    fn shown(&self, property: &str, valued: &Valued) -> PropertyRecord {
        let is_place = affects(property, Effect::PLACE) && valued.value.starts_with('/');
        let value = if is_place { self.places.shown(valued) } else { valued.value.clone() };
        PropertyRecord { name: property.to_owned(), value, source: valued.source.clone(), received: None }
    }
}

fn affects(property: &str, effect: Effect) -> bool {
    Property::of_dataset(property).is_ok_and(|found| found.definition().is_some_and(|row| row.affects(effect)))
}
