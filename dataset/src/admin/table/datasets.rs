//! The datasets of an opened pool.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Weak},
};

use parking_lot::{Mutex, RwLock};
use pool::{
    env::Nanos,
    error::Error as PoolError,
    txg::{Engine, Reclaimer},
    units::Guid,
};

use super::{
    client::{Client, Ticket},
    feature,
    long_hold::LongHolds,
    names::Names,
    opened::OpenTable,
};
use crate::{
    catalogue::Transaction,
    error::{Error, Result},
    lineage::work,
    name::DatasetName,
    underway::{Jobs, cursor::Cursor},
};

/// The approximate number of blocks freed in one step of background work.
const STEP: usize = 8192;

/// The most txgs that a request tries. In each, another snapshot of the same dataset may come first.
const TRIES: usize = 16;

/// The progress of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// No work is left at the moment.
    Idle,
    /// A step was made; more may follow.
    Worked,
}

/// The facts about a mount shown in properties.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mount {
    /// The mountpoint in use.
    pub path: String,
    /// Properties for this mount only: names and canonical values.
    pub temporary: Vec<(String, String)>,
}

/// The datasets of an opened pool: requests, and the table of open datasets.
pub struct Datasets {
    engine: Arc<Engine>,
    pool: RwLock<DatasetName>,
    client: Arc<Client>,
    pub(in crate::admin) mounts: Mutex<HashMap<u64, Mount>>,
    /// The hidden datasets of resumable receives that a receive fills at the moment.
    pub(in crate::admin) occupied: Mutex<BTreeSet<u64>>,
    pub(crate) jobs: Jobs,
}

impl Datasets {
    /// The datasets before the jobs are resumed and the intent log is replayed.
    pub(crate) fn on(engine: Arc<Engine>, pool: DatasetName) -> Arc<Datasets> {
        let client = Arc::<Client>::default();
        engine.set_client(client.clone());
        let jobs = Jobs::new(engine.env().uptime());
        let (mounts, occupied) = (Mutex::default(), Mutex::default());
        let datasets = Arc::new(Datasets { engine, pool: RwLock::new(pool), client, mounts, occupied, jobs });
        // The engine is a part of the datasets, so the engine's reference is weak.
        let reclaimer: Weak<dyn Reclaimer> = Arc::<Datasets>::downgrade(&datasets);
        datasets.engine.set_reclaimer(reclaimer);
        datasets
    }

    /// The engine of the pool.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The name of the pool and its root dataset.
    pub fn pool_name(&self) -> DatasetName {
        self.pool.read().clone()
    }

    pub(in crate::admin) fn names(&self) -> Names {
        Names { pool: self.pool_name() }
    }

    pub(in crate::admin) fn table(&self) -> &Mutex<OpenTable> {
        &self.client.table
    }

    /// The position of a resilver, for commits to record.
    pub(crate) fn cursor(&self) -> &Mutex<Option<Cursor>> {
        &self.client.cursor
    }

    /// Reads the current catalogue, including uncommitted changes.
    pub fn read<T>(&self, mut look: impl FnMut(&Transaction<'_>) -> Result<T>) -> Result<T> {
        let now = self.now();
        self.engine.catalogue().read(|view| look(&Transaction::new(*view, now)))
    }

    /// Runs a request on the current catalogue, and discards the changes.
    pub fn dry_run<T>(&self, request: impl FnMut(&mut Transaction<'_>) -> Result<T>) -> Result<T> {
        let (now, mut request) = (self.now(), self.judged(request));
        self.engine.catalogue().read(|view| request(&mut Transaction::new(*view, now)))
    }

    /// Makes a request fail if its changes close a snapshot held by a command.
    fn judged<T, F>(&self, mut request: F) -> impl FnMut(&mut Transaction<'_>) -> Result<T> + use<T, F>
    where
        F: FnMut(&mut Transaction<'_>) -> Result<T>,
    {
        let (holds, names, is_owner) = (self.client.holds.clone(), self.names(), self.is_of_owner());
        move |tx| {
            let answer = request(tx)?;
            holds.check(tx, &names).map_err(|error| match error {
                Error::InUse { name, holder } if !is_owner => Error::InUse { name, holder: holder.for_others() },
                other => other,
            })?;
            Ok(answer)
        }
    }

    /// Makes a request fail if its user lacks a permission that the request needs.
    fn permitted<T, F>(&self, mut request: F) -> impl FnMut(&mut Transaction<'_>) -> Result<T> + use<T, F>
    where
        F: FnMut(&mut Transaction<'_>) -> Result<T>,
    {
        let judgement = self.judgement();
        move |tx| {
            judgement.ask(&tx.before())?;
            request(tx)
        }
    }

    /// Makes a request wait that needs an inactive feature, until the pool's labels name the feature. A request that
    /// fails for another reason activates no feature.
    fn announced<T, F>(&self, mut request: F) -> impl FnMut(&mut Transaction<'_>) -> Result<T> + use<T, F>
    where
        F: FnMut(&mut Transaction<'_>) -> Result<T>,
    {
        // The engine keeps the queued request, so the request's reference to the engine is weak.
        let engine = Arc::downgrade(&self.engine);
        move |tx| {
            let answer = request(tx)?;
            let is_active = |feature: &str| engine.upgrade().is_some_and(|engine| engine.is_active(feature));
            match tx.needs().filter(|feature| !is_active(feature)) {
                Some(feature) => feature::check_enabled(tx, feature).and(Err(Error::Inactive { feature })),
                None => Ok(answer),
            }
        }
    }

    /// The snapshots that commands read as a whole.
    pub(in crate::admin) fn long_holds(&self) -> &Arc<LongHolds> {
        &self.client.holds
    }

    /// Carries out a request in the open txg, and returns after the commit. A failed request has changed nothing.
    pub fn run<T, F>(&self, request: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Transaction<'_>) -> Result<T> + Send + 'static,
    {
        self.engine.writable()?;
        let mut request = self.announced(self.permitted(request));
        // Most failing requests fail at once, without a commit.
        match self.dry_run(&mut request) {
            Ok(_) | Err(Error::NextGroup | Error::Inactive { .. }) => {}
            Err(error) => return Err(error),
        }
        let request = Arc::new(Mutex::new(self.judged(request)));
        for _ in 1..TRIES {
            match self.run_once(&request) {
                // The next txg is open by now.
                Err(Error::NextGroup) => {}
                // Only the feature is missing.
                Err(Error::Inactive { feature }) => self.engine.activate(feature)?,
                answer => return answer,
            }
        }
        self.run_once(&request)
    }

    /// Tries a request as [`Datasets::run`] does first, and discards the changes.
    pub(in crate::admin) fn attempt<T>(&self, request: impl FnMut(&mut Transaction<'_>) -> Result<T>) -> Result<T> {
        self.engine.writable()?;
        self.dry_run(self.announced(self.permitted(request)))
    }

    fn run_once<T, F>(&self, request: &Arc<Mutex<F>>) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Transaction<'_>) -> Result<T> + Send + 'static,
    {
        let ticket = Ticket::default();
        let (request, answered) = (request.clone(), ticket.clone());
        self.engine.with_open_txg(|txg| self.client.enqueue(txg, request, move |answer| answered.leave(answer)));
        self.engine.commit()?;
        let closed = || PoolError::Closed("a commit has failed".into()).into();
        ticket.take().unwrap_or_else(|| Err(closed()))
    }

    /// Queues a request for the next commit, without waiting for the answer: a failure is logged as `problem`.
    pub(crate) fn run_later<F>(&self, problem: &'static str, request: F) -> Result<()>
    where
        F: FnMut(&mut Transaction<'_>) -> Result<()> + Send + 'static,
    {
        self.engine.writable()?;
        let request = Arc::new(Mutex::new(self.judged(self.announced(request))));
        let answered = move |answer: Result<()>| {
            if let Err(error) = answer {
                tracing::warn!("{problem}: {error}");
            }
        };
        self.engine.with_open_txg(|txg| self.client.enqueue(txg, request, answered));
        Ok(())
    }

    /// Makes a step of background work: freeing destroyed trees. The caller repeats until idle; every step is a commit.
    pub fn background_step(&self) -> Result<Progress> {
        self.background_step_of(STEP)
    }

    /// As [`Datasets::background_step`], freeing about `budget` blocks.
    pub(in crate::admin) fn background_step_of(&self, budget: usize) -> Result<Progress> {
        self.engine.writable()?;
        let Some(step) = work::plan(&self.engine, budget)? else { return Ok(Progress::Idle) };
        self.run(move |tx| work::apply(tx, &step))?;
        Ok(Progress::Worked)
    }

    /// The bytes still to be freed by background work: the pool's property `freeing`.
    pub fn freeing(&self) -> Result<u64> {
        // Does not ask for the time, which would advance the clock of a simulation.
        self.engine.catalogue().read(|view| Ok(Transaction::new(*view, Nanos::default()).master()?.freeing.allocated))
    }

    /// The time of day, in nanoseconds since 1970.
    pub fn now(&self) -> Nanos {
        self.engine.env().now()
    }

    /// A random GUID, drawn from [`pool::env::Env`].
    pub(in crate::admin) fn new_guid(&self) -> Guid {
        Guid(self.engine.env().random())
    }
}
