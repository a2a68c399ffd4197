//! `fs clone`: a file system with the content of a snapshot.

use clap::Args;
use dataset::name::{DatasetName, SnapshotName};
use dataset::property::Property;
use protocol::{DatasetRequest, Exit, Failure};

use crate::args::common::{assignments, name, split_assignment};
use crate::context::Context;

/// Arguments of `fs clone`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fs clone tank/home@monday tank/home-test
  fs clone -p -o readonly=on tank/home@monday tank/look/monday")]
pub struct Arguments {
    /// Create missing parent file systems
    #[arg(short = 'p')]
    parents: bool,
    /// Set a property
    #[arg(short = 'o', value_name = "PROPERTY=VALUE", value_parser = split_assignment)]
    properties: Vec<(String, String)>,
    /// Do not mount the clone
    #[arg(short = 'u')]
    no_mount: bool,
    /// The snapshot
    snapshot: String,
    /// The new file system, in the same pool
    filesystem: String,
}

/// Clones a snapshot.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let from: SnapshotName = name("clone", &arguments.snapshot)?;
    let to: DatasetName = name("create", &arguments.filesystem)?;
    let pool = from.dataset().pool().to_owned();
    if to.pool() != pool {
        let failure = Failure::cannot("create", &to, "source and target pools differ");
        return Err(failure.hint("to copy a snapshot to another pool: fs send | fs receive"));
    }
    let assignments = assignments(&arguments.properties, Property::of_dataset, true, "create", &arguments.filesystem)?;
    let request =
        DatasetRequest::Clone { from, to, parents: arguments.parents, assignments, no_mount: arguments.no_mount };
    context.run(&pool, request)?;
    Ok(Exit::Done)
}
