//! An opened pool: the state shared by the parts of the engine.
//!
//! The engine owns the devices, the cache, the catalogue and the open trees. Its gate holds the number of the open
//! transaction group. A change holds the gate shared for its duration; quiescing closes the gate for an instant.
//!
//! ```text
//! state       what the parts share, and a pool held still
//! parameters  what an engine is opened with
//! opening     from parameters to an engine
//! commit      on which thread commits run, and who waits
//! admission   how much may be dirty, and whether there is room
//! due         space that is due to be freed, before a write is refused
//! reclaimer   the layer that frees it
//! reading     blocks and nodes, through the cache
//! caching     what caches keep of a tree
//! pinned      the state of all trees at some time
//! early       records that are stored before sync
//! memory      what the caches hold and have answered
//! ```

mod admission;
pub(super) mod caching;
mod commit;
mod due;
mod early;
mod memory;
mod opening;
pub(super) mod parameters;
pub(super) mod pinned;
mod reading;
pub(super) mod reclaimer;
pub(super) mod state;

pub(crate) use self::parameters::{REPEATS, state_of};
pub use self::{
    admission::SETTLING_COMMITS,
    caching::{Caching, Redundancy},
    memory::CacheFigures,
    parameters::{Ancestry, CATALOGUE, DEFAULT_CACHE, DEFAULT_DIRTY, Found, Opening, Settings},
    pinned::Pinned,
    reclaimer::{Due, Reclaimer},
    state::{Engine, Still},
};
