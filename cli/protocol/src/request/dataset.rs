//! Requests about datasets, snapshots and bookmarks.

use dataset::{
    admin::{Grantee, Reach},
    name::{BookmarkName, DatasetName, Name, SnapshotName, SnapshotSet},
    property::{Kinds, OwnerKind},
};
use serde::{Deserialize, Serialize};

use crate::record::Assignment;

/// A part of a long list. Entries outside of the part are counted, and cost little.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListRange {
    /// Number of entries before the part.
    pub skip: u64,
    /// Maximum number of entries in the part.
    pub most: u64,
}

/// A request about datasets, snapshots and bookmarks, with their properties. The comment on each variant
/// ends with the [`Response`](crate::Response) it expects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DatasetRequest {
    /// Datasets and their properties. Parts of `Datasets`, parents before children, snapshots in order of creation
    /// after their dataset; then `Done`, or `Listed` for a range.
    List {
        /// Dataset, snapshot or bookmark to begin with; `None` for the pool's root.
        root: Option<Name>,
        /// Number of levels below `root`; `None` for all. A snapshot is one level below its dataset.
        depth: Option<u32>,
        /// Kinds of datasets to list.
        kinds: Kinds,
        /// Property names with aliases resolved; empty for all applicable native and user properties. A record omits
        /// properties that do not apply.
        properties: Vec<String>,
        /// The part of the list to send; `None` for all.
        range: Option<ListRange>,
    },
    /// Create a file system and mount it. `Created`
    Create {
        /// Name of the file system.
        name: DatasetName,
        /// Create missing ancestors, and succeed if the file system exists.
        parents: bool,
        /// Initial local properties.
        assignments: Vec<Assignment>,
        /// Leave the file system unmounted.
        no_mount: bool,
        /// Report the file systems to create, and change nothing.
        dry_run: bool,
    },
    /// Destroy a file system. `Destroyed`
    Destroy {
        /// Name of the file system.
        name: DatasetName,
        /// Include all descendants.
        recursive: bool,
        /// Include all descendants, and clones of their snapshots.
        dependents: bool,
        /// Unmount the file system even if busy.
        force: bool,
        /// Wait for commands that read its snapshots.
        wait: bool,
        /// Report what to destroy, and change nothing.
        dry_run: bool,
    },
    /// Destroy snapshots, all or none. `Destroyed`
    DestroySnapshots {
        /// Names or ranges of snapshots of one dataset.
        set: SnapshotSet,
        /// Include snapshots of the same names in all descendants.
        recursive: bool,
        /// Include all clones of the snapshots.
        dependents: bool,
        /// Destroy snapshots with holds or clones later, after the last hold or clone is gone.
        defer: bool,
        /// Wait for commands that read the snapshots.
        wait: bool,
        /// Report what to destroy, and change nothing.
        dry_run: bool,
    },
    /// Destroy a bookmark. `Destroyed`
    DestroyBookmark {
        /// Name of the bookmark.
        name: BookmarkName,
        /// Report what to destroy, and change nothing.
        dry_run: bool,
    },
    /// Set properties of one dataset or snapshot, all or none. `Done`, or in a dry run `Foreseen`
    Set {
        /// The dataset or snapshot.
        name: Name,
        /// New local values of properties.
        assignments: Vec<Assignment>,
        /// Neither mount, unmount nor remount.
        no_mount: bool,
        /// Report what would change, and change nothing.
        dry_run: bool,
    },
    /// Drop the local value of a property. `Done`, or in a dry run `Foreseen`
    Inherit {
        /// The dataset or snapshot.
        name: Name,
        /// The property's name.
        property: String,
        /// Include all descendants.
        recursive: bool,
        /// Revert to the received value, if present.
        received: bool,
        /// Report what would change, and change nothing.
        dry_run: bool,
    },
    /// Rename a file system or a snapshot. `Done`, or in a dry run `Foreseen`
    Rename {
        /// The present full name.
        from: Name,
        /// The new name, of the same kind.
        to: Name,
        /// Create missing ancestors of the new name.
        parents: bool,
        /// Rename snapshots of the same name in all descendants too.
        recursive: bool,
        /// Keep the present mountpoints: do not remount.
        no_mount: bool,
        /// Unmount busy file systems.
        force: bool,
        /// Report what would change, and change nothing.
        dry_run: bool,
    },
    /// Take snapshots, all at one instant or none. `Done`
    Snapshot {
        /// Names of the new snapshots.
        names: Vec<SnapshotName>,
        /// Include all descendants of each dataset.
        recursive: bool,
        /// User properties of the new snapshots.
        assignments: Vec<Assignment>,
    },
    /// Roll a file system back to a snapshot. `Done`, or in a dry run `Foreseen`
    Rollback {
        /// The snapshot to roll back to.
        to: SnapshotName,
        /// Destroy newer snapshots and bookmarks.
        destroy_newer: bool,
        /// Destroy clones of the newer snapshots too.
        destroy_clones: bool,
        /// Unmount the clones even if busy.
        force: bool,
        /// Report what would be lost, and change nothing.
        dry_run: bool,
    },
    /// Create a clone of a snapshot. `Done`
    Clone {
        /// The snapshot, origin of the clone.
        from: SnapshotName,
        /// Name of the new file system.
        to: DatasetName,
        /// Create missing ancestors of the clone.
        parents: bool,
        /// Initial local properties.
        assignments: Vec<Assignment>,
        /// Leave the clone unmounted.
        no_mount: bool,
    },
    /// Promote a clone: its origin's file system becomes a clone of it. `Done`
    Promote {
        /// The clone to promote.
        name: DatasetName,
    },
    /// Put a hold on snapshots, all or none. `Done`
    Hold {
        /// Tag that names the hold.
        tag: String,
        /// The snapshots to hold.
        names: Vec<SnapshotName>,
        /// Include snapshots of the same name in all descendants.
        recursive: bool,
    },
    /// List the holds on snapshots. `Holds`
    Holds {
        /// The snapshots to look at.
        names: Vec<SnapshotName>,
        /// Include snapshots of the same name in all descendants.
        recursive: bool,
    },
    /// Release a hold on snapshots. `Done`
    Release {
        /// Tag that names the hold.
        tag: String,
        /// The snapshots to release.
        names: Vec<SnapshotName>,
        /// Include snapshots of the same name in all descendants.
        recursive: bool,
    },
    /// Bookmark a snapshot, or copy a bookmark. `Done`
    Bookmark {
        /// A snapshot or a bookmark.
        from: Name,
        /// The new bookmark, of the same dataset.
        to: BookmarkName,
    },
    /// Give permissions to users other than the pool's owner. `Done`
    Allow {
        /// The dataset of the new grants.
        name: DatasetName,
        /// Grantees that get permissions.
        to: Vec<Grantee>,
        /// Permissions, and names of sets.
        permissions: Vec<String>,
        /// The datasets for which the permissions count.
        reach: Reach,
    },
    /// Take permissions back. `Done`
    Unallow {
        /// The dataset of the grants.
        name: DatasetName,
        /// Grantees that lose permissions.
        from: Vec<Grantee>,
        /// Permissions, and names of sets; empty for all.
        permissions: Vec<String>,
        /// The datasets for which the permissions end.
        reach: Reach,
        /// Include all descendants.
        recursive: bool,
    },
    /// The permissions given on a dataset and on the datasets above. `Allowances`
    Allowances {
        /// The lowest dataset of the list.
        name: DatasetName,
    },
    /// Usage and quotas of users, groups or projects. `Accounts`
    Accounts {
        /// A dataset or a snapshot.
        name: Name,
        /// Users, groups or projects.
        kind: OwnerKind,
    },
}
