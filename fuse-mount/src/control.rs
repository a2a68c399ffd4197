//! `.zfs/snapshot`: the virtual directory through which a mount shows the dataset's snapshots.
//!
//! Each snapshot that was listed or looked up has a [`Slot`], part of the node numbers of its files. The snapshot is
//! opened at the first request that needs more than its name, and closed when the kernel has held none of its nodes for
//! a minute.
//!
//! Snapshots are made and destroyed without a request of the kernel. So each use looks their names up again (lifetime
//! zero), and the directory's modification time changes whenever the list does, upon which the kernel drops its cached
//! listing. The content of a snapshot never changes and may be cached for good.
//!
//! A snapshot that is destroyed while in use is *closed*: its slot stays taken and answers `ESTALE` until the kernel
//! has forgotten the last node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dataset::fs::{Attr, Errno, FileSystem, FileType};
use parking_lot::Mutex;
use pool::env::Nanos;

use crate::node::{Control, Node, Slot};

/// The name of the virtual directory in the root of a mount.
pub(crate) const CONTROL_NAME: &[u8] = b".zfs";
/// The only listed entry of `.zfs`.
pub(crate) const SNAPSHOTS_NAME: &[u8] = b"snapshot";
/// The hidden entry of `.zfs`, see [`Control::Opener`].
pub(crate) const OPENER_NAME: &[u8] = b".open";

/// How long a snapshot stays open after the kernel forgot its last node.
const LINGER: Duration = Duration::from_secs(60);

/// A snapshot of the mounted dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotEntry {
    /// The part of the name after the `@`.
    pub name: String,
    /// When the snapshot was taken. Two snapshots of the same name always differ in it.
    pub creation: Nanos,
}

impl SnapshotEntry {
    /// Tells the generations of this snapshot's files from those of other snapshots, which have the same object
    /// numbers: 32 bits, as many as the kernel keeps.
    fn mark(&self) -> u64 {
        let creation = self.creation.cast_unsigned();
        (creation ^ creation >> 32) & u64::from(u32::MAX)
    }
}

/// The source of a mount's list of snapshots.
pub trait Snapshots: Send + Sync {
    /// All snapshots, in the order of listing.
    fn list(&self) -> Vec<SnapshotEntry>;

    /// The snapshot of this name.
    fn find(&self, name: &str) -> Option<SnapshotEntry> {
        self.list().into_iter().find(|entry| entry.name == name)
    }

    /// The snapshot's file system, read-only.
    fn open(&self, name: &str) -> Result<Arc<FileSystem>, Errno>;
}

struct Opened {
    entry: SnapshotEntry,
    file_system: Option<Arc<FileSystem>>,
    references: u64,
    closed: bool,
    idle_since: Instant,
}

impl Opened {
    fn is_idle(&self, now: Instant) -> bool {
        self.references == 0 && (self.closed || now.duration_since(self.idle_since) >= LINGER)
    }
}

struct Slots {
    taken: BTreeMap<Slot, Opened>,
    next: Slot,
}

struct Listing {
    entries: Vec<SnapshotEntry>,
    changes: Nanos,
}

/// The virtual directories of one mount, and the snapshots open through them.
pub(crate) struct ControlTree {
    source: Arc<dyn Snapshots>,
    root: Attr,
    slots: Mutex<Slots>,
    listing: Mutex<Listing>,
}

impl ControlTree {
    /// The virtual directories for a file system whose root has the attributes `root`.
    pub(crate) fn new(source: Arc<dyn Snapshots>, root: Attr) -> ControlTree {
        let slots = Mutex::new(Slots { taken: BTreeMap::new(), next: Slot::FIRST });
        let listing = Mutex::new(Listing { entries: Vec::new(), changes: 0 });
        ControlTree { source, root, slots, listing }
    }

    /// The attributes of a virtual file or directory.
    pub(crate) fn attr(&self, control: Control) -> Attr {
        match control {
            Control::Root => self.directory(self.root.crtime, 1),
            Control::Snapshots => {
                let (entries, changed) = self.observe();
                self.directory(changed, entries.len())
            }
            Control::Opener => {
                Attr { file_type: FileType::Regular, mode: 0o444, nlink: 1, ..self.directory(self.root.crtime, 0) }
            }
        }
    }

    /// The root of a snapshot before it is opened. The attributes are placeholders, to be read again before use; the
    /// generation is final, because a node with another generation is another file.
    pub(crate) fn unopened_root(&self, entry: &SnapshotEntry) -> Attr {
        Attr { generation: entry.mark(), ..self.directory(entry.creation, 0) }
    }

    /// The [mark](SnapshotEntry::mark) of the snapshot in `slot`.
    pub(crate) fn mark(&self, slot: Slot) -> u64 {
        self.slots.lock().taken.get(&slot).map_or(0, |opened| opened.entry.mark())
    }

    /// The snapshots at present.
    pub(crate) fn list(&self) -> Vec<SnapshotEntry> {
        self.observe().0
    }

    /// The slot of the snapshot `name`. `ENOENT` if the snapshot does not exist.
    pub(crate) fn lookup(&self, name: &[u8]) -> Result<Slot, Errno> {
        let name = std::str::from_utf8(name).map_err(|_| Errno::NOENT)?;
        let entry = self.source.find(name).ok_or(Errno::NOENT)?;
        self.slot(&entry)
    }

    /// The slot of a snapshot, a new slot if it has none. `ENFILE` if none is free.
    pub(crate) fn slot(&self, entry: &SnapshotEntry) -> Result<Slot, Errno> {
        let now = Instant::now();
        let mut slots = self.slots.lock();
        slots.taken.retain(|_, opened| !opened.is_idle(now));
        if let Some((&slot, _)) = slots.taken.iter().find(|(_, opened)| !opened.closed && opened.entry == *entry) {
            return Ok(slot);
        }
        let slot = slots.free().ok_or(Errno::NFILE)?;
        slots.next = slot.next();
        let opened = Opened { entry: entry.clone(), file_system: None, references: 0, closed: false, idle_since: now };
        slots.taken.insert(slot, opened);
        Ok(slot)
    }

    /// The file system of the snapshot in `slot`.
    ///
    /// Opens without the lock, because opening may read from the devices. Of two concurrent opens, the first result is
    /// kept.
    pub(crate) fn file_system(&self, slot: Slot) -> Result<Arc<FileSystem>, Errno> {
        let entry = {
            let slots = self.slots.lock();
            let opened = slots.taken.get(&slot).filter(|opened| !opened.closed).ok_or(Errno::STALE)?;
            if let Some(file_system) = &opened.file_system {
                return Ok(Arc::clone(file_system));
            }
            opened.entry.clone()
        };
        if self.source.find(&entry.name).as_ref() != Some(&entry) {
            return Err(Errno::STALE);
        }
        let file_system = self.source.open(&entry.name)?;
        // It was opened by name, and a new snapshot may just have got the same name.
        if self.source.find(&entry.name).as_ref() != Some(&entry) {
            return Err(Errno::STALE);
        }
        let mut slots = self.slots.lock();
        let opened = slots.taken.get_mut(&slot).filter(|opened| !opened.closed).ok_or(Errno::STALE)?;
        Ok(Arc::clone(opened.file_system.get_or_insert(file_system)))
    }

    /// The name and the files of the snapshot in `slot`, if it can be opened.
    pub(crate) fn named(&self, slot: Slot) -> Option<(String, Arc<FileSystem>)> {
        let name = self.slots.lock().taken.get(&slot).map(|opened| opened.entry.name.clone())?;
        Some((name, self.file_system(slot).ok()?))
    }

    /// Notes that the kernel is given a reference to a node in `slot`.
    pub(crate) fn add(&self, slot: Slot) {
        if let Some(opened) = self.slots.lock().taken.get_mut(&slot) {
            opened.references += 1;
        }
    }

    /// Notes that the kernel returned `count` references.
    pub(crate) fn forget(&self, slot: Slot, count: u64) {
        if let Some(opened) = self.slots.lock().taken.get_mut(&slot) {
            opened.references = opened.references.saturating_sub(count);
            opened.idle_since = Instant::now();
        }
    }

    /// Closes snapshots of which the kernel has held no node for [`LINGER`].
    pub(crate) fn reap(&self, now: Instant) {
        self.slots.lock().taken.retain(|_, opened| !opened.is_idle(now));
    }

    /// Closes the snapshot `name`, even if in use.
    pub(crate) fn close(&self, name: &str) {
        let mut slots = self.slots.lock();
        for opened in slots.taken.values_mut().filter(|opened| opened.entry.name == name) {
            opened.closed = true;
            opened.file_system = None;
        }
        slots.taken.retain(|_, opened| opened.references > 0 || !opened.closed);
    }

    /// Closes the destroyed snapshots, and returns their names.
    pub(crate) fn close_gone(&self) -> Vec<String> {
        let is_open = |opened: &&Opened| !opened.closed;
        let open: Vec<SnapshotEntry> =
            self.slots.lock().taken.values().filter(is_open).map(|opened| opened.entry.clone()).collect();
        let gone = open.into_iter().filter(|entry| self.source.find(&entry.name).as_ref() != Some(entry));
        let gone: Vec<String> = gone.map(|entry| entry.name).collect();
        gone.iter().for_each(|name| self.close(name));
        gone
    }

    /// The snapshots at present, and a time that changes whenever the list does.
    fn observe(&self) -> (Vec<SnapshotEntry>, Nanos) {
        let entries = self.source.list();
        let mut listing = self.listing.lock();
        if listing.entries != entries {
            listing.entries.clone_from(&entries);
            listing.changes += 1;
        }
        let newest = entries.iter().map(|entry| entry.creation).max().unwrap_or(self.root.crtime);
        let changed = newest.saturating_add(listing.changes);
        (entries, changed)
    }

    /// A read-only directory of root's, last changed at `time`.
    fn directory(&self, time: Nanos, subdirectories: usize) -> Attr {
        Attr {
            ino: Node::Control(Control::Root).encode().0,
            generation: 0,
            file_type: FileType::Directory,
            mode: 0o555,
            nlink: 2 + u32::try_from(subdirectories).unwrap_or(u32::MAX - 2),
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            blocks: 0,
            block_size: self.root.block_size,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: self.root.crtime,
        }
    }
}

impl Slots {
    /// The slot that has been free for longest; `None` if all are taken.
    fn free(&self) -> Option<Slot> {
        let mut candidate = self.next;
        loop {
            if !self.taken.contains_key(&candidate) {
                return Some(candidate);
            }
            candidate = candidate.next();
            if candidate == self.next {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(Mutex<Vec<SnapshotEntry>>);

    impl Snapshots for Fixed {
        fn list(&self) -> Vec<SnapshotEntry> {
            self.0.lock().clone()
        }

        fn open(&self, _name: &str) -> Result<Arc<FileSystem>, Errno> {
            Err(Errno::IO)
        }
    }

    fn entry(name: &str, creation: Nanos) -> SnapshotEntry {
        SnapshotEntry { name: name.to_owned(), creation }
    }

    fn tree(entries: Vec<SnapshotEntry>) -> (Arc<Fixed>, ControlTree) {
        let source = Arc::new(Fixed(Mutex::new(entries)));
        let root = Attr {
            ino: dataset::fs::ROOT,
            generation: 0,
            file_type: FileType::Directory,
            mode: 0o755,
            nlink: 2,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            blocks: 0,
            block_size: 4096,
            atime: 0,
            mtime: 0,
            ctime: 0,
            crtime: 0,
        };
        (Arc::clone(&source), ControlTree::new(source, root))
    }

    #[test]
    fn a_new_snapshot_of_the_same_name_gets_another_slot() {
        let (source, tree) = tree(vec![entry("monday", 1), entry("tuesday", 2)]);
        let monday = tree.lookup(b"monday").unwrap();
        assert_eq!(tree.lookup(b"monday"), Ok(monday));
        assert_ne!(tree.lookup(b"tuesday"), Ok(monday));
        *source.0.lock() = vec![entry("monday", 9)];
        assert_ne!(tree.lookup(b"monday"), Ok(monday));
        assert_eq!(tree.lookup(b"tuesday"), Err(Errno::NOENT));
        assert_eq!(tree.lookup(b"\xff"), Err(Errno::NOENT));
    }

    #[test]
    fn the_directory_changes_when_the_list_does() {
        let (source, tree) = tree(vec![entry("monday", 5)]);
        let before = tree.attr(Control::Snapshots);
        assert_eq!(tree.attr(Control::Snapshots).mtime, before.mtime);
        source.0.lock().push(entry("elder", 1));
        let after = tree.attr(Control::Snapshots);
        assert_ne!(after.mtime, before.mtime);
        assert_eq!(after.nlink, before.nlink + 1);
        source.0.lock().remove(0);
        assert_ne!(tree.attr(Control::Snapshots).mtime, before.mtime);
    }

    #[test]
    fn each_snapshot_root_has_its_own_lasting_generation() {
        let (_, tree) =
            tree(vec![entry("monday", 1_700_000_000_000_000_007), entry("tuesday", 1_700_000_000_000_000_008)]);
        let marks = [b"monday".as_slice(), b"tuesday"].map(|name| tree.mark(tree.lookup(name).unwrap()));
        assert_eq!(tree.list().iter().map(|entry| tree.unopened_root(entry).generation).collect::<Vec<_>>(), marks);
        assert_ne!(marks[0], marks[1]);
    }

    #[test]
    fn slots_are_given_back_when_nothing_was_held_for_a_while() {
        let (_, tree) = tree(vec![entry("monday", 1)]);
        let slot = tree.lookup(b"monday").unwrap();
        let later = Instant::now() + LINGER;
        tree.add(slot);
        tree.reap(later);
        assert_eq!(tree.slots.lock().taken.len(), 1, "the kernel holds a node of it");
        tree.forget(slot, 1);
        tree.reap(Instant::now());
        assert_eq!(tree.slots.lock().taken.len(), 1, "it may come back soon");
        tree.reap(Instant::now() + LINGER);
        assert!(tree.slots.lock().taken.is_empty());
    }

    #[test]
    fn a_closed_snapshot_keeps_its_slot_until_it_is_forgotten() {
        let (_, tree) = tree(vec![entry("monday", 1)]);
        let slot = tree.lookup(b"monday").unwrap();
        tree.add(slot);
        tree.close("monday");
        assert_eq!(tree.file_system(slot).err(), Some(Errno::STALE));
        assert_ne!(tree.lookup(b"monday"), Ok(slot));
        tree.forget(slot, 1);
        tree.reap(Instant::now());
        assert!(!tree.slots.lock().taken.contains_key(&slot));
    }

    #[test]
    fn a_snapshot_that_went_is_closed_unasked() {
        let (source, tree) = tree(vec![entry("monday", 1), entry("tuesday", 2)]);
        let slots = [b"monday".as_slice(), b"tuesday"].map(|name| tree.lookup(name).unwrap());
        slots.iter().for_each(|slot| tree.add(*slot));
        assert!(tree.close_gone().is_empty());
        source.0.lock().remove(0);
        assert_eq!(tree.close_gone(), ["monday"]);
        assert_eq!(slots.map(|slot| tree.file_system(slot).err()), [Some(Errno::STALE), Some(Errno::IO)]);
    }

    #[test]
    fn a_snapshot_that_cannot_be_opened_says_why() {
        let (_, tree) = tree(vec![entry("monday", 1)]);
        let slot = tree.lookup(b"monday").unwrap();
        assert_eq!(tree.file_system(slot).err(), Some(Errno::IO));
    }
}
