//! Space that is due to be freed: removed or destroyed, but not yet allocatable.
//!
//! A removed file gives its space back in steps. The kernel forgets the file, its items are freed a bounded number at a
//! time, the group commits, and three groups later the sectors can be allocated again. A destroyed dataset goes the
//! same way in steps of its own. [`Engine::wait_for_room`] handles the last part, the commits. This file handles the
//! first: the layer above reports the space still to be freed, and the caller that needs room frees it.
//!
//! So a write is refused only if nothing is due any more. The wait ends after [`PATIENCE`] in any case. It happens
//! before the caller takes any lock, because freeing takes the locks of files, and never on the committer's thread,
//! because freeing waits for commits.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use super::{
    reclaimer::{Due, Reclaimer},
    state::Engine,
};

/// The longest time that one call waits for space being freed.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest part of [`PATIENCE`] in which nothing is freed.
const EXPECTED: Duration = Duration::from_millis(500);
/// How long a caller sleeps before it asks again for expected space.
const PAUSE: Duration = Duration::from_millis(5);

impl Engine {
    /// Sets the layer that frees due space. To be called once.
    pub fn set_reclaimer(&self, reclaimer: Weak<dyn Reclaimer>) {
        assert!(self.reclaimer.set(reclaimer).is_ok(), "an engine has one reclaimer");
    }

    /// Frees a bounded part of the due space in the whole pool.
    pub fn free_due(&self) -> Due {
        self.reclaimer().map_or(Due::Nothing, |reclaimer| reclaimer.free_due())
    }

    /// Runs `attempt`. While the attempt fails for want of room and space is due, frees due space and runs it again.
    ///
    /// `free` frees the space that would cure an error, and is `None` for an error that room does not cure. The caller
    /// must hold no lock.
    ///
    /// # Errors
    /// Those of `attempt`.
    pub fn with_due_room<T, E>(
        &self,
        mut attempt: impl FnMut() -> Result<T, E>,
        free: impl Fn(&E) -> Option<Due>,
    ) -> Result<T, E> {
        let (mut end, mut waited) = (None, Duration::ZERO);
        loop {
            let outcome = attempt();
            let Err(error) = &outcome else { return outcome };
            let now = self.env.uptime();
            if now >= *end.get_or_insert(now + PATIENCE) {
                return outcome;
            }
            match free(error) {
                Some(Due::Freed) => {}
                // Other files removed meanwhile do not prolong this call.
                Some(Due::Expected) if waited < EXPECTED => {
                    self.env.sleep(PAUSE);
                    waited += PAUSE;
                }
                // Another thread may have freed the last due space since the attempt.
                Some(Due::Nothing | Due::Expected) => return attempt(),
                None => return outcome,
            }
        }
    }

    /// How many bytes of data there will be room for when all due space has been freed, without further writes. An
    /// estimate for `statfs` and for the available space of datasets: a write waits for this space.
    pub fn available_soon(&self) -> u64 {
        let totals = self.space_totals();
        let dropped: u64 = self.heads.lock().values().map(|head| head.dropped()).sum();
        let due = self.reclaimer().map_or(0, |reclaimer| reclaimer.due());
        let used = totals.size.saturating_sub(totals.free);
        // Space freed right now may count twice for a moment, but never as more than is in use.
        self.available() + totals.deferred.saturating_add(dropped).saturating_add(due).min(used)
    }

    fn reclaimer(&self) -> Option<Arc<dyn Reclaimer>> {
        self.reclaimer.get()?.upgrade()
    }
}
