//! Who runs when an answer is there: the program that waited for it, or the thread that gave it.
//!
//! A reply wakes the program while the thread is still busy with the system call that carries it. The scheduler sees that
//! the CPU is taken and sends the program to an idle one, which has to be woken up for it; with the next request all this
//! happens the other way round. That costs several times what the request does. A CPU that runs nothing but threads of
//! the policy `SCHED_IDLE`, however, is as good as idle: with this policy the thread is *courteous*. The program stays, goes
//! on at once, and the thread sleeps when the program does.
//!
//! For this both must be on one CPU. A thread of the ring is, by the queue that it serves. Through `/dev/fuse` the kernel
//! gives a request to any thread of the connection, wherever that was last; so while one [`Program`] asks for one small
//! thing after the other, these threads are bound to the CPU that it is on, and follow it. Where several ask at once,
//! or something large is wanted, the threads had better run beside those who ask, and do.
//!
//! The price is that a courteous thread gets next to nothing of a CPU on which anybody computes. So a thread is
//! courteous only while requests come quickly, and one thread of the process, the [`Watch`], looks every other millisecond
//! at those that are. Who has answered little since the last look becomes ordinary again, be it for want of requests, for
//! want of the CPU, or because an answer takes long. Who was not waiting for anything but the CPU then is not courteous
//! again for a while, and for longer each time. So what a busy machine costs is a few milliseconds now and then, for whoever
//! waits for that thread: be it for its answer, or for a lock that it has.
//!
//! To become ordinary again takes `CAP_SYS_NICE` or a limit `RLIMIT_NICE` that allows it. Where the process has neither,
//! nobody is ever courteous. A thread that a courteous one starts is courteous too and bound like it, and nobody looks after
//! it: it is started by [`spawn`], or by somebody else.

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

/// So many answers in so much time are quick.
const BURST: u32 = 16;
const QUICK: Duration = Duration::from_millis(8);

/// How long threads are ordinary after one was courteous and did not get to run, at first and at most.
const SHORTEST_PAUSE: Duration = Duration::from_millis(4);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Courtesy that went well for so long makes the next pause a short one again.
const WENT_WELL: Duration = Duration::from_millis(20);

/// Threads any of which may get the next request. They are courteous together.
pub(crate) struct Staff {
    /// How often they have answered.
    turns: AtomicU32,
    /// Whether requests come quickly enough.
    is_quick: AtomicBool,
    /// Whoever has the lock is ordinary: the watch waits for it.
    pace: Mutex<Pace>,
    /// Whom they answer, if they have to go where it is.
    program: Option<Program>,
}

/// When courtesy makes sense.
struct Pace {
    /// When the last burst began.
    since: Instant,
    /// Nobody is courteous before.
    until: Instant,
    /// How long the next pause is.
    next: Duration,
}

/// A thread, as it is known to the watch too.
struct Member {
    id: Pid,
    staff: Arc<Staff>,
    is_courteous: AtomicBool,
    /// The number of the CPU that it has bound itself to. Nobody else looks at it.
    place: AtomicUsize,
}

/// Makes the thread that has it courteous and ordinary.
pub(crate) struct Courtesy {
    member: Arc<Member>,
    /// Whether the thread is ordinary to begin with, and has not been given another policy by somebody.
    is_wanted: bool,
}

/// `None` if a thread cannot be made ordinary again.
static WATCH: LazyLock<Option<Watch>> = LazyLock::new(|| {
    let watch = Watch::start();
    watch.inspect_err(|error| tracing::debug!(%error, "threads cannot give way to the programs they answer")).ok()
});

/// Starts the watch, if it is not there yet. It inherits the CPUs that the caller may run on, which should be all.
pub(crate) fn prepare() {
    LazyLock::force(&WATCH);
}

/// Starts a thread that is ordinary, whoever starts it, and may run on every CPU that this process may.
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
    /// Threads that are where the programs are which they answer.
    pub(crate) fn in_place() -> Arc<Staff> {
        Staff::with(None)
    }

    /// Threads that follow the program which they answer.
    pub(crate) fn following() -> Arc<Staff> {
        Staff::with(Some(Program::default()))
    }

    fn with(program: Option<Program>) -> Arc<Staff> {
        let now = Instant::now();
        let pace = Mutex::new(Pace { since: now, until: now, next: SHORTEST_PAUSE });
        Arc::new(Staff { turns: AtomicU32::new(0), is_quick: AtomicBool::new(false), pace, program })
    }

    /// One of them, which `is_courteous` or not, answers.
    fn answered(&self, is_courteous: bool) {
        let turns = self.turns.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if !turns.is_multiple_of(BURST) {
            return;
        }
        let was_one = self.program.as_ref().is_none_or(Program::was_one);
        // The watch must not wait for a lock that a courteous thread has.
        if !is_courteous && self.pace.lock().is_quick(Instant::now()) && was_one {
            self.is_quick.store(true, Ordering::Relaxed);
        }
    }
}

impl Pace {
    /// To be asked after each burst. Whether it was quick, and nobody has to pause.
    fn is_quick(&mut self, now: Instant) -> bool {
        let took = now.saturating_duration_since(self.since);
        self.since = now;
        took < QUICK && self.until <= now
    }

    /// To be said when a thread becomes ordinary after so long.
    fn rest(&mut self, now: Instant, after: Duration, was_kept_waiting: bool) {
        if after >= WENT_WELL {
            self.next = SHORTEST_PAUSE;
        }
        // Of threads that were kept waiting together, one says so.
        if was_kept_waiting && self.until <= now {
            self.until = now + self.next;
            self.next = (self.next * 2).min(LONGEST_PAUSE);
        }
    }
}

impl Member {
    /// Binds the thread that calls this, the member's, to the CPU of the program that it follows, if it follows one.
    fn go_along(&self, watch: Pid) -> io::Result<()> {
        let Some(program) = &self.staff.program else { return Ok(()) };
        let cpu = program.cpu().ok_or_else(|| io::Error::other("the program that asks is gone"))?;
        cpu.bind(self.id, watch)?;
        self.place.store(cpu.number(), Ordering::Relaxed);
        Ok(())
    }

    /// Whether the thread is on another CPU than the program that it follows.
    fn is_elsewhere(&self) -> bool {
        let cpu = self.staff.program.as_ref().and_then(Program::cpu);
        cpu.is_some_and(|cpu| cpu.number() != self.place.load(Ordering::Relaxed))
    }

    /// Lets the thread run wherever the watch may, if it followed a program.
    fn leave(&self, watch: Pid) -> io::Result<()> {
        if self.staff.program.is_some() { scheduler::unbind(self.id, watch) } else { Ok(()) }
    }
}

impl Courtesy {
    /// For the thread that calls this.
    pub(crate) fn of(staff: Arc<Staff>) -> Courtesy {
        let member =
            Member { id: gettid(), staff, is_courteous: AtomicBool::new(false), place: AtomicUsize::new(usize::MAX) };
        Courtesy { member: Arc::new(member), is_wanted: Policy::current() == Some(Policy::Ordinary) }
    }

    /// To be called with every answer, before it is sent.
    pub(crate) fn answered(&self) {
        self.answered_to(None);
    }

    /// The same for a staff that follows the program, which has this number.
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

    /// Makes the thread ordinary, if it is courteous.
    fn end(&self) {
        if self.member.is_courteous.load(Ordering::Relaxed)
            && let Some(watch) = &*WATCH
        {
            watch.end(&self.member);
        }
    }
}

impl Drop for Courtesy {
    /// What the thread does yet is no answer, and its number may be somebody else's afterwards.
    fn drop(&mut self) {
        self.end();
    }
}

/// Held by a test for as long as it is to be the only one of these, who would keep each other from the CPUs. `None` if no
/// thread of this process can be courteous, as they must where there has to be a ring.
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

    /// A thread that runs to its end somewhere else: for those that would never end.
    fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
        let (done, result) = channel();
        thread::spawn(move || done.send(work()));
        result
    }

    #[test]
    fn who_does_not_get_to_run_is_ordinary_again_and_pauses() {
        let Some(_alone) = alone() else { return };
        let allowed = sched_getaffinity(None).unwrap();
        let mut one = CpuSet::new();
        one.set((0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).unwrap());
        let starved = run(move || {
            sched_setaffinity(None, &one).unwrap();
            let is_over = Arc::new(AtomicBool::new(false));
            let computes = Arc::clone(&is_over);
            // It has the CPU to itself when this thread is courteous.
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
        // It may have taken more than one attempt to get as far as that.
        assert!(next > SHORTEST_PAUSE, "{next:?}");
        assert_eq!((is_courteous, policy), (false, Some(Policy::Ordinary)));
    }

    #[test]
    fn who_rests_is_ordinary_again_without_a_pause() {
        let Some(_alone) = alone() else { return };
        // A machine with other work may have kept it from resting in time.
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
    fn a_thread_is_ordinary_whoever_starts_it() {
        let Some(_alone) = alone() else { return };
        let found = run(|| {
            loop {
                let courtesy = become_courteous();
                let (say, started) = channel();
                spawn("started", move || say.send(Policy::current()).unwrap()).unwrap();
                let own = Policy::current();
                let started = started.recv().unwrap();
                // Otherwise it has taken long.
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
