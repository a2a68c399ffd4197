//! `pool destroy`: a pool and everything in it goes.

use clap::Args;
use protocol::{Exit, Failure, HostRequest, HostResponse, unexpected_answer};

use crate::args::common::pool_name;
use crate::context::Context;

/// Arguments of `pool destroy`.
#[derive(Args, Debug)]
#[command(
    after_help = "From a terminal this asks first; -f does not ask. Image files stay, and can be removed afterwards.

Cannot be undone: when its devices have been used again, or their labels cleared. Until then 'pool import -D' brings the pool \
back, with all that was in it.

Examples:
  pool destroy tank
  pool destroy -f tank                       do not ask, unmount what is in use; also if it is imported read-only
  pool import -D -d /var/lib tank            that was a mistake"
)]
pub struct Arguments {
    /// Do not ask, unmount what is in use, and destroy one that is imported read-only too
    #[arg(short = 'f')]
    force: bool,
    /// The pool
    pool: String,
}

/// Destroys, after asking where somebody can be asked.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let pool = pool_name("destroy", &arguments.pool)?;
    if !context.executor.visible_pools()?.contains(&pool) {
        return Err(Failure::no_pool(&pool));
    }
    if !arguments.force {
        context
            .confirm(&format!("This destroys the pool '{pool}' with all its file systems and snapshots. Destroy?"))?;
    }
    match context.host(HostRequest::Destroy { pool, force: arguments.force })? {
        HostResponse::Done => Ok(Exit::Done),
        _ => Err(unexpected_answer()),
    }
}
