//! Manual operations on spares: using a spare for a device, and replacing a device for which a spare stands in.
//!
//! A spare put in use by the administrator stays until it is detached, even beside a complete device. The request is
//! not stored: after an import the spare stands in only for a device that needs it. See [`super::spares`].
//!
//! In a label a device can have at most one replacement. So a new device for a failed one with a complete spare
//! replaces the spare instead, and the failed device leaves by the same label: the spare suffices in its place. When
//! the new device is complete, the spare leaves the vdev like any replaced device, and becomes available again. A spare
//! that is not complete yet, or stands beside a complete device, is returned first.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | after a spare was returned, before a label names the new device | the failed device; a spare steps in for it again |
//! | before a label leaves the failed device out | it, and the spare that stands in |
//! | later | the spare in its place, and the new device, which is resilvered and replaces the spare |

use std::sync::Arc;

use super::{
    members::{check_replaceable, config_of, leave_out, room_for, too_small},
    pool::Pool,
    writing::{NO_VDEV, write_new_label},
};
use crate::{
    device::Device,
    error::{Error, Result},
    format::{
        label::{Label, device_size, usable_size},
        vdev_config::{Behind, LeafConfig, MemberConfig},
    },
    units::{Guid, Txg},
    vdev::{Health, Leaf, Member, State, Vdev, uberblocks},
};

impl Pool {
    /// Uses a spare for a device in any state; `false` if the pool has no spare of this path or GUID.
    ///
    /// # Errors
    /// [`Error::Request`] if the spare is in use, missing or too small, or the device is being replaced.
    pub fn use_spare(&self, device: &str, spare: &str) -> Result<bool> {
        let is_it = |leaf: &Arc<Leaf>| leaf.name() == spare || leaf.guid().to_string() == spare;
        let mut highest = self.labelling();
        let Some(found) = self.spares().into_iter().find(|spare| is_it(&spare.leaf)) else { return Ok(false) };
        self.engine().writable()?;
        let spare = found.leaf;
        if found.used_in.is_some() {
            return Err(Error::Request(format!("the spare {} is already in use", spare.name())));
        }
        if spare.health() != Health::Online {
            return Err(Error::Request(format!("the spare {} is missing", spare.name())));
        }
        let (vdev, old) = self.find_device(device)?;
        if vdev.is_lost() {
            return Err(Error::Request(format!("{device} belongs to a missing log vdev; to forget it: pool remove")));
        }
        let mut label = self.label();
        check_replaceable(&config_of(&mut label, vdev.id())?.tree, &old, |device| self.label().is_spare(device))?;
        let room = room_for(&label, vdev.id(), old.guid())?;
        let size = room.taken(spare.size()).ok_or_else(|| too_small(&*spare.device(), &room))?;
        self.watched().note_wanted(spare.guid());
        let joined = self.join_as_spare(&mut highest, (&vdev, &old), &spare, size);
        if joined.is_err() {
            self.watched().forget_wanted(spare.guid());
        }
        joined.map(|()| true)
    }

    /// Makes an available spare join a vdev, with `size` bytes, in the place of a device that stays a member.
    pub(super) fn join_as_spare(
        &self,
        highest: &mut Txg,
        (vdev, old): (&Arc<dyn Vdev>, &Arc<Leaf>),
        spare: &Arc<Leaf>,
        size: u64,
    ) -> Result<()> {
        let label = self.label();
        let joining = MemberConfig {
            behind: Some(Behind::default()),
            replaces: Some(old.guid()),
            ..MemberConfig::whole(LeafConfig { guid: spare.guid(), size, path: spare.name().to_owned() })
        };
        let device = spare.device();
        if !uberblocks::read_uberblocks(&*device, label.pool)?.is_empty() {
            // Power failed while the spare was being returned.
            write_new_label(&*device, spare.guid(), NO_VDEV, &label)?;
        }
        let vdevs = &self.engine().storage().vdevs;
        vdevs.take_spare(spare.guid());
        let joined = self.join(highest, label, (vdev, old), spare, &joining);
        if joined.is_err() {
            vdevs.add_spare(spare.clone());
        }
        joined
    }

    /// Bytes of the smallest device that could be a useful spare in the pool.
    pub fn least_spare(&self) -> u64 {
        let (label, vdevs) = (self.label(), self.engine().storage().vdevs.all());
        let leaves = vdevs.iter().flat_map(|vdev| vdev.leaves().into_iter().map(|leaf| (vdev.id(), leaf.guid())));
        let needed = leaves.filter_map(|(vdev, leaf)| Some(room_for(&label, vdev, leaf).ok()?.needed));
        needed.min().map_or(0, device_size)
    }

    /// Prepares to replace a device that has a spare. If the new device is large enough, a spare that is not needed, or
    /// not complete, is returned.
    pub(super) fn make_way(&self, device: &str, new: &dyn Device) -> Result<()> {
        let (vdev, old) = self.find_device(device)?;
        let label = self.label();
        let Some((spare, old)) = spare_in_use(&label, &*vdev, &old) else { return Ok(()) };
        let room = room_for(&label, vdev.id(), old.leaf.guid())?;
        room.taken(usable_size(new.size())).ok_or_else(|| too_small(new, &room))?;
        match (old.state(), spare.state()) {
            (State::Out, State::Complete) => self.outlast(&old.leaf.guid().to_string()),
            _ => self.detach(&spare.leaf.guid().to_string()),
        }
    }

    /// Removes from a label a device with a complete spare; returns the spare, which is to be replaced instead.
    pub(super) fn yield_to_spare(&self, label: &mut Label, vdev: &dyn Vdev, old: &Leaf) -> Result<Option<Arc<Leaf>>> {
        let Some((spare, old)) = spare_in_use(label, vdev, old) else { return Ok(None) };
        if (old.state(), spare.state()) != (State::Out, State::Complete) {
            let (spare, old) = (spare.leaf.name(), old.leaf.name());
            return Err(Error::Request(format!("the spare {spare} has just replaced {old}; try again")));
        }
        // The new device joins it at once, so a mirror stays a mirror.
        leave_out(&mut config_of(label, vdev.id())?.tree, old.leaf.guid());
        Ok(Some(spare.leaf.clone()))
    }
}

/// The spare that stands in for a device, and the device.
fn spare_in_use(label: &Label, vdev: &dyn Vdev, old: &Leaf) -> Option<(Arc<Member>, Arc<Member>)> {
    let group = vdev.as_group()?;
    let is_spare_in_use =
        |member: &&Arc<Member>| member.replaces() == Some(old.guid()) && label.is_spare(member.leaf.guid());
    let spare = group.members().iter().find(is_spare_in_use).cloned()?;
    Some((spare, group.member(old.guid())?))
}

/// True if a member in use is about to replace a device.
pub(super) fn is_about_to_leave(members: &[Arc<Member>], device: Guid) -> bool {
    members.iter().any(|member| member.replaces() == Some(device) && member.state() != State::Out)
}
