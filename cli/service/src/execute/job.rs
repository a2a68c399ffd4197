//! One request under way: how it says how far it has come, and how it learns that nobody waits for it any more.

use std::{
    fs::File,
    io::{self, IoSlice, Read, Write},
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use dataset::admin::Reader;
use protocol::{Failure, OnSaid, Part, Progress, Said, Stream};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{FileType, fstat},
    io::{Errno, ReadWriteFlags, pwritev2},
};

/// How long a wait for a stream may go without looking whether it is still wanted.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// How long a part waits for another try where the one before it is still on its way.
const PAUSE: Duration = Duration::from_millis(2);

/// What a pipe has room for at least when it can be written to, in bytes.
const PAGE: usize = 4096;

/// How often progress is told.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// A wish that work should end. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Wishes it.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the other is a clone of this one.
    pub fn is(&self, other: &Cancel) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether it was wished.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A request that is being carried out.
pub struct Job<'a> {
    cancels: Vec<Cancel>,
    said: OnSaid<'a>,
    told: Instant,
    reader: Reader,
}

impl<'a> Job<'a> {
    /// A job that tells `said`, and ends when one of `cancels` says so.
    pub fn new(cancels: Vec<Cancel>, said: OnSaid<'a>) -> Job<'a> {
        Job { cancels, said, told: Instant::now(), reader: Reader::default() }
    }

    /// The same for this command.
    pub fn of(self, reader: Reader) -> Job<'a> {
        Job { reader, ..self }
    }

    /// The command that it is for, as those are told who want what it holds.
    pub fn reader(&self) -> Reader {
        self.reader.clone()
    }

    /// Fails if nobody waits for the result. To be asked where stopping leaves nothing half done.
    pub fn check(&self) -> Result<(), Failure> {
        match is_cancelled(&self.cancels) {
            true => Err(Failure::new("interrupted")),
            false => Ok(()),
        }
    }

    /// Tells how far the work has come, ten times a second at most.
    pub fn tell(&mut self, what: &str, done: u64, total: Option<u64>) {
        if self.told.elapsed() >= TELL_EVERY {
            self.told = Instant::now();
            // Whoever cannot take it now hears the next.
            let _ = (self.said)(Said::Progress(Progress { what: what.to_owned(), done, total }));
        }
    }

    /// Gives the next part of the answer away. Waits while the asker reads more slowly than the parts come, so that never
    /// more than a few are in memory.
    pub fn part(&mut self, part: Part) -> Result<(), Failure> {
        let mut left = Some(Said::Part(part));
        while let Some(said) = left {
            self.check()?;
            left = (self.said)(said)?;
            if left.is_some() {
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    }

    /// Makes a stream readable and writable such that waiting for the other end stops when the job is cancelled.
    pub fn stream(&self, stream: Stream) -> JobStream {
        let is_pipe = fstat(&stream).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
        JobStream { file: stream.into(), is_pipe, cancels: self.cancels.clone() }
    }

    /// What says that the job should end; for work on other threads.
    pub fn cancels(&self) -> Vec<Cancel> {
        self.cancels.clone()
    }
}

fn is_cancelled(cancels: &[Cancel]) -> bool {
    cancels.iter().any(Cancel::is_cancelled)
}

/// The far end of a request that carries bytes: a file, a pipe or a socket of the command.
#[derive(Debug)]
pub struct JobStream {
    file: File,
    is_pipe: bool,
    cancels: Vec<Cancel>,
}

impl JobStream {
    /// Writes as much as there is room for. A pipe that has room for a little would keep who writes much until all of it was
    /// read, and a cancelled job with it. That it must not is said with each write: the pipe is also the command's.
    fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_pipe {
            return self.file.write(bytes);
        }
        match pwritev2(&self.file, &[IoSlice::new(bytes)], u64::MAX, ReadWriteFlags::NOWAIT) {
            // Before Linux 6.4. A page is what a pipe has room for that can be written to.
            Err(Errno::OPNOTSUPP) => self.file.write(&bytes[..bytes.len().min(PAGE)]),
            written => Ok(written?),
        }
    }

    /// Waits until the stream is ready, or broken, which the next call then tells.
    fn wait(&self, flags: PollFlags) -> io::Result<()> {
        loop {
            if is_cancelled(&self.cancels) {
                // Not `Interrupted`: that would be tried again.
                return Err(io::Error::other("interrupted"));
            }
            let mut polled = [PollFd::from_borrowed_fd(self.file.as_fd(), flags)];
            match poll(&mut polled, Some(&PATIENCE)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl Read for JobStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.wait(PollFlags::IN)?;
            match self.file.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
    }
}

impl Write for JobStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            self.wait(PollFlags::OUT)?;
            match self.write_some(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_a_silent_pipe_ends_when_cancelled() {
        let (reader, _writer) = std::io::pipe().unwrap();
        let cancel = Cancel::default();
        let mut ignore = |_| Ok(None);
        let job = Job::new(vec![Cancel::default(), cancel.clone()], &mut ignore);
        let mut stream = job.stream(reader.into());
        let canceller = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            cancel.cancel();
        });
        assert!(stream.read(&mut [0]).is_err());
        assert!(job.check().is_err());
        canceller.join().unwrap();
    }

    #[test]
    fn writing_to_a_pipe_that_is_not_read_ends_when_cancelled() {
        let (_reader, writer) = std::io::pipe().unwrap();
        let cancel = Cancel::default();
        let mut ignore = |_| Ok(None);
        let job = Job::new(vec![cancel.clone()], &mut ignore);
        let mut stream = job.stream(writer.into());
        let canceller = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            cancel.cancel();
        });
        assert!(stream.write_all(&vec![7; 4 << 20]).is_err());
        canceller.join().unwrap();
    }

    #[test]
    fn a_stream_passes_bytes_and_its_end() {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut ignore = |_| Ok(None);
        let job = Job::new(Vec::new(), &mut ignore);
        let mut to = job.stream(writer.into());
        to.write_all(b"all of it").unwrap();
        drop(to);
        let mut text = String::new();
        job.stream(reader.into()).read_to_string(&mut text).unwrap();
        assert_eq!(text, "all of it");
    }
}
