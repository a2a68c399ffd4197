//! One mount of a dataset, from mount(2) to the last request.
//!
//! A mount can disappear without us: root may unmount it at any time. [`Mount::has_ended`] and [`Mount::wait`] tell.
//!
//! Unmounting by path could hit another mount on the same directory. Before it, the list of mounts is asked whether ours
//! is what the path reaches, by device number; one that is covered stays until that is gone. For the same reason no
//! dataset is mounted where another one is.

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
use rustix::fs::{Mode, OFlags};
use rustix::mount::UnmountFlags;

use crate::control::{CONTROL_NAME, OPENER_NAME, Snapshots};
use crate::counters::{Counters, Opcode};
use crate::device::fusermount;
use crate::dispatcher::Dispatcher;
use crate::error::{Error, Result};
use crate::known::Known;
use crate::mountpoint::{MountPoint, unmount};
use crate::mounts::{detach, mounted_at, mountpoints_below, mounts};
use crate::node::{Control, Node};
use crate::options::{MountOptions, SnapDir, Transport};
use crate::server::Server;
use crate::serving::{Serving, serve};

/// How long the threads may take to notice that the mount is gone.
const ENDING: Duration = Duration::from_secs(5);
/// How long an unmount waits for those who use the mount, and how often it looks whether they do.
const MOMENT: Duration = Duration::from_millis(100);
const GLANCE: Duration = Duration::from_millis(20);
/// How long the kernel may go without writing or forgetting anything before what it still has is not waited for any more.
const STANDSTILL: Duration = Duration::from_secs(5);

/// How to take a mount down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// Refuse if it is in use.
    Normal,
    /// Write back what programs changed through `mmap`, then cut the connection: whoever still has a file open gets
    /// errors.
    Force,
}

/// What a mount and the kernel agree on when it is made, and then no more.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Agreed {
    acl: bool,
    xattr: bool,
    /// Whether snapshots can be browsed, and so opening a file is a request.
    browsable: bool,
}

impl Agreed {
    fn of(options: &MountOptions) -> Agreed {
        Agreed { acl: options.acl, xattr: options.xattr, browsable: options.snapdir != SnapDir::Disabled }
    }
}

/// A mounted dataset. Dropping it unmounts by force.
pub struct Mount {
    server: Arc<Server>,
    serving: Serving,
    agreed: Agreed,
    /// Whether opening a file is a request.
    answers_opens: bool,
}

impl Mount {
    /// Mounts `file_system` on the directory `mountpoint`, and returns when it can be used.
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

    /// Where it is mounted.
    pub fn mountpoint(&self) -> &Path {
        &self.serving.connection.mountpoint
    }

    /// Whether it was agreed with the kernel, for as long as it lives, what these options say.
    pub fn agrees_with(&self, options: &MountOptions) -> bool {
        self.agreed == Agreed::of(options)
    }

    /// How its requests come.
    pub fn transport(&self) -> Transport {
        self.serving.transport()
    }

    /// The requests served so far.
    pub fn counters(&self) -> &Counters {
        &self.server.counters
    }

    /// Whether a listing of the root shows `.zfs`, from now on.
    pub fn set_snapdir(&self, snapdir: SnapDir) {
        self.server.set_snapdir(snapdir);
        self.forget_node(Node::Live(ROOT));
    }

    /// Has the kernel follow options that have changed, while the mount is in use. The kernel lets only root do so; the
    /// mounts of others follow when they are made again.
    pub fn remount(&self, options: &MountOptions) -> Result<()> {
        if !self.serving.connection.is_reached()? {
            return Ok(());
        }
        match rustix::mount::mount_remount(self.mountpoint(), options.flags(), "") {
            Ok(()) | Err(Errno::PERM) => Ok(()),
            Err(errno) => Err(Error::Mount { mountpoint: self.mountpoint().to_owned(), cause: errno.into() }),
        }
    }

    /// Whether the kernel has taken the mount down, at our wish or at somebody else's.
    pub fn has_ended(&self) -> bool {
        self.serving.has_ended()
    }

    /// Whether it is still in the tree of names. One that is not may have users nevertheless, and then has not ended.
    pub fn is_mounted(&self) -> bool {
        let is_this = |m: &crate::mounts::Mounted| {
            m.device == self.serving.connection.device && m.mountpoint == self.serving.connection.mountpoint
        };
        mounts().map_or(true, |mounts| mounts.iter().any(is_this))
    }

    /// Waits until the mount has ended, at most so long. True if it has.
    pub fn wait(&self, at_most: Duration) -> bool {
        self.serving.wait(at_most)
    }

    /// Takes the mount down. Succeeds if it is down already.
    ///
    /// After a normal unmount the session lives on while another mount namespace shows the same mount, until this is
    /// dropped or unmounted by force.
    pub fn unmount(&self, how: Unmount) -> Result<()> {
        let at_most = match how {
            Unmount::Normal => self.unmount_when_unused().map(|()| MOMENT)?,
            Unmount::Force => self.unmount_by_force().map(|()| ENDING)?,
        };
        self.wait(at_most);
        Ok(())
    }

    /// The device number, major and minor, by which the list of mounts shows it.
    pub fn device(&self) -> (u32, u32) {
        self.serving.connection.device
    }

    /// Closes snapshots that were browsed and are of interest to nobody any more. To be called every now and then.
    pub fn reap(&self) {
        self.server.control.reap(Instant::now());
    }

    /// Closes the snapshot `name`, for it is about to be destroyed: who looks at it gets `ESTALE`.
    pub fn close_snapshot(&self, name: &str) {
        self.server.control.close(name);
        self.forget_entry(Node::Control(Control::Snapshots), name.as_bytes());
        self.snapshots_changed();
    }

    /// Tells the kernel that snapshots were made or destroyed, so that it lists `.zfs/snapshot` anew. Those that are gone
    /// are closed: nothing is read any more of blocks that may be somebody else's by now.
    pub fn snapshots_changed(&self) {
        for name in self.server.control.close_gone() {
            self.forget_entry(Node::Control(Control::Snapshots), name.as_bytes());
        }
        self.forget_node(Node::Control(Control::Snapshots));
    }

    /// Tells the kernel that the entry `name` of the live directory `dir` was made, removed or replaced by somebody else.
    pub fn entry_changed(&self, dir: Ino, name: &[u8]) {
        self.forget_entry(Node::Live(dir), name);
        self.forget_node(Node::Live(dir));
    }

    /// Tells the kernel that the live object `ino` was changed by somebody else.
    pub fn object_changed(&self, ino: Ino) {
        self.forget_node(Node::Live(ino));
    }

    /// Announces that everything in the file system may be replaced: a rollback, a received stream. Data that programs
    /// changed through `mmap` is written back first. The change is over with [`Change::finish`].
    pub fn begin_change(&self) -> Change<'_> {
        self.write_back();
        let below = self.below();
        let is_epoch_enough = below.is_empty() && self.serving.epoch.is_known();
        Change { mount: self, before: (!is_epoch_enough).then(|| Known::collect(&self.server.live, &below)) }
    }

    /// Has the kernel learn that opening needs no request, which it does only from an open of an existing file. Nothing
    /// depends on it.
    fn teach_kernel(&self) {
        let opener = self.mountpoint().join(OsStr::from_bytes(CONTROL_NAME)).join(OsStr::from_bytes(OPENER_NAME));
        if let Err(error) = fs::File::open(opener) {
            tracing::debug!(%error, mountpoint = %self.mountpoint().display(), "opens stay requests until the first");
        }
    }

    /// Whoever only looks, such as `df` or an indexer, is gone in a moment: that is waited for.
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

    /// Cuts the connection, which fails whatever is under way, and takes the mount out of the tree of names.
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
        // Where the switch is not to be had, the kernel notices that nobody serves it.
        if !self.wait(MOMENT) {
            self.serving.let_go();
        }
    }

    fn busy(&self) -> Error {
        Error::Busy { mountpoint: self.mountpoint().to_owned() }
    }

    /// Has the kernel write back what programs have changed through `mmap`, and returns when it has: to be called before
    /// anything that would refuse it, or that it must not overwrite. It forgets what it knows of these files meanwhile.
    ///
    /// `syncfs` has it write many pages at once, and need not wait for them on a FUSE mount (Linux 6.18 does not); then each
    /// file that may be mapped is invalidated, which does wait, and writes what is left. Where opens are no requests, that is
    /// every file it holds. A kernel whose writes are not answered, by a suspended
    /// pool for one, is not waited for.
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
                // One that is not known any more, or a mount that has ended, has nothing left.
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

    /// The root, if the path reaches this mount.
    fn root(&self) -> Option<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(self.mountpoint(), flags, Mode::empty()).ok()?;
        (device_of(&root) == Ok(self.serving.connection.device)).then_some(root)
    }

    /// The names in the root and in the directories that lead to mounts below this one.
    fn known(&self) -> Known {
        Known::collect(&self.server.live, &self.below())
    }

    /// The paths of mounts below this one, seen from its root.
    fn below(&self) -> Vec<PathBuf> {
        mountpoints_below(self.mountpoint()).unwrap_or_else(|error| {
            tracing::warn!(%error, mountpoint = %self.mountpoint().display(), "mounts below cannot be spared");
            Vec::new()
        })
    }

    /// Looks which of some nodes stand for objects that are no longer what they were given out for.
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

    /// A kernel that no longer listens knows nothing that could be wrong; `fuser` has passed over "no such node" already.
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

/// A change of the whole file system that the kernel has to be told of.
///
/// What the kernel knows consists of nodes (attributes, data, listings), and names that lead from one to the next,
/// absent names included. Where it is known what differs, the kernel is told just that, whether it holds a node or not: a
/// file that is closed may still have pages in the cache. So the cost follows what differs, and not what the kernel holds.
///
/// Where anything may differ, nodes are invalidated one by one, for all that are held are known. Names are not: a kernel
/// that can be told that a new epoch begins looks each up again before it believes it. For others,
/// invalidating an entry drops the whole tree of unused names below it. Names in use (of open files, of working
/// directories) remain, and lead to nodes that either still are what they were or are stale, upon which the kernel looks
/// the whole path up again.
///
/// With the tree of names go the mounts in it. The names that lead to a mount are therefore spared, as long as they lead
/// to the same directories as before; what else is in those directories is invalidated name by name. A mount whose
/// directory the change has taken away goes. A new epoch would take them all, so where there are mounts none begins.
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
    /// The file system is as it is going to be, and what differs is known.
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
