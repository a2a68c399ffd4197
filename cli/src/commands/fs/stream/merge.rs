//! `fs stream merge`: a stream and its increments become one stream.

use std::{io::BufWriter, path::PathBuf};

use clap::Args;
use dataset::stream::{
    self,
    archive::{Archive, Layers, Stored},
};
use protocol::{Exit, Failure, Progress};

use super::{ended, located, open};
use crate::context::Context;
use crate::output::progress::Meter;

/// Bytes written at once.
const BUFFER: usize = 1 << 20;

/// Arguments of `fs stream merge`.
#[derive(Args, Debug)]
#[command(
    after_help = "Writes one stream to standard output: a full stream from a full stream and its increments, or an increment from increments.
Receiving the new stream gives the same dataset as receiving the files one after another, but only the last snapshot.

The last stream of the last file is the snapshot of the new stream; every other stream must be a base of that stream. Damaged
and truncated files are refused.

Examples:
  fs stream merge monday.stream tuesday.stream wednesday.stream > full.stream
  fs stream merge tuesday.stream wednesday.stream > increment.stream"
)]
pub(super) struct Arguments {
    /// Stream files, the oldest first
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

pub(super) fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    context.refuse_terminal()?;
    let archives: Vec<Archive> = arguments.files.iter().map(|file| open(file)).collect::<Result<_, _>>()?;
    let layers = chain(arguments, &archives)?;
    let size = archives.iter().map(Archive::size).sum();
    let (mut meter, what) = (Meter::new(context.console.terminals.error), layers.top().name());
    let mut tell = |done| meter.update(&Progress { what: what.clone(), done, total: Some(size) });
    let mut out = BufWriter::with_capacity(BUFFER, &mut context.console.output);
    stream::merge(&layers, &mut out, &mut tell).map_err(|error| {
        // The file with the damage is the file that has the damaged place.
        let place = archives.iter().map(|archive| located(archive, &error)).max_by_key(String::len);
        Failure::cannot("merge", &what, place.unwrap_or_else(|| error.to_string()))
    })?;
    Ok(Exit::Done)
}

/// The streams of all files, as a chain from the last stream of the last file to the lowest base.
fn chain<'a>(arguments: &Arguments, archives: &'a [Archive]) -> Result<Layers<'a>, Failure> {
    let each = || archives.iter().zip(&arguments.files);
    for (archive, file) in each() {
        if let Some(why) = ended(archive) {
            return Err(Failure::cannot("merge", file.display(), why));
        }
    }
    let (archive, file) = each().next_back().expect("the parser requires a file");
    let top = archive.streams().last();
    let top = top.ok_or_else(|| Failure::cannot("merge", file.display(), "it has no stream"))?;
    if top.begin.resumed.is_some() {
        return Err(Failure::cannot("merge", file.display(), "it has only the rest of an interrupted stream"));
    }
    let layers = Layers::of((archive, top), archives);
    let is_in = |stream: &Stored| layers.streams().any(|layer| std::ptr::eq(layer, stream));
    for (archive, file) in each() {
        if let Some(other) = archive.streams().iter().find(|stream| !is_in(stream)) {
            let why = format!("its snapshot {} is not a base of {}, the last", other.name(), top.name());
            let hint = "give the streams of one dataset, the oldest first; to see them: fs stream info FILE...";
            return Err(Failure::cannot("merge", file.display(), why).hint(hint));
        }
    }
    Ok(layers)
}
