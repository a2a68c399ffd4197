//! The command line of `pool`.

use clap::{Parser, Subcommand};

use crate::commands::pool::*;
use crate::commands::{completions, manual, version};

/// Administers Cenote storage pools
///
/// A pool stores file systems on image files or block devices. fs(1) administers the file systems.
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
    /// Show events of pools since import
    Events(events::Arguments),
    /// Show I/O statistics
    Iostat(iostat::Arguments),
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
    /// Verify a pool without repair, imported or exported
    Check(check::Arguments),
    /// Show what a loss of devices would cost
    Simulate(simulate::Arguments),
    /// Inspect on-disk structures of an exported pool
    Debug(debug::Arguments),
    /// Demonstrate the main features on temporary image files
    Tour(tour::Arguments),
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
