//! The data in requests and responses.
//!
//! Times are seconds since 1970 UTC, sizes bytes, modes those of `stat(2)`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use dataset::catalogue::ScrubState;
use dataset::name::{DatasetName, Name, SnapshotName};
use dataset::property::{Kinds, Source};
use serde::{Deserialize, Serialize};

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

impl From<std::path::PathBuf> for PathBytes {
    fn from(path: std::path::PathBuf) -> PathBytes {
        path.into_os_string().into()
    }
}

impl From<&str> for PathBytes {
    fn from(path: &str) -> PathBytes {
        PathBytes(path.as_bytes().to_vec())
    }
}

impl std::fmt::Debug for PathBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_os_str().fmt(f)
    }
}

/// A place in a live data set or a snapshot: `tank/home:/ann/notes`, `tank/home@monday:/ann`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// A data set or a snapshot.
    pub name: Name,
    /// The path from its root, beginning with `/`; as it was written, so it may end with one.
    pub path: PathBytes,
}

/// A device to be given to a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VdevSpec {
    /// The absolute path of an image file or block device.
    pub path: PathBytes,
    /// If there: the image is to be created sparse with this size, and must not exist.
    pub create: Option<u64>,
}

/// One property of a pool or a data set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PropertyRecord {
    /// Its name.
    pub name: String,
    /// Its canonical value; `-` if it has none now.
    pub value: String,
    /// Where the value comes from.
    pub source: Source,
    /// The value that was received, whether it acts or not.
    pub received: Option<String>,
}

/// A data set, snapshot or bookmark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetRecord {
    /// Its name.
    pub name: Name,
    /// The transaction group that created it.
    pub createtxg: u64,
    /// The properties asked for that apply, in the order asked for.
    pub properties: Vec<PropertyRecord>,
}

impl DatasetRecord {
    /// What it is.
    pub fn kind(&self) -> Kinds {
        match self.name {
            Name::Dataset(_) => Kinds::FILESYSTEM,
            Name::Snapshot(_) => Kinds::SNAPSHOT,
            Name::Bookmark(_) => Kinds::BOOKMARK,
        }
    }
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolRecord {
    /// Its name.
    pub name: String,
    /// Its number.
    pub guid: u64,
    /// Its state, `ONLINE` if all is well.
    pub state: String,
    /// The newest committed transaction group.
    pub txg: u64,
    /// The properties asked for, in the order asked for.
    pub properties: Vec<PropertyRecord>,
    /// Its devices, if they were asked for.
    pub vdevs: Vec<VdevRecord>,
}

/// A device of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VdevRecord {
    /// Its path.
    pub path: String,
    /// Its number.
    pub guid: u64,
    /// Its state: `ONLINE`, `UNAVAIL`, `FAULTED`.
    pub state: String,
    /// Its space.
    pub size: u64,
    /// What is allocated of it.
    pub allocated: u64,
    /// The part of its free space that is in small pieces, of a hundred.
    pub fragmentation: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Blocks that were not what had been written.
    pub checksum_errors: u64,
}

/// A pool's state in full.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// Its number.
    pub guid: u64,
    /// Its state.
    pub state: String,
    /// The newest committed transaction group.
    pub txg: u64,
    /// What is wrong, if anything is.
    pub status: Option<String>,
    /// What to do about it.
    pub action: Option<String>,
    /// The scrub that runs, or the last one.
    pub scan: Option<ScanRecord>,
    /// What else runs in the background, such as the freeing of destroyed data sets.
    pub activity: Option<String>,
    /// Its devices.
    pub vdevs: Vec<VdevRecord>,
    /// What is damaged for good: files, by `data set:path`, or metadata by what it is.
    pub damaged: Vec<String>,
}

/// How a scrub stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScanState {
    /// At work.
    Scanning,
    /// Waiting to be resumed.
    Paused,
    /// Done.
    Finished,
    /// Stopped before its end.
    Canceled,
}

impl From<ScrubState> for ScanState {
    fn from(state: ScrubState) -> ScanState {
        match state {
            ScrubState::Running => ScanState::Scanning,
            ScrubState::Paused => ScanState::Paused,
            ScrubState::Finished => ScanState::Finished,
            ScrubState::Stopped => ScanState::Canceled,
        }
    }
}

/// A scrub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanRecord {
    /// How it stands.
    pub state: ScanState,
    /// When it began.
    pub start: i64,
    /// When it ended or was paused; 0 while it runs.
    pub end: i64,
    /// How many seconds it has worked.
    pub seconds: u64,
    /// How many bytes there were when it began.
    pub total: u64,
    /// How many of them it has read.
    pub examined: u64,
    /// How many bytes it has written over bad copies.
    pub repaired: u64,
    /// How many blocks it found without a good copy.
    pub errors: u64,
}

/// The devices of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// The pool's name.
    pub pool: String,
    /// The devices' paths.
    pub vdevs: Vec<String>,
}

/// A pool that is not imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportablePool {
    /// Its name.
    pub name: String,
    /// Its number.
    pub guid: u64,
    /// Its state, `ONLINE` if it can be imported as it is.
    pub state: String,
    /// What is in the way, if anything is.
    pub status: Option<String>,
    /// What to do.
    pub action: String,
    /// Its devices: path, and state.
    pub vdevs: Vec<(String, String)>,
}

/// A committed state of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateRecord {
    /// Its transaction group.
    pub txg: u64,
    /// When it was committed.
    pub time: i64,
}

/// A state that cannot be gone back to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedState {
    /// Which.
    pub state: StateRecord,
    /// What is damaged.
    pub problem: String,
}

/// How a pool goes back to an older state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RewindReport {
    /// The pool's name.
    pub pool: String,
    /// Its newest state.
    pub newest: StateRecord,
    /// The state that it goes back to; the newest if that can be read.
    pub taken: StateRecord,
    /// The newer ones that cannot be read, newest first.
    pub passed: Vec<PassedState>,
    /// It has not been done.
    pub dry_run: bool,
}

/// What the verification of a pool found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckReport {
    /// The pool's name.
    pub pool: String,
    /// Its number.
    pub guid: u64,
    /// The transaction group that was verified.
    pub txg: u64,
    /// Blocks verified.
    pub blocks: u64,
    /// Their bytes as stored.
    pub bytes: u64,
    /// Data sets and snapshots verified.
    pub datasets: u64,
    /// Files of data sets that have lost their last name and are still to be freed. Nothing is wrong with that.
    pub orphans: u64,
    /// What is wrong; none if the pool is clean.
    pub findings: Vec<CheckFinding>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckFinding {
    /// The number of its code, which never changes its meaning.
    pub code: u16,
    /// What kind of thing, in a few fixed words: `damaged block`, `leaked space`.
    pub kind: String,
    /// Which one, where, with numbers.
    pub detail: String,
}

/// One line of a pool's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryRecord {
    /// When.
    pub time: i64,
    /// The transaction group.
    pub txg: u64,
    /// The command line, or what the engine did.
    pub text: String,
    /// Whether the engine did it by itself.
    pub internal: bool,
    /// Who: the user's number and the host.
    pub user: Option<(u32, String)>,
}

/// Counters of a pool and its devices since import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoSample {
    /// Nanoseconds since import.
    pub elapsed: u64,
    /// The whole pool, under its name.
    pub pool: IoCounts,
    /// Each device, under its path.
    pub vdevs: Vec<IoCounts>,
}

/// Counters of one device, or all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoCounts {
    /// The pool or the device.
    pub name: String,
    /// Space allocated now.
    pub allocated: u64,
    /// Space free now.
    pub free: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

/// What was or would be destroyed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DestroyRecord {
    /// The names, in the order of destruction.
    pub names: Vec<String>,
    /// The space that becomes free.
    pub reclaim: u64,
}

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountRecord {
    /// Its name.
    pub dataset: DatasetName,
    /// Where.
    pub mountpoint: PathBytes,
}

/// A hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldRecord {
    /// The snapshot.
    pub snapshot: SnapshotName,
    /// The hold's name.
    pub tag: String,
    /// Since when.
    pub time: i64,
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

/// One part of a sent stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentRecord {
    /// The base, for an incremental part.
    pub base: Option<Name>,
    /// The snapshot sent.
    pub snapshot: SnapshotName,
    /// Its size in the stream; an estimate when nothing was sent.
    pub bytes: u64,
}

/// One part of a received stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedRecord {
    /// The snapshot as it was sent.
    pub sent: SnapshotName,
    /// The snapshot as it was or would be received.
    pub received: SnapshotName,
    /// Whether it was incremental.
    pub incremental: bool,
    /// Its size in the stream; 0 when it was not received.
    pub bytes: u64,
    /// How long it took.
    pub milliseconds: u64,
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
