//! `pool reguid`: another number for a pool.

use clap::Args;
use protocol::{Exit, Failure, HostRequest, HostResponse, unexpected_answer};

use crate::args::common::pool_name;
use crate::context::Context;

/// Arguments of `pool reguid`.
#[derive(Args, Debug)]
#[command(
    after_help = "A copy of a pool, such as of its images, has the number of the pool, and cannot be imported beside it before one of the two
has another. All devices have to be there, and to lack nothing; the pool is used meanwhile.

Cannot be undone: 'pool import -F' goes back to no state from before.

Examples:
  pool reguid tank
  pool reguid -g 1234567890 tank             this number"
)]
pub struct Arguments {
    /// The new number; without it, one that is drawn
    #[arg(short = 'g', value_name = "GUID", value_parser = clap::value_parser!(u64).range(1..))]
    guid: Option<u64>,
    /// The pool
    pool: String,
}

/// Gives the number.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let pool = pool_name("reguid", &arguments.pool)?;
    match context.host(HostRequest::Renumber { pool, guid: arguments.guid })? {
        HostResponse::Done => Ok(Exit::Done),
        _ => Err(unexpected_answer()),
    }
}
