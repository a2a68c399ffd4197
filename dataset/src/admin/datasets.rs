//! The datasets of an opened pool.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::{Mutex, RwLock};
use pool::{
    env::Nanos,
    error::Error as PoolError,
    txg::{Due, Engine, Reclaimer},
    units::Guid,
};

use super::{
    client::{Client, Ticket},
    error::{Error, Result},
    feature,
    long_hold::LongHolds,
    open::OpenTable,
};
use crate::{
    catalogue::{MASTER, Transaction},
    jobs::{Cursor, Jobs},
    lineage::{dataset, work},
    name::DatasetName,
};

/// About how many blocks one step of background work frees.
const STEP: usize = 8192;

/// How many transaction groups a request tries to get into. Others that snapshot the same dataset may be first in each.
const TRIES: usize = 16;

/// How far background work has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is nothing to do.
    Idle,
    /// A step was done; there may be more.
    Worked,
}

/// How a dataset is mounted, as far as its properties show it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mount {
    /// Where.
    pub path: String,
    /// Properties that hold for this mount only: names and canonical values.
    pub temporary: Vec<(String, String)>,
}

/// The datasets of an opened pool: requests to them, and which are open.
pub struct Datasets {
    engine: Arc<Engine>,
    pool: RwLock<DatasetName>,
    client: Arc<Client>,
    pub(super) mounts: Mutex<HashMap<u64, Mount>>,
    pub(crate) jobs: Jobs,
}

impl Datasets {
    /// The datasets of a pool that was opened. `pool` is its name now, and so that of its root dataset.
    ///
    /// What a crash has left in the intent log is put back and committed.
    pub fn open(engine: Arc<Engine>, pool: DatasetName) -> Result<Arc<Datasets>> {
        let datasets = Datasets::on(engine, pool);
        // Before anything is allocated.
        datasets.moving().resume();
        datasets.resilver().resume();
        datasets.replay_log()?;
        Ok(datasets)
    }

    fn on(engine: Arc<Engine>, pool: DatasetName) -> Arc<Datasets> {
        let client = Arc::<Client>::default();
        engine.set_client(client.clone());
        let datasets = Arc::new(Datasets {
            engine,
            pool: RwLock::new(pool),
            client,
            mounts: Mutex::default(),
            jobs: Jobs::default(),
        });
        // The engine is one of its parts, so it must not keep it.
        let reclaimer: Weak<dyn Reclaimer> = Arc::<Datasets>::downgrade(&datasets);
        datasets.engine.set_reclaimer(reclaimer);
        datasets
    }

    /// As [`Datasets::open`] for a pool that was just made: makes its root dataset, whose root directory belongs to
    /// `owner`, and commits.
    pub fn create_root(engine: Arc<Engine>, pool: DatasetName, owner: (u32, u32)) -> Result<Arc<Datasets>> {
        let guid = Guid(engine.env().random());
        let datasets = Datasets::on(engine, pool);
        datasets.run(move |tx| match tx.contains(MASTER)? {
            true => Err(Error::exists("catalogue", "the pool's")),
            false => {
                dataset::create_root(tx, guid, owner)?;
                feature::enable_all(tx)
            }
        })?;
        Ok(datasets)
    }

    /// The engine below.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The pool's name.
    pub fn pool_name(&self) -> DatasetName {
        self.pool.read().clone()
    }

    pub(super) fn table(&self) -> &Mutex<OpenTable> {
        &self.client.table
    }

    /// How far a resilver has come, for commits to note.
    pub(crate) fn cursor(&self) -> &Mutex<Option<Cursor>> {
        &self.client.cursor
    }

    /// Reads the catalogue: what is there now, committed or about to be.
    pub fn read<T>(&self, mut look: impl FnMut(&Transaction<'_>) -> Result<T>) -> Result<T> {
        let now = self.now();
        self.engine.catalogue().read(|view| look(&Transaction::new(*view, now)))
    }

    /// Runs a request on the catalogue as it is now and throws its changes away.
    pub fn dry_run<T>(&self, request: impl FnMut(&mut Transaction<'_>) -> Result<T>) -> Result<T> {
        let (now, mut request) = (self.now(), self.judged(request));
        self.engine.catalogue().read(|view| request(&mut Transaction::new(*view, now)))
    }

    /// Refuses a request, when it is known what it would take away, if a command reads a part of that as a whole.
    fn judged<T, F>(&self, mut request: F) -> impl FnMut(&mut Transaction<'_>) -> Result<T> + use<T, F>
    where
        F: FnMut(&mut Transaction<'_>) -> Result<T>,
    {
        let (holds, names) = (self.client.holds.clone(), self.names());
        move |tx| {
            let answer = request(tx)?;
            holds.check(tx, &names)?;
            Ok(answer)
        }
    }

    /// Has a request wait that writes what only programs with a feature understand, until the pool's labels name that. A
    /// request that fails for another reason makes no feature active.
    fn announced<T, F>(&self, mut request: F) -> impl FnMut(&mut Transaction<'_>) -> Result<T> + use<T, F>
    where
        F: FnMut(&mut Transaction<'_>) -> Result<T>,
    {
        // The engine keeps what is enqueued, which must not keep the engine.
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
    pub(super) fn long_holds(&self) -> &Arc<LongHolds> {
        &self.client.holds
    }

    /// Carries out a request in the open transaction group, and returns when that is committed. A request that fails has
    /// changed nothing.
    pub fn run<T, F>(&self, request: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Transaction<'_>) -> Result<T> + Send + 'static,
    {
        self.engine.writable()?;
        let mut request = self.announced(request);
        // Most requests that fail do so at once: that needs no commit.
        match self.dry_run(&mut request) {
            Ok(_) | Err(Error::NextGroup | Error::Inactive { .. }) => {}
            Err(error) => return Err(error),
        }
        let request = Arc::new(Mutex::new(self.judged(request)));
        for _ in 1..TRIES {
            match self.run_once(&request) {
                // The group after this one is open by now.
                Err(Error::NextGroup) => {}
                // All but that was as it must be.
                Err(Error::Inactive { feature }) => self.engine.activate(feature)?,
                answer => return answer,
            }
        }
        self.run_once(&request)
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

    /// Has the next commit carry out a request, whoever makes it. Nobody waits for the answer: a failure is logged, as
    /// `problem`.
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

    /// Does a step of the background work: freeing what was destroyed. Call it again until it is idle; every call is a
    /// commit.
    pub fn background_step(&self) -> Result<Progress> {
        self.background_step_of(STEP)
    }

    /// As [`Datasets::background_step`], freeing about `budget` blocks.
    pub(super) fn background_step_of(&self, budget: usize) -> Result<Progress> {
        self.engine.writable()?;
        let Some(step) = work::plan(&self.engine, budget)? else { return Ok(Progress::Idle) };
        self.run(move |tx| work::apply(tx, &step))?;
        Ok(Progress::Worked)
    }

    /// What background work has still to free, in bytes: the pool's property `freeing`.
    pub fn freeing(&self) -> Result<u64> {
        // Without asking for the time: in a simulated world that moves the clock.
        self.engine.catalogue().read(|view| Ok(Transaction::new(*view, Nanos::default()).master()?.freeing.allocated))
    }

    /// Notes that a dataset is mounted, or with `None` that it is not any more: for the properties that say so.
    ///
    /// Values that hold for one mount only reach the open file system here, and leave it here.
    pub fn note_mount(&self, id: u64, mount: Option<Mount>) {
        let is_temporary = |mount: Option<&Mount>| mount.is_some_and(|mount| !mount.temporary.is_empty());
        let mut concerned = is_temporary(mount.as_ref());
        {
            let mut mounts = self.mounts.lock();
            let before = match mount {
                Some(mount) => mounts.insert(id, mount),
                None => mounts.remove(&id),
            };
            concerned |= before.is_some();
        }
        if concerned && let Err(error) = self.reload_options_of(id) {
            tracing::warn!("dataset {id} keeps the options it had: {error}");
        }
    }

    /// Whether a dataset is noted as mounted, and how.
    pub fn mount_of(&self, id: u64) -> Option<Mount> {
        self.mounts.lock().get(&id).cloned()
    }

    /// The time of day.
    pub fn now(&self) -> Nanos {
        self.engine.env().now()
    }

    /// A random number for the life of something.
    pub(super) fn new_guid(&self) -> Guid {
        Guid(self.engine.env().random())
    }
}

impl Reclaimer for Datasets {
    /// Frees part of what removed files hold, and makes a step of the background work that a destroy has left.
    fn free_due(&self) -> Due {
        let files = self.free_due_files();
        let work = match self.background_step() {
            Ok(Progress::Worked) => Due::Freed,
            Ok(Progress::Idle) => Due::Nothing,
            Err(error) => {
                tracing::warn!("cannot free what was destroyed: {error}");
                Due::Nothing
            }
        };
        files.max(work)
    }

    fn due(&self) -> u64 {
        self.freeing().unwrap_or_default()
    }
}
