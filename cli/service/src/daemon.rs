//! The service of one pool: the process that owns the pool, mounts its datasets and answers its commands.
//!
//! The service opens the pool and listens. The command or supervisor that started the service then asks for the
//! mounts. If the starting process is gone, the service mounts by itself.
//!
//! The service ends after a request to shut down (export, destroy), if the pool could be unmounted and closed, or
//! after a signal. On a signal the service unmounts busy file systems lazily, commits, and leaves the pool known. If
//! the service is killed, the pool has the state of the last commit, its mounts are dead, and `pool import` restores
//! everything.
//!
//! Once the pool was taken out to be closed, the service ends whether or not closing succeeds. Its socket is removed
//! while the pool is still held: a command that finds no socket may open the pool soon, and a socket found later
//! belongs to the next service.
//!
//! Calls share the pool. A shutdown waits for running calls, or cancels the calls with force.

use std::{
    env, fs, io,
    os::unix::{fs::PermissionsExt, net::UnixListener},
    path::{Path, PathBuf},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use dataset::{admin::Caller, error::Reader, property::OwnerKind};
use parking_lot::{Mutex, RwLock};
use pool::txg::Engine;
use protocol::{Call, Failure, OnSaid, Request, Response, ServiceRequest, Stream};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::{
    alerts,
    hooks::{self, OfPool},
    hygiene, journald,
    keeper::{self, Devices},
    notify,
    places::{Places, prepare_closed, prepare_shared},
    registry::Registry,
    server::{self, End, Handler},
    spawn,
};
use crate::{
    execute::{
        Cancel, Job, OpenPool, Opening,
        delegated::{judgement, restricted},
        refusal,
    },
    owners,
};

/// How long an export, or the end after a signal, waits for running calls.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long `pool export --abandon` waits for a last commit, in case the pool can still write.
const LAST_CHANCE: Duration = Duration::from_secs(2);

/// The longest recorded command line of another user, in characters.
const LONGEST_COMMAND: usize = 4096;

/// Runs the service of a known pool; returns when the service has ended.
pub(super) fn serve(places: &Places, name: &str) -> Result<(), Failure> {
    hygiene::settle();
    log_to(&places.log(name))?;
    let started = start(places, name);
    let report = started.as_ref().map(drop).map_err(Clone::clone);
    let reported = spawn::report(&report);
    let (owned, listener) = started?;
    tracing::info!("pool '{name}' is being served");
    if let Err(error) = reported {
        tracing::warn!("the command that has started this service is gone: {error}");
        // The starting process is gone and cannot ask for the mounts.
        if Registry::of(places).get(name)?.is_some_and(|known| !known.no_mount) {
            owned.mount_all();
        }
    }
    let ended = server::run(listener, owned.clone());
    let closed = owned.close_in_the_end();
    hooks::end_all();
    tracing::info!("pool '{name}' is closed: {ended:?}, {closed:?}");
    match ended {
        Ok(End::Shutdown | End::Signal) => closed,
        Err(error) => Err(Failure::cannot("serve", name, error)),
    }
}

/// Opens the pool and listens on its socket.
fn start(places: &Places, name: &str) -> Result<(Arc<Owned>, UnixListener), Failure> {
    let known = Registry::of(places).get(name)?.ok_or_else(|| Failure::no_pool(name))?;
    let pool = OpenPool::open(&known, &Opening { mounting: true, ..Opening::default() })?;
    // This process owns the pool, so an existing socket is stale.
    let listener = listen(&places.socket(name))?;
    pool.remember_mounts_in(Registry::of(places).mounts(name));
    attach_events(places, &pool, name)?;
    let owned = Owned {
        engine: Arc::downgrade(pool.engine()),
        name: name.to_owned(),
        places: places.clone(),
        noted: Mutex::new(Devices::of(&pool)),
        pool: RwLock::new(Some(pool)),
        running: Mutex::default(),
        socket: places.socket(name),
        abandoned: AtomicBool::new(false),
    };
    let owned = Arc::new(owned);
    keeper::start(Arc::downgrade(&owned));
    alerts::start(Arc::downgrade(&owned));
    Ok((owned, listener))
}

/// Continues the pool's log of events, and starts hooks and notifications. A pool without these is served all the same.
fn attach_events(places: &Places, pool: &OpenPool, name: &str) -> Result<(), Failure> {
    let log = places.events(pool.guid());
    prepare_closed(&log)?;
    let of_pool = OfPool { name: name.to_owned(), guid: pool.guid() };
    let hooks = hooks::start(places.hooks(), of_pool.clone());
    let hooks = hooks.inspect_err(|error| tracing::warn!("no event hook will run: {error}"));
    let journal = journald::start(of_pool.clone());
    let journal = journal.inspect_err(|error| tracing::warn!("no event will be in the journal: {error}"));
    let messages = notify::start(places.notify(), of_pool);
    let messages = messages.inspect_err(|error| tracing::warn!("no notification will be sent: {error}"));
    pool.attach_events(log, hooks.into_iter().chain(messages).chain(journal.ok().flatten()).collect());
    Ok(())
}

fn listen(path: &Path) -> Result<UnixListener, Failure> {
    let failed = |error: io::Error| Failure::cannot("listen on", path.display(), error);
    prepare_shared(path)?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    // Every user may connect; each call is authorized separately.
    fs::set_permissions(path, fs::Permissions::from_mode(0o666)).map_err(failed)?;
    Ok(listener)
}

/// Redirects this process's messages, panics included, to a file.
pub(super) fn log_to(path: &Path) -> Result<(), Failure> {
    let log = spawn::open_log(path)?;
    let wanted = env::var("CENOTE_LOG").ok().filter(|levels| !levels.is_empty()).and_then(|levels| levels.parse().ok());
    let filter = wanted.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO));
    let all = tracing_subscriber::fmt().with_ansi(false).with_max_level(LevelFilter::TRACE).with_writer(Arc::new(log));
    // A subscriber exists already only in a test's process.
    let _ = all.finish().with(filter).try_init();
    std::panic::set_hook(Box::new(|defect| tracing::error!("a defect: {defect}")));
    Ok(())
}

/// The pool of a service, until the pool is closed.
pub(super) struct Owned {
    pub(super) pool: RwLock<Option<OpenPool>>,
    /// The running calls: how to cancel each, and its caller.
    running: Mutex<Vec<(Cancel, Reader)>>,
    socket: PathBuf,
    /// For requests that must work while calls wait with the pool locked.
    engine: Weak<Engine>,
    pub(super) name: String,
    pub(super) places: Places,
    /// The devices at open, or as last noted in the registry.
    pub(super) noted: Mutex<Devices>,
    /// The pool was given up, though a blocked call still holds the pool.
    abandoned: AtomicBool,
}

/// The caller, as shown to the owner of the pool.
fn reader(call: &Call) -> Reader {
    let name = |user| owners::names(OwnerKind::User).remove(&user).unwrap_or_else(|| user.to_string());
    let user = call.user.filter(|user| *user != rustix::process::geteuid().as_raw()).map(name);
    // The command line of another user is private and not kept.
    let command = if user.is_some() { String::new() } else { call.command.clone() };
    Reader { command, process: call.process, user }
}

/// The caller, unless the caller is the owner of this service or root.
fn caller(call: &Call) -> Option<Caller> {
    let user = call.user.filter(|user| !server::may_ask_everything(*user, rustix::process::geteuid().as_raw()))?;
    // No user has this number: see chown(2).
    let group = call.group.unwrap_or(u32::MAX);
    Some(Caller { user, group, groups: owners::groups_of(user, group) })
}

/// The command line for the history and the events. Text of other users might control a terminal, or take much memory.
fn recorded(call: &Call, caller: Option<&Caller>) -> String {
    let plain = |c: char| if c.is_control() { '?' } else { c };
    caller.map_or_else(|| call.command.clone(), |_| call.command.chars().take(LONGEST_COMMAND).map(plain).collect())
}

/// A running call. Dropping this removes the call from the list, also after a panic.
struct Running<'a> {
    all: &'a Mutex<Vec<(Cancel, Reader)>>,
    stop: Cancel,
}

impl Running<'_> {
    fn begin(all: &Mutex<Vec<(Cancel, Reader)>>, reader: Reader) -> Running<'_> {
        let stop = Cancel::default();
        all.lock().push((stop.clone(), reader));
        Running { all, stop }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.all.lock().retain(|(running, _)| !running.is(&self.stop));
    }
}

impl Handler for Owned {
    fn handle(
        &self,
        call: Call,
        stream: Option<Stream>,
        cancel: Cancel,
        said: OnSaid<'_>,
    ) -> Result<Response, Failure> {
        match call.request {
            Request::Service(ServiceRequest::Shutdown { force, export }) => {
                return self.shut_down(force, export.then_some(call.command.as_str()));
            }
            Request::Service(ServiceRequest::Abandon) => return self.abandon(),
            _ => {}
        }
        let caller = caller(&call);
        let command = recorded(&call, caller.as_ref());
        let reader = reader(&call);
        let running = Running::begin(&self.running, reader.clone());
        let guard = self.pool.read();
        let Some(pool) = &*guard else { return Err(Failure::new("the pool is being closed")) };
        let mut job = Job::new(vec![cancel, running.stop.clone()], said).of(reader);
        let answer = match caller {
            None => pool.execute(&command, call.request, stream, &mut job),
            Some(caller) => pool.permit(&call.request, &caller).and_then(|()| {
                let request = restricted(call.request);
                judgement(&request, caller).during(|| pool.execute(&command, request, stream, &mut job))
            }),
        };
        drop(guard);
        self.note_after_call();
        answer
    }

    fn permit(&self, call: &Call) -> Result<(), Failure> {
        let Some(caller) = caller(call) else { return Ok(()) };
        self.refusal().map_or(Ok(()), Err)?;
        let guard = self.pool.read();
        let Some(pool) = &*guard else { return Err(Failure::new("the pool is being closed")) };
        pool.permit(&call.request, &caller)
    }

    fn pool(&self) -> &str {
        &self.name
    }

    fn stalled(&self) -> Option<Failure> {
        self.refusal()
    }

    fn has_ended(&self) -> bool {
        // If the pool is locked, a call is using the pool or still closing the pool.
        self.abandoned.load(Ordering::Acquire) || self.pool.try_read().is_some_and(|pool| pool.is_none())
    }
}

impl Owned {
    /// The failure of requests that a suspended pool cannot serve; `None` if the pool is not suspended.
    fn refusal(&self) -> Option<Failure> {
        refusal(&*self.engine.upgrade()?, &self.name)
    }

    /// Mounts all datasets. A failure is logged and stops neither the other mounts nor the use of the pool.
    fn mount_all(&self) {
        // The mounts log their failures.
        let _ = self.pool.read().as_ref().map(OpenPool::mount_all);
    }

    /// Cancels the running calls.
    fn interrupt(&self) {
        self.running.lock().iter().for_each(|(stop, _)| stop.cancel());
    }

    /// Gives up unwritten changes and ends the service. Calls that wait for a device get an error. Calls that ignore
    /// even the error do not keep the service alive.
    fn abandon(&self) -> Result<Response, Failure> {
        let Some(engine) = self.engine.upgrade() else { return Err(Failure::new("the pool is being closed")) };
        let is_written = matches!(engine.commit_within(LAST_CHANCE), Ok(Some(_)));
        let response = if is_written { Response::Done } else { Response::GivenUp(engine.committed().0) };
        if !is_written {
            engine.abandon();
        }
        drop(engine);
        self.interrupt();
        let guard = self.pool.try_write_for(PATIENCE);
        self.abandoned.store(true, Ordering::Release);
        let Some(mut guard) = guard else {
            self.remove_socket();
            return Ok(response);
        };
        if let Some(pool) = &*guard
            && let Err(failure) = pool.unmount_all(true)
        {
            tracing::warn!("{failure}");
        }
        self.remove_socket();
        if let Some(Err(failure)) = guard.take().map(OpenPool::export) {
            tracing::warn!("{failure}");
        }
        Ok(response)
    }

    /// Unmounts and closes the pool. `command`, if any, is recorded in the pool's history. If unmounting is refused,
    /// the service continues; after that point the service ends in any case.
    fn shut_down(&self, force: bool, command: Option<&str>) -> Result<Response, Failure> {
        self.refusal().map_or(Ok(()), Err)?;
        if force {
            self.interrupt();
        }
        let Some(mut guard) = self.pool.try_write_for(PATIENCE) else {
            let running = self.running.lock().first().map(|(_, reader)| reader.to_string());
            let problem = format!("the pool is busy: {} is still running", running.as_deref().unwrap_or("a command"));
            return Err(Failure::new(problem).hint("wait for the command, or use -f to interrupt it"));
        };
        let Some(pool) = &*guard else { return Err(Failure::new("the pool is being closed")) };
        pool.unmount_all(force)?;
        if let Some(command) = command {
            pool.record(command);
        }
        self.remove_socket();
        guard.take().map_or(Ok(()), OpenPool::export).map(|()| Response::Done)
    }

    /// Keeps new calls away. Call only while the pool is held: otherwise the socket may belong to the pool's next
    /// service.
    fn remove_socket(&self) {
        if let Err(error) = fs::remove_file(&self.socket) {
            tracing::warn!("cannot remove {}: {error}", self.socket.display());
        }
    }

    /// Closes the pool if still open, even if file systems are busy. A call that ignores its cancellation does not
    /// keep the process alive; the pool then has the state of its last commit.
    fn close_in_the_end(&self) -> Result<(), Failure> {
        self.interrupt();
        if let Some(engine) = self.engine.upgrade().filter(|engine| engine.suspension().is_suspended()) {
            engine.abandon();
        }
        let Some(mut guard) = self.pool.try_write_for(PATIENCE) else {
            return Err(Failure::new("a command is still running; the pool keeps the state of its last commit"));
        };
        let Some(pool) = guard.take() else { return Ok(()) };
        pool.keep_mounts_in_mind();
        self.remove_socket();
        if let Err(failure) = pool.unmount_all(true) {
            tracing::warn!("{failure}");
        }
        pool.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_text_of_another_user_is_short_and_plain() {
        let command = format!("fs \u{1b}[2J{}", "x".repeat(20_000));
        let call = Call::new(command, ServiceRequest::Ping);
        let text = recorded(&call, Some(&Caller::default()));
        assert!(text.starts_with("fs ?[2Jxx") && text.len() == LONGEST_COMMAND, "{}", text.len());
        assert_eq!(recorded(&call, None), call.command);
    }

    #[test]
    fn a_call_of_another_user_is_known_by_process_and_user() {
        let own = rustix::process::geteuid().as_raw();
        let call = |user| Call {
            command: "fs get x".into(),
            process: Some(7),
            user: Some(user),
            group: None,
            on_behalf: None,
            request: ServiceRequest::Ping.into(),
        };
        assert_eq!(reader(&call(own)).to_string(), "'fs get x' (process 7)");
        let other = reader(&call(own ^ 0x7fff_0000)).to_string();
        assert!(other.starts_with("process 7 of user ") && !other.contains("fs get"), "{other}");
    }
}
