//! The asking side of a service's socket.

use std::{
    io,
    os::{fd::AsFd, unix::net::UnixStream},
    path::Path,
    time::Duration,
};

use protocol::{Call, Failure, OnSaid, Reply, Response, Stream, frame};
use rustix::net::sockopt::socket_peercred;

use crate::health::{Condition, unavailable};

/// Connects to the service that listens on `path`; `None` if none does.
pub fn connect(path: &Path) -> Result<Option<UnixStream>, Failure> {
    match UnixStream::connect(path) {
        Ok(socket) => Ok(Some(socket)),
        // A socket's file outlives a service that was killed.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => Ok(None),
        Err(error) => Err(unavailable(Condition::Unanswered, Failure::cannot("connect to", path.display(), error))),
    }
}

/// How long a service may be silent that says every second that it is alive.
const PATIENCE: Duration = Duration::from_secs(5);

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// The failure of a service that is there and says nothing.
fn silence(socket: &UnixStream, pool: &str) -> Failure {
    let process = socket_peercred(socket).map_or(0, |peer| peer.pid.as_raw_nonzero().get());
    let failure = Failure::cannot("open", pool, format!("its service (process {process}) does not answer"))
        .hint(format!("if the process was stopped, this has it go on: kill -CONT {process}"));
    unavailable(Condition::Unanswered, failure)
}

/// Asks the service of `pool`, and passes on what it says until the result.
pub fn ask(
    socket: &mut UnixStream,
    pool: &str,
    call: &Call,
    stream: Option<Stream>,
    said: OnSaid<'_>,
) -> Result<Response, Failure> {
    let lost = |error: io::Error| {
        let failure = Failure::new(format!("lost the service of pool '{pool}': {error}"))
            .hint(format!("whether it was done is not known; bring the service back: pool import {pool}"));
        unavailable(Condition::Unanswered, failure)
    };
    if call.request.is_quick() {
        socket.set_read_timeout(Some(PATIENCE)).map_err(lost)?;
    }
    let silent = silence(socket, pool);
    let bytes = frame::encode(call, frame::MAX_CALL).map_err(|error| Failure::new(error.to_string()))?;
    frame::send(socket, &bytes, stream.as_ref().map(AsFd::as_fd)).map_err(lost)?;
    // The service's copy is the last one: a reader behind a pipe sees the end when the service is done.
    drop(stream);
    loop {
        let reply = frame::read(socket, frame::MAX_REPLY);
        match reply.map_err(|error| if is_timeout(&error) { silent.clone() } else { lost(error) })? {
            Some(Reply::Said(mut more)) => {
                while let Some(back) = said(more)? {
                    more = back;
                }
            }
            Some(Reply::Alive) => {}
            Some(Reply::Done(response)) => return Ok(response),
            Some(Reply::Failed(failure)) => return Err(failure),
            None => return Err(lost(io::ErrorKind::UnexpectedEof.into())),
        }
    }
}
