//! Requests about users, groups and projects: what they use, their quotas, and which project files are of.

use dataset::{
    fs::{Account, FileSystem, OwnerKind, SetQuota},
    name::Name,
    property::{AccountProperty, Property, Source},
};

use super::{files::reason, open_pool::OpenPool, refusal::OrRefused};
use crate::{
    failure::Failure,
    owners,
    protocol::{AccountRecord, Assignment, PropertyRecord},
};

impl OpenPool {
    /// All accounts of a kind.
    pub(super) fn accounts(&self, name: &Name, kind: OwnerKind) -> Result<Vec<AccountRecord>, Failure> {
        let accounts = self.files(name)?.accounts(kind);
        let accounts = accounts.map_err(|errno| Failure::cannot("get used/quota for", name, reason(errno)))?;
        Ok(accounts.into_iter().map(|(id, account)| record(id, &account)).collect())
    }

    /// One number of somebody's account; `None` if nobody is called so.
    pub(super) fn account_record(&self, name: &Name, property: &AccountProperty) -> Option<PropertyRecord> {
        let id = owners::number(property.kind(), property.owner())?;
        let account = self.files(name).ok()?.account(property.kind(), id).ok()?;
        let amount = if property.is_quota() { account.quota } else { account.used };
        let number = if property.counts_objects() { amount.objects } else { amount.bytes };
        let source = if property.is_quota() && number != 0 { Source::Local } else { Source::None };
        Some(PropertyRecord { name: property.name().to_owned(), value: number.to_string(), source, received: None })
    }

    /// Sets the quotas among the assignments, and returns the others.
    pub(super) fn set_quotas(&self, name: &Name, assignments: &[Assignment]) -> Result<Vec<Assignment>, Failure> {
        let (mut quotas, mut others) = (Vec::new(), Vec::new());
        for assignment in assignments {
            match Property::of_dataset(&assignment.name) {
                Ok(Property::Account(property)) => quotas.push(quota(name, &property, &assignment.value)?),
                _ => others.push(assignment.clone()),
            }
        }
        if quotas.is_empty() {
            return Ok(others);
        }
        let Name::Dataset(dataset) = name else {
            return Err(Failure::cannot(SET, name, "a snapshot never changes"));
        };
        let dataset = self.datasets.open_dataset(dataset).or_refused("open", name)?;
        for (kind, id, quota) in quotas {
            dataset.fs().set_quota(kind, id, quota).map_err(|errno| refused(dataset.fs(), name, errno))?;
        }
        self.engine().commit().or_refused(SET, name)?;
        Ok(others)
    }
}

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

/// Whose quota is to be what.
fn quota(name: &Name, property: &AccountProperty, value: &str) -> Result<(OwnerKind, u32, SetQuota), Failure> {
    let kind = property.kind();
    let id = owners::number(kind, property.owner()).ok_or_else(|| {
        Failure::cannot(SET, name, format!("there is no {} '{}'", kind.name(), property.owner()))
            .hint("a number is good where there is no name")
    })?;
    let limit = value.parse().map(Some).map_err(|_| Failure::cannot(SET, name, "a quota is a number"))?;
    Ok(match property.counts_objects() {
        true => (kind, id, SetQuota { objects: limit, ..SetQuota::default() }),
        false => (kind, id, SetQuota { bytes: limit, ..SetQuota::default() }),
    })
}

fn refused(fs: &FileSystem, name: &Name, errno: dataset::fs::Errno) -> Failure {
    let failure = Failure::cannot(SET, name, reason(errno));
    match errno {
        dataset::fs::Errno::OPNOTSUPP if !fs.options().accounts => {
            failure.hint("the pool's feature is disabled: pool set feature@project_quota=enabled POOL")
        }
        _ => failure,
    }
}
