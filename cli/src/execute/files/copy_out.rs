//! Copying from a data set or a snapshot to this machine, as `cp -a` does; [`super::copy_in`] the other way round.
//!
//! Owners are kept when root copies; otherwise set-id bits go with the owner they were meant for, and a device node is
//! an error. Extended attributes that the target's file system or the user's rights do not allow are left out.

use std::{
    collections::HashMap,
    ffi::OsStr,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use dataset::fs::{Attr, Errno, FileType, Ino};
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, Uid, chownat, fchmod, ftruncate, linkat, makedev, mkdirat, mknodat, symlinkat,
    unlinkat,
};

use super::{
    CHUNK, cannot_here, decode_device,
    host::{self, Spot},
    next_data, reason,
    resolve::resolve,
    served::Served,
};
use crate::{execute::job::Job, failure::Failure, protocol::CopyRecord};

/// Something to copy: a path in a data set or a snapshot that is open.
pub(super) struct Source<'a> {
    /// The file system.
    pub(super) fs: &'a Served,
    /// The path in it.
    pub(super) path: &'a [u8],
    /// Both, for messages.
    pub(super) shown: String,
}

/// Copies `sources` to `to`, an absolute path of this machine.
pub(super) fn copy_out(
    sources: &[Source<'_>],
    to: &Path,
    recursive: bool,
    job: &mut Job<'_>,
) -> Result<CopyRecord, Failure> {
    let is_directory = to.is_dir();
    if !is_directory && (sources.len() > 1 || to.as_os_str().as_bytes().ends_with(b"/")) && !recursive {
        return Err(Failure::cannot("copy to", to.display(), "it is not a directory"));
    }
    if !recursive {
        sources.iter().try_for_each(refuse_directory)?;
    }
    let mut done = CopyRecord::default();
    for source in sources {
        let mut copy = CopyOut {
            fs: source.fs,
            job,
            is_root: rustix::process::geteuid().is_root(),
            linked: HashMap::new(),
            buffer: Vec::with_capacity(CHUNK),
            done,
        };
        copy.source(source, to, is_directory)?;
        done = copy.done;
    }
    Ok(done)
}

/// A copy that does not go into directories refuses them before it has changed anything.
pub(super) fn refuse_directory(source: &Source<'_>) -> Result<(), Failure> {
    match resolve(source.fs, source.path, false) {
        Ok(attr) if attr.file_type == FileType::Directory => {
            Err(Failure::cannot("copy", &source.shown, "it is a directory").hint("copy directories too: -r"))
        }
        // What is wrong otherwise is told when it is read.
        _ => Ok(()),
    }
}

struct CopyOut<'a, 'j> {
    fs: &'a Served,
    job: &'a mut Job<'j>,
    is_root: bool,
    /// Where the files that have several names were first copied to.
    linked: HashMap<Ino, PathBuf>,
    buffer: Vec<u8>,
    done: CopyRecord,
}

impl CopyOut<'_, '_> {
    fn source(&mut self, source: &Source<'_>, to: &Path, into: bool) -> Result<(), Failure> {
        let refused = |errno| Failure::cannot("copy", &source.shown, reason(errno));
        let is_content = source.path == b"/" || source.path.ends_with(b"/.") || source.path.ends_with(b"/..");
        let attr = resolve(self.fs, source.path, is_content).map_err(refused)?;
        let name = source.path.split(|byte| *byte == b'/').rfind(|part| !part.is_empty());
        let path = match (into && !is_content, name) {
            (true, Some(name)) => to.join(OsStr::from_bytes(name)),
            _ => to.to_owned(),
        };
        if is_content && into {
            let dir = host::open_directory(to).map_err(|errno| failed(to, errno))?;
            return self.directory(&attr, &Spot { dir: &dir, name: OsStr::new("."), path: to });
        }
        let (parent, name) = match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => (parent, name),
            _ => return Err(Failure::cannot("copy to", to.display(), "it is not a name")),
        };
        let dir = host::open_directory(parent).map_err(|errno| failed(&path, errno))?;
        self.any(&attr, &Spot { dir: &dir, name, path: &path })
    }

    /// Copies one thing of any kind.
    fn any(&mut self, from: &Attr, to: &Spot<'_>) -> Result<(), Failure> {
        self.job.check()?;
        let failed = |errno| failed(to.path, errno);
        if from.file_type == FileType::Directory {
            make_directory(to).map_err(failed)?;
            return self.directory(from, to);
        }
        make_way(to).map_err(failed)?;
        self.done.files += 1;
        if let Some(first) = self.linked.get(&from.ino) {
            return linkat(CWD, first, to.dir, to.name, AtFlags::empty()).map_err(failed);
        }
        match from.file_type {
            FileType::Regular => self.file(from, to)?,
            _ => self.special(from, to).map_err(failed)?,
        }
        self.finish(from, to).map_err(failed)?;
        if from.nlink > 1 {
            self.linked.insert(from.ino, to.path.to_owned());
        }
        Ok(())
    }

    fn special(&self, from: &Attr, to: &Spot<'_>) -> Result<(), Errno> {
        if from.file_type == FileType::Symlink {
            let target = self.fs.readlink(from.ino)?;
            return symlinkat(OsStr::from_bytes(&target), to.dir, to.name);
        }
        let file_type = rustix::fs::FileType::from_raw_mode(from.file_type.mode_bits() as rustix::fs::RawMode);
        let (major, minor) = decode_device(from.rdev);
        mknodat(to.dir, to.name, file_type, Mode::from_raw_mode(0o600), makedev(major, minor))
    }

    /// Copies a directory's entries, and then its attributes, for its times change with each entry.
    fn directory(&mut self, from: &Attr, to: &Spot<'_>) -> Result<(), Failure> {
        self.done.directories += 1;
        let dir = to.open_directory().map_err(|errno| failed(to.path, errno))?;
        for (name, attr) in self.entries(from.ino).map_err(|errno| failed(to.path, errno))? {
            let name = OsStr::from_bytes(&name);
            self.any(&attr, &Spot { dir: &dir, name, path: &to.path.join(name) })?;
        }
        self.finish(from, to).map_err(|errno| failed(to.path, errno))
    }

    fn entries(&self, dir: Ino) -> Result<Vec<(Vec<u8>, Attr)>, Errno> {
        let mut entries = Vec::new();
        self.fs.readdir_plus(dir, 0, &mut |entry, attr| {
            if entry.name != b"." && entry.name != b".." {
                entries.push((entry.name.to_vec(), *attr));
            }
            true
        })?;
        // Files were mostly stored in the order of their inodes.
        entries.sort_by_key(|(_, attr)| attr.ino);
        Ok(entries)
    }

    fn file(&mut self, from: &Attr, to: &Spot<'_>) -> Result<(), Failure> {
        let failed = |errno| failed(to.path, errno);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let file = to.open(flags, Mode::from_raw_mode(0o600)).map_err(failed)?;
        self.fs.write_back(from.ino);
        let mut at = 0;
        while let Some((start, stop)) = next_data(self.fs, from, at).map_err(failed)? {
            self.stretch(from, &file, to, start, stop)?;
            at = stop;
        }
        ftruncate(&file, from.size).map_err(failed)
    }

    fn stretch(&mut self, from: &Attr, file: &OwnedFd, to: &Spot<'_>, start: u64, stop: u64) -> Result<(), Failure> {
        let failed = |errno| failed(to.path, errno);
        let mut at = start;
        while at < stop {
            self.job.check()?;
            self.buffer.clear();
            let len = (stop - at).min(CHUNK as u64) as usize;
            self.fs.read(from.ino, at, len, &mut self.buffer).map_err(failed)?;
            if self.buffer.is_empty() {
                // The file has become shorter meanwhile.
                return Ok(());
            }
            host::write_at(file, at, &self.buffer).map_err(failed)?;
            at += self.buffer.len() as u64;
            self.done.bytes += self.buffer.len() as u64;
            self.job.tell(&to.path.to_string_lossy(), self.done.bytes, None);
        }
        Ok(())
    }

    /// Gives the copy its owner, mode, extended attributes and times, in this order: each may undo the ones after it.
    fn finish(&self, from: &Attr, to: &Spot<'_>) -> Result<(), Errno> {
        if self.is_root {
            let owner = (Some(Uid::from_raw(from.uid)), Some(Gid::from_raw(from.gid)));
            chownat(to.dir, to.name, owner.0, owner.1, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        self.set_mode(from, to)?;
        for name in self.fs.listxattr(from.ino)? {
            let value = self.fs.getxattr(from.ino, &name)?;
            match to.set_xattr(&name, &value) {
                Err(Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => {
                    tracing::debug!(path = %to.path.display(), "an extended attribute cannot be kept");
                }
                set => set?,
            }
        }
        to.set_times(from.atime, from.mtime)
    }

    fn set_mode(&self, from: &Attr, to: &Spot<'_>) -> Result<(), Errno> {
        let keeps_owner = self.is_root || from.uid == rustix::process::geteuid().as_raw();
        let mode = Mode::from_raw_mode(u32::from(if keeps_owner { from.mode } else { from.mode & !0o6000 }));
        match from.file_type {
            FileType::Symlink => Ok(()),
            FileType::Regular | FileType::Directory => {
                let file = to.open(OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())?;
                fchmod(file.as_fd(), mode)
            }
            // Just made by us; the system has no way to open it without consequences.
            _ => rustix::fs::chmodat(to.dir, to.name, mode, AtFlags::empty()),
        }
    }
}

fn make_directory(at: &Spot<'_>) -> Result<(), Errno> {
    match mkdirat(at.dir, at.name, Mode::from_raw_mode(0o700)) {
        Err(Errno::EXIST) if at.meta()?.file_type == FileType::Directory => Ok(()),
        Err(Errno::EXIST) => Err(Errno::NOTDIR),
        made => made,
    }
}

fn make_way(at: &Spot<'_>) -> Result<(), Errno> {
    match unlinkat(at.dir, at.name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn failed(path: &Path, errno: Errno) -> Failure {
    cannot_here("copy to", path, errno)
}
