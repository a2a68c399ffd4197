//! Requests about the whole pool.

use serde::{Deserialize, Serialize};

use crate::record::Assignment;

/// A request about the whole pool: properties, state, history, errors. The comment on each variant
/// ends with the [`Response`](crate::Response) it expects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PoolRequest {
    /// Reads the pool's own properties. `Pool`
    Pool {
        /// Property names in the order of output; empty for all, features included.
        properties: Vec<String>,
        /// Whether the response includes the vdevs.
        vdevs: bool,
    },
    /// Set properties of the pool. `Done`, or in a dry run `Foreseen`
    SetPool {
        /// New values; the last of a property wins.
        assignments: Vec<Assignment>,
        /// Report what would change, and change nothing.
        dry_run: bool,
    },
    /// The pool's state, devices and errors. `Status`
    Status,
    /// The commands that changed the pool, oldest first. `History`
    History {
        /// Include changes that the engine made by itself.
        internal: bool,
    },
    /// Commit the open transaction group now. `Done`
    Sync,
    /// Verify the last committed state while the pool stays in use. `Checked`
    Check,
    /// Loss that the failure of some devices would cause. `Losses`
    Losses {
        /// Paths or GUIDs of the devices presumed lost.
        devices: Vec<String>,
    },
    /// Events, also of earlier services. `Events`
    Events {
        /// Return only events with a higher number; 0 for all.
        after: u64,
    },
    /// Clear all recorded events. `Cleared`
    ClearEvents,
    /// All background activities, running or not. `Activities`
    Activities,
    /// Reopen devices after missing responses, and resume a suspended pool, like `Clear`; keep error counters. `Done`
    Reopen,
    /// Clear the error counters of devices, and resume a suspended pool. `Done`
    Clear {
        /// Path or GUID of a device; `None` for all devices.
        device: Option<String>,
    },
    /// I/O counters since import. `IoCounters`
    IoCounters,
    /// Figures of the caches since import. `Cache`
    CacheFigures,
    /// Change the pool's GUID, for users who identify the pool by GUID. `Done`
    Renumber {
        /// The new GUID of the pool.
        guid: u64,
    },
}
