//! `zstream` and `zstreamdump`: OpenZFS's names for `fs stream dump` and `fs stream token`.
//!
//! Streams of OpenZFS are printed in the words of OpenZFS. Streams of Cenote have other records, which are read from a file
//! at any place; a pipe is first copied to a temporary file without a name.

use std::{
    env,
    fs::File,
    io::{self, BufReader, Read},
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use clap::{ArgMatches, Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use dataset::{stream::Error, zfs};
use protocol::{Exit, Failure};
use rustix::fs::{Mode, OFlags};
use service::system_text;

use super::fs::stream::{Ended, archive_of, dump, listed, opened_anywhere, parsed};
use crate::context::Context;

/// The name at the start that means `zstream dump`.
const DUMP: &str = "zstreamdump";
/// Standard input in messages.
const INPUT: &str = "standard input";

/// Inspect send streams
#[derive(Parser, Debug)]
#[command(name = "zstream", version, subcommand_required = true, arg_required_else_help = true)]
struct Cli {
    /// What to do.
    #[command(subcommand)]
    command: ZstreamCommand,
}

/// The subcommands of `zstream`.
#[derive(Subcommand, Debug)]
enum ZstreamCommand {
    /// Print the records of a stream
    Dump(DumpArguments),
    /// Print the fields of the token of an interrupted receive
    Token(TokenArguments),
}

/// Arguments of `zstream dump` and `zstreamdump`.
#[derive(Args, Debug)]
#[command(
    after_help = "Prints the offset, kind and content of each record of a Cenote stream. For an OpenZFS stream, prints the heads
and ends of streams and a summary, and with -v each record. Ends at the first damage, with exit status 1.

Examples:
  zstream dump home.stream
  fs send tank/home@monday | zstreamdump -v"
)]
struct DumpArguments {
    /// Accepted and ignored: only records with a correct checksum can be read
    #[arg(short = 'C')]
    without_checksums: bool,
    /// Print more: the items of ranges, or each record of an OpenZFS stream
    #[arg(short = 'v')]
    verbose: bool,
    /// As -v; to print the content of files: fs stream cat
    #[arg(short = 'd')]
    data: bool,
    /// The stream file (default: standard input)
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Arguments of `zstream token`.
#[derive(Args, Debug)]
#[command(
    after_help = "Prints the token by the names of OpenZFS's fields. 'fs stream token' explains the token in words.

Examples:
  zstream token 1-e604ea4bf-e0-789c..."
)]
struct TokenArguments {
    /// The token
    #[arg(value_name = "TOKEN")]
    token: String,
}

/// The command line of the program `name`.
pub fn command(name: &str) -> Command {
    match name {
        DUMP => DumpArguments::augment_args(Command::new(DUMP))
            .version(env!("CARGO_PKG_VERSION"))
            .about("Print the records of a stream"),
        _ => Cli::command(),
    }
}

/// Runs the program under the name that the user has typed.
///
/// # Errors
/// Those of `fs stream dump` and `fs stream token`, and of standard input.
pub fn run(matches: &ArgMatches, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let misused = |error: clap::Error| Failure::usage(error.to_string());
    let command = match context.program {
        DUMP => ZstreamCommand::Dump(DumpArguments::from_arg_matches(matches).map_err(misused)?),
        _ => Cli::from_arg_matches(matches).map_err(misused)?.command,
    };
    match command {
        ZstreamCommand::Dump(arguments) => dump_any(&arguments, context)?,
        ZstreamCommand::Token(TokenArguments { token }) => context.print(&listed(&parsed(&token)?))?,
    }
    Ok(Exit::Done)
}

fn dump_any(arguments: &DumpArguments, context: &mut Context<'_>) -> Result<(), Failure> {
    let verbose = arguments.verbose || arguments.data;
    let name = arguments.file.as_deref().unwrap_or(Path::new(INPUT));
    let opened = match &arguments.file {
        Some(file) => File::open(file),
        None if context.console.terminals.input => {
            let failure = Failure::new("Stream can not be read from a terminal.");
            return Err(failure.hint("name a file, or redirect standard input"));
        }
        None => io::stdin().as_fd().try_clone_to_owned().map(File::from),
    };
    let failed = |error: io::Error| Failure::cannot("open", name.display(), system_text(&error));
    let file = opened.map_err(failed)?;
    let mut start = Vec::new();
    (&file).take(zfs::START as u64).read_to_end(&mut start).map_err(failed)?;
    if zfs::is_stream(&start) {
        let mut whole = start.as_slice().chain(BufReader::new(file));
        return dump_zfs(&mut whole, name, verbose, context);
    }
    let file = if opened_anywhere(&file) { file } else { copied(start.as_slice().chain(file))? };
    dump(&archive_of(file, name)?, name, verbose, context)
}

fn dump_zfs(input: &mut dyn Read, name: &Path, verbose: bool, context: &mut Context<'_>) -> Result<(), Failure> {
    let mut each = |line: &str| context.print(&format!("{line}\n")).map_err(Ended::Failed);
    zfs::dump(input, verbose, &mut each).map_err(|ended: Ended<Error>| ended.into_failure(name, |error| error))
}

/// A file without a name with all bytes of a pipe.
fn copied(mut pipe: impl Read) -> Result<File, Failure> {
    let folder = env::temp_dir();
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let unnamed = rustix::fs::open(&folder, flags, Mode::RUSR | Mode::WUSR);
    let copied = unnamed.map(File::from).map_err(io::Error::from).and_then(|mut copy| {
        io::copy(&mut pipe, &mut copy)?;
        Ok(copy)
    });
    copied.map_err(|error| {
        let failure = Failure::cannot("copy standard input to", folder.display(), system_text(&error));
        failure.hint("save the stream in a file, and name the file")
    })
}
