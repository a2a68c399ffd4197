//! `pool prefetch`: as in ZFS, reads tables into memory; Cenote has none to read ahead of their use.

use clap::{Args, ValueEnum};
use dataset::property::pool::GUID;
use protocol::{Exit, Failure, PoolRequest, Response, unexpected_answer};

use crate::args::common::pool_name;
use crate::context::Context;

/// Arguments of `pool prefetch`.
#[derive(Args, Debug)]
#[command(
    after_help = "ZFS loads the tables of deduplication and block cloning. Cenote has no table of deduplication, and reads the counts of cloned
blocks when they are needed. So the command only checks that the pool can be opened.

Examples:
  pool prefetch tank"
)]
pub struct Arguments {
    /// The table of ZFS to load
    #[arg(short = 't', value_name = "ddt|brt")]
    table: Option<Kind>,
    /// The pool
    pool: String,
}

/// A table of ZFS.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// The deduplication table.
    Ddt,
    /// The block reference table.
    Brt,
}

/// Opens the pool.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let pool = pool_name("prefetch", &arguments.pool)?;
    let request = PoolRequest::Pool { properties: vec![GUID.name.to_owned()], vdevs: false };
    let Response::Pool(_) = context.call(&pool, request)? else { return Err(unexpected_answer()) };
    Ok(Exit::Done)
}
