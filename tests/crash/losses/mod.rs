//! Pools of many devices that lose some of them in a power failure, or have them rotten, refusing, or old.
//!
//! The newest label says which devices were *whole* when power failed: they lacked nothing, and were in use, and nobody who is
//! whole was to take their place. Of each vdev as many of these may be struck as the others can do without. Then the pool must
//!
//! 1. open by itself, at a state that it may be in,
//! 2. be read, every byte of it; and pass every check, if the struck ones are only missing,
//! 3. become whole: those that are missing are replaced or come back as they were, what is rotten is scrubbed away, and what
//!    was under way is brought to its end; after that a scrub finds nothing more to mend,
//! 4. be the same without others of its devices.
//!
//! Beside these any of the spares that stand by and of the cache devices may be struck: nothing is lost with them. Before what is
//! missing is replaced, spares step in for it if the operator is in no hurry.
//!
//! If more is struck, it opens or is refused with words, and what is read of it is what was once written there, or an error.
//!
//! And if as many are lost as may be, and of a vdev all the others are rotten where one block lies, then that block is lost and
//! nothing else: whatever has it gives an error, and all the rest is read.

mod block;
mod strike;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use dataset::{
    fs::{FileSystem, Ino, ROOT},
    name::Name,
};
use pool::{
    device::{Device, FaultDevice, MemoryDevice},
    env::SeededEnv,
    units::Guid,
    vdev::{Member, State, labels},
};
use rand::{Rng, SeedableRng, rngs::StdRng};

pub(crate) use self::strike::Tally;
use self::strike::{BLOWS, Blow, Struck, beside, holders, refuse, rot};
use crate::{
    judge::{copied, fits, same},
    model::{Node, Pool},
    observe::{self, Known},
    workload::History,
    world::{Outcome, World},
};

/// A power failure, as far as losses are judged.
pub(crate) struct Losses<'a> {
    pub(crate) history: &'a History,
    pub(crate) cut: usize,
    pub(crate) images: &'a [Arc<MemoryDevice>],
    pub(crate) known: &'a Known,
    /// From which everything follows.
    pub(crate) seed: u64,
}

impl Losses<'_> {
    /// As many devices are struck as may be.
    pub(crate) fn judge(&self) -> Outcome<Tally> {
        let mut random = StdRng::seed_from_u64(self.seed);
        let mut struck = self.draw(self.images, &BLOWS, &BTreeSet::new(), &mut random);
        self.draw_beside(&mut struck, &mut random);
        let mut tally = Tally::default();
        if struck.is_empty() || self.is_untold(&struck) {
            return Ok(tally);
        }
        tally.bereft = 1;
        for blow in struck.values() {
            tally.blows[*blow as usize] += 1;
        }
        tally.beside = beside(self.images).iter().filter(|at| struck.contains_key(at)).count() as u64;
        let bereft = self.bereft(&struck, &mut random).map_err(|problem| format!("struck {struck:?}: {problem}"))?;
        Ok(Tally { stood_in: bereft, ..tally })
    }

    /// One more is struck than may be.
    pub(crate) fn judge_more(&self) -> Outcome<Tally> {
        let mut random = StdRng::seed_from_u64(self.seed ^ 1);
        let mut struck = self.draw(self.images, &BLOWS, &BTreeSet::new(), &mut random);
        let more: Vec<usize> = holders(self.images, |_| true)
            .iter()
            .flat_map(|vdev| vdev.whole.iter().map(|(image, _)| *image))
            .filter(|image| !struck.contains_key(image))
            .collect();
        if !more.is_empty() {
            let blow = BLOWS[random.random_range(0..BLOWS.len())];
            struck.insert(more[random.random_range(0..more.len())], blow);
        }
        let told = |problem| format!("struck {struck:?}, one too many: {problem}");
        let images = copied(self.images);
        let (devices, _) = self.strike(&images, &struck, &mut random);
        let Ok(world) = self.open(devices, 3) else { return Ok(Tally { refused: 1, ..Tally::default() }) };
        self.read_what_there_is(&world).map_err(told)?;
        Ok(Tally { opened: 1, ..Tally::default() })
    }

    /// Chooses devices to strike, of each vdev as many as it can do without or fewer, and those that are to be `relied` on last.
    fn draw(
        &self,
        images: &[Arc<MemoryDevice>],
        blows: &[Blow],
        relied: &BTreeSet<usize>,
        random: &mut StdRng,
    ) -> Struck {
        let mut struck = Struck::new();
        for vdev in holders(images, |_| true) {
            // As many as may be, mostly.
            let most = if random.random_range(0..3) == 0 { random.random_range(0..3) } else { usize::MAX };
            let drawn = vdev.whole.iter().map(|(image, _)| (relied.contains(image), random.random::<u32>(), *image));
            let mut drawn: Vec<(bool, u32, usize)> = drawn.collect();
            drawn.sort_unstable();
            for (_, _, image) in drawn.into_iter().take(most) {
                struck.insert(image, blows[random.random_range(0..blows.len())]);
                if !vdev.suffice_without(&struck) {
                    struck.remove(&image);
                }
            }
        }
        struck
    }

    /// Devices beside the vdevs are struck: any of them, for nothing is lost with them.
    fn draw_beside(&self, struck: &mut Struck, random: &mut StdRng) {
        for image in beside(self.images) {
            if random.random_range(0..2) == 0 {
                struck.insert(image, BLOWS[random.random_range(0..BLOWS.len())]);
            }
        }
    }

    /// Whether the labels that are left do not say yet that their devices are enough, or of a vdev that was just being added:
    /// power has failed while labels were written. Then the pool is refused, or is without that vdev, and nothing is lost.
    fn is_untold(&self, struck: &Struck) -> bool {
        let is_there = |at: usize| struck.get(&at).is_none_or(|blow| !blow.is_away());
        let left = holders(self.images, is_there);
        left.len() != holders(self.images, |_| true).len() || !left.iter().all(|vdev| vdev.suffice_without(struck))
    }

    fn open(&self, devices: Vec<Arc<dyn Device>>, turn: u64) -> Outcome<World> {
        let labelled = |device: &Arc<dyn Device>| matches!(labels::read_label(&**device), Ok(Some(_)));
        let devices = devices.into_iter().filter(labelled).collect();
        // Each import draws an epoch of its own, as in life.
        let env = Arc::new(SeededEnv::new(self.seed.wrapping_add(turn)));
        World::open(devices, env).map_err(|error| format!("the pool does not open: {error}"))
    }

    /// The devices that are there after these blows, and those that err.
    fn strike(
        &self,
        images: &[Arc<MemoryDevice>],
        struck: &Struck,
        random: &mut StdRng,
    ) -> (Vec<Arc<dyn Device>>, Vec<Arc<FaultDevice>>) {
        let (mut devices, mut erring): (Vec<Arc<dyn Device>>, Vec<Arc<FaultDevice>>) = (Vec::new(), Vec::new());
        for (at, image) in images.iter().enumerate() {
            match struck.get(&at) {
                Some(Blow::Lost | Blow::Stale) => {}
                Some(Blow::Rotten) => {
                    rot(image, random);
                    devices.push(image.clone());
                }
                Some(Blow::Erring) => {
                    let device = Arc::new(FaultDevice::new(image.clone()));
                    refuse(&device, random);
                    erring.push(device.clone());
                    devices.push(device);
                }
                None => devices.push(image.clone()),
            }
        }
        (devices, erring)
    }

    /// Strikes, and has everything repaired. Returns how many spares stood in for what was lost.
    fn bereft(&self, struck: &Struck, random: &mut StdRng) -> Outcome<u64> {
        let mut images = copied(self.images);
        let (devices, erring) = self.strike(&images, struck, random);
        let world = self.open(devices, 1)?;
        let is_only_away = struck.values().all(|blow| blow.is_away());
        if is_only_away {
            world.check()?;
        }
        world.load_caches();
        let listed = world.list()?;
        // Without a check all of it has to be read.
        let found = match is_only_away {
            true => observe::pool_knowing(&world, &listed, self.known)?,
            false => observe::pool(&world, &listed)?,
        };
        let (promised, begun) = self.history.span(self.cut);
        fits(self.history, self.cut, promised..=begun, &found)?;
        erring.iter().for_each(|device| device.heal());
        // What came back stale has missed what is written here.
        world.clean_up()?;
        let world = self.come_back(world, &images, struck, random)?;
        let mut relied: BTreeSet<usize> = struck.keys().copied().collect();
        let is_for_spares = random.random_range(0..2) == 0;
        if is_for_spares {
            // They step in before anybody sees to it.
            world.settle()?;
        }
        let stood_in = stand_ins(&world);
        let replaced = self.replace(&world, &mut images, struck)?;
        relied.extend(self.images.len()..images.len());
        world.settle()?;
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
        world.check()?;
        same(&found, &observe::pool(&world, &world.list()?)?, "what was repaired is not what was read before")?;
        drop(world);
        self.lose_others(&images, &relied, &found, random).map_err(|problem| format!("{replaced}{problem}"))?;
        Ok(stood_in)
    }

    /// Those that were away for a while are there again: at once, or after the pool was closed.
    fn come_back(
        &self,
        world: World,
        images: &[Arc<MemoryDevice>],
        struck: &Struck,
        random: &mut StdRng,
    ) -> Outcome<World> {
        let stale = |at: &usize| struck.get(at) == Some(&Blow::Stale);
        let back: Vec<&Arc<MemoryDevice>> = (0..images.len()).filter(stale).map(|at| &images[at]).collect();
        if back.is_empty() {
            return Ok(world);
        }
        if random.random_range(0..2) == 0 {
            // A spare that was away is found by the next import.
            let spares = world.pool.spares();
            let is_idle = |name: &str| spares.iter().any(|spare| spare.used_in.is_none() && spare.leaf.name() == name);
            for image in back.into_iter().filter(|image| !is_idle(image.name())) {
                let found: Arc<dyn Device> = image.clone();
                let online = world.pool.put_online(image.name(), &|_| Ok(found.clone()));
                online.map_err(|error| format!("{} does not come back: {error}", image.name()))?;
            }
            return Ok(world);
        }
        let gone = |at: &usize| struck.get(at) != Some(&Blow::Lost);
        drop(world);
        let devices = (0..images.len()).filter(gone).map(|at| images[at].clone() as Arc<dyn Device>).collect();
        let world = self.open(devices, 2)?;
        world.clean_up()?;
        Ok(world)
    }

    /// New devices take the places of those that are lost. Says which.
    fn replace(&self, world: &World, images: &mut Vec<Arc<MemoryDevice>>, struck: &Struck) -> Outcome<String> {
        let mut told = String::new();
        for at in struck.iter().filter(|(_, blow)| **blow == Blow::Lost).map(|(at, _)| *at) {
            let (lost, size) = (images[at].name().to_owned(), images[at].size());
            let new = Arc::new(MemoryDevice::new(format!("new{at}"), size));
            images[at] = Arc::new(MemoryDevice::new(lost.clone(), size));
            images.push(new.clone());
            let members = world.groups().into_iter().flat_map(|(_, members)| members.to_vec());
            let members: Vec<Arc<Member>> = members.collect();
            let own = members.iter().find(|member| member.leaf.name() == lost);
            // What was under way has come to its end, and it has left.
            let Some(own) = own else { continue };
            if members.iter().any(|member| member.replaces() == Some(own.leaf.guid())) {
                told += &format!("{lost} is being replaced; ");
            } else if own.replaces().is_some() {
                // It was to take the place of another one, which stays.
                world.pool.detach(&lost).map_err(|error| format!("{lost} cannot leave: {error}"))?;
                told += &format!("{lost} has left; ");
            } else {
                world.pool.attach(&lost, new, true).map_err(|error| format!("{lost} cannot be replaced: {error}"))?;
                told += &format!("{lost} is replaced; ");
            }
        }
        Ok(told)
    }

    /// After the repair the pool is the same without others of its devices.
    fn lose_others(
        &self,
        images: &[Arc<MemoryDevice>],
        relied: &BTreeSet<usize>,
        found: &Pool,
        random: &mut StdRng,
    ) -> Outcome<()> {
        let struck = self.draw(images, &[Blow::Lost], relied, random);
        let there = (0..images.len()).filter(|at| !struck.contains_key(at));
        let devices = there.map(|at| copied(&images[at..=at]).remove(0) as Arc<dyn Device>).collect();
        let alone = |problem: String| format!("then without {:?}: {problem}", struck.keys());
        let world = self.open(devices, 4).map_err(alone)?;
        world.check().map_err(alone)?;
        let seen = observe::pool_knowing(&world, &world.list()?, self.known).map_err(alone)?;
        same(found, &seen, &alone("the pool is not the same".into()))
    }

    /// Whatever is read was once written there, or is an error.
    fn read_what_there_is(&self, world: &World) -> Outcome<()> {
        let Ok(listed) = world.list() else { return Ok(()) };
        for name in listed.into_iter().map(|listed| listed.name) {
            let fs = match &name {
                Name::Dataset(name) => world.datasets.open_dataset(name).map(|opened| opened.fs().clone()),
                Name::Snapshot(name) => world.datasets.open_snapshot(name).map(|opened| opened.fs),
                Name::Bookmark(_) => continue,
            };
            if let Ok(fs) = fs {
                self.read_files(&fs, &name)?;
            }
        }
        Ok(())
    }

    fn read_files(&self, fs: &FileSystem, name: &Name) -> Outcome<()> {
        let mut known: BTreeMap<Ino, Vec<Arc<Node>>> = BTreeMap::new();
        for tree in self.history.steps.iter().filter_map(|step| step.state.tree(name)) {
            for (ino, node) in tree.nodes() {
                let known = known.entry(ino).or_default();
                if !known.iter().any(|other| Arc::ptr_eq(other, node)) {
                    known.push(node.clone());
                }
            }
        }
        let (mut todo, mut seen) = (vec![ROOT], BTreeSet::new());
        while let Some(ino) = todo.pop() {
            if !seen.insert(ino) {
                continue;
            }
            let Ok(node) = observe::node(fs, ino) else { continue };
            if !known.get(&ino).is_some_and(|known| known.iter().any(|known| **known == node)) {
                return Err(format!("inode {ino} of {name} is read wrong: {node:?}"));
            }
            todo.extend(node.entries.values());
        }
        Ok(())
    }
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
