//! Requests that take more than one call: convert arguments to `dataset`'s, map nodes to objects, refuse what is not
//! for the live file system. The [`Dispatcher`]'s longer methods consist of these.

use dataset::fs::{self, Attribute, Caller, Errno, FileSystem, FileType, Ino, acl};
use dataset::property::DirectIo;
use fuser::{FopenFlags, INodeNo, RenameFlags, WriteFlags};
use rustix::fs::OFlags;

use crate::dispatcher::Dispatcher;
use crate::flags::{self, Command};
use crate::handler::{Entry, Requester, Writing};
use crate::membership::keeps_set_group;
use crate::node::Node;

/// The most bytes that one request may copy: the reply has 32 bits. Whole pages, as the kernel asks for.
const MAX_COPY: u64 = 0xffff_f000;

const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;
const XATTR_BOTH: i32 = XATTR_CREATE | XATTR_REPLACE;
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;
const FALLOC_KEEP_SIZE: i32 = 0x01;
const FALLOC_PUNCH_HOLE: i32 = 0x02;
const FALLOC_ZERO_RANGE: i32 = 0x10;

const TRUSTED_XATTRS: &[u8] = b"trusted.";

const SET_GROUP: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o010;

const ACCESS_MODE: i32 = 0o3;
const READ_ONLY: i32 = 0;
const READ_AND_WRITE: i32 = 0o2;

/// Whether a program may change a file of this group and keep its set-group bit.
fn keeps_bit(requester: &Requester, group: u32) -> bool {
    let Requester { uid, gid, pid } = *requester;
    uid == 0 || gid == group || keeps_set_group(pid, group)
}

/// Whether a change implicitly clears set-id bits: a change of the owner, or a request that names no attribute, by
/// which the kernel asks for just that.
pub(crate) fn is_change_of_owner(change: &fs::SetAttr) -> bool {
    let fs::SetAttr { mode, uid, gid, size, atime, mtime, .. } = change;
    let names_nothing = size.is_none() && atime.is_none() && mtime.is_none();
    mode.is_none() && (uid.is_some() || gid.is_some() || names_nothing)
}

/// Whether a file opened with these open(2) flags can be mapped for writing.
pub(crate) fn is_mappable(flags: i32) -> bool {
    flags & ACCESS_MODE == READ_AND_WRITE
}

fn is_acl(name: &[u8]) -> bool {
    name == acl::ACCESS || name == acl::DEFAULT
}

impl Dispatcher {
    /// A new or newly linked file. `make` is called with the file system, the directory and the name.
    pub(crate) fn enter(
        &self,
        dir: INodeNo,
        name: &[u8],
        make: impl FnOnce(&FileSystem, Ino, &[u8]) -> Result<fs::Attr, Errno>,
    ) -> Result<Entry, Errno> {
        let dir = self.server.writable_entry(dir, name)?;
        let epoch = self.live().epoch();
        Ok(self.server.admit(&make(&self.server.live_of([dir]), dir, name)?, epoch))
    }

    pub(crate) fn rename_entry(
        &self,
        caller: Caller,
        (dir, name): (INodeNo, &[u8]),
        (new_dir, new_name): (INodeNo, &[u8]),
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        if !RenameFlags::all().contains(flags) {
            return Err(Errno::INVAL);
        }
        let dir = self.server.writable_entry(dir, name)?;
        let new_dir = self.server.writable_entry(new_dir, new_name)?;
        let flags = fs::RenameFlags {
            noreplace: flags.contains(RenameFlags::RENAME_NOREPLACE),
            exchange: flags.contains(RenameFlags::RENAME_EXCHANGE),
            whiteout: flags.contains(RenameFlags::RENAME_WHITEOUT).then_some(caller),
        };
        self.server.live_of([dir, new_dir]).rename(dir, name, new_dir, new_name, flags)
    }

    pub(crate) fn allocate(&self, node: INodeNo, mode: i32, offset: u64, length: u64) -> Result<(), Errno> {
        let ino = self.server.writable(node)?;
        if mode & !(FALLOC_KEEP_SIZE | FALLOC_PUNCH_HOLE | FALLOC_ZERO_RANGE) != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let mode = fs::FallocateFlags {
            keep_size: mode & FALLOC_KEEP_SIZE != 0,
            punch_hole: mode & FALLOC_PUNCH_HOLE != 0,
            zero_range: mode & FALLOC_ZERO_RANGE != 0,
        };
        self.server.live_of([ino]).fallocate(ino, mode, offset, length)
    }

    pub(crate) fn seek(&self, node: INodeNo, offset: i64, whence: i32) -> Result<i64, Errno> {
        let whence = match whence {
            SEEK_DATA => fs::Whence::Data,
            SEEK_HOLE => fs::Whence::Hole,
            _ => return Err(Errno::INVAL),
        };
        let offset = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
        let (view, ino) = self.server.resolve(node)?.ok_or(Errno::NXIO)?;
        i64::try_from(view.seek(ino, offset, whence)?).map_err(|_| Errno::OVERFLOW)
    }

    /// Copies inside the live file system, or from a snapshot into it.
    pub(crate) fn copy(&self, from: (INodeNo, u64), to: (INodeNo, u64), length: u64) -> Result<u32, Errno> {
        let target = self.server.writable(to.0)?;
        let (view, source) = self.server.resolve(from.0)?.ok_or(Errno::XDEV)?;
        let copied =
            self.server.live_of([target]).copy_range_from(&view, source, from.1, target, to.1, length.min(MAX_COPY))?;
        Ok(u32::try_from(copied).expect("no more is copied than asked for"))
    }

    pub(crate) fn xattr(&self, node: INodeNo, name: &[u8]) -> Result<Vec<u8>, Errno> {
        self.check_acl(name)?;
        let (view, ino) = self.server.resolve(node)?.ok_or(Errno::NODATA)?;
        match view.getxattr(ino, name) {
            // The kernel takes any other answer as a reason to refuse access.
            Err(Errno::OPNOTSUPP) if is_acl(name) => Err(Errno::NODATA),
            value => value,
        }
    }

    pub(crate) fn set_xattr(
        &self,
        requester: &Requester,
        node: INodeNo,
        name: &[u8],
        value: &[u8],
        flags: i32,
    ) -> Result<(), Errno> {
        let ino = self.server.writable(node)?;
        self.check_acl(name)?;
        if is_acl(name) {
            return self.server.live_of([ino]).set_acl(ino, name, value, self.loses_set_group(requester, ino)?);
        }
        let how = match flags {
            XATTR_CREATE => fs::SetXattr::Create,
            XATTR_REPLACE => fs::SetXattr::Replace,
            // Contradictory flags: exists and does not exist.
            XATTR_BOTH => return Err(self.server.live_of([ino]).getxattr(ino, name).err().unwrap_or(Errno::EXIST)),
            _ => fs::SetXattr::Any,
        };
        self.server.live_of([ino]).setxattr(ino, name, value, how)
    }

    pub(crate) fn remove_xattr(&self, node: INodeNo, name: &[u8]) -> Result<(), Errno> {
        let ino = self.server.writable(node)?;
        self.check_acl(name)?;
        self.server.live_of([ino]).removexattr(ino, name)
    }

    /// Fails for an access control list if the mount has none: the kernel would not enforce it.
    fn check_acl(&self, name: &[u8]) -> Result<(), Errno> {
        if is_acl(name) && !self.acl { Err(Errno::OPNOTSUPP) } else { Ok(()) }
    }

    /// Whether a file loses its set-group bit when this program changes its access control list.
    fn loses_set_group(&self, requester: &Requester, ino: Ino) -> Result<bool, Errno> {
        let attr = self.server.live_of([ino]).getattr(ino)?;
        Ok(attr.mode & SET_GROUP != 0 && !keeps_bit(requester, attr.gid))
    }

    /// The names of a file's extended attributes, each ended by a zero byte. Attributes that only root may read are
    /// listed for root alone, and access control lists only if the mount has them.
    pub(crate) fn xattr_names(&self, uid: u32, node: INodeNo) -> Result<Vec<u8>, Errno> {
        let Some((view, ino)) = self.server.resolve(node)? else { return Ok(Vec::new()) };
        let is_hidden = |name: &[u8]| (uid != 0 && name.starts_with(TRUSTED_XATTRS)) || self.check_acl(name).is_err();
        let mut names = Vec::new();
        for name in view.listxattr(ino)?.iter().filter(|name| !is_hidden(name)) {
            names.extend_from_slice(name);
            names.push(0);
        }
        Ok(names)
    }

    /// Executes one of the commands behind `chattr` and `lsattr`.
    pub(crate) fn control(&self, uid: u32, node: INodeNo, number: u32, data: &[u8]) -> Result<Vec<u8>, Errno> {
        let command = Command::of(number).ok_or(Errno::NOTTY)?;
        match command {
            Command::GetFlags | Command::GetExtended => {
                let (view, ino) = self.server.resolve(node)?.ok_or(Errno::NOTTY)?;
                Ok(flags::shown(command, &view.file_attributes(ino)?, view.project(ino)?))
            }
            Command::SetFlags | Command::SetExtended => {
                let ino = self.server.writable(node)?;
                let live = self.server.live_of([ino]);
                let attr = live.getattr(ino)?;
                live.set_attributes_and_project(ino, |attributes, project| {
                    let before = *attributes;
                    flags::set(command, data, attributes)?;
                    *project = flags::project(command, data, *project)?;
                    // Programs set this flag on a whole tree, files included.
                    project.inherit &= attr.file_type == FileType::Directory;
                    flags::check_user(uid, attr.uid, &before, attributes)
                })?;
                self.forget_attributes(node);
                Ok(Vec::new())
            }
        }
    }

    /// Makes the kernel ask for a file's attributes again. While the kernel waits for an answer, no other cache can be
    /// invalidated: only this needs no lock.
    fn forget_attributes(&self, node: INodeNo) {
        const NO_DATA: i64 = -1;
        if let Some(Err(error)) = self.notifier.get().map(|notifier| notifier.inval_inode(node, NO_DATA, 0)) {
            tracing::debug!(%error, node = node.0, "the kernel goes on believing the time of the last change");
        }
    }

    /// Opens a file as its attributes allow, and says how the kernel must treat it.
    pub(crate) fn open_file(&self, node: INodeNo, flags: i32) -> Result<FopenFlags, Errno> {
        let writes = flags & ACCESS_MODE != READ_ONLY;
        if writes {
            self.server.writable(node)?;
            if self.live().options().readonly {
                return Err(Errno::ROFS);
            }
        }
        let Some((view, ino)) = self.server.resolve(node)? else { return Ok(FopenFlags::FOPEN_KEEP_CACHE) };
        let attributes = view.file_attributes(ino)?;
        let appends = flags & OFlags::APPEND.bits().cast_signed() != 0;
        if writes && (attributes.has(Attribute::Immutable) || attributes.has(Attribute::Append) && !appends) {
            return Err(Errno::PERM);
        }
        if is_mappable(flags) {
            self.server.held.note_mappable(ino);
        }
        let direct = attributes.has(Attribute::Direct) || view.options().direct == DirectIo::Always;
        Ok(if direct { FopenFlags::FOPEN_DIRECT_IO } else { FopenFlags::FOPEN_KEEP_CACHE })
    }

    /// Notes that the kernel is about to get content of a file.
    pub(crate) fn note_cached(&self, node: INodeNo) {
        if let Some(Node::Live(ino)) = Node::decode(node) {
            self.server.held.note_cached(ino);
        }
    }

    /// Writes to a file of the live file system. For write-back the kernel ignores the count of bytes written, so
    /// write-back is all or nothing.
    pub(crate) fn write_live(
        &self,
        requester: &Requester,
        node: INodeNo,
        offset: u64,
        data: &[u8],
        how: Writing,
    ) -> Result<u32, Errno> {
        let ino = self.server.writable(node)?;
        let live = self.server.live_of([ino]);
        let kill_priv = how.flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        if kill_priv {
            let attr = live.getattr(ino)?;
            self.drop_set_group(requester, attr, attr.gid)?;
        }
        let written = if how.flags.contains(WriteFlags::FUSE_WRITE_CACHE) {
            live.write_back(ino, offset, data, kill_priv).map(|()| data.len())?
        } else {
            if !how.past {
                self.server.held.note_cached(ino);
            }
            live.write(ino, offset, data, kill_priv)?
        };
        Ok(u32::try_from(written).expect("no more is written than was sent"))
    }

    /// Clears the set-group bit of a file whose content or owner this program changes, if the group may not execute the
    /// file: the bit stays only for members of the file's former group. If the group may execute the file, the file
    /// system itself clears the bit for every user.
    pub(crate) fn drop_set_group(&self, requester: &Requester, attr: fs::Attr, group: u32) -> Result<fs::Attr, Errno> {
        let has_it = attr.mode & (SET_GROUP | GROUP_EXECUTE) == SET_GROUP;
        if !has_it || attr.file_type == FileType::Directory || keeps_bit(requester, group) {
            return Ok(attr);
        }
        let mode = Some(u32::from(attr.mode & !SET_GROUP));
        self.server.live_of([attr.ino]).setattr(
            &requester.caller(),
            attr.ino,
            &fs::SetAttr { mode, ..fs::SetAttr::default() },
        )
    }
}
