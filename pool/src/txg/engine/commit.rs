//! Commits: on which thread they run, who waits, and the consequences of a failed one.
//!
//! The requesting thread commits; threads that arrive meanwhile share the next commit. Where a committer runs, the
//! committer commits, and requesting threads wait for it.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use crossbeam_channel::Receiver;

use super::state::Engine;
use crate::{
    device::IoPurpose,
    error::{Error, Result},
    space::Hold,
    txg::sync,
    units::{Guid, Txg},
    vdev::Suspension,
};

impl Engine {
    /// The newest committed transaction group.
    pub fn committed(&self) -> Txg {
        Txg(self.committed.load(Ordering::Acquire))
    }

    /// Brings everything done before the call to stable storage. Concurrent callers share a commit.
    ///
    /// # Errors
    /// [`Error::Suspended`] if the pool is or becomes suspended and its `failmode` is not to wait. Changes from before
    /// the call are still committed when the pool resumes.
    pub fn commit(&self) -> Result<Txg> {
        self.commit_if(false)
    }

    /// As [`Engine::commit`], but waits neither for the end of a suspension nor longer than `patience`: then there is
    /// no commit, yet.
    ///
    /// # Errors
    /// [`Error::Suspended`] if the pool is suspended, or becomes so meanwhile.
    pub fn commit_within(&self, patience: Duration) -> Result<Option<Txg>> {
        let end = self.env().uptime() + patience;
        let mut orders = self.orders.lock();
        orders.drawn += 1;
        let number = orders.drawn;
        while orders.has_committer && orders.served < number {
            self.not_failed()?;
            if let Some(why) = self.suspension().reason() {
                return Err(Error::Suspended(why));
            }
            let _ = self.kick.try_send(());
            let left = end.saturating_sub(self.env().uptime());
            if self.settled.wait_for(&mut orders, left).timed_out() {
                return Ok(None);
            }
        }
        let is_served = orders.served >= number;
        drop(orders);
        self.not_failed()?;
        if is_served { Ok(Some(self.committed())) } else { self.commit_here(false).map(Some) }
    }

    /// Commits even if nothing has changed: freed space can be allocated only some commits later.
    pub fn commit_anyway(&self) -> Result<Txg> {
        self.commit_if(true)
    }

    /// Commits on this thread, or requests the commit and waits for the committer.
    fn commit_if(&self, anyway: bool) -> Result<Txg> {
        let mut orders = self.orders.lock();
        orders.drawn += 1;
        orders.anyway |= anyway;
        let number = orders.drawn;
        while orders.has_committer {
            if orders.served >= number {
                return self.not_failed().map(|()| self.committed());
            }
            self.not_failed()?;
            self.not_suspended()?;
            // A full channel means that the committer has a wake-up pending.
            let _ = self.kick.try_send(());
            self.settled.wait(&mut orders);
        }
        drop(orders);
        self.commit_here(anyway)
    }

    /// Commits on this thread, committer or not.
    fn commit_here(&self, anyway: bool) -> Result<Txg> {
        let target = *self.gate.read();
        let _syncing = self.syncing.lock();
        if self.committed() >= target || self.read_only {
            return Ok(self.committed());
        }
        self.not_failed()?;
        if !anyway && !self.touched.load(Ordering::Relaxed) {
            return Ok(self.committed());
        }
        self.commit_held()
    }

    /// Commits under a new GUID of the pool, and calls `write` to write it to the labels before any other commit or
    /// intent log frame: see [`crate::admin::Pool::renumber`]. If the labels cannot be written, the pool takes no more
    /// changes.
    pub(crate) fn renumber(&self, guid: Guid, write: impl FnOnce() -> Result<()>) -> Result<Txg> {
        // This commit covers all earlier frames, and no frame is written before the labels have the new GUID.
        let _quiet = self.log.hold();
        let _syncing = self.syncing.lock();
        self.not_failed()?;
        self.guid.store(guid.0, Ordering::Release);
        let txg = self.commit_held()?;
        write().inspect_err(|error| self.fail(error))?;
        Ok(txg)
    }

    /// Commits. The caller holds the `syncing` lock.
    fn commit_held(&self) -> Result<Txg> {
        assert!(!self.log.is_applying(), "TXG-3: a commit comes before the intent log is replayed");
        self.storage.space.ease_holds();
        let unwinding = FailOnPanic(self);
        let outcome = IoPurpose::Background.during(|| Suspension::patiently(|| sync::run(self)));
        std::mem::forget(unwinding);
        match outcome {
            Ok(txg) => {
                self.throttle.committed(txg, self.env.uptime());
                self.committed.store(txg.0, Ordering::Release);
                self.log.committed(txg);
                self.heads.lock().values().for_each(|head| head.forget_frozen());
                Ok(txg)
            }
            Err(error) => {
                self.fail(&error);
                Err(error)
            }
        }
    }

    /// Holds the last committed state, and calls `find` to look up its contents while no commit is under way.
    pub(crate) fn hold_committed<T>(&self, find: impl FnOnce(Txg) -> Result<T>) -> Result<(Arc<Hold>, T)> {
        let _syncing = self.syncing.lock();
        let committed = self.committed();
        let hold = self.storage.space.hold(committed);
        Ok((hold, find(committed)?))
    }

    /// Sets whether a thread calls [`Engine::serve`] on request.
    pub(in crate::txg) fn set_committer(&self, has_committer: bool) {
        self.orders.lock().has_committer = has_committer;
        self.notify();
    }

    /// As [`Engine::serve`], on a timer: commits also without changes while commits still make freed space available. A
    /// pool at rest is left alone.
    pub(in crate::txg) fn tick(&self) -> Result<Txg> {
        self.orders.lock().anyway |= !self.is_at_rest();
        self.serve()
    }

    /// Makes the requested commits, on the committer's thread.
    pub(in crate::txg) fn serve(&self) -> Result<Txg> {
        let (drawn, anyway) = {
            let mut orders = self.orders.lock();
            (orders.drawn, std::mem::take(&mut orders.anyway))
        };
        let outcome = self.commit_here(anyway);
        self.orders.lock().served = drawn;
        self.notify();
        outcome
    }

    /// Wakes all threads that wait for a commit.
    pub(super) fn notify(&self) {
        // A thread that has checked and is about to wait holds the lock.
        drop(self.orders.lock());
        self.settled.notify_all();
    }

    /// A channel that receives when a commit should come soon. The receiver commits then, until [`Engine::unattended`].
    pub(in crate::txg) fn attend(&self) -> Receiver<()> {
        self.attended.store(true, Ordering::Relaxed);
        self.kicked.clone()
    }

    /// No thread receives kicks any more.
    pub(in crate::txg) fn unattended(&self) {
        self.attended.store(false, Ordering::Relaxed);
    }

    /// Asks for a commit soon.
    pub(in crate::txg) fn kick(&self) {
        // A full channel means that the committer has a wake-up pending.
        let _ = self.kick.try_send(());
    }
}

/// A group whose sync panicked is lost: its changes are in no tree that a later commit would write. So no commit may
/// follow.
struct FailOnPanic<'a>(&'a Engine);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        self.0.fail(&Error::Closed("the thread that committed has panicked".into()));
    }
}
