//! A vdev that is several devices, each of which holds everything.
//!
//! What is written goes to all members that are in use, what is read comes from any that is complete. One that fails a
//! write or a flush is put out of use at once, and gets nothing more: neither data nor uberblocks nor labels. The pool
//! goes on as long as one complete member is left; only the failure of the last one suspends it ([`Suspension`]). What a
//! member has missed it gets from the others when it is back, while the pool is in use: it is *filled*.
//!
//! What must always hold:
//!
//! 1. A device has for good everything that was written up to the newest uberblock in its own rings.
//! 2. What a flush has promised is on every member that the labels call complete. So the labels say that a member is out
//!    of use before the next flush of the pool returns, whether a commit needs it or an fsync: see
//!    [`Vdevs::flush`](crate::block::storage::Vdevs::flush).
//! 3. One member at least is complete.
//!
//! When a member fails, power may fail at any of these instants:
//!
//! | power fails | import finds |
//! | --- | --- |
//! | before the next flush of the pool has returned | both members with the same uberblock, and nothing promised that one of them lacks |
//! | while the labels are told | the same; the member is filled from that uberblock on if a label says that it is behind |
//! | after that, before the next uberblock | the same |
//! | after the uberblock | a member behind, by the labels and by its own rings |
//!
//! When a member has been filled:
//!
//! | power fails | import finds |
//! | --- | --- |
//! | before it has an uberblock | a member behind, as before; it is filled again |
//! | after that, before the labels say that it is complete | the same: the labels say which uberblock it may have had |
//! | after that | two complete members |
//!
//! If the other members are lost in the second case, the import is refused until one is back.

mod member;
mod reading;
#[cfg(test)]
mod tests;
mod writing;

use std::{
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};

use self::member::Details;
pub use self::member::{Member, State};
use super::{Check, Examined, Found, Health, Leaf, Suspension, Vdev, suspension::Era};
use crate::{
    device::Device,
    error::{Error, Result},
    format::vdev_config::{Behind, Mark, VdevTree},
    units::{Guid, Txg, VdevId},
};

/// Several devices under a pool, each of which holds everything.
pub struct Mirror {
    id: VdevId,
    guid: Guid,
    /// As much as its smallest member has, but no more than is known of those that are not there.
    size: AtomicU64,
    members: RwLock<Arc<Vec<Arc<Member>>>>,
    suspension: OnceLock<Arc<Suspension>>,
    /// Held by whoever changes how members stand, or asks whether that has changed.
    changing: Mutex<()>,
    /// How often that has changed, and of which of these changes the labels were told.
    changes: AtomicU64,
    told: AtomicU64,
    /// Whose turn it is among members that could be read as well.
    turn: AtomicUsize,
}

impl Mirror {
    /// These devices as vdev `id`, which gives `size` bytes to the pool.
    pub fn new(id: VdevId, guid: Guid, size: u64, members: Vec<Arc<Member>>) -> Mirror {
        assert!(members.iter().any(|member| member.state() == State::Complete), "a mirror has a complete member");
        Mirror {
            id,
            guid,
            size: AtomicU64::new(size),
            members: RwLock::new(Arc::new(members)),
            suspension: OnceLock::new(),
            changing: Mutex::default(),
            changes: AtomicU64::new(0),
            told: AtomicU64::new(0),
            turn: AtomicUsize::new(0),
        }
    }

    /// Its members.
    pub fn members(&self) -> Arc<Vec<Arc<Member>>> {
        self.members.read().clone()
    }

    /// One of them.
    pub fn member(&self, device: Guid) -> Option<Arc<Member>> {
        self.members().iter().find(|member| member.leaf.guid() == device).cloned()
    }

    /// Gives it other members: the labels know them. Whoever writes at this time may miss a new one, so only what is born
    /// in the group after the open one is sure to be on it.
    pub(crate) fn set_members(&self, members: Vec<Arc<Member>>) {
        let _changing = self.changing.lock();
        assert!(members.iter().any(|member| member.state() == State::Complete), "a mirror has a complete member");
        self.note_change();
        let least = members.iter().map(|member| member.leaf.size()).min().unwrap_or(0);
        self.size.store(least, Ordering::Relaxed);
        *self.members.write() = Arc::new(members);
        self.note_change();
    }

    /// To be called before members change and again after it: whoever flushes in between has the labels told, and so has
    /// whoever looks at what they say.
    fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Puts a member out of use because the operator says so; `false` if it is the last complete one. With `lasting` it
    /// stays so after the next import.
    pub(crate) fn put_offline(&self, device: Guid, lasting: bool) -> bool {
        self.put_out(device, Health::Offline, Some(lasting))
    }

    /// A member that others were to take the place of is gone.
    pub(crate) fn forget_replaced(&self, device: Guid) {
        for member in self.members().iter() {
            let mut details = member.details.lock();
            details.replaces = details.replaces.filter(|replaced| *replaced != device);
        }
    }

    /// Takes a member back that was found to have come so far, to be filled with what came later.
    pub(crate) fn take_back(&self, device: Guid, found: Arc<dyn Device>, behind: Behind) {
        let _changing = self.changing.lock();
        let Some(member) = self.member(device).filter(|member| member.state() == State::Out) else { return };
        self.note_change();
        member.leaf.renew(found, behind);
        self.size.fetch_min(member.leaf.size(), Ordering::Relaxed);
        {
            let mut details = member.details.lock();
            *details = Details { behind, is_offline: false, replaces: details.replaces };
        }
        member.set_state(State::Filling);
        self.note_change();
    }

    /// How often its members have changed.
    pub(crate) fn round(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The members that are being filled, and what each of them has: what was born up to then.
    pub(crate) fn being_filled(&self) -> Vec<(Guid, Txg)> {
        let members = self.members();
        let filling = members.iter().filter(|member| member.state() == State::Filling);
        filling.map(|member| (member.leaf.guid(), member.details.lock().behind.has.txg)).collect()
    }

    /// Something was not copied to members that are being filled: they have to be filled from the beginning.
    pub(crate) fn fill_anew(&self) {
        self.note_change();
    }

    /// Notes that these members lack nothing any more: everything is flushed, and no commit is under way. `false` if members
    /// have changed since `round`. The labels are told: of which uberblock they will say so, the next commit knows.
    pub(crate) fn filled(&self, devices: &[Guid], round: u64) -> bool {
        let _changing = self.changing.lock();
        if self.round() != round {
            return false;
        }
        for member in self.members().iter().filter(|member| devices.contains(&member.leaf.guid())) {
            if member.state() == State::Filling {
                self.note_change();
                member.set_state(State::Filled);
                self.note_change();
            }
        }
        true
    }

    /// Puts a member out of use; `false` if it is the last complete one. If the operator wants it, it is said whether that
    /// is to last; then it is noted also of one that is out of use already.
    ///
    /// The order matters. Whoever flushes either finds the member in use, and it has what the flush promises, or finds that
    /// there are news; and what the labels say is not taken for all before the member is out of use.
    fn put_out(&self, device: Guid, health: Health, offline: Option<bool>) -> bool {
        let _changing = self.changing.lock();
        let members = self.members();
        let is_complete = |member: &Arc<Member>| member.state() == State::Complete;
        let Some(member) = members.iter().find(|member| member.leaf.guid() == device) else { return true };
        if members.iter().filter(|other| is_complete(other)).all(|other| other.leaf.guid() == device) {
            return false;
        }
        let is_out = member.state() == State::Out;
        if is_out && offline.is_none() {
            return true;
        }
        self.note_change();
        if let Some(lasting) = offline {
            member.details.lock().is_offline = lasting;
        }
        if member.state() >= State::Filled {
            member.details.lock().behind = member.leaf.marks();
        }
        member.set_state(State::Out);
        self.note_change();
        member.leaf.note_health(health);
        member.leaf.forget_unflushed();
        true
    }

    fn in_use(&self) -> Vec<Arc<Member>> {
        self.members().iter().filter(|member| member.state() != State::Out).cloned().collect()
    }

    fn leaves_from(&self, least: State) -> Vec<Arc<Leaf>> {
        let members = self.members();
        members.iter().filter(|member| member.state() >= least).map(|member| member.leaf.clone()).collect()
    }

    /// The pool's suspension, if errors of the last device suspend it.
    fn suspension(&self) -> Option<&Suspension> {
        self.suspension.get().map(|suspension| &**suspension).filter(|suspension| suspension.is_enabled())
    }

    fn era(&self) -> Option<Era> {
        self.suspension().map(Suspension::era)
    }

    fn check_range(&self, action: &'static str, offset: u64, len: u64) -> Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.size() => Ok(()),
            _ => {
                let source = io::Error::new(io::ErrorKind::UnexpectedEof, "access outside of the pool's space");
                Err(Error::Device { device: format!("mirror-{}", self.id), action, source })
            }
        }
    }

    /// The error of a mirror whose members were all tried. One complete member is always left, so it was put out of use
    /// while another one had just become complete: who asks again finds that one.
    fn nobody(&self) -> Error {
        let source = io::Error::other("its members have changed meanwhile");
        Error::Device { device: format!("mirror-{}", self.id), action: "read", source }
    }
}

impl Vdev for Mirror {
    fn id(&self) -> VdevId {
        self.id
    }

    fn guid(&self) -> Guid {
        self.guid
    }

    fn join(&self, suspension: &Arc<Suspension>) {
        // A vdev is in one pool for life.
        let _ = self.suspension.set(suspension.clone());
    }

    fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    fn read_checked(&self, offset: u64, buf: &mut [u8], is_good: Check<'_>) -> Result<Found> {
        self.read_any(offset, buf, is_good)
    }

    fn examine(&self, offset: u64, len: usize, is_good: Check<'_>) -> Examined {
        self.examine_all(offset, len, is_good)
    }

    fn mend(&self, source: Guid, offset: u64, good: &Arc<Vec<u8>>) -> Result<()> {
        self.check_range("write", offset, good.len() as u64)?;
        let Some(member) = self.member(source).filter(|member| member.state() != State::Out) else { return Ok(()) };
        self.write_to(&member, offset, good)
    }

    fn write_shared(&self, offset: u64, bytes: Arc<Vec<u8>>) -> Result<()> {
        self.write_all(offset, &bytes)
    }

    fn flush(&self) -> Result<()> {
        self.flush_all()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.check_range("discard", offset, len)?;
        let discarded: Vec<_> = self.in_use().iter().map(|member| member.leaf.discard(offset, len)).collect();
        discarded.into_iter().collect()
    }

    fn note_checksum_error(&self, source: Guid) {
        if let Some(member) = self.member(source) {
            member.leaf.counters().count_checksum_error();
        }
    }

    fn leaves(&self) -> Vec<Arc<Leaf>> {
        self.leaves_from(State::Out)
    }

    fn labelled(&self) -> Vec<Arc<Leaf>> {
        self.leaves_from(State::Filling)
    }

    fn committing(&self) -> Vec<Arc<Leaf>> {
        self.leaves_from(State::Filled)
    }

    fn do_without(&self, device: Guid, health: Health) -> bool {
        let was_in_use = self.member(device).is_some_and(|member| member.state() != State::Out);
        let is_without = self.put_out(device, health, None);
        if was_in_use && is_without {
            tracing::error!("mirror-{} goes on without device {device}, which is {}", self.id, health.as_str());
        }
        is_without
    }

    fn describe(&self, tree: &mut VdevTree) {
        let VdevTree::Mirror(mirror) = tree else { return };
        for config in &mut mirror.members {
            if let Some(member) = self.member(config.leaf.guid) {
                member.describe(config);
            }
        }
        // One that is about to leave is not described any more.
        let described: Vec<Guid> = mirror.members.iter().map(|config| config.leaf.guid).collect();
        for config in &mut mirror.members {
            config.replaces = config.replaces.filter(|replaced| described.contains(replaced));
        }
    }

    fn news(&self) -> Option<u64> {
        // Whoever has seen a member out of use learns here of all that was changed with it.
        let _changing = self.changing.lock();
        let changes = self.changes.load(Ordering::Acquire);
        (changes != self.told.load(Ordering::Acquire)).then_some(changes)
    }

    fn told(&self, news: u64) {
        self.told.fetch_max(news, Ordering::AcqRel);
    }

    fn expect(&self, mark: Mark) {
        self.leaves_from(State::Filled).iter().for_each(|leaf| leaf.set_mark(mark));
        if self.members().iter().any(|member| member.state() == State::Filled) {
            // The labels say that it may have this one, before it has.
            self.note_change();
        }
    }

    fn committed(&self) {
        let is_filled =
            |member: &&Arc<Member>| member.state() == State::Filled && member.leaf.newest_uberblock() > Txg::ZERO;
        let members = self.members();
        if !members.iter().any(|member| is_filled(&member)) {
            return;
        }
        let _changing = self.changing.lock();
        for member in members.iter().filter(is_filled) {
            self.note_change();
            member.complete_since.store(member.leaf.newest_uberblock().0, Ordering::Relaxed);
            member.set_state(State::Complete);
            self.note_change();
        }
    }

    fn filling(&self) -> Option<Txg> {
        let members = self.members();
        let filling = members.iter().filter(|member| member.state() == State::Filling);
        filling.map(|member| member.details.lock().behind.has.txg).min()
    }

    fn fill(&self, offset: u64, bytes: &Arc<Vec<u8>>) -> Result<()> {
        self.check_range("write", offset, bytes.len() as u64)?;
        for member in self.members().iter().filter(|member| member.state() == State::Filling) {
            self.write_to(member, offset, bytes)?;
        }
        Ok(())
    }

    fn as_mirror(&self) -> Option<&Mirror> {
        Some(self)
    }
}
