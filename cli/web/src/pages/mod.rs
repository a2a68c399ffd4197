//! The pages. Each module renders one subject, from records, with text escaped by the templates.
//!
//! ```text
//! sign_in    signing in and out           overview   all pools
//! pool       one pool                     drawing    the devices of a pool as boxes
//! device     one device, and its loss     chart      the last hour as lines and a table
//! dataset    a file system                snapshot   one snapshot
//! files      browsing, downloading        journal    history and events
//! new        creating a pool               import     pools found on devices
//! plan       comparing layouts
//! change     dry run, confirmation        task       running commands
//! frame      what surrounds every page    parts      buttons, states, sizes
//! page       a page with its status       streams    sending and receiving
//! ```

pub(crate) mod change;
mod chart;
pub(crate) mod dataset;
pub(crate) mod device;
mod drawing;
pub(crate) mod files;
pub(crate) mod frame;
pub(crate) mod import;
pub(crate) mod journal;
pub(crate) mod new;
pub(crate) mod overview;
mod page;
mod parts;
pub(crate) mod plan;
pub(crate) mod pool;
pub(crate) mod sign_in;
pub(crate) mod snapshot;
pub(crate) mod streams;
pub(crate) mod task;
