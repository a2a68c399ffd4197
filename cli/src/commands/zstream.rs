//! `zstream` and `zstreamdump`: OpenZFS's names for `fs stream dump` and `fs stream token`.
//!
//! Streams of Cenote have other records than OpenZFS's, so the lines of a dump differ. Its records are read from a file at
//! any place; a pipe is first copied to a temporary file without a name.

use std::{
    env,
    fs::File,
    io,
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use clap::{ArgMatches, Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use dataset::stream::archive::Archive;
use protocol::{Exit, Failure};
use rustix::fs::{Mode, OFlags};
use service::system_text;

use super::fs::stream::{archive_of, dump, listed, open, opened_anywhere, parsed};
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
    after_help = "Prints the offset, kind and content of each record of a Cenote stream. Ends at the first damage, with exit status 1.

Examples:
  zstream dump home.stream
  fs send tank/home@monday | zstreamdump -v"
)]
struct DumpArguments {
    /// Accepted and ignored: only records with a correct checksum can be read
    #[arg(short = 'C')]
    without_checksums: bool,
    /// Print the items of ranges too
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

Example:
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
        ZstreamCommand::Dump(arguments) => {
            let name = arguments.file.as_deref().unwrap_or(Path::new(INPUT));
            let archive = match &arguments.file {
                Some(file) => open(file)?,
                None => input(context)?,
            };
            dump(&archive, name, arguments.verbose || arguments.data, context)?;
        }
        ZstreamCommand::Token(TokenArguments { token }) => context.print(&listed(&parsed(&token)?))?,
    }
    Ok(Exit::Done)
}

/// The stream on standard input.
fn input(context: &Context<'_>) -> Result<Archive, Failure> {
    if context.console.terminals.input {
        return Err(
            Failure::new("Stream can not be read from a terminal.").hint("name a file, or redirect standard input")
        );
    }
    let failed = |error: io::Error| Failure::cannot("read", INPUT, system_text(&error));
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned().map_err(failed)?);
    if opened_anywhere(&input) {
        return archive_of(input, Path::new(INPUT));
    }
    let folder = env::temp_dir();
    let unnamed = rustix::fs::open(&folder, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
    let copied = unnamed.map(File::from).map_err(io::Error::from).and_then(|mut copy| {
        io::copy(&mut input, &mut copy)?;
        Ok(copy)
    });
    let copy = copied.map_err(|error| {
        Failure::cannot("copy standard input to", folder.display(), system_text(&error))
            .hint("save the stream in a file, and name the file")
    })?;
    archive_of(copy, Path::new(INPUT))
}
