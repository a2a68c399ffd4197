//! The asking side of a service's socket.

use std::{
    io,
    os::{fd::AsFd, unix::net::UnixStream},
    path::Path,
};

use super::frame;
use crate::{
    failure::Failure,
    protocol::{Call, OnProgress, Reply, Response, Stream},
};

/// Connects to the service that listens on `path`; `None` if none does.
pub fn connect(path: &Path) -> Result<Option<UnixStream>, Failure> {
    match UnixStream::connect(path) {
        Ok(socket) => Ok(Some(socket)),
        // A socket's file outlives a service that was killed.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => Ok(None),
        Err(error) => Err(Failure::cannot("connect to", path.display(), error)),
    }
}

/// Asks the service of `pool`, and passes on what it says until the result.
pub fn ask(
    socket: &mut UnixStream,
    pool: &str,
    call: &Call,
    stream: Option<Stream>,
    progress: OnProgress<'_>,
) -> Result<Response, Failure> {
    let lost = |error: io::Error| {
        Failure::new(format!("lost the service of pool '{pool}': {error}"))
            .hint(format!("whether it was done is not known; bring the service back: pool import {pool}"))
    };
    let bytes = frame::encode(call, frame::MAX_CALL).map_err(|error| Failure::new(error.to_string()))?;
    frame::send(socket, &bytes, stream.as_ref().map(AsFd::as_fd)).map_err(lost)?;
    // The service's copy is the last one: a reader behind a pipe sees the end when the service is done.
    drop(stream);
    loop {
        match frame::read(socket, frame::MAX_REPLY).map_err(lost)? {
            Some(Reply::Progress(how_far)) => progress(how_far),
            Some(Reply::Done(response)) => return Ok(response),
            Some(Reply::Failed(failure)) => return Err(failure),
            None => return Err(lost(io::ErrorKind::UnexpectedEof.into())),
        }
    }
}
