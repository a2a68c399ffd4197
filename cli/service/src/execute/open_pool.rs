//! A pool owned by this process: engine, datasets, mounts and background work, from open to close.
//!
//! Commands that open a pool themselves and the pool's service use the same type; only a service has a mount table.
//! Closing has two steps. The first, unmounting, may be refused and then changes nothing. The second closes
//! everything else and ends in a commit.

use std::{path::PathBuf, sync::Arc, time::Duration};

use crossbeam_channel::Sender;
use dataset::{
    admin::{Assignment as Given, Caller, Datasets},
    name::{DatasetName, Name},
    property::{
        FailMode,
        pool::{ALTROOT, ASHIFT, CACHE_SIZE, DIRTY_LIMIT, FAILMODE, SLOW_IO_MS, SLOW_IO_N, SLOW_IO_T},
    },
};
use parking_lot::Mutex;
use pool::{
    admin::{ClassedVdev, CreateOptions, OpenOptions, Pool},
    device::Access,
    device::SlowLimits,
    env::SystemEnv,
    error::Error,
    txg::{Committer, Engine, Feeder, Settings},
    units::Txg,
};
use protocol::{Assignment, EventRecord, Failure, given};

use super::{
    automatic,
    background::Background,
    devices,
    events::Events,
    images::Images,
    jobs::Jobs,
    memory,
    mounts::{Manner, Mounts, Places},
    refusal::OrRefused,
    standing::Near,
};
use crate::registry::KnownPool;

/// Maximum time between a change and its commit.
const COMMIT_EVERY: Duration = Duration::from_secs(5);

/// Options of opening a pool.
#[derive(Clone, Debug, Default)]
pub struct Opening {
    /// Open with a mount table: for services.
    pub mounting: bool,
    /// Open even if another host seems to have the pool open.
    pub force: bool,
    /// Open even if the intent log is on missing devices.
    pub without_log: bool,
    /// Open under a new name, which becomes permanent.
    pub rename: bool,
}

/// A pool opened by this process.
pub struct OpenPool {
    pub(super) pool: Arc<Pool>,
    pub(super) datasets: Arc<Datasets>,
    pub(super) places: Places,
    pub(super) mounts: Option<Arc<Mounts>>,
    /// The uptime of the environment when the pool was opened.
    pub(super) opened: Duration,
    /// The value of the property `load_guid`.
    pub(super) load_guid: u64,
    pub(super) altroot: String,
    pub(super) background: Background,
    /// Values used if no property is set.
    pub(super) defaults: Settings,
    pub(super) jobs: Jobs,
    pub(super) events: Events,
    pub(super) images: Images,
    pub(super) near: Mutex<Near>,
    committer: Committer,
    feeder: Feeder,
}

/// The options of creating a pool of this name with these properties.
pub(crate) fn create_options(name: &DatasetName, assignments: &[Assignment]) -> CreateOptions {
    let mut options = CreateOptions { host: devices::host(), ..CreateOptions::new(name.as_str()) };
    options.ashift = given(assignments, &ASHIFT).unwrap_or(options.ashift);
    options
}

impl OpenPool {
    /// Opens a known pool.
    pub fn open(known: &KnownPool, opening: &Opening) -> Result<OpenPool, Failure> {
        let access = if known.read_only { Access::ReadOnly } else { Access::ReadWrite };
        let paths: Vec<_> = known.devices.iter().map(|device| device.to_path()).collect();
        let (devices, absent) = devices::open_present(&paths, &|number| known.is_numbered(number), access)
            .or_refused("open", &known.name)?;
        let options = OpenOptions {
            read_only: known.read_only,
            force: opening.force,
            without_log: opening.without_log,
            rename: opening.rename.then(|| known.name.to_string()),
            host: devices::host(),
            settings: memory::default_settings(),
            state: known.state.map(Txg),
        };
        let opened = match (pool::admin::open(devices, &options, Arc::new(SystemEnv)), absent) {
            // The error of the device says more than that the device is missing.
            (Err(Error::Missing { .. } | Error::Request(_)), Some(absent)) => Err(absent),
            (opened, _) => opened,
        };
        let pool = opened.or_refused("open", &known.name)?;
        if !known.is_numbered(pool.engine().guid().0) {
            let other = format!("its devices belong to pool '{}' with GUID {}", pool.name(), pool.engine().guid());
            return Err(Failure::cannot("open", &known.name, other)
                .hint(format!("search for the devices: pool import -d DIR {}", known.name)));
        }
        let datasets = Datasets::open(pool.engine().clone(), known.name.clone()).or_refused("open", &known.name)?;
        let opened = OpenPool::assemble(pool, datasets, known, opening.mounting);
        opened.tune();
        // A failed expansion must not prevent the use of the pool.
        automatic::expand_if_wanted(&opened.datasets, &opened.pool);
        automatic::report_outgrown(&opened.pool);
        opened.clean_up()?;
        Ok(opened)
    }

    /// Creates a pool on devices already taken.
    pub fn create(
        name: &DatasetName,
        vdevs: &[ClassedVdev],
        pool_assignments: &[Assignment],
        root_assignments: &[Assignment],
    ) -> Result<OpenPool, Failure> {
        let options = create_options(name, pool_assignments);
        let pool = pool::admin::create_of(vdevs, &options, Arc::new(SystemEnv)).or_refused("create", name)?;
        let datasets =
            Datasets::create_root(pool.engine().clone(), name.clone(), owner()).or_refused("create", name)?;
        if !root_assignments.is_empty() {
            datasets
                .set(&[Name::Dataset(name.clone())], &given_to_datasets(root_assignments))
                .or_refused("create", name)?;
        }
        for Assignment { name: property, value } in pool_assignments {
            if !ASHIFT.is(property) && !ALTROOT.is(property) {
                datasets.set_pool_property(property, value).or_refused("create", name)?;
            }
        }
        let known = KnownPool {
            name: name.clone(),
            guid: pool.engine().guid().0,
            former: None,
            devices: Vec::new(),
            read_only: false,
            no_mount: true,
            altroot: given(pool_assignments, &ALTROOT),
            state: None,
        };
        Ok(OpenPool::assemble(pool, datasets, &known, false))
    }

    fn assemble(pool: Pool, datasets: Arc<Datasets>, known: &KnownPool, mounting: bool) -> OpenPool {
        let places = Places::of_this_user(known.altroot.as_deref());
        let mounts = mounting.then(|| Arc::new(Mounts::new(datasets.clone(), places.clone(), known.read_only)));
        if mounting {
            // A suspended service can be resumed by `pool clear`; a command could not, so only a service enables
            // suspension.
            pool.engine().suspension().enable();
        }
        let background = Background::start(datasets.clone(), mounts.as_ref().map(Arc::downgrade));
        let (pool, opened) = (Arc::new(pool), datasets.engine().env().uptime());
        let load_guid = datasets.engine().env().random();
        let jobs = Jobs::start(datasets.clone(), pool.clone(), mounting);
        let images = Images::start(datasets.clone());
        let events = Events::start(datasets.clone(), images.sight());
        let committer = Committer::spawn(pool.engine().clone(), COMMIT_EVERY);
        let feeder = Feeder::spawn(pool.engine().clone());
        OpenPool {
            pool,
            datasets,
            places,
            mounts,
            opened,
            load_guid,
            altroot: known.altroot.clone().unwrap_or_default(),
            background,
            defaults: memory::default_settings(),
            jobs,
            events,
            images,
            near: Mutex::default(),
            committer,
            feeder,
        }
    }

    /// The storage engine of the pool.
    pub fn engine(&self) -> &Arc<Engine> {
        self.pool.engine()
    }

    /// The pool's current name.
    pub(super) fn name(&self) -> DatasetName {
        self.datasets.pool_name()
    }

    /// The pool's current GUID.
    pub fn guid(&self) -> u64 {
        self.engine().guid().0
    }

    /// Applies the pool's tuning properties to the engine.
    pub(super) fn tune(&self) {
        let Settings { cache, dirty, .. } = self.defaults;
        let bytes = |property, default| self.datasets.pool_value(property).ok().flatten().unwrap_or(default);
        self.engine().tune(bytes(&CACHE_SIZE, cache), bytes(&DIRTY_LIMIT, dirty));
        let slow = SlowLimits {
            request: Duration::from_millis(self.datasets.pool_setting(&SLOW_IO_MS)),
            count: self.datasets.pool_setting(&SLOW_IO_N),
            within: Duration::from_secs(self.datasets.pool_setting(&SLOW_IO_T)),
        };
        self.events.set_slow_limits(slow);
        self.engine().suspension().set_waiting(self.datasets.pool_setting(&FAILMODE) == FailMode::Wait);
    }

    /// Removes the remains of a receive that was interrupted by a crash.
    fn clean_up(&self) -> Result<(), Failure> {
        if self.engine().read_only() {
            return Ok(());
        }
        if self.datasets.destroy_unfinished().or_refused("open", self.name())? > 0 {
            self.background.free();
        }
        Ok(())
    }

    /// Adds a line to the history, with the next commit.
    pub fn record(&self, command: &str) {
        if self.engine().read_only() {
            return;
        }
        let (user, _) = owner();
        if let Err(error) = self.datasets.record(command, &user.to_string(), &devices::host().1) {
            tracing::warn!("the history lacks '{command}': {error}");
        }
    }

    /// Mounts the datasets whose properties ask for a mount. A pool without a mount table mounts nothing.
    pub fn mount_all(&self) -> Result<(), Failure> {
        self.mounts.as_ref().map_or(Ok(()), |mounts| mounts.mount_all(None, &Manner::default()))
    }

    /// Sets the file in which mounts by mount(8) are remembered.
    pub fn remember_mounts_in(&self, file: PathBuf) {
        self.mounts.iter().for_each(|mounts| mounts.remember_in(file.clone()));
    }

    /// Logs the events in `path`, after the events of earlier services, and passes new events to the `listeners`.
    pub(crate) fn attach_events(&self, path: PathBuf, listeners: Vec<Sender<EventRecord>>) {
        self.events.attach(path, listeners);
    }

    /// Keeps the remembered mounts for the next service, which mounts them again.
    pub fn keep_mounts_in_mind(&self) {
        self.mounts.iter().for_each(|mounts| mounts.keep_memory());
    }

    /// Unmounts everything; with `force` also busy file systems. After a refusal, everything is mounted as before.
    pub fn unmount_all(&self, force: bool) -> Result<(), Failure> {
        self.mounts.as_ref().map_or(Ok(()), |mounts| mounts.unmount_all(force))
    }

    /// Commits and closes the pool, without releasing the pool from this host.
    pub fn close(self) -> Result<(), Failure> {
        self.finish(|_| Ok(()))
    }

    /// Commits and closes the pool, and releases the pool for other hosts. After a failed commit, the pool keeps the
    /// state of its last commit and still belongs to this host.
    pub fn export(self) -> Result<(), Failure> {
        self.finish(|pool| if is_suspended(pool) { Ok(()) } else { pool.export() })
    }

    /// Destroys and closes the pool.
    pub fn destroy(self) -> Result<(), Failure> {
        self.finish(Pool::destroy)
    }

    fn finish(self, end: impl FnOnce(&Pool) -> pool::error::Result<()>) -> Result<(), Failure> {
        let OpenPool { pool, datasets, mounts, background, jobs, events, images, committer, feeder, .. } = self;
        let name = datasets.pool_name();
        // From here on no request can resume the pool.
        match pool.engine().suspension().is_suspended() {
            true => pool.engine().abandon(),
            false => pool.engine().suspension().abandon(),
        }
        // Any remaining mount is cut off: nothing may change the pool during the close.
        drop(mounts);
        drop(background);
        drop(jobs);
        drop(events);
        drop(images);
        drop(committer);
        drop(feeder);
        if is_suspended(&pool) {
            // Uncommitted changes are lost; keeping the pool open would not save the changes.
            tracing::warn!("pool '{name}' is closed without what came after its last commit");
            if let Err(error) = datasets.close_all() {
                tracing::debug!("{error}");
            }
            return end(&pool).or_refused("close", &name);
        }
        datasets.close_all().or_refused("close", &name)?;
        if !pool.engine().read_only() {
            pool.engine().commit().or_refused("close", &name)?;
        }
        pool.engine().secondary().close();
        end(&pool).or_refused("close", &name)
    }
}

/// Whether a commit has failed, so the pool takes no more changes.
fn is_suspended(pool: &Pool) -> bool {
    !pool.engine().read_only() && pool.engine().writable().is_err()
}

/// The user and group that own the result of a request: of the caller, or of this process.
pub(super) fn owner() -> (u32, u32) {
    let own = || (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Caller::current().map_or_else(own, |caller| (caller.user, caller.group))
}

/// Converts assignments to the type of the crate `dataset`.
pub(super) fn given_to_datasets(assignments: &[Assignment]) -> Vec<Given> {
    let given = |a: &Assignment| Given { property: a.name.clone(), value: a.value.clone() };
    assignments.iter().map(given).collect()
}
