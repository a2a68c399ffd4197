//! The seam: what a transport may ask of a mounted file system, free of how requests arrive and replies leave.
//!
//! Above are the transports. A transport parses the bytes of a request, calls its one method here, and encodes the
//! result as a reply. Below are the handlers: for a dataset this crate's dispatcher, for a benchmark a file system in
//! memory. Arguments and results are plain values, every method returns when the request is done, and no method knows
//! the transport. So the *meaning* of a request is written once.
//!
//! What is *not* answered matters as much. The kernel takes [`Errno::NOSYS`] as "not needed, never ask again".
//! Transports answer so to requests without a method here: `opendir`, `flush`, `poll`, `bmap`. A handler may answer so
//! to `open`; then there are no releases either. Locks are not offered, so the kernel keeps locks itself.
//!
//! Only `fsync` may take long by its nature. [`Handler::must_sync`] only says whether there is anything to wait for; a
//! transport with few threads waits elsewhere.

use std::time::Duration;

use dataset::fs::{Attr, Caller, Errno, FileType, SetAttr, StatFs};
pub use fuser::{FopenFlags, INodeNo, Notifier, RenameFlags, WriteFlags};
use rustix::fs::OFlags;

use crate::counters::Opcode;

/// How long the kernel may cache an answer: until an invalidation.
pub const FOREVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The program behind a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requester {
    /// The effective user ID.
    pub uid: u32,
    /// The effective group ID.
    pub gid: u32,
    /// The process ID, in the PID namespace of the mount.
    pub pid: u32,
}

impl Requester {
    pub(crate) fn caller(&self) -> Caller {
        self.maker(0)
    }

    /// The creator of a new file. Without access control lists the kernel has applied the umask already.
    pub(crate) fn maker(&self, umask: u32) -> Caller {
        Caller { uid: self.uid, gid: self.gid, umask }
    }
}

/// A file named in a reply. Each entry that reaches the kernel gives the kernel one more reference, until the kernel
/// [forgets](Handler::forget) the file.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The number by which the kernel knows the file.
    pub node: INodeNo,
    /// The file's attributes.
    pub attr: Attr,
    /// Differs between files that have had the same number.
    pub generation: u64,
    /// How long the kernel may cache the name.
    pub name_lifetime: Duration,
    /// How long the kernel may cache the attributes.
    pub attr_lifetime: Duration,
}

/// An entry of a directory listing.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// The number by which the kernel knows the file.
    pub node: INodeNo,
    /// The type, shown as `d_type`.
    pub file_type: FileType,
    /// The name, without a zero byte at the end.
    pub name: &'a [u8],
    /// The position from which a listing continues behind this entry.
    pub cookie: u64,
}

/// The circumstances of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writing {
    /// The request's flags.
    pub flags: WriteFlags,
    /// The file was opened with `O_DIRECT`: the bytes bypass the kernel's cache.
    pub past: bool,
}

impl Writing {
    /// For a request with these flags, on a file opened with the open(2) flags `opened`.
    pub fn new(flags: WriteFlags, opened: i32) -> Writing {
        Writing { flags, past: is_direct(opened) && !flags.contains(WriteFlags::FUSE_WRITE_CACHE) }
    }
}

/// Whether I/O on a file opened with these open(2) flags bypasses the kernel's cache.
pub fn is_direct(opened: i32) -> bool {
    opened & OFlags::DIRECT.bits().cast_signed() != 0
}

/// The answer to a program that asked for a value, or only for its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fitted {
    /// The program gave no room: the value's size in bytes.
    Size(u32),
    /// The value, at most as long as the program's room.
    Value(Vec<u8>),
}

impl Fitted {
    /// The answer for a program with `room` bytes. `ERANGE` if the value is longer.
    pub fn fit(value: Vec<u8>, room: u32) -> Result<Fitted, Errno> {
        match room {
            0 => Ok(Fitted::Size(u32::try_from(value.len()).unwrap_or(u32::MAX))),
            room if value.len() > room as usize => Err(Errno::RANGE),
            _ => Ok(Fitted::Value(value)),
        }
    }
}

/// Answers the requests of one mount, on any number of threads. Methods without an override answer "not supported".
pub trait Handler: Send + Sync + 'static {
    /// Counts a request of this kind. Called before any other method, and for requests without a method too.
    fn count(&self, _opcode: Opcode) {}

    /// A request of this kind about `node` comes from a program, and carries so many bytes of data.
    fn note(&self, _who: &Requester, _node: INodeNo, _opcode: Opcode, _bytes: u64) {}

    /// Looks up a name. The kernel may cache `None`, which means that the name does not exist.
    fn lookup(&self, dir: INodeNo, name: &[u8]) -> Result<Option<Entry>, Errno>;

    /// The kernel returns `count` references.
    fn forget(&self, node: INodeNo, count: u64);

    /// The attributes, and how long the kernel may cache them.
    fn getattr(&self, node: INodeNo) -> Result<(Attr, Duration), Errno>;

    /// Changes attributes; returns all attributes and how long the kernel may cache them.
    fn setattr(&self, requester: &Requester, node: INodeNo, change: &SetAttr) -> Result<(Attr, Duration), Errno>;

    /// The target of a symbolic link.
    fn readlink(&self, node: INodeNo) -> Result<Vec<u8>, Errno>;

    /// Makes a file of any type but a directory. `how`: mode (with the type), umask, device number.
    fn mknod(&self, requester: &Requester, dir: INodeNo, name: &[u8], how: (u32, u32, u32)) -> Result<Entry, Errno>;

    /// Makes a directory. `how`: mode, umask.
    fn mkdir(&self, requester: &Requester, dir: INodeNo, name: &[u8], how: (u32, u32)) -> Result<Entry, Errno>;

    /// Removes a name that is not a directory's.
    fn unlink(&self, dir: INodeNo, name: &[u8]) -> Result<(), Errno>;

    /// Removes an empty directory.
    fn rmdir(&self, dir: INodeNo, name: &[u8]) -> Result<(), Errno>;

    /// Makes a symbolic link.
    fn symlink(&self, requester: &Requester, dir: INodeNo, name: &[u8], target: &[u8]) -> Result<Entry, Errno>;

    /// Renames a file or directory, as `renameat2` does.
    fn rename(
        &self,
        requester: &Requester,
        from: (INodeNo, &[u8]),
        to: (INodeNo, &[u8]),
        flags: RenameFlags,
    ) -> Result<(), Errno>;

    /// Makes a hard link.
    fn link(&self, node: INodeNo, dir: INodeNo, name: &[u8]) -> Result<Entry, Errno>;

    /// Opens a file with these open(2) flags.
    fn open(&self, _node: INodeNo, _flags: i32) -> Result<FopenFlags, Errno> {
        Err(Errno::NOSYS)
    }

    /// A file opened with these flags is closed, and all mappings made from it are gone.
    fn release(&self, _node: INodeNo, _flags: i32) {}

    /// Appends up to `size` bytes to `out`, fewer only at the end of the file. The kernel caches the bytes unless
    /// `past`.
    fn read(&self, node: INodeNo, offset: u64, size: u32, past: bool, out: &mut Vec<u8>) -> Result<(), Errno>;

    /// Writes, and clears set-id bits if the kernel says so. Returns the number of bytes.
    fn write(&self, requester: &Requester, node: INodeNo, offset: u64, data: &[u8], how: Writing)
    -> Result<u32, Errno>;

    /// Whether the kernel may have cached pages of a file that a write past the cache has left out of date.
    fn must_recall(&self, _node: INodeNo, _how: Writing) -> bool {
        false
    }

    /// Makes the kernel drop the cached pages of a range, before the program learns that the write is done. The calling
    /// thread must not be needed by other requests: the kernel may be reading just this range, and waits for the
    /// answer.
    fn recall(&self, _node: INodeNo, _offset: u64, _length: u64) {}

    /// Whether a sync of a file or directory has anything to wait for.
    fn must_sync(&self, _node: INodeNo) -> Result<bool, Errno> {
        Ok(false)
    }

    /// Returns when everything done before is durable.
    fn sync(&self) -> Result<(), Errno> {
        Ok(())
    }

    /// Lists from behind `cookie` on, until `each` returns false because it has no room for the entry.
    fn readdir(&self, dir: INodeNo, cookie: u64, each: &mut dyn FnMut(Listed<'_>) -> bool) -> Result<(), Errno>;

    /// Like [`Handler::readdir`], with a lookup of each entry.
    fn readdirplus(
        &self,
        dir: INodeNo,
        cookie: u64,
        each: &mut dyn FnMut(Listed<'_>, &Entry) -> bool,
    ) -> Result<(), Errno>;

    /// Sizes and free space.
    fn statfs(&self, node: INodeNo) -> Result<StatFs, Errno>;

    /// Sets an extended attribute; the flags are those of setxattr(2).
    fn setxattr(&self, _: &Requester, _node: INodeNo, _name: &[u8], _value: &[u8], _flags: i32) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// An extended attribute, for a program with `room` bytes.
    fn getxattr(&self, _node: INodeNo, _name: &[u8], _room: u32) -> Result<Fitted, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// The names of a file's extended attributes, each ended by a zero byte.
    fn listxattr(&self, _: &Requester, _node: INodeNo, _room: u32) -> Result<Fitted, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Removes an extended attribute.
    fn removexattr(&self, _node: INodeNo, _name: &[u8]) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Makes a file and opens it. `how`: mode, umask, open(2) flags.
    fn create(
        &self,
        requester: &Requester,
        dir: INodeNo,
        name: &[u8],
        how: (u32, u32, i32),
    ) -> Result<(Entry, FopenFlags), Errno>;

    /// Allocates, zeroes or punches a range; the mode is that of fallocate(2).
    fn fallocate(&self, _node: INodeNo, _mode: i32, _offset: u64, _length: u64) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Executes a command of ioctl(2).
    fn ioctl(&self, _: &Requester, _node: INodeNo, _command: u32, _data: &[u8]) -> Result<Vec<u8>, Errno> {
        Err(Errno::NOTTY)
    }

    /// The next data or hole, as lseek(2) defines them.
    fn lseek(&self, _node: INodeNo, _offset: i64, _whence: i32) -> Result<i64, Errno> {
        Err(Errno::NOSYS)
    }

    /// Copies a range; returns the number of bytes copied.
    fn copy_file_range(&self, _from: (INodeNo, u64), _to: (INodeNo, u64), _length: u64) -> Result<u32, Errno> {
        Err(Errno::NOSYS)
    }

    /// The handshake is done; invalidations can be sent from now on.
    fn begun(&self, _notifier: Notifier) {}

    /// The connection has ended; the kernel holds no references.
    fn ended(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_measured_or_must_fit() {
        let value = || b"value".to_vec();
        assert_eq!(Fitted::fit(value(), 0), Ok(Fitted::Size(5)));
        assert_eq!(Fitted::fit(value(), 4), Err(Errno::RANGE));
        assert_eq!(Fitted::fit(value(), 5), Ok(Fitted::Value(value())));
        assert_eq!(Fitted::fit(Vec::new(), 1), Ok(Fitted::Value(Vec::new())));
    }
}
