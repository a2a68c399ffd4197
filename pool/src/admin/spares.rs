//! Hot spares: devices that step in for a failed device of a mirror or a RAID-Z.
//!
//! A spare carries a label like every device of the pool, so that other software does not take it for free, and is in
//! no vdev. A spare that steps in joins the vdev like a replacing device (see [`super::members`]), and is resilvered.
//! The difference comes afterwards: the failed device stays a member until the administrator detaches it. Then the
//! spare has replaced it for good, and is no longer a spare. If the failed device is complete again, or was replaced,
//! the spare leaves the vdev and becomes available again; also if the whole vdev leaves ([`super::removal`]).
//!
//! Labels list all spares, in use or not: a spare that is also a member is in use.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | adding: before a device of the pool names the spare | the pool without it: its own label is older than any in the pool |
//! | adding: later | the pool with it |
//! | removing: before a label leaves it out | the pool with it |
//! | removing: later | the pool without it; its own label names a pool without this device |
//! | stepping in: before a label names it as a member | the pool with an available spare; the process with the open pool then has it step in |
//! | stepping in: later | a member behind since txg 0: it is resilvered |
//! | returning: before a label leaves it out of the vdev | the pool with it in use |
//! | returning: then, before its own label is new | an available spare with old rings: they are not read, and are erased when it steps in |
//! | returning: while its own label is rewritten | a missing spare: it can be removed and added again |
//!
//! [`Pool::spare_step`], called periodically by the process with the open pool, decides when a spare steps in. No spare
//! steps in for a device that the administrator took offline. A device with too many checksum errors stays in use until
//! the spare is complete, because most of its blocks may be good, and is faulted then.

use std::sync::Arc;

use super::{
    members::{Reopen, room_for},
    pool::Pool,
    probe::probe_foreign,
    spare_use::is_about_to_leave,
    watched::Watched,
    writing::{NO_VDEV, write_new_label},
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
    size::format_bytes,
    units::{Guid, Txg, VdevId},
    vdev::{Group, Health, Leaf, Member, State, Vdev, labels},
};

/// A spare of a pool.
#[derive(Clone)]
pub struct Spare {
    /// The device; a closed one if it is missing.
    pub leaf: Arc<Leaf>,
    /// The vdev in which the spare is in use.
    pub used_in: Option<VdevId>,
}

/// A change made by [`Pool::spare_step`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpareChange {
    /// A spare has stepped in.
    InUse {
        /// The path of the spare.
        spare: String,
        /// The path of the device that the spare stands in for.
        device: String,
    },
    /// A spare is available again.
    Available {
        /// The path of the spare.
        spare: String,
    },
    /// A device with too many errors was faulted, as a spare is complete in its place.
    Faulted {
        /// The device's path.
        device: String,
    },
}

/// Enters devices into a label as spares; writes nothing.
///
/// # Errors
/// [`Error::Request`] if there are too many, or one is too small for any vdev of the pool.
pub(super) fn name_spares(pool: &Pool, label: &mut Label, devices: &[Arc<dyn Device>]) -> Result<Vec<Arc<Leaf>>> {
    let least = label.region_size;
    if let Some(small) = devices.iter().find(|device| usable_size(device.size()) < least) {
        return Err(Error::Request(format!(
            "{} is smaller than one region of this pool, {}",
            small.name(),
            format_bytes(least)
        )));
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
    /// The spares, in the order of their addition.
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

    /// Adds devices as spares.
    ///
    /// # Errors
    /// [`Error::Request`] if there are too many, or one is too small for any vdev of the pool.
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

    /// Takes up spares that the labels name. Their own labels follow with the labels of all devices in no vdev.
    pub(super) fn take_spares(&self, leaves: Vec<Arc<Leaf>>) {
        let vdevs = &self.engine().storage().vdevs;
        leaves.into_iter().for_each(|leaf| vdevs.add_spare(leaf));
    }

    /// Removes a spare from the pool; `false` if there is none of this path or GUID.
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
            return Err(Error::Request(format!("the spare {name} is in use; pool detach returns it")));
        }
        let mut label = self.label();
        label.sections.spares.retain(|other| other.leaf.guid != spare.leaf.guid());
        self.replace_labels(&mut highest, label, &[])?;
        self.engine().storage().vdevs.take_spare(spare.leaf.guid());
        // The write may hang, so commits are let go on first.
        let _apart = highest.apart();
        if spare.leaf.health() == Health::Online
            && let Err(error) = labels::clear_labels(&*spare.leaf.device())
        {
            tracing::warn!("{name} still says that it is of the pool: {error}");
        }
        spare.leaf.let_go();
        Ok(true)
    }

    /// Does what is due with spares: they step in for failed devices, and leave when no longer needed. Called
    /// periodically; does nothing in a suspended pool.
    ///
    /// # Errors
    /// If a label could not be written. The step may be repeated.
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
                && self.put_in_use(vdev, &failed, &spare)?
            {
                let (spare, device) = (spare.name().to_owned(), failed.name().to_owned());
                tracing::warn!("the spare {spare} steps in for {device}");
                changes.push(SpareChange::InUse { spare, device });
            }
        }
        Ok(changes)
    }

    /// Replaces a failed device by a new one at the same path, if `is_wanted`: the new device must open, be large
    /// enough, and hold no known format. Returns the paths.
    ///
    /// # Errors
    /// If a label could not be written. The step may be repeated.
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
                // A device that a spare stands in for is not replaced either.
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

    /// Returns spares that have failed or are no longer needed; faults devices with too many errors for which a spare
    /// is complete.
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
                if own.state() == State::Complete && self.fault_for_errors(group, &old.leaf)? {
                    changes.push(SpareChange::Faulted { device: old.leaf.name().to_owned() });
                }
                continue;
            }
            // A spare about to be replaced leaves when its replacement is complete.
            let is_to_stay =
                self.watched().wanted.contains(&leaf.guid()) || is_about_to_leave(&group.members(), leaf.guid());
            let is_back = !is_to_stay && replaced.is_none_or(|old| old.state() == State::Complete);
            let is_useless = has_failed(&own);
            if ((is_back && has_other(group, &own)) || is_useless) && self.have_leave_if_it_may(leaf.guid(), None)? {
                tracing::info!("the spare {} is available again", leaf.name());
                changes.push(SpareChange::Available { spare: leaf.name().to_owned() });
            }
        }
        Ok(changes)
    }

    /// The devices that need a spare, with their vdevs.
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

    /// The smallest available spare that is present and has at least `least` bytes.
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

    /// Makes a spare join a vdev. The spare was chosen before the label lock was taken; returns `false` if it has left
    /// or become too small since, or the device has left, is back, is replaced, or was taken offline.
    fn put_in_use(&self, vdev: VdevId, failed: &Arc<Leaf>, spare: &Arc<Leaf>) -> Result<bool> {
        let mut highest = self.labelling();
        let label = self.label();
        let vdevs = &self.engine().storage().vdevs;
        let is_available = vdevs.spares().iter().any(|idle| Arc::ptr_eq(idle, spare));
        let Some(vdev) = vdevs.get(vdev).ok().filter(|vdev| is_available && self.needs_one(&**vdev, failed)) else {
            return Ok(false);
        };
        let room = room_for(&label, vdev.id(), failed.guid())?;
        let Some(size) = room.taken(spare.size()) else { return Ok(false) };
        self.join_as_spare(&mut highest, (&vdev, failed), spare, size).map(|()| true)
    }

    /// True if this device of a vdev needs a spare.
    fn needs_one(&self, vdev: &dyn Vdev, failed: &Leaf) -> bool {
        let member = vdev.as_group().and_then(|group| Some((group, group.member(failed.guid())?)));
        member.is_some_and(|(group, member)| is_in_need(group, &member, &self.watched()))
    }

    /// Makes a spare that has left its vdev available again. `found` is its device, if usable.
    pub(super) fn make_available(&self, spare: Guid, found: Option<Arc<dyn Device>>) {
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

/// Makes spares permanent that stand in for a device detached for good: they leave the label's list of spares. Not if
/// another device replaces it too.
pub(super) fn settle_spares(label: &mut Label, group: &Group, leaves: Guid) {
    let members = group.members();
    let replacing = members.iter().filter(|member| member.replaces() == Some(leaves));
    let replacing: Vec<Guid> = replacing.map(|member| member.leaf.guid()).collect();
    if replacing.iter().all(|device| label.is_spare(*device)) {
        label.sections.spares.retain(|spare| !replacing.contains(&spare.leaf.guid));
    }
}

/// True if a member needs a spare: it has failed, or has too many errors, and is not being replaced.
fn is_in_need(group: &Group, member: &Arc<Member>, watched: &Watched) -> bool {
    let is_bad = || member.state() == State::Complete && watched.has_too_many(&member.leaf);
    let is_replaced = || group.members().iter().any(|other| other.replaces() == Some(member.leaf.guid()));
    (has_failed(member) || is_bad()) && !is_replaced() && member.replaces().is_none()
}

/// True if a member is out of use, and not by the administrator's wish.
fn has_failed(member: &Arc<Member>) -> bool {
    member.is_to_be_missed() && member.leaf.health() != Health::Offline
}

/// True if another member of the same column is complete.
fn has_other(group: &Group, member: &Member) -> bool {
    let is_other = |other: &Arc<Member>| other.leaf.guid() != member.leaf.guid() && other.state() == State::Complete;
    group.of_column(member.column()).iter().any(is_other)
}

/// The available spares of a label, present or absent.
pub(super) fn available_spares(label: &Label, find: impl Fn(Guid) -> Option<Arc<dyn Device>>) -> Vec<Arc<Leaf>> {
    let is_member = |guid: Guid| label.vdevs.iter().flat_map(|vdev| vdev.tree.leaves()).any(|leaf| leaf.guid == guid);
    let idle = label.sections.spares.iter().filter(|spare| !is_member(spare.leaf.guid));
    let leaf = |spare: &SpareConfig| match find(spare.leaf.guid) {
        Some(device) if usable_size(device.size()) >= spare.leaf.size => Leaf::new(spare.leaf.guid, device),
        _ => Leaf::absent(&spare.leaf),
    };
    idle.map(|spare| Arc::new(leaf(spare))).collect()
}
