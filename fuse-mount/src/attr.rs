//! Between `dataset`'s words and FUSE's: attributes, times, file types, error numbers. Pure conversions.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dataset::fs::{Attr, Errno, FileType, SetTime};
use fuser::{FileAttr, INodeNo, TimeOrNow};
use pool::env::Nanos;
use rustix::fs::FileType as ModeType;

const NANOS_PER_SEC: i128 = 1_000_000_000;

/// The error number, as a reply carries it.
pub(crate) fn errno(error: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(error.raw_os_error())
}

/// A file's attributes as the kernel is told them, under the number `node`.
pub(crate) fn file_attr(node: INodeNo, attr: &Attr) -> FileAttr {
    FileAttr {
        ino: node,
        size: attr.size,
        blocks: attr.blocks,
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: system_time(attr.crtime),
        kind: kind(attr.file_type),
        perm: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: attr.block_size,
        flags: 0,
    }
}

/// A file's type in FUSE's words.
pub(crate) fn kind(file_type: FileType) -> fuser::FileType {
    match file_type {
        FileType::Regular => fuser::FileType::RegularFile,
        FileType::Directory => fuser::FileType::Directory,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Socket => fuser::FileType::Socket,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
        FileType::CharDevice => fuser::FileType::CharDevice,
    }
}

/// What `mknod` may make, from its mode's type bits: no type at all means a regular file.
pub(crate) fn node_type(mode: u32) -> Result<FileType, Errno> {
    match ModeType::from_raw_mode(mode) {
        ModeType::RegularFile => Ok(FileType::Regular),
        ModeType::Fifo => Ok(FileType::Fifo),
        ModeType::Socket => Ok(FileType::Socket),
        ModeType::BlockDevice => Ok(FileType::BlockDevice),
        ModeType::CharacterDevice => Ok(FileType::CharDevice),
        _ if mode & 0o170_000 == 0 => Ok(FileType::Regular),
        _ => Err(Errno::INVAL),
    }
}

/// A point in time as `std` has it.
pub(crate) fn system_time(nanos: Nanos) -> SystemTime {
    let distance = Duration::from_nanos(nanos.unsigned_abs());
    if nanos >= 0 { UNIX_EPOCH + distance } else { UNIX_EPOCH - distance }
}

/// A time out of a request, saturated to what 64 bits of nanoseconds hold (the years 1677 to 2262).
///
/// The kernel sends seconds, negative before 1970, and nanoseconds that count forward from them. `fuser` takes both
/// from 1970 when the seconds are negative, so that -1.2 s, sent as (-2, 800 ms), arrives as -2.8 s. Taking the
/// distance apart again gives what the kernel sent.
pub(crate) fn request_time(time: SystemTime) -> Nanos {
    let (seconds, nanos) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (i128::from(after.as_secs()), after.subsec_nanos()),
        Err(before) => (-i128::from(before.duration().as_secs()), before.duration().subsec_nanos()),
    };
    let total = seconds * NANOS_PER_SEC + i128::from(nanos);
    total.clamp(i128::from(Nanos::MIN), i128::from(Nanos::MAX)) as Nanos
}

/// A time to set.
pub(crate) fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::At(request_time(time)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `fuser` makes of the kernel's pair.
    fn as_fuser_parses(seconds: i64, nanos: u32) -> SystemTime {
        if seconds >= 0 {
            UNIX_EPOCH + Duration::new(seconds as u64, nanos)
        } else {
            UNIX_EPOCH - Duration::new(seconds.unsigned_abs(), nanos)
        }
    }

    #[test]
    fn request_times_are_what_the_kernel_sent() {
        for (seconds, nanos, expected) in [
            (0, 0, 0),
            (1, 5, 1_000_000_005),
            (-1, 0, -1_000_000_000),
            (-2, 800_000_000, -1_200_000_000),
            (i64::MAX, 0, Nanos::MAX),
            (-9_300_000_000, 0, Nanos::MIN),
        ] {
            assert_eq!(request_time(as_fuser_parses(seconds, nanos)), expected, "({seconds}, {nanos})");
        }
    }

    #[test]
    fn times_before_1970_are_before_1970() {
        assert_eq!(system_time(-1_500_000_000), UNIX_EPOCH - Duration::from_millis(1500));
        assert_eq!(system_time(Nanos::MAX), UNIX_EPOCH + Duration::from_nanos(i64::MAX as u64));
        assert!(system_time(Nanos::MIN) < UNIX_EPOCH);
    }

    #[test]
    fn mknod_makes_everything_but_directories_and_links() {
        assert_eq!(node_type(0o644), Ok(FileType::Regular));
        assert_eq!(node_type(0o100_644), Ok(FileType::Regular));
        assert_eq!(node_type(0o010_644), Ok(FileType::Fifo));
        assert_eq!(node_type(0o140_644), Ok(FileType::Socket));
        assert_eq!(node_type(0o060_644), Ok(FileType::BlockDevice));
        assert_eq!(node_type(0o020_644), Ok(FileType::CharDevice));
        assert_eq!(node_type(0o040_755), Err(Errno::INVAL));
        assert_eq!(node_type(0o120_777), Err(Errno::INVAL));
    }
}
