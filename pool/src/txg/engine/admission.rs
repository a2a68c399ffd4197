//! Admission: how much may be dirty, how fast writers may go on, and whether there is room for what they bring.

use std::{sync::atomic::Ordering, time::Duration};

use super::Engine;
use crate::{
    error::{Error, Result},
    space::{Class, DEFERRED_GROUPS},
    tree::{Growth, Policy},
    units::Txg,
};

/// After so many commits all that was freed before them can be allocated again: the group that frees, those that its frees
/// wait for, and one for what the first of them still had to do.
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
        // What the bytes may take: they may not compress, and whole sectors and nodes come on top.
        let bytes = bytes.next_multiple_of(self.sector().into()) + bytes / 64;
        // They may be cut into the smallest records that there are, of which each is rounded up on its own. How they are is
        // counted with each record.
        self.wait_for_room(bytes + bytes.div_ceil(LEAST_RECORD) * self.rounding())?;
        self.relieve(|| self.throttle.data.is_full(bytes))?;
        self.throttle.data.add(*self.enter(), bytes);
        Ok(())
    }

    /// Counts an update in `txg`, with the nodes that it made dirty.
    pub(in crate::txg) fn count_update(&self, txg: Txg, grown: Growth) {
        let bytes = grown.bytes as u64 + grown.nodes as u64 * self.rounding();
        self.throttle.add_update(txg, bytes * u64::from(self.metadata_copies()));
    }

    /// Counts a new record in `txg`, whose bytes are admitted.
    pub(in crate::txg) fn count_record(&self, txg: Txg, policy: Policy) {
        self.throttle.add_rounding(txg, self.rounding() * u64::from(policy.copies));
    }

    /// How many bytes a block may take beyond its sectors, where several are allocated together: its last unit, and that of
    /// a gang's header.
    fn rounding(&self) -> u64 {
        let unit = self.storage.space.unit();
        u64::from(if unit > 1 { 2 * unit - 1 } else { 0 }) * u64::from(self.sector())
    }

    /// Slows who changes nodes when many are dirty, and commits first when too many are: also what frees space changes
    /// nodes, and a commit must find room for all that it has to write. To be called without locks.
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

    /// Has a commit come if much is dirty and, if somebody makes it, waits for the turn of so much work.
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

    /// The last resort against too much that is dirty: waits for the commit that is under way and, if that did not help,
    /// makes one.
    fn relieve(&self, is_full: impl Fn() -> bool) -> Result<()> {
        // A commit that is suspended may not end; then it depends on the pool whether writers wait for it.
        while is_full() && self.syncing.try_lock_for(Duration::from_millis(20)).is_none() {
            self.writable()?;
        }
        if is_full() { self.commit().map(drop) } else { Ok(()) }
    }

    /// Space that was freed becomes free for use only some commits later; before the pool is called full, they are made.
    pub fn wait_for_room(&self, bytes: u64) -> Result<()> {
        for _ in 0..SETTLING_COMMITS {
            let available = self.available();
            if available >= bytes || !self.make_room(bytes - available)? {
                break;
            }
        }
        if self.available() >= bytes { Ok(()) } else { Err(Error::OutOfSpace) }
    }

    /// Commits once, if that is a step towards `missing` bytes more than are available. False if they would not come.
    ///
    /// What waits to be free is all there will be more when nothing has changed since the last commit; what the open group
    /// frees is known when it is committed. Older states are no longer held if their space would do.
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

    /// Whether more commits would leave as much room as there is: nothing has changed since the last one, and what was
    /// freed up to the last change can be allocated again or is kept for whoever reads an older state. What commits that
    /// change nothing free themselves does not count: the next would free as much.
    pub fn is_at_rest(&self) -> bool {
        !self.has_changed() && self.storage.space.is_settled(Txg(self.changed.load(Ordering::Relaxed)))
    }

    fn has_changed(&self) -> bool {
        self.touched.load(Ordering::Relaxed) || self.throttle.data.dirty() > 0
    }

    /// How many bytes of data there is room for, should nothing compress. Where several sectors are allocated together, as
    /// many are set aside for each record that is not stored yet as it could be rounded up by.
    pub fn available(&self) -> u64 {
        self.storage.space.free_for(Class::Data).saturating_sub(self.throttle.expected())
    }
}
