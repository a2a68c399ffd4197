//! What commands know of pools: the [`Executor`] that finds each pool's owner.
//!
//! A pool whose service runs is asked over its socket. A pool that is only known is opened here, until this
//! command ends or rests: its changes are committed before each answer. So the same command works where there is no FUSE, no
//! terminal to survive, and nobody else.
//!
//! Pools of other users are asked over their sockets too, and never opened here. Which there are their index says: root's by
//! default, another user's where `CENOTE_STATE` and `CENOTE_RUN` lead there.
//!
//! A service is started where mounts are wanted and possible: by creating and importing pools, and by `fs mount`. It is
//! asked before the pool's lock is waited for, and again behind it: who had the lock may have started it (see `lock`).

use std::{
    io::{self, Write},
    path::PathBuf,
    time::Duration,
};

use dataset::{admin::Reader, name::Name};
use pool::inspect::Sink;
use protocol::{
    Call, Executor, Failure, HostRequest, HostResponse, Inspect, Kind, OnSaid, Permission, Request, Response, Stream,
    UnmountTarget, VdevSpec,
};

use super::{
    daemon, exposed,
    host::detach_dead_mounts,
    keeper::Devices,
    lock::{Held, LONG_PATIENCE, PATIENCE, PoolLock},
    places::Places,
    registry::{IndexedPool, KnownPool, Registry},
    socket, spawn, supervisor,
};
use crate::{
    execute::{Job, OpenPool, Opening},
    health::{Condition, unavailable},
};

/// Set to anything but nothing and `0`: nothing is mounted and no service is started.
const MOUNTLESS: &str = "CENOTE_MOUNTLESS";

/// Carries requests out wherever their pool is.
pub struct Client {
    pub(super) places: Places,
    pub(super) registry: Registry,
    /// The command line, for the pools' histories.
    pub(super) command: String,
    /// The pool that this command has opened.
    opened: Option<Opened>,
    /// The locks that it holds.
    held: Held,
}

struct Opened {
    known: KnownPool,
    pool: OpenPool,
    /// The devices when it was opened, or as they were noted in the registry last.
    noted: Devices,
    _lock: PoolLock,
}

impl Client {
    /// The pools of the user who runs this process.
    pub fn new(command: String) -> Client {
        let places = Places::of_this_user();
        Client { registry: Registry::of(&places), places, command, opened: None, held: Held::default() }
    }

    /// What is known of a pool of this user.
    pub(super) fn known(&self, pool: &str) -> Result<KnownPool, Failure> {
        if self.of_another(pool).is_some() {
            return Err(Failure::not_permitted_in(pool));
        }
        let known = self.registry.get(pool).map_err(|failure| unavailable(Condition::NotOpened, failure))?;
        known.ok_or_else(|| Failure::no_pool(pool))
    }

    /// Where the pool of that name is known, and what is said of it, if it is another user's.
    pub(super) fn of_another(&self, pool: &str) -> Option<(Places, IndexedPool)> {
        if self.registry.is_closed() {
            return Some((self.places.clone(), self.registry.indexed(pool)?));
        }
        if !matches!(self.registry.get(pool), Ok(None)) {
            return None;
        }
        let places = Places::of_the_system()?;
        let indexed = Registry::of(&places).indexed(pool)?;
        Some((places, indexed))
    }

    /// Asks the service of another user's pool.
    pub(super) fn ask_another(
        &self,
        (places, indexed): (&Places, &IndexedPool),
        request: Request,
        progress: OnSaid<'_>,
    ) -> Result<Response, Failure> {
        let pool = indexed.name.as_str();
        if request.traits().permission != Permission::Everyone {
            return Err(Failure::not_permitted_in(pool));
        }
        let Some(mut socket) = socket::connect(&places.socket(pool))? else {
            let hint = "its service is not running, and only the owner of the pool can start it";
            let failure = Failure::cannot("open", pool, "pool is unavailable").hint(hint);
            return Err(unavailable(Condition::NoService, failure));
        };
        let call = Call { command: self.command.clone(), process: None, user: None, request };
        socket::ask(&mut socket, pool, &call, None, progress)
    }

    /// Waits for other commands that have the pool open, or start or end its service.
    pub(super) fn lock(&self, pool: &str) -> Result<PoolLock, Failure> {
        self.lock_within(pool, PATIENCE)
    }

    fn lock_within(&self, pool: &str, patience: Duration) -> Result<PoolLock, Failure> {
        if let Some(lock) = self.held.find(pool) {
            return Ok(lock);
        }
        PoolLock::take(&self.places.lock(pool), pool, &self.command, patience).map(|lock| self.held.note(lock))
    }

    /// The pool's lock, if nobody has it.
    fn try_lock(&self, pool: &str) -> Option<PoolLock> {
        let take = || PoolLock::try_take(&self.places.lock(pool), pool, &self.command).ok().flatten();
        self.held.find(pool).or_else(|| take().map(|lock| self.held.note(lock)))
    }

    /// Closes what is open here of another pool: two commands must not wait for each other's lock.
    fn close_others(&mut self, pool: &str) -> Result<(), Failure> {
        let has_other = self.opened.as_ref().is_some_and(|opened| opened.known.name.as_str() != pool);
        if has_other { self.close_opened() } else { Ok(()) }
    }

    /// As [`Client::lock`], after what is open here of another pool was closed.
    pub(super) fn turn(&mut self, pool: &str) -> Result<PoolLock, Failure> {
        self.close_others(pool)?;
        self.lock(pool)
    }

    /// The same to note what the pool has done already.
    fn turn_to_note(&mut self, pool: &str) -> Result<PoolLock, Failure> {
        self.close_others(pool)?;
        self.lock_within(pool, LONG_PATIENCE)
    }

    /// The lock of a pool that has no service. No process starts one while the lock is held.
    pub(super) fn lock_unserved(&mut self, pool: &str) -> Result<Option<PoolLock>, Failure> {
        self.close_others(pool)?;
        let lock = match self.held.find(pool) {
            None => PoolLock::take_unless(&self.places.lock(pool), pool, &self.command, &|| self.is_served(pool))?,
            held => held,
        };
        Ok(lock.map(|lock| self.held.note(lock)).filter(|_| !self.is_served(pool)))
    }

    /// Whether mounting is possible and wanted, and if not, why.
    pub(super) fn can_mount(&self) -> Result<(), Option<String>> {
        let forced = std::env::var_os(MOUNTLESS).is_some_and(|value| !value.is_empty() && value != "0");
        if forced {
            return Err(None);
        }
        fuse_mount::available().map_err(|error| Some(error.to_string()))
    }

    /// Whether the pool's service answers, be it that it speaks another version. One that is being killed still accepts
    /// connections for a moment.
    pub(super) fn is_served(&self, pool: &str) -> bool {
        match self.ask(pool, &Request::Ping, &mut None, &mut |_| Ok(None)) {
            Ok(answer) => answer.is_some(),
            Err(failure) => failure.kind == Kind::OtherVersion,
        }
    }

    /// Whether the service of a pool that has none has crashed. One that ends by itself takes its socket along.
    fn has_crashed(&self, pool: &str) -> bool {
        self.places.socket(pool).exists()
    }

    /// Starts the service of the pool whose lock this is, if none runs. The pool must not be open here.
    pub(super) fn start_service(&self, lock: &PoolLock) -> Result<(), Failure> {
        if self.is_served(lock.pool()) {
            return Ok(());
        }
        spawn::start(&self.places, lock)
    }

    /// Has the service of a pool mount everything that is to be mounted.
    pub(super) fn have_mounted(&self, known: &KnownPool) -> Result<(), Failure> {
        if known.no_mount {
            return Ok(());
        }
        let mount = Request::Mount { name: None, options: Vec::new(), overlay: false };
        self.ask(known.name.as_str(), &mount, &mut None, &mut |_| Ok(None)).map(drop)
    }

    /// Opens a known pool here; it stays open until the command rests, ends, or opens another.
    pub(super) fn open(&mut self, known: KnownPool) -> Result<&OpenPool, Failure> {
        if self.opened.as_ref().is_none_or(|opened| opened.known != known) {
            self.close_opened()?;
            let lock = self.lock(known.name.as_str())?;
            let opened = OpenPool::open(&known, &Opening::default());
            let pool = opened.map_err(|failure| unavailable(Condition::NotOpened, failure))?;
            let noted = Devices::of(&pool);
            self.opened = Some(Opened { known, pool, noted, _lock: lock });
        }
        Ok(&self.opened.as_ref().expect("just opened").pool)
    }

    /// Whether this command has the pool open.
    pub(super) fn has_open(&self, known: &KnownPool) -> bool {
        self.opened.as_ref().is_some_and(|opened| opened.known == *known)
    }

    /// Takes the pool of that name, if it is open here.
    pub(super) fn take_opened(&mut self, pool: &str) -> Option<OpenPool> {
        let opened = self.opened.take_if(|opened| opened.known.name.as_str() == pool);
        opened.map(|opened| opened.pool)
    }

    /// Closes the pool that is open here.
    pub(super) fn close_opened(&mut self) -> Result<(), Failure> {
        self.opened.take().map_or(Ok(()), |opened| opened.pool.close())
    }

    /// Asks the service of a pool; `None` if none runs.
    pub(super) fn ask(
        &self,
        pool: &str,
        request: &Request,
        stream: &mut Option<Stream>,
        said: OnSaid<'_>,
    ) -> Result<Option<Response>, Failure> {
        let Some(mut socket) = socket::connect(&self.places.socket(pool))? else { return Ok(None) };
        let call = Call { command: self.command.clone(), process: None, user: None, request: request.clone() };
        socket::ask(&mut socket, pool, &call, stream.take(), said).map(Some)
    }

    pub(super) fn call_pool(
        &mut self,
        mut known: KnownPool,
        request: Request,
        mut stream: Option<Stream>,
        said: OnSaid<'_>,
    ) -> Result<Response, Failure> {
        let pool = known.name.to_string();
        let mounts = matches!(request, Request::Mount { .. } | Request::MountAt { .. });
        // Held until the pool is open here.
        let mut lock = None;
        if !self.has_open(&known) {
            if let Some(response) = self.ask(&pool, &request, &mut stream, said)? {
                return Ok(response);
            }
            // Another command, or a supervisor, may be about to start the service, or to end it.
            if mounts && self.can_mount().is_ok() {
                let lock = self.turn(&pool)?;
                known = self.known(&pool)?;
                let started = self.start_to_mount(&lock, &known);
                started.map_err(|failure| unavailable(Condition::NotOpened, failure))?;
                if self.has_mounted(&pool, &request) {
                    return self.mount_as_asked(&known, &request);
                }
            }
            lock = self.lock_unserved(&pool)?;
            known = self.known(&pool)?;
            if lock.is_none()
                && let Some(response) = self.ask(&pool, &request, &mut stream, said)?
            {
                return Ok(response);
            }
            if let (Request::Mount { name, .. }, Err(Some(reason))) = (&request, self.can_mount()) {
                let what = name.as_ref().map_or(pool, ToString::to_string);
                return Err(Failure::cannot("mount", what, reason).hint("use fs ls, fs cat and fs cp"));
            }
        }
        let command = self.command.clone();
        let shows_mounts = matches!(request, Request::Mounts);
        let lacks_service = self.can_mount().is_ok();
        let opened = self.open(known)?;
        drop(lock);
        let reader = Reader { command: command.clone(), process: Some(std::process::id()), user: None };
        let answer = opened.execute(&command, request, stream, &mut Job::new(Vec::new(), said).of(reader));
        match answer {
            answer if !lacks_service => answer,
            Err(failure) if mounts || failure.is_not_mounted() => Err(failure.hint(Failure::unserved(pool))),
            answer => {
                if shows_mounts && answer.is_ok() {
                    // Without standard error there is nobody to tell.
                    let _ = writeln!(io::stderr(), "note: {}", Failure::unserved(pool));
                }
                answer
            }
        }
    }

    /// Starts a service for `fs mount`, whose request follows. After a crash, every mount comes back first, as the supervisor
    /// would make it. The supervisor then finds a service and does nothing.
    fn start_to_mount(&mut self, lock: &PoolLock, known: &KnownPool) -> Result<(), Failure> {
        if self.is_served(lock.pool()) {
            return Ok(());
        }
        self.close_opened()?;
        let has_crashed = self.has_crashed(lock.pool());
        if has_crashed {
            detach_dead_mounts(lock.pool());
        }
        self.start_service(lock)?;
        if has_crashed && let Err(failure) = self.have_mounted(known) {
            // Without standard error there is nobody to tell.
            let _ = writeln!(io::stderr(), "note: the service of '{}' had crashed: {failure}", known.name);
        }
        Ok(())
    }

    /// Whether what is to be mounted has come back with the service.
    fn has_mounted(&self, pool: &str, request: &Request) -> bool {
        let Ok(Some(Response::Mounts(mounts))) = self.ask(pool, &Request::Mounts, &mut None, &mut |_| Ok(None)) else {
            return false;
        };
        mounts.iter().any(|mount| match request {
            Request::Mount { name: Some(name), .. } => mount.dataset.as_str() == name.as_str(),
            Request::MountAt { name, directory, .. } => mount.dataset == *name && mount.mountpoint == *directory,
            _ => false,
        })
    }

    /// Mounts what has come back with the service as it was before, as it is asked for now.
    fn mount_as_asked(&self, known: &KnownPool, request: &Request) -> Result<Response, Failure> {
        let target = match request {
            Request::Mount { name: Some(name), options, .. } if !options.is_empty() => Name::Dataset(name.clone()),
            Request::MountAt { name, .. } => name.clone(),
            _ => return Ok(Response::Done),
        };
        let unmount = Request::Unmount { target: Some(UnmountTarget::Dataset(target)), force: false };
        let ask = |request: &Request| {
            let answer = self.ask(known.name.as_str(), request, &mut None, &mut |_| Ok(None))?;
            answer.ok_or_else(|| Failure::new(Failure::unserved(&known.name)))
        };
        ask(&unmount)?;
        let answer = ask(request);
        // What lies in it was unmounted, too.
        answer.and_then(|answer| self.have_mounted(known).map(|()| answer))
    }

    /// Notes the devices of the pool that is open here, which a request may have changed. A service does so by itself.
    fn note_devices(&mut self) -> Result<(), Failure> {
        let Some(Opened { known, pool, noted, .. }) = &self.opened else { return Ok(()) };
        let (name, devices) = (known.name.to_string(), Devices::of(pool));
        if devices.paths == noted.paths {
            return Ok(());
        }
        let lock = self.turn_to_note(&name)?;
        if let (Some(known), Some(opened)) = (devices.note(&self.registry, &lock)?, self.opened.as_mut()) {
            // It is the same pool still, and the next request finds it by what is known of it.
            (opened.known, opened.noted) = (known, devices);
        }
        Ok(())
    }

    /// Notes the state of a pool for other users, unless a command has the pool that may be about to forget it.
    pub(super) fn note_state(&self, pool: &str, state: &str) {
        if self.registry.indexed(pool).is_none_or(|indexed| indexed.state != state)
            && let Some(lock) = self.try_lock(pool)
        {
            self.registry.note_state(&lock, state);
        }
    }

    /// The names of this user's pools.
    fn own_pools(&self) -> Result<Vec<String>, Failure> {
        let names = self.registry.names()?;
        for name in self.registry.lingering(&names) {
            let Some(lock) = self.try_lock(&name).filter(|_| matches!(self.registry.get(&name), Ok(None))) else {
                continue;
            };
            if let Err(failure) = self.registry.remove(&lock) {
                tracing::warn!("{failure}");
            }
        }
        Ok(names)
    }
}

/// The files and devices that a request gives to a pool and that were there before. New images are closed.
fn given_images(request: &Request) -> Vec<PathBuf> {
    let existing: Vec<&VdevSpec> = match request {
        Request::AddVdevs { vdevs, spares, dry_run: false, .. } => {
            vdevs.iter().flat_map(|vdev| &vdev.devices).chain(spares).collect()
        }
        Request::Attach { new, .. } => vec![new],
        _ => Vec::new(),
    };
    let existing = existing.into_iter().filter(|spec| spec.create.is_none());
    existing.map(|spec| PathBuf::from(spec.path.as_os_str())).collect()
}

impl Executor for Client {
    fn known_pools(&mut self) -> Result<Vec<String>, Failure> {
        self.own_pools()
    }

    fn visible_pools(&mut self) -> Result<Vec<String>, Failure> {
        let mut names = self.own_pools()?;
        let of_the_system = Places::of_the_system().and_then(|places| Registry::of(&places).names().ok());
        names.extend(of_the_system.unwrap_or_default());
        names.sort();
        names.dedup();
        Ok(names)
    }

    fn host(&mut self, request: HostRequest, progress: OnSaid<'_>) -> Result<HostResponse, Failure> {
        self.carry_out(request, progress)
    }

    fn call(
        &mut self,
        pool: &str,
        request: Request,
        stream: Option<Stream>,
        said: OnSaid<'_>,
    ) -> Result<Response, Failure> {
        if matches!(request, Request::Pool { .. } | Request::Status) {
            return self.show(pool, &request, said);
        }
        if let Some((places, indexed)) = self.of_another(pool) {
            return self.ask_another((&places, &indexed), request, said);
        }
        let known = self.known(pool)?;
        let given = given_images(&request);
        let response = self.call_pool(known, request, stream, said)?;
        exposed::warn(given.into_iter());
        self.note_devices()?;
        Ok(response)
    }

    fn rest(&mut self) -> Result<(), Failure> {
        self.close_opened()
    }

    fn inspect(&mut self, what: &Inspect, sink: Sink<'_>) -> Result<(), Failure> {
        self.look_into(what, sink)
    }

    fn serve(&mut self, pool: &str, supervised: bool) -> Result<(), Failure> {
        if supervised { supervisor::supervise(self, pool) } else { daemon::serve(&self.places, pool) }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Every answer was committed before it was given; what fails here was told to nobody as done.
        if let Err(failure) = self.close_opened() {
            tracing::warn!("{failure}");
        }
    }
}
