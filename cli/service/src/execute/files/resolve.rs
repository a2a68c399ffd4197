//! From a path to a file, without the kernel.
//!
//! Symbolic links are followed as by the kernel, with two differences. An absolute target starts at the dataset's
//! root, the only root there is. Nothing above this root can be reached.

use std::collections::VecDeque;

use dataset::fs::{Attr, Errno, FileSystem, FileType, Ino, ROOT};

/// Number of lookups of a path if the tree is replaced meanwhile.
const TRIES: usize = 3;

/// Maximum number of symbolic links in one path, as in the kernel.
const MAX_LINKS: usize = 40;

/// The file at a path. A symbolic link at the end is followed with `follow`, or if the path ends with a slash.
pub(super) fn resolve(fs: &FileSystem, path: &[u8], follow: bool) -> Result<Attr, Errno> {
    let wants_directory = path.ends_with(b"/");
    let attr = in_one_tree(fs, |fs| walk(fs, parts(path), follow || wants_directory))?;
    match wants_directory && attr.file_type != FileType::Directory {
        true => Err(Errno::NOTDIR),
        false => Ok(attr),
    }
}

/// A place for a file, whether or not a file exists: a directory, and a name inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) dir: Ino,
    pub(super) name: Vec<u8>,
}

/// The place of a path, whether or not a file exists.
pub(super) fn place(fs: &FileSystem, path: &[u8]) -> Result<Place, Errno> {
    let mut parts = parts(path);
    let name = parts.pop_back().filter(|name| name != b"." && name != b"..").ok_or(Errno::EXIST)?;
    let dir = in_one_tree(fs, |fs| walk(fs, parts.clone(), true))?;
    match dir.file_type {
        FileType::Directory => Ok(Place { dir: dir.ino, name }),
        _ => Err(Errno::NOTDIR),
    }
}

/// The end of a path without symbolic links.
pub(super) enum Unlinked {
    /// An existing directory.
    Directory(Ino),
    /// A place for a file. A link under the file's name is no step of the path: a copy replaces the link.
    File(Place),
    /// A step of the path is a link, at this path.
    Link(Vec<u8>),
}

/// The end of a path on which no symbolic link is followed.
pub(super) fn unlinked(fs: &FileSystem, path: &[u8]) -> Result<Unlinked, Errno> {
    in_one_tree(fs, |fs| walk_unlinked(fs, path))
}

fn walk_unlinked(fs: &FileSystem, path: &[u8]) -> Result<Unlinked, Errno> {
    let wants_directory = path.ends_with(b"/");
    let (mut at, mut shown, mut left) = (ROOT, Vec::new(), parts(path));
    while let Some(part) = left.pop_front() {
        shown.extend([b"/", part.as_slice()].concat());
        let is_last = left.is_empty() && !wants_directory;
        let next = match fs.lookup(at, &part) {
            Err(Errno::NOENT) if is_last => return Ok(Unlinked::File(Place { dir: at, name: part })),
            next => next?,
        };
        match next.file_type {
            FileType::Directory => at = next.ino,
            _ if is_last => return Ok(Unlinked::File(Place { dir: at, name: part })),
            FileType::Symlink => return Ok(Unlinked::Link(shown)),
            _ => return Err(Errno::NOTDIR),
        }
    }
    Ok(Unlinked::Directory(at))
}

/// Runs a lookup of several steps within one tree, and retries if the tree is replaced meanwhile.
fn in_one_tree<T>(fs: &FileSystem, look: impl Fn(&FileSystem) -> Result<T, Errno>) -> Result<T, Errno> {
    for _ in 1..TRIES {
        match look(&fs.pinned()) {
            Err(Errno::STALE) => {}
            looked => return looked,
        }
    }
    look(&fs.pinned())
}

fn parts(path: &[u8]) -> VecDeque<Vec<u8>> {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).map(<[u8]>::to_vec).collect()
}

fn walk(fs: &FileSystem, mut parts: VecDeque<Vec<u8>>, follow: bool) -> Result<Attr, Errno> {
    let mut at = fs.getattr(ROOT)?;
    let mut links = 0;
    while let Some(part) = parts.pop_front() {
        let next = fs.lookup(at.ino, &part)?;
        if next.file_type != FileType::Symlink || (parts.is_empty() && !follow) {
            at = next;
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(Errno::LOOP);
        }
        let target = fs.readlink(next.ino)?;
        if target.starts_with(b"/") {
            at = fs.getattr(ROOT)?;
        }
        for part in self::parts(&target).into_iter().rev() {
            parts.push_front(part);
        }
    }
    Ok(at)
}
