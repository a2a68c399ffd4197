//! From a parsed subcommand to its code.

use dataset::property::OwnerKind;
use protocol::{Exit, Failure};

use crate::args::{fs::FsCommand, pool::PoolCommand};
use crate::commands::{completions, fs, manual, pool, version};
use crate::context::Context;

/// Runs a subcommand of `pool`; `command` describes the whole program.
pub fn pool(subcommand: &PoolCommand, command: clap::Command, context: &mut Context<'_>) -> Result<Exit, Failure> {
    match subcommand {
        PoolCommand::Create(arguments) => pool::create::run(arguments, context),
        PoolCommand::Destroy(arguments) => pool::destroy::run(arguments, context),
        PoolCommand::List(arguments) => pool::list::run(arguments, context),
        PoolCommand::Status(arguments) => pool::status::run(arguments, context),
        PoolCommand::Get(arguments) => pool::get::run(arguments, context),
        PoolCommand::Set(arguments) => pool::set::run(arguments, context),
        PoolCommand::Export(arguments) => pool::export::run(arguments, context),
        PoolCommand::Import(arguments) => pool::import::run(arguments, context),
        PoolCommand::History(arguments) => pool::history::run(arguments, context),
        PoolCommand::Sync(arguments) => pool::sync::run(arguments, context),
        PoolCommand::Iostat(arguments) => pool::iostat::run(arguments, context),
        PoolCommand::Add(arguments) => pool::add::run(arguments, context),
        PoolCommand::Attach(arguments) => pool::attach::run(arguments, context),
        PoolCommand::Detach(arguments) => pool::detach::run(arguments, context),
        PoolCommand::Defragment(arguments) => pool::defragment::run(arguments, context),
        PoolCommand::Rebalance(arguments) => pool::rebalance::run(arguments, context),
        PoolCommand::Resize(arguments) => pool::resize::run(arguments, context),
        PoolCommand::Reguid(arguments) => pool::reguid::run(arguments, context),
        PoolCommand::Split(arguments) => pool::split::run(arguments, context),
        PoolCommand::Remove(arguments) => pool::remove::run(arguments, context),
        PoolCommand::Replace(arguments) => pool::replace::run(arguments, context),
        PoolCommand::Offline(arguments) => pool::offline::run(arguments, context),
        PoolCommand::Online(arguments) => pool::online::run(arguments, context),
        PoolCommand::Trim(arguments) => pool::trim::run(arguments, context),
        PoolCommand::Simulate(arguments) => pool::simulate::run(arguments, context),
        PoolCommand::Events(arguments) => pool::events::run(arguments, context),
        PoolCommand::Wait(arguments) => pool::wait::run(arguments, context),
        PoolCommand::Reopen(arguments) => pool::reopen::run(arguments, context),
        PoolCommand::Resilver(arguments) => pool::resilver::run(arguments, context),
        PoolCommand::Labelclear(arguments) => pool::labelclear::run(arguments, context),
        PoolCommand::Scrub(arguments) => pool::scrub::run(arguments, context),
        PoolCommand::Clear(arguments) => pool::clear::run(arguments, context),
        PoolCommand::Check(arguments) => pool::check::run(arguments, context),
        PoolCommand::Debug(arguments) => pool::debug::run(arguments, context),
        PoolCommand::Tour(arguments) => pool::tour::run(arguments, context),
        PoolCommand::Version(arguments) => version::run(arguments, context),
        PoolCommand::Service(arguments) => pool::service::run(arguments, context),
        PoolCommand::Completions(arguments) => completions::run(arguments, command, context),
        PoolCommand::Man(arguments) => manual::run(arguments, command, context),
    }
}

/// Runs a subcommand of `fs`; `command` describes the whole program.
pub fn fs(subcommand: &FsCommand, command: clap::Command, context: &mut Context<'_>) -> Result<Exit, Failure> {
    match subcommand {
        FsCommand::Create(arguments) => fs::create::run(arguments, context),
        FsCommand::Destroy(arguments) => fs::destroy::run(arguments, context),
        FsCommand::List(arguments) => fs::list::run(arguments, context),
        FsCommand::Get(arguments) => fs::get::run(arguments, context),
        FsCommand::Set(arguments) => fs::set::run(arguments, context),
        FsCommand::Inherit(arguments) => fs::inherit::run(arguments, context),
        FsCommand::Rename(arguments) => fs::rename::run(arguments, context),
        FsCommand::Mount(arguments) => fs::mount::run(arguments, context),
        FsCommand::Unmount(arguments) => fs::unmount::run(arguments, context),
        FsCommand::Snapshot(arguments) => fs::snapshot::run(arguments, context),
        FsCommand::Rollback(arguments) => fs::rollback::run(arguments, context),
        FsCommand::Clone(arguments) => fs::clone::run(arguments, context),
        FsCommand::Promote(arguments) => fs::promote::run(arguments, context),
        FsCommand::Hold(arguments) => fs::hold::run(arguments, context),
        FsCommand::Holds(arguments) => fs::holds::run(arguments, context),
        FsCommand::Release(arguments) => fs::release::run(arguments, context),
        FsCommand::Bookmark(arguments) => fs::bookmark::run(arguments, context),
        FsCommand::Diff(arguments) => fs::diff::run(arguments, context),
        FsCommand::Send(arguments) => fs::send::run(arguments, context),
        FsCommand::Receive(arguments) => fs::receive::run(arguments, context),
        FsCommand::Stream(arguments) => fs::stream::run(arguments, context),
        FsCommand::Ls(arguments) => fs::ls::run(arguments, context),
        FsCommand::Cat(arguments) => fs::cat::run(arguments, context),
        FsCommand::Cp(arguments) => fs::cp::run(arguments, context),
        FsCommand::SetAttr(arguments) => fs::setattr::run(arguments, context),
        FsCommand::GetAttr(arguments) => fs::getattr::run(arguments, context),
        FsCommand::Userspace(arguments) => fs::userspace::run(OwnerKind::User, arguments, context),
        FsCommand::Groupspace(arguments) => fs::userspace::run(OwnerKind::Group, arguments, context),
        FsCommand::Projectspace(arguments) => fs::userspace::run(OwnerKind::Project, arguments, context),
        FsCommand::Project(arguments) => fs::project::run(arguments, context),
        FsCommand::Version(arguments) => version::run(arguments, context),
        FsCommand::Completions(arguments) => completions::run(arguments, command, context),
        FsCommand::Man(arguments) => manual::run(arguments, command, context),
    }
}
