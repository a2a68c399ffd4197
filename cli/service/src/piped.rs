//! A pipe in place of a stream, for a pool of another user.
//!
//! The service takes no file of a user other than its owner, only a pipe. So this process copies between the pipe and the
//! stream, unless the stream is a pipe anyway.

use std::{
    fs::File,
    io,
    thread::{self, JoinHandle},
};

use protocol::{Failure, Request, Stream, StreamRequest};
use rustix::fs::fstatfs;

/// The type of the kernel's file system of pipes, `PIPEFS_MAGIC`.
const PIPEFS: u64 = 0x5049_5045;

/// A stream as the service takes it.
pub(super) struct Piped {
    /// The end for the service.
    pub(super) pipe: Stream,
    /// The copying thread, if its end is to be waited for.
    pub(super) copier: Option<Copier>,
}

/// A thread that copies the output of the service.
pub(super) struct Copier(JoinHandle<io::Result<u64>>);

impl Piped {
    /// The stream of a request, or a pipe between the service and the stream.
    pub(super) fn new(stream: Stream, request: &Request) -> Result<Piped, Failure> {
        if is_pipe(&stream) {
            return Ok(Piped { pipe: stream, copier: None });
        }
        let (mut reader, mut writer) = io::pipe()?;
        let mut file = File::from(stream);
        if matches!(request, Request::Stream(StreamRequest::Receive(_))) {
            // The service may refuse the rest of a stream, and then this process ends without reading the rest.
            thread::spawn(move || io::copy(&mut file, &mut writer));
            return Ok(Piped { pipe: reader.into(), copier: None });
        }
        let copying = thread::spawn(move || io::copy(&mut reader, &mut file));
        Ok(Piped { pipe: writer.into(), copier: Some(Copier(copying)) })
    }
}

/// Whether a stream is a pipe without a name. A FIFO belongs to a file system, perhaps one that another user serves, and
/// cannot be read without blocking.
pub(super) fn is_pipe(stream: &Stream) -> bool {
    fstatfs(stream).is_ok_and(|of| of.f_type as u64 == PIPEFS)
}

impl Copier {
    /// Waits until everything is written. The service has closed its end by now, or never got it.
    pub(super) fn finish(self) -> Result<(), Failure> {
        match self.0.join() {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(Failure::new("the thread that writes the stream has panicked")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::{fd::OwnedFd, unix::net::UnixStream};

    use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};

    use super::*;

    #[test]
    fn only_a_pipe_without_a_name_is_a_pipe() {
        let (reader, writer) = io::pipe().unwrap();
        assert!(is_pipe(&reader.into()) && is_pipe(&writer.into()));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let fifo = open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let socket = OwnedFd::from(UnixStream::pair().unwrap().0);
        for other in [fifo, socket, tempfile::tempfile().unwrap().into(), File::open("/dev/null").unwrap().into()] {
            assert!(!is_pipe(&other), "{other:?}");
        }
    }
}
