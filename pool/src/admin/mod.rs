//! A pool as a whole: made, found, opened, closed.
//!
//! Labels say which devices belong together; the uberblocks beside them say which state was committed last. What is done
//! here touches both, and each function argues what a failure between its steps leaves.
//!
//! ```text
//! add       new devices for an opened pool
//! assemble  devices put together to vdevs: which of a mirror's are complete
//! caches    cache devices come and go
//! clear     going on after a device has failed
//! columns   a RAID-Z gets a device more, and wider rows
//! committed the last committed state of an opened pool, beside it
//! create    labels on every device, then the first commit
//! expand    taking over what devices have grown
//! members   devices of mirrors come, go, and come back
//! mend      labels and rings that devices in use have lost are written there again
//! open      from labels to the newest committed state, to an engine
//! outdated  vdevs that are older copies of those that were there
//! pool      an opened pool: rename, export, destroy
//! put_out   devices that stay out of use over an import
//! removal   vdevs leave a pool
//! renumber  another number for a pool
//! rewind    going back to an older state
//! shrink    devices that are made smaller
//! spares    devices that stand by, and step in for one that has failed
//! standins  what an operator does about spares by hand
//! split     a device of each mirror leaves, to be a pool of their own
//! trim      telling the devices which space nobody needs
//! untold    states that nobody was told of, on devices that come back
//! probe     recognising what else a device may hold, before it is overwritten
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
mod mend;
mod open;
mod outdated;
mod pool;
pub mod probe;
mod put_out;
mod removal;
mod renumber;
mod rewind;
mod shrink;
mod spares;
mod split;
mod standins;
mod trim;
mod untold;

#[cfg(test)]
mod columns_tests;
#[cfg(test)]
mod growing_tests;
#[cfg(test)]
mod members_tests;
#[cfg(test)]
mod mend_tests;
#[cfg(test)]
mod put_out_tests;
#[cfg(test)]
mod removal_tests;
#[cfg(test)]
mod renumber_tests;
#[cfg(test)]
mod shrink_tests;
#[cfg(test)]
mod spares_tests;
#[cfg(test)]
mod split_tests;
#[cfg(test)]
mod stamped;
#[cfg(test)]
mod standins_tests;
#[cfg(test)]
mod tests;

pub(crate) use self::open::{State, open_unread, read_state};
pub use self::{
    add::Addition,
    columns::Widening,
    committed::CommittedState,
    create::{CreateOptions, MIN_DEVICE, create, create_of, suitable_region},
    members::Reopen,
    open::{OpenOptions, obstacle, open},
    pool::{ClassedVdev, NewVdev, Pool},
    renumber::was_renumbered,
    rewind::{KeptState, SAFE_STATES, rewind, states},
    shrink::{ShrinkPlan, Wanted, end_at},
    spares::{Spare, SpareChange},
    split::Leaving,
};
