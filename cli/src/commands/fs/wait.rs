//! `fs wait`: waits until the space of deleted files is freed.

use std::{thread, time::Duration};

use clap::{Args, ValueEnum};
use dataset::name::Name;
use dataset::property::{Kinds, dataset::TYPE};
use protocol::{Activity, DatasetRecord, DatasetRequest, Exit, Failure, PoolRequest, Response, unexpected_answer};

use super::select::named;
use crate::context::Context;

/// Interval between requests.
const WATCH: Duration = Duration::from_millis(200);

/// Arguments of `fs wait`.
#[derive(Args, Debug)]
#[command(after_help = "Waits until no deleted data of the pool remains to be freed. For other activities: pool wait.

Examples:
  fs wait tank/home
  fs wait -t deleteq tank/home")]
pub struct Arguments {
    /// The activity to wait for
    #[arg(short = 't', value_name = "ACTIVITY", value_delimiter = ',')]
    activities: Vec<Kind>,
    /// The file system
    #[arg(value_name = "FILESYSTEM")]
    name: String,
}

/// An activity of a file system.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// Freeing of deleted files.
    Deleteq,
}

/// Waits until the pool of the file system frees nothing.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let Name::Dataset(name) = named(&arguments.name, context)? else {
        return Err(Failure::cannot("wait for", &arguments.name, "this names no file system"));
    };
    let (root, properties) = (Some(Name::Dataset(name.clone())), vec![TYPE.name.to_owned()]);
    let request = DatasetRequest::List { root, depth: Some(0), kinds: Kinds::FILESYSTEM, properties, range: None };
    context.call_for_each(name.pool(), request, &mut |_: DatasetRecord, _| Ok(()))?;
    loop {
        let Response::Activities(records) = context.call(name.pool(), PoolRequest::Activities)? else {
            return Err(unexpected_answer());
        };
        if records.iter().all(|record| record.activity != Activity::Freeing || record.left.is_none()) {
            return Ok(Exit::Done);
        }
        thread::sleep(WATCH);
    }
}
