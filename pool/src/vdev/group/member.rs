//! A member of a group, and its state.
//!
//! ```text
//!             resilvered and flushed           uberblock stable
//! Resilvering ---------------------> Resilvered ------------> Complete
//!    ^  \                               |                        |  a write or flush fails,
//!    |   \______________________________|________________________|  or the operator says so
//!    |                                  v                        v
//!    +--------------------------------- Out <--------------------+
//!      comes back
//! ```
//!
//! | | Out | Resilvering | Resilvered | Complete |
//! | --- | --- | --- | --- | --- |
//! | writes, flushes, labels | no | yes | yes | yes |
//! | uberblocks | no | no | yes | yes |
//! | is read, and counts for the quorum | no | no | no | yes |
//!
//! So in every state, a device durably has everything written up to the newest uberblock in its own rings, and lacks
//! only blocks born later.

use std::sync::{
    Arc,
    atomic::{AtomicU8, AtomicU64, Ordering},
};

use parking_lot::Mutex;

use super::load::Load;
use crate::{
    format::vdev_config::{Behind, MemberConfig},
    units::{Guid, Txg},
    vdev::leaf::{Health, Leaf},
};

/// The state of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum State {
    /// Not used: missing, faulted or offline.
    Out = 0,
    /// Being resilvered: gets new writes, and the blocks that it missed.
    Resilvering = 1,
    /// Resilvered, but without an uberblock that claims so.
    Resilvered = 2,
    /// Holds everything that the column should.
    Complete = 3,
}

/// A device of a mirror or a RAID-Z.
pub struct Member {
    /// The leaf, which outlives a device that returns.
    pub leaf: Arc<Leaf>,
    column: usize,
    state: AtomicU8,
    pub(super) details: Mutex<Details>,
    /// The txg of the first uberblock written after the member became complete; zero if long ago.
    pub(super) complete_since: AtomicU64,
    pub(in crate::vdev) load: Load,
}

/// What labels record of a member beside its state. Changes with the state, under the group's lock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Details {
    /// The uberblocks that the member had when it was taken out of use.
    pub(super) behind: Behind,
    pub(super) is_offline: bool,
    pub(super) replaces: Option<Guid>,
}

impl Member {
    /// A member in `state`, with the details that a label records. A complete or resilvering device must be present.
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

    /// The same member, in this column.
    pub fn at_column(self, column: usize) -> Member {
        Member { column, ..self }
    }

    /// The column. Members of one column hold the same bytes.
    pub fn column(&self) -> usize {
        self.column
    }

    /// The current state; another thread may change it at any time.
    pub fn state(&self) -> State {
        match self.state.load(Ordering::Acquire) {
            0 => State::Out,
            1 => State::Resilvering,
            2 => State::Resilvered,
            _ => State::Complete,
        }
    }

    pub(super) fn set_state(&self, state: State) {
        self.state.store(state as u8, Ordering::Release);
    }

    /// True if the member is out of use, but not by the administrator's wish: the device failed, or had too many
    /// errors.
    pub fn is_to_be_missed(&self) -> bool {
        self.state() == State::Out && (!self.is_offline() || self.leaf.health() != Health::Offline)
    }

    /// True if labels record the member as taken out of use: by the administrator, or because of too many errors.
    pub fn is_offline(&self) -> bool {
        self.details.lock().is_offline
    }

    /// The member that leaves when the new one is complete.
    pub fn replaces(&self) -> Option<Guid> {
        self.details.lock().replaces
    }

    /// The txg since which the member has been complete; zero if long ago.
    pub(crate) fn complete_since(&self) -> Txg {
        Txg(self.complete_since.load(Ordering::Relaxed))
    }

    /// Raises the txg since which the member has been complete to at least `txg`.
    pub(crate) fn note_complete_since(&self, txg: Txg) {
        self.complete_since.fetch_max(txg.0, Ordering::Relaxed);
    }

    /// The uberblocks of a member that is not complete. A resilvered member may have the uberblock that claims
    /// completeness.
    pub fn behind(&self) -> Option<Behind> {
        let behind = self.details.lock().behind;
        match self.state() {
            State::Complete => None,
            State::Resilvered => Some(Behind { may_have: self.leaf.marks().may_have, ..behind }),
            State::Out | State::Resilvering => Some(behind),
        }
    }

    /// Enters the member's state into a label.
    pub(super) fn describe(&self, config: &mut MemberConfig) {
        config.behind = self.behind();
        let details = self.details.lock();
        (config.is_offline, config.replaces) = (details.is_offline, details.replaces);
    }
}
