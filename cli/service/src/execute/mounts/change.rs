//! Mounts that follow changes not made through the mount: of files, snapshots and properties.
//!
//! A change of files may remove the mount points of further datasets. The kernel then ends the mounts, and this
//! module makes the mounts again.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use dataset::{
    admin::Replaced,
    name::{DatasetName, Name},
};
use fuse_mount::Mount;
use protocol::Failure;

use super::{Active, Mounts, Unmounted, plan::Plan};

impl Mounts {
    /// Runs `change`, which may replace any files of a dataset behind its mount, and then updates the mount.
    pub(crate) fn around_change<T>(
        &self,
        id: u64,
        change: impl FnOnce() -> T,
        differs: impl FnOnce(&T) -> Replaced,
    ) -> T {
        self.around_changes(|other, _| other == id, change, |value| vec![(id, differs(value))])
    }

    /// As `around_change`, for the dataset `top` and its descendants; `changed` names the datasets that were changed.
    pub(crate) fn around_changes_within<T>(
        &self,
        top: &DatasetName,
        change: impl FnOnce() -> T,
        changed: impl FnOnce(&T) -> Vec<(u64, Replaced)>,
    ) -> T {
        self.around_changes(|_, name| is_dataset_within(name, top), change, changed)
    }

    fn around_changes<T>(
        &self,
        chosen: impl Fn(u64, &Name) -> bool,
        change: impl FnOnce() -> T,
        changed: impl FnOnce(&T) -> Vec<(u64, Replaced)>,
    ) -> T {
        self.drop_ended();
        let mounts = self.chosen(chosen);
        let announced: Vec<_> = mounts.iter().map(|(id, mount)| (*id, mount.begin_change())).collect();
        let value = change();
        let mut differing = BTreeMap::new();
        for (id, replaced) in changed(&value) {
            let replaced = match differing.remove(&id) {
                Some(before) => Replaced::and(before, replaced),
                None => replaced,
            };
            differing.insert(id, replaced);
        }
        let below =
            self.mounted_below(mounts.iter().filter(|(id, _)| differing.contains_key(id)).map(|(_, mount)| mount));
        for (id, announced) in announced {
            if let Some(replaced) = differing.get(&id) {
                announced.finish(replaced);
            }
        }
        self.mount_lost(below);
        value
    }

    /// The chosen sessions, including left sessions.
    pub(super) fn chosen(&self, chosen: impl Fn(u64, &Name) -> bool) -> Vec<(u64, Arc<Mount>)> {
        let (table, left) = (self.table.lock(), self.left.lock());
        let all = table.iter().map(|(id, active)| (*id, active)).chain(left.iter().map(|(id, active)| (*id, active)));
        all.filter(|(id, active)| chosen(*id, &active.name)).map(|(id, active)| (id, active.mount.clone())).collect()
    }

    /// Mounts inside any of `mounts`, parents first.
    fn mounted_below<'a>(&self, mounts: impl Iterator<Item = &'a Arc<Mount>>) -> Vec<(PathBuf, u64)> {
        let tops: Vec<&Path> = mounts.map(|mount| mount.mountpoint()).collect();
        let is_inside = |path: &Path| tops.iter().any(|top| path != *top && path.starts_with(top));
        let table = self.table.lock();
        let inside = table.iter().filter(|(_, active)| is_inside(active.mount.mountpoint()));
        let inside = inside.filter(|(_, active)| active.mount.is_mounted());
        let mut below: Vec<_> = inside.map(|(id, active)| (active.mount.mountpoint().to_owned(), *id)).collect();
        below.sort();
        below
    }

    /// Mounts again the datasets in `below` whose mount points a change has removed.
    fn mount_lost(&self, below: Vec<(PathBuf, u64)>) {
        let lost = below.into_iter().filter(|(_, id)| self.mount_of(*id).is_some_and(|mount| !mount.is_mounted()));
        let lost: Vec<Unmounted> = lost.filter_map(|(_, id)| Some(Unmounted::of(id, self.forget(id)?))).collect();
        self.mount_back(&lost);
    }

    /// Updates the list of snapshots in every mount, and stops serving the snapshots in `gone`.
    pub(crate) fn snapshots_changed(&self, gone: &[String]) {
        let is_gone = |(_, active): &(&u64, &Active)| gone.iter().any(|gone| gone == active.name.as_str());
        let ended: Vec<u64> = self.table.lock().iter().filter(is_gone).map(|(id, _)| *id).collect();
        ended.into_iter().for_each(|id| drop(self.forget(id)));
        let mounts: Vec<(Name, Arc<Mount>)> = {
            let (table, left) = (self.table.lock(), self.left.lock());
            let all = table.values().chain(left.iter().map(|(_, active)| active));
            all.map(|active| (active.name.clone(), active.mount.clone())).collect()
        };
        for (name, mount) in mounts {
            let own = gone.iter().filter_map(|gone| gone.strip_prefix(name.as_str())?.strip_prefix('@'));
            own.for_each(|snapshot| mount.close_snapshot(snapshot));
            mount.snapshots_changed();
        }
    }

    /// Remounts a dataset and its descendants where the mount options differ from the current properties. Everything
    /// mounted inside is remounted in the same manner. If one mount is busy, all stay unchanged.
    pub(crate) fn mount_anew(&self, top: &DatasetName) -> Result<(), Failure> {
        self.drop_ended();
        let stale = |plan: Plan| self.mount_of(plan.id).filter(|mount| !mount.agrees_with(&plan.options));
        let stale: Vec<PathBuf> =
            self.plans(top)?.into_iter().filter_map(stale).map(|mount| mount.mountpoint().to_owned()).collect();
        let concerned: Vec<Name> = {
            let table = self.table.lock();
            let is_in = |active: &&Active| stale.iter().any(|path| active.mount.mountpoint().starts_with(path));
            table.values().filter(is_in).map(|active| active.name.clone()).collect()
        };
        if concerned.is_empty() {
            return Ok(());
        }
        let unmounted = self.unmount_these(&concerned, false);
        let late = "property set, but it takes effect only after a remount";
        self.mount_again(&unmounted.map_err(|failure| failure.after(late))?)
    }

    /// Asks the kernel to write back changes made through mappings, for a dataset and its descendants.
    pub(crate) fn write_back_within(&self, top: &DatasetName) {
        self.chosen(|_, name| is_dataset_within(name, top)).iter().for_each(|(_, mount)| mount.write_back());
    }

    /// Applies changed properties to the mounts of a dataset and its descendants, as far as possible for a mount in
    /// use.
    pub(crate) fn options_changed(&self, top: &DatasetName) -> Result<(), Failure> {
        for plan in self.plans(top)? {
            if let Some(mount) = self.mount_of(plan.id) {
                mount.set_snapdir(plan.options.snapdir);
                mount.remount(&plan.options).map_err(|error| {
                    Failure::cannot("remount", &plan.name, error).hint("it takes effect at the next mount")
                })?;
            }
        }
        Ok(())
    }
}

fn is_dataset_within(name: &Name, top: &DatasetName) -> bool {
    matches!(name, Name::Dataset(name) if name.is_within(top))
}
