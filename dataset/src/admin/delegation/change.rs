//! Giving, taking back and listing grants.

use std::collections::BTreeSet;

use super::grant::{self, Grant, Grantee, Reach};
use crate::{
    admin::table::{
        datasets::Datasets,
        history,
        names::{self, Names},
    },
    catalogue::Transaction,
    error::Result,
    name::DatasetName,
};

/// The grants on a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// The dataset of the grants.
    pub dataset: DatasetName,
    /// The grants, by grantee.
    pub grants: Vec<Grant>,
}

impl Datasets {
    /// Gives permissions on a dataset to all grantees.
    pub fn allow(
        &self,
        name: &DatasetName,
        to: &[Grantee],
        permissions: &BTreeSet<String>,
        reach: Reach,
    ) -> Result<()> {
        let permissions = permissions.clone();
        self.change_grants(name, to, false, "allow on", move |grant| grant.add(&permissions, reach))
    }

    /// Takes permissions on a dataset back, with `recursive` on its descendants too. Empty
    /// `permissions` mean all.
    pub fn unallow(
        &self,
        name: &DatasetName,
        to: &[Grantee],
        permissions: &BTreeSet<String>,
        reach: Reach,
        recursive: bool,
    ) -> Result<()> {
        let permissions = permissions.clone();
        self.change_grants(name, to, recursive, "unallow on", move |grant| grant.remove(&permissions, reach))
    }

    fn change_grants(
        &self,
        name: &DatasetName,
        to: &[Grantee],
        recursive: bool,
        action: &'static str,
        change: impl Fn(&mut Grant) + Send + 'static,
    ) -> Result<()> {
        let (names, name, to) = (self.names(), name.clone(), to.to_vec());
        to.iter().try_for_each(Grantee::check)?;
        self.run(move |tx| {
            let id = names.dataset(tx, &name)?;
            let ids = if recursive { names::subtree(tx, id)? } else { vec![id] };
            for id in ids {
                for grantee in &to {
                    let mut grant = grant::to(tx, id, grantee)?;
                    change(&mut grant);
                    grant::put(tx, id, &grant)?;
                }
            }
            history::log(tx, &format!("{action} {name}"))
        })
    }

    /// The grants on a dataset and on the datasets above, the dataset first. Datasets without grants are left out.
    pub fn allowances(&self, name: &DatasetName) -> Result<Vec<Allowance>> {
        let names = self.names();
        self.read(|tx| {
            names.dataset(tx, name)?;
            let above = std::iter::successors(Some(name.clone()), DatasetName::parent);
            let all = above.map(|dataset| allowance(tx, &names, dataset)).collect::<Result<Vec<_>>>()?;
            Ok(all.into_iter().filter(|allowance| !allowance.grants.is_empty()).collect())
        })
    }
}

fn allowance(tx: &Transaction<'_>, names: &Names, dataset: DatasetName) -> Result<Allowance> {
    let grants = grant::of(tx, names.dataset(tx, &dataset)?)?;
    Ok(Allowance { dataset, grants })
}
