//! Administration of whole pools: create, import, change, export.
//!
//! Labels say which devices belong together; the uberblocks beside them say which state was committed last. The
//! functions here touch both, and each argues what a failure between its steps leaves.
//!
//! ```text
//! add       adding devices to an opened pool
//! assemble  devices assembled into vdevs: which members are complete
//! caches    adding and removing cache devices
//! clear     resuming after a device failure
//! columns   expanding a RAID-Z by a device, and widening its rows
//! committed the last committed state of an opened pool, opened beside it
//! create    labels on every device, then the first commit
//! expand    expanding into grown devices
//! members   attach, detach, replace, offline and online devices
//! repair    repair of lost labels and uberblock rings
//! new_vdev  vdevs to create, and the features that they need
//! open      from labels to the newest committed state, to an engine
//! outdated  vdevs that are older copies
//! pool      an opened pool: rename, export, destroy
//! out_of_use devices that stay out of use over an import
//! removal   removing vdevs
//! renumber  changing the GUID of a pool
//! rewind    rewinding to an older state
//! shapes    the shapes of vdevs, by a label
//! shrink    shrinking devices
//! spares    hot spares
//! spare_use manual operations on spares
//! split     one device of each mirror becomes a new pool
//! trim      TRIM of unused space
//! unacknowledged states that no caller was promised, on returning devices
//! watched   which devices return too many bad blocks
//! writing   writing labels
//! probe     recognizing foreign content before it is overwritten
//! ```

mod add;
mod assemble;
mod caches;
mod clear;
mod columns;
mod committed;
mod create;
mod expand;
mod members;
mod new_vdev;
mod open;
mod out_of_use;
mod outdated;
mod pool;
pub mod probe;
mod removal;
mod renumber;
mod repair;
mod rewind;
mod shapes;
mod shrink;
mod spare_use;
mod spares;
mod split;
mod trim;
mod unacknowledged;
mod watched;
mod writing;

#[cfg(test)]
mod columns_tests;
#[cfg(test)]
mod growing_tests;
#[cfg(test)]
mod members_tests;
#[cfg(test)]
mod out_of_use_tests;
#[cfg(test)]
mod removal_tests;
#[cfg(test)]
mod renumber_tests;
#[cfg(test)]
mod repair_tests;
#[cfg(test)]
mod shrink_tests;
#[cfg(test)]
mod spare_use_tests;
#[cfg(test)]
mod spares_tests;
#[cfg(test)]
mod split_tests;
#[cfg(test)]
mod stamped;
#[cfg(test)]
mod tests;

pub(crate) use self::open::{State, open_unread, read_state};
pub use self::{
    add::{Addition, check_rows},
    columns::Widening,
    committed::CommittedState,
    create::{CreateOptions, DEFAULT_ASHIFT, MIN_DEVICE, create, create_of, suitable_region},
    members::Reopen,
    new_vdev::{ClassedVdev, NewVdev},
    open::{OpenOptions, obstacle, open},
    pool::Pool,
    renumber::was_renumbered,
    rewind::{KeptState, SAFE_STATES, rewind, states},
    shrink::{ShrinkPlan, Wanted, end_at},
    spares::{Spare, SpareChange},
    split::Leaving,
};
