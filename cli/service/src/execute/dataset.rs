//! Requests about datasets: listing, creating, destroying, renaming, mounting.

use std::{collections::HashSet, path::Path};

use dataset::{
    admin::{CreateRequest, DestroyRequest, DestroySnapshotsRequest, Destroyed, ListRequest, Listed, Target},
    name::{BookmarkName, DatasetName, Name},
    property::{
        DATASET, DATASET_CONSTANTS, Kinds, Property, Source, Valued,
        dataset::{MOUNTPOINT, READONLY},
    },
};
use protocol::{Assignment, DatasetRecord, DestroyRecord, Failure, ListRange, PropertyRecord, UnmountTarget};

use super::{
    job::Job,
    mounts::{Manner, Mounts, Unmounted},
    open_pool::{OpenPool, given_to_datasets, owner},
    parts::Parts,
    patience::Patience,
    refusal::{OrAdvised, OrRefused, to_destroy},
};

/// Maximum number of `written@SNAPSHOT` properties in a request. Each costs a lookup in every deadlist of the
/// snapshots of a dataset, and every user may ask.
const MOST_SINCE: usize = 32;

impl OpenPool {
    /// Sends the list in parts, so this process never holds the whole list. Returns the number of entries, with those
    /// outside of the range.
    pub(super) fn list(
        &self,
        root: Option<Name>,
        (depth, kinds, range): (Option<u32>, Kinds, Option<ListRange>),
        properties: &[String],
        job: &mut Job<'_>,
    ) -> Result<u64, Failure> {
        // A user may have unmounted a dataset without the pool's service, and `mounted` is a property.
        self.mounts.iter().for_each(|mounts| mounts.drop_ended());
        let what = root.as_ref().map_or_else(|| self.name().to_string(), Name::to_string);
        let depth = depth.map(|depth| depth as usize);
        let request = ListRequest { roots: root.into_iter().collect(), depth, kinds };
        let properties = each_once(properties);
        let since = |name: &String| Property::of_dataset(name).ok()?.written_since().map(str::to_owned);
        let since: Vec<String> = properties.iter().filter_map(since).collect();
        if since.len() > MOST_SINCE {
            let why = format!("{} properties written@SNAPSHOT, at most {MOST_SINCE} at a time", since.len());
            return Err(Failure::cannot("list", &what, why));
        }
        let mut listing = self.datasets.begin_list(&request, &since);
        if let Some(ListRange { skip, most }) = range {
            listing.restrict(skip, most);
        }
        let mut parts = Parts::default();
        while let Some(step) = self.datasets.list_step(&mut listing).or_refused("open", &what)? {
            for listed in &step {
                job.check()?;
                parts.push(self.dataset_record(listed, &properties, job)?, job)?;
            }
        }
        parts.finish(job)?;
        Ok(listing.total())
    }

    fn dataset_record(&self, listed: &Listed, names: &[String], job: &Job<'_>) -> Result<DatasetRecord, Failure> {
        let native = || DATASET.iter().chain(DATASET_CONSTANTS).map(|definition| definition.name.to_owned());
        let own = || listed.user_properties().map(|(name, _)| name.to_owned());
        let names: Vec<String> = if names.is_empty() { native().chain(own()).collect() } else { names.to_vec() };
        let properties = names.into_iter().filter_map(|name| self.property_record(listed, name, job).transpose());
        let properties = properties.collect::<Result<_, Failure>>()?;
        Ok(DatasetRecord { name: listed.name.clone(), createtxg: listed.createtxg(), properties })
    }

    fn property_record(&self, listed: &Listed, name: String, job: &Job<'_>) -> Result<Option<PropertyRecord>, Failure> {
        let Ok(property) = Property::of_dataset(&name) else { return Ok(None) };
        if let Property::Account(account) = &property {
            return match self.may_see(&listed.name, account)? {
                true => self.account_record(&listed.name, account, job),
                false => Ok(None),
            };
        }
        let Some(mut valued) = listed.value(&property) else { return Ok(None) };
        if READONLY.is(&name) && self.engine().read_only() {
            valued = Valued { value: "on".to_owned(), source: Source::Temporary };
        }
        let received = listed.received(&property).map(str::to_owned);
        let value = if MOUNTPOINT.is(&name) { self.places.shown(&valued) } else { valued.value };
        Ok(Some(PropertyRecord { name, value, source: valued.source, received }))
    }

    pub(super) fn create_dataset(
        &self,
        name: &DatasetName,
        parents: bool,
        assignments: &[Assignment],
        no_mount: bool,
        dry_run: bool,
    ) -> Result<Vec<DatasetName>, Failure> {
        if dry_run {
            return self.would_create(name, parents);
        }
        let properties = given_to_datasets(assignments);
        let request = CreateRequest { name: name.clone(), parents, properties, owner: owner() };
        let created = self.datasets.create(request).or_refused("create", name)?;
        if !no_mount {
            self.mount_new(&created)?;
        }
        Ok(created)
    }

    fn would_create(&self, name: &DatasetName, parents: bool) -> Result<Vec<DatasetName>, Failure> {
        if self.is_there(name) {
            let refused = Failure::cannot("create", name, "dataset already exists");
            return if parents { Ok(Vec::new()) } else { Err(refused) };
        }
        let mut missing = self.missing_above(name);
        if !parents && !missing.is_empty() {
            return Err(
                Failure::cannot("create", name, "parent does not exist").hint("use -p to create missing parents")
            );
        }
        missing.push(name.clone());
        Ok(missing)
    }

    pub(super) fn is_there(&self, name: &DatasetName) -> bool {
        self.datasets.resolve(&Name::Dataset(name.clone())).is_ok()
    }

    /// The missing ancestors of `name`, topmost first.
    pub(super) fn missing_above(&self, name: &DatasetName) -> Vec<DatasetName> {
        let above = std::iter::successors(name.parent(), DatasetName::parent);
        let mut missing: Vec<DatasetName> = above.take_while(|name| !self.is_there(name)).collect();
        missing.reverse();
        missing
    }

    /// Mounts newly created datasets. The datasets stay even if a mount fails.
    pub(super) fn mount_new(&self, created: &[DatasetName]) -> Result<(), Failure> {
        let Some(mounts) = &self.mounts else { return Ok(()) };
        let mounted = mounts.mount_all(Some(created), &Manner::default());
        mounted.map_err(|failure| failure.after("filesystem successfully created, but not mounted"))
    }

    pub(super) fn destroy_dataset(
        &self,
        request: DestroyRequest,
        force: bool,
        dry_run: bool,
        patience: &Patience<'_, '_>,
    ) -> Result<DestroyRecord, Failure> {
        let name = request.name.clone();
        if dry_run {
            return self.datasets.destroy(request, true).or_advised("destroy", name, to_destroy).map(record);
        }
        let doomed = patience.for_readers(|| self.datasets.doomed(request.clone()))?;
        let doomed = doomed.or_advised("destroy", &name, to_destroy)?;
        self.unmounted(&doomed, force, || {
            patience
                .for_readers(|| self.datasets.destroy(request.clone(), false))?
                .or_advised("destroy", &name, to_destroy)
        })
    }

    pub(super) fn destroy_snapshots(
        &self,
        request: DestroySnapshotsRequest,
        dry_run: bool,
        patience: &Patience<'_, '_>,
    ) -> Result<DestroyRecord, Failure> {
        let what = String::from(request.set.clone());
        if dry_run {
            return self.datasets.destroy_snapshots(request, true).or_advised("destroy", &what, to_destroy).map(record);
        }
        let doomed = patience.for_readers(|| self.datasets.doomed_with_snapshots(request.clone()))?;
        self.unmounted(&doomed.or_advised("destroy", &what, to_destroy)?, false, || {
            let destroy = || self.datasets.destroy_snapshots(request.clone(), false);
            patience.for_readers(destroy)?.or_advised("destroy", &what, to_destroy)
        })
    }

    /// Runs a destruction of `names` after unmounting the datasets among them. After a failure, the datasets are
    /// mounted again.
    fn unmounted(
        &self,
        names: &[String],
        force: bool,
        destroy: impl FnOnce() -> Result<Destroyed, Failure>,
    ) -> Result<DestroyRecord, Failure> {
        let mounted = self.unmount_named(names, force)?;
        let destroyed = destroy().inspect_err(|_| self.mount_back(&mounted))?;
        self.background.free();
        if let Some(mounts) = &self.mounts {
            mounts.snapshots_changed(&destroyed.names);
        }
        Ok(record(destroyed))
    }

    /// Unmounts the datasets and snapshots among `names`.
    pub(super) fn unmount_named(&self, names: &[String], force: bool) -> Result<Vec<Unmounted>, Failure> {
        let Some(mounts) = &self.mounts else { return Ok(Vec::new()) };
        let datasets: Vec<Name> = names.iter().filter_map(|name| name.parse().ok()).collect();
        mounts.unmount_these(&datasets, force)
    }

    /// Mounts again after the change that required the unmount has failed.
    pub(super) fn mount_back(&self, unmounted: &[Unmounted]) {
        self.mounts.iter().for_each(|mounts| mounts.mount_back(unmounted));
    }

    pub(super) fn destroy_bookmark(&self, name: &BookmarkName, dry_run: bool) -> Result<DestroyRecord, Failure> {
        self.datasets.resolve(&Name::Bookmark(name.clone())).or_refused("destroy", name)?;
        if !dry_run {
            self.datasets.destroy_bookmark(name).or_refused("destroy", name)?;
        }
        Ok(DestroyRecord { names: vec![name.to_string()], reclaim: 0 })
    }

    pub(super) fn rename(
        &self,
        from: &Name,
        to: &Name,
        parents: bool,
        recursive: bool,
        no_mount: bool,
        force: bool,
    ) -> Result<(), Failure> {
        match (from, to) {
            (Name::Dataset(from), Name::Dataset(to)) => self.rename_dataset(from, to, parents, no_mount, force),
            (Name::Snapshot(from), Name::Snapshot(to)) if from.dataset() == to.dataset() => {
                self.datasets.rename_snapshot(from, to.snapshot(), recursive).or_refused("rename", from)?;
                if let Some(mounts) = &self.mounts {
                    mounts.snapshots_renamed(from, to.snapshot(), recursive);
                    mounts.snapshots_changed(&[from.to_string()]);
                }
                Ok(())
            }
            (Name::Snapshot(_), Name::Snapshot(_)) => {
                Err(Failure::cannot("rename", from, "snapshots must be part of same dataset"))
            }
            _ => Err(Failure::cannot("rename", from, format!("'{to}' is of another type"))),
        }
    }

    fn rename_dataset(
        &self,
        from: &DatasetName,
        to: &DatasetName,
        parents: bool,
        no_mount: bool,
        force: bool,
    ) -> Result<(), Failure> {
        let rename = || self.datasets.rename(from, to, parents, owner()).or_refused("rename", from);
        let mounts = match &self.mounts {
            Some(mounts) if !no_mount => mounts,
            Some(mounts) => return rename().map(|renamed| mounts.renamed(&renamed.datasets)),
            None => return rename().map(drop),
        };
        let created = if parents { self.missing_above(to) } else { Vec::new() };
        let unmounted = mounts.unmount_within(from, force)?;
        let renamed = rename().inspect_err(|_| mounts.mount_back(&unmounted))?;
        mounts.renamed(&renamed.datasets);
        let above = mounts.mount_all(Some(&created), &Manner::default());
        above.and(mounts.mount_again(&unmounted))
    }

    pub(super) fn mount(
        &self,
        name: Option<&DatasetName>,
        options: &[Assignment],
        overlay: bool,
    ) -> Result<(), Failure> {
        let mounts = self.mount_table()?;
        let how = Manner { temporary: options, overlay, at: None };
        match name {
            Some(name) => mounts.mount(name, &how),
            None => mounts.mount_all(None, &how),
        }
    }

    /// Mounts at the directory given to mount(8), or changes the options of such a mount.
    pub(super) fn mount_at(
        &self,
        name: &Name,
        directory: &Path,
        options: &[Assignment],
        remount: bool,
    ) -> Result<(), Failure> {
        let mounts = self.mount_table()?;
        match remount {
            true => mounts.remount_by_hand(name, directory, options),
            false => mounts.mount_by_hand(name, directory, options),
        }
    }

    pub(super) fn unmount(&self, target: Option<&UnmountTarget>, force: bool) -> Result<(), Failure> {
        let mounts = match (target, &self.mounts) {
            (None, None) => return Ok(()),
            _ => self.mount_table(),
        };
        match target {
            None => mounts?.unmount_all(force),
            Some(UnmountTarget::Dataset(name)) => {
                self.datasets.resolve(name).or_refused("unmount", name)?;
                match mounts {
                    Ok(mounts) => mounts.unmount(name, force),
                    Err(_) => Err(Failure::not_mounted(name)),
                }
            }
            Some(UnmountTarget::Mountpoint(path)) => match mounts {
                Ok(mounts) => mounts.unmount_at(Path::new(path.as_os_str()), force),
                Err(_) => Err(Failure::not_mounted(path.to_text())),
            },
        }
    }

    fn mount_table(&self) -> Result<&Mounts, Failure> {
        let why = "without the pool's service no file system can be mounted";
        let hint = "use fs ls, fs cat and fs cp";
        self.mounts.as_deref().ok_or_else(|| Failure::cannot("mount", self.name(), why).hint(hint))
    }

    /// The id of a dataset.
    pub(super) fn id_of(&self, name: &DatasetName) -> Result<u64, Failure> {
        match self.datasets.resolve(&Name::Dataset(name.clone())).or_refused("open", name)? {
            Target::Dataset(id) => Ok(id),
            _ => Err(Failure::no_dataset(name)),
        }
    }
}

fn record(destroyed: Destroyed) -> DestroyRecord {
    DestroyRecord { names: destroyed.names, reclaim: destroyed.reclaimed }
}

/// Removes duplicate names and keeps the order: repeating a name in a request must not make the answer longer.
pub(super) fn each_once(names: &[String]) -> Vec<String> {
    let mut known = HashSet::new();
    names.iter().filter(|name| known.insert(name.as_str())).cloned().collect()
}
