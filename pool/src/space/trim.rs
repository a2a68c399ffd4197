//! Telling the devices which space nobody needs.
//!
//! What is *free* (see [`super::chunk`]) is referred to neither by the newest state nor by one of those that going back
//! always finds, nor by one that is held: what a group frees stays *deferred* until then. A chunk's free space is gone
//! through with the chunk locked, so nobody allocates in it meanwhile, and what was allocated there has been taken out
//! before. Whatever becomes of the content of free space is never read: if power fails in between, some of it is gone, and
//! nothing knows or has to know. States older than those that are kept on purpose lose what they could still have had.
//!
//! Chunks that are being allocated in are left alone: what is free there is used next. So are all that are not open: to those
//! that are set aside others are copied, or states that one may go back to have there what lies elsewhere by now: see
//! [`super::moving`].

use super::{Space, io::Disk, io::SpaceIo};
use crate::{error::Result, units::VdevId};

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
        from: TrimCursor,
        (least, budget): (u64, u64),
        discard: &dyn Fn(VdevId, u64, u64) -> Result<()>,
    ) -> Result<Trimmed> {
        let layout = self.layout.load();
        let disk = Disk { layout: &layout, io };
        let sector = u64::from(layout.sector);
        let mut trimmed = Trimmed::default();
        for (at, chunk) in layout.chunks.iter().enumerate().skip(from.chunk) {
            if chunk.is_packed() {
                continue;
            }
            let start = if at == from.chunk { from.sector } else { 0 };
            let next = chunk.for_each_free(start, &disk, &mut |span| {
                let len = u64::from(span.len) * sector;
                if len < least {
                    return Ok(true);
                }
                let place = layout.place(chunk, span.start);
                if layout.is_gone(place.vdev, chunk.region()) {
                    return Ok(true);
                }
                discard(place.vdev, place.offset, len)?;
                trimmed.bytes += len;
                Ok(trimmed.bytes < budget)
            })?;
            if let Some(sector) = next {
                trimmed.next = Some(TrimCursor { chunk: at, sector });
                break;
            }
        }
        Ok(trimmed)
    }
}
