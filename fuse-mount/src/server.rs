//! The meaning of requests.
//!
//! Above: the [dispatcher](crate::dispatcher), which knows the requests. Below: the live file system, the snapshots
//! open through `.zfs`, and the account of what the kernel holds. The server maps a node number to a file system and an
//! object, refuses changes where none are allowed, and counts each reference given to the kernel.
//!
//! Two rules follow from the kernel's caching. A reference is noted *before* the reply leaves, because the matching
//! `forget` may arrive at once. And nothing here calls back into the kernel: an invalidation of names or data, sent
//! while handling a request, would wait for locks that the requesting program holds.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dataset::fs::{Attr, DirEntry, Errno, FileSystem, FileType, Handle, Ino, ROOT};
use dataset::property::SnapDir;
use fuser::INodeNo;
use pool::txg::TreeEpoch;

use crate::activity::Activity;
use crate::control::{CONTROL_NAME, ControlTree, OPENER_NAME, SNAPSHOTS_NAME, Snapshots};
use crate::counters::Counters;
use crate::freer::Freer;
use crate::handler::{Entry, FOREVER, Listed};
use crate::held::Held;
use crate::node::{Control, Node, Slot};

/// How long the kernel may cache answers that change without its requests.
pub(crate) const NO_TIME: Duration = Duration::ZERO;

/// The place of `.zfs` in a listing of the root: behind all entries of any file system. (The kernel's file offsets are
/// signed.)
const CONTROL_COOKIE: u64 = i64::MAX as u64;

/// The mark in the generations of live files; see [`lasting`].
const LIVE: u64 = 0;

/// The file system of a node.
pub(crate) enum View {
    /// The live file system; calls fail if the node's object has been replaced.
    Live(FileSystem),
    Snapshot(Arc<FileSystem>),
}

impl Deref for View {
    type Target = FileSystem;

    fn deref(&self) -> &FileSystem {
        match self {
            View::Live(file_system) => file_system,
            View::Snapshot(file_system) => file_system,
        }
    }
}

/// One mount's state, shared by the serving threads and the handle that controls the mount.
pub(crate) struct Server {
    pub(crate) live: Arc<FileSystem>,
    pub(crate) control: ControlTree,
    pub(crate) held: Held,
    pub(crate) counters: Counters,
    pub(crate) activity: Activity,
    freer: Freer,
    control_listed: AtomicBool,
    /// Whether snapshots can be browsed.
    browsable: bool,
}

impl Server {
    pub(crate) fn new(live: Arc<FileSystem>, snapshots: Arc<dyn Snapshots>, snapdir: SnapDir) -> Result<Server, Errno> {
        let root = live.getattr(ROOT)?;
        let server = Server {
            live,
            control: ControlTree::new(snapshots, root),
            held: Held::default(),
            counters: Counters::default(),
            activity: Activity::default(),
            freer: Freer::default(),
            control_listed: AtomicBool::new(false),
            browsable: snapdir != SnapDir::Disabled,
        };
        server.set_snapdir(snapdir);
        Ok(server)
    }

    /// Sets whether a listing of the root shows `.zfs`. A lookup of `.zfs` works either way.
    pub(crate) fn set_snapdir(&self, snapdir: SnapDir) {
        self.control_listed.store(snapdir == SnapDir::Visible, Ordering::Relaxed);
    }

    /// A path of a node from the root of the mount; `None` if the node has no name any more.
    pub(crate) fn path_of(&self, number: u64) -> Option<Vec<u8>> {
        match Node::decode(INodeNo(number))? {
            Node::Live(ino) => self.live.path_of(ino).ok(),
            Node::Snapshot(slot, ino) => {
                let (name, fs) = self.control.named(slot)?;
                let path = fs.path_of(ino).ok()?;
                Some([b"/.zfs/snapshot/".as_slice(), name.as_bytes(), &path].concat())
            }
            Node::Control(_) => Some(b"/.zfs".to_vec()),
        }
    }

    /// Decodes a node number. `ESTALE` if its object is gone or replaced.
    pub(crate) fn node(&self, number: INodeNo) -> Result<Node, Errno> {
        match Node::decode(number) {
            Some(Node::Live(ino)) if self.held.is_stale(ino) => Err(Errno::STALE),
            Some(Node::Snapshot(..) | Node::Control(Control::Snapshots)) if !self.browsable => Err(Errno::STALE),
            Some(node) => Ok(node),
            None => Err(Errno::STALE),
        }
    }

    /// The file system and the object of a node; `None` for a virtual node.
    pub(crate) fn resolve(&self, number: INodeNo) -> Result<Option<(View, Ino)>, Errno> {
        match self.node(number)? {
            Node::Live(ino) => Ok(Some((View::Live(self.live_of([ino])), ino))),
            Node::Snapshot(slot, ino) => Ok(Some((View::Snapshot(self.control.file_system(slot)?), ino))),
            Node::Control(_) => Ok(None),
        }
    }

    /// The live file system while these nodes' objects are unchanged. A rollback may come at any time, so every
    /// operation on it compares the objects itself.
    pub(crate) fn live_of(&self, nodes: impl IntoIterator<Item = Ino>) -> FileSystem {
        self.live.only(nodes.into_iter().filter_map(|ino| self.held.file(ino)))
    }

    /// The object of a node to be changed. `EROFS` in a snapshot or virtual directory.
    pub(crate) fn writable(&self, number: INodeNo) -> Result<Ino, Errno> {
        match self.node(number)? {
            Node::Live(ino) => Ok(ino),
            Node::Snapshot(..) | Node::Control(_) => Err(Errno::ROFS),
        }
    }

    /// The directory in which `name` is to be made, removed or replaced.
    pub(crate) fn writable_entry(&self, dir: INodeNo, name: &[u8]) -> Result<Ino, Errno> {
        let dir = self.writable(dir)?;
        if dir == ROOT && name == CONTROL_NAME { Err(Errno::PERM) } else { Ok(dir) }
    }

    /// Looks up a name and gives the kernel a reference to the file found.
    pub(crate) fn lookup(&self, dir: INodeNo, name: &[u8]) -> Result<Entry, Errno> {
        match self.node(dir)? {
            node if name == b"." => self.find(node),
            node if name == b".." => self.find_above(node),
            Node::Live(ROOT) if name == CONTROL_NAME => Ok(self.control_entry(Control::Root)),
            Node::Live(dir) => {
                let epoch = self.live.epoch();
                Ok(self.admit(&self.live_of([dir]).lookup(dir, name)?, epoch))
            }
            Node::Snapshot(slot, dir) => {
                let attr = self.control.file_system(slot)?.lookup(dir, name)?;
                Ok(self.admit_to_snapshot(slot, &attr))
            }
            Node::Control(Control::Root) if name == SNAPSHOTS_NAME && self.browsable => {
                Ok(self.control_entry(Control::Snapshots))
            }
            Node::Control(Control::Root) if name == OPENER_NAME => Ok(self.control_entry(Control::Opener)),
            Node::Control(Control::Snapshots) => self.lookup_snapshot(name),
            Node::Control(_) => Err(Errno::NOENT),
        }
    }

    /// Finds a file or directory by number alone, for a file handle such as NFS clients keep. The kernel has forgotten
    /// the node, or never knew it because another mount gave out the handle.
    fn find(&self, node: Node) -> Result<Entry, Errno> {
        match node {
            Node::Live(ino) => {
                let epoch = self.live.epoch();
                match self.live.getattr(ino)? {
                    // Unlinked, not open, and waiting to be freed.
                    attr if attr.nlink == 0 => Err(Errno::STALE),
                    attr => Ok(self.admit(&attr, epoch)),
                }
            }
            Node::Snapshot(slot, ino) => {
                let attr = self.control.file_system(slot)?.getattr(ino)?;
                Ok(self.admit_to_snapshot(slot, &attr))
            }
            Node::Control(control) => Ok(self.control_entry(control)),
        }
    }

    /// Finds the parent of a directory that was found by number.
    fn find_above(&self, node: Node) -> Result<Entry, Errno> {
        match node {
            Node::Live(dir) => {
                let epoch = self.live.epoch();
                Ok(self.admit(&self.live_of([dir]).lookup(dir, b"..")?, epoch))
            }
            Node::Snapshot(_, ROOT) => Ok(self.control_entry(Control::Snapshots)),
            Node::Snapshot(slot, dir) => {
                let attr = self.control.file_system(slot)?.lookup(dir, b"..")?;
                Ok(self.admit_to_snapshot(slot, &attr))
            }
            Node::Control(Control::Snapshots) => Ok(self.control_entry(Control::Root)),
            Node::Control(Control::Root | Control::Opener) => self.find(Node::Live(ROOT)),
        }
    }

    /// A file's attributes and how long the kernel may cache them.
    pub(crate) fn getattr(&self, number: INodeNo) -> Result<(Attr, Duration), Errno> {
        match self.node(number)? {
            Node::Control(control) => Ok((self.control.attr(control), NO_TIME)),
            Node::Live(ino) => Ok((self.live_of([ino]).getattr(ino)?, FOREVER)),
            Node::Snapshot(slot, ino) => Ok((self.control.file_system(slot)?.getattr(ino)?, FOREVER)),
        }
    }

    /// Takes back `count` references to a node.
    pub(crate) fn forget(&self, number: INodeNo, count: u64) {
        match Node::decode(number) {
            Some(Node::Live(ino)) => {
                if self.held.forget(ino, count) && self.live.release(ino, 1) {
                    self.freer.order(&self.live);
                }
            }
            Some(Node::Snapshot(slot, _)) => self.control.forget(slot, count),
            Some(Node::Control(_)) | None => {}
        }
    }

    /// Takes back all references: the connection has ended.
    pub(crate) fn forget_all(&self) {
        for ino in self.held.drain() {
            self.live.release(ino, 1);
        }
        self.freer.end();
        self.live.free_unused();
    }

    /// Gives the kernel a reference to a live object. `epoch` is the file system's epoch before the object was found.
    pub(crate) fn admit(&self, attr: &Attr, epoch: TreeEpoch) -> Entry {
        if self.held.add(Handle::new(attr, epoch)) {
            self.live.retain(attr.ino);
        }
        lasting(Node::Live(attr.ino), attr, LIVE)
    }

    /// Lists a directory from behind `cookie` on. `each` returns false when it has no room for the entry.
    pub(crate) fn list(
        &self,
        dir: INodeNo,
        cookie: u64,
        each: &mut dyn FnMut(Listed<'_>) -> bool,
    ) -> Result<(), Errno> {
        let node = self.node(dir)?;
        let Some((view, ino)) = self.resolve(dir)? else { return self.list_control(node, cookie, each) };
        if cookie == CONTROL_COOKIE {
            return Ok(());
        }
        let mut room = true;
        view.readdir(ino, cookie, &mut |entry| {
            room = each(listed(node, &entry));
            room
        })?;
        if room && self.shows_control(node) {
            each(control_listed(Control::Root, CONTROL_NAME, CONTROL_COOKIE));
        }
        Ok(())
    }

    /// Lists a directory and gives the kernel a reference to each entry that found room, but for `.` and `..`.
    pub(crate) fn list_plus(
        &self,
        dir: INodeNo,
        cookie: u64,
        each: &mut dyn FnMut(Listed<'_>, &Entry) -> bool,
    ) -> Result<(), Errno> {
        let node = self.node(dir)?;
        let Some((view, ino)) = self.resolve(dir)? else { return self.list_control_plus(node, cookie, each) };
        if cookie == CONTROL_COOKIE {
            return Ok(());
        }
        let mark = match node {
            Node::Snapshot(slot, _) => self.control.mark(slot),
            Node::Live(_) | Node::Control(_) => LIVE,
        };
        let mut room = true;
        let mut given = Vec::new();
        let epoch = self.live.epoch();
        view.readdir_plus(ino, cookie, &mut |entry, attr| {
            room = each(listed(node, &entry), &lasting(node.sibling(attr.ino), attr, mark));
            if room && !is_dot(entry.name) {
                given.push(Handle::new(attr, epoch));
            }
            room
        })?;
        self.note_given(node, &given);
        if room && self.shows_control(node) {
            let entry = self.control_entry(Control::Root);
            each(control_listed(Control::Root, CONTROL_NAME, CONTROL_COOKIE), &entry);
        }
        Ok(())
    }

    /// Notes the references that a listing gave out. Called after the listing, in which no file system call is allowed.
    fn note_given(&self, dir: Node, given: &[Handle]) {
        match dir {
            Node::Live(_) => {
                for &file in given {
                    if self.held.add(file) {
                        self.live.retain(file.ino());
                    }
                }
            }
            Node::Snapshot(slot, _) => given.iter().for_each(|_| self.control.add(slot)),
            Node::Control(_) => {}
        }
    }

    fn shows_control(&self, dir: Node) -> bool {
        dir == Node::Live(ROOT) && self.control_listed.load(Ordering::Relaxed)
    }

    fn admit_to_snapshot(&self, slot: Slot, attr: &Attr) -> Entry {
        self.control.add(slot);
        lasting(Node::Snapshot(slot, attr.ino), attr, self.control.mark(slot))
    }

    fn lookup_snapshot(&self, name: &[u8]) -> Result<Entry, Errno> {
        let slot = self.control.lookup(name)?;
        let root = self.control.file_system(slot)?.getattr(ROOT)?;
        Ok(Entry { name_lifetime: NO_TIME, ..self.admit_to_snapshot(slot, &root) })
    }

    fn control_entry(&self, control: Control) -> Entry {
        fleeting(Node::Control(control), &self.control.attr(control))
    }

    fn list_control(&self, dir: Node, cookie: u64, each: &mut dyn FnMut(Listed<'_>) -> bool) -> Result<(), Errno> {
        self.each_of_control(dir, cookie, &mut |listed, _| each(listed))
    }

    fn list_control_plus(
        &self,
        dir: Node,
        cookie: u64,
        each: &mut dyn FnMut(Listed<'_>, &Entry) -> bool,
    ) -> Result<(), Errno> {
        self.each_of_control(dir, cookie, &mut |listed, entry| {
            let room = each(listed, entry);
            if let (true, Some(Node::Snapshot(slot, _))) = (room, Node::decode(listed.node)) {
                self.control.add(slot);
            }
            room
        })
    }

    /// The entries of a virtual directory; an entry's cookie is its place.
    fn each_of_control(
        &self,
        dir: Node,
        cookie: u64,
        each: &mut dyn FnMut(Listed<'_>, &Entry) -> bool,
    ) -> Result<(), Errno> {
        let names = self.control_names(dir)?;
        for (place, (name, node, attr)) in names.iter().enumerate().skip(usize::try_from(cookie).unwrap_or(usize::MAX))
        {
            let cookie = place as u64 + 1;
            let listed = Listed { node: node.encode(), file_type: FileType::Directory, name, cookie };
            if !each(listed, &fleeting(*node, attr)) {
                break;
            }
        }
        Ok(())
    }

    fn control_names(&self, dir: Node) -> Result<Vec<(Vec<u8>, Node, Attr)>, Errno> {
        let of = |name: &[u8], control| (name.to_vec(), Node::Control(control), self.control.attr(control));
        match dir {
            Node::Control(Control::Root) => {
                let parent = (b"..".to_vec(), Node::Live(ROOT), self.live.getattr(ROOT)?);
                let mut names = vec![of(b".", Control::Root), parent];
                if self.browsable {
                    names.push(of(SNAPSHOTS_NAME, Control::Snapshots));
                }
                Ok(names)
            }
            Node::Control(Control::Snapshots) => {
                let mut names = vec![of(b".", Control::Snapshots), of(b"..", Control::Root)];
                for snapshot in self.control.list() {
                    let node = Node::Snapshot(self.control.slot(&snapshot)?, ROOT);
                    let attr = self.control.unopened_root(&snapshot);
                    names.push((snapshot.name.into_bytes(), node, attr));
                }
                Ok(names)
            }
            _ => Err(Errno::NOTDIR),
        }
    }
}

/// An entry that stays valid until the kernel itself changes the file.
///
/// Node number and generation together identify a file for good. Node numbers of snapshots are valid for one session
/// only, so the generations of their files carry the snapshot's mark. A root has no generation of its own: the kernel
/// wants none for the live root, and a snapshot's root is announced before the snapshot is opened.
fn lasting(node: Node, attr: &Attr, mark: u64) -> Entry {
    let own = if attr.ino == ROOT { 0 } else { attr.generation };
    Entry { node: node.encode(), attr: *attr, generation: mark ^ own, name_lifetime: FOREVER, attr_lifetime: FOREVER }
}

/// An entry of a virtual directory, which may change without a request of the kernel.
fn fleeting(node: Node, attr: &Attr) -> Entry {
    Entry { name_lifetime: NO_TIME, attr_lifetime: NO_TIME, ..lasting(node, attr, LIVE) }
}

fn listed<'a>(dir: Node, entry: &DirEntry<'a>) -> Listed<'a> {
    Listed { node: dir.sibling(entry.ino).encode(), file_type: entry.file_type, name: entry.name, cookie: entry.cookie }
}

fn control_listed(control: Control, name: &[u8], cookie: u64) -> Listed<'_> {
    Listed { node: Node::Control(control).encode(), file_type: FileType::Directory, name, cookie }
}

fn is_dot(name: &[u8]) -> bool {
    name == b"." || name == b".."
}
