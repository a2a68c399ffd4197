//! Regions to be emptied, and the vdevs that receive their chunks.

use std::{collections::BTreeSet, ops::Range};

use crate::{
    space::{chunk::Chunk, layout::Vdev},
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
    /// To these vdevs only.
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
