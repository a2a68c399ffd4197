//! `fs promote`: makes a clone independent of its origin.

use clap::Args;
use dataset::name::DatasetName;
use protocol::{DatasetRequest, Exit, Failure};

use crate::args::common::name;
use crate::context::Context;

/// Arguments of `fs promote`.
#[derive(Args, Debug)]
#[command(
    after_help = "The clone takes over the snapshots up to its origin. The former origin file system becomes a clone and can be destroyed.

Examples:
  fs promote tank/home-test"
)]
pub struct Arguments {
    /// The clone
    #[arg(value_name = "CLONE")]
    name: String,
}

/// Promotes the named clone.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let name: DatasetName = name("promote", &arguments.name)?;
    let pool = name.pool().to_owned();
    context.run(&pool, DatasetRequest::Promote { name })?;
    Ok(Exit::Done)
}
