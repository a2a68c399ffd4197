//! `pool service`: runs the service of a pool in the present process. Started by `create` and `import`, not by users.

use clap::Args;
use protocol::{Exit, Failure};

use crate::args::common::pool_name;
use crate::context::Context;

/// Arguments of `pool service`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  pool service tank")]
pub struct Arguments {
    /// Restart the service after a crash
    #[arg(long)]
    supervise: bool,
    /// The pool
    pool: String,
}

/// Serves the pool until export.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let pool = pool_name("serve", &arguments.pool)?;
    context.executor.serve(&pool, arguments.supervise)?;
    Ok(Exit::Done)
}
