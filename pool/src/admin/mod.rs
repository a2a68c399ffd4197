//! A pool as a whole: made, found, opened, closed.
//!
//! Labels say which devices belong together; the uberblocks beside them say which state was committed last. What is done
//! here touches both, and each function argues what a failure between its steps leaves.
//!
//! ```text
//! add       new devices for an opened pool
//! clear     going on after a device has failed
//! create    labels on every device, then the first commit
//! open      from labels to the newest committed state, to an engine
//! pool      an opened pool: rename, export, destroy
//! probe     recognising what else a device may hold, before it is overwritten
//! ```

mod add;
mod clear;
mod create;
mod open;
mod pool;
pub mod probe;

#[cfg(test)]
mod tests;

pub use self::{
    add::Addition,
    create::{CreateOptions, MIN_DEVICE, create},
    open::{OpenOptions, open},
    pool::Pool,
};
