//! The room needed to empty regions.

use std::{collections::BTreeMap, sync::Arc};

use super::regions::{Packs, Regions, Targets};
use crate::{
    space::{chunk::Chunk, state::Space},
    units::VdevId,
};

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
        for vdev in layout.vdevs.iter().filter(|vdev| vdev.ground.counts()) {
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
