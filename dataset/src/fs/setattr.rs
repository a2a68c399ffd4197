//! Showing and changing attributes.

use rustix::io::Errno;

use super::{
    access,
    attr::{Attr, Caller, SGID, SUID, SetAttr, SetTime, kill_set_id},
    change::{Change, load_inode},
    failure::Failure,
    file_system::FileSystem,
    inode::Inode,
    key::Ino,
    options::effective_shift,
    xattr,
};

/// Write permission for group or all others; with an access control list, the group's bit is the mask's.
const WRITE_BY_OTHERS: u16 = 0o022;

impl FileSystem {
    pub(super) fn attr(&self, ino: Ino, inode: &Inode) -> Attr {
        Attr::of(ino, inode, 1 << effective_shift(inode, &self.options()))
    }

    /// The attributes of a file; ENOENT without an inode.
    pub fn getattr(&self, ino: Ino) -> Result<Attr, Errno> {
        let inode = self.read_tree(|view| load_inode(view, ino))?;
        Ok(self.attr(ino, &inode))
    }

    /// Changes attributes, a new length included, in one batch. The result is the new attributes.
    pub fn setattr(&self, caller: &Caller, ino: Ino, set: &SetAttr) -> Result<Attr, Errno> {
        self.writable()?;
        let inode = match set.size {
            Some(size) => self.truncate(ino, size, set)?,
            None => self.under_quota(|| {
                self.try_update(|change| {
                    if set.is_empty() {
                        check_set_id(&change.inode(ino)?, caller)?;
                    }
                    set_attributes(change, ino, set)?;
                    change.inode(ino)
                })
            })?,
        };
        Ok(self.attr(ino, &inode))
    }
}

/// Whether set-id bits may be cleared for the caller, which the kernel does not check: the caller must be root, the
/// owner, or somehow allowed to write by the mode.
fn check_set_id(inode: &Inode, caller: &Caller) -> Result<(), Errno> {
    let is_trusted = caller.uid == 0 || caller.uid == inode.uid || inode.mode & WRITE_BY_OTHERS != 0;
    if inode.is_dir() || inode.mode & (SUID | SGID) == 0 || is_trusted { Ok(()) } else { Err(Errno::PERM) }
}

/// EPERM if the file's attributes forbid the change. Setting times to now is allowed: appending would do the same.
fn check_settable(inode: &Inode, set: &SetAttr) -> Result<(), Errno> {
    let chosen = |time: Option<SetTime>| matches!(time, Some(SetTime::At(_)));
    let changes = set.mode.is_some() || set.uid.is_some() || set.gid.is_some() || set.size.is_some();
    if changes || chosen(set.atime) || chosen(set.mtime) {
        inode.check_free()
    } else if set.atime.is_some() || set.mtime.is_some() || set.is_empty() {
        inode.check_mutable()
    } else {
        Ok(())
    }
}

/// Sets all given attributes except the length.
pub(super) fn set_attributes(change: &mut Change<'_>, ino: Ino, set: &SetAttr) -> Result<(), Failure> {
    let now = change.now;
    // Directories are not executed: their set-id bits stay.
    let owner_changes = (set.uid.is_some() || set.gid.is_some() || set.is_empty()) && !change.edit(ino)?.is_dir();
    let inode = change.edit(ino)?;
    check_settable(inode, set)?;
    if owner_changes || (set.kill_suid && set.size.is_some()) {
        kill_set_id(inode);
    }
    inode.uid = set.uid.unwrap_or(inode.uid);
    inode.gid = set.gid.unwrap_or(inode.gid);
    if let Some(mode) = set.mode {
        inode.mode = (mode & 0o7777) as u16;
    }
    if set.size.is_some() {
        inode.mtime = now;
    }
    inode.atime = set.atime.map_or(inode.atime, |time| time.at(now));
    inode.mtime = set.mtime.map_or(inode.mtime, |time| time.at(now));
    inode.ctime = set.ctime.unwrap_or(now);
    let mode = inode.mode;
    if set.mode.is_some() {
        access::follow_mode(change, ino, mode)?;
    }
    if owner_changes || set.size.is_some() {
        xattr::drop_capability(change, ino)?;
    }
    Ok(())
}
