//! Dry runs: the mounts to be ended, made, or made again by a change.
//!
//! A mount in use refuses the change, as in the real run. The kernel reports the use only at an unmount, so a dry
//! run looks for users of the mount in `/proc`: files, directories and mappings of processes, and mounts inside. A
//! service of an ordinary user does not see the processes of other users there.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use dataset::{
    admin::ForeseenPlace,
    name::{DatasetName, Name},
    property::CanMount,
};
use fuse_mount::{Error, mounted_at, mountpoints_below};
use protocol::{Failure, ForeseenMountRecord, PathBytes};

use super::{Active, Mounts};

/// Begins the failure of a change if only the mount would fail.
const LATE: &str = "property would be set, but the filesystem would not be mounted";

/// A mount to be ended by a change.
struct Doomed {
    id: u64,
    name: Name,
    path: PathBuf,
    device: (u32, u32),
    by_hand: bool,
}

impl Mounts {
    /// The mounts within `top` before and after a change that moves them to `places`. With `mounts_top`, `top` would be
    /// mounted even if not mounted now.
    pub(crate) fn foresee_move(
        &self,
        top: &DatasetName,
        places: &BTreeMap<u64, ForeseenPlace>,
        mounts_top: bool,
        force: bool,
    ) -> Result<Vec<ForeseenMountRecord>, Failure> {
        let doomed = self.doomed(|active| matches!(&active.name, Name::Dataset(name) if name.is_within(top)));
        if !force {
            check_unused(&doomed)?;
        }
        let mut records: Vec<ForeseenMountRecord> = doomed.iter().map(|mount| self.moved(mount, places)).collect();
        let fresh = places.iter().filter(|(id, place)| {
            mounts_top && place.name == *top && place.canmount == CanMount::On && doomed.iter().all(|m| m.id != **id)
        });
        records.extend(fresh.filter_map(|(_, place)| {
            let after = Some(self.path_of(place)?.into());
            Some(ForeseenMountRecord { dataset: place.name.clone().into(), before: None, after })
        }));
        self.check_room(&records, places, &doomed)?;
        Ok(records)
    }

    /// The mounts that would be made anew because options of the mounts of `datasets` change, with the mounts inside.
    pub(crate) fn foresee_remount(&self, datasets: &[&str]) -> Result<Vec<ForeseenMountRecord>, Failure> {
        let stale = self.doomed(|active| datasets.contains(&active.name.as_str()));
        let is_in = |active: &Active| stale.iter().any(|mount| active.mount.mountpoint().starts_with(&mount.path));
        let doomed = self.doomed(is_in);
        let late = "property would be set, but would take effect only after a remount";
        check_unused(&doomed).map_err(|failure| failure.after(late))?;
        let same = |mount: Doomed| {
            let path: PathBytes = mount.path.into();
            ForeseenMountRecord { dataset: mount.name, before: Some(path.clone()), after: Some(path) }
        };
        Ok(doomed.into_iter().map(same).collect())
    }

    /// The mounts of the named datasets and snapshots, which would end.
    pub(crate) fn foresee_end(&self, names: &[String], force: bool) -> Result<Vec<ForeseenMountRecord>, Failure> {
        let doomed = self.doomed(|active| names.iter().any(|name| name == active.name.as_str()));
        if !force {
            check_unused(&doomed)?;
        }
        let ended =
            |mount: Doomed| ForeseenMountRecord { dataset: mount.name, before: Some(mount.path.into()), after: None };
        Ok(doomed.into_iter().map(ended).collect())
    }

    /// The chosen mounts, parents first.
    fn doomed(&self, chosen: impl Fn(&Active) -> bool) -> Vec<Doomed> {
        self.drop_ended();
        let table = self.table.lock();
        let doomed = |(id, active): (&u64, &Active)| Doomed {
            id: *id,
            name: active.name.clone(),
            path: active.mount.mountpoint().to_owned(),
            device: active.mount.device(),
            by_hand: active.by_hand,
        };
        let mut all: Vec<Doomed> = table.iter().filter(|(_, active)| chosen(active)).map(doomed).collect();
        all.sort_by(|a, b| a.path.cmp(&b.path));
        all
    }

    fn path_of(&self, place: &ForeseenPlace) -> Option<PathBuf> {
        let path = self.places.shown(&place.mountpoint);
        (path.starts_with('/') && place.canmount != CanMount::Off).then(|| path.into())
    }

    fn moved(&self, mount: &Doomed, places: &BTreeMap<u64, ForeseenPlace>) -> ForeseenMountRecord {
        let place = places.get(&mount.id);
        let stays = mount.by_hand && place.is_some_and(|place| place.mountpoint.value == "legacy");
        let after = if stays { Some(mount.path.clone()) } else { place.and_then(|place| self.path_of(place)) };
        let before = Some(mount.path.clone().into());
        ForeseenMountRecord { dataset: mount.name.clone(), before, after: after.map(Into::into) }
    }

    /// Refuses a mount point that would be a directory with content.
    fn check_room(
        &self,
        records: &[ForeseenMountRecord],
        places: &BTreeMap<u64, ForeseenPlace>,
        doomed: &[Doomed],
    ) -> Result<(), Failure> {
        let is_doomed = |name: &str| doomed.iter().any(|mount| mount.name.as_str() == name);
        let hides =
            |path: &Path| places.values().any(|place| place.overlay && self.path_of(place).as_deref() == Some(path));
        for record in records.iter().filter(|record| record.after != record.before) {
            let Some(path) = record.after.as_ref().map(|path| Path::new(path.as_os_str())) else { continue };
            // Content of a file system moves along with the mount.
            let is_inside = doomed.iter().any(|mount| path.starts_with(&mount.path));
            let has_content = fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some());
            if let Ok(Some(other)) = mounted_at(path).map(|at| at.filter(|other| !is_doomed(&other.dataset))) {
                let taken = Error::Taken { mountpoint: path.to_owned(), dataset: other.dataset };
                return Err(Failure::cannot("mount", &record.dataset, taken).after(LATE));
            }
            if has_content && !is_inside && !hides(path) {
                let name = &record.dataset;
                let why = format!("{}: directory is not empty", path.display());
                let hint = format!("to mount over the files: fs set overlay=on {name}");
                let failure = Failure::cannot("mount", name, why).hint(hint);
                return Err(failure.after(LATE));
            }
        }
        Ok(())
    }
}

/// Fails if one of the mounts is in use.
fn check_unused(doomed: &[Doomed]) -> Result<(), Failure> {
    let used = used(doomed);
    // Children are unmounted first, and so refuse first.
    for mount in doomed.iter().rev() {
        let is_foreign = |path: &PathBuf| doomed.iter().all(|other| other.path != mount.path.join(path));
        let has_foreign = || mountpoints_below(&mount.path).is_ok_and(|below| below.iter().any(is_foreign));
        if used.contains(&mount.id) || has_foreign() {
            return Err(Failure::new(Error::Busy { mountpoint: mount.path.clone() }.to_string()));
        }
    }
    Ok(())
}

/// The mounts in use by another process.
fn used(doomed: &[Doomed]) -> Vec<u64> {
    let own = std::process::id().to_string();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_number = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    let is_other = |name: &Path| name.to_str().is_some_and(|name| is_number(name) && name != own);
    let folders =
        processes.map(|entry| entry.path()).filter(|path| path.file_name().map(Path::new).is_some_and(is_other));
    let mut used = Vec::new();
    for folder in folders.filter(|_| !doomed.is_empty()) {
        let opened = fs::read_dir(folder.join("fd")).into_iter().flatten().flatten().map(|entry| entry.path());
        let links = ["cwd", "root", "exe"].map(|name| folder.join(name)).into_iter().chain(opened);
        for target in links.filter_map(|link| fs::read_link(link).ok()) {
            // The innermost mount has the file.
            let mount = doomed.iter().rfind(|mount| target.starts_with(&mount.path));
            used.extend(mount.map(|mount| mount.id));
        }
        let maps = fs::read_to_string(folder.join("maps")).unwrap_or_default();
        let devices = maps.lines().filter_map(mapped);
        used.extend(
            devices.filter_map(|device| doomed.iter().find(|mount| mount.device == device)).map(|mount| mount.id),
        );
    }
    used
}

/// The device in a line of `/proc/PID/maps`: `7f..-7f.. r--p 00000000 00:2a 7 /path`.
fn mapped(line: &str) -> Option<(u32, u32)> {
    let (major, minor) = line.split_whitespace().nth(3)?.split_once(':')?;
    Some((u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_tells_its_device() {
        assert_eq!(mapped("7f00-7f10 r--p 00000000 00:2a 7   /mnt/a b"), Some((0, 42)));
        assert_eq!(mapped("garbage"), None);
    }
}
