//! The mount table: which datasets of the pool this process has mounted, and where.
//!
//! A dataset is mounted at its `mountpoint`. For users other than root without an explicit `mountpoint`, the place is
//! below the user's home. If the pool has an `altroot`, the place is below the `altroot`. Mount points are created as
//! needed; a mount does not hide a directory with content. Parents are mounted before children, and unmounted after
//! them.
//!
//! A mount may end without the service: root may unmount the file system. So each lookup in the table first drops
//! mounts that have ended. Only the mount namespace of this process counts. If another namespace, or a program with
//! an open file, still has the mount, the session is *left*: the session is served and follows changes, but the
//! dataset counts as unmounted. A left session ends before its dataset is mounted again, destroyed or exported,
//! because two sessions would cache the same files.
//!
//! ```text
//! places      mount points of datasets                plan        from properties to mounts
//! unmount     unmounting, and removing mount points   change      mounts that follow changes of their dataset
//! snapshots   the content of `.zfs`                   by_hand     mounts made by mount(8), and remembered mounts
//! counters    requests of the kernel to each mount
//! foreseen    dry runs of changes that move mounts
//! ```

mod by_hand;
mod change;
mod counters;
mod foreseen;
mod places;
mod plan;
mod snapshots;
mod unmount;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, OnceLock},
};

use dataset::{
    admin::{Datasets, Mount as Note},
    fs::FileSystem,
    name::{DatasetName, Name},
    property::{CanMount, Source, dataset::MOUNTPOINT},
};
use fuse_mount::{Mount, MountOptions, MountPoint, Owner, Snapshots, Transport, Watch};
use parking_lot::Mutex;
use protocol::{Assignment, Failure, MountRecord};

pub use self::by_hand::mount_namespace;
use self::{
    by_hand::Memory,
    plan::Plan,
    snapshots::{NoSnapshots, SnapshotsOf},
};
pub(crate) use self::{by_hand::check_namespace, places::Places, unmount::Unmounted};
use super::refusal::OrRefused;

/// Environment variable that selects the kernel transport, `fuse` or `uring`: for tests of either, and for kernels
/// with a faulty transport. By default the service uses the faster transport of those that work.
const TRANSPORT: &str = "CENOTE_TRANSPORT";

/// A mounted dataset or snapshot.
struct Active {
    name: Name,
    /// Id of the mounted dataset, or of the dataset of the mounted snapshot.
    dataset: u64,
    mount: Arc<Mount>,
    /// The user named the directory, with mount(8).
    by_hand: bool,
    /// Whether unmounting removes the mount point: `mountpoint` is not set locally on the dataset.
    by_default: bool,
    /// Temporary property values of the mount.
    temporary: Vec<Assignment>,
    overlay: bool,
    /// Mounted although `canmount=noauto`.
    is_asked: bool,
}

impl Active {
    /// Whether the properties of the dataset alone, at an import, would make the same mount.
    fn is_plain(&self) -> bool {
        !self.by_hand && !self.is_asked && !self.overlay && self.temporary.is_empty()
    }
}

/// How a dataset is mounted, in addition to its properties.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Manner<'a> {
    /// Temporary property values, valid until the unmount.
    pub(crate) temporary: &'a [Assignment],
    /// Also mount over a directory with content; the mount hides the content.
    pub(crate) overlay: bool,
    /// Mount at this directory instead of `mountpoint`.
    pub(crate) at: Option<&'a Path>,
}

/// All mounts of one pool.
pub(crate) struct Mounts {
    datasets: Arc<Datasets>,
    places: Places,
    read_only: bool,
    table: Mutex<BTreeMap<u64, Active>>,
    /// Serializes mounting: held from the check whether a dataset is mounted until the mount exists. Locked before
    /// `table`.
    turn: Mutex<()>,
    /// Left sessions, by id: no mount in this process's namespace, but still in use elsewhere. Locked after
    /// `table`.
    left: Mutex<Vec<(u64, Active)>>,
    watch: Watch,
    memory: Memory,
    /// The owner of the mounts, which finds them after a crash of the service.
    owner: OnceLock<Owner>,
}

impl Mounts {
    /// A table without mounts.
    pub(crate) fn new(datasets: Arc<Datasets>, places: Places, read_only: bool) -> Mounts {
        let (table, turn, left) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (watch, memory, owner) = (Watch::default(), Memory::default(), OnceLock::new());
        Mounts { datasets, places, read_only, table, turn, left, watch, memory, owner }
    }

    /// The mounted datasets, by name.
    pub(crate) fn list(&self) -> Vec<MountRecord> {
        self.drop_ended();
        let table = self.table.lock();
        let record = |active: &Active| MountRecord {
            dataset: active.name.clone(),
            mountpoint: active.mount.mountpoint().to_owned().into(),
            transport: active.mount.transport().name().to_owned(),
            requests: active.mount.counters().seen().iter().map(|(kind, n)| (kind.name().to_owned(), *n)).collect(),
        };
        let mut records: Vec<MountRecord> = table.values().map(record).collect();
        records.sort_by(|a, b| a.dataset.as_str().cmp(b.dataset.as_str()));
        records
    }

    /// Mounts a dataset by name.
    pub(crate) fn mount(&self, name: &DatasetName, how: &Manner<'_>) -> Result<(), Failure> {
        self.drop_ended();
        let refused = |why: &str| Failure::cannot("mount", name, why);
        let plan = self.plan(name)?;
        let _turn = self.turn.lock();
        if self.table.lock().contains_key(&plan.id) {
            let failure = refused("filesystem already mounted");
            let remount = format!("to change mount options: fs unmount {name}, then mount again");
            return Err(if how.temporary.is_empty() { failure } else { failure.hint(remount) });
        }
        match (plan.mountpoint.as_str(), plan.canmount) {
            (_, CanMount::Off) => Err(refused("'canmount' property is set to 'off'")),
            ("none", _) => Err(refused("no mountpoint set").hint(format!("fs set mountpoint=PATH {name}"))),
            ("legacy", _) => {
                Err(refused("legacy mountpoint").hint(format!("use mount(8): mount -t cenote {name} DIRECTORY")))
            }
            _ => {
                self.mount_planned(plan, how)?;
                self.remember();
                Ok(())
            }
        }
    }

    /// Mounts all datasets whose properties ask for a mount, in `names` or in the whole pool. Continues after a
    /// failure and returns the first failure. Failures of the whole pool are logged too.
    pub(crate) fn mount_all(&self, names: Option<&[DatasetName]>, how: &Manner<'_>) -> Result<(), Failure> {
        self.drop_ended();
        let mut plans = match names {
            Some(names) => names.iter().map(|name| self.plan(name)).collect::<Result<Vec<_>, _>>()?,
            None => self.plans(&self.datasets.pool_name())?,
        };
        plans.retain(|plan| plan.canmount == CanMount::On && plan.path().is_some());
        let mut plans: Vec<(Plan, Manner<'_>)> = plans.into_iter().map(|plan| (plan, *how)).collect();
        // A restarted service makes the mounts of the service before, with their options.
        let (special, by_hand) = match names {
            None => (self.pending(false), self.pending(true)),
            Some(_) => Default::default(),
        };
        let (again, unplanned) = self.plans_again(&special);
        plans.retain(|(plan, _)| again.iter().all(|(special, _)| special.id != plan.id));
        plans.extend(again);
        let mut mounted = keep_first(unplanned, self.mount_plans(plans));
        // A mount by mount(8) may lie inside a mount just made.
        mounted = keep_first(mounted, self.mount_those(&by_hand));
        self.remember();
        if let (None, Err(failure)) = (names, &mounted) {
            tracing::error!("{failure}");
        }
        mounted
    }

    /// Mounts the datasets that are not mounted yet, parents first.
    fn mount_plans(&self, mut plans: Vec<(Plan, Manner<'_>)>) -> Result<(), Failure> {
        plans.sort_by_cached_key(|(plan, _)| plan.path());
        let mut first = Ok(());
        for (plan, how) in plans {
            let _turn = self.turn.lock();
            if self.table.lock().contains_key(&plan.id) {
                continue;
            }
            first = keep_first(first, self.mount_planned(plan, &how));
        }
        first
    }

    fn mount_planned(&self, plan: Plan, how: &Manner<'_>) -> Result<(), Failure> {
        self.end_left(|id, _| id == plan.id);
        let path = plan.path().expect("a plan to be mounted has a path");
        let refused = |why: String| Failure::cannot("mount", &plan.name, why);
        let (fs, snapshots) = self.files(&plan).or_refused("mount", &plan.name)?;
        let not_there = |error: fuse_mount::Error| match error {
            fuse_mount::Error::Mount { cause, .. } => Failure {
                hint: unserved_at(&path).map(Failure::unserved),
                ..refused(format!("{}: {cause}", path.display()))
            },
            error => refused(error.to_string()).hint(elsewhere(&plan.name)),
        };
        let mut place = MountPoint::make(&path).map_err(not_there)?;
        // A directory that was just created is empty and carries no dead mount.
        if !place.is_new() {
            clear_way(place.path()).map_err(not_there)?;
            // The mount that covered the directory may be gone now.
            place = MountPoint::make(place.path()).map_err(not_there)?;
            let cannot_list = |cause| fuse_mount::Error::Mount { mountpoint: path.clone(), cause };
            if !how.overlay && !plan.overlay && !place.is_empty().map_err(cannot_list).map_err(not_there)? {
                let why = format!("{}: directory is not empty", path.display());
                let name = &plan.name;
                let hint = format!("to mount over the files: fs mount -O {name}; always: fs set overlay=on {name}");
                return Err(refused(why).hint(hint));
            }
        }
        self.note(&plan, &path, how.temporary);
        let mounted = self.start(&plan, fs, snapshots, place.path(), how);
        if mounted.is_err() {
            self.datasets.note_mount(plan.id, None);
        }
        mounted
    }

    /// The files of a mount, and the snapshots in its `.zfs`.
    fn files(&self, plan: &Plan) -> dataset::error::Result<(Arc<FileSystem>, Arc<dyn Snapshots>)> {
        if let Name::Snapshot(name) = &plan.name {
            return Ok((self.datasets.open_snapshot(name)?.fs, Arc::new(NoSnapshots)));
        }
        let dataset = self.datasets.open_dataset(&plan.name.dataset())?;
        Ok((dataset.fs().clone(), Arc::new(SnapshotsOf { datasets: self.datasets.clone(), id: plan.id })))
    }

    /// Records a mount's path and temporary values for `fs get`. Mounts of snapshots are not recorded.
    fn note(&self, plan: &Plan, path: &Path, temporary: &[Assignment]) {
        if matches!(plan.name, Name::Dataset(_)) {
            let temporary = temporary.iter().map(|a| (a.name.clone(), a.value.clone())).collect();
            self.datasets.note_mount(plan.id, Some(Note { path: path.to_string_lossy().into_owned(), temporary }));
        }
    }

    fn start(
        &self,
        plan: &Plan,
        fs: Arc<FileSystem>,
        snapshots: Arc<dyn Snapshots>,
        path: &Path,
        how: &Manner<'_>,
    ) -> Result<(), Failure> {
        // Planned again: the recorded temporary values change the options.
        let plan = if how.temporary.is_empty() { plan.clone() } else { self.plan_with(&plan.name, how.temporary)? };
        let options = MountOptions { transport: transport()?, owner: self.owner.get().copied(), ..plan.options };
        let mount = Mount::new(fs, snapshots, path, &options).map_err(|error| Failure::new(error.to_string()))?;
        let by_hand = how.at.is_some();
        let by_default =
            !by_hand && !matches!(self.value(&plan.name.dataset(), MOUNTPOINT.name)?.source, Source::Local);
        let (temporary, overlay, dataset) = (how.temporary.to_vec(), how.overlay, plan.dataset);
        let mount = Arc::new(mount);
        let is_asked = plan.canmount == CanMount::NoAuto;
        let active = Active { name: plan.name, dataset, mount, by_hand, by_default, temporary, overlay, is_asked };
        self.table.lock().insert(plan.id, active);
        self.watch.forget();
        Ok(())
    }

    /// The mount of a dataset; `None` if the dataset is not mounted.
    pub(crate) fn mount_of(&self, id: u64) -> Option<Arc<Mount>> {
        self.table.lock().get(&id).map(|active| active.mount.clone())
    }

    /// Records the new names of renamed datasets. Their mounts, and the mounts of their snapshots, stay in place.
    pub(crate) fn renamed(&self, names: &[(u64, DatasetName)]) {
        let (mut table, mut left) = (self.table.lock(), self.left.lock());
        for active in table.values_mut().chain(left.iter_mut().map(|(_, active)| active)) {
            let renamed = names.iter().find(|(id, _)| *id == active.dataset);
            let name = renamed.and_then(|(_, name)| named_as(&active.name, name));
            active.name = name.unwrap_or_else(|| active.name.clone());
        }
    }

    /// Closes snapshots in `.zfs` that are no longer in use.
    pub(crate) fn reap(&self) {
        self.drop_ended();
        self.chosen(|_, _| true).iter().for_each(|(_, mount)| mount.reap());
    }

    /// Drops mounts with an ended session. If a mount has gone from this process's namespace but its session
    /// continues, the session becomes a left session.
    pub(crate) fn drop_ended(&self) {
        self.left.lock().retain(|(_, active)| !active.mount.has_ended());
        // The table is copied before the kernel's mount list is read: a mount made after the read is not in the list.
        let mounted: Vec<(u64, Arc<Mount>)> = {
            let table = self.table.lock();
            table.iter().map(|(id, active)| (*id, active.mount.clone())).collect()
        };
        let devices = if mounted.is_empty() { None } else { self.watch.changed() };
        for (id, mount) in mounted {
            if mount.has_ended() {
                drop(self.forget(id));
                self.remember();
            } else if devices.as_ref().is_some_and(|devices| !devices.contains(&mount.device())) {
                self.leave(id);
                self.remember();
            }
        }
    }

    /// Counts a dataset as unmounted, and serves its session until the last user is gone.
    fn leave(&self, id: u64) {
        if let Some(active) = self.forget(id).filter(|active| !active.mount.has_ended()) {
            self.left.lock().push((id, active));
        }
    }

    /// Ends left sessions; processes that still use their mounts get errors.
    fn end_left(&self, chosen: impl Fn(u64, &Active) -> bool) {
        let ended: Vec<(u64, Active)> = self.left.lock().extract_if(.., |(id, active)| chosen(*id, active)).collect();
        drop(ended);
    }

    fn forget(&self, id: u64) -> Option<Active> {
        self.datasets.note_mount(id, None);
        self.table.lock().remove(&id)
    }
}

/// Keeps the first failure of several mounts and logs the others.
fn keep_first(first: Result<(), Failure>, next: Result<(), Failure>) -> Result<(), Failure> {
    match (first, next) {
        (Ok(()), next) => next,
        (first, Err(other)) => {
            tracing::error!("{other}");
            first
        }
        (first, Ok(())) => first,
    }
}

/// The new name of a dataset, or of the snapshot in `name`, after the dataset was renamed to `dataset`.
fn named_as(name: &Name, dataset: &DatasetName) -> Option<Name> {
    match name {
        Name::Snapshot(snapshot) => dataset.snapshot(snapshot.snapshot()).ok().map(Name::Snapshot),
        _ => Some(Name::Dataset(dataset.clone())),
    }
}

fn transport() -> Result<Option<Transport>, Failure> {
    let Some(name) = std::env::var_os(TRANSPORT).filter(|name| !name.is_empty()) else { return Ok(None) };
    let named = Transport::ALL.into_iter().find(|transport| name == transport.name());
    named.map(Some).ok_or_else(|| Failure::new(format!("{TRANSPORT} is neither 'fuse' nor 'uring'")))
}

/// Detaches a dead service's mount from `path`, and refuses a place where another dataset is mounted.
fn clear_way(path: &Path) -> fuse_mount::Result<()> {
    fuse_mount::detach_dead(path)?;
    match fuse_mount::mounted_at(path)? {
        Some(other) => Err(fuse_mount::Error::Taken { mountpoint: path.to_owned(), dataset: other.dataset }),
        None => Ok(()),
    }
}

fn elsewhere(name: &Name) -> String {
    format!("choose another mount point: fs set mountpoint=PATH {name}")
}

/// The pool whose dead service left the mount that contains `path`.
pub(super) fn unserved_at(path: &Path) -> Option<String> {
    let inside = fuse_mount::mounts().ok()?.into_iter().filter(|mounted| path.starts_with(&mounted.mountpoint));
    let nearest = inside.max_by_key(|mounted| mounted.mountpoint.as_os_str().len())?;
    fuse_mount::is_dead(&nearest.mountpoint)
        .then(|| nearest.dataset.split(['/', '@']).next().unwrap_or_default().to_owned())
}
