//! What the layers above say about blocks: runs of sectors, the places of copies, and preferences.

use crate::{
    format::{
        pointer::Address,
        space::{Class, Span},
    },
    units::{ChunkId, VdevId},
};

/// A run of sectors of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// The chunk's number.
    pub chunk: ChunkId,
    /// The first sector, counted from the chunk's start.
    pub sector: u32,
    /// The number of sectors.
    pub sectors: u32,
}

pub(super) fn extent(chunk: ChunkId, span: Span) -> Extent {
    Extent { chunk, sector: span.start, sectors: span.len }
}

/// Where the copies of a new block go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    /// The addresses; the first `copies` are meant.
    pub addresses: [Address; 3],
    /// The number of copies, 1 to 3.
    pub copies: u8,
}

impl Allocation {
    /// The addresses of all copies.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses[..usize::from(self.copies)]
    }
}

/// The preferred place of a record, while there is room for data. None by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Placement {
    /// The number of the record's file, if a file is to lie on one device as a whole. Files with consecutive numbers
    /// take the devices in turn.
    pub file: Option<u64>,
    /// The devices to prefer.
    pub preferred: Preferred,
}

impl Placement {
    /// Nothing is wished for.
    pub const ANYWHERE: Placement = Placement { file: None, preferred: Preferred { numbers: 0, special: false } };
}

/// Some of a pool's devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Preferred {
    /// Devices by number, a bit for each.
    numbers: u64,
    /// All special devices.
    pub(super) special: bool,
}

impl Preferred {
    /// Devices with a number below this can be preferred by number.
    pub const NUMBERS: u32 = u64::BITS;

    /// Adds a device; a number beyond [`Preferred::NUMBERS`] is ignored.
    #[must_use]
    pub fn and(self, vdev: VdevId) -> Preferred {
        Preferred { numbers: self.numbers | 1u64.checked_shl(vdev.0).unwrap_or(0), ..self }
    }

    /// Adds all special devices.
    #[must_use]
    pub fn and_special(self) -> Preferred {
        Preferred { special: true, ..self }
    }

    /// Whether no device is preferred.
    pub fn is_none(self) -> bool {
        self == Preferred::default()
    }

    pub(super) fn has(self, vdev: VdevId) -> bool {
        self.numbers.checked_shr(vdev.0).unwrap_or(0) & 1 == 1
    }
}

/// The purpose of a block, which decides the preferred devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// A record of a file.
    Data,
    /// A record with a placement.
    Placed(Placement),
    /// A record small enough to lie with metadata on special devices, if there are any.
    SmallData,
    /// Nodes, and all other blocks.
    Metadata,
}

impl Purpose {
    /// The class of the block's chunk.
    pub fn class(self) -> Class {
        match self {
            Purpose::Data | Purpose::Placed(_) | Purpose::SmallData => Class::Data,
            Purpose::Metadata => Class::Metadata,
        }
    }
}

impl From<Class> for Purpose {
    fn from(class: Class) -> Purpose {
        match class {
            Class::Data => Purpose::Data,
            Class::Metadata => Purpose::Metadata,
        }
    }
}
