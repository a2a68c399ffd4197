//! A file of this machine, held by a descriptor.
//!
//! A copy reads and sets all attributes of a file through the descriptor, never by name. The owner of the directory
//! may replace the name at any moment, and a mode with the set-user-ID bit must not reach the replacement. Symbolic
//! links are never followed. Only regular files and directories are opened for reading: opening a fifo blocks, and
//! opening a device may have any effect.

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

/// An open file. A handle from [`Handle::find`] has a descriptor without access to the content.
#[derive(Debug)]
pub(super) struct Handle {
    fd: OwnedFd,
    is_found: bool,
}

impl Handle {
    /// Opens `name` in a directory without access to the content, and without following a link. Opening has no effect
    /// on the file.
    pub(super) fn find(dir: &Handle, name: &OsStr) -> Result<Handle, Errno> {
        Ok(Handle { fd: open_at(dir, name, OFlags::PATH, Mode::empty())?, is_found: true })
    }

    /// Opens the directory `name` in a directory.
    pub(super) fn directory(dir: &Handle, name: &OsStr) -> Result<Handle, Errno> {
        let fd = open_at(dir, name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        Ok(Handle { fd, is_found: false })
    }

    /// Opens the directory at a path, following symbolic links, because the user wrote the path.
    pub(super) fn directory_of(path: &Path) -> Result<Handle, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Handle { fd: rustix::fs::open(path, flags, Mode::empty())?, is_found: true })
    }

    /// Duplicates the descriptor.
    pub(super) fn again(&self) -> Result<Handle, Errno> {
        Ok(Handle { fd: rustix::io::fcntl_dupfd_cloexec(&self.fd, 0)?, is_found: self.is_found })
    }

    /// Creates a regular file, accessible only to this process's user until the mode is changed.
    pub(super) fn create(dir: &Handle, name: &OsStr) -> Result<Handle, Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        Ok(Handle { fd: open_at(dir, name, flags, Mode::from_raw_mode(0o600))?, is_found: false })
    }

    /// Reopens the found regular file or directory, the same inode, for reading.
    pub(super) fn readable(&self) -> Result<Handle, Errno> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        Ok(Handle { fd: rustix::fs::open(self.through_proc(), flags, Mode::empty())?, is_found: false })
    }

    /// The open descriptor.
    pub(super) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// The attributes of the open file.
    pub(super) fn meta(&self) -> Result<Meta, Errno> {
        Meta::new(&fstat(&self.fd)?)
    }

    /// The target of a found symbolic link.
    pub(super) fn link_target(&self) -> Result<Vec<u8>, Errno> {
        readlinkat(&self.fd, "", Vec::new()).map(CString::into_bytes)
    }

    /// Links the file to another name.
    pub(super) fn link(&self, dir: &Handle, name: &OsStr) -> Result<(), Errno> {
        linkat(CWD, self.through_proc(), &dir.fd, name, AtFlags::SYMLINK_FOLLOW)
    }

    /// Sets the owner, which clears set-id bits.
    pub(super) fn set_owner(&self, uid: u32, gid: u32) -> Result<(), Errno> {
        chownat(&self.fd, "", Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)), AtFlags::EMPTY_PATH)
    }

    /// Sets the mode. Not for symbolic links.
    pub(super) fn set_mode(&self, mode: u32) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(mode);
        if self.is_found { chmod(self.through_proc(), mode) } else { fchmod(&self.fd, mode) }
    }

    /// Sets access and modification time.
    pub(super) fn set_times(&self, atime: Nanos, mtime: Nanos) -> Result<(), Errno> {
        let time = |nanos: Nanos| Timespec { tv_sec: nanos.div_euclid(NANOS), tv_nsec: nanos.rem_euclid(NANOS) as _ };
        let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
        match self.is_found {
            true => utimensat(CWD, self.through_proc(), &times, AtFlags::empty()),
            false => futimens(&self.fd, &times),
        }
    }

    /// The readable extended attributes; empty if the file system does not support attributes.
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

    /// Sets an extended attribute, or replaces its value.
    pub(super) fn set_xattr(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        let name = OsStr::from_bytes(name);
        match self.is_found {
            true => setxattr(self.through_proc(), name, value, XattrFlags::empty()),
            false => fsetxattr(&self.fd, name, value, XattrFlags::empty()),
        }
    }

    /// Removes an extended attribute that the file may have inherited from its directory.
    pub(super) fn clear_xattr(&self, name: &[u8]) -> Result<(), Errno> {
        let name = OsStr::from_bytes(name);
        // A lookup costs less than a removal without effect.
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

    /// A path to this same inode, for system calls that refuse an `O_PATH` descriptor.
    fn through_proc(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))
    }
}

/// Whether the attributes fit a file just created by this process's user, with a single link.
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
