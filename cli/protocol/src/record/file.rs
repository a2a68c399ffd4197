//! Records of paths and files.

use std::{
    ffi::{OsStr, OsString},
    fmt,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
};

use dataset::name::Name;
use serde::{Deserialize, Serialize};

use super::property::Assignment;

/// A path or a file name: any bytes but NUL.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PathBytes(pub Vec<u8>);

impl PathBytes {
    /// The path as a type of the standard library.
    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }

    /// The path as text for messages; bytes outside UTF-8 are replaced.
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

/// A file in a live dataset or a snapshot: `tank/home:/ann/notes`, `tank/home@monday:/ann`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// Name of a dataset or a snapshot.
    pub name: Name,
    /// Path from the root of `name`, beginning with `/`, and kept as written; a final `/` is possible.
    pub path: PathBytes,
}

/// Type of a file, as in `st_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileKind {
    /// A regular file with content.
    File,
    /// A directory of entries.
    Directory,
    /// A symbolic link to a path.
    Symlink,
    /// A named pipe (FIFO).
    Fifo,
    /// A socket of the local domain.
    Socket,
    /// A character device node.
    Character,
    /// A block device node.
    Block,
}

/// Kind of a difference between two states.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// The path exists only in the newer state.
    Added,
    /// The path exists only in the older state.
    Removed,
    /// Content or attributes changed; for a file, also the number of links.
    Modified {
        /// Difference in the number of links, newer minus older.
        links: i64,
    },
    /// The file has a new name, given here.
    Renamed(PathBytes),
}

/// One difference between two states of a file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeRecord {
    /// Kind of the difference.
    pub change: Change,
    /// Type of the file at the path.
    pub kind: FileKind,
    /// Path from the file system's root, beginning with `/`; the old path of a renamed file.
    pub path: PathBytes,
    /// Inode change time: seconds since 1970, and nanoseconds.
    pub time: (i64, u32),
}

/// A directory entry, with the attributes of `stat(2)`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryRecord {
    /// File name; in a recursive listing, the path relative to the listed directory.
    pub name: PathBytes,
    /// Type of the file at the path.
    pub kind: FileKind,
    /// Permission bits, including set-id and sticky bits.
    pub mode: u32,
    /// Number of hard links.
    pub links: u64,
    /// User id of the owner.
    pub uid: u32,
    /// Group id of the owning group.
    pub gid: u32,
    /// Size in bytes, as `stat(2)` reports.
    pub size: u64,
    /// Stored size, in bytes.
    pub stored: u64,
    /// Inode number within the dataset.
    pub inode: u64,
    /// Modification time: seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
    /// Target of a symbolic link.
    pub target: Option<PathBytes>,
    /// Major and minor number of a device node.
    pub device: Option<(u32, u32)>,
}

/// Totals of a completed copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyRecord {
    /// Number of files, links and special files.
    pub files: u64,
    /// Number of directories.
    pub directories: u64,
    /// Bytes of file content.
    pub bytes: u64,
}

/// Attributes of a file, as `fs getattr` prints attributes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileAttributesRecord {
    /// Path relative to the requested file; empty for the requested file itself.
    pub path: PathBytes,
    /// All attributes with their values.
    pub values: Vec<Assignment>,
}

/// Usage and quotas of a user, a group or a project; a quota of 0 means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountRecord {
    /// Numeric id of the user, group or project.
    pub id: u32,
    /// Bytes charged to the owner.
    pub used: u64,
    /// Limit on the bytes charged.
    pub quota: u64,
    /// Number of objects charged to the owner, such as files and directories.
    pub objects_used: u64,
    /// Limit on the number of objects.
    pub objects_quota: u64,
}

/// The project of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectRecord {
    /// Path relative to the requested file; empty for the requested file itself.
    pub path: PathBytes,
    /// Numeric id of the project.
    pub id: u32,
    /// Whether new files in the directory inherit the project.
    pub inherit: bool,
    /// Whether the file is a directory.
    pub directory: bool,
}
