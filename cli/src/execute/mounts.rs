//! The mount table: which data sets of the pool this process has mounted, and where.
//!
//! A data set's place is what its `mountpoint` says, below the user's home for those who are not root and set nothing,
//! and below `altroot` if the pool has one. Mount points are made as needed, and a directory that is not empty is not
//! hidden by a mount. Data sets above are mounted before those below, and unmounted after them.
//!
//! A mount may end without us: root may unmount it. Every look at the table first drops those that have.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use dataset::{
    admin::{Datasets, ListRequest, Listed, Mount as Note, Valued},
    fs::{Errno, FileSystem},
    name::{DatasetName, Name},
    property::{Kinds, Property, Source},
};
use fuse_mount::{Mount, MountOptions, SnapDir, SnapshotEntry, Snapshots, Unmount};
use parking_lot::Mutex;
use pool::env::Nanos;

use super::refusal::OrRefused;
use crate::{
    failure::Failure,
    protocol::{Assignment, MountRecord},
};

/// Where mount points begin that nobody has set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// In front of mount points that are a default: nothing for root, the home for others.
    pub(crate) home: String,
    /// In front of all.
    pub(crate) altroot: String,
}

impl Places {
    /// Those of the user who runs this process.
    pub(crate) fn of_this_user(altroot: Option<&str>) -> Places {
        let home = match rustix::process::geteuid().is_root() {
            true => String::new(),
            false => std::env::var("HOME").unwrap_or_default(),
        };
        let trimmed = |path: &str| path.trim_end_matches('/').to_owned();
        Places { home: trimmed(&home), altroot: trimmed(altroot.unwrap_or_default()) }
    }

    /// A value of `mountpoint` as users of this machine see it.
    pub(crate) fn shown(&self, mountpoint: &Valued) -> String {
        let value = &mountpoint.value;
        if !value.starts_with('/') {
            return value.clone();
        }
        let home = if mountpoint.source == Source::Default { self.home.as_str() } else { "" };
        format!("{}{home}{value}", self.altroot)
    }

    /// Refuses a new pool whose root data set, with these properties, would have to be mounted on a directory that holds
    /// something.
    pub(crate) fn check_root(&self, pool: &DatasetName, root: &[Assignment]) -> Result<(), Failure> {
        let given = |name: &str| root.iter().rfind(|given| given.name == name).map(|given| given.value.clone());
        let mountpoint = match given("mountpoint") {
            Some(value) => Valued { value, source: Source::Local },
            None => Valued { value: format!("/{pool}"), source: Source::Default },
        };
        let path = self.shown(&mountpoint);
        let is_mounted = path.starts_with('/') && given("canmount").is_none_or(|value| value == "on");
        let holds_something = |path: &str| match fs::read_dir(path) {
            Ok(mut entries) => entries.next().is_some(),
            Err(error) => error.kind() == std::io::ErrorKind::NotADirectory,
        };
        if is_mounted && holds_something(&path) {
            let why = format!("mountpoint '{path}' exists and is not empty");
            return Err(Failure::cannot("create", pool, why).hint("choose another one: pool create -m PATH"));
        }
        Ok(())
    }
}

/// What a data set's properties say about mounting it.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    id: u64,
    name: DatasetName,
    mountpoint: String,
    canmount: String,
    options: MountOptions,
}

impl Plan {
    fn path(&self) -> Option<PathBuf> {
        self.mountpoint.starts_with('/').then(|| PathBuf::from(&self.mountpoint))
    }
}

struct Active {
    name: DatasetName,
    mount: Arc<Mount>,
    /// Whether the mount point goes with the mount: nobody chose it.
    by_default: bool,
}

/// What becomes of mount points that nobody chose, when their data sets are unmounted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Directories {
    /// They go: the data set is going to be elsewhere, or nowhere.
    Removed,
    /// Those that lie in another data set stay: it may be read-only when they are needed again.
    KeptInside,
}

/// The mounts of one pool.
pub(crate) struct Mounts {
    datasets: Arc<Datasets>,
    places: Places,
    read_only: bool,
    table: Mutex<BTreeMap<u64, Active>>,
}

impl Mounts {
    /// An empty table.
    pub(crate) fn new(datasets: Arc<Datasets>, places: Places, read_only: bool) -> Mounts {
        Mounts { datasets, places, read_only, table: Mutex::default() }
    }

    /// What is mounted, by name.
    pub(crate) fn list(&self) -> Vec<MountRecord> {
        self.drop_ended();
        let table = self.table.lock();
        let record = |active: &Active| MountRecord {
            dataset: active.name.clone(),
            mountpoint: active.mount.mountpoint().to_owned().into(),
        };
        let mut records: Vec<MountRecord> = table.values().map(record).collect();
        records.sort_by(|a, b| a.dataset.cmp(&b.dataset));
        records
    }

    /// Mounts a data set by name, for as long as the mount lives with `temporary` values.
    pub(crate) fn mount(&self, name: &DatasetName, temporary: &[Assignment]) -> Result<(), Failure> {
        self.drop_ended();
        let refused = |why: &str| Failure::cannot("mount", name, why);
        let plan = self.plan(name)?;
        if self.table.lock().contains_key(&plan.id) {
            return Err(refused("filesystem already mounted"));
        }
        match (plan.mountpoint.as_str(), plan.canmount.as_str()) {
            (_, "off") => Err(refused("'canmount' property is set to 'off'")),
            ("none", _) => Err(refused("no mountpoint set").hint(format!("fs set mountpoint=PATH {name}"))),
            ("legacy", _) => {
                Err(refused("legacy mountpoint").hint("a data set with mountpoint=legacy is not mounted here"))
            }
            _ => self.mount_planned(plan, temporary),
        }
    }

    /// Mounts all data sets that their properties want mounted, in `names` or in the pool. Goes on after a failure and
    /// tells the first.
    pub(crate) fn mount_all(&self, names: Option<&[DatasetName]>, temporary: &[Assignment]) -> Result<(), Failure> {
        self.drop_ended();
        let mut plans = match names {
            Some(names) => names.iter().map(|name| self.plan(name)).collect::<Result<Vec<_>, _>>()?,
            None => self.plans(&self.datasets.pool_name())?,
        };
        plans.retain(|plan| plan.canmount == "on" && plan.path().is_some());
        plans.sort_by(|a, b| a.mountpoint.cmp(&b.mountpoint));
        let mut first = Ok(());
        for plan in plans {
            if self.table.lock().contains_key(&plan.id) {
                continue;
            }
            let mounted = self.mount_planned(plan, temporary);
            match (&first, mounted) {
                (Ok(()), mounted) => first = mounted,
                (Err(_), Err(other)) => tracing::error!("{other}"),
                (Err(_), Ok(())) => {}
            }
        }
        first
    }

    fn mount_planned(&self, plan: Plan, temporary: &[Assignment]) -> Result<(), Failure> {
        let path = plan.path().expect("a plan to be mounted has a path");
        let refused = |why: String| Failure::cannot("mount", &plan.name, why);
        let dataset = self.datasets.open_dataset(&plan.name).or_refused("mount", &plan.name)?;
        // A directory that was not there until now holds nothing, and no mount that nobody serves any more.
        if fs::create_dir(&path).is_err() {
            // Such a mount is in the way of its successor.
            fuse_mount::detach_dead(&path).map_err(|error| refused(error.to_string()))?;
            prepare(&path).map_err(|why| refused(format!("{}: {why}", path.display())))?;
        }
        let values = temporary.iter().map(|a| (a.name.clone(), a.value.clone())).collect();
        self.datasets.note_mount(plan.id, Some(Note { path: plan.mountpoint.clone(), temporary: values }));
        let mounted = self.start(&plan, dataset.fs(), &path, !temporary.is_empty());
        if mounted.is_err() {
            self.datasets.note_mount(plan.id, None);
        }
        mounted
    }

    fn start(&self, plan: &Plan, fs: &Arc<FileSystem>, path: &Path, is_temporary: bool) -> Result<(), Failure> {
        // Temporary values count from when the mount is noted.
        let plan = if is_temporary { self.plan(&plan.name)? } else { plan.clone() };
        let snapshots = Arc::new(SnapshotsOf { datasets: self.datasets.clone(), id: plan.id });
        let mount =
            Mount::new(fs.clone(), snapshots, path, &plan.options).map_err(|error| Failure::new(error.to_string()))?;
        let by_default = !matches!(self.value(&plan.name, "mountpoint")?.source, Source::Local);
        self.table.lock().insert(plan.id, Active { name: plan.name, mount: Arc::new(mount), by_default });
        Ok(())
    }

    /// Unmounts a data set, and what is mounted below it.
    pub(crate) fn unmount(&self, name: &DatasetName, force: bool) -> Result<(), Failure> {
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
            None => Err(Failure::cannot("unmount", name, "not currently mounted")),
        }
    }

    /// Unmounts whatever is mounted at `path`.
    pub(crate) fn unmount_at(&self, path: &Path, force: bool) -> Result<(), Failure> {
        self.drop_ended();
        let name = {
            let table = self.table.lock();
            let active = table.values().find(|active| active.mount.mountpoint() == path);
            active.map(|active| active.name.clone())
        };
        match name {
            Some(name) => self.unmount(&name, force),
            None => Err(Failure::cannot("unmount", path.display(), "not currently mounted")),
        }
    }

    /// Unmounts everything.
    pub(crate) fn unmount_all(&self, force: bool) -> Result<(), Failure> {
        self.drop_ended();
        self.take_down(|_, _| true, force, Directories::KeptInside).map(drop)
    }

    /// Unmounts those data sets, by name, and says which were mounted; mount points that nobody chose are removed.
    pub(crate) fn unmount_these(&self, names: &[DatasetName], force: bool) -> Result<Vec<DatasetName>, Failure> {
        self.drop_ended();
        self.take_down(|_, active| names.contains(&active.name), force, Directories::Removed)
    }

    /// Unmounts the data set and those below it in name, and says which were mounted.
    pub(crate) fn unmount_within(&self, top: &DatasetName, force: bool) -> Result<Vec<DatasetName>, Failure> {
        self.drop_ended();
        self.take_down(|_, active| active.name.is_within(top), force, Directories::Removed)
    }

    /// Unmounts what is chosen, the deepest first. If one cannot be unmounted, those that were are mounted again.
    fn take_down(
        &self,
        chosen: impl Fn(u64, &Active) -> bool,
        force: bool,
        directories: Directories,
    ) -> Result<Vec<DatasetName>, Failure> {
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
                self.mount_again(&done);
                return Err(Failure::new(error.to_string()));
            }
            drop(mount);
            if let Some(active) = self.forget(id) {
                if directories == Directories::Removed || !self.is_inside_another(&path) {
                    remove_mountpoint(&active, &path);
                }
                done.push(active.name);
            }
        }
        done.reverse();
        Ok(done)
    }

    fn is_inside_another(&self, path: &Path) -> bool {
        self.table.lock().values().any(|active| path.starts_with(active.mount.mountpoint()))
    }

    fn mount_again(&self, names: &[DatasetName]) {
        if let Err(failure) = self.mount_all(Some(names), &[]) {
            tracing::warn!("{failure}");
        }
    }

    /// The mount of a data set, if it is mounted.
    pub(crate) fn mount_of(&self, id: u64) -> Option<Arc<Mount>> {
        self.table.lock().get(&id).map(|active| active.mount.clone())
    }

    /// Runs `change`, which may replace anything in the files of a data set without its mount knowing, and has the mount
    /// follow.
    pub(crate) fn around_change<T>(&self, id: u64, change: impl FnOnce() -> T) -> T {
        self.around_changes(|other, _| other == id, change, |_| vec![id])
    }

    /// The same for the data set `top` and those below it in name, of which `changed` says which were.
    pub(crate) fn around_changes_within<T>(
        &self,
        top: &DatasetName,
        change: impl FnOnce() -> T,
        changed: impl FnOnce(&T) -> Vec<u64>,
    ) -> T {
        self.around_changes(|_, name| name.is_within(top), change, changed)
    }

    fn around_changes<T>(
        &self,
        chosen: impl Fn(u64, &DatasetName) -> bool,
        change: impl FnOnce() -> T,
        changed: impl FnOnce(&T) -> Vec<u64>,
    ) -> T {
        self.drop_ended();
        let mounts: Vec<(u64, Arc<Mount>)> = {
            let table = self.table.lock();
            let chosen = table.iter().filter(|(id, active)| chosen(**id, &active.name));
            chosen.map(|(id, active)| (*id, active.mount.clone())).collect()
        };
        let announced: Vec<_> = mounts.iter().map(|(id, mount)| (*id, mount.begin_change())).collect();
        let value = change();
        let changed = changed(&value);
        let below = self.mounted_below(mounts.iter().filter(|(id, _)| changed.contains(id)).map(|(_, mount)| mount));
        announced.into_iter().filter(|(id, _)| changed.contains(id)).for_each(|(_, announced)| announced.finish());
        self.mount_lost(below);
        value
    }

    /// What is mounted inside of any of `mounts`, those above first.
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

    /// Mounts again those of `below` whose directories a change has taken away, and their mounts with them.
    fn mount_lost(&self, below: Vec<(PathBuf, u64)>) {
        let lost = below.into_iter().filter(|(_, id)| self.mount_of(*id).is_some_and(|mount| !mount.is_mounted()));
        let names: Vec<DatasetName> = lost.filter_map(|(_, id)| Some(self.forget(id)?.name.clone())).collect();
        for name in names {
            if let Err(failure) = self.mount(&name, &[]) {
                tracing::warn!("{failure}");
            }
        }
    }

    /// Has every mount look again which snapshots there are; of those in `gone` nothing is served any more.
    pub(crate) fn snapshots_changed(&self, gone: &[String]) {
        let mounts: Vec<(DatasetName, Arc<Mount>)> = {
            let table = self.table.lock();
            table.values().map(|active| (active.name.clone(), active.mount.clone())).collect()
        };
        for (name, mount) in mounts {
            let own = gone.iter().filter_map(|gone| gone.strip_prefix(name.as_str())?.strip_prefix('@'));
            own.for_each(|snapshot| mount.close_snapshot(snapshot));
            mount.snapshots_changed();
        }
    }

    /// Has mounts of a data set and those below it follow their properties, as far as a mount can while it is in use.
    pub(crate) fn options_changed(&self, top: &DatasetName) -> Result<(), Failure> {
        for plan in self.plans(top)? {
            if let Some(mount) = self.mount_of(plan.id) {
                mount.set_snapdir(plan.options.snapdir);
                mount.remount(&plan.options).map_err(|error| {
                    Failure::cannot("remount", &plan.name, error).hint("it follows when it is mounted again")
                })?;
            }
        }
        Ok(())
    }

    /// Closes snapshots that nobody looks at any more.
    pub(crate) fn reap(&self) {
        self.drop_ended();
        let mounts: Vec<Arc<Mount>> = self.table.lock().values().map(|active| active.mount.clone()).collect();
        mounts.iter().for_each(|mount| mount.reap());
    }

    fn drop_ended(&self) {
        let ended: Vec<u64> = {
            let table = self.table.lock();
            table.iter().filter(|(_, active)| active.mount.has_ended()).map(|(id, _)| *id).collect()
        };
        ended.into_iter().for_each(|id| drop(self.forget(id)));
    }

    fn forget(&self, id: u64) -> Option<Active> {
        self.datasets.note_mount(id, None);
        self.table.lock().remove(&id)
    }

    fn plan(&self, name: &DatasetName) -> Result<Plan, Failure> {
        let request =
            ListRequest { roots: vec![Name::Dataset(name.clone())], depth: Some(0), kinds: Kinds::FILESYSTEM };
        let listed = self.datasets.list(&request).or_refused("open", name)?;
        listed.first().map(|listed| self.plan_of(listed)).ok_or_else(|| Failure::no_dataset(name))
    }

    fn plans(&self, top: &DatasetName) -> Result<Vec<Plan>, Failure> {
        let request = ListRequest { roots: vec![Name::Dataset(top.clone())], depth: None, kinds: Kinds::FILESYSTEM };
        Ok(self.datasets.list(&request).or_refused("open", top)?.iter().map(|listed| self.plan_of(listed)).collect())
    }

    fn value(&self, name: &DatasetName, property: &str) -> Result<Valued, Failure> {
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

/// Makes a mount point, and refuses one that holds something.
fn prepare(path: &Path) -> Result<(), String> {
    fs::create_dir_all(path).map_err(|error| error.to_string())?;
    let mut entries = fs::read_dir(path).map_err(|error| error.to_string())?;
    match entries.next() {
        None => Ok(()),
        Some(_) => Err("directory is not empty".to_owned()),
    }
}

/// Removes the directory of a mount that was there by default; one that is in use stays.
fn remove_mountpoint(active: &Active, path: &Path) {
    if active.by_default
        && let Err(error) = fs::remove_dir(path)
    {
        tracing::debug!("{} stays: {error}", path.display());
    }
}

/// The snapshots of a mounted data set, for its `.zfs`.
struct SnapshotsOf {
    datasets: Arc<Datasets>,
    id: u64,
}

impl SnapshotsOf {
    fn find_all(&self, roots: impl FnOnce(DatasetName) -> Option<Name>, depth: usize) -> Vec<SnapshotEntry> {
        let listed = self.datasets.dataset_name(self.id).ok().and_then(roots).and_then(|root| {
            let request = ListRequest { roots: vec![root], depth: Some(depth), kinds: Kinds::SNAPSHOT };
            self.datasets.list(&request).ok()
        });
        listed.unwrap_or_default().iter().filter_map(entry).collect()
    }
}

impl Snapshots for SnapshotsOf {
    fn list(&self) -> Vec<SnapshotEntry> {
        self.find_all(|dataset| Some(Name::Dataset(dataset)), 1)
    }

    fn find(&self, name: &str) -> Option<SnapshotEntry> {
        self.find_all(|dataset| dataset.snapshot(name).ok().map(Name::Snapshot), 0).pop()
    }

    fn open(&self, name: &str) -> Result<Arc<FileSystem>, Errno> {
        let dataset = self.datasets.dataset_name(self.id).map_err(|_| Errno::STALE)?;
        let snapshot = dataset.snapshot(name).map_err(|_| Errno::NOENT)?;
        self.datasets.open_snapshot(&snapshot).map(|opened| opened.fs).map_err(|error| {
            tracing::warn!("cannot open '{snapshot}': {error}");
            Errno::IO
        })
    }
}

/// A snapshot's name and creation. Its seconds are those it was taken at; the rest of the time is its transaction group,
/// which no two snapshots of one name share.
fn entry(listed: &Listed) -> Option<SnapshotEntry> {
    const SECOND: Nanos = 1_000_000_000;
    let Name::Snapshot(name) = &listed.name else { return None };
    let creation = listed.value(&Property::of_dataset("creation").ok()?)?.value.parse::<Nanos>().ok()?;
    let part = Nanos::try_from(listed.createtxg() % SECOND as u64).ok()?;
    Some(SnapshotEntry { name: name.snapshot().to_owned(), creation: creation.saturating_mul(SECOND) + part })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(home: &str, altroot: &str, value: &str, source: Source) -> String {
        let places = Places { home: home.into(), altroot: altroot.into() };
        places.shown(&Valued { value: value.into(), source })
    }

    #[test]
    fn only_defaults_lie_in_the_home() {
        assert_eq!(shown("/home/ann", "", "/tank/a", Source::Default), "/home/ann/tank/a");
        assert_eq!(shown("/home/ann", "", "/srv", Source::Local), "/srv");
        assert_eq!(shown("", "", "/tank", Source::Default), "/tank");
        assert_eq!(shown("/home/ann", "", "legacy", Source::Default), "legacy");
    }

    #[test]
    fn everything_lies_below_altroot() {
        assert_eq!(shown("", "/mnt", "/tank", Source::Default), "/mnt/tank");
        assert_eq!(shown("/home/ann", "/mnt", "/srv", Source::Inherited("tank".into())), "/mnt/srv");
        assert_eq!(shown("", "/mnt", "none", Source::Local), "none");
    }

    #[test]
    fn a_new_pool_hides_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let places = Places { home: String::new(), altroot: folder.path().to_str().unwrap().to_owned() };
        let pool: DatasetName = "tank".parse().unwrap();
        let given = |name: &str, value: &str| Assignment { name: name.into(), value: value.into() };
        assert!(places.check_root(&pool, &[]).is_ok());
        fs::create_dir(folder.path().join("tank")).unwrap();
        assert!(places.check_root(&pool, &[]).is_ok());
        fs::write(folder.path().join("tank/file"), "").unwrap();
        let refused = places.check_root(&pool, &[]).unwrap_err();
        assert!(refused.message.contains("exists and is not empty"), "{}", refused.message);
        assert!(places.check_root(&pool, &[given("mountpoint", "/")]).is_err());
        assert!(places.check_root(&pool, &[given("mountpoint", "none")]).is_ok());
        assert!(places.check_root(&pool, &[given("canmount", "off")]).is_ok());
    }

    #[test]
    fn a_mount_hides_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        assert_eq!(prepare(&path), Ok(()));
        assert_eq!(prepare(&path), Ok(()));
        fs::write(path.join("file"), "").unwrap();
        assert!(prepare(&path).unwrap_err().contains("not empty"));
    }
}
