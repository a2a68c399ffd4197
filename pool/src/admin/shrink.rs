//! Shrinking devices: once the space at the end of a vdev's devices is vacated (see [`crate::txg::Vacating`]), the vdev
//! gives it back, and the devices end earlier. The inverse of [`super::expand`].
//!
//! The vdev keeps whole regions, so the end is rounded up to one. Chunks of the given-up regions keep their rows in the
//! chunk table, like chunks of a removed vdev: they are empty, and *gone* until the device has their regions again. If
//! a device is larger than its end, labels record the end ([`crate::format::label::ends`]): the back labels lie before
//! it, the space behind it does not count as growth, and only [`Pool::regain`] takes it back.
//!
//! The order is: the back labels are written at the new end on all devices of the vdev, and flushed. Then labels name
//! the new size and the ends. Then the space behind is given up ([`labels::give_up_behind`]): an image is truncated; on
//! a device that keeps its size, the former back labels are erased. A truncated image physically ends there, and labels
//! drop its recorded end.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | while back labels are written at the new end | the pool as it was; no state to rewind to has anything there |
//! | while labels are written, before one names the end | the same |
//! | later | labels of two ages; the newer counts: each device that it names ends where it says, and has its back labels there |
//! | before the space behind is given up | the pool with the new size; a later run gives it up |
//! | while it is given up | the same; leftovers of the former back labels are ignored as long as a front label is good |
//! | later | the pool with the new size |
//!
//! Two conditions make this work. All devices of the vdev are present and complete: so whichever label counts, a device
//! that it names has back labels where it says. And the front labels of each device have been written, which alone say
//! where the back labels are: a device that fails to write them does not have its label ([`labels`]), and then all is
//! as it was.
//!
//! A device that goes out of use while labels are written, and returns, gets its end from the newest label of all
//! ([`labels::settle_end`]). To take an end back the order is reversed: the back labels are written at the device's
//! physical end, then labels drop the recorded end.

use std::{ops::Range, sync::Arc};

use super::{create::MIN_DEVICE, members::config_of, pool::Pool, shapes::shapes_of};
use crate::{
    error::{Error, Result},
    format::{
        label::{LABEL_SIZE, Label, device_size, usable_size},
        vdev_config::VdevTree,
    },
    size::format_bytes,
    space::{MovingPlan, Regions, Targets},
    units::{Txg, VdevId},
    vdev::{Leaf, Member, State, Vdev, labels},
};

/// A plan for shrinking the devices of a vdev.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShrinkPlan {
    /// Position of the vdev in the pool.
    pub vdev: VdevId,
    /// The vdev's name, as status shows it.
    pub name: String,
    /// The current size of the smallest device, in bytes.
    pub now: u64,
    /// The requested size, in bytes.
    pub asked: u64,
    /// The resulting size, in bytes: at least the requested one.
    pub size: u64,
    /// Regions that the vdev keeps.
    pub regions: u32,
    /// What must move off the freed regions.
    pub moving: MovingPlan,
    /// The smallest size possible at the moment, in bytes.
    pub least: u64,
}

/// A requested size, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The size of each device afterwards.
    To(u64),
    /// A reduction of the current size.
    By(u64),
}

impl Pool {
    /// Plans shrinking the device of this name, together with the rest of its mirror.
    ///
    /// # Errors
    /// [`Error::Request`] if there is no such device, it is in a RAID-Z, some device is incomplete, or the result would
    /// not be smaller, or too small.
    pub fn plan_shrink(&self, device: &str, wanted: Wanted) -> Result<ShrinkPlan> {
        let vdev = self.find_device(device).map(|(vdev, _)| vdev).or_else(|_| self.find_vdev(device))?;
        let id = vdev.id();
        let mut label = self.label();
        let config = config_of(&mut label, id)?.clone();
        let name = vdev.as_group().map_or_else(|| device.to_owned(), |group| group.name().to_owned());
        if matches!(config.tree, VdevTree::RaidZ(_)) {
            let problem =
                format!("{name} is a raidz, which cannot be shrunk; add a smaller vdev instead, then remove {name}");
            return Err(Error::Request(problem));
        }
        check_whole(&*vdev, &label, &name)?;
        let region = label.region_size;
        let now = vdev.labelled().iter().map(|leaf| leaf.device().size()).min().unwrap_or(0);
        let asked = match wanted {
            Wanted::To(size) => size,
            Wanted::By(less) => now.saturating_sub(less),
        };
        if asked > now {
            let problem = format!("{name} has {}; to use added space: pool online -e", format_bytes(now));
            return Err(Error::Request(problem));
        }
        if asked < MIN_DEVICE {
            let problem = format!("{} is too small: at least 64M needed", format_bytes(asked));
            return Err(Error::Request(problem));
        }
        let regions = u32::try_from(usable_size(asked.next_multiple_of(LABEL_SIZE)).div_ceil(region));
        let regions = regions.unwrap_or(u32::MAX);
        let size = size_of(regions, region);
        if size >= now {
            let (now, region) = (format_bytes(now), format_bytes(region));
            let problem = format!("{name} has {now} and can only shrink by whole regions of {region}");
            return Err(Error::Request(problem));
        }
        let all = self.regions_of(&label, id);
        let space = &self.engine().storage().space;
        let plan = |kept: u32| space.moving_plan(&Regions::Range(id, kept..u32::MAX), &Targets::Anywhere);
        let least = least_that(all, |kept| size_of(kept, region) >= MIN_DEVICE && plan(kept).fits());
        let moving = plan(regions);
        let least = size_of(least, region).min(now);
        Ok(ShrinkPlan { vdev: id, name, now, asked, size, regions, moving, least })
    }

    /// Regions of a vdev.
    fn regions_of(&self, label: &Label, id: VdevId) -> u32 {
        let config = label.vdevs.iter().find(|config| config.id == id);
        config.map_or(0, |config| u32::try_from(label.size_of(config) / label.region_size).unwrap_or(u32::MAX))
    }

    /// Ends the devices of a vdev behind its first `regions` regions. The caller has closed and vacated the rest, and
    /// no state to rewind to needs it. After an error labels may or may not record the new end, and the call may be
    /// repeated.
    ///
    /// # Errors
    /// [`Error::Request`] if data lies there or a device is incomplete, [`Error::Device`] if a label could not be
    /// written.
    pub fn shrink(&self, id: VdevId, regions: u32) -> Result<()> {
        self.engine().writable()?;
        let storage = self.engine().storage();
        let vdev = storage.vdevs.get(id)?;
        // Commits are paused and labels locked.
        let mut highest = self.labelling_still();
        let mut label = self.label();
        let all = self.regions_of(&label, id);
        let region = label.region_size;
        check_whole(&*vdev, &label, &format!("vdev {id}"))?;
        let leaves = vdev.labelled();
        let config = config_of(&mut label, id)?;
        let size = size_of(regions, region);
        // A plan never asks for this; a stored job may be damaged.
        if matches!(config.tree, VdevTree::RaidZ(_)) {
            return Err(Error::Request(format!("vdev {id} cannot end behind {regions} regions")));
        }
        // The vdev may already use less of its devices than should remain: they have grown, or replaced smaller ones.
        // Then it keeps its regions. Devices that joined since may be smaller already; if all are, there is nothing to
        // do.
        let longer: Vec<Arc<Leaf>> = leaves.iter().filter(|leaf| leaf.device().size() > size).cloned().collect();
        if !longer.is_empty() {
            self.check_vacated(id, regions.min(all)..all)?;
            // The vdev may not have used all of its devices' growth.
            config.tree.set_device_size(config.tree.device_size().min(usable_size(size)));
            let ending = leaves.iter().filter(|leaf| leaf.device().size() >= size);
            label.sections.ends.extend(ending.map(|leaf| (leaf.guid(), size)));
            move_ends(&longer, size)?;
            let before: Vec<u64> = leaves.iter().map(|leaf| leaf.size()).collect();
            leaves.iter().for_each(|leaf| leaf.give_less());
            let shapes = label.vdevs.iter().find(|config| config.id == id).map(|config| shapes_of(&label, config));
            let former = self.label();
            if let Err(error) = self.replace_labels(&mut highest, label, &[]) {
                for (leaf, before) in leaves.iter().zip(before) {
                    leaf.device().resize(device_size(before));
                    leaf.take_size();
                }
                // If this fails too, labels of either kind may be found, and both are good: nothing lies at the end.
                self.replace_labels(&mut highest, former, &[])?;
                return Err(error);
            }
            if let Some(group) = vdev.as_group() {
                group.remeasure();
            }
            self.engine().with_open_txg(|_| storage.space.rezone(id, &shapes.unwrap_or_default()));
        }
        // A device that failed its label is faulted by now, and its labels may still stand at the old end.
        self.give_up_ends(&mut highest, &vdev.labelled())
    }

    /// Confirms the current ends of a vdev's devices, instead of an end behind the first `regions` regions: the closed
    /// regions may then be used again. The caller pauses commits until they are reopened.
    ///
    /// Some labels may name the new end: labels of a device away since a power failure while they were written, or
    /// since [`Pool::shrink`] failed. So all labels are rewritten with a txg above all given ones, and win from then
    /// on.
    ///
    /// # Errors
    /// [`Error::Request`] if labels name the new end, [`Error::Device`] if a label could not be written.
    pub fn keep_ends(&self, id: VdevId, regions: u32) -> Result<()> {
        let leaves = self.engine().storage().vdevs.get(id)?.labelled();
        let label = self.label();
        let size = size_of(regions, label.region_size);
        let is_named = |leaf: &Arc<Leaf>| label.end_of(leaf.guid()).is_some_and(|end| end <= size);
        if end_at(&leaves, size) || leaves.iter().any(is_named) {
            return Err(Error::Request("the devices already end there".to_owned()));
        }
        self.relabel_held_still()
    }

    /// Gives up the space behind recorded ends, and drops recorded ends that now are physical ends. If a device fails
    /// that, its recorded end stays in the labels.
    fn give_up_ends(&self, highest: &mut Txg, leaves: &[Arc<Leaf>]) -> Result<()> {
        let mut label = self.label();
        let named = label.sections.ends.len();
        for leaf in leaves.iter().filter(|leaf| self.label().end_of(leaf.guid()).is_some()) {
            let device = leaf.device();
            match labels::give_up_behind(&*device) {
                Ok(there) if there == device.size() => drop(label.sections.ends.remove(&leaf.guid())),
                Ok(_) => {}
                Err(error) => tracing::warn!("what is behind the end of {} stays there: {error}", leaf.name()),
            }
        }
        match label.sections.ends.len() < named {
            true => self.replace_labels(highest, label, &[]),
            false => Ok(()),
        }
    }

    fn check_vacated(&self, id: VdevId, regions: Range<u32>) -> Result<()> {
        let space = &self.engine().storage().space;
        let is_empty = space.is_unused(id, regions.clone()) && space.is_vacated(&Regions::Range(id, regions));
        if is_empty { Ok(()) } else { Err(Error::Request(format!("something lies at the end of vdev {id}"))) }
    }

    /// Takes back the space behind the recorded ends of a vdev's devices, as if they had grown. Returns whether there
    /// was any.
    ///
    /// # Errors
    /// [`Error::Request`] if a device of the vdev is incomplete, [`Error::Device`] if labels could not be written.
    pub fn regain(&self, id: VdevId) -> Result<bool> {
        self.engine().writable()?;
        let vdev = self.engine().storage().vdevs.get(id)?;
        let mut highest = self.labelling_still();
        let mut label = self.label();
        let is_named = |leaf: &Arc<Leaf>| label.end_of(leaf.guid()).is_some();
        let leaves: Vec<Arc<Leaf>> = vdev.leaves().into_iter().filter(is_named).collect();
        if leaves.is_empty() {
            return Ok(false);
        }
        check_whole(&*vdev, &label, &format!("vdev {id}"))?;
        label.sections.ends.retain(|guid, _| leaves.iter().all(|leaf| leaf.guid() != *guid));
        let moved = leaves.iter().try_for_each(|leaf| {
            let device = leaf.device();
            let there = device.measure().map_err(|source| leaf.failed("measure", source))?;
            if there > device.size() { labels::move_back_labels(&*device, there) } else { Ok(()) }
        });
        let former = self.label();
        if let Err(error) = moved.and_then(|()| self.replace_labels(&mut highest, label, &[])) {
            leaves.iter().for_each(|leaf| labels::settle_end(&*leaf.device(), &former, leaf.guid()));
            self.replace_labels(&mut highest, former, &[])?;
            return Err(error);
        }
        leaves.iter().for_each(|leaf| leaf.take_size());
        if let Some(group) = vdev.as_group() {
            group.remeasure();
        }
        Ok(true)
    }
}

/// True if a device ends at `size`, shrunk, or all are smaller: a device that joined later may be smaller itself.
pub fn end_at(leaves: &[Arc<Leaf>], size: u64) -> bool {
    let mut sizes = leaves.iter().map(|leaf| leaf.device().size());
    sizes.clone().any(|there| there == size) || sizes.all(|there| there < size)
}

/// Moves the end of all of these devices, or of none.
fn move_ends(leaves: &[Arc<Leaf>], size: u64) -> Result<()> {
    let mut moved: Vec<(&Arc<Leaf>, u64)> = Vec::new();
    for leaf in leaves {
        let (device, before) = (leaf.device(), leaf.device().size());
        if let Err(error) = labels::move_back_labels(&*device, size) {
            moved.iter().for_each(|(leaf, before)| leaf.device().resize(*before));
            return Err(error);
        }
        moved.push((leaf, before));
    }
    Ok(())
}

/// Refuses a vdev with a missing or incomplete device, or with a spare in use: the spare would be shrunk as well, and
/// be useless elsewhere.
fn check_whole(vdev: &dyn Vdev, label: &Label, name: &str) -> Result<()> {
    let refused = |problem: String| Err(Error::Request(problem));
    if vdev.is_lost() {
        return refused(format!("{name} is a missing log vdev"));
    }
    let members = vdev.as_group().map(|group| group.members());
    let is_amiss = |member: &&Arc<Member>| member.state() != State::Complete || label.is_spare(member.leaf.guid());
    match members.iter().flat_map(|members| members.iter()).find(is_amiss) {
        Some(member) if member.state() == State::Complete => {
            refused(format!("the spare {} is in use for a device of {name}", member.leaf.name()))
        }
        Some(member) => {
            refused(format!("{} of {name} is missing or incomplete; all devices must be complete", member.leaf.name()))
        }
        None => Ok(()),
    }
}

/// The size in bytes of a device with so many regions.
fn size_of(regions: u32, region: u64) -> u64 {
    device_size(u64::from(regions).saturating_mul(region))
}

/// The least number up to `limit` that fits, if every larger one fits too.
fn least_that(limit: u32, fits: impl Fn(u32) -> bool) -> u32 {
    let (mut beyond, mut least) = (0, limit);
    while beyond < least {
        let middle = beyond + (least - beyond) / 2;
        match fits(middle) {
            true => least = middle,
            false => beyond = middle + 1,
        }
    }
    least
}
