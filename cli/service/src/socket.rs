//! The asking side of a service's socket.

use std::{
    io,
    os::{fd::AsFd, unix::net::UnixStream},
    path::Path,
    time::Duration,
};

use protocol::{
    Call, Failure, OnSaid, Reply, Response, Stream, frame,
    version::{self, VERSION},
};
use rustix::net::sockopt::socket_peercred;

use crate::health::{Condition, unavailable};

/// Connects to the service that listens on `path`; `None` if no service listens.
pub fn connect(path: &Path) -> Result<Option<UnixStream>, Failure> {
    match UnixStream::connect(path) {
        Ok(socket) => Ok(Some(socket)),
        // The socket file of a killed service remains.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => Ok(None),
        Err(error) => Err(unavailable(Condition::Unanswered, Failure::cannot("connect to", path.display(), error))),
    }
}

/// Time limit for silence: a service sends a sign of life every second.
const PATIENCE: Duration = Duration::from_secs(5);

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// The id of the process at the other end; 0 if unknown.
pub(crate) fn process(socket: &UnixStream) -> u32 {
    socket_peercred(socket).map_or(0, |peer| peer.pid.as_raw_nonzero().get().unsigned_abs())
}

/// The failure for a service that accepts connections but does not answer.
fn silence(socket: &UnixStream, pool: &str) -> Failure {
    let process = process(socket);
    let failure = Failure::cannot("open", pool, format!("its service (process {process}) does not answer"))
        .hint(format!("if the process was stopped, continue it: kill -CONT {process}"));
    unavailable(Condition::Unanswered, failure)
}

/// Whether the service behind a socket uses the protocol from before version 1: such a service closes the connection
/// of a newer call.
fn is_before_versions(socket: &UnixStream) -> bool {
    let asked_again = || -> io::Result<bool> {
        let mut socket = UnixStream::connect_addr(&socket.peer_addr()?)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        frame::send(&mut socket, &version::before_versions()?, None)?;
        Ok(matches!(frame::read(&mut socket, frame::MAX_REPLY)?, Some(Reply::Alive | Reply::Done(_))))
    };
    asked_again().unwrap_or(false)
}

/// The service behind a socket, with this version of the protocol.
fn service<'a>(socket: &UnixStream, pool: &'a str, version: Option<u32>) -> version::Service<'a> {
    version::Service { pool, process: process(socket), version, program: "" }
}

/// Sends a request to the service of `pool`, and passes on its messages until the result. The stream goes with the
/// request.
pub fn ask(
    socket: &mut UnixStream,
    pool: &str,
    call: &Call,
    stream: Option<Stream>,
    said: OnSaid<'_>,
) -> Result<Response, Failure> {
    ask_with(socket, pool, call, (stream, None), said)
}

/// As [`ask`], for the pool of another user: the stream goes to the service when the service asks for it.
pub fn ask_another(
    socket: &mut UnixStream,
    pool: &str,
    call: &Call,
    stream: Option<Stream>,
    said: OnSaid<'_>,
) -> Result<Response, Failure> {
    ask_with(socket, pool, call, (None, stream), said)
}

fn ask_with(
    socket: &mut UnixStream,
    pool: &str,
    call: &Call,
    (stream, mut later): (Option<Stream>, Option<Stream>),
    said: OnSaid<'_>,
) -> Result<Response, Failure> {
    let lost = |error: io::Error| {
        let failure = Failure::new(format!("lost the service of pool '{pool}': {error}"))
            .hint(format!("the command may or may not have completed; restart the service: pool import {pool}"));
        unavailable(Condition::Unanswered, failure)
    };
    if call.request.traits().is_quick {
        socket.set_read_timeout(Some(PATIENCE)).map_err(lost)?;
    }
    let silent = silence(socket, pool);
    let bytes = version::encode(call).map_err(|error| Failure::new(error.to_string()))?;
    frame::send(socket, &bytes, stream.as_ref().map(AsFd::as_fd)).map_err(lost)?;
    // The service has a copy of the stream. With this copy closed, the reader of a pipe sees the end when the service
    // is done.
    drop(stream);
    let mut has_answered = false;
    loop {
        let reply = match frame::read(socket, frame::MAX_REPLY) {
            Err(error) if is_timeout(&error) => return Err(silent),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                // A service refuses calls of versions other than its own, so the service has this version.
                return Err(service(socket, pool, Some(VERSION)).unread());
            }
            Ok(None) | Err(_) if !has_answered && is_before_versions(socket) => {
                return Err(service(socket, pool, None).refuses(Some(VERSION)));
            }
            reply => reply.map_err(lost)?,
        };
        has_answered = true;
        match reply {
            Some(Reply::Said(mut more)) => {
                while let Some(back) = said(more)? {
                    more = back;
                }
            }
            Some(Reply::Alive) => {}
            Some(Reply::Stream) => {
                let stream = later.take();
                frame::send(socket, &[0], stream.as_ref().map(AsFd::as_fd)).map_err(lost)?;
            }
            Some(Reply::Done(response)) => return Ok(response),
            Some(Reply::Failed(failure)) => return Err(failure),
            None => return Err(lost(io::ErrorKind::UnexpectedEof.into())),
        }
    }
}
