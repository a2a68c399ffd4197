//! `fs stream ls`, `cat` and `cp`: the files in a stream.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
};

use clap::Args;
use dataset::archive::{Change, Changed};
use dataset::fs::FileType;
use protocol::{EntryRecord, Exit, Failure};
use serde_json::{Map, Value, json};
use service::StreamFiles;

use super::{Chosen, ended};
use crate::args::common::absolute;
use crate::commands::fs::{cp, ls};
use crate::context::Context;
use crate::output::names::{lossy, put, visible};
use crate::output::nested::Nested;

/// The most lines about files left out of a list.
const MOST_SKIPPED: usize = 20;

/// Arguments of `fs stream ls`.
#[derive(Args, Debug)]
#[command(
    after_help = "Without a path, an increment is listed as 'fs diff' lists changes: + added, - removed, M modified, R renamed. All changes are
known if the base is given with -b, or is in the same file. Otherwise only new and changed files are.

Examples:
  fs stream ls home.stream
  fs stream ls -lR home.stream /ann
  fs stream ls tuesday.stream                       changes of an increment
  fs stream ls -b monday.stream tuesday.stream      all changes
  fs stream ls -R -b monday.stream tuesday.stream / all files"
)]
pub(super) struct ListArguments {
    #[command(flatten)]
    listing: ls::Listing,
    #[command(flatten)]
    chosen: Chosen,
    /// Paths in the snapshot (default: / of a full stream, the changes of an increment)
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
}

/// Arguments of `fs stream cat`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fs stream cat home.stream /ann/notes > notes
  fs stream cat -s @monday home.stream /ann/notes")]
pub(super) struct PrintArguments {
    #[command(flatten)]
    chosen: Chosen,
    /// Paths of regular files in the snapshot
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
}

/// Arguments of `fs stream cp`.
#[derive(Args, Debug)]
#[command(
    after_help = "Copies as 'fs cp' does: modes, times, links, holes and extended attributes are kept, and owners if run by root. PATH/. is the
content of a directory.

Examples:
  fs stream cp home.stream /ann/notes .
  fs stream cp -r home.stream /ann restored
  fs stream cp -r --skip-damaged home.stream / restored"
)]
pub(super) struct CopyArguments {
    /// Copy directories recursively
    #[arg(short = 'r', short_aliases = ['R', 'a'])]
    recursive: bool,
    /// Print the number of files and bytes copied
    #[arg(short = 'v')]
    verbose: bool,
    /// Copy what is readable: damaged pieces of files become holes and are listed; the exit status is 1
    #[arg(long)]
    skip_damaged: bool,
    #[command(flatten)]
    chosen: Chosen,
    /// Paths in the snapshot, then the destination
    #[arg(value_name = "PATH|TO", required = true)]
    paths: Vec<OsString>,
}

pub(super) fn list(arguments: &ListArguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let archives = arguments.chosen.open()?;
    let files = arguments.chosen.files(&archives, false)?;
    // Files of a missing base are no damage.
    let files = if files.tree().missing().is_none() { files.skipping_damage() } else { files };
    match arguments.paths.is_empty() && files.tree().stream().begin.base.is_some() {
        true => changes(arguments, &files, context)?,
        false => entries(arguments, &files, context)?,
    }
    let skipped = files.skipped();
    for line in skipped.iter().take(MOST_SKIPPED) {
        context.note(&format!("not listed: {line}\n"))?;
    }
    if let more @ 1.. = skipped.len().saturating_sub(MOST_SKIPPED) {
        context.note(&format!("not listed: {more} more; fs stream verify shows the damage\n"))?;
    }
    let exit = at_end(&arguments.chosen, &archives, context)?;
    Ok(if skipped.is_empty() { exit } else { Exit::Failed })
}

/// Reports that the file was cut off, after what could be read.
fn at_end(
    chosen: &Chosen,
    archives: &[dataset::stream::archive::Archive],
    context: &mut Context<'_>,
) -> Result<Exit, Failure> {
    match ended(&archives[0]) {
        None => Ok(Exit::Done),
        Some(why) => {
            context.report(&Failure::cannot("read", format!("all of {}", chosen.file.display()), why))?;
            Ok(Exit::Failed)
        }
    }
}

fn entries(arguments: &ListArguments, files: &StreamFiles<'_>, context: &mut Context<'_>) -> Result<(), Failure> {
    let root = [OsString::from("/")];
    let paths = if arguments.paths.is_empty() { &root[..] } else { &arguments.paths[..] };
    let mut json = arguments.listing.json.then(|| Nested::object(&format!("{} stream ls", context.program), "files"));
    for (index, path) in paths.iter().enumerate() {
        let list = |each: &mut dyn FnMut(EntryRecord) -> Result<(), Failure>| {
            files.list(path.as_bytes(), (arguments.listing.directory_itself, arguments.listing.recursive), each)
        };
        if let Some(json) = &mut json {
            json.begin_array(&path.to_string_lossy());
            list(&mut |entry| {
                json.value(None, &ls::encode(&entry));
                json.ready().map_or(Ok(()), |text| context.print(&text))
            })?;
            json.end();
            continue;
        }
        if paths.len() > 1 {
            context.print(&format!("{}{}:\n", if index > 0 { "\n" } else { "" }, path.to_string_lossy()))?;
        }
        let shown = if context.console.terminals.output { visible } else { lossy };
        let mut long = ls::Long::new(arguments.listing.exact, context.zone, shown);
        list(&mut |entry| {
            if !arguments.listing.long {
                return ls::print_name(&entry.name.0, &mut context.console);
            }
            long.push(&entry);
            long.ready().map_or(Ok(()), |text| context.print(&text))
        })?;
        context.print(&long.take())?;
    }
    json.map_or(Ok(()), |json| context.print(&json.finish()))
}

fn changes(arguments: &ListArguments, files: &StreamFiles<'_>, context: &mut Context<'_>) -> Result<(), Failure> {
    let failed = |error| Failure::cannot("list", files.tree().stream().name(), error);
    let changes = files.tree().changes().map_err(failed)?;
    if arguments.listing.json {
        let all = changes.iter().map(encode).collect();
        return context.print_json("stream ls", "changes", Value::Array(all));
    }
    let text: String = changes.iter().map(line).collect();
    context.print(&text)?;
    if let Some(base) = files.tree().missing() {
        let which = match files.tree().stream().begin.since() {
            Some(_) => "removed and renamed files are not listed",
            None => "only new files and new content are listed",
        };
        context.note(&format!("{which}; for all changes give the stream of '{base}': -b FILE\n"))?;
    }
    Ok(())
}

fn line(changed: &Changed) -> String {
    let path = visible(&changed.path);
    match &changed.change {
        Change::Added => format!("+\t{path}\n"),
        Change::Removed => format!("-\t{path}\n"),
        Change::Modified => format!("M\t{path}\n"),
        Change::Renamed(to) => format!("R\t{path} -> {}\n", visible(to)),
    }
}

fn encode(changed: &Changed) -> Value {
    let mut object = Map::new();
    let sign = &line(changed)[..1];
    object.insert("change".into(), json!(sign));
    object.insert("type".into(), json!(changed.file_type.map(type_of)));
    put(&mut object, "path", &changed.path);
    if let Change::Renamed(to) = &changed.change {
        put(&mut object, "new_path", to);
    }
    Value::Object(object)
}

fn type_of(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "-",
        FileType::Directory => "d",
        FileType::Symlink => "l",
        FileType::Fifo => "p",
        FileType::Socket => "s",
        FileType::CharDevice => "c",
        FileType::BlockDevice => "b",
    }
}

pub(super) fn print(arguments: &PrintArguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let archives = arguments.chosen.open()?;
    let files = arguments.chosen.files(&archives, false)?;
    for path in &arguments.paths {
        files.read(path.as_bytes(), &mut context.console.output)?;
    }
    Ok(Exit::Done)
}

pub(super) fn copy(arguments: &CopyArguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let (paths, to) = match arguments.paths.split_last() {
        Some((to, paths)) if !paths.is_empty() => (paths, to),
        _ => return Err(Failure::usage("missing the place to copy to")),
    };
    let archives = arguments.chosen.open()?;
    let files = arguments.chosen.files(&archives, arguments.skip_damaged)?;
    let paths: Vec<Vec<u8>> = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
    let to = absolute(to)?;
    let copied =
        context.local(|said| files.copy(&paths, OsStr::from_bytes(&to.0).as_ref(), arguments.recursive, said))?;
    if arguments.verbose {
        context.print(&cp::render(&copied))?;
    }
    let skipped = files.skipped();
    for line in &skipped {
        context.note(&format!("skipped: {line}\n"))?;
    }
    Ok(if skipped.is_empty() { Exit::Done } else { Exit::Failed })
}
