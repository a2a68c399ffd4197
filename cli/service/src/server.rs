//! The listening side of a service's socket.
//!
//! A connection carries one call, its progress, and one result. Every user may connect. Each call is authorized by
//! the peer's uid, as the kernel reports the uid: the owner of the service and root may ask everything; all remaining
//! users, within the limits of `visitors`, what is [open to everyone](Permission::Everyone) and what is
//! [delegated](Permission::Delegated) to them. A connection without a request is dropped after `CALL_TIMEOUT`. A peer's disconnect during its call cancels the call. A waiting peer
//! hears every second that the service is alive.
//!
//! Only the waiting for peers is asynchronous. A [`Handler`] executes calls synchronously, each on a thread of its
//! own.
//!
//! # A call that panics
//!
//! A panic ends the work of its thread. The peer gets an answer that reports a defect, and the service continues. No
//! lock is poisoned, which is sound because no data behind a lock is left half changed. Calls change data in batches,
//! which are collected first and applied at once. A panic during collection leaves the tree unchanged. A panic while
//! a batch is applied closes the pool to changes before the tree's lock is released (`pool::txg::Head::update`). A
//! panic of the committing thread does the same. Further resources of a call (its place among the running calls, the
//! pool, open files) are released as its stack unwinds.
//!
//! A stack overflow cannot be caught. So no code reachable from a call recurses over user data, and the stack size of
//! the threads does not depend on the system.

use std::{io, os::fd::AsFd, os::unix::net::UnixListener, sync::Arc, time::Duration};

use protocol::{
    Call, Failure, OnSaid, Permission, Reply, Response, Said, Stream, Suspended, frame,
    version::{self, Foreign, VERSION},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, Interest},
    net::{UnixStream, unix::UCred},
    runtime::{Builder, Runtime},
    select,
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc::{self, error::TrySendError},
    task::{JoinHandle, spawn_blocking},
    time::{Instant, interval, interval_at, sleep, timeout},
};

use super::{
    piped::is_pipe,
    reserve::Reserve,
    visitors::{self, Leaving, Visit, Visitors},
};
use crate::{execute::Cancel, owners};

/// Time limit for a peer to send its request.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// How many replies may queue in memory for the peer. When the queue is full, progress is dropped and parts wait.
const REPLIES: usize = 16;

/// Stack size, in bytes, of a thread that executes a call. Unused pages take no memory.
const STACK: usize = 8 << 20;

/// Time limit for running calls to notice that the service ends.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval of the messages that tell a waiting peer that the service is alive.
const BEAT: Duration = Duration::from_secs(1);

/// Interval of attempts to refill the reserve of file descriptors.
const REFILL: Duration = Duration::from_secs(1);

/// Interval of checks whether the running calls are stalled.
const GLANCE: Duration = Duration::from_millis(250);

/// Executes the calls of a service.
pub trait Handler: Send + Sync + 'static {
    /// Executes one call. The server runs each call on a thread of its own, so the call may block.
    fn handle(&self, call: Call, stream: Option<Stream>, cancel: Cancel, said: OnSaid<'_>)
    -> Result<Response, Failure>;

    /// Fails if the caller lacks a permission for the request. May block.
    fn permit(&self, call: &Call) -> Result<(), Failure>;

    /// The name of the served pool.
    fn pool(&self) -> &str;

    /// The failure to answer while a running call may block for ever. The call continues, and its result is
    /// discarded.
    fn stalled(&self) -> Option<Failure> {
        None
    }

    /// Whether the service has nothing left to serve. True after a shutdown call went past the point of no return,
    /// even if the call failed.
    fn has_ended(&self) -> bool;
}

/// The reason for the end of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A shutdown call has closed the pool.
    Shutdown,
    /// A signal from the system or a user asked for the end.
    Signal,
}

/// Listens until a shutdown call has closed the pool or a signal arrives.
pub fn run(listener: UnixListener, handler: Arc<dyn Handler>) -> io::Result<End> {
    let runtime = Builder::new_current_thread().thread_stack_size(STACK).enable_all().build()?;
    let end = runtime.block_on(listen(listener, handler));
    Runtime::shutdown_timeout(runtime, END_TIMEOUT);
    end
}

async fn listen(listener: UnixListener, handler: Arc<dyn Handler>) -> io::Result<End> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::UnixListener::from_std(listener)?;
    let (ended, mut end) = mpsc::channel(1);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // SIGHUP is ignored: a service outlives its terminal.
    let _hangup: Signal = signal(SignalKind::hangup())?;
    let mut reserve = Reserve::default();
    reserve.fill();
    let mut refill = interval(REFILL);
    let desk = Desk { handler, ended, visitors: Arc::default(), in_need: false, count: Arc::default() };
    loop {
        select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let desk = Desk { in_need: !reserve.is_full(), ..desk.clone() };
                    tokio::spawn(connection(stream, desk));
                }
                Err(error) if reserve.yield_to(&error) => {
                    tracing::warn!("the service has no descriptors left: it gives up those that it keeps for commands");
                }
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    sleep(Duration::from_millis(100)).await;
                }
            },
            // Running calls may still need the free descriptors, so the refill waits until no connection is left.
            _ = refill.tick(), if !reserve.is_full() => if Arc::strong_count(&desk.count) == 1 { reserve.fill() },
            _ = end.recv() => return Ok(End::Shutdown),
            _ = terminate.recv() => return Ok(End::Signal),
            _ = interrupt.recv() => return Ok(End::Signal),
        }
    }
}

/// State shared by all connections.
#[derive(Clone)]
struct Desk {
    handler: Arc<dyn Handler>,
    ended: mpsc::Sender<()>,
    visitors: Arc<Visitors>,
    /// Few descriptors are left; only the owner's calls are served.
    in_need: bool,
    /// The reference count is the number of connections plus one.
    count: Arc<()>,
}

/// Serves one connection. An error of the connection itself affects only the peer and is logged at debug level.
async fn connection(mut socket: UnixStream, desk: Desk) {
    let served = async {
        let peer = socket.peer_cred()?;
        let user = peer.uid();
        let owner = rustix::process::geteuid().as_raw();
        if !may_ask_everything(user, owner) {
            let visit = if desk.in_need { None } else { desk.visitors.enter(user) };
            return visited(&mut socket, &desk.handler, visit, &peer).await;
        }
        let (call, stream) = timeout(CALL_TIMEOUT, read_call(&mut socket, frame::MAX_CALL)).await??;
        let mut call = match call {
            Ok(call) => call,
            Err(foreign) => return write_reply(&mut socket, &undecoded(&*desk.handler, foreign)).await,
        };
        note_peer(&mut call, &peer);
        if let Some(user) = call.on_behalf.take() {
            return match peer.uid() == owner {
                true => on_behalf(&mut socket, &desk, call, user).await,
                false => write_reply(&mut socket, &Reply::Failed(Failure::not_permitted())).await,
            };
        }
        let Desk { handler, ended, visitors, .. } = &desk;
        let is_shutdown = call.request.traits().ends_service;
        if is_shutdown {
            visitors.cancel_all();
        }
        let carried_out = carry_out(&mut socket, handler.clone(), call, stream, Default::default()).await;
        // Checked even if the call failed, or its peer has gone.
        let is_end = is_shutdown && handler.has_ended();
        let written = match carried_out {
            Ok((result, _)) => write_reply(&mut socket, &result.map_or_else(Reply::Failed, Reply::Done)).await,
            Err(broken) => Err(broken),
        };
        if is_end {
            // Sending fails only if the end was already announced.
            let _ = ended.send(()).await;
        }
        written
    };
    if let Err(error) = served.await {
        tracing::debug!("a connection ended early: {error}");
    }
}

/// Notes in a call its process, its user and group, as the kernel reports the peer.
fn note_peer(call: &mut Call, peer: &UCred) {
    call.process = peer.pid().and_then(|process| u32::try_from(process).ok());
    call.user = Some(peer.uid());
    call.group = Some(peer.gid());
}

/// Whether a peer may ask everything: the owner of the service, and root.
pub(super) fn may_ask_everything(peer: u32, owner: u32) -> bool {
    peer == owner || peer == 0
}

/// Serves a connection of another user; `visit` is `None` if there are too many visitors.
async fn visited(
    socket: &mut UnixStream,
    handler: &Arc<dyn Handler>,
    visit: Option<Visit>,
    peer: &UCred,
) -> io::Result<()> {
    let Some(visit) = visit else {
        return write_reply(socket, &Reply::Failed(Failure::too_many_calls())).await;
    };
    // No descriptor is received with the call, and the kernel drops a descriptor that was sent. Closing a received
    // descriptor here could block for ever on a file system served by the sender.
    let mut call = match timeout(CALL_TIMEOUT, read_call_alone(socket)).await?? {
        Ok(call) => call,
        Err(foreign) => return write_reply(socket, &undecoded(&**handler, foreign)).await,
    };
    note_peer(&mut call, peer);
    if call.on_behalf.is_some() {
        return write_reply(socket, &Reply::Failed(Failure::not_permitted())).await;
    }
    serve_visit(socket, handler, visit, call).await
}

/// Serves a call that the owner's web page makes for another user, who gets no more than over a connection of the
/// user's own.
async fn on_behalf(socket: &mut UnixStream, desk: &Desk, mut call: Call, user: u32) -> io::Result<()> {
    let visit = if desk.in_need { None } else { desk.visitors.enter(user) };
    let Some(visit) = visit else {
        return write_reply(socket, &Reply::Failed(Failure::too_many_calls())).await;
    };
    (call.user, call.group) = (Some(user), owners::group_of(user));
    serve_visit(socket, &desk.handler, visit, call).await
}

/// Serves the call of another user, with the user's number in the call.
async fn serve_visit(
    socket: &mut UnixStream,
    handler: &Arc<dyn Handler>,
    mut visit: Visit,
    call: Call,
) -> io::Result<()> {
    let permission = call.request.traits().permission;
    if permission == Permission::Owner {
        return write_reply(socket, &Reply::Failed(Failure::not_permitted())).await;
    }
    if permission == Permission::Delegated && !visit.last(call.request.traits().needs_stream) {
        return write_reply(socket, &Reply::Failed(Failure::too_many_calls())).await;
    }
    let cancel = visit.cancel.clone();
    let _leaving = Leaving(cancel.clone());
    let (visit, stream) = match call.request.traits().needs_stream {
        false => (visit, None),
        true => match timeout(visitors::PATIENCE, ask_for_stream(socket, handler, &call, visit)).await?? {
            Ok((visit, stream)) => (visit, Some(stream)),
            Err(failure) => return write_reply(socket, &Reply::Failed(failure)).await,
        },
    };
    let work = carry_out(socket, handler.clone(), call, stream, (cancel, Some(visit)));
    let (result, _visit) = match permission {
        Permission::Everyone => timeout(visitors::PATIENCE, work).await??,
        // A stream, or a walk through many files, takes its time.
        Permission::Delegated | Permission::Owner => work.await?,
    };
    // An answer takes memory until the peer has read it, and the visitor's place for as long.
    let reply = result.map_or_else(Reply::Failed, |response| Reply::Done(response.for_all()));
    timeout(visitors::PATIENCE, write_reply(socket, &reply)).await?
}

/// Asks another user for the stream of a request that the user may make. Only a pipe is accepted: on a file of another
/// kind, reading, writing and closing could block for ever or act with this process's rights.
async fn ask_for_stream(
    socket: &mut UnixStream,
    handler: &Arc<dyn Handler>,
    call: &Call,
    visit: Visit,
) -> io::Result<Result<(Visit, Stream), Failure>> {
    let (judge, judged) = (handler.clone(), call.clone());
    // The place of the visitor is taken until the catalogue has been read.
    let permitted = spawn_blocking(move || (judge.permit(&judged), visit)).await;
    let visit = match permitted {
        Ok((Ok(()), visit)) => visit,
        Ok((Err(failure), _)) => return Ok(Err(failure)),
        Err(_) => return Ok(Err(panicked())),
    };
    write_reply(socket, &Reply::Stream).await?;
    let peer = socket.as_fd().try_clone_to_owned()?;
    // Looking at a descriptor and closing a surplus one could block for ever on a file system served by the sender: on
    // a thread of their own, which keeps the place of the visitor.
    let received = spawn_blocking(move || {
        let limit = Timespec { tv_sec: CALL_TIMEOUT.as_secs() as i64, tv_nsec: 0 };
        poll(&mut [PollFd::new(&peer, PollFlags::IN)], Some(&limit))?;
        match frame::receive(peer.as_fd(), &mut [0])? {
            (1, Some(stream)) if is_pipe(&stream) => Ok(Some((visit, stream))),
            (_, stream) => {
                drop((stream, visit));
                Ok(None)
            }
        }
    });
    match received.await {
        Ok(Ok(Some(received))) => Ok(Ok(received)),
        Ok(Ok(None)) => Ok(Err(Failure::new("the stream of another user must be a pipe"))),
        Ok(Err(error)) => Err(error),
        Err(_) => Ok(Err(panicked())),
    }
}

/// Reads a call of another user, without room for a descriptor.
async fn read_call_alone(socket: &mut UnixStream) -> io::Result<Result<Call, Foreign>> {
    let mut header = [0; frame::HEADER];
    socket.read_exact(&mut header).await?;
    read_body(socket, header, visitors::MAX_CALL).await
}

async fn read_call(socket: &mut UnixStream, max: usize) -> io::Result<(Result<Call, Foreign>, Option<Stream>)> {
    let mut header = [0; frame::HEADER];
    let (count, stream) = socket.async_io(Interest::READABLE, || frame::receive(socket.as_fd(), &mut header)).await?;
    if count == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    socket.read_exact(&mut header[count..]).await?;
    Ok((read_body(socket, header, max).await?, stream))
}

async fn read_body(
    socket: &mut UnixStream,
    header: [u8; frame::HEADER],
    max: usize,
) -> io::Result<Result<Call, Foreign>> {
    let len = frame::body_len(header, max)?;
    let mut body = Vec::new();
    socket.take(len as u64).read_to_end(&mut body).await?;
    version::decode(&body, len)
}

/// The answer to a call that cannot be decoded, mostly of another protocol version.
fn undecoded(handler: &dyn Handler, Foreign(program): Foreign) -> Reply {
    let own = std::env::current_exe().unwrap_or_default();
    let service = version::Service {
        pool: handler.pool(),
        process: std::process::id(),
        version: Some(VERSION),
        program: &own.display().to_string(),
    };
    Reply::Failed(service.refuses(program))
}

async fn write_reply(socket: &mut UnixStream, reply: &Reply) -> io::Result<()> {
    let frame = match frame::encode(reply, frame::MAX_REPLY) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            let failure = Failure::new("the answer is too large").hint("ask for a part of it");
            frame::encode(&Reply::Failed(failure), frame::MAX_REPLY)?
        }
        frame => frame?,
    };
    socket.write_all(&frame).await
}

/// Executes a call and passes on its progress; returns the visit with the result. An error is an error of the
/// connection; the call was then cancelled.
async fn carry_out(
    socket: &mut UnixStream,
    handler: Arc<dyn Handler>,
    call: Call,
    stream: Option<Stream>,
    (cancel, visit): (Cancel, Option<Visit>),
) -> io::Result<(Result<Response, Failure>, Option<Visit>)> {
    let (sender, mut receiver) = mpsc::channel(REPLIES);
    let on_thread = cancel.clone();
    let may_stall = call.request.traits().suspended != Suspended::Answered;
    let watched = handler.clone();
    let mut glance = interval(GLANCE);
    let mut beat = interval_at(Instant::now() + BEAT, BEAT);
    let mut work: JoinHandle<(Result<Response, Failure>, Option<Visit>)> = spawn_blocking(move || {
        let mut said = |said| match sender.try_send(said) {
            // Progress is dropped when the peer reads too slowly.
            Ok(()) | Err(TrySendError::Full(Said::Progress(_)) | TrySendError::Closed(Said::Progress(_))) => Ok(None),
            Err(TrySendError::Full(part)) => Ok(Some(part)),
            Err(TrySendError::Closed(_)) => Err(Failure::new("interrupted")),
        };
        let done = handler.handle(call, stream, on_thread, &mut said);
        (done, visit)
    });
    let mut was_stalled = false;
    loop {
        let broken = select! {
            done = &mut work => {
                // Queued progress is sent before the result.
                while let Ok(said) = receiver.try_recv() {
                    write_reply(socket, &Reply::Said(said)).await?;
                }
                return Ok(done.unwrap_or_else(|_| (Err(panicked()), None)));
            }
            _ = glance.tick(), if may_stall => match watched.stalled() {
                // Work without a device finishes before the next check, so the first stalled check is ignored.
                Some(failure) if std::mem::replace(&mut was_stalled, true) => return Ok((Err(failure), None)),
                Some(_) => None,
                None => { was_stalled = false; None }
            },
            _ = beat.tick() => write_reply(socket, &Reply::Alive).await.err(),
            Some(said) = receiver.recv() => write_reply(socket, &Reply::Said(said)).await.err(),
            gone = wait_until_gone(socket) => Some(gone),
        };
        if let Some(error) = broken {
            cancel.cancel();
            // The peer is gone, so the result is dropped.
            drop(work.await);
            return Err(error);
        }
    }
}

fn panicked() -> Failure {
    Failure::new("internal error in the pool's service").hint("see the log of the service, and pool status")
}

/// Returns when the peer has disconnected, or has sent more bytes, which violates the protocol.
async fn wait_until_gone(socket: &UnixStream) -> io::Error {
    loop {
        if let Err(error) = socket.readable().await {
            return error;
        }
        match socket.try_read(&mut [0]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return error,
            Ok(0) => return io::ErrorKind::UnexpectedEof.into(),
            Ok(_) => return io::ErrorKind::InvalidData.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        os::unix::net::UnixStream as Peer,
        thread,
    };

    use parking_lot::Mutex;
    use protocol::{Kind, MountRequest, PoolRequest, Progress, Request, ServiceRequest};

    use super::*;
    use crate::socket;

    /// Answers pings, echoes a stream in upper case, and blocks in sync until cancelled.
    #[derive(Default)]
    struct Echo {
        cancelled: Mutex<bool>,
        ended: Mutex<bool>,
    }

    impl Handler for Echo {
        fn handle(
            &self,
            call: Call,
            stream: Option<Stream>,
            cancel: Cancel,
            said: OnSaid<'_>,
        ) -> Result<Response, Failure> {
            match call.request {
                Request::Pool(PoolRequest::Sync) => {
                    while !cancel.is_cancelled() {
                        said(Said::Progress(Progress { what: "waiting".into(), done: 1, total: None }))?;
                        thread::sleep(Duration::from_millis(5));
                    }
                    *self.cancelled.lock() = true;
                    Err(Failure::new("interrupted"))
                }
                Request::Pool(PoolRequest::IoCounters) => {
                    std::fs::File::from(stream.expect("one was sent")).write_all(call.command.as_bytes()).unwrap();
                    Ok(Response::Done)
                }
                Request::Pool(PoolRequest::Status) => panic!("a defect"),
                Request::Service(ServiceRequest::Ping) => Ok(Response::Done),
                // With force, the shutdown fails after the point of no return.
                Request::Service(ServiceRequest::Shutdown { force, .. }) => {
                    *self.ended.lock() = true;
                    if force { Err(Failure::new("failed")) } else { Ok(Response::Done) }
                }
                _ => Err(Failure::new("no")),
            }
        }

        fn permit(&self, _: &Call) -> Result<(), Failure> {
            Ok(())
        }

        fn pool(&self) -> &str {
            "tank"
        }

        fn has_ended(&self) -> bool {
            *self.ended.lock()
        }
    }

    struct Service {
        folder: tempfile::TempDir,
        handler: Arc<Echo>,
        thread: thread::JoinHandle<io::Result<End>>,
    }

    impl Service {
        fn start() -> Service {
            let folder = tempfile::tempdir().unwrap();
            let listener = UnixListener::bind(folder.path().join("s")).unwrap();
            let handler = Arc::new(Echo::default());
            let served = handler.clone();
            Service { folder, handler, thread: thread::spawn(move || run(listener, served)) }
        }

        fn ask(&self, request: impl Into<Request>, stream: Option<Stream>) -> Result<Response, Failure> {
            let call = Call::new("hello", request);
            let mut peer = self.connect();
            socket::ask(&mut peer, "tank", &call, stream, &mut |_| Ok(None))
        }

        fn connect(&self) -> Peer {
            Peer::connect(self.folder.path().join("s")).unwrap()
        }

        fn end(self) {
            assert_eq!(self.ask(ServiceRequest::Shutdown { force: false, export: false }, None), Ok(Response::Done));
            assert_eq!(self.thread.join().unwrap().unwrap(), End::Shutdown);
        }
    }

    #[test]
    fn calls_are_answered_until_shutdown() {
        let service = Service::start();
        assert_eq!(service.ask(ServiceRequest::Ping, None), Ok(Response::Done));
        assert_eq!(service.ask(MountRequest::Mounts, None), Err(Failure::new("no")));
        assert_eq!(service.ask(ServiceRequest::Ping, None), Ok(Response::Done));
        service.end();
    }

    #[test]
    fn a_shutdown_that_fails_on_the_way_is_an_end_too() {
        let service = Service::start();
        assert_eq!(
            service.ask(ServiceRequest::Shutdown { force: true, export: false }, None),
            Err(Failure::new("failed"))
        );
        assert_eq!(service.thread.join().unwrap().unwrap(), End::Shutdown);
    }

    #[test]
    fn a_stream_goes_straight_to_the_peers_file() {
        let service = Service::start();
        let (mut reader, writer) = std::io::pipe().unwrap();
        assert_eq!(service.ask(PoolRequest::IoCounters, Some(writer.into())), Ok(Response::Done));
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
        service.end();
    }

    #[test]
    fn a_peer_that_goes_away_cancels_its_call() {
        let service = Service::start();
        let mut peer = service.connect();
        let call = Call::new("", PoolRequest::Sync);
        frame::send(&mut peer, &version::encode(&call).unwrap(), None).unwrap();
        let mut heard = || frame::read(&mut peer, frame::MAX_REPLY).unwrap();
        // On a busy machine the first reply may be `Alive`.
        let first = std::iter::from_fn(&mut heard).find(|reply| *reply != Reply::Alive);
        assert!(matches!(first, Some(Reply::Said(Said::Progress(_)))));
        drop(peer);
        while !*service.handler.cancelled.lock() {
            thread::sleep(Duration::from_millis(5));
        }
        service.end();
    }

    #[test]
    fn garbage_ends_its_own_connection_only() {
        let service = Service::start();
        for garbage in [&b"\xff\xff\xff\xff"[..], b"\x02\0\0\0{]", b"\x01", b"GET / HTTP/1.1\r\n\r\n"] {
            let mut peer = service.connect();
            peer.write_all(garbage).unwrap();
            peer.shutdown(std::net::Shutdown::Write).unwrap();
            let mut rest = Vec::new();
            // A reset is an end, too.
            let _ = peer.read_to_end(&mut rest);
            assert_eq!(rest, b"");
        }
        service.end();
    }

    #[test]
    fn a_program_of_another_version_gets_an_explanation() {
        let service = Service::start();
        let older = version::before_versions().unwrap();
        let newer = frame::encode(&serde_json::json!({ "version": VERSION + 1, "call": "x" }), 1000).unwrap();
        for (frame, age) in [(older, "a newer"), (newer, "an older")] {
            let mut peer = service.connect();
            peer.write_all(&frame).unwrap();
            let Some(Reply::Failed(failure)) = frame::read(&mut peer, frame::MAX_REPLY).unwrap() else { panic!() };
            let process = std::process::id();
            let expected = format!(
                "cannot use 'tank': its service (process {process}) runs {age} version of Cenote than this program"
            );
            assert_eq!((failure.to_string(), failure.kind), (expected, Kind::OtherVersion));
        }
        service.end();
    }

    #[test]
    fn a_service_from_before_versions_is_recognised() {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("s")).unwrap();
        let served = thread::spawn(move || {
            for _ in 0..2 {
                let (mut peer, _) = listener.accept().unwrap();
                // The peer decodes a call, and closes the connection if the bytes are no call of its time.
                let Ok(Some(call)) = frame::read::<serde_json::Value>(&mut peer, frame::MAX_CALL) else { continue };
                if call["request"] != "Ping" {
                    continue;
                }
                peer.write_all(&frame::encode(&Reply::Done(Response::Done), 1000).unwrap()).unwrap();
            }
        });
        let mut peer = Peer::connect(folder.path().join("s")).unwrap();
        let call = Call::new("hello", PoolRequest::Sync);
        let failure = socket::ask(&mut peer, "tank", &call, None, &mut |_| Ok(None)).unwrap_err();
        assert_eq!(failure.kind, Kind::OtherVersion);
        assert!(failure.to_string().contains("runs an older version of Cenote than this program"), "{failure}");
        served.join().unwrap();
    }

    #[test]
    fn an_answer_that_cannot_be_read_is_no_other_version() {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("s")).unwrap();
        let served = thread::spawn(move || {
            let (mut peer, _) = listener.accept().unwrap();
            let mut header = [0; frame::HEADER];
            peer.read_exact(&mut header).unwrap();
            let mut body = vec![0; frame::body_len(header, frame::MAX_CALL).unwrap()];
            peer.read_exact(&mut body).unwrap();
            peer.write_all(&frame::encode(&serde_json::json!({ "Done": { "Levitated": 7 } }), 1000).unwrap()).unwrap();
        });
        let mut peer = Peer::connect(folder.path().join("s")).unwrap();
        let call = Call::new("hello", PoolRequest::Sync);
        let failure = socket::ask(&mut peer, "tank", &call, None, &mut |_| Ok(None)).unwrap_err();
        assert_eq!(failure.kind, Kind::Undecodable);
        assert!(failure.to_string().contains("gave an answer that this program cannot read"), "{failure}");
        assert!(failure.hint.is_some_and(|hint| hint.contains("may or may not") && !hint.contains("kill")));
        served.join().unwrap();
    }

    #[test]
    fn a_call_of_this_version_that_cannot_be_read_changes_nothing() {
        let service = Service::start();
        let mut peer = service.connect();
        let call = serde_json::json!({ "version": VERSION, "call": { "command": "x", "request": "Levitate" } });
        peer.write_all(&frame::encode(&call, 1000).unwrap()).unwrap();
        let Some(Reply::Failed(failure)) = frame::read(&mut peer, frame::MAX_REPLY).unwrap() else { panic!() };
        assert_eq!(failure.kind, Kind::Undecodable);
        assert!(failure.hint.is_some_and(|hint| hint.starts_with("nothing was changed")));
        service.end();
    }

    #[test]
    fn a_service_that_crashes_on_a_call_is_reported_as_lost() {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("s")).unwrap();
        let mut peer = Peer::connect(folder.path().join("s")).unwrap();
        drop(listener);
        let call = Call::new("hello", PoolRequest::Sync);
        let failure = socket::ask(&mut peer, "tank", &call, None, &mut |_| Ok(None)).unwrap_err();
        assert_eq!(failure.kind, Kind::Other);
        assert!(failure.to_string().starts_with("lost the service of pool 'tank'"), "{failure}");
    }

    #[test]
    fn a_defect_fails_its_own_call_only() {
        let service = Service::start();
        assert!(service.ask(PoolRequest::Status, None).is_err());
        assert_eq!(service.ask(ServiceRequest::Ping, None), Ok(Response::Done));
        service.end();
    }

    #[test]
    fn only_the_owner_and_root_may_ask_everything() {
        assert!(may_ask_everything(1000, 1000) && may_ask_everything(0, 1000) && may_ask_everything(0, 0));
        assert!(!may_ask_everything(1001, 1000) && !may_ask_everything(1000, 0));
    }
}
