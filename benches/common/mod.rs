//! What the benchmarks share: a pool to measure, and the middle of several runs.

mod middle;

use std::sync::Arc;

use dataset::{
    admin::{Assignment, CreateRequest, Datasets},
    name::DatasetName,
};
use pool::{
    admin::{CreateOptions, create},
    device::Device,
    env::SystemEnv,
};

pub(crate) use middle::{Result, median};

/// The pool's name.
pub(crate) const POOL: &str = "tank";

/// A name known to be valid.
pub(crate) fn name(text: &str) -> DatasetName {
    text.parse().expect("the benchmarks use valid names")
}

/// A new pool on `device`.
pub(crate) fn make_pool(device: Arc<dyn Device>) -> Result<Arc<Datasets>> {
    let pool = create(vec![device], &CreateOptions::new(POOL), Arc::new(SystemEnv))?;
    Ok(Datasets::create_root(pool.engine().clone(), name(POOL), (0, 0))?)
}

/// A new data set with these properties.
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
