//! Kinds of failures of devices, which failures a pool survives, and counts of the failures tried.

use std::{collections::BTreeMap, fmt, iter, sync::Arc};

use pool::{
    device::{Device, Effect, Fault, FaultDevice, MemoryDevice, Operation},
    format::{
        label::{BODY_AT, BODY_SIZE, DATA_START, Label, RING_AT, RING_SIZE, label_offsets, usable_size},
        vdev_config::{MemberConfig, VdevTree},
    },
    units::Guid,
    vdev::{labels, uberblocks},
};
use rand::{Rng, rngs::StdRng};
use rustix::io::Errno;

use super::repair::{PARTS, Part};

/// The number of bytes that rot at a place.
const ROTTEN: u64 = 4096;
/// The unit of a device, in bytes, that fails to be read.
const REFUSED: u64 = 1 << 20;

/// The failure of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blow {
    /// Lost for good.
    Lost,
    /// Away for one import, then back unchanged.
    Stale,
    /// Part or all of the area between its labels is overwritten.
    Rotten,
    /// Part or all of the area between its labels cannot be read, until the repair.
    Erring,
    /// All its uberblock rings are overwritten: the device is known as the pool's, but not its newest txg.
    Ringless,
}

pub(super) const BLOWS: [Blow; 5] = [Blow::Lost, Blow::Stale, Blow::Rotten, Blow::Erring, Blow::Ringless];

impl Blow {
    /// Whether the device is absent at the first import.
    pub(super) fn is_away(self) -> bool {
        matches!(self, Blow::Lost | Blow::Stale)
    }

    /// Whether all blocks readable at the first import are right.
    pub(super) fn leaves_right(self) -> bool {
        self.is_away() || self == Blow::Ringless
    }
}

/// The struck devices, by the numbers of their images.
pub(super) type Struck = BTreeMap<usize, Blow>;

/// Counts of the failures tried.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Points at which as many devices were struck as redundancy allows.
    pub(crate) bereft: u64,
    /// Spares and cache devices struck at these points, and spares put in afterwards.
    pub(crate) beside: u64,
    pub(crate) in_use: u64,
    /// Members struck that count for nothing: at these points, and at power failures in the repair.
    pub(crate) unfinished: u64,
    pub(crate) unfinished_again: u64,
    /// Devices at these points with some but not all copies of labels or rings struck.
    pub(crate) scratched: u64,
    /// Repairs in which power failed, by part.
    pub(crate) failures: [u64; PARTS.len()],
    /// Devices struck at these points, by blow.
    pub(crate) blows: [u64; BLOWS.len()],
    /// Points at which more was struck: the pool opened, or was refused.
    pub(crate) opened: u64,
    pub(crate) refused: u64,
    /// Points at which one block was lost, and everything else was read.
    pub(crate) blocks: u64,
}

impl Tally {
    /// Adds the counts of another thread or point.
    pub(crate) fn add(&mut self, other: Tally) {
        self.bereft += other.bereft;
        self.beside += other.beside;
        self.in_use += other.in_use;
        self.unfinished += other.unfinished;
        self.scratched += other.scratched;
        self.unfinished_again += other.unfinished_again;
        self.failures.iter_mut().zip(other.failures).for_each(|(sum, more)| *sum += more);
        self.opened += other.opened;
        self.refused += other.refused;
        self.blocks += other.blocks;
        self.blows.iter_mut().zip(other.blows).for_each(|(sum, more)| *sum += more);
    }

    /// The kinds that were never seen.
    pub(crate) fn missed(&self) -> Vec<&'static str> {
        let seen = [
            ("bereft points", self.bereft),
            ("losses beside the vdevs", self.beside),
            ("spares in use", self.in_use),
            ("losses of members that lacked something", self.unfinished),
            ("losses of members that lacked something when power failed in a repair", self.unfinished_again),
            ("power failures while a pool was opened to be repaired", self.failures[Part::Opening as usize]),
            ("power failures while devices came back", self.failures[Part::Return as usize]),
            ("power failures while devices were replaced", self.failures[Part::Replacing as usize]),
            ("power failures during a resilver in a repair", self.failures[Part::Resilver as usize]),
            ("power failures while a scrub repaired", self.failures[Part::Scrub as usize]),
            ("lost devices", self.blows[Blow::Lost as usize]),
            ("stale devices", self.blows[Blow::Stale as usize]),
            ("rotten devices", self.blows[Blow::Rotten as usize]),
            ("erring devices", self.blows[Blow::Erring as usize]),
            ("devices without rings", self.blows[Blow::Ringless as usize]),
            ("devices with scratched labels", self.scratched),
            ("pools that open with one loss too many", self.opened),
            ("pools that are refused with one loss too many", self.refused),
            ("lost blocks", self.blocks),
        ];
        seen.into_iter().filter(|(_, count)| *count == 0).map(|(what, _)| what).collect()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let blows: Vec<String> =
            BLOWS.iter().zip(self.blows).map(|(blow, count)| format!("{count} {blow:?}").to_lowercase()).collect();
        write!(f, "{} bereft points ({} devices", self.bereft, blows.join(", "))?;
        write!(f, ", {} of them spares or caches, {} lacking something before", self.beside, self.unfinished)?;
        write!(f, "; {} with scratched labels", self.scratched)?;
        let failures: Vec<String> =
            PARTS.iter().zip(self.failures).map(|(part, count)| format!("{count} {part}")).collect();
        write!(f, "; {} spares in use; power failed in {} repairs ", self.in_use, self.failures.iter().sum::<u64>())?;
        write!(f, "({}), with {} devices struck again), ", failures.join(", "), self.unfinished_again)?;
        write!(f, "{} with one loss too many ({} refused), ", self.opened + self.refused, self.refused)?;
        write!(f, "{} with one block lost", self.blocks)
    }
}

/// A vdev as a label describes it: its redundancy, and the images of whole devices with their columns.
pub(super) struct Holders {
    tree: VdevTree,
    pub(super) whole: Vec<(usize, usize)>,
    /// Devices that share a place, as pairs of images: the device that stays and the device that may leave. The latter
    /// is the replaced device, or the spare of a device that is back.
    staying: Vec<(usize, usize)>,
}

impl Holders {
    pub(super) fn suffice_without(&self, struck: &Struck) -> bool {
        let left = self.whole.iter().filter(|(image, _)| !struck.contains_key(image));
        match self.tree {
            VdevTree::Leaf(_) => left.count() > 0,
            _ => self.tree.suffice(left.map(|(_, column)| *column)),
        }
    }

    /// As [`Holders::suffice_without`], after one of each sharing pair has left. Rot on the staying device is found
    /// only by a scrub, when the other device is gone.
    pub(super) fn suffice_when_resilvered(&self, struck: &Struck) -> bool {
        let is_rotten = |image: &usize| struck.get(image) == Some(&Blow::Rotten);
        let leaving =
            self.staying.iter().filter(|(stays, _)| is_rotten(stays)).map(|(_, leaves)| (*leaves, Blow::Lost));
        self.suffice_without(&struck.iter().map(|(image, blow)| (*image, *blow)).chain(leaving).collect())
    }
}

/// The labels of these images, each with its image's number, and the newest label.
fn labels_of(images: &[Arc<MemoryDevice>], counts: impl Fn(usize) -> bool) -> Option<(Vec<(usize, Label)>, Label)> {
    let labelled = images.iter().enumerate().filter(|(at, _)| counts(*at));
    let found = labelled.filter_map(|(at, image)| Some((at, labels::read_label(&**image).ok().flatten()?)));
    let found: Vec<(usize, Label)> = found.collect();
    let newer =
        |newest: Label, (_, label): &(usize, Label)| if label.supersedes(&newest) { label.clone() } else { newest };
    let newest = found.iter().fold(found.first()?.1.clone(), newer);
    Some((found, newest))
}

/// The available spares and the cache devices, by the newest label of these images.
pub(super) fn beside(images: &[Arc<MemoryDevice>]) -> Vec<usize> {
    let Some((found, newest)) = labels_of(images, |_| true) else { return Vec::new() };
    let is_member =
        |device: Guid| newest.vdevs.iter().flat_map(|vdev| vdev.tree.leaves()).any(|leaf| leaf.guid == device);
    let is_available = |device: Guid| newest.is_cache(device) || newest.is_spare(device) && !is_member(device);
    found.iter().filter(|(_, label)| is_available(label.device)).map(|(at, _)| *at).collect()
}

/// The members that count for nothing by the newest label of these images: incomplete, out of use, or about to leave
/// because another device has their content.
pub(super) fn unfinished(images: &[Arc<MemoryDevice>]) -> Vec<usize> {
    let Some((found, newest)) = labels_of(images, |_| true) else { return Vec::new() };
    let whole: Vec<usize> =
        holders(images, |_| true).into_iter().flat_map(|vdev| vdev.whole).map(|(at, _)| at).collect();
    let is_member =
        |device: Guid| newest.vdevs.iter().any(|vdev| vdev.tree.members().any(|own| own.leaf.guid == device));
    let unfinished = found.iter().filter(|(at, label)| is_member(label.device) && !whole.contains(at));
    unfinished.map(|(at, _)| *at).collect()
}

/// The vdevs, by the newest label of these images.
pub(super) fn holders(images: &[Arc<MemoryDevice>], counts: impl Fn(usize) -> bool) -> Vec<Holders> {
    let Some((found, newest)) = labels_of(images, counts) else { return Vec::new() };
    let image = |device: Guid| found.iter().find(|(_, label)| label.device == device).map(|(at, _)| *at);
    let holder = |tree: &VdevTree| {
        let whole = match tree {
            VdevTree::Leaf(leaf) => image(leaf.guid).map(|image| (image, 0)).into_iter().collect(),
            tree => {
                let is_whole = |member: &MemberConfig| member.behind.is_none() && !member.is_offline;
                let whole = || tree.members().filter(|member| is_whole(member));
                let replaced: Vec<Guid> = whole().filter_map(|member| member.replaces).collect();
                let stays = |member: &MemberConfig| is_whole(member) && !replaced.contains(&member.leaf.guid);
                let members = tree.in_columns().into_iter();
                members
                    .filter(|(_, member)| stays(member))
                    .filter_map(|(column, member)| Some((image(member.leaf.guid)?, column)))
                    .collect()
            }
        };
        let pair = |member: &MemberConfig| {
            Some((image(member.leaf.guid)?, image(member.replaces?)?, newest.is_spare(member.leaf.guid)))
        };
        let stay =
            |(new, old, is_spare): (usize, usize, bool)| iter::once((new, old)).chain(is_spare.then_some((old, new)));
        Holders { tree: tree.clone(), whole, staying: tree.members().filter_map(pair).flat_map(stay).collect() }
    };
    newest.vdevs.iter().map(|config| holder(&config.tree)).collect()
}

/// Overwrites a third of the area between the labels, or all.
pub(super) fn rot(image: &MemoryDevice, random: &mut StdRng) {
    const PAGE: u64 = 64 << 10;
    let is_whole = random.random_range(0..3) == 0;
    let end = DATA_START + usable_size(image.size());
    let mut page = vec![0; PAGE as usize];
    for at in (DATA_START..end - PAGE).step_by(PAGE as usize) {
        image.read_at(at, &mut page).expect("it lies on the device");
        if page.iter().all(|byte| *byte == 0) {
            continue;
        }
        for part in (0..PAGE).step_by(ROTTEN as usize) {
            if is_whole || random.random_range(0..3) == 0 {
                image.write_at(at + part, &[0xe5; ROTTEN as usize]).expect("memory takes everything");
            }
        }
    }
}

/// Overwrites all uberblock rings.
pub(super) fn rot_rings(image: &MemoryDevice, random: &mut StdRng) {
    for at in labels::places(image).expect("it is large enough") {
        let mut noise = vec![0; RING_SIZE];
        random.fill(&mut noise[..]);
        image.write_at(at + RING_AT, &noise).expect("memory takes everything");
    }
}

/// Overwrites some labels and rings of a device that have intact copies. Returns whether it found any.
pub(super) fn scratch(image: &MemoryDevice, random: &mut StdRng) -> bool {
    let known = || {
        let label = labels::read_label(image).ok().flatten()?;
        let states = uberblocks::read_uberblocks(image, label.pool).ok()?;
        Some((label.txg, labels::places(image).ok()?, states))
    };
    let places = label_offsets(image.size());
    // If the device's size differs from the pool's record, only the front labels say so.
    let Some(before) = known().filter(|(_, found, _)| *found == places) else { return false };
    let parts = places.map(|at| [(at + BODY_AT, BODY_SIZE), (at + RING_AT, RING_SIZE)]);
    let mut is_scratched = false;
    for (at, len) in parts.into_iter().flatten() {
        if random.random_range(0..2) == 0 {
            let (mut good, mut noise) = (vec![0; len], vec![0; len]);
            image.read_at(at, &mut good).expect("it lies on the device");
            random.fill(&mut noise[..]);
            image.write_at(at, &noise).expect("memory takes everything");
            let is_known = known().as_ref() == Some(&before);
            if !is_known {
                image.write_at(at, &good).expect("memory takes everything");
            }
            is_scratched |= is_known;
        }
    }
    is_scratched
}

/// Makes reads fail in a third of the area between the labels, or in all.
pub(crate) fn refuse(device: &FaultDevice, random: &mut StdRng) {
    let is_whole = random.random_range(0..3) == 0;
    let end = DATA_START + usable_size(device.size());
    for at in (DATA_START..end).step_by(REFUSED as usize) {
        if is_whole || random.random_range(0..3) == 0 {
            let effect = Effect::Fail(Errno::IO.raw_os_error());
            let range = at..(at + REFUSED).min(end);
            device.inject(Fault { on: Operation::Read, range, skip: 0, times: u64::MAX, effect });
        }
    }
}
