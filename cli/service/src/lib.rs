//! Pools on this machine: the registry, the owner of each pool, and how commands reach the owner.
//!
//! [`Client`] is the [`protocol::Executor`] of the programs. The crate `protocol` defines requests and answers. The
//! crate `cli`, on top of this crate, has command lines and printed text.
//!
//! ```text
//! executor   takes the requests of the programs             host     creates, imports, exports, destroys
//! client     finds the owner of a pool for each command     dead_mounts  mounts without a serving process
//! daemon     the process that owns a pool                   spawn    starts a service, and waits until ready
//! supervisor restarts a service after a crash               hygiene  what a service inherits from its starter
//! server     the listening side of a socket                 socket   the asking side
//! visitors   connections of non-owners                      reserve  file descriptors kept for an emergency
//! registry   the known pools, one file each                 lock     turns at opening, serving, unregistering
//! places     the folders: registry, logs, sockets, locks    remembered  mounts by mount(8), kept across restarts
//! keeper     updates of the registry by a service           exposed  images readable by non-owners
//! execute    executes requests on a pool opened by this process
//! health     conditions of a pool -> state, status, action
//! owners     names and numbers of users and groups      piped    a pipe before a stream, for pools of other users
//! hooks      programs that run after events             notify   mail, webhook and desktop after events
//! alerts     looks for what needs attention              watchdog tells systemd that services answer
//! journald   events for journald
//! ```
//!
//! A pool has one owner: its service, or the command with the pool open at the moment. Locks on its devices enforce a
//! single owner; this crate makes commands find the owner, or become the owner.

mod absent;
mod alerts;
mod client;
mod daemon;
mod dead_mounts;
pub mod execute;
mod executor;
mod exposed;
mod health;
mod hooks;
mod host;
mod hygiene;
mod journald;
mod keeper;
pub mod lock;
pub mod notify;
pub mod owners;
mod piped;
pub mod places;
pub mod registry;
pub mod remembered;
mod reserve;
pub mod server;
pub mod socket;
pub mod spawn;
mod supervisor;
mod visitors;
pub mod watchdog;

pub use self::{
    client::Client,
    execute::{StreamFiles, system_text, within_pool},
};
