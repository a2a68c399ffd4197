//! Mounts by mount(8): file systems with `mountpoint=legacy`, and snapshots, mounted where the user says.
//!
//! The pool does not record mounts by mount(8), nor the options of `fs mount`. So the service remembers each such mount
//! in a file beside the registry entry of the pool. The file is replaced as a whole whenever a mount is made, changed
//! or ended. A newly started service restores the mounts together with all others, so the mounts survive a crash of
//! the service and a restart; an export forgets the mounts. A mount by `fs mount` does not survive a boot of the
//! machine, as with OpenZFS. A failed mount does not stop the rest, and stays remembered until the mount succeeds or
//! is unmounted. A crash between a mount and the write of the file loses only the new mount, before the command was
//! answered.
//!
//! Entries of the file are checked against the pool: the id identifies a file system or snapshot, and the name only
//! helps to find the dataset.

use std::{
    collections::BTreeMap,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use dataset::{
    name::{Name, SnapshotName},
    property::dataset::READONLY,
};
use fuse_mount::Mount;
use parking_lot::Mutex;
use protocol::{Assignment, Failure, given};

use super::{Active, Manner, Mounts, Unmounted, clear_way};
use crate::{
    dead_mounts,
    remembered::{self, Asked, Remembered},
};

/// The memory of mounts by mount(8).
#[derive(Default)]
pub(super) struct Memory(Mutex<Option<Written>>);

struct Written {
    file: PathBuf,
    says: Vec<Remembered>,
    /// Mounts of an earlier service not yet made by the current service.
    pending: Vec<Remembered>,
}

/// Inode number of this process's mount namespace.
pub fn mount_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/mnt").map_or(0, |namespace| namespace.ino())
}

/// Refuses a mount invisible to the caller, who is in another mount namespace.
pub(crate) fn check_namespace(name: &Name, of_caller: u64) -> Result<(), Failure> {
    if of_caller == mount_namespace() {
        return Ok(());
    }
    let why = "the pool's service runs in another mount namespace, and would mount there";
    Err(Failure::cannot("mount", name, why)
        .hint("mount outside of this container, and bind-mount the directory into the container"))
}

impl Mounts {
    /// Mounts a file system or a snapshot on a directory.
    pub(crate) fn mount_by_hand(&self, name: &Name, place: &Path, options: &[Assignment]) -> Result<(), Failure> {
        self.drop_ended();
        let refused = |why: &str| Failure::cannot("mount", name, why);
        let mut plan = self.plan_with(name, options)?;
        match name {
            Name::Dataset(_) if plan.mountpoint != "legacy" => {
                let hint = format!("fs mount {name}; or, to mount it by mount(8): fs set mountpoint=legacy {name}");
                return Err(refused("its mountpoint is not 'legacy'").hint(hint));
            }
            Name::Bookmark(_) => return Err(refused("a bookmark has no files")),
            _ => {}
        }
        let _turn = self.turn.lock();
        if let Some(mount) = self.mount_of(plan.id) {
            let at = mount.mountpoint().display();
            return Err(refused(&format!("already mounted at {at}"))
                .hint(format!("to mount the file system twice: mount --bind {at} DIRECTORY")));
        }
        clear_way(place).map_err(|error| refused(&error.to_string()))?;
        if !place.is_dir() {
            return Err(refused(&format!("{} is not a directory", place.display())));
        }
        plan.at = Some(place.to_owned());
        self.mount_planned(plan, &Manner { temporary: options, overlay: true, at: Some(place) })?;
        self.remember();
        Ok(())
    }

    /// Changes the options of the mount on a directory, until the unmount.
    pub(crate) fn remount_by_hand(&self, name: &Name, place: &Path, options: &[Assignment]) -> Result<(), Failure> {
        self.drop_ended();
        let refused = |why: String| Failure::cannot("remount", name, why);
        let found = {
            let table = self.table.lock();
            let is_it = |(_, active): &(&u64, &Active)| active.name == *name && active.mount.mountpoint() == place;
            table.iter().find(is_it).map(|(id, active)| (*id, active.mount.clone(), active.temporary.clone()))
        };
        let Some((id, mount, before)) = found else {
            return Err(refused(format!("it is not mounted at {}", place.display())));
        };
        if matches!(name, Name::Snapshot(_)) && given(options, &READONLY) == Some(false) {
            return Err(refused("a snapshot is read-only".to_owned()));
        }
        // After a remount to read-only, changes made through mappings would be refused.
        mount.write_back();
        let values: BTreeMap<_, _> = before.iter().chain(options).map(|given| (&given.name, &given.value)).collect();
        let after: Vec<Assignment> =
            values.into_iter().map(|(name, value)| Assignment { name: name.clone(), value: value.clone() }).collect();
        let followed = self.follow(name, &mount, &after);
        if followed.is_err() {
            // The mount is unchanged, so the recorded options must be the old ones.
            self.note(&self.plan_with(name, &before)?, place, &before);
        } else if let Some(active) = self.table.lock().get_mut(&id) {
            active.temporary = after;
        }
        self.remember();
        followed
    }

    fn follow(&self, name: &Name, mount: &Mount, temporary: &[Assignment]) -> Result<(), Failure> {
        self.note(&self.plan_with(name, temporary)?, mount.mountpoint(), temporary);
        let plan = self.plan_with(name, temporary)?;
        mount.remount(&plan.options).map_err(|error| Failure::new(error.to_string()))
    }

    /// Records the new name of a snapshot, with `recursive` also of the same-named snapshots of descendants.
    pub(crate) fn snapshots_renamed(&self, from: &SnapshotName, to: &str, recursive: bool) {
        let is_meant = |name: &SnapshotName| match recursive {
            true => name.snapshot() == from.snapshot() && name.dataset().is_within(&from.dataset()),
            false => name == from,
        };
        for active in self.table.lock().values_mut() {
            if let Name::Snapshot(name) = &active.name
                && is_meant(name)
                && let Ok(name) = name.dataset().snapshot(to)
            {
                active.name = Name::Snapshot(name);
            }
        }
        self.remember();
    }

    /// From now on, remembers mounts in this file.
    pub(crate) fn remember_in(&self, file: PathBuf) {
        let says = remembered::read(&file).unwrap_or_else(|failure| {
            tracing::error!("{failure}");
            Vec::new()
        });
        let boot = remembered::boot();
        let is_of_boot = |one: &&Remembered| one.asked.as_ref().is_none_or(|asked| asked.boot == boot);
        let pending = says.iter().filter(is_of_boot).cloned().collect();
        if let Some(registry) = file.parent() {
            self.owner.get_or_init(|| dead_mounts::owner(registry));
        }
        *self.memory.0.lock() = Some(Written { file, pending, says });
    }

    /// Mounts of an earlier service that this service has yet to make: those by mount(8), or the others. Forgets mounts
    /// of file systems that are gone.
    pub(super) fn pending(&self, by_hand: bool) -> Vec<Unmounted> {
        let pending = match &*self.memory.0.lock() {
            Some(written) => written.pending.clone(),
            None => return Vec::new(),
        };
        let mut mounts: Vec<Unmounted> =
            pending.iter().filter(|one| one.asked.is_none() == by_hand).map(Unmounted::remembered).collect();
        mounts.retain(|one| self.name_of(one).is_some());
        let is_there =
            |one: &Remembered| one.asked.is_none() != by_hand || mounts.iter().any(|mount| mount.id() == one.id);
        self.memory.0.lock().iter_mut().for_each(|written| written.pending.retain(is_there));
        mounts
    }

    /// Forgets a pending mount; `false` if there is none.
    pub(super) fn forget_pending(&self, name: &Name) -> bool {
        let is_it = |one: &Remembered| self.name_of(&Unmounted::remembered(one)).is_some_and(|now| now == *name);
        let is_forgotten = match &mut *self.memory.0.lock() {
            Some(written) => written.pending.extract_if(.., |one| is_it(one)).count() > 0,
            None => false,
        };
        self.remember();
        is_forgotten
    }

    /// Leaves the file as it is: the service ends, and the next service makes the mounts again.
    pub(crate) fn keep_memory(&self) {
        *self.memory.0.lock() = None;
    }

    /// Rewrites the file if the mounts have changed.
    pub(super) fn remember(&self) {
        let mut memory = self.memory.0.lock();
        let Some(Written { file, says, pending }) = &mut *memory else { return };
        let now: Vec<Remembered> = {
            let table = self.table.lock();
            pending.retain(|one| !table.contains_key(&one.id));
            let special = table.iter().filter(|(_, active)| !active.is_plain());
            special.map(|(id, active)| remembered(*id, active)).chain(pending.iter().cloned()).collect()
        };
        if now == *says {
            return;
        }
        match remembered::write(file, &now) {
            Ok(()) => *says = now,
            Err(failure) => tracing::error!("{failure}"),
        }
    }
}

fn remembered(id: u64, active: &Active) -> Remembered {
    Remembered {
        name: active.name.clone(),
        id,
        dataset: active.dataset,
        directory: active.mount.mountpoint().to_owned().into(),
        options: active.temporary.clone(),
        asked: (!active.by_hand).then(|| Asked { overlay: active.overlay, boot: remembered::boot() }),
    }
}
