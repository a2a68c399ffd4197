//! One damaged pool after another: what must be readable, and what may be lost.
//!
//! A *case* is a life's last state and a seed, from which the damage follows:
//!
//! * all copies but one of some things, or of everything in a region: nothing is lost;
//! * every copy of one thing: just what its region says is lost;
//! * a region, labels with their rings, or a device, reverted to an older version;
//! * anything anywhere.
//!
//! The loss is computed from the bytes that differ, not from the intended damage. Then: opening succeeds or is refused
//! with an error; each read is right or an error; errors come only where the loss allows; the check finds damage where
//! a checked block was hit. Cleaning up, whose writes meet the damage too, does not panic, and succeeds if nothing was
//! lost. A scrub, where one exists, belongs between the reads and the cleaning up: afterwards every thing with an
//! intact copy has only intact copies.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use dataset::{
    fs::{FileSystem, Ino, ROOT},
    name::Name,
};
use pool::{device::MemoryDevice, units::Txg};
use rand::{Rng, SeedableRng, rngs::StdRng};

use super::{
    plan::{Extent, Loss, Plan, Region, Thing},
    strike::{KINDS, Target},
};
use crate::{
    judge::Cut,
    layout::Layout,
    model::{Node, Pool},
    observe,
    workload::{History, Life},
    world::{DEVICE_SIZE, Outcome, World, as_devices},
};

/// The last state of a life, undamaged, with the place of everything in it.
pub(crate) struct Subject {
    seed: u64,
    whole: Vec<Arc<MemoryDevice>>,
    history: History,
    life: Arc<pool::device::Recorder>,
    state: Pool,
    plan: Plan,
    newest: Txg,
    layout: Layout,
}

/// Counts of results.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) cases: u64,
    /// Damage hit something in use.
    pub(crate) hit: u64,
    /// Nothing was lost, and everything was read.
    pub(crate) survived: u64,
    /// The pool opened, with losses.
    pub(crate) partly: u64,
    /// Opening was refused.
    pub(crate) refused: u64,
}

impl Tally {
    /// Adds the counts of another thread or case.
    pub(crate) fn add(&mut self, other: Tally) {
        self.cases += other.cases;
        self.hit += other.hit;
        self.survived += other.survived;
        self.partly += other.partly;
        self.refused += other.refused;
    }
}

impl Subject {
    /// The end of the life of `seed`.
    pub(crate) fn of(seed: u64, life: Life) -> Outcome<Subject> {
        let (recorder, layout) = (life.recorder.clone(), life.layout.clone());
        let history = life.end()?;
        let whole = Cut { at: recorder.len(), fate: 0 }.images(&recorder).0;
        let state = history.steps.last().expect("a life has a first step").state.clone();
        let world = World::import(layout.members(as_devices(&copies(&whole))), seed)?;
        let newest = world.engine().committed();
        let plan = Plan::of(&world, &whole, newest)?;
        plan.check_copies(&whole)?;
        Ok(Subject { seed, whole, history, life: recorder, state, plan, newest, layout })
    }

    /// Damages a copy of the pool and judges the result.
    pub(crate) fn judge(&self, case: u64, tally: &mut Tally) -> Outcome<()> {
        let mut random = StdRng::seed_from_u64(self.seed << 32 ^ case);
        let mut images = copies(&self.whole);
        let what = self.damage(&mut images, &mut random);
        tally.cases += 1;
        self.look(&images, tally).map_err(|problem| format!("{what}: {problem}"))
    }

    /// Damages the images; returns a description.
    fn damage(&self, images: &mut [Arc<MemoryDevice>], random: &mut StdRng) -> String {
        let before = Cut { at: random.random_range(self.history.first_cut()..self.life.len()), fate: 0 };
        let before = before.images(&self.life).0;
        if random.random_range(0..25) == 0 {
            let device = random.random_range(0..images.len());
            images[device] = before[device].clone();
            return format!("device {device} has lost all writes since some time");
        }
        let target = Target { now: images, before: &before };
        let region = Region::ALL[random.random_range(0..Region::ALL.len())];
        let things = self.plan.in_region(region);
        match random.random_range(0..10) {
            0..5 if !things.is_empty() => self.spare_one(&target, &things, random),
            5..7 if !things.is_empty() => self.spare_none(&target, &things, random),
            7 => self.take_back(&target, random),
            _ => self.anywhere(&target, random),
        }
    }

    /// Damages all copies but one, of one thing, of some, or of all in a region.
    fn spare_one(&self, target: &Target<'_>, things: &[&Thing], random: &mut StdRng) -> String {
        let kind = KINDS[random.random_range(0..KINDS.len())];
        let share = [1.0, 0.3, 1.0 / things.len() as f64][random.random_range(0..3)];
        for thing in things {
            if !random.random_bool(share) {
                continue;
            }
            let spared = random.random_range(0..thing.copies.len());
            for (at, copy) in thing.copies.iter().enumerate().filter(|(at, _)| *at != spared) {
                // The spared copy must not be swapped away.
                let other = thing.copies[if at == 0 { thing.copies.len() - 1 } else { at - 1 }];
                let other = if other == thing.copies[spared] { *copy } else { other };
                target.strike(kind, *copy, other, random);
            }
        }
        format!("{kind:?} of all copies but one in region {:?}", things[0].region)
    }

    fn spare_none(&self, target: &Target<'_>, things: &[&Thing], random: &mut StdRng) -> String {
        let kind = KINDS[random.random_range(0..KINDS.len())];
        let thing = things[random.random_range(0..things.len())];
        for copy in &thing.copies {
            let other = things[random.random_range(0..things.len())].copies[0];
            target.strike(kind, *copy, other, random);
        }
        format!("{kind:?} of every copy of one thing in region {:?}", thing.region)
    }

    /// Reverts a region, or one to four labels of each device with their rings.
    fn take_back(&self, target: &Target<'_>, random: &mut StdRng) -> String {
        let kind = super::strike::Kind::Old;
        if random.random_bool(0.5) {
            let region = Region::ALL[random.random_range(0..Region::ALL.len())];
            for copy in self.plan.in_region(region).iter().flat_map(|thing| &thing.copies) {
                target.strike(kind, *copy, *copy, random);
            }
            return format!("an older version of region {region:?}");
        }
        let labels = random.random_range(1..=4);
        for device in 0..target.now.len() {
            for start in pool::format::label::label_offsets(DEVICE_SIZE).into_iter().take(labels) {
                let label = Extent { device, start, len: pool::format::label::LABEL_SIZE };
                target.strike(kind, label, label, random);
            }
        }
        format!("an older version of {labels} labels of each device")
    }

    fn anywhere(&self, target: &Target<'_>, random: &mut StdRng) -> String {
        let count = random.random_range(1..30);
        let somewhere = |random: &mut StdRng| {
            let thing = &self.plan.things[random.random_range(0..self.plan.things.len())];
            let copy = thing.copies[random.random_range(0..thing.copies.len())];
            let len = random.random_range(1..40_000).min(DEVICE_SIZE - copy.start);
            Extent { len, ..copy }
        };
        for _ in 0..count {
            let kind = KINDS[random.random_range(0..KINDS.len())];
            let (at, other) = (somewhere(random), somewhere(random));
            target.strike(kind, at, other, random);
        }
        format!("{count} strikes anywhere")
    }

    fn look(&self, images: &[Arc<MemoryDevice>], tally: &mut Tally) -> Outcome<()> {
        let lost = self.plan.lost(&self.whole, images);
        let loss = lost.iter().map(|thing| thing.region.loses()).max().unwrap_or(Loss::Nothing);
        let hit = self.plan.hit(&self.whole, images);
        tally.hit += u64::from(!hit.is_empty());
        let world = match World::import(self.layout.members(as_devices(images)), self.seed) {
            Ok(world) => world,
            Err(_) if loss >= Loss::Pool => {
                tally.refused += 1;
                return Ok(());
            }
            Err(problem) => return Err(format!("a copy of everything that matters is whole, and {problem}")),
        };
        if world.engine().committed() != self.newest && loss < Loss::NewestState {
            return Err(format!("not the newest state was opened, but {}", world.engine().committed()));
        }
        let checked = world.check();
        if hit.iter().any(|thing| thing.is_checked()) && loss < Loss::Pool && checked.is_ok() {
            return Err("the check does not find that a block was damaged".into());
        }
        self.read(&world, &lost, loss)?;
        let cleaned = world.clean_up();
        if lost.is_empty() {
            tally.survived += 1;
            return cleaned;
        }
        tally.partly += 1;
        Ok(())
    }

    /// Reads everything: each read must be right, or excused by a loss.
    fn read(&self, world: &World, lost: &[&Thing], loss: Loss) -> Outcome<()> {
        if loss == Loss::Nothing {
            let found = observe::pool(world, &world.list()?)?;
            return match self.state.differences(&found) {
                differences if differences.is_empty() => Ok(()),
                differences => Err(format!("nothing was lost, and yet\n  {}", differences.join("\n  "))),
            };
        }
        let excused: BTreeSet<_> = lost.iter().flat_map(|thing| thing.holders.iter().cloned()).collect();
        let listed = match world.list() {
            Ok(listed) => listed,
            Err(_) if loss >= Loss::Pool => return Ok(()),
            Err(problem) => return Err(problem),
        };
        for name in listed.into_iter().map(|listed| listed.name) {
            let all_excused = loss >= Loss::Pool || excused.contains(&(name.to_string(), None));
            let fs = match &name {
                Name::Dataset(name) => world.datasets.open_dataset(name).map(|opened| opened.fs().clone()),
                Name::Snapshot(name) => world.datasets.open_snapshot(name).map(|opened| opened.fs),
                Name::Bookmark(_) => continue,
            };
            match fs {
                Ok(fs) => self.read_files(&fs, &name, loss, &|ino| {
                    all_excused || excused.contains(&(name.to_string(), Some(ino)))
                })?,
                Err(_) if all_excused => {}
                Err(error) => return Err(format!("{name} lost nothing, and cannot be opened: {error}")),
            }
        }
        Ok(())
    }

    fn read_files(&self, fs: &FileSystem, name: &Name, loss: Loss, excused: &dyn Fn(Ino) -> bool) -> Outcome<()> {
        let known = self.known(name, loss);
        let (mut todo, mut seen) = (vec![ROOT], BTreeSet::new());
        while let Some(ino) = todo.pop() {
            if !seen.insert(ino) {
                continue;
            }
            match observe::node(fs, ino) {
                Ok(node) => {
                    if !known.get(&ino).is_some_and(|known| known.iter().any(|known| **known == node)) {
                        return Err(format!("inode {ino} of {name} is read wrong: {node:?}"));
                    }
                    todo.extend(node.entries.values());
                }
                Err(_) if excused(ino) => {}
                Err(errno) => return Err(format!("inode {ino} of {name} lost nothing, and cannot be read: {errno}")),
            }
        }
        Ok(())
    }

    /// The allowed contents of each file: of the last state, or of any state if the newest was lost.
    fn known(&self, name: &Name, loss: Loss) -> BTreeMap<Ino, Vec<Arc<Node>>> {
        let mut known: BTreeMap<Ino, Vec<Arc<Node>>> = BTreeMap::new();
        let all = self.history.steps.iter().map(|step| &step.state);
        let states: Vec<&Pool> = if loss == Loss::NewestState { all.collect() } else { vec![&self.state] };
        for tree in states.into_iter().filter_map(|state| state.tree(name)) {
            for (ino, node) in tree.nodes() {
                let known = known.entry(ino).or_default();
                if !known.iter().any(|other| Arc::ptr_eq(other, node)) {
                    known.push(node.clone());
                }
            }
        }
        known
    }
}

fn copies(images: &[Arc<MemoryDevice>]) -> Vec<Arc<MemoryDevice>> {
    images.iter().map(|image| Arc::new(image.snapshot())).collect()
}
