//! The accounts touched by one change.
//!
//! The ledger receives the inodes' charges before and after the change, and the new accounts go into the same batch. An
//! account is looked up once and kept, like the inodes of a change, and put once at the end.
//!
//! A change that writes into a record in place must know beforehand that its accounts admit the write: after the write
//! nothing may fail or be looked up. [`Ledger::admit`] looks up every account and checks exactly the amounts to be
//! entered; the later entry only counts.

use pool::{
    format::{
        codec::{Malformed, Reader, Writer, malformed},
        key::Key,
    },
    tree::{Batch, View},
    txg::Head,
};
use rustix::io::Errno;
use smallvec::SmallVec;

use super::item::{Account, load};
use crate::{
    fs::{
        failure::{Failure, damaged},
        inode::Inode,
        key::{self, Ino},
    },
    property::OwnerKind,
};

const VERSION: u8 = 1;

/// Every inode is charged.
pub(in crate::fs) const ALL: Ino = Ino::MAX;

/// The body of the item ACCOUNTING: inodes below the given number are charged.
pub(in crate::fs) fn encode_below(below: Ino) -> Vec<u8> {
    let mut out = Vec::with_capacity(11);
    out.put_u8(VERSION);
    out.put_varint(below);
    out
}

/// Decodes the item ACCOUNTING.
pub(crate) fn decode_below(body: &[u8]) -> Result<Ino, Malformed> {
    const WHAT: &str = "note of what is accounted for";
    let mut reader = Reader::new(body);
    if reader.u8(WHAT)? != VERSION {
        return malformed("version of the note of what is accounted for");
    }
    let below = reader.varint(WHAT)?;
    reader.finish(WHAT)?;
    Ok(below)
}

/// The number below which the inodes of a tree are charged; `None` for a tree without accounts.
pub(in crate::fs) fn load_below(view: &View<'_>) -> Result<Option<Ino>, Failure> {
    let key = key::accounting();
    let entry = view.get(key)?;
    entry.map(|entry| decode_below(entry.body()).map_err(damaged(key))).transpose()
}

/// Whether a tree has any item of the accounts.
pub(crate) fn are_there(head: &Head) -> Result<bool, Errno> {
    Ok(head.read(|view| {
        let mut is_there = load_below(view)?.is_some();
        for kind in OwnerKind::ALL {
            is_there |= view.first(key::from(key::DATASET, kind.item(), 0))?.is_some();
        }
        Ok::<_, Failure>(is_there)
    })?)
}

/// The bytes of an inode, and the owners charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fs) struct Charge {
    owners: [u32; OwnerKind::ALL.len()],
    bytes: u64,
}

impl Charge {
    pub(in crate::fs) fn of(inode: &Inode) -> Charge {
        Charge { owners: OwnerKind::ALL.map(|kind| kind.of(inode)), bytes: inode.bytes }
    }

    /// The id of the owner of the given kind.
    pub(in crate::fs) fn owner(&self, kind: OwnerKind) -> u32 {
        self.owners[kind as usize]
    }

    /// The bytes charged.
    pub(in crate::fs) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The keys of the three accounts.
    pub(in crate::fs) fn keys(&self) -> [Key; OwnerKind::ALL.len()] {
        OwnerKind::ALL.map(|kind| kind.key(self.owner(kind)))
    }
}

/// An account before and after the change.
struct Held {
    key: Key,
    before: Account,
    after: Account,
}

impl Held {
    /// Whether the account grows beyond a quota.
    fn is_exceeded(&self) -> bool {
        let exceeded = |quota, before, after| quota != 0 && after > quota && after > before;
        let Held { before, after, .. } = self;
        exceeded(after.quota.bytes, before.used.bytes, after.used.bytes)
            || exceeded(after.quota.objects, before.used.objects, after.used.objects)
    }
}

pub(in crate::fs) struct Ledger {
    /// The number below which inodes are charged; `None` until looked up.
    below: Option<Ino>,
    held: SmallVec<[Held; 6]>,
    /// Whether quotas have been checked, or must not be.
    judged: bool,
}

impl Ledger {
    /// For a change of a tree; `is_kept` is false if the tree has no accounts.
    pub(in crate::fs) fn new(is_kept: bool) -> Ledger {
        Ledger { below: (!is_kept).then_some(0), held: SmallVec::new(), judged: false }
    }

    /// The number below which inodes are charged.
    pub(super) fn below(&mut self, view: &View<'_>) -> Result<Ino, Failure> {
        let below = match self.below {
            Some(below) => below,
            None => load_below(view)?.unwrap_or(0),
        };
        Ok(*self.below.insert(below))
    }

    /// Whether an inode with the given number would be charged.
    pub(in crate::fs) fn charges(&mut self, view: &View<'_>, ino: Ino) -> Result<bool, Failure> {
        Ok(ino < self.below(view)?)
    }

    /// An account to edit.
    pub(in crate::fs) fn account(&mut self, view: &View<'_>, key: Key) -> Result<&mut Account, Failure> {
        let index = match self.held.iter().position(|held| held.key == key) {
            Some(index) => index,
            None => {
                let account = load(view, key)?;
                self.held.push(Held { key, before: account, after: account });
                self.held.len() - 1
            }
        };
        Ok(&mut self.held[index].after)
    }

    /// Looks up everything that [`Ledger::enter`] needs for a charged inode with unchanged owners. Fails if a quota
    /// does not admit `bytes` more; quotas are not checked again.
    pub(in crate::fs) fn admit(&mut self, view: &View<'_>, charge: &Charge, bytes: u64) -> Result<(), Failure> {
        for key in charge.keys() {
            if bytes > self.account(view, key)?.bytes_left() {
                return Err(Failure::Exceeded(key));
            }
        }
        self.judged = true;
        Ok(())
    }

    /// Enters the charge of an inode before and after the change; `None` for no inode.
    pub(in crate::fs) fn enter(
        &mut self,
        view: &View<'_>,
        ino: Ino,
        before: Option<Charge>,
        after: Option<Charge>,
    ) -> Result<(), Failure> {
        if before == after || !self.charges(view, ino)? {
            return Ok(());
        }
        for key in before.iter().flat_map(Charge::keys) {
            let used = &mut self.account(view, key)?.used;
            used.bytes = used.bytes.saturating_sub(before.map_or(0, |charge| charge.bytes));
            used.objects = used.objects.saturating_sub(1);
        }
        after.map_or(Ok(()), |charge| self.add(view, &charge))
    }

    /// Charges an inode to all its accounts.
    fn add(&mut self, view: &View<'_>, charge: &Charge) -> Result<(), Failure> {
        for key in charge.keys() {
            let used = &mut self.account(view, key)?.used;
            used.bytes = used.bytes.saturating_add(charge.bytes);
            used.objects = used.objects.saturating_add(1);
        }
        Ok(())
    }

    /// Charges an existing inode for the first time; quotas are not checked.
    pub(super) fn count(&mut self, view: &View<'_>, charge: &Charge) -> Result<(), Failure> {
        self.judged = true;
        self.add(view, charge)
    }

    /// Puts the changed accounts, unless a quota refuses the change.
    pub(in crate::fs) fn settle(self, batch: &mut Batch) -> Result<(), Failure> {
        if !self.judged
            && let Some(held) = self.held.iter().find(|held| held.is_exceeded())
        {
            return Err(Failure::Exceeded(held.key));
        }
        for Held { key, after, .. } in self.held.iter().filter(|held| held.after != held.before) {
            match *after == Account::default() {
                true => batch.delete(*key),
                false => batch.put(*key, after.encode(), None),
            }
        }
        Ok(())
    }
}
