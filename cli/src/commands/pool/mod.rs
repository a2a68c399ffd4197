//! The command line of `pool`: its subcommands, with the code of each. A new subcommand is a file of this folder, and three
//! lines here.

pub mod add;
pub mod attach;
mod batches;
pub mod check;
pub mod clear;
pub mod create;
pub mod debug;
pub mod defragment;
pub mod destroy;
pub mod detach;
pub mod events;
pub mod export;
pub mod get;
pub mod history;
pub mod import;
pub mod initialize;
pub mod iostat;
mod jobs;
pub mod labelclear;
mod layout;
pub mod list;
pub mod offline;
pub mod online;
pub mod plan;
pub mod prefetch;
pub mod rebalance;
pub mod reguid;
pub mod remove;
pub mod reopen;
pub mod replace;
pub mod resilver;
pub mod resize;
mod rewind;
pub mod scrub;
pub mod service;
pub mod set;
pub mod simulate;
pub mod split;
pub mod stat;
pub mod status;
pub mod sync;
pub mod tour;
pub mod trim;
pub mod upgrade;
mod vdev_json;
pub mod wait;
pub mod web;

use clap::{Parser, Subcommand};
use protocol::{Exit, Failure};

use super::{completions, manual, version};
use crate::context::Context;

/// Administers Cenote storage pools
///
/// A pool stores file systems on image files or block devices. fs(1) administers the file systems.
///
/// The exit status is 0 on success, 1 if a command is refused or fails, and 2 for wrong usage. Commands that find damage
/// exit with 3.
#[derive(Parser, Debug)]
#[command(name = "pool", version, subcommand_required = true, arg_required_else_help = true, infer_long_args = true)]
pub struct PoolCli {
    /// What to do.
    #[command(subcommand)]
    pub command: PoolCommand,
}

/// The subcommands of `pool`.
#[derive(Subcommand, Debug)]
pub enum PoolCommand {
    /// Create a pool
    Create(create::Arguments),
    /// Compare layouts for a new pool
    Plan(plan::Arguments),
    /// Destroy a pool and everything in it
    Destroy(destroy::Arguments),
    /// List pools
    List(list::Arguments),
    /// Show the health of pools and their devices
    Status(status::Arguments),
    /// Show properties
    Get(get::Arguments),
    /// Set a property
    Set(set::Arguments),
    /// Show the commands that changed a pool
    History(history::Arguments),
    /// Show events of pools
    Events(events::Arguments),
    /// Show I/O statistics
    Iostat(iostat::Arguments),
    /// Show what the caches hold and answer
    Stat(stat::Arguments),
    /// Import pools, or list pools that can be imported
    Import(import::Arguments),
    /// Export pools, so that their devices can be moved or checked
    Export(export::Arguments),
    /// Give a pool a new GUID
    Reguid(reguid::Arguments),
    /// Add vdevs, spares or cache devices to a pool
    Add(add::Arguments),
    /// Remove a vdev; its data is moved to the remaining vdevs first
    Remove(remove::Arguments),
    /// Attach a device to form or extend a mirror, or widen a RAID-Z
    Attach(attach::Arguments),
    /// Detach a device from a mirror
    Detach(detach::Arguments),
    /// Replace a device
    Replace(replace::Arguments),
    /// Split one device off each mirror into a new pool
    Split(split::Arguments),
    /// Take devices offline
    Offline(offline::Arguments),
    /// Bring devices online; -e uses added space
    Online(online::Arguments),
    /// Clear device errors and resume a suspended pool
    Clear(clear::Arguments),
    /// Reopen failed or missing devices
    Reopen(reopen::Arguments),
    /// Erase the pool labels from a device
    Labelclear(labelclear::Arguments),
    /// Verify the data of a pool, and repair damage
    Scrub(scrub::Arguments),
    /// Restart, pause or limit the resilver of a pool
    Resilver(resilver::Arguments),
    /// TRIM unused space
    Trim(trim::Arguments),
    /// Write a pattern to unused space
    Initialize(initialize::Arguments),
    /// Spread existing data evenly over all vdevs
    Rebalance(rebalance::Arguments),
    /// Consolidate fragmented free space
    Defragment(defragment::Arguments),
    /// Shrink a device; data at its end is moved first
    Resize(resize::Arguments),
    /// Wait for background activity to finish
    Wait(wait::Arguments),
    /// Commit all pending writes
    Sync(sync::Arguments),
    /// Enable the features of this version
    Upgrade(upgrade::Arguments),
    /// Check that a pool can be opened
    #[command(hide = true)]
    Prefetch(prefetch::Arguments),
    /// Verify a pool without repair, imported or exported
    Check(check::Arguments),
    /// Show what a loss of devices would cost
    Simulate(simulate::Arguments),
    /// Inspect on-disk structures of an exported pool
    Debug(debug::Arguments),
    /// Demonstrate the main features on temporary image files
    Tour(tour::Arguments),
    /// Serve the web page, or print a token for signing in
    Web(web::Arguments),
    /// Print the version
    Version(version::Arguments),
    /// Run the service of a pool
    #[command(hide = true)]
    Service(service::Arguments),
    /// Print a completion script for a shell
    Completions(completions::Arguments),
    /// Write manual pages
    Man(manual::Arguments),
}

impl PoolCommand {
    /// Runs the subcommand; `command` describes the whole program.
    pub fn run(&self, command: clap::Command, context: &mut Context<'_>) -> Result<Exit, Failure> {
        match self {
            PoolCommand::Create(arguments) => create::run(arguments, context),
            PoolCommand::Plan(arguments) => plan::run(arguments, context),
            PoolCommand::Destroy(arguments) => destroy::run(arguments, context),
            PoolCommand::List(arguments) => list::run(arguments, context),
            PoolCommand::Status(arguments) => status::run(arguments, context),
            PoolCommand::Get(arguments) => get::run(arguments, context),
            PoolCommand::Set(arguments) => set::run(arguments, context),
            PoolCommand::Export(arguments) => export::run(arguments, context),
            PoolCommand::Import(arguments) => import::run(arguments, context),
            PoolCommand::History(arguments) => history::run(arguments, context),
            PoolCommand::Sync(arguments) => sync::run(arguments, context),
            PoolCommand::Upgrade(arguments) => upgrade::run(arguments, context),
            PoolCommand::Prefetch(arguments) => prefetch::run(arguments, context),
            PoolCommand::Iostat(arguments) => iostat::run(arguments, context),
            PoolCommand::Stat(arguments) => stat::run(arguments, context),
            PoolCommand::Add(arguments) => add::run(arguments, context),
            PoolCommand::Attach(arguments) => attach::run(arguments, context),
            PoolCommand::Detach(arguments) => detach::run(arguments, context),
            PoolCommand::Defragment(arguments) => defragment::run(arguments, context),
            PoolCommand::Rebalance(arguments) => rebalance::run(arguments, context),
            PoolCommand::Resize(arguments) => resize::run(arguments, context),
            PoolCommand::Reguid(arguments) => reguid::run(arguments, context),
            PoolCommand::Split(arguments) => split::run(arguments, context),
            PoolCommand::Remove(arguments) => remove::run(arguments, context),
            PoolCommand::Replace(arguments) => replace::run(arguments, context),
            PoolCommand::Offline(arguments) => offline::run(arguments, context),
            PoolCommand::Online(arguments) => online::run(arguments, context),
            PoolCommand::Trim(arguments) => trim::run(arguments, context),
            PoolCommand::Initialize(arguments) => initialize::run(arguments, context),
            PoolCommand::Simulate(arguments) => simulate::run(arguments, context),
            PoolCommand::Events(arguments) => events::run(arguments, context),
            PoolCommand::Wait(arguments) => wait::run(arguments, context),
            PoolCommand::Reopen(arguments) => reopen::run(arguments, context),
            PoolCommand::Resilver(arguments) => resilver::run(arguments, context),
            PoolCommand::Labelclear(arguments) => labelclear::run(arguments, context),
            PoolCommand::Scrub(arguments) => scrub::run(arguments, context),
            PoolCommand::Clear(arguments) => clear::run(arguments, context),
            PoolCommand::Check(arguments) => check::run(arguments, context),
            PoolCommand::Debug(arguments) => debug::run(arguments, context),
            PoolCommand::Tour(arguments) => tour::run(arguments, context),
            PoolCommand::Web(arguments) => web::run(arguments, context),
            PoolCommand::Version(arguments) => version::run(arguments, context),
            PoolCommand::Service(arguments) => service::run(arguments, context),
            PoolCommand::Completions(arguments) => completions::run(arguments, command, context),
            PoolCommand::Man(arguments) => manual::run(arguments, command, context),
        }
    }
}
