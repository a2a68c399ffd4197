//! Files of snapshots, and streams to and from files.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use dataset::property::dataset::MOUNTPOINT;
use protocol::Failure;

use super::{Action, Dry, File, Words, argument, command, name};
use crate::fields::{Fields, unescape};

pub(super) const ACTIONS: &[Action] = &[
    Action::new("restore", "Restore from the snapshot", restore, Dry::Show(both)).of_owner(),
    Action::new("send", "Send to a file", send, Dry::Option("-n -v")).of_owner().with_file(File::Written),
    Action::new("receive", "Receive from a file", receive, Dry::Option("-n -v")).of_owner().with_file(File::Read),
];

/// A place `NAME:/PATH`. In a name with `:/`, and before a path with `://`, the name ends with `://`.
fn place(of: &str, path: &[u8]) -> OsString {
    let is_plain = !of.contains(":/") && !path.windows(3).any(|found| found == b"://");
    let end: &[u8] = if is_plain { b":" } else { b":/" };
    OsString::from_vec([of.as_bytes(), end, path].concat())
}

fn path(fields: &Fields) -> Result<Vec<u8>, Failure> {
    let path = unescape(fields.need("path")?).filter(|path| path.starts_with(b"/"));
    path.ok_or_else(|| Failure::usage("the field 'path' is no path"))
}

/// The folder of a path, with a final `/`.
fn folder(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    &path[..end]
}

fn snapshot_and_dataset(fields: &Fields) -> Result<(String, String), Failure> {
    let snapshot = name(fields, "snapshot")?;
    let dataset = snapshot.split('@').next().unwrap_or_default().to_owned();
    Ok((snapshot, dataset))
}

fn restore(fields: &Fields) -> Result<Words, Failure> {
    let ((snapshot, dataset), path) = (snapshot_and_dataset(fields)?, path(fields)?);
    // A user who owns a folder on the way could lead the copy elsewhere with a link.
    let mut words = command(&["fs", "cp", "-r", "-v", "--no-links"]);
    words.push(place(&snapshot, &path));
    words.push(place(&dataset, folder(&path)));
    Ok(words)
}

/// The file in the snapshot; the restore replaces the file of the same name.
fn both(fields: &Fields) -> Result<Words, Failure> {
    let ((snapshot, _), path) = (snapshot_and_dataset(fields)?, path(fields)?);
    let mut words = command(&["fs", "ls", "-l"]);
    words.push(place(&snapshot, &path));
    Ok(words)
}

fn send(fields: &Fields) -> Result<Words, Failure> {
    file(fields)?;
    let mut words = command(&["fs", "send"]);
    if fields.has("recursive") {
        words.push("-R".into());
    }
    if fields.has("base") {
        words.extend(command(&["-i", &argument(fields, "base")?]));
    }
    words.push(name(fields, "snapshot")?.into());
    Ok(words)
}

fn receive(fields: &Fields) -> Result<Words, Failure> {
    file(fields)?;
    let mut words = command(&["fs", "receive"]);
    // A stream says where its file systems are mounted.
    if fields.has("no-mount") {
        words.extend(command(&["-u", "-x", MOUNTPOINT.row().name]));
    }
    words.push(name(fields, "dataset")?.into());
    Ok(words)
}

/// The absolute path of the file at the other end of a stream.
fn file(fields: &Fields) -> Result<&str, Failure> {
    match fields.need("file")? {
        path if path.starts_with('/') => Ok(path),
        path => Err(Failure::usage(format!("'{path}' is no absolute path"))),
    }
}
