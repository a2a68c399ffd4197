//! This machine's files, as far as a copy needs them.
//!
//! Names are looked up relative to an open directory, and a symbolic link is never followed, so nobody who renames
//! things meanwhile can lead a copy astray.

use std::{
    ffi::{CString, OsStr},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use dataset::fs::{Errno, FileType};
use pool::env::Nanos;
use rustix::fs::{
    AtFlags, Mode, OFlags, RawDir, SeekFrom, Stat, Timespec, Timestamps, XattrFlags, lgetxattr, llistxattr, lsetxattr,
    openat, seek, statat, utimensat,
};

/// The type bits of a mode.
const TYPE: u32 = 0o170_000;
const NANOS: i64 = 1_000_000_000;

/// An extended attribute: its name and its value.
pub(super) type Xattr = (Vec<u8>, Vec<u8>);

/// Where a file of this machine stands: an open directory and the name in it; the path is for messages.
pub(super) struct Spot<'a> {
    pub(super) dir: &'a OwnedFd,
    pub(super) name: &'a OsStr,
    pub(super) path: &'a Path,
}

/// What a copy wants to know of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) file_type: FileType,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) size: u64,
    pub(super) links: u64,
    /// Device and inode: the same for two names of one file.
    pub(super) identity: (u64, u64),
    pub(super) device: (u32, u32),
    pub(super) atime: Nanos,
    pub(super) mtime: Nanos,
}

impl Meta {
    fn new(stat: &Stat) -> Result<Meta, Errno> {
        let file_type = FileType::from_code(((stat.st_mode & TYPE) >> 12) as u8).map_err(|_| Errno::INVAL)?;
        let nanos = |seconds: i64, part: u64| seconds.saturating_mul(NANOS).saturating_add(part as i64);
        Ok(Meta {
            file_type,
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            size: stat.st_size as u64,
            links: stat.st_nlink,
            identity: (stat.st_dev, stat.st_ino),
            device: (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)),
            atime: nanos(stat.st_atime, stat.st_atime_nsec),
            mtime: nanos(stat.st_mtime, stat.st_mtime_nsec),
        })
    }
}

/// Opens a directory by an absolute path; symbolic links on the way are followed, as the user wrote them.
pub(super) fn open_directory(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Reads a symbolic link.
pub(super) fn read_link(spot: &Spot<'_>) -> Result<Vec<u8>, Errno> {
    rustix::fs::readlinkat(spot.dir, spot.name, Vec::new()).map(CString::into_bytes)
}

impl Spot<'_> {
    /// The attributes; of the link itself, if it is one.
    pub(super) fn meta(&self) -> Result<Meta, Errno> {
        Meta::new(&statat(self.dir, self.name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Opens the file; a symbolic link is an error.
    pub(super) fn open(&self, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        openat(self.dir, self.name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode)
    }

    /// Opens the directory.
    pub(super) fn open_directory(&self) -> Result<OwnedFd, Errno> {
        self.open(OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
    }

    /// Sets both times.
    pub(super) fn set_times(&self, atime: Nanos, mtime: Nanos) -> Result<(), Errno> {
        let time = |nanos: Nanos| Timespec { tv_sec: nanos.div_euclid(NANOS), tv_nsec: nanos.rem_euclid(NANOS) as _ };
        let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
        utimensat(self.dir, self.name, &times, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Attributes of any type of file can be reached through a path only.
    fn through_proc(&self) -> PathBuf {
        Path::new("/proc/self/fd").join(self.dir.as_raw_fd().to_string()).join(self.name)
    }

    /// The extended attributes that can be read; none where the file system has none.
    pub(super) fn xattrs(&self) -> Result<Vec<Xattr>, Errno> {
        let path = self.through_proc();
        let names = match sized(|buffer| llistxattr(&path, buffer)) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Vec::new()),
            names => names?,
        };
        let mut found = Vec::new();
        for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            match sized(|buffer| lgetxattr(&path, OsStr::from_bytes(name), buffer)) {
                Ok(value) => found.push((name.to_vec(), value)),
                Err(Errno::NODATA | Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(found)
    }

    /// Sets an extended attribute.
    pub(super) fn set_xattr(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        lsetxattr(self.through_proc(), OsStr::from_bytes(name), value, XattrFlags::empty())
    }
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

/// The names in a directory, sorted, `.` and `..` left out.
pub(super) fn names(dir: &OwnedFd) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    let mut buffer = Vec::with_capacity(64 << 10);
    let mut entries = RawDir::new(dir.as_fd(), buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// The next stretch of an open file that is no hole, at or after `offset`; without an end where the file system knows no
/// holes.
pub(super) fn next_data(file: &OwnedFd, offset: u64) -> Result<Option<(u64, u64)>, Errno> {
    match seek(file, SeekFrom::Data(offset)) {
        Ok(start) => Ok(Some((start, seek(file, SeekFrom::Hole(start))?))),
        Err(Errno::NXIO) => Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::SPIPE) => Ok(Some((offset, u64::MAX))),
        Err(errno) => Err(errno),
    }
}

/// Fills `buffer` from `offset` on, and says how far; less than all only at the end of the file.
pub(super) fn read_at(file: &OwnedFd, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
    let mut filled = 0;
    while filled < buffer.len() {
        match rustix::io::pread(file, &mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(filled)
}

/// Writes all of `bytes` at `offset`.
pub(super) fn write_at(file: &OwnedFd, mut offset: u64, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(file, bytes, offset) {
            Ok(written) => {
                bytes = &bytes[written..];
                offset += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
