//! `fs rollback`: a file system as it was at a snapshot.

use clap::Args;
use dataset::name::SnapshotName;
use protocol::{Exit, Failure, Request};

use crate::args::common::name;
use crate::context::Context;

/// Arguments of `fs rollback`.
#[derive(Args, Debug)]
#[command(after_help = "Everything written since the snapshot is gone afterwards. Programs may have files open
meanwhile: what they read next, and see in mappings, is as it was at the snapshot. Files
that were not there then fail with ESTALE.

Examples:
  fs rollback tank/home@monday
  fs rollback -r tank/home@monday            although there are newer snapshots: they are destroyed")]
pub struct Arguments {
    /// Destroy the newer snapshots and bookmarks
    #[arg(short = 'r')]
    recursive: bool,
    /// Destroy also the clones of those
    #[arg(short = 'R')]
    clones: bool,
    /// With -R, unmount clones that are in use
    #[arg(short = 'f')]
    force: bool,
    /// The snapshot
    #[arg(value_name = "SNAPSHOT")]
    snapshot: String,
}

/// Rolls back.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let to: SnapshotName = name("rollback to", &arguments.snapshot)?;
    let pool = to.dataset().pool().to_owned();
    let request = Request::Rollback {
        to,
        destroy_newer: arguments.recursive || arguments.clones,
        destroy_clones: arguments.clones,
        force: arguments.force,
    };
    context.run(&pool, request)?;
    Ok(Exit::Done)
}
