//! Requests about users, groups and projects: usage, quotas, and the projects of files.

use std::sync::Arc;

use dataset::{
    admin::{Caller, Dataset},
    fs::{Account, Errno, FileSystem, SetQuota},
    name::Name,
    property::{AccountProperty, OwnerKind, Property, Source, dataset::READONLY},
};
use protocol::{AccountRecord, Assignment, Failure, PropertyRecord, given};

use super::{files::reason, job::Job, open_pool::OpenPool, refusal::OrRefused};
use crate::owners;

impl OpenPool {
    /// All accounts of a kind, with usage and quotas.
    pub(super) fn accounts(&self, name: &Name, kind: OwnerKind, job: &Job<'_>) -> Result<Vec<AccountRecord>, Failure> {
        let files = self.files(name)?;
        self.datasets.judge().or_refused("get used/quota for", name)?;
        let accounts = files.accounts_while(kind, &|| job.check().is_ok());
        let accounts = accounts.map_err(|errno| accounts_unread(name, errno, job))?;
        Ok(accounts.into_iter().map(|(id, account)| record(id, &account)).collect())
    }

    /// Whether the numbers of an account are for the caller: own numbers, or with the permission for those of others.
    /// Counting walks through all files, so the permission is asked before.
    pub(super) fn may_see(&self, name: &Name, account: &AccountProperty) -> Result<bool, Failure> {
        let Some(caller) = Caller::current() else { return Ok(true) };
        let is_own = owners::number(account.kind(), account.owner()).is_some_and(|id| match account.kind() {
            OwnerKind::User => id == caller.user,
            OwnerKind::Group => caller.groups.contains(&id),
            OwnerKind::Project => false,
        });
        let property = Property::Account(account.clone());
        Ok(is_own || self.datasets.allows(&caller, name, property.permission()).or_refused("open", name)?)
    }

    /// A single account property; `None` if the name is unknown or the dataset has no files.
    pub(super) fn account_record(
        &self,
        name: &Name,
        property: &AccountProperty,
        job: &Job<'_>,
    ) -> Result<Option<PropertyRecord>, Failure> {
        let Some(id) = owners::number(property.kind(), property.owner()) else { return Ok(None) };
        if matches!(name, Name::Bookmark(_)) {
            return Ok(None);
        }
        let (fs, kind) = (self.files(name)?, property.kind());
        let amount = match property.is_quota() {
            true => fs.quota(kind, id),
            false => fs.account_while(kind, id, &|| job.check().is_ok()).map(|account| account.used),
        };
        let amount = amount.map_err(|errno| accounts_unread(name, errno, job))?;
        let number = if property.counts_objects() { amount.objects } else { amount.bytes };
        let source = if property.is_quota() && number != 0 { Source::Local } else { Source::None };
        let name = property.name().to_owned();
        Ok(Some(PropertyRecord { name, value: number.to_string(), source, received: None }))
    }

    /// Splits the assignments into quotas and other properties. Quotas are validated here, because the other
    /// properties are set first, all or none.
    pub(super) fn split_quotas(
        &self,
        name: &Name,
        assignments: &[Assignment],
    ) -> Result<(Vec<Quota>, Vec<Assignment>), Failure> {
        let (mut quotas, mut others) = (Vec::new(), Vec::new());
        for assignment in assignments {
            match Property::of_dataset(&assignment.name) {
                Ok(Property::Account(property)) => quotas.push(quota(name, &property, &assignment.value)?),
                _ => others.push(assignment.clone()),
            }
        }
        if !quotas.is_empty() {
            let dataset = self.with_quotas(name)?;
            let checked = match given(&others, &READONLY).unwrap_or(dataset.fs().options().readonly) {
                true => Err(Errno::ROFS),
                false => dataset.fs().check_accounts(),
            };
            checked.map_err(|errno| refused(dataset.fs(), name, errno))?;
        }
        Ok((quotas, others))
    }

    /// Sets quotas, and commits.
    pub(super) fn set_quotas(&self, name: &Name, quotas: &[Quota]) -> Result<(), Failure> {
        if quotas.is_empty() {
            return Ok(());
        }
        let dataset = self.with_quotas(name)?;
        self.datasets.judge().or_refused(SET, name)?;
        for (kind, id, quota) in quotas {
            dataset.fs().set_quota(*kind, *id, *quota).map_err(|errno| refused(dataset.fs(), name, errno))?;
        }
        self.engine().commit().or_refused(SET, name)?;
        Ok(())
    }

    /// The dataset of this name; an error if quotas do not apply.
    fn with_quotas(&self, name: &Name) -> Result<Arc<Dataset>, Failure> {
        let Name::Dataset(dataset) = name else {
            return Err(Failure::cannot(SET, name, "a snapshot never changes"));
        };
        self.datasets.open_dataset(dataset).or_refused("open", name)
    }
}

/// Kind of account, number of the account, and the quota to set.
type Quota = (OwnerKind, u32, SetQuota);

const SET: &str = "set property for";

fn record(id: u32, account: &Account) -> AccountRecord {
    AccountRecord {
        id,
        used: account.used.bytes,
        quota: account.quota.bytes,
        objects_used: account.used.objects,
        objects_quota: account.quota.objects,
    }
}

/// Parses an assignment into the quota to set.
fn quota(name: &Name, property: &AccountProperty, value: &str) -> Result<Quota, Failure> {
    let kind = property.kind();
    let id = owners::number(kind, property.owner()).ok_or_else(|| {
        Failure::cannot(SET, name, format!("no such {}: '{}'", kind.name(), property.owner()))
            .hint("a numeric ID is also accepted")
    })?;
    let limit = value.parse().map(Some).map_err(|_| Failure::cannot(SET, name, "a quota is a number"))?;
    Ok(match property.counts_objects() {
        true => (kind, id, SetQuota { objects: limit, ..SetQuota::default() }),
        false => (kind, id, SetQuota { bytes: limit, ..SetQuota::default() }),
    })
}

/// The failure of reading usage or quotas; `interrupted` if the job was cancelled.
fn accounts_unread(name: &Name, errno: Errno, job: &Job<'_>) -> Failure {
    job.check().err().unwrap_or_else(|| Failure::cannot("get used/quota for", name, reason(errno)))
}

fn refused(fs: &FileSystem, name: &Name, errno: Errno) -> Failure {
    let failure = Failure::cannot(SET, name, reason(errno));
    match errno {
        Errno::OPNOTSUPP if !fs.options().accounts => {
            failure.hint("the pool's feature is disabled: pool set feature@project_quota=enabled POOL")
        }
        _ => failure,
    }
}
