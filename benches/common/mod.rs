//! What the benchmarks share: a pool to measure, and the middle of several runs.

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

/// What any step may fail with; a benchmark stops there.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

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

/// The middle one of `values`, of an even number the higher one.
pub(crate) fn median<T: PartialOrd + Copy>(values: &mut [T]) -> T {
    values.sort_by(|a, b| a.partial_cmp(b).expect("measured values can be compared"));
    values[values.len() / 2]
}
