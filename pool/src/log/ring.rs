//! The place of the next frame.
//!
//! Positions count sectors and never wrap; the place in the area is the position modulo its size. A frame lies in one
//! piece: if it does not fit before the area's end, it begins at the start, and the rest of the area is skipped. In
//! chunks with units of several sectors, a frame takes whole units: an acknowledged frame is never rewritten together
//! with the next.

use crate::{format::intent::LogHead, format::pointer::Address, units::Txg};

/// The ring of frames, and the part still needed.
#[derive(Debug)]
pub(crate) struct Ring {
    area: Address,
    sectors: u32,
    /// Frames begin at multiples of so many sectors.
    unit: u32,
    /// Where the next frame begins.
    next: u64,
    /// The number of the next frame.
    sequence: u64,
    /// Frames before this position are no longer needed.
    needed: u64,
    /// Where `needed` will be once a group is committed.
    marked: Option<(Txg, u64)>,
    /// Whether the last uberblock names this ring as this import left it: otherwise an import would not find its
    /// frames.
    named: bool,
}

/// The state of the log when a group is frozen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    position: u64,
    sequence: u64,
}

/// Where a frame is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The address of the first sector.
    pub(crate) address: Address,
    /// The frame's number.
    pub(crate) sequence: u64,
}

impl Ring {
    /// The ring made by an earlier import, or by the commit under way. No frame may be written before a commit.
    ///
    /// The ring consists of whole allocation units of its chunk: a unit holds bytes of one frame only.
    pub(crate) fn new(area: Address, sectors: u32, unit: u32) -> Ring {
        Ring::from(1, area, sectors, unit)
    }

    /// As [`Ring::new`], for a ring that replaces another one whose next frame would have had this number.
    pub(crate) fn from(sequence: u64, area: Address, sectors: u32, unit: u32) -> Ring {
        assert!(sectors > 0 && sectors.is_multiple_of(unit));
        Ring { area, sectors, unit, next: 0, sequence, needed: 0, marked: None, named: false }
    }

    /// The ring named by an uberblock; `None` if it does not consist of whole units.
    pub(crate) fn found(head: &LogHead, unit: u32) -> Option<Ring> {
        is_whole(head, unit).then(|| Ring::new(head.area, head.sectors, unit))
    }

    /// Its first sector and its size in sectors.
    pub(crate) fn area(&self) -> (Address, u32) {
        (self.area, self.sectors)
    }

    /// The number of the next frame.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether frames written now would be found after a crash.
    pub(crate) fn is_named(&self) -> bool {
        self.named
    }

    /// Whether more than half of the ring is needed.
    pub(crate) fn is_half_full(&self) -> bool {
        (self.next - self.needed) * 2 > u64::from(self.sectors)
    }

    /// A place for a frame of so many sectors; `None` if it would overwrite needed frames.
    pub(crate) fn reserve(&mut self, sectors: u64) -> Option<Place> {
        let size = u64::from(self.sectors);
        let sectors = sectors.next_multiple_of(self.unit.into());
        let at = self.next % size;
        let start = if at + sectors > size { self.next + size - at } else { self.next };
        if sectors > size || start + sectors - self.needed > size {
            return None;
        }
        let place = Place { address: self.address(start), sequence: self.sequence };
        self.next = start + sectors;
        self.sequence += 1;
        Some(place)
    }

    /// Where the log stands. To be called while the gate is closed.
    pub(crate) fn standing(&self) -> Standing {
        Standing { position: self.next, sequence: self.sequence }
    }

    /// The log's description in the uberblock of `txg`, whose group was frozen with this standing.
    pub(crate) fn head(&mut self, txg: Txg, standing: Standing) -> LogHead {
        self.marked = Some((txg, standing.position));
        let position = (standing.position % u64::from(self.sectors)) as u32;
        LogHead { area: self.area, sectors: self.sectors, position, sequence: standing.sequence }
    }

    /// The uberblock of `txg` is stable.
    pub(crate) fn committed(&mut self, txg: Txg) {
        if let Some((_, position)) = self.marked.take_if(|(marked, _)| *marked == txg) {
            self.needed = position;
            self.named = true;
        }
    }

    fn address(&self, position: u64) -> Address {
        let sector = (position % u64::from(self.sectors)) as u32;
        Address { chunk: self.area.chunk, sector: self.area.sector + sector }
    }
}

/// Whether a log begins and ends at units of so many sectors, and its next frame begins at a unit.
pub(super) fn is_whole(head: &LogHead, unit: u32) -> bool {
    head.sectors > 0 && [head.area.sector, head.sectors, head.position].into_iter().all(|at| at.is_multiple_of(unit))
}

impl Default for Standing {
    /// For a log made by the commit itself.
    fn default() -> Standing {
        Standing { position: 0, sequence: 1 }
    }
}
