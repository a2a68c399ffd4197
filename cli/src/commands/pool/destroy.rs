//! `pool destroy`: destroys a pool with all its data.

use clap::Args;
use protocol::{Exit, Failure, HostRequest, HostResponse, unexpected_answer};

use crate::args::common::pool_name;
use crate::context::Context;

/// Arguments of `pool destroy`.
#[derive(Args, Debug)]
#[command(
    after_help = "Asks for confirmation on a terminal, unless -f is given. Image files remain and can be deleted afterwards.

Cannot be undone: the loss is final once the devices are reused or their labels are cleared. Until then, 'pool import -D' recovers
the pool with all data.

Examples:
  pool destroy tank
  pool destroy -f tank                       no confirmation; unmount busy file systems
  pool import -D -d /var/lib tank            recover a destroyed pool"
)]
pub struct Arguments {
    /// Do not ask; unmount busy file systems; also destroy a pool imported read-only
    #[arg(short = 'f')]
    force: bool,
    /// The pool
    pool: String,
}

/// Destroys after confirmation; a script needs no confirmation.
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
