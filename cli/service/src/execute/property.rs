//! Requests that change properties, and the effects on mounts.

use dataset::{
    name::{DatasetName, Name},
    property::{Effect, Property},
};
use protocol::{Assignment, Failure};

use super::{
    mounts::{Manner, Mounts},
    open_pool::{OpenPool, given_to_datasets},
    refusal::OrRefused,
};

impl OpenPool {
    pub(super) fn set(&self, name: &Name, assignments: &[Assignment], no_mount: bool) -> Result<(), Failure> {
        let (quotas, others) = self.split_quotas(name, assignments)?;
        if !others.is_empty() {
            self.set_others(name, &others, no_mount)?;
        }
        self.set_quotas(name, &quotas)
    }

    /// Sets all properties except quotas.
    fn set_others(&self, name: &Name, assignments: &[Assignment], no_mount: bool) -> Result<(), Failure> {
        let properties: Vec<&str> = assignments.iter().map(|given| given.name.as_str()).collect();
        self.change(name, &properties, no_mount, || {
            let given = given_to_datasets(assignments);
            self.datasets.set(std::slice::from_ref(name), &given).or_refused("set property for", name)
        })
    }

    pub(super) fn inherit(
        &self,
        name: &Name,
        property: &str,
        recursive: bool,
        received: bool,
        no_mount: bool,
    ) -> Result<(), Failure> {
        self.change(name, &[property], no_mount, || {
            let targets = std::slice::from_ref(name);
            self.datasets.inherit(targets, property, recursive, received).or_refused("inherit property for", name)
        })
    }

    /// Changes properties of `name`, and updates the mounts of the dataset and its descendants.
    fn change(
        &self,
        name: &Name,
        properties: &[&str],
        no_mount: bool,
        change: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (Name::Dataset(dataset), Some(mounts)) = (name, &self.mounts) else { return change() };
        let rows = || properties.iter().filter_map(|name| Property::of_dataset(name).ok()?.definition());
        let affects = |effect| rows().any(|row| row.affects(effect));
        if affects(Effect::PLACE) && !no_mount {
            return self.change_place(dataset, mounts, change);
        }
        if affects(Effect::WRITE_BACK) {
            mounts.write_back_within(dataset);
        }
        change()?;
        if affects(Effect::REMOUNT) && !no_mount {
            mounts.mount_anew(dataset)?;
        }
        if affects(Effect::MOUNT) { mounts.options_changed(dataset) } else { Ok(()) }
    }

    /// Moves the mounts to their new mount points, and mounts datasets that the change allows to mount. A busy mount
    /// refuses the change.
    fn change_place(
        &self,
        dataset: &DatasetName,
        mounts: &Mounts,
        change: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let unmounted = mounts.unmount_within(dataset, false)?;
        change().inspect_err(|_| mounts.mount_back(&unmounted))?;
        // A dataset that was not mounted gets its mount before the mounts inside.
        let top = match unmounted.iter().any(|one| one.is_of(dataset)) {
            true => Ok(()),
            false => mounts.mount_all(Some(std::slice::from_ref(dataset)), &Manner::default()),
        };
        let below = mounts.mount_again(&unmounted);
        top.and(below).map_err(|failure| failure.after("property set, but the filesystem is not mounted"))
    }
}
