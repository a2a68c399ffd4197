//! Showing accounts, setting quotas, and operations that a quota may refuse.

use std::time::Duration;

use pool::format::label::PROJECT_QUOTA;
use rustix::io::Errno;

use super::{
    item::{Account, Amount, load},
    ledger::{ALL, Charge, load_below},
};
use crate::{
    fs::{
        change::load_inode,
        failure::{self, Failure, damaged},
        file_system::{FileSystem, METADATA},
        key::{self, Ino},
        orphan::Reaped,
    },
    property::OwnerKind,
};

/// The attempts of an operation while unused files can be freed.
const TRIES: usize = 32;
/// The wait for the kernel to forget an unlinked file, normally a moment after the unlink.
const PATIENCE: Duration = Duration::from_millis(50);

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
    pub(super) fn kept_accounts(&self, kind: OwnerKind) -> Result<Vec<(u32, Account)>, Errno> {
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
    pub(in crate::fs) fn under_quota<T>(&self, operation: impl FnMut() -> Result<T, Failure>) -> Result<T, Errno> {
        self.under_quota_within(PATIENCE, operation)
    }

    /// As [`FileSystem::under_quota`], with a maximal wait for each file still in use.
    pub(in crate::fs) fn under_quota_within<T>(
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
    pub(in crate::fs) fn quota_end(&self, ino: Ino) -> Result<u64, Errno> {
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
    pub(in crate::fs) fn use_accounts(&self) -> Result<(), Errno> {
        self.check_accounts()?;
        self.head.engine().activate(PROJECT_QUOTA).map_err(|error| failure::errno(&error))
    }
}
