//! The mount table: which data sets of the pool this process has mounted, and where.
//!
//! A data set's place is what its `mountpoint` says, below the user's home for those who are not root and set nothing,
//! and below `altroot` if the pool has one. Mount points are made as needed, and a directory that is not empty is not
//! hidden by a mount. Data sets above are mounted before those below, and unmounted after them.
//!
//! A mount may end without us: root may unmount it. Every look at the table first drops those that have.
//!
//! ```text
//! places      where data sets are mounted              plan        what properties say about mounting
//! unmount     unmounting, and mount points that go     change      mounts that follow changes of what they show
//! snapshots   what `.zfs` shows
//! ```

mod change;
mod places;
mod plan;
mod snapshots;
mod unmount;

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use dataset::{
    admin::{Datasets, Mount as Note},
    fs::FileSystem,
    name::DatasetName,
    property::Source,
};
use fuse_mount::{Mount, MountOptions, Transport};
use parking_lot::Mutex;

pub(crate) use self::{places::Places, unmount::Unmounted};
use self::{plan::Plan, snapshots::SnapshotsOf};
use super::refusal::OrRefused;
use crate::{
    failure::Failure,
    protocol::{Assignment, MountRecord},
};

/// The environment variable that says how requests are to come from the kernel, `fuse` or `uring`: for tests of either, and
/// for those whose kernel has a faulty one. Not set, the faster one that works is taken.
const TRANSPORT: &str = "CENOTE_TRANSPORT";

/// A data set that is mounted.
struct Active {
    name: DatasetName,
    mount: Arc<Mount>,
    /// Whether the mount point goes with the mount: nobody chose it.
    by_default: bool,
    /// How it was mounted.
    temporary: Vec<Assignment>,
    overlay: bool,
}

/// How data sets are mounted, beside what their properties say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Manner<'a> {
    /// Values that hold as long as the mount lives.
    pub(crate) temporary: &'a [Assignment],
    /// Also on a directory that holds something, which is hidden meanwhile.
    pub(crate) overlay: bool,
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
            transport: active.mount.transport().name().to_owned(),
            requests: active.mount.counters().seen().iter().map(|(kind, n)| (kind.name().to_owned(), *n)).collect(),
        };
        let mut records: Vec<MountRecord> = table.values().map(record).collect();
        records.sort_by(|a, b| a.dataset.cmp(&b.dataset));
        records
    }

    /// Mounts a data set by name.
    pub(crate) fn mount(&self, name: &DatasetName, how: &Manner<'_>) -> Result<(), Failure> {
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
            _ => self.mount_planned(plan, how),
        }
    }

    /// Mounts all data sets that their properties want mounted, in `names` or in the pool. Goes on after a failure and
    /// tells the first.
    pub(crate) fn mount_all(&self, names: Option<&[DatasetName]>, how: &Manner<'_>) -> Result<(), Failure> {
        self.drop_ended();
        let mut plans = match names {
            Some(names) => names.iter().map(|name| self.plan(name)).collect::<Result<Vec<_>, _>>()?,
            None => self.plans(&self.datasets.pool_name())?,
        };
        plans.retain(|plan| plan.canmount == "on" && plan.path().is_some());
        self.mount_plans(plans.into_iter().map(|plan| (plan, *how)).collect())
    }

    /// Mounts what is not mounted, those above first.
    fn mount_plans(&self, mut plans: Vec<(Plan, Manner<'_>)>) -> Result<(), Failure> {
        plans.sort_by(|(one, _), (other, _)| one.mountpoint.cmp(&other.mountpoint));
        let mut first = Ok(());
        for (plan, how) in plans {
            if self.table.lock().contains_key(&plan.id) {
                continue;
            }
            let mounted = self.mount_planned(plan, &how);
            match (&first, mounted) {
                (Ok(()), mounted) => first = mounted,
                (Err(_), Err(other)) => tracing::error!("{other}"),
                (Err(_), Ok(())) => {}
            }
        }
        first
    }

    fn mount_planned(&self, plan: Plan, how: &Manner<'_>) -> Result<(), Failure> {
        let path = plan.path().expect("a plan to be mounted has a path");
        let refused = |why: String| Failure::cannot("mount", &plan.name, why);
        let dataset = self.datasets.open_dataset(&plan.name).or_refused("mount", &plan.name)?;
        // A directory that was not there until now holds nothing, and no mount that nobody serves any more.
        if fs::create_dir(&path).is_err() {
            clear_way(&path).map_err(|error| refused(error.to_string()).hint(elsewhere(&plan.name)))?;
            prepare(&path, how.overlay).map_err(|why| {
                let hint = match why == NOT_EMPTY {
                    true => Some(format!("to hide what it holds: fs mount -O {}", plan.name)),
                    false => unserved_at(&path).map(Failure::unserved),
                };
                Failure { hint, ..refused(format!("{}: {why}", path.display())) }
            })?;
        }
        let values = how.temporary.iter().map(|a| (a.name.clone(), a.value.clone())).collect();
        self.datasets.note_mount(plan.id, Some(Note { path: plan.mountpoint.clone(), temporary: values }));
        let mounted = self.start(&plan, dataset.fs(), &path, how);
        if mounted.is_err() {
            self.datasets.note_mount(plan.id, None);
        }
        mounted
    }

    fn start(&self, plan: &Plan, fs: &Arc<FileSystem>, path: &Path, how: &Manner<'_>) -> Result<(), Failure> {
        // Temporary values count from when the mount is noted.
        let plan = if how.temporary.is_empty() { plan.clone() } else { self.plan(&plan.name)? };
        let options = MountOptions { transport: transport()?, ..plan.options };
        let snapshots = Arc::new(SnapshotsOf { datasets: self.datasets.clone(), id: plan.id });
        let mount =
            Mount::new(fs.clone(), snapshots, path, &options).map_err(|error| Failure::new(error.to_string()))?;
        let by_default = !matches!(self.value(&plan.name, "mountpoint")?.source, Source::Local);
        let (temporary, overlay) = (how.temporary.to_vec(), how.overlay);
        let active = Active { name: plan.name, mount: Arc::new(mount), by_default, temporary, overlay };
        self.table.lock().insert(plan.id, active);
        Ok(())
    }

    /// The mount of a data set, if it is mounted.
    pub(crate) fn mount_of(&self, id: u64) -> Option<Arc<Mount>> {
        self.table.lock().get(&id).map(|active| active.mount.clone())
    }

    /// Notes the new names of data sets whose mounts stay where they are.
    pub(crate) fn renamed(&self, names: &[(u64, DatasetName)]) {
        let mut table = self.table.lock();
        for (id, name) in names {
            if let Some(active) = table.get_mut(id) {
                active.name = name.clone();
            }
        }
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
}

fn transport() -> Result<Option<Transport>, Failure> {
    let Some(name) = std::env::var_os(TRANSPORT).filter(|name| !name.is_empty()) else { return Ok(None) };
    let named = Transport::ALL.into_iter().find(|transport| name == transport.name());
    named.map(Some).ok_or_else(|| Failure::new(format!("{TRANSPORT} is neither 'fuse' nor 'uring'")))
}

/// Takes away the mount on `path` of a service that has died, and refuses a place where another data set is mounted.
fn clear_way(path: &Path) -> fuse_mount::Result<()> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    fuse_mount::detach_dead(&path)?;
    match fuse_mount::mounted_at(&path)? {
        Some(other) => Err(fuse_mount::Error::Taken { mountpoint: path, dataset: other.dataset }),
        None => Ok(()),
    }
}

fn elsewhere(name: &DatasetName) -> String {
    format!("give it another place: fs set mountpoint=PATH {name}")
}

const NOT_EMPTY: &str = "directory is not empty";

/// The pool whose service has died and was to serve the mount that `path` lies in.
pub(super) fn unserved_at(path: &Path) -> Option<String> {
    let inside = fuse_mount::mounts().ok()?.into_iter().filter(|mounted| path.starts_with(&mounted.mountpoint));
    let nearest = inside.max_by_key(|mounted| mounted.mountpoint.as_os_str().len())?;
    fuse_mount::is_dead(&nearest.mountpoint).then(|| nearest.dataset.split('/').next().unwrap_or_default().to_owned())
}

/// Makes a mount point, and refuses one that holds something, unless that may be hidden.
fn prepare(path: &Path, overlay: bool) -> Result<(), String> {
    fs::create_dir_all(path).map_err(|error| error.to_string())?;
    if overlay {
        return Ok(());
    }
    let mut entries = fs::read_dir(path).map_err(|error| error.to_string())?;
    match entries.next() {
        None => Ok(()),
        Some(_) => Err(NOT_EMPTY.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_hides_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        assert_eq!(prepare(&path, false), Ok(()));
        assert_eq!(prepare(&path, false), Ok(()));
        fs::write(path.join("file"), "").unwrap();
        assert!(prepare(&path, false).unwrap_err().contains("not empty"));
        assert_eq!(prepare(&path, true), Ok(()));
    }
}
