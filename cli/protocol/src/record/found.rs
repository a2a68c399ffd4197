//! What is found on devices: pools to import, states to go back to, and damage.

use serde::{Deserialize, Serialize};

use super::VdevRole;

/// A pool that is not imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportablePool {
    /// Its name.
    pub name: String,
    /// Its number.
    pub guid: u64,
    /// Somebody has destroyed it, and nobody has used its devices since.
    pub is_destroyed: bool,
    /// Its state, `ONLINE` if it can be imported as it is.
    pub state: String,
    /// What is in the way, if anything is.
    pub status: Option<String>,
    /// What to do.
    pub action: String,
    /// Its vdevs and their devices, and its cache devices.
    pub vdevs: Vec<FoundVdev>,
    /// Its spares.
    pub spares: Vec<FoundVdev>,
}

/// A vdev of a pool that is not imported, or a device of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundVdev {
    /// What it is there for.
    pub role: VdevRole,
    /// How deep it lies: a device of a mirror deeper than the mirror.
    pub depth: usize,
    /// A device's path, or what a mirror is called.
    pub name: String,
    /// Its state; nothing if all is well with a device that is in no vdev.
    pub state: String,
}

/// A committed state of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateRecord {
    /// Its transaction group.
    pub txg: u64,
    /// When it was committed.
    pub time: i64,
}

/// A state that cannot be gone back to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedState {
    /// Which.
    pub state: StateRecord,
    /// What is damaged.
    pub problem: String,
}

/// How a pool goes back to an older state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RewindReport {
    /// The pool's name.
    pub pool: String,
    /// Its newest state.
    pub newest: StateRecord,
    /// The state that it goes back to; the newest if that can be read.
    pub taken: StateRecord,
    /// The newer ones that cannot be read, newest first.
    pub passed: Vec<PassedState>,
    /// It has not been done.
    pub dry_run: bool,
}

/// What the verification of a pool found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckReport {
    /// The pool's name.
    pub pool: String,
    /// Its number.
    pub guid: u64,
    /// The transaction group that was verified.
    pub txg: u64,
    /// Blocks verified.
    pub blocks: u64,
    /// Their bytes as stored.
    pub bytes: u64,
    /// Datasets and snapshots verified.
    pub datasets: u64,
    /// Files of datasets that have lost their last name and are still to be freed. Nothing is wrong with that.
    pub orphans: u64,
    /// What is wrong; none if the pool is clean.
    pub findings: Vec<CheckFinding>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckFinding {
    /// The number of its code, which never changes its meaning.
    pub code: u16,
    /// What kind of thing, in a few fixed words: `damaged block`, `leaked space`.
    pub kind: String,
    /// Which one, where, with numbers.
    pub detail: String,
}
