//! The table of the properties of file systems, snapshots and bookmarks, in the order of `get all`.

use pool::{block::compression::CompressionChoice, format::pointer::Checksum, space::Preferred, txg::Caching};

use super::{
    Definition, Kinds, Nature, Syntax, Typed,
    definition::{Backing, Effect, rows},
    setting::{AclType, CanMount, Durability, SnapDir, Spread, Words},
};

/// The computed properties of a dataset, a snapshot or a bookmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the property of its name, and the table says what that is")]
pub enum Figure {
    Name,
    Type,
    Creation,
    Used,
    Available,
    Referenced,
    CompressRatio,
    Mounted,
    Origin,
    CreateTxg,
    Guid,
    UsedBySnapshots,
    UsedByDataset,
    UsedByChildren,
    UsedByRefreservation,
    DeferDestroy,
    UserRefs,
    ObjsetId,
    RefCompressRatio,
    Written,
    LogicalUsed,
    LogicalReferenced,
    Clones,
    ReceiveResumeToken,
    SnapshotsChanged,
}

/// A limit of space: a number in the dataset's row, so that writing needs no lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The limit of a dataset with its descendants, in bytes.
    Quota,
    /// The limit of the space referenced by a dataset, in bytes.
    Refquota,
    /// The bytes reserved for a dataset with its descendants.
    Reservation,
    /// The bytes reserved for a dataset alone.
    Refreservation,
}

impl Limit {
    /// Every limit, by name.
    pub const ALL: [Limit; 4] = [Limit::Quota, Limit::Refquota, Limit::Refreservation, Limit::Reservation];

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
        "What it is: filesystem, snapshot or bookmark.";
    CREATION: u64 = "creation", "CREATION",
        computed(Figure::Creation, ALL, Syntax::Date),
        "When it was created.";
    USED: u64 = "used", "USED",
        computed(Figure::Used, FS_SNAP, Syntax::Bytes),
        "Space that it and everything below it takes.";
    AVAILABLE: u64 = "available", "AVAIL",
        computed(Figure::Available, FS, Syntax::Bytes),
        "Space that is left for it, quotas and reservations considered.";
    REFERENCED: u64 = "referenced", "REFER",
        computed(Figure::Referenced, ALL, Syntax::Bytes),
        "Space of the data it can reach, shared or not.";
    COMPRESSRATIO: String = "compressratio", "RATIO",
        computed(Figure::CompressRatio, FS_SNAP, Syntax::Ratio),
        "How many times smaller compression made used space.";
    MOUNTED: String = "mounted", "MOUNTED",
        computed(Figure::Mounted, FS, Syntax::Choice(&["yes", "no"])),
        "Whether it is mounted now.";
    ORIGIN: String = "origin", "ORIGIN",
        computed(Figure::Origin, FS, Syntax::Word),
        "The snapshot that it is a clone of.";
    QUOTA: u64 = "quota", "QUOTA",
        limit(Limit::Quota),
        "The most space that it and everything below it may take.";
    RESERVATION: u64 = "reservation", "RESERV",
        limit(Limit::Reservation),
        "The least space set aside for it and everything below it.";
    RECORDSIZE: u32 = "recordsize", "RECSIZE",
        inherited(Syntax::PowerOfTwo { least: 4 << 10, most: 16 << 20 }, "131072"),
        "The size of the records that the files written from now on are stored in.";
    MOUNTPOINT: String = "mountpoint", "MOUNTPOINT",
        Definition { default: None, ..inherited(Syntax::Mountpoint, "") }.affecting(PLACED),
        "The directory it is mounted at; none for nowhere, legacy to leave it to mount(8).";
    CHECKSUM: Checksum = "checksum", "CHECKSUM",
        inherited(Syntax::Checksum, "on"),
        "How data is checked; on is blake3.";
    COMPRESSION: CompressionChoice = "compression", "COMPRESS",
        inherited(Syntax::Compression, "on"),
        "How data is compressed; on is lz4.";
    ATIME: bool = "atime", "ATIME",
        inherited(ON_OFF, "on").affecting(SHOWN),
        "Whether reading a file updates its access time; what the kernel has cached is read without.";
    DEVICES: bool = "devices", "DEVICES",
        inherited(ON_OFF, "on").affecting(SHOWN),
        "Whether device nodes can be opened.";
    EXEC: bool = "exec", "EXEC",
        inherited(ON_OFF, "on").affecting(SHOWN),
        "Whether programs can be run from it.";
    SETUID: bool = "setuid", "SETUID",
        inherited(ON_OFF, "on").affecting(SHOWN),
        "Whether the set-user-id and set-group-id bits act.";
    READONLY: bool = "readonly", "RDONLY",
        inherited(ON_OFF, "off").affecting(SHOWN.with(Effect::WRITE_BACK)),
        "Whether it refuses changes.";
    SNAPDIR: SnapDir = "snapdir", "SNAPDIR",
        inherited(Syntax::Choice(SnapDir::WORDS), "hidden").affecting(SHOWN.with(AGREED)),
        "Whether .zfs is listed; disabled: it is empty, and opening files is cheaper.";
    ACLTYPE: AclType = "acltype", "ACLTYPE",
        inherited(Syntax::AclType, "off").affecting(AGREED),
        "Which ACLs there are: none, or those of POSIX.";
    CREATETXG: u64 = "createtxg", "CREATETXG",
        computed(Figure::CreateTxg, ALL, Syntax::Identifier),
        "The transaction group that created it.";
    CANMOUNT: CanMount = "canmount", "CANMOUNT",
        own(Syntax::Choice(CanMount::WORDS), "on").affecting(PLACED),
        "Whether it is mounted: with all, never, or only by name.";
    XATTR: bool = "xattr", "XATTR",
        inherited(Syntax::Xattr, "on").affecting(AGREED),
        "Whether extended attributes can be used; ACLs need them.";
    COPIES: u8 = "copies", "COPIES",
        inherited(Syntax::Integer { least: 1, most: 3 }, "1"),
        "How many copies of data are stored.";
    SPECIAL_SMALL_BLOCKS: u32 = "special_small_blocks", "SPECIAL_SMALL_BLOCKS",
        inherited(Syntax::PowerOfTwoOrZero { least: 512, most: 16 << 20 }, "0"),
        "Records up to this size, as stored, go to special vdevs, where there are any; 0 for none.";
    ALLOC: Spread = "alloc", "ALLOC",
        inherited(Syntax::Choice(Spread::WORDS), "striped"),
        "Whether a file is spread over all vdevs, or lies on one, and the next file on the next.";
    VDEVS: Preferred = "vdevs", "VDEVS",
        inherited(Syntax::Vdevs, "any"),
        "The vdevs that its data go to as long as there is room.";
    PRIMARYCACHE: Caching = "primarycache", "PRIMARYCACHE",
        inherited(CACHED, "all"),
        "What of that which is read stays in the cache in memory: all, only metadata, or none.";
    SECONDARYCACHE: Caching = "secondarycache", "SECONDARYCACHE",
        inherited(CACHED, "all"),
        "What of that which is read goes to cache devices, where there are any: all, only metadata, or none.";
    REFQUOTA: u64 = "refquota", "REFQUOTA",
        limit(Limit::Refquota),
        "The most space that it may reference, those below not counted.";
    REFRESERVATION: u64 = "refreservation", "REFRESERV",
        limit(Limit::Refreservation),
        "The least space set aside for it, those below not counted.";
    GUID: u64 = "guid", "GUID",
        computed(Figure::Guid, ALL, Syntax::Identifier),
        "The number that identifies it; a received snapshot keeps it.";
    USEDBYSNAPSHOTS: u64 = "usedbysnapshots", "USEDSNAP",
        computed(Figure::UsedBySnapshots, FS, Syntax::Bytes),
        "Space that destroying its snapshots would free.";
    USEDBYDATASET: u64 = "usedbydataset", "USEDDS",
        computed(Figure::UsedByDataset, FS, Syntax::Bytes),
        "Space that it takes itself.";
    USEDBYCHILDREN: u64 = "usedbychildren", "USEDCHILD",
        computed(Figure::UsedByChildren, FS, Syntax::Bytes),
        "Space that the datasets below it take.";
    USEDBYREFRESERVATION: u64 = "usedbyrefreservation", "USEDREFRESERV",
        computed(Figure::UsedByRefreservation, FS, Syntax::Bytes),
        "Space that its refreservation sets aside.";
    DEFER_DESTROY: bool = "defer_destroy", "DEFER_DESTROY",
        computed(Figure::DeferDestroy, SNAP, ON_OFF),
        "Whether it goes when its last hold or clone goes.";
    USERREFS: u64 = "userrefs", "USERREFS",
        computed(Figure::UserRefs, SNAP, Syntax::Count),
        "How many holds it has.";
    OBJSETID: u64 = "objsetid", "OBJSETID",
        computed(Figure::ObjsetId, FS_SNAP, Syntax::Identifier),
        "The number of its tree in the pool.";
    SYNC: Durability = "sync", "SYNC",
        inherited(Syntax::Choice(Durability::WORDS), "standard"),
        "Which writes are durable when they return: those that ask, all, or none.";
    REFCOMPRESSRATIO: String = "refcompressratio", "REFRATIO",
        computed(Figure::RefCompressRatio, FS_SNAP, Syntax::Ratio),
        "The same for the space that it references.";
    WRITTEN: u64 = "written", "WRITTEN",
        computed(Figure::Written, FS_SNAP, Syntax::Bytes),
        "Space referenced now that the snapshot before did not.";
    LOGICALUSED: u64 = "logicalused", "LUSED",
        computed(Figure::LogicalUsed, FS, Syntax::Bytes),
        "Used space before compression.";
    LOGICALREFERENCED: u64 = "logicalreferenced", "LREFER",
        computed(Figure::LogicalReferenced, ALL, Syntax::Bytes),
        "Referenced space before compression.";
    RELATIME: bool = "relatime", "RELATIME",
        inherited(ON_OFF, "on").affecting(SHOWN),
        "Whether access times are updated once a day or after a change.";
    CLONES: String = "clones", "CLONES",
        computed(Figure::Clones, SNAP, Syntax::Word),
        "The file systems cloned from it.";
    RECEIVE_RESUME_TOKEN: String = "receive_resume_token", "RECEIVE_RESUME_TOKEN",
        computed(Figure::ReceiveResumeToken, FS, Syntax::Word),
        "Where an interrupted receive stopped.";
    SNAPSHOTS_CHANGED: u64 = "snapshots_changed", "SNAPSHOTS_CHANGED",
        computed(Figure::SnapshotsChanged, FS_SNAP, Syntax::Date),
        "When a snapshot came or went.";
}
