//! Requests within one imported pool, and their responses.

use dataset::jobs::Kind;
use dataset::name::{BookmarkName, DatasetName, Name, SnapshotName, SnapshotSet};
use dataset::property::{Kinds, OwnerKind};
use serde::{Deserialize, Serialize};

use super::job::{JobTarget, Order};
use super::record::*;
use crate::failure::Failure;

/// A request to one pool. The comment on each variant ends with the [`Response`] it expects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Asks whether the service responds. `Done`
    Ping,
    /// Unmount everything, commit, close the pool and end the service; `force` includes busy file systems. `Done`
    Shutdown {
        /// Unmount busy file systems lazily.
        force: bool,
        /// The pool is exported: its history records the command line.
        export: bool,
    },
    /// Discard uncommitted writes, unmount lazily, close the pool and end the service. `GivenUp`, or `Done` if there
    /// were no uncommitted writes.
    Abandon,

    /// Reads the pool's own properties. `Pool`
    Pool {
        /// Property names in the order of output; empty for all, features included.
        properties: Vec<String>,
        /// Whether the response includes the vdevs.
        vdevs: bool,
    },
    /// Set properties of the pool. `Done`
    SetPool {
        /// New values; the last of a property wins.
        assignments: Vec<Assignment>,
    },
    /// The pool's state, devices and errors. `Status`
    Status,
    /// The commands that changed the pool, oldest first. `History`
    History {
        /// Include changes that the engine made by itself.
        internal: bool,
    },
    /// Commit the open transaction group now. `Done`
    Sync,
    /// Verify the last committed state while the pool stays in use. `Checked`
    Check,
    /// Give an order to a job. See [`Order`] for the responses.
    Job {
        /// Kind of the job, such as a scrub.
        kind: Kind,
        /// Plan, start, pause, stop or wait.
        order: Order,
    },
    /// Scrub a part of the pool at once. `Examined`
    ScrubPart(ScrubPart),
    /// Clear the error counters of devices, and resume a suspended pool. `Done`
    Clear {
        /// Path or GUID of a device; `None` for all devices.
        device: Option<String>,
    },
    /// TRIM unused space, or suspend or cancel a TRIM. `Trimmed` with `wait`, else `Done`
    Trim {
        /// Start, suspend or cancel.
        action: TrimAction,
        /// Device paths or vdev names, which select whole vdevs; empty for all vdevs.
        devices: Vec<String>,
        /// Limit in bytes per second; `None` for no limit.
        rate: Option<u64>,
        /// Answer only after TRIM is complete.
        wait: bool,
    },
    /// Loss that the failure of some devices would cause. `Losses`
    Losses {
        /// Paths or GUIDs of the devices presumed lost.
        devices: Vec<String>,
    },
    /// Events since the pool was opened. `Events`
    Events {
        /// Return only events with a higher number; 0 for all.
        after: u64,
    },
    /// Clear all recorded events. `Cleared`
    ClearEvents,
    /// All background activities, running or not. `Activities`
    Activities,
    /// Reopen devices after missing responses, and resume a suspended pool, like `Clear`; keep error counters. `Done`
    Reopen,
    /// I/O counters since import. `IoCounters`
    IoCounters,
    /// Add vdevs, cache devices and spares. `Layout`
    AddVdevs {
        /// New vdevs and cache devices.
        vdevs: Vec<VdevTreeSpec>,
        /// New spares, initially available.
        spares: Vec<VdevSpec>,
        /// Use devices that contain data, which is destroyed; allow vdevs of different redundancy.
        force: bool,
        /// Report the resulting layout, and change nothing.
        dry_run: bool,
    },
    /// Attach a device: form or extend a mirror, expand a RAID-Z, or replace a device. `Layout`
    Attach {
        /// Path or GUID of the existing device.
        device: String,
        /// The device to attach.
        new: VdevSpec,
        /// Replace `device`, which is detached once the new device is resilvered.
        replace: bool,
        /// Use the new device even if it contains data, which is destroyed.
        force: bool,
        /// RAID-Z expansion: limit on copying, in bytes per second.
        limit: Option<u64>,
    },
    /// Detach a device from its mirror. `Layout`
    Detach {
        /// Path or GUID of the device.
        device: String,
        /// Detach even if the replacement lacks blocks without another good copy.
        force: bool,
    },
    /// Split one device off each mirror into a new pool, left exported. `Split`
    Split {
        /// Name of the new pool.
        name: String,
        /// Paths or GUIDs of the devices for the new pool; mirrors without a device here give up the last.
        devices: Vec<String>,
        /// Report the devices to split off, and change nothing.
        dry_run: bool,
    },
    /// Change the pool's GUID, for users who identify the pool by GUID. `Done`
    Renumber {
        /// The new GUID of the pool.
        guid: u64,
    },
    /// Take a device of a redundant vdev, or a cache device, offline. `Done`
    Offline {
        /// Path or GUID of the device.
        device: String,
        /// Offline only until the next import.
        temporary: bool,
    },
    /// Bring a device online. `Done`
    Online {
        /// Path or GUID of the device.
        device: String,
        /// Use added space of the device.
        expand: bool,
    },

    /// Datasets and their properties. Parts of `Datasets`, parents before children, snapshots in order of creation
    /// after their dataset; then `Done`.
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
    /// Set properties of one dataset or snapshot, all or none. `Done`
    Set {
        /// The dataset or snapshot.
        name: Name,
        /// New local values of properties.
        assignments: Vec<Assignment>,
        /// Neither mount, unmount nor remount.
        no_mount: bool,
    },
    /// Drop the local value of a property. `Done`
    Inherit {
        /// The dataset or snapshot.
        name: Name,
        /// The property's name.
        property: String,
        /// Include all descendants.
        recursive: bool,
        /// Revert to the received value, if present.
        received: bool,
    },
    /// Rename a file system or a snapshot. `Done`
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
    },
    /// All mounted file systems and snapshots. `Mounts`
    Mounts,
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
    /// Take snapshots, all at one instant or none. `Done`
    Snapshot {
        /// Names of the new snapshots.
        names: Vec<SnapshotName>,
        /// Include all descendants of each dataset.
        recursive: bool,
        /// User properties of the new snapshots.
        assignments: Vec<Assignment>,
    },
    /// Roll a file system back to a snapshot. `Done`
    Rollback {
        /// The snapshot to roll back to.
        to: SnapshotName,
        /// Destroy newer snapshots and bookmarks.
        destroy_newer: bool,
        /// Destroy clones of the newer snapshots too.
        destroy_clones: bool,
        /// Unmount the clones even if busy.
        force: bool,
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
    /// Changes in a file system since a snapshot. Parts of `Changes`, then `Done`
    Diff {
        /// The snapshot with the older state.
        from: SnapshotName,
        /// The newer state: a later snapshot, or a live file system.
        to: Name,
    },
    /// Write a stream to the descriptor beside the request; a dry run has no descriptor. `Sent`
    Send {
        /// Snapshots, base and flags of the stream.
        what: SendSpec,
        /// List and estimate the stream, and send nothing.
        dry_run: bool,
    },
    /// Read a stream from the descriptor beside the request. `Received`
    Receive(ReceiveSpec),

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
    /// Usage and quotas of users, groups or projects. `Accounts`
    Accounts {
        /// A dataset or a snapshot.
        name: Name,
        /// Users, groups or projects.
        kind: OwnerKind,
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
    },
    /// Copy from datasets or snapshots to a dataset of the same pool, as `cp -a` does. `Copied`
    CopyWithin {
        /// Files and directories to copy.
        sources: Vec<Location>,
        /// The destination; an existing directory receives the sources under their own names.
        to: Location,
        /// Allow directories as sources.
        recursive: bool,
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

impl Request {
    /// An order to a job of one kind.
    pub fn job(kind: Kind, order: Order) -> Request {
        Request::Job { kind, order }
    }

    /// A request to start or resume a job of the whole pool; `limit` is in bytes per second.
    pub fn start(kind: Kind, limit: Option<u64>) -> Request {
        Request::job(kind, Order::Start { target: JobTarget::Pool, limit })
    }

    /// A request to wait for a job of the whole pool.
    pub fn wait(kind: Kind) -> Request {
        Request::job(kind, Order::Wait(JobTarget::Pool))
    }
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

/// An order to the TRIM of a vdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TrimAction {
    /// Start, or resume a suspended TRIM.
    Start,
    /// Suspend, keeping the progress.
    Suspend,
    /// Cancel, dropping the progress.
    Cancel,
}

/// A part of a pool to scrub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScrubPart {
    /// A file; a root directory means its whole file system or snapshot.
    Place(Location),
    /// All blocks with known damage.
    Damage,
}

/// A mount, identified by name or by path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnmountTarget {
    /// Name of a mounted file system or snapshot.
    Dataset(Name),
    /// The mount at an absolute path.
    Mountpoint(PathBytes),
}

/// Content of a stream to send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendSpec {
    /// The snapshot to send.
    pub snapshot: SnapshotName,
    /// The state at the receiver: a snapshot or bookmark of the same dataset or of its origin. `None` for a full
    /// stream.
    pub base: Option<Name>,
    /// Include all snapshots between the base and `snapshot`.
    pub intermediates: bool,
    /// Include all descendants with properties and clones, and their snapshots up to the name of `snapshot`.
    pub replicate: bool,
    /// With `replicate`: skip datasets that lack the snapshot instead of failing.
    pub skip_missing: bool,
    /// Include properties (always with `replicate`).
    pub properties: bool,
    /// Include holds on the snapshots.
    pub holds: bool,
}

/// Destination and options of a receive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiveSpec {
    /// A file system, or the exact snapshot to create.
    pub target: Name,
    /// How `target` and the sent name combine.
    pub naming: ReceiveNaming,
    /// Roll `target` back to its newest snapshot first; for a replication stream, destroy what the sender lacks.
    pub force: bool,
    /// Leave received file systems unmounted.
    pub no_mount: bool,
    /// Read only the stream's headers, and report the result.
    pub dry_run: bool,
    /// Values that override the received values.
    pub assignments: Vec<Assignment>,
    /// Properties to ignore in the stream.
    pub exclude: Vec<String>,
    /// The snapshot that becomes the origin of the first received file system, a clone.
    pub origin: Option<SnapshotName>,
    /// Ignore the holds in the stream.
    pub skip_holds: bool,
}

/// How [`ReceiveSpec::target`] and the sent name combine to the received name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReceiveNaming {
    /// The target, unchanged.
    Exact,
    /// Below the target, the sent name without its pool (`-d`).
    WithoutPool,
    /// Below the target, the last component of the sent name (`-e`).
    LastComponent,
}

/// The answer of a pool to a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Response {
    /// Success, without further data.
    Done,
    /// Uncommitted writes are lost; the pool remains at the given transaction group.
    GivenUp(u64),
    /// Properties of a pool, and vdevs on request.
    Pool(PoolRecord),
    /// State, devices and errors of a pool.
    Status(Box<PoolStatus>),
    /// History of a pool, oldest line first.
    History(Vec<HistoryRecord>),
    /// Result of a verification.
    Checked(CheckReport),
    /// Number of bytes trimmed.
    Trimmed(u64),
    /// Number of bytes that a scrub would verify.
    Planned(u64),
    /// Loss that a failure would cause.
    Losses(LossReport),
    /// Recorded events, oldest first.
    Events(Vec<EventRecord>),
    /// Number of events cleared.
    Cleared(u64),
    /// Result of scrubbing a part.
    Examined(ExaminedRecord),
    /// Background activities, each activity once.
    Activities(Vec<ActivityRecord>),
    /// Counters, for comparison with earlier counters.
    IoCounters(IoSample),
    /// The devices of a pool, present or planned.
    Layout(Layout),
    /// Requirements of removing a vdev.
    Removal(RemovalPlan),
    /// Effect of a planned rebalance.
    Rebalance(RebalancePlan),
    /// Effect of a planned defragmentation.
    Defragment(DefragmentPlan),
    /// Requirements of a resize.
    Resize(ResizePlan),
    /// Devices with space at the end that the pool does not use, after a resize.
    Resized(Vec<String>),
    /// Result of splitting a pool.
    Split(SplitRecord),
    /// File systems created, or to create in a dry run; ancestors first.
    Created(Vec<DatasetName>),
    /// Names destroyed, or to destroy in a dry run, and the space freed.
    Destroyed(DestroyRecord),
    /// Mounted file systems and snapshots.
    Mounts(Vec<MountRecord>),
    /// Holds on the requested snapshots.
    Holds(Vec<HoldRecord>),
    /// Parts of a stream sent, or to send in a dry run.
    Sent(Vec<SentRecord>),
    /// Parts of a stream received, or to receive in a dry run.
    Received {
        /// The snapshots, in the order of the stream.
        records: Vec<ReceivedRecord>,
        /// Why file systems could not be mounted afterwards.
        unmounted: Option<Failure>,
    },
    /// Usage and quotas, in ascending order of id.
    Accounts(Vec<AccountRecord>),
    /// Number of files, directories and bytes copied.
    Copied(CopyRecord),
}
