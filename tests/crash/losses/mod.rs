//! Pools of many devices of which some are lost, rotten, failing or stale after a power failure.
//!
//! The newest label says which devices were *whole* when power failed: complete, in use, and not being replaced by a
//! whole device. Of each vdev as many whole devices may be struck as its redundancy allows. Then the pool must
//!
//! 1. open by itself, at an allowed state,
//! 2. be readable, every byte; and pass every check if the struck devices are only missing,
//! 3. become whole: missing devices are replaced or return unchanged, a scrub repairs the rot, and jobs under way
//!    finish; then a scrub finds nothing more to repair,
//! 4. be the same without others of its devices.
//!
//! In addition, any available spare and any cache device may be struck: no data is lost with them. So may any member
//! that is resilvering or out of use: such members count for nothing. One exception: if two members share a place and
//! one rots, it counts as if the other were struck, because the other may leave before a scrub finds the rot. And on
//! any device, labels and uberblock rings may be struck while a copy of each is left. Before missing devices are
//! replaced, spares are put in, if the operator is in no hurry.
//!
//! Power fails in the middle of the repair too, and then all devices that are not whole may be struck again: see
//! [`repair`].
//!
//! If more is struck, the pool opens or is refused with a message, and each read returns data once written there, or an
//! error.
//!
//! And if a vdev has lost as many devices as allowed, and all its other devices are rotten at one block, just this
//! block is lost: files with the block give errors, and all other files are read.

mod block;
mod repair;
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
    vdev::labels,
};
use rand::{Rng, SeedableRng, rngs::StdRng};

use self::strike::{BLOWS, Blow, Struck, beside, holders, rot, rot_rings, unfinished};
pub(crate) use self::strike::{Tally, refuse};
use crate::{
    judge::copied,
    model::Node,
    observe::{self, Known},
    workload::{History, plant::Plant},
    world::{Outcome, World, as_devices},
};

/// A power failure, as far as losses are judged.
pub(crate) struct Losses<'a> {
    pub(crate) history: &'a History,
    pub(crate) cut: usize,
    pub(crate) images: &'a [Arc<MemoryDevice>],
    pub(crate) known: &'a Known,
    /// The source of all random choices.
    pub(crate) seed: u64,
    /// The planted defect.
    pub(crate) plant: Option<Plant>,
}

impl Losses<'_> {
    /// Strikes as many devices as redundancy allows.
    pub(crate) fn judge(&self) -> Outcome<Tally> {
        let mut random = StdRng::seed_from_u64(self.seed);
        let mut struck = self.draw(self.images, &BLOWS, &BTreeSet::new(), &mut random);
        self.draw_beside(&mut struck, &mut random);
        let unfinished = draw_unfinished(self.images, &mut struck, &mut random);
        let mut tally = Tally::default();
        if struck.is_empty() || is_unrecorded(self.images, &struck) {
            return Ok(tally);
        }
        tally.bereft = 1;
        for blow in struck.values() {
            tally.blows[*blow as usize] += 1;
        }
        tally.beside = beside(self.images).iter().filter(|at| struck.contains_key(at)).count() as u64;
        tally.unfinished = unfinished;
        let context = |problem| format!("struck {struck:?}: {problem}");
        tally.add(self.bereft(&struck, &mut random).map_err(context)?);
        Ok(tally)
    }

    /// Strikes one device more than redundancy allows.
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
        let context = |problem| format!("struck {struck:?}, one too many: {problem}");
        let images = copied(self.images);
        rot_all(&images, &struck, &mut random);
        let (devices, _) = there(&as_devices(&images), &struck, &mut random);
        let Ok(world) = self.open(devices, 3) else { return Ok(Tally { refused: 1, ..Tally::default() }) };
        self.read_what_there_is(&world).map_err(context)?;
        Ok(Tally { opened: 1, ..Tally::default() })
    }

    /// Chooses devices to strike: of each vdev up to its redundancy, devices in `relied` last.
    fn draw(
        &self,
        images: &[Arc<MemoryDevice>],
        blows: &[Blow],
        relied: &BTreeSet<usize>,
        random: &mut StdRng,
    ) -> Struck {
        let mut struck = Struck::new();
        for vdev in holders(images, |_| true) {
            // Mostly as many as redundancy allows.
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

    /// Strikes spares and cache devices: any of them, because no data is lost with them.
    fn draw_beside(&self, struck: &mut Struck, random: &mut StdRng) {
        for image in beside(self.images) {
            if random.random_range(0..2) == 0 {
                struck.insert(image, BLOWS[random.random_range(0..BLOWS.len())]);
            }
        }
    }

    fn open(&self, devices: Vec<Arc<dyn Device>>, turn: u64) -> Outcome<World> {
        let labelled = |device: &Arc<dyn Device>| matches!(labels::read_label(&**device), Ok(Some(_)));
        let devices = devices.into_iter().filter(labelled).collect();
        // Each import draws a new epoch, as in production.
        let env = Arc::new(SeededEnv::new(self.seed.wrapping_add(turn)));
        World::open(devices, env).map_err(|error| format!("the pool does not open: {error}"))
    }

    /// Every read returns data once written there, or an error.
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

/// Strikes members that count for nothing: incomplete, or out of use. Returns the number struck.
fn draw_unfinished(images: &[Arc<MemoryDevice>], struck: &mut Struck, random: &mut StdRng) -> u64 {
    let (mut count, vdevs) = (0, holders(images, |_| true));
    for image in unfinished(images) {
        if !struck.contains_key(&image) && random.random_range(0..2) == 0 {
            struck.insert(image, BLOWS[random.random_range(0..BLOWS.len())]);
            count += 1;
            if !vdevs.iter().all(|vdev| vdev.suffice_when_resilvered(struck)) {
                struck.remove(&image);
                count -= 1;
            }
        }
    }
    count
}

/// Whether the remaining labels do not yet say that their devices suffice, or do not know a vdev that was being added:
/// power failed while labels were written. Then the pool is refused, or lacks that vdev, and no data is lost.
fn is_unrecorded(images: &[Arc<MemoryDevice>], struck: &Struck) -> bool {
    let is_there = |at: usize| struck.get(&at).is_none_or(|blow| !blow.is_away());
    let left = holders(images, is_there);
    left.len() != holders(images, |_| true).len() || !left.iter().all(|vdev| vdev.suffice_without(struck))
}

/// Makes the devices rot that were struck so.
fn rot_all(images: &[Arc<MemoryDevice>], struck: &Struck, random: &mut StdRng) {
    for (at, blow) in struck {
        match blow {
            Blow::Rotten => rot(&images[*at], random),
            Blow::Ringless => rot_rings(&images[*at], random),
            Blow::Lost | Blow::Stale | Blow::Erring => {}
        }
    }
}

/// The devices present after these blows, and the failing devices among them.
fn there(
    devices: &[Arc<dyn Device>],
    struck: &Struck,
    random: &mut StdRng,
) -> (Vec<Arc<dyn Device>>, Vec<Arc<FaultDevice>>) {
    let (mut left, mut erring): (Vec<Arc<dyn Device>>, Vec<Arc<FaultDevice>>) = (Vec::new(), Vec::new());
    for (at, device) in devices.iter().enumerate() {
        match struck.get(&at) {
            Some(Blow::Lost | Blow::Stale) => {}
            Some(Blow::Erring) => {
                let device = Arc::new(FaultDevice::new(device.clone()));
                refuse(&device, random);
                erring.push(device.clone());
                left.push(device);
            }
            Some(Blow::Rotten | Blow::Ringless) | None => left.push(device.clone()),
        }
    }
    (left, erring)
}
