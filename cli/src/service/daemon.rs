//! The service of one pool: the process that owns it, mounts its data sets and answers its commands.
//!
//! It ends when it was asked to shut down (export, destroy) and the pool could be unmounted and closed, or when a signal
//! says so; then it unmounts lazily what is in use, commits and leaves the pool known. If it is killed, the pool is what
//! the last commit left, its mounts are dead, and `pool import` brings everything back.
//!
//! Calls share the pool; shutting down waits for those under way, or with force cancels them.

use std::{
    fs, io,
    os::unix::{fs::PermissionsExt, net::UnixListener},
    path::Path,
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, RwLock};
use tracing_subscriber::EnvFilter;

use super::{
    places::{Places, prepare_parent},
    registry::{KnownPool, Registry},
    server::{self, End, Handler},
    spawn,
};
use crate::{
    execute::{Cancel, Job, OpenPool, Opening},
    failure::Failure,
    protocol::{Call, Progress, Request, Response, Stream},
};

/// How long an export waits for the calls under way.
const PATIENCE: Duration = Duration::from_secs(5);

/// Becomes the service of a known pool; returns when it has ended.
pub(super) fn serve(places: &Places, name: &str) -> Result<(), Failure> {
    // Without a terminal of its own; fails harmlessly for a process that has none already.
    let _ = rustix::process::setsid();
    log_to(&places.log(name))?;
    let started = start(places, name);
    let report = started.as_ref().map(drop).map_err(Clone::clone);
    if let Err(error) = spawn::report(&report) {
        tracing::warn!("whoever started this service has gone: {error}");
    }
    let (owned, listener) = started?;
    tracing::info!("pool '{name}' is being served");
    let ended = server::run(listener, owned.clone());
    // After a shutdown both are gone already.
    let _ = fs::remove_file(places.socket(name));
    let closed = owned.close_in_the_end();
    tracing::info!("pool '{name}' is closed: {ended:?}, {closed:?}");
    match ended {
        Ok(End::Shutdown | End::Signal) => closed,
        Err(error) => Err(Failure::cannot("serve", name, error)),
    }
}

/// Opens the pool, mounts its data sets and starts listening.
fn start(places: &Places, name: &str) -> Result<(Arc<Owned>, UnixListener), Failure> {
    let known = Registry::new(places.pools()).get(name)?.ok_or_else(|| Failure::no_pool(name))?;
    let pool = OpenPool::open(&known, &Opening { mounting: true, ..Opening::default() })?;
    // The pool is ours, so a socket that is there is nobody's.
    let listener = listen(&places.socket(name))?;
    mount(&pool, &known);
    Ok((Arc::new(Owned { pool: RwLock::new(Some(pool)), running: Mutex::default() }), listener))
}

/// A data set that cannot be mounted does not keep the others, or the pool, from being used.
fn mount(pool: &OpenPool, known: &KnownPool) {
    if known.no_mount {
        return;
    }
    if let Err(failure) = pool.mount_all() {
        tracing::error!("{failure}");
    }
}

fn listen(path: &Path) -> Result<UnixListener, Failure> {
    let failed = |error: io::Error| Failure::cannot("listen on", path.display(), error);
    prepare_parent(path)?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    // Until then the folder, which is closed to others, and the check of each peer keep them out.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
    Ok(listener)
}

/// Sends what this process has to say, its last words included, to a file.
fn log_to(path: &Path) -> Result<(), Failure> {
    let log = spawn::open_log(path)?;
    let filter = EnvFilter::try_from_env("CENOTE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_env_filter(filter).with_writer(Arc::new(log));
    // Another one is there only in a test's process.
    let _ = subscriber.try_init();
    std::panic::set_hook(Box::new(|defect| tracing::error!("a defect: {defect}")));
    Ok(())
}

/// The pool, until it is closed.
struct Owned {
    pool: RwLock<Option<OpenPool>>,
    running: Mutex<Vec<Cancel>>,
}

impl Handler for Owned {
    fn handle(
        &self,
        call: Call,
        stream: Option<Stream>,
        cancel: Cancel,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Response, Failure> {
        if let Request::Shutdown { force } = call.request {
            return self.shut_down(&call.command, force);
        }
        let stop = Cancel::default();
        self.running.lock().push(stop.clone());
        let guard = self.pool.read();
        let Some(pool) = &*guard else { return Err(Failure::new("the pool is being closed")) };
        let mut job = Job::new(vec![cancel, stop.clone()], progress);
        let result = pool.execute(&call.command, call.request, stream, &mut job);
        drop(guard);
        self.running.lock().retain(|running| !running.is(&stop));
        result
    }
}

impl Owned {
    /// Unmounts and closes the pool. If that is refused, everything goes on.
    fn shut_down(&self, command: &str, force: bool) -> Result<Response, Failure> {
        if force {
            self.running.lock().iter().for_each(Cancel::cancel);
        }
        let Some(mut guard) = self.pool.try_write_for(PATIENCE) else {
            let problem = "the pool is busy: another command is still running";
            return Err(Failure::new(problem).hint("wait for it, or use -f to interrupt it"));
        };
        let Some(pool) = &*guard else { return Err(Failure::new("the pool is being closed")) };
        pool.unmount_all(force)?;
        if command.contains(" export ") {
            pool.record(command);
        }
        guard.take().map_or(Ok(()), OpenPool::export).map(|()| Response::Done)
    }

    /// Closes the pool if nobody has, whatever is in use.
    fn close_in_the_end(&self) -> Result<(), Failure> {
        self.running.lock().iter().for_each(Cancel::cancel);
        let Some(pool) = self.pool.write().take() else { return Ok(()) };
        if let Err(failure) = pool.unmount_all(true) {
            tracing::warn!("{failure}");
        }
        pool.close()
    }
}
