//! Space: which sectors of the devices are free.
//!
//! Devices are cut into *regions* of one size. On each lies a *chunk*: the unit of bookkeeping, of class (data or
//! metadata, a preference and never a wall) and of placement. A block's address names a chunk and a sector in it.
//!
//! Below lie only `format` and the raw devices, through [`SpaceIo`]. Above, `block` allocates, the layers that drop
//! blocks free them, and the transaction groups call [`Space::sync`] last of all and [`Space::committed`] after the
//! uberblock.
//!
//! # Invariants of the space layer
//!
//! 1. No block of the last [`SAFE_STATES`] committed states is overwritten: space freed by transaction group N is
//!    allocated again only after N and [`DEFERRED_GROUPS`] more groups were committed.
//! 2. The account stored for group N matches N's tree exactly, although allocations for N+1 go on meanwhile: every
//!    change is filed under its own group.
//! 3. Data leaves whole empty chunks to metadata, so that a full pool can still be emptied. Metadata leaves some of
//!    these to the space layer itself, so that a commit that frees can always be stored.
//! 4. Where a device writes several sectors together, its *unit*, the allocator allocates whole units: no two blocks
//!    share a unit.
//! 5. A device's class for metadata is a preference and never a wall: no block is refused that would find room with all
//!    devices in one class. The space of a log device does not count as the pool's, and only the log lies there.
//! 6. Opening reads the chunk table, the log and the maps of packed chunks, never a checkpoint. So its cost depends on
//!    the number of regions and of packed pieces, and never on the amount of data in the pool.
//!
//! # How it is stored
//!
//! Each chunk has a *checkpoint* of its free sectors, and one *log* records the later allocations and frees of each
//! group. The space layer's own blocks are allocated like all others: first in memory, then counted into the log, then
//! written. A checkpoint written in group N describes the end of N-1, so that writing it does not change its content. A
//! crash before the uberblock leaves the former root, whose table, checkpoints and log are not yet reused by 1.
//!
//! # The files of the space layer
//!
//! ```text
//! state      the space of a pool in memory  places     runs of sectors, places and purposes of blocks
//! layout     devices, chunks, addresses       chunk      one chunk: map, counts, changes by group; its stored side
//! allocator  which chunk a block goes to      free_map   free sectors of a chunk, next-fit
//! repair     repair of its own blocks
//! sync       a group's changes to disk        span_set   sets of sectors
//! open       and back                         wheel      turns among devices
//! hold       keeping an older state whole     seen       checked reads: the token of a read without a lock
//! moving     regions are emptied: their chunks move elsewhere
//! balance    which chunks to move so that vdevs are equally full
//! holes      which chunks to pack into fewer
//! packing    chunks without a region: their blocks lie in other chunks
//! sitting    copies of blocks on archives: their second places
//! history    how long frees are deferred
//! ```

mod allocator;
mod balance;
mod chunk;
mod free_map;
mod history;
mod hold;
mod holes;
mod io;
mod layout;
mod moving;
mod open;
mod packing;
mod places;
mod repair;
mod seen;
mod sitting;
mod span_set;
mod state;
mod sync;
mod totals;
mod trim;
mod wheel;

#[cfg(test)]
mod class_tests;
#[cfg(test)]
mod tests;

pub use self::{
    balance::{Balanced, Batch, Imbalance},
    history::{DEFERRED_GROUPS, SAFE_STATES},
    hold::Hold,
    holes::{Dense, Fragmentation},
    io::SpaceIo,
    layout::{VdevShape, region_size},
    moving::{
        plan::MovingPlan,
        regions::{Packs, Regions, Targets},
    },
    packing::Hosted,
    places::{Allocation, Extent, Placement, Preferred, Purpose},
    repair::{OwnCursor, OwnExamined},
    seen::Seen,
    sitting::{Entered, Sitting, Tier},
    state::{OwnBlocks, Space},
    totals::{SpaceTotals, VdevTotals},
    trim::{TrimCursor, TrimWhat, Trimmed},
};
pub use crate::format::space::{Class, SpaceRoot, Span};
