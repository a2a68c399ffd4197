//! What the properties of datasets say about mounting them.

use std::path::PathBuf;

use dataset::{
    admin::{ListRequest, Listed, Target, Valued},
    name::{DatasetName, Name},
    property::{
        CanMount, Kinds,
        dataset::{ATIME, CANMOUNT, DEVICES, EXEC, MOUNTPOINT, RELATIME, SETUID},
    },
};
use fuse_mount::MountOptions;
use protocol::{Assignment, Failure};

use super::Mounts;
use crate::execute::OrRefused;

/// What a dataset's properties say about mounting it, or a snapshot of it.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) id: u64,
    pub(super) name: Name,
    /// The dataset's id, which is its own unless it is a snapshot.
    pub(super) dataset: u64,
    /// Where somebody wants it, whatever `mountpoint` says.
    pub(super) at: Option<PathBuf>,
    pub(super) mountpoint: String,
    pub(super) canmount: CanMount,
    pub(super) options: MountOptions,
}

impl Plan {
    /// Where it is to be mounted, if anywhere.
    pub(super) fn path(&self) -> Option<PathBuf> {
        let own = || self.mountpoint.starts_with('/').then(|| PathBuf::from(&self.mountpoint));
        self.at.clone().or_else(own)
    }
}

impl Mounts {
    /// The plan for one dataset.
    pub(super) fn plan(&self, name: &DatasetName) -> Result<Plan, Failure> {
        let request =
            ListRequest { roots: vec![Name::Dataset(name.clone())], depth: Some(0), kinds: Kinds::FILESYSTEM };
        let listed = self.datasets.list(&request).or_refused("open", name)?;
        listed.first().map(|listed| self.plan_of(listed)).ok_or_else(|| Failure::no_dataset(name))
    }

    /// The plan for a dataset or a snapshot, with values that hold for one mount. Those of a dataset have been noted.
    pub(super) fn plan_with(&self, name: &Name, temporary: &[Assignment]) -> Result<Plan, Failure> {
        let plan = self.plan(&name.dataset())?;
        if !matches!(name, Name::Snapshot(_)) {
            return Ok(plan);
        }
        let id = match self.datasets.resolve(name).or_refused("open", name)? {
            Target::Snapshot(id) => id,
            _ => return Err(Failure::no_dataset(name)),
        };
        let mut options = MountOptions { name: name.to_string(), readonly: true, ..plan.options };
        temporary.iter().for_each(|given| restrict(&mut options, given));
        Ok(Plan { id, name: name.clone(), options, ..plan })
    }

    /// The plans for a dataset and all below it.
    pub(super) fn plans(&self, top: &DatasetName) -> Result<Vec<Plan>, Failure> {
        let request = ListRequest { roots: vec![Name::Dataset(top.clone())], depth: None, kinds: Kinds::FILESYSTEM };
        Ok(self.datasets.list(&request).or_refused("open", top)?.iter().map(|listed| self.plan_of(listed)).collect())
    }

    /// A property of a dataset, and where it comes from.
    pub(super) fn value(&self, name: &DatasetName, property: &str) -> Result<Valued, Failure> {
        let found = self.datasets.get(&Name::Dataset(name.clone()), property).or_refused("open", name)?;
        found.ok_or_else(|| Failure::no_dataset(name))
    }

    fn plan_of(&self, listed: &Listed) -> Plan {
        let values = listed.effective();
        let mut options = MountOptions::from_properties(listed.name.as_str(), values);
        options.readonly |= self.read_only;
        Plan {
            id: listed.id,
            name: listed.name.clone(),
            dataset: listed.id,
            at: None,
            mountpoint: values.valued(MOUNTPOINT.name).map(|valued| self.places.shown(valued)).unwrap_or_default(),
            canmount: values.get(&CANMOUNT),
            options,
        }
    }
}

/// Has the mount of a snapshot follow a temporary value. Nothing makes it writable.
fn restrict(options: &mut MountOptions, given: &Assignment) {
    let followed = [
        (ATIME, &mut options.atime),
        (RELATIME, &mut options.relatime),
        (EXEC, &mut options.exec),
        (SETUID, &mut options.setuid),
        (DEVICES, &mut options.devices),
    ];
    for (property, option) in followed.into_iter().filter(|(property, _)| property.is(&given.name)) {
        *option = property.read(&given.value).unwrap_or(*option);
    }
}
