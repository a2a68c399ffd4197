//! The command line of `fs`.

use clap::{Parser, Subcommand};

use crate::commands::fs::*;
use crate::commands::{completions, manual, version};

/// Administers file systems, snapshots, clones and streams in Cenote's pools
///
/// Where a file system is asked for, its name is meant (tank/home); a snapshot is tank/home@monday, a bookmark
/// tank/home#monday.
#[derive(Parser, Debug)]
#[command(name = "fs", version, subcommand_required = true, arg_required_else_help = true, infer_long_args = true)]
pub struct FsCli {
    /// What to do.
    #[command(subcommand)]
    pub command: FsCommand,
}

/// The subcommands of `fs`.
#[derive(Subcommand, Debug)]
pub enum FsCommand {
    /// Create a file system
    Create(create::Arguments),
    /// Destroy a file system, snapshots or a bookmark
    Destroy(destroy::Arguments),
    /// List file systems, snapshots and bookmarks
    List(list::Arguments),
    /// Show properties
    Get(get::Arguments),
    /// Set properties
    Set(set::Arguments),
    /// Drop a property's own value, so that it is inherited again
    Inherit(inherit::Arguments),
    /// Rename a file system or a snapshot
    Rename(rename::Arguments),
    /// Mount a file system, or show what is mounted
    Mount(mount::Arguments),
    /// Unmount a file system
    #[command(visible_alias = "umount")]
    Unmount(unmount::Arguments),
    /// Take snapshots
    #[command(visible_alias = "snap")]
    Snapshot(snapshot::Arguments),
    /// Take a file system back to a snapshot
    Rollback(rollback::Arguments),
    /// Make a file system of a snapshot
    Clone(clone::Arguments),
    /// Make a clone independent of its origin
    Promote(promote::Arguments),
    /// Keep snapshots from being destroyed
    Hold(hold::Arguments),
    /// Show the holds of snapshots
    Holds(holds::Arguments),
    /// Take a hold away
    Release(release::Arguments),
    /// Remember a snapshot as the base of later incremental streams
    Bookmark(bookmark::Arguments),
    /// Show what changed since a snapshot
    Diff(diff::Arguments),
    /// Write a snapshot as a stream
    Send(send::Arguments),
    /// Make snapshots from a stream
    #[command(visible_alias = "recv")]
    Receive(receive::Arguments),
    /// List files, without a mount
    Ls(ls::Arguments),
    /// Print files, without a mount
    Cat(cat::Arguments),
    /// Copy files in or out, without a mount
    Cp(cp::Arguments),
    /// Set attributes of files: immutable, compression and others
    #[command(name = "setattr")]
    SetAttr(setattr::Arguments),
    /// Show attributes of files
    #[command(name = "getattr")]
    GetAttr(getattr::Arguments),
    /// Show what users use, and their quotas
    Userspace(userspace::Arguments),
    /// Show what groups use, and their quotas
    Groupspace(userspace::Arguments),
    /// Show what projects use, and their quotas
    Projectspace(userspace::Arguments),
    /// Show or set which project files are of
    Project(project::Arguments),
    /// Print the version
    Version(version::Arguments),
    /// Print a completion script for a shell
    Completions(completions::Arguments),
    /// Write manual pages
    Man(manual::Arguments),
}
