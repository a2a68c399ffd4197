//! Copying from a dataset or a snapshot to a dataset of the same pool, as `cp -a --reflink=auto` does.
//!
//! Contents share their blocks where possible, so a copy takes hardly any space. Everything else is kept as in
//! [`super::copy_in`].

use std::collections::HashMap;

use dataset::fs::{Attr, Caller, Errno, FileSystem, FileType, Identity, Ino, SetAttr, SetTime};
use protocol::{CopyRecord, Failure};

use super::{
    copy_in::Target,
    copy_out::{Source, refuse_directory},
    host::Xattr,
    next_data, reason,
    resolve::{Place, resolve},
    served::Served,
    set_xattrs,
    walk::Entries,
};
use crate::{execute::job::Job, owners::is_root};

/// Copies `sources` to `to` in the dataset of the file system `fs`.
pub(super) fn copy_within(
    fs: &Served,
    sources: &[Source<'_, Served>],
    to: &[u8],
    (recursive, no_links): (bool, bool),
    job: &mut Job<'_>,
) -> Result<CopyRecord, Failure> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let target = Target::find(fs, to, sources.len(), no_links)?;
    if !recursive {
        sources.iter().try_for_each(refuse_directory)?;
    }
    let mut done = CopyRecord::default();
    for source in sources {
        let mut copy = CopyWithin {
            from: source.fs,
            fs,
            shown: &source.shown,
            keeps_owners: is_root(),
            caller: Caller { uid: uid.as_raw(), gid: gid.as_raw(), umask: 0 },
            linked: HashMap::new(),
            open: Vec::new(),
            top: None,
            done,
            job: &mut *job,
        };
        copy.source(source.path, &target)?;
        done = copy.done;
    }
    Ok(done)
}

struct CopyWithin<'a, 'j> {
    from: &'a Served,
    fs: &'a Served,
    /// The source's dataset and path, for messages.
    shown: &'a str,
    keeps_owners: bool,
    caller: Caller,
    /// Copies of files with several names in the source.
    linked: HashMap<Identity, Ino>,
    /// The directories being copied, from the top to the deepest.
    open: Vec<OpenDirectory>,
    /// The first directory created. A copy into its own source would meet this directory and never end.
    top: Option<Ino>,
    done: CopyRecord,
    job: &'a mut Job<'j>,
}

/// A directory being copied.
struct OpenDirectory {
    from: Attr,
    to: Ino,
    /// Entries still to be copied.
    entries: Entries,
}

impl CopyWithin<'_, '_> {
    fn failed(&self, errno: Errno) -> Failure {
        Failure::cannot("copy", self.shown, reason(errno))
    }

    fn is(&self, from: &Attr, to: Ino) -> bool {
        self.from.is(self.fs) && from.ino == to
    }

    fn source(&mut self, path: &[u8], target: &Target) -> Result<(), Failure> {
        let is_content = path == b"/" || path.ends_with(b"/.") || path.ends_with(b"/..");
        let attr = resolve(self.from, path, is_content).map_err(|errno| self.failed(errno))?;
        let name = path.split(|byte| *byte == b'/').rfind(|part| !part.is_empty()).filter(|_| !is_content);
        match (target, name) {
            (Target::Into(dir), Some(name)) => self.any(&attr, &Place { dir: *dir, name: name.to_vec() })?,
            (Target::Into(dir), None) => {
                self.top = Some(*dir);
                self.open(&attr, *dir);
            }
            (Target::As(place), _) => self.any(&attr, place)?,
        }
        self.directories()
    }

    /// Copies the entries of the open directories, at any depth. Each directory gets its attributes last, because
    /// every new entry changes the times.
    fn directories(&mut self) -> Result<(), Failure> {
        while let Some(OpenDirectory { to, entries, .. }) = self.open.last_mut() {
            let dir = *to;
            let next = entries.next(self.from).map_err(|errno| Failure::cannot("copy", self.shown, reason(errno)))?;
            if let Some((name, attr)) = next {
                self.any(&attr, &Place { dir, name })?;
            } else if let Some(OpenDirectory { from, to, .. }) = self.open.pop() {
                self.finish(&from, to).map_err(|errno| self.failed(errno))?;
            }
        }
        Ok(())
    }

    /// Copies one file of any type. A directory is only created and opened.
    fn any(&mut self, from: &Attr, to: &Place) -> Result<(), Failure> {
        self.job.check()?;
        if self.top.is_some_and(|top| self.is(from, top)) {
            return Err(Failure::cannot("copy", self.shown, "a directory cannot be copied into itself"));
        }
        if from.file_type == FileType::Directory {
            let dir = self.fs.make_directory(&self.caller, to).map_err(|errno| self.failed(errno))?;
            self.top.get_or_insert(dir);
            self.open(from, dir);
            return Ok(());
        }
        self.make_way(from, to)?;
        self.done.files += 1;
        let made = self.make_file(from, to);
        self.fs.entry_changed(to);
        made
    }

    /// Copies a file other than a directory to a free name.
    fn make_file(&mut self, from: &Attr, to: &Place) -> Result<(), Failure> {
        if let Some(first) = self.linked.get(&from.identity()) {
            self.fs.link(*first, to.dir, &to.name).map_err(|errno| self.failed(errno))?;
            self.fs.object_changed(*first);
            return Ok(());
        }
        let ino = self.make(from, to).map_err(|errno| self.failed(errno))?;
        if from.file_type == FileType::Regular {
            self.content(from, ino)?;
        }
        self.finish(from, ino).map_err(|errno| self.failed(errno))?;
        if from.nlink > 1 {
            self.linked.insert(from.identity(), ino);
        }
        Ok(())
    }

    fn make_way(&self, from: &Attr, at: &Place) -> Result<(), Failure> {
        match self.fs.lookup(at.dir, &at.name) {
            Ok(found) if self.is(from, found.ino) => {
                Err(Failure::cannot("copy", self.shown, "source and destination are the same file"))
            }
            Ok(found) => self.fs.remove(at, found.ino).map_err(|errno| self.failed(errno)),
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.failed(errno)),
        }
    }

    /// Creates the inode of a file other than a directory.
    fn make(&self, from: &Attr, to: &Place) -> Result<Ino, Errno> {
        let made: Attr = match from.file_type {
            FileType::Regular => self.fs.create(&self.caller, to.dir, &to.name, 0o600, true)?,
            FileType::Symlink => {
                self.fs.symlink(&self.caller, to.dir, &to.name, &self.from.same(from).readlink(from.ino)?)?
            }
            other => self.fs.mknod(&self.caller, to.dir, &to.name, other, from.mode.into(), from.rdev)?,
        };
        Ok(made.ino)
    }

    /// Opens a directory, so its entries are copied into `to`.
    fn open(&mut self, from: &Attr, to: Ino) {
        self.done.directories += 1;
        self.open.push(OpenDirectory { from: *from, to, entries: Entries::new(self.from.handle(from)) });
    }

    /// Copies a file's bytes, its holes as holes.
    fn content(&mut self, from: &Attr, to: Ino) -> Result<(), Failure> {
        self.from.write_back(from.ino);
        let file = self.from.content(from);
        let mut at = 0;
        while let Some((start, stop)) = next_data(&file, from, at).map_err(|errno| self.failed(errno))? {
            self.stretch(&file, from, to, start, stop)?;
            at = stop;
        }
        let whole = SetAttr { size: Some(from.size), ..SetAttr::default() };
        self.fs.setattr(&self.caller, to, &whole).map(drop).map_err(|errno| self.failed(errno))
    }

    fn stretch(&mut self, file: &FileSystem, from: &Attr, to: Ino, start: u64, stop: u64) -> Result<(), Failure> {
        let mut at = start;
        while at < stop {
            self.job.check()?;
            let copied = self.fs.copy_range_from(file, from.ino, at, to, at, stop - at);
            let count = copied.map_err(|errno| self.failed(errno))?;
            if count == 0 {
                // The file was truncated meanwhile.
                return Ok(());
            }
            at += count;
            self.done.bytes += count;
            self.job.report(self.shown, self.done.bytes, None);
        }
        Ok(())
    }

    /// Sets owner, extended attributes, mode and times of the copy. Each step could change values set by a later step.
    fn finish(&self, from: &Attr, to: Ino) -> Result<(), Errno> {
        if self.keeps_owners {
            let owned = SetAttr { uid: Some(from.uid), gid: Some(from.gid), ..SetAttr::default() };
            self.fs.setattr(&self.caller, to, &owned)?;
        }
        let source = self.from.same(from);
        let named = |name: Vec<u8>| -> Result<Xattr, Errno> { Ok((name.clone(), source.getxattr(from.ino, &name)?)) };
        let xattrs = source.listxattr(from.ino)?.into_iter().map(named).collect::<Result<Vec<_>, _>>()?;
        set_xattrs(self.fs, to, &xattrs)?;
        let is_link = from.file_type == FileType::Symlink;
        let rest = SetAttr {
            mode: (!is_link).then_some(from.mode.into()),
            atime: Some(SetTime::At(from.atime)),
            mtime: Some(SetTime::At(from.mtime)),
            ..SetAttr::default()
        };
        self.fs.setattr(&self.caller, to, &rest)?;
        self.fs.object_changed(to);
        Ok(())
    }
}
