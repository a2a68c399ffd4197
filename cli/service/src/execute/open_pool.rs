//! A pool that this process owns: engine, datasets, mounts and background work, from opening to closing.
//!
//! The same object serves a command that opened the pool for itself and the pool's service; the only difference is
//! whether it has a mount table. Closing happens in two steps: unmounting, which may be refused and then leaves all as it
//! was, and the rest, which ends in a commit.

use std::{path::PathBuf, sync::Arc, time::Duration};

use dataset::{
    admin::{Assignment as Given, Datasets},
    name::{DatasetName, Name},
    property::{
        FailMode,
        pool::{ALTROOT, ASHIFT, CACHE_SIZE, DIRTY_LIMIT, FAILMODE},
    },
};
use pool::{
    admin::{ClassedVdev, CreateOptions, OpenOptions, Pool},
    device::Access,
    env::SystemEnv,
    error::Error,
    txg::{Committer, Engine, Feeder, Settings},
    units::Txg,
};
use protocol::{Assignment, Failure, given};

use super::{
    background::Background,
    devices,
    events::Events,
    growth,
    images::Images,
    jobs::Jobs,
    memory,
    mounts::{Manner, Mounts, Places},
    refusal::OrRefused,
    trim::Trimming,
};
use crate::registry::KnownPool;

/// The longest time between a change and its commit.
const COMMIT_EVERY: Duration = Duration::from_secs(5);

/// How a pool is opened.
#[derive(Clone, Debug, Default)]
pub struct Opening {
    /// With a mount table: for services.
    pub mounting: bool,
    /// Although another host seems to have it.
    pub force: bool,
    /// Although its intent log is on devices that are missing.
    pub without_log: bool,
    /// Under a new name, which it keeps.
    pub rename: bool,
}

/// An opened pool.
pub struct OpenPool {
    pub(super) pool: Arc<Pool>,
    pub(super) datasets: Arc<Datasets>,
    pub(super) places: Places,
    pub(super) mounts: Option<Arc<Mounts>>,
    /// The uptime of the environment when the pool was opened.
    pub(super) opened: Duration,
    pub(super) altroot: String,
    pub(super) background: Background,
    /// What holds where no property says otherwise.
    pub(super) defaults: Settings,
    pub(super) jobs: Jobs,
    pub(super) events: Events,
    pub(super) images: Images,
    pub(super) trimming: Trimming,
    committer: Committer,
    feeder: Feeder,
}

/// What a pool of this name shall be that is given these properties.
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
            // What is wrong with the device says more than that it is missing.
            (Err(Error::Missing { .. } | Error::Request(_)), Some(absent)) => Err(absent),
            (opened, _) => opened,
        };
        let pool = opened.or_refused("open", &known.name)?;
        if !known.is_numbered(pool.engine().guid().0) {
            let other = format!("its devices belong to pool '{}' with GUID {}", pool.name(), pool.engine().guid());
            return Err(Failure::cannot("open", &known.name, other).hint("search for the devices: pool import -d DIR"));
        }
        let datasets = Datasets::open(pool.engine().clone(), known.name.clone()).or_refused("open", &known.name)?;
        let opened = OpenPool::assemble(pool, datasets, known, opening.mounting);
        opened.tune();
        // What keeps it from growing keeps nobody from using it.
        growth::expand_if_wanted(&opened.datasets, &opened.pool);
        growth::tell_outgrown(&opened.pool);
        opened.clean_up()?;
        Ok(opened)
    }

    /// Makes a pool of devices that were taken for it.
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
            // A service can be told to go on; nobody could tell a command.
            pool.engine().suspension().enable();
        }
        let background = Background::start(datasets.clone(), mounts.as_ref().map(Arc::downgrade));
        let (pool, opened) = (Arc::new(pool), datasets.engine().env().uptime());
        let jobs = Jobs::start(datasets.clone(), pool.clone(), mounting);
        let images = Images::start(datasets.clone());
        let events = Events::start(datasets.clone(), images.sight());
        let trimming = Trimming::start(datasets.clone(), pool.clone());
        let committer = Committer::spawn(pool.engine().clone(), COMMIT_EVERY);
        let feeder = Feeder::spawn(pool.engine().clone());
        OpenPool {
            pool,
            datasets,
            places,
            mounts,
            opened,
            altroot: known.altroot.clone().unwrap_or_default(),
            background,
            defaults: memory::default_settings(),
            jobs,
            events,
            images,
            trimming,
            committer,
            feeder,
        }
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<Engine> {
        self.pool.engine()
    }

    /// The pool's name.
    pub(super) fn name(&self) -> DatasetName {
        self.datasets.pool_name()
    }

    /// The pool's number.
    pub fn guid(&self) -> u64 {
        self.engine().guid().0
    }

    /// Has the engine follow the pool's properties that tune it.
    pub(super) fn tune(&self) {
        let Settings { cache, dirty, .. } = self.defaults;
        let bytes = |property, default| self.datasets.pool_value(property).ok().flatten().unwrap_or(default);
        self.engine().tune(bytes(&CACHE_SIZE, cache), bytes(&DIRTY_LIMIT, dirty));
        self.engine().suspension().set_waiting(self.datasets.pool_setting(&FAILMODE) == FailMode::Wait);
    }

    /// Drops what a receive left that was cut off by a crash.
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

    /// Mounts what the properties want mounted. A pool without a mount table mounts nothing.
    pub fn mount_all(&self) -> Result<(), Failure> {
        self.mounts.as_ref().map_or(Ok(()), |mounts| mounts.mount_all(None, &Manner::default()))
    }

    /// Remembers in this file what is mounted by hand.
    pub fn remember_mounts_in(&self, file: PathBuf) {
        self.mounts.iter().for_each(|mounts| mounts.remember_in(file.clone()));
    }

    /// Has the next service make the mounts again that were made by hand.
    pub fn keep_mounts_in_mind(&self) {
        self.mounts.iter().for_each(|mounts| mounts.keep_memory());
    }

    /// Unmounts everything; with `force` also what is in use. If it is refused, all is mounted as before.
    pub fn unmount_all(&self, force: bool) -> Result<(), Failure> {
        self.mounts.as_ref().map_or(Ok(()), |mounts| mounts.unmount_all(force))
    }

    /// Commits and closes the pool, which stays this host's.
    pub fn close(self) -> Result<(), Failure> {
        self.finish(|_| Ok(()))
    }

    /// Commits and closes the pool: any host may import it then. One whose commit has failed is left as its last commit,
    /// and still this host's.
    pub fn export(self) -> Result<(), Failure> {
        self.finish(|pool| if is_suspended(pool) { Ok(()) } else { pool.export() })
    }

    /// Destroys the pool and closes it.
    pub fn destroy(self) -> Result<(), Failure> {
        self.finish(Pool::destroy)
    }

    fn finish(self, end: impl FnOnce(&Pool) -> pool::error::Result<()>) -> Result<(), Failure> {
        let OpenPool { pool, datasets, mounts, background, jobs, events, images, trimming, committer, feeder, .. } =
            self;
        let name = datasets.pool_name();
        // From here on nobody could have it go on.
        match pool.engine().suspension().is_suspended() {
            true => pool.engine().abandon(),
            false => pool.engine().suspension().abandon(),
        }
        // A mount still there is cut: nothing must change what is about to be closed.
        drop(mounts);
        drop(background);
        drop(jobs);
        drop(events);
        drop(images);
        drop(trimming);
        drop(committer);
        drop(feeder);
        if is_suspended(&pool) {
            // What is not committed cannot be any more, and keeping the pool open would not change that.
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

/// Whether a commit has failed, after which the pool takes no more changes.
fn is_suspended(pool: &Pool) -> bool {
    !pool.engine().read_only() && pool.engine().writable().is_err()
}

/// Who owns what is created.
pub(super) fn owner() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// Assignments in the words of the layer below.
pub(super) fn given_to_datasets(assignments: &[Assignment]) -> Vec<Given> {
    let given = |a: &Assignment| Given { property: a.name.clone(), value: a.value.clone() };
    assignments.iter().map(given).collect()
}
