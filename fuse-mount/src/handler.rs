//! The seam: what a transport may ask of whoever is mounted, free of how the question came and how the answer goes back.
//!
//! Above it are the transports. Each takes the bytes of a request apart, calls the one method for it, and puts what that
//! returns into its own kind of reply. Below is what answers: for a dataset this crate's dispatcher, for a
//! benchmark a file system in memory. Arguments and results are plain values, every method returns when the request is
//! done, and nothing here knows which transport it is. So what a request *means* is written once.
//!
//! What is *not* answered matters as much. The kernel takes [`Errno::NOSYS`] as "not needed, never ask again", and transports
//! answer so to what has no method here: `opendir`, `flush`, `poll`, `bmap`. A handler may say the same of `open`;
//! then nothing is released either. Locks are not offered, so that the kernel keeps them
//! itself.
//!
//! The one request that may take long for its own sake is `fsync`. [`Handler::must_sync`] only says whether it has anything
//! to wait for; a transport that has few threads waits elsewhere.

use std::time::Duration;

use dataset::fs::{Attr, Caller, Errno, FileType, SetAttr, StatFs};
pub use fuser::{FopenFlags, INodeNo, Notifier, RenameFlags, WriteFlags};
use rustix::fs::OFlags;

use crate::counters::Opcode;

/// How long the kernel may believe what it was told: until it is told otherwise.
pub const FOREVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The program behind a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requester {
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
    /// Its process.
    pub pid: u32,
}

impl Requester {
    pub(crate) fn caller(&self) -> Caller {
        self.maker(0)
    }

    /// Who makes something new. Without access control lists the kernel has applied the umask already.
    pub(crate) fn maker(&self, umask: u32) -> Caller {
        Caller { uid: self.uid, gid: self.gid, umask }
    }
}

/// A file named in a reply. With every one that gets through, the kernel has a reference more, until it
/// [forgets](Handler::forget) it.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The number that the kernel knows it by.
    pub node: INodeNo,
    /// Its attributes.
    pub attr: Attr,
    /// What distinguishes it from other files that ever had this number.
    pub generation: u64,
    /// How long the name leads there.
    pub name_lifetime: Duration,
    /// How long the attributes hold.
    pub attr_lifetime: Duration,
}

/// An entry of a directory listing.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// The number that the kernel knows it by.
    pub node: INodeNo,
    /// Its type.
    pub file_type: FileType,
    /// Its name.
    pub name: &'a [u8],
    /// Where to go on behind it.
    pub cookie: u64,
}

/// How something is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writing {
    /// The request's flags.
    pub flags: WriteFlags,
    /// The file was opened with `O_DIRECT`: the kernel's cache does not get these bytes.
    pub past: bool,
}

impl Writing {
    /// By a request with these flags, on a file that was opened with those of open(2).
    pub fn new(flags: WriteFlags, opened: i32) -> Writing {
        Writing { flags, past: is_direct(opened) && !flags.contains(WriteFlags::FUSE_WRITE_CACHE) }
    }
}

/// Whether a file that was opened with these flags of open(2) is read and written past the kernel's cache.
pub fn is_direct(opened: i32) -> bool {
    opened & OFlags::DIRECT.bits().cast_signed() != 0
}

/// The answer to a program that asked for a value, or only for its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fitted {
    /// It gave no room: the value has so many bytes.
    Size(u32),
    /// The value.
    Value(Vec<u8>),
}

impl Fitted {
    /// The answer for `room` bytes.
    pub fn fit(value: Vec<u8>, room: u32) -> Result<Fitted, Errno> {
        match room {
            0 => Ok(Fitted::Size(u32::try_from(value.len()).unwrap_or(u32::MAX))),
            room if value.len() > room as usize => Err(Errno::RANGE),
            _ => Ok(Fitted::Value(value)),
        }
    }
}

/// Answers the requests of one mount, on any number of threads. What is not overridden is not there.
pub trait Handler: Send + Sync + 'static {
    /// A request of this kind has come. Said before anything else is asked about it, also if nothing is.
    fn count(&self, _opcode: Opcode) {}

    /// What has this name. `None` says that nothing has, which the kernel may remember.
    fn lookup(&self, dir: INodeNo, name: &[u8]) -> Result<Option<Entry>, Errno>;

    /// The kernel gives `count` references back.
    fn forget(&self, node: INodeNo, count: u64);

    /// The attributes, and how long they hold.
    fn getattr(&self, node: INodeNo) -> Result<(Attr, Duration), Errno>;

    /// Changes attributes, and returns them with how long they hold.
    fn setattr(&self, requester: &Requester, node: INodeNo, change: &SetAttr) -> Result<(Attr, Duration), Errno>;

    /// Where a symbolic link leads.
    fn readlink(&self, node: INodeNo) -> Result<Vec<u8>, Errno>;

    /// Makes a file of any type but a directory, of this mode (with the type), umask and device number.
    fn mknod(&self, requester: &Requester, dir: INodeNo, name: &[u8], how: (u32, u32, u32)) -> Result<Entry, Errno>;

    /// Makes a directory of this mode and umask.
    fn mkdir(&self, requester: &Requester, dir: INodeNo, name: &[u8], how: (u32, u32)) -> Result<Entry, Errno>;

    /// Removes a name that is no directory's.
    fn unlink(&self, dir: INodeNo, name: &[u8]) -> Result<(), Errno>;

    /// Removes an empty directory.
    fn rmdir(&self, dir: INodeNo, name: &[u8]) -> Result<(), Errno>;

    /// Makes a symbolic link.
    fn symlink(&self, requester: &Requester, dir: INodeNo, name: &[u8], target: &[u8]) -> Result<Entry, Errno>;

    /// Gives a file another name.
    fn rename(
        &self,
        requester: &Requester,
        from: (INodeNo, &[u8]),
        to: (INodeNo, &[u8]),
        flags: RenameFlags,
    ) -> Result<(), Errno>;

    /// Gives a file a further name.
    fn link(&self, node: INodeNo, dir: INodeNo, name: &[u8]) -> Result<Entry, Errno>;

    /// Opens a file with these flags of open(2).
    fn open(&self, _node: INodeNo, _flags: i32) -> Result<FopenFlags, Errno> {
        Err(Errno::NOSYS)
    }

    /// A file that was opened with these flags is closed, and no mapping that came of it is left.
    fn release(&self, _node: INodeNo, _flags: i32) {}

    /// Appends up to `size` bytes to `out`: fewer only where the file ends. The kernel keeps them, unless they go `past`
    /// its cache.
    fn read(&self, node: INodeNo, offset: u64, size: u32, past: bool, out: &mut Vec<u8>) -> Result<(), Errno>;

    /// Writes, and takes set-id bits away if the kernel says so. Returns how many bytes.
    fn write(&self, requester: &Requester, node: INodeNo, offset: u64, data: &[u8], how: Writing)
    -> Result<u32, Errno>;

    /// Whether the kernel may have pages of a file that a write past its cache has not reached.
    fn must_recall(&self, _node: INodeNo, _how: Writing) -> bool {
        false
    }

    /// Has the kernel drop what it has of a range, before the program learns that its write is done. To be called by a
    /// thread that others do not wait for: the kernel may be reading just that range, and waits for the answer.
    fn recall(&self, _node: INodeNo, _offset: u64, _length: u64) {}

    /// Whether a sync of a file or of a directory has anything to wait for.
    fn must_sync(&self, _node: INodeNo) -> Result<bool, Errno> {
        Ok(false)
    }

    /// Returns when everything done before is durable.
    fn sync(&self) -> Result<(), Errno> {
        Ok(())
    }

    /// Lists from behind `cookie` on, until `each` returns false: it has no room for the entry.
    fn readdir(&self, dir: INodeNo, cookie: u64, each: &mut dyn FnMut(Listed<'_>) -> bool) -> Result<(), Errno>;

    /// The same, and looks each entry up.
    fn readdirplus(
        &self,
        dir: INodeNo,
        cookie: u64,
        each: &mut dyn FnMut(Listed<'_>, &Entry) -> bool,
    ) -> Result<(), Errno>;

    /// How much room there is.
    fn statfs(&self, node: INodeNo) -> Result<StatFs, Errno>;

    /// Sets an extended attribute; the flags are setxattr(2)'s.
    fn setxattr(&self, _: &Requester, _node: INodeNo, _name: &[u8], _value: &[u8], _flags: i32) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// An extended attribute, for a program that has so much room.
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

    /// Makes a file of this mode and umask, and opens it with these flags of open(2).
    fn create(
        &self,
        requester: &Requester,
        dir: INodeNo,
        name: &[u8],
        how: (u32, u32, i32),
    ) -> Result<(Entry, FopenFlags), Errno>;

    /// Changes what is a hole in a file; the mode is fallocate(2)'s.
    fn fallocate(&self, _node: INodeNo, _mode: i32, _offset: u64, _length: u64) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Carries out a command of ioctl(2).
    fn ioctl(&self, _: &Requester, _node: INodeNo, _command: u32, _data: &[u8]) -> Result<Vec<u8>, Errno> {
        Err(Errno::NOTTY)
    }

    /// Where data or a hole begins.
    fn lseek(&self, _node: INodeNo, _offset: i64, _whence: i32) -> Result<i64, Errno> {
        Err(Errno::NOSYS)
    }

    /// Copies a range, and returns how many bytes.
    fn copy_file_range(&self, _from: (INodeNo, u64), _to: (INodeNo, u64), _length: u64) -> Result<u32, Errno> {
        Err(Errno::NOSYS)
    }

    /// The kernel and the mount have come to terms, and can be told of changes.
    fn begun(&self, _notifier: Notifier) {}

    /// The kernel has no references any more.
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
