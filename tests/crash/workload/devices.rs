//! What administrators do with the devices of a pool of many: they put them out of use and take them back, replace them,
//! attach and detach them, add vdevs and remove them, give a RAID-Z a device more, even out what is full, scrub. What takes
//! long is done in steps between other steps, so power fails at every instant of it.
//!
//! Nothing of it can be seen in any file, and nothing is promised.

use std::{collections::BTreeMap, sync::Arc};

use dataset::catalogue::ScrubState;
use pool::{
    admin::ClassedVdev,
    device::{Device, MemoryDevice},
    format::label::classes::VdevClass,
    units::Guid,
    vdev::{Group, Health, Member, State, Vdev},
};

use super::Life;
use crate::{
    layout::Kind,
    world::{DEVICE_SIZE, Outcome},
};

/// How many devices a life may see.
const DEVICES: usize = 20;
/// The most columns that a RAID-Z gets, and the most devices of a mirror.
const COLUMNS: usize = 7;
const COPIES: usize = 4;
/// The bytes that are copied or examined in a step, and how many steps are done at a time.
const STEP: u64 = 1 << 17;
const STEPS: usize = 30;

/// How often what was done with devices.
pub(crate) type Done = BTreeMap<&'static str, u64>;

/// What an administrator did with devices, if there was anything to do: the kind, and the words.
type Told = Outcome<Option<(&'static str, String)>>;

impl Life {
    /// Does something with the devices, and keeps count of it.
    pub(super) fn see_to_the_devices(&mut self) -> Outcome<String> {
        let told = match self.below(100) {
            0..46 => self.tend()?,
            46..56 => self.put_one_out()?,
            56..68 => self.bring_one_back()?,
            68..75 => self.replace_one()?,
            75..78 => self.attach_one()?,
            78..81 => self.detach_one()?,
            81..85 => self.add_a_vdev()?,
            85..89 => self.remove_a_vdev()?,
            89..93 => self.add_a_column()?,
            93..96 => self.even_out()?,
            _ => self.begin_a_scrub()?,
        };
        let Some((kind, what)) = told else { return Ok("nothing is to be done with the devices".into()) };
        *self.done.entry(kind).or_default() += 1;
        Ok(format!("{kind}: {what}"))
    }

    /// Goes on with what is under way.
    fn tend(&mut self) -> Told {
        let (steps, before) = (1 + self.below(STEPS), self.under_way());
        let mut done = 0;
        while done < steps && self.expect("the upkeep", self.world.tend(STEP))? {
            done += 1;
        }
        let after = self.under_way();
        for ended in before.iter().filter(|kind| !after.contains(kind)) {
            *self.done.entry(ended).or_default() += 1;
        }
        Ok((done > 0).then(|| ("upkeep", format!("{done} steps of {before:?}"))))
    }

    /// What takes long and has not come to its end, by what is counted at its end.
    fn under_way(&self) -> Vec<&'static str> {
        let (datasets, pool) = (&self.world.datasets, &self.world.pool);
        let kinds = [
            ("resilvered", self.world.engine().filling().is_some()),
            ("removed", datasets.is_removing()),
            ("rebalanced", datasets.is_rebalancing()),
            ("widened", pool.widening().is_some()),
        ];
        kinds.into_iter().filter(|(_, is)| *is).map(|(kind, _)| kind).collect()
    }

    /// The members that are wanted, each with its vdev.
    fn members_where(&self, wanted: impl Fn(&Group, &Member) -> bool) -> Vec<(Arc<dyn Vdev>, Arc<Member>)> {
        let mut found = Vec::new();
        for (vdev, members) in self.world.groups() {
            let group = vdev.as_group().expect("it is one");
            let own = members.iter().filter(|member| wanted(group, member));
            found.extend(own.map(|member| (vdev.clone(), member.clone())));
        }
        found
    }

    fn put_one_out(&mut self) -> Told {
        let spared = |group: &Group, member: &Member| {
            let is_other =
                |other: &&Arc<Member>| other.leaf.guid() != member.leaf.guid() && other.state() == State::Complete;
            let others: Vec<Guid> = group.members().iter().filter(is_other).map(|other| other.leaf.guid()).collect();
            member.state() != State::Out && group.are_enough(&others)
        };
        let Some((_, member)) = self.pick(&self.members_where(spared)) else { return Ok(None) };
        // Whether the others can do without it is not to change before they have to.
        self.operator.heal(false);
        let (name, is_temporary) = (member.leaf.name().to_owned(), self.one_in(2));
        self.expect("offline", self.world.pool.put_offline(&name, is_temporary))?;
        Ok(Some(("offline", format!("{name}, for good: {}", !is_temporary))))
    }

    fn bring_one_back(&mut self) -> Told {
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

    /// A device that nobody has used.
    fn new_device(&mut self) -> Arc<dyn Device> {
        let new = MemoryDevice::new(format!("disk{}", self.devices.len()), DEVICE_SIZE);
        let new = self.operator.take_in(super::plant::planted(self.recorder.wrap(new), self.plant, true));
        self.devices.push(new.clone());
        new
    }

    /// So many devices that nobody has used, if a life may see so many more. A device that fails while it joins is refused.
    fn new_devices(&mut self, count: usize) -> Option<Vec<Arc<dyn Device>>> {
        self.operator.heal(false);
        (self.devices.len() + count <= DEVICES).then(|| (0..count).map(|_| self.new_device()).collect())
    }

    fn replace_one(&mut self) -> Told {
        let vdevs = self.world.engine().storage().vdevs.all();
        let is_settled = |vdev: &&Arc<dyn Vdev>| {
            let members = vdev.as_group().map(Group::members).unwrap_or_default();
            !vdev.is_lost() && members.len() <= COLUMNS && members.iter().all(|member| member.replaces().is_none())
        };
        let mirrors = |vdev: &&Arc<dyn Vdev>| vdev.as_raidz().is_some() || vdev.leaves().len() < COPIES;
        let leaves: Vec<_> = vdevs.iter().filter(is_settled).filter(mirrors).flat_map(|vdev| vdev.leaves()).collect();
        let Some(old) = self.pick(&leaves) else { return Ok(None) };
        let Some(mut new) = self.new_devices(1) else { return Ok(None) };
        let by = new[0].name().to_owned();
        self.expect("replace", self.world.pool.attach(old.name(), new.remove(0), true))?;
        Ok(Some(("replace", format!("{} by {by}", old.name()))))
    }

    fn attach_one(&mut self) -> Told {
        let vdevs = self.world.engine().storage().vdevs.all();
        let may_grow =
            |vdev: &&Arc<dyn Vdev>| vdev.as_raidz().is_none() && !vdev.is_lost() && vdev.leaves().len() < COPIES - 1;
        let leaves: Vec<_> = vdevs.iter().filter(may_grow).flat_map(|vdev| vdev.leaves()).collect();
        let Some(beside) = self.pick(&leaves) else { return Ok(None) };
        let Some(mut new) = self.new_devices(1) else { return Ok(None) };
        let name = new[0].name().to_owned();
        self.expect("attach", self.world.pool.attach(beside.name(), new.remove(0), false))?;
        Ok(Some(("attach", format!("{name} beside {}", beside.name()))))
    }

    fn detach_one(&mut self) -> Told {
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

    fn add_a_vdev(&mut self) -> Told {
        let kind = [Kind::Disk, Kind::Mirror(2), Kind::RaidZ(1, 3), Kind::RaidZ(2, 4)][self.below(4)];
        let class = match (self.below(8), kind) {
            (0, _) => Some(VdevClass::Special),
            (1, Kind::Disk | Kind::Mirror(_)) => Some(VdevClass::Log),
            _ => None,
        };
        let Some(devices) = self.new_devices(kind.devices()) else { return Ok(None) };
        let added = ClassedVdev { vdev: kind.of(devices), class };
        let pool = self.world.pool.clone();
        self.expect("pool add", pool.begin_add(vec![added]).and_then(|addition| addition.finish()))?;
        Ok(Some(("add", format!("{kind} {class:?}"))))
    }

    /// Whether nothing empties vdevs or regions.
    fn is_nothing_moving(&self) -> bool {
        let datasets = &self.world.datasets;
        !datasets.is_removing() && !datasets.is_rebalancing() && datasets.expansion_status().regions == 0
    }

    fn remove_a_vdev(&mut self) -> Told {
        if !self.is_nothing_moving() {
            return Ok(None);
        }
        let pool = self.world.pool.clone();
        let vdevs = pool.engine().storage().vdevs.all();
        let plans = vdevs.iter().filter(|vdev| !vdev.is_lost()).map(|vdev| (vdev, pool.plan_removal(vdev.id())));
        // As large a share of the pool has to be left as a life may take.
        let fitting = plans.filter_map(|(vdev, plan)| Some((vdev.clone(), plan.ok()?)).filter(|(_, plan)| plan.fits()));
        let Some((vdev, plan)) = self.pick(&fitting.collect::<Vec<_>>()) else { return Ok(None) };
        self.operator.heal(false);
        let name = vdev.as_group().map_or_else(|| vdev.leaves()[0].name().to_owned(), |group| group.name().to_owned());
        let begun = self.world.datasets.start_removal(vdev.id(), &name, plan.bytes, None);
        self.expect("remove", begun)?;
        let packs = if plan.fits_whole() { "" } else { ", packed" };
        Ok(Some((if plan.fits_whole() { "remove" } else { "remove packed" }, format!("{name}{packs}"))))
    }

    fn add_a_column(&mut self) -> Told {
        let may_grow = |vdev: &Arc<dyn Vdev>, members: &[Arc<Member>]| {
            let is_narrow = vdev.as_raidz().is_none_or(|raidz| raidz.zones().is_narrow());
            let is_whole =
                members.iter().all(|member| member.state() == State::Complete && member.replaces().is_none());
            let columns = members.iter().map(|member| member.column()).max().map_or(0, |last| last + 1);
            !is_narrow && is_whole && columns == members.len() && columns < COLUMNS
        };
        let groups = self.world.groups();
        let names: Vec<String> = groups
            .iter()
            .filter(|(vdev, members)| may_grow(vdev, members))
            .filter_map(|(vdev, _)| Some(vdev.as_group()?.name().to_owned()))
            .collect();
        let Some(name) = self.pick(&names) else { return Ok(None) };
        let Some(mut new) = self.new_devices(1) else { return Ok(None) };
        self.expect("attach a column", self.world.pool.attach_column(&name, new.remove(0)))?;
        Ok(Some(("expand", name)))
    }

    fn even_out(&mut self) -> Told {
        if !self.is_nothing_moving() {
            return Ok(None);
        }
        self.operator.heal(false);
        let begun = self.expect("rebalance", self.world.datasets.start_rebalance(None))?;
        Ok(begun.is_none().then(|| ("rebalance", String::new())))
    }

    fn begin_a_scrub(&mut self) -> Told {
        let status = self.expect("the scrub's state", self.world.datasets.scrub_status())?;
        if status.is_some_and(|status| status.state == ScrubState::Running) {
            return Ok(None);
        }
        self.expect("scrub", self.world.datasets.start_scrub())?;
        Ok(Some(("scrub", String::new())))
    }
}
