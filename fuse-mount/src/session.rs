//! One mount, from mount(2) to the last request.
//!
//! A session has a thread for each of two to four copies of the device's descriptor, so that requests of several
//! programs are served at once, and one that waits for them to end. They end when the kernel takes the connection down:
//! after the last user of an unmounted file system is gone, or when the connection is cut by force. Either way the
//! references the kernel held are given back, and unlinked files that were still open are freed.
//!
//! A mount can disappear without us: root may unmount it at any time. [`Mount::has_ended`] and [`Mount::wait`] tell.
//!
//! Unmounting by path could hit another mount on the same directory. Before it, the list of mounts is asked whether ours
//! is what the path reaches, by device number; one that is covered stays until that is gone. For the same reason no
//! dataset is mounted where another one is.
//!
//! A mount whose requests were to come through io_uring and do not come at all is made once more without it, unless it was
//! to be io_uring and nothing else.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dataset::fs::{Errno, FileSystem, Ino, ROOT};
use fuser::{Config, Notifier, Session, SessionACL};
use parking_lot::{Condvar, Mutex};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{UnmountFlags, unmount};

use crate::adapter::Adapter;
use crate::connection::Connection;
use crate::control::{CONTROL_NAME, OPENER_NAME, Snapshots};
use crate::counters::Counters;
use crate::device::{self, fusermount};
use crate::dispatcher::Dispatcher;
use crate::error::{Error, Result};
use crate::handler::Handler;
use crate::known::Known;
use crate::mounts::{detach, mounted_at, mountpoints_below, mounts};
use crate::node::{Control, Node};
use crate::options::{MountOptions, SnapDir, Transport};
use crate::ring::{self, Layout, Team};
use crate::server::Server;

/// What the kernel reads ahead, in KiB: as much as one request carries. It refuses to be told at mounting.
const READ_AHEAD_KIB: &str = "1024";
const MIN_THREADS: usize = 2;
const MAX_THREADS: usize = 4;
/// How long the threads may take to notice that the mount is gone.
const ENDING: Duration = Duration::from_secs(5);
/// How long the first request may take that comes through io_uring.
const PATIENCE: Duration = Duration::from_secs(10);

/// How to take a mount down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// Refuse if it is in use.
    Normal,
    /// Write back what programs changed through `mmap`, then cut the connection: whoever still has a file open gets
    /// errors.
    Force,
}

/// A mounted dataset. Dropping it unmounts by force.
pub struct Mount {
    server: Arc<Server>,
    notifier: Notifier,
    connection: Arc<Connection>,
    acl: bool,
    transport: Transport,
    ending: Arc<Ending>,
    waiter: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Ending {
    ended: Mutex<bool>,
    changed: Condvar,
}

impl Mount {
    /// Mounts `file_system` on the directory `mountpoint`, and returns when it can be used.
    pub fn new(
        file_system: Arc<FileSystem>,
        snapshots: Arc<dyn Snapshots>,
        mountpoint: &Path,
        options: &MountOptions,
    ) -> Result<Mount> {
        Mount::try_ring(file_system, snapshots, mountpoint, options, &Trial::default())
    }

    /// Mounts, and once more without io_uring if that makes requests wait for ever.
    fn try_ring(
        file_system: Arc<FileSystem>,
        snapshots: Arc<dyn Snapshots>,
        mountpoint: &Path,
        options: &MountOptions,
        trial: &Trial,
    ) -> Result<Mount> {
        let mountpoint =
            mountpoint.canonicalize().map_err(|cause| Error::Mount { mountpoint: mountpoint.to_owned(), cause })?;
        if let Some(other) = mounted_at(&mountpoint)? {
            return Err(Error::Taken { mountpoint, dataset: other.dataset });
        }
        match Mount::make(Arc::clone(&file_system), Arc::clone(&snapshots), &mountpoint, options, trial) {
            Err(error @ Error::Ring { .. }) if options.transport.is_none() => {
                tracing::warn!(%error, "mounting once more, without io_uring");
                let options = MountOptions { transport: Some(Transport::Fuse), ..options.clone() };
                Mount::make(file_system, snapshots, &mountpoint, &options, trial)
            }
            made => made,
        }
    }

    fn make(
        file_system: Arc<FileSystem>,
        snapshots: Arc<dyn Snapshots>,
        mountpoint: &Path,
        options: &MountOptions,
        trial: &Trial,
    ) -> Result<Mount> {
        let failed = |cause: io::Error| Error::Session { mountpoint: mountpoint.to_owned(), cause };
        let server = Server::new(file_system, snapshots, options.snapdir).map_err(|errno| failed(errno.into()))?;
        let server = Arc::new(server);
        let dispatcher = Dispatcher::new(Arc::clone(&server), options.acl).map_err(|errno| failed(errno.into()))?;
        let device = device::mount(mountpoint, options)?;
        let connection = Connection::of(mountpoint).map(Arc::new).inspect_err(|_| detach_quietly(mountpoint))?;
        let started = start(Arc::new(dispatcher), options, trial, device, &connection).inspect_err(|_| {
            connection.cut();
            detach_quietly(mountpoint);
        })?;
        let Started { notifier, transport, ending, waiter } = started;
        let (acl, waiter) = (options.acl, Mutex::new(Some(waiter)));
        let mount = Mount { server, notifier, connection, acl, transport, ending, waiter };
        mount.teach_kernel();
        Ok(mount)
    }

    /// Where it is mounted.
    pub fn mountpoint(&self) -> &Path {
        &self.connection.mountpoint
    }

    /// Whether it has access control lists, as long as it lives.
    pub fn has_acl(&self) -> bool {
        self.acl
    }

    /// How its requests come.
    pub fn transport(&self) -> Transport {
        self.transport
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
        if !self.connection.is_reached()? {
            return Ok(());
        }
        match rustix::mount::mount_remount(self.mountpoint(), options.flags(), "") {
            Ok(()) | Err(Errno::PERM) => Ok(()),
            Err(errno) => Err(Error::Mount { mountpoint: self.mountpoint().to_owned(), cause: errno.into() }),
        }
    }

    /// Whether the kernel has taken the mount down, at our wish or at somebody else's.
    pub fn has_ended(&self) -> bool {
        *self.ending.ended.lock()
    }

    /// Whether it is still in the tree of names. One that is not may have users nevertheless, and then has not ended.
    pub fn is_mounted(&self) -> bool {
        let is_this = |m: &crate::mounts::Mounted| {
            m.device == self.connection.device && m.mountpoint == self.connection.mountpoint
        };
        mounts().map_or(true, |mounts| mounts.iter().any(is_this))
    }

    /// Waits until the mount has ended, at most so long. True if it has.
    pub fn wait(&self, at_most: Duration) -> bool {
        let deadline = Instant::now() + at_most;
        let mut ended = self.ending.ended.lock();
        while !*ended {
            if self.ending.changed.wait_until(&mut ended, deadline).timed_out() {
                break;
            }
        }
        *ended
    }

    /// Takes the mount down. Succeeds if it is down already.
    ///
    /// After a normal unmount the session may live on while another mount namespace shows the same mount.
    pub fn unmount(&self, how: Unmount) -> Result<()> {
        match how {
            Unmount::Normal => self.unmount_unused()?,
            Unmount::Force => self.unmount_by_force()?,
        }
        if self.wait(ENDING) {
            self.join();
        }
        Ok(())
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
        Change { mount: self, before: self.known() }
    }

    /// Everything a freshly made mount does for its later speed. Nothing depends on it.
    ///
    /// The kernel learns that opening needs no request only from an open of an existing file, and that it may read
    /// further ahead only from a file that root can write.
    fn teach_kernel(&self) {
        let opener = self.mountpoint().join(OsStr::from_bytes(CONTROL_NAME)).join(OsStr::from_bytes(OPENER_NAME));
        if let Err(error) = fs::File::open(opener) {
            tracing::debug!(%error, mountpoint = %self.mountpoint().display(), "opens stay requests until the first");
        }
        let (major, minor) = self.connection.device;
        if let Err(error) = fs::write(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"), READ_AHEAD_KIB) {
            tracing::debug!(%error, mountpoint = %self.mountpoint().display(), "read-ahead stays at its default");
        }
    }

    fn unmount_unused(&self) -> Result<()> {
        if !self.connection.is_reached()? {
            return Ok(());
        }
        match unmount(self.mountpoint(), UnmountFlags::NOFOLLOW) {
            Ok(()) => Ok(()),
            Err(Errno::BUSY) => Err(self.busy()),
            Err(Errno::PERM) => match fusermount(&["-u"], self.mountpoint()) {
                Ok(()) => Ok(()),
                Err(_) if self.connection.is_reached()? && !self.has_ended() => Err(self.busy()),
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
        let is_reached = self.connection.is_reached()?;
        self.write_back();
        if is_reached {
            match unmount(self.mountpoint(), UnmountFlags::FORCE | UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
                Ok(()) | Err(Errno::INVAL) => {}
                Err(_) => detach(self.mountpoint())?,
            }
        }
        self.abort();
        Ok(())
    }

    /// Cuts the connection of a mount that is detached but still in use.
    fn abort(&self) {
        if !self.wait(Duration::from_millis(100)) {
            self.connection.cut();
        }
    }

    fn busy(&self) -> Error {
        Error::Busy { mountpoint: self.mountpoint().to_owned() }
    }

    /// Has the kernel write back dirty pages, as far as it can be reached.
    fn write_back(&self) {
        let root =
            rustix::fs::open(self.mountpoint(), OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        if let Ok(root) = root
            && device_of(&root) == Ok(self.connection.device)
            && let Err(error) = rustix::fs::syncfs(&root)
        {
            tracing::warn!(%error, mountpoint = %self.mountpoint().display(), "changed pages could not be written back");
        }
    }

    /// The names in the root and in the directories that lead to mounts below this one.
    fn known(&self) -> Known {
        let below = mountpoints_below(self.mountpoint()).unwrap_or_else(|error| {
            tracing::warn!(%error, mountpoint = %self.mountpoint().display(), "mounts below cannot be spared");
            Vec::new()
        });
        Known::collect(&self.server.live, &below)
    }

    fn forget_node(&self, node: Node) {
        self.notified(self.notifier.inval_inode(node.encode(), 0, 0));
    }

    fn forget_entry(&self, dir: Node, name: &[u8]) {
        self.notified(self.notifier.inval_entry(dir.encode(), OsStr::from_bytes(name)));
    }

    /// A kernel that no longer listens knows nothing that could be wrong; `fuser` has passed over "no such node" already.
    fn notified(&self, result: io::Result<()>) {
        if let Err(error) = result
            && !self.has_ended()
        {
            tracing::debug!(%error, mountpoint = %self.mountpoint().display(), "the kernel refused to forget");
        }
    }

    fn join(&self) {
        if let Some(waiter) = self.waiter.lock().take()
            && waiter.join().is_err()
        {
            tracing::error!(mountpoint = %self.mountpoint().display(), "the mount's thread panicked");
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
/// absent names included. Nodes are invalidated one by one, for all that are held are known. Names are not: but
/// invalidating an entry drops the whole tree of unused names below it. Names in use (of open files, of working
/// directories) remain, and lead to nodes that either still are what they were or are stale, upon which the kernel looks
/// the whole path up again.
///
/// With the tree of names go the mounts in it. The names that lead to a mount are therefore spared, as long as they lead
/// to the same directories as before; what else is in those directories is invalidated name by name. A mount whose
/// directory the change has taken away goes.
///
/// Must not be finished by a thread that serves requests, nor with the file system locked: the kernel waits for pages
/// that are being read.
#[must_use = "the kernel goes on believing what it knew"]
pub struct Change<'a> {
    mount: &'a Mount,
    before: Known,
}

impl Change<'_> {
    /// The file system is as it is going to be.
    pub fn finish(self) {
        let Change { mount, before } = self;
        let live = &mount.server.live;
        let held = mount.server.held.refresh(|ino| live.getattr(ino).ok().map(|attr| attr.generation));
        for (dir, name) in before.changed(mount.known()) {
            mount.forget_entry(Node::Live(dir), &name);
        }
        for ino in held.into_iter().chain([ROOT]) {
            mount.forget_node(Node::Live(ino));
        }
    }
}

/// What is known of a mount that is served.
struct Started {
    notifier: Notifier,
    transport: Transport,
    ending: Arc<Ending>,
    waiter: JoinHandle<()>,
}

/// What a mount tries of io_uring.
struct Trial {
    layout: fn() -> io::Result<Layout>,
    /// How long the first answer may take.
    patience: Duration,
}

impl Default for Trial {
    fn default() -> Trial {
        Trial { layout: Layout::of_this_machine, patience: PATIENCE }
    }
}

/// Comes to terms with the kernel and starts to serve. After an error the mount is of no use.
fn start(
    handler: Arc<dyn Handler>,
    options: &MountOptions,
    trial: &Trial,
    device: OwnedFd,
    connection: &Arc<Connection>,
) -> Result<Started> {
    let failed = |cause: io::Error| Error::Session { mountpoint: connection.mountpoint.clone(), cause };
    let of_ring = |cause: io::Error| Error::Ring { mountpoint: connection.mountpoint.clone(), cause };
    let mut config = Config::default();
    config.n_threads = Some(threads());
    config.clone_fd = true;
    let device_of_ring = device.try_clone().map_err(failed)?;
    let team = Arc::new(Mutex::new(recruit(options.transport, trial, &device).map_err(failed)?));
    let adapter = Adapter::new(Arc::clone(&handler), options, Arc::clone(&team));
    // The kernel itself keeps other users out unless `allow_other` was asked for.
    let session = Session::from_fd(adapter, device, SessionACL::All, config).map_err(failed)?;
    let notifier = session.notifier();
    handler.begun(session.notifier());
    let team = team.lock().take();
    let transport = if team.is_some() { Transport::Uring } else { Transport::Fuse };
    if options.transport.is_some_and(|wanted| wanted != transport) {
        return Err(of_ring(io::Error::other("the kernel has just ceased to offer it")));
    }
    let ring = team.map(|team| team.start(Arc::clone(&handler), device_of_ring, Arc::clone(connection)));
    let ring = ring.transpose().map_err(of_ring)?;
    let ending = Arc::new(Ending::default());
    let (at_end, of_waiter) = (Arc::clone(&ending), Arc::clone(connection));
    let waiter = thread::Builder::new().name("fuse-session".into()).spawn(move || {
        let _at_end = AtEnd(at_end);
        if let Err(error) = session.run() {
            tracing::error!(%error, "a mount's connection failed");
            of_waiter.cut();
        }
        if let Some(ring) = ring {
            ring.wait();
        }
        handler.ended();
    });
    let waiter = waiter.map_err(failed)?;
    if transport == Transport::Uring {
        connection.answers(trial.patience).map_err(of_ring)?;
    }
    Ok(Started { notifier, transport, ending, waiter })
}

/// Those who serve through io_uring, unless it is not wanted, or is not to be had and not insisted on.
fn recruit(wanted: Option<Transport>, trial: &Trial, device: &OwnedFd) -> io::Result<Option<Team>> {
    if wanted == Some(Transport::Fuse) {
        return Ok(None);
    }
    let is_reachable = device.try_clone().and_then(ring::is_reachable);
    let team = is_reachable.and_then(|()| (trial.layout)()).and_then(Team::assemble);
    match team {
        Err(error) if wanted.is_none() => {
            tracing::debug!(%error, "requests come through /dev/fuse");
            Ok(None)
        }
        team => team.map(Some),
    }
}

/// Says that the session has ended, however it did.
struct AtEnd(Arc<Ending>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        *self.0.ended.lock() = true;
        self.0.changed.notify_all();
    }
}

/// How many threads serve a mount. The system is asked once: to answer it reads half a dozen files.
fn threads() -> usize {
    static CORES: LazyLock<usize> = LazyLock::new(|| thread::available_parallelism().map_or(MIN_THREADS, usize::from));
    CORES.clamp(MIN_THREADS, MAX_THREADS)
}

fn device_of(file: &impl std::os::fd::AsFd) -> Result<(u32, u32), Errno> {
    let device = rustix::fs::fstat(file)?.st_dev;
    Ok((rustix::fs::major(device), rustix::fs::minor(device)))
}

fn detach_quietly(mountpoint: &Path) {
    if let Err(error) = detach(mountpoint) {
        tracing::warn!(%error, "a mount that never served is left behind");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, Nothing};

    /// Mounts with this trial of io_uring, and looks whether it works.
    fn mounted(transport: Option<Transport>, trial: &Trial) -> Result<Transport> {
        let (live, _pool) = testing::file_system();
        let folder = tempfile::tempdir().unwrap();
        let options = MountOptions { transport, allow_other: false, ..MountOptions::new("tank") };
        let mount = Mount::try_ring(live, Arc::new(Nothing), folder.path(), &options, trial);
        let mount = mount.inspect_err(|_| assert_eq!(mounted_at(folder.path()).unwrap(), None, "nothing is left"))?;
        fs::write(folder.path().join("file"), "content").unwrap();
        assert_eq!(fs::read(folder.path().join("file")).unwrap(), b"content");
        mount.unmount(Unmount::Normal).unwrap();
        assert!(mount.has_ended());
        Ok(mount.transport())
    }

    fn check_cutting(transport: Transport) {
        let (live, _pool) = testing::file_system();
        let folder = tempfile::tempdir().unwrap();
        let options = MountOptions { transport: Some(transport), allow_other: false, ..MountOptions::new("tank") };
        let mount = Mount::new(live, Arc::new(Nothing), folder.path(), &options).unwrap();
        if !rustix::process::geteuid().is_root() && !fs::exists("/sys/fs/fuse/connections").unwrap() {
            return;
        }
        let file = fs::File::create(folder.path().join("file")).unwrap();
        mount.connection.cut();
        assert!(mount.wait(Duration::from_secs(60)), "its threads end");
        file.sync_all().unwrap_err();
    }

    fn check_falling_back(trial: &Trial) {
        assert_eq!(mounted(None, trial).unwrap(), Transport::Fuse);
        let refused = mounted(Some(Transport::Uring), trial).unwrap_err();
        assert!(matches!(refused, Error::Ring { .. }), "{refused}");
        assert_eq!(mounted(Some(Transport::Fuse), trial).unwrap(), Transport::Fuse);
    }

    #[test]
    fn a_mount_is_served_in_each_way_that_there_is() {
        if testing::can_mount() {
            assert_eq!(mounted(Some(Transport::Fuse), &Trial::default()).unwrap(), Transport::Fuse);
        }
        if testing::has_ring() {
            assert_eq!(mounted(Some(Transport::Uring), &Trial::default()).unwrap(), Transport::Uring);
            assert_eq!(mounted(None, &Trial::default()).unwrap(), Transport::Uring);
        }
    }

    /// As by a thread that cannot go on.
    #[test]
    fn a_connection_that_is_cut_leaves_nobody_waiting() {
        if testing::can_mount() {
            check_cutting(Transport::Fuse);
        }
        if testing::has_ring() {
            check_cutting(Transport::Uring);
        }
    }

    #[test]
    fn a_machine_that_has_not_what_it_takes_is_served_by_the_device() {
        if testing::can_mount() {
            let trial = Trial { layout: || Err(io::Error::other("too many CPUs")), ..Trial::default() };
            assert_eq!(mounted(None, &trial).unwrap(), Transport::Fuse);
            mounted(Some(Transport::Uring), &trial).unwrap_err();
        }
    }

    /// One queue too many, which the kernel refuses when it has been told already that the ring is wanted.
    #[test]
    fn a_mount_whose_registration_fails_half_way_is_made_once_more() {
        if testing::has_ring() {
            check_falling_back(&Trial { layout: || Layout::off_by(1), ..Trial::default() });
        }
    }

    /// One queue too few, for which the kernel waits with every request.
    #[test]
    fn a_kernel_that_waits_for_more_queues_is_not_waited_for() {
        if testing::has_ring() && Layout::off_by(-1).is_ok() {
            check_falling_back(&Trial { layout: || Layout::off_by(-1), patience: Duration::from_millis(200) });
        }
    }

    /// The descriptor is not the connection's: no registration gets there.
    #[test]
    fn a_team_that_cannot_register_says_so() {
        let Ok(team) = Layout::off_by(0).and_then(Team::assemble) else { return };
        let (live, _pool) = testing::file_system();
        let server = Server::new(live, Arc::new(Nothing), SnapDir::Hidden).unwrap();
        let dispatcher = Arc::new(Dispatcher::new(Arc::new(server), false).unwrap());
        let connection = Arc::new(Connection { mountpoint: "/nowhere".into(), device: (0, u32::MAX) });
        assert!(team.start(dispatcher, fs::File::open("/proc/self/exe").unwrap().into(), connection).is_err());
    }
}
