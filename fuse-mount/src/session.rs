//! One mount of a dataset, from mount(2) to the last request.
//!
//! A mount can end without a request of this process: root may unmount it at any time. [`Mount::has_ended`] and
//! [`Mount::wait`] report the end.
//!
//! An unmount by path could hit another mount on the same directory. So the list of mounts is searched first, by device
//! number: the unmount goes ahead only if the path reaches our mount. A covered mount stays until the covering one is
//! gone. For the same reason a dataset is never mounted over another dataset.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use dataset::admin::{Differing, Replaced};
use dataset::fs::{Errno, FileSystem, Ino, ROOT};
use dataset::property::SnapDir;
use rustix::fs::{Mode, OFlags};
use rustix::mount::UnmountFlags;

use crate::activity::{Actor, Done};
use crate::control::{CONTROL_NAME, OPENER_NAME, Snapshots};
use crate::counters::{Counters, Opcode};
use crate::device::fusermount;
use crate::dispatcher::Dispatcher;
use crate::error::{Error, Result};
use crate::known::Known;
use crate::mountpoint::{MountPoint, unmount};
use crate::mounts::{detach, mounted_at, mountpoints_below, mounts};
use crate::node::{Control, Node};
use crate::options::{MountOptions, Transport};
use crate::server::Server;
use crate::serving::{Serving, serve};

/// Bound on the threads' noticing the mount's end.
const ENDING: Duration = Duration::from_secs(5);
/// How long a normal unmount waits for processes in the mount, and the interval between attempts.
const MOMENT: Duration = Duration::from_millis(100);
const GLANCE: Duration = Duration::from_millis(20);
/// If the kernel writes and forgets nothing for so long, waiting for the rest of the write-back ends.
const STANDSTILL: Duration = Duration::from_secs(5);

/// What to do about users of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// Refuse if a process uses the mount.
    Normal,
    /// Write back pages changed through `mmap`, then cut the connection: processes with open files get errors.
    Force,
}

/// The mount's negotiated features. A change needs a new mount.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Agreed {
    acl: bool,
    xattr: bool,
    /// Whether snapshots can be browsed; if so, opening a file sends a request.
    browsable: bool,
    /// Whether all files bypass the kernel's cache.
    direct: bool,
}

impl Agreed {
    fn of(options: &MountOptions) -> Agreed {
        let MountOptions { acl, xattr, direct, snapdir, .. } = *options;
        Agreed { acl, xattr, browsable: snapdir != SnapDir::Disabled, direct }
    }
}

/// A mounted dataset. Dropping the value unmounts by force.
pub struct Mount {
    server: Arc<Server>,
    serving: Serving,
    agreed: Agreed,
    /// Whether opening a file sends a request.
    answers_opens: bool,
}

impl Mount {
    /// Mounts `file_system` on the directory `mountpoint`, and returns when the mount is usable.
    pub fn new(
        file_system: Arc<FileSystem>,
        snapshots: Arc<dyn Snapshots>,
        mountpoint: &Path,
        options: &MountOptions,
    ) -> Result<Mount> {
        let mountpoint = MountPoint::find(mountpoint)?.path().to_owned();
        if let Some(other) = mounted_at(&mountpoint)? {
            return Err(Error::Taken { mountpoint, dataset: other.dataset });
        }
        let handler = || {
            let server = Server::new(Arc::clone(&file_system), Arc::clone(&snapshots), options.snapdir)?;
            Dispatcher::new(Arc::new(server), options)
        };
        let (dispatcher, serving) = serve(handler, &mountpoint, options)?;
        let (server, answers_opens) = (Arc::clone(&dispatcher.server), dispatcher.answers_opens());
        let mount = Mount { server, serving, agreed: Agreed::of(options), answers_opens };
        if !answers_opens {
            mount.teach_kernel();
        }
        Ok(mount)
    }

    /// The directory as resolved when the mount was made, without symbolic links.
    pub fn mountpoint(&self) -> &Path {
        &self.serving.connection.mountpoint
    }

    /// Whether these options equal the negotiated features.
    pub fn agrees_with(&self, options: &MountOptions) -> bool {
        self.agreed == Agreed::of(options)
    }

    /// The transport of the requests: `/dev/fuse` or io_uring.
    pub fn transport(&self) -> Transport {
        self.serving.transport()
    }

    /// The requests served since the mount was made.
    pub fn counters(&self) -> &Counters {
        &self.server.counters
    }

    /// The requests by user, process and file since the watch began, and the requests without a row of their own. The
    /// requests of the next ten seconds are counted.
    pub fn look(&self) -> (Vec<(Actor, Done)>, Done) {
        self.server.activity.look()
    }

    /// A path of a node from the root of the mount; `None` if the node has no name any more.
    pub fn path_of(&self, node: u64) -> Option<Vec<u8>> {
        self.server.path_of(node)
    }

    /// Sets whether a listing of the root shows `.zfs`, from now on.
    pub fn set_snapdir(&self, snapdir: SnapDir) {
        self.server.set_snapdir(snapdir);
        self.forget_node(Node::Live(ROOT));
    }

    /// Applies changed mount flags while the mount is in use. The kernel allows only root to do so; for another user's
    /// mount the call does nothing, and the flags apply at the next mount.
    pub fn remount(&self, options: &MountOptions) -> Result<()> {
        if !self.serving.connection.is_reached()? {
            return Ok(());
        }
        match rustix::mount::mount_remount(self.mountpoint(), options.flags(), "") {
            Ok(()) | Err(Errno::PERM) => Ok(()),
            Err(errno) => Err(Error::Mount { mountpoint: self.mountpoint().to_owned(), cause: errno.into() }),
        }
    }

    /// Whether the kernel has ended the mount, at our request or at another process's.
    pub fn has_ended(&self) -> bool {
        self.serving.has_ended()
    }

    /// Whether the mount is still in the tree of names. A detached mount may still have users and then has not ended.
    pub fn is_mounted(&self) -> bool {
        let is_this = |m: &crate::mounts::Mounted| {
            m.device == self.serving.connection.device && m.mountpoint == self.serving.connection.mountpoint
        };
        mounts().map_or(true, |mounts| mounts.iter().any(is_this))
    }

    /// Waits until the mount has ended, for `at_most`. True if the mount has ended.
    pub fn wait(&self, at_most: Duration) -> bool {
        self.serving.wait(at_most)
    }

    /// Unmounts. Succeeds if the mount has ended already.
    ///
    /// After a normal unmount the session continues while another mount namespace shows the same mount, until this
    /// value is dropped or the mount is unmounted by force.
    pub fn unmount(&self, how: Unmount) -> Result<()> {
        let at_most = match how {
            Unmount::Normal => self.unmount_when_unused().map(|()| MOMENT)?,
            Unmount::Force => self.unmount_by_force().map(|()| ENDING)?,
        };
        self.wait(at_most);
        Ok(())
    }

    /// The device number, major and minor, as in the list of mounts.
    pub fn device(&self) -> (u32, u32) {
        self.serving.connection.device
    }

    /// Closes browsed snapshots no longer in use. The owner of the mount calls this periodically.
    pub fn reap(&self) {
        self.server.control.reap(Instant::now());
    }

    /// Closes the snapshot `name` before its destruction: processes that use it get `ESTALE`.
    pub fn close_snapshot(&self, name: &str) {
        self.server.control.close(name);
        self.forget_entry(Node::Control(Control::Snapshots), name.as_bytes());
        self.snapshots_changed();
    }

    /// Announces new and destroyed snapshots to the kernel, which then lists `.zfs/snapshot` anew. Destroyed snapshots
    /// are closed, so no block is read after being freed and reused.
    pub fn snapshots_changed(&self) {
        for name in self.server.control.close_gone() {
            self.forget_entry(Node::Control(Control::Snapshots), name.as_bytes());
        }
        self.forget_node(Node::Control(Control::Snapshots));
    }

    /// Announces that the server itself made, removed or replaced the entry `name` of the live directory `dir`.
    pub fn entry_changed(&self, dir: Ino, name: &[u8]) {
        self.forget_entry(Node::Live(dir), name);
        self.forget_node(Node::Live(dir));
    }

    /// Announces that the server itself changed the live object `ino`.
    pub fn object_changed(&self, ino: Ino) {
        self.forget_node(Node::Live(ino));
    }

    /// Announces that everything in the file system may be replaced: a rollback, a received stream. Pages changed
    /// through `mmap` are written back first. [`Change::finish`] ends the change.
    pub fn begin_change(&self) -> Change<'_> {
        self.write_back();
        let below = self.below();
        let is_epoch_enough = below.is_empty() && self.serving.epoch.is_known();
        Change { mount: self, before: (!is_epoch_enough).then(|| Known::collect(&self.server.live, &below)) }
    }

    /// Opens an existing file: only so does the kernel learn that opens need no request. Only speed depends on success.
    fn teach_kernel(&self) {
        let opener = self.mountpoint().join(OsStr::from_bytes(CONTROL_NAME)).join(OsStr::from_bytes(OPENER_NAME));
        if let Err(error) = fs::File::open(opener) {
            tracing::debug!(%error, mountpoint = %self.mountpoint().display(), "opens stay requests until the first");
        }
    }

    /// Waits a moment for short-lived users, such as `df` or an indexer.
    fn unmount_when_unused(&self) -> Result<()> {
        let deadline = Instant::now() + MOMENT;
        loop {
            match self.unmount_unused() {
                Err(Error::Busy { .. }) if Instant::now() < deadline => thread::sleep(GLANCE),
                unmounted => return unmounted,
            }
        }
    }

    fn unmount_unused(&self) -> Result<()> {
        if !self.serving.connection.is_reached()? {
            return Ok(());
        }
        match unmount(self.mountpoint(), UnmountFlags::empty()) {
            Ok(()) => Ok(()),
            Err(Errno::BUSY) => Err(self.busy()),
            Err(Errno::PERM) => match fusermount(&["-u"], self.mountpoint()) {
                Ok(()) => Ok(()),
                Err(_) if self.serving.connection.is_reached()? && !self.has_ended() => Err(self.busy()),
                Err(cause) => Err(Error::Unmount { mountpoint: self.mountpoint().to_owned(), cause }),
            },
            Err(errno) => Err(Error::Unmount { mountpoint: self.mountpoint().to_owned(), cause: errno.into() }),
        }
    }

    /// Cuts the connection, which fails all requests under way, and takes the mount out of the tree of names.
    fn unmount_by_force(&self) -> Result<()> {
        if self.has_ended() {
            return Ok(());
        }
        let is_reached = self.serving.connection.is_reached()?;
        self.write_back();
        if is_reached {
            match unmount(self.mountpoint(), UnmountFlags::FORCE | UnmountFlags::DETACH) {
                Ok(()) | Err(Errno::INVAL) => {}
                Err(_) => detach(self.mountpoint())?,
            }
        }
        self.abort();
        Ok(())
    }

    /// Cuts the connection of a mount that is detached but still in use.
    fn abort(&self) {
        if !self.wait(MOMENT) {
            self.serving.connection.cut();
        }
        // Where the abort switch is missing, closing the device tells the kernel that the server is gone.
        if !self.wait(MOMENT) {
            self.serving.let_go();
        }
    }

    fn busy(&self) -> Error {
        Error::Busy { mountpoint: self.mountpoint().to_owned() }
    }

    /// Makes the kernel write back pages changed through `mmap`, and returns when all are written. Called before a
    /// change that would refuse these pages, or that the pages must not overwrite. The kernel meanwhile forgets the
    /// attributes of the files.
    ///
    /// `syncfs` writes many pages at once, but need not wait for them on a FUSE mount (Linux 6.18 does not). So each
    /// possibly mapped file is then invalidated, which waits and writes the rest. Where opens send no request, all
    /// files held by the kernel count as mapped. If writes are not answered, as in a suspended pool, the wait ends
    /// after `STANDSTILL`.
    /// ends at `STANDSTILL`.
    pub fn write_back(&self) {
        let (at_end, ended) = mpsc::channel::<()>();
        let (root, notifier) = (self.root(), self.serving.notifier.clone());
        let held = if self.answers_opens { self.server.held.mappable() } else { self.server.held.nodes() };
        let passed = Arc::new(AtomicU64::new(0));
        let passing = Arc::clone(&passed);
        let written = thread::Builder::new().name("fuse-write-back".into()).spawn(move || {
            let _at_end = at_end;
            if let Some(root) = root
                && let Err(error) = rustix::fs::syncfs(&root)
            {
                tracing::warn!(%error, "changed pages could not be written back");
            }
            for ino in held {
                // A forgotten node, or a mount after its end, has nothing left to write.
                let _ = notifier.inval_inode(Node::Live(ino).encode(), 0, 0);
                passing.fetch_add(1, Ordering::Relaxed);
            }
        });
        if let Err(error) = written {
            tracing::warn!(%error, "changed pages are not written back");
            return;
        }
        let progress = || (self.counters().get(Opcode::Write), passed.load(Ordering::Relaxed));
        let mut before = progress();
        while ended.recv_timeout(STANDSTILL) == Err(mpsc::RecvTimeoutError::Timeout) {
            let now = progress();
            if now == before {
                tracing::warn!(mountpoint = %self.mountpoint().display(), "changed pages are not waited for any more");
                return;
            }
            before = now;
        }
    }

    /// The root directory, if the path reaches this mount.
    fn root(&self) -> Option<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(self.mountpoint(), flags, Mode::empty()).ok()?;
        (device_of(&root) == Ok(self.serving.connection.device)).then_some(root)
    }

    /// The names in the root and in the directories that lead to mounts below this mount.
    fn known(&self) -> Known {
        Known::collect(&self.server.live, &self.below())
    }

    /// The paths of mounts below this mount, relative to its root.
    fn below(&self) -> Vec<PathBuf> {
        mountpoints_below(self.mountpoint()).unwrap_or_else(|error| {
            tracing::warn!(%error, mountpoint = %self.mountpoint().display(), "mounts below cannot be spared");
            Vec::new()
        })
    }

    /// Marks the stale nodes: the object is no longer the one given to the kernel.
    fn refresh(&self, nodes: impl IntoIterator<Item = Ino>) {
        let live = &self.server.live;
        self.server.held.refresh(nodes, live.epoch(), |ino| live.getattr(ino).ok().map(|attr| attr.identity()));
    }

    fn forget_node(&self, node: Node) {
        self.notified(self.serving.notifier.inval_inode(node.encode(), 0, 0));
    }

    fn forget_entry(&self, dir: Node, name: &[u8]) {
        self.notified(self.serving.notifier.inval_entry(dir.encode(), OsStr::from_bytes(name)));
    }

    /// After its end a mount has no cache to invalidate; `fuser` already ignores "no such node".
    fn notified(&self, result: io::Result<()>) {
        if let Err(error) = result
            && !self.has_ended()
        {
            tracing::debug!(%error, mountpoint = %self.mountpoint().display(), "the kernel refused to forget");
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = self.unmount(Unmount::Force) {
            tracing::warn!(%error, "a mount is left behind");
            self.abort();
            self.wait(ENDING);
        }
    }
}

/// A replacement of the whole file system, announced to the kernel.
///
/// The kernel caches nodes (attributes, data, listings) and the names that lead from node to node, absent names
/// included. If the difference is known, the kernel is told of just the differing nodes and names, whether it holds a
/// node or not: a closed file may still have cached pages. So the cost follows the difference, not the size of the
/// cache.
///
/// If anything may differ, the nodes are invalidated one by one; all held nodes are known. Names are not: a kernel with
/// epochs is told that a new epoch begins, and looks up each name again before use. For an older kernel, invalidating
/// an entry drops the whole tree of unused names below. Names in use (by open files, by working directories) remain.
/// Each leads to a node that is either unchanged or stale; at a stale node the kernel looks up the whole path again.
///
/// Dropping the tree of names would unmount the mounts in it. So the names that lead to a mount are spared while they
/// lead to the same directories as before; the other names in those directories are invalidated one by one. A mount
/// whose directory was removed by the change is unmounted. A new epoch would unmount all, so none begins if there are
/// mounts.
///
/// Must not be finished by a thread that serves requests, nor with the file system locked: the kernel waits for pages
/// that are being read.
#[must_use = "the kernel goes on believing what it knew"]
pub struct Change<'a> {
    mount: &'a Mount,
    /// `None` if all names can be forgotten at once.
    before: Option<Known>,
}

impl Change<'_> {
    /// Invalidates what differs. Called when the new state is in place.
    pub fn finish(self, replaced: &Replaced) {
        match replaced {
            Replaced::Everything => self.forget_everything(),
            Replaced::Only(differing) => self.forget(differing),
        }
    }

    fn forget(self, differing: &Differing) {
        let Change { mount, .. } = self;
        mount.refresh(differing.objects.iter().copied());
        for (dir, name) in &differing.names {
            mount.forget_entry(Node::Live(*dir), name);
        }
        for ino in &differing.objects {
            mount.forget_node(Node::Live(*ino));
        }
    }

    fn forget_everything(self) {
        let Change { mount, before } = self;
        let held = mount.server.held.nodes();
        mount.refresh(held.iter().copied());
        match before {
            Some(before) => {
                for (dir, name) in before.changed(mount.known()) {
                    mount.forget_entry(Node::Live(dir), &name);
                }
            }
            None => mount.notified(mount.serving.epoch.begin()),
        }
        for ino in held.into_iter().chain([ROOT]) {
            mount.forget_node(Node::Live(ino));
        }
    }
}

fn device_of(file: &impl std::os::fd::AsFd) -> Result<(u32, u32), Errno> {
    let device = rustix::fs::fstat(file)?.st_dev;
    Ok((rustix::fs::major(device), rustix::fs::minor(device)))
}
