//! Executing requests on a pool that this process owns.
//!
//! ```text
//! dispatch    a request to its code, by subject                no_pools    the executor of a machine without pools
//! open_pool   the pool: engine, datasets, mounts; opening and closing    devices     this machine's devices
//! pool, dataset, property, accounts, snapshot, stream, files, allow       one family of requests each
//! delegated   permission of users other than the pool's owner           attempt     action and object of a request
//! mounts      which datasets are mounted where, and keeping mounts in step with changes
//! background  freeing destroyed data               scrub       verifying and repairing
//! job         progress, cancelling, the stream beside a request       parts       answers sent in parts
//! suspended   resuming after a device failure, or giving up
//! check       verifying a pool; if in use, its last committed state
//! inspect     structures of a pool that no process has open
//! activity    background activity                  events      events of the pool    journal   their log
//! losses      data lost if some devices fail       passes      trim and initialization of free space
//! jobs        the thread in which jobs take turns       orders      starting, pausing and stopping jobs, waiting
//! rebalance   spreading data evenly over vdevs
//! removal     removing a vdev from the pool        defragment  consolidating fragmented free space
//! growth      added space of devices               resize      shrinking devices
//! spares      adding and showing spares            automatic   spares stepping in, added space being used
//! rewind      choosing an older state to go back to     memory      default sizes of the cache
//! foreseen    dry runs of changes of properties, names and trees
//! found       pools on the devices of this machine
//! images      files found at the paths of devices       standing    conditions of the pool
//! vital       threads essential for the pool       patience    waiting for commands that read
//! refusal     errors of the layers below as failures     add      adding vdevs, spares and cache devices
//! vdev_records  the devices of a pool as records
//! ```
//!
//! Answers are data without formatting. A request that changes the pool is answered after its commit.

mod accounts;
mod active;
mod activity;
mod add;
mod allow;
mod attempt;
mod automatic;
mod background;
mod caches;
pub(crate) mod check;
mod dataset;
mod defragment;
pub(crate) mod delegated;
pub(crate) mod devices;
mod dispatch;
mod events;
mod files;
mod foreseen;
pub(crate) mod found;
mod growth;
mod images;
mod in_place;
pub(crate) mod inspect;
mod job;
mod jobs;
mod journal;
pub(crate) mod layout;
mod losses;
mod members;
mod memory;
mod mounts;
mod no_pools;
mod open_pool;
mod orders;
mod parts;
mod passes;
mod patience;
mod pool;
mod property;
mod rebalance;
mod refusal;
mod removal;
mod resize;
pub(crate) mod rewind;
mod scrub;
mod snapshot;
mod spares;
mod standing;
mod stream;
mod suspended;
#[cfg(test)]
mod tests;
mod vdev_records;
mod vital;

pub(crate) use self::{
    active::severity, mounts::Places as MountPlaces, open_pool::create_options, refusal::OrRefused, suspended::refusal,
};
pub use self::{
    attempt::within_pool,
    files::{archive::StreamFiles, system_text},
    job::{Cancel, Job, JobStream},
    mounts::mount_namespace,
    no_pools::NoPools,
    open_pool::{OpenPool, Opening},
};
