//! Copies a tree with all metadata, and compares two trees.
//!
//! Equal trees have the same names, and under each name the same type, mode, owner, size, modification time to the
//! nanosecond, content, device number, link structure and attributes. Holes do not count, nor do access times
//! (comparing changes access times), nor attributes for the system's own use (security labels, ACLs).

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, File, Metadata},
    io::{self, Read},
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, chownat, lgetxattr, llistxattr, lsetxattr, mknodat,
    utimensat,
};
use service::owners::is_root;

use super::stage::Problem;

/// Amount of data copied or compared.
#[derive(Clone, Copy, Debug, Default)]
pub struct Amount {
    /// Number of files, directories and special files.
    pub entries: u64,
    /// Sum of the file sizes, in bytes.
    pub bytes: u64,
}

/// Bytes per read: 128 KiB.
const BUFFER: usize = 1 << 17;

type Outcome<T = ()> = Result<T, Problem>;

fn at<T, E: std::fmt::Display>(path: &Path, result: Result<T, E>) -> Outcome<T> {
    result.map_err(|error| Problem::at(path, &error))
}

/// The names in a directory, sorted.
fn names(folder: &Path) -> Outcome<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in at(folder, fs::read_dir(folder))? {
        names.push(at(folder, entry)?.file_name());
    }
    names.sort();
    Ok(names)
}

/// Copies the content of `from` into the directory `to`: data, modes, owners (for root), times, links and attributes.
pub fn copy(from: &Path, to: &Path) -> Outcome<Amount> {
    let mut copier = Copier { links: BTreeMap::new(), amount: Amount::default() };
    copier.folder(from, to)?;
    Ok(copier.amount)
}

struct Copier {
    /// First copy of each file with several names, by device and inode number.
    links: BTreeMap<(u64, u64), PathBuf>,
    amount: Amount,
}

impl Copier {
    fn folder(&mut self, from: &Path, to: &Path) -> Outcome {
        for name in names(from)? {
            self.entry(&from.join(&name), &to.join(&name))?;
        }
        keep(from, to)
    }

    fn entry(&mut self, from: &Path, to: &Path) -> Outcome {
        let metadata = at(from, fs::symlink_metadata(from))?;
        self.amount.entries += 1;
        if metadata.is_dir() {
            if !to.is_dir() {
                at(to, fs::create_dir(to))?;
            }
            return self.folder(from, to);
        }
        if metadata.is_symlink() {
            at(to, symlink(at(from, fs::read_link(from))?, to))?;
            return keep(from, to);
        }
        if metadata.nlink() > 1
            && let Some(first) = self.links.insert((metadata.dev(), metadata.ino()), to.to_owned())
        {
            return at(to, fs::hard_link(first, to));
        }
        if metadata.is_file() {
            self.amount.bytes += at(from, fs::copy(from, to))?;
        } else {
            let kind = FileType::from_raw_mode(metadata.mode());
            at(to, mknodat(CWD, to, kind, Mode::RUSR | Mode::WUSR, metadata.rdev()))?;
        }
        keep(from, to)
    }
}

/// Gives `to` the owner, mode, attributes and times of `from`.
fn keep(from: &Path, to: &Path) -> Outcome {
    let metadata = at(from, fs::symlink_metadata(from))?;
    if is_root() {
        let (user, group) = (rustix::fs::Uid::from_raw(metadata.uid()), rustix::fs::Gid::from_raw(metadata.gid()));
        at(to, chownat(CWD, to, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW))?;
    }
    for (name, value) in attributes(from)? {
        at(to, lsetxattr(to, &name[..], &value, XattrFlags::empty()))?;
    }
    if !metadata.is_symlink() {
        at(to, fs::set_permissions(to, fs::Permissions::from_mode(metadata.mode() & 0o7777)))?;
    }
    let time = |seconds, nanos| Timespec { tv_sec: seconds, tv_nsec: nanos };
    let times = Timestamps {
        last_access: time(metadata.atime(), metadata.atime_nsec()),
        last_modification: time(metadata.mtime(), metadata.mtime_nsec()),
    };
    at(to, utimensat(CWD, to, &times, AtFlags::SYMLINK_NOFOLLOW))
}

/// The attributes that belong to the file itself, as far as the user may read attributes.
fn attributes(path: &Path) -> Outcome<BTreeMap<Vec<u8>, Vec<u8>>> {
    let len = match llistxattr(path, &mut [0_u8; 0][..]) {
        Ok(len) => len,
        Err(rustix::io::Errno::OPNOTSUPP) => 0,
        Err(error) => return Err(Problem::at(path, &error)),
    };
    if len == 0 {
        return Ok(BTreeMap::new());
    }
    let mut names = vec![0; len];
    let len = at(path, llistxattr(path, &mut names[..]))?;
    let belongs =
        |name: &[u8]| name.starts_with(b"user.") || name.starts_with(b"trusted.") || name == b"security.capability";
    let mut found = BTreeMap::new();
    for name in names[..len].split(|byte| *byte == 0).filter(|name| belongs(name)) {
        let mut value = vec![0; 65_536];
        let len = at(path, lgetxattr(path, name, &mut value[..]))?;
        value.truncate(len);
        found.insert(name.to_vec(), value);
    }
    Ok(found)
}

/// Compares two trees; a difference is an error.
pub fn trees(wanted: &Path, found: &Path) -> Outcome<Amount> {
    let buffers = [vec![0; BUFFER], vec![0; BUFFER]];
    let mut comparer = Comparer { links: BTreeMap::new(), amount: Amount::default(), buffers };
    comparer.folder(wanted, found)?;
    Ok(comparer.amount)
}

struct Comparer {
    /// Matching files with several names, by device and inode number on either side.
    links: BTreeMap<(u64, u64), (u64, u64)>,
    amount: Amount,
    /// Buffer for each side.
    buffers: [Vec<u8>; 2],
}

impl Comparer {
    fn folder(&mut self, wanted: &Path, found: &Path) -> Outcome {
        let (these, those) = (names(wanted)?, names(found)?);
        if these != those {
            let odd = these
                .iter()
                .find(|name| !those.contains(name))
                .or_else(|| those.iter().find(|name| !these.contains(name)));
            return Err(Problem::new(format!("{}: {odd:?} is on one side only", found.display())));
        }
        for name in these {
            self.entry(&wanted.join(&name), &found.join(&name))?;
        }
        Ok(())
    }

    fn entry(&mut self, wanted: &Path, found: &Path) -> Outcome {
        let (this, that) = (at(wanted, fs::symlink_metadata(wanted))?, at(found, fs::symlink_metadata(found))?);
        self.amount.entries += 1;
        if let Some(what) = difference(&this, &that) {
            return Err(Problem::new(format!("{} differs in {what}: {this:?}, {that:?}", found.display())));
        }
        let twin = *self.links.entry((this.dev(), this.ino())).or_insert((that.dev(), that.ino()));
        if twin != (that.dev(), that.ino()) {
            return Err(Problem::new(format!("{} is another file than its link", found.display())));
        }
        if attributes(wanted)? != attributes(found)? {
            return Err(Problem::new(format!("{} differs in its attributes", found.display())));
        }
        if this.is_dir() {
            return self.folder(wanted, found);
        }
        let same = match (this.is_symlink(), this.is_file()) {
            (true, _) => at(wanted, fs::read_link(wanted))? == at(found, fs::read_link(found))?,
            (_, true) => self.same_content(wanted, found)?,
            // Pipes, sockets and devices have no content.
            _ => true,
        };
        self.amount.bytes += this.len();
        if same { Ok(()) } else { Err(Problem::new(format!("{} differs in content", found.display()))) }
    }

    fn same_content(&mut self, wanted: &Path, found: &Path) -> Outcome<bool> {
        let (mut this, mut that) = (at(wanted, File::open(wanted))?, at(found, File::open(found))?);
        let [one, two] = &mut self.buffers;
        loop {
            let len = at(wanted, this.read(one))?;
            let rest = that.read_exact(&mut two[..len]).map(|()| len);
            match rest {
                Ok(0) => return Ok(at(found, that.read(two))? == 0),
                Ok(len) if one[..len] == two[..len] => {}
                Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(Problem::at(found, &error)),
                _ => return Ok(false),
            }
        }
    }
}

fn difference(this: &Metadata, that: &Metadata) -> Option<&'static str> {
    let rows = [
        ("type and mode", this.mode() == that.mode()),
        ("owner", (this.uid(), this.gid()) == (that.uid(), that.gid())),
        ("size", this.is_dir() || this.len() == that.len()),
        ("time", (this.mtime(), this.mtime_nsec()) == (that.mtime(), that.mtime_nsec())),
        ("device number", this.rdev() == that.rdev()),
        ("number of links", this.is_dir() || this.nlink() == that.nlink()),
    ];
    rows.into_iter().find(|(_, same)| !same).map(|(what, _)| what)
}
