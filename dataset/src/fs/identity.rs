//! What a step of a longer operation expects of the files that an earlier step has found.
//!
//! An inode number is an identity within one tree, which never gives it out twice. Rollback and receive put another tree in
//! the place of a file system's, and there the number may be missing or belong to another file. So whoever keeps a number
//! from one step to the next keeps a [`Handle`], and looks and changes through a view of the file system that expects it
//! ([`FileSystem::only`](super::FileSystem::only)), or one that ends with the tree
//! ([`FileSystem::pinned`](super::FileSystem::pinned)). What is expected is compared by each look and by each change
//! itself, under the lock of the tree, so nothing can come in between.
//!
//! The tree's [epoch](TreeEpoch) says whether that takes a look-up: a handle of the tree that is there needs none.

use pool::{
    env::Nanos,
    tree::View,
    txg::{Head, TreeEpoch},
};
use rustix::io::Errno;
use smallvec::SmallVec;

use super::{attr::Attr, change::load_inode, failure::Failure, inode::Inode, key::Ino};

/// What no two files have in common that a file system ever had, whatever trees it showed: number, generation, and when the
/// file was made.
pub type Identity = (Ino, u64, Nanos);

impl Attr {
    /// Which file it is.
    pub fn identity(&self) -> Identity {
        (self.ino, self.generation, self.crtime)
    }
}

/// A file, whatever becomes of its file system's tree.
#[derive(Clone, Copy, Debug)]
pub struct Handle {
    ino: Ino,
    generation: u64,
    crtime: Nanos,
    /// A change time that must still be the file's if the tree is another.
    ctime: Option<Nanos>,
    /// The tree that it was found in, or one before it.
    epoch: TreeEpoch,
}

impl Handle {
    /// The file with these attributes. The epoch is that of the tree where they were found, or was asked for before.
    pub fn new(attr: &Attr, epoch: TreeEpoch) -> Handle {
        Handle::of(attr.identity(), epoch)
    }

    /// The same, of a file that is known by its identity.
    pub fn of((ino, generation, crtime): Identity, epoch: TreeEpoch) -> Handle {
        Handle { ino, generation, crtime, ctime: None, epoch }
    }

    /// Which file it is.
    pub fn identity(&self) -> Identity {
        (self.ino, self.generation, self.crtime)
    }

    /// The file as long as another tree has it with the same content: for whoever has read a part of it. While its tree
    /// is the same, the file may change.
    pub fn unreplaced(self, attr: &Attr) -> Handle {
        Handle { ctime: Some(attr.ctime), ..self }
    }

    /// Its number.
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

/// Which file a tree has under a number; `None` if it has none there.
pub(crate) fn identity_in(head: &Head, ino: Ino) -> Result<Option<Identity>, Errno> {
    let found = head.read(|view| load_inode(view, ino).map(|inode| (ino, inode.generation, inode.crtime)));
    match found {
        Ok(identity) => Ok(Some(identity)),
        Err(Failure::Refused(Errno::NOENT)) => Ok(None),
        Err(failure) => Err(failure.into()),
    }
}

/// What a view of a file system goes by.
pub(super) enum Expected {
    /// Nothing: for operations that take one step.
    Anything,
    /// This tree.
    Tree(TreeEpoch),
    /// These files.
    Files(SmallVec<[Handle; 2]>),
}

impl Expected {
    /// ESTALE unless a tree, that of this epoch, is as expected.
    pub(super) fn check(&self, view: &View<'_>, epoch: TreeEpoch) -> Result<(), Failure> {
        match self {
            Expected::Anything => Ok(()),
            Expected::Tree(expected) if *expected == epoch => Ok(()),
            Expected::Tree(_) => Err(Errno::STALE.into()),
            Expected::Files(files) => files.iter().try_for_each(|file| file.check(view, epoch)),
        }
    }
}
