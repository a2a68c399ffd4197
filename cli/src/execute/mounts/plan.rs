//! What the properties of data sets say about mounting them.

use std::path::PathBuf;

use dataset::{
    admin::{ListRequest, Listed, Valued},
    name::{DatasetName, Name},
    property::{Kinds, Property},
};
use fuse_mount::{MountOptions, SnapDir};

use super::Mounts;
use crate::{execute::OrRefused, failure::Failure};

/// What a data set's properties say about mounting it.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) id: u64,
    pub(super) name: DatasetName,
    pub(super) mountpoint: String,
    pub(super) canmount: String,
    pub(super) options: MountOptions,
}

impl Plan {
    /// Where it is to be mounted, if anywhere.
    pub(super) fn path(&self) -> Option<PathBuf> {
        self.mountpoint.starts_with('/').then(|| PathBuf::from(&self.mountpoint))
    }
}

impl Mounts {
    /// The plan for one data set.
    pub(super) fn plan(&self, name: &DatasetName) -> Result<Plan, Failure> {
        let request =
            ListRequest { roots: vec![Name::Dataset(name.clone())], depth: Some(0), kinds: Kinds::FILESYSTEM };
        let listed = self.datasets.list(&request).or_refused("open", name)?;
        listed.first().map(|listed| self.plan_of(listed)).ok_or_else(|| Failure::no_dataset(name))
    }

    /// The plans for a data set and all below it.
    pub(super) fn plans(&self, top: &DatasetName) -> Result<Vec<Plan>, Failure> {
        let request = ListRequest { roots: vec![Name::Dataset(top.clone())], depth: None, kinds: Kinds::FILESYSTEM };
        Ok(self.datasets.list(&request).or_refused("open", top)?.iter().map(|listed| self.plan_of(listed)).collect())
    }

    /// A property of a data set, and where it comes from.
    pub(super) fn value(&self, name: &DatasetName, property: &str) -> Result<Valued, Failure> {
        let found = self.datasets.get(&Name::Dataset(name.clone()), property).or_refused("open", name)?;
        found.ok_or_else(|| Failure::no_dataset(name))
    }

    fn plan_of(&self, listed: &Listed) -> Plan {
        let value = |name: &str| Property::of_dataset(name).ok().and_then(|property| listed.value(&property));
        let text = |name: &str| value(name).map(|valued| valued.value).unwrap_or_default();
        let mut options = MountOptions::new(listed.name.as_str());
        options.readonly = text("readonly") == "on" || self.read_only;
        options.atime = text("atime") != "off";
        options.relatime = text("relatime") != "off";
        options.exec = text("exec") != "off";
        options.setuid = text("setuid") != "off";
        options.devices = text("devices") != "off";
        options.acl = text("acltype") == "posix";
        options.xattr = text("xattr") != "off" || options.acl;
        options.snapdir = if text("snapdir") == "visible" { SnapDir::Visible } else { SnapDir::Hidden };
        Plan {
            id: listed.id,
            name: listed.name.dataset(),
            mountpoint: value("mountpoint").map(|valued| self.places.shown(&valued)).unwrap_or_default(),
            canmount: text("canmount"),
            options,
        }
    }
}
