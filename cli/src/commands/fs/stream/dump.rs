//! `fs stream dump`: the records of stream files.

use std::path::{Path, PathBuf};

use clap::Args;
use dataset::stream::archive::{Archive, Error};
use protocol::{Exit, Failure};

use super::{located, open};
use crate::context::Context;

/// Arguments of `fs stream dump`.
#[derive(Args, Debug)]
#[command(
    after_help = "Prints the offset, kind and content of each record. Ends at the first damage, with exit status 1.

Examples:
  fs stream dump home.stream
  fs stream dump -v home.stream              with the items of each range"
)]
pub(super) struct Arguments {
    /// Print the items of ranges too
    #[arg(short = 'v')]
    verbose: bool,
    /// Stream files
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

/// Why a dump has ended.
pub(in crate::commands) enum Ended<E> {
    /// The stream is damaged.
    Damage(E),
    /// A line could not be printed.
    Failed(Failure),
}

impl<E> From<E> for Ended<E> {
    fn from(error: E) -> Ended<E> {
        Ended::Damage(error)
    }
}

impl<E> Ended<E> {
    /// The failure of the dump of `name`; `located` describes the damage with its place.
    pub(in crate::commands) fn into_failure<T: ToString>(self, name: &Path, located: impl FnOnce(E) -> T) -> Failure {
        match self {
            Ended::Damage(error) => Failure::cannot("dump", name.display(), located(error).to_string()),
            Ended::Failed(failure) => failure,
        }
    }
}

pub(super) fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    for file in &arguments.files {
        let archive = open(file)?;
        if arguments.files.len() > 1 {
            context.print(&format!("{}:\n", file.display()))?;
        }
        dump(&archive, file, arguments.verbose, context)?;
    }
    Ok(Exit::Done)
}

/// Prints the records of a stream file, and with `verbose` the items of ranges.
///
/// # Errors
/// At the first damage.
pub(in crate::commands) fn dump(
    archive: &Archive,
    name: &Path,
    verbose: bool,
    context: &mut Context<'_>,
) -> Result<(), Failure> {
    let dumped = archive.dump(verbose, &mut |line| context.print(&format!("{line}\n")).map_err(Ended::Failed));
    dumped.map_err(|ended: Ended<Error>| ended.into_failure(name, |error| located(archive, &error)))
}
