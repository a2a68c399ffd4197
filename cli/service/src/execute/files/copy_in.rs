//! Copying from this machine into a dataset, as `cp -a` does.
//!
//! The copy keeps contents with their holes, modes, times, symbolic links, hard links among the sources, fifos,
//! sockets, device nodes and extended attributes; also owners when root copies. An existing file is replaced; an
//! existing directory is merged. A failed copy leaves the files already copied.
//!
//! Another user may replace the sources during the copy. So each source is opened once, without following links and
//! without blocking, and is read only through its descriptor. At any depth of directories, only some are open: see
//! [`super::trail`].

use std::{
    collections::HashMap,
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use dataset::fs::{Attr, Caller, Errno, FileSystem, FileType, Ino, SetAttr, SetTime};
use protocol::{CopyRecord, Failure, PathBytes};

use super::{
    CHUNK, cannot_here, encode_device,
    handle::Handle,
    host::{self, Meta},
    reason,
    resolve::{Place, Unlinked, place, resolve, unlinked},
    served::Served,
    set_xattrs,
    trail::Trail,
};
use crate::{execute::job::Job, owners::is_root};

/// Copies `sources`, absolute paths of this machine, to `to` in a dataset.
pub(super) fn copy_in(
    fs: &Served,
    sources: &[PathBytes],
    to: &[u8],
    (recursive, no_links): (bool, bool),
    job: &mut Job<'_>,
) -> Result<CopyRecord, Failure> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let mut copy = CopyIn {
        fs,
        job,
        keeps_owners: is_root(),
        caller: Caller { uid: uid.as_raw(), gid: gid.as_raw(), umask: 0 },
        linked: HashMap::new(),
        top: None,
        buffer: vec![0; CHUNK],
        done: CopyRecord::default(),
    };
    let target = Target::find(fs, to, sources.len(), no_links)?;
    if !recursive {
        sources.iter().try_for_each(|source| refuse_directory(&source.0))?;
    }
    for source in sources {
        copy.source(&source.0, &target)?;
    }
    Ok(copy.done)
}

/// Refuses a directory in a copy without `-r`, before anything is changed.
fn refuse_directory(source: &[u8]) -> Result<(), Failure> {
    let path = Path::new(OsStr::from_bytes(source));
    match path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => {
            Err(Failure::cannot("copy", path.display(), "it is a directory").hint("use -r to copy directories"))
        }
        // Other errors are reported when the source is read.
        _ => Ok(()),
    }
}

/// The meaning of the last argument.
pub(super) enum Target {
    /// A directory; the sources keep their names.
    Into(Ino),
    /// A new name for the only source.
    As(Place),
}

impl Target {
    /// Finds what the target path names in the dataset. With `no_links` a symbolic link on the way refuses: a user who owns a
    /// directory on the way could lead the copy to the files of another user.
    pub(super) fn find(fs: &FileSystem, to: &[u8], sources: usize, no_links: bool) -> Result<Target, Failure> {
        let failed = |why: String| Failure::cannot("copy to", String::from_utf8_lossy(to), why);
        if no_links {
            return match unlinked(fs, to).map_err(|errno| failed(reason(errno)))? {
                Unlinked::Directory(dir) => Ok(Target::Into(dir)),
                Unlinked::File(_) if sources > 1 => Err(failed("it is not a directory".to_owned())),
                Unlinked::File(place) => Ok(Target::As(place)),
                Unlinked::Link(path) => Err(failed(format!("{} is a symbolic link", String::from_utf8_lossy(&path)))),
            };
        }
        match resolve(fs, to, true) {
            Ok(attr) if attr.file_type == FileType::Directory => Ok(Target::Into(attr.ino)),
            Ok(_) | Err(Errno::NOENT) if sources > 1 => Err(failed("it is not a directory".to_owned())),
            Ok(_) | Err(Errno::NOENT) => Ok(Target::As(place(fs, to).map_err(|errno| failed(reason(errno)))?)),
            Err(errno) => Err(failed(reason(errno))),
        }
    }
}

struct CopyIn<'a, 'j> {
    fs: &'a Served,
    job: &'a mut Job<'j>,
    keeps_owners: bool,
    caller: Caller,
    /// Copies of files with several names in the source.
    linked: HashMap<(u64, u64), Ino>,
    /// The first directory created, as its mount shows the directory. A copy into its own source would meet this
    /// directory and never end.
    top: Option<(u64, u64)>,
    buffer: Vec<u8>,
    done: CopyRecord,
}

/// A directory being copied: its target and its attributes; no attributes for the top, which only takes the copies.
struct Level {
    to: Ino,
    meta: Option<Meta>,
}

/// The source directories on the current path, and the names of their subdirectories still to be copied.
type Way = Trail<Level, ()>;

impl CopyIn<'_, '_> {
    fn source(&mut self, source: &[u8], target: &Target) -> Result<(), Failure> {
        self.top = None;
        let path = Path::new(OsStr::from_bytes(source));
        let is_content = source == b"/" || source.ends_with(b"/.") || source.ends_with(b"/..");
        let name = path.file_name().filter(|_| !is_content);
        let failed = |errno| failed(path, errno);
        let Some(name) = name else { return self.content(path, target) };
        let at = match target {
            Target::Into(dir) => Place { dir: *dir, name: name.as_bytes().to_vec() },
            Target::As(place) => place.clone(),
        };
        let parent = path.parent().unwrap_or(Path::new("/"));
        let dir = Handle::directory_of(parent).map_err(failed)?;
        let mut way = Trail::new(dir, parent, Level { to: at.dir, meta: None }).map_err(failed)?;
        self.entry(&mut way, name.as_bytes(), &at)?;
        self.directories(way)
    }

    /// Copies a directory's entries and its attributes, but not its name.
    fn content(&mut self, path: &Path, target: &Target) -> Result<(), Failure> {
        let failed = |errno| failed(path, errno);
        let dir = Handle::directory_of(path).and_then(|dir| dir.readable()).map_err(failed)?;
        let meta = dir.meta().map_err(failed)?;
        let to = match target {
            Target::Into(to) => *to,
            Target::As(place) => {
                let made = self.fs.mkdir(&self.caller, place.dir, &place.name, 0o700).map_err(failed)?.ino;
                self.fs.entry_changed(place);
                made
            }
        };
        let mut way = Trail::new(dir, path, Level { to, meta: Some(meta) }).map_err(failed)?;
        self.directory(&mut way, &meta)?;
        self.directories(way)
    }

    /// Copies the pending directories, at any depth. Each gets its attributes last, because every new entry changes
    /// the times.
    fn directories(&mut self, mut way: Way) -> Result<(), Failure> {
        loop {
            self.job.check()?;
            if let Some((name, ())) = way.next() {
                let at = Place { dir: way.what().to, name };
                self.entry(&mut way, &at.name, &at)?;
                continue;
            }
            let path = way.shown(b"");
            match way.leave().map_err(|errno| failed(&path, errno))? {
                Some((dir, level)) => self.leave(&dir, &level, &path)?,
                None => break,
            }
        }
        let path = way.shown(b"");
        let (dir, level) = way.end();
        level.map_or(Ok(()), |level| self.leave(&dir, &level, &path))
    }

    fn leave(&self, dir: &Handle, level: &Level, path: &Path) -> Result<(), Failure> {
        let Some(meta) = level.meta else { return Ok(()) };
        self.finish(dir, &meta, level.to).map_err(|errno| failed(path, errno))
    }

    /// Copies one file of any type. Of a directory, only the entries other than directories are copied; its
    /// subdirectories wait.
    fn entry(&mut self, way: &mut Way, name: &[u8], to: &Place) -> Result<(), Failure> {
        let found = Handle::find(way.dir(), OsStr::from_bytes(name));
        let found = found.and_then(|found| Ok((found.meta()?, found)));
        let (meta, found) = found.map_err(|errno| failed(&way.shown(name), errno))?;
        if meta.file_type != FileType::Directory {
            return self.no_directory(&found, &meta, to, &|| way.shown(name));
        }
        let opened = found.readable();
        let opened = opened.and_then(|dir| Ok((dir, self.fs.make_directory(&self.caller, to)?)));
        let entered = opened.and_then(|(dir, ino)| way.enter(dir, name, Level { to: ino, meta: Some(meta) }));
        entered.map_err(|errno| failed(&way.shown(name), errno))?;
        self.directory(way, &meta)
    }

    /// Copies the entries of the deepest directory. Subdirectories wait.
    fn directory(&mut self, way: &mut Way, meta: &Meta) -> Result<(), Failure> {
        let to = way.what().to;
        let path = way.shown(b"");
        let failed = |errno| failed(&path, errno);
        if self.top == Some(meta.identity) {
            return Err(Failure::cannot("copy", path.display(), "a directory cannot be copied into itself"));
        }
        self.top = self.top.or(self.fs.identity(to));
        self.done.directories += 1;
        loop {
            let names = host::names(way.dir().fd()).map_err(failed)?;
            if names.is_empty() {
                way.arrange(Ord::cmp);
                return Ok(());
            }
            for (name, is_directory) in names {
                self.job.check()?;
                let at = Place { dir: to, name };
                let is_done = !is_directory && self.unless_directory(way, &at)?;
                if !is_done {
                    way.wait(at.name, ()).map_err(|why| Failure::cannot("copy", path.display(), why))?;
                }
            }
        }
    }

    /// Copies the file under a name in the deepest directory, unless the file is a directory. Returns whether the
    /// file was copied.
    fn unless_directory(&mut self, way: &Way, to: &Place) -> Result<bool, Failure> {
        let found = Handle::find(way.dir(), OsStr::from_bytes(&to.name));
        let found = found.and_then(|found| Ok((found.meta()?, found)));
        let (meta, found) = found.map_err(|errno| failed(&way.shown(&to.name), errno))?;
        if meta.file_type == FileType::Directory {
            return Ok(false);
        }
        self.no_directory(&found, &meta, to, &|| way.shown(&to.name)).map(|()| true)
    }

    fn no_directory(&mut self, from: &Handle, meta: &Meta, to: &Place, path: &Shown<'_>) -> Result<(), Failure> {
        self.make_way(to).map_err(|errno| failed(&path(), errno))?;
        self.done.files += 1;
        let made = self.make_file(from, meta, to, path);
        self.fs.entry_changed(to);
        made
    }

    /// Copies a file other than a directory to a free name.
    fn make_file(&mut self, from: &Handle, meta: &Meta, to: &Place, path: &Shown<'_>) -> Result<(), Failure> {
        let failed = |errno| failed(&path(), errno);
        if let Some(first) = self.linked.get(&meta.identity) {
            self.fs.link(*first, to.dir, &to.name).map_err(failed)?;
            self.fs.object_changed(*first);
            return Ok(());
        }
        let ino = self.make(from, meta, to).map_err(failed)?;
        if meta.file_type == FileType::Regular {
            let file = from.readable().map_err(failed)?;
            self.content_of_file(&file, ino, path)?;
            self.finish(&file, meta, ino).map_err(failed)?;
        } else {
            self.finish(from, meta, ino).map_err(failed)?;
        }
        if meta.links > 1 {
            self.linked.insert(meta.identity, ino);
        }
        Ok(())
    }

    fn make_way(&self, at: &Place) -> Result<(), Errno> {
        match self.fs.lookup(at.dir, &at.name) {
            Ok(found) => self.fs.remove(at, found.ino),
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Creates the inode of a file other than a directory.
    fn make(&self, from: &Handle, meta: &Meta, to: &Place) -> Result<Ino, Errno> {
        let made: Attr = match meta.file_type {
            FileType::Regular => self.fs.create(&self.caller, to.dir, &to.name, 0o600, true)?,
            FileType::Symlink => self.fs.symlink(&self.caller, to.dir, &to.name, &from.link_target()?)?,
            other => {
                let (major, minor) = meta.device;
                self.fs.mknod(&self.caller, to.dir, &to.name, other, meta.mode, encode_device(major, minor))?
            }
        };
        Ok(made.ino)
    }

    fn content_of_file(&mut self, file: &Handle, to: Ino, path: &Shown<'_>) -> Result<(), Failure> {
        let failed = |errno| failed(&path(), errno);
        let mut end = 0;
        let mut at = 0;
        while let Some((start, stop)) = host::next_data(file.fd(), at).map_err(failed)? {
            end = self.stretch(file, to, start, stop, path)?;
            at = end;
            if end < stop {
                break;
            }
        }
        let size = rustix::fs::fstat(file.fd()).map_err(failed)?.st_size as u64;
        if size > end {
            let longer = SetAttr { size: Some(size), ..SetAttr::default() };
            self.fs.setattr(&self.caller, to, &longer).map_err(failed)?;
        }
        Ok(())
    }

    /// Copies the bytes from `start` to `stop`, or to the end of the file. Returns the offset reached.
    fn stretch(&mut self, file: &Handle, to: Ino, start: u64, stop: u64, path: &Shown<'_>) -> Result<u64, Failure> {
        let failed = |errno| failed(&path(), errno);
        let mut at = start;
        while at < stop {
            self.job.check()?;
            let len = (stop - at).min(CHUNK as u64) as usize;
            let count = host::read_at(file.fd(), at, &mut self.buffer[..len]).map_err(failed)?;
            write_all(self.fs, to, at, &self.buffer[..count]).map_err(failed)?;
            at += count as u64;
            self.done.bytes += count as u64;
            self.job.report(&path().to_string_lossy(), self.done.bytes, None);
            if count < len {
                break;
            }
        }
        Ok(at)
    }

    /// Sets owner, extended attributes, mode and times of the copy. Each step could change values set by a later step.
    fn finish(&self, from: &Handle, meta: &Meta, to: Ino) -> Result<(), Errno> {
        let owner = self.keeps_owners.then_some((meta.uid, meta.gid));
        let is_link = meta.file_type == FileType::Symlink;
        let owned = SetAttr { uid: owner.map(|o| o.0), gid: owner.map(|o| o.1), ..SetAttr::default() };
        if owner.is_some_and(|owner| owner != (self.caller.uid, self.caller.gid)) {
            self.fs.setattr(&self.caller, to, &owned)?;
        }
        set_xattrs(self.fs, to, &from.xattrs()?)?;
        let rest = SetAttr {
            mode: (!is_link).then_some(meta.mode),
            atime: Some(SetTime::At(meta.atime)),
            mtime: Some(SetTime::At(meta.mtime)),
            ..SetAttr::default()
        };
        self.fs.setattr(&self.caller, to, &rest)?;
        self.fs.object_changed(to);
        Ok(())
    }
}

fn write_all(fs: &FileSystem, to: Ino, mut at: u64, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let written = fs.write(to, at, bytes, false)?;
        if written == 0 {
            return Err(Errno::IO);
        }
        at += written as u64;
        bytes = &bytes[written..];
    }
    Ok(())
}

/// The path of the current source, for messages.
type Shown<'a> = dyn Fn() -> PathBuf + 'a;

fn failed(path: &Path, errno: Errno) -> Failure {
    cannot_here("copy", path, errno)
}
