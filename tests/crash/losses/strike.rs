//! What may befall devices, which of them a pool can do without, and what of it was seen.

use std::{collections::BTreeMap, fmt, sync::Arc};

use pool::{
    device::{Device, Effect, Fault, FaultDevice, MemoryDevice, Operation},
    format::{
        label::{DATA_START, Label, usable_size},
        vdev_config::{MemberConfig, VdevTree},
    },
    units::Guid,
    vdev::labels,
};
use rand::{Rng, rngs::StdRng};
use rustix::io::Errno;

/// So many bytes rot at a place.
const ROTTEN: u64 = 4096;
/// Parts of a device that refuse to be read.
const REFUSED: u64 = 1 << 20;

/// What has become of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blow {
    /// It is gone for good.
    Lost,
    /// It is away for one import, and comes back as it was.
    Stale,
    /// Some of what lies between its labels is something else, or all of it.
    Rotten,
    /// Some of what lies between its labels cannot be read, or nothing of it, until somebody sees to it.
    Erring,
}

pub(super) const BLOWS: [Blow; 4] = [Blow::Lost, Blow::Stale, Blow::Rotten, Blow::Erring];

impl Blow {
    /// Whether the device is not there at the first import.
    pub(super) fn is_away(self) -> bool {
        matches!(self, Blow::Lost | Blow::Stale)
    }
}

/// Which devices are struck, by the numbers of their images.
pub(super) type Struck = BTreeMap<usize, Blow>;

/// What of what was struck was seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Points at which as many devices were struck as may be.
    pub(crate) bereft: u64,
    /// Devices beside the vdevs that were struck at these, and spares that stood in after it.
    pub(crate) beside: u64,
    pub(crate) stood_in: u64,
    /// Devices that were struck at these, by their blows.
    pub(crate) blows: [u64; 4],
    /// Points at which more were struck: the pool opened, or was refused.
    pub(crate) opened: u64,
    pub(crate) refused: u64,
    /// Points at which one block was lost, and everything else was read.
    pub(crate) blocks: u64,
}

impl Tally {
    /// Adds what others have counted.
    pub(crate) fn add(&mut self, other: Tally) {
        self.bereft += other.bereft;
        self.beside += other.beside;
        self.stood_in += other.stood_in;
        self.opened += other.opened;
        self.refused += other.refused;
        self.blocks += other.blocks;
        self.blows.iter_mut().zip(other.blows).for_each(|(sum, more)| *sum += more);
    }

    /// What of all this was never seen.
    pub(crate) fn missed(&self) -> Vec<&'static str> {
        let seen = [
            ("bereft points", self.bereft),
            ("losses beside the vdevs", self.beside),
            ("spares that stood in", self.stood_in),
            ("lost devices", self.blows[Blow::Lost as usize]),
            ("stale devices", self.blows[Blow::Stale as usize]),
            ("rotten devices", self.blows[Blow::Rotten as usize]),
            ("erring devices", self.blows[Blow::Erring as usize]),
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
        write!(f, ", {} of them spares or caches; {} spares stood in), ", self.beside, self.stood_in)?;
        write!(f, "{} with one loss too many ({} refused), ", self.opened + self.refused, self.refused)?;
        write!(f, "{} with one block lost", self.blocks)
    }
}

/// A vdev as a label describes it: which columns are needed, and the images of whole devices with their columns.
pub(super) struct Holders {
    tree: VdevTree,
    pub(super) whole: Vec<(usize, usize)>,
}

impl Holders {
    pub(super) fn suffice_without(&self, struck: &Struck) -> bool {
        let left = self.whole.iter().filter(|(image, _)| !struck.contains_key(image));
        match self.tree {
            VdevTree::Leaf(_) => left.count() > 0,
            _ => self.tree.suffice(left.map(|(_, column)| *column)),
        }
    }
}

/// The labels of these images, each with the number of its own, and the newest of them.
fn labels_of(images: &[Arc<MemoryDevice>], counts: impl Fn(usize) -> bool) -> Option<(Vec<(usize, Label)>, Label)> {
    let labelled = images.iter().enumerate().filter(|(at, _)| counts(*at));
    let found = labelled.filter_map(|(at, image)| Some((at, labels::read_label(&**image).ok().flatten()?)));
    let found: Vec<(usize, Label)> = found.collect();
    let newer =
        |newest: Label, (_, label): &(usize, Label)| if label.supersedes(&newest) { label.clone() } else { newest };
    let newest = found.iter().fold(found.first()?.1.clone(), newer);
    Some((found, newest))
}

/// The devices that stand beside the vdevs, by the newest label of these images: spares that stand by, and cache devices.
pub(super) fn beside(images: &[Arc<MemoryDevice>]) -> Vec<usize> {
    let Some((found, newest)) = labels_of(images, |_| true) else { return Vec::new() };
    let is_member =
        |device: Guid| newest.vdevs.iter().flat_map(|vdev| vdev.tree.leaves()).any(|leaf| leaf.guid == device);
    let stands_by = |device: Guid| newest.is_cache(device) || newest.is_spare(device) && !is_member(device);
    found.iter().filter(|(_, label)| stands_by(label.device)).map(|(at, _)| *at).collect()
}

/// What the newest label of these images says of each vdev.
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
        Holders { tree: tree.clone(), whole }
    };
    newest.vdevs.iter().map(|config| holder(&config.tree)).collect()
}

/// Has a third of what lies between the labels rot, or all of it.
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

/// Has a third of what lies between the labels refuse to be read, or all of it.
pub(super) fn refuse(device: &FaultDevice, random: &mut StdRng) {
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
