//! From the properties of datasets to mounts.

use std::path::PathBuf;

use dataset::{
    admin::{ListRequest, Listed, Target},
    name::{DatasetName, Name},
    property::{
        CanMount, Kinds, Valued,
        dataset::{ATIME, CANMOUNT, DEVICES, EXEC, MOUNTPOINT, OVERLAY, RELATIME, SETUID},
    },
};
use fuse_mount::MountOptions;
use protocol::{Assignment, Failure};

use super::Mounts;
use crate::execute::refusal::OrRefused;

/// How to mount a dataset or a snapshot, from the dataset's properties.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) id: u64,
    pub(super) name: Name,
    /// The dataset's id; for a snapshot, the id of its dataset.
    pub(super) dataset: u64,
    /// The directory chosen by the user, which overrides `mountpoint`.
    pub(super) at: Option<PathBuf>,
    pub(super) mountpoint: String,
    pub(super) canmount: CanMount,
    /// Whether the mount may hide the content of its directory.
    pub(super) overlay: bool,
    pub(super) options: MountOptions,
}

impl Plan {
    /// The mount point; `None` if the dataset has none.
    pub(super) fn path(&self) -> Option<PathBuf> {
        let own = || self.mountpoint.starts_with('/').then(|| PathBuf::from(&self.mountpoint));
        self.at.clone().or_else(own)
    }
}

impl Mounts {
    /// The plan for a single dataset.
    pub(super) fn plan(&self, name: &DatasetName) -> Result<Plan, Failure> {
        let request =
            ListRequest { roots: vec![Name::Dataset(name.clone())], depth: Some(0), kinds: Kinds::FILESYSTEM };
        let listed = self.datasets.list(&request).or_refused("open", name)?;
        listed.first().map(|listed| self.plan_of(listed)).ok_or_else(|| Failure::no_dataset(name))
    }

    /// The plan for a dataset, or for a snapshot with temporary values. A dataset's temporary values are recorded in
    /// its properties already.
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

    /// The plans for a dataset and its descendants.
    pub(super) fn plans(&self, top: &DatasetName) -> Result<Vec<Plan>, Failure> {
        let request = ListRequest { roots: vec![Name::Dataset(top.clone())], depth: None, kinds: Kinds::FILESYSTEM };
        let listed = self.datasets.list(&request).or_refused("open", top)?;
        // A dataset that an interrupted receive creates cannot be opened yet.
        Ok(listed.iter().filter(|listed| !listed.is_partial()).map(|listed| self.plan_of(listed)).collect())
    }

    /// A property of a dataset, with its source.
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
            overlay: values.get(&OVERLAY),
            options,
        }
    }
}

/// Applies a temporary value to the options of a snapshot's mount, which always stays read-only.
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
