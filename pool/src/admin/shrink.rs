//! Devices that are made smaller: a vdev gives back what lies at the end of its devices, when that is vacated (see
//! [`crate::txg::Vacating`]), and the devices end earlier. It is the inverse of [`super::expand`].
//!
//! The vdev keeps whole regions, so the end is rounded up to one. The chunks of the others keep their rows, as those of a vdev
//! that is removed do: they are empty, and *gone* until the device has their regions again. Where a device ends that is larger
//! stands in the labels ([`crate::format::label::ends`]): its back labels are before that, nobody takes what is behind for
//! something it has grown, and only [`Pool::regain`] takes it back.
//!
//! The order is: the back labels are written at the new end, on all devices of the vdev, and flushed; the labels name the new
//! size and the ends; what is behind them is given up ([`labels::give_up_behind`]): an image is cut, and of a device that stays
//! as large as it was the former back labels are erased. An image ends there from then on, and the labels say so no more.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | while back labels are written at the new end | the pool as it was; nothing lies there by any state that one may go back to |
//! | while labels are written, before one names the end | the same |
//! | after that | labels of two ages, of which the newer counts: each device that it names ends where it says, and has its back labels there |
//! | before what is behind is given up | the pool with the new size; whoever goes on with it gives it up |
//! | while it is given up | the same; what is left of the former back labels is looked for by nobody, as long as a front label is good |
//! | after that | the pool with the new size |
//!
//! Two things must hold for this. All devices of the vdev are there and have everything: so whichever label counts, a device
//! that it names has back labels where it says. And the front labels of each have been written, which alone say where the others
//! are: a device that refuses them has not got its label ([`labels`]), and then all is as it was.
//!
//! A device that is taken out while labels are written, and comes back, is given its end by the newest label of all
//! ([`labels::settle_end`]). When an end is taken back it is the other way round: the back labels are written where the device
//! ends, then the labels name no end any more.

use std::{ops::Range, sync::Arc};

use super::{create::MIN_DEVICE, members::config_of, open::shapes_of, pool::Pool};
use crate::{
    error::{Error, Result},
    format::{
        label::{LABEL_SIZE, Label, device_size, usable_size},
        vdev_config::VdevTree,
    },
    space::{MovingPlan, Regions, Targets},
    units::{Txg, VdevId},
    vdev::{Leaf, Member, State, Vdev, labels},
};

/// What it takes to make the devices of a vdev smaller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShrinkPlan {
    /// The vdev.
    pub vdev: VdevId,
    /// What it is called.
    pub name: String,
    /// How large its devices are now: the smallest of them, in bytes.
    pub now: u64,
    /// How large they were asked to be.
    pub asked: u64,
    /// How large they will be: no less than that.
    pub size: u64,
    /// How many regions it keeps.
    pub regions: u32,
    /// What has to be moved.
    pub moving: MovingPlan,
    /// The least size that would do at the moment, in bytes.
    pub least: u64,
}

/// A size as somebody asks for it, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// So many.
    To(u64),
    /// So many less than there are.
    By(u64),
}

impl Pool {
    /// What it takes to make the device of this name smaller, and with it the others of its mirror.
    ///
    /// # Errors
    /// [`Error::Request`] if there is no such device, it is of a RAID-Z, some device lacks something, or it would not become
    /// smaller, or too small.
    pub fn plan_shrink(&self, device: &str, wanted: Wanted) -> Result<ShrinkPlan> {
        let vdev = self.find_device(device).map(|(vdev, _)| vdev).or_else(|_| self.find_vdev(device))?;
        let id = vdev.id();
        let mut label = self.label();
        let config = config_of(&mut label, id)?.clone();
        let name = vdev.as_group().map_or_else(|| device.to_owned(), |group| group.name().to_owned());
        if matches!(config.tree, VdevTree::RaidZ(_)) {
            let problem = format!(
                "{name} is a raidz, which cannot be made smaller; add a smaller vdev instead, and then remove {name}"
            );
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
            let problem = format!("{name} has {now} bytes, and becomes larger with pool online -e");
            return Err(Error::Request(problem));
        }
        if asked < MIN_DEVICE {
            let problem = format!("a device of a pool has at least {MIN_DEVICE} bytes, and {asked} are less");
            return Err(Error::Request(problem));
        }
        let regions = u32::try_from(usable_size(asked.next_multiple_of(LABEL_SIZE)).div_ceil(region));
        let regions = regions.unwrap_or(u32::MAX);
        let size = size_of(regions, region);
        if size >= now {
            let problem = format!("{name} has {now} bytes, and gives back whole regions of {region} bytes");
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

    /// How many regions a vdev has.
    fn regions_of(&self, label: &Label, id: VdevId) -> u32 {
        let config = label.vdevs.iter().find(|config| config.id == id);
        config.map_or(0, |config| u32::try_from(label.size_of(config) / label.region_size).unwrap_or(u32::MAX))
    }

    /// Has the devices of a vdev end behind its first `regions` regions. The others are closed and vacated, and no state needs
    /// them that one may go back to. After an error the labels may say it or not, and this may be called again.
    ///
    /// # Errors
    /// [`Error::Request`] if something lies there or a device lacks something, [`Error::Device`] if a label could not be
    /// written.
    pub fn shrink(&self, id: VdevId, regions: u32) -> Result<()> {
        self.engine().writable()?;
        let storage = self.engine().storage();
        let vdev = storage.vdevs.get(id)?;
        // No commit writes uberblocks meanwhile, and nobody labels.
        let mut highest = self.labelling_still();
        let mut label = self.label();
        let all = self.regions_of(&label, id);
        let region = label.region_size;
        check_whole(&*vdev, &label, &format!("vdev {id}"))?;
        let leaves = vdev.labelled();
        let config = config_of(&mut label, id)?;
        let size = size_of(regions, region);
        // Whoever plans it does not ask for that; what was stored may be anything.
        if matches!(config.tree, VdevTree::RaidZ(_)) {
            return Err(Error::Request(format!("vdev {id} cannot end behind {regions} regions")));
        }
        // The vdev may use less of its devices than is to be left of them: they have grown, or took the places of smaller
        // ones. Then it keeps its regions, and of its devices those may be smaller by now that have come since: if all of
        // them are, there is nothing to do.
        let longer: Vec<Arc<Leaf>> = leaves.iter().filter(|leaf| leaf.device().size() > size).cloned().collect();
        if !longer.is_empty() {
            self.check_vacated(id, regions.min(all)..all)?;
            // It may be that not all was taken over that the devices had grown.
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
                // Where that fails, too, labels of either kind may be found, and each is good: nothing lies at the end.
                self.replace_labels(&mut highest, former, &[])?;
                return Err(error);
            }
            if let Some(group) = vdev.as_group() {
                group.remeasure();
            }
            self.engine().with_open_txg(|_| storage.space.rezone(id, &shapes.unwrap_or_default()));
        }
        // One that refused its label is done without by now, and its labels may still stand where it ended.
        self.give_up_ends(&mut highest, &vdev.labelled())
    }

    /// Has the devices of a vdev end where they do, and not behind its first `regions` regions: then these may be used again
    /// that were closed to be given up. The caller holds the pool still until they are.
    ///
    /// Labels may say otherwise: those of a device that is away since power failed while they were written, or since
    /// [`Pool::shrink`] failed. So all are written once more, with a higher number than any was given, and count from then on.
    ///
    /// # Errors
    /// [`Error::Request`] if labels name the new end, [`Error::Device`] if one could not be written.
    pub fn keep_ends(&self, id: VdevId, regions: u32) -> Result<()> {
        let leaves = self.engine().storage().vdevs.get(id)?.labelled();
        let label = self.label();
        let size = size_of(regions, label.region_size);
        let is_named = |leaf: &Arc<Leaf>| label.end_of(leaf.guid()).is_some_and(|end| end <= size);
        if end_at(&leaves, size) || leaves.iter().any(is_named) {
            return Err(Error::Request("the devices end there already".to_owned()));
        }
        self.relabel_held_still()
    }

    /// Gives up what is behind the ends of devices, and forgets those ends that are where their devices end by now. One that
    /// refuses ends where the labels say all the same: they go on saying so.
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

    /// Takes back what devices of a vdev have behind the ends that they were given: it is as if they had grown. Whether there
    /// was any.
    ///
    /// # Errors
    /// [`Error::Request`] if a device of it lacks something, [`Error::Device`] if labels could not be written.
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

/// Whether devices of a vdev end there because they were made smaller, or all of them are: one that has come since may be
/// smaller by itself.
pub fn end_at(leaves: &[Arc<Leaf>], size: u64) -> bool {
    let mut sizes = leaves.iter().map(|leaf| leaf.device().size());
    sizes.clone().any(|there| there == size) || sizes.all(|there| there < size)
}

/// Has all of these devices end there, or none of them.
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

/// Refuses a vdev of which some device is not there or lacks something, or that a spare stands in for: it would be made smaller,
/// too, and not be the spare that it was.
fn check_whole(vdev: &dyn Vdev, label: &Label, name: &str) -> Result<()> {
    let refused = |problem: String| Err(Error::Request(problem));
    if vdev.is_lost() {
        return refused(format!("{name} is missing, and its pool goes on without it"));
    }
    let members = vdev.as_group().map(|group| group.members());
    let is_amiss = |member: &&Arc<Member>| member.state() != State::Complete || label.is_spare(member.leaf.guid());
    match members.iter().flat_map(|members| members.iter()).find(is_amiss) {
        Some(member) if member.state() == State::Complete => {
            refused(format!("the spare {} stands in for a device of {name}", member.leaf.name()))
        }
        Some(member) => refused(format!(
            "{} of {name} is not there or lacks data; all devices have to be whole",
            member.leaf.name()
        )),
        None => Ok(()),
    }
}

/// How large a device is with so many regions.
fn size_of(regions: u32, region: u64) -> u64 {
    device_size(u64::from(regions).saturating_mul(region))
}

/// The least number up to `limit` that fits, where all larger ones do.
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
