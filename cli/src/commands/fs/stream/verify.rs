//! `fs stream verify`: every byte of stream files, as a receive verifies them.

use std::{
    fs::File,
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
    thread,
};

use clap::Args;
use dataset::property::size::format_bytes;
use dataset::stream::{self, Contents, archive::Error};
use protocol::{Exit, Failure, Progress};
use service::system_text;

use super::{located, open, place};
use crate::context::Context;
use crate::output::progress::Meter;

/// The most damages named of one file.
const MOST_DAMAGES: usize = 100;

/// Bytes read at once.
const BUFFER: usize = 1 << 20;

/// Arguments of `fs stream verify`.
#[derive(Args, Debug)]
#[command(
    after_help = "Verifies the checksum of each record and block, and that compressed data decompress, as 'fs receive' does. Each damage is
reported with its offset, snapshot and file. The exit status is 1 if a file is damaged.

Examples:
  fs stream verify *.stream
  ssh backup cat home.stream | fs stream verify -"
)]
pub(super) struct Arguments {
    /// Stream files; - is standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

pub(super) fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let mut exit = Exit::Done;
    for file in &arguments.files {
        match verified(file, context) {
            Ok(Contents { streams, bytes, .. }) => {
                let count =
                    if streams.len() == 1 { "1 stream".to_owned() } else { format!("{} streams", streams.len()) };
                context.print(&format!("{}: good, {count}, {}\n", file.display(), format_bytes(bytes)))?;
            }
            Err(failures) => {
                failures.iter().try_for_each(|failure| context.report(failure))?;
                exit = Exit::Failed;
            }
        }
    }
    Ok(exit)
}

/// Verifies a file. Fails with the first damage of a pipe, and with all damages of a file.
fn verified(file: &Path, context: &Context<'_>) -> Result<Contents, Vec<Failure>> {
    let failed = |why: String| Failure::cannot("verify", file.display(), why);
    let is_input = file.as_os_str() == "-";
    let (mut input, size): (Box<dyn Read>, _) = if is_input {
        (Box::new(io::stdin().lock()), None)
    } else {
        let opened = File::open(file).map_err(|error| vec![failed(system_text(&error))])?;
        let size = opened.metadata().ok().map(|meta| meta.len());
        (Box::new(BufReader::with_capacity(BUFFER, opened)), size)
    };
    let verifiers = thread::available_parallelism().map_or(1, usize::from);
    let (mut meter, what) = (Meter::new(context.console.terminals.error), file.display().to_string());
    let mut tell = |done| meter.update(&Progress { what: what.clone(), done, total: size });
    stream::verify(&mut *input, verifiers, &mut tell).map_err(|error| {
        let offset = match error {
            stream::Error::Damaged { offset, .. } => Some(offset),
            stream::Error::Truncated { offset, .. } => Some(offset.saturating_sub(1)),
            _ => None,
        };
        let Some(archive) = offset.filter(|_| !is_input).and_then(|_| open(file).ok()) else {
            return vec![failed(error.to_string())];
        };
        let mut failures = vec![failed(format!("{error}{}", place(&archive, offset.unwrap_or_default())))];
        let damages = archive.damages(MOST_DAMAGES + 1);
        let is_other = |damage: &&Error| !matches!(damage, Error::Damaged { offset: at, .. } if Some(*at) == offset);
        let others = damages.iter().filter(is_other).filter(|damage| matches!(damage, Error::Damaged { .. }));
        failures.extend(others.take(MOST_DAMAGES - 1).map(|damage| failed(located(&archive, damage))));
        if damages.len() > MOST_DAMAGES {
            failures.push(failed(format!("more than {MOST_DAMAGES} records are damaged; the rest are not named")));
        }
        failures
    })
}
