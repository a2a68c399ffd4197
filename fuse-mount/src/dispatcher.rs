//! A dataset's answers to the kernel: one short method for each kind of request.
//!
//! Above are the transports, which know only the [`Handler`]. Below is the [`Server`], and `dataset`. If a request
//! takes more than one call, its method's work is in [`operations`](crate::operations).
//!
//! `open` is answered because opening can be refused: no file in a snapshot opens for writing, so none is changed in
//! the kernel's cache through a mapping. Opens also tell the files that may be mapped for writing, and the files that
//! must bypass the cache. Where snapshots cannot be browsed, opening needs no request.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dataset::fs::{Attr, Errno, FileSystem, SetAttr, StatFs};
use dataset::property::SnapDir;
use fuser::{FopenFlags, INodeNo, Notifier, RenameFlags, WriteFlags};
use rustix::fs::OFlags;

use crate::attr::node_type;
use crate::counters::Opcode;
use crate::handler::{Entry, FOREVER, Fitted, Handler, Listed, Requester, Writing};
use crate::node::Node;
use crate::operations::{is_change_of_owner, is_mappable};
use crate::options::MountOptions;
use crate::recall::Recall;
use crate::server::Server;

const PERMISSIONS: u32 = 0o7777;
const O_EXCL: i32 = OFlags::EXCL.bits() as i32;

/// Answers the requests of one mount, on any number of threads.
pub(crate) struct Dispatcher {
    pub(crate) server: Arc<Server>,
    pub(crate) acl: bool,
    /// Whether there are extended attributes at all.
    xattr: bool,
    /// Whether opens are answered.
    opens: bool,
    /// Set after the handshake.
    pub(crate) notifier: Arc<OnceLock<Notifier>>,
    recall: Recall,
}

impl Dispatcher {
    /// For a mount with these options.
    pub(crate) fn new(server: Arc<Server>, options: &MountOptions) -> Result<Dispatcher, Errno> {
        let opens = options.snapdir != SnapDir::Disabled || options.direct || server.live.has_direct_files()?;
        let notifier = Arc::new(OnceLock::new());
        let recall = Recall::new(Arc::clone(&server), Arc::clone(&notifier));
        Ok(Dispatcher { server, acl: options.acl, xattr: options.xattr, opens, notifier, recall })
    }

    /// Fails on a mount without extended attributes, with the error that stops further requests of the kernel.
    fn has_xattrs(&self) -> Result<(), Errno> {
        if self.xattr { Ok(()) } else { Err(Errno::NOSYS) }
    }

    pub(crate) fn live(&self) -> &FileSystem {
        &self.server.live
    }

    /// Whether opens are answered.
    pub(crate) fn answers_opens(&self) -> bool {
        self.opens
    }
}

impl Handler for Dispatcher {
    fn count(&self, opcode: Opcode) {
        self.server.counters.count(opcode);
    }

    fn note(&self, who: &Requester, node: INodeNo, opcode: Opcode, bytes: u64) {
        self.server.activity.note(who, node, opcode, bytes);
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
        let loses = is_change_of_owner(&change) || change.kill_suid && change.size.is_some();
        let live = self.server.live_of([ino]);
        let group = if change.gid.is_some() { Some(live.getattr(ino)?.gid) } else { None };
        let attr = live.setattr(&requester.caller(), ino, &change)?;
        let group = group.unwrap_or(attr.gid);
        Ok((if loses { self.drop_set_group(requester, attr, group)? } else { attr }, FOREVER))
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
        let dir = self.server.writable_entry(dir, name)?;
        self.server.live_of([dir]).unlink(dir, name)
    }

    fn rmdir(&self, dir: INodeNo, name: &[u8]) -> Result<(), Errno> {
        let dir = self.server.writable_entry(dir, name)?;
        self.server.live_of([dir]).rmdir(dir, name)
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
        self.enter(dir, name, |_, dir, name| self.server.live_of([ino, dir]).link(ino, dir, name))
    }

    fn open(&self, node: INodeNo, flags: i32) -> Result<FopenFlags, Errno> {
        if self.opens { self.open_file(node, flags) } else { Err(Errno::NOSYS) }
    }

    fn release(&self, node: INodeNo, flags: i32) {
        if let Some(Node::Live(ino)) = Node::decode(node)
            && is_mappable(flags)
        {
            self.server.held.note_closed(ino);
        }
    }

    fn read(&self, node: INodeNo, offset: u64, size: u32, past: bool, out: &mut Vec<u8>) -> Result<(), Errno> {
        if !past {
            self.note_cached(node);
        }
        let before = out.len();
        if let Some((view, ino)) = self.server.resolve(node)? {
            view.read_opened(ino, offset, size as usize, past, out)?;
        }
        self.server.counters.count_read((out.len() - before) as u64);
        Ok(())
    }

    fn write(
        &self,
        requester: &Requester,
        node: INodeNo,
        offset: u64,
        data: &[u8],
        how: Writing,
    ) -> Result<u32, Errno> {
        let written = self.write_live(requester, node, offset, data, how);
        if written.is_err() && how.flags.contains(WriteFlags::FUSE_WRITE_CACHE) {
            self.recall.restore(node, offset, data.len() as u64);
        }
        self.server.counters.count_written(u64::from(*written.as_ref().unwrap_or(&0)));
        written
    }

    fn must_recall(&self, node: INodeNo, how: Writing) -> bool {
        how.past && matches!(Node::decode(node), Some(Node::Live(ino)) if self.server.held.is_cached(ino))
    }

    fn recall(&self, node: INodeNo, offset: u64, length: u64) {
        self.recall.drop_range(node, offset, length);
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
        if !self.opens {
            return Ok((entry, FopenFlags::FOPEN_KEEP_CACHE));
        }
        // Another program may have made the file, and made it immutable.
        let opened = self.open_file(entry.node, flags).inspect_err(|_| self.server.forget(entry.node, 1))?;
        Ok((entry, opened))
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
        // Set here only, once.
        let _ = self.notifier.set(notifier);
    }

    fn ended(&self) {
        self.server.forget_all();
    }
}
