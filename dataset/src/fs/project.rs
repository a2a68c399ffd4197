//! Projects: trees of files whose space is charged together, whoever they belong to.
//!
//! A file is of one project, by number; of 0 if nobody says otherwise. A directory may hand its project down: what is made
//! in it is of the same, and directories hand it down as well. Into such a directory nothing of another project is linked
//! or moved (EXDEV): so a tree that is of one project stays so. `fs project`, `chattr -p` and `xfs_quota` speak of the same.
//!
//! Accounts and quotas go by it, see [`super::account`]; the pool's feature is the same one.

use rustix::io::Errno;

use super::{
    FileSystem,
    change::load_inode,
    inode::{FileType, Inode, flag},
    key::Ino,
};

/// Which project a file is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Project {
    /// Its number.
    pub id: u32,
    /// Whether it is handed down; only by a directory.
    pub inherit: bool,
}

impl Project {
    pub(super) fn of(inode: &Inode) -> Project {
        Project { id: inode.project, inherit: inode.has(flag::PROJECT) }
    }

    /// Whether a file of this type can have it.
    pub(super) fn fits(self, file_type: FileType) -> bool {
        !self.inherit || file_type == FileType::Directory
    }

    pub(super) fn apply(self, inode: &mut Inode) {
        inode.project = self.id;
        inode.set(flag::PROJECT, self.inherit);
    }
}

/// Gives something new the project that its directory hands down.
pub(super) fn inherit(inode: &mut Inode, dir: &Inode) {
    if dir.has(flag::PROJECT) {
        inode.project = dir.project;
        inode.set(flag::PROJECT, inode.is_dir());
    }
}

/// EXDEV if a directory that hands down its project would get a file of another.
pub(super) fn check_entry(inode: &Inode, dir: &Inode) -> Result<(), Errno> {
    if dir.has(flag::PROJECT) && dir.project != inode.project { Err(Errno::XDEV) } else { Ok(()) }
}

impl FileSystem {
    /// The project of a file.
    pub fn project(&self, ino: Ino) -> Result<Project, Errno> {
        self.read_tree(|view| Ok(Project::of(&load_inode(view, ino)?)))
    }

    /// Has a file be of a project.
    ///
    /// # Errors
    /// EOPNOTSUPP if it is no directory and is to hand its project down, or if the pool's feature is not enabled; EDQUOT.
    pub fn set_project(&self, ino: Ino, project: Project) -> Result<(), Errno> {
        self.set_attributes_and_project(ino, |_, own| {
            *own = project;
            Ok(())
        })
    }
}
