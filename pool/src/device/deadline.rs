//! A device wrapper with a deadline for each request.
//!
//! A read or write of a file cannot be cancelled once the kernel has it: on an absent file server, or a disk that died
//! silently, it may take forever. So threads of this device carry out the requests, and the caller waits for the answer
//! no longer than the deadline. After a missed deadline the device counts as lost, and every request fails at once,
//! until the last abandoned request has come back ([`Device::outstanding`]): until then its write may still take
//! effect.
//!
//! A request that needs no waiting is done by the caller itself: see [`Device::read_at_once`]. So are reads that only
//! their reader waits for, while the device answers promptly ([`Device::read_trusting`]): handing a read to a thread
//! costs more than a fast device takes. If the device falls silent just then, these few readers wait for the kernel,
//! and all later callers no longer than the deadline.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use parking_lot::{Mutex, RwLock};

use super::{
    flow::{self, Kind, Meter},
    interface::{Device, Pending, Whereabouts},
};

/// A device around another one, which must answer in time.
pub struct DeadlineDevice {
    inner: Arc<dyn Device>,
    crew: Crew,
    patience: Arc<Patience>,
    meter: RwLock<Arc<Meter>>,
}

/// A request that is measured from here to its drop.
struct Measured {
    meter: Arc<Meter>,
    asked: flow::Asked,
    at: Instant,
    is_queued: bool,
    begun: Option<Instant>,
}

/// The deadline, and the state of requests. Shared with every request under way.
struct Patience {
    /// For each request, in milliseconds.
    deadline: AtomicU64,
    given_up: AtomicBool,
    lost: AtomicUsize,
    /// When the device was created, and the time of its last prompt answer, in milliseconds since then; zero for never.
    since: Instant,
    prompt: AtomicU64,
    /// Start times of the requests under way, by request number.
    under_way: Mutex<BTreeMap<u64, Instant>>,
    /// Requests begun so far.
    begun: AtomicU64,
}

/// A request handed to a thread, with the channel for its answer.
struct Asked<T> {
    patience: Arc<Patience>,
    answer: Receiver<io::Result<T>>,
    settled: Arc<AtomicBool>,
    at: Instant,
}

/// The longest time until a waiter notices that the device was given up.
const GLANCE: Duration = Duration::from_millis(100);
/// An answer within this time is prompt.
const PROMPT: Duration = Duration::from_millis(100);
/// For so long after a prompt answer the next is expected to be prompt.
const TRUST: Duration = Duration::from_secs(1);

impl DeadlineDevice {
    /// Wraps `inner`, with `deadline` for each request.
    pub fn new(inner: Arc<dyn Device>, deadline: Duration) -> DeadlineDevice {
        let patience = Patience {
            deadline: AtomicU64::new(in_millis(deadline)),
            given_up: AtomicBool::new(false),
            lost: AtomicUsize::new(0),
            since: Instant::now(),
            prompt: AtomicU64::new(0),
            under_way: Mutex::default(),
            begun: AtomicU64::new(0),
        };
        DeadlineDevice { inner, crew: Crew::default(), patience: Arc::new(patience), meter: RwLock::default() }
    }

    /// Changes the deadline for each request.
    pub fn set_deadline(&self, deadline: Duration) {
        self.patience.deadline.store(in_millis(deadline), Ordering::Relaxed);
    }

    fn run<T: Send + 'static>(
        &self,
        measured: Option<Measured>,
        work: impl FnOnce(&dyn Device) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        self.ask(measured, work)?.wait()
    }

    /// Begins to measure a request.
    fn measure_request(&self, kind: Kind, bytes: usize) -> Measured {
        let meter = self.meter.read().clone();
        Measured { meter, asked: flow::Asked::new(kind, bytes), at: Instant::now(), is_queued: false, begun: None }
    }

    /// Hands some work to a thread.
    fn ask<T: Send + 'static>(
        &self,
        mut measured: Option<Measured>,
        work: impl FnOnce(&dyn Device) -> io::Result<T> + Send + 'static,
    ) -> io::Result<Asked<T>> {
        if self.outstanding() > 0 {
            return Err(late("it has not answered an earlier request"));
        }
        let (sender, answer) = bounded(1);
        let settled = Arc::new(AtomicBool::new(false));
        let (inner, patience, on_thread) = (self.inner.clone(), self.patience.clone(), settled.clone());
        let number = self.patience.note_request();
        measured.iter_mut().for_each(Measured::queue);
        self.crew.submit(Box::new(move || {
            measured.iter_mut().for_each(Measured::begin);
            let result = work(&*inner);
            drop(measured);
            patience.under_way.lock().remove(&number);
            // The receiver of the answer may close the device, and reopen it at once.
            drop(inner);
            // The receiver may be gone.
            let _ = sender.send(result);
            if on_thread.swap(true, Ordering::AcqRel) {
                patience.lost.fetch_sub(1, Ordering::AcqRel);
            }
        }));
        Ok(Asked { patience: self.patience.clone(), answer, settled, at: Instant::now() })
    }

    fn begin<T: Send + 'static>(
        &self,
        measured: Measured,
        work: impl FnOnce(&dyn Device) -> io::Result<T> + Send + 'static,
    ) -> Pending<T> {
        match self.ask(Some(measured), work) {
            Ok(asked) => Pending::Begun(Box::new(move || asked.wait())),
            Err(error) => Pending::Done(Err(error)),
        }
    }
}

impl DeadlineDevice {
    /// Hands a read into `bytes` from `offset` on to a thread.
    fn have_read(&self, measured: Measured, offset: u64, mut bytes: Vec<u8>) -> Pending<Vec<u8>> {
        self.begin(measured, move |device| device.read_at(offset, &mut bytes).map(|()| bytes))
    }
}

impl Measured {
    /// The request waits for a thread from now on.
    fn queue(&mut self) {
        self.is_queued = true;
        self.meter.queued(self.asked);
    }

    /// A thread hands the request to the kernel.
    fn begin(&mut self) {
        self.meter.unqueued(self.asked);
        self.meter.begun(self.asked);
        self.begun = Some(Instant::now());
    }

    /// The caller itself does `work`, which returns whether it has done the request.
    fn directly(&mut self, work: impl FnOnce() -> io::Result<bool>) -> io::Result<bool> {
        self.meter.begun(self.asked);
        let done = work();
        match done {
            Ok(false) => self.meter.not_done(self.asked),
            _ => self.begun = Some(self.at),
        }
        done
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        match self.begun {
            Some(begun) => {
                let queue = self.is_queued.then(|| begun - self.at);
                let now = Instant::now();
                self.meter.ended(self.asked, queue, now - begun, now);
            }
            None if self.is_queued => self.meter.unqueued(self.asked),
            None => {}
        }
    }
}

impl Patience {
    /// Records that a request begins; returns its number.
    fn note_request(&self) -> u64 {
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        self.under_way.lock().insert(number, Instant::now());
        number
    }

    /// Records how long an answer took.
    fn note_answer(&self, asked: Instant) {
        if asked.elapsed() < PROMPT {
            self.prompt.store(in_millis(self.since.elapsed()) + 1, Ordering::Relaxed);
        }
    }

    /// True if the device has answered promptly a moment ago.
    fn is_prompt(&self) -> bool {
        let last = self.prompt.load(Ordering::Relaxed);
        self.lost.load(Ordering::Acquire) == 0 && last > 0 && in_millis(self.since.elapsed()) < last + in_millis(TRUST)
    }
}

impl<T> Asked<T> {
    fn wait(self) -> io::Result<T> {
        let deadline = Duration::from_millis(self.patience.deadline.load(Ordering::Relaxed));
        match self.answer_within(deadline) {
            Ok(result) => {
                self.patience.note_answer(self.at);
                result
            }
            Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("the request was dropped")),
            Err(RecvTimeoutError::Timeout) => {
                self.patience.lost.fetch_add(1, Ordering::AcqRel);
                if !self.settled.swap(true, Ordering::AcqRel) {
                    return Err(late(&format!("it has not answered for {} seconds", deadline.as_secs_f32())));
                }
                // The answer came at the last instant.
                self.patience.lost.fetch_sub(1, Ordering::AcqRel);
                self.answer.recv().unwrap_or_else(|_| Err(io::Error::other("the request was dropped")))
            }
        }
    }

    /// The answer, if it comes in time and the device is not given up.
    fn answer_within(&self, deadline: Duration) -> Result<io::Result<T>, RecvTimeoutError> {
        let end = self.at + deadline;
        loop {
            let rest = end.saturating_duration_since(Instant::now());
            match self.answer.recv_timeout(rest.min(GLANCE)) {
                Err(RecvTimeoutError::Timeout) if rest > GLANCE && !self.patience.given_up.load(Ordering::Relaxed) => {}
                answered => return answered,
            }
        }
    }
}

fn in_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn late(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, problem)
}

impl Device for DeadlineDevice {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut measured = self.measure_request(Kind::Read, buf.len());
        if self.outstanding() == 0 && measured.directly(|| self.inner.read_at_once(offset, buf))? {
            return Ok(());
        }
        buf.copy_from_slice(&self.have_read(measured, offset, vec![0; buf.len()]).wait()?);
        Ok(())
    }

    fn begin_read(&self, offset: u64, len: usize) -> Pending<Vec<u8>> {
        let mut bytes = vec![0; len];
        let mut measured = self.measure_request(Kind::Read, len);
        if self.outstanding() == 0 {
            match measured.directly(|| self.inner.read_at_once(offset, &mut bytes)) {
                Ok(true) => return Pending::Done(Ok(bytes)),
                Ok(false) => {}
                Err(error) => return Pending::Done(Err(error)),
            }
        }
        self.have_read(measured, offset, bytes)
    }

    fn read_trusting(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if !self.patience.is_prompt() {
            return self.read_at(offset, buf);
        }
        let mut measured = self.measure_request(Kind::Read, buf.len());
        measured.directly(|| self.inner.read_at(offset, buf).map(|()| true))?;
        self.patience.note_answer(measured.at);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_shared(offset, &Arc::new(bytes.to_vec()))
    }

    fn write_shared(&self, offset: u64, bytes: &Arc<Vec<u8>>) -> io::Result<()> {
        let (measured, bytes) = (self.measure_request(Kind::Write, bytes.len()), bytes.clone());
        self.run(Some(measured), move |device| device.write_at(offset, &bytes))
    }

    fn write_parts(&self, offset: u64, parts: &[Arc<Vec<u8>>]) -> io::Result<()> {
        let measured = self.measure_request(Kind::Write, parts.iter().map(|part| part.len()).sum());
        let parts = parts.to_vec();
        self.run(Some(measured), move |device| device.write_parts(offset, &parts))
    }

    fn begin_write(&self, offset: u64, bytes: &Arc<Vec<u8>>) -> Pending {
        let (measured, bytes) = (self.measure_request(Kind::Write, bytes.len()), bytes.clone());
        self.begin(measured, move |device| device.write_at(offset, &bytes))
    }

    fn begin_flush(&self) -> Pending {
        self.begin(self.measure_request(Kind::Flush, 0), |device| device.flush())
    }

    fn count_in(&self, meter: &Arc<Meter>) {
        *self.meter.write() = meter.clone();
    }

    fn hurry(&self, deadline: Duration) {
        self.patience.deadline.fetch_min(in_millis(deadline), Ordering::Relaxed);
    }

    fn give_up(&self) {
        self.patience.given_up.store(true, Ordering::Relaxed);
    }

    fn outstanding(&self) -> usize {
        self.patience.lost.load(Ordering::Acquire)
    }

    fn is_in_place(&self) -> bool {
        self.run(None, |device| Ok(device.is_in_place())).unwrap_or(false)
    }

    fn whereabouts(&self) -> Whereabouts {
        // Callers of `whereabouts` can afford to wait.
        self.inner.whereabouts()
    }

    fn silence(&self) -> Duration {
        let oldest = self.patience.under_way.lock().values().next().copied();
        oldest.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn measure(&self) -> io::Result<u64> {
        self.run(None, |device| device.measure())
    }

    fn resize(&self, size: u64) {
        self.inner.resize(size);
    }

    fn truncate(&self, size: u64) -> io::Result<bool> {
        self.run(None, move |device| device.truncate(size))
    }

    fn grow_back(&self, size: u64) -> io::Result<bool> {
        self.run(None, move |device| device.grow_back(size))
    }

    fn flush(&self) -> io::Result<()> {
        self.run(Some(self.measure_request(Kind::Flush, 0)), |device| device.flush())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let measured = self.measure_request(Kind::Discard, usize::try_from(len).unwrap_or(usize::MAX));
        self.run(Some(measured), move |device| device.discard(offset, len))
    }

    fn can_discard(&self) -> bool {
        self.inner.can_discard()
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// The threads of a device: as many as there were requests at a time. They end when the crew is dropped; a thread stuck
/// in the kernel ends when the kernel returns.
struct Crew {
    jobs: Sender<Job>,
    queue: Receiver<Job>,
    idle: Arc<AtomicUsize>,
}

impl Default for Crew {
    fn default() -> Crew {
        LazyLock::force(&STARTER);
        let (jobs, queue) = unbounded();
        Crew { jobs, queue, idle: Arc::default() }
    }
}

impl Crew {
    /// Hands a job to an idle thread, or to a new one. If no thread can be started, the caller runs the job.
    fn submit(&self, job: Job) {
        let reserve = |idle: usize| idle.checked_sub(1);
        let reserved = self.idle.fetch_update(Ordering::AcqRel, Ordering::Acquire, reserve).is_ok();
        if !reserved && self.start().is_err() {
            return job();
        }
        self.jobs.send(job).expect("the crew holds the other end");
    }

    fn start(&self) -> io::Result<()> {
        let (queue, idle) = (self.queue.clone(), self.idle.clone());
        let work = move || {
            for job in queue {
                job();
                idle.fetch_add(1, Ordering::AcqRel);
            }
        };
        let (say, started) = bounded(1);
        match &*STARTER {
            Some(starter) => {
                starter.send((Box::new(work), say)).map_err(|_| io::ErrorKind::BrokenPipe)?;
                started.recv().map_err(io::Error::other)?
            }
            None => start(work),
        }
    }
}

fn start(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("cenote-device".into()).spawn(work).map(drop)
}

/// The work of a new thread, with the channel that reports whether it was started.
type Start = (Job, Sender<io::Result<()>>);

/// The thread that starts the threads of all devices; `None` if it cannot be started, and each caller starts its own. A
/// thread inherits the CPUs and the scheduling policy of its starter. The caller of a request may be bound to a CPU, or
/// have a low priority; this thread has the attributes of the first opener of a device.
static STARTER: LazyLock<Option<Sender<Start>>> = LazyLock::new(|| {
    let (starter, wanted) = unbounded::<Start>();
    let work = move || {
        for (work, say) in wanted {
            // The requester waits for the answer.
            let _ = say.send(start(work));
        }
    };
    thread::Builder::new().name("cenote-starter".into()).spawn(work).ok().map(|_| starter)
});

#[cfg(test)]
mod tests {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::*;
    use crate::device::{Fault, FaultDevice, MemoryDevice, Operation};

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn a_thread_runs_wherever_the_process_may_whoever_asked_for_it() {
        let allowed = sched_getaffinity(None).unwrap();
        let crew = Crew::default();
        let (say, found) = bounded(1);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut one = CpuSet::new();
                one.set((0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).unwrap());
                sched_setaffinity(None, &one).unwrap();
                crew.submit(Box::new(move || say.send(sched_getaffinity(None).unwrap()).unwrap()));
            });
        });
        assert_eq!(found.recv_timeout(LONG), Ok(allowed));
    }

    fn hanging() -> (Arc<FaultDevice>, DeadlineDevice) {
        let inner = Arc::new(FaultDevice::new(Arc::new(MemoryDevice::new("slow", 1 << 20))));
        (inner.clone(), DeadlineDevice::new(inner, LONG))
    }

    #[test]
    fn requests_pass_while_the_device_answers() {
        let (_, device) = hanging();
        device.write_at(10, b"hello").unwrap();
        device.flush().unwrap();
        device.discard(100, 10).unwrap();
        let mut buf = [0; 5];
        device.read_at(10, &mut buf).unwrap();
        assert_eq!((&buf, device.size(), device.outstanding()), (b"hello", 1 << 20, 0));
    }

    #[test]
    fn a_device_that_does_not_answer_is_given_up_until_it_does() {
        let (inner, device) = hanging();
        inner.inject(Fault::hanging(Operation::Write));
        device.set_deadline(Duration::from_millis(20));
        let error = device.write_at(0, b"late").unwrap_err();
        assert_eq!((error.kind(), device.outstanding()), (io::ErrorKind::TimedOut, 1));
        assert!(device.silence() >= Duration::from_millis(20));
        device.set_deadline(LONG);
        // The request fails at once.
        assert_eq!(device.read_at(0, &mut [0]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        inner.heal();
        while device.outstanding() > 0 {
            thread::yield_now();
        }
        let mut buf = [0; 4];
        device.read_at(0, &mut buf).unwrap();
        assert_eq!((&buf, device.silence()), (b"late", Duration::ZERO));
    }

    #[test]
    fn a_reader_asks_the_device_itself_only_while_it_answers() {
        let (inner, device) = hanging();
        assert!(!device.patience.is_prompt());
        device.read_trusting(0, &mut [0]).unwrap();
        assert!(device.patience.is_prompt());
        inner.inject(Fault::hanging(Operation::Write));
        device.set_deadline(Duration::from_millis(20));
        device.write_at(0, b"late").unwrap_err();
        assert_eq!(device.read_trusting(0, &mut [0]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        inner.heal();
    }

    #[test]
    fn who_is_in_a_hurry_waits_less_and_never_longer() {
        let (inner, device) = hanging();
        inner.inject(Fault::hanging(Operation::Read));
        device.hurry(Duration::from_millis(20));
        device.hurry(LONG);
        assert_eq!(device.read_at(0, &mut [0]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        inner.heal();
    }

    #[test]
    fn nobody_waits_after_it_was_given_up() {
        let (inner, device) = hanging();
        inner.inject(Fault::hanging(Operation::Flush));
        let device = Arc::new(device);
        let waiter = thread::spawn({
            let device = device.clone();
            move || device.flush()
        });
        device.give_up();
        assert_eq!(waiter.join().unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
        inner.heal();
    }

    #[test]
    fn the_device_is_let_go_of_when_its_last_answer_is_there() {
        let (inner, device) = hanging();
        for _ in 0..100 {
            device.flush().unwrap();
            assert_eq!(Arc::strong_count(&inner), 2);
        }
        drop(device);
        assert_eq!(Arc::strong_count(&inner), 1);
    }
}
