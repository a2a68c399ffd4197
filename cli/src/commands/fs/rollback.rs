//! `fs rollback`: returns a file system to the state of a snapshot.

use clap::Args;
use dataset::name::SnapshotName;
use protocol::{DatasetRequest, Exit, Failure};

use crate::args::common::name;
use crate::args::dry::DryRun;
use crate::context::Context;

/// Arguments of `fs rollback`.
#[derive(Args, Debug)]
#[command(
    after_help = "Discards all changes since the snapshot. If newer snapshots or bookmarks exist, the rollback is refused without -r or -R. Open
files and mappings show the content of the snapshot; files created since return ESTALE.

Examples:
  fs rollback tank/home@monday
  fs rollback -nv -r tank/home@monday        dry run: what would be destroyed
  fs rollback -r tank/home@monday            destroy newer snapshots first"
)]
pub struct Arguments {
    /// Destroy newer snapshots and bookmarks
    #[arg(short = 'r')]
    recursive: bool,
    /// Destroy newer snapshots and bookmarks, and their clones
    #[arg(short = 'R')]
    clones: bool,
    /// With -R: unmount busy clones
    #[arg(short = 'f')]
    force: bool,
    #[command(flatten)]
    dry: DryRun,
    /// The snapshot
    #[arg(value_name = "SNAPSHOT")]
    snapshot: String,
}

/// Rolls back; destroys newer snapshots and clones if requested.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let to: SnapshotName = name("rollback to", &arguments.snapshot)?;
    let pool = to.dataset().pool().to_owned();
    let request = DatasetRequest::Rollback {
        to,
        destroy_newer: arguments.recursive || arguments.clones,
        destroy_clones: arguments.clones,
        force: arguments.force,
        dry_run: arguments.dry.dry_run,
    };
    arguments.dry.run(&pool, request, context)?;
    Ok(Exit::Done)
}
