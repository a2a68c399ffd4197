//! Copying from a dataset, a snapshot or a stream file to this machine, as `cp -a` does; [`super::copy_in`] is the other
//! direction.
//!
//! Owners are kept when root copies. Otherwise a set-id bit is dropped with its intended owner, and a device node is
//! an error. Extended attributes are skipped if the target's file system or the user's rights do not allow them.
//!
//! The target may be a directory of another user, who may replace its entries at any moment. So the owner, mode,
//! attributes and further names of a file are set through the descriptor that created the file. A file without such a
//! descriptor is checked again before any change. A set-id bit is set only on a file with the intended owner.

use std::{
    collections::HashMap,
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use dataset::fs::{Attr, Errno, FileType, Identity, acl};
use protocol::{CopyRecord, Failure};
use rustix::fs::{AtFlags, Mode, ftruncate, makedev, mkdirat, mknodat, symlinkat, unlinkat};

use super::{
    CHUNK, cannot_here, decode_device,
    handle::{Handle, is_just_made},
    host,
    source::{Files, Unreadable},
    trail::Trail,
};
use crate::{execute::job::Job, owners::is_root};

/// The set-user-ID and set-group-ID bits of a mode.
const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;

/// A source of a copy: a path in an open dataset, snapshot or stream file.
pub(super) struct Source<'a, F> {
    pub(super) fs: &'a F,
    /// The path in `fs`, from its root.
    pub(super) path: &'a [u8],
    /// Dataset and path, for messages.
    pub(super) shown: String,
}

/// Copies `sources` to `to`, an absolute path of this machine.
pub(super) fn copy_out<F: Files>(
    sources: &[Source<'_, F>],
    to: &Path,
    recursive: bool,
    job: &mut Job<'_>,
) -> Result<CopyRecord, Failure> {
    // Opened once, so the copy stays in the directory found here.
    let into = Handle::directory_of(to).ok();
    if into.is_none() && (sources.len() > 1 || to.as_os_str().as_bytes().ends_with(b"/")) && !recursive {
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
            is_root: is_root(),
            linked: HashMap::new(),
            top: None,
            buffer: Vec::with_capacity(CHUNK),
            done,
        };
        copy.source(source, to, into.as_ref())?;
        done = copy.done;
    }
    Ok(done)
}

/// Refuses a directory in a copy without `-r`, before anything is changed.
pub(super) fn refuse_directory<F: Files>(source: &Source<'_, F>) -> Result<(), Failure> {
    match source.fs.find(source.path, false) {
        Ok(attr) if attr.file_type == FileType::Directory => {
            Err(Failure::cannot("copy", &source.shown, "it is a directory").hint("use -r to copy directories"))
        }
        // Other errors are reported when the source is read.
        _ => Ok(()),
    }
}

struct CopyOut<'a, 'j, F> {
    fs: &'a F,
    job: &'a mut Job<'j>,
    is_root: bool,
    /// Copies of files with further names in the source.
    linked: HashMap<Identity, Copied>,
    /// The first directory created. A copy into its own source would meet this directory and never end.
    top: Option<(u64, u64)>,
    buffer: Vec<u8>,
    done: CopyRecord,
}

/// A copy whose source has further names.
struct Copied {
    /// The directory of the copy, and its name there.
    place: usize,
    name: Vec<u8>,
    /// Device and inode, to notice that another user has replaced the file.
    identity: (u64, u64),
    /// Number of names still to come.
    left: u32,
}

/// The target directories on the current path, each with its final attributes (`None` for an existing directory), and
/// the source directories still to be copied.
type Way = Trail<Option<Attr>, Attr>;

impl<F: Files> CopyOut<'_, '_, F> {
    fn source(&mut self, source: &Source<'_, F>, to: &Path, into: Option<&Handle>) -> Result<(), Failure> {
        let refused = |why: Unreadable| Failure::cannot("copy", &source.shown, why);
        let is_content = source.path == b"/" || source.path.ends_with(b"/.") || source.path.ends_with(b"/..");
        let attr = self.fs.find(source.path, is_content).map_err(refused)?;
        let name = source.path.split(|byte| *byte == b'/').rfind(|part| !part.is_empty());
        let failed = |errno| failed(to, errno);
        let mut way;
        match (into, name) {
            (Some(dir), _) if is_content => {
                way = Trail::new(dir.again().map_err(failed)?, to, Some(attr)).map_err(failed)?;
                self.directory(&mut way, &attr)?;
            }
            (Some(dir), Some(name)) => {
                way = Trail::new(dir.again().map_err(failed)?, to, None).map_err(failed)?;
                self.entry(&mut way, &attr, name)?;
            }
            _ => {
                let (Some(parent), Some(name)) = (to.parent(), to.file_name()) else {
                    return Err(Failure::cannot("copy to", to.display(), "it is not a name"));
                };
                let dir = Handle::directory_of(parent).map_err(failed)?;
                way = Trail::new(dir, parent, None).map_err(failed)?;
                self.entry(&mut way, &attr, name.as_bytes())?;
            }
        }
        self.directories(way)
    }

    /// Copies the pending directories, at any depth. Each gets its attributes last, because every new entry changes
    /// the times.
    fn directories(&mut self, mut way: Way) -> Result<(), Failure> {
        loop {
            self.job.check()?;
            if let Some((name, attr)) = way.next() {
                self.entry(&mut way, &attr, &name)?;
                continue;
            }
            let path = way.shown(b"");
            match way.leave().map_err(|errno| failed(&path, errno))? {
                Some((dir, from)) => self.leave(&dir, from, &path)?,
                None => break,
            }
        }
        let path = way.shown(b"");
        let (dir, from) = way.end();
        self.leave(&dir, from.flatten(), &path)
    }

    fn leave(&self, dir: &Handle, from: Option<Attr>, path: &Path) -> Result<(), Failure> {
        from.map_or(Ok(()), |from| self.finish(&from, dir, &|| path.to_owned()))
    }

    /// Copies one file of any type to a name in the deepest directory. Of a directory, only the entries other than
    /// directories are copied; its subdirectories wait.
    fn entry(&mut self, way: &mut Way, from: &Attr, name: &[u8]) -> Result<(), Failure> {
        if from.file_type != FileType::Directory {
            return self.no_directory(way, from, name);
        }
        let made = make_directory(way.dir(), OsStr::from_bytes(name));
        let entered = made.and_then(|dir| way.enter(dir, name, Some(*from)));
        entered.map_err(|errno| failed(&way.shown(name), errno))?;
        self.directory(way, from)
    }

    /// Copies a directory's entries to the deepest directory. Subdirectories wait.
    fn directory(&mut self, way: &mut Way, from: &Attr) -> Result<(), Failure> {
        let path = way.shown(b"");
        let failed = |errno| failed(&path, errno);
        if self.top.is_some() && self.top == self.fs.identity(from.ino) {
            return Err(Failure::cannot("copy to", path.display(), "a directory cannot be copied into itself"));
        }
        if self.top.is_none() {
            self.top = Some(way.dir().meta().map_err(failed)?.identity);
        }
        self.done.directories += 1;
        let mut cookie = 0;
        loop {
            let mut entries = self.fs.entries(from, &mut cookie).map_err(|why| unread(&path, why))?;
            // Inode order is mostly the order on disk.
            entries.sort_by_key(|(_, attr)| attr.ino);
            if entries.is_empty() {
                way.arrange(|(_, one), (_, other)| one.ino.cmp(&other.ino));
                return Ok(());
            }
            for (name, attr) in entries {
                self.job.check()?;
                match attr.file_type {
                    FileType::Directory => {
                        way.wait(name, attr).map_err(|why| Failure::cannot("copy to", path.display(), why))?;
                    }
                    _ => self.no_directory(way, &attr, &name)?,
                }
            }
        }
    }

    /// Copies a file other than a directory to a name in the deepest directory.
    fn no_directory(&mut self, way: &mut Way, from: &Attr, name: &[u8]) -> Result<(), Failure> {
        self.done.files += 1;
        if self.link(way, from, name).map_err(|errno| failed(&way.shown(name), errno))? {
            return Ok(());
        }
        let made = match from.file_type {
            FileType::Regular => self.file(from, way, name)?,
            _ => {
                let link = self.link_target(from).map_err(|why| unread(&way.shown(name), why))?;
                special(from, link.as_deref(), way.dir(), OsStr::from_bytes(name))
                    .map_err(|errno| failed(&way.shown(name), errno))?
            }
        };
        self.finish(from, &made, &|| way.shown(name))?;
        let meta = made.meta().map_err(|errno| failed(&way.shown(name), errno))?;
        if from.nlink > 1 {
            let (place, left) = (way.place(), from.nlink - 1);
            self.linked.insert(from.identity(), Copied { place, name: name.to_vec(), identity: meta.identity, left });
        }
        Ok(())
    }

    /// Links a file that was already copied to another name. Returns whether the file had been copied.
    fn link(&mut self, way: &Way, from: &Attr, name: &[u8]) -> Result<bool, Errno> {
        let Some(copied) = self.linked.get_mut(&from.identity()) else { return Ok(false) };
        let first = way.find_at(copied.place, &copied.name).map_err(|errno| match errno {
            Errno::NOENT | Errno::NOTDIR => Errno::STALE,
            errno => errno,
        })?;
        if first.meta()?.identity != copied.identity {
            return Err(Errno::STALE);
        }
        let name = OsStr::from_bytes(name);
        replacing(way.dir(), name, || first.link(way.dir(), name))?;
        copied.left -= 1;
        if copied.left == 0 {
            self.linked.remove(&from.identity());
        }
        Ok(true)
    }

    /// The target of a symbolic link; `None` for other file types.
    fn link_target(&self, from: &Attr) -> Result<Option<Vec<u8>>, Unreadable> {
        match from.file_type {
            FileType::Symlink => self.fs.link_target(from).map(Some),
            _ => Ok(None),
        }
    }

    fn file(&mut self, from: &Attr, way: &Way, name: &[u8]) -> Result<Handle, Failure> {
        let failed = |errno| failed(&way.shown(name), errno);
        let (dir, at_name) = (way.dir(), OsStr::from_bytes(name));
        let file = replacing(dir, at_name, || Handle::create(dir, at_name)).map_err(failed)?;
        let (job, done) = (&mut self.job, &mut self.done);
        let copied = self.fs.data(from, &mut self.buffer, &mut |at, bytes| {
            job.check()?;
            host::write_at(file.fd(), at, bytes).map_err(failed)?;
            done.bytes += bytes.len() as u64;
            job.report(&way.shown(name).to_string_lossy(), done.bytes, None);
            Ok(())
        });
        copied.map_err(|stopped| stopped.failure(|why| unread(&way.shown(name), why)))?;
        ftruncate(file.fd(), from.size).map_err(failed)?;
        Ok(file)
    }

    /// Sets the owner, extended attributes, mode and times of the copy, in this order: chown clears set-id bits and
    /// capabilities, a read-only file takes no attributes, and each step changes the ctime. Errors of the source and
    /// of the copy have separate messages.
    fn finish(&self, from: &Attr, to: &Handle, path: &dyn Fn() -> PathBuf) -> Result<(), Failure> {
        let failed = |errno| failed(&path(), errno);
        self.prepare(from, to).map_err(failed)?;
        let copied = self.fs.xattrs(from, &mut |name, value| match to.set_xattr(name, value) {
            Err(Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => {
                let name = String::from_utf8_lossy(name);
                tracing::debug!(ino = from.ino, %name, "an extended attribute cannot be kept");
                Ok(())
            }
            set => set.map_err(failed),
        });
        copied.map_err(|stopped| stopped.failure(|why| unread(&path(), why)))?;
        complete(from, to).map_err(failed)
    }

    /// Sets the owner of the copy, and removes the access control list inherited from its directory, which is not the
    /// source's. The list must go before the mode is set: the mode would put the list into effect and let other users
    /// write.
    fn prepare(&self, from: &Attr, to: &Handle) -> Result<(), Errno> {
        if self.is_root {
            to.set_owner(from.uid, from.gid)?;
        }
        if from.file_type != FileType::Symlink {
            to.clear_xattr(acl::ACCESS)?;
        }
        if from.file_type == FileType::Directory {
            to.clear_xattr(acl::DEFAULT)?;
        }
        Ok(())
    }
}

/// Sets the mode and times of the copy.
fn complete(from: &Attr, to: &Handle) -> Result<(), Errno> {
    if from.file_type != FileType::Symlink {
        to.set_mode(mode_for(from, to)?)?;
    }
    to.set_times(from.atime, from.mtime)
}

/// The mode of the copy. Set-id bits are kept only with the source's owner; a file's set-group-ID bit also needs the
/// source's group.
fn mode_for(from: &Attr, to: &Handle) -> Result<u32, Errno> {
    let mut mode = u32::from(from.mode);
    if mode & (SET_UID | SET_GID) != 0 {
        let meta = to.meta()?;
        if meta.uid != from.uid {
            mode &= !(SET_UID | SET_GID);
        }
        if meta.gid != from.gid && from.file_type != FileType::Directory {
            mode &= !SET_GID;
        }
    }
    Ok(mode)
}

fn make_directory(dir: &Handle, name: &OsStr) -> Result<Handle, Errno> {
    match mkdirat(dir.fd(), name, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    Handle::directory(dir, name).map_err(|errno| if errno == Errno::LOOP { Errno::NOTDIR } else { errno })
}

/// Creates a file without content, then opens the file by name and checks the result: another user may have replaced
/// the file.
fn special(from: &Attr, link: Option<&[u8]>, dir: &Handle, name: &OsStr) -> Result<Handle, Errno> {
    let (major, minor) = decode_device(from.rdev);
    let file_type = rustix::fs::FileType::from_raw_mode(from.file_type.mode_bits() as rustix::fs::RawMode);
    replacing(dir, name, || match link {
        Some(target) => symlinkat(OsStr::from_bytes(target), dir.fd(), name),
        None => mknodat(dir.fd(), name, file_type, Mode::from_raw_mode(0o600), makedev(major, minor)),
    })?;
    let made = Handle::find(dir, name)?;
    let is_ours = is_just_made(&made.meta()?, from.file_type, (major, minor));
    match is_ours && link.is_none_or(|target| made.link_target().as_deref() == Ok(target)) {
        true => Ok(made),
        false => Err(Errno::STALE),
    }
}

/// Creates a file under a name, replacing an existing file unless the file is a directory.
fn replacing<T>(dir: &Handle, name: &OsStr, make: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    match make() {
        Err(Errno::EXIST) => {
            unlinkat(dir.fd(), name, AtFlags::empty())?;
            make()
        }
        made => made,
    }
}

fn failed(path: &Path, errno: Errno) -> Failure {
    cannot_here("copy to", path, errno)
}

/// The failure of a copy with an unreadable source.
fn unread(path: &Path, why: Unreadable) -> Failure {
    Failure::cannot("copy to", path.display(), why)
}
