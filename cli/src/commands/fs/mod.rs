//! The subcommands of `fs`.

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
pub mod unmount;
pub mod userspace;

use dataset::property::OwnerKind;
use protocol::{Exit, Failure};

use crate::args::fs::FsCommand;
use crate::commands::{completions, manual, version};
use crate::context::Context;

/// Runs a subcommand; `command` describes the whole program.
pub fn run(subcommand: &FsCommand, command: clap::Command, context: &mut Context<'_>) -> Result<Exit, Failure> {
    match subcommand {
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
        FsCommand::Ls(arguments) => ls::run(arguments, context),
        FsCommand::Cat(arguments) => cat::run(arguments, context),
        FsCommand::Cp(arguments) => cp::run(arguments, context),
        FsCommand::SetAttr(arguments) => setattr::run(arguments, context),
        FsCommand::GetAttr(arguments) => getattr::run(arguments, context),
        FsCommand::Userspace(arguments) => userspace::run(OwnerKind::User, arguments, context),
        FsCommand::Groupspace(arguments) => userspace::run(OwnerKind::Group, arguments, context),
        FsCommand::Projectspace(arguments) => userspace::run(OwnerKind::Project, arguments, context),
        FsCommand::Project(arguments) => project::run(arguments, context),
        FsCommand::Version(arguments) => version::run(arguments, context),
        FsCommand::Completions(arguments) => completions::run(arguments, command, context),
        FsCommand::Man(arguments) => manual::run(arguments, command, context),
    }
}
