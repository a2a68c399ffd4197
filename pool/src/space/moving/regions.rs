//! Regions to be emptied, the vdevs that receive their chunks, and the room needed.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
};

use crate::{
    space::{
        Space,
        chunk::Chunk,
        layout::{Ground, Vdev},
    },
    units::VdevId,
};

/// Regions emptied together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Regions {
    /// All regions of a vdev, including later ones.
    Vdev(VdevId),
    /// Consecutive regions of a vdev.
    Range(VdevId, Range<u32>),
    /// A set of regions of any vdevs.
    These(BTreeSet<(VdevId, u32)>),
}

impl Regions {
    /// Whether a region of a vdev belongs to the set.
    pub fn contains(&self, vdev: VdevId, region: u32) -> bool {
        match self {
            Regions::Vdev(all) => *all == vdev,
            Regions::Range(of, range) => *of == vdev && range.contains(&region),
            Regions::These(these) => these.contains(&(vdev, region)),
        }
    }

    pub(in crate::space) fn has(&self, chunk: &Chunk) -> bool {
        let (vdev, region) = chunk.seat();
        self.contains(vdev, region)
    }

    /// The vdev with its regions of this set closed or opened.
    pub(super) fn closed_on(&self, vdev: &Vdev, is_closed: bool) -> Vdev {
        if let Regions::Vdev(all) = self {
            return vdev.opened(if *all == vdev.id { !is_closed } else { !vdev.closed });
        }
        let mut closed = BTreeSet::clone(&vdev.closed_regions);
        for region in vdev.chunks.iter().map(|chunk| chunk.region()).filter(|region| self.contains(vdev.id, *region)) {
            match is_closed {
                true => closed.insert(region),
                false => closed.remove(&region),
            };
        }
        vdev.with_closed(closed)
    }
}

/// The vdevs that may receive the emptied chunks, as far as suitable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Targets {
    /// To any vdev, the emptiest first.
    Anywhere,
    /// A set of vdevs.
    Vdevs(BTreeSet<VdevId>),
}

impl Targets {
    pub(in crate::space) fn contains(&self, vdev: VdevId) -> bool {
        match self {
            Targets::Anywhere => true,
            Targets::Vdevs(vdevs) => vdevs.contains(&vdev),
        }
    }
}

/// Whether the emptied chunks are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packs {
    /// Not packed: each needs an empty chunk of its unit.
    Never,
    /// All packed, if there are too few empty chunks of their unit.
    IfNeeded,
    /// All packed, into fewer chunks than before, with chunks borrowed from the reserve for metadata.
    Always,
}

/// The room needed to empty regions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MovingPlan {
    /// Allocated bytes to be copied.
    pub bytes: u64,
    /// How many empty regions are needed elsewhere without packing.
    pub needed: u32,
    /// How many suitable empty regions there are, beside the reserve for metadata.
    pub available: u32,
    /// About how many empty regions are needed with packing.
    pub packed: u32,
    /// How many empty regions there are of any unit, beside the reserve for metadata.
    pub spare: u32,
    /// How many empty regions there are of any unit, beside the last resort of the space layer.
    pub lent: u32,
    /// The size of a region, in bytes.
    pub region: u64,
}

impl MovingPlan {
    /// Whether there is room, packed or not.
    pub fn fits(&self) -> bool {
        self.fits_as(Packs::IfNeeded)
    }

    /// Whether there is room if chunks are packed so.
    pub fn fits_as(&self, packs: Packs) -> bool {
        match packs {
            Packs::Never => self.fits_whole(),
            Packs::IfNeeded => self.fits_whole() || self.packed <= self.spare,
            Packs::Always => self.packed <= self.lent,
        }
    }

    /// Whether there is room for each chunk as a whole.
    pub fn fits_whole(&self) -> bool {
        self.needed <= self.available
    }
}

impl Space {
    /// The regions of a vdev from the start, as few as hold about `bytes` allocated bytes; `None` if nothing is
    /// allocated behind them.
    pub fn first_regions(&self, vdev: VdevId, bytes: u64) -> Option<Regions> {
        let layout = self.layout.load();
        let mut taken: Vec<(u32, u64)> = layout
            .chunks_in(&Regions::Vdev(vdev))
            .filter(|chunk| chunk.allocated() > 0)
            .map(|chunk| (chunk.region(), u64::from(chunk.allocated()) * u64::from(layout.sector)))
            .collect();
        taken.sort_unstable();
        let mut sum = 0;
        let last = taken.iter().position(|(_, own)| {
            sum += own;
            sum >= bytes
        })?;
        (last + 1 < taken.len()).then(|| Regions::Range(vdev, 0..taken[last].0 + 1))
    }

    /// The room needed to empty regions, closed or not, with these target vdevs.
    pub fn moving_plan(&self, regions: &Regions, to: &Targets) -> MovingPlan {
        let layout = self.layout.load();
        let mut plan = MovingPlan { region: layout.region, ..MovingPlan::default() };
        // Chunks can only move to empty chunks of the same unit.
        let mut slack: BTreeMap<u32, i64> = BTreeMap::new();
        for chunk in layout.chunks_in(regions) {
            let allocated = chunk.allocated();
            plan.bytes += u64::from(allocated) * u64::from(layout.sector);
            plan.needed += u32::from(allocated > 0);
            *slack.entry(chunk.unit).or_default() -= i64::from(allocated > 0);
        }
        let (mut spare, mut others, mut suits) = (0, 0, 0);
        for vdev in layout.vdevs.iter().filter(|vdev| vdev.ground != Ground::Log) {
            let is_other = |chunk: &&Arc<Chunk>| !vdev.is_closed(chunk.region()) && !regions.has(chunk);
            for chunk in vdev.chunks.iter().filter(is_other) {
                others += 1;
                spare += u32::from(chunk.is_spare());
                suits += u32::from(chunk.is_spare() && to.contains(vdev.id));
                if let Some(slack) = slack.get_mut(&chunk.unit).filter(|_| to.contains(vdev.id) && chunk.is_spare()) {
                    *slack += 1;
                }
            }
        }
        let suitable = i64::from(plan.needed) + slack.into_values().min().unwrap_or(0);
        let beside = spare.saturating_sub(layout.reserve_of(others));
        plan.available = u32::try_from(suitable.max(0)).unwrap_or(u32::MAX).min(beside);
        plan.packed = u32::try_from(plan.bytes.div_ceil(layout.region)).unwrap_or(u32::MAX);
        plan.spare = suits.min(beside);
        plan.lent = suits.min(spare.saturating_sub(layout.last_resort()));
        plan
    }
}
