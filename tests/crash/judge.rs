//! One power failure, and the pool that comes up after it.
//!
//! A *point* is a cut in the record, a choice of fates for the unflushed writes, and perhaps a second failure while the
//! pool is opened and cleaned up after the first. The pool must
//!
//! 1. open by itself,
//! 2. pass every check: the balance of space, counters, deadlists, names, files; so nothing has leaked,
//! 3. be in a state of the whole pool after some step, not before the last returned step that promised everything.
//!    However, the files of a dataset may be as after a later step, and must be if an fsync in the dataset has
//!    returned,
//! 4. after a second failure, be in the very state found after the first,
//! 5. be usable: cleaning up succeeds, changes nothing visible, and passes every check again.
//!
//! So a commit is one prefix of the operations in all datasets together. From there the intent log continues in each
//! dataset, with a prefix of the later operations there.

use std::{fmt, ops::RangeInclusive, str::FromStr, sync::Arc};

use dataset::{admin::Progress, catalogue::ScrubState, jobs::ScrubStatus};
use pool::{
    device::{Device, Fate, MemoryDevice, Recorder},
    env::SeededEnv,
    format::{
        label::{DATA_START, Label, usable_size},
        vdev_config::VdevTree,
    },
    vdev::{State, labels},
};
use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::{
    losses::{Losses, Tally},
    model::Pool,
    observe::{self, Known},
    workload::{Done, History, Life},
    world::{Outcome, RESILVER_STEP, World, as_devices},
};

/// A power failure: the number of recorded operations before it, and the fates of the unflushed ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) at: usize,
    /// 0 drops every unflushed write; any other number is a seed.
    pub(crate) fate: u64,
}

impl Cut {
    /// The devices after this failure, and the number of unflushed operations.
    pub(crate) fn images(self, recorder: &Recorder) -> (Vec<Arc<MemoryDevice>>, usize) {
        let mut seeded = Fate::seeded(self.fate ^ (self.at as u64) << 20);
        let mut undecided = 0;
        let mut fate = || {
            undecided += 1;
            if self.fate == 0 { Fate::Dropped } else { seeded() }
        };
        let images = recorder.images_at(self.at, &mut fate);
        (images.into_iter().map(Arc::new).collect(), undecided)
    }
}

/// The place where a life is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) seed: u64,
    pub(crate) first: Cut,
    pub(crate) second: Option<Cut>,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.seed, self.first.at, self.first.fate)?;
        self.second.map_or(Ok(()), |second| write!(f, ":{}:{}", second.at, second.fate))
    }
}

impl FromStr for Point {
    type Err = String;

    fn from_str(text: &str) -> Result<Point, String> {
        let numbers: Result<Vec<u64>, _> = text.split(':').map(str::parse).collect();
        let cut = |at: u64, fate| Cut { at: at as usize, fate };
        match numbers.map_err(|error| format!("{text}: {error}"))?[..] {
            [seed, at, fate] => Ok(Point { seed, first: cut(at, fate), second: None }),
            [seed, at, fate, again, then] => Ok(Point { seed, first: cut(at, fate), second: Some(cut(again, then)) }),
            _ => Err(format!("{text}: a point is seed:cut:fate or seed:cut:fate:cut:fate")),
        }
    }
}

/// The number of points judged, by kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) single: u64,
    pub(crate) double: u64,
    /// For pools of many devices.
    pub(crate) losses: Tally,
    /// The number of points with each job under way.
    pub(crate) under_way: Done,
}

impl Counts {
    /// Adds the counts of another thread or life.
    pub(crate) fn add(&mut self, other: &Counts) {
        self.single += other.single;
        self.double += other.double;
        self.losses.add(other.losses);
        other.under_way.iter().for_each(|(kind, points)| *self.under_way.entry(kind).or_default() += points);
    }
}

/// The number of seeded fates for a cut, in addition to the fate that drops everything.
const FATES: u64 = 2;
/// One of so many points of mirrors is judged without each of the devices.
const BEREFT: u64 = 24;
/// The approximate number of cuts judged in the life of a pool of many devices, each with one fate. One of
/// `BEREFT_OF_MANY` points is judged with losses, and one of `TOO_MANY` with more losses than allowed.
const CUTS_OF_MANY: usize = 70;
const BEREFT_OF_MANY: u64 = 3;
const TOO_MANY: u64 = 5;
/// The number of bytes that rot at a place.
const ROTTEN: usize = 4096;
/// One of so many points gets second failures,
const DOUBLED: u64 = 12;
/// so many each.
const SECONDS: usize = 6;

/// Judges all points of a life. `report` is called with each before it is judged.
pub(crate) fn judge_life(life: &Life, seed: u64, report: &mut dyn FnMut(Point)) -> Outcome<Counts> {
    let mut counts = Counts::default();
    let judge = Judge { life, known: Known::default() };
    let cuts = life.history.first_cut()..=life.recorder.len();
    let thin = if life.layout.is_many { (cuts.clone().count() / CUTS_OF_MANY).max(1) as u64 } else { 1 };
    for at in cuts {
        let number = point_number(Point { seed, first: Cut { at, fate: u64::MAX }, second: None });
        if !number.is_multiple_of(thin) {
            continue;
        }
        let fates = if life.layout.is_many { number / thin % (FATES + 1)..=FATES } else { 0..=FATES };
        for fate in fates {
            let point = Point { seed, first: Cut { at, fate }, second: None };
            let (images, undecided) = point.first.images(&life.recorder);
            report(point);
            let came_up = judge.first(point, &images, &mut counts.losses)?;
            counts.single += 1;
            let (_, begun) = life.history.span(at);
            life.history.steps[begun].under_way.iter().for_each(|kind| *counts.under_way.entry(kind).or_default() += 1);
            if point_number(point).is_multiple_of(DOUBLED) {
                counts.double += judge.seconds(point, &images, &came_up, report)?;
            }
            if undecided == 0 || life.layout.is_many {
                // Every other fate is the same.
                break;
            }
        }
    }
    Ok(counts)
}

/// Judges one point.
pub(crate) fn judge_point(life: &Life, point: Point) -> Outcome<()> {
    let judge = Judge { life, known: Known::default() };
    let (images, _) = point.first.images(&life.recorder);
    let came_up = judge.first(Point { second: None, ..point }, &images, &mut Tally::default())?;
    let Some(second) = point.second else {
        return judge.seconds(point, &images, &came_up, &mut |_| {}).map(drop);
    };
    let recorder = judge.record_cleaning(point, &images, &came_up)?;
    judge.second(point, second, &recorder, &came_up)
}

/// A number without relation to the structure of a commit.
fn point_number(point: Point) -> u64 {
    StdRng::seed_from_u64(point.seed ^ (point.first.at as u64) << 24 ^ point.first.fate << 60).random()
}

/// Questions about mirrors.
impl World {
    /// The devices of the mirror by name, each with whether it is complete; empty without a mirror.
    pub(crate) fn mirrored(&self) -> Vec<(String, bool)> {
        let vdevs = self.engine().storage().vdevs.all();
        let members = vdevs.iter().filter_map(|vdev| vdev.as_group()).flat_map(|mirror| mirror.members().to_vec());
        members.map(|member| (member.leaf.name().to_owned(), member.state() == State::Complete)).collect()
    }

    /// Scrubs the whole pool. Returns the number of bytes repaired.
    pub(crate) fn scrub(&self) -> Outcome<u64> {
        let failed = |error| format!("a scrub fails: {error}");
        // Power may have failed during a scrub.
        let is_running = |status: &ScrubStatus| matches!(status.state, ScrubState::Running | ScrubState::Paused);
        if self.datasets.scrub().status().map_err(failed)?.as_ref().is_some_and(is_running) {
            self.datasets.scrub().give_up().map_err(failed)?;
        }
        self.datasets.scrub().start().map_err(failed)?;
        while self.datasets.scrub().advance(RESILVER_STEP).map_err(failed)? == Progress::Worked {}
        let status = self.datasets.scrub().status().map_err(failed)?.ok_or("a scrub that has ended is not known")?;
        if status.errors == 0 {
            Ok(status.repaired)
        } else {
            Err(format!("a scrub finds {} lost blocks", status.errors))
        }
    }
}

/// Judges the points of a life.
struct Judge<'a> {
    life: &'a Life,
    known: Known,
}

impl Judge<'_> {
    /// The devices that an import takes of these images.
    fn members(&self, images: &[Arc<MemoryDevice>]) -> Vec<Arc<dyn Device>> {
        self.life.layout.members(as_devices(images))
    }

    fn first(&self, point: Point, images: &[Arc<MemoryDevice>], losses: &mut Tally) -> Outcome<Pool> {
        let (promised, begun) = self.life.history.span(point.first.at);
        let found = self.came_up(images, point)?;
        fits(&self.life.history, point.first.at, promised..=begun, &found)?;
        if self.life.layout.is_mirrored() && point_number(point).is_multiple_of(BEREFT) {
            self.bereft(images, point, &found)?;
        }
        if self.life.layout.is_many {
            let (cut, seed, known) = (point.first.at, point_number(point), &self.known);
            let judge = Losses { history: &self.life.history, cut, images, known, seed, plant: self.life.plant };
            if seed % BEREFT_OF_MANY == 0 {
                losses.add(judge.judge()?);
            }
            if seed % TOO_MANY == 0 {
                losses.add(judge.judge_more()?);
                losses.add(judge.judge_block()?);
            }
        }
        Ok(found)
    }

    /// Opens a pool, checks it, and reads everything. The opening writes to a copy.
    fn came_up(&self, images: &[Arc<MemoryDevice>], point: Point) -> Outcome<Pool> {
        let copies = copied(images);
        let world = World::import(self.members(&copies), point_number(point))?;
        self.look_at(&world)
    }

    /// Loses each device of a mirror after a power failure. A complete device must be the whole pool without the other
    /// device; an incomplete device must be so after a resilver. Rot on one device is repaired from the other.
    fn bereft(&self, images: &[Arc<MemoryDevice>], point: Point, found: &Pool) -> Outcome<()> {
        let seed = point_number(point);
        let without = |images: &[Arc<MemoryDevice>], lost: &str| -> Vec<Arc<MemoryDevice>> {
            copied(images).into_iter().filter(|image| image.name() != lost).collect()
        };
        let other = |name: &str| if name == "disk0" { "disk1" } else { "disk0" };
        let members = World::import(self.members(&copied(images)), seed)?.mirrored();
        for (name, _) in members.iter().filter(|(_, is_complete)| *is_complete) {
            let alone = self.came_up(&without(images, other(name)), point);
            if alone.as_ref().is_err_and(|error| error.contains("has no complete device"))
                && is_unrecorded(images, name)
            {
                continue;
            }
            let alone = alone.map_err(|error| format!("{name} is complete, and alone: {error}"))?;
            // Data about to be promised may be on one device alone.
            let (promised, begun) = self.life.history.span(point.first.at);
            fits(&self.life.history, point.first.at, promised..=begun, &alone)?;
        }
        // Each import draws a new epoch, as in production.
        let resilvered = copied(images);
        let world = World::import(self.members(&resilvered), seed.wrapping_add(1))?;
        world.clean_up()?;
        if let Some((name, _)) = world.mirrored().iter().find(|(_, is_complete)| !is_complete) {
            return Err(format!("{name} is not complete after its resilver"));
        }
        drop(world);
        for (name, _) in &members {
            let alone = self.came_up(&without(&resilvered, other(name)), point);
            let alone = alone.map_err(|error| format!("{name} was resilvered ({members:?}), and alone: {error}"))?;
            same(found, &alone, &format!("{name} was resilvered, and is not the same without the other device"))?;
        }
        let rotten = if seed.is_multiple_of(2) { "disk0" } else { "disk1" };
        rot(resilvered.iter().find(|image| image.name() == rotten).expect("it is there"), seed);
        let world = World::import(self.members(&resilvered), seed.wrapping_add(2));
        let world = world.map_err(|error| format!("{rotten} is rotten: {error}"))?;
        let seen = observe::pool_knowing(&world, &world.list()?, &self.known)?;
        same(found, &seen, &format!("what rots on {rotten} is seen"))?;
        world.scrub()?;
        match world.scrub()? {
            0 => {}
            again => return Err(format!("a second scrub repairs {again} bytes on {rotten}")),
        }
        world.check()?;
        drop(world);
        let alone = self.came_up(&without(&resilvered, other(rotten)), point);
        let alone = alone.map_err(|error| format!("{rotten} was scrubbed, and alone: {error}"))?;
        same(found, &alone, &format!("{rotten} was scrubbed, and is not the same without the other device"))
    }

    /// Checks an opened pool and reads everything.
    fn look_at(&self, world: &World) -> Outcome<Pool> {
        world.check()?;
        let listed = world.list()?;
        let found = observe::pool_knowing(world, &listed, &self.known)?;
        world.check_files(&listed)?;
        Ok(found)
    }

    /// Opens and cleans up once more, with every write recorded, and fails half a dozen times meanwhile.
    fn seconds(
        &self,
        point: Point,
        images: &[Arc<MemoryDevice>],
        came_up: &Pool,
        report: &mut dyn FnMut(Point),
    ) -> Outcome<u64> {
        report(point);
        let recorder = self.record_cleaning(point, images, came_up)?;
        let mut random = StdRng::seed_from_u64(point_number(point));
        let mut count = 0;
        for _ in 0..SECONDS.min(recorder.len()) {
            let second = Cut { at: random.random_range(1..=recorder.len()), fate: random.random_range(0..8) };
            let point = Point { second: Some(second), ..point };
            report(point);
            self.second(point, second, &recorder, came_up)?;
            count += 1;
        }
        Ok(count)
    }

    /// Opens and cleans up with every write recorded. This must succeed and change nothing visible. In a pool of many
    /// devices, jobs under way are finished too.
    fn record_cleaning(&self, point: Point, images: &[Arc<MemoryDevice>], came_up: &Pool) -> Outcome<Arc<Recorder>> {
        let (recorder, layout) = (Recorder::new(), &self.life.layout);
        let devices: Vec<_> = images.iter().map(|image| Arc::new(recorder.wrap(image.snapshot()))).collect();
        let members = layout.members(devices.into_iter().map(|device| device as Arc<dyn Device>).collect());
        let env = Arc::new(SeededEnv::new(point_number(point)));
        let world = World::open(members, env).map_err(|error| format!("the pool does not open: {error}"))?;
        world.load_caches();
        world.clean_up()?;
        if layout.is_many {
            world.settle()?;
            world.clear_all()?;
        }
        world.check()?;
        let found = observe::pool(&world, &world.list()?)?;
        same(came_up, &found, "cleaning up after the crash has changed the pool")?;
        Ok(recorder)
    }

    fn second(&self, point: Point, second: Cut, recorder: &Recorder, first: &Pool) -> Outcome<()> {
        let (images, _) = second.images(recorder);
        same(first, &self.came_up(&images, point)?, "a second crash has changed the pool")
    }
}

/// Whether a device's own label does not yet call the device complete, but the newer label of the other device does:
/// power failed while labels were written. Then the device is refused alone, and nothing is lost.
fn is_unrecorded(images: &[Arc<MemoryDevice>], name: &str) -> bool {
    let label = |image: &Arc<MemoryDevice>| labels::read_label(&**image).ok().flatten();
    let Some(own) = images.iter().find(|image| image.name() == name).and_then(label) else { return false };
    let calls_it_behind = |label: &Label| {
        let mirrors = label.vdevs.iter().filter_map(|vdev| match &vdev.tree {
            VdevTree::Mirror(mirror) => Some(&mirror.members),
            _ => None,
        });
        mirrors.flatten().any(|member| member.leaf.guid == own.device && member.behind.is_some())
    };
    let mut others = images.iter().filter(|image| image.name() != name).filter_map(label);
    calls_it_behind(&own) && others.any(|other| other.txg > own.txg && !calls_it_behind(&other))
}

pub(crate) fn copied(images: &[Arc<MemoryDevice>]) -> Vec<Arc<MemoryDevice>> {
    images.iter().map(|image| Arc::new(image.snapshot())).collect()
}

/// Overwrites a third of the area between the labels.
fn rot(image: &MemoryDevice, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let end = DATA_START + usable_size(image.size());
    for at in (DATA_START..end).step_by(ROTTEN) {
        if random.random_range(0..3) == 0 {
            image.write_at(at, &[0xe5; ROTTEN]).expect("memory takes everything");
        }
    }
}

/// Fails unless the pool is in an allowed state.
pub(crate) fn fits(history: &History, cut: usize, span: RangeInclusive<usize>, found: &Pool) -> Outcome<()> {
    let digest = found.digest();
    if span.clone().any(|committed| goes_on_from(history, cut, committed..=*span.end(), found)) {
        return Ok(());
    }
    let (promised, begun) = (*span.start(), *span.end());
    let steps = |range: &[crate::workload::Step], from: usize| {
        let lines = range.iter().enumerate();
        lines.map(|(at, step)| format!("\n  {}: {}", from + at, step.what)).collect::<String>()
    };
    let other = history.steps.iter().position(|step| step.digest == digest);
    let but = match other {
        Some(step) => format!("the pool is as it was after step {step}, which is neither"),
        None => {
            let candidates = history.steps[span].iter();
            let nearest = candidates.map(|step| step.state.differences(found)).min_by_key(Vec::len);
            format!(
                "the pool is in no state that it was ever in; the nearest differs in\n  {}",
                nearest.unwrap_or_default().join("\n  ")
            )
        }
    };
    let (kept, perhaps) = (steps(&history.steps[promised..=promised], promised), &history.steps[promised + 1..=begun]);
    Err(format!("committed was{kept}\nand begun perhaps{}\nbut {but}", steps(perhaps, promised + 1)))
}

/// Whether the pool is as after the first step of `span`, apart from files, which may be as after a later step; but not
/// as before the last fsync in their dataset.
fn goes_on_from(history: &History, cut: usize, span: RangeInclusive<usize>, found: &Pool) -> bool {
    let committed = &history.steps[*span.start()].state;
    committed.frame_digest() == found.frame_digest()
        && found.datasets.iter().all(|(name, dataset)| {
            let first = history.promised(name, cut).unwrap_or(0).max(*span.start());
            let mut states = history.steps[first..=(*span.end()).max(first)].iter().map(|step| &step.state);
            states.any(|state| state.datasets.get(name).is_some_and(|then| then.tree.digest() == dataset.tree.digest()))
        })
}

pub(crate) fn same(expected: &Pool, found: &Pool, what: &str) -> Outcome<()> {
    match expected.digest() == found.digest() {
        true => Ok(()),
        false => Err(format!("{what}:\n  {}", expected.differences(found).join("\n  "))),
    }
}
