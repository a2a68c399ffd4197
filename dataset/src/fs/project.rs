//! Projects: directory trees whose space is charged together, whatever the files' owners.
//!
//! Every file has a project number, by default 0. A directory may pass on its project: new files in the directory get
//! its project, and new directories pass the project on in turn. A file of another project cannot be linked or moved
//! into such a directory (EXDEV), so the whole tree stays in one project. `fs project`, `chattr -p` and `xfs_quota`
//! show the same number.
//!
//! For accounts and quotas of projects see [`super::account`]; the pool's feature is the same, `project_quota`.

use rustix::io::Errno;

use super::{
    change::load_inode,
    file_system::FileSystem,
    inode::{FileType, Inode, flag},
    key::Ino,
};

/// A file's project, and whether new files get the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Project {
    /// The project number; 0 for none.
    pub id: u32,
    /// Whether new files inherit the project; only for directories.
    pub inherit: bool,
}

impl Project {
    pub(super) fn of(inode: &Inode) -> Project {
        Project { id: inode.project, inherit: inode.has(flag::PROJECT) }
    }

    /// Whether a file of the given type can have the project.
    pub(super) fn fits(self, file_type: FileType) -> bool {
        !self.inherit || file_type == FileType::Directory
    }

    pub(super) fn apply(self, inode: &mut Inode) {
        inode.project = self.id;
        inode.set(flag::PROJECT, self.inherit);
    }
}

/// Gives a new inode the project that its directory passes on.
pub(super) fn inherit(inode: &mut Inode, dir: &Inode) {
    if dir.has(flag::PROJECT) {
        inode.project = dir.project;
        inode.set(flag::PROJECT, inode.is_dir());
    }
}

/// EXDEV if the directory passes on a project and the file has another project.
pub(super) fn check_entry(inode: &Inode, dir: &Inode) -> Result<(), Errno> {
    if dir.has(flag::PROJECT) && dir.project != inode.project { Err(Errno::XDEV) } else { Ok(()) }
}

impl FileSystem {
    /// The project of a file; ENOENT without an inode.
    pub fn project(&self, ino: Ino) -> Result<Project, Errno> {
        self.read_tree(|view| Ok(Project::of(&load_inode(view, ino)?)))
    }

    /// Changes the project of a file.
    ///
    /// # Errors
    /// EOPNOTSUPP if a non-directory should pass on its project or the pool's feature is not enabled; EDQUOT.
    pub fn set_project(&self, ino: Ino, project: Project) -> Result<(), Errno> {
        self.set_attributes_and_project(ino, |_, own| {
            *own = project;
            Ok(())
        })
    }
}
