//! The transport that is always there: `fuser`, reading requests from `/dev/fuse` and writing replies to it.
//!
//! One method a request, each of them handing the arguments to the [`Handler`] and what that returns to `fuser`'s
//! reply. It also comes to terms with the kernel when the mount is made, for whatever transport serves it afterwards.
//!
//! Its threads may be where the program is that they answer: whatever a program waits for, but for a sync, is a [`Turn`] of
//! theirs, which ends before the reply is sent.
//!
//! `fuser`'s threads are few, so an `fsync` is answered by the [`Syncer`] when it is done.

use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, SystemTime};

use dataset::fs::{Attr, Errno, SetAttr};
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
    Request, TimeOrNow, Version, WriteFlags,
};
use parking_lot::Mutex;

use crate::attr::{errno, file_attr, kind, request_time, set_time};
use crate::counters::Opcode;
use crate::courtesy::{self, Staff, Turn};
use crate::freer::GATHERING;
use crate::handler::{Entry, FOREVER, Fitted, Handler, Requester, Writing, is_direct};
use crate::options::MountOptions;
use crate::ring::Team;
use crate::syncer::Syncer;

/// The largest read or write the kernel may send: its own limit, 256 pages.
pub(crate) const MAX_REQUEST: u32 = 1 << 20;
/// Read-ahead and asynchronous requests in flight; twelve is the kernel's default.
const MAX_BACKGROUND: u16 = 64;

thread_local! {
    /// The number of the last request for which this thread let the kernel gather.
    static GATHERED: Cell<u64> = const { Cell::new(0) };
    /// What a read fills. Kept, because touching fresh memory costs more than reading into it.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A write that is done: its reply, the file, where, and how many bytes.
type Recalled = (ReplyWrite, INodeNo, u64, u32);

/// Serves one mount through `fuser`.
pub(crate) struct Adapter {
    handler: Arc<dyn Handler>,
    syncer: Syncer<ReplyEmpty>,
    recaller: Syncer<Recalled>,
    staff: Arc<Staff>,
    acl: bool,
    /// Those who are ready to serve the mount through io_uring, if anybody is.
    team: Arc<Mutex<Option<Team>>>,
    /// The version of the protocol that the kernel speaks.
    kernel: Arc<OnceLock<Version>>,
    /// Whether somebody else serves the mount: then nothing but what the kernel forgets comes this way.
    serves_forgets_only: bool,
}

impl Adapter {
    /// An adapter that comes to terms with the kernel as the options say, and notes which version that speaks. If the
    /// kernel does not offer what `team` needs, it is gone afterwards.
    pub(crate) fn new(
        handler: Arc<dyn Handler>,
        options: &MountOptions,
        team: Arc<Mutex<Option<Team>>>,
        kernel: Arc<OnceLock<Version>>,
    ) -> Adapter {
        let syncer = Syncer::of(Arc::clone(&handler));
        let recaller = recaller(Arc::clone(&handler));
        courtesy::prepare();
        Adapter {
            handler,
            syncer,
            recaller,
            staff: Staff::following(),
            acl: options.acl,
            team,
            kernel,
            serves_forgets_only: false,
        }
    }

    /// Begins to answer a request.
    fn turn(&self, opcode: Opcode, request: &Request) -> Turn<'_> {
        self.turn_with(opcode, request, 0)
    }

    /// Begins to answer a request that carries so many bytes of data, either way.
    fn turn_with(&self, opcode: Opcode, request: &Request, bytes: usize) -> Turn<'_> {
        self.handler.count(opcode);
        self.staff.begin(request.pid(), bytes)
    }

    /// Lets the kernel gather what it forgets if nobody waits for an answer from here, so that not each file that is
    /// removed wakes a thread. What comes together has one number.
    fn let_gather(&self, request: &Request) {
        if self.serves_forgets_only && GATHERED.replace(request.unique().0) != request.unique().0 {
            thread::sleep(GATHERING);
        }
    }

    fn sync(&self, node: INodeNo, reply: ReplyEmpty) {
        match self.handler.must_sync(node) {
            Ok(true) => self.syncer.submit(reply),
            Ok(false) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }
}

/// Answers writes past the kernel's cache when the kernel has dropped what it had of their ranges.
fn recaller(handler: Arc<dyn Handler>) -> Syncer<Recalled> {
    Syncer::new("fuse-recall", move |writes: Vec<Recalled>| {
        for (reply, node, offset, written) in writes {
            handler.recall(node, offset, written.into());
            reply.written(written);
        }
    })
}

fn requester(request: &Request) -> Requester {
    Requester { uid: request.uid(), gid: request.gid(), pid: request.pid() }
}

fn reply_empty(turn: Turn<'_>, reply: ReplyEmpty, result: Result<(), Errno>) {
    drop(turn);
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

fn reply_entry(turn: Turn<'_>, reply: ReplyEntry, result: Result<Entry, Errno>) {
    drop(turn);
    match result {
        Ok(entry) => reply.entry_with_ttls(
            &entry.attr_lifetime,
            &entry.name_lifetime,
            &file_attr(entry.node, &entry.attr),
            Generation(entry.generation),
        ),
        Err(error) => reply.error(errno(error)),
    }
}

fn reply_attr(turn: Turn<'_>, reply: ReplyAttr, node: INodeNo, result: Result<(Attr, Duration), Errno>) {
    drop(turn);
    match result {
        Ok((attr, lifetime)) => reply.attr(&lifetime, &file_attr(node, &attr)),
        Err(error) => reply.error(errno(error)),
    }
}

fn reply_open(turn: Turn<'_>, reply: ReplyOpen, result: Result<FopenFlags, Errno>) {
    drop(turn);
    match result {
        Ok(flags) => reply.opened(FileHandle(0), flags),
        Err(error) => reply.error(errno(error)),
    }
}

fn reply_data(turn: Turn<'_>, reply: ReplyData, result: Result<&[u8], Errno>) {
    drop(turn);
    match result {
        Ok(data) => reply.data(data),
        Err(error) => reply.error(errno(error)),
    }
}

fn reply_written(turn: Turn<'_>, reply: ReplyWrite, result: Result<u32, Errno>) {
    drop(turn);
    match result {
        Ok(written) => reply.written(written),
        Err(error) => reply.error(errno(error)),
    }
}

fn reply_xattr(turn: Turn<'_>, reply: ReplyXattr, result: Result<Fitted, Errno>) {
    drop(turn);
    match result {
        Ok(Fitted::Size(size)) => reply.size(size),
        Ok(Fitted::Value(value)) => reply.data(&value),
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
        if self.acl {
            wanted |= InitFlags::FUSE_POSIX_ACL | InitFlags::FUSE_DONT_MASK;
        }
        // Nobody else sets it.
        let _ = self.kernel.set(config.kernel_abi());
        let offered = config.capabilities();
        let mut team = self.team.lock();
        team.take_if(|_| !offered.contains(InitFlags::FUSE_OVER_IO_URING));
        self.serves_forgets_only = team.is_some();
        wanted.set(InitFlags::FUSE_OVER_IO_URING, team.is_some());
        // A limit the kernel does not take is replaced by the nearest it does.
        let _ = config.add_capabilities(wanted & offered);
        let _ = config.set_max_write(MAX_REQUEST);
        let _ = config.set_max_background(MAX_BACKGROUND);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let turn = self.turn(Opcode::Lookup, request);
        match self.handler.lookup(parent, name.as_bytes()) {
            Ok(None) => {
                drop(turn);
                reply.entry(&FOREVER, &no_such_name(), Generation(0));
            }
            Ok(Some(entry)) => reply_entry(turn, reply, Ok(entry)),
            Err(error) => reply_entry(turn, reply, Err(error)),
        }
    }

    fn forget(&self, request: &Request, node: INodeNo, count: u64) {
        self.handler.count(Opcode::Forget);
        self.handler.forget(node, count);
        self.let_gather(request);
    }

    fn getattr(&self, request: &Request, node: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let turn = self.turn(Opcode::GetAttr, request);
        reply_attr(turn, reply, node, self.handler.getattr(node));
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
        let turn = self.turn(Opcode::SetAttr, request);
        let change = SetAttr {
            mode,
            uid,
            gid,
            size,
            atime: atime.map(set_time),
            mtime: mtime.map(set_time),
            ctime: ctime.map(request_time),
            kill_suid: request.uid() != 0,
        };
        reply_attr(turn, reply, node, self.handler.setattr(&requester(request), node, &change));
    }

    fn readlink(&self, request: &Request, node: INodeNo, reply: ReplyData) {
        let turn = self.turn(Opcode::ReadLink, request);
        reply_data(turn, reply, self.handler.readlink(node).as_deref().map_err(|error| *error));
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
        let turn = self.turn(Opcode::MkNod, request);
        let how = (mode, umask, rdev);
        reply_entry(turn, reply, self.handler.mknod(&requester(request), parent, name.as_bytes(), how));
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let turn = self.turn(Opcode::MkDir, request);
        reply_entry(turn, reply, self.handler.mkdir(&requester(request), parent, name.as_bytes(), (mode, umask)));
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let turn = self.turn(Opcode::Unlink, request);
        reply_empty(turn, reply, self.handler.unlink(parent, name.as_bytes()));
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let turn = self.turn(Opcode::RmDir, request);
        reply_empty(turn, reply, self.handler.rmdir(parent, name.as_bytes()));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let turn = self.turn(Opcode::Symlink, request);
        let target = target.as_os_str().as_bytes();
        reply_entry(turn, reply, self.handler.symlink(&requester(request), parent, name.as_bytes(), target));
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
        let turn = self.turn(Opcode::Rename, request);
        let (from, to) = ((parent, name.as_bytes()), (newparent, newname.as_bytes()));
        reply_empty(turn, reply, self.handler.rename(&requester(request), from, to, flags));
    }

    fn link(&self, request: &Request, node: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let turn = self.turn(Opcode::Link, request);
        reply_entry(turn, reply, self.handler.link(node, newparent, newname.as_bytes()));
    }

    fn open(&self, request: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let turn = self.turn(Opcode::Open, request);
        reply_open(turn, reply, self.handler.open(node, flags.0));
    }

    fn read(
        &self,
        request: &Request,
        node: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let turn = self.turn_with(Opcode::Read, request, size as usize);
        READ_BUFFER.with_borrow_mut(|buffer| {
            buffer.clear();
            let read = self.handler.read(node, offset, size, is_direct(flags.0), buffer);
            reply_data(turn, reply, read.map(|()| buffer.as_slice()));
        });
    }

    fn write(
        &self,
        request: &Request,
        node: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let turn = self.turn_with(Opcode::Write, request, data.len());
        let how = Writing::new(write_flags, flags.0);
        match self.handler.write(&requester(request), node, offset, data, how) {
            Ok(written) if self.handler.must_recall(node, how) => {
                drop(turn);
                self.recaller.submit((reply, node, offset, written));
            }
            written => reply_written(turn, reply, written),
        }
    }

    fn flush(&self, _request: &Request, _node: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        self.handler.count(Opcode::Flush);
        reply.error(fuser::Errno::ENOSYS);
    }

    /// No program waits for this, and it names none. So it is no [`Turn`]: it would look like a second program, and the
    /// threads would leave the one that opens one file after the other.
    fn release(
        &self,
        _request: &Request,
        node: INodeNo,
        _fh: FileHandle,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.handler.count(Opcode::Release);
        self.handler.release(node, flags.0);
        reply.ok();
    }

    fn fsync(&self, _request: &Request, node: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.handler.count(Opcode::FSync);
        self.sync(node, reply);
    }

    fn opendir(&self, _request: &Request, _node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.handler.count(Opcode::OpenDir);
        reply.error(fuser::Errno::ENOSYS);
    }

    fn readdir(&self, request: &Request, dir: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let turn = self.turn(Opcode::ReadDir, request);
        let listed = self.handler.readdir(dir, offset, &mut |entry| {
            !reply.add(entry.node, entry.cookie, kind(entry.file_type), OsStr::from_bytes(entry.name))
        });
        drop(turn);
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readdirplus(
        &self,
        request: &Request,
        dir: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let turn = self.turn(Opcode::ReadDirPlus, request);
        let listed = self.handler.readdirplus(dir, offset, &mut |listed, entry| {
            let (attr, generation) = (file_attr(entry.node, &entry.attr), Generation(entry.generation));
            let name = OsStr::from_bytes(listed.name);
            !reply.add(listed.node, listed.cookie, name, &entry.name_lifetime, &attr, generation)
        });
        drop(turn);
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn releasedir(&self, _request: &Request, _dir: INodeNo, _fh: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        self.handler.count(Opcode::ReleaseDir);
        reply.ok();
    }

    fn fsyncdir(&self, _request: &Request, node: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.handler.count(Opcode::FSyncDir);
        self.sync(node, reply);
    }

    fn statfs(&self, request: &Request, node: INodeNo, reply: ReplyStatfs) {
        let turn = self.turn(Opcode::StatFs, request);
        let stat = self.handler.statfs(node);
        drop(turn);
        match stat {
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
        let turn = self.turn_with(Opcode::SetXattr, request, value.len());
        reply_empty(turn, reply, self.handler.setxattr(&requester(request), node, name.as_bytes(), value, flags));
    }

    fn getxattr(&self, request: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let turn = self.turn(Opcode::GetXattr, request);
        reply_xattr(turn, reply, self.handler.getxattr(node, name.as_bytes(), size));
    }

    fn listxattr(&self, request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        let turn = self.turn(Opcode::ListXattr, request);
        reply_xattr(turn, reply, self.handler.listxattr(&requester(request), node, size));
    }

    fn removexattr(&self, request: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let turn = self.turn(Opcode::RemoveXattr, request);
        reply_empty(turn, reply, self.handler.removexattr(node, name.as_bytes()));
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
        let turn = self.turn(Opcode::Create, request);
        let created = self.handler.create(&requester(request), parent, name.as_bytes(), (mode, umask, flags));
        drop(turn);
        match created {
            Ok((entry, opened)) => reply.created(
                &entry.attr_lifetime,
                &file_attr(entry.node, &entry.attr),
                Generation(entry.generation),
                FileHandle(0),
                opened,
            ),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn fallocate(
        &self,
        request: &Request,
        node: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let turn = self.turn(Opcode::FAllocate, request);
        reply_empty(turn, reply, self.handler.fallocate(node, mode, offset, length));
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
        let turn = self.turn(Opcode::Ioctl, request);
        let answer = self.handler.ioctl(&requester(request), node, cmd, in_data);
        drop(turn);
        match answer {
            Ok(answer) => reply.ioctl(0, &answer),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn lseek(&self, request: &Request, node: INodeNo, _fh: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let turn = self.turn(Opcode::LSeek, request);
        let found = self.handler.lseek(node, offset, whence);
        drop(turn);
        match found {
            Ok(found) => reply.offset(found),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn copy_file_range(
        &self,
        request: &Request,
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
        let turn = self.turn(Opcode::CopyFileRange, request);
        let (from, to) = ((source, source_offset), (target, target_offset));
        reply_written(turn, reply, self.handler.copy_file_range(from, to, length));
    }
}
