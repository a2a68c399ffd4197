//! Repair of all losses after a strike, with a power failure in the middle.
//!
//! The writes of a repair are recorded on all devices. When the repair is finished and judged, power fails at one of
//! its writes: flushed writes are present; other writes are present, absent or partial. Members that count for nothing
//! at that instant may be struck in addition, above all resilvering devices. Then the pool is opened again, must be
//! unchanged, and the repair continues to its end.
//!
//! | power fails while | import finds |
//! | --- | --- |
//! | the pool is opened without missing devices, and cleaned up | an allowed state, perhaps a later one from a missing device |
//! | devices return | the state found before; returned devices, complete or not |
//! | devices are replaced | the same; new devices, in the labels or not |
//! | devices are resilvered, and old devices leave | the same; devices incomplete or complete |
//! | a scrub repairs | the same; rot repaired or not |
//!
//! Neither struck nor new devices are relied upon before the repair is over.

use std::{collections::BTreeSet, fmt, sync::Arc};

use pool::{
    device::{Device, Fate, MemoryDevice, Recorder, RecordingDevice},
    units::Guid,
    vdev::{Member, State},
};
use rand::{Rng, rngs::StdRng};

use super::{
    Losses, draw_unfinished, is_unrecorded, rot_all,
    strike::{Blow, Struck, Tally, scratch},
    there,
};
use crate::{
    judge::{Cut, copied, fits, same},
    model::Pool,
    observe,
    workload::plant::{Plant, planted_in_repair},
    world::{Outcome, World},
};

/// Power fails in one of so many repairs.
const FAILING: u64 = 2;
/// One of so many strikes damages labels on all devices.
const SCRATCHED: u64 = 2;
/// The number of different fates of unflushed writes.
const FATES: u64 = 8;

/// A part of a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// The pool is opened without the missing devices, and cleaned up.
    Opening,
    /// Devices that were away return.
    Return,
    /// New devices replace the lost devices.
    Replacing,
    /// Devices are resilvered, replaced devices leave, and other jobs finish.
    Resilver,
    /// A scrub repairs the rot.
    Scrub,
}

/// All parts, in order.
pub(super) const PARTS: [Part; 5] = [Part::Opening, Part::Return, Part::Replacing, Part::Resilver, Part::Scrub];

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Part::Opening => "opening",
            Part::Return => "return",
            Part::Replacing => "replacing",
            Part::Resilver => "resilver",
            Part::Scrub => "scrub",
        })
    }
}

/// The devices of a pool under repair, with every write recorded.
struct Site {
    recorder: Arc<Recorder>,
    plant: Option<Plant>,
    /// By the numbers of the images, with new devices behind them. A lost device is blank.
    devices: Vec<Arc<RecordingDevice>>,
    /// The parts of the repair, each with its start in the record.
    begun: Vec<(Part, usize)>,
}

impl Site {
    fn of(images: &[Arc<MemoryDevice>], struck: &Struck, plant: Option<Plant>) -> Site {
        let recorder = Recorder::new();
        let device = |(at, image): (usize, &Arc<MemoryDevice>)| match struck.get(&at) {
            Some(Blow::Lost) => MemoryDevice::new(image.name(), image.size()),
            _ => image.snapshot(),
        };
        let devices = images.iter().enumerate().map(|image| Arc::new(recorder.wrap(device(image)))).collect();
        Site { recorder, plant, devices, begun: vec![(Part::Opening, 0)] }
    }

    fn begins(&mut self, part: Part) {
        self.begun.push((part, self.recorder.len()));
    }

    /// A blank device.
    fn new_device(&mut self, size: u64) -> Arc<dyn Device> {
        let new = Arc::new(self.recorder.wrap(MemoryDevice::new(format!("new{}", self.devices.len()), size)));
        self.devices.push(new.clone());
        planted_in_repair(new, self.plant)
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.devices.iter().map(|device| planted_in_repair(device.clone(), self.plant)).collect()
    }

    /// The final content of the devices.
    fn images(&self) -> Vec<Arc<MemoryDevice>> {
        let images = self.recorder.images_at(self.recorder.len(), &mut || Fate::Kept);
        images.into_iter().map(Arc::new).collect()
    }

    /// A power failure in a random part of the repair that has written; all such parts are equally likely.
    fn cut(&self, random: &mut StdRng) -> Option<(Part, Cut)> {
        let ends = self.begun.iter().skip(1).map(|(_, at)| *at).chain([self.recorder.len()]);
        let spans = self.begun.iter().zip(ends).map(|((part, begin), end)| (*part, begin + 1..=end));
        let spans: Vec<_> = spans.filter(|(_, span)| !span.is_empty()).collect();
        let parts: Vec<Part> = spans.iter().map(|(part, _)| *part).collect::<BTreeSet<_>>().into_iter().collect();
        let part = *parts.get(random.random_range(0..parts.len().max(1)))?;
        let places: Vec<usize> = spans.into_iter().filter(|(own, _)| *own == part).flat_map(|(_, span)| span).collect();
        let at = places[random.random_range(0..places.len())];
        Some((part, Cut { at, fate: random.random_range(0..FATES) }))
    }
}

/// A strike, and the repair after it.
struct Round<'a> {
    losses: &'a Losses<'a>,
    struck: &'a Struck,
    /// Devices struck now or before, and new devices: before the end none is relied upon.
    weak: BTreeSet<usize>,
    /// Whether all present data is right.
    is_right: bool,
    /// The required state; `None` for any state that the power failure could have left.
    expected: Option<&'a Pool>,
    /// A number for the imports, different in all rounds.
    turn: u64,
}

/// A finished repair.
struct Repaired {
    site: Site,
    found: Pool,
    /// How many spares replaced lost devices.
    in_use: u64,
}

impl Losses<'_> {
    /// Strikes and repairs; then does so again from a power failure in the middle of the repair.
    pub(super) fn bereft(&self, struck: &Struck, random: &mut StdRng) -> Outcome<Tally> {
        let first = Round {
            losses: self,
            struck,
            weak: struck.keys().copied().collect(),
            is_right: struck.values().all(|blow| blow.leaves_right()),
            expected: None,
            turn: 10,
        };
        let images = copied(self.images);
        let mut scratched = 0;
        if random.random_range(0..SCRATCHED) == 0 {
            scratched = images.iter().filter(|image| scratch(image, random)).count() as u64;
        }
        let repaired = first.run(&images, random)?;
        let mut tally = Tally { in_use: repaired.in_use, scratched, ..Tally::default() };
        if random.random_range(0..FAILING) == 0
            && let Some((part, cut)) = repaired.site.cut(random)
        {
            tally.add(self.fail_in(&first, &repaired, (part, cut), random)?);
        }
        Ok(tally)
    }

    /// Power fails in a repair, and the repair starts again.
    fn fail_in(
        &self,
        first: &Round<'_>,
        repaired: &Repaired,
        (part, cut): (Part, Cut),
        random: &mut StdRng,
    ) -> Outcome<Tally> {
        let (images, _) = cut.images(&repaired.site.recorder);
        let lost = first.struck.iter().filter(|(_, blow)| **blow == Blow::Lost);
        let lost: Struck = lost.map(|(at, blow)| (*at, *blow)).collect();
        let mut struck = lost.clone();
        let mut again = draw_unfinished(&images, &mut struck, random);
        if is_unrecorded(&images, &struck) {
            (struck, again) = (lost.clone(), 0);
        }
        let new = struck.iter().filter(|(at, _)| !lost.contains_key(at));
        let is_new_right = new.clone().all(|(_, blow)| blow.leaves_right());
        let is_rotten = first.struck.values().any(|blow| *blow == Blow::Rotten);
        let weak = first.weak.iter().copied().chain(struck.keys().copied()).chain(self.images.len()..images.len());
        let second = Round {
            losses: self,
            struck: &struck,
            weak: weak.collect(),
            is_right: is_new_right && !is_rotten,
            expected: Some(&repaired.found).filter(|_| part != Part::Opening),
            turn: 20,
        };
        let context = |problem: String| {
            let (at, all, fate) = (cut.at, repaired.site.recorder.len(), cut.fate);
            let again: Vec<String> = new.map(|(at, blow)| format!("{} {blow:?}", images[*at].name())).collect();
            format!(
                "power fails at {at} of {all} of the repair, {part}, fate {fate}, struck again {again:?}: {problem}"
            )
        };
        second.run(&images, random).map_err(context)?;
        let mut tally = Tally { unfinished_again: again, ..Tally::default() };
        tally.failures[part as usize] = 1;
        Ok(tally)
    }
}

impl Round<'_> {
    /// Strikes the devices of these images, repairs all, and judges the result.
    fn run(&self, images: &[Arc<MemoryDevice>], random: &mut StdRng) -> Outcome<Repaired> {
        let losses = self.losses;
        rot_all(images, self.struck, random);
        let mut site = Site::of(images, self.struck, losses.plant);
        let (devices, erring) = there(&site.devices(), self.struck, random);
        let world = losses.open(devices, self.turn + 1)?;
        let found = self.what_is_found(&world)?;
        erring.iter().for_each(|device| device.heal());
        // A stale device lacks the writes made here.
        world.clean_up()?;
        site.begins(Part::Return);
        let world = self.come_back(world, &site, random)?;
        let is_for_spares = random.random_range(0..2) == 0;
        if is_for_spares {
            // Spares are put in before the operator acts.
            site.begins(Part::Resilver);
            world.settle()?;
        }
        let in_use = spares_in_use(&world);
        site.begins(Part::Replacing);
        let replaced = self.replace(&world, &mut site)?;
        let context = |problem| format!("{replaced}{problem}");
        site.begins(Part::Resilver);
        world.settle()?;
        site.begins(Part::Scrub);
        judge_repaired(&world).map_err(context)?;
        same(&found, &observe::pool(&world, &world.list()?)?, "what was repaired is not what was read before")?;
        drop(world);
        let weak = self.weak.iter().copied().chain(images.len()..site.devices.len()).collect();
        self.lose_others(&site.images(), &weak, &found, random).map_err(context)?;
        Ok(Repaired { site, found, in_use })
    }

    /// Reads the whole pool, which must be in an allowed state.
    fn what_is_found(&self, world: &World) -> Outcome<Pool> {
        if self.is_right {
            world.check()?;
        }
        world.load_caches();
        let listed = world.list()?;
        // Without a check everything has to be read.
        let found = match self.is_right {
            true => observe::pool_knowing(world, &listed, self.losses.known)?,
            false => observe::pool(world, &listed)?,
        };
        match self.expected {
            Some(expected) => same(expected, &found, "the pool is not what it was")?,
            None => {
                let Losses { history, cut, .. } = *self.losses;
                let (promised, begun) = history.span(cut);
                fits(history, cut, promised..=begun, &found)?;
            }
        }
        Ok(found)
    }

    /// Devices that were away return: at once, or after the pool was closed.
    fn come_back(&self, world: World, site: &Site, random: &mut StdRng) -> Outcome<World> {
        let stale = |at: &usize| self.struck.get(at) == Some(&Blow::Stale);
        let back: Vec<&Arc<RecordingDevice>> =
            (0..site.devices.len()).filter(stale).map(|at| &site.devices[at]).collect();
        if back.is_empty() {
            return Ok(world);
        }
        if random.random_range(0..2) == 0 {
            // A spare that was away is found by the next import.
            let spares = world.pool.spares();
            let is_idle = |name: &str| spares.iter().any(|spare| spare.used_in.is_none() && spare.leaf.name() == name);
            for device in back.into_iter().filter(|device| !is_idle(device.name())) {
                let found = planted_in_repair(device.clone(), site.plant);
                let online = world.pool.put_online(device.name(), &|_| Ok(found.clone()));
                online.map_err(|error| format!("{} does not come back: {error}", device.name()))?;
            }
            return Ok(world);
        }
        drop(world);
        // Lost devices have no labels.
        let world = self.losses.open(site.devices(), self.turn + 2)?;
        world.clean_up()?;
        Ok(world)
    }

    /// Replaces the lost devices by new devices. Returns a description.
    fn replace(&self, world: &World, site: &mut Site) -> Outcome<String> {
        let mut context = String::new();
        let lost = self.struck.iter().filter(|(_, blow)| **blow == Blow::Lost);
        let lost: Vec<(String, u64)> =
            lost.map(|(at, _)| &site.devices[*at]).map(|device| (device.name().to_owned(), device.size())).collect();
        let members =
            || -> Vec<Arc<Member>> { world.groups().into_iter().flat_map(|(_, members)| members.to_vec()).collect() };
        for (name, _) in &lost {
            // It was replacing another device, which stays.
            if members().iter().any(|member| member.leaf.name() == name && member.replaces().is_some()) {
                world.pool.detach(name).map_err(|error| format!("{context}{name} cannot leave: {error}"))?;
                context += &format!("{name} has left; ");
            }
        }
        for (name, size) in &lost {
            let members = members();
            // The replacement has finished, and the device has left.
            let Some(own) = members.iter().find(|member| member.leaf.name() == name) else { continue };
            if members.iter().any(|member| member.replaces() == Some(own.leaf.guid())) {
                context += &format!("{name} is being replaced; ");
            } else {
                let new = site.new_device(*size);
                let attached = world.pool.attach(name, new, true);
                attached.map_err(|error| format!("{context}{name} cannot be replaced: {error}"))?;
                context += &format!("{name} is replaced; ");
            }
        }
        Ok(context)
    }

    /// After the repair the pool is the same without others of its devices.
    fn lose_others(
        &self,
        images: &[Arc<MemoryDevice>],
        weak: &BTreeSet<usize>,
        found: &Pool,
        random: &mut StdRng,
    ) -> Outcome<()> {
        let losses = self.losses;
        let struck = losses.draw(images, &[Blow::Lost], weak, random);
        let there = (0..images.len()).filter(|at| !struck.contains_key(at));
        let devices = there.map(|at| copied(&images[at..=at]).remove(0) as Arc<dyn Device>).collect();
        let alone = |problem: String| format!("then without {:?}: {problem}", struck.keys());
        let world = losses.open(devices, self.turn + 4).map_err(alone)?;
        world.check().map_err(alone)?;
        let seen = observe::pool_knowing(&world, &world.list()?, losses.known).map_err(alone)?;
        same(found, &seen, &alone("the pool is not the same".into()))
    }
}

/// Fails unless the pool is healthy after a scrub.
fn judge_repaired(world: &World) -> Outcome<()> {
    // Rot may lie on members that are read last.
    world.scrub()?;
    match world.scrub()? {
        0 => {}
        again => return Err(format!("a second scrub repairs {again} bytes")),
    }
    match world.datasets.damage() {
        Ok(damage) if damage.is_empty() => {}
        other => return Err(format!("nothing is lost, and yet there is damage: {other:?}")),
    }
    world.settle()?;
    if let lacking = world.incomplete()
        && lacking.iter().any(|lacking| !lacking.contains("is Out"))
    {
        return Err(format!("after everything was seen to, {lacking:?}"));
    }
    world.check()
}

/// How many spares are complete and replace an absent device.
fn spares_in_use(world: &World) -> u64 {
    let label = world.pool.label();
    let is_spare_in_use = |members: &[Arc<Member>], member: &Member| {
        let is_out = |old: Guid| members.iter().any(|one| one.leaf.guid() == old && one.state() == State::Out);
        label.is_spare(member.leaf.guid()) && member.state() == State::Complete && member.replaces().is_some_and(is_out)
    };
    let count =
        |members: &[Arc<Member>]| members.iter().filter(|member| is_spare_in_use(members, member)).count() as u64;
    world.groups().iter().map(|(_, members)| count(members)).sum()
}
