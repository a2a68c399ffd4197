//! `fs bookmark`: a base for incremental streams that outlives its snapshot.

use clap::Args;
use dataset::name::{BookmarkName, Name};
use protocol::{DatasetRequest, Exit, Failure};

use crate::args::common::name;
use crate::context::Context;

/// Arguments of `fs bookmark`.
#[derive(Args, Debug)]
#[command(
    after_help = "A bookmark records the creation txg of a snapshot, and serves as the base of incremental streams after the snapshot is
destroyed.

Examples:
  fs bookmark tank/home@monday tank/home#monday
  fs bookmark tank/home@monday '#monday'
  fs destroy tank/home@monday; fs send -i '#monday' tank/home@tuesday > increment"
)]
pub struct Arguments {
    /// A snapshot, or a bookmark to copy
    #[arg(value_name = "SNAPSHOT|BOOKMARK")]
    from: String,
    /// The new bookmark, also as '#NAME'
    #[arg(value_name = "BOOKMARK")]
    to: String,
}

/// Creates a bookmark of a snapshot or of a bookmark.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let action = "create bookmark";
    let from: Name = name(action, &arguments.from)?;
    let to: BookmarkName = match arguments.to.starts_with('#') {
        true => name(action, &format!("{}{}", from.dataset(), arguments.to))?,
        false => name(action, &arguments.to)?,
    };
    let refuse = |why: &str| Err(Failure::cannot(action, &to, why));
    match &from {
        Name::Dataset(_) => refuse("the source is neither a snapshot nor a bookmark"),
        from if from.dataset() != to.dataset() => refuse("source is not an ancestor of the new bookmark's dataset"),
        _ => {
            let pool = from.pool().to_owned();
            context.run(&pool, DatasetRequest::Bookmark { from, to })?;
            Ok(Exit::Done)
        }
    }
}
