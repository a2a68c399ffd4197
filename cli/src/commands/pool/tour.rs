//! `pool tour`: the main job from end to end, on pools in image files.

use std::path::PathBuf;

use clap::Args;
use protocol::{Exit, Failure};

use crate::context::Context;
use crate::tour;

/// Arguments of `pool tour`.
#[derive(Args, Debug)]
#[command(
    after_help = "Creates pools in image files in a temporary directory, and deletes the files at the end. The tour takes about half a minute, and
needs neither root nor any setup.

Examples:
  pool tour
  pool tour ~/src/linux"
)]
pub struct Arguments {
    /// A directory of files to copy (default: sources unpacked by Cargo, or /usr/include)
    folder: Option<PathBuf>,
}

/// Runs the tour, and prints each step.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    tour::run(arguments.folder.as_deref(), context.console.output)
        .map_err(|problem| Failure::new(problem.to_string()))?;
    Ok(Exit::Done)
}
