//! Several devices that form one redundant vdev: what a mirror and a RAID-Z have in common.
//!
//! A vdev of several devices has *columns*. Devices of one column hold the same bytes. A mirror has one column, so
//! every member has everything. A RAID-Z has a column for each device; a device and its replacement share a column for
//! a while. A write goes to all members in use. A column is complete if one of its members is. Reading everything
//! *needs* a number of complete columns: one in a mirror, the number of data columns in a RAID-Z.
//!
//! A member that fails a write or a flush is taken out of use at once and gets nothing more: no data, no uberblocks, no
//! labels. The pool continues as long as enough columns are complete; only a failure beyond the redundancy suspends it
//! ([`Suspension`]). A returning member is resilvered while the pool is in use: it gets what it missed, copied from
//! members of the same column or, in a RAID-Z, reconstructed.
//!
//! Invariants of a group:
//!
//! 1. A device durably has everything written up to the newest uberblock in its own rings.
//! 2. Data covered by a completed flush is on every member that the labels call complete. So the labels record that a
//!    member is out of use before the pool's next flush returns, whether for a commit or an fsync: see
//!    [`Vdevs::flush`](crate::block::storage::Vdevs::flush).
//! 3. At least the needed number of columns is complete.
//!
//! When a member fails, power may fail at any of these instants:
//!
//! | power fails | import finds |
//! | --- | --- |
//! | before the pool's next flush has returned | the members with the same uberblock; no acknowledged data is missing on any of them |
//! | while the labels are written | the same; the member is resilvered from that uberblock on if a label says that it is behind |
//! | then, before the next uberblock | the same |
//! | after the uberblock | a member behind, by the labels and by its own rings |
//!
//! When a member has been resilvered:
//!
//! | power fails | import finds |
//! | --- | --- |
//! | before the member has an uberblock | a member behind, as before; it is resilvered again |
//! | then, before the labels call the member complete | the same: the labels say which uberblock the member may have |
//! | later | one more complete member |
//!
//! If too many of the remaining members are lost in the second case, import refuses until they are back.

pub(super) mod layout;
pub(super) mod load;
pub(super) mod member;
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

use self::member::{Details, Member, State};
use super::{
    leaf::{Health, Leaf},
    suspension::{Era, Suspension},
};
use crate::{
    device::Device,
    error::{Error, Result},
    format::vdev_config::{Behind, Mark, MemberConfig, VdevTree},
    units::{Guid, Txg, VdevId},
};

/// A device being resilvered, and its place: a spare keeps its GUID when it moves to another vdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lacking {
    /// The vdev that the device is a member of.
    pub vdev: VdevId,
    /// The column in the vdev.
    pub column: usize,
    /// The device's GUID.
    pub device: Guid,
    /// The newest txg that the device has completely.
    pub has: Txg,
}

/// The devices of a redundant vdev.
pub struct Group {
    id: VdevId,
    guid: Guid,
    /// The name in messages and listings.
    name: String,
    quorum: RwLock<Quorum>,
    /// Bytes of the smallest member, but at most what is recorded of missing members.
    least: AtomicU64,
    members: RwLock<Arc<Vec<Arc<Member>>>>,
    suspension: OnceLock<Arc<Suspension>>,
    /// Held while members change state, and while asking whether any did.
    changing: Mutex<()>,
    /// How many changes of members there were, and how many of them the labels record.
    changes: AtomicU64,
    recorded: AtomicU64,
}

/// Why a member that is to leave stays in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stays {
    /// No other complete member has its column, or too few columns would be complete.
    Needed,
    /// The replacement is no longer complete.
    HeirFailed,
    /// No other member of the column has been complete for long enough.
    TooSoon,
}

/// What it takes to read everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quorum {
    /// The first so many columns count. Columns behind hold nothing yet.
    pub columns: usize,
    /// How many of them must be complete.
    pub needed: usize,
}

impl Group {
    /// Members, the smallest of `least` bytes, as vdev `id` of a `kind` with this quorum.
    pub(super) fn new(
        (id, guid): (VdevId, Guid),
        kind: &str,
        quorum: Quorum,
        least: u64,
        members: Vec<Arc<Member>>,
    ) -> Group {
        assert!(quorum.is_met(&members, None), "VDEV-1: too few columns of a vdev are complete");
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
            recorded: AtomicU64::new(0),
        }
    }

    /// The vdev's position in the pool.
    pub(crate) fn id(&self) -> VdevId {
        self.id
    }

    /// The vdev's permanent GUID.
    pub(super) fn guid(&self) -> Guid {
        self.guid
    }

    /// The name in messages and listings: kind and position, as in `mirror-0`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many columns must be complete.
    pub fn needed(&self) -> usize {
        self.quorum().needed
    }

    /// Which columns count, and how many of them must be complete.
    pub fn quorum(&self) -> Quorum {
        *self.quorum.read()
    }

    /// Changes the quorum. `false` if it is not met.
    pub(crate) fn set_quorum(&self, quorum: Quorum) -> bool {
        let _changing = self.changing.lock();
        let is_met = quorum.is_met(&self.members(), None);
        if is_met {
            *self.quorum.write() = quorum;
        }
        is_met
    }

    /// The members of a column, in order.
    pub fn of_column(&self, column: usize) -> Vec<Arc<Member>> {
        self.members().iter().filter(|member| member.column() == column).cloned().collect()
    }

    /// How many complete members may fail, in the worst case.
    pub fn may_lose(&self) -> usize {
        let mut columns: BTreeMap<usize, usize> = BTreeMap::new();
        let Quorum { columns: counted, needed } = self.quorum();
        let counts = |member: &&Arc<Member>| member.state() == State::Complete && member.column() < counted;
        for member in self.members().iter().filter(counts) {
            *columns.entry(member.column()).or_default() += 1;
        }
        let mut holders: Vec<usize> = columns.into_values().collect();
        holders.sort_unstable();
        // The pool fails once all members are lost of one column more than the redundancy covers.
        let fatal = (holders.len() + 1).saturating_sub(needed);
        holders[..fatal.min(holders.len())].iter().sum::<usize>().saturating_sub(1)
    }

    /// True if these members cover as many columns as are needed.
    pub fn are_enough(&self, devices: &[Guid]) -> bool {
        let members = self.members();
        let columns = members.iter().filter(|member| devices.contains(&member.leaf.guid()));
        self.quorum().suffice(columns.map(|member| member.column()))
    }

    /// Bytes of the smallest member.
    pub(super) fn least(&self) -> u64 {
        self.least.load(Ordering::Relaxed)
    }

    /// All members, in order.
    pub fn members(&self) -> Arc<Vec<Arc<Member>>> {
        self.members.read().clone()
    }

    /// The member of this GUID.
    pub fn member(&self, device: Guid) -> Option<Arc<Member>> {
        self.members().iter().find(|member| member.leaf.guid() == device).cloned()
    }

    /// Replaces the members; the labels already describe the new ones. A concurrent write may miss a new member, so a
    /// new member surely has only blocks born after the open txg.
    pub(crate) fn set_members(&self, members: Vec<Arc<Member>>) {
        let _changing = self.changing.lock();
        assert!(self.quorum().is_met(&members, None), "VDEV-1: too few columns of a vdev are complete");
        self.note_change();
        self.measure(&members);
        *self.members.write() = Arc::new(members);
        self.note_change();
    }

    /// Takes up grown members.
    pub(crate) fn remeasure(&self) {
        let _changing = self.changing.lock();
        self.measure(&self.members());
    }

    fn measure(&self, members: &[Arc<Member>]) {
        let least = members.iter().map(|member| member.leaf.size()).min().unwrap_or(0);
        self.least.store(least, Ordering::Relaxed);
    }

    /// Called before members change and again afterwards, so that a flush or a look at the labels in between makes the
    /// labels be rewritten.
    fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Takes a member offline for the administrator; `false` if the redundancy does not allow it. With `lasting` it
    /// stays offline after the next import.
    pub(crate) fn put_offline(&self, device: Guid, lasting: bool) -> bool {
        self.take_out(device, Health::Offline, Some(lasting), false)
    }

    /// Faults a member for too many errors, which the labels record; `false` if the redundancy does not allow it.
    pub(crate) fn fault_for_errors(&self, device: Guid) -> bool {
        self.take_out(device, Health::Faulted, Some(true), false)
    }

    /// The earliest txg since which another member of the same column has been complete.
    pub(crate) fn outlasted_since(&self, device: Guid) -> Option<Txg> {
        let column = self.of_column(self.member(device)?.column());
        let others = column.iter().filter(|other| other.leaf.guid() != device && other.state() == State::Complete);
        others.map(|other| other.complete_since()).min()
    }

    /// Takes a member that is about to leave out of use. At that moment another member must have had the column
    /// complete since `latest` at the latest, and the replacing `heir`, if any, must be complete.
    ///
    /// # Errors
    /// Why the member stays in use.
    pub(crate) fn take_out_to_leave(&self, device: Guid, heir: Option<Guid>, latest: Txg) -> Result<(), Stays> {
        let changing = self.changing.lock();
        let is_complete = |heir| self.member(heir).is_some_and(|heir| heir.state() == State::Complete);
        if !heir.is_none_or(is_complete) {
            return Err(Stays::HeirFailed);
        }
        if self.outlasted_since(device).is_some_and(|since| since > latest) {
            return Err(Stays::TooSoon);
        }
        match self.take_out_while(&changing, device, Health::Offline, Some(true), true) {
            true => Ok(()),
            false => Err(Stays::Needed),
        }
    }

    /// Forgets a replaced member that is gone.
    pub(crate) fn forget_replaced(&self, device: Guid) {
        for member in self.members().iter() {
            let mut details = member.details.lock();
            details.replaces = details.replaces.filter(|replaced| *replaced != device);
        }
    }

    /// Takes a returning member back into use, to be resilvered from the uberblocks in `behind` on.
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
        member.set_state(State::Resilvering);
        self.note_change();
    }

    /// How many changes of members there were.
    pub(crate) fn round(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The members being resilvered, and the txg that each has.
    pub(crate) fn being_resilvered(&self) -> Vec<Lacking> {
        let members = self.members();
        let resilvering = members.iter().filter(|member| member.state() == State::Resilvering);
        let lacking = |member: &Arc<Member>| {
            let (device, has) = (member.leaf.guid(), member.details.lock().behind.has.txg);
            Lacking { vdev: self.id(), column: member.column(), device, has }
        };
        resilvering.map(lacking).collect()
    }

    /// True if members in use are not read, or not read first: incomplete members, or two members of one column.
    pub(super) fn has_more_to_ask(&self) -> bool {
        let members = self.members();
        members.len() > self.quorum().columns.max(1)
            || members.iter().any(|member| matches!(member.state(), State::Resilvering | State::Resilvered))
    }

    /// Restarts the resilver of all members, because a block was not copied.
    pub(crate) fn restart_resilver(&self) {
        self.note_change();
    }

    /// Records that these members lack nothing any more: everything is flushed, and no commit is under way. `false` if
    /// members have changed since `round`. The next commit records in the labels which uberblock claims completeness.
    pub(crate) fn resilvered(&self, devices: &[Guid], round: u64) -> bool {
        let _changing = self.changing.lock();
        if self.round() != round {
            return false;
        }
        for member in self.members().iter().filter(|member| devices.contains(&member.leaf.guid())) {
            if member.state() == State::Resilvering {
                self.note_change();
                member.set_state(State::Resilvered);
                self.note_change();
            }
        }
        true
    }

    /// Takes a member out of use; `false` if the redundancy does not allow it. `offline` records the administrator's
    /// wish, and whether the wish outlasts an import, even if the member is out of use already. A member that `leaves`
    /// for good needs another complete member of its column.
    ///
    /// The order matters. A concurrent flush either finds the member in use, and the flush covers the member, or sees
    /// that the labels must be rewritten. Labels are not considered up to date before the member is out of use.
    fn take_out(&self, device: Guid, health: Health, offline: Option<bool>, leaves: bool) -> bool {
        self.take_out_while(&self.changing.lock(), device, health, offline, leaves)
    }

    /// Like [`Group::take_out`], with the lock for changes already held.
    fn take_out_while(
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
        if member.state() >= State::Resilvered {
            member.details.lock().behind = member.leaf.marks();
        }
        // The health is set first: a spare must not step in for a member that the administrator took offline.
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

    /// Holds a reader until a device needed for the read is back, if the device failed since `era`, readers are held,
    /// and the failure can be attended to. Otherwise, or without an era, returns the error.
    pub(super) fn hold_reader(&self, era: Option<Era>, leaf: &Leaf, health: Health, error: Error) -> Result<()> {
        let (Some(era), Some(suspension)) = (era, self.suspension()) else { return Err(error) };
        leaf.note_health(health);
        if !suspension.holds_readers() {
            suspension.suspend(era, &error);
            return Err(error);
        }
        suspension.hold(era, error)
    }

    /// The pool's suspension, if errors beyond the redundancy suspend the pool.
    pub(super) fn suspension(&self) -> Option<&Suspension> {
        self.suspension.get().map(|suspension| &**suspension).filter(|suspension| suspension.is_enabled())
    }

    pub(super) fn era(&self) -> Option<Era> {
        self.suspension().map(Suspension::era)
    }

    /// The error of a request beyond the vdev's space.
    fn outside(&self, action: &'static str) -> Error {
        let source = io::Error::new(io::ErrorKind::UnexpectedEof, "access outside of the pool's space");
        Error::Device { device: self.name.clone(), action, source }
    }

    /// The member of this GUID, if in use.
    pub(super) fn member_in_use(&self, device: Guid) -> Option<Arc<Member>> {
        self.member(device).filter(|member| member.state() != State::Out)
    }

    fn degrade(&self, device: Guid, health: Health) -> bool {
        let was_in_use = self.member_in_use(device).is_some();
        let is_without = self.take_out(device, health, None, false);
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
        // A member that is about to leave is not described any more.
        let described: Vec<Guid> = configs.iter().map(|config| config.leaf.guid).collect();
        for config in configs {
            config.replaces = config.replaces.filter(|replaced| described.contains(replaced));
        }
    }

    fn news(&self) -> Option<u64> {
        // With the lock, a thread that saw a member out of use sees every change made with it.
        let _changing = self.changing.lock();
        let changes = self.changes.load(Ordering::Acquire);
        (changes != self.recorded.load(Ordering::Acquire)).then_some(changes)
    }

    fn expect(&self, mark: Mark) {
        self.leaves_from(State::Resilvered).iter().for_each(|leaf| leaf.set_mark(mark));
        if self.members().iter().any(|member| member.state() == State::Resilvered) {
            // The labels must say that the member may have the uberblock before it does.
            self.note_change();
        }
    }

    fn committed(&self) {
        let is_resilvered =
            |member: &&Arc<Member>| member.state() == State::Resilvered && member.leaf.newest_uberblock() > Txg::ZERO;
        let members = self.members();
        if !members.iter().any(|member| is_resilvered(&member)) {
            return;
        }
        let _changing = self.changing.lock();
        for member in members.iter().filter(is_resilvered) {
            self.note_change();
            member.complete_since.store(member.leaf.newest_uberblock().0, Ordering::Relaxed);
            member.set_state(State::Complete);
            self.note_change();
        }
    }

    fn resilvering(&self) -> Option<Txg> {
        self.being_resilvered().into_iter().map(|lacking| lacking.has).min()
    }
}

impl Quorum {
    /// True if enough of these columns count.
    pub fn suffice(&self, columns: impl Iterator<Item = usize>) -> bool {
        columns.filter(|column| *column < self.columns).collect::<BTreeSet<usize>>().len() >= self.needed
    }

    /// True if enough columns have a complete member other than `without`.
    fn is_met(&self, members: &[Arc<Member>], without: Option<Guid>) -> bool {
        let counts = |member: &&Arc<Member>| member.state() == State::Complete && Some(member.leaf.guid()) != without;
        self.suffice(members.iter().filter(counts).map(|member| member.column()))
    }
}
