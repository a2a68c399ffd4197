//! Admission: how much may be dirty, how fast writers may go on, and whether there is room for their data.

use std::{sync::atomic::Ordering, time::Duration};

use super::state::Engine;
use crate::{
    error::{Error, Result},
    space::{Class, DEFERRED_GROUPS},
    tree::{Growth, Policy},
    units::Txg,
};

/// After so many commits, all space freed before them can be allocated again: the group that frees, the groups for
/// which its frees wait, and one for leftover work of the first.
pub const SETTLING_COMMITS: usize = DEFERRED_GROUPS + 2;

/// Data is stored in records of so many bytes at least, but for the ends of files.
const LEAST_RECORD: u64 = 4096;

impl Engine {
    /// See [`Head::take_turn`](crate::txg::Head::take_turn).
    pub(in crate::txg) fn take_turn(&self, bytes: u64) -> Result<()> {
        self.wait_for_turn(bytes)?;
        self.throttle.add_work(*self.enter(), bytes);
        Ok(())
    }

    /// See [`Head::admit_in_turn`](crate::txg::Head::admit_in_turn).
    pub(in crate::txg) fn admit(&self, bytes: u64) -> Result<()> {
        self.writable()?;
        // The bytes' largest size on disk: they may not compress, and whole sectors and nodes come on top.
        let bytes = bytes.next_multiple_of(self.sector().into()) + bytes / 64;
        // The bytes may be cut into records of the smallest size, each rounded up on its own. The actual rounding is
        // counted with each record.
        self.wait_for_room(bytes + bytes.div_ceil(LEAST_RECORD) * self.rounding())?;
        self.relieve(|| self.throttle.data.is_full(bytes))?;
        self.throttle.data.add(*self.enter(), bytes);
        Ok(())
    }

    /// Counts an update in `txg`, with the nodes made dirty.
    pub(in crate::txg) fn count_update(&self, txg: Txg, grown: Growth) {
        let bytes = grown.bytes as u64 + grown.nodes as u64 * self.rounding();
        self.throttle.add_update(txg, bytes * u64::from(self.metadata_copies()));
    }

    /// Counts a new record in `txg`, with admitted bytes.
    pub(in crate::txg) fn count_record(&self, txg: Txg, policy: Policy) {
        self.throttle.add_rounding(txg, self.rounding() * u64::from(policy.copies));
    }

    /// How many bytes a block may take beyond its sectors, in chunks with units of several sectors: the rest of its
    /// last unit, and the unit of a gang's header.
    fn rounding(&self) -> u64 {
        let unit = self.storage.space.unit();
        u64::from(if unit > 1 { 2 * unit - 1 } else { 0 }) * u64::from(self.sector())
    }

    /// Slows writers when many nodes are dirty, and commits first when too many are. Frees change nodes too, and a
    /// commit must find room for every node to be written. To be called without locks.
    pub(in crate::txg) fn pace(&self) -> Result<()> {
        if self.log.is_applying() {
            return Ok(());
        }
        let nodes = &self.throttle.nodes;
        let room = self.storage.space.free_for(Class::Metadata) / 2;
        nodes.set_limit(room.min(self.throttle.data.limit()).max(1 << 20));
        self.wait_for_turn(0)?;
        self.relieve(|| nodes.is_full(0))
    }

    /// Requests a commit if much is dirty and, if a committer listens, waits for the turn of so much work.
    fn wait_for_turn(&self, work: u64) -> Result<()> {
        let throttle = &self.throttle;
        if throttle.is_light() {
            return Ok(());
        }
        if throttle.is_worth_a_commit(*self.enter()) {
            self.kick();
        }
        if !self.attended.load(Ordering::Relaxed) {
            return Ok(());
        }
        let Some(turn) = throttle.queue(work, self.env.uptime()) else { return Ok(()) };
        while let Some(wait) = throttle.wait(turn, self.env.uptime()) {
            self.env.sleep(wait);
            self.writable()?;
        }
        Ok(())
    }

    /// The last resort when too much is dirty: waits for the commit under way and, if that did not help, makes one.
    fn relieve(&self, is_full: impl Fn() -> bool) -> Result<()> {
        // A suspended commit may not end; then the pool's `failmode` decides whether writers wait.
        while is_full() && self.syncing.try_lock_for(Duration::from_millis(20)).is_none() {
            self.writable()?;
        }
        if is_full() { self.commit().map(drop) } else { Ok(()) }
    }

    /// Makes commits until `bytes` are available, because freed space can be allocated only some commits later. Fails
    /// with [`Error::OutOfSpace`] if the pool is full all the same.
    pub fn wait_for_room(&self, bytes: u64) -> Result<()> {
        for _ in 0..SETTLING_COMMITS {
            let available = self.available();
            if available >= bytes || !self.make_room(bytes - available)? {
                break;
            }
        }
        if self.available() >= bytes { Ok(()) } else { Err(Error::OutOfSpace) }
    }

    /// Commits once if a commit is a step towards `missing` more bytes of available space. False if no commit can
    /// supply them.
    ///
    /// If nothing has changed since the last commit, only deferred frees can become available; the frees of the open
    /// group are known after its commit. Holds on older states are given up if their space would do.
    pub fn make_room(&self, missing: u64) -> Result<bool> {
        let totals = self.space_totals();
        if missing <= totals.deferred {
            self.storage.space.give_up_holds();
        } else if !self.has_changed() || missing > totals.size - totals.free + self.throttle.expected() {
            return Ok(false);
        }
        if self.is_at_rest() {
            return Ok(false);
        }
        self.commit_anyway().map(|_| true)
    }

    /// Whether further commits would gain no room: nothing has changed since the last one, and space freed up to the
    /// last change can be allocated or is held for readers of an older state. Frees of commits without changes do not
    /// count: the next commit would free as much again.
    pub fn is_at_rest(&self) -> bool {
        !self.has_changed() && self.storage.space.is_settled(Txg(self.changed.load(Ordering::Relaxed)))
    }

    fn has_changed(&self) -> bool {
        self.touched.load(Ordering::Relaxed) || self.throttle.data.dirty() > 0
    }

    /// How many bytes of data there is room for, assuming no compression. With allocation units of several sectors, the
    /// largest possible rounding is set aside for each record not yet stored.
    pub fn available(&self) -> u64 {
        self.storage.space.free_for(Class::Data).saturating_sub(self.throttle.expected())
    }
}
