//! Who takes how much, and how much they may: the accounts and quotas of users, groups and projects.
//!
//! Each account is an item of the tree's own object (`dataset/FORMAT.md`, "Account"): what is charged to one user, group or
//! project, and its quotas. An inode is charged to the three that it names: one object, and its `bytes`, the length of its
//! content without the holes. That is what `stat` and `du` show of it, whatever compression, copies and parity make of it,
//! and whoever shares its blocks: so everybody can see what they are charged, and it is known before the call returns.
//! Extended attributes and names are charged nothing. Under a quota of bytes a file's attributes are bounded instead (see
//! [`super::xattr`]), and a quota of objects bounds how many files, directories and names there are.
//!
//! The batch that changes an inode changes its accounts (`ledger`). So they are exact at every instant, snapshots, clones,
//! rollbacks, streams and the intent log carry them like any other item, and a quota refuses the very call that would
//! exceed it. Of a write at the file's end, as much is done as still fits; one within it, which fills holes, is done as a
//! whole or not at all. Files without a name are charged until they are freed, so those that nobody uses are freed before
//! a quota refuses, if they are charged to the account in question.
//!
//! It costs nothing where there are no quotas: a tree begins to keep accounts when the first one is set, be it `none`. Then
//! all inodes are counted, in bounded steps and in the order of their numbers (`count`), while everything goes on: those
//! below the number in the item ACCOUNTING are charged, the others wait for their turn. A crash goes on where it stopped.
//!
//! Below lies the pool's feature `project_quota`: it is active from the first account on. Who only asks changes nothing:
//! of a tree without accounts the inodes are counted each time.
//!
//! Invariants, which [`check`](super::check) verifies: an account holds exactly the inodes that are charged to it.

mod count;
pub(crate) mod ledger;

use std::time::Duration;

use pool::{
    format::{
        codec::{Malformed, Reader, Writer, malformed},
        key::Key,
        label::PROJECT_QUOTA,
    },
    tree::View,
    txg::Head,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use self::ledger::{ALL, Charge, load_below};
use super::{
    FileSystem, METADATA,
    change::load_inode,
    failure::{self, Failure, damaged},
    inode::Inode,
    key::{self, Ino},
    orphan::Reaped,
};

const VERSION: u8 = 1;
/// So often an operation is tried while there is something to free.
const TRIES: usize = 32;
/// So long a quota waits for an unlinked file to be let go of: the kernel says that a moment after it was unlinked.
const PATIENCE: Duration = Duration::from_millis(50);

/// Whom an account is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum OwnerKind {
    /// A user.
    User,
    /// A group.
    Group,
    /// A project.
    Project,
}

impl OwnerKind {
    /// All of them.
    pub const ALL: [OwnerKind; 3] = [OwnerKind::User, OwnerKind::Group, OwnerKind::Project];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            OwnerKind::User => "user",
            OwnerKind::Group => "group",
            OwnerKind::Project => "project",
        }
    }

    /// Where its accounts stand.
    fn item(self) -> u8 {
        match self {
            OwnerKind::User => key::USER,
            OwnerKind::Group => key::GROUP,
            OwnerKind::Project => key::PROJECT,
        }
    }

    /// Where the account of one of them stands.
    pub(super) fn key(self, id: u32) -> Key {
        Key::new(key::DATASET, self.item(), id.into())
    }

    /// Whom of its kind an inode names.
    pub(super) fn of(self, inode: &Inode) -> u32 {
        match self {
            OwnerKind::User => inode.uid,
            OwnerKind::Group => inode.gid,
            OwnerKind::Project => inode.project,
        }
    }
}

/// Bytes and objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Bytes of content.
    pub bytes: u64,
    /// Inodes.
    pub objects: u64,
}

/// What is charged to somebody, and what may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// What is charged.
    pub used: Amount,
    /// The most that may be; 0 for as much as there is.
    pub quota: Amount,
}

impl Account {
    /// How many bytes more its quota admits.
    fn bytes_left(&self) -> u64 {
        if self.quota.bytes == 0 { u64::MAX } else { self.quota.bytes.saturating_sub(self.used.bytes) }
    }

    /// The body of its item.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16);
        out.put_u8(VERSION);
        for number in [self.used.bytes, self.used.objects, self.quota.bytes, self.quota.objects] {
            out.put_varint(number);
        }
        out
    }

    /// The account with this body.
    pub fn decode(body: &[u8]) -> Result<Account, Malformed> {
        const WHAT: &str = "account";
        let mut reader = Reader::new(body);
        if reader.u8(WHAT)? != VERSION {
            return malformed("version of an account");
        }
        let used = Amount { bytes: reader.varint(WHAT)?, objects: reader.varint(WHAT)? };
        let quota = Amount { bytes: reader.varint(WHAT)?, objects: reader.varint(WHAT)? };
        reader.finish(WHAT)?;
        Ok(Account { used, quota })
    }
}

/// The account that stands here; an empty one where none does.
fn load(view: &View<'_>, key: Key) -> Result<Account, Failure> {
    let entry = view.get(key)?;
    entry.map_or(Ok(Account::default()), |entry| Account::decode(entry.body()).map_err(damaged(key)))
}

/// Whether there is anything in a tree that speaks of accounts.
pub(crate) fn are_there(head: &Head) -> Result<bool, Errno> {
    Ok(head.read(|view| {
        let mut is_there = load_below(view)?.is_some();
        for kind in OwnerKind::ALL {
            is_there |= view.first(key::from(key::DATASET, kind.item(), 0))?.is_some();
        }
        Ok::<_, Failure>(is_there)
    })?)
}

/// A quota to set; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetQuota {
    /// The most bytes; 0 for as many as there is room for.
    pub bytes: Option<u64>,
    /// The most objects; 0 for any number.
    pub objects: Option<u64>,
}

impl FileSystem {
    /// The accounts of all users, groups or projects that have one, by their numbers.
    pub fn accounts(&self, kind: OwnerKind) -> Result<Vec<(u32, Account)>, Errno> {
        self.accounts_while(kind, &|| true)
    }

    /// As [`FileSystem::accounts`], while somebody waits for it: without quotas it takes time in proportion to the number
    /// of files.
    ///
    /// # Errors
    /// EINTR if it was not to go on.
    pub fn accounts_while(&self, kind: OwnerKind, go_on: &dyn Fn() -> bool) -> Result<Vec<(u32, Account)>, Errno> {
        match self.read_tree(load_below)? {
            Some(ALL) => self.kept_accounts(kind),
            _ => self.tally(kind, go_on),
        }
    }

    /// What of the accounts is kept in the tree.
    fn kept_accounts(&self, kind: OwnerKind) -> Result<Vec<(u32, Account)>, Errno> {
        self.read_tree(|view| {
            let accounts = view.range(key::from(key::DATASET, kind.item(), 0)).map(|entry| {
                let entry = entry?;
                let account = Account::decode(entry.body()).map_err(damaged(entry.key()))?;
                Ok::<_, Failure>((entry.key().offset as u32, account))
            });
            accounts.collect()
        })
    }

    /// The quota of one user, group or project. It takes one look, whatever is kept.
    pub fn quota(&self, kind: OwnerKind, id: u32) -> Result<Amount, Errno> {
        self.read_tree(|view| Ok(load(view, kind.key(id))?.quota))
    }

    /// The account of one user, group or project.
    pub fn account(&self, kind: OwnerKind, id: u32) -> Result<Account, Errno> {
        self.account_while(kind, id, &|| true)
    }

    /// As [`FileSystem::account`], and [`FileSystem::accounts_while`].
    pub fn account_while(&self, kind: OwnerKind, id: u32, go_on: &dyn Fn() -> bool) -> Result<Account, Errno> {
        let kept = self.read_tree(|view| match load_below(view)? {
            Some(ALL) => load(view, kind.key(id)).map(Some),
            _ => Ok(None),
        })?;
        if let Some(account) = kept {
            return Ok(account);
        }
        let accounts = self.tally(kind, go_on)?;
        Ok(accounts.into_iter().find(|(other, _)| *other == id).map_or_else(Account::default, |(_, account)| account))
    }

    /// Bounds what may be charged to somebody. What is charged already stays, if it is more. From the first quota on, also
    /// one that bounds nothing, the tree keeps accounts.
    ///
    /// # Errors
    /// EOPNOTSUPP if the pool's feature is not enabled.
    pub fn set_quota(&self, kind: OwnerKind, id: u32, set: SetQuota) -> Result<(), Errno> {
        self.writable()?;
        loop {
            self.keep_accounts()?;
            self.admit(METADATA)?;
            let is_set = self.update_tree(|change| {
                // A rollback may have put a tree without accounts into the place of the one that was counted.
                if !change.is_accounted()? {
                    return Ok(false);
                }
                let quota = &mut change.account(kind.key(id))?.quota;
                quota.bytes = set.bytes.unwrap_or(quota.bytes);
                quota.objects = set.objects.unwrap_or(quota.objects);
                Ok(true)
            })?;
            if is_set {
                return Ok(());
            }
        }
    }

    /// Runs an operation that a quota may refuse. What has lost its name a moment ago is still charged to its owner: what
    /// the account in question holds of it is freed first, some at a time, and the operation is tried again.
    pub(super) fn under_quota<T>(&self, operation: impl FnMut() -> Result<T, Failure>) -> Result<T, Errno> {
        self.under_quota_within(PATIENCE, operation)
    }

    /// As [`FileSystem::under_quota`], waiting so long at most for each of what is still used.
    pub(super) fn under_quota_within<T>(
        &self,
        patience: Duration,
        mut operation: impl FnMut() -> Result<T, Failure>,
    ) -> Result<T, Errno> {
        for _ in 0..TRIES {
            let seen = self.released();
            let exceeded = match operation() {
                Err(Failure::Exceeded(account)) => account,
                done => return Ok(done?),
            };
            let frees = match self.reap_charged(exceeded) {
                Ok(Reaped::Some) => true,
                Ok(Reaped::InUse) => self.wait_for_release(seen, patience),
                Ok(Reaped::Nothing) | Err(_) => false,
            };
            if !frees {
                break;
            }
        }
        // Somebody else may have freed the last of it in between.
        Ok(operation()?)
    }

    /// Where a file would end if it grew at its end by what its owners may still have.
    pub(super) fn quota_end(&self, ino: Ino) -> Result<u64, Errno> {
        self.read_tree(|view| {
            if load_below(view)?.is_none_or(|below| ino >= below) {
                return Ok(u64::MAX);
            }
            let inode = load_inode(view, ino)?;
            let mut left = u64::MAX;
            for key in Charge::of(&inode).keys() {
                left = left.min(load(view, key)?.bytes_left());
            }
            Ok(inode.size.saturating_add(left))
        })
    }

    /// Whether there may be accounts.
    ///
    /// # Errors
    /// EOPNOTSUPP if the pool's feature is not enabled.
    pub fn check_accounts(&self) -> Result<(), Errno> {
        let may_be = self.options().accounts || self.head.engine().is_active(PROJECT_QUOTA);
        if may_be { Ok(()) } else { Err(Errno::OPNOTSUPP) }
    }

    /// Has the labels name the feature, before anything is written that older programs could not read.
    pub(super) fn use_accounts(&self) -> Result<(), Errno> {
        self.check_accounts()?;
        self.head.engine().activate(PROJECT_QUOTA).map_err(|error| failure::errno(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_account_is_coded_as_the_document_says() {
        let account = Account { used: Amount { bytes: 300, objects: 2 }, quota: Amount { bytes: 3, objects: 4 } };
        assert_eq!(account.encode(), [1, 0xac, 2, 2, 3, 4]);
    }

    proptest! {
        #[test]
        fn an_account_round_trips([bytes, objects, most_bytes, most_objects]: [u64; 4]) {
            let used = Amount { bytes, objects };
            let account = Account { used, quota: Amount { bytes: most_bytes, objects: most_objects } };
            prop_assert_eq!(Account::decode(&account.encode()), Ok(account));
        }

        #[test]
        fn garbage_never_panics(body: Vec<u8>) {
            let _ = Account::decode(&body);
        }
    }
}
