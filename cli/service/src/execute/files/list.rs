//! Directory entries as records, for `fs ls`.

use dataset::fs::{Attr, Errno, FileType};
use protocol::{EntryRecord, Failure, FileKind, PathBytes};

use super::{decode_device, reason, resolve::resolve, served::Served, walk::Walk};
use crate::execute::{job::Job, parts::Parts};

const NANOS: i64 = 1_000_000_000;

/// Sends the entries of the directory `path`, sorted by name, or the single entry of any other file.
pub(super) fn entries(
    fs: &Served,
    path: &[u8],
    shown: &str,
    directory_itself: bool,
    recursive: bool,
    job: &mut Job<'_>,
) -> Result<(), Failure> {
    let failed = |errno| Failure::cannot("list", shown, reason(errno));
    // As in ls, a link to a directory is listed as the directory, unless the request is for the entry itself.
    let attr = resolve(fs, path, false).map_err(failed)?;
    let target = match attr.file_type {
        FileType::Symlink if !directory_itself => resolve(fs, path, true).ok(),
        _ => None,
    };
    let attr = target.filter(|target| target.file_type == FileType::Directory).unwrap_or(attr);
    let mut parts = Parts::default();
    if attr.file_type != FileType::Directory || directory_itself {
        parts.push(record(fs, path.to_vec(), &attr).map_err(failed)?, job)?;
        return parts.finish(job);
    }
    let mut walk = Walk::new(fs, &attr, recursive, job);
    while let Some(attr) = walk.next().map_err(failed)? {
        job.check()?;
        match record(fs, walk.path().to_vec(), &attr) {
            // The file was removed meanwhile.
            Err(Errno::NOENT) => {}
            record => parts.push(record.map_err(failed)?, job)?,
        }
    }
    parts.finish(job)
}

fn record(fs: &Served, name: Vec<u8>, attr: &Attr) -> Result<EntryRecord, Errno> {
    let target = match attr.file_type {
        FileType::Symlink => Some(fs.same(attr).readlink(attr.ino)?),
        _ => None,
    };
    Ok(record_of(name, attr, target))
}

/// The record of a file, with the target of a symbolic link.
pub(super) fn record_of(name: Vec<u8>, attr: &Attr, target: Option<Vec<u8>>) -> EntryRecord {
    let is_device = matches!(attr.file_type, FileType::BlockDevice | FileType::CharDevice);
    EntryRecord {
        name: PathBytes(name),
        kind: kind(attr.file_type),
        mode: attr.mode.into(),
        links: attr.nlink.into(),
        uid: attr.uid,
        gid: attr.gid,
        size: attr.size,
        stored: attr.blocks.saturating_mul(512),
        inode: attr.ino,
        modified: (attr.mtime.div_euclid(NANOS), attr.mtime.rem_euclid(NANOS) as u32),
        target: target.map(PathBytes),
        device: is_device.then(|| decode_device(attr.rdev)),
    }
}

/// The protocol's name for a file type.
pub(crate) fn kind(file_type: FileType) -> FileKind {
    match file_type {
        FileType::Regular => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::BlockDevice => FileKind::Block,
        FileType::CharDevice => FileKind::Character,
    }
}
