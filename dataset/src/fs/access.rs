//! The access control lists of files: stored, inherited, and kept equal to the mode. For the meaning of a list see
//! [`super::acl`].

use pool::tree::View;
use rustix::io::Errno;

use super::{
    acl::{ACCESS, Acl, DEFAULT, is_acl},
    attr::SGID,
    change::Change,
    failure::Failure,
    file_system::{FileSystem, METADATA},
    inode::{FileType, Inode},
    key::Ino,
    xattr::{self, Value, Xattr},
};

const PERMISSIONS: u16 = 0o777;

/// The list in an item. An invalid list, which no version of this program has stored, counts as none.
fn load(view: &View<'_>, ino: Ino, name: &[u8]) -> Result<Option<Acl>, Failure> {
    match xattr::find(view, ino, name)? {
        Ok(entry) => Ok(match xattr::decode(&entry)?.value {
            Value::Inline(value) => Acl::decode(value).ok().flatten(),
            Value::Block(_) => None,
        }),
        Err(_) => Ok(None),
    }
}

fn store(change: &mut Change<'_>, ino: Ino, name: &[u8], acl: &Acl) -> Result<(), Failure> {
    let place = xattr::replace(change, ino, name)?;
    change.put(place, Xattr { name, value: Value::Inline(&acl.encode()) }.encode(), None);
    Ok(())
}

/// Makes a file's access list follow a new mode.
pub(super) fn follow_mode(change: &mut Change<'_>, ino: Ino, mode: u16) -> Result<(), Failure> {
    if let Some(mut acl) = load(&change.view, ino, ACCESS)? {
        acl.set_mode(mode);
        store(change, ino, ACCESS, &acl)?;
    }
    Ok(())
}

/// The default list that a new file gets from its directory.
#[derive(Default)]
pub(super) struct Inheritance(Option<Acl>);

impl Inheritance {
    /// For a new file of the given type in `dir`.
    pub(super) fn of(view: &View<'_>, dir: Ino, file_type: FileType) -> Result<Inheritance, Failure> {
        match file_type {
            FileType::Symlink => Ok(Inheritance::default()),
            _ => load(view, dir, DEFAULT).map(Inheritance),
        }
    }

    /// The mode: the mode asked for, restricted by the default list or, without a list, by the umask.
    pub(super) fn mode(&self, asked: u16, umask: u32) -> u16 {
        match &self.0 {
            Some(default) => asked & !PERMISSIONS | default.inherited(asked).mode(),
            None => asked & !(umask as u16 & PERMISSIONS),
        }
    }

    /// Stores the lists of the new inode.
    pub(super) fn bequeath(&self, change: &mut Change<'_>, ino: Ino, inode: &Inode) -> Result<(), Failure> {
        let Some(default) = &self.0 else { return Ok(()) };
        let own = default.inherited(inode.mode);
        if !own.is_minimal() {
            store(change, ino, ACCESS, &own)?;
        }
        if inode.is_dir() { store(change, ino, DEFAULT, default) } else { Ok(()) }
    }
}

impl FileSystem {
    /// Sets a list, or removes the list if `value` is empty. `name` is [`ACCESS`] or [`DEFAULT`]. The access list
    /// changes the mode; `kills_sgid` clears the set-group bit, as required if the caller is not in the file's group.
    ///
    /// # Errors
    /// EOPNOTSUPP with `acltype=off`, EACCES for a default list of a non-directory, and the errors of [`Acl::decode`].
    pub fn set_acl(&self, ino: Ino, name: &[u8], value: &[u8], kills_sgid: bool) -> Result<(), Errno> {
        assert!(is_acl(name), "only lists are set as such");
        self.writable()?;
        self.check_acl_name(name)?;
        let acl = Acl::decode(value)?;
        self.admit(METADATA + value.len() as u64)?;
        self.update_tree(|change| {
            let inode = change.inode(ino)?;
            inode.check_free()?;
            match inode.file_type {
                FileType::Symlink => return Err(Errno::OPNOTSUPP.into()),
                FileType::Directory => {}
                _ if name == DEFAULT && acl.is_some() => return Err(Errno::ACCESS.into()),
                _ => {}
            }
            let now = change.now;
            let inode = change.edit(ino)?;
            inode.ctime = now;
            if let Some(acl) = acl.as_ref().filter(|_| name == ACCESS) {
                inode.mode = inode.mode & !PERMISSIONS | acl.mode();
                if kills_sgid {
                    inode.mode &= !SGID;
                }
            }
            match &acl {
                Some(acl) if name == DEFAULT || !acl.is_minimal() => store(change, ino, name, acl),
                _ => xattr::delete_named(change, ino, name).map(drop),
            }
        })
    }

    /// EOPNOTSUPP for a list's name if lists are off.
    pub(super) fn check_acl_name(&self, name: &[u8]) -> Result<(), Errno> {
        if is_acl(name) && !self.options().acl { Err(Errno::OPNOTSUPP) } else { Ok(()) }
    }

    /// The default list for a new file of the given type in `dir`.
    pub(super) fn inheritance(&self, view: &View<'_>, dir: Ino, file_type: FileType) -> Result<Inheritance, Failure> {
        if self.options().acl { Inheritance::of(view, dir, file_type) } else { Ok(Inheritance::default()) }
    }
}
