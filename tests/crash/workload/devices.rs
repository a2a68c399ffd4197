//! What administrators do with the devices of a pool of many devices: offline and online, replace, attach, detach, add
//! and remove vdevs, expand a RAID-Z, rebalance, defragment, scrub, and keep spares in use. Jobs run step by step
//! between other steps, so power fails at every instant of a job.
//!
//! None of this is visible in a file, and none of it promises anything.

use std::{collections::BTreeMap, sync::Arc};

use dataset::{
    catalogue::ScrubState,
    jobs::{Job, Scheduler},
};
use pool::{
    admin::ClassedVdev,
    device::Device,
    format::{
        label::{classes::VdevClass, device_size},
        vdev_config::{RaidZConfig, VdevTree},
    },
    space::{Regions, Targets},
    units::{Guid, VdevId},
    vdev::{Group, Health, Leaf, Member, State, Vdev},
};

use super::Life;
use crate::{
    layout::{Kind, SIZES},
    upkeep::Grouped,
    world::{DEVICE_SIZE, Outcome},
};

/// The most devices in a life.
const DEVICES: usize = 22;
/// The most columns of a RAID-Z, and the most devices of a mirror.
const COLUMNS: usize = 7;
const COPIES: usize = 4;
/// The bytes that jobs handle in a step, and how many steps are done at a time.
const STEP: u64 = 1 << 17;
const STEPS: usize = 24;

/// For so many turns the operator works on devices at random, then for as many turns repairs everything: otherwise no
/// job would ever finish.
const SEASON: usize = 10;

/// Counts of the operations on devices, by kind.
pub(crate) type Done = BTreeMap<&'static str, u64>;

/// The operation on devices, if any was possible: kind and description.
pub(super) type Operated = Outcome<Option<(&'static str, String)>>;

/// The name under which the end of a job is counted.
fn ended_as(kind: &str) -> &'static str {
    match kind {
        "resilver" => "resilvered",
        "removal" => "removed",
        "rebalance" => "rebalanced",
        "defragmentation" => "defragmented",
        "resize" => "resized",
        "expansion" => "widened",
        _ => "out of use again",
    }
}

impl Life {
    /// Does one operation on the devices, and counts it.
    pub(super) fn see_to_the_devices(&mut self) -> Outcome<String> {
        let begun = self.begin_moving()?;
        self.seen_to += 1;
        let is_calm = self.seen_to / SEASON % 2 == 1;
        let operation = match self.below(100) {
            _ if begun.is_some() => begun,
            0..31 => self.tend()?,
            31 => self.have_one_refuse()?,
            32..34 => self.lengthen_one()?,
            34..37 => self.use_what_has_grown()?,
            37 => self.make_one_smaller()?,
            38..48 if is_calm => self.bring_all_back()?,
            38..48 => self.see_to_a_spare()?,
            48..56 if is_calm => self.tend()?,
            48..56 => self.take_one_offline()?,
            56..68 => self.bring_one_back()?,
            68..75 => self.replace_one()?,
            75..78 => self.attach_one()?,
            78..81 => self.detach_one()?,
            81..85 => self.add_a_vdev()?,
            85..88 => self.remove_a_vdev(false)?,
            88..91 => self.add_a_column()?,
            91..93 => self.even_out()?,
            93..95 => self.defragment()?,
            95 => self.give_up_moving()?,
            96 | 97 => self.begin_to_trim()?,
            _ => self.begin_a_scrub()?,
        };
        let Some((kind, what)) = operation else { return Ok("nothing to do with the devices".into()) };
        *self.done.entry(kind).or_default() += 1;
        Ok(format!("{kind}: {what}"))
    }

    /// Continues the jobs under way.
    pub(super) fn tend(&mut self) -> Operated {
        self.see_to_spares()?;
        let (steps, before) = (1 + self.below(STEPS), self.under_way());
        let mut scheduler = Scheduler::of_steps(STEP, &self.world.datasets);
        let mut done = 0;
        // Trimming runs beside everything else.
        while done < steps && {
            self.trim()?;
            self.expect("the upkeep", self.world.tend(&mut scheduler))?
        } {
            done += 1;
        }
        let after = self.under_way();
        for ended in before.iter().filter(|kind| !after.contains(kind)) {
            *self.done.entry(ended_as(ended)).or_default() += 1;
        }
        Ok((done > 0).then(|| ("upkeep", format!("{done} steps of {before:?}"))))
    }

    /// The jobs under way.
    pub(super) fn under_way(&self) -> Vec<&'static str> {
        let (datasets, pool) = (&self.world.datasets, &self.world.pool);
        let kinds = [
            ("resilver", self.world.engine().resilvering().is_some()),
            ("removal", datasets.removal().is_under_way()),
            ("rebalance", datasets.rebalance().is_under_way()),
            ("defragmentation", datasets.defragment().is_under_way()),
            ("expansion", pool.widening().is_some()),
            ("resize", datasets.resize().is_under_way()),
            ("spare in use", pool.spares().iter().any(|spare| spare.used_in.is_some())),
            ("cache in use", self.world.caches_in_use() > 0),
            ("rows behind the smallest device in use", self.is_anything_behind_the_smallest()),
        ];
        kinds.into_iter().filter(|(_, is)| *is).map(|(kind, _)| kind).collect()
    }

    /// Whether a row of a RAID-Z behind its smallest device is in use.
    fn is_anything_behind_the_smallest(&self) -> bool {
        let space = &self.world.engine().storage().space;
        let label = self.world.pool.label();
        let unequal = label.vdevs.iter().filter_map(|config| match &config.tree {
            VdevTree::RaidZ(raidz) if raidz.is_unequal() => Some((config.id, raidz)),
            _ => None,
        });
        let columns = |raidz: &RaidZConfig| raidz.zones.iter().map(|zone| zone.columns).max();
        let behind = |(id, raidz): (VdevId, &RaidZConfig)| -> Vec<Regions> {
            let narrow = raidz.zones.iter().skip(1).filter(|zone| Some(zone.columns) < columns(raidz));
            narrow.map(|zone| Regions::Range(id, zone.first_region..zone.first_region + zone.regions)).collect()
        };
        unequal.flat_map(behind).any(|regions| space.moving_plan(&regions, &Targets::Anywhere).bytes > 0)
    }

    /// The wanted members, each with its vdev.
    pub(super) fn members_where(&self, wanted: impl Fn(&Group, &Member) -> bool) -> Vec<(Arc<dyn Vdev>, Arc<Member>)> {
        let mut found = Vec::new();
        for (vdev, members) in self.world.groups() {
            let group = vdev.as_group().expect("it is one");
            let own = members.iter().filter(|member| wanted(group, member));
            found.extend(own.map(|member| (vdev.clone(), member.clone())));
        }
        found
    }

    fn take_one_offline(&mut self) -> Operated {
        let Some((_, member)) = self.pick(&self.members_where(spared)) else { return Ok(None) };
        // The redundancy that the choice relied on must hold until the device is out.
        self.operator.heal(false);
        let (name, is_temporary) = (member.leaf.name().to_owned(), self.one_in(2));
        self.expect("offline", self.world.pool.put_offline(&name, is_temporary))?;
        Ok(Some(("offline", format!("{name}, for good: {}", !is_temporary))))
    }

    /// Brings all offline devices online, or keeps for good a spare that replaces one.
    pub(super) fn bring_all_back(&mut self) -> Operated {
        let mut brought = self.have_a_spare_stay()?;
        for _ in 0..DEVICES {
            let Some(operation) = self.bring_one_back()? else { break };
            if let Some((kind, _)) = brought.replace(operation) {
                *self.done.entry(kind).or_default() += 1;
            }
        }
        Ok(brought)
    }

    fn bring_one_back(&mut self) -> Operated {
        let is_out =
            |_: &Group, member: &Member| member.state() == State::Out && member.leaf.health() != Health::Online;
        let Some((_, member)) = self.pick(&self.members_where(is_out)) else { return Ok(None) };
        let name = member.leaf.name().to_owned();
        let Some(device) = self.operator.device(&name) else { return Ok(None) };
        device.heal();
        let loses = self.one_in(2);
        if loses {
            device.lose_cache();
        }
        let found: Arc<dyn Device> = device;
        self.expect("online", self.world.pool.put_online(&name, &|_| Ok(found.clone())))?;
        Ok(Some(("online", format!("{name}, cache lost: {loses}"))))
    }

    /// The size of a device that joins the pool.
    pub(super) fn a_size(&mut self) -> u64 {
        if self.layout.is_unequal { SIZES[self.below(SIZES.len())] } else { DEVICE_SIZE }
    }

    /// The least size of a device that replaces this device or is attached beside it, in bytes.
    pub(super) fn least_in_place_of(&self, vdev: &Arc<dyn Vdev>, device: Guid) -> u64 {
        let label = self.world.pool.label();
        let config = label.vdevs.iter().find(|config| config.id == vdev.id()).expect("the label names each vdev");
        let needed = config.tree.needed_in_place_of(device, 1 << label.ashift, label.region_size);
        // During an expansion, rows extend as far as at its start.
        let is_narrow = vdev.as_raidz().is_some_and(|raidz| raidz.zones().is_narrow());
        let given = config.tree.leaves().find(|leaf| leaf.guid == device).map_or(0, |leaf| leaf.size);
        device_size(if is_narrow { needed.max(given) } else { needed })
    }

    /// A blank device to replace or attach beside `device`, if the life may have one more. Its size is the smallest
    /// allowed, or up to the largest of all.
    fn new_device_for(&mut self, vdev: &Arc<dyn Vdev>, device: Guid) -> Option<Arc<dyn Device>> {
        let least = self.least_in_place_of(vdev, device);
        let size = if self.one_in(2) { least } else { self.a_size().max(least) };
        Some(self.new_devices(&[size])?.remove(0))
    }

    /// A blank device of this size.
    pub(super) fn new_device(&mut self, size: u64) -> Arc<dyn Device> {
        let new = Arc::new(self.recorder.wrap(super::memory(self.devices.len(), size)));
        self.recorded.push(new.clone());
        let new = self.operator.take_in(super::plant::planted(new, self.plant, true));
        self.devices.push(new.clone());
        new
    }

    /// Blank devices of these sizes, if the life may have so many more. A device that fails while it joins is refused.
    fn new_devices(&mut self, sizes: &[u64]) -> Option<Vec<Arc<dyn Device>>> {
        self.operator.heal(false);
        let is_room = self.devices.len() + sizes.len() <= DEVICES;
        is_room.then(|| sizes.iter().map(|size| self.new_device(*size)).collect())
    }

    fn replace_one(&mut self) -> Operated {
        let vdevs = self.world.engine().storage().vdevs.all();
        let is_settled = |vdev: &&Arc<dyn Vdev>| {
            let members = vdev.as_group().map(Group::members).unwrap_or_default();
            !vdev.is_lost() && members.len() <= COLUMNS && members.iter().all(|member| member.replaces().is_none())
        };
        let mirrors = |vdev: &&Arc<dyn Vdev>| vdev.as_raidz().is_some() || vdev.leaves().len() < COPIES;
        let leaves: Vec<_> = vdevs.iter().filter(is_settled).filter(mirrors).flat_map(leaves_of).collect();
        let Some((vdev, old)) = self.pick(&leaves) else { return Ok(None) };
        let Some(new) = self.new_device_for(&vdev, old.guid()) else { return Ok(None) };
        let (by, size) = (new.name().to_owned(), new.size());
        self.expect("replace", self.world.pool.attach(old.name(), new, true))?;
        Ok(Some(("replace", format!("{} by {by} of {size} bytes", old.name()))))
    }

    fn attach_one(&mut self) -> Operated {
        let vdevs = self.world.engine().storage().vdevs.all();
        let may_grow =
            |vdev: &&Arc<dyn Vdev>| vdev.as_raidz().is_none() && !vdev.is_lost() && vdev.leaves().len() < COPIES - 1;
        let leaves: Vec<_> = vdevs.iter().filter(may_grow).flat_map(leaves_of).collect();
        let Some((vdev, beside)) = self.pick(&leaves) else { return Ok(None) };
        let Some(new) = self.new_device_for(&vdev, beside.guid()) else { return Ok(None) };
        let (name, size) = (new.name().to_owned(), new.size());
        self.expect("attach", self.world.pool.attach(beside.name(), new, false))?;
        Ok(Some(("attach", format!("{name} of {size} bytes beside {}", beside.name()))))
    }

    fn detach_one(&mut self) -> Operated {
        let spared = |group: &Group, member: &Member| {
            let members = group.members();
            let has_it_too =
                |other: &Arc<Member>| other.leaf.guid() != member.leaf.guid() && other.state() == State::Complete;
            group.needed() == 1
                && members.iter().all(|other| other.replaces().is_none() && other.column() == member.column())
                && members.iter().any(has_it_too)
        };
        let Some((_, member)) = self.pick(&self.members_where(spared)) else { return Ok(None) };
        self.operator.heal(false);
        self.expect("detach", self.world.pool.detach(member.leaf.name()))?;
        Ok(Some(("detach", member.leaf.name().to_owned())))
    }

    fn add_a_vdev(&mut self) -> Operated {
        let kind = [Kind::Disk, Kind::Mirror(2), Kind::RaidZ(1, 3), Kind::RaidZ(2, 4)][self.below(4)];
        let class = match (self.below(8), kind) {
            (0, _) => Some(VdevClass::Special),
            (1, Kind::Disk | Kind::Mirror(_)) => Some(VdevClass::Log),
            _ => None,
        };
        let sizes: Vec<u64> = (0..kind.devices()).map(|_| self.a_size()).collect();
        let Some(devices) = self.new_devices(&sizes) else { return Ok(None) };
        let added = ClassedVdev { vdev: kind.of(devices), class };
        let pool = self.world.pool.clone();
        self.expect("pool add", pool.begin_add(vec![added]).and_then(|addition| addition.finish()))?;
        Ok(Some(("add", format!("{kind} {class:?} of {sizes:?} bytes"))))
    }

    /// Whether no job is emptying vdevs or regions.
    pub(super) fn is_nothing_moving(&self) -> bool {
        let datasets = &self.world.datasets;
        !datasets.moving().is_under_way() && datasets.expansion().status().regions == 0
    }

    /// Removes a random removable vdev; if `packed_if_possible`, a vdev that has to be packed, if there is one.
    pub(super) fn remove_a_vdev(&mut self, packed_if_possible: bool) -> Operated {
        if !self.is_nothing_moving() {
            return Ok(None);
        }
        let pool = self.world.pool.clone();
        let vdevs = pool.engine().storage().vdevs.all();
        let plans = vdevs.iter().filter(|vdev| !vdev.is_lost()).map(|vdev| (vdev, pool.plan_removal(vdev.id())));
        // After a removal, the pool must still have the space that a life may use.
        let fitting = plans.filter_map(|(vdev, plan)| Some((vdev.clone(), plan.ok()?)).filter(|(_, plan)| plan.fits()));
        let mut fitting: Vec<_> = fitting.collect();
        if packed_if_possible && fitting.iter().any(|(_, plan)| !plan.fits_whole()) {
            fitting.retain(|(_, plan)| !plan.fits_whole());
        }
        let Some((vdev, plan)) = self.pick(&fitting) else { return Ok(None) };
        self.operator.heal(false);
        let name = vdev.as_group().map_or_else(|| vdev.leaves()[0].name().to_owned(), |group| group.name().to_owned());
        let begun = self.world.datasets.removal().start(vdev.id(), &name, plan.bytes, None);
        self.expect("remove", begun)?;
        let packs = if plan.fits_whole() { "" } else { ", packed" };
        Ok(Some((if plan.fits_whole() { "remove" } else { "remove packed" }, format!("{name}{packs}"))))
    }

    pub(super) fn add_a_column(&mut self) -> Operated {
        let may_grow = |vdev: &Arc<dyn Vdev>, members: &[Arc<Member>]| {
            let is_narrow = vdev.as_raidz().is_none_or(|raidz| raidz.zones().is_narrow());
            let is_whole =
                members.iter().all(|member| member.state() == State::Complete && member.replaces().is_none());
            let columns = members.iter().map(|member| member.column()).max().map_or(0, |last| last + 1);
            !is_narrow && is_whole && columns == members.len() && columns < COLUMNS
        };
        let groups = self.world.groups();
        let growing: Vec<Grouped> = groups.into_iter().filter(|(vdev, members)| may_grow(vdev, members)).collect();
        let Some((vdev, members)) = self.pick(&growing) else { return Ok(None) };
        let name = vdev.as_group().expect("it is one").name().to_owned();
        let least = members.iter().map(|member| self.least_in_place_of(&vdev, member.leaf.guid())).min();
        let size = self.a_size().max(least.unwrap_or(0));
        let Some(mut new) = self.new_devices(&[size]) else { return Ok(None) };
        self.expect("attach a column", self.world.pool.attach_column(&name, new.remove(0)))?;
        Ok(Some(("expand", format!("{name} by {size} bytes"))))
    }

    fn begin_a_scrub(&mut self) -> Operated {
        let status = self.expect("the scrub's state", self.world.datasets.scrub().status())?;
        if status.is_some_and(|status| status.state == ScrubState::Running) {
            return Ok(None);
        }
        self.expect("scrub", self.world.datasets.scrub().start())?;
        Ok(Some(("scrub", String::new())))
    }
}

/// Whether a member is in use, and the redundancy suffices without it.
pub(super) fn spared(group: &Group, member: &Member) -> bool {
    let is_other = |other: &&Arc<Member>| other.leaf.guid() != member.leaf.guid() && other.state() == State::Complete;
    let others: Vec<Guid> = group.members().iter().filter(is_other).map(|other| other.leaf.guid()).collect();
    member.state() != State::Out && group.are_enough(&others)
}

/// The devices of a vdev, each with the vdev.
fn leaves_of(vdev: &Arc<dyn Vdev>) -> Vec<(Arc<dyn Vdev>, Arc<Leaf>)> {
    vdev.leaves().into_iter().map(|leaf| (vdev.clone(), leaf)).collect()
}
