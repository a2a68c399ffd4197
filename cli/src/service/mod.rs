//! Pools on this machine: which are known, who owns them, and how commands reach them.
//!
//! ```text
//! places     the folders: registry, logs, sockets, locks
//! registry   the known pools, one file each
//! lock       taking turns at opening a pool
//! spawn      starts a service, and waits until it is ready
//! frame      calls and replies as bytes, and the descriptor beside them
//! socket     asks a service           server     is asked
//! ```

pub mod frame;
pub mod lock;
pub mod places;
pub mod registry;
pub mod server;
pub mod socket;
pub mod spawn;
