//! A running request: reporting progress to the caller, and noticing that the caller no longer waits.

use std::{
    fs::File,
    io::{self, IoSlice, IoSliceMut, Read, Write},
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use dataset::{error::Reader, jobs::Pace};
use protocol::{Failure, OnSaid, Part, Progress, Said, Stream};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{FileType, fstat},
    io::{Errno, ReadWriteFlags, preadv2, pwritev2},
    pipe::{fcntl_getpipe_size, fcntl_setpipe_size},
};

/// Interval at which a wait for a stream checks for cancellation.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Interval at which a wait for a limit checks for cancellation.
const GLANCE: Duration = Duration::from_millis(20);

/// Pause before a part is sent again while the reply queue is full.
const PAUSE: Duration = Duration::from_millis(2);

/// The wanted size of a pipe, in bytes: each side works longer before it waits for the other.
const PIPE: usize = 1 << 20;

/// Minimum room, in bytes, of a pipe that polls as writable.
const PAGE: usize = 4096;

/// Minimum interval between two progress reports.
const REPORT_EVERY: Duration = Duration::from_millis(100);

/// A shared flag that asks work to end. All clones are the same flag.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks the work to end.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether both are clones of one flag.
    pub fn is(&self, other: &Cancel) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether the work was asked to end.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A request being executed.
pub struct Job<'a> {
    cancels: Vec<Cancel>,
    said: OnSaid<'a>,
    reported: Instant,
    reader: Reader,
}

impl<'a> Job<'a> {
    /// A job that reports to `said`, and ends when any of `cancels` is set.
    pub fn new(cancels: Vec<Cancel>, said: OnSaid<'a>) -> Job<'a> {
        Job { cancels, said, reported: Instant::now(), reader: Reader::default() }
    }

    /// The same job, on behalf of this command.
    pub fn of(self, reader: Reader) -> Job<'a> {
        Job { reader, ..self }
    }

    /// The command that runs the job, for messages to other users of a busy resource.
    pub fn reader(&self) -> Reader {
        self.reader.clone()
    }

    /// Fails if the job was cancelled. Call only where stopping leaves nothing half done.
    pub fn check(&self) -> Result<(), Failure> {
        match is_cancelled(&self.cancels) {
            true => Err(Failure::new("interrupted")),
            false => Ok(()),
        }
    }

    /// Reports progress, at most ten times a second.
    pub fn report(&mut self, what: &str, done: u64, total: Option<u64>) {
        self.report_as(|| what.to_owned(), done, total);
    }

    /// As [`Job::report`], with a name that is made only for a report.
    pub fn report_as(&mut self, what: impl FnOnce() -> String, done: u64, total: Option<u64>) {
        if self.reported.elapsed() >= REPORT_EVERY {
            self.reported = Instant::now();
            // Dropped if the queue is full; the next report follows soon.
            let _ = (self.said)(Said::Progress(Progress { what: what(), done, total }));
        }
    }

    /// Reports the end of work, even if it follows another report at once.
    pub fn report_last(&mut self, what: &str, done: u64) {
        let _ = (self.said)(Said::Progress(Progress { what: what.to_owned(), done, total: Some(done) }));
    }

    /// Sends a part of the answer. Waits while the peer reads more slowly, so only a few parts are in memory.
    pub fn part(&mut self, part: Part) -> Result<(), Failure> {
        let mut left = Some(Said::Part(part));
        while let Some(said) = left {
            self.check()?;
            left = (self.said)(said)?;
            if left.is_some() {
                thread::sleep(PAUSE);
            }
        }
        Ok(())
    }

    /// Wraps a stream so that blocking reads and writes end when the job is cancelled.
    pub fn stream(&self, stream: Stream) -> JobStream {
        let kind = fstat(&stream).map(|stat| FileType::from_raw_mode(stat.st_mode));
        let is_pipe = kind == Ok(FileType::Fifo);
        if is_pipe && fcntl_getpipe_size(&stream).is_ok_and(|size| size < PIPE) {
            // The user of the service may have used up the limit for pipes: then the pipe stays as large as it is.
            let _ = fcntl_setpipe_size(&stream, PIPE);
        }
        let waits = kind != Ok(FileType::RegularFile);
        JobStream { file: stream.into(), is_pipe, waits, cancels: self.cancels.clone(), limited: None }
    }

    /// The job's cancel flags, for work on further threads.
    pub fn cancels(&self) -> Vec<Cancel> {
        self.cancels.clone()
    }
}

fn check(cancels: &[Cancel]) -> io::Result<()> {
    // Not `Interrupted`: the standard library would retry.
    if is_cancelled(cancels) { Err(io::Error::other("interrupted")) } else { Ok(()) }
}

fn is_cancelled(cancels: &[Cancel]) -> bool {
    cancels.iter().any(Cancel::is_cancelled)
}

/// The remote end of a request with data: a file, a pipe or a socket of the command.
#[derive(Debug)]
pub struct JobStream {
    file: File,
    is_pipe: bool,
    /// Whether a read or write can wait for another process.
    waits: bool,
    cancels: Vec<Cancel>,
    limited: Option<Limited>,
}

/// A limit, and the bytes moved under the limit.
#[derive(Debug)]
struct Limited {
    /// Bytes per second, above 0.
    rate: u64,
    begun: Instant,
    moved: u64,
    pace: Pace,
}

impl Limited {
    /// The time to wait after `count` more bytes.
    fn due(&mut self, count: usize) -> Duration {
        self.moved += count as u64;
        self.pace.wait(self.begun.elapsed(), self.moved, Some(self.rate))
    }
}

impl JobStream {
    /// The same stream, with at most `limit` bytes per second; `None` or 0 means no limit.
    pub fn limited(self, limit: Option<u64>) -> JobStream {
        let limited = limit.filter(|rate| *rate > 0).map(|rate| {
            let mut limited = Limited { rate, begun: Instant::now(), moved: 0, pace: Pace::default() };
            // The pace counts from here.
            let _ = limited.due(0);
            limited
        });
        JobStream { limited, ..self }
    }

    /// The number of bytes to move at once: with a limit, those of a twentieth of a second.
    fn most(&self, wanted: usize) -> usize {
        let limit = |limited: &Limited| usize::try_from(limited.rate.div_ceil(20)).unwrap_or(usize::MAX);
        self.limited.as_ref().map_or(wanted, |limited| wanted.min(limit(limited)))
    }

    /// Waits until the bytes moved are due. A job that is cancelled waits no longer.
    fn keep_pace(&mut self, count: usize) -> io::Result<usize> {
        let until = self.limited.as_mut().map(|limited| Instant::now() + limited.due(count));
        while let Some(left) = until.and_then(|until| until.checked_duration_since(Instant::now())) {
            check(&self.cancels)?;
            thread::sleep(left.min(GLANCE));
        }
        Ok(count)
    }

    /// Writes as much as fits. A large write to a pipe with little room would block until all was read, and a
    /// cancelled job would block too. So each write asks not to block; the pipe itself cannot be set to non-blocking,
    /// because the command shares the pipe.
    fn write_some(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        if !self.is_pipe {
            return self.file.write_vectored(pieces);
        }
        match pwritev2(&self.file, pieces, u64::MAX, ReadWriteFlags::NOWAIT) {
            // A FIFO, or a pipe before Linux 6.4. If writable, it has room for a page.
            Err(Errno::OPNOTSUPP) => {
                let page: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).take(PAGE).collect();
                self.file.write(&page)
            }
            written => Ok(written?),
        }
    }

    /// Waits until the stream is ready or broken; the next call reports a broken stream.
    fn wait(&self, flags: PollFlags) -> io::Result<()> {
        loop {
            check(&self.cancels)?;
            if !self.waits {
                return Ok(());
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

impl JobStream {
    /// Reads what is there. Another reader of a pipe may take the bytes after the wait, so a read of a pipe asks not to
    /// block.
    fn read_some(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.is_pipe {
            return self.file.read(buffer);
        }
        match preadv2(&self.file, &mut [IoSliceMut::new(buffer)], u64::MAX, ReadWriteFlags::NOWAIT) {
            // Linux before 6.4 has no such reads of pipes.
            Err(Errno::OPNOTSUPP) => self.file.read(buffer),
            read => Ok(read?),
        }
    }
}

impl Read for JobStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = self.most(buffer.len());
        loop {
            self.wait(PollFlags::IN)?;
            match self.read_some(&mut buffer[..most]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done.and_then(|count| self.keep_pace(count)),
            }
        }
    }
}

impl Write for JobStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        // Under a limit, a part of one piece at a time.
        let first = pieces.iter().find(|piece| !piece.is_empty()).map_or(&[][..], |piece| piece);
        let part = [IoSlice::new(&first[..self.most(first.len())])];
        let pieces = if self.limited.is_some() { &part } else { pieces };
        loop {
            self.wait(PollFlags::OUT)?;
            match self.write_some(pieces) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done.and_then(|count| self.keep_pace(count)),
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
    fn a_limit_holds_in_both_directions_and_ends_when_cancelled() {
        let mut ignore = |_| Ok(None);
        let job = Job::new(Vec::new(), &mut ignore);
        let bytes = vec![7; 300_000];
        let (reader, writer) = std::io::pipe().unwrap();
        let mut reader = job.stream(reader.into()).limited(Some(0));
        let mut writer = job.stream(writer.into()).limited(Some(1_000_000));
        let begun = Instant::now();
        let read = std::thread::scope(|scope| {
            scope.spawn(|| {
                writer.write_all(&bytes).unwrap();
                drop(writer);
            });
            let mut read = Vec::new();
            reader.read_to_end(&mut read).unwrap();
            read
        });
        assert!(read == bytes && begun.elapsed() >= Duration::from_millis(270), "{:?}", begun.elapsed());
        let cancel = Cancel::default();
        let mut ignore = |_| Ok(None);
        let job = Job::new(vec![cancel.clone()], &mut ignore);
        let mut slow = job.stream(tempfile::tempfile().unwrap().into()).limited(Some(1));
        let canceller = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            cancel.cancel();
        });
        let begun = Instant::now();
        assert!(slow.write_all(&bytes).is_err() && begun.elapsed() < Duration::from_millis(900));
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
