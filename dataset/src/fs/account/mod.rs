//! Usage and quotas of users, groups and projects.
//!
//! An account is an item of object 0 (`dataset/FORMAT.md`, "Account"): the usage of one user, group or project, and the
//! quotas. An inode is charged to its user, group and project: one object, and its `bytes`, the length of the content
//! without holes. `stat` and `du` show the same number, independent of compression, copies, parity and shared blocks.
//! So users can see their charges, and a charge is known before the call returns. Extended attributes and names are not
//! charged. Under a quota of bytes a file's attributes are bounded instead (see [`super::xattr`]), and a quota of
//! objects bounds the number of files, directories and names.
//!
//! The batch that changes an inode also changes its accounts (`ledger`). So accounts are always exact, snapshots,
//! clones, rollbacks, streams and the intent log carry accounts like any other item, and a quota refuses the very call
//! that would exceed the quota. A write at the end of a file is done as far as the quota allows; a write that fills
//! holes within the file is done entirely or not at all. Files without a name are charged until freed. So before a
//! quota refuses an operation, unused files charged to the account in question are freed.
//!
//! Without quotas there is no cost: a tree begins to keep accounts when the first quota is set, even `none`. Then all
//! inodes are counted, in bounded steps and in the order of their numbers (`count`), while the file system is in use.
//! Inodes below the number in the item ACCOUNTING are charged, all others are still to be counted. After a crash the
//! count continues.
//!
//! The pool's feature `project_quota` is active from the first account on. A query changes nothing: in a tree without
//! accounts, every query counts the inodes.
//!
//! Invariant, which [`check`](super::check) verifies: an account equals the sum of the inodes charged to it.

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
/// The attempts of an operation while unused files can be freed.
const TRIES: usize = 32;
/// The wait for the kernel to forget an unlinked file, normally a moment after the unlink.
const PATIENCE: Duration = Duration::from_millis(50);

/// The kind of an account's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum OwnerKind {
    /// A user, by its uid.
    User,
    /// A group, by its gid.
    Group,
    /// A project, by its number.
    Project,
}

impl OwnerKind {
    /// All kinds, in display order.
    pub const ALL: [OwnerKind; 3] = [OwnerKind::User, OwnerKind::Group, OwnerKind::Project];

    /// The name in commands and output.
    pub fn name(self) -> &'static str {
        match self {
            OwnerKind::User => "user",
            OwnerKind::Group => "group",
            OwnerKind::Project => "project",
        }
    }

    /// The item kind of the accounts.
    fn item(self) -> u8 {
        match self {
            OwnerKind::User => key::USER,
            OwnerKind::Group => key::GROUP,
            OwnerKind::Project => key::PROJECT,
        }
    }

    /// The key of the account with the given id.
    pub(super) fn key(self, id: u32) -> Key {
        Key::new(key::DATASET, self.item(), id.into())
    }

    /// The id of an inode's owner of the given kind.
    pub(super) fn of(self, inode: &Inode) -> u32 {
        match self {
            OwnerKind::User => inode.uid,
            OwnerKind::Group => inode.gid,
            OwnerKind::Project => inode.project,
        }
    }
}

/// A number of bytes and of objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// The content of files, in bytes.
    pub bytes: u64,
    /// The number of inodes.
    pub objects: u64,
}

/// The usage and quota of one owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The sum of the charged inodes.
    pub used: Amount,
    /// The limits; 0 for none.
    pub quota: Amount,
}

impl Account {
    /// The bytes left under the quota.
    fn bytes_left(&self) -> u64 {
        if self.quota.bytes == 0 { u64::MAX } else { self.quota.bytes.saturating_sub(self.used.bytes) }
    }

    /// Encodes the body of an item.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16);
        out.put_u8(VERSION);
        for number in [self.used.bytes, self.used.objects, self.quota.bytes, self.quota.objects] {
            out.put_varint(number);
        }
        out
    }

    /// Decodes the body of an item.
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

/// The account under a key; an empty account if missing.
fn load(view: &View<'_>, key: Key) -> Result<Account, Failure> {
    let entry = view.get(key)?;
    entry.map_or(Ok(Account::default()), |entry| Account::decode(entry.body()).map_err(damaged(key)))
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

/// A quota to set; `None` leaves a limit as is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetQuota {
    /// The limit of bytes; 0 for none.
    pub bytes: Option<u64>,
    /// The limit of objects; 0 for none.
    pub objects: Option<u64>,
}

impl FileSystem {
    /// The accounts of all users, groups or projects with an account, by id.
    pub fn accounts(&self, kind: OwnerKind) -> Result<Vec<(u32, Account)>, Errno> {
        self.accounts_while(kind, &|| true)
    }

    /// As [`FileSystem::accounts`], until `go_on` returns false: in a tree without accounts the time is proportional to
    /// the number of files.
    ///
    /// # Errors
    /// EINTR once `go_on` returns false.
    pub fn accounts_while(&self, kind: OwnerKind, go_on: &dyn Fn() -> bool) -> Result<Vec<(u32, Account)>, Errno> {
        match self.read_tree(load_below)? {
            Some(ALL) => self.kept_accounts(kind),
            _ => self.tally(kind, go_on),
        }
    }

    /// The accounts stored in the tree.
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

    /// The quota of one user, group or project: a single lookup, even in a tree without accounts.
    pub fn quota(&self, kind: OwnerKind, id: u32) -> Result<Amount, Errno> {
        self.read_tree(|view| Ok(load(view, kind.key(id))?.quota))
    }

    /// The account of one user, group or project.
    pub fn account(&self, kind: OwnerKind, id: u32) -> Result<Account, Errno> {
        self.account_while(kind, id, &|| true)
    }

    /// As [`FileSystem::account`], until `go_on` returns false.
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

    /// Sets a quota of one user, group or project. Existing usage above the quota stays. From the first quota on, even
    /// an unlimited quota, the tree keeps accounts.
    ///
    /// # Errors
    /// EOPNOTSUPP if the pool's feature is not enabled.
    pub fn set_quota(&self, kind: OwnerKind, id: u32, set: SetQuota) -> Result<(), Errno> {
        self.writable()?;
        loop {
            self.keep_accounts()?;
            self.admit(METADATA)?;
            let is_set = self.update_tree(|change| {
                // A rollback may have replaced the counted tree by a tree without accounts.
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

    /// Runs an operation that a quota may refuse. A file unlinked a moment ago is still charged to its owner. So
    /// unlinked files charged to the exceeded account are freed, some at a time, and the operation is retried.
    pub(super) fn under_quota<T>(&self, operation: impl FnMut() -> Result<T, Failure>) -> Result<T, Errno> {
        self.under_quota_within(PATIENCE, operation)
    }

    /// As [`FileSystem::under_quota`], with a maximal wait for each file still in use.
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
        // Another thread may have freed the last unlinked file meanwhile.
        Ok(operation()?)
    }

    /// The largest size to which the owners' quotas let a file grow at the end.
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

    /// Fails unless the pool allows accounts.
    ///
    /// # Errors
    /// EOPNOTSUPP if the pool's feature is not enabled.
    pub fn check_accounts(&self) -> Result<(), Errno> {
        let may_be = self.options().accounts || self.head.engine().is_active(PROJECT_QUOTA);
        if may_be { Ok(()) } else { Err(Errno::OPNOTSUPP) }
    }

    /// Activates the feature in the labels before anything is written that older programs could not read.
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
