//! Pools on the devices of this machine, found by their labels: what `pool import` lists.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fs,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use pool::{
    admin::{MIN_DEVICE, obstacle, probe::probe_foreign, was_renumbered},
    device::{Access, Device, FileDevice},
    error::{Error, Holder},
    format::{
        label::{Label, PoolState, classes::VdevClass, usable_size},
        vdev_config::{LeafConfig, MemberConfig, VdevConfig, VdevTree},
    },
    units::Guid,
    vdev::labels::read_label,
};
use protocol::{Failure, FoundVdev, ImportablePool, PathBytes, State, USUAL_PLACE, VdevRole, Wanted};

use super::{
    devices::{host, label_of},
    layout::role_of,
};
use crate::registry::{DevicePath, distinct};

/// A pool found by scanning device labels.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// The label with the newest txg among the devices.
    pub(crate) label: Label,
    /// Paths of the devices found, by device GUID.
    pub(crate) paths: BTreeMap<Guid, PathBuf>,
}

impl Found {
    /// The pool GUIDs in the labels of the devices: two while the GUID is being changed.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        let own = self.paths.values().filter_map(|path| label_of(path)).map(|label| label.pool.0);
        own.chain([self.label.pool.0]).collect()
    }

    /// Last known paths of the devices that the label names and the scan did not find.
    pub(crate) fn missing(&self) -> Vec<String> {
        let leaves = self.label.vdevs.iter().flat_map(|vdev| vdev.tree.leaves());
        leaves.filter(|leaf| !self.paths.contains_key(&leaf.guid)).map(|leaf| leaf.path.clone()).collect()
    }

    /// The missing devices without which the pool cannot be opened. Log devices do not count: whether the pool can be
    /// opened without its log depends on the last log writes.
    fn needed(&self) -> Vec<String> {
        self.needed_of(|vdev| !self.is_log(vdev))
    }

    fn is_log(&self, vdev: &VdevConfig) -> bool {
        self.label.sections.classes.get(&vdev.id) == Some(&VdevClass::Log)
    }

    /// The missing devices without which the chosen vdevs cannot be used.
    fn needed_of(&self, is_meant: impl Fn(&VdevConfig) -> bool) -> Vec<String> {
        let is_missing = |leaf: &&LeafConfig| !self.paths.contains_key(&leaf.guid);
        let paths = |leaves: Vec<&LeafConfig>| {
            leaves.into_iter().filter(is_missing).map(|leaf| leaf.path.clone()).collect::<Vec<_>>()
        };
        let needed = |vdev: &VdevConfig| match vdev.tree.guid() {
            Some(_) => {
                let members = vdev.tree.in_columns();
                let whole: Vec<_> = members.into_iter().filter(|(_, m)| m.behind.is_none() && !m.is_offline).collect();
                let there = whole.iter().filter(|(_, member)| !is_missing(&&member.leaf)).map(|(column, _)| *column);
                match vdev.tree.suffice(there) {
                    true => Vec::new(),
                    false => paths(whole.iter().map(|(_, member)| &member.leaf).collect()),
                }
            }
            None => paths(vdev.tree.leaves().collect()),
        };
        self.label.vdevs.iter().filter(|vdev| is_meant(vdev)).flat_map(needed).collect()
    }

    /// Refuses a pool with missing devices that opening needs.
    pub(crate) fn complete(&self) -> Result<(), Failure> {
        let refused = |why: String| {
            let name = &self.label.pool_name;
            let hint = format!("search the directories of all devices: pool import -d DIR -d DIR {name}");
            Err(Failure::cannot("import", name, why).hint(hint))
        };
        match &self.needed()[..] {
            [] => Ok(()),
            [missing] => refused(format!("its device {missing} is missing")),
            several => refused(format!("its devices {} are missing", several.join(", "))),
        }
    }

    /// Paths of the devices in the order of the label, each once: the last known path of a missing device may belong
    /// to another device now.
    pub(crate) fn in_order(&self) -> Vec<DevicePath> {
        let members = || self.label.vdevs.iter().flat_map(|vdev| vdev.tree.leaves());
        let spares = self.label.sections.spares.iter().map(|spare| &spare.leaf);
        let is_idle = |spare: &&LeafConfig| members().all(|leaf| leaf.guid != spare.guid);
        let caches = self.label.sections.caches.iter().map(|cache| &cache.leaf);
        let leaves = members().chain(spares.filter(is_idle)).chain(caches);
        // A missing device may come back at its last known path.
        let path = |leaf: &LeafConfig| self.paths.get(&leaf.guid).cloned().unwrap_or_else(|| PathBuf::from(&leaf.path));
        distinct(&leaves.map(|leaf| path(leaf).into()).collect::<Vec<_>>())
    }

    /// As [`Found::in_order`], without missing devices.
    pub(crate) fn present(&self) -> Vec<DevicePath> {
        let is_there = |path: &DevicePath| self.paths.values().any(|found| *found == path.to_path());
        self.in_order().into_iter().filter(is_there).collect()
    }

    /// Whether the pool was destroyed.
    pub(crate) fn is_destroyed(&self) -> bool {
        self.label.state == PoolState::Destroyed
    }

    /// The process that has the pool open, as far as known: a service of another user, or a service with separate
    /// state folders.
    pub(crate) fn holder(&self) -> Option<Holder> {
        self.paths.values().find_map(|path| FileDevice::open(path, Access::Glance).ok()?.holder())
    }

    /// Whether this user or the system has the pool open already. A process of another user does not hide a pool: the
    /// process may hold the lock only to hide the pool, and the import names the process.
    pub(crate) fn is_in_use(&self) -> bool {
        self.holder().is_some_and(|holder| holder.other_users_process().is_none())
    }

    /// Whether a device without redundancy is smaller than it was.
    fn is_cut_short(&self) -> bool {
        let alone = self.label.vdevs.iter().filter(|vdev| matches!(vdev.tree, VdevTree::Leaf(_)));
        let mut leaves = alone.flat_map(|vdev| vdev.tree.leaves());
        leaves.any(|leaf| self.paths.get(&leaf.guid).is_some_and(|path| is_cut_short(leaf, path)))
    }

    /// Path of one device in a split (split brain): a device changed separately from the rest.
    fn split_device(&self) -> Option<String> {
        let glance = |path: &PathBuf| Some(Arc::new(FileDevice::open(path, Access::Glance).ok()?) as Arc<dyn Device>);
        match obstacle(&self.paths.values().filter_map(glance).collect::<Vec<_>>()) {
            Some(Error::Split { device, .. }) => Some(device),
            _ => None,
        }
    }

    /// Describes a device, indented to its depth in the pool. A device that no import brings back online by itself is
    /// reported so.
    fn describe_device(&self, leaf: &LeafConfig, depth: usize) -> FoundVdev {
        let path = self.paths.get(&leaf.guid);
        let is_there = path.is_some_and(|path| !is_cut_short(leaf, path));
        let mut members = self.label.vdevs.iter().flat_map(|vdev| vdev.tree.members());
        let out = members.find(|member| member.leaf.guid == leaf.guid && member.is_offline);
        let is_unwanted = self.label.sections.out_of_use.contains_key(&leaf.guid);
        let state = match out {
            Some(member) if self.label.had_too_many_errors(member) => State::Faulted,
            Some(_) => State::Offline,
            None if is_unwanted && self.label.is_cache(leaf.guid) => State::Offline,
            None if is_there => State::Online,
            None => State::Unavail,
        };
        let name = path.map_or_else(|| leaf.path.clone(), |path| path.display().to_string());
        FoundVdev { role: VdevRole::Normal, depth, name, state: Some(state) }
    }

    /// The spares and the cache devices. A device that is present has no state, as in ZFS.
    fn describe_others(&self) -> (Vec<FoundVdev>, Vec<FoundVdev>) {
        let sections = &self.label.sections;
        let device = |leaf: &LeafConfig| {
            let mut found = self.describe_device(leaf, 0);
            found.state = found.state.filter(|state| *state != State::Online);
            found
        };
        let caches = sections.caches.iter().map(|cache| FoundVdev { role: VdevRole::Cache, ..device(&cache.leaf) });
        (caches.collect(), sections.spares.iter().map(|spare| device(&spare.leaf)).collect())
    }

    /// A vdev and its devices; the members of a mirror or a RAID-Z are indented.
    fn describe_vdev(&self, vdev: &VdevConfig) -> Vec<FoundVdev> {
        let role = role_of(vdev.id, &self.label.sections.classes);
        let group = vdev.tree.group_name(vdev.id);
        let depth = usize::from(group.is_some());
        let mut devices: Vec<_> =
            vdev.tree.leaves().map(|leaf| FoundVdev { role, ..self.describe_device(leaf, depth) }).collect();
        if let Some(name) = group {
            let is_usable = |((_, member), found): &((usize, &MemberConfig), &FoundVdev)| {
                member.behind.is_none() && found.state == Some(State::Online)
            };
            let usable = vdev.tree.in_columns().into_iter().zip(&devices).filter(is_usable);
            let is_enough = vdev.tree.suffice(usable.map(|((column, _), _)| column));
            let state = match (is_enough, devices.iter().all(|found| found.state == Some(State::Online))) {
                (false, _) => State::Unavail,
                (true, false) => State::Degraded,
                (true, true) => State::Online,
            };
            devices.insert(0, FoundVdev { role, depth: 0, name, state: Some(state) });
        }
        devices
    }

    /// Description of the pool for the user.
    pub(crate) fn describe(&self) -> ImportablePool {
        let (caches, spares) = self.describe_others();
        let mut vdevs: Vec<_> = self.label.vdevs.iter().flat_map(|vdev| self.describe_vdev(vdev)).collect();
        let is_degraded = vdevs.iter().any(|found| found.depth == 0 && found.state == Some(State::Degraded));
        vdevs.extend(caches);
        let elsewhere = self.label.state == PoolState::Active && self.label.host_id != host().0;
        let (state, status, action) = if !self.needed().is_empty() {
            (
                State::Unavail,
                Some("One or more devices are missing from the system.".to_owned()),
                "The pool cannot be imported. Attach the missing devices and try again.",
            )
        } else if let Some(device) = self.split_device() {
            let status = format!(
                "Devices were modified separately (split brain): {device}\n\
                 and the other devices."
            );
            let action = "Import one side while the devices of the other side are disconnected, then\n\
                          detach the other devices (pool detach), and attach them again (pool attach),\n\
                          which discards their content.";
            (State::Unavail, Some(status), action)
        } else if !self.needed_of(|vdev| self.is_log(vdev)).is_empty() && !elsewhere {
            let status = "Devices of the intent log are missing from the system.";
            let action = "Connect the devices and import the pool, or use the '-m' flag, which discards\n\
                          synchronous writes since the last commit.";
            (State::Degraded, Some(status.to_owned()), action)
        } else if !self.missing().is_empty() && !elsewhere {
            let status = "One or more devices are missing from the system.\nThe remaining devices have all data.";
            let action = "The pool can be imported despite missing devices, in a degraded state.";
            (State::Degraded, Some(status.to_owned()), action)
        } else if self.is_cut_short() {
            (
                State::Unavail,
                Some("One or more devices are smaller than before.".to_owned()),
                "The pool cannot be imported.\nRestore the original size of the devices and try again.",
            )
        } else if elsewhere {
            let status = format!("The pool was last used by host '{}'.", self.label.host_name);
            (
                State::Online,
                Some(status),
                "The pool can be imported using its name or numeric identifier and\nthe '-f' flag.",
            )
        } else if is_degraded {
            let status = "One or more devices are offline, or faulted after too many errors.";
            let action = "The pool can be imported in a degraded state.";
            (State::Degraded, Some(status.to_owned()), action)
        } else {
            (State::Online, None, "The pool can be imported using its name or numeric identifier.")
        };
        let back = match self.is_destroyed() && state != State::Unavail {
            true => "\nThe pool was destroyed; the '-D' flag recovers it.",
            false => "",
        };
        ImportablePool {
            name: self.label.pool_name.clone(),
            guid: self.label.pool.0,
            is_destroyed: self.is_destroyed(),
            state,
            status,
            action: format!("{action}{back}"),
            vdevs,
            spares,
        }
    }
}

/// Whether a device is smaller than the size in its label.
fn is_cut_short(leaf: &LeafConfig, path: &Path) -> bool {
    FileDevice::open(path, Access::Glance).is_ok_and(|device| usable_size(device.size()) < leaf.size)
}

/// Finds the pools on the devices in `search`, or in the usual place, including pools that are open. Unreadable
/// devices are skipped. The scan takes no lock that could keep another process from opening a pool meanwhile.
pub(crate) fn find(search: &[PathBytes], wanted: Wanted) -> Result<Vec<Found>, Failure> {
    let usual = [PathBytes::from(USUAL_PLACE)];
    let mut found: BTreeMap<Guid, Found> = BTreeMap::new();
    for place in if search.is_empty() { &usual[..] } else { search } {
        for path in candidates(Path::new(place.as_os_str()))? {
            if let Some(label) = label_of(&path) {
                add(&mut found, label, path);
            }
        }
    }
    join_renumbered(&mut found);
    Ok(found.into_values().filter(|found| found.is_destroyed() == (wanted == Wanted::Destroyed)).collect())
}

/// Merges the devices of a pool whose GUID change was interrupted by a power failure.
fn join_renumbered(found: &mut BTreeMap<Guid, Found>) {
    let labels: Vec<Label> = found.values().map(|found| found.label.clone()).collect();
    for label in labels {
        let is_before = |other: &Found| other.label.epoch == label.epoch && other.label.txg < label.txg;
        let former: Vec<Guid> = found.iter().filter(|(_, other)| is_before(other)).map(|(guid, _)| *guid).collect();
        for former in former {
            let others = found.get_mut(&former).expect("it was found");
            let is_of_it = |path: &PathBuf| {
                let device = FileDevice::open(path, Access::Glance).ok()?;
                Some(was_renumbered(&label, &read_label(&device).ok()??, &device))
            };
            let moved: Vec<Guid> =
                others.paths.iter().filter(|(_, path)| is_of_it(path) == Some(true)).map(|(guid, _)| *guid).collect();
            let moved: Vec<(Guid, PathBuf)> =
                moved.into_iter().filter_map(|guid| Some((guid, others.paths.remove(&guid)?))).collect();
            if others.paths.is_empty() {
                found.remove(&former);
            }
            let pool = found.get_mut(&label.pool).expect("it was found");
            for (guid, path) in moved {
                pool.paths.entry(guid).or_insert(path);
            }
        }
    }
}

/// Content of the devices in `search` that belongs to no pool, as far as signatures identify the content.
pub(crate) fn foreign(search: &[PathBytes]) -> Result<Vec<String>, Failure> {
    let mut reported = Vec::new();
    for place in search {
        let report_of = |path: PathBuf| {
            let device = FileDevice::open(&path, Access::Glance).ok()?;
            let what = if label_of(&path).is_some() { None } else { probe_foreign(&device).ok()? };
            what.map(|what| format!("{} holds {what}", path.display()))
        };
        reported.extend(candidates(Path::new(place.as_os_str()))?.into_iter().filter_map(report_of));
    }
    Ok(reported)
}

fn add(found: &mut BTreeMap<Guid, Found>, label: Label, path: PathBuf) {
    let device = label.device;
    let pool = found.entry(label.pool).or_insert_with(|| Found { label: label.clone(), paths: BTreeMap::new() });
    match pool.paths.entry(device) {
        // Two devices with the same GUID: the newer txg wins. The loser is a stale copy, wherever the scan found it.
        Entry::Occupied(mut known) => {
            if label_of(known.get()).is_none_or(|other| other.txg < label.txg) {
                known.insert(path);
            }
        }
        Entry::Vacant(place) => drop(place.insert(path)),
    }
    if label.supersedes(&pool.label) {
        pool.label = label;
    }
}

/// The files and block devices in a directory, sorted, or the single file.
fn candidates(place: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error| Failure::cannot("search", place.display(), error);
    if !place.metadata().map_err(failed)?.is_dir() {
        return Ok(vec![place.to_owned()]);
    }
    let is_candidate = |path: &PathBuf| {
        path.metadata().is_ok_and(|metadata| {
            metadata.file_type().is_block_device() || (metadata.is_file() && metadata.len() >= MIN_DEVICE)
        })
    };
    let entries = fs::read_dir(place).map_err(failed)?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_candidate).collect();
    paths.sort();
    Ok(paths)
}
