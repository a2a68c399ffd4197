//! The files of a stream file: listed, read and copied out by the command itself, without any pool.
//!
//! With `skip_damaged`, a damaged piece of a file becomes a hole, and a file or directory that cannot be read is left
//! out; each is noted with its path. Otherwise the first damage ends the command.

use std::{
    cell::RefCell,
    collections::VecDeque,
    io::{self, Write},
    path::Path,
};

use dataset::{
    archive::{Entry, Error, Tree},
    fs::{Attr, FileType, Ino},
};
use protocol::{CopyRecord, EntryRecord, Failure, OnSaid};

use super::{
    CHUNK,
    copy_out::{Source, copy_out},
    list::record_of,
    source::{ENTRIES, EachPiece, EachXattr, Files, Named, Stopped, Unreadable},
};
use crate::execute::job::Job;

/// Maximum number of entries of a directory that are sorted together.
const LISTED: usize = 8 << 10;

/// The files of one stream.
pub struct StreamFiles<'a> {
    tree: Tree<'a>,
    skip_damaged: bool,
    skipped: RefCell<Vec<String>>,
}

impl<'a> StreamFiles<'a> {
    /// The files of a stream; damage is skipped on request.
    pub fn new(tree: Tree<'a>, skip_damaged: bool) -> StreamFiles<'a> {
        StreamFiles { tree, skip_damaged, skipped: RefCell::default() }
    }

    /// The same files, with damage skipped.
    pub fn skipping_damage(self) -> StreamFiles<'a> {
        StreamFiles { skip_damaged: true, ..self }
    }

    /// The file system in the stream.
    pub fn tree(&self) -> &Tree<'a> {
        &self.tree
    }

    /// What was left out because of damage, a line each.
    pub fn skipped(self) -> Vec<String> {
        self.skipped.into_inner()
    }

    /// Passes the entries of the directory at `path`, sorted by name within runs of thousands, or the entry of any
    /// other file.
    ///
    /// # Errors
    /// If the path is not in the stream, and those of `each`.
    pub fn list(
        &self,
        path: &[u8],
        (directory_itself, recursive): (bool, bool),
        each: &mut dyn FnMut(EntryRecord) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let failed = |why: Unreadable| Failure::cannot("list", self.shown(path), why);
        let attr = self.find(path, false).map_err(failed)?;
        let target = match attr.file_type {
            FileType::Symlink if !directory_itself => self.find(path, true).ok(),
            _ => None,
        };
        let attr = target.filter(|target| target.file_type == FileType::Directory).unwrap_or(attr);
        if attr.file_type != FileType::Directory || directory_itself {
            return each(self.record(path.to_vec(), &attr).map_err(failed)?);
        }
        let mut levels = vec![Level { dir: attr, path: Vec::new(), next: Some(0), ready: VecDeque::new() }];
        while let Some(level) = levels.last_mut() {
            let Some((name, attr)) = level.ready.pop_front() else {
                match level.next {
                    Some(offset) => self.read_run(level, offset).map_err(failed)?,
                    None => _ = levels.pop(),
                }
                continue;
            };
            let path = [&level.path[..], &name].concat();
            each(self.record(path.clone(), &attr).map_err(failed)?)?;
            if recursive && attr.file_type == FileType::Directory {
                let path = [&path[..], b"/"].concat();
                levels.push(Level { dir: attr, path, next: Some(0), ready: VecDeque::new() });
            }
        }
        Ok(())
    }

    /// Writes the content of the regular file at `path`; holes as zeros.
    ///
    /// # Errors
    /// If the path is not in the stream or cannot be read. A reader that has read enough is no error.
    pub fn read(&self, path: &[u8], to: &mut dyn Write) -> Result<(), Failure> {
        let failed = |why: Unreadable| Failure::cannot("read", self.shown(path), why);
        let attr = self.find(path, true).map_err(failed)?;
        match attr.file_type {
            FileType::Regular => {}
            FileType::Directory => return Err(failed(Unreadable("Is a directory".to_owned()))),
            _ => return Err(failed(Unreadable("it is not a regular file".to_owned()))),
        }
        let mut at = 0;
        let mut put = |offset: u64, bytes: &[u8]| {
            zeros(to, offset - at)?;
            at = offset + bytes.len() as u64;
            to.write_all(bytes)
        };
        let mut broken = None;
        let read = self.data(&attr, &mut Vec::new(), &mut |offset, bytes| {
            put(offset, bytes).map_err(|error| {
                broken = Some(error.kind());
                Failure::cannot("write", self.shown(path), error)
            })
        });
        match read {
            Err(_) if broken == Some(io::ErrorKind::BrokenPipe) => return Ok(()),
            read => read.map_err(|stopped| stopped.failure(failed))?,
        }
        match zeros(to, attr.size.saturating_sub(at)).and_then(|()| to.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written.map_err(|error| Failure::cannot("write", self.shown(path), error)),
        }
    }

    /// Copies the files at `paths` to `to`, an absolute path of this machine, as `cp -a` does.
    ///
    /// # Errors
    /// If a file cannot be read or created. Copied files stay.
    pub fn copy(&self, paths: &[Vec<u8>], to: &Path, recursive: bool, said: OnSaid<'_>) -> Result<CopyRecord, Failure> {
        let sources: Vec<Source<'_, StreamFiles<'a>>> =
            paths.iter().map(|path| Source { fs: self, path: &path[..], shown: self.shown(path) }).collect();
        copy_out(&sources, to, recursive, &mut Job::new(Vec::new(), said))
    }

    /// The snapshot and the path.
    fn shown(&self, path: &[u8]) -> String {
        format!("{}:{}", self.tree.stream().name(), String::from_utf8_lossy(path))
    }

    fn record(&self, name: Vec<u8>, attr: &Attr) -> Result<EntryRecord, Unreadable> {
        let target = match attr.file_type {
            FileType::Symlink => {
                let shown = || format!("the target of {}", self.path(attr.ino));
                self.unless_skipped(self.tree.link_target(attr), shown)?
            }
            _ => None,
        };
        Ok(record_of(name, attr, target))
    }

    /// Reads the next run of a directory, sorted by name.
    fn read_run(&self, level: &mut Level, offset: u64) -> Result<(), Unreadable> {
        let (mut run, next) = self.run(&level.dir, offset, LISTED)?;
        run.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        (level.ready, level.next) = (run.into(), next);
        Ok(())
    }

    /// Up to `most` entries with attributes, and the offset of the next entry, if any.
    fn run(&self, dir: &Attr, offset: u64, most: usize) -> Result<(Vec<Named>, Option<u64>), Unreadable> {
        let (mut entries, mut next) = (Vec::new(), None);
        let read = self.tree.entries(dir.ino, offset, &mut |entry| {
            if entries.len() == most {
                next = Some(entry.offset);
                return false;
            }
            entries.push(entry);
            true
        });
        self.unless_skipped(read, || format!("{}, entries of the directory", self.path(dir.ino)))?;
        // Inodes are stored in the order of their numbers.
        entries.sort_unstable_by_key(|entry: &Entry| entry.ino);
        let mut run = Vec::with_capacity(entries.len());
        for entry in entries {
            let name = String::from_utf8_lossy(&entry.name);
            let shown = || format!("'{name}' in {}", self.path(dir.ino));
            if let Some(attr) = self.unless_skipped(self.tree.attr_of(dir.ino, &entry), shown)? {
                run.push((entry.name.clone(), attr));
            }
        }
        Ok((run, next))
    }

    /// The result, or `None` if damage is skipped; then notes what was left out.
    fn unless_skipped<T>(
        &self,
        read: Result<T, Error>,
        shown: impl FnOnce() -> String,
    ) -> Result<Option<T>, Unreadable> {
        match read {
            Ok(value) => Ok(Some(value)),
            Err(Error::Archive(damage)) if self.skip_damaged => {
                self.skipped.borrow_mut().push(format!("{}: {damage}", shown()));
                Ok(None)
            }
            Err(error) => Err(self.unreadable(error)),
        }
    }

    /// A path of the file, or its inode number if that is damaged too.
    fn path(&self, ino: Ino) -> String {
        match self.tree.path_of(ino) {
            Ok(path) => format!("'{}'", String::from_utf8_lossy(&path)),
            Err(_) => format!("inode {ino}"),
        }
    }

    fn unreadable(&self, error: Error) -> Unreadable {
        Unreadable(error.to_string())
    }
}

/// A directory on the path of a list.
struct Level {
    dir: Attr,
    /// The path of its entries, up to their names.
    path: Vec<u8>,
    /// The offset of the entry after the run; `None` after the last run.
    next: Option<u64>,
    ready: VecDeque<Named>,
}

impl Files for StreamFiles<'_> {
    fn find(&self, path: &[u8], follow: bool) -> Result<Attr, Unreadable> {
        self.tree.find(path, follow).map_err(|error| self.unreadable(error))
    }

    fn entries(&self, dir: &Attr, cookie: &mut u64) -> Result<Vec<Named>, Unreadable> {
        loop {
            if *cookie == u64::MAX {
                return Ok(Vec::new());
            }
            let (run, next) = self.run(dir, *cookie, ENTRIES)?;
            *cookie = next.unwrap_or(u64::MAX);
            if !run.is_empty() {
                return Ok(run);
            }
        }
    }

    fn link_target(&self, link: &Attr) -> Result<Vec<u8>, Unreadable> {
        self.tree.link_target(link).map_err(|error| self.unreadable(error))
    }

    fn data(&self, file: &Attr, _: &mut Vec<u8>, each: EachPiece<'_>) -> Result<(), Stopped> {
        let read = self.tree.data(file, &mut |range, bytes| {
            let shown = || format!("{}, bytes {} to {}", self.path(file.ino), range.start, range.end);
            let Some(bytes) = self.unless_skipped(bytes, shown)? else { return Ok(()) };
            // A caller checks for cancellation with each piece.
            let mut at = range.start;
            for part in bytes.chunks(CHUNK) {
                each(at, part)?;
                at += part.len() as u64;
            }
            Ok(())
        });
        read.or_else(|stopped| match stopped {
            StoppedBy::Tree(error) => {
                let shown = || format!("{}, the rest of the file", self.path(file.ino));
                self.unless_skipped(Err(error), shown).map(|_: Option<()>| ()).map_err(Stopped::Unreadable)
            }
            StoppedBy::Other(stopped) => Err(stopped),
        })
    }

    fn xattrs(&self, file: &Attr, each: EachXattr<'_>) -> Result<(), Stopped> {
        let read = self.tree.xattrs(file.ino, &mut |name, value| Ok(each(name, value)?));
        read.or_else(|stopped| match stopped {
            StoppedBy::Tree(error) => {
                let shown = || format!("{}, extended attributes", self.path(file.ino));
                self.unless_skipped(Err(error), shown).map(|_: Option<()>| ()).map_err(Stopped::Unreadable)
            }
            StoppedBy::Other(stopped) => Err(stopped),
        })
    }

    fn identity(&self, _: u64) -> Option<(u64, u64)> {
        None
    }
}

/// Why a visit of a tree has ended early.
enum StoppedBy {
    Tree(Error),
    Other(Stopped),
}

impl From<Error> for StoppedBy {
    fn from(error: Error) -> StoppedBy {
        StoppedBy::Tree(error)
    }
}

impl From<Failure> for StoppedBy {
    fn from(failure: Failure) -> StoppedBy {
        StoppedBy::Other(Stopped::Failed(failure))
    }
}

impl From<Unreadable> for StoppedBy {
    fn from(why: Unreadable) -> StoppedBy {
        StoppedBy::Other(Stopped::Unreadable(why))
    }
}

/// Writes `len` zeros, for a hole.
fn zeros(to: &mut dyn Write, mut len: u64) -> io::Result<()> {
    const ZEROS: [u8; 4096] = [0; 4096];
    while len > 0 {
        let part = len.min(ZEROS.len() as u64);
        to.write_all(&ZEROS[..part as usize])?;
        len -= part;
    }
    Ok(())
}
