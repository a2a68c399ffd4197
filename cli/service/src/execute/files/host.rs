//! Files of this machine, for copies: attributes, names, holes, bytes.
//!
//! [`super::handle`] holds a single file, [`super::trail`] the path to the file.

use std::os::fd::{AsFd, OwnedFd};

use dataset::fs::{Errno, FileType};
use pool::env::Nanos;
use rustix::fs::{RawDir, SeekFrom, Stat, seek};

/// The type bits of a mode.
const TYPE: u32 = 0o170_000;
pub(super) const NANOS: i64 = 1_000_000_000;
/// The size of the buffer for names, in bytes: some thousand names.
const NAMES: usize = 64 << 10;

/// An extended attribute: its name and its value.
pub(super) type Xattr = (Vec<u8>, Vec<u8>);

/// The attributes of a file that a copy uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) file_type: FileType,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) links: u64,
    /// Device and inode: equal for two names of the same file.
    pub(super) identity: (u64, u64),
    pub(super) device: (u32, u32),
    pub(super) atime: Nanos,
    pub(super) mtime: Nanos,
}

impl Meta {
    pub(super) fn new(stat: &Stat) -> Result<Meta, Errno> {
        let file_type = FileType::from_code(((stat.st_mode & TYPE) >> 12) as u8).map_err(|_| Errno::INVAL)?;
        let nanos = |seconds: i64, part: u64| seconds.saturating_mul(NANOS).saturating_add(part as i64);
        Ok(Meta {
            file_type,
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            links: stat.st_nlink,
            identity: (stat.st_dev, stat.st_ino),
            device: (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)),
            atime: nanos(stat.st_atime, stat.st_atime_nsec),
            mtime: nanos(stat.st_mtime, stat.st_mtime_nsec),
        })
    }
}

/// The next names of an open directory, sorted, each with whether the entry is reported as a directory; without `.`
/// and `..`. Empty at the end.
pub(super) fn names(dir: &OwnedFd) -> Result<Vec<(Vec<u8>, bool)>, Errno> {
    let mut names = Vec::new();
    let mut buffer = Vec::with_capacity(NAMES);
    let mut entries = RawDir::new(dir.as_fd(), buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push((name.to_vec(), entry.file_type() == rustix::fs::FileType::Directory));
        }
        // Entries still in the buffer would be lost.
        if entries.is_buffer_empty() && !names.is_empty() {
            break;
        }
    }
    names.sort();
    Ok(names)
}

/// The next data range of an open file, at or after `offset`. The range has no end if the file system does not report
/// holes.
pub(super) fn next_data(file: &OwnedFd, offset: u64) -> Result<Option<(u64, u64)>, Errno> {
    match seek(file, SeekFrom::Data(offset)) {
        Ok(start) => Ok(Some((start, seek(file, SeekFrom::Hole(start))?))),
        Err(Errno::NXIO) => Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::SPIPE) => Ok(Some((offset, u64::MAX))),
        Err(errno) => Err(errno),
    }
}

/// Fills `buffer` from `offset` on. Returns the number of bytes; less than all only at the end of the file.
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
