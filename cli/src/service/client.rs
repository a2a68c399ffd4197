//! What commands know of pools: the [`Executor`] that finds each pool's owner.
//!
//! A pool whose service runs is asked over its socket. A pool that is only known is opened here, until this
//! command ends or rests: its changes are committed before each answer. So the same command works where there is no FUSE, no
//! terminal to survive, and nobody else.
//!
//! A service is started where mounts are wanted and possible: by creating and importing pools, and by `fs mount`.

use std::io::{self, Write};

use pool::inspect::Sink;

use super::{
    daemon,
    lock::PoolLock,
    places::Places,
    registry::{KnownPool, Registry},
    socket, spawn,
};
use crate::{
    execute::{Job, OpenPool, Opening},
    failure::Failure,
    health::{Condition, unavailable},
    protocol::{
        Call, Executor, HostRequest, HostResponse, Inspect, OnProgress, RemovalPlan, Request, Response, Stream,
    },
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
}

struct Opened {
    known: KnownPool,
    pool: OpenPool,
    _lock: PoolLock,
}

impl Client {
    /// The pools of the user who runs this process.
    pub fn new(command: String) -> Client {
        let places = Places::of_this_user();
        Client { registry: Registry::new(places.pools()), places, command, opened: None }
    }

    /// What is known of a pool.
    pub(super) fn known(&self, pool: &str) -> Result<KnownPool, Failure> {
        let known = self.registry.get(pool).map_err(|failure| unavailable(Condition::NotOpened, failure))?;
        known.ok_or_else(|| Failure::no_pool(pool))
    }

    /// Waits for other commands that have the pool open.
    pub(super) fn lock(&self, pool: &str) -> Result<PoolLock, Failure> {
        PoolLock::take(&self.places.lock(pool), pool, &self.command)
    }

    /// Whether mounting is possible and wanted, and if not, why.
    pub(super) fn can_mount(&self) -> Result<(), Option<String>> {
        let forced = std::env::var_os(MOUNTLESS).is_some_and(|value| !value.is_empty() && value != "0");
        if forced {
            return Err(None);
        }
        fuse_mount::available().map_err(|error| Some(error.to_string()))
    }

    /// Whether the pool's service answers. One that is being killed still accepts connections for a moment.
    pub(super) fn is_served(&self, pool: &str) -> bool {
        matches!(self.ask(pool, &Request::Ping, &mut None, &mut |_| {}), Ok(Some(_)))
    }

    /// Starts the service of a known pool, if none runs. The pool must not be open here.
    pub(super) fn start_service(&self, pool: &str) -> Result<(), Failure> {
        let _lock = self.lock(pool)?;
        if self.is_served(pool) {
            return Ok(());
        }
        spawn::start(&self.places, pool)
    }

    /// Opens a known pool here; it stays open until the command rests, ends, or opens another.
    pub(super) fn open(&mut self, known: KnownPool) -> Result<&OpenPool, Failure> {
        if self.opened.as_ref().is_none_or(|opened| opened.known != known) {
            self.close_opened()?;
            let lock = self.lock(known.name.as_str())?;
            let opened = OpenPool::open(&known, &Opening::default());
            let pool = opened.map_err(|failure| unavailable(Condition::NotOpened, failure))?;
            self.opened = Some(Opened { known, pool, _lock: lock });
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
        progress: OnProgress<'_>,
    ) -> Result<Option<Response>, Failure> {
        let Some(mut socket) = socket::connect(&self.places.socket(pool))? else { return Ok(None) };
        let call = Call { command: self.command.clone(), request: request.clone() };
        socket::ask(&mut socket, pool, &call, stream.take(), progress).map(Some)
    }

    pub(super) fn call_pool(
        &mut self,
        known: KnownPool,
        request: Request,
        mut stream: Option<Stream>,
        progress: OnProgress<'_>,
    ) -> Result<Response, Failure> {
        let pool = known.name.to_string();
        if !self.has_open(&known) {
            if let Some(response) = self.ask(&pool, &request, &mut stream, progress)? {
                return Ok(response);
            }
            // Another command may just have started the service; it holds the lock until that is done.
            drop(self.lock(&pool)?);
            if matches!(request, Request::Mount { .. } | Request::MountAt { .. }) && self.can_mount().is_ok() {
                let started = self.start_without_mounting(&known);
                started.map_err(|failure| unavailable(Condition::NotOpened, failure))?;
            }
            if let Some(response) = self.ask(&pool, &request, &mut stream, progress)? {
                return Ok(response);
            }
            if let (Request::Mount { name, .. }, Err(Some(reason))) = (&request, self.can_mount()) {
                let what = name.as_ref().map_or(pool, ToString::to_string);
                return Err(Failure::cannot("mount", what, reason).hint("files are reached by fs ls, fs cat and fs cp"));
            }
        }
        let command = self.command.clone();
        let mounts = matches!(request, Request::Mount { .. } | Request::MountAt { .. });
        let shows_mounts = matches!(request, Request::Mounts);
        let lacks_service = self.can_mount().is_ok();
        let opened = self.open(known)?;
        let answer = opened.execute(&command, request, stream, &mut Job::new(Vec::new(), progress));
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

    /// Starts a service for `fs mount`, which then mounts what it was asked for and nothing else.
    pub(super) fn start_without_mounting(&mut self, known: &KnownPool) -> Result<(), Failure> {
        self.close_opened()?;
        self.registry.put(&KnownPool { no_mount: true, ..known.clone() })?;
        let started = self.start_service(known.name.as_str());
        self.registry.put(known)?;
        started
    }

    /// The devices of a pool have become more.
    fn note_devices(&mut self, known: KnownPool, layout: &[String]) -> Result<(), Failure> {
        let devices = layout.iter().map(|path| std::path::PathBuf::from(path).into()).collect();
        let noted = KnownPool { devices, ..known.clone() };
        self.registry.put(&noted)?;
        // One that is open here is the same pool still, and the next request finds it by what is known of it.
        if let Some(opened) = self.opened.as_mut().filter(|opened| opened.known == known) {
            opened.known = noted;
        }
        Ok(())
    }
}

impl Executor for Client {
    fn known_pools(&mut self) -> Result<Vec<String>, Failure> {
        self.registry.names()
    }

    fn host(&mut self, request: HostRequest, progress: OnProgress<'_>) -> Result<HostResponse, Failure> {
        self.carry_out(request, progress)
    }

    fn call(
        &mut self,
        pool: &str,
        request: Request,
        stream: Option<Stream>,
        progress: OnProgress<'_>,
    ) -> Result<Response, Failure> {
        if matches!(request, Request::Pool { .. } | Request::Status) {
            return self.show(pool, &request, progress);
        }
        let known = self.known(pool)?;
        let changes = matches!(
            request,
            Request::AddVdevs { dry_run: false, .. }
                | Request::Attach { .. }
                | Request::Detach { .. }
                | Request::WaitForRemoval
                | Request::WaitForExpansion
        );
        let response = self.call_pool(known.clone(), request, stream, progress)?;
        match &response {
            Response::Layout(layout) if changes => self.note_devices(known, &layout.paths())?,
            Response::Removal(RemovalPlan { left: Some(layout), .. }) => self.note_devices(known, &layout.paths())?,
            Response::Split(split) => self.note_devices(known, &split.layout.paths())?,
            _ => {}
        }
        Ok(response)
    }

    fn rest(&mut self) -> Result<(), Failure> {
        self.close_opened()
    }

    fn inspect(&mut self, what: &Inspect, sink: Sink<'_>) -> Result<(), Failure> {
        self.look_into(what, sink)
    }

    fn serve(&mut self, pool: &str) -> Result<(), Failure> {
        daemon::serve(&self.places, pool)
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
