//! The thread that watches the courteous threads of all mounts of the process.
//!
//! A thread is registered here before it becomes courteous, until it is ordinary again. The watch itself is ordinary,
//! with raised priority: it has very little to do, and starved threads wait for it.

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

/// The interval between looks, and how many answers there must be in one: the same rate as in [`BURST`] and [`QUICK`].
pub(super) const LOOK: Duration = Duration::from_millis(2);
const ENOUGH: u32 = BURST * LOOK.as_millis() as u32 / QUICK.as_millis() as u32;

/// The registry of the courteous threads, and the thread that watches them.
pub(super) struct Watch {
    threads: Arc<Threads>,
    /// The watching thread. It may run on all CPUs of this process's unbound threads.
    id: Pid,
}

#[derive(Default)]
struct Threads {
    /// Every thread in here is alive. Only ordinary threads may hold this lock, because the watch waits for it.
    courteous: Mutex<Vec<Watched>>,
    has_some: Condvar,
}

/// A courteous thread.
struct Watched {
    member: Arc<Member>,
    since: Instant,
    /// The staff's count of answers at the last look.
    seen: u32,
}

impl Watch {
    /// Starts the thread. An error if a courteous thread could not become ordinary again.
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

    /// Registers the calling thread, `member`, and makes it courteous.
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
            // Before the store, the watch may have made the starved thread ordinary, and could not record that.
            let is = Policy::current() == Some(Policy::Courteous);
            is.then_some(()).ok_or_else(|| io::Error::other("somebody else has the CPU"))
        });
        begun.inspect_err(|_| self.end(member))
    }

    /// Moves the calling thread, which is courteous, to its program's CPU. An error leaves the thread ordinary.
    pub(super) fn go_along(&self, member: &Arc<Member>) -> io::Result<()> {
        member.go_along(self.id).inspect_err(|_| self.end(member))?;
        // The watch may have unbound the thread meanwhile; the watch clears the flag before unbinding.
        if member.is_courteous.load(Ordering::SeqCst) { Ok(()) } else { member.leave(self.id) }
    }

    /// Makes the calling thread, `member`, ordinary and removes it from the watch.
    pub(super) fn end(&self, member: &Arc<Member>) {
        // Cannot fail: a thread is courteous only if it can become ordinary. From here on the thread may take the lock.
        let _ = Policy::Ordinary.set(member.id);
        self.threads.courteous.lock().retain(|watched| !Arc::ptr_eq(&watched.member, member));
        // After the removal only this thread changes the flag.
        member.is_courteous.store(false, Ordering::SeqCst);
        let _ = member.leave(self.id);
    }

    /// Makes the calling thread, which may have inherited courtesy, ordinary and unbound.
    pub(super) fn take_back(&self) {
        // Cannot fail: a thread is courteous only if it can become ordinary.
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
    /// Waits until a thread is courteous, sleeps for `LOOK`, and looks at all courteous threads.
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
    /// Whether the thread stays courteous, or is about to be.
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
            // The process had the right, and no known event revokes it. The next look tries again.
            tracing::debug!(%error, "a thread that gave way to programs cannot be made ordinary again");
            return true;
        }
        if !is_courteous.swap(false, Ordering::SeqCst) {
            // The thread has not yet become courteous, or has not yet set the flag. The next look decides.
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
