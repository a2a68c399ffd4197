//! A pool as its service would open it, on simulated devices and on one thread.

use std::sync::Arc;

use dataset::{
    admin::{Datasets, ListRequest, Listed, Progress},
    error::Error,
    fs, lineage,
    name::{DatasetName, Name},
};
use pool::{
    admin::{self, ClassedVdev, CreateOptions, OpenOptions},
    check::{self, Ledger},
    device::{Device, MemoryDevice},
    env::{Env, SeededEnv},
    txg::{Engine, Settings},
    units::MIB,
};

/// The pool's name.
pub(crate) const POOL: &str = "tank";

/// The size of the devices of a pool with equal devices, in bytes: the smallest allowed.
pub(crate) const DEVICE_SIZE: u64 = 64 * MIB;

/// The bytes that a resilver or a scrub handles in a step.
pub(crate) const RESILVER_STEP: u64 = 1 << 18;

/// The images as devices.
pub(crate) fn as_devices(images: &[Arc<MemoryDevice>]) -> Vec<Arc<dyn Device>> {
    images.iter().map(|image| image.clone() as Arc<dyn Device>).collect()
}

/// An opened pool.
pub(crate) struct World {
    pub(crate) pool: Arc<admin::Pool>,
    pub(crate) datasets: Arc<Datasets>,
}

/// The error of an outcome is the text of a finding.
pub(crate) type Outcome<T> = Result<T, String>;

pub(crate) fn settings() -> Settings {
    Settings { cache: 16 * MIB, dirty: 32 * MIB, workers: 0 }
}

pub(crate) fn name(text: &str) -> DatasetName {
    text.parse().expect("the simulation uses valid names")
}

impl World {
    /// A new pool of these vdevs.
    pub(crate) fn create(vdevs: &[ClassedVdev], env: Arc<dyn Env>) -> World {
        let options = CreateOptions { settings: settings(), ..CreateOptions::new(POOL) };
        let pool = admin::create_of(vdevs, &options, env).expect("a pool can be made");
        let datasets = Datasets::create_root(pool.engine().clone(), name(POOL), (0, 0)).expect("it gets a dataset");
        World { pool: Arc::new(pool), datasets }
    }

    /// Opens the pool on these devices.
    pub(crate) fn open(devices: Vec<Arc<dyn Device>>, env: Arc<dyn Env>) -> Result<World, Error> {
        let options = OpenOptions { settings: settings(), ..OpenOptions::default() };
        let pool = admin::open(devices, &options, env)?;
        let datasets = Datasets::open(pool.engine().clone(), name(POOL))?;
        Ok(World { pool: Arc::new(pool), datasets })
    }

    /// Opens the pool after a power failure.
    pub(crate) fn import(devices: Vec<Arc<dyn Device>>, seed: u64) -> Outcome<World> {
        World::open(devices, Arc::new(SeededEnv::new(seed))).map_err(|error| format!("the pool does not open: {error}"))
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        self.pool.engine()
    }

    pub(crate) fn fs(&self, dataset: &str) -> Arc<fs::FileSystem> {
        self.try_fs(dataset).expect("the model knows it")
    }

    /// The file system of a dataset, which a device with lost writes may make unreadable.
    pub(crate) fn try_fs(&self, dataset: &str) -> Outcome<Arc<fs::FileSystem>> {
        let opened = self.datasets.open_dataset(&name(dataset)).map_err(|error| format!("{dataset}: {error}"))?;
        Ok(opened.fs().clone())
    }

    /// All datasets and snapshots, without partial states of interrupted receives.
    pub(crate) fn list(&self) -> Outcome<Vec<Listed>> {
        let request = ListRequest { depth: None, ..ListRequest::default() };
        let mut listed =
            self.datasets.list(&request).map_err(|error| format!("the datasets cannot be listed: {error}"))?;
        listed.retain(|listed| !listed.is_partial());
        Ok(listed)
    }

    /// The work of a service after opening a pool: removes unfinished receives and clones, and frees destroyed
    /// datasets.
    pub(crate) fn clean_up(&self) -> Outcome<()> {
        let failed = |error| format!("cleaning up after the crash fails: {error}");
        self.datasets.destroy_unfinished().map_err(failed)?;
        for listed in self.list()? {
            if let Name::Dataset(name) = listed.name {
                self.datasets.open_dataset(&name).map_err(failed)?;
            }
        }
        while self.datasets.reap_files() {}
        while self.datasets.background_step().map_err(failed)? == Progress::Worked {}
        self.resilver()?;
        self.engine().commit().map_err(|error| failed(error.into())).map(drop)
    }

    /// Resilvers the incomplete devices of the mirror that are present. Destroyed datasets must be freed before.
    pub(crate) fn resilver(&self) -> Outcome<()> {
        let failed = |error| format!("resilvering fails: {error}");
        while self.datasets.resilver().advance(RESILVER_STEP).map_err(failed)? == Progress::Worked {}
        match self.datasets.resilver().status().map(|status| status.errors) {
            None | Some(0) => Ok(()),
            Some(errors) => Err(format!("a resilver finds nothing good of {errors} blocks")),
        }
    }

    /// Fails with the findings of the checks of the whole pool. Nothing may have changed since the last commit.
    pub(crate) fn check(&self) -> Outcome<()> {
        let failed = |error: String| format!("the check fails: {error}");
        let mut ledger = Ledger::default();
        check::enter_catalogue(self.engine(), &mut ledger);
        let report = lineage::check::check(self.engine(), &mut ledger).map_err(|error| failed(error.to_string()))?;
        report.enter(&mut ledger);
        let findings = check::conclude(self.engine(), &mut ledger).map_err(|error| failed(error.to_string()))?;
        if findings.is_empty() { Ok(()) } else { Err(format!("the check finds {findings:#?}")) }
    }

    /// Fails with the findings of the checks of the files.
    pub(crate) fn check_files(&self, listed: &[Listed]) -> Outcome<()> {
        for Listed { name, .. } in listed {
            let Name::Dataset(name) = name else { continue };
            let dataset = self.datasets.open_dataset(name).map_err(|error| format!("{name}: {error}"))?;
            let found = fs::check::check(dataset.head()).map_err(|error| format!("{name}: {error}"))?;
            if !found.is_empty() {
                return Err(format!("the check of the files of {name} finds {found:#?}"));
            }
        }
        Ok(())
    }
}
