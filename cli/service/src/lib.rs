//! Pools on this machine: which are known, who owns them, and how commands reach them.
//!
//! [`Client`] is the [`protocol::Executor`] of the programs. Requests and their answers are those of the crate `protocol`;
//! command lines and printed text are the affair of the crate `cli`, which stands on this one.
//!
//! ```text
//! client     finds the owner of a pool for each command     host     creates, imports, exports, destroys
//! daemon     the process that owns one pool                 spawn    starts it, and waits until it is ready
//! supervisor starts it again after a crash                  hygiene  what a service keeps of who started it
//! server     is asked over a socket                         socket   asks
//! visitors   connections of other users                     reserve  descriptors for an emergency
//! registry   the known pools, one file each                 lock     taking turns at opening, serving and forgetting a pool
//! places     the folders: registry, logs, sockets, locks     remembered  what is mounted by hand
//! keeper     what a service notes in the registry        exposed  images that other users can read
//! execute    carries requests out on a pool that this process has open
//! health     what is known of a pool -> state, what is wrong, what to do
//! owners     names and numbers of users and groups
//! ```
//!
//! A pool has one owner: its service, or the command that has it open just now. Locks on its devices see to that; what is
//! here sees to it that commands find the owner, or become it.

mod absent;
mod client;
mod daemon;
pub mod execute;
mod exposed;
mod health;
mod host;
mod hygiene;
mod keeper;
pub mod lock;
pub mod owners;
pub mod places;
pub mod registry;
pub mod remembered;
mod reserve;
pub mod server;
pub mod socket;
pub mod spawn;
mod supervisor;
mod visitors;

pub use self::client::Client;
