//! Spares: devices that stand by, and step in for a device of a mirror or a RAID-Z that has failed.
//!
//! A spare carries a label as every device of the pool does, so that nobody takes it for free, and is in no vdev. When it
//! steps in, it joins the vdev as a device does that replaces another one (see [`super::members`]), and is filled. The
//! difference is what follows: the failed device stays, and leaves only if the operator detaches it. Then the spare has taken
//! its place for good, and is none any more. If the failed device is complete again, or another one has taken its place,
//! the spare is given back, and stands by again. So it does if the whole vdev leaves ([`super::removal`]).
//!
//! The list of spares stands in the labels, and names those in use as well: a spare that is a member is in use.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | adding: before a device of the pool names the spare | the pool without it: its own label is older than every other |
//! | adding: after that | the pool with it |
//! | removing: before a label leaves it out | the pool with it |
//! | removing: after that | the pool without it; its own label names a pool that does not know it |
//! | stepping in: before a label names it as a member | the pool with a spare that stands by; whoever has the pool open has it step in |
//! | stepping in: after that | a member behind the beginning of time: it is filled |
//! | giving back: before a label leaves it out of the vdev | the pool with it in use |
//! | giving back: after that, before its own label is new | a spare that stands by, whose rings are old: nobody reads them, and they are erased when it steps in |
//! | giving back: while its own label is made anew | a spare that is missing: it can be removed and added again |
//!
//! When a spare steps in is decided by [`Pool::spare_step`], which whoever has the pool open calls now and then. A device that
//! the operator has put out of use is not stood in for. One that gives too many blocks that are wrong stays in use until
//! the spare is complete, for most of what it holds may be right, and is put out of use then.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use super::{
    members::{Reopen, room_for},
    pool::{Pool, write_new_label},
    probe::probe_foreign,
    standins::is_about_to_leave,
};
use crate::{
    device::Device,
    error::{Error, Result},
    format::{
        label::{
            Compatibility, Label, SPARES,
            spares::{MAX_SPARES, SpareConfig},
            usable_size,
        },
        vdev_config::LeafConfig,
    },
    units::{Guid, Txg, VdevId},
    vdev::{Group, Health, Leaf, Member, State, Vdev, labels},
};

/// So many wrong blocks within such a time are too many, as in OpenZFS.
const TOO_MANY: u64 = 10;
const WITHIN: Duration = Duration::from_secs(600);

/// The vdev that the label of a spare names, which is of none.
pub(super) const NO_VDEV: VdevId = VdevId(0);

/// A spare of a pool.
#[derive(Clone)]
pub struct Spare {
    /// The device.
    pub leaf: Arc<Leaf>,
    /// The vdev in which it is in use.
    pub used_in: Option<VdevId>,
}

/// What was done with a spare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpareChange {
    /// It has stepped in.
    SteppedIn {
        /// Its path.
        spare: String,
        /// The path of the device that it stands in for.
        device: String,
    },
    /// It stands by again.
    GivenBack {
        /// Its path.
        spare: String,
    },
    /// A device was put out of use that had too many errors: a spare holds all that it should.
    PutOut {
        /// Its path.
        device: String,
    },
}

/// How many wrong blocks devices have given, and when that was counted.
#[derive(Debug, Default)]
pub(super) struct Watched {
    since: BTreeMap<Guid, (Duration, u64)>,
    /// Those that had too many.
    bad: BTreeMap<Guid, u64>,
    /// Spares that stand in because the operator wants it.
    wanted: BTreeSet<Guid>,
}

impl Watched {
    /// Notes how many errors a device has had by now; whether these are too many. They are until they are forgotten.
    fn note(&mut self, device: Guid, errors: u64, now: Duration) -> bool {
        if let Some(noted) = self.bad.get(&device) {
            if errors >= *noted {
                return true;
            }
            self.bad.remove(&device);
            self.since.remove(&device);
        }
        let (since, before) = *self.since.entry(device).or_insert((now, 0));
        if errors >= before + TOO_MANY {
            self.bad.insert(device, errors);
            return true;
        }
        if errors < before || now.saturating_sub(since) >= WITHIN {
            self.since.insert(device, (now, errors));
        }
        false
    }

    /// Whether a device had too many errors, of which it has so many by now. Those that were cleared since do not count, though
    /// nobody may have noted that yet.
    fn is_bad(&self, device: Guid, errors: u64) -> bool {
        self.bad.get(&device).is_some_and(|noted| errors >= *noted)
    }

    /// The same of a device, by what is counted now.
    fn has_too_many(&self, leaf: &Leaf) -> bool {
        self.is_bad(leaf.guid(), leaf.counters().snapshot().checksum_errors)
    }

    /// Somebody wants a device back that has had so many errors: only those that come later count.
    pub(super) fn forgive(&mut self, device: Guid, errors: u64, now: Duration) {
        self.bad.remove(&device);
        self.since.insert(device, (now, errors));
    }

    /// Notes that the operator wants a spare to stand in.
    pub(super) fn note_wanted(&mut self, spare: Guid) {
        self.wanted.insert(spare);
    }

    /// Notes that it does so no more.
    pub(super) fn forget_wanted(&mut self, spare: Guid) {
        self.wanted.remove(&spare);
    }
}

/// Has a label name devices that are to stand by; nothing is written.
///
/// # Errors
/// [`Error::Request`] if there are too many, or one is too small for any vdev of the pool that it could stand in.
pub(super) fn name_spares(pool: &Pool, label: &mut Label, devices: &[Arc<dyn Device>]) -> Result<Vec<Arc<Leaf>>> {
    let least = label.region_size;
    if let Some(small) = devices.iter().find(|device| usable_size(device.size()) < least) {
        return Err(Error::Request(format!("{} is smaller than one region of this pool, {least} bytes", small.name())));
    }
    if label.sections.spares.len() + devices.len() > MAX_SPARES {
        return Err(Error::Request(format!("a pool has at most {MAX_SPARES} spares")));
    }
    let describe = |device: &Arc<dyn Device>| LeafConfig {
        guid: Guid(pool.engine().env().random()),
        size: usable_size(device.size()),
        path: device.name().to_owned(),
    };
    let configs: Vec<LeafConfig> = devices.iter().map(describe).collect();
    let leaves =
        configs.iter().zip(devices).map(|(leaf, device)| Arc::new(Leaf::new(leaf.guid, device.clone()))).collect();
    if !devices.is_empty() {
        label.sections.spares.extend(configs.into_iter().map(|leaf| SpareConfig { leaf }));
        label.features.insert(SPARES.to_owned(), Compatibility::Read);
    }
    Ok(leaves)
}

impl Pool {
    /// The spares, in the order in which they were added.
    pub fn spares(&self) -> Vec<Spare> {
        let vdevs = &self.engine().storage().vdevs;
        let idle = vdevs.spares();
        let (all, label) = (vdevs.all(), self.label());
        let spare = |config: &SpareConfig| {
            let guid = config.leaf.guid;
            let member = all.iter().find_map(|vdev| Some((vdev.id(), vdev.as_group()?.member(guid)?)));
            match member {
                Some((vdev, member)) => Some(Spare { leaf: member.leaf.clone(), used_in: Some(vdev) }),
                None => {
                    idle.iter().find(|leaf| leaf.guid() == guid).map(|leaf| Spare { leaf: leaf.clone(), used_in: None })
                }
            }
        };
        label.sections.spares.iter().filter_map(spare).collect()
    }

    /// Adds devices that stand by.
    ///
    /// # Errors
    /// [`Error::Request`] if there are too many, or one is too small for any vdev of the pool that it could stand in.
    pub fn add_spares(&self, devices: &[Arc<dyn Device>]) -> Result<()> {
        self.engine().writable()?;
        let mut highest = self.labelling();
        let mut label = self.label();
        let leaves = name_spares(self, &mut label, devices)?;
        let draft = Label { txg: Txg::ZERO, ..label.clone() };
        leaves.iter().try_for_each(|leaf| write_new_label(&*leaf.device(), leaf.guid(), NO_VDEV, &draft))?;
        self.replace_labels(&mut highest, label, &[])?;
        self.take_spares(leaves);
        Ok(())
    }

    /// Has devices stand by that the labels name. Theirs follow with those of the other devices in no vdev.
    pub(super) fn take_spares(&self, leaves: Vec<Arc<Leaf>>) {
        let vdevs = &self.engine().storage().vdevs;
        leaves.into_iter().for_each(|leaf| vdevs.add_spare(leaf));
    }

    /// Has a spare leave the pool; `false` if there is none of this path or number.
    ///
    /// # Errors
    /// [`Error::Request`] if it is in use.
    pub fn remove_spare(&self, name: &str) -> Result<bool> {
        let is_it = |spare: &&Spare| spare.leaf.name() == name || spare.leaf.guid().to_string() == name;
        let mut highest = self.labelling();
        let spares = self.spares();
        let Some(spare) = spares.iter().find(is_it) else { return Ok(false) };
        self.engine().writable()?;
        if spare.used_in.is_some() {
            return Err(Error::Request(format!("the spare {name} is in use; pool detach gives it back")));
        }
        let mut label = self.label();
        label.sections.spares.retain(|other| other.leaf.guid != spare.leaf.guid());
        self.replace_labels(&mut highest, label, &[])?;
        self.engine().storage().vdevs.take_spare(spare.leaf.guid());
        // It may hang.
        let _apart = highest.apart();
        if spare.leaf.health() == Health::Online
            && let Err(error) = labels::clear_labels(&*spare.leaf.device())
        {
            tracing::warn!("{name} still says that it is of the pool: {error}");
        }
        spare.leaf.let_go();
        Ok(true)
    }

    /// Does what is due with spares: has them step in for devices that have failed, and gives those back that are not needed
    /// any more. To be called now and then; a pool that is suspended is left alone.
    ///
    /// # Errors
    /// If a label could not be written. It may be called again.
    pub fn spare_step(&self) -> Result<Vec<SpareChange>> {
        let engine = self.engine();
        if self.label().sections.spares.is_empty()
            || engine.read_only()
            || engine.writable().is_err()
            || engine.suspension().is_suspended()
        {
            return Ok(Vec::new());
        }
        let mut changes = self.give_back()?;
        for (vdev, failed) in self.in_need() {
            let Ok(room) = room_for(&self.label(), vdev, failed.guid()) else { continue };
            if let Some(spare) = self.smallest_that_fits(room.needed)
                && self.step_in(vdev, &failed, &spare)?
            {
                let (spare, device) = (spare.name().to_owned(), failed.name().to_owned());
                tracing::warn!("the spare {spare} steps in for {device}");
                changes.push(SpareChange::SteppedIn { spare, device });
            }
        }
        Ok(changes)
    }

    /// Has what has appeared in the place of a device that failed replace it, if `is_wanted`: something that can be opened under
    /// the same path, is large enough, and holds nothing that is known by sight. Returns the paths.
    ///
    /// # Errors
    /// If a label could not be written. It may be called again.
    pub fn autoreplace_step(&self, is_wanted: &dyn Fn() -> bool, open: Reopen<'_>) -> Result<Vec<String>> {
        let engine = self.engine();
        let mut replaced = Vec::new();
        if engine.read_only() || engine.writable().is_err() || engine.suspension().is_suspended() {
            return Ok(replaced);
        }
        for vdev in engine.storage().vdevs.all() {
            let members = vdev.as_group().map(Group::members).unwrap_or_default();
            for member in members.iter().filter(|member| has_failed(member)) {
                let leaf = &member.leaf;
                // Nor is one replaced for which a spare stands in.
                let is_replaced = members.iter().any(|other| other.replaces() == Some(leaf.guid()));
                let is_spare = self.label().is_spare(leaf.guid());
                if is_replaced || is_spare || member.replaces().is_some() || !is_wanted() {
                    continue;
                }
                let Ok(found) = open(leaf.name()) else { continue };
                let is_empty = matches!((labels::read_label(&*found), probe_foreign(&*found)), (Ok(None), Ok(None)));
                let Ok(room) = room_for(&self.label(), vdev.id(), leaf.guid()) else { continue };
                if is_empty && room.taken(usable_size(found.size())).is_some() {
                    self.attach(&leaf.guid().to_string(), found, true)?;
                    tracing::warn!("what has appeared in the place of {} replaces it", leaf.name());
                    replaced.push(leaf.name().to_owned());
                }
            }
        }
        Ok(replaced)
    }

    /// Gives spares back that stand in for nobody who needs it, or have failed themselves; puts those out of use that had too
    /// many errors and for which a spare is complete.
    fn give_back(&self) -> Result<Vec<SpareChange>> {
        let mut changes = Vec::new();
        for spare in self.spares().into_iter().filter(|spare| spare.used_in.is_some()) {
            let Ok((vdev, leaf)) = self.find_device(&spare.leaf.guid().to_string()) else { continue };
            let Some((group, own)) = vdev.as_group().and_then(|group| Some((group, group.member(leaf.guid())?))) else {
                continue;
            };
            let replaced = own.replaces().and_then(|old| group.member(old));
            let is_bad = |member: &Arc<Member>| self.watched().has_too_many(&member.leaf);
            if let Some(old) = replaced.as_ref().filter(|old| old.state() == State::Complete && is_bad(old)) {
                if own.state() == State::Complete && self.put_out_for_errors(group, &old.leaf)? {
                    changes.push(SpareChange::PutOut { device: old.leaf.name().to_owned() });
                }
                continue;
            }
            // One that is about to be replaced leaves when that has everything.
            let is_to_stay =
                self.watched().wanted.contains(&leaf.guid()) || is_about_to_leave(&group.members(), leaf.guid());
            let is_back = !is_to_stay && replaced.is_none_or(|old| old.state() == State::Complete);
            let is_useless = has_failed(&own);
            if ((is_back && has_other(group, &own)) || is_useless) && self.have_leave_if_it_may(leaf.guid(), None)? {
                tracing::info!("the spare {} stands by again", leaf.name());
                changes.push(SpareChange::GivenBack { spare: leaf.name().to_owned() });
            }
        }
        Ok(changes)
    }

    /// The devices that a spare is to stand in for, and their vdevs.
    fn in_need(&self) -> Vec<(VdevId, Arc<Leaf>)> {
        let now = self.engine().env().uptime();
        let mut watched = self.watched();
        let mut in_need = Vec::new();
        for vdev in self.engine().storage().vdevs.all() {
            let Some(group) = vdev.as_group() else { continue };
            for member in group.members().iter() {
                let errors = member.leaf.counters().snapshot().checksum_errors;
                watched.note(member.leaf.guid(), errors, now);
                if is_in_need(group, member, &watched) {
                    in_need.push((vdev.id(), member.leaf.clone()));
                }
            }
        }
        in_need
    }

    /// The smallest spare that stands by, is there, and has so many bytes.
    fn smallest_that_fits(&self, least: u64) -> Option<Arc<Leaf>> {
        let label = self.label();
        let mut idle = self.engine().storage().vdevs.spares();
        idle.retain(|leaf| leaf.health() == Health::Online && leaf.size() >= least);
        idle.sort_by_key(|leaf| leaf.size());
        let is_there = |leaf: &Arc<Leaf>| match labels::read_label(&*leaf.device()) {
            Ok(Some(own)) => (own.pool, own.device) == (label.pool, leaf.guid()),
            Ok(None) | Err(_) => false,
        };
        idle.into_iter().find(|leaf| {
            let is_there = is_there(leaf);
            if !is_there {
                leaf.note_health(Health::Unavailable);
            }
            is_there
        })
    }

    /// Has a spare join a vdev. It was chosen before this has the labels to itself, so `false` if something has happened
    /// meanwhile: the spare has left or become too small, or the device has left, is back, is replaced, or was put out of use.
    fn step_in(&self, vdev: VdevId, failed: &Arc<Leaf>, spare: &Arc<Leaf>) -> Result<bool> {
        let mut highest = self.labelling();
        let label = self.label();
        let vdevs = &self.engine().storage().vdevs;
        let is_standing_by = vdevs.spares().iter().any(|idle| Arc::ptr_eq(idle, spare));
        let Some(vdev) = vdevs.get(vdev).ok().filter(|vdev| is_standing_by && self.needs_one(&**vdev, failed)) else {
            return Ok(false);
        };
        let room = room_for(&label, vdev.id(), failed.guid())?;
        let Some(size) = room.taken(spare.size()) else { return Ok(false) };
        self.join_as_spare(&mut highest, (&vdev, failed), spare, size).map(|()| true)
    }

    /// Whether a spare is to stand in for this device of a vdev.
    fn needs_one(&self, vdev: &dyn Vdev, failed: &Leaf) -> bool {
        let member = vdev.as_group().and_then(|group| Some((group, group.member(failed.guid())?)));
        member.is_some_and(|(group, member)| is_in_need(group, &member, &self.watched()))
    }

    /// Has a spare that has left its vdev stand by again. `found` is its device, if it can be used.
    pub(super) fn stand_by(&self, spare: Guid, found: Option<Arc<dyn Device>>) {
        self.watched().forget_wanted(spare);
        let label = self.label();
        let Some(config) = label.sections.spares.iter().find(|other| other.leaf.guid == spare) else { return };
        let made = found.and_then(|device| match write_new_label(&*device, spare, NO_VDEV, &label) {
            Ok(()) => Some(Leaf::new(spare, device)),
            Err(error) => {
                tracing::warn!("the spare {} cannot be used: {error}", config.leaf.path);
                None
            }
        });
        self.engine().storage().vdevs.add_spare(Arc::new(made.unwrap_or_else(|| Leaf::absent(&config.leaf))));
    }
}

/// Has the label name those no more as spares that take the place of a device which leaves for good: that is the operator's
/// wish if no other device is to take it.
pub(super) fn settle_spares(label: &mut Label, group: &Group, leaves: Guid) {
    let members = group.members();
    let replacing = members.iter().filter(|member| member.replaces() == Some(leaves));
    let replacing: Vec<Guid> = replacing.map(|member| member.leaf.guid()).collect();
    if replacing.iter().all(|device| label.is_spare(*device)) {
        label.sections.spares.retain(|spare| !replacing.contains(&spare.leaf.guid));
    }
}

/// Whether a spare is to stand in for a member: it has failed, or serves with too many errors, and nobody takes its place.
fn is_in_need(group: &Group, member: &Arc<Member>, watched: &Watched) -> bool {
    let is_bad = || member.state() == State::Complete && watched.has_too_many(&member.leaf);
    let is_replaced = || group.members().iter().any(|other| other.replaces() == Some(member.leaf.guid()));
    (has_failed(member) || is_bad()) && !is_replaced() && member.replaces().is_none()
}

/// Whether a member is out of use, and not because the operator wants it.
fn has_failed(member: &Arc<Member>) -> bool {
    member.is_to_be_missed() && member.leaf.health() != Health::Offline
}

/// Whether another member of the same column has everything.
fn has_other(group: &Group, member: &Member) -> bool {
    let is_other = |other: &Arc<Member>| other.leaf.guid() != member.leaf.guid() && other.state() == State::Complete;
    group.of_column(member.column()).iter().any(is_other)
}

/// The devices of a label that stand by: those that are there, and those that are not.
pub(super) fn standing_by(label: &Label, find: impl Fn(Guid) -> Option<Arc<dyn Device>>) -> Vec<Arc<Leaf>> {
    let is_member = |guid: Guid| label.vdevs.iter().flat_map(|vdev| vdev.tree.leaves()).any(|leaf| leaf.guid == guid);
    let idle = label.sections.spares.iter().filter(|spare| !is_member(spare.leaf.guid));
    let leaf = |spare: &SpareConfig| match find(spare.leaf.guid) {
        Some(device) if usable_size(device.size()) >= spare.leaf.size => Leaf::new(spare.leaf.guid, device),
        _ => Leaf::absent(&spare.leaf),
    };
    idle.map(|spare| Arc::new(leaf(spare))).collect()
}

/// Has the labels of spares say what those of the pool do. One that refuses is not used until the pool is opened again.
pub(super) fn write_spare_labels(spares: &[Arc<Leaf>], label: &Label) {
    for leaf in spares.iter().filter(|leaf| leaf.health() == Health::Online) {
        let own = Label { device: leaf.guid(), vdev: NO_VDEV, ..label.clone() };
        if let Err(error) = labels::write_labels(&*leaf.device(), &own) {
            tracing::warn!("a spare cannot be used: {error}");
            leaf.note_fault();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_errors_are_ten_within_ten_minutes_until_they_are_forgotten() {
        let (mut watched, device) = (Watched::default(), Guid(1));
        let at = |seconds| Duration::from_secs(seconds);
        assert!(!watched.note(device, 9, at(0)));
        assert!(!watched.note(device, 9, at(600)));
        assert!(!watched.note(device, 18, at(700)), "nine since the last window");
        assert!(watched.note(device, 19, at(701)));
        assert!(watched.note(device, 19, at(9000)) && watched.is_bad(device, 19) && !watched.is_bad(device, 0));
        assert!(!watched.note(device, 0, at(9001)) && !watched.is_bad(device, 19));
        // Those of one that had not too many are forgotten as well.
        assert!(!watched.note(device, 9, at(9601)));
        assert!(!watched.note(device, 0, at(9602)));
        assert!(watched.note(device, 10, at(9603)));
        watched.forgive(device, 10, at(9604));
        assert!(!watched.note(device, 19, at(9605)) && watched.note(device, 20, at(9606)));
    }
}
