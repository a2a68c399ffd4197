//! The files that a copy or a list reads: of an open dataset or snapshot here, of a stream file in [`super::archive`].

use std::fmt::{self, Display, Formatter};

use dataset::fs::{Attr, Errno};
use protocol::Failure;

use super::{CHUNK, next_data, reason, resolve::resolve, served::Served};

/// Number of directory entries read at once.
pub(super) const ENTRIES: usize = 4096;

/// An entry of a directory: its name, and the file.
pub(super) type Named = (Vec<u8>, Attr);

/// Gets the offset and the bytes of a piece of a file.
pub(super) type EachPiece<'a> = &'a mut dyn FnMut(u64, &[u8]) -> Result<(), Failure>;

/// Gets the name and the value of an extended attribute.
pub(super) type EachXattr<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<(), Failure>;

/// Why a file cannot be read, for messages.
#[derive(Debug)]
pub(super) struct Unreadable(pub(super) String);

impl Display for Unreadable {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl From<Errno> for Unreadable {
    fn from(errno: Errno) -> Unreadable {
        Unreadable(reason(errno))
    }
}

/// Why the content of a file was not passed to its end.
#[derive(Debug)]
pub(super) enum Stopped {
    /// The source cannot be read.
    Unreadable(Unreadable),
    /// The caller's callback has failed.
    Failed(Failure),
}

impl Stopped {
    /// The failure, with `unread` for the source's.
    pub(super) fn failure(self, unread: impl FnOnce(Unreadable) -> Failure) -> Failure {
        match self {
            Stopped::Unreadable(why) => unread(why),
            Stopped::Failed(failure) => failure,
        }
    }
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Stopped {
        Stopped::Failed(failure)
    }
}

impl From<Unreadable> for Stopped {
    fn from(why: Unreadable) -> Stopped {
        Stopped::Unreadable(why)
    }
}

impl From<Errno> for Stopped {
    fn from(errno: Errno) -> Stopped {
        Stopped::Unreadable(errno.into())
    }
}

/// Files that can be read, but not changed.
pub(super) trait Files {
    /// The file at a path. A symbolic link at the end is followed with `follow`, or if the path ends with a slash.
    fn find(&self, path: &[u8], follow: bool) -> Result<Attr, Unreadable>;

    /// The entries of a directory after `cookie`, without `.` and `..`; empty at the end. Moves the cookie, which
    /// begins as 0.
    fn entries(&self, dir: &Attr, cookie: &mut u64) -> Result<Vec<Named>, Unreadable>;

    /// The target of a symbolic link.
    fn link_target(&self, link: &Attr) -> Result<Vec<u8>, Unreadable>;

    /// Passes the content of a regular file, without its holes, by ascending offset. `buffer` spares allocations.
    fn data(&self, file: &Attr, buffer: &mut Vec<u8>, each: EachPiece<'_>) -> Result<(), Stopped>;

    /// Passes names and values of extended attributes.
    fn xattrs(&self, file: &Attr, each: EachXattr<'_>) -> Result<(), Stopped>;

    /// Device and inode number of an object as programs on this machine see the object, if they do.
    fn identity(&self, ino: u64) -> Option<(u64, u64)>;
}

impl Files for Served {
    fn find(&self, path: &[u8], follow: bool) -> Result<Attr, Unreadable> {
        Ok(resolve(self, path, follow)?)
    }

    fn entries(&self, dir: &Attr, cookie: &mut u64) -> Result<Vec<Named>, Unreadable> {
        let mut entries = Vec::new();
        self.same(dir).readdir_plus(dir.ino, *cookie, &mut |entry, attr| {
            *cookie = entry.cookie;
            if entry.name != b"." && entry.name != b".." {
                entries.push((entry.name.to_vec(), *attr));
            }
            entries.len() < ENTRIES
        })?;
        Ok(entries)
    }

    fn link_target(&self, link: &Attr) -> Result<Vec<u8>, Unreadable> {
        Ok(self.same(link).readlink(link.ino)?)
    }

    fn data(&self, file: &Attr, buffer: &mut Vec<u8>, each: EachPiece<'_>) -> Result<(), Stopped> {
        self.write_back(file.ino);
        let (source, mut from) = (self.content(file), 0);
        while let Some((mut at, stop)) = next_data(&source, file, from)? {
            from = stop;
            while at < stop {
                buffer.clear();
                source.read(file.ino, at, (stop - at).min(CHUNK as u64) as usize, buffer)?;
                if buffer.is_empty() {
                    // The file was truncated meanwhile.
                    break;
                }
                each(at, buffer)?;
                at += buffer.len() as u64;
            }
        }
        Ok(())
    }

    fn xattrs(&self, file: &Attr, each: EachXattr<'_>) -> Result<(), Stopped> {
        let source = self.same(file);
        // One value at a time: a file may have many attributes.
        for name in source.listxattr(file.ino)? {
            each(&name, &source.getxattr(file.ino, &name)?)?;
        }
        Ok(())
    }

    fn identity(&self, ino: u64) -> Option<(u64, u64)> {
        Served::identity(self, ino)
    }
}
