//! The FUSE protocol: one method a request, each of them taking the arguments apart, asking the [`Server`] or the file
//! system, and putting the answer into the reply.
//!
//! What is *not* answered matters as much. `open` (mostly), `opendir` and `flush` get `ENOSYS`, which the kernel takes as
//! "not needed, never ask again"; the same goes for `poll` and `bmap`. Locks are not offered, so that the kernel keeps them
//! itself. Files opened before the kernel learned this are released with a plain yes.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use dataset::fs::{Caller, Errno, FileSystem, SetAttr};
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, FileAttr, FileHandle, Filesystem, Generation, INodeNo, InitFlags, IoctlFlags,
    KernelConfig, LockOwner, Notifier, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
    Request, TimeOrNow, WriteFlags,
};
use rustix::fs::OFlags;

use crate::attr::{errno, kind, node_type, request_time, set_time};
use crate::counters::Opcode;
use crate::node::Node;
use crate::options::MountOptions;
use crate::server::{Entry, FOREVER, Server};
use crate::syncer::Syncer;

/// The largest read or write the kernel may send: its own limit, 256 pages.
const MAX_REQUEST: u32 = 1 << 20;
/// Read-ahead and asynchronous requests in flight; twelve is the kernel's default.
const MAX_BACKGROUND: u16 = 64;

const PERMISSIONS: u32 = 0o7777;
const O_EXCL: i32 = OFlags::EXCL.bits() as i32;

thread_local! {
    /// What a read fills. Kept, because touching fresh memory costs more than reading into it.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Serves one mount.
pub(crate) struct Adapter {
    pub(crate) server: Arc<Server>,
    pub(crate) syncer: Syncer<ReplyEmpty>,
    writeback: bool,
    pub(crate) acl: bool,
    /// Whether opens are answered, each file being cached or not.
    pub(crate) opens: bool,
    /// There as soon as the kernel and the mount have come to terms.
    pub(crate) notifier: Arc<OnceLock<Notifier>>,
}

impl Adapter {
    /// An adapter that comes to terms with the kernel as the options say.
    pub(crate) fn new(server: Arc<Server>, options: &MountOptions) -> Result<Adapter, Errno> {
        let syncer = Syncer::of(Arc::clone(&server));
        let opens = server.live.has_direct_files()?;
        let MountOptions { writeback, acl, .. } = *options;
        Ok(Adapter { server, syncer, writeback, acl, opens, notifier: Arc::default() })
    }

    fn count(&self, opcode: Opcode) {
        self.server.counters.count(opcode);
    }

    pub(crate) fn live(&self) -> &FileSystem {
        &self.server.live
    }
}

fn caller(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), umask: 0 }
}

/// Who makes something new. Without access control lists the kernel has applied the umask already.
fn maker(request: &Request, umask: u32) -> Caller {
    Caller { umask, ..caller(request) }
}

fn reply_empty(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

fn reply_entry(reply: ReplyEntry, result: Result<Entry, Errno>) {
    match result {
        Ok(entry) => {
            reply.entry_with_ttls(&entry.attr_lifetime, &entry.name_lifetime, &entry.attr, Generation(entry.generation))
        }
        Err(error) => reply.error(errno(error)),
    }
}

/// Answers with the value, or with its size if the program only asked for that.
fn reply_xattr(reply: ReplyXattr, size: u32, result: Result<Vec<u8>, Errno>) {
    match result {
        Ok(value) if size == 0 => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
        Ok(value) if value.len() > size as usize => reply.error(fuser::Errno::ERANGE),
        Ok(value) => reply.data(&value),
        Err(error) => reply.error(errno(error)),
    }
}

/// "There is no such name": an entry without a node, which the kernel may remember.
fn no_such_name() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: SystemTime::UNIX_EPOCH,
        mtime: SystemTime::UNIX_EPOCH,
        ctime: SystemTime::UNIX_EPOCH,
        crtime: SystemTime::UNIX_EPOCH,
        kind: fuser::FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

impl Filesystem for Adapter {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let mut wanted = InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_EXPORT_SUPPORT
            | InitFlags::FUSE_EXPLICIT_INVAL_DATA
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_NO_OPEN_SUPPORT
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT
            | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP;
        if self.writeback {
            wanted |= InitFlags::FUSE_WRITEBACK_CACHE;
        }
        if self.acl {
            wanted |= InitFlags::FUSE_POSIX_ACL | InitFlags::FUSE_DONT_MASK;
        }
        let offered = config.capabilities();
        // A limit the kernel does not take is replaced by the nearest it does.
        let _ = config.add_capabilities(wanted & offered);
        let _ = config.set_max_write(MAX_REQUEST);
        let _ = config.set_max_background(MAX_BACKGROUND);
        Ok(())
    }

    fn destroy(&mut self) {
        self.server.forget_all();
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.count(Opcode::Lookup);
        let found = self.server.lookup(parent, name.as_bytes());
        let may_remember = !matches!(Node::decode(parent), Some(Node::Control(_)));
        match found {
            Err(Errno::NOENT) if may_remember => reply.entry(&FOREVER, &no_such_name(), Generation(0)),
            found => reply_entry(reply, found),
        }
    }

    fn forget(&self, _request: &Request, node: INodeNo, count: u64) {
        self.count(Opcode::Forget);
        self.server.forget(node, count);
    }

    fn getattr(&self, _request: &Request, node: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        self.count(Opcode::GetAttr);
        match self.server.getattr(node) {
            Ok((attr, lifetime)) => reply.attr(&lifetime, &attr),
            Err(error) => reply.error(errno(error)),
        }
    }

    /// A truncation by somebody who is not root takes set-id bits away. The kernel's own flag for this does not get
    /// through `fuser`, so they go too when the program has `CAP_FSETID` without being root.
    fn setattr(
        &self,
        request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        self.count(Opcode::SetAttr);
        let change = SetAttr {
            mode: mode.map(|mode| mode & PERMISSIONS),
            uid,
            gid,
            size,
            atime: atime.map(set_time),
            mtime: mtime.map(set_time),
            ctime: ctime.map(request_time),
            kill_suid: request.uid() != 0,
        };
        match self.change(&caller(request), node, &change) {
            Ok(attr) => reply.attr(&FOREVER, &attr),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readlink(&self, _request: &Request, node: INodeNo, reply: ReplyData) {
        self.count(Opcode::ReadLink);
        let target = match self.server.resolve(node) {
            Ok(Some((view, ino))) => view.readlink(ino),
            Ok(None) => Err(Errno::INVAL),
            Err(error) => Err(error),
        };
        match target {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        self.count(Opcode::MkNod);
        let made = node_type(mode).and_then(|file_type| {
            self.enter(parent, name, |fs, dir, name| {
                fs.mknod(&maker(request, umask), dir, name, file_type, mode & PERMISSIONS, rdev)
            })
        });
        reply_entry(reply, made);
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        self.count(Opcode::MkDir);
        let make = |fs: &FileSystem, dir, name: &[u8]| fs.mkdir(&maker(request, umask), dir, name, mode & PERMISSIONS);
        reply_entry(reply, self.enter(parent, name, make));
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.count(Opcode::Unlink);
        let name = name.as_bytes();
        let dir = self.server.writable_entry(parent, name);
        reply_empty(reply, dir.and_then(|dir| self.live().unlink(dir, name)));
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.count(Opcode::RmDir);
        let name = name.as_bytes();
        let dir = self.server.writable_entry(parent, name);
        reply_empty(reply, dir.and_then(|dir| self.live().rmdir(dir, name)));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        self.count(Opcode::Symlink);
        let target = target.as_os_str().as_bytes();
        let make = |fs: &FileSystem, dir, name: &[u8]| fs.symlink(&caller(request), dir, name, target);
        reply_entry(reply, self.enter(parent, name, make));
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        self.count(Opcode::Rename);
        let (from, to) = ((parent, name.as_bytes()), (newparent, newname.as_bytes()));
        reply_empty(reply, self.rename_entry(caller(request), from, to, flags));
    }

    fn link(&self, _request: &Request, node: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        self.count(Opcode::Link);
        let linked = self
            .server
            .writable(node)
            .and_then(|ino| self.enter(newparent, newname, |fs, dir, name| fs.link(ino, dir, name)));
        reply_entry(reply, linked);
    }

    fn open(&self, _request: &Request, node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.count(Opcode::Open);
        match self.opens {
            true => reply.opened(FileHandle(0), self.open_flags(node)),
            false => reply.error(fuser::Errno::ENOSYS),
        }
    }

    fn read(
        &self,
        _request: &Request,
        node: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.count(Opcode::Read);
        READ_BUFFER.with_borrow_mut(|buffer| {
            buffer.clear();
            match self.read_into(node, offset, size, buffer) {
                Ok(()) => reply.data(buffer),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn write(
        &self,
        _request: &Request,
        node: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.count(Opcode::Write);
        let kill_priv = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        // Of what it writes back later, the kernel does not look how much was written.
        let is_late = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let written = self.server.writable(node).and_then(|ino| match is_late {
            true => self.live().write_back(ino, offset, data, kill_priv).map(|()| data.len()),
            false => self.live().write(ino, offset, data, kill_priv),
        });
        match written {
            Ok(written) => reply.written(u32::try_from(written).expect("no more is written than was sent")),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn flush(&self, _request: &Request, _node: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        self.count(Opcode::Flush);
        reply.error(fuser::Errno::ENOSYS);
    }

    fn release(
        &self,
        _request: &Request,
        _node: INodeNo,
        _fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.count(Opcode::Release);
        reply.ok();
    }

    fn fsync(&self, _request: &Request, node: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.count(Opcode::FSync);
        self.sync(node, reply);
    }

    fn opendir(&self, _request: &Request, _node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.count(Opcode::OpenDir);
        reply.error(fuser::Errno::ENOSYS);
    }

    fn readdir(&self, _request: &Request, dir: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        self.count(Opcode::ReadDir);
        let listed = self.server.list(dir, offset, &mut |entry| {
            !reply.add(entry.node, entry.cookie, kind(entry.file_type), OsStr::from_bytes(entry.name))
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        dir: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        self.count(Opcode::ReadDirPlus);
        let listed = self.server.list_plus(dir, offset, &mut |listed, entry| {
            let generation = Generation(entry.generation);
            let name = OsStr::from_bytes(listed.name);
            !reply.add(listed.node, listed.cookie, name, &entry.name_lifetime, &entry.attr, generation)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn releasedir(&self, _request: &Request, _dir: INodeNo, _fh: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        self.count(Opcode::ReleaseDir);
        reply.ok();
    }

    fn fsyncdir(&self, _request: &Request, node: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.count(Opcode::FSyncDir);
        self.sync(node, reply);
    }

    fn statfs(&self, _request: &Request, node: INodeNo, reply: ReplyStatfs) {
        self.count(Opcode::StatFs);
        match self.statfs_of(node) {
            Ok(stat) => reply.statfs(
                stat.blocks,
                stat.free,
                stat.available,
                stat.files,
                stat.files_free,
                stat.block_size,
                stat.name_max,
                stat.block_size,
            ),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        self.count(Opcode::SetXattr);
        reply_empty(reply, self.set_xattr(request, node, name.as_bytes(), value, flags));
    }

    fn getxattr(&self, _request: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        self.count(Opcode::GetXattr);
        reply_xattr(reply, size, self.xattr(node, name.as_bytes()));
    }

    fn listxattr(&self, request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        self.count(Opcode::ListXattr);
        reply_xattr(reply, size, self.xattr_names(caller(request), node));
    }

    fn removexattr(&self, _request: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.count(Opcode::RemoveXattr);
        reply_empty(reply, self.remove_xattr(node, name.as_bytes()));
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        self.count(Opcode::Create);
        let created = self.enter(parent, name, |fs, dir, name| {
            fs.create(&maker(request, umask), dir, name, mode & PERMISSIONS, flags & O_EXCL != 0)
        });
        match created {
            Ok(entry) => reply.created(
                &entry.attr_lifetime,
                &entry.attr,
                Generation(entry.generation),
                FileHandle(0),
                self.open_flags(entry.attr.ino),
            ),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn fallocate(
        &self,
        _request: &Request,
        node: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.count(Opcode::FAllocate);
        reply_empty(reply, self.allocate(node, mode, offset, length));
    }

    fn ioctl(
        &self,
        request: &Request,
        node: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        cmd: u32,
        in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        self.count(Opcode::Ioctl);
        match self.control(request.uid(), node, cmd, in_data) {
            Ok(answer) => reply.ioctl(0, &answer),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn lseek(&self, _request: &Request, node: INodeNo, _fh: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        self.count(Opcode::LSeek);
        match self.seek(node, offset, whence) {
            Ok(found) => reply.offset(found),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn copy_file_range(
        &self,
        _request: &Request,
        source: INodeNo,
        _source_fh: FileHandle,
        source_offset: u64,
        target: INodeNo,
        _target_fh: FileHandle,
        target_offset: u64,
        length: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        self.count(Opcode::CopyFileRange);
        match self.copy((source, source_offset), (target, target_offset), length) {
            Ok(copied) => reply.written(copied),
            Err(error) => reply.error(errno(error)),
        }
    }
}
