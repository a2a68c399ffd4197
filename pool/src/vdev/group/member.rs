//! A member of a group, and how it stands.
//!
//! ```text
//!          filled and flushed          uberblock stable
//! Filling --------------------> Filled ----------------> Complete
//!    ^  \                          |                        |  a write or flush fails,
//!    |   \_________________________|________________________|  or the operator says so
//!    |                             v                        v
//!    +---------------------------- Out <--------------------+
//!      comes back
//! ```
//!
//! | | Out | Filling | Filled | Complete |
//! | --- | --- | --- | --- | --- |
//! | writes, flushes, labels | no | yes | yes | yes |
//! | uberblocks | no | no | yes | yes |
//! | is read, and enough to go on with | no | no | no | yes |
//!
//! So whatever state it is in, a device has for good everything that was written up to the newest uberblock in its own
//! rings, and what it has missed was born after that one.

use std::sync::{
    Arc,
    atomic::{AtomicU8, AtomicU64, Ordering},
};

use parking_lot::Mutex;

use super::load::Load;
use crate::{
    format::vdev_config::{Behind, MemberConfig},
    units::{Guid, Txg},
    vdev::{Health, Leaf},
};

/// How a member stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum State {
    /// It is not used.
    Out = 0,
    /// It gets what is new, and what it has missed.
    Filling = 1,
    /// It has everything, but for an uberblock that says so.
    Filled = 2,
    /// It has everything.
    Complete = 3,
}

/// A device of a mirror or a RAID-Z.
pub struct Member {
    /// The device.
    pub leaf: Arc<Leaf>,
    column: usize,
    state: AtomicU8,
    pub(super) details: Mutex<Details>,
    /// The transaction group of the first uberblock by which it had everything; zero if that was long ago.
    pub(super) complete_since: AtomicU64,
    pub(in crate::vdev) load: Load,
}

/// What is said of a member beside its state. Changes with it, under the group's lock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Details {
    /// How far it had come when it was put out of use.
    pub(super) behind: Behind,
    pub(super) is_offline: bool,
    pub(super) replaces: Option<Guid>,
}

impl Member {
    /// A device that stands so, of which a label says this. One that is complete or filling is there.
    pub fn new(leaf: Arc<Leaf>, state: State, config: &MemberConfig) -> Member {
        let details = Details {
            behind: config.behind.unwrap_or_else(|| leaf.marks()),
            is_offline: config.is_offline,
            replaces: config.replaces,
        };
        if config.is_offline {
            leaf.note_health(Health::Offline);
        }
        Member {
            state: AtomicU8::new(state as u8),
            complete_since: AtomicU64::new(if config.replaces.is_some() { leaf.marks().has.txg.0 } else { 0 }),
            details: Mutex::new(details),
            leaf,
            column: 0,
            load: Load::default(),
        }
    }

    /// The same as a member of this column.
    pub fn at_column(self, column: usize) -> Member {
        Member { column, ..self }
    }

    /// Which column it has: members of one hold the same.
    pub fn column(&self) -> usize {
        self.column
    }

    /// How it stands.
    pub fn state(&self) -> State {
        match self.state.load(Ordering::Acquire) {
            0 => State::Out,
            1 => State::Filling,
            2 => State::Filled,
            _ => State::Complete,
        }
    }

    pub(super) fn set_state(&self, state: State) {
        self.state.store(state as u8, Ordering::Release);
    }

    /// Whether it is out of use, and labels do not say that the operator wants it: it has failed, or had too many errors.
    pub fn is_to_be_missed(&self) -> bool {
        self.state() == State::Out && (!self.is_offline() || self.leaf.health() != Health::Offline)
    }

    /// Whether labels say that it was put out of use: by the operator, or because it had too many errors.
    pub fn is_offline(&self) -> bool {
        self.details.lock().is_offline
    }

    /// The member that leaves when this one is complete.
    pub fn replaces(&self) -> Option<Guid> {
        self.details.lock().replaces
    }

    /// The transaction group from which on it has had everything; zero if that was long ago.
    pub(crate) fn complete_since(&self) -> Txg {
        Txg(self.complete_since.load(Ordering::Relaxed))
    }

    /// Notes from which transaction group on it has had everything, unless that is known to be later.
    pub(crate) fn note_complete_since(&self, txg: Txg) {
        self.complete_since.fetch_max(txg.0, Ordering::Relaxed);
    }

    /// How far it has come, if it lacks something. One that has everything may have the uberblock that says so.
    pub fn behind(&self) -> Option<Behind> {
        let behind = self.details.lock().behind;
        match self.state() {
            State::Complete => None,
            State::Filled => Some(Behind { may_have: self.leaf.marks().may_have, ..behind }),
            State::Out | State::Filling => Some(behind),
        }
    }

    /// What labels say of it.
    pub(super) fn describe(&self, config: &mut MemberConfig) {
        config.behind = self.behind();
        let details = self.details.lock();
        (config.is_offline, config.replaces) = (details.is_offline, details.replaces);
    }
}
