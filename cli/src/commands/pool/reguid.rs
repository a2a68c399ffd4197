//! `pool reguid`: changes the GUID of a pool.

use clap::Args;
use protocol::{Exit, Failure, HostRequest, HostResponse, unexpected_answer};

use crate::args::common::pool_name;
use crate::context::Context;

/// Arguments of `pool reguid`.
#[derive(Args, Debug)]
#[command(
    after_help = "A copy of a pool, such as a copy of its images, has the same GUID and cannot be imported beside the original. A new GUID for
either pool solves the conflict. All devices must be online and complete. The pool stays online.

Cannot be undone: 'pool import -F' can no longer rewind to a txg with the old GUID.

Examples:
  pool reguid tank
  pool reguid -g 1234567890 tank             set a specific GUID"
)]
pub struct Arguments {
    /// The new GUID (default: random)
    #[arg(short = 'g', value_name = "GUID", value_parser = clap::value_parser!(u64).range(1..))]
    guid: Option<u64>,
    /// The pool
    pool: String,
}

/// Changes the GUID of a pool.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let pool = pool_name("reguid", &arguments.pool)?;
    match context.host(HostRequest::Renumber { pool, guid: arguments.guid })? {
        HostResponse::Done => Ok(Exit::Done),
        _ => Err(unexpected_answer()),
    }
}
