//! A data set's answers to what the kernel asks: one short method for each kind of request.
//!
//! Above are the transports, which know nothing but the [`Handler`]. Below is the [`Server`], and `dataset`. Methods whose
//! request takes more than one call have their work in [`operations`](crate::operations).
//!
//! `open` is answered only where files are to be kept out of the kernel's cache.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dataset::fs::{Attr, Errno, FileSystem, SetAttr, StatFs};
use fuser::{FopenFlags, INodeNo, Notifier, RenameFlags, WriteFlags};
use rustix::fs::OFlags;

use crate::attr::node_type;
use crate::counters::Opcode;
use crate::handler::{Entry, FOREVER, Fitted, Handler, Listed, Requester};
use crate::node::Node;
use crate::options::MountOptions;
use crate::server::Server;

const PERMISSIONS: u32 = 0o7777;
const O_EXCL: i32 = OFlags::EXCL.bits() as i32;

/// Answers the requests of one mount, on any number of threads.
pub(crate) struct Dispatcher {
    pub(crate) server: Arc<Server>,
    pub(crate) acl: bool,
    /// Whether there are extended attributes at all.
    xattr: bool,
    /// Whether opens are answered, each file being cached or not.
    opens: bool,
    /// There as soon as the kernel and the mount have come to terms.
    pub(crate) notifier: OnceLock<Notifier>,
}

impl Dispatcher {
    /// For a mount with these options.
    pub(crate) fn new(server: Arc<Server>, options: &MountOptions) -> Result<Dispatcher, Errno> {
        let opens = server.live.has_direct_files()?;
        Ok(Dispatcher { server, acl: options.acl, xattr: options.xattr, opens, notifier: OnceLock::new() })
    }

    /// Fails, where there are no extended attributes, with what has the kernel ask no more.
    fn has_xattrs(&self) -> Result<(), Errno> {
        if self.xattr { Ok(()) } else { Err(Errno::NOSYS) }
    }

    pub(crate) fn live(&self) -> &FileSystem {
        &self.server.live
    }

    /// Whether opens are answered, each file being cached or not.
    pub(crate) fn answers_opens(&self) -> bool {
        self.opens
    }
}

impl Handler for Dispatcher {
    fn count(&self, opcode: Opcode) {
        self.server.counters.count(opcode);
    }

    fn lookup(&self, dir: INodeNo, name: &[u8]) -> Result<Option<Entry>, Errno> {
        let may_remember = !matches!(Node::decode(dir), Some(Node::Control(_)));
        match self.server.lookup(dir, name) {
            Err(Errno::NOENT) if may_remember => Ok(None),
            found => found.map(Some),
        }
    }

    fn forget(&self, node: INodeNo, count: u64) {
        self.server.forget(node, count);
    }

    fn getattr(&self, node: INodeNo) -> Result<(Attr, Duration), Errno> {
        self.server.getattr(node)
    }

    fn setattr(&self, requester: &Requester, node: INodeNo, change: &SetAttr) -> Result<(Attr, Duration), Errno> {
        let change = SetAttr { mode: change.mode.map(|mode| mode & PERMISSIONS), ..*change };
        let ino = self.server.writable(node)?;
        Ok((self.live().setattr(&requester.caller(), ino, &change)?, FOREVER))
    }

    fn readlink(&self, node: INodeNo) -> Result<Vec<u8>, Errno> {
        let (view, ino) = self.server.resolve(node)?.ok_or(Errno::INVAL)?;
        view.readlink(ino)
    }

    fn mknod(
        &self,
        requester: &Requester,
        dir: INodeNo,
        name: &[u8],
        (mode, umask, rdev): (u32, u32, u32),
    ) -> Result<Entry, Errno> {
        let file_type = node_type(mode)?;
        self.enter(dir, name, |fs, dir, name| {
            fs.mknod(&requester.maker(umask), dir, name, file_type, mode & PERMISSIONS, rdev)
        })
    }

    fn mkdir(
        &self,
        requester: &Requester,
        dir: INodeNo,
        name: &[u8],
        (mode, umask): (u32, u32),
    ) -> Result<Entry, Errno> {
        self.enter(dir, name, |fs, dir, name| fs.mkdir(&requester.maker(umask), dir, name, mode & PERMISSIONS))
    }

    fn unlink(&self, dir: INodeNo, name: &[u8]) -> Result<(), Errno> {
        self.live().unlink(self.server.writable_entry(dir, name)?, name)
    }

    fn rmdir(&self, dir: INodeNo, name: &[u8]) -> Result<(), Errno> {
        self.live().rmdir(self.server.writable_entry(dir, name)?, name)
    }

    fn symlink(&self, requester: &Requester, dir: INodeNo, name: &[u8], target: &[u8]) -> Result<Entry, Errno> {
        self.enter(dir, name, |fs, dir, name| fs.symlink(&requester.caller(), dir, name, target))
    }

    fn rename(
        &self,
        requester: &Requester,
        from: (INodeNo, &[u8]),
        to: (INodeNo, &[u8]),
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        self.rename_entry(requester.caller(), from, to, flags)
    }

    fn link(&self, node: INodeNo, dir: INodeNo, name: &[u8]) -> Result<Entry, Errno> {
        let ino = self.server.writable(node)?;
        self.enter(dir, name, |fs, dir, name| fs.link(ino, dir, name))
    }

    fn open(&self, node: INodeNo) -> Result<FopenFlags, Errno> {
        if self.opens { Ok(self.open_flags(node)) } else { Err(Errno::NOSYS) }
    }

    fn read(&self, node: INodeNo, offset: u64, size: u32, out: &mut Vec<u8>) -> Result<(), Errno> {
        match self.server.resolve(node)? {
            Some((view, ino)) => view.read(ino, offset, size as usize, out),
            None => Ok(()),
        }
    }

    /// Of what it writes back later, the kernel does not look how much was written: that is all or nothing.
    fn write(&self, node: INodeNo, offset: u64, data: &[u8], how: WriteFlags) -> Result<u32, Errno> {
        let ino = self.server.writable(node)?;
        let kill_priv = how.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let written = if how.contains(WriteFlags::FUSE_WRITE_CACHE) {
            self.live().write_back(ino, offset, data, kill_priv).map(|()| data.len())?
        } else {
            self.live().write(ino, offset, data, kill_priv)?
        };
        Ok(u32::try_from(written).expect("no more is written than was sent"))
    }

    fn must_sync(&self, node: INodeNo) -> Result<bool, Errno> {
        Ok(matches!(self.server.node(node)?, Node::Live(_)))
    }

    fn readdir(&self, dir: INodeNo, cookie: u64, each: &mut dyn FnMut(Listed<'_>) -> bool) -> Result<(), Errno> {
        self.server.list(dir, cookie, each)
    }

    fn readdirplus(
        &self,
        dir: INodeNo,
        cookie: u64,
        each: &mut dyn FnMut(Listed<'_>, &Entry) -> bool,
    ) -> Result<(), Errno> {
        self.server.list_plus(dir, cookie, each)
    }

    fn statfs(&self, node: INodeNo) -> Result<StatFs, Errno> {
        match self.server.resolve(node)? {
            Some((view, _)) => view.statfs(),
            None => self.live().statfs(),
        }
    }

    fn setxattr(
        &self,
        requester: &Requester,
        node: INodeNo,
        name: &[u8],
        value: &[u8],
        flags: i32,
    ) -> Result<(), Errno> {
        self.has_xattrs()?;
        self.set_xattr(requester, node, name, value, flags)
    }

    fn getxattr(&self, node: INodeNo, name: &[u8], room: u32) -> Result<Fitted, Errno> {
        self.has_xattrs()?;
        Fitted::fit(self.xattr(node, name)?, room)
    }

    fn listxattr(&self, requester: &Requester, node: INodeNo, room: u32) -> Result<Fitted, Errno> {
        self.has_xattrs()?;
        Fitted::fit(self.xattr_names(requester.uid, node)?, room)
    }

    fn removexattr(&self, node: INodeNo, name: &[u8]) -> Result<(), Errno> {
        self.has_xattrs()?;
        self.remove_xattr(node, name)
    }

    fn create(
        &self,
        requester: &Requester,
        dir: INodeNo,
        name: &[u8],
        (mode, umask, flags): (u32, u32, i32),
    ) -> Result<(Entry, FopenFlags), Errno> {
        let entry = self.enter(dir, name, |fs, dir, name| {
            fs.create(&requester.maker(umask), dir, name, mode & PERMISSIONS, flags & O_EXCL != 0)
        })?;
        Ok((entry, self.open_flags(entry.node)))
    }

    fn fallocate(&self, node: INodeNo, mode: i32, offset: u64, length: u64) -> Result<(), Errno> {
        self.allocate(node, mode, offset, length)
    }

    fn ioctl(&self, requester: &Requester, node: INodeNo, command: u32, data: &[u8]) -> Result<Vec<u8>, Errno> {
        self.control(requester.uid, node, command, data)
    }

    fn lseek(&self, node: INodeNo, offset: i64, whence: i32) -> Result<i64, Errno> {
        self.seek(node, offset, whence)
    }

    fn copy_file_range(&self, from: (INodeNo, u64), to: (INodeNo, u64), length: u64) -> Result<u32, Errno> {
        self.copy(from, to, length)
    }

    fn sync(&self) -> Result<(), Errno> {
        self.live().sync()
    }

    fn begun(&self, notifier: Notifier) {
        // Nobody else sets it.
        let _ = self.notifier.set(notifier);
    }

    fn ended(&self) {
        self.server.forget_all();
    }
}
