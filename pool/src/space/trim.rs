//! Telling the devices which space nobody needs.
//!
//! What is *free* (see [`super::chunk`]) is referred to neither by the newest state nor by one of those that going back
//! always finds, nor by one that is held: what a group frees stays *deferred* until then. A chunk's free space is gone
//! through with the chunk locked, so nobody allocates in it meanwhile, and what was allocated there has been taken out
//! before. Whatever becomes of the content of free space is never read: if power fails in between, some of it is gone, and
//! nothing knows or has to know. States older than those that are kept on purpose lose what they could still have had.
//!
//! What has become free since the devices were told is noted in memory, so it can be told without going through all the
//! rest: see [`chunk::trim`](super::chunk). What a group has freed and is not free yet when the pool is closed is not known
//! afterwards; going through everything finds it.
//!
//! Chunks that are being allocated in are left alone: what is free there is used next. So are all that are not open: to those
//! that are set aside others are copied, or states that one may go back to have there what lies elsewhere by now: see
//! [`super::moving`].

use super::{Space, chunk::Chunk, io::Disk, io::SpaceIo};
use crate::{error::Result, format::space::Span, units::VdevId};

/// What devices are told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrimWhat {
    /// All that is free on a vdev.
    Vdev(VdevId),
    /// What has become free on any vdev since the devices were told.
    Fresh,
}

/// Where to go on: the number of a chunk, and a sector in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrimCursor {
    chunk: usize,
    sector: u32,
}

/// What a step has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trimmed {
    /// Bytes that the devices were told of.
    pub bytes: u64,
    /// Where to go on; none at the end.
    pub next: Option<TrimCursor>,
}

impl Space {
    /// Hands free spans of at least `least` bytes to `discard`, as a device with offset and length in bytes, from `from` on
    /// until about `budget` bytes were handed out: one span in any case.
    ///
    /// # Errors
    /// That of `discard`, or if it cannot be read what is free in a chunk.
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
            TrimWhat::Vdev(vdev) => chunk.vdev() == vdev,
            TrimWhat::Fresh => true,
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
                TrimWhat::Vdev(_) => {
                    let start = if at == from.chunk { from.sector } else { 0 };
                    chunk.for_each_free(start, &disk, &mut visit)?
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
