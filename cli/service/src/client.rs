//! How commands reach pools: the [`Client`] finds the owner of each pool.
//!
//! If a service runs for the pool, requests go over its socket. A pool that is known but not served is opened here,
//! until this command ends or rests; its changes are committed before each answer. So the same command works without
//! FUSE, without a terminal that ends before the pool does, and without any other process.
//!
//! Pools of other users are also asked over their sockets, and are never opened here. The index of the other user
//! names the pools: by default root's, or another user's if `CENOTE_STATE` and `CENOTE_RUN` point there.
//!
//! A service is started where mounts are wanted and possible: by pool creation and import, and by `fs mount`. A
//! command looks for the service before waiting for the pool's lock, and again with the lock held: the previous
//! holder may have started the service (see `lock`).

use std::{
    io::{self, Write},
    time::Duration,
};

use dataset::{error::Reader, name::Name};
use protocol::{
    Call, Failure, Kind, MountRequest, OnSaid, Permission, Request, Response, ServiceRequest, State, Stream,
    UnmountTarget,
};

use super::{
    dead_mounts::detach_dead_mounts,
    keeper::Devices,
    lock::{Held, LONG_PATIENCE, PATIENCE, PoolLock},
    piped::{Copier, Piped},
    places::Places,
    registry::{IndexedPool, KnownPool, Registry},
    server::may_ask_everything,
    socket, spawn,
};
use crate::{
    execute::{Job, OpenPool, Opening},
    health::{Condition, unavailable},
};

/// If set, neither empty nor `0`: no mounts and no services.
const MOUNTLESS: &str = "CENOTE_MOUNTLESS";

/// Executes requests in the process that has the pool open.
pub struct Client {
    pub(super) places: Places,
    pub(super) registry: Registry,
    /// The command line, as recorded in the history of each pool.
    pub(super) command: String,
    /// The user for whom requests are made; `None` for the user of this process.
    pub(super) acting: Option<u32>,
    /// The pool opened by this command.
    opened: Option<Opened>,
    /// The locks held by this command.
    held: Held,
}

struct Opened {
    known: KnownPool,
    pool: OpenPool,
    /// The devices at open, or as last noted in the registry.
    noted: Devices,
    _lock: PoolLock,
}

impl Client {
    /// An executor for the pools of the current user.
    pub fn new(command: String) -> Client {
        Client::acting(command, None)
    }

    /// An executor that makes requests for `user` where a service runs, with no more than the user's permissions, and
    /// opens no pool.
    pub fn acting(command: String, user: Option<u32>) -> Client {
        let places = Places::of_this_user();
        let registry = Registry::of(&places);
        Client { registry, places, command, acting: user, opened: None, held: Held::default() }
    }

    /// Whether requests are made for another user than the owner of this process.
    pub(super) fn acts_for_another(&self) -> bool {
        self.acting.is_some_and(|user| !may_ask_everything(user, rustix::process::geteuid().as_raw()))
    }

    /// The registry's entry of a pool of this user.
    pub(super) fn known(&self, pool: &str) -> Result<KnownPool, Failure> {
        if self.of_another(pool).is_some() {
            return Err(Failure::not_permitted_in(pool));
        }
        let known = self.registry.get(pool).map_err(|failure| unavailable(Condition::NotOpened, failure))?;
        known.ok_or_else(|| Failure::no_pool(pool))
    }

    /// If the named pool belongs to another user: the state folders of the pool, and its index entry.
    pub(super) fn of_another(&self, pool: &str) -> Option<(Places, IndexedPool)> {
        if self.registry.is_closed() || self.acting.is_some() {
            return Some((self.places.clone(), self.registry.indexed(pool)?));
        }
        if !matches!(self.registry.get(pool), Ok(None)) {
            return None;
        }
        let places = Places::of_the_system()?;
        let indexed = Registry::of(&places).indexed(pool)?;
        Some((places, indexed))
    }

    /// Asks the service of another user's pool; an error if no service runs.
    pub(super) fn ask_another(
        &self,
        (places, indexed): (&Places, &IndexedPool),
        request: Request,
        stream: Option<Stream>,
        progress: OnSaid<'_>,
    ) -> Result<Response, Failure> {
        let pool = indexed.name.as_str();
        let is_own = self.acting.is_some() && !self.acts_for_another();
        if request.traits().permission == Permission::Owner && !is_own {
            return Err(Failure::not_permitted_in(pool));
        }
        let Some(mut socket) = socket::connect(&places.socket(pool))? else {
            let hint = "its service is not running, and only the owner of the pool can start it";
            let failure = Failure::cannot("open", pool, "pool is unavailable").hint(hint);
            return Err(unavailable(Condition::NoService, failure));
        };
        let on_behalf = self.acting.filter(|_| !is_own);
        let call = Call { on_behalf, ..Call::new(self.command.as_str(), request) };
        if is_own {
            return socket::ask(&mut socket, pool, &call, stream, progress);
        }
        let piped = stream.map(|stream| Piped::new(stream, &call.request)).transpose()?;
        let (stream, copier) = piped.map_or((None, None), |piped| (Some(piped.pipe), piped.copier));
        let answer = socket::ask_another(&mut socket, pool, &call, stream, progress);
        match (answer, copier.map(Copier::finish)) {
            (Ok(_), Some(Err(failure))) => Err(failure),
            (answer, _) => answer,
        }
    }

    /// Takes the pool's lock. Waits for other commands that have the pool open, or start or end its service.
    pub(super) fn lock(&self, pool: &str) -> Result<PoolLock, Failure> {
        self.lock_within(pool, PATIENCE)
    }

    fn lock_within(&self, pool: &str, patience: Duration) -> Result<PoolLock, Failure> {
        if let Some(lock) = self.held.find(pool) {
            return Ok(lock);
        }
        PoolLock::take(&self.places.lock(pool), pool, &self.command, patience).map(|lock| self.held.note(lock))
    }

    /// Takes the pool's lock if the lock is free.
    fn try_lock(&self, pool: &str) -> Option<PoolLock> {
        let take = || PoolLock::try_take(&self.places.lock(pool), pool, &self.command).ok().flatten();
        self.held.find(pool).or_else(|| take().map(|lock| self.held.note(lock)))
    }

    /// Closes any other pool opened here: otherwise two commands could wait for each other's lock.
    fn close_others(&mut self, pool: &str) -> Result<(), Failure> {
        let has_other = self.opened.as_ref().is_some_and(|opened| opened.known.name.as_str() != pool);
        if has_other { self.close_opened() } else { Ok(()) }
    }

    /// As [`Client::lock`], after closing any other pool opened here.
    pub(super) fn turn(&mut self, pool: &str) -> Result<PoolLock, Failure> {
        self.close_others(pool)?;
        self.lock(pool)
    }

    /// As [`Client::turn`], to note a change that the pool has already made.
    fn turn_to_note(&mut self, pool: &str) -> Result<PoolLock, Failure> {
        self.close_others(pool)?;
        self.lock_within(pool, LONG_PATIENCE)
    }

    /// Takes the lock of a pool without a service; `None` if a service runs. No process starts a service while the
    /// lock is held.
    pub(super) fn lock_unserved(&mut self, pool: &str) -> Result<Option<PoolLock>, Failure> {
        self.close_others(pool)?;
        let lock = match self.held.find(pool) {
            None => PoolLock::take_unless(&self.places.lock(pool), pool, &self.command, &|| self.is_served(pool))?,
            held => held,
        };
        Ok(lock.map(|lock| self.held.note(lock)).filter(|_| !self.is_served(pool)))
    }

    /// Whether mounting is possible and wanted. The error has the obstacle; `None` if mounting is unwanted.
    pub(super) fn can_mount(&self) -> Result<(), Option<String>> {
        let forced = std::env::var_os(MOUNTLESS).is_some_and(|value| !value.is_empty() && value != "0");
        if forced {
            return Err(None);
        }
        fuse_mount::available().map_err(|error| Some(error.to_string()))
    }

    /// Whether the pool's service answers, even if the answer cannot be read. A service that is being killed still
    /// accepts connections for a moment, so only an answer counts.
    pub(super) fn is_served(&self, pool: &str) -> bool {
        match self.ask(pool, ServiceRequest::Ping, &mut None, &mut |_| Ok(None)) {
            Ok(answer) => answer.is_some(),
            Err(failure) => matches!(failure.kind, Kind::OtherVersion | Kind::Undecodable),
        }
    }

    /// Whether the service of an unserved pool has crashed. A service that ends normally removes its socket.
    fn has_crashed(&self, pool: &str) -> bool {
        self.places.socket(pool).exists()
    }

    /// Starts the service of the locked pool, if none runs. The pool must not be open here.
    pub(super) fn start_service(&self, lock: &PoolLock) -> Result<(), Failure> {
        if self.is_served(lock.pool()) {
            return Ok(());
        }
        spawn::start(&self.places, lock)
    }

    /// Asks the service of a pool to mount all its datasets.
    pub(super) fn have_mounted(&self, known: &KnownPool) -> Result<(), Failure> {
        if known.no_mount {
            return Ok(());
        }
        let mount = MountRequest::Mount { name: None, options: Vec::new(), overlay: false };
        self.ask(known.name.as_str(), mount, &mut None, &mut |_| Ok(None)).map(drop)
    }

    /// Opens a known pool here, until the command rests, ends, or opens another pool.
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

    /// Takes the opened pool out, if its name is `pool`.
    pub(super) fn take_opened(&mut self, pool: &str) -> Option<OpenPool> {
        let opened = self.opened.take_if(|opened| opened.known.name.as_str() == pool);
        opened.map(|opened| opened.pool)
    }

    /// Closes the pool opened here, if any.
    pub(super) fn close_opened(&mut self) -> Result<(), Failure> {
        self.opened.take().map_or(Ok(()), |opened| opened.pool.close())
    }

    /// Asks the service of a pool; `None` if none runs.
    pub(super) fn ask(
        &self,
        pool: &str,
        request: impl Into<Request>,
        stream: &mut Option<Stream>,
        said: OnSaid<'_>,
    ) -> Result<Option<Response>, Failure> {
        let Some(mut socket) = socket::connect(&self.places.socket(pool))? else { return Ok(None) };
        let call = Call::new(self.command.clone(), request);
        socket::ask(&mut socket, pool, &call, stream.take(), said).map(Some)
    }

    /// Asks the service of a pool of this user, or opens the pool here, as this user.
    pub(super) fn call_pool(
        &mut self,
        mut known: KnownPool,
        request: Request,
        mut stream: Option<Stream>,
        said: OnSaid<'_>,
    ) -> Result<Response, Failure> {
        assert!(self.acting.is_none(), "a request for a user is made as that user, by its service");
        let pool = known.name.to_string();
        let mounts = matches!(request, Request::Mount(MountRequest::Mount { .. } | MountRequest::MountAt { .. }));
        // Held until the pool is open here.
        let mut lock = None;
        if !self.has_open(&known) {
            if let Some(response) = self.ask(&pool, request.clone(), &mut stream, said)? {
                return Ok(response);
            }
            // Another command, or a supervisor, may just be starting or ending the service.
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
                && let Some(response) = self.ask(&pool, request.clone(), &mut stream, said)?
            {
                return Ok(response);
            }
            if let (Request::Mount(MountRequest::Mount { name, .. }), Err(Some(reason))) = (&request, self.can_mount())
            {
                let what = name.as_ref().map_or(pool, ToString::to_string);
                return Err(Failure::cannot("mount", what, reason).hint("use fs ls, fs cat and fs cp"));
            }
        }
        let command = self.command.clone();
        let shows_mounts = matches!(request, Request::Mount(MountRequest::Mounts));
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
                    // Without standard error the note is lost.
                    let _ = writeln!(io::stderr(), "note: {}", Failure::unserved(pool));
                }
                answer
            }
        }
    }

    /// Starts a service for `fs mount`; the mount request follows. After a crash, all mounts are restored first, as
    /// the supervisor would do. The supervisor then finds a service and does nothing.
    fn start_to_mount(&mut self, lock: &PoolLock, known: &KnownPool) -> Result<(), Failure> {
        if self.is_served(lock.pool()) {
            return Ok(());
        }
        self.close_opened()?;
        let has_crashed = self.has_crashed(lock.pool());
        if has_crashed {
            detach_dead_mounts(&self.registry, lock.pool());
        }
        self.start_service(lock)?;
        if has_crashed && let Err(failure) = self.have_mounted(known) {
            // Without standard error the note is lost.
            let _ = writeln!(io::stderr(), "note: the service of '{}' had crashed: {failure}", known.name);
        }
        Ok(())
    }

    /// Whether the requested mount was restored together with the service.
    fn has_mounted(&self, pool: &str, request: &Request) -> bool {
        let Ok(Some(Response::Mounts(mounts))) = self.ask(pool, MountRequest::Mounts, &mut None, &mut |_| Ok(None))
        else {
            return false;
        };
        mounts.iter().any(|mount| match request {
            Request::Mount(MountRequest::Mount { name: Some(name), .. }) => mount.dataset.as_str() == name.as_str(),
            Request::Mount(MountRequest::MountAt { name, directory, .. }) => {
                mount.dataset == *name && mount.mountpoint == *directory
            }
            _ => false,
        })
    }

    /// Replaces a mount restored with the service by the requested mount, which may have other options or another
    /// directory.
    fn mount_as_asked(&self, known: &KnownPool, request: &Request) -> Result<Response, Failure> {
        let target = match request {
            Request::Mount(MountRequest::Mount { name: Some(name), options, .. }) if !options.is_empty() => {
                Name::Dataset(name.clone())
            }
            Request::Mount(MountRequest::MountAt { name, .. }) => name.clone(),
            _ => return Ok(Response::Done),
        };
        let unmount = MountRequest::Unmount { target: Some(UnmountTarget::Dataset(target)), force: false };
        let ask = |request: Request| {
            let answer = self.ask(known.name.as_str(), request, &mut None, &mut |_| Ok(None))?;
            answer.ok_or_else(|| Failure::new(Failure::unserved(&known.name)))
        };
        ask(unmount.into())?;
        let answer = ask(request.clone());
        // The unmount included the datasets mounted inside.
        answer.and_then(|answer| self.have_mounted(known).map(|()| answer))
    }

    /// Notes the devices of the pool opened here, which a request may have changed. A service notes its devices
    /// itself.
    pub(super) fn note_devices(&mut self) -> Result<(), Failure> {
        let Some(Opened { known, pool, noted, .. }) = &self.opened else { return Ok(()) };
        let (name, devices) = (known.name.to_string(), Devices::of(pool));
        if devices.paths == noted.paths {
            return Ok(());
        }
        let lock = self.turn_to_note(&name)?;
        if let (Some(known), Some(opened)) = (devices.note(&self.registry, &lock)?, self.opened.as_mut()) {
            // The pool is still the same, and the next request compares the pool with its registry entry.
            (opened.known, opened.noted) = (known, devices);
        }
        Ok(())
    }

    /// Records a pool's state in the index, unless another command holds the pool's lock and may be about to remove
    /// the entry.
    pub(super) fn note_state(&self, pool: &str, state: State) {
        if self.registry.indexed(pool).is_none_or(|indexed| indexed.state != state)
            && let Some(lock) = self.try_lock(pool)
        {
            self.registry.note_state(&lock, state);
        }
    }

    /// The names of this user's pools, sorted.
    pub(super) fn own_pools(&self) -> Result<Vec<String>, Failure> {
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

impl Drop for Client {
    fn drop(&mut self) {
        // Answers are given after their commit, so a failure here loses only changes never reported as done.
        if let Err(failure) = self.close_opened() {
            tracing::warn!("{failure}");
        }
    }
}
