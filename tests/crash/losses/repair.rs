//! Everything is repaired after a strike, and power fails in the middle of that.
//!
//! What a repair writes is recorded on all devices. When it has come to its end and was judged, power fails at some write of it:
//! what was flushed then is there, what was not is there, or not, or in part. Whatever counts for nothing at that instant may be
//! struck in addition, above all devices that are being filled. Then the pool is opened again, must be what it was, and the
//! repair goes on from there to its end.
//!
//! | power fails while | import finds |
//! | --- | --- |
//! | the pool is opened without what is missing, and cleaned up | a state that it may be in, perhaps a later one that was away |
//! | devices come back | the state that was found before; devices that came back, or lack something still |
//! | devices are replaced | the same; new devices that are named by the labels, or by nobody |
//! | devices are filled, and leave | the same; devices that lack something still, or nothing any more |
//! | a scrub mends | the same; what is rotten is mended or not |
//!
//! A device that was struck is not relied upon before the repair is over, nor is a new one.

use std::{collections::BTreeSet, fmt, sync::Arc};

use pool::{
    device::{Device, Fate, MemoryDevice, Recorder, RecordingDevice},
    units::Guid,
    vdev::{Member, State},
};
use rand::{Rng, rngs::StdRng};

use super::{
    Losses, draw_unfinished, is_untold, rot_all,
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

/// Of so many repairs power fails in one.
const FAILING: u64 = 2;
/// Of so many strikes one scratches the labels of all devices.
const SCRATCHED: u64 = 2;
/// What may become of what was not flushed then: so many fates.
const FATES: u64 = 8;

/// A part of a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// The pool is opened without what is missing, and cleaned up.
    Opening,
    /// What was away is there again.
    Return,
    /// New devices take the places of those that are lost.
    Replacing,
    /// Devices are filled, those that were replaced leave, and what else was under way comes to its end.
    Filling,
    /// A scrub mends.
    Scrub,
}

/// All parts.
pub(super) const PARTS: [Part; 5] = [Part::Opening, Part::Return, Part::Replacing, Part::Filling, Part::Scrub];

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Part::Opening => "opening",
            Part::Return => "return",
            Part::Replacing => "replacing",
            Part::Filling => "filling",
            Part::Scrub => "scrub",
        })
    }
}

/// The devices of a pool that is being repaired, with every write recorded.
struct Site {
    recorder: Arc<Recorder>,
    plant: Option<Plant>,
    /// By the numbers of the images, and behind them those that are new. One that is lost is as if nobody had used it.
    devices: Vec<Arc<RecordingDevice>>,
    /// The parts of the repair, each with its place in the record where it has begun.
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

    /// A device that nobody has used.
    fn new_device(&mut self, size: u64) -> Arc<dyn Device> {
        let new = Arc::new(self.recorder.wrap(MemoryDevice::new(format!("new{}", self.devices.len()), size)));
        self.devices.push(new.clone());
        planted_in_repair(new, self.plant)
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.devices.iter().map(|device| planted_in_repair(device.clone(), self.plant)).collect()
    }

    /// What the devices hold when all is over.
    fn images(&self) -> Vec<Arc<MemoryDevice>> {
        let images = self.recorder.images_at(self.recorder.len(), &mut || Fate::Kept);
        images.into_iter().map(Arc::new).collect()
    }

    /// A power failure in any part of the repair that has written something, each as probable as the others.
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
    /// What was struck, now or before, and what is new: nobody is to rely on that before the end.
    weak: BTreeSet<usize>,
    /// Whether all that is there is right.
    is_right: bool,
    /// What must be found; none if any state may be that the power failure could have left.
    expected: Option<&'a Pool>,
    /// Each import of all rounds has a number of its own.
    turn: u64,
}

/// A repair that has come to its end.
struct Repaired {
    site: Site,
    found: Pool,
    /// How many spares stood in for what was lost.
    stood_in: u64,
}

impl Losses<'_> {
    /// Strikes, and has everything repaired; and the same once more from a power failure on in the middle of that.
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
        let mut tally = Tally { stood_in: repaired.stood_in, scratched, ..Tally::default() };
        if random.random_range(0..FAILING) == 0
            && let Some((part, cut)) = repaired.site.cut(random)
        {
            tally.add(self.fail_in(&first, &repaired, (part, cut), random)?);
        }
        Ok(tally)
    }

    /// Power fails in a repair, and it begins anew.
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
        if is_untold(&images, &struck) {
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
        let told = |problem: String| {
            let (at, all, fate) = (cut.at, repaired.site.recorder.len(), cut.fate);
            let again: Vec<String> = new.map(|(at, blow)| format!("{} {blow:?}", images[*at].name())).collect();
            format!(
                "power fails at {at} of {all} of the repair, {part}, fate {fate}, struck again {again:?}: {problem}"
            )
        };
        second.run(&images, random).map_err(told)?;
        let mut tally = Tally { unfinished_again: again, ..Tally::default() };
        tally.failures[part as usize] = 1;
        Ok(tally)
    }
}

impl Round<'_> {
    /// Strikes what is in these images, has all of it repaired, and judges that.
    fn run(&self, images: &[Arc<MemoryDevice>], random: &mut StdRng) -> Outcome<Repaired> {
        let losses = self.losses;
        rot_all(images, self.struck, random);
        let mut site = Site::of(images, self.struck, losses.plant);
        let (devices, erring) = there(&site.devices(), self.struck, random);
        let world = losses.open(devices, self.turn + 1)?;
        let found = self.what_is_found(&world)?;
        erring.iter().for_each(|device| device.heal());
        // What came back stale has missed what is written here.
        world.clean_up()?;
        site.begins(Part::Return);
        let world = self.come_back(world, &site, random)?;
        let is_for_spares = random.random_range(0..2) == 0;
        if is_for_spares {
            // They step in before anybody sees to it.
            site.begins(Part::Filling);
            world.settle()?;
        }
        let stood_in = stand_ins(&world);
        site.begins(Part::Replacing);
        let replaced = self.replace(&world, &mut site)?;
        let told = |problem| format!("{replaced}{problem}");
        site.begins(Part::Filling);
        world.settle()?;
        site.begins(Part::Scrub);
        judge_repaired(&world).map_err(told)?;
        same(&found, &observe::pool(&world, &world.list()?)?, "what was repaired is not what was read before")?;
        drop(world);
        let weak = self.weak.iter().copied().chain(images.len()..site.devices.len()).collect();
        self.lose_others(&site.images(), &weak, &found, random).map_err(told)?;
        Ok(Repaired { site, found, stood_in })
    }

    /// What can be read of the pool, which must be all of a state that it may be in.
    fn what_is_found(&self, world: &World) -> Outcome<Pool> {
        if self.is_right {
            world.check()?;
        }
        world.load_caches();
        let listed = world.list()?;
        // Without a check all of it has to be read.
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

    /// Those that were away for a while are there again: at once, or after the pool was closed.
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
        // Those that are lost have no labels.
        let world = self.losses.open(site.devices(), self.turn + 2)?;
        world.clean_up()?;
        Ok(world)
    }

    /// New devices take the places of those that are lost. Says which.
    fn replace(&self, world: &World, site: &mut Site) -> Outcome<String> {
        let mut told = String::new();
        let lost = self.struck.iter().filter(|(_, blow)| **blow == Blow::Lost);
        let lost: Vec<(String, u64)> =
            lost.map(|(at, _)| &site.devices[*at]).map(|device| (device.name().to_owned(), device.size())).collect();
        let members =
            || -> Vec<Arc<Member>> { world.groups().into_iter().flat_map(|(_, members)| members.to_vec()).collect() };
        for (name, _) in &lost {
            // It was to take the place of another one, which stays.
            if members().iter().any(|member| member.leaf.name() == name && member.replaces().is_some()) {
                world.pool.detach(name).map_err(|error| format!("{told}{name} cannot leave: {error}"))?;
                told += &format!("{name} has left; ");
            }
        }
        for (name, size) in &lost {
            let members = members();
            // What was under way has come to its end, and it has left.
            let Some(own) = members.iter().find(|member| member.leaf.name() == name) else { continue };
            if members.iter().any(|member| member.replaces() == Some(own.leaf.guid())) {
                told += &format!("{name} is being replaced; ");
            } else {
                let new = site.new_device(*size);
                let attached = world.pool.attach(name, new, true);
                attached.map_err(|error| format!("{told}{name} cannot be replaced: {error}"))?;
                told += &format!("{name} is replaced; ");
            }
        }
        Ok(told)
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

/// Fails unless all is well after a scrub.
fn judge_repaired(world: &World) -> Outcome<()> {
    // Rot may lie on whoever was asked last.
    world.scrub()?;
    match world.scrub()? {
        0 => {}
        again => return Err(format!("a second scrub mends {again} bytes")),
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

/// How many spares are complete, and stand in for a device that is not there.
fn stand_ins(world: &World) -> u64 {
    let label = world.pool.label();
    let stands_in = |members: &[Arc<Member>], member: &Member| {
        let is_out = |old: Guid| members.iter().any(|one| one.leaf.guid() == old && one.state() == State::Out);
        label.is_spare(member.leaf.guid()) && member.state() == State::Complete && member.replaces().is_some_and(is_out)
    };
    let count = |members: &[Arc<Member>]| members.iter().filter(|member| stands_in(members, member)).count() as u64;
    world.groups().iter().map(|(_, members)| count(members)).sum()
}
