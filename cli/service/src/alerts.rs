//! The thread of a service for alerts: begin and end of an alert become events of the pool.
//!
//! The look may wait for a device, so the thread does nothing else, and no call waits for the thread.

use std::{sync::Weak, thread, time::Duration};

use super::daemon::Owned;
use crate::execute::OpenPool;

/// Interval between two looks.
const INTERVAL: Duration = Duration::from_secs(5);

/// Looks until the owner of the pool is gone, for the first time at once.
pub(super) fn start(owner: Weak<Owned>) {
    let work = move || {
        while let Some(owner) = owner.upgrade() {
            if let Some(guard) = owner.pool.try_read() {
                guard.as_ref().map(OpenPool::note_alerts);
            }
            drop(owner);
            thread::sleep(INTERVAL);
        }
    };
    let thread = thread::Builder::new().name("cenote-alerts".into()).spawn(work);
    // The thread ends with the process at the latest.
    drop(thread.expect("the system can start threads"));
}
