//! Directory entries as records, for `fs ls`.

use dataset::fs::{Attr, Errno, FileSystem, FileType, Ino};

use super::{decode_device, reason, resolve::resolve};
use crate::{
    execute::job::Job,
    failure::Failure,
    protocol::{EntryRecord, FileKind, PathBytes},
};

const NANOS: i64 = 1_000_000_000;

/// The entries of the directory that `path` names, sorted by name, or the one entry of anything else.
pub(super) fn entries(
    fs: &FileSystem,
    path: &[u8],
    shown: &str,
    directory_itself: bool,
    recursive: bool,
    job: &mut Job<'_>,
) -> Result<Vec<EntryRecord>, Failure> {
    let failed = |errno| Failure::cannot("list", shown, reason(errno));
    // As ls does: a link to a directory is listed as the directory, unless the entry itself is asked for.
    let attr = resolve(fs, path, false).map_err(failed)?;
    let target = match attr.file_type {
        FileType::Symlink if !directory_itself => resolve(fs, path, true).ok(),
        _ => None,
    };
    let attr = target.filter(|target| target.file_type == FileType::Directory).unwrap_or(attr);
    if attr.file_type != FileType::Directory || directory_itself {
        return Ok(vec![record(fs, path.to_vec(), &attr).map_err(failed)?]);
    }
    let mut records = Vec::new();
    let mut todo = vec![(Vec::new(), attr.ino)];
    while let Some((prefix, dir)) = todo.pop() {
        job.check()?;
        let found = directory(fs, dir, &prefix).map_err(failed)?;
        if recursive {
            let below = found.iter().rev().filter(|(_, attr)| attr.file_type == FileType::Directory);
            todo.extend(below.map(|(name, attr)| ([name, &b"/"[..]].concat(), attr.ino)));
        }
        for (name, attr) in found {
            records.push(record(fs, name, &attr).map_err(failed)?);
        }
    }
    if recursive {
        records.sort_by(|a, b| a.name.0.split(|byte| *byte == b'/').cmp(b.name.0.split(|byte| *byte == b'/')));
    }
    Ok(records)
}

/// The entries of one directory by name, `.` and `..` left out.
pub(super) fn directory(fs: &FileSystem, dir: Ino, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Attr)>, Errno> {
    let mut found = Vec::new();
    fs.readdir_plus(dir, 0, &mut |entry, attr| {
        if entry.name != b"." && entry.name != b".." {
            found.push(([prefix, entry.name].concat(), *attr));
        }
        true
    })?;
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

fn record(fs: &FileSystem, name: Vec<u8>, attr: &Attr) -> Result<EntryRecord, Errno> {
    let is_device = matches!(attr.file_type, FileType::BlockDevice | FileType::CharDevice);
    let target = match attr.file_type {
        FileType::Symlink => Some(PathBytes(fs.readlink(attr.ino)?)),
        _ => None,
    };
    Ok(EntryRecord {
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
        target,
        device: is_device.then(|| decode_device(attr.rdev)),
    })
}

/// A file's type, as the protocol names it.
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
