//! The files that a step of a longer operation expects to find unchanged from an earlier step.
//!
//! An inode number is an identity within one tree, which never reuses a number. A rollback or a receive replaces the
//! tree of a file system, and in the new tree the number may be missing or belong to another file. A caller that keeps
//! a number between steps therefore keeps a [`Handle`]. The caller then reads and changes files through a view that
//! expects the handle's file ([`FileSystem::only`](super::FileSystem::only)) or the same tree
//! ([`FileSystem::pinned`](super::FileSystem::pinned)). Each read and each change compares under the lock of the tree,
//! so no replacement comes between the comparison and the access.
//!
//! The tree's [epoch](TreeEpoch) tells whether the comparison needs a lookup: a handle of the current tree needs none.

use pool::{
    env::Nanos,
    tree::View,
    txg::{Head, TreeEpoch},
};
use rustix::io::Errno;
use smallvec::SmallVec;

use super::{attr::Attr, change::load_inode, failure::Failure, inode::Inode, key::Ino};

/// Inode number, generation and creation time: never equal for two files of a file system, whatever trees were put in
/// place.
pub type Identity = (Ino, u64, Nanos);

impl Attr {
    /// The file's identity.
    pub fn identity(&self) -> Identity {
        (self.ino, self.generation, self.crtime)
    }
}

/// A reference to a file that stays valid across replacements of the tree if the new tree has the same file.
#[derive(Clone, Copy, Debug)]
pub struct Handle {
    ino: Ino,
    generation: u64,
    crtime: Nanos,
    /// The change time that the file must still have if the tree was replaced.
    ctime: Option<Nanos>,
    /// The epoch of the tree in which the file was found, or an earlier epoch.
    epoch: TreeEpoch,
}

impl Handle {
    /// A handle for the file with the given attributes. `epoch` was read before or together with the attributes.
    pub fn new(attr: &Attr, epoch: TreeEpoch) -> Handle {
        Handle::of(attr.identity(), epoch)
    }

    /// A handle for the file with the given identity.
    pub fn of((ino, generation, crtime): Identity, epoch: TreeEpoch) -> Handle {
        Handle { ino, generation, crtime, ctime: None, epoch }
    }

    /// The file's identity.
    pub fn identity(&self) -> Identity {
        (self.ino, self.generation, self.crtime)
    }

    /// A handle that after a replacement of the tree also requires the same change time, for a caller that has read
    /// part of the content. Within the same tree the file may change.
    pub fn unreplaced(self, attr: &Attr) -> Handle {
        Handle { ctime: Some(attr.ctime), ..self }
    }

    /// The inode number, used by one file at a time.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    fn check(&self, view: &View<'_>, epoch: TreeEpoch) -> Result<(), Failure> {
        if self.epoch == epoch {
            return Ok(());
        }
        match load_inode(view, self.ino) {
            Ok(inode) if self.is(&inode) => Ok(()),
            Ok(_) | Err(Failure::Refused(Errno::NOENT)) => Err(Errno::STALE.into()),
            Err(failure) => Err(failure),
        }
    }

    fn is(&self, inode: &Inode) -> bool {
        let is_same = (inode.generation, inode.crtime) == (self.generation, self.crtime);
        is_same && self.ctime.is_none_or(|ctime| ctime == inode.ctime)
    }
}

/// The identity of the file under a number in a tree; `None` without an inode.
pub(crate) fn identity_in(head: &Head, ino: Ino) -> Result<Option<Identity>, Errno> {
    let found = head.read(|view| load_inode(view, ino).map(|inode| (ino, inode.generation, inode.crtime)));
    match found {
        Ok(identity) => Ok(Some(identity)),
        Err(Failure::Refused(Errno::NOENT)) => Ok(None),
        Err(failure) => Err(failure.into()),
    }
}

/// What a view of a file system checks before each access.
pub(super) enum Expected {
    /// Nothing: for operations of a single step.
    Anything,
    /// The tree has the given epoch.
    Tree(TreeEpoch),
    /// The given files are still in the tree.
    Files(SmallVec<[Handle; 2]>),
}

impl Expected {
    /// ESTALE unless the tree with the given epoch is as expected.
    pub(super) fn check(&self, view: &View<'_>, epoch: TreeEpoch) -> Result<(), Failure> {
        match self {
            Expected::Anything => Ok(()),
            Expected::Tree(expected) if *expected == epoch => Ok(()),
            Expected::Tree(_) => Err(Errno::STALE.into()),
            Expected::Files(files) => files.iter().try_for_each(|file| file.check(view, epoch)),
        }
    }
}
