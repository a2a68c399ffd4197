//! Requests about files, without a mount.

use serde::{Deserialize, Serialize};

use crate::record::{Assignment, Location, PathBytes};

/// A request about files of a dataset or a snapshot, without a mount. The comment on each variant
/// ends with the [`Response`](crate::Response) it expects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileRequest {
    /// The entries of a directory, or the single entry of a file. Parts of `Entries`, then `Done`
    Entries {
        /// Directory or file.
        location: Location,
        /// The directory itself, without its entries.
        directory_itself: bool,
        /// Include everything below.
        recursive: bool,
    },
    /// The attributes of a file. Parts of `FileAttributes`, then `Done`
    FileAttributes {
        /// Directory or file.
        location: Location,
        /// Include everything below.
        recursive: bool,
    },
    /// Set attributes of a file. `Done`
    SetFileAttributes {
        /// Directory or file.
        location: Location,
        /// New values, in the form of [`dataset::fs::FileAttributes::set`].
        assignments: Vec<Assignment>,
        /// Include everything below.
        recursive: bool,
    },
    /// The projects of files. Parts of `Projects`, then `Done`
    Projects {
        /// Directory or file.
        location: Location,
        /// How far below the directory.
        reach: ProjectReach,
    },
    /// Assign a file to a project. `Done`
    SetProject {
        /// Directory or file.
        location: Location,
        /// Project id and inheritance to set.
        change: ProjectChange,
        /// Include everything below.
        recursive: bool,
    },
    /// Write a file's content to the descriptor beside the request. `Done`
    Read {
        /// A regular file to read.
        location: Location,
    },
    /// Copy into a dataset, as `cp -a` does. `Copied`
    CopyIn {
        /// Absolute paths on this machine; a path with a final `/.` means the content of a directory.
        sources: Vec<PathBytes>,
        /// The destination; an existing directory receives the sources under their own names.
        to: Location,
        /// Allow directories as sources.
        recursive: bool,
        /// Refuse a destination behind a symbolic link.
        no_links: bool,
    },
    /// Copy from datasets or snapshots to a dataset of the same pool, as `cp -a` does. `Copied`
    CopyWithin {
        /// Files and directories to copy.
        sources: Vec<Location>,
        /// The destination; an existing directory receives the sources under their own names.
        to: Location,
        /// Allow directories as sources.
        recursive: bool,
        /// Refuse a destination behind a symbolic link.
        no_links: bool,
    },
    /// Copy out of a dataset or a snapshot, as `cp -a` does. `Copied`
    CopyOut {
        /// Files and directories to copy.
        sources: Vec<Location>,
        /// An absolute path on this machine; an existing directory receives the sources under their own names.
        to: PathBytes,
        /// Allow directories as sources.
        recursive: bool,
    },
}

/// Files to report besides the named one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProjectReach {
    /// Nothing but the named file.
    Itself,
    /// The entries of the directory.
    Children,
    /// Everything below the directory.
    Below,
}

/// A change of a file's project; a field with `None` leaves its part unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectChange {
    /// Numeric id of the project.
    pub id: Option<u32>,
    /// Whether new files in a directory inherit its project.
    pub inherit: Option<bool>,
}
