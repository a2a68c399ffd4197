//! The accounts that one change touches.
//!
//! What a change makes of inodes is entered here, and what that makes of the accounts goes into the same batch. Accounts
//! are looked up once and held, like the inodes of a change: what is entered several times is put once.
//!
//! A change that writes into a record in place has to be sure of its accounts before: nothing may fail or be looked up
//! after that. [`Ledger::admit`] looks everything up and judges exactly what will be entered; the rest then only counts.

use pool::{
    format::{
        codec::{Malformed, Reader, Writer, malformed},
        key::Key,
    },
    tree::{Batch, View},
};
use smallvec::SmallVec;

use super::{Account, OwnerKind, load};
use crate::fs::{
    failure::{Failure, damaged},
    inode::Inode,
    key::{self, Ino},
};

const VERSION: u8 = 1;

/// Every inode is charged.
pub(in crate::fs) const ALL: Ino = Ino::MAX;

/// The body of the item ACCOUNTING: inodes below this number are charged.
pub(in crate::fs) fn encode_below(below: Ino) -> Vec<u8> {
    let mut out = Vec::with_capacity(11);
    out.put_u8(VERSION);
    out.put_varint(below);
    out
}

/// What the item ACCOUNTING says.
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

/// Below which number the inodes of a tree are charged; `None` if it has no accounts.
pub(in crate::fs) fn load_below(view: &View<'_>) -> Result<Option<Ino>, Failure> {
    let key = key::accounting();
    let entry = view.get(key)?;
    entry.map(|entry| decode_below(entry.body()).map_err(damaged(key))).transpose()
}

/// What an inode is charged, and to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fs) struct Charge {
    owners: [u32; OwnerKind::ALL.len()],
    bytes: u64,
}

impl Charge {
    pub(in crate::fs) fn of(inode: &Inode) -> Charge {
        Charge { owners: OwnerKind::ALL.map(|kind| kind.of(inode)), bytes: inode.bytes }
    }

    /// Whom of a kind.
    pub(in crate::fs) fn owner(&self, kind: OwnerKind) -> u32 {
        self.owners[kind as usize]
    }

    /// How much.
    pub(in crate::fs) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The places of the accounts.
    pub(in crate::fs) fn keys(&self) -> [Key; OwnerKind::ALL.len()] {
        OwnerKind::ALL.map(|kind| kind.key(self.owner(kind)))
    }
}

/// An account as it was and as it is to be.
struct Held {
    key: Key,
    before: Account,
    after: Account,
}

impl Held {
    /// Whether it has grown beyond a quota.
    fn is_exceeded(&self) -> bool {
        let exceeded = |quota, before, after| quota != 0 && after > quota && after > before;
        let Held { before, after, .. } = self;
        exceeded(after.quota.bytes, before.used.bytes, after.used.bytes)
            || exceeded(after.quota.objects, before.used.objects, after.used.objects)
    }
}

/// The accounts that a change touches.
pub(in crate::fs) struct Ledger {
    /// Below which number inodes are charged, once that was looked up.
    below: Option<Ino>,
    held: SmallVec<[Held; 6]>,
    /// Whether quotas were asked already, or are not to be.
    judged: bool,
}

impl Ledger {
    /// For a change of a tree that keeps accounts, or may, or does not.
    pub(in crate::fs) fn new(is_kept: bool) -> Ledger {
        Ledger { below: (!is_kept).then_some(0), held: SmallVec::new(), judged: false }
    }

    /// Below which number inodes are charged.
    pub(super) fn below(&mut self, view: &View<'_>) -> Result<Ino, Failure> {
        let below = match self.below {
            Some(below) => below,
            None => load_below(view)?.unwrap_or(0),
        };
        Ok(*self.below.insert(below))
    }

    /// Whether an inode of this number is charged, if there is one.
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

    /// Looks up all that [`Ledger::enter`] will need of a charged inode if its owners stay, and refuses `bytes` more that a
    /// quota does not admit. After that quotas are not asked again.
    pub(in crate::fs) fn admit(&mut self, view: &View<'_>, charge: &Charge, bytes: u64) -> Result<(), Failure> {
        for key in charge.keys() {
            if bytes > self.account(view, key)?.bytes_left() {
                return Err(Failure::Exceeded(key));
            }
        }
        self.judged = true;
        Ok(())
    }

    /// Enters what a change makes of an inode; `None` where there is none.
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

    /// Charges an inode.
    fn add(&mut self, view: &View<'_>, charge: &Charge) -> Result<(), Failure> {
        for key in charge.keys() {
            let used = &mut self.account(view, key)?.used;
            used.bytes = used.bytes.saturating_add(charge.bytes);
            used.objects = used.objects.saturating_add(1);
        }
        Ok(())
    }

    /// Charges an inode that was not charged before. It is there: quotas have no say.
    pub(super) fn count(&mut self, view: &View<'_>, charge: &Charge) -> Result<(), Failure> {
        self.judged = true;
        self.add(view, charge)
    }

    /// Puts what has changed, unless a quota refuses it.
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
