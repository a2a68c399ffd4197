//! The command line of `fs`: its subcommands, with the code of each. A new subcommand is a file of this folder, and three
//! lines here.

pub mod allow;
pub mod bookmark;
pub mod cat;
pub mod clone;
pub mod cp;
pub mod create;
pub mod destroy;
pub mod diff;
pub(super) mod files;
pub mod get;
pub mod getattr;
pub mod hold;
pub mod holds;
pub mod inherit;
pub mod list;
pub mod ls;
pub mod mount;
pub mod project;
pub mod promote;
pub mod receive;
pub mod release;
pub mod rename;
pub mod rollback;
mod select;
pub mod send;
pub mod set;
pub mod setattr;
pub mod snapshot;
pub mod stat;
pub mod stream;
pub mod top;
pub mod unallow;
pub mod unmount;
pub mod upgrade;
pub mod userspace;
pub mod wait;

use clap::{Parser, Subcommand};
use dataset::property::OwnerKind;
use protocol::{Exit, Failure};

use super::{completions, manual, version};
use crate::context::Context;

/// Administers Cenote file systems, snapshots, clones and streams
///
/// A file system is named tank/home, a snapshot tank/home@monday, a bookmark tank/home#monday. Commands for files take
/// DATASET:/PATH, as in tank/home:/ann/notes.
///
/// The exit status is 0 on success, 1 if a command is refused or fails, and 2 for wrong usage.
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
    /// Clear a property, so that the value is inherited again
    Inherit(inherit::Arguments),
    /// Rename a file system or a snapshot
    Rename(rename::Arguments),
    /// Mount file systems, or list mounted file systems
    Mount(mount::Arguments),
    /// Unmount file systems
    #[command(visible_alias = "umount")]
    Unmount(unmount::Arguments),
    /// Take snapshots
    #[command(visible_alias = "snap")]
    Snapshot(snapshot::Arguments),
    /// Roll a file system back to a snapshot
    Rollback(rollback::Arguments),
    /// Clone a snapshot into a new file system
    Clone(clone::Arguments),
    /// Make a clone independent of its origin
    Promote(promote::Arguments),
    /// Hold snapshots, so that they cannot be destroyed
    Hold(hold::Arguments),
    /// List the holds of snapshots
    Holds(holds::Arguments),
    /// Release a hold of snapshots
    Release(release::Arguments),
    /// Bookmark a snapshot as a base of incremental streams
    Bookmark(bookmark::Arguments),
    /// Show the files that changed since a snapshot
    Diff(diff::Arguments),
    /// Send a snapshot as a stream
    Send(send::Arguments),
    /// Receive snapshots from a stream
    #[command(visible_alias = "recv")]
    Receive(receive::Arguments),
    /// Inspect, verify and extract stream files without a pool
    Stream(stream::Arguments),
    /// List files without a mount
    Ls(ls::Arguments),
    /// Print files without a mount
    Cat(cat::Arguments),
    /// Copy files in, out or within a pool without a mount
    Cp(cp::Arguments),
    /// Set file attributes, such as immutable or compression
    #[command(name = "setattr")]
    SetAttr(setattr::Arguments),
    /// Show file attributes
    #[command(name = "getattr")]
    GetAttr(getattr::Arguments),
    /// Show space used by each user, and quotas
    Userspace(userspace::Arguments),
    /// Show space used by each group, and quotas
    Groupspace(userspace::Arguments),
    /// Show space used by each project, and quotas
    #[command(mut_arg("numeric", |option| option.hide(true)), mut_arg("types", |option| option.hide(true)))]
    Projectspace(userspace::Arguments),
    /// List, check or set the project ID of files
    Project(project::Arguments),
    /// Show the activity of mounted file systems
    Stat(stat::Arguments),
    /// Show live activity by user, process and file
    Top(top::Arguments),
    /// Delegate permissions to other users, or show them
    Allow(allow::Arguments),
    /// Take delegated permissions back
    Unallow(unallow::Arguments),
    /// Wait until deleted data is freed
    Wait(wait::Arguments),
    /// Show the version of file systems
    Upgrade(upgrade::Arguments),
    /// Print the version
    Version(version::Arguments),
    /// Print a completion script for a shell
    Completions(completions::Arguments),
    /// Write manual pages
    Man(manual::Arguments),
}

impl FsCommand {
    /// Runs the subcommand; `command` describes the whole program.
    pub fn run(&self, command: clap::Command, context: &mut Context<'_>) -> Result<Exit, Failure> {
        match self {
            FsCommand::Create(arguments) => create::run(arguments, context),
            FsCommand::Destroy(arguments) => destroy::run(arguments, context),
            FsCommand::List(arguments) => list::run(arguments, context),
            FsCommand::Get(arguments) => get::run(arguments, context),
            FsCommand::Set(arguments) => set::run(arguments, context),
            FsCommand::Inherit(arguments) => inherit::run(arguments, context),
            FsCommand::Rename(arguments) => rename::run(arguments, context),
            FsCommand::Mount(arguments) => mount::run(arguments, context),
            FsCommand::Unmount(arguments) => unmount::run(arguments, context),
            FsCommand::Snapshot(arguments) => snapshot::run(arguments, context),
            FsCommand::Rollback(arguments) => rollback::run(arguments, context),
            FsCommand::Clone(arguments) => clone::run(arguments, context),
            FsCommand::Promote(arguments) => promote::run(arguments, context),
            FsCommand::Hold(arguments) => hold::run(arguments, context),
            FsCommand::Holds(arguments) => holds::run(arguments, context),
            FsCommand::Release(arguments) => release::run(arguments, context),
            FsCommand::Bookmark(arguments) => bookmark::run(arguments, context),
            FsCommand::Diff(arguments) => diff::run(arguments, context),
            FsCommand::Send(arguments) => send::run(arguments, context),
            FsCommand::Receive(arguments) => receive::run(arguments, context),
            FsCommand::Stream(arguments) => stream::run(arguments, context),
            FsCommand::Ls(arguments) => ls::run(arguments, context),
            FsCommand::Cat(arguments) => cat::run(arguments, context),
            FsCommand::Cp(arguments) => cp::run(arguments, context),
            FsCommand::SetAttr(arguments) => setattr::run(arguments, context),
            FsCommand::GetAttr(arguments) => getattr::run(arguments, context),
            FsCommand::Userspace(arguments) => userspace::run(OwnerKind::User, arguments, context),
            FsCommand::Groupspace(arguments) => userspace::run(OwnerKind::Group, arguments, context),
            FsCommand::Projectspace(arguments) => userspace::run(OwnerKind::Project, arguments, context),
            FsCommand::Project(arguments) => project::run(arguments, context),
            FsCommand::Stat(arguments) => stat::run(arguments, context),
            FsCommand::Top(arguments) => top::run(arguments, context),
            FsCommand::Allow(arguments) => allow::run(arguments, context),
            FsCommand::Unallow(arguments) => unallow::run(arguments, context),
            FsCommand::Wait(arguments) => wait::run(arguments, context),
            FsCommand::Upgrade(arguments) => upgrade::run(arguments, context),
            FsCommand::Version(arguments) => version::run(arguments, context),
            FsCommand::Completions(arguments) => completions::run(arguments, command, context),
            FsCommand::Man(arguments) => manual::run(arguments, command, context),
        }
    }
}
