//! Whether the waiting program or the answering thread runs when an answer is ready.
//!
//! A reply wakes the program while the thread is still in the system call that carries the reply. The scheduler finds
//! the CPU taken and moves the program to an idle CPU, which must be woken first; the next request moves back the same
//! way. The two moves cost several times as much as the request. However, the scheduler counts a CPU that runs only
//! threads of the policy `SCHED_IDLE` as idle. A thread with this policy is *courteous*: the program stays on the CPU
//! and continues at once, and the thread sleeps when the program does.
//!
//! For this both must be on one CPU. A thread of the ring is there, by the queue it serves. Through `/dev/fuse` the
//! kernel gives a request to any thread of the connection, on any CPU. So while a single [`Program`] sends one small
//! request after another, the threads are bound to the program's CPU and follow it. If several programs ask at once, or
//! a request is large, the threads run better beside the programs, and are not bound.
//!
//! The price: a courteous thread gets nearly no CPU time where another thread computes. So a thread is courteous only
//! while requests come quickly, and one thread of the process, the [`Watch`], looks at the courteous threads every
//! other millisecond. A thread that has answered little since the last look becomes ordinary again: it had no requests,
//! no CPU, or an answer takes long. A thread that waited for nothing but the CPU also pauses before it is courteous
//! again, each time for longer. So on a busy machine a program that waits for the thread's answer, or for a lock that
//! the thread holds, loses a few milliseconds now and then.
//!
//! Becoming ordinary again takes `CAP_SYS_NICE` or a sufficient `RLIMIT_NICE`. In a process with neither, no thread is
//! ever courteous. A thread started by a courteous thread would inherit policy and binding without being watched. So it
//! is started by [`spawn`], or by an ordinary thread.

mod program;
mod scheduler;
mod watch;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::thread::{Pid, gettid};

pub(crate) use self::program::forget_program;

use self::program::Program;
use self::scheduler::Policy;
use self::watch::Watch;

/// Requests are quick if `BURST` answers take less than `QUICK`.
const BURST: u32 = 16;
const QUICK: Duration = Duration::from_millis(8);

/// How long threads stay ordinary after a courteous thread was starved: the first pause and the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(4);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The least duration of courtesy after which the pause is reset to the shortest.
const WENT_WELL: Duration = Duration::from_millis(20);

/// Threads with one common source of requests, courteous together.
pub(crate) struct Staff {
    /// The number of answers, wrapping.
    turns: AtomicU32,
    /// Whether requests come quickly enough.
    is_quick: AtomicBool,
    /// Only ordinary threads may hold this lock, because the watch waits for it.
    pace: Mutex<Pace>,
    /// The program to answer, if the threads have to follow it to its CPU.
    program: Option<Program>,
}

/// When courtesy makes sense.
struct Pace {
    /// The start of the last burst.
    since: Instant,
    /// No thread is courteous before this time.
    until: Instant,
    /// The length of the next pause.
    next: Duration,
}

/// A thread, shared with the watch.
struct Member {
    id: Pid,
    staff: Arc<Staff>,
    is_courteous: AtomicBool,
    /// The number of the CPU to which the thread has bound itself. Used by the thread alone.
    place: AtomicUsize,
}

/// Makes the owning thread courteous and ordinary.
pub(crate) struct Courtesy {
    member: Arc<Member>,
    /// Whether the thread was ordinary at first, with no policy set from outside.
    is_wanted: bool,
}

/// `None` if a thread cannot be made ordinary again.
static WATCH: LazyLock<Option<Watch>> = LazyLock::new(|| {
    let watch = Watch::start();
    watch.inspect_err(|error| tracing::debug!(%error, "threads cannot give way to the programs they answer")).ok()
});

/// Starts the watch, if necessary. The watch inherits the caller's CPUs, normally all.
pub(crate) fn prepare() {
    LazyLock::force(&WATCH);
}

/// Starts an ordinary thread that may run on every CPU of this process, even from a courteous caller.
pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    thread::Builder::new().name(name.into()).spawn(|| {
        if let Some(watch) = &*WATCH
            && Policy::current().is_some()
        {
            watch.take_back();
        }
        work()
    })
}

impl Staff {
    /// A staff of threads already on the CPUs of their programs.
    pub(crate) fn in_place() -> Arc<Staff> {
        Staff::with(None)
    }

    /// A staff of threads that follow their program.
    pub(crate) fn following() -> Arc<Staff> {
        Staff::with(Some(Program::default()))
    }

    fn with(program: Option<Program>) -> Arc<Staff> {
        let now = Instant::now();
        let pace = Mutex::new(Pace { since: now, until: now, next: SHORTEST_PAUSE });
        Arc::new(Staff { turns: AtomicU32::new(0), is_quick: AtomicBool::new(false), pace, program })
    }

    /// Counts an answer. `is_courteous`: whether the answering thread is.
    fn answered(&self, is_courteous: bool) {
        let turns = self.turns.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if !turns.is_multiple_of(BURST) {
            return;
        }
        let was_one = self.program.as_ref().is_none_or(Program::was_one);
        // The watch must not wait for a lock that a courteous thread holds.
        if !is_courteous && self.pace.lock().is_quick(Instant::now()) && was_one {
            self.is_quick.store(true, Ordering::Relaxed);
        }
    }
}

impl Pace {
    /// Called after each burst: whether the burst was quick, and no pause is in force.
    fn is_quick(&mut self, now: Instant) -> bool {
        let took = now.saturating_duration_since(self.since);
        self.since = now;
        took < QUICK && self.until <= now
    }

    /// Called when a thread becomes ordinary after being courteous for `after`.
    fn rest(&mut self, now: Instant, after: Duration, was_kept_waiting: bool) {
        if after >= WENT_WELL {
            self.next = SHORTEST_PAUSE;
        }
        // Of threads starved together, the first sets the pause.
        if was_kept_waiting && self.until <= now {
            self.until = now + self.next;
            self.next = (self.next * 2).min(LONGEST_PAUSE);
        }
    }
}

impl Member {
    /// Binds the calling thread, the member's, to the CPU of the followed program, if any.
    fn go_along(&self, watch: Pid) -> io::Result<()> {
        let Some(program) = &self.staff.program else { return Ok(()) };
        let cpu = program.cpu().ok_or_else(|| io::Error::other("the program that asks is gone"))?;
        cpu.bind(self.id, watch)?;
        self.place.store(cpu.number(), Ordering::Relaxed);
        Ok(())
    }

    /// Whether the thread is on another CPU than the followed program.
    fn is_elsewhere(&self) -> bool {
        let cpu = self.staff.program.as_ref().and_then(Program::cpu);
        cpu.is_some_and(|cpu| cpu.number() != self.place.load(Ordering::Relaxed))
    }

    /// Unbinds a following thread: it may run wherever the watch may.
    fn leave(&self, watch: Pid) -> io::Result<()> {
        if self.staff.program.is_some() { scheduler::unbind(self.id, watch) } else { Ok(()) }
    }
}

impl Courtesy {
    /// For the calling thread.
    pub(crate) fn of(staff: Arc<Staff>) -> Courtesy {
        let member =
            Member { id: gettid(), staff, is_courteous: AtomicBool::new(false), place: AtomicUsize::new(usize::MAX) };
        Courtesy { member: Arc::new(member), is_wanted: Policy::current() == Some(Policy::Ordinary) }
    }

    /// Called with every answer, before it is sent.
    pub(crate) fn answered(&self) {
        self.answered_to(None);
    }

    /// Like [`Courtesy::answered`], for a staff that follows the program with the given thread number.
    fn answered_to(&self, program: Option<u32>) {
        let Member { staff, is_courteous, .. } = &*self.member;
        let is_courteous = is_courteous.load(Ordering::Relaxed);
        staff.answered(is_courteous);
        if !staff.is_quick.load(Ordering::Relaxed) {
            self.end();
        } else if let Some(watch) = &*WATCH
            && self.is_wanted
        {
            if let (Some(followed), Some(id)) = (&staff.program, program) {
                followed.look(id);
            }
            let now = Instant::now;
            let done = match is_courteous {
                false => watch.begin(&self.member, now()),
                true if self.member.is_elsewhere() => watch.go_along(&self.member),
                true => Ok(()),
            };
            if let Err(error) = done {
                tracing::debug!(%error, "a thread cannot give way to the programs it answers");
                staff.is_quick.store(false, Ordering::Relaxed);
                staff.pace.lock().rest(now(), Duration::ZERO, true);
            }
        }
    }

    /// Makes the thread ordinary, unless it is already.
    fn end(&self) {
        if self.member.is_courteous.load(Ordering::Relaxed)
            && let Some(watch) = &*WATCH
        {
            watch.end(&self.member);
        }
    }
}

impl Drop for Courtesy {
    /// The thread's later work is no answer, and its number may be reused afterwards.
    fn drop(&mut self) {
        self.end();
    }
}

/// A test holds this guard to be the only test with courteous threads, because two would starve each other. `None` if
/// no thread of this process can be courteous, which fails the test where a ring is required.
#[cfg(test)]
fn alone() -> Option<parking_lot::MutexGuard<'static, ()>> {
    static ALONE: Mutex<()> = Mutex::new(());
    crate::testing::require_ring(WATCH.is_some()).then(|| ALONE.lock())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(60);

    /// Answers until this thread is courteous.
    fn become_courteous() -> Courtesy {
        let courtesy = Courtesy::of(Staff::in_place());
        while !is_courteous(&courtesy.member) {
            courtesy.answered();
        }
        courtesy
    }

    fn is_courteous(member: &Member) -> bool {
        member.is_courteous.load(Ordering::Relaxed)
    }

    /// Runs `work` in a thread of its own, so endless work fails the test by its deadline.
    fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
        let (done, result) = channel();
        thread::spawn(move || done.send(work()));
        result
    }

    #[test]
    fn a_starved_thread_becomes_ordinary_and_pauses() {
        let Some(_alone) = alone() else { return };
        let allowed = sched_getaffinity(None).unwrap();
        let mut one = CpuSet::new();
        one.set((0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).unwrap());
        let starved = run(move || {
            sched_setaffinity(None, &one).unwrap();
            let is_over = Arc::new(AtomicBool::new(false));
            let computes = Arc::clone(&is_over);
            // The hog has the CPU to itself when this thread is courteous.
            let hog = thread::spawn(move || while !computes.load(Ordering::Relaxed) {});
            let courtesy = become_courteous();
            while is_courteous(&courtesy.member) {}
            let next = courtesy.member.staff.pace.lock().next;
            courtesy.member.staff.pace.lock().until = Instant::now() + DEADLINE;
            (0..10 * BURST).for_each(|_| courtesy.answered());
            is_over.store(true, Ordering::Relaxed);
            hog.join().unwrap();
            (next, is_courteous(&courtesy.member), Policy::current())
        });
        let (next, is_courteous, policy) = starved.recv_timeout(DEADLINE).unwrap();
        // There may have been several attempts.
        assert!(next > SHORTEST_PAUSE, "{next:?}");
        assert_eq!((is_courteous, policy), (false, Some(Policy::Ordinary)));
    }

    #[test]
    fn an_idle_thread_becomes_ordinary_without_a_pause() {
        let Some(_alone) = alone() else { return };
        // A busy machine may have kept the thread from resting in time.
        let deadline = Instant::now() + DEADLINE;
        while !rests_without_a_pause(deadline) {
            assert!(Instant::now() < deadline, "each time there was a pause");
        }
    }

    fn rests_without_a_pause(deadline: Instant) -> bool {
        let (wake, woken) = channel::<()>();
        let (say, said) = channel();
        let resting = run(move || {
            let courtesy = become_courteous();
            say.send(Arc::clone(&courtesy.member)).unwrap();
            woken.recv().unwrap();
            Policy::current()
        });
        let member = said.recv_timeout(DEADLINE).unwrap();
        while is_courteous(&member) {
            assert!(Instant::now() < deadline, "nobody looks");
            thread::sleep(watch::LOOK);
        }
        wake.send(()).unwrap();
        assert_eq!(resting.recv_timeout(DEADLINE), Ok(Some(Policy::Ordinary)));
        let pause = member.staff.pace.lock().next;
        pause == SHORTEST_PAUSE
    }

    #[test]
    fn a_thread_of_a_courteous_one_is_ordinary() {
        let Some(_alone) = alone() else { return };
        let found = run(|| {
            loop {
                let courtesy = become_courteous();
                let (say, started) = channel();
                spawn("started", move || say.send(Policy::current()).unwrap()).unwrap();
                let own = Policy::current();
                let started = started.recv().unwrap();
                // Otherwise the thread took too long.
                if own == Some(Policy::Courteous) {
                    drop(courtesy);
                    return started;
                }
            }
        });
        assert_eq!(found.recv_timeout(DEADLINE), Ok(Some(Policy::Ordinary)));
    }

    #[test]
    fn answers_far_between_are_no_reason() {
        let courtesy = Courtesy::of(Staff::in_place());
        for _ in 0..3 {
            courtesy.member.staff.pace.lock().since -= QUICK;
            (0..BURST).for_each(|_| courtesy.answered());
            assert!(!is_courteous(&courtesy.member));
        }
    }

    #[test]
    fn a_thread_that_ends_is_looked_after_no_more() {
        let Some(_alone) = alone() else { return };
        let ended = run(|| become_courteous().member.id).recv_timeout(DEADLINE).unwrap();
        assert!(!WATCH.as_ref().unwrap().looks_after(ended));
    }
}
