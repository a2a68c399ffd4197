//! Requests to delegate permissions, and to list delegated permissions.

use std::collections::BTreeSet;

use dataset::{
    admin::{Allowance, Grantee, Reach, permission},
    name::DatasetName,
};
use protocol::{AllowanceRecord, Failure};

use super::{open_pool::OpenPool, refusal::OrRefused};

const ALLOW: &str = "set permissions on";

impl OpenPool {
    pub(super) fn allow(
        &self,
        name: &DatasetName,
        to: &[Grantee],
        permissions: &[String],
        reach: Reach,
    ) -> Result<(), Failure> {
        self.datasets.allow(name, to, &checked(name, permissions)?, reach).or_refused(ALLOW, name)
    }

    pub(super) fn unallow(
        &self,
        name: &DatasetName,
        from: &[Grantee],
        permissions: &[String],
        reach: Reach,
        recursive: bool,
    ) -> Result<(), Failure> {
        let permissions = checked(name, permissions)?;
        self.datasets.unallow(name, from, &permissions, reach, recursive).or_refused(ALLOW, name)
    }

    pub(super) fn allowances(&self, name: &DatasetName) -> Result<Vec<AllowanceRecord>, Failure> {
        let allowances = self.datasets.allowances(name).or_refused("open", name)?.into_iter();
        Ok(allowances.map(|Allowance { dataset, grants }| AllowanceRecord { dataset, grants }).collect())
    }
}

/// The permissions under their own names, each once.
fn checked(name: &DatasetName, permissions: &[String]) -> Result<BTreeSet<String>, Failure> {
    let all = permissions.iter().map(|text| permission(text)).collect::<Result<_, _>>();
    all.map_err(|bad| Failure::cannot(ALLOW, name, bad).hint("for the list of permissions: fs allow --help"))
}
