//! The objects of names, for callers without a transaction.

use super::{datasets::Datasets, names::Target};
use crate::{
    error::Result,
    name::{DatasetName, Name},
};

impl Datasets {
    /// The object of a name.
    pub fn resolve(&self, name: &Name) -> Result<Target> {
        let names = self.names();
        self.read(|tx| names.target(tx, name))
    }

    /// The name of the dataset with the given id.
    pub fn dataset_name(&self, id: u64) -> Result<DatasetName> {
        let names = self.names();
        self.read(|tx| names.of_dataset(tx, id))
    }
}
