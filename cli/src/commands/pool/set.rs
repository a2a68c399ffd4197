//! `pool set`: sets a property of a pool.

use clap::Args;
use dataset::property::Property;
use protocol::{Exit, Failure, PoolRequest};

use crate::args::common::{assignments, pool_name, split_assignment};
use crate::args::dry::DryRun;
use crate::args::reference::pool_set;
use crate::context::Context;

/// Text below the options; the long help has the properties before the text.
const NOTES: &str = "Sizes take a suffix K, M, G, T, P or E, in powers of 1024.

Examples:
  pool set comment='the backup pool' tank
  pool set -n cache_size=1G tank             dry run: show the values before and after
  pool set cache_size=1G tank";

/// Arguments of `pool set`.
#[derive(Args, Debug)]
#[command(after_help = NOTES, after_long_help = pool_set(NOTES))]
pub struct Arguments {
    /// Dry run: show what would change
    #[arg(short = 'n')]
    dry_run: bool,
    /// The property and its value
    #[arg(value_name = "PROPERTY=VALUE", value_parser = split_assignment)]
    property: (String, String),
    /// The pool
    pool: String,
}

/// Sets a property of a pool.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let action = "set property for";
    let pool = pool_name(action, &arguments.pool)?;
    let pair = std::slice::from_ref(&arguments.property);
    let assignments = assignments(pair, Property::of_pool, false, action, &pool)?;
    let dry = DryRun { dry_run: arguments.dry_run, verbose: true };
    dry.run(&pool, PoolRequest::SetPool { assignments, dry_run: dry.dry_run }, context)?;
    context.note_ignored(pair)?;
    Ok(Exit::Done)
}
