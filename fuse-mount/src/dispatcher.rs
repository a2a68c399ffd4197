//! What the kernel may ask for, free of how the question came and how the answer goes back: the seam between the
//! transports and the file system.
//!
//! Above it are the transports. Each takes the bytes of a request apart, calls the one method for it, and puts what
//! that returns into its own kind of reply. Below is the [`Server`], and `dataset`. Arguments and results are plain
//! values, every method returns when the request is done, and nothing here knows whether a reply was `fuser`'s. So what
//! a request *means* is written once, and transports differ only where they do not get to see the same of it: `fuser` keeps
//! back whether a truncation takes set-id bits away.
//!
//! Methods whose request takes more than one call are short here and have their work in
//! [`operations`](crate::operations).
//!
//! What is *not* answered matters as much. `open` (mostly), `opendir` and `flush` get `ENOSYS`, which the kernel takes as
//! "not needed, never ask again"; transports answer the same to what has no method here, as `poll` and `bmap`. Locks are
//! not offered, so that the kernel keeps them itself. Files opened before the kernel learned this are released with a
//! plain yes.
//!
//! The one request that may take long for its own sake is `fsync`. [`Dispatcher::must_sync`] only says whether it has
//! anything to wait for; a transport that has few threads waits elsewhere.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dataset::fs::{Attr, Caller, Errno, FileSystem, SetAttr, StatFs};
use fuser::{FopenFlags, INodeNo, Notifier, RenameFlags, WriteFlags};
use rustix::fs::OFlags;

use crate::attr::node_type;
use crate::counters::Opcode;
use crate::node::Node;
use crate::server::{Entry, FOREVER, Listed, Server};

const PERMISSIONS: u32 = 0o7777;
const O_EXCL: i32 = OFlags::EXCL.bits() as i32;

/// The program behind a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Requester {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
}

impl Requester {
    pub(crate) fn caller(&self) -> Caller {
        self.maker(0)
    }

    /// Who makes something new. Without access control lists the kernel has applied the umask already.
    fn maker(&self, umask: u32) -> Caller {
        Caller { uid: self.uid, gid: self.gid, umask }
    }
}

/// The answer to a program that asked for a value, or only for its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fitted {
    /// It gave no room: the value has so many bytes.
    Size(u32),
    /// The value.
    Value(Vec<u8>),
}

impl Fitted {
    /// The answer for `room` bytes.
    fn fit(value: Vec<u8>, room: u32) -> Result<Fitted, Errno> {
        match room {
            0 => Ok(Fitted::Size(u32::try_from(value.len()).unwrap_or(u32::MAX))),
            room if value.len() > room as usize => Err(Errno::RANGE),
            _ => Ok(Fitted::Value(value)),
        }
    }
}

/// Answers the requests of one mount, on any number of threads.
pub(crate) struct Dispatcher {
    pub(crate) server: Arc<Server>,
    pub(crate) acl: bool,
    /// Whether opens are answered, each file being cached or not.
    opens: bool,
    /// There as soon as the kernel and the mount have come to terms.
    pub(crate) notifier: OnceLock<Notifier>,
}

impl Dispatcher {
    /// For a mount with or without access control lists.
    pub(crate) fn new(server: Arc<Server>, acl: bool) -> Result<Dispatcher, Errno> {
        let opens = server.live.has_direct_files()?;
        Ok(Dispatcher { server, acl, opens, notifier: OnceLock::new() })
    }

    pub(crate) fn live(&self) -> &FileSystem {
        &self.server.live
    }

    /// Whether opens are answered, each file being cached or not.
    pub(crate) fn answers_opens(&self) -> bool {
        self.opens
    }

    fn count(&self, opcode: Opcode) {
        self.server.counters.count(opcode);
    }

    /// What has this name. `None` says that nothing has, which the kernel may remember.
    pub(crate) fn lookup(&self, dir: INodeNo, name: &[u8]) -> Result<Option<Entry>, Errno> {
        self.count(Opcode::Lookup);
        let may_remember = !matches!(Node::decode(dir), Some(Node::Control(_)));
        match self.server.lookup(dir, name) {
            Err(Errno::NOENT) if may_remember => Ok(None),
            found => found.map(Some),
        }
    }

    /// The kernel gives `count` references back.
    pub(crate) fn forget(&self, node: INodeNo, count: u64) {
        self.count(Opcode::Forget);
        self.server.forget(node, count);
    }

    /// The attributes, and how long they hold.
    pub(crate) fn getattr(&self, node: INodeNo) -> Result<(Attr, Duration), Errno> {
        self.count(Opcode::GetAttr);
        self.server.getattr(node)
    }

    /// Changes attributes, and returns them with how long they hold.
    pub(crate) fn setattr(
        &self,
        requester: &Requester,
        node: INodeNo,
        change: &SetAttr,
    ) -> Result<(Attr, Duration), Errno> {
        self.count(Opcode::SetAttr);
        let change = SetAttr { mode: change.mode.map(|mode| mode & PERMISSIONS), ..*change };
        let ino = self.server.writable(node)?;
        Ok((self.live().setattr(&requester.caller(), ino, &change)?, FOREVER))
    }

    pub(crate) fn readlink(&self, node: INodeNo) -> Result<Vec<u8>, Errno> {
        self.count(Opcode::ReadLink);
        let (view, ino) = self.server.resolve(node)?.ok_or(Errno::INVAL)?;
        view.readlink(ino)
    }

    pub(crate) fn mknod(
        &self,
        requester: &Requester,
        dir: INodeNo,
        name: &[u8],
        (mode, umask, rdev): (u32, u32, u32),
    ) -> Result<Entry, Errno> {
        self.count(Opcode::MkNod);
        let file_type = node_type(mode)?;
        self.enter(dir, name, |fs, dir, name| {
            fs.mknod(&requester.maker(umask), dir, name, file_type, mode & PERMISSIONS, rdev)
        })
    }

    pub(crate) fn mkdir(
        &self,
        requester: &Requester,
        dir: INodeNo,
        name: &[u8],
        (mode, umask): (u32, u32),
    ) -> Result<Entry, Errno> {
        self.count(Opcode::MkDir);
        self.enter(dir, name, |fs, dir, name| fs.mkdir(&requester.maker(umask), dir, name, mode & PERMISSIONS))
    }

    pub(crate) fn unlink(&self, dir: INodeNo, name: &[u8]) -> Result<(), Errno> {
        self.count(Opcode::Unlink);
        self.live().unlink(self.server.writable_entry(dir, name)?, name)
    }

    pub(crate) fn rmdir(&self, dir: INodeNo, name: &[u8]) -> Result<(), Errno> {
        self.count(Opcode::RmDir);
        self.live().rmdir(self.server.writable_entry(dir, name)?, name)
    }

    pub(crate) fn symlink(
        &self,
        requester: &Requester,
        dir: INodeNo,
        name: &[u8],
        target: &[u8],
    ) -> Result<Entry, Errno> {
        self.count(Opcode::Symlink);
        self.enter(dir, name, |fs, dir, name| fs.symlink(&requester.caller(), dir, name, target))
    }

    pub(crate) fn rename(
        &self,
        requester: &Requester,
        from: (INodeNo, &[u8]),
        to: (INodeNo, &[u8]),
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        self.count(Opcode::Rename);
        self.rename_entry(requester.caller(), from, to, flags)
    }

    pub(crate) fn link(&self, node: INodeNo, dir: INodeNo, name: &[u8]) -> Result<Entry, Errno> {
        self.count(Opcode::Link);
        let ino = self.server.writable(node)?;
        self.enter(dir, name, |fs, dir, name| fs.link(ino, dir, name))
    }

    pub(crate) fn open(&self, node: INodeNo) -> Result<FopenFlags, Errno> {
        self.count(Opcode::Open);
        if self.opens { Ok(self.open_flags(node)) } else { Err(Errno::NOSYS) }
    }

    /// Appends up to `size` bytes to `out`: fewer only where the file ends. The virtual files are empty.
    pub(crate) fn read(&self, node: INodeNo, offset: u64, size: u32, out: &mut Vec<u8>) -> Result<(), Errno> {
        self.count(Opcode::Read);
        match self.server.resolve(node)? {
            Some((view, ino)) => view.read(ino, offset, size as usize, out),
            None => Ok(()),
        }
    }

    /// Writes, and takes set-id bits away if the kernel says so. Of what it writes back later, the kernel does not look how
    /// much was written: that is all or nothing.
    pub(crate) fn write(&self, node: INodeNo, offset: u64, data: &[u8], how: WriteFlags) -> Result<u32, Errno> {
        self.count(Opcode::Write);
        let ino = self.server.writable(node)?;
        let kill_priv = how.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let written = if how.contains(WriteFlags::FUSE_WRITE_CACHE) {
            self.live().write_back(ino, offset, data, kill_priv).map(|()| data.len())?
        } else {
            self.live().write(ino, offset, data, kill_priv)?
        };
        Ok(u32::try_from(written).expect("no more is written than was sent"))
    }

    pub(crate) fn flush(&self) -> Result<(), Errno> {
        self.count(Opcode::Flush);
        Err(Errno::NOSYS)
    }

    pub(crate) fn release(&self) {
        self.count(Opcode::Release);
    }

    /// Whether an fsync of a file or of a directory has anything to wait for: what can have changed. Everything else is
    /// durable.
    pub(crate) fn must_sync(&self, opcode: Opcode, node: INodeNo) -> Result<bool, Errno> {
        self.count(opcode);
        Ok(matches!(self.server.node(node)?, Node::Live(_)))
    }

    pub(crate) fn opendir(&self) -> Result<FopenFlags, Errno> {
        self.count(Opcode::OpenDir);
        Err(Errno::NOSYS)
    }

    /// Lists from behind `cookie` on, until `each` returns false: it has no room for the entry.
    pub(crate) fn readdir(
        &self,
        dir: INodeNo,
        cookie: u64,
        each: &mut dyn FnMut(Listed<'_>) -> bool,
    ) -> Result<(), Errno> {
        self.count(Opcode::ReadDir);
        self.server.list(dir, cookie, each)
    }

    /// The same, and looks each entry up.
    pub(crate) fn readdirplus(
        &self,
        dir: INodeNo,
        cookie: u64,
        each: &mut dyn FnMut(Listed<'_>, &Entry) -> bool,
    ) -> Result<(), Errno> {
        self.count(Opcode::ReadDirPlus);
        self.server.list_plus(dir, cookie, each)
    }

    pub(crate) fn releasedir(&self) {
        self.count(Opcode::ReleaseDir);
    }

    pub(crate) fn statfs(&self, node: INodeNo) -> Result<StatFs, Errno> {
        self.count(Opcode::StatFs);
        match self.server.resolve(node)? {
            Some((view, _)) => view.statfs(),
            None => self.live().statfs(),
        }
    }

    pub(crate) fn setxattr(
        &self,
        requester: &Requester,
        node: INodeNo,
        name: &[u8],
        value: &[u8],
        flags: i32,
    ) -> Result<(), Errno> {
        self.count(Opcode::SetXattr);
        self.set_xattr(requester, node, name, value, flags)
    }

    pub(crate) fn getxattr(&self, node: INodeNo, name: &[u8], room: u32) -> Result<Fitted, Errno> {
        self.count(Opcode::GetXattr);
        Fitted::fit(self.xattr(node, name)?, room)
    }

    pub(crate) fn listxattr(&self, requester: &Requester, node: INodeNo, room: u32) -> Result<Fitted, Errno> {
        self.count(Opcode::ListXattr);
        Fitted::fit(self.xattr_names(requester.uid, node)?, room)
    }

    pub(crate) fn removexattr(&self, node: INodeNo, name: &[u8]) -> Result<(), Errno> {
        self.count(Opcode::RemoveXattr);
        self.remove_xattr(node, name)
    }

    /// Makes a file and opens it.
    pub(crate) fn create(
        &self,
        requester: &Requester,
        dir: INodeNo,
        name: &[u8],
        (mode, umask, flags): (u32, u32, i32),
    ) -> Result<(Entry, FopenFlags), Errno> {
        self.count(Opcode::Create);
        let entry = self.enter(dir, name, |fs, dir, name| {
            fs.create(&requester.maker(umask), dir, name, mode & PERMISSIONS, flags & O_EXCL != 0)
        })?;
        Ok((entry, self.open_flags(entry.node)))
    }

    pub(crate) fn fallocate(&self, node: INodeNo, mode: i32, offset: u64, length: u64) -> Result<(), Errno> {
        self.count(Opcode::FAllocate);
        self.allocate(node, mode, offset, length)
    }

    pub(crate) fn ioctl(
        &self,
        requester: &Requester,
        node: INodeNo,
        command: u32,
        data: &[u8],
    ) -> Result<Vec<u8>, Errno> {
        self.count(Opcode::Ioctl);
        self.control(requester.uid, node, command, data)
    }

    pub(crate) fn lseek(&self, node: INodeNo, offset: i64, whence: i32) -> Result<i64, Errno> {
        self.count(Opcode::LSeek);
        self.seek(node, offset, whence)
    }

    pub(crate) fn copy_file_range(&self, from: (INodeNo, u64), to: (INodeNo, u64), length: u64) -> Result<u32, Errno> {
        self.count(Opcode::CopyFileRange);
        self.copy(from, to, length)
    }
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
