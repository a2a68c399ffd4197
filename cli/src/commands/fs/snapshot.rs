//! `fs snapshot`: takes snapshots, all at one instant.

use std::collections::BTreeMap;

use clap::Args;
use dataset::name::SnapshotName;
use dataset::property::Property;
use protocol::{DatasetRequest, Exit, Failure};

use crate::args::common::{assignments, names, split_assignment};
use crate::context::Context;

/// Arguments of `fs snapshot`.
#[derive(Args, Debug)]
#[command(after_help = "All named snapshots of a pool are taken atomically.

Examples:
  fs snapshot tank/home@monday
  fs snapshot -r tank@2025-11-21             of all file systems, atomically
  fs snapshot tank/a@x tank/b@x
  fs snapshot -o me:why=upgrade tank@before")]
pub struct Arguments {
    /// Include all descendants
    #[arg(short = 'r')]
    recursive: bool,
    /// Set a user property
    #[arg(short = 'o', value_name = "PROPERTY=VALUE", value_parser = split_assignment)]
    properties: Vec<(String, String)>,
    /// The snapshots
    #[arg(value_name = "FILESYSTEM@SNAPSHOT", required = true)]
    names: Vec<String>,
}

/// Takes snapshots, one request per pool.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let action = "create snapshot";
    let names: Vec<SnapshotName> = names(action, &arguments.names)?;
    let what = names[0].as_str();
    let assignments = assignments(&arguments.properties, Property::of_dataset, false, action, what)?;
    if let Some(other) = assignments.iter().find(|assignment| !assignment.name.contains(':')) {
        let why = format!("'{}' is not a property of snapshots; only user properties can be set", other.name);
        return Err(Failure::cannot(action, what, why));
    }
    for (pool, names) in by_pool(names) {
        let request =
            DatasetRequest::Snapshot { names, recursive: arguments.recursive, assignments: assignments.clone() };
        context.run(&pool, request)?;
    }
    Ok(Exit::Done)
}

/// The names by pool: snapshots are atomic within a pool, not across pools.
pub(super) fn by_pool(names: Vec<SnapshotName>) -> BTreeMap<String, Vec<SnapshotName>> {
    let mut pools: BTreeMap<String, Vec<SnapshotName>> = BTreeMap::new();
    for name in names {
        pools.entry(name.dataset().pool().to_owned()).or_default().push(name);
    }
    pools
}
