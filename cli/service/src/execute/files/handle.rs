//! A file of this machine, held by a descriptor.
//!
//! Everything that a copy learns of a file or gives it goes through the descriptor, never through the name. The owner of
//! the directory may replace the name at any moment, and a mode with the set-user-ID bit must not reach what is there then.
//! A symbolic link is never followed. Nothing is opened for reading before it is known to be a regular file or a directory:
//! opening a fifo waits, and opening a device may do anything.

use std::{
    ffi::{CString, OsStr},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use dataset::fs::{Errno, FileType};
use pool::env::Nanos;
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags, chmod, chownat, fchmod, fgetxattr,
    flistxattr, fremovexattr, fsetxattr, fstat, futimens, getxattr, linkat, listxattr, openat, readlinkat, setxattr,
    utimensat,
};

use super::host::{Meta, NANOS, Xattr};

/// A file that is open. One that was only found has a descriptor that gives no access to its content.
#[derive(Debug)]
pub(super) struct Handle {
    fd: OwnedFd,
    is_found: bool,
}

impl Handle {
    /// What `name` stands for in a directory, a link itself if it is one. Nothing happens to it by this.
    pub(super) fn find(dir: &Handle, name: &OsStr) -> Result<Handle, Errno> {
        Ok(Handle { fd: open_at(dir, name, OFlags::PATH, Mode::empty())?, is_found: true })
    }

    /// The directory `name` in a directory.
    pub(super) fn directory(dir: &Handle, name: &OsStr) -> Result<Handle, Errno> {
        let fd = open_at(dir, name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        Ok(Handle { fd, is_found: false })
    }

    /// The directory of a path; symbolic links on the way are followed, as the user wrote them.
    pub(super) fn directory_of(path: &Path) -> Result<Handle, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Handle { fd: rustix::fs::open(path, flags, Mode::empty())?, is_found: true })
    }

    /// The same once more.
    pub(super) fn again(&self) -> Result<Handle, Errno> {
        Ok(Handle { fd: rustix::io::fcntl_dupfd_cloexec(&self.fd, 0)?, is_found: self.is_found })
    }

    /// A new regular file, which only this process's user can open until it gets another mode.
    pub(super) fn create(dir: &Handle, name: &OsStr) -> Result<Handle, Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        Ok(Handle { fd: open_at(dir, name, flags, Mode::from_raw_mode(0o600))?, is_found: false })
    }

    /// Opens a regular file or a directory that was found, the very same one, to be read.
    pub(super) fn readable(&self) -> Result<Handle, Errno> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        Ok(Handle { fd: rustix::fs::open(self.through_proc(), flags, Mode::empty())?, is_found: false })
    }

    /// The descriptor.
    pub(super) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// The attributes.
    pub(super) fn meta(&self) -> Result<Meta, Errno> {
        Meta::new(&fstat(&self.fd)?)
    }

    /// Where a symbolic link that was found leads to.
    pub(super) fn link_target(&self) -> Result<Vec<u8>, Errno> {
        readlinkat(&self.fd, "", Vec::new()).map(CString::into_bytes)
    }

    /// Gives the file another name.
    pub(super) fn link(&self, dir: &Handle, name: &OsStr) -> Result<(), Errno> {
        linkat(CWD, self.through_proc(), &dir.fd, name, AtFlags::SYMLINK_FOLLOW)
    }

    /// Sets the owner, which takes set-id bits away.
    pub(super) fn set_owner(&self, uid: u32, gid: u32) -> Result<(), Errno> {
        chownat(&self.fd, "", Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)), AtFlags::EMPTY_PATH)
    }

    /// Sets the mode of what is no symbolic link.
    pub(super) fn set_mode(&self, mode: u32) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(mode);
        if self.is_found { chmod(self.through_proc(), mode) } else { fchmod(&self.fd, mode) }
    }

    /// Sets both times.
    pub(super) fn set_times(&self, atime: Nanos, mtime: Nanos) -> Result<(), Errno> {
        let time = |nanos: Nanos| Timespec { tv_sec: nanos.div_euclid(NANOS), tv_nsec: nanos.rem_euclid(NANOS) as _ };
        let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
        match self.is_found {
            true => utimensat(CWD, self.through_proc(), &times, AtFlags::empty()),
            false => futimens(&self.fd, &times),
        }
    }

    /// The extended attributes that can be read; none where the file system has none.
    pub(super) fn xattrs(&self) -> Result<Vec<Xattr>, Errno> {
        let names = match sized(|buffer| self.list_xattrs(buffer)) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Vec::new()),
            names => names?,
        };
        let mut found = Vec::new();
        for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            match sized(|buffer| self.xattr(OsStr::from_bytes(name), buffer)) {
                Ok(value) => found.push((name.to_vec(), value)),
                Err(Errno::NODATA | Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(found)
    }

    /// Sets an extended attribute.
    pub(super) fn set_xattr(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        let name = OsStr::from_bytes(name);
        match self.is_found {
            true => setxattr(self.through_proc(), name, value, XattrFlags::empty()),
            false => fsetxattr(&self.fd, name, value, XattrFlags::empty()),
        }
    }

    /// Takes an extended attribute away that the file may have got from its directory.
    pub(super) fn clear_xattr(&self, name: &[u8]) -> Result<(), Errno> {
        let name = OsStr::from_bytes(name);
        // Looking first costs less than a change that changes nothing.
        match self.xattr(name, &mut []) {
            Ok(_) if self.is_found => rustix::fs::removexattr(self.through_proc(), name),
            Ok(_) => fremovexattr(&self.fd, name),
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    fn list_xattrs(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        if self.is_found { listxattr(self.through_proc(), buffer) } else { flistxattr(&self.fd, buffer) }
    }

    fn xattr(&self, name: &OsStr, buffer: &mut [u8]) -> Result<usize, Errno> {
        if self.is_found { getxattr(self.through_proc(), name, buffer) } else { fgetxattr(&self.fd, name, buffer) }
    }

    /// A path that leads to this very file, also where the system takes no descriptor of a file that was only found.
    fn through_proc(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))
    }
}

/// Whether the attributes are those of something that this process's user has just made under a name, and has no other.
pub(super) fn is_just_made(meta: &Meta, file_type: FileType, device: (u32, u32)) -> bool {
    let is_device = matches!(file_type, FileType::BlockDevice | FileType::CharDevice);
    meta.file_type == file_type
        && meta.links == 1
        && meta.uid == rustix::process::geteuid().as_raw()
        && (!is_device || meta.device == device)
}

fn open_at(dir: &Handle, name: &OsStr, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    openat(&dir.fd, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode)
}

/// Calls `get` with larger and larger buffers until the answer fits.
fn sized(get: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0; 256];
    loop {
        match get(&mut buffer) {
            Err(Errno::RANGE) if buffer.len() < 1 << 20 => buffer.resize(buffer.len() * 8, 0),
            len => {
                buffer.truncate(len?);
                return Ok(buffer);
            }
        }
    }
}
