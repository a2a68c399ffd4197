//! The subcommands of `pool`.

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
pub mod iostat;
mod jobs;
pub mod labelclear;
mod layout;
pub mod list;
pub mod offline;
pub mod online;
pub mod rebalance;
pub mod reguid;
pub mod remove;
pub mod reopen;
pub mod replace;
pub mod resilver;
pub mod resize;
mod rewind;
mod schedule;
pub mod scrub;
pub mod service;
pub mod set;
pub mod simulate;
pub mod split;
pub mod status;
pub mod sync;
pub mod tour;
pub mod trim;
pub mod wait;

use protocol::{Exit, Failure};

use crate::args::pool::PoolCommand;
use crate::commands::{completions, manual, version};
use crate::context::Context;

/// Runs a subcommand; `command` describes the whole program.
pub fn run(subcommand: &PoolCommand, command: clap::Command, context: &mut Context<'_>) -> Result<Exit, Failure> {
    match subcommand {
        PoolCommand::Create(arguments) => create::run(arguments, context),
        PoolCommand::Destroy(arguments) => destroy::run(arguments, context),
        PoolCommand::List(arguments) => list::run(arguments, context),
        PoolCommand::Status(arguments) => status::run(arguments, context),
        PoolCommand::Get(arguments) => get::run(arguments, context),
        PoolCommand::Set(arguments) => set::run(arguments, context),
        PoolCommand::Export(arguments) => export::run(arguments, context),
        PoolCommand::Import(arguments) => import::run(arguments, context),
        PoolCommand::History(arguments) => history::run(arguments, context),
        PoolCommand::Sync(arguments) => sync::run(arguments, context),
        PoolCommand::Iostat(arguments) => iostat::run(arguments, context),
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
        PoolCommand::Version(arguments) => version::run(arguments, context),
        PoolCommand::Service(arguments) => service::run(arguments, context),
        PoolCommand::Completions(arguments) => completions::run(arguments, command, context),
        PoolCommand::Man(arguments) => manual::run(arguments, command, context),
    }
}
