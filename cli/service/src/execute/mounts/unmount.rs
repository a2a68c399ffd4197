//! Unmounting: all of the chosen mounts, children first, or none.

use std::path::{Path, PathBuf};

use dataset::{
    admin::Target,
    name::{DatasetName, Name},
    property::CanMount,
};
use fuse_mount::{MountPoint, Unmount};
use protocol::{Assignment, Failure};

use super::{Active, Manner, Mounts, keep_first, named_as, plan::Plan};
use crate::remembered::Remembered;

/// What unmounting does with default mount points.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Directories {
    /// Removed: the dataset gets another mount point, or none.
    Removed,
    /// Kept if inside another dataset, which may be read-only when the mount point is needed again.
    KeptInside,
}

/// A dataset or a snapshot that was mounted, with its manner of mounting. The name may have changed since.
pub(crate) struct Unmounted {
    id: u64,
    name: Name,
    dataset: u64,
    /// The directory, if named by the user with mount(8).
    at: Option<PathBuf>,
    temporary: Vec<Assignment>,
    overlay: bool,
}

impl Unmounted {
    pub(super) fn of(id: u64, active: Active) -> Unmounted {
        let at = active.by_hand.then(|| active.mount.mountpoint().to_owned());
        let Active { name, dataset, temporary, overlay, .. } = active;
        Unmounted { id, name, dataset, at, temporary, overlay }
    }

    /// A mount remembered from a service that has ended.
    pub(super) fn remembered(one: &Remembered) -> Unmounted {
        let Remembered { name, id, dataset, directory, options, asked } = one.clone();
        let (at, overlay) = match asked {
            Some(asked) => (None, asked.overlay),
            None => (Some(directory.to_path()), true),
        };
        Unmounted { id, name, dataset, at, temporary: options, overlay }
    }

    /// Whether the dataset of this name was mounted.
    pub(crate) fn is_of(&self, dataset: &DatasetName) -> bool {
        matches!(&self.name, Name::Dataset(name) if name == dataset)
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    fn manner<'a>(&'a self, at: Option<&'a Path>) -> Manner<'a> {
        Manner { temporary: &self.temporary, overlay: self.overlay, at }
    }
}

impl Mounts {
    /// Unmounts a dataset or a snapshot, and everything mounted below.
    pub(crate) fn unmount(&self, name: &Name, force: bool) -> Result<(), Failure> {
        self.drop_ended();
        let path = {
            let table = self.table.lock();
            let active = table.values().find(|active| active.name == *name);
            active.map(|active| active.mount.mountpoint().to_owned())
        };
        match path {
            Some(path) => {
                let chosen = |_, active: &Active| active.mount.mountpoint().starts_with(&path);
                self.take_down(chosen, force, Directories::KeptInside).map(drop)
            }
            None if self.forget_pending(name) => Ok(()),
            None => Err(Failure::not_mounted(name)),
        }
    }

    /// Unmounts the dataset mounted at `path`, and everything mounted below.
    pub(crate) fn unmount_at(&self, path: &Path, force: bool) -> Result<(), Failure> {
        self.drop_ended();
        let name = {
            let table = self.table.lock();
            let active = table.values().find(|active| active.mount.mountpoint() == path);
            active.map(|active| active.name.clone())
        };
        match name {
            Some(name) => self.unmount(&name, force),
            None => Err(Failure::not_mounted(path.display())),
        }
    }

    /// Unmounts everything; with `force` also busy file systems.
    pub(crate) fn unmount_all(&self, force: bool) -> Result<(), Failure> {
        self.drop_ended();
        self.take_down(|_, _| true, force, Directories::KeptInside).map(drop)
    }

    /// Unmounts these datasets, by name, and returns the mounts that ended. Default mount points are removed.
    pub(crate) fn unmount_these(&self, names: &[Name], force: bool) -> Result<Vec<Unmounted>, Failure> {
        self.drop_ended();
        self.take_down(|_, active| names.contains(&active.name), force, Directories::Removed)
    }

    /// Unmounts a dataset and its descendants, and returns the mounts that ended. Snapshots stay mounted.
    pub(crate) fn unmount_within(&self, top: &DatasetName, force: bool) -> Result<Vec<Unmounted>, Failure> {
        self.drop_ended();
        self.take_down(
            |_, active| matches!(&active.name, Name::Dataset(name) if name.is_within(top)),
            force,
            Directories::Removed,
        )
    }

    /// Unmounts the chosen mounts, children first. After a failure, the mounts already ended are made again.
    fn take_down(
        &self,
        chosen: impl Fn(u64, &Active) -> bool,
        force: bool,
        directories: Directories,
    ) -> Result<Vec<Unmounted>, Failure> {
        let done = self.take_down_mounts(&chosen, force, directories)?;
        self.end_left(chosen);
        self.remember();
        Ok(done)
    }

    fn take_down_mounts(
        &self,
        chosen: impl Fn(u64, &Active) -> bool,
        force: bool,
        directories: Directories,
    ) -> Result<Vec<Unmounted>, Failure> {
        let how = if force { Unmount::Force } else { Unmount::Normal };
        let mut doomed: Vec<(PathBuf, u64)> = {
            let table = self.table.lock();
            let chosen = table.iter().filter(|(id, active)| chosen(**id, active));
            chosen.map(|(id, active)| (active.mount.mountpoint().to_owned(), *id)).collect()
        };
        doomed.sort();
        let mut done = Vec::new();
        for (path, id) in doomed.into_iter().rev() {
            let Some(mount) = self.mount_of(id) else { continue };
            if let Err(error) = mount.unmount(how) {
                self.mount_back(&done);
                return Err(Failure::new(error.to_string()));
            }
            drop(mount);
            if let Some(active) = self.forget(id) {
                if directories == Directories::Removed || !self.is_inside_another(&path) {
                    remove_mountpoint(&active, &path);
                }
                done.push(Unmounted::of(id, active));
            }
        }
        Ok(done)
    }

    fn is_inside_another(&self, path: &Path) -> bool {
        self.table.lock().values().any(|active| path.starts_with(active.mount.mountpoint()))
    }

    /// Mounts the given datasets again, as before, if the dataset still exists and its properties allow a mount.
    /// Continues after a failure and returns the first failure.
    pub(crate) fn mount_again(&self, unmounted: &[Unmounted]) -> Result<(), Failure> {
        self.drop_ended();
        let mounted = self.mount_those(unmounted);
        self.remember();
        mounted
    }

    pub(super) fn mount_those(&self, unmounted: &[Unmounted]) -> Result<(), Failure> {
        let (plans, first) = self.plans_again(unmounted);
        keep_first(first, self.mount_plans(plans))
    }

    /// The plans to mount again as before, without datasets that are gone or whose properties forbid a mount, and the
    /// first failure.
    pub(super) fn plans_again<'a>(&self, unmounted: &'a [Unmounted]) -> (Vec<(Plan, Manner<'a>)>, Result<(), Failure>) {
        let (mut plans, mut first) = (Vec::with_capacity(unmounted.len()), Ok(()));
        for one in unmounted {
            let Some(name) = self.name_of(one) else { continue };
            match self.plan_with(&name, &one.temporary) {
                Ok(mut plan) => {
                    let is_by_hand = plan.mountpoint == "legacy" || matches!(name, Name::Snapshot(_));
                    plan.at = one.at.clone().filter(|_| is_by_hand);
                    let at = one.at.as_deref().filter(|_| is_by_hand);
                    plans.push((plan, one.manner(at)));
                }
                Err(failure) => first = keep_first(first, Err(failure)),
            }
        }
        plans.retain(|(plan, _)| plan.at.is_some() || plan.canmount != CanMount::Off && plan.path().is_some());
        (plans, first)
    }

    /// The current name of an unmounted dataset, if the dataset still exists.
    pub(super) fn name_of(&self, one: &Unmounted) -> Option<Name> {
        let name = named_as(&one.name, &self.datasets.dataset_name(one.dataset).ok()?)?;
        match self.datasets.resolve(&name).ok()? {
            Target::Dataset(id) | Target::Snapshot(id) if id == one.id => Some(name),
            _ => None,
        }
    }

    /// Mounts again after the change that required the unmount has failed.
    pub(crate) fn mount_back(&self, unmounted: &[Unmounted]) {
        if let Err(failure) = self.mount_again(unmounted) {
            tracing::warn!("{failure}");
        }
    }
}

/// Removes the default mount point of a mount. A busy directory stays.
fn remove_mountpoint(active: &Active, path: &Path) {
    if active.by_default
        && let Err(error) = MountPoint::remove(path)
    {
        tracing::debug!("{} stays: {error}", path.display());
    }
}
