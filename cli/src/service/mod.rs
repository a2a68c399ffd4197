//! Pools on this machine: which are known, who owns them, and how commands reach them.
//!
//! ```text
//! client     finds the owner of a pool for each command     host     creates, imports, exports, destroys
//! daemon     the process that owns one pool                 spawn    starts it, and waits until it is ready
//! server     is asked over a socket                         socket   asks
//! frame      calls and replies as bytes, and the descriptor beside them
//! registry   the known pools, one file each                 lock     taking turns at opening a pool
//! places     the folders: registry, logs, sockets, locks     remembered  what is mounted by hand
//! ```
//!
//! A pool has one owner: its service, or the command that has it open just now. Locks on its devices see to that; what is
//! here sees to it that commands find the owner, or become it.

mod absent;
mod client;
mod daemon;
pub mod frame;
mod host;
pub mod lock;
pub mod places;
pub mod registry;
pub mod remembered;
pub mod server;
pub mod socket;
pub mod spawn;

pub use self::client::Client;
