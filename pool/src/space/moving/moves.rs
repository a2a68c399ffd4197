//! The chunks of the regions being emptied, each with its destination.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::regions::{Packs, Targets};
use crate::{
    space::{chunk::Chunk, packing::packer::Packer},
    units::ChunkId,
};

/// The destination of a chunk's allocated sectors.
#[derive(Debug)]
pub(super) enum Target {
    /// The same sectors of the region of an empty chunk of the same unit: the twin, to change places with.
    Twin(Arc<Chunk>),
    /// Any room in empty chunks: the chunk will be [packed](crate::space::packing).
    Hosts,
}

impl Target {
    /// The chunk set aside as twin.
    pub(super) fn twin(&self) -> Option<&Arc<Chunk>> {
        match self {
            Target::Twin(twin) => Some(twin),
            Target::Hosts => None,
        }
    }
}

/// The chunks of the regions being emptied, and their destinations.
#[derive(Debug)]
pub(in crate::space) struct Moves {
    pub(super) targets: HashMap<ChunkId, Target>,
    /// The packer for chunks to be packed.
    pub(super) packer: Packer,
    /// Whether the chunks have changed places.
    pub(super) has_switched: AtomicBool,
    /// Whether a block that should have been copied was not.
    pub(super) is_incomplete: AtomicBool,
}

impl Moves {
    pub(super) fn new(targets: HashMap<ChunkId, Target>, to: &Targets, packs: Packs) -> Moves {
        let packed = targets.iter().filter(|(_, target)| matches!(target, Target::Hosts)).map(|(id, _)| *id);
        let packer = Packer::new(packed.collect(), to.clone(), packs);
        let (has_switched, is_incomplete) = (AtomicBool::new(false), AtomicBool::new(false));
        Moves { targets, packer, has_switched, is_incomplete }
    }

    /// The chunks with twins.
    pub(super) fn twins(&self) -> impl Iterator<Item = (&ChunkId, &Arc<Chunk>)> {
        self.targets.iter().filter_map(|(id, target)| Some((id, target.twin()?)))
    }

    /// The packer, while blocks are copied.
    pub(in crate::space) fn packs(&self) -> Option<&Packer> {
        Some(&self.packer).filter(|packer| !packer.is_idle() && !self.has_switched())
    }

    pub(super) fn has_switched(&self) -> bool {
        self.has_switched.load(Ordering::Acquire)
    }
}
