//! Who runs when an answer is there: the program that waited for it, or the thread that gave it.
//!
//! A reply wakes the program while the thread is still busy with the system call that carries it. The scheduler sees that
//! the CPU is taken and sends the program to an idle one, which has to be woken up for it; with the next request all this
//! happens the other way round. That costs several times what the request does. A CPU that runs nothing but threads of
//! the policy `SCHED_IDLE`, however, is as good as idle: with this policy the thread is *courteous*. The program stays, goes
//! on at once, and the thread sleeps when the program does.
//!
//! The price is that a courteous thread gets next to nothing of a CPU on which anybody computes. So a thread is
//! courteous only while requests come quickly, and one thread of the process, the [`Watch`], looks every other millisecond
//! at those that are. Who has answered little since the last look becomes ordinary again, be it for want of requests, for
//! want of the CPU, or because an answer takes long. Who was not waiting for anything but the CPU then is not courteous again for a
//! while, and for longer each time. So what a busy machine costs is a few milliseconds now and then, for whoever waits for
//! that thread: be it for its answer, or for a lock that it has.
//!
//! To become ordinary again takes `CAP_SYS_NICE` or a limit `RLIMIT_NICE` that allows it. Where the process has neither,
//! nobody is ever courteous. A thread that a courteous one starts is courteous too, and nobody looks after it: it begins by
//! being [ordinary](be_ordinary), or is started by somebody else.

#![allow(unsafe_code)]

use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::process::setpriority_process;
use rustix::thread::{Pid, gettid};

/// So many answers in so much time are quick.
const BURST: u32 = 16;
const QUICK: Duration = Duration::from_millis(8);

/// How often the watch looks, and how many answers there must be from one look to the next: as many as are quick.
const LOOK: Duration = Duration::from_millis(2);
const ENOUGH: u32 = BURST * LOOK.as_millis() as u32 / QUICK.as_millis() as u32;

/// How long a thread is ordinary that was courteous and did not get to run, at first and at most.
const SHORTEST_PAUSE: Duration = Duration::from_millis(4);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Courtesy that went well for so long makes the next pause a short one again.
const WENT_WELL: Duration = Duration::from_millis(20);

/// The policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    Ordinary = libc::SCHED_OTHER as isize,
    Courteous = libc::SCHED_IDLE as isize,
}

/// A thread that answers, as it is known to the watch too.
struct Member {
    id: Pid,
    /// How often it has answered.
    turns: AtomicU32,
    is_courteous: AtomicBool,
    pause: Mutex<Pause>,
}

/// From when on a thread may be courteous, and how long it may not be after the next time that it did not get to run.
struct Pause {
    until: Instant,
    next: Duration,
}

/// Makes the thread that has it courteous and ordinary.
pub(super) struct Courtesy {
    member: Arc<Member>,
    /// When the last burst began.
    since: Instant,
    /// Whether the thread is ordinary to begin with, and has not been given another policy by somebody.
    is_wanted: bool,
}

/// A courteous thread.
struct Watched {
    member: Arc<Member>,
    since: Instant,
    /// How often it had answered at the last look.
    seen: u32,
}

/// Looks after the courteous threads of the process.
struct Watch(Arc<Threads>);

#[derive(Default)]
struct Threads {
    /// A thread that is in here is alive. Whoever has the lock is ordinary: the watch waits for it.
    courteous: Mutex<Vec<Watched>>,
    has_some: Condvar,
}

/// `None` if a thread cannot be made ordinary again.
static WATCH: LazyLock<Option<Watch>> = LazyLock::new(|| {
    let watch = Watch::start();
    watch.inspect_err(|error| tracing::debug!(%error, "threads cannot give way to the programs they answer")).ok()
});

/// Starts the watch, if it is not there yet. It inherits the CPUs that the caller may run on, which should be all.
pub(super) fn prepare() {
    LazyLock::force(&WATCH);
}

/// Makes the thread that calls this ordinary, if it is courteous because whoever started it was.
pub(super) fn be_ordinary() {
    if policy() == Some(Policy::Courteous) {
        // It can be: nobody is courteous who cannot be ordinary again.
        let _ = set_policy(gettid(), Policy::Ordinary);
    }
}

impl Courtesy {
    /// For the thread that calls this.
    pub(super) fn new() -> Courtesy {
        let now = Instant::now();
        let pause = Mutex::new(Pause { until: now, next: SHORTEST_PAUSE });
        let member = Member { id: gettid(), turns: AtomicU32::new(0), is_courteous: AtomicBool::new(false), pause };
        Courtesy { member: Arc::new(member), since: now, is_wanted: policy() == Some(Policy::Ordinary) }
    }

    /// To be called with every answer, before it is sent.
    pub(super) fn answered(&mut self) {
        let turns = self.member.turns.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if turns.is_multiple_of(BURST) {
            self.after_burst(Instant::now());
        }
    }

    fn after_burst(&mut self, now: Instant) {
        let is_quick = now.duration_since(self.since) < QUICK;
        self.since = now;
        if is_quick
            && self.is_wanted
            && !self.member.is_courteous.load(Ordering::Relaxed)
            && self.member.pause.lock().until <= now
            && let Some(Watch(threads)) = &*WATCH
        {
            threads.begin(&self.member, now);
        }
    }
}

impl Drop for Courtesy {
    /// What the thread does yet is no answer, and its number may be somebody else's afterwards.
    fn drop(&mut self) {
        if self.member.is_courteous.load(Ordering::Relaxed)
            && let Some(Watch(threads)) = &*WATCH
        {
            be_ordinary();
            threads.dismiss(&self.member);
        }
    }
}

impl Watch {
    /// Starts the thread, if it can do what it is for.
    fn start() -> io::Result<Watch> {
        let threads = Arc::new(Threads::default());
        let (ready, is_ready) = crossbeam_channel::bounded(1);
        let watched = Arc::clone(&threads);
        thread::Builder::new().name("fuse-watch".into()).spawn(move || {
            // Should the second one fail, this thread stays courteous, and ends.
            let result = set_policy(gettid(), Policy::Courteous).and_then(|()| set_policy(gettid(), Policy::Ordinary));
            let can = result.is_ok();
            let _ = ready.send(result);
            if !can {
                return;
            }
            // It has very little to do, and others wait for it when there is no CPU to be had.
            let _ = setpriority_process(Some(gettid()), -20);
            loop {
                watched.look_after();
            }
        })?;
        is_ready.recv().map_err(io::Error::other)??;
        Ok(Watch(threads))
    }
}

impl Threads {
    /// Makes the thread that calls this courteous, after it is known to the watch.
    fn begin(&self, member: &Arc<Member>, now: Instant) {
        let seen = member.turns.load(Ordering::Relaxed);
        let mut courteous = self.courteous.lock();
        courteous.push(Watched { member: Arc::clone(member), since: now, seen });
        if courteous.len() == 1 {
            self.has_some.notify_one();
        }
        drop(courteous);
        match set_policy(member.id, Policy::Courteous) {
            Ok(()) => member.is_courteous.store(true, Ordering::Relaxed),
            Err(error) => {
                tracing::debug!(%error, "a thread cannot give way to the programs it answers");
                self.dismiss(member);
            }
        }
    }

    /// The watch does not look at this one any more.
    fn dismiss(&self, member: &Arc<Member>) {
        self.courteous.lock().retain(|watched| !Arc::ptr_eq(&watched.member, member));
    }

    /// Waits until a thread is courteous, and a moment more, and looks at all that are.
    fn look_after(&self) {
        let mut courteous = self.courteous.lock();
        self.has_some.wait_while(&mut courteous, |courteous| courteous.is_empty());
        drop(courteous);
        thread::sleep(LOOK);
        let now = Instant::now();
        self.courteous.lock().retain_mut(|watched| watched.goes_on(now));
    }
}

impl Watched {
    /// Whether it stays courteous, or is about to be.
    fn goes_on(&mut self, now: Instant) -> bool {
        let turns = self.member.turns.load(Ordering::Relaxed);
        let answered = turns.wrapping_sub(self.seen);
        self.seen = turns;
        if answered >= ENOUGH || now.saturating_duration_since(self.since) < LOOK {
            return true;
        }
        let member = &self.member;
        let was_kept_waiting = is_runnable(member.id);
        if let Err(error) = set_policy(member.id, Policy::Ordinary) {
            // Nothing is known that would take a right away that there was. Next time, perhaps.
            tracing::debug!(%error, "a thread that gave way to programs cannot be made ordinary again");
            return true;
        }
        if !member.is_courteous.swap(false, Ordering::Relaxed) {
            // It has not come to it yet, or has just done it and not said so. It is looked at again.
            return true;
        }
        let mut pause = member.pause.lock();
        if now.saturating_duration_since(self.since) >= WENT_WELL {
            pause.next = SHORTEST_PAUSE;
        }
        if was_kept_waiting {
            pause.until = now + pause.next;
            pause.next = (pause.next * 2).min(LONGEST_PAUSE);
        }
        false
    }
}

/// Whether a thread of this process runs, or waits for nothing but a CPU.
fn is_runnable(thread: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
    stat.is_ok_and(|stat| state(&stat) == Some('R'))
}

/// The state in a line of `/proc/*/stat`: it follows the name, which may contain anything.
fn state(stat: &str) -> Option<char> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.trim_start().chars().next()
}

/// The policy of the thread that calls this; `None` if it is another one.
fn policy() -> Option<Policy> {
    // SAFETY: the system call reads and writes no memory of ours.
    let number = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
    [Policy::Ordinary, Policy::Courteous].into_iter().find(|&policy| policy as libc::c_long == number)
}

/// Gives a thread of this process, one that is alive, a policy.
fn set_policy(thread: Pid, policy: Policy) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the system call reads the structure, which lives until it returns, and no other memory. It is made directly
    // because not every C library passes it on.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            thread.as_raw_nonzero().get(),
            policy as libc::c_int,
            &raw const parameters,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::*;
    use crate::ring::queue;
    use crate::testing;

    const DEADLINE: Duration = Duration::from_secs(60);

    /// Whether threads of this process can be courteous. They must where there has to be a ring.
    fn can_be_courteous() -> bool {
        testing::require_ring(WATCH.is_some())
    }

    /// Answers until this thread is courteous.
    fn become_courteous() -> Courtesy {
        let mut courtesy = Courtesy::new();
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
        if !can_be_courteous() {
            return;
        }
        let allowed = sched_getaffinity(None).unwrap();
        let mut one = CpuSet::new();
        one.set((0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).unwrap());
        let starved = run(move || {
            sched_setaffinity(None, &one).unwrap();
            let is_over = Arc::new(AtomicBool::new(false));
            let computes = Arc::clone(&is_over);
            // It has the CPU to itself when this thread is courteous.
            let hog = thread::spawn(move || while !computes.load(Ordering::Relaxed) {});
            let mut courtesy = become_courteous();
            while is_courteous(&courtesy.member) {}
            let next = courtesy.member.pause.lock().next;
            courtesy.member.pause.lock().until = Instant::now() + DEADLINE;
            (0..10 * BURST).for_each(|_| courtesy.answered());
            is_over.store(true, Ordering::Relaxed);
            hog.join().unwrap();
            (next, is_courteous(&courtesy.member), policy())
        });
        let (next, is_courteous, policy) = starved.recv_timeout(DEADLINE).unwrap();
        assert_eq!((next, is_courteous, policy), (SHORTEST_PAUSE * 2, false, Some(Policy::Ordinary)));
    }

    #[test]
    fn who_rests_is_ordinary_again_without_a_pause() {
        if !can_be_courteous() {
            return;
        }
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
            policy()
        });
        let member = said.recv_timeout(DEADLINE).unwrap();
        while is_courteous(&member) {
            assert!(Instant::now() < deadline, "nobody looks");
            thread::sleep(LOOK);
        }
        wake.send(()).unwrap();
        assert_eq!(resting.recv_timeout(DEADLINE), Ok(Some(Policy::Ordinary)));
        let pause = member.pause.lock().next;
        pause == SHORTEST_PAUSE
    }

    #[test]
    fn a_thread_of_a_queue_is_ordinary_whoever_starts_it() {
        if !can_be_courteous() {
            return;
        }
        let found = run(|| {
            loop {
                let courtesy = become_courteous();
                let (say, started) = channel();
                queue::spawn(0, move || say.send(policy()).unwrap()).unwrap();
                let own = policy();
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
        let mut courtesy = Courtesy::new();
        for _ in 0..3 {
            courtesy.since = courtesy.since.checked_sub(QUICK).unwrap();
            (0..BURST).for_each(|_| courtesy.answered());
            assert!(!is_courteous(&courtesy.member));
        }
    }

    #[test]
    fn a_thread_that_ends_is_looked_after_no_more() {
        if !can_be_courteous() {
            return;
        }
        let ended = run(|| become_courteous().member.id).recv_timeout(DEADLINE).unwrap();
        let Some(Watch(threads)) = &*WATCH else { unreachable!() };
        assert!(threads.courteous.lock().iter().all(|watched| watched.member.id != ended));
    }

    #[test]
    fn a_state_is_found_whatever_the_thread_is_called() {
        assert_eq!(state("12 (fuse-ring-0) R 1 12"), Some('R'));
        assert_eq!(state("12 (a) S (b) R 1"), Some('R'));
        assert_eq!(state("12 (fuse"), None);
        assert_eq!(state(""), None);
    }
}
