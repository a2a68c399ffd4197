//! TRIM: telling the devices which space is unused. Initialization, which writes a pattern there, is the same walk.
//!
//! *Free* space (see [`super::chunk`]) is referred to neither by the newest state, nor by a state that a rewind always
//! finds, nor by a held one: space freed by a group stays *deferred* until then. The job goes through a chunk's free
//! space with the chunk locked, so nothing is allocated there meanwhile, and earlier allocations are no longer in the
//! map. The content of free space is never read. If power fails in between, some of it is gone, and nothing depends on
//! it. States older than the kept ones lose content that a rewind might still have found.
//!
//! Space freed since the last TRIM is noted in memory, so TRIM finds it without a pass over everything: see
//! [`chunk::trim`](super::chunk). The note omits space still deferred when the pool was closed; a full TRIM finds it.
//!
//! Active chunks are left alone, because their free space is used next. So are chunks that are not open: set-aside
//! chunks receive copies, or states that a rewind can reach refer to data there that has moved since: see
//! [`super::moving`].

use super::{
    chunk::Chunk,
    io::{Disk, SpaceIo},
    state::Space,
};
use crate::{error::Result, format::space::Span, units::VdevId};

/// The scope of a TRIM or an initialization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrimWhat {
    /// All free space of a vdev.
    Vdev(VdevId),
    /// All free space of a vdev, in pieces of at most so many bytes.
    Pieces(VdevId, u64),
    /// Space freed on any vdev since the devices were told.
    Fresh,
}

/// The place to continue: the number of a chunk, and a sector there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrimCursor {
    chunk: usize,
    sector: u32,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trimmed {
    /// The trimmed space, in bytes.
    pub bytes: u64,
    /// Where to go on; none at the end.
    pub next: Option<TrimCursor>,
}

impl Space {
    /// Passes free spans of at least `least` bytes to `discard`, as a device with offset and length in bytes, from
    /// `from` on. Stops after about `budget` bytes, and at least one span.
    ///
    /// # Errors
    /// Those of `discard`, and of reading a chunk's free map.
    pub fn trim(
        &self,
        io: &dyn SpaceIo,
        (what, from): (TrimWhat, TrimCursor),
        (least, budget): (u64, u64),
        discard: &dyn Fn(VdevId, u64, u64) -> Result<()>,
    ) -> Result<Trimmed> {
        let layout = self.layout.load();
        let disk = Disk { layout: &layout, io };
        let sector = u64::from(layout.sector);
        let least = u32::try_from(least.div_ceil(sector)).unwrap_or(u32::MAX);
        let mut trimmed = Trimmed::default();
        let is_meant = |chunk: &Chunk| match what {
            TrimWhat::Vdev(vdev) | TrimWhat::Pieces(vdev, _) => chunk.vdev() == vdev,
            TrimWhat::Fresh => true,
        };
        let most = match what {
            TrimWhat::Pieces(_, bytes) => u32::try_from(bytes / sector).unwrap_or(u32::MAX),
            _ => u32::MAX,
        };
        for (at, chunk) in layout.chunks.iter().enumerate().skip(from.chunk) {
            if chunk.is_packed() || !is_meant(chunk) {
                continue;
            }
            let mut visit = |span: Span| {
                let len = u64::from(span.len) * sector;
                let place = layout.place(chunk, span.start);
                if span.len < least || layout.is_gone(place.vdev, chunk.region()) {
                    return Ok(true);
                }
                discard(place.vdev, place.offset, len)?;
                trimmed.bytes += len;
                Ok(trimmed.bytes < budget)
            };
            let next = match what {
                TrimWhat::Vdev(_) | TrimWhat::Pieces(..) => {
                    let start = if at == from.chunk { from.sector } else { 0 };
                    chunk.for_each_free((start, most), &disk, &mut visit)?
                }
                TrimWhat::Fresh => (!chunk.for_each_fresh(least, &disk, &mut visit)?).then_some(0),
            };
            if let Some(sector) = next {
                trimmed.next = Some(TrimCursor { chunk: at, sector });
                break;
            }
        }
        Ok(trimmed)
    }

    /// How many chunks of a vdev lie before a cursor, and how many there are.
    pub fn trim_progress(&self, vdev: VdevId, cursor: TrimCursor) -> (u64, u64) {
        let layout = self.layout.load();
        let own = layout.chunks.iter().enumerate().filter(|(_, chunk)| !chunk.is_packed() && chunk.vdev() == vdev);
        own.fold((0, 0), |(done, total), (at, _)| (done + u64::from(at < cursor.chunk), total + 1))
    }
}
