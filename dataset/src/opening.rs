//! Opening the datasets of a pool: the jobs are resumed, and the intent log is replayed.

use std::sync::Arc;

use pool::{txg::Engine, units::Guid};

use crate::{
    admin::{Datasets, table::feature},
    catalogue::MASTER,
    error::{Error, Result},
    lineage::dataset,
    name::DatasetName,
};

impl Datasets {
    /// The datasets of an opened pool. `pool` is the pool's current name, and so the name of its root dataset.
    ///
    /// The intent log of a crash is replayed and committed.
    pub fn open(engine: Arc<Engine>, pool: DatasetName) -> Result<Arc<Datasets>> {
        let datasets = Datasets::on(engine, pool);
        // Resumed before anything is allocated.
        datasets.moving().resume();
        datasets.resilver().resume();
        datasets.replay_log()?;
        Ok(datasets)
    }

    /// As [`Datasets::open`], for a new pool: creates the root dataset with a root directory owned by `owner`, and
    /// commits.
    pub fn create_root(engine: Arc<Engine>, pool: DatasetName, owner: (u32, u32)) -> Result<Arc<Datasets>> {
        let guid = Guid(engine.env().random());
        let datasets = Datasets::on(engine, pool);
        datasets.run(move |tx| match tx.contains(MASTER)? {
            true => Err(Error::catalogue_exists("the pool's")),
            false => {
                dataset::create_root(tx, guid, owner)?;
                feature::enable_all(tx)
            }
        })?;
        Ok(datasets)
    }
}
