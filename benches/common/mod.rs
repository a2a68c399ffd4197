//! Shared by the benchmarks: a pool to measure, and the median of several runs.

mod middle;

use std::sync::Arc;

use dataset::{
    admin::{Assignment, CreateRequest, Datasets},
    name::DatasetName,
};
use pool::{
    admin::{CreateOptions, NewVdev, Pool, create_of},
    env::SystemEnv,
};

pub(crate) use middle::{Result, median};

/// The pool's name.
pub(crate) const POOL: &str = "tank";

/// Parses a valid name.
pub(crate) fn name(text: &str) -> DatasetName {
    text.parse().expect("the benchmarks use valid names")
}

/// A new pool of these vdevs.
pub(crate) fn make_pool(vdevs: &[NewVdev]) -> Result<(Pool, Arc<Datasets>)> {
    let pool = create_of(vdevs, &CreateOptions::new(POOL), Arc::new(SystemEnv))?;
    let datasets = Datasets::create_root(pool.engine().clone(), name(POOL), (0, 0))?;
    Ok((pool, datasets))
}

/// A new dataset with these properties.
pub(crate) fn make_dataset(datasets: &Datasets, dataset: &str, properties: &[(&str, &str)]) -> Result<()> {
    let assign = |(property, value): &(&str, &str)| Assignment { property: (*property).into(), value: (*value).into() };
    datasets.create(CreateRequest {
        name: name(dataset),
        parents: false,
        properties: properties.iter().map(assign).collect(),
        owner: (0, 0),
    })?;
    Ok(())
}
