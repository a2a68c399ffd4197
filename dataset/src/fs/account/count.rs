//! Counting a tree's usage: once when the tree begins to keep accounts, or into memory for a tree without accounts.
//!
//! Inodes are visited in the order of their numbers, skipping the content between inodes. A step visits a bounded
//! number, so no other thread waits for long, and a crash loses at most one step.

use std::{collections::BTreeMap, sync::atomic::Ordering};

use pool::{format::key::Key, tree::View};
use rustix::io::Errno;

use super::{
    item::{Account, Amount},
    ledger::{ALL, Charge, Ledger, encode_below},
};
use crate::{
    fs::{
        change::Change,
        failure::{Failure, damaged},
        file_system::{FileSystem, METADATA},
        inode::Inode,
        key::{self, INODE, Ino, ROOT},
    },
    property::OwnerKind,
};

/// The number of inodes visited per step.
const STEP: usize = 256;

/// Visits some inodes from the number `from` on. Returns the next number; [`ALL`] at the end.
fn visit(view: &View<'_>, from: Ino, mut each: impl FnMut(&Inode) -> Result<(), Failure>) -> Result<Ino, Failure> {
    let mut next = from.max(ROOT);
    for _ in 0..STEP {
        let Some(entry) = view.first(key::inode(next)..Key::MAX)? else { return Ok(ALL) };
        let key = entry.key();
        if key.kind == INODE {
            each(&Inode::decode(entry.body()).map_err(damaged(key))?)?;
        }
        next = key.object.saturating_add(1);
    }
    Ok(next)
}

impl Change<'_> {
    /// Whether all inodes of the tree are charged.
    pub(super) fn is_accounted(&mut self) -> Result<bool, Failure> {
        Ok(self.ledger.below(&self.view)? == ALL)
    }

    /// Charges the next inodes; true if more may follow.
    fn count_some(&mut self) -> Result<bool, Failure> {
        let view = self.view;
        let below = self.ledger.below(&view)?;
        if below == ALL {
            return Ok(false);
        }
        let ledger = &mut self.ledger;
        let next = visit(&view, below, |inode| ledger.count(&view, &Charge::of(inode)))?;
        self.put(key::accounting(), encode_below(next), None);
        Ok(next != ALL)
    }
}

impl FileSystem {
    /// Makes the tree keep accounts; returns when all inodes are charged.
    ///
    /// # Errors
    /// EROFS for a read-only file system, EOPNOTSUPP if the pool's feature is not enabled.
    pub(super) fn keep_accounts(&self) -> Result<(), Errno> {
        self.writable()?;
        // Also for a tree with accounts: whatever brought the accounts, a stream for example, may not have activated
        // the feature.
        self.use_accounts()?;
        loop {
            self.admit(METADATA)?;
            if !self.count_step()? {
                return Ok(());
            }
        }
    }

    /// Charges the next inodes; true if more may follow.
    pub(in crate::fs) fn count_step(&self) -> Result<bool, Errno> {
        self.update_tree(|change| {
            // Set under the lock of the tree, under which every change reads the flag. So no inode goes uncharged, and
            // a tree put in place by a rollback or a stream is counted from the beginning.
            self.accounted.store(true, Ordering::Release);
            change.ledger = Ledger::new(true);
            change.count_some()
        })
    }

    /// Computes the accounts by counting, with the quotas stored in the tree; EINTR once `go_on` returns false.
    pub(super) fn tally(&self, kind: OwnerKind, go_on: &dyn Fn() -> bool) -> Result<Vec<(u32, Account)>, Errno> {
        let kept = self.kept_accounts(kind)?.into_iter();
        let quotas = kept.filter(|(_, account)| account.quota != Amount::default());
        let mut tally: BTreeMap<u32, Account> =
            quotas.map(|(id, account)| (id, Account { quota: account.quota, ..Account::default() })).collect();
        let mut next = ROOT;
        while next != ALL {
            if !go_on() {
                return Err(Errno::INTR);
            }
            let (charges, after) = self.read_tree(|view| {
                let mut charges = Vec::with_capacity(STEP);
                let after = visit(view, next, |inode| {
                    charges.push(Charge::of(inode));
                    Ok(())
                })?;
                Ok((charges, after))
            })?;
            for charge in charges {
                let used = &mut tally.entry(charge.owner(kind)).or_default().used;
                used.bytes = used.bytes.saturating_add(charge.bytes());
                used.objects += 1;
            }
            next = after;
        }
        Ok(tally.into_iter().collect())
    }
}
