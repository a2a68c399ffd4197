//! Paths and files.

use std::{
    ffi::{OsStr, OsString},
    fmt,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
};

use dataset::name::Name;
use serde::{Deserialize, Serialize};

use crate::Assignment;

/// A path, or a file's name: any bytes but NUL.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PathBytes(pub Vec<u8>);

impl PathBytes {
    /// The same as the standard library's type.
    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }

    /// As text for people; what is not UTF-8 is replaced.
    pub fn to_text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

impl From<OsString> for PathBytes {
    fn from(path: OsString) -> PathBytes {
        PathBytes(path.into_vec())
    }
}

impl From<PathBuf> for PathBytes {
    fn from(path: PathBuf) -> PathBytes {
        path.into_os_string().into()
    }
}

impl From<&str> for PathBytes {
    fn from(path: &str) -> PathBytes {
        PathBytes(path.as_bytes().to_vec())
    }
}

impl fmt::Debug for PathBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_os_str().fmt(f)
    }
}

/// A place in a live dataset or a snapshot: `tank/home:/ann/notes`, `tank/home@monday:/ann`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// A dataset or a snapshot.
    pub name: Name,
    /// The path from its root, beginning with `/`; as it was written, so it may end with one.
    pub path: PathBytes,
}

/// What kind of thing a directory entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    Character,
    /// A block device.
    Block,
}

/// What happened to a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// Its content or its attributes changed; for a file the change in its number of links.
    Modified {
        /// New links minus lost ones.
        links: i64,
    },
    /// It has another name, this one.
    Renamed(PathBytes),
}

/// One difference between two states of a file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeRecord {
    /// What happened.
    pub change: Change,
    /// To what kind of thing.
    pub kind: FileKind,
    /// The path from the file system's root, beginning with `/`; the old one of a renamed thing.
    pub path: PathBytes,
    /// When its inode last changed, with nanoseconds.
    pub time: (i64, u32),
}

/// A directory entry with what `stat` says of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryRecord {
    /// The name; below a recursive listing's directory, the path from there.
    pub name: PathBytes,
    /// What it is.
    pub kind: FileKind,
    /// Permission bits, with set-id and sticky.
    pub mode: u32,
    /// Links.
    pub links: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size.
    pub size: u64,
    /// Stored size.
    pub stored: u64,
    /// Inode number.
    pub inode: u64,
    /// Last change of the content, with nanoseconds.
    pub modified: (i64, u32),
    /// What a symbolic link says.
    pub target: Option<PathBytes>,
    /// The device of a device node: major, minor.
    pub device: Option<(u32, u32)>,
}

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyRecord {
    /// Files, links and special files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Bytes of content.
    pub bytes: u64,
}

/// A file's attributes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileAttributesRecord {
    /// Its path below what was asked for; empty for that itself.
    pub path: PathBytes,
    /// All of them, with their values.
    pub values: Vec<Assignment>,
}

/// What is charged to a user, a group or a project, and what may be; 0 for no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountRecord {
    /// Its number.
    pub id: u32,
    /// Bytes.
    pub used: u64,
    /// The most bytes.
    pub quota: u64,
    /// Objects.
    pub objects_used: u64,
    /// The most objects.
    pub objects_quota: u64,
}

/// Which project a file is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectRecord {
    /// Its path below what was asked for; empty for that itself.
    pub path: PathBytes,
    /// The project's number.
    pub id: u32,
    /// Whether it is handed down.
    pub inherit: bool,
    /// Whether it is a directory.
    pub directory: bool,
}
