//! Getting a descriptor of `/dev/fuse` that the kernel has connected to a mountpoint.
//!
//! Root, or a process that may mount, calls mount(2). Other users run `fusermount3`, which is set-uid root, mounts on
//! their behalf and passes the descriptor back through a socket. (`fuser` can do both, but mounts as plain `fuse` when
//! root, and finally unmounts by path, even if another file system is mounted there by then.)

use std::ffi::{CString, OsStr};
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::thread::CapabilitySet;

use crate::error::{Error, Result};
use crate::mountpoint::MountPoint;
use crate::mounts::FS_TYPE;
use crate::options::MountOptions;

pub(crate) const DEVICE: &str = "/dev/fuse";
/// Where `fusermount3` finds the socket for the descriptor: a variable with the number of a descriptor of its own.
const SOCKET_VARIABLE: &str = "_FUSE_COMMFD";
const FUSERMOUNT_NAMES: [&str; 2] = ["fusermount3", "fusermount"];
/// Where distributions put `fusermount3`, for services whose `PATH` is empty.
const USUAL_PATH: &str = "/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin";

/// Whether this process can mount datasets; if not, the error says what is missing.
pub fn available() -> Result<()> {
    open_device().map_err(|errno| unavailable(device_problem(errno)))?;
    if may_mount() || find_fusermount().is_some() {
        return Ok(());
    }
    Err(unavailable("mounting needs root or fusermount3 (Debian, Ubuntu: apt install fuse3)".into()))
}

/// Mounts on `mountpoint`, an absolute path without symbolic links; returns the descriptor that carries the requests.
pub(crate) fn mount(mountpoint: &Path, options: &MountOptions) -> Result<OwnedFd> {
    let refused = |cause: io::Error| Error::Mount { mountpoint: mountpoint.to_owned(), cause };
    let device = open_device().map_err(|errno| unavailable(device_problem(errno)))?;
    let place = MountPoint::again(mountpoint)?;
    match mount_directly(&device, &place, options) {
        Ok(()) => Ok(device),
        Err(Errno::PERM) => {
            mount_through_helper(mountpoint, options).map_err(|cause| match is_within_fuse(mountpoint) {
                true => Error::Nested { mountpoint: mountpoint.to_owned() },
                false => refused(cause),
            })
        }
        Err(errno) => Err(refused(errno.into())),
    }
}

/// Runs `fusermount3` on a mountpoint. Its message on failure becomes the error.
pub(crate) fn fusermount(arguments: &[&str], mountpoint: &Path) -> io::Result<()> {
    let output = helper()?.args(arguments).arg("--").arg(mountpoint).output()?;
    if output.status.success() { Ok(()) } else { Err(complaint(&output.stderr)) }
}

fn open_device() -> Result<OwnedFd, Errno> {
    rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

fn mount_directly(device: &OwnedFd, place: &MountPoint, options: &MountOptions) -> Result<(), Errno> {
    let root_mode = place.mode()? & 0o170_000;
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let data = options.kernel_data(device.as_raw_fd(), root_mode, uid, gid);
    let data = CString::new(data).expect("numbers and words hold no zero byte");
    rustix::mount::mount(options.name.as_str(), place.through_proc(), FS_TYPE, options.flags(), data.as_c_str())
}

/// Whether a directory lies in a FUSE file system. The helper acts for the user, but with more rights than the user,
/// and the kernel lets only processes with exactly the user's rights into mounts that are not shared.
fn is_within_fuse(mountpoint: &Path) -> bool {
    const FUSE_SUPER_MAGIC: u64 = 0x6573_5546;
    rustix::fs::statfs(mountpoint).is_ok_and(|system| system.f_type as u64 == FUSE_SUPER_MAGIC)
}

/// The helper's standard input is the socket. So the helper inherits the descriptor without our marking the descriptor
/// as inheritable, by which every program started at this moment would inherit it.
fn mount_through_helper(mountpoint: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut child = helper()?
        .arg("-o")
        .arg(options.fusermount_options())
        .arg("--")
        .arg(mountpoint)
        .env(SOCKET_VARIABLE, "0")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let received = receive_descriptor(&ours);
    let mut said = Vec::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_end(&mut said)?;
    }
    child.wait()?;
    received?.ok_or_else(|| complaint(&said))
}

/// The descriptor from `socket`; `None` if the other side closes the socket without sending a descriptor.
fn receive_descriptor(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut buffers = [IoSliceMut::new(&mut byte)];
    rustix::io::retry_on_intr(|| recvmsg(socket, &mut buffers, &mut ancillary, RecvFlags::CMSG_CLOEXEC))?;
    let descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(descriptors.last())
}

fn helper() -> io::Result<Command> {
    let program = find_fusermount()
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "fusermount3 is not installed (package fuse3)"))?;
    let mut command = Command::new(program);
    command.env("LC_ALL", "C");
    Ok(command)
}

fn find_fusermount() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> =
        std::env::split_paths(&path).chain(std::env::split_paths(OsStr::new(USUAL_PATH))).collect();
    let candidates = FUSERMOUNT_NAMES.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    candidates.into_iter().find(|program| program.is_file())
}

fn may_mount() -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

fn complaint(stderr: &[u8]) -> io::Error {
    let text = String::from_utf8_lossy(stderr);
    let text = text.trim();
    io::Error::other(if text.is_empty() { "fusermount3 failed without saying why" } else { text }.to_owned())
}

fn unavailable(reason: String) -> Error {
    Error::Unavailable { reason }
}

fn device_problem(errno: Errno) -> String {
    match errno {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => {
            format!("there is no {DEVICE} (load the kernel module: modprobe fuse)")
        }
        Errno::ACCESS | Errno::PERM => {
            format!("this user may not open {DEVICE} (its mode should be 0666: chmod 666 {DEVICE})")
        }
        other => format!("cannot open {DEVICE}: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounts::{detach_dead, mounts};
    use crate::options::Owner;
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use std::io::IoSlice;
    use std::os::fd::AsFd;

    #[test]
    fn a_descriptor_comes_through_a_socket() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let sent = std::fs::File::open("/dev/null").unwrap();
        let descriptors = [sent.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
        sendmsg(&theirs, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::empty()).unwrap();
        let received = receive_descriptor(&ours).unwrap().expect("a descriptor was sent");
        let (sent, received) = (rustix::fs::fstat(&sent).unwrap(), rustix::fs::fstat(&received).unwrap());
        assert_eq!(sent.st_rdev, received.st_rdev);
    }

    #[test]
    fn a_socket_closed_without_a_descriptor_is_noticed() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert!(receive_descriptor(&ours).unwrap().is_none());
    }

    #[test]
    fn a_missing_device_is_explained() {
        assert!(device_problem(Errno::NOENT).contains("modprobe fuse"));
        assert!(device_problem(Errno::ACCESS).contains("0666"));
    }

    /// Mounts, lets the server die, and detaches the dead mount.
    fn check_mounting(mount: impl FnOnce(&Path, &MountOptions) -> OwnedFd) {
        let folder = tempfile::tempdir().unwrap();
        let owner = Some(Owner::new(7));
        let options = MountOptions { allow_other: false, owner, ..MountOptions::new("tank/a b") };
        let descriptor = mount(folder.path(), &options);
        let listed = mounts().unwrap().into_iter().find(|mounted| mounted.mountpoint == folder.path()).unwrap();
        assert_eq!((listed.dataset.as_str(), listed.owner), ("tank/a b", owner));
        drop(descriptor);
        assert!(detach_dead(folder.path()).unwrap(), "nobody serves it");
        assert!(!detach_dead(folder.path()).unwrap(), "it is gone");
    }

    #[test]
    fn a_mount_without_a_server_is_detached() {
        if available().is_ok() {
            check_mounting(|mountpoint, options| mount(mountpoint, options).unwrap());
        }
    }

    #[test]
    fn the_helper_mounts_and_explains_itself() {
        if find_fusermount().is_none() || available().is_err() {
            return;
        }
        check_mounting(|mountpoint, options| mount_through_helper(mountpoint, options).unwrap());
        let folder = tempfile::tempdir().unwrap();
        let error = fusermount(&["-u"], folder.path()).unwrap_err();
        assert!(error.to_string().contains("fusermount"), "{error}");
    }

    #[test]
    fn what_the_helper_says_is_the_error() {
        assert_eq!(complaint(b"fusermount3: no\n").to_string(), "fusermount3: no");
        assert_eq!(complaint(b"").to_string(), "fusermount3 failed without saying why");
    }
}
