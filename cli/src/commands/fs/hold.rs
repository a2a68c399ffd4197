//! `fs hold`: protects snapshots from destruction.

use clap::Args;
use protocol::{DatasetRequest, Exit, Failure};

use super::snapshot::by_pool;
use crate::args::common::names;
use crate::context::Context;

/// Arguments of `fs hold`.
#[derive(Args, Debug)]
#[command(after_help = "A held snapshot cannot be destroyed until 'fs release' removes the last hold.

Examples:
  fs hold keep tank/home@monday
  fs hold -r audit tank@2025                 also in all descendants")]
pub struct Arguments {
    /// Include same-named snapshots of all descendants
    #[arg(short = 'r')]
    recursive: bool,
    /// The name of the hold
    tag: String,
    /// The snapshots
    #[arg(value_name = "SNAPSHOT", required = true)]
    names: Vec<String>,
}

/// Longest tag of a hold, in bytes.
const MAX_TAG: usize = 255;

/// Puts a hold on snapshots.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let tag = checked_tag(&arguments.tag)?;
    for (pool, names) in by_pool(names("hold", &arguments.names)?) {
        context.run(&pool, DatasetRequest::Hold { tag: tag.clone(), names, recursive: arguments.recursive })?;
    }
    Ok(Exit::Done)
}

pub(super) fn checked_tag(tag: &str) -> Result<String, Failure> {
    match tag {
        "" => Err(Failure::new("the name of a hold is empty")),
        tag if tag.starts_with('.') => Err(Failure::cannot("hold as", tag, "tag may not start with '.'")),
        tag if tag.len() > MAX_TAG => {
            Err(Failure::cannot("hold as", tag, format!("it is longer than {MAX_TAG} bytes")))
        }
        tag => Ok(tag.to_owned()),
    }
}
