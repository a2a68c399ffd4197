//! What happens when a device fails a request that a commit needs: the pool is suspended, and every writer waits.
//!
//! A failed write or flush is not reported upwards. The requesting thread is held here until the device is attended to
//! and the pool is resumed. Then the same write is tried again, and the layers above never learn that it took an hour.
//! So a commit that cannot be written is neither lost nor half done: it stands still. Only [giving
//! up](Suspension::abandon) ends the wait, with an error for all held threads.
//!
//! The intent log has a fallback, a commit, and is not held ([`Suspension::hastily`]): the caller of fsync waits for
//! the commit, or is refused, as for any commit.
//!
//! A reader has nothing to lose. It is held if it works for a commit ([`Suspension::patiently`]) or if all requests are
//! to wait ([`Suspension::set_waiting`]); otherwise it gets the error.
//!
//! A pool that cannot be resumed (opened by a single command, or by a test) is never suspended: see
//! [`Suspension::enable`]. Its errors are returned as they come.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::{Condvar, Mutex};

use crate::error::{Error, Result};

thread_local! {
    /// This thread works for a commit, and waits for a device instead of returning an error.
    static PATIENT: Cell<bool> = const { Cell::new(false) };
    /// This thread has a fallback if a device fails, and is not held.
    static HASTY: Cell<bool> = const { Cell::new(false) };
}

/// A counter of resumes, read before a request to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Era(u64);

/// Whether a pool is suspended, with the threads that wait for its end. All devices of a pool share one.
#[derive(Default)]
pub struct Suspension {
    /// The pool can be resumed. Changes with the state locked.
    enabled: AtomicBool,
    /// Readers that cannot be served are held, too.
    waiting: AtomicBool,
    /// Mirrors `state.why`, for lookups without the lock.
    suspended: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
    watchers: Mutex<Vec<Arc<dyn Fn() + Send + Sync>>>,
}

#[derive(Default)]
struct State {
    /// Why the pool is suspended, if it is.
    why: Option<String>,
    era: u64,
}

impl Suspension {
    /// From now on device errors suspend the pool, because the owner of the pool can resume it.
    pub fn enable(&self) {
        let _state = self.state.lock();
        self.enabled.store(true, Ordering::Release);
    }

    /// Whether device errors suspend the pool.
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Acquire)
    }

    /// Sets whether all requests to a suspended device wait, or only requests of a commit.
    pub fn set_waiting(&self, waiting: bool) {
        self.waiting.store(waiting, Ordering::Release);
        self.notify();
    }

    /// See [`Suspension::set_waiting`].
    pub fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    /// Calls `watcher` after the pool was suspended, resumed or given up, on the thread of the change and after earlier
    /// watchers. A watcher may itself resume the pool; the thread about to be held then continues.
    pub fn watch(&self, watcher: impl Fn() + Send + Sync + 'static) {
        self.watchers.lock().push(Arc::new(watcher));
    }

    /// Runs `work` of a commit: its reads wait for a suspended device, as its writes do.
    pub fn patiently<T>(work: impl FnOnce() -> T) -> T {
        let before = PATIENT.replace(true);
        let result = work();
        PATIENT.set(before);
        result
    }

    /// Runs `work` that has a fallback: an error suspends the pool, but is returned at once.
    pub fn hastily<T>(work: impl FnOnce() -> T) -> T {
        let before = HASTY.replace(true);
        let result = work();
        HASTY.set(before);
        result
    }

    /// Whether this thread works for a commit.
    pub(super) fn is_patient() -> bool {
        PATIENT.get()
    }

    /// Whether a reader on this thread is to wait.
    pub(super) fn holds_readers(&self) -> bool {
        self.is_enabled() && (self.is_waiting() || PATIENT.get())
    }

    /// Whether the pool is suspended now.
    pub fn is_suspended(&self) -> bool {
        self.suspended.load(Ordering::Acquire)
    }

    /// Why the pool is suspended, if it is.
    pub fn reason(&self) -> Option<String> {
        self.state.lock().why.clone()
    }

    /// The current era. Taken before a request to a device, for [`Suspension::hold`].
    pub fn era(&self) -> Era {
        Era(self.state.lock().era)
    }

    /// Suspends the pool because of a device's `error` in `era`. An error of an earlier era was already dealt with.
    pub fn suspend(&self, era: Era, error: &Error) {
        let begins = {
            let mut state = self.state.lock();
            let begins = self.is_enabled() && state.era == era.0 && state.why.is_none();
            if begins {
                state.why = Some(error.to_string());
                self.suspended.store(true, Ordering::Release);
            }
            begins
        };
        if begins {
            tracing::error!("the pool is suspended: {error}");
            self.notify();
        }
    }

    /// Suspends the pool, and returns when the pool was resumed and the failed request is to be repeated.
    ///
    /// # Errors
    /// `error` itself if the pool cannot be resumed, it was given up, or this thread has [a fallback](Self::hastily).
    pub fn hold(&self, era: Era, error: Error) -> Result<()> {
        self.suspend(era, &error);
        if HASTY.get() {
            return Err(error);
        }
        let mut state = self.state.lock();
        while state.era == era.0 && self.is_enabled() {
            self.changed.wait(&mut state);
        }
        if state.era == era.0 { Err(error) } else { Ok(()) }
    }

    /// Lets all held threads try again.
    pub fn resume(&self) {
        {
            let mut state = self.state.lock();
            state.era += 1;
            state.why = None;
            self.suspended.store(false, Ordering::Release);
        }
        tracing::info!("the pool goes on");
        self.notify();
    }

    /// Gives up the pending writes of a suspended pool: all held threads get their error. From now on errors are
    /// returned.
    pub fn abandon(&self) {
        {
            let _state = self.state.lock();
            self.enabled.store(false, Ordering::Release);
        }
        self.notify();
    }

    fn notify(&self) {
        self.changed.notify_all();
        let watchers = self.watchers.lock().clone();
        watchers.iter().for_each(|watcher| watcher());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error() -> Error {
        Error::Request("a device failed".into())
    }

    #[test]
    fn without_somebody_to_resume_errors_go_up() {
        let suspension = Suspension::default();
        assert!(suspension.hold(suspension.era(), error()).is_err());
        assert!(!suspension.is_suspended());
    }

    #[test]
    fn who_is_held_goes_on_after_the_pool_was_resumed() {
        let suspension = Arc::new(Suspension::default());
        suspension.enable();
        let era = suspension.era();
        let held: Vec<_> = (0..3)
            .map(|_| {
                let suspension = suspension.clone();
                std::thread::spawn(move || suspension.hold(era, error()))
            })
            .collect();
        while !suspension.is_suspended() {
            std::thread::yield_now();
        }
        suspension.resume();
        held.into_iter().for_each(|held| held.join().unwrap().unwrap());
        // An error of an earlier era no longer suspends the pool.
        suspension.hold(era, error()).unwrap();
        assert!(!suspension.is_suspended());
    }

    #[test]
    fn who_is_held_gets_the_error_when_the_pool_is_given_up() {
        let suspension = Arc::new(Suspension::default());
        suspension.enable();
        let era = suspension.era();
        let held = std::thread::spawn({
            let suspension = suspension.clone();
            move || suspension.hold(era, error())
        });
        suspension.abandon();
        assert!(held.join().unwrap().is_err());
        assert!(suspension.hold(suspension.era(), error()).is_err());
    }

    #[test]
    fn a_watcher_may_resume_before_anybody_is_held() {
        let suspension = Arc::new(Suspension::default());
        suspension.enable();
        let watched = Arc::downgrade(&suspension);
        suspension.watch(move || {
            let suspension = watched.upgrade().unwrap();
            if suspension.is_suspended() {
                suspension.resume();
            }
        });
        suspension.hold(suspension.era(), error()).unwrap();
        assert!(!suspension.is_suspended());
    }

    #[test]
    fn patience_is_of_one_thread_and_for_a_time() {
        let suspension = Suspension::default();
        suspension.enable();
        assert!(!suspension.holds_readers());
        Suspension::patiently(|| assert!(suspension.holds_readers()));
        assert!(!suspension.holds_readers());
        suspension.set_waiting(true);
        assert!(suspension.holds_readers());
    }
}
