//! Requests about mounts.

use dataset::name::{DatasetName, Name};
use serde::{Deserialize, Serialize};

use crate::record::{Assignment, PathBytes};

/// A request about mounts, which only a service has. The comment on each variant
/// ends with the [`Response`](crate::Response) it expects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountRequest {
    /// All mounted file systems and snapshots. `Mounts`
    Mounts,
    /// The requests of the kernel to each mount. `FileCounters`
    FileCounters,
    /// The requests by user, process and file since someone watches; watch for ten more seconds. `Activity`
    Activity,
    /// Mount a file system, or all that `canmount` and `mountpoint` allow. `Done`
    Mount {
        /// The file system; `None` for all.
        name: Option<DatasetName>,
        /// Temporary property values, from options such as `ro` and `noatime`.
        options: Vec<Assignment>,
        /// Mount over directories that are not empty.
        overlay: bool,
    },
    /// Mount a file system or a snapshot on the directory from mount(8), or change the options of a mount. `Done`
    MountAt {
        /// The file system or snapshot.
        name: Name,
        /// The mount point: an absolute path without symbolic links.
        directory: PathBytes,
        /// Temporary property values, from mount options.
        options: Vec<Assignment>,
        /// The mount exists, and only its options change.
        remount: bool,
        /// Number of the mount namespace in which the caller expects the mount.
        namespace: u64,
    },
    /// Unmount a file system with all mounts below, or everything. `Done`
    Unmount {
        /// Mount to remove; `None` for all.
        target: Option<UnmountTarget>,
        /// Unmount busy file systems.
        force: bool,
    },
}

/// A mount, identified by name or by path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnmountTarget {
    /// Name of a mounted file system or snapshot.
    Dataset(Name),
    /// The mount at an absolute path.
    Mountpoint(PathBytes),
}
