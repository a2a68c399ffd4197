//! Several devices under one vdev that can do without some of them: what a mirror and a RAID-Z have in common.
//!
//! A vdev of several devices has *columns*. Devices of one column hold the same: a mirror has one column, of which every
//! member has everything, and a RAID-Z has as many as devices, but for a device that replaces another and shares its column
//! for a while. What is written goes to all members that are in use. A column is complete if one of its members is, and so
//! many columns are *needed* to read everything: one of a mirror, as many as there are of data of a RAID-Z.
//!
//! A member that fails a write or a flush is put out of use at once, and gets nothing more: neither data nor uberblocks nor
//! labels. The pool goes on as long as enough columns are complete; only the failure of one more suspends it
//! ([`Suspension`]). What a member has missed it gets when it is back, while the pool is in use: it is *filled* with what the
//! others have or, in a RAID-Z, add up to.
//!
//! What must always hold:
//!
//! 1. A device has for good everything that was written up to the newest uberblock in its own rings.
//! 2. What a flush has promised is on every member that the labels call complete. So the labels say that a member is out
//!    of use before the next flush of the pool returns, whether a commit needs it or an fsync: see
//!    [`Vdevs::flush`](crate::block::storage::Vdevs::flush).
//! 3. As many columns as are needed, at least, are complete.
//!
//! When a member fails, power may fail at any of these instants:
//!
//! | power fails | import finds |
//! | --- | --- |
//! | before the next flush of the pool has returned | the members with the same uberblock, and nothing promised that one of them lacks |
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
//! | after that | one more complete member |
//!
//! If too many of the others are lost in the second case, the import is refused until they are back.

mod layout;
mod load;
mod member;
mod writing;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::{Mutex, MutexGuard, RwLock};

pub(super) use self::layout::Layout;
pub(in crate::vdev) use self::load::Reading;
use self::member::Details;
pub use self::member::{Member, State};
use super::{Health, Leaf, Suspension, suspension::Era};
use crate::{
    device::Device,
    error::{Error, Result},
    format::vdev_config::{Behind, Mark, MemberConfig, VdevTree},
    units::{Guid, Txg, VdevId},
};

/// A device that is filled, and where: a spare keeps its guid when it leaves one vdev and joins another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lacking {
    /// The vdev of which it is a member.
    pub vdev: VdevId,
    /// Which column it has there.
    pub column: usize,
    /// The device.
    pub device: Guid,
    /// What it has: what was born up to then.
    pub has: Txg,
}

/// The devices of a vdev that can do without some of them.
pub struct Group {
    id: VdevId,
    guid: Guid,
    /// What it is called in messages and listings.
    name: String,
    quorum: RwLock<Quorum>,
    /// As much as its smallest member has, but no more than is known of those that are not there.
    least: AtomicU64,
    members: RwLock<Arc<Vec<Arc<Member>>>>,
    suspension: OnceLock<Arc<Suspension>>,
    /// Held by whoever changes how members stand, or asks whether that has changed.
    changing: Mutex<()>,
    /// How often that has changed, and of which of these changes the labels were told.
    changes: AtomicU64,
    told: AtomicU64,
}

/// Why a member that is to leave stays in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stays {
    /// Nobody else has its column, or too few others are complete.
    Needed,
    /// What was to take its place has not everything any more.
    HeirFailed,
    /// Nobody else of its column has had everything for so long.
    TooSoon,
}

/// What it takes to read everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quorum {
    /// So many columns count: the first ones. Those behind hold nothing yet.
    pub columns: usize,
    /// So many of them have to be complete.
    pub needed: usize,
}

impl Group {
    /// These devices, of which the smallest has `least` bytes, as vdev `id` of a `kind` that needs so many columns.
    pub(super) fn new(
        (id, guid): (VdevId, Guid),
        kind: &str,
        quorum: Quorum,
        least: u64,
        members: Vec<Arc<Member>>,
    ) -> Group {
        assert!(quorum.is_met(&members, None), "enough columns of a vdev are complete");
        Group {
            id,
            guid,
            name: format!("{kind}-{id}"),
            quorum: RwLock::new(quorum),
            least: AtomicU64::new(least),
            members: RwLock::new(Arc::new(members)),
            suspension: OnceLock::new(),
            changing: Mutex::default(),
            changes: AtomicU64::new(0),
            told: AtomicU64::new(0),
        }
    }

    /// The vdev's position in the pool.
    pub(crate) fn id(&self) -> VdevId {
        self.id
    }

    /// The vdev's name for life.
    pub(super) fn guid(&self) -> Guid {
        self.guid
    }

    /// What it is called in messages and listings: its kind and its number, as in `mirror-0`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many of its columns have to be complete.
    pub fn needed(&self) -> usize {
        self.quorum().needed
    }

    /// Which columns have to be.
    pub fn quorum(&self) -> Quorum {
        *self.quorum.read()
    }

    /// From now on, so many have to be complete. `false` if they are not.
    pub(crate) fn set_quorum(&self, quorum: Quorum) -> bool {
        let _changing = self.changing.lock();
        let is_met = quorum.is_met(&self.members(), None);
        if is_met {
            *self.quorum.write() = quorum;
        }
        is_met
    }

    /// Those of its members that have a column, in order.
    pub fn of_column(&self, column: usize) -> Vec<Arc<Member>> {
        self.members().iter().filter(|member| member.column() == column).cloned().collect()
    }

    /// How many of the members that are complete may be lost, whichever they are.
    pub fn may_lose(&self) -> usize {
        let mut columns: BTreeMap<usize, usize> = BTreeMap::new();
        let Quorum { columns: counted, needed } = self.quorum();
        let counts = |member: &&Arc<Member>| member.state() == State::Complete && member.column() < counted;
        for member in self.members().iter().filter(counts) {
            *columns.entry(member.column()).or_default() += 1;
        }
        let mut holders: Vec<usize> = columns.into_values().collect();
        holders.sort_unstable();
        // What it takes is to lose all members of one column more than can be done without.
        let fatal = (holders.len() + 1).saturating_sub(needed);
        holders[..fatal.min(holders.len())].iter().sum::<usize>().saturating_sub(1)
    }

    /// Whether as many columns as are needed have one of these members.
    pub fn are_enough(&self, devices: &[Guid]) -> bool {
        let members = self.members();
        let columns = members.iter().filter(|member| devices.contains(&member.leaf.guid()));
        self.quorum().suffice(columns.map(|member| member.column()))
    }

    /// What the smallest of its members has, in bytes.
    pub(super) fn least(&self) -> u64 {
        self.least.load(Ordering::Relaxed)
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
        assert!(self.quorum().is_met(&members, None), "enough columns of a vdev are complete");
        self.note_change();
        self.measure(&members);
        *self.members.write() = Arc::new(members);
        self.note_change();
    }

    /// Its members may give more than they did.
    pub(crate) fn remeasure(&self) {
        let _changing = self.changing.lock();
        self.measure(&self.members());
    }

    fn measure(&self, members: &[Arc<Member>]) {
        let least = members.iter().map(|member| member.leaf.size()).min().unwrap_or(0);
        self.least.store(least, Ordering::Relaxed);
    }

    /// To be called before members change and again after it: whoever flushes in between has the labels told, and so has
    /// whoever looks at what they say.
    fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Puts a member out of use because the operator says so; `false` if it cannot be done without. With `lasting` it
    /// stays so after the next import.
    pub(crate) fn put_offline(&self, device: Guid, lasting: bool) -> bool {
        self.put_out(device, Health::Offline, Some(lasting), false)
    }

    /// Puts a member out of use for good that has had too many errors; `false` if it cannot be done without.
    pub(crate) fn put_out_for_errors(&self, device: Guid) -> bool {
        self.put_out(device, Health::Faulted, Some(true), false)
    }

    /// From which transaction group on somebody else of a member's column has had everything: the first of them that have.
    pub(crate) fn outlasted_since(&self, device: Guid) -> Option<Txg> {
        let column = self.of_column(self.member(device)?.column());
        let others = column.iter().filter(|other| other.leaf.guid() != device && other.state() == State::Complete);
        others.map(|other| other.complete_since()).min()
    }

    /// Puts a member out of use that is about to leave: if at that moment somebody else has its column, and has had everything
    /// since no later than `latest`, and the `heir` that is to take its place, if there is one, has everything.
    ///
    /// # Errors
    /// Why it stays in use.
    pub(crate) fn put_out_to_leave(&self, device: Guid, heir: Option<Guid>, latest: Txg) -> Result<(), Stays> {
        let changing = self.changing.lock();
        let is_complete = |heir| self.member(heir).is_some_and(|heir| heir.state() == State::Complete);
        if !heir.is_none_or(is_complete) {
            return Err(Stays::HeirFailed);
        }
        if self.outlasted_since(device).is_some_and(|since| since > latest) {
            return Err(Stays::TooSoon);
        }
        match self.put_out_while(&changing, device, Health::Offline, Some(true), true) {
            true => Ok(()),
            false => Err(Stays::Needed),
        }
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
        self.least.fetch_min(member.leaf.size(), Ordering::Relaxed);
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

    /// The members that are being filled, and what each of them has.
    pub(crate) fn being_filled(&self) -> Vec<Lacking> {
        let members = self.members();
        let filling = members.iter().filter(|member| member.state() == State::Filling);
        let lacking = |member: &Arc<Member>| {
            let (device, has) = (member.leaf.guid(), member.details.lock().behind.has.txg);
            Lacking { vdev: self.id(), column: member.column(), device, has }
        };
        filling.map(lacking).collect()
    }

    /// Whether members are in use that are not read from, or not first: those that lack something, and one of two that have
    /// one column.
    pub(super) fn has_more_to_ask(&self) -> bool {
        let members = self.members();
        members.len() > self.quorum().columns.max(1)
            || members.iter().any(|member| matches!(member.state(), State::Filling | State::Filled))
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

    /// Puts a member out of use; `false` if it cannot be done without. If the operator wants it, it is said whether that
    /// is to last; then it is noted also of one that is out of use already. If it leaves for good, somebody else has to
    /// have its column.
    ///
    /// The order matters. Whoever flushes either finds the member in use, and it has what the flush promises, or finds that
    /// there are news; and what the labels say is not taken for all before the member is out of use.
    fn put_out(&self, device: Guid, health: Health, offline: Option<bool>, leaves: bool) -> bool {
        self.put_out_while(&self.changing.lock(), device, health, offline, leaves)
    }

    /// The same, while nobody else changes how members stand.
    fn put_out_while(
        &self,
        _changing: &MutexGuard<'_, ()>,
        device: Guid,
        health: Health,
        offline: Option<bool>,
        leaves: bool,
    ) -> bool {
        let members = self.members();
        let Some(member) = members.iter().find(|member| member.leaf.guid() == device) else { return true };
        let has_it_too = |other: &&Arc<Member>| {
            other.column() == member.column() && other.leaf.guid() != device && other.state() == State::Complete
        };
        if leaves && member.state() == State::Complete && !members.iter().any(|other| has_it_too(&other)) {
            return false;
        }
        if !self.quorum().is_met(&members, Some(device)) {
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
        // Whoever finds it out of use finds why: a spare must not step in for one that the operator does not want.
        member.leaf.note_health(health);
        member.set_state(State::Out);
        self.note_change();
        member.leaf.forget_unflushed();
        true
    }

    pub(super) fn in_use(&self) -> Vec<Arc<Member>> {
        self.members().iter().filter(|member| member.state() != State::Out).cloned().collect()
    }

    fn leaves_from(&self, least: State) -> Vec<Arc<Leaf>> {
        let members = self.members();
        members.iter().filter(|member| member.state() >= least).map(|member| member.leaf.clone()).collect()
    }

    /// Holds a reader until a device is back that has failed since `era` and cannot be done without, where readers are held
    /// and somebody can see to it; else, or without an era, the error is the reader's.
    pub(super) fn hold_reader(&self, era: Option<Era>, leaf: &Leaf, health: Health, error: Error) -> Result<()> {
        let (Some(era), Some(suspension)) = (era, self.suspension()) else { return Err(error) };
        leaf.note_health(health);
        if !suspension.holds_readers() {
            suspension.suspend(era, &error);
            return Err(error);
        }
        suspension.hold(era, error)
    }

    /// The pool's suspension, if errors of the last device suspend it.
    pub(super) fn suspension(&self) -> Option<&Suspension> {
        self.suspension.get().map(|suspension| &**suspension).filter(|suspension| suspension.is_enabled())
    }

    pub(super) fn era(&self) -> Option<Era> {
        self.suspension().map(Suspension::era)
    }

    /// The error of a request that leaves what the vdev gives to the pool.
    fn outside(&self, action: &'static str) -> Error {
        let source = io::Error::new(io::ErrorKind::UnexpectedEof, "access outside of the pool's space");
        Error::Device { device: self.name.clone(), action, source }
    }

    /// A member that is in use.
    pub(super) fn member_in_use(&self, device: Guid) -> Option<Arc<Member>> {
        self.member(device).filter(|member| member.state() != State::Out)
    }

    fn do_without(&self, device: Guid, health: Health) -> bool {
        let was_in_use = self.member_in_use(device).is_some();
        let is_without = self.put_out(device, health, None, false);
        if was_in_use && is_without {
            tracing::error!("{} goes on without device {device}, which is {}", self.name, health.as_str());
        }
        is_without
    }

    fn describe(&self, tree: &mut VdevTree) {
        let mut configs: Vec<&mut MemberConfig> = tree.members_mut().collect();
        for config in &mut configs {
            if let Some(member) = self.member(config.leaf.guid) {
                member.describe(config);
            }
        }
        // One that is about to leave is not described any more.
        let described: Vec<Guid> = configs.iter().map(|config| config.leaf.guid).collect();
        for config in configs {
            config.replaces = config.replaces.filter(|replaced| described.contains(replaced));
        }
    }

    fn news(&self) -> Option<u64> {
        // Whoever has seen a member out of use learns here of all that was changed with it.
        let _changing = self.changing.lock();
        let changes = self.changes.load(Ordering::Acquire);
        (changes != self.told.load(Ordering::Acquire)).then_some(changes)
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
        self.being_filled().into_iter().map(|lacking| lacking.has).min()
    }
}

impl Quorum {
    /// Whether as many of these columns count as are needed.
    pub fn suffice(&self, columns: impl Iterator<Item = usize>) -> bool {
        columns.filter(|column| *column < self.columns).collect::<BTreeSet<usize>>().len() >= self.needed
    }

    /// Whether as many columns have a complete member, not counting one.
    fn is_met(&self, members: &[Arc<Member>], without: Option<Guid>) -> bool {
        let counts = |member: &&Arc<Member>| member.state() == State::Complete && Some(member.leaf.guid()) != without;
        self.suffice(members.iter().filter(counts).map(|member| member.column()))
    }
}
