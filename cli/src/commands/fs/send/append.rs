//! `fs send --resume`: completes a stream file that was cut.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Seek, SeekFrom};
use std::path::Path;
use std::thread;

use dataset::name::SnapshotName;
use dataset::property::size::format_bytes;
use dataset::stream::{Cut, Error, Examined, examine};
use protocol::{Exit, Failure, StreamRequest};
use service::system_text;

use super::{rest, sent};
use crate::args::common::name;
use crate::context::Context;

pub(super) fn run(snapshot: &str, path: &Path, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let snapshot: SnapshotName = name("send", snapshot)?;
    let refused = |why: &dyn std::fmt::Display| Failure::cannot("continue", path.display(), why);
    let mut file =
        OpenOptions::new().read(true).write(true).open(path).map_err(|error| refused(&system_text(&error)))?;
    let cut = match examine(&mut BufReader::with_capacity(1 << 20, &file)).map_err(|error| refused(&error))? {
        Examined::Complete => {
            context.note(&format!("{} is complete\n", path.display()))?;
            return Ok(Exit::Done);
        }
        Examined::Unusable { streams: 1 } => {
            return Err(refused(&"it ends before its first record").hint("send it again"));
        }
        Examined::Unusable { streams } => {
            return Err(refused(&format!("it is a package of {streams} streams")).hint("send the package again"));
        }
        Examined::Cut(cut) => cut,
    };
    if cut.begin.snapshot != snapshot.snapshot() {
        return Err(refused(&format!("it is the stream of {}@{}", cut.begin.dataset, cut.begin.snapshot)));
    }
    if let Some(damage) = &cut.damage {
        let remedy = format!(
            "what follows the damage may be whole; to keep only the {} before it: truncate -s {} FILE, then the same command",
            format_bytes(cut.len),
            cut.len
        );
        return Err(refused(damage).hint(remedy));
    }
    // The sender must be able to send the rest before anything of the file goes.
    let what = rest(&cut.token(snapshot.clone()).to_string())?;
    let pool = snapshot.dataset().pool().to_owned();
    sent(context.call(&pool, StreamRequest::Send { what: what.clone(), dry_run: true })?)?;
    let length = file.metadata()?.len();
    let dropped = format_bytes(length.saturating_sub(cut.len));
    context.note(&format!("{}: {} are verified, {dropped} are sent again\n", path.display(), format_bytes(cut.len)))?;
    file.set_len(cut.len)?;
    file.seek(SeekFrom::Start(cut.len))?;
    complete(*cut, &pool, StreamRequest::Send { what, dry_run: false }, file, context)
        .map_err(|failure| failure.hint("to go on: the same command"))
}

/// Lets the pool of the snapshot send the rest, and writes the rest to the file.
fn complete(
    cut: Cut,
    pool: &str,
    request: StreamRequest,
    file: File,
    context: &mut Context<'_>,
) -> Result<Exit, Failure> {
    let (reader, writer) = io::pipe()?;
    let writing = thread::spawn(move || {
        let mut out = BufWriter::with_capacity(1 << 20, file);
        let mut input = BufReader::with_capacity(1 << 20, reader);
        // A rest that ends early is the sender's failure, which the answer explains.
        let is_senders = |error: &Error| matches!(error, Error::Truncated { .. });
        cut.complete(&mut input, &mut out).map_err(|error| (is_senders(&error), error.to_string()))?;
        let file = out.into_inner().map_err(|error| (false, system_text(error.error())))?;
        file.sync_all().map_err(|error| (false, system_text(&error)))
    });
    let called = context.call_with(pool, request, Some(writer.into()));
    let written = writing.join().map_err(|_| Failure::new("the thread that writes the file has failed"))?;
    let failed = |why| Failure::new(format!("cannot continue the stream file: {why}"));
    match written {
        Ok(()) => sent(called?).map(|_| Exit::Done),
        Err((true, why)) => sent(called?).and(Err(failed(why))),
        Err((false, why)) => Err(failed(why)),
    }
}
