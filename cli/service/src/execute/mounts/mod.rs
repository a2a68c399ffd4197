//! The mount table: which datasets of the pool this process has mounted, and where.
//!
//! A dataset's place is what its `mountpoint` says, below the user's home for those who are not root and set nothing,
//! and below `altroot` if the pool has one. Mount points are made as needed, and a directory that is not empty is not
//! hidden by a mount. Datasets above are mounted before those below, and unmounted after them.
//!
//! A mount may end without us: root may unmount it. Every look at the table first drops those that have. What counts is
//! the mount namespace of this process. If another namespace, or a program with an open file, still has the mount, its
//! session is *left*: it is served and follows changes, but the dataset counts as unmounted. A session that is left ends
//! before its dataset is mounted again, destroyed or exported, for two sessions would cache the same files.
//!
//! ```text
//! places      where datasets are mounted              plan        what properties say about mounting
//! unmount     unmounting, and mount points that go     change      mounts that follow changes of what they show
//! snapshots   what `.zfs` shows                        by_hand     where mount(8) says, and remembered
//! ```

mod by_hand;
mod change;
mod places;
mod plan;
mod snapshots;
mod unmount;

use std::{collections::BTreeMap, path::Path, sync::Arc};

use dataset::{
    admin::{Datasets, Mount as Note},
    fs::FileSystem,
    name::{DatasetName, Name},
    property::{CanMount, Source, dataset::MOUNTPOINT},
};
use fuse_mount::{Mount, MountOptions, MountPoint, Snapshots, Transport, Watch};
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

/// The environment variable that says how requests are to come from the kernel, `fuse` or `uring`: for tests of either, and
/// for those whose kernel has a faulty one. Not set, the faster one that works is taken.
const TRANSPORT: &str = "CENOTE_TRANSPORT";

/// A dataset that is mounted, or a snapshot.
struct Active {
    name: Name,
    /// The dataset that it is, or is a snapshot of.
    dataset: u64,
    mount: Arc<Mount>,
    /// Somebody named the directory, by mount(8).
    by_hand: bool,
    /// Whether the mount point goes with the mount: nobody chose it.
    by_default: bool,
    /// How it was mounted.
    temporary: Vec<Assignment>,
    overlay: bool,
}

/// How datasets are mounted, beside what their properties say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Manner<'a> {
    /// Values that hold as long as the mount lives.
    pub(crate) temporary: &'a [Assignment],
    /// Also on a directory that holds something, which is hidden meanwhile.
    pub(crate) overlay: bool,
    /// On this directory, whatever `mountpoint` says.
    pub(crate) at: Option<&'a Path>,
}

/// The mounts of one pool.
pub(crate) struct Mounts {
    datasets: Arc<Datasets>,
    places: Places,
    read_only: bool,
    table: Mutex<BTreeMap<u64, Active>>,
    /// Held from the look whether a dataset is mounted until it is. Locked before `table`.
    turn: Mutex<()>,
    /// Sessions without a mount in this process's namespace, in which somebody still has one. Locked after `table`.
    left: Mutex<Vec<(u64, Active)>>,
    watch: Watch,
    memory: Memory,
}

impl Mounts {
    /// An empty table.
    pub(crate) fn new(datasets: Arc<Datasets>, places: Places, read_only: bool) -> Mounts {
        let (table, turn, left) = (Mutex::default(), Mutex::default(), Mutex::default());
        Mounts { datasets, places, read_only, table, turn, left, watch: Watch::default(), memory: Memory::default() }
    }

    /// What is mounted, by name.
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
            _ => self.mount_planned(plan, how),
        }
    }

    /// Mounts all datasets that their properties want mounted, in `names` or in the pool. Goes on after a failure and
    /// tells the first.
    pub(crate) fn mount_all(&self, names: Option<&[DatasetName]>, how: &Manner<'_>) -> Result<(), Failure> {
        self.drop_ended();
        let mut plans = match names {
            Some(names) => names.iter().map(|name| self.plan(name)).collect::<Result<Vec<_>, _>>()?,
            None => self.plans(&self.datasets.pool_name())?,
        };
        plans.retain(|plan| plan.canmount == CanMount::On && plan.path().is_some());
        let mounted = self.mount_plans(plans.into_iter().map(|plan| (plan, *how)).collect());
        // A mount by hand may lie in one of these.
        if names.is_none() { keep_first(mounted, self.restore()) } else { mounted }
    }

    /// Mounts what is not mounted, those above first.
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
        // A directory that was not there until now holds nothing, and no mount that nobody serves any more.
        if !place.is_new() {
            clear_way(place.path()).map_err(not_there)?;
            // What was mounted on it may be gone.
            place = MountPoint::make(place.path()).map_err(not_there)?;
            let cannot_list = |cause| fuse_mount::Error::Mount { mountpoint: path.clone(), cause };
            if !how.overlay && !place.is_empty().map_err(cannot_list).map_err(not_there)? {
                let why = format!("{}: directory is not empty", path.display());
                return Err(refused(why).hint(format!("to mount over the files: fs mount -O {}", plan.name)));
            }
        }
        self.note(&plan, &path, how.temporary);
        let mounted = self.start(&plan, fs, snapshots, place.path(), how);
        if mounted.is_err() {
            self.datasets.note_mount(plan.id, None);
        }
        mounted
    }

    /// The files that a mount shows, and the snapshots in its `.zfs`.
    fn files(&self, plan: &Plan) -> dataset::admin::Result<(Arc<FileSystem>, Arc<dyn Snapshots>)> {
        if let Name::Snapshot(name) = &plan.name {
            return Ok((self.datasets.open_snapshot(name)?.fs, Arc::new(NoSnapshots)));
        }
        let dataset = self.datasets.open_dataset(&plan.name.dataset())?;
        Ok((dataset.fs().clone(), Arc::new(SnapshotsOf { datasets: self.datasets.clone(), id: plan.id })))
    }

    /// Notes a mount for the properties that show it. Those of snapshots do not.
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
        // Temporary values count from when the mount is noted.
        let plan = if how.temporary.is_empty() { plan.clone() } else { self.plan_with(&plan.name, how.temporary)? };
        let options = MountOptions { transport: transport()?, ..plan.options };
        let mount = Mount::new(fs, snapshots, path, &options).map_err(|error| Failure::new(error.to_string()))?;
        let by_hand = how.at.is_some();
        let by_default =
            !by_hand && !matches!(self.value(&plan.name.dataset(), MOUNTPOINT.name)?.source, Source::Local);
        let (temporary, overlay, dataset) = (how.temporary.to_vec(), how.overlay, plan.dataset);
        let mount = Arc::new(mount);
        let active = Active { name: plan.name, dataset, mount, by_hand, by_default, temporary, overlay };
        self.table.lock().insert(plan.id, active);
        self.watch.forget();
        Ok(())
    }

    /// The mount of a dataset, if it is mounted.
    pub(crate) fn mount_of(&self, id: u64) -> Option<Arc<Mount>> {
        self.table.lock().get(&id).map(|active| active.mount.clone())
    }

    /// Notes the new names of datasets whose mounts, or those of their snapshots, stay where they are.
    pub(crate) fn renamed(&self, names: &[(u64, DatasetName)]) {
        let (mut table, mut left) = (self.table.lock(), self.left.lock());
        for active in table.values_mut().chain(left.iter_mut().map(|(_, active)| active)) {
            let renamed = names.iter().find(|(id, _)| *id == active.dataset);
            let name = renamed.and_then(|(_, name)| named_as(&active.name, name));
            active.name = name.unwrap_or_else(|| active.name.clone());
        }
    }

    /// Closes snapshots that nobody looks at any more.
    pub(crate) fn reap(&self) {
        self.drop_ended();
        self.chosen(|_, _| true).iter().for_each(|(_, mount)| mount.reap());
    }

    /// Drops mounts whose sessions have ended, and leaves sessions whose mounts have gone from this process's namespace.
    pub(crate) fn drop_ended(&self) {
        self.left.lock().retain(|(_, active)| !active.mount.has_ended());
        // Collected before the list of mounts is read: a mount made after that is not in the list.
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

    /// Has a dataset count as unmounted, and goes on with its session as long as somebody has it.
    fn leave(&self, id: u64) {
        if let Some(active) = self.forget(id).filter(|active| !active.mount.has_ended()) {
            self.left.lock().push((id, active));
        }
    }

    /// Ends sessions that are left: whoever still has their mounts gets errors.
    fn end_left(&self, chosen: impl Fn(u64, &Active) -> bool) {
        let ended: Vec<(u64, Active)> = self.left.lock().extract_if(.., |(id, active)| chosen(*id, active)).collect();
        drop(ended);
    }

    fn forget(&self, id: u64) -> Option<Active> {
        self.datasets.note_mount(id, None);
        self.table.lock().remove(&id)
    }
}

/// The first failure of several mounts, which go on after it. The others go to the log.
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

/// The name of a dataset, or of its snapshot that `name` is one of, when the dataset is called `dataset`.
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

/// Takes away the mount on `path` of a service that has died, and refuses a place where another dataset is mounted.
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

/// The pool whose service has died and was to serve the mount that `path` lies in.
pub(super) fn unserved_at(path: &Path) -> Option<String> {
    let inside = fuse_mount::mounts().ok()?.into_iter().filter(|mounted| path.starts_with(&mounted.mountpoint));
    let nearest = inside.max_by_key(|mounted| mounted.mountpoint.as_os_str().len())?;
    fuse_mount::is_dead(&nearest.mountpoint)
        .then(|| nearest.dataset.split(['/', '@']).next().unwrap_or_default().to_owned())
}
