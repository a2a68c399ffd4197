//! A mount's connection with the kernel, from outside: its number, its mountpoint, and how to cut it.
//!
//! None of this is asked of the file system itself, which answers only while it is served. The list of mounts has its
//! device number, which distinguishes its files from others, and leads to the connection's abort switch.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::mount::UnmountFlags;

use crate::error::{Error, Result};
use crate::mountpoint::unmount;
use crate::mounts::{Standing, mounted_at, served_by, standing};

/// The connection of one mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Connection {
    pub(crate) mountpoint: PathBuf,
    /// The device number, major and minor.
    pub(crate) device: (u32, u32),
}

impl Connection {
    /// The connection of the mount just made on `mountpoint`, with the descriptor `device`.
    pub(crate) fn of(device: impl AsFd, mountpoint: &Path) -> Result<Connection> {
        if let Some(device) = served_by(device) {
            return Ok(Connection { mountpoint: mountpoint.to_owned(), device });
        }
        Connection::listed(mountpoint)
    }

    fn listed(mountpoint: &Path) -> Result<Connection> {
        let mounted = mounted_at(mountpoint)?.ok_or_else(|| Error::Session {
            mountpoint: mountpoint.to_owned(),
            cause: io::Error::other("it is not in the list of mounts, or something was mounted over it"),
        })?;
        Ok(Connection { mountpoint: mounted.mountpoint, device: mounted.device })
    }

    /// Whether the mountpoint leads to this mount; false if the mount is gone from there, an error if another covers
    /// it.
    pub(crate) fn is_reached(&self) -> Result<bool> {
        match standing(self.device, &self.mountpoint)? {
            Standing::Reached => Ok(true),
            Standing::Gone => Ok(false),
            Standing::Covered(by) => Err(Error::Covered { mountpoint: self.mountpoint.clone(), by }),
        }
    }

    /// Whether the file system answers at all within `at_most`.
    pub(crate) fn answers(&self, at_most: Duration) -> io::Result<()> {
        let (sender, receiver) = mpsc::channel();
        let root = self.mountpoint.clone();
        thread::Builder::new().name("fuse-first".into()).spawn(move || {
            // After a timeout the receiver is gone. Cutting the connection then ends this thread.
            let _ = sender.send(rustix::fs::statfs(&root));
        })?;
        match receiver.recv_timeout(at_most) {
            Ok(answer) => Ok(answer.map(drop)?),
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no request comes through")),
        }
    }

    /// Cuts the connection: every request, under way or yet to come, fails, and the serving threads end. The owner of
    /// the mount may cut by the connection's switch. Without a switch, as in many containers, root may by unmounting.
    pub(crate) fn cut(&self) {
        let (0, minor) = self.device else { return };
        let switched = fs::write(format!("/sys/fs/fuse/connections/{minor}/abort"), "1");
        let Err(error) = switched else { return };
        let flags = UnmountFlags::FORCE | UnmountFlags::DETACH;
        let is_cut = matches!(self.is_reached(), Ok(true)) && unmount(&self.mountpoint, flags).is_ok();
        if !is_cut {
            tracing::debug!(%error, mountpoint = %self.mountpoint.display(), "the connection could not be cut");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_mount_of_ours_has_no_connection() {
        assert!(matches!(Connection::listed(Path::new("/proc")), Err(Error::Session { .. })));
        let absent = Connection { mountpoint: "/proc".into(), device: (0, u32::MAX) };
        assert!(!absent.is_reached().unwrap());
        absent.cut();
        absent.answers(Duration::from_secs(60)).unwrap();
    }
}
