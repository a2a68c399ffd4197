//! One change of a dataset's tree, under construction.
//!
//! Wraps the view and the batch of an update. Edited inodes are kept until the end and put once, however often the
//! operation edits them: a rename within a directory edits the same inode twice. At the end the accounts are charged
//! with the differences, see [`super::account`].

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
        item::Account,
        ledger::{Charge, Ledger},
    },
    failure::{Failure, damaged},
    inode::Inode,
    key::{self, Ino},
    master::Master,
};

/// The inode `ino` in the view; ENOENT without an inode.
pub(super) fn load_inode(view: &View<'_>, ino: Ino) -> Result<Inode, Failure> {
    if ino == key::DATASET {
        return Err(Errno::NOENT.into());
    }
    let key = key::inode(ino);
    let entry = view.get(key)?.ok_or(Errno::NOENT)?;
    Inode::decode(entry.body()).map_err(damaged(key))
}

/// The directory `ino` in the view; ENOTDIR for other types.
pub(super) fn load_directory(view: &View<'_>, ino: Ino) -> Result<Inode, Failure> {
    let inode = load_inode(view, ino)?;
    if inode.is_dir() { Ok(inode) } else { Err(Errno::NOTDIR.into()) }
}

pub(super) fn load_master(view: &View<'_>) -> Result<Master, Failure> {
    let key = key::master();
    let Some(entry) = view.get(key)? else {
        let missing = pool::format::codec::Malformed { what: "dataset without a master item" };
        return Err(damaged(key)(missing));
    };
    Master::decode(entry.body()).map_err(damaged(key))
}

/// An inode that the operation edits.
struct Held {
    ino: Ino,
    /// The charge before the change; `None` for a new inode.
    charge: Option<Charge>,
    inode: Inode,
}

pub(super) struct Change<'a> {
    /// The tree before the change.
    pub(super) view: View<'a>,
    /// The time of the change.
    pub(super) now: Nanos,
    batch: &'a mut Batch,
    inodes: SmallVec<[Held; 4]>,
    /// Removed inodes, with their charges.
    gone: SmallVec<[(Ino, Charge); 2]>,
    master: Option<Master>,
    /// The accounts touched by the change.
    pub(super) ledger: Ledger,
}

impl<'a> Change<'a> {
    pub(super) fn new(view: View<'a>, batch: &'a mut Batch, now: Nanos, ledger: Ledger) -> Change<'a> {
        Change { view, now, batch, inodes: SmallVec::new(), gone: SmallVec::new(), master: None, ledger }
    }

    /// The txg in which the change takes effect.
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

    /// An inode to edit; put at the end.
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

    /// A directory to edit; ENOENT if the directory was removed.
    pub(super) fn edit_directory(&mut self, dir: Ino) -> Result<&mut Inode, Failure> {
        let inode = self.edit(dir)?;
        match inode {
            inode if !inode.is_dir() => Err(Errno::NOTDIR.into()),
            inode if inode.nlink == 0 => Err(Errno::NOENT.into()),
            inode => Ok(inode),
        }
    }

    /// Adds a new inode under the next object number.
    pub(super) fn add(&mut self, inode: Inode) -> Result<Ino, Failure> {
        let master = self.edit_master()?;
        let ino = master.next;
        master.next = ino.checked_add(1).ok_or(Errno::NOSPC)?;
        master.files += 1;
        self.inodes.push(Held { ino, charge: None, inode });
        Ok(ino)
    }

    /// Adds a new inode under a given number.
    pub(super) fn add_at(&mut self, ino: Ino, inode: Inode) -> Result<(), Failure> {
        self.reserve(ino)?;
        self.edit_master()?.files += 1;
        self.inodes.push(Held { ino, charge: None, inode });
        Ok(())
    }

    /// Keeps the number from being given to a new file.
    pub(super) fn reserve(&mut self, ino: Ino) -> Result<(), Failure> {
        if load_master(&self.view)?.next <= ino {
            let master = self.edit_master()?;
            master.next = master.next.max(ino.checked_add(1).ok_or(Errno::NOSPC)?);
        }
        Ok(())
    }

    /// Removes an inode from the tree; the caller has removed the inode's other items.
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

    /// EDQUOT if an owner of an inode has no quota left for `bytes` more. A caller that writes in place checks before
    /// the write: accounts neither refuse nor delay the change afterwards.
    pub(super) fn admit_growth(&mut self, ino: Ino, bytes: impl FnOnce() -> u64) -> Result<(), Failure> {
        if !self.ledger.charges(&self.view, ino)? {
            return Ok(());
        }
        let charge = Charge::of(&self.inode(ino)?);
        self.ledger.admit(&self.view, &charge, bytes())
    }

    /// Whether an owner of the inode has a quota of bytes.
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

    pub(super) fn put(&mut self, key: Key, body: impl Into<Vec<u8>>, block: Option<&Block>) {
        self.batch.put(key, body, block);
    }

    pub(super) fn delete(&mut self, key: Key) {
        self.batch.delete(key);
    }

    /// Marks the content of an item's block as changed in place.
    pub(super) fn touch(&mut self, key: Key) {
        self.batch.touch(key);
    }

    /// Adds a new reference to a block.
    pub(super) fn share(&mut self, pointer: BlockPointer) {
        self.batch.share(pointer);
    }

    /// Gives up the last item of a reference to a block.
    pub(super) fn kill(&mut self, block: Block) {
        self.batch.kill(block);
    }

    /// Puts the edited inodes and accounts; EDQUOT if a quota refuses the change.
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
