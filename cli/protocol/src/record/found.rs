//! Findings on devices: pools to import, states for a rewind, and damage.

use serde::{Deserialize, Serialize};

use super::{state::State, vdev::VdevRole};

/// A pool that is not imported, as `pool import` lists the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportablePool {
    /// Name on the pool's labels.
    pub name: String,
    /// GUID on the pool's labels.
    pub guid: u64,
    /// The pool was destroyed, and its devices have not been used since.
    pub is_destroyed: bool,
    /// Health after an import: online if nothing is missing.
    pub state: State,
    /// Obstacle to an import; `None` if there is none.
    pub status: Option<String>,
    /// Advice to the administrator.
    pub action: String,
    /// Vdevs with their devices, and cache devices.
    pub vdevs: Vec<FoundVdev>,
    /// Spares of the pool.
    pub spares: Vec<FoundVdev>,
}

/// A vdev of an exported pool, or a device in a vdev.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundVdev {
    /// Allocation class, or cache device.
    pub role: VdevRole,
    /// Depth in the tree: a device of a mirror is one level below the mirror.
    pub depth: usize,
    /// Path of a device, or the name of a mirror or RAID-Z.
    pub name: String,
    /// Health; `None` for a healthy device outside all vdevs.
    pub state: Option<State>,
}

/// A committed state of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateRecord {
    /// Transaction group of the commit.
    pub txg: u64,
    /// Time of the commit, in seconds since 1970.
    pub time: i64,
}

/// A state that a rewind cannot use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedState {
    /// The unusable state.
    pub state: StateRecord,
    /// Description of the damage.
    pub problem: String,
}

/// Result of a rewind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RewindReport {
    /// Name on the pool's labels.
    pub pool: String,
    /// Newest state of the pool.
    pub newest: StateRecord,
    /// Target of the rewind; the newest state if readable.
    pub taken: StateRecord,
    /// Unreadable states newer than `taken`, newest first.
    pub passed: Vec<PassedState>,
    /// The rewind is only planned.
    pub dry_run: bool,
}

/// Result of verifying a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckReport {
    /// Name on the pool's labels.
    pub pool: String,
    /// GUID on the pool's labels.
    pub guid: u64,
    /// Transaction group of the verified state.
    pub txg: u64,
    /// Number of blocks verified.
    pub blocks: u64,
    /// Stored size of the verified blocks, in bytes.
    pub bytes: u64,
    /// Number of datasets and snapshots verified.
    pub datasets: u64,
    /// Number of unlinked files that are still to be freed. Orphans are no error.
    pub orphans: u64,
    /// Errors found; empty if the pool is clean.
    pub findings: Vec<CheckFinding>,
}

/// One error that a verification found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckFinding {
    /// Numeric code, whose meaning never changes.
    pub code: u16,
    /// Kind of error, as a fixed phrase: `damaged block`, `leaked space`.
    pub kind: String,
    /// Affected object, location and numbers.
    pub detail: String,
}
