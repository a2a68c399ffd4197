//! `fs stream`: stream files as archives. No pool and no service takes part.

mod dump;
mod files;
mod info;
mod merge;
mod token;
mod verify;

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use dataset::archive::Tree;
use dataset::stream::archive::{Archive, Error, Layers, Stored};
use protocol::{Exit, Failure};
use service::{StreamFiles, system_text};

use crate::context::Context;

pub(in crate::commands) use dump::{Ended, dump};
pub(in crate::commands) use token::{fields, listed, parsed};

/// Arguments of `fs stream`.
#[derive(Args, Debug)]
#[command(
    after_help = "Reads the files of 'fs send' without a pool: lists and extracts their files, and verifies every byte. An index at the end of
a stream file lets these commands read only what they need. A file that was cut off has no index and is read up to the cut.

An increment contains what has changed since its base. With the stream of the base (-b, or in the same file) an increment
shows every file of its snapshot.

Examples:
  fs stream info home.stream
  fs stream ls -lR home.stream
  fs stream cat home.stream /ann/notes > notes
  fs stream cp -r home.stream /ann restored
  fs stream ls tuesday.stream                   what an increment changes
  fs stream cp -r -b monday.stream tuesday.stream / restored
  fs stream merge monday.stream tuesday.stream > full.stream"
)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    command: StreamCommand,
}

/// The subcommands of `fs stream`.
#[derive(Subcommand, Debug)]
enum StreamCommand {
    /// Show the snapshots in stream files
    Info(info::Arguments),
    /// Verify every byte of stream files
    Verify(verify::Arguments),
    /// List the files in a stream, or the changes of an increment
    Ls(files::ListArguments),
    /// Print files in a stream
    Cat(files::PrintArguments),
    /// Copy files out of a stream
    Cp(files::CopyArguments),
    /// Show the records of stream files
    Dump(dump::Arguments),
    /// Merge a stream and its increments into one stream
    Merge(merge::Arguments),
    /// Explain the token of an interrupted receive
    Token(token::Arguments),
}

/// Runs a subcommand of `fs stream`.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    match &arguments.command {
        StreamCommand::Info(arguments) => info::run(arguments, context),
        StreamCommand::Verify(arguments) => verify::run(arguments, context),
        StreamCommand::Ls(arguments) => files::list(arguments, context),
        StreamCommand::Cat(arguments) => files::print(arguments, context),
        StreamCommand::Cp(arguments) => files::copy(arguments, context),
        StreamCommand::Dump(arguments) => dump::run(arguments, context),
        StreamCommand::Merge(arguments) => merge::run(arguments, context),
        StreamCommand::Token(arguments) => token::run(arguments, context),
    }
}

/// The stream to read, and the files that it builds on.
#[derive(Args, Debug)]
struct Chosen {
    /// A file with the base of an increment; may be repeated
    #[arg(short = 'b', long = "base", value_name = "FILE")]
    bases: Vec<PathBuf>,
    /// Read this snapshot of a file with several streams, as DATASET@NAME or @NAME (default: the last)
    #[arg(short = 's', long, value_name = "SNAPSHOT")]
    snapshot: Option<String>,
    /// The stream file
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl Chosen {
    /// Opens the stream file and the files of its bases, the stream file first.
    fn open(&self) -> Result<Vec<Archive>, Failure> {
        std::iter::once(&self.file).chain(&self.bases).map(|file| open(file)).collect()
    }

    /// The files of the chosen stream.
    fn files<'a>(&self, archives: &'a [Archive], skip_damaged: bool) -> Result<StreamFiles<'a>, Failure> {
        let archive = &archives[0];
        let stream = self.stream(archive)?;
        if stream.begin.resumed.is_some() {
            let why =
                format!("the stream of {} continues an interrupted receive, and has only the rest", stream.name());
            return Err(
                Failure::cannot("read", self.file.display(), why).hint("to complete the receive: fs receive -s")
            );
        }
        let tree = Tree::new(Layers::of((archive, stream), archives))
            .map_err(|error| Failure::cannot("read", self.file.display(), error))?;
        Ok(StreamFiles::new(tree, skip_damaged))
    }

    fn stream<'a>(&self, archive: &'a Archive) -> Result<&'a Stored, Failure> {
        let refused = |why: String| Failure::cannot("read", self.file.display(), why);
        let Some(wanted) = &self.snapshot else {
            let last = archive.streams().last();
            return last.ok_or_else(|| refused(ended(archive).unwrap_or_else(|| "it has no stream".to_owned())));
        };
        let is_wanted = |stream: &&Stored| match wanted.strip_prefix('@') {
            Some(snapshot) => stream.begin.snapshot == snapshot,
            None => stream.name() == *wanted,
        };
        let mut found = archive.streams().iter().filter(is_wanted);
        let hint = format!("fs stream info {}", self.file.display());
        match (found.next(), found.next()) {
            (Some(stream), None) => Ok(stream),
            (None, _) => Err(refused(format!("it has no snapshot '{wanted}'")).hint(hint)),
            (Some(_), Some(_)) => Err(refused(format!("it has several snapshots '{wanted}'")).hint(hint)),
        }
    }
}

/// Opens a stream file.
fn open(file: &Path) -> Result<Archive, Failure> {
    let opened = File::open(file).map_err(|error| Failure::cannot("open", file.display(), system_text(&error)))?;
    archive_of(opened, file)
}

/// Opens a stream file that is open already; messages call it `name`.
pub(in crate::commands) fn archive_of(opened: File, name: &Path) -> Result<Archive, Failure> {
    let failed = |why: String| Failure::cannot("open", name.display(), why);
    let is_plain = opened.metadata().is_ok_and(|meta| meta.is_file() || !meta.is_dir() && opened_anywhere(&opened));
    if !is_plain {
        return Err(
            failed("it is not a file that can be read at any place".to_owned()).hint("save the stream in a file first")
        );
    }
    Archive::open(opened).map_err(|error| failed(error.to_string()))
}

/// Whether the file has a size, as a block device does and a pipe does not.
pub(in crate::commands) fn opened_anywhere(file: &File) -> bool {
    use std::io::{Seek, SeekFrom};
    let mut file = file;
    file.seek(SeekFrom::Start(0)).is_ok()
}

/// Why a file was not read to its end.
fn ended(archive: &Archive) -> Option<String> {
    archive.ended().map(|error| located(archive, error))
}

/// An error with the snapshot and the path that it concerns.
fn located(archive: &Archive, error: &Error) -> String {
    let offset = match error {
        Error::Damaged { offset, .. } => *offset,
        Error::Truncated { size } => size.saturating_sub(1),
        _ => return error.to_string(),
    };
    format!("{error}{}", place(archive, offset))
}

/// The snapshot and the path of the record at an offset, for messages.
fn place(archive: &Archive, offset: u64) -> String {
    let Some((stream, key)) = archive.at(offset) else { return String::new() };
    let layers = Layers::of((archive, stream), std::slice::from_ref(archive));
    let path = key.and_then(|key| Tree::new(layers).ok()?.path_of(key.object).ok());
    let path = path.map(|path| format!(", file '{}'", String::from_utf8_lossy(&path))).unwrap_or_default();
    format!(" (snapshot {}{path})", stream.name())
}
