//! A connection that is served, by whichever transport the kernel and the options allow.
//!
//! Above are those who mount something: a dataset's [`Mount`](crate::Mount), or a benchmark. Below are the transports.
//! Nothing here knows what is mounted.
//!
//! A connection has no threads of its own: the [crew](crate::crew) serves all. It ends when the kernel takes it down, after
//! the last user of an unmounted file system is gone, or when it is cut by force or let go. Either way the handler is told,
//! for the kernel then has no references any more.
//!
//! A mount whose requests were to come through io_uring and do not come at all is made once more without it, unless it was
//! to be io_uring and nothing else.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use dataset::fs::Errno;
use fuser::{Config, Notifier, Session, SessionACL};
use parking_lot::{Condvar, Mutex};

use crate::adapter::Adapter;
use crate::channel::Channel;
use crate::connection::Connection;
use crate::crew::{self, Served};
use crate::device;
use crate::epoch::Epoch;
use crate::error::{Error, Result};
use crate::handler::Handler;
use crate::mounts::detach;
use crate::options::{MountOptions, Transport};
use crate::ring::{self, Layout, Team};

/// What the kernel reads ahead, in KiB: as much as one request carries. It refuses to be told at mounting.
const READ_AHEAD_KIB: &str = "1024";
/// How long the first request may take that comes through io_uring.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection that is served. It goes on without this.
pub struct Serving {
    pub(crate) connection: Arc<Connection>,
    pub(crate) notifier: Notifier,
    pub(crate) epoch: Epoch,
    transport: Transport,
    ending: Arc<Ending>,
    served: Served,
}

/// Whether a connection has ended.
#[derive(Default)]
pub(crate) struct Ending {
    ended: Mutex<bool>,
    changed: Condvar,
}

/// Mounts on the directory `mountpoint`, an absolute path without symbolic links, and returns when it can be used. It
/// stays until somebody unmounts it, [`detach`](crate::detach) for one. The `handler` that answers is made for each
/// connection that is tried; the one that came about is returned.
pub fn serve<H: Handler>(
    handler: impl Fn() -> Result<H, Errno>,
    mountpoint: &Path,
    options: &MountOptions,
) -> Result<(Arc<H>, Serving)> {
    try_ring(handler, mountpoint, options, &Trial::default())
}

/// Mounts, and once more without io_uring if that makes requests wait for ever.
fn try_ring<H: Handler>(
    handler: impl Fn() -> Result<H, Errno>,
    mountpoint: &Path,
    options: &MountOptions,
    trial: &Trial,
) -> Result<(Arc<H>, Serving)> {
    let mount = |options: &MountOptions| {
        let failed = |errno: Errno| Error::Session { mountpoint: mountpoint.to_owned(), cause: errno.into() };
        let handler = Arc::new(handler().map_err(failed)?);
        let serving = Serving::mount(Arc::clone(&handler) as Arc<dyn Handler>, mountpoint, options, trial)?;
        Ok((handler, serving))
    };
    match mount(options) {
        Err(error @ Error::Ring { .. }) if options.transport.is_none() => {
            tracing::warn!(%error, "mounting once more, without io_uring");
            mount(&MountOptions { transport: Some(Transport::Fuse), ..options.clone() })
        }
        mounted => mounted,
    }
}

impl Ending {
    /// Says that the connection has ended.
    pub(crate) fn end(&self) {
        *self.ended.lock() = true;
        self.changed.notify_all();
    }
}

impl Serving {
    fn mount(handler: Arc<dyn Handler>, mountpoint: &Path, options: &MountOptions, trial: &Trial) -> Result<Serving> {
        let device = device::mount(mountpoint, options)?;
        let connection =
            Connection::of(&device, mountpoint).map(Arc::new).inspect_err(|_| detach_quietly(mountpoint))?;
        let serving = Serving::start(handler, options, trial, device, &connection).inspect_err(|_| {
            connection.cut();
            detach_quietly(mountpoint);
        })?;
        serving.read_far_ahead();
        Ok(serving)
    }

    /// Comes to terms with the kernel and starts to serve. After an error the mount is of no use.
    fn start(
        handler: Arc<dyn Handler>,
        options: &MountOptions,
        trial: &Trial,
        device: OwnedFd,
        connection: &Arc<Connection>,
    ) -> Result<Serving> {
        let failed = |cause: io::Error| Error::Session { mountpoint: connection.mountpoint.clone(), cause };
        let of_ring = |cause: io::Error| Error::Ring { mountpoint: connection.mountpoint.clone(), cause };
        let device_of_ring = device.try_clone().map_err(failed)?;
        let team = Arc::new(Mutex::new(recruit(options.transport, trial, &device).map_err(failed)?));
        let device_of_epoch = device.try_clone().map_err(failed)?;
        let kernel = Arc::new(OnceLock::new());
        let adapter = Adapter::new(options, Arc::clone(&team), Arc::clone(&kernel));
        let to_agree = device.try_clone().map_err(failed)?;
        // The kernel itself keeps other users out unless `allow_other` was asked for.
        let session = Session::from_fd(adapter, to_agree, SessionACL::All, Config::default()).map_err(failed)?;
        let notifier = session.notifier();
        let epoch = Epoch::new(device_of_epoch, kernel.get().copied());
        handler.begun(session.notifier());
        drop(session);
        let team = team.lock().take();
        let transport = if team.is_some() { Transport::Uring } else { Transport::Fuse };
        if options.transport.is_some_and(|wanted| wanted != transport) {
            return Err(of_ring(io::Error::other("the kernel has just ceased to offer it")));
        }
        let ring = team.map(|team| team.start(Arc::clone(&handler), device_of_ring, Arc::clone(connection)));
        let ring = ring.transpose().map_err(of_ring)?;
        let ending = Arc::new(Ending::default());
        let channel =
            Channel::new(device, handler, ring, (Arc::clone(connection), Arc::clone(&ending))).map_err(failed)?;
        let served = crew::serve(channel).map_err(failed)?;
        if transport == Transport::Uring {
            connection.answers(trial.patience).map_err(of_ring).inspect_err(|_| {
                connection.cut();
                served.let_go();
            })?;
        }
        Ok(Serving { connection: Arc::clone(connection), notifier, epoch, transport, ending, served })
    }

    /// How requests come.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Whether the kernel has taken the connection down, at our wish or at somebody else's.
    pub fn has_ended(&self) -> bool {
        *self.ending.ended.lock()
    }

    /// Waits until the connection has ended, at most so long. True if it has.
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

    /// Serves the mount no more, whoever still has it. When this is dropped too, the kernel cuts the connection.
    pub(crate) fn let_go(&self) {
        self.served.let_go();
    }

    /// Has the kernel read further ahead than it does by itself. It believes a file that only root can write; nothing
    /// depends on it.
    fn read_far_ahead(&self) {
        let Connection { mountpoint, device: (major, minor) } = &*self.connection;
        if let Err(error) = fs::write(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"), READ_AHEAD_KIB) {
            tracing::debug!(%error, mountpoint = %mountpoint.display(), "read-ahead stays at its default");
        }
    }
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

/// Those who serve through io_uring, unless it is not wanted, or is not to be had and not insisted on.
fn recruit(wanted: Option<Transport>, trial: &Trial, device: &OwnedFd) -> io::Result<Option<Team>> {
    // Where it is switched off nothing of io_uring is touched: a filter of system calls may kill whoever does.
    if wanted == Some(Transport::Fuse) || wanted.is_none() && ring::is_switched_off() {
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

fn detach_quietly(mountpoint: &Path) {
    if let Err(error) = detach(mountpoint) {
        tracing::warn!(%error, "a mount that never served is left behind");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatcher::Dispatcher;
    use crate::mounts::mounted_at;
    use crate::options::SnapDir;
    use crate::server::Server;
    use crate::testing::{self, Nothing};
    use dataset::fs::FileSystem;

    fn dispatcher(live: &Arc<FileSystem>) -> Result<Dispatcher, Errno> {
        let server = Server::new(Arc::clone(live), Arc::new(Nothing), SnapDir::Hidden)?;
        Dispatcher::new(Arc::new(server), &MountOptions::new("tank"))
    }

    /// Mounts with this trial of io_uring, and looks whether it works.
    fn mounted(transport: Option<Transport>, trial: &Trial) -> Result<Transport> {
        let (live, _pool) = testing::file_system();
        let folder = tempfile::tempdir().unwrap();
        let options = MountOptions { transport, allow_other: false, ..MountOptions::new("tank") };
        let served = try_ring(|| dispatcher(&live), folder.path(), &options, trial);
        let served = served.inspect_err(|_| assert_eq!(mounted_at(folder.path()).unwrap(), None, "nothing is left"));
        let (_, serving) = served?;
        fs::write(folder.path().join("file"), "content").unwrap();
        assert_eq!(fs::read(folder.path().join("file")).unwrap(), b"content");
        detach(folder.path()).unwrap();
        assert!(serving.wait(Duration::from_secs(60)), "nobody uses it any more");
        assert!(serving.has_ended());
        Ok(serving.transport())
    }

    fn check_cutting(transport: Transport) {
        if !rustix::process::geteuid().is_root() && !fs::exists("/sys/fs/fuse/connections").unwrap() {
            return;
        }
        let (live, _pool) = testing::file_system();
        let folder = tempfile::tempdir().unwrap();
        let options = MountOptions { transport: Some(transport), allow_other: false, ..MountOptions::new("tank") };
        let (_, serving) = serve(|| dispatcher(&live), folder.path(), &options).unwrap();
        let file = fs::File::create(folder.path().join("file")).unwrap();
        serving.connection.cut();
        assert!(serving.wait(Duration::from_secs(60)), "its threads end");
        file.sync_all().unwrap_err();
        detach_quietly(folder.path());
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
        let dispatcher = Arc::new(dispatcher(&live).unwrap());
        let connection = Arc::new(Connection { mountpoint: "/nowhere".into(), device: (0, u32::MAX) });
        assert!(team.start(dispatcher, fs::File::open("/proc/self/exe").unwrap().into(), connection).is_err());
    }
}
