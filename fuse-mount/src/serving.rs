//! A served connection, by the transport that kernel and options allow.
//!
//! Above are the callers that mount: a dataset's [`Mount`](crate::Mount), or a benchmark. Below are the transports. The
//! mounted file system is unknown here.
//!
//! A connection has no threads of its own: the [crew](crate::crew) serves all connections. A connection ends when the
//! kernel takes it down (after the last user of an unmounted file system is gone), or when it is cut by force or
//! dropped. In each case the handler is told, for the kernel then has no references.
//!
//! If a mount through io_uring gets no requests at all, it is made once more without io_uring, unless the options
//! demand io_uring.

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

/// The kernel's read-ahead in KiB: as much as one request carries. It cannot be set at mounting.
const READ_AHEAD_KIB: &str = "1024";
/// How long the first request through io_uring may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A served connection, which goes on when this is dropped.
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

/// Mounts on the directory `mountpoint`, an absolute path without symbolic links, and returns when the mount is usable.
/// The mount stays until it is unmounted, for example by [`detach`](crate::detach). `handler` makes a handler for each
/// connection that is tried; the handler of the successful connection is returned.
pub fn serve<H: Handler>(
    handler: impl Fn() -> Result<H, Errno>,
    mountpoint: &Path,
    options: &MountOptions,
) -> Result<(Arc<H>, Serving)> {
    try_ring(handler, mountpoint, options, &Trial::default())
}

/// Mounts, and once more without io_uring if requests through it hang.
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
    /// Marks the connection as ended.
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

    /// Makes the handshake and starts to serve. After an error the mount is useless.
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
        // The kernel itself keeps other users out unless `allow_other` was given.
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

    /// The transport of the requests.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Whether the kernel has ended the connection, at our request or at another process's.
    pub fn has_ended(&self) -> bool {
        *self.ending.ended.lock()
    }

    /// Waits until the connection has ended, for `at_most`. True if the connection has ended.
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

    /// Stops serving the mount, even if it is in use. When this is dropped too, the kernel cuts the connection.
    pub(crate) fn let_go(&self) {
        self.served.let_go();
    }

    /// Raises the kernel's read-ahead above its default, through a file that only root can write. Only speed depends on
    /// the success.
    fn read_far_ahead(&self) {
        let Connection { mountpoint, device: (major, minor) } = &*self.connection;
        if let Err(error) = fs::write(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"), READ_AHEAD_KIB) {
            tracing::debug!(%error, mountpoint = %mountpoint.display(), "read-ahead stays at its default");
        }
    }
}

/// The parameters of a try with io_uring.
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

/// The threads that serve through io_uring. `None` if io_uring is unwanted, or unavailable and not demanded.
fn recruit(wanted: Option<Transport>, trial: &Trial, device: &OwnedFd) -> io::Result<Option<Team>> {
    // Where FUSE over io_uring is switched off, no io_uring call is made: a system call filter may kill the caller.
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
    use crate::server::Server;
    use crate::testing::{self, Nothing};
    use dataset::fs::FileSystem;
    use dataset::property::SnapDir;

    fn dispatcher(live: &Arc<FileSystem>) -> Result<Dispatcher, Errno> {
        let server = Server::new(Arc::clone(live), Arc::new(Nothing), SnapDir::Hidden)?;
        Dispatcher::new(Arc::new(server), &MountOptions::new("tank"))
    }

    /// Mounts with this trial of io_uring, and checks that the mount works.
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

    /// As a failing thread cuts it.
    #[test]
    fn a_cut_connection_leaves_no_request_waiting() {
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

    /// One queue too many, which the kernel refuses after the handshake has accepted the ring.
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

    /// The descriptor is not the connection's, so every registration fails.
    #[test]
    fn a_team_that_cannot_register_says_so() {
        let Ok(team) = Layout::off_by(0).and_then(Team::assemble) else { return };
        let (live, _pool) = testing::file_system();
        let dispatcher = Arc::new(dispatcher(&live).unwrap());
        let connection = Arc::new(Connection { mountpoint: "/nowhere".into(), device: (0, u32::MAX) });
        assert!(team.start(dispatcher, fs::File::open("/proc/self/exe").unwrap().into(), connection).is_err());
    }
}
