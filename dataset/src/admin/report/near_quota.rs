//! The quotas that are nearly used up.

use crate::{
    admin::table::{datasets::Datasets, names::subtree},
    catalogue::{DatasetRow, ROOT, dataset_key},
    error::Result,
    name::DatasetName,
    property::{
        Definition,
        dataset::{QUOTA, REFQUOTA},
    },
};

/// A dataset that has used most of its quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearQuota {
    /// The dataset with the quota.
    pub dataset: DatasetName,
    /// The property of the quota: `quota` or `refquota`.
    pub property: &'static str,
    /// The bytes that count for the quota.
    pub used: u64,
    /// The quota in bytes, above 0.
    pub quota: u64,
}

impl Datasets {
    /// The quotas and refquotas of which at least `percent` are used, parents before children. Reads the row of each
    /// dataset, and no file.
    ///
    /// # Errors
    /// If the catalogue cannot be read.
    pub fn near_quotas(&self, percent: u64) -> Result<Vec<NearQuota>> {
        let names = self.names();
        self.read(|tx| {
            let mut near = Vec::new();
            for id in subtree(tx, ROOT)? {
                let row: DatasetRow = tx.row(dataset_key(id))?;
                let limits: [(Definition, u64, u64); 2] = [
                    (QUOTA.row(), row.used().allocated, row.quota),
                    (REFQUOTA.row(), row.referenced.allocated, row.refquota),
                ];
                for (property, used, quota) in limits {
                    if quota > 0 && u128::from(used) * 100 >= u128::from(quota) * u128::from(percent) {
                        let dataset = names.of_dataset(tx, id)?;
                        near.push(NearQuota { dataset, property: property.name, used, quota });
                    }
                }
            }
            Ok(near)
        })
    }
}
