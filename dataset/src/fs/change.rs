//! One change of a dataset's tree while it is being put together.
//!
//! Wraps the view and the batch of an update. Inodes that are edited are held until the end and put once, however often
//! the operation touches them: a rename within a directory meets the same inode twice. What becomes of them is entered into
//! the accounts in the end, see [`super::account`].

use pool::{
    env::Nanos,
    format::{key::Key, pointer::BlockPointer},
    tree::{Batch, Block, View},
    units::Txg,
};
use rustix::io::Errno;
use smallvec::SmallVec;

use super::{
    account::{
        Account,
        ledger::{Charge, Ledger},
    },
    failure::{Failure, damaged},
    inode::Inode,
    key::{self, Ino},
    master::Master,
};

/// The inode `ino` as the view has it.
pub(super) fn load_inode(view: &View<'_>, ino: Ino) -> Result<Inode, Failure> {
    if ino == key::DATASET {
        return Err(Errno::NOENT.into());
    }
    let key = key::inode(ino);
    let entry = view.get(key)?.ok_or(Errno::NOENT)?;
    Inode::decode(entry.body()).map_err(damaged(key))
}

/// The directory `ino` as the view has it.
pub(super) fn load_directory(view: &View<'_>, ino: Ino) -> Result<Inode, Failure> {
    let inode = load_inode(view, ino)?;
    if inode.is_dir() { Ok(inode) } else { Err(Errno::NOTDIR.into()) }
}

/// The master item as the view has it.
pub(super) fn load_master(view: &View<'_>) -> Result<Master, Failure> {
    let key = key::master();
    let Some(entry) = view.get(key)? else {
        let missing = pool::format::codec::Malformed { what: "dataset without a master item" };
        return Err(damaged(key)(missing));
    };
    Master::decode(entry.body()).map_err(damaged(key))
}

/// An inode that is edited.
struct Held {
    ino: Ino,
    /// What it was charged before; `None` if it is new.
    charge: Option<Charge>,
    inode: Inode,
}

/// A change being put together.
pub(super) struct Change<'a> {
    /// The tree as it was before.
    pub(super) view: View<'a>,
    /// When the change happens.
    pub(super) now: Nanos,
    batch: &'a mut Batch,
    inodes: SmallVec<[Held; 4]>,
    /// Inodes that go, and what they were charged.
    gone: SmallVec<[(Ino, Charge); 2]>,
    master: Option<Master>,
    /// The accounts that it touches.
    pub(super) ledger: Ledger,
}

impl<'a> Change<'a> {
    pub(super) fn new(view: View<'a>, batch: &'a mut Batch, now: Nanos, ledger: Ledger) -> Change<'a> {
        Change { view, now, batch, inodes: SmallVec::new(), gone: SmallVec::new(), master: None, ledger }
    }

    /// The open transaction group.
    pub(super) fn txg(&self) -> Txg {
        self.view.txg()
    }

    /// An inode with the edits made so far.
    pub(super) fn inode(&self, ino: Ino) -> Result<Inode, Failure> {
        match self.inodes.iter().find(|held| held.ino == ino) {
            Some(held) => Ok(held.inode),
            None => load_inode(&self.view, ino),
        }
    }

    /// An inode to edit.
    pub(super) fn edit(&mut self, ino: Ino) -> Result<&mut Inode, Failure> {
        let index = match self.inodes.iter().position(|held| held.ino == ino) {
            Some(index) => index,
            None => {
                let inode = load_inode(&self.view, ino)?;
                self.inodes.push(Held { ino, charge: Some(Charge::of(&inode)), inode });
                self.inodes.len() - 1
            }
        };
        Ok(&mut self.inodes[index].inode)
    }

    /// A directory that still has a name, to edit.
    pub(super) fn edit_directory(&mut self, dir: Ino) -> Result<&mut Inode, Failure> {
        let inode = self.edit(dir)?;
        match inode {
            inode if !inode.is_dir() => Err(Errno::NOTDIR.into()),
            inode if inode.nlink == 0 => Err(Errno::NOENT.into()),
            inode => Ok(inode),
        }
    }

    /// Adds a new inode under the next number.
    pub(super) fn add(&mut self, inode: Inode) -> Result<Ino, Failure> {
        let master = self.edit_master()?;
        let ino = master.next;
        master.next = ino.checked_add(1).ok_or(Errno::NOSPC)?;
        master.files += 1;
        self.inodes.push(Held { ino, charge: None, inode });
        Ok(ino)
    }

    /// Takes an inode out of the tree; what else belongs to it must be gone.
    pub(super) fn remove(&mut self, ino: Ino) -> Result<(), Failure> {
        let master = self.edit_master()?;
        master.files = master.files.saturating_sub(1);
        let charge = match self.inodes.iter().position(|held| held.ino == ino) {
            Some(index) => self.inodes.remove(index).charge,
            None => Some(Charge::of(&load_inode(&self.view, ino)?)),
        };
        self.gone.extend(charge.map(|charge| (ino, charge)));
        self.delete(key::inode(ino));
        Ok(())
    }

    /// An account to edit.
    pub(super) fn account(&mut self, key: Key) -> Result<&mut Account, Failure> {
        self.ledger.account(&self.view, key)
    }

    /// EDQUOT if the owners of an inode may not have `bytes` more. To be asked by who writes in place, before: nothing
    /// about accounts refuses or delays the change afterwards.
    pub(super) fn admit_growth(&mut self, ino: Ino, bytes: impl FnOnce() -> u64) -> Result<(), Failure> {
        if !self.ledger.charges(&self.view, ino)? {
            return Ok(());
        }
        let charge = Charge::of(&self.inode(ino)?);
        self.ledger.admit(&self.view, &charge, bytes())
    }

    /// Whether one of the owners that an inode is charged to has a quota of bytes.
    pub(super) fn has_byte_quota(&mut self, ino: Ino) -> Result<bool, Failure> {
        if !self.ledger.charges(&self.view, ino)? {
            return Ok(false);
        }
        for key in Charge::of(&self.inode(ino)?).keys() {
            if self.account(key)?.quota.bytes != 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn edit_master(&mut self) -> Result<&mut Master, Failure> {
        let master = match self.master.take() {
            Some(master) => master,
            None => load_master(&self.view)?,
        };
        Ok(self.master.insert(master))
    }

    /// Puts an item.
    pub(super) fn put(&mut self, key: Key, body: impl Into<Vec<u8>>, block: Option<&Block>) {
        self.batch.put(key, body, block);
    }

    /// Deletes an item.
    pub(super) fn delete(&mut self, key: Key) {
        self.batch.delete(key);
    }

    /// Says that the content of an item's block has changed in place.
    pub(super) fn touch(&mut self, key: Key) {
        self.batch.touch(key);
    }

    /// Says that items refer to this block by a reference that is new.
    pub(super) fn share(&mut self, pointer: BlockPointer) {
        self.batch.share(pointer);
    }

    /// Says that no item refers to this block any more.
    pub(super) fn kill(&mut self, block: Block) {
        self.batch.kill(block);
    }

    /// Puts what was held back, unless a quota refuses it.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        for (ino, charge) in self.gone {
            self.ledger.enter(&self.view, ino, Some(charge), None)?;
        }
        for Held { ino, charge, inode } in self.inodes {
            self.ledger.enter(&self.view, ino, charge, Some(Charge::of(&inode)))?;
            self.batch.put(key::inode(ino), inode.encode(), None);
        }
        if let Some(master) = self.master {
            self.batch.put(key::master(), master.encode(), None);
        }
        self.ledger.settle(self.batch)
    }
}
