//! The thread that looks after the courteous ones, for all mounts of the process.
//!
//! Each is known here before it becomes courteous, and as long as it may be. The watch itself is ordinary, and more than
//! that: it has very little to do, and others wait for it when there is no CPU to be had.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::process::setpriority_process;
use rustix::thread::{Pid, gettid};

use super::scheduler::{Policy, can_be_both, is_runnable, unbind};
use super::{BURST, Member, QUICK};

/// How often the watch looks, and how many answers there must be from one look to the next: as many as are quick.
pub(super) const LOOK: Duration = Duration::from_millis(2);
const ENOUGH: u32 = BURST * LOOK.as_millis() as u32 / QUICK.as_millis() as u32;

/// Looks after the courteous threads of the process.
pub(super) struct Watch {
    threads: Arc<Threads>,
    /// The thread that looks. It may run wherever threads of this process may that nobody has bound.
    id: Pid,
}

#[derive(Default)]
struct Threads {
    /// A thread that is in here is alive. Whoever has the lock is ordinary: the watch waits for it.
    courteous: Mutex<Vec<Watched>>,
    has_some: Condvar,
}

/// A courteous thread.
struct Watched {
    member: Arc<Member>,
    since: Instant,
    /// How often its staff had answered at the last look.
    seen: u32,
}

impl Watch {
    /// Starts the thread, if it can do what it is for.
    pub(super) fn start() -> io::Result<Watch> {
        let threads = Arc::new(Threads::default());
        let (ready, is_ready) = crossbeam_channel::bounded(1);
        let watched = Arc::clone(&threads);
        thread::Builder::new().name("fuse-watch".into()).spawn(move || {
            let result = can_be_both();
            let can = result.is_ok();
            let _ = ready.send(result.map(|()| gettid()));
            if !can {
                return;
            }
            let _ = setpriority_process(Some(gettid()), -20);
            loop {
                watched.look_after();
            }
        })?;
        let id = is_ready.recv().map_err(io::Error::other)??;
        Ok(Watch { threads, id })
    }

    /// Makes the thread that calls this, whose member this is, courteous after it is known here.
    pub(super) fn begin(&self, member: &Arc<Member>, now: Instant) -> io::Result<()> {
        let seen = member.staff.turns.load(Ordering::Relaxed);
        let mut courteous = self.threads.courteous.lock();
        courteous.push(Watched { member: Arc::clone(member), since: now, seen });
        if courteous.len() == 1 {
            self.threads.has_some.notify_one();
        }
        drop(courteous);
        let begun = member.go_along(self.id).and_then(|()| Policy::Courteous.set(member.id)).and_then(|()| {
            member.is_courteous.store(true, Ordering::SeqCst);
            // Before it was, the watch may have found that it gets no CPU, and could not say so.
            let is = Policy::current() == Some(Policy::Courteous);
            is.then_some(()).ok_or_else(|| io::Error::other("somebody else has the CPU"))
        });
        begun.inspect_err(|_| self.end(member))
    }

    /// Takes a courteous thread, the one that calls this, to where its program is now. An error leaves it ordinary.
    pub(super) fn go_along(&self, member: &Arc<Member>) -> io::Result<()> {
        member.go_along(self.id).inspect_err(|_| self.end(member))?;
        // The watch may have let it go where it likes in between, which it does after it has said so.
        if member.is_courteous.load(Ordering::SeqCst) { Ok(()) } else { member.leave(self.id) }
    }

    /// Makes the thread that calls this, whose member this is, ordinary, and does not look after it any more.
    pub(super) fn end(&self, member: &Arc<Member>) {
        // It can be: nobody is courteous who cannot be ordinary again. From here on it may have the lock.
        let _ = Policy::Ordinary.set(member.id);
        self.threads.courteous.lock().retain(|watched| !Arc::ptr_eq(&watched.member, member));
        // Nobody else touches it any more.
        member.is_courteous.store(false, Ordering::SeqCst);
        let _ = member.leave(self.id);
    }

    /// Makes the thread that calls this ordinary, as whoever started it may not have been, and lets it run wherever it may.
    pub(super) fn take_back(&self) {
        // It can be: nobody is courteous who cannot be ordinary again.
        let _ = Policy::Ordinary.set(gettid()).and_then(|()| unbind(gettid(), self.id));
    }
}

#[cfg(test)]
impl Watch {
    pub(super) fn looks_after(&self, thread: Pid) -> bool {
        self.threads.courteous.lock().iter().any(|watched| watched.member.id == thread)
    }
}

impl Threads {
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
        let Member { id, staff, is_courteous, .. } = &*self.member;
        let turns = staff.turns.load(Ordering::Relaxed);
        let answered = turns.wrapping_sub(self.seen);
        self.seen = turns;
        let is_quick = staff.is_quick.load(Ordering::Relaxed) && answered >= ENOUGH;
        if is_quick || now.saturating_duration_since(self.since) < LOOK {
            return true;
        }
        let was_kept_waiting = is_runnable(*id);
        if let Err(error) = Policy::Ordinary.set(*id) {
            // Nothing is known that would take a right away that there was. Next time, perhaps.
            tracing::debug!(%error, "a thread that gave way to programs cannot be made ordinary again");
            return true;
        }
        if !is_courteous.swap(false, Ordering::SeqCst) {
            // It has not come to it yet, or has just done it and not said so. It is looked at again.
            return true;
        }
        if let Err(error) = self.member.leave(gettid()) {
            tracing::debug!(%error, "a thread stays on the CPU of the program that it answered");
        }
        staff.is_quick.store(false, Ordering::Relaxed);
        staff.pace.lock().rest(now, now.saturating_duration_since(self.since), was_kept_waiting);
        false
    }
}
