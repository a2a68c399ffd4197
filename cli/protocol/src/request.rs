//! Requests within one imported pool, and their responses.

use dataset::fs::OwnerKind;
use dataset::jobs::Kind;
use dataset::name::{BookmarkName, DatasetName, Name, SnapshotName, SnapshotSet};
use dataset::property::{Kinds, Setting, Typed};
use serde::{Deserialize, Serialize};

use super::job::{JobTarget, Order};
use super::record::*;
use crate::failure::Failure;

/// A property and the canonical value it is to have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// The property's name, never an alias.
    pub name: String,
    /// The canonical value, as [`dataset::property::Property::parse_value`] gives it.
    pub value: String,
}

/// The last value that is given to a property, if there is one that the property admits.
pub fn given<T: Setting>(assignments: &[Assignment], property: &Typed<T>) -> Option<T> {
    let last = assignments.iter().rfind(|assignment| property.is(&assignment.name))?;
    property.read(&last.value)
}

/// What is asked of one pool. The comment on each says which [`Response`] answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Whether the service answers. `Done`
    Ping,
    /// Unmount everything, commit, close the pool and end the service; with `force` also file systems in use. `Done`
    Shutdown {
        /// Unmount lazily what is in use.
        force: bool,
        /// The pool is exported: its history gets the command line.
        export: bool,
    },
    /// Give up what cannot be written, unmount lazily, close the pool and end the service. `GivenUp`, or `Done` if nothing
    /// was.
    Abandon,

    /// The pool's own properties. `Pool`
    Pool {
        /// Names, in the order of output; empty for all, features included.
        properties: Vec<String>,
        /// Whether the vdevs are wanted too.
        vdevs: bool,
    },
    /// Set properties of the pool. `Done`
    SetPool {
        /// What to set.
        assignments: Vec<Assignment>,
    },
    /// The pool's state, devices and errors. `Status`
    Status,
    /// The commands that changed the pool, oldest first. `History`
    History {
        /// Also what the engine did by itself.
        internal: bool,
    },
    /// Commit now. `Done`
    Sync,
    /// Verify the last committed state while work goes on. `Checked`
    Check,
    /// Give an order to a job. See [`Order`]
    Job {
        /// Which job.
        kind: Kind,
        /// What it is to do.
        order: Order,
    },
    /// Scrub a part now. `Examined`
    ScrubPart(ScrubPart),
    /// Forget the errors of devices. `Done`
    Clear {
        /// The path or the number of one; `None` for all.
        device: Option<String>,
    },
    /// Tell the devices which space nobody needs, or no longer. `Trimmed` if it was waited for, else `Done`
    Trim {
        /// Which of these.
        action: TrimAction,
        /// The vdevs of these devices, or of these names; none for all.
        devices: Vec<String>,
        /// At most so many bytes a second.
        rate: Option<u64>,
        /// Until it is done.
        wait: bool,
    },
    /// What would be lost with some devices. `Losses`
    Losses {
        /// Their paths or numbers.
        devices: Vec<String>,
    },
    /// What has happened since the pool was opened. `Events`
    Events {
        /// Only what came after the event of this number; 0 for all.
        after: u64,
    },
    /// Forget what has happened. `Cleared`
    ClearEvents,
    /// What goes on in the background. `Activities`
    Activities,
    /// Take devices back that did not answer, as `Clear` does, and forget no errors. `Done`
    Reopen,
    /// Counters of input and output since import. `IoCounters`
    IoCounters,
    /// Add devices. `Layout`
    AddVdevs {
        /// The vdevs.
        vdevs: Vec<VdevTreeSpec>,
        /// Devices that are to stand by.
        spares: Vec<VdevSpec>,
        /// Take a device although it holds something, and mix what keeps unequally much.
        force: bool,
        /// Only say what would be.
        dry_run: bool,
    },
    /// Make a device one that holds the same as another one. `Layout`
    Attach {
        /// The other one, by its path or number.
        device: String,
        /// The new device.
        new: VdevSpec,
        /// It takes the place of the other one, which leaves when the new one is filled.
        replace: bool,
        /// Take the new device although it holds something.
        force: bool,
        /// If a RAID-Z is expanded: at most so many bytes are copied a second.
        limit: Option<u64>,
    },
    /// Take a device out of its mirror. `Layout`
    Detach {
        /// Its path or number.
        device: String,
        /// Although what takes its place lacks blocks of which there is no good copy.
        force: bool,
    },
    /// Have one device of each mirror leave, to be an exported pool of their own. `Split`
    Split {
        /// The new pool's name.
        name: String,
        /// The devices that leave, by their paths or numbers; of other mirrors it is the last.
        devices: Vec<String>,
        /// Only say what would be.
        dry_run: bool,
    },
    /// Give the pool another number, for whoever knows it by its number. `Done`
    Renumber {
        /// The number.
        guid: u64,
    },
    /// Put a device of a mirror out of use. `Done`
    Offline {
        /// Its path or number.
        device: String,
        /// Only until the next import.
        temporary: bool,
    },
    /// Take a device of a mirror back. `Done`
    Online {
        /// Its path or number.
        device: String,
        /// Have the pool use what it has grown.
        expand: bool,
    },

    /// Datasets and their properties. Parts of `Datasets`, parents before children, snapshots by creation after their dataset;
    /// then `Done`.
    List {
        /// Where to begin: a dataset, a snapshot or a bookmark; `None` for the pool's root.
        root: Option<Name>,
        /// How many levels below; `None` for all. A snapshot is one level below its dataset.
        depth: Option<u32>,
        /// Which kinds are wanted.
        kinds: Kinds,
        /// Names, aliases resolved; empty for all native and user properties that apply. What does not apply to a
        /// record is left out of it.
        properties: Vec<String>,
    },
    /// Create a file system and mount it. `Created`
    Create {
        /// Its name.
        name: DatasetName,
        /// Create the missing ones above too, and succeed if it exists.
        parents: bool,
        /// Its properties.
        assignments: Vec<Assignment>,
        /// Do not mount it.
        no_mount: bool,
        /// Only say what would be.
        dry_run: bool,
    },
    /// Destroy a file system. `Destroyed`
    Destroy {
        /// Its name.
        name: DatasetName,
        /// With everything below it.
        recursive: bool,
        /// With everything below it and all clones of its snapshots.
        dependents: bool,
        /// Unmount it even if in use.
        force: bool,
        /// Wait for commands that read its snapshots.
        wait: bool,
        /// Only say what would be.
        dry_run: bool,
    },
    /// Destroy snapshots, all or none. `Destroyed`
    DestroySnapshots {
        /// Which.
        set: SnapshotSet,
        /// Those of the same names in all datasets below too.
        recursive: bool,
        /// With all clones.
        dependents: bool,
        /// Those that are held or have clones go when that ends.
        defer: bool,
        /// Wait for commands that read them.
        wait: bool,
        /// Only say what would be.
        dry_run: bool,
    },
    /// Destroy a bookmark. `Destroyed`
    DestroyBookmark {
        /// Its name.
        name: BookmarkName,
        /// Only say what would be.
        dry_run: bool,
    },
    /// Set properties of one dataset or snapshot, all or none. `Done`
    Set {
        /// Whose.
        name: Name,
        /// What to set.
        assignments: Vec<Assignment>,
        /// Do not mount, unmount or remount because of it.
        no_mount: bool,
    },
    /// Drop the local value of a property. `Done`
    Inherit {
        /// Whose.
        name: Name,
        /// The property's name.
        property: String,
        /// Also of everything below.
        recursive: bool,
        /// Go back to the received value if there is one.
        received: bool,
    },
    /// Rename a file system or a snapshot. `Done`
    Rename {
        /// The old name.
        from: Name,
        /// The new name, of the same kind.
        to: Name,
        /// Create the missing ones above the new name.
        parents: bool,
        /// The snapshot of that name of every dataset below too.
        recursive: bool,
        /// Do not remount.
        no_mount: bool,
        /// Unmount even what is in use.
        force: bool,
    },
    /// What is mounted. `Mounts`
    Mounts,
    /// Mount a file system, or all that `canmount` and `mountpoint` allow. `Done`
    Mount {
        /// Which; `None` for all.
        name: Option<DatasetName>,
        /// Temporary property values, from options such as `ro` and `noatime`.
        options: Vec<Assignment>,
        /// Also on directories that hold something.
        overlay: bool,
    },
    /// Mount a file system or a snapshot where mount(8) says, or change the options of such a mount. `Done`
    MountAt {
        /// Which.
        name: Name,
        /// The directory, an absolute path without symbolic links.
        directory: PathBytes,
        /// Temporary property values.
        options: Vec<Assignment>,
        /// It is mounted there, and only its options change.
        remount: bool,
        /// The number of the mount namespace in which the caller expects the mount.
        namespace: u64,
    },
    /// Unmount a file system and those mounted below it, or all. `Done`
    Unmount {
        /// Which; `None` for all.
        target: Option<UnmountTarget>,
        /// Even if in use.
        force: bool,
    },
    /// Take snapshots, all at one instant or none. `Done`
    Snapshot {
        /// Their names.
        names: Vec<SnapshotName>,
        /// Also of every dataset below each.
        recursive: bool,
        /// User properties.
        assignments: Vec<Assignment>,
    },
    /// Take a file system back to a snapshot. `Done`
    Rollback {
        /// Which snapshot.
        to: SnapshotName,
        /// Destroy the snapshots and bookmarks that are newer.
        destroy_newer: bool,
        /// And the clones of those.
        destroy_clones: bool,
        /// Unmount those clones even if in use.
        force: bool,
    },
    /// Make a file system of a snapshot. `Done`
    Clone {
        /// The snapshot.
        from: SnapshotName,
        /// The new file system.
        to: DatasetName,
        /// Create the missing ones above it.
        parents: bool,
        /// Its properties.
        assignments: Vec<Assignment>,
        /// Do not mount it.
        no_mount: bool,
    },
    /// Make a clone independent of its origin, which becomes a clone of it. `Done`
    Promote {
        /// The clone.
        name: DatasetName,
    },
    /// Put a hold on snapshots, all or none. `Done`
    Hold {
        /// The hold's name.
        tag: String,
        /// Which snapshots.
        names: Vec<SnapshotName>,
        /// Also those of that name in every dataset below.
        recursive: bool,
    },
    /// The holds on snapshots. `Holds`
    Holds {
        /// Which snapshots.
        names: Vec<SnapshotName>,
        /// Also those of that name in every dataset below.
        recursive: bool,
    },
    /// Take a hold away. `Done`
    Release {
        /// The hold's name.
        tag: String,
        /// Which snapshots.
        names: Vec<SnapshotName>,
        /// Also those of that name in every dataset below.
        recursive: bool,
    },
    /// Bookmark a snapshot, or copy a bookmark. `Done`
    Bookmark {
        /// A snapshot or a bookmark.
        from: Name,
        /// The new bookmark, of the same dataset.
        to: BookmarkName,
    },
    /// What changed in a file system since a snapshot. Parts of `Changes`, then `Done`
    Diff {
        /// The older state.
        from: SnapshotName,
        /// The newer state: a later snapshot, or a file system as it is now.
        to: Name,
    },
    /// Write a stream to the descriptor beside the request; none is there for a dry run. `Sent`
    Send {
        /// What to send.
        what: SendSpec,
        /// Only say what would be sent, and estimate its size.
        dry_run: bool,
    },
    /// Read a stream from the descriptor beside the request. `Received`
    Receive(ReceiveSpec),

    /// The entries of a directory, or the one entry of anything else. Parts of `Entries`, then `Done`
    Entries {
        /// Where.
        location: Location,
        /// The directory itself, not what is in it.
        directory_itself: bool,
        /// Everything below too.
        recursive: bool,
    },
    /// The attributes of a file. Parts of `FileAttributes`, then `Done`
    FileAttributes {
        /// Which file.
        location: Location,
        /// Those of everything below too.
        recursive: bool,
    },
    /// Set attributes of a file. `Done`
    SetFileAttributes {
        /// Which file.
        location: Location,
        /// What to set, as [`dataset::fs::FileAttributes::set`] takes it.
        assignments: Vec<Assignment>,
        /// Of everything below too.
        recursive: bool,
    },
    /// What users, groups or projects use, and their quotas. `Accounts`
    Accounts {
        /// A dataset or a snapshot.
        name: Name,
        /// Whose.
        kind: OwnerKind,
    },
    /// The projects of files. Parts of `Projects`, then `Done`
    Projects {
        /// Which file.
        location: Location,
        /// Which others.
        reach: ProjectReach,
    },
    /// Have a file be of a project. `Done`
    SetProject {
        /// Which file.
        location: Location,
        /// What to set.
        change: ProjectChange,
        /// Of everything below too.
        recursive: bool,
    },
    /// Write a file's content to the descriptor beside the request. `Done`
    Read {
        /// Which file.
        location: Location,
    },
    /// Copy into a dataset, as `cp -a` does. `Copied`
    CopyIn {
        /// Absolute paths of this machine; one that ends in `/.` stands for what is in it.
        sources: Vec<PathBytes>,
        /// The place; an existing directory takes the sources under their own names.
        to: Location,
        /// Directories too.
        recursive: bool,
    },
    /// Copy from datasets or snapshots to a dataset of the same pool, as `cp -a` does. `Copied`
    CopyWithin {
        /// What to copy.
        sources: Vec<Location>,
        /// The place; an existing directory takes the sources under their own names.
        to: Location,
        /// Directories too.
        recursive: bool,
    },
    /// Copy out of a dataset or a snapshot, as `cp -a` does. `Copied`
    CopyOut {
        /// What to copy.
        sources: Vec<Location>,
        /// An absolute path of this machine; an existing directory takes the sources under their own names.
        to: PathBytes,
        /// Directories too.
        recursive: bool,
    },
}

impl Request {
    /// An order to a job.
    pub fn job(kind: Kind, order: Order) -> Request {
        Request::Job { kind, order }
    }

    /// Starting a job of the whole pool, or going on with it.
    pub fn start(kind: Kind, limit: Option<u64>) -> Request {
        Request::job(kind, Order::Start { target: JobTarget::Pool, limit })
    }

    /// Waiting for a job of the whole pool.
    pub fn wait(kind: Kind) -> Request {
        Request::job(kind, Order::Wait(JobTarget::Pool))
    }
}

/// Which files beside the one named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProjectReach {
    /// No other.
    Itself,
    /// What is in the directory.
    Children,
    /// Everything below too.
    Below,
}

/// What is to become of a file's project; what is `None` stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectChange {
    /// The project's number.
    pub id: Option<u32>,
    /// Whether a directory hands it down.
    pub inherit: Option<bool>,
}

/// What going through free space is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TrimAction {
    /// Begin, or go on where it was suspended.
    Start,
    /// Stand still.
    Suspend,
    /// Stop for good.
    Cancel,
}

/// A part of a pool to scrub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScrubPart {
    /// A file; a root directory stands for its whole file system or snapshot.
    Place(Location),
    /// What is known to be damaged.
    Damage,
}

/// What to unmount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnmountTarget {
    /// A file system or a snapshot by its name.
    Dataset(Name),
    /// Whatever is mounted at this absolute path.
    Mountpoint(PathBytes),
}

/// What a stream is to contain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendSpec {
    /// The snapshot to send.
    pub snapshot: SnapshotName,
    /// The state the receiver has: a snapshot or a bookmark, of this dataset or of its origin. `None` for a full stream.
    pub base: Option<Name>,
    /// With all snapshots between the base and the sent one.
    pub intermediates: bool,
    /// With all datasets below, their snapshots up to this one's name, properties and clones.
    pub replicate: bool,
    /// Replicating: datasets that lack the snapshot are left out, not an error.
    pub skip_missing: bool,
    /// With properties (always so when replicating).
    pub properties: bool,
    /// With holds.
    pub holds: bool,
}

/// How a stream is to be received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiveSpec {
    /// A file system, or the exact snapshot to create.
    pub target: Name,
    /// How the target and the sent name make the received name.
    pub naming: ReceiveNaming,
    /// Roll the target back to the newest snapshot first; replicating, destroy what the sender does not have.
    pub force: bool,
    /// Do not mount what was received.
    pub no_mount: bool,
    /// Only read the stream's headers and say what would be.
    pub dry_run: bool,
    /// Values that replace received ones.
    pub assignments: Vec<Assignment>,
    /// Names of properties that are not taken from the stream.
    pub exclude: Vec<String>,
    /// The snapshot that the first stream is to become a clone of.
    pub origin: Option<SnapshotName>,
    /// Leave the holds of the stream out.
    pub skip_holds: bool,
}

/// How [`ReceiveSpec::target`] and the sent name make the received name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReceiveNaming {
    /// The target as it is.
    Exact,
    /// Below the target, the sent name without its pool (`-d`).
    WithoutPool,
    /// Below the target, the last component of the sent name (`-e`).
    LastComponent,
}

/// What a pool answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Response {
    /// It is done; there is nothing to say.
    Done,
    /// What was not committed is lost; the pool is as this transaction group left it.
    GivenUp(u64),
    /// A pool's properties.
    Pool(PoolRecord),
    /// A pool's state.
    Status(Box<PoolStatus>),
    /// What was done to a pool.
    History(Vec<HistoryRecord>),
    /// What a verification found.
    Checked(CheckReport),
    /// Of how many bytes the devices were told.
    Trimmed(u64),
    /// The bytes that a scrub would verify.
    Planned(u64),
    /// What would be lost.
    Losses(LossReport),
    /// What has happened, oldest first.
    Events(Vec<EventRecord>),
    /// How many events were forgotten.
    Cleared(u64),
    /// What the scrub of a part has found.
    Examined(ExaminedRecord),
    /// What goes on in the background: every activity once.
    Activities(Vec<ActivityRecord>),
    /// Counters, to be compared with earlier ones.
    IoCounters(IoSample),
    /// The devices of a pool as they are, or would be.
    Layout(Layout),
    /// What it takes to remove a vdev.
    Removal(RemovalPlan),
    /// What a rebalance moves.
    Rebalance(RebalancePlan),
    /// What a defragmentation moves.
    Defragment(DefragmentPlan),
    /// What a resize takes.
    Resize(ResizePlan),
    /// The devices that are larger than the pool uses of them, after a resize.
    Resized(Vec<String>),
    /// What a split makes of a pool.
    Split(SplitRecord),
    /// The file systems that were or would be created, those above first.
    Created(Vec<DatasetName>),
    /// What was or would be destroyed.
    Destroyed(DestroyRecord),
    /// What is mounted.
    Mounts(Vec<MountRecord>),
    /// Holds.
    Holds(Vec<HoldRecord>),
    /// The parts of a stream that was or would be sent.
    Sent(Vec<SentRecord>),
    /// The parts of a stream that was or would be received.
    Received {
        /// The snapshots, in the order of the stream.
        records: Vec<ReceivedRecord>,
        /// Why file systems could not be mounted afterwards.
        unmounted: Option<Failure>,
    },
    /// Accounts, by their numbers.
    Accounts(Vec<AccountRecord>),
    /// What was copied.
    Copied(CopyRecord),
}
