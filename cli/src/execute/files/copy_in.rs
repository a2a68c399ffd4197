//! Copying from this machine into a data set, as `cp -a` does.
//!
//! Kept are contents with their holes, modes, times, symbolic links, hard links within what is copied, fifos, sockets,
//! device nodes and extended attributes; owners too when root copies. A file that is there already is replaced, a
//! directory is merged into. A copy that fails leaves what it has copied so far.

use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use dataset::fs::{Attr, Caller, Errno, FileSystem, FileType, Ino, SetAttr, SetTime};
use rustix::fs::{Mode, OFlags};

use super::{
    CHUNK, cannot_here, encode_device,
    host::{self, Meta, Spot},
    reason,
    resolve::{Place, place, resolve},
    served::Served,
    set_xattrs,
};
use crate::{
    execute::job::Job,
    failure::Failure,
    protocol::{CopyRecord, PathBytes},
};

/// Copies `sources`, absolute paths of this machine, to `to` in a data set.
pub(super) fn copy_in(
    fs: &Served,
    sources: &[PathBytes],
    to: &[u8],
    recursive: bool,
    job: &mut Job<'_>,
) -> Result<CopyRecord, Failure> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let mut copy = CopyIn {
        fs,
        job,
        keeps_owners: uid.is_root(),
        caller: Caller { uid: uid.as_raw(), gid: gid.as_raw(), umask: 0 },
        linked: HashMap::new(),
        buffer: vec![0; CHUNK],
        done: CopyRecord::default(),
    };
    let target = Target::find(fs, to, sources.len())?;
    if !recursive {
        sources.iter().try_for_each(|source| refuse_directory(&source.0))?;
    }
    for source in sources {
        copy.source(&source.0, &target)?;
    }
    Ok(copy.done)
}

/// A copy that does not go into directories refuses them before it has changed anything.
fn refuse_directory(source: &[u8]) -> Result<(), Failure> {
    let path = Path::new(OsStr::from_bytes(source));
    match path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => {
            Err(Failure::cannot("copy", path.display(), "it is a directory").hint("copy directories too: -r"))
        }
        // What is wrong otherwise is told when it is read.
        _ => Ok(()),
    }
}

/// What the last argument means.
pub(super) enum Target {
    /// A directory that takes the sources under their own names.
    Into(Ino),
    /// The name that the one source gets.
    As(Place),
}

impl Target {
    /// Looks at what there is.
    pub(super) fn find(fs: &FileSystem, to: &[u8], sources: usize) -> Result<Target, Failure> {
        let failed = |why: String| Failure::cannot("copy to", String::from_utf8_lossy(to), why);
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
    /// The copies of files that have several names.
    linked: HashMap<(u64, u64), Ino>,
    buffer: Vec<u8>,
    done: CopyRecord,
}

impl CopyIn<'_, '_> {
    fn source(&mut self, source: &[u8], target: &Target) -> Result<(), Failure> {
        let path = Path::new(OsStr::from_bytes(source));
        let is_content = source == b"/" || source.ends_with(b"/.") || source.ends_with(b"/..");
        let name = path.file_name().filter(|_| !is_content);
        let Some(name) = name else { return self.content(path, target) };
        let at = match target {
            Target::Into(dir) => Place { dir: *dir, name: name.as_bytes().to_vec() },
            Target::As(place) => place.clone(),
        };
        let parent = path.parent().unwrap_or(Path::new("/"));
        let dir = host::open_directory(parent).map_err(|errno| failed(path, errno))?;
        self.any(&Spot { dir: &dir, name, path }, &at)
    }

    /// Copies what is in a directory, and its attributes, but not its name.
    fn content(&mut self, path: &Path, target: &Target) -> Result<(), Failure> {
        let dir = host::open_directory(path).map_err(|errno| failed(path, errno))?;
        let spot = Spot { dir: &dir, name: OsStr::new("."), path };
        let meta = spot.meta().map_err(|errno| failed(path, errno))?;
        match target {
            Target::Into(to) => self.directory(&spot, &meta, *to),
            Target::As(place) => {
                let made = self.fs.mkdir(&self.caller, place.dir, &place.name, 0o700);
                let dir = made.map_err(|errno| failed(path, errno))?.ino;
                self.fs.entry_changed(place);
                self.directory(&spot, &meta, dir)
            }
        }
    }

    /// Copies one thing of any kind.
    fn any(&mut self, from: &Spot<'_>, to: &Place) -> Result<(), Failure> {
        self.job.check()?;
        let failed = |errno| failed(from.path, errno);
        let meta = from.meta().map_err(failed)?;
        if meta.file_type == FileType::Directory {
            let dir = self.fs.make_directory(&self.caller, to).map_err(failed)?;
            return self.directory(from, &meta, dir);
        }
        self.make_way(to).map_err(failed)?;
        self.done.files += 1;
        let made = self.make_file(from, &meta, to);
        self.fs.entry_changed(to);
        made
    }

    /// Copies what is no directory to where nothing is.
    fn make_file(&mut self, from: &Spot<'_>, meta: &Meta, to: &Place) -> Result<(), Failure> {
        let failed = |errno| failed(from.path, errno);
        if let Some(first) = self.linked.get(&meta.identity) {
            self.fs.link(*first, to.dir, &to.name).map_err(failed)?;
            self.fs.object_changed(*first);
            return Ok(());
        }
        let ino = self.make(from, meta, to).map_err(failed)?;
        if meta.file_type == FileType::Regular {
            self.content_of_file(from, ino)?;
        }
        self.finish(from, meta, ino).map_err(failed)?;
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

    /// Makes the inode of something that is no directory.
    fn make(&self, from: &Spot<'_>, meta: &Meta, to: &Place) -> Result<Ino, Errno> {
        let made: Attr = match meta.file_type {
            FileType::Regular => self.fs.create(&self.caller, to.dir, &to.name, 0o600, true)?,
            FileType::Symlink => self.fs.symlink(&self.caller, to.dir, &to.name, &host::read_link(from)?)?,
            other => {
                let (major, minor) = meta.device;
                self.fs.mknod(&self.caller, to.dir, &to.name, other, meta.mode, encode_device(major, minor))?
            }
        };
        Ok(made.ino)
    }

    /// Copies a directory's entries into `to`, and then its attributes, for its times change with each entry.
    fn directory(&mut self, from: &Spot<'_>, meta: &Meta, to: Ino) -> Result<(), Failure> {
        self.done.directories += 1;
        let dir = from.open_directory().map_err(|errno| failed(from.path, errno))?;
        let names = host::names(&dir).map_err(|errno| failed(from.path, errno))?;
        for name in names {
            self.entry(&dir, from.path, OsStr::from_bytes(&name), to)?;
        }
        self.finish(from, meta, to).map_err(|errno| failed(from.path, errno))
    }

    fn entry(&mut self, dir: &OwnedFd, parent: &Path, name: &OsStr, to: Ino) -> Result<(), Failure> {
        let path: PathBuf = parent.join(name);
        let name: OsString = name.to_owned();
        let place = Place { dir: to, name: name.as_bytes().to_vec() };
        self.any(&Spot { dir, name: &name, path: &path }, &place)
    }

    fn content_of_file(&mut self, from: &Spot<'_>, to: Ino) -> Result<(), Failure> {
        let failed = |errno| failed(from.path, errno);
        let file = from.open(OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).map_err(failed)?;
        let mut end = 0;
        let mut at = 0;
        while let Some((start, stop)) = host::next_data(&file, at).map_err(failed)? {
            end = self.stretch(from, &file, to, start, stop)?;
            at = end;
            if end < stop {
                break;
            }
        }
        let size = rustix::fs::fstat(&file).map_err(failed)?.st_size as u64;
        if size > end {
            let longer = SetAttr { size: Some(size), ..SetAttr::default() };
            self.fs.setattr(&self.caller, to, &longer).map_err(failed)?;
        }
        Ok(())
    }

    /// Copies the bytes from `start` to `stop`, or to the end of the file, and says where that was.
    fn stretch(&mut self, from: &Spot<'_>, file: &OwnedFd, to: Ino, start: u64, stop: u64) -> Result<u64, Failure> {
        let failed = |errno| failed(from.path, errno);
        let mut at = start;
        while at < stop {
            self.job.check()?;
            let len = (stop - at).min(CHUNK as u64) as usize;
            let count = host::read_at(file, at, &mut self.buffer[..len]).map_err(failed)?;
            write_all(self.fs, to, at, &self.buffer[..count]).map_err(failed)?;
            at += count as u64;
            self.done.bytes += count as u64;
            self.job.tell(&from.path.to_string_lossy(), self.done.bytes, None);
            if count < len {
                break;
            }
        }
        Ok(at)
    }

    /// Gives the copy its extended attributes, owner, mode and times, in this order: each may undo the ones after it.
    fn finish(&self, from: &Spot<'_>, meta: &Meta, to: Ino) -> Result<(), Errno> {
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

fn failed(path: &Path, errno: Errno) -> Failure {
    cannot_here("copy", path, errno)
}
