//! The command line of `pool`.

use clap::{Parser, Subcommand};

use crate::commands::pool::*;
use crate::commands::{completions, manual, version};

/// Administers Cenote's storage pools
///
/// A pool is made of image files or block devices; its file systems are administered with fs(1).
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
    /// Show the state of pools and their devices
    Status(status::Arguments),
    /// Show properties
    Get(get::Arguments),
    /// Set a property
    Set(set::Arguments),
    /// Close a pool, so that it can be moved or checked
    Export(export::Arguments),
    /// Open a pool, or show which could be opened
    Import(import::Arguments),
    /// Show the commands that changed a pool
    History(history::Arguments),
    /// Commit what was written
    Sync(sync::Arguments),
    /// Show input and output
    Iostat(iostat::Arguments),
    /// Add devices to a pool
    Add(add::Arguments),
    /// Make a device hold the same as another one
    Attach(attach::Arguments),
    /// Take a device out of its mirror
    Detach(detach::Arguments),
    /// Have regions that are mostly holes become empty ones
    Defragment(defragment::Arguments),
    /// Have all vdevs of a pool become equally full
    Rebalance(rebalance::Arguments),
    /// Have a device become smaller, which moves what lies at its end
    Resize(resize::Arguments),
    /// Have one device of each mirror be a pool of its own
    Split(split::Arguments),
    /// Take a vdev out of a pool, which moves what lies on it
    Remove(remove::Arguments),
    /// Have a device take the place of another one
    Replace(replace::Arguments),
    /// Put devices out of use that others can do without
    Offline(offline::Arguments),
    /// Take devices back, or use what they have grown
    Online(online::Arguments),
    /// Give a pool another number
    Reguid(reguid::Arguments),
    /// Tell the devices which space nobody needs
    Trim(trim::Arguments),
    /// Say what the loss of devices would cost
    Simulate(simulate::Arguments),
    /// Show what has happened to pools since they were imported
    Events(events::Arguments),
    /// Wait until what goes on in the background has ceased
    Wait(wait::Arguments),
    /// Take devices back that did not answer
    Reopen(reopen::Arguments),
    /// Have the resilver of a pool begin again
    Resilver(resilver::Arguments),
    /// Have a device belong to no pool any more
    Labelclear(labelclear::Arguments),
    /// Verify a pool that is in use, and mend what can be mended
    Scrub(scrub::Arguments),
    /// Have a pool go on after its devices have failed, and forget their errors
    Clear(clear::Arguments),
    /// Verify a pool without mending, also while it is in use
    Check(check::Arguments),
    /// Look into the structures of a pool that nobody has open
    Debug(debug::Arguments),
    /// Show the main job from end to end, on pools in image files
    Tour(tour::Arguments),
    /// Print the version
    Version(version::Arguments),
    /// Be the service of a pool
    #[command(hide = true)]
    Service(service::Arguments),
    /// Print a completion script for a shell
    Completions(completions::Arguments),
    /// Write manual pages
    Man(manual::Arguments),
}
