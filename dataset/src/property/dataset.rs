//! The table of the properties of file systems, snapshots and bookmarks, in the order of `get all`.

use pool::{
    block::compression::CompressionChoice,
    format::pointer::Checksum,
    space::Preferred,
    txg::{Caching, Redundancy},
};

use super::{
    decimal::decimal,
    definition::{Backing, Definition, Effect, Kinds, Nature, rows},
    figure::{Figure, Limit},
    setting::{AclType, CanMount, DirectIo, Durability, SnapDir, Spread, Words},
    syntax::Syntax,
    typed::Typed,
};

/// The rows of the limits.
impl Limit {
    /// The row of the property.
    pub const fn row(self) -> Definition {
        match self {
            Limit::Quota => QUOTA.row,
            Limit::Refquota => REFQUOTA.row,
            Limit::Reservation => RESERVATION.row,
            Limit::Refreservation => REFRESERVATION.row,
        }
    }
}

const FS: Kinds = Kinds::FILESYSTEM;
const FS_SNAP: Kinds = Kinds::FILESYSTEM.with(Kinds::SNAPSHOT);
const SNAP: Kinds = Kinds::SNAPSHOT;
const ALL: Kinds = Kinds::ALL_DATASETS;
const ON_OFF: Syntax = Syntax::Choice(&["on", "off"]);
const CACHED: Syntax = Syntax::Choice(Caching::WORDS);

const fn computed(figure: Figure, kinds: Kinds, syntax: Syntax) -> Definition {
    Definition { backing: Backing::Dataset(figure), ..Definition::new(kinds, Nature::ReadOnly, syntax, None) }
}

const fn inherited(syntax: Syntax, default: &'static str) -> Definition {
    Definition::new(FS, Nature::Inheritable, syntax, Some(default))
}

/// Snapshots show the value of their dataset.
const fn also_of_snapshots(row: Definition) -> Definition {
    Definition { kinds: FS_SNAP, ..row }
}

const fn own(syntax: Syntax, default: &'static str) -> Definition {
    Definition::new(FS, Nature::Settable, syntax, Some(default))
}

const fn limit(limit: Limit) -> Definition {
    Definition { backing: Backing::Limit(limit), ..own(Syntax::Limit, "0") }
}

const PLACED: Effect = Effect::PLACE;
const SHOWN: Effect = Effect::MOUNT;
const AGREED: Effect = Effect::REMOUNT;

rows! {
    /// All properties of a dataset, except user properties.
    DATASET;

    NAME: String = "name", "NAME",
        computed(Figure::Name, ALL, Syntax::Word),
        "The name.";
    TYPE: String = "type", "TYPE",
        computed(Figure::Type, ALL, Syntax::Word),
        "The type: filesystem, snapshot or bookmark.";
    CREATION: u64 = "creation", "CREATION",
        computed(Figure::Creation, ALL, Syntax::Date),
        "The creation time.";
    USED: u64 = "used", "USED",
        computed(Figure::Used, FS_SNAP, Syntax::Bytes),
        "Space used by the dataset and all descendants.";
    AVAILABLE: u64 = "available", "AVAIL",
        computed(Figure::Available, FS, Syntax::Bytes),
        "Space available, within quotas and reservations.";
    REFERENCED: u64 = "referenced", "REFER",
        computed(Figure::Referenced, ALL, Syntax::Bytes),
        "Space of all referenced data, shared or not.";
    COMPRESSRATIO: String = "compressratio", "RATIO",
        computed(Figure::CompressRatio, FS_SNAP, Syntax::Ratio),
        "Compression ratio of the used data.";
    MOUNTED: String = "mounted", "MOUNTED",
        computed(Figure::Mounted, FS, Syntax::Choice(&["yes", "no"])),
        "Whether the file system is mounted.";
    ORIGIN: String = "origin", "ORIGIN",
        computed(Figure::Origin, FS, Syntax::Word),
        "The snapshot from which a clone was created.";
    QUOTA: u64 = "quota", "QUOTA",
        limit(Limit::Quota),
        "Limit of the space used, with descendants and snapshots.";
    RESERVATION: u64 = "reservation", "RESERV",
        limit(Limit::Reservation),
        "Space guaranteed to the dataset and its descendants.";
    RECORDSIZE: u32 = "recordsize", "RECSIZE",
        inherited(Syntax::PowerOfTwo { least: 4 << 10, most: 16 << 20 }, "131072"),
        "Maximum block size of new files.";
    MOUNTPOINT: String = "mountpoint", "MOUNTPOINT",
        Definition { default: None, ..inherited(Syntax::Mountpoint, "") }.affecting(PLACED),
        "The mount point; none: not mounted, legacy: mounted by mount(8).";
    CHECKSUM: Checksum = "checksum", "CHECKSUM",
        inherited(Syntax::Checksum, "on"),
        "Checksum algorithm; on is blake3.";
    COMPRESSION: CompressionChoice = "compression", "COMPRESS",
        inherited(Syntax::Compression, "on"),
        "Compression algorithm; on is lz4.";
    ATIME: bool = "atime", "ATIME",
        inherited(ON_OFF, "on").affecting(SHOWN),
        "Whether reads update access times; reads from the kernel cache do not.";
    DEVICES: bool = "devices", "DEVICES",
        also_of_snapshots(inherited(ON_OFF, "on")).affecting(SHOWN),
        "Whether device nodes can be opened.";
    EXEC: bool = "exec", "EXEC",
        also_of_snapshots(inherited(ON_OFF, "on")).affecting(SHOWN),
        "Whether programs can be executed.";
    SETUID: bool = "setuid", "SETUID",
        also_of_snapshots(inherited(ON_OFF, "on")).affecting(SHOWN),
        "Whether set-user-ID and set-group-ID bits are respected.";
    READONLY: bool = "readonly", "RDONLY",
        inherited(ON_OFF, "off").affecting(SHOWN.with(Effect::WRITE_BACK)),
        "Whether the file system is read-only.";
    SNAPDIR: SnapDir = "snapdir", "SNAPDIR",
        inherited(Syntax::Choice(SnapDir::WORDS), "hidden").affecting(SHOWN.with(AGREED)),
        "Whether .zfs is visible; disabled: .zfs is empty, and opening files is faster.";
    ACLTYPE: AclType = "acltype", "ACLTYPE",
        also_of_snapshots(inherited(Syntax::AclType, "off")).affecting(AGREED),
        "The ACL type: off, or POSIX ACLs.";
    CREATETXG: u64 = "createtxg", "CREATETXG",
        computed(Figure::CreateTxg, ALL, Syntax::Identifier),
        "The txg of creation.";
    CANMOUNT: CanMount = "canmount", "CANMOUNT",
        own(Syntax::Choice(CanMount::WORDS), "on").affecting(PLACED),
        "Whether to mount automatically (on), never (off), or only by name (noauto).";
    XATTR: bool = "xattr", "XATTR",
        also_of_snapshots(inherited(Syntax::Xattr, "on")).affecting(AGREED),
        "Whether extended attributes are enabled; ACLs need xattr=on.";
    COPIES: u8 = "copies", "COPIES",
        inherited(Syntax::Integer { least: 1, most: 3 }, "1"),
        "Number of copies of each data block.";
    SPECIAL_SMALL_BLOCKS: u32 = "special_small_blocks", "SPECIAL_SMALL_BLOCKS",
        inherited(Syntax::PowerOfTwoOrZero { least: 512, most: 16 << 20 }, "0"),
        "Blocks up to this stored size go to special vdevs; 0: metadata only.";
    ALLOC: Spread = "alloc", "ALLOC",
        inherited(Syntax::Choice(Spread::WORDS), "striped"),
        "Whether each file is spread over all vdevs, or placed on a single vdev.";
    VDEVS: Preferred = "vdevs", "VDEVS",
        inherited(Syntax::Vdevs, "any"),
        "Preferred vdevs for data, while space is left.";
    PRIMARYCACHE: Caching = "primarycache", "PRIMARYCACHE",
        also_of_snapshots(inherited(CACHED, "all")),
        "What is cached in memory (ARC): all, metadata or none.";
    SECONDARYCACHE: Caching = "secondarycache", "SECONDARYCACHE",
        also_of_snapshots(inherited(CACHED, "all")),
        "What is cached on cache devices (L2ARC): all, metadata or none.";
    REFQUOTA: u64 = "refquota", "REFQUOTA",
        limit(Limit::Refquota),
        "Limit of the referenced space, without descendants and snapshots.";
    REFRESERVATION: u64 = "refreservation", "REFRESERV",
        limit(Limit::Refreservation),
        "Space guaranteed to the dataset, without descendants.";
    GUID: u64 = "guid", "GUID",
        computed(Figure::Guid, ALL, Syntax::Identifier),
        "The GUID; a received snapshot keeps the GUID of its source.";
    USEDBYSNAPSHOTS: u64 = "usedbysnapshots", "USEDSNAP",
        computed(Figure::UsedBySnapshots, FS, Syntax::Bytes),
        "Space freed if all snapshots were destroyed.";
    USEDBYDATASET: u64 = "usedbydataset", "USEDDS",
        computed(Figure::UsedByDataset, FS, Syntax::Bytes),
        "Space used by the dataset alone.";
    USEDBYCHILDREN: u64 = "usedbychildren", "USEDCHILD",
        computed(Figure::UsedByChildren, FS, Syntax::Bytes),
        "Space used by child datasets.";
    USEDBYREFRESERVATION: u64 = "usedbyrefreservation", "USEDREFRESERV",
        computed(Figure::UsedByRefreservation, FS, Syntax::Bytes),
        "Space reserved by refreservation.";
    DEFER_DESTROY: bool = "defer_destroy", "DEFER_DESTROY",
        computed(Figure::DeferDestroy, SNAP, ON_OFF),
        "Whether the snapshot is destroyed with its last hold or clone.";
    USERREFS: u64 = "userrefs", "USERREFS",
        computed(Figure::UserRefs, SNAP, Syntax::Count),
        "Number of holds.";
    OBJSETID: u64 = "objsetid", "OBJSETID",
        computed(Figure::ObjsetId, FS_SNAP, Syntax::Identifier),
        "The object set ID within the pool.";
    SYNC: Durability = "sync", "SYNC",
        inherited(Syntax::Choice(Durability::WORDS), "standard"),
        "Synchronous writes: as requested (standard), every write (always), or none (disabled).";
    REFCOMPRESSRATIO: String = "refcompressratio", "REFRATIO",
        computed(Figure::RefCompressRatio, FS_SNAP, Syntax::Ratio),
        "Compression ratio of the referenced data.";
    WRITTEN: u64 = "written", "WRITTEN",
        computed(Figure::Written, FS_SNAP, Syntax::Bytes),
        "Referenced space written since the previous snapshot.";
    LOGICALUSED: u64 = "logicalused", "LUSED",
        computed(Figure::LogicalUsed, FS, Syntax::Bytes),
        "Used space before compression.";
    LOGICALREFERENCED: u64 = "logicalreferenced", "LREFER",
        computed(Figure::LogicalReferenced, ALL, Syntax::Bytes),
        "Referenced space before compression.";
    RELATIME: bool = "relatime", "RELATIME",
        inherited(ON_OFF, "on").affecting(SHOWN),
        "Whether access times are updated only once a day or after a change.";
    CLONES: String = "clones", "CLONES",
        computed(Figure::Clones, SNAP, Syntax::Word),
        "The clones of the snapshot.";
    RECEIVE_RESUME_TOKEN: String = "receive_resume_token", "RECEIVE_RESUME_TOKEN",
        computed(Figure::ReceiveResumeToken, FS, Syntax::Word),
        "For 'fs send -t', which continues an interrupted 'fs receive -s'.";
    SNAPSHOTS_CHANGED: u64 = "snapshots_changed", "SNAPSHOTS_CHANGED",
        computed(Figure::SnapshotsChanged, FS_SNAP, Syntax::Date),
        "Time of the last creation or destruction of a snapshot.";
    SNAPSHOTS_CHANGED_NSECS: u64 = "snapshots_changed_nsecs", "SNAPSHOTS_CHANGED_NSECS",
        computed(Figure::SnapshotsChangedNsecs, FS_SNAP, Syntax::Identifier),
        "The same time in nanoseconds.";
    FILESYSTEM_LIMIT: u64 = "filesystem_limit", "FSLIMIT",
        own(Syntax::Ceiling, decimal!(u64::MAX)),
        "Limit of the number of file systems below the dataset.";
    SNAPSHOT_LIMIT: u64 = "snapshot_limit", "SSLIMIT",
        own(Syntax::Ceiling, decimal!(u64::MAX)),
        "Limit of the number of snapshots of the dataset and its descendants.";
    FILESYSTEM_COUNT: u64 = "filesystem_count", "FSCOUNT",
        computed(Figure::FilesystemCount, FS, Syntax::Ceiling),
        "Number of file systems below the dataset; none if no limit is set here or above.";
    SNAPSHOT_COUNT: u64 = "snapshot_count", "SSCOUNT",
        computed(Figure::SnapshotCount, FS, Syntax::Ceiling),
        "Number of snapshots of the dataset and its descendants; none if no limit is set here or above.";
    REDUNDANT_METADATA: Redundancy = "redundant_metadata", "REDUND_MD",
        inherited(Syntax::Choice(Redundancy::WORDS), "all"),
        "Metadata stored twice if the pool has several vdevs: all, most (not leaves of trees), some (roots), none.";
    OVERLAY: bool = "overlay", "OVERLAY",
        inherited(ON_OFF, "on"),
        "Whether to mount over a directory that is not empty.";
    PREFETCH: Caching = "prefetch", "PREFETCH",
        also_of_snapshots(inherited(CACHED, "all")),
        "What is read ahead of a sequential reader: all, metadata or none.";
    DIRECT: DirectIo = "direct", "DIRECT",
        inherited(Syntax::Choice(DirectIo::WORDS), "standard").affecting(AGREED),
        "Whether files opened with O_DIRECT (standard), all files (always), or none (disabled) bypass the caches.";
}
