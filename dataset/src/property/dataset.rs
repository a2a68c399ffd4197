//! The table of the properties of file systems, snapshots and bookmarks, in the order of `get all`.

use super::{Definition, Kinds, Nature, Syntax};

const FS: Kinds = Kinds::FILESYSTEM;
const FS_SNAP: Kinds = Kinds::FILESYSTEM.with(Kinds::SNAPSHOT);
const SNAP: Kinds = Kinds::SNAPSHOT;
const ALL: Kinds = Kinds::ALL_DATASETS;
const ON_OFF: Syntax = Syntax::Choice(&["on", "off"]);
const CACHED: Syntax = Syntax::Choice(&["all", "metadata", "none"]);

const fn computed(
    name: &'static str,
    column: &'static str,
    kinds: Kinds,
    syntax: Syntax,
    help: &'static str,
) -> Definition {
    Definition { name, column, kinds, nature: Nature::ReadOnly, syntax, default: None, help }
}

const fn inherited(
    name: &'static str,
    column: &'static str,
    syntax: Syntax,
    default: &'static str,
    help: &'static str,
) -> Definition {
    Definition { name, column, kinds: FS, nature: Nature::Inheritable, syntax, default: Some(default), help }
}

const fn own(
    name: &'static str,
    column: &'static str,
    syntax: Syntax,
    default: &'static str,
    help: &'static str,
) -> Definition {
    Definition { name, column, kinds: FS, nature: Nature::Settable, syntax, default: Some(default), help }
}

const fn on_snapshots(definition: Definition) -> Definition {
    Definition { kinds: FS_SNAP, ..definition }
}

/// Every property of a dataset; those of the user's own making come in addition.
pub static DATASET: &[Definition] = &[
    computed("name", "NAME", ALL, Syntax::Word, "The name."),
    computed("type", "TYPE", ALL, Syntax::Word, "What it is: filesystem, snapshot or bookmark."),
    computed("creation", "CREATION", ALL, Syntax::Date, "When it was created."),
    computed("used", "USED", FS_SNAP, Syntax::Bytes, "Space that it and everything below it takes."),
    computed("available", "AVAIL", FS, Syntax::Bytes, "Space that is left for it, quotas and reservations considered."),
    computed("referenced", "REFER", ALL, Syntax::Bytes, "Space of the data it can reach, shared or not."),
    computed("compressratio", "RATIO", FS_SNAP, Syntax::Ratio, "How many times smaller compression made used space."),
    computed("mounted", "MOUNTED", FS, Syntax::Choice(&["yes", "no"]), "Whether it is mounted now."),
    computed("origin", "ORIGIN", FS, Syntax::Word, "The snapshot that it is a clone of."),
    own("quota", "QUOTA", Syntax::Limit, "0", "The most space that it and everything below it may take."),
    own("reservation", "RESERV", Syntax::Limit, "0", "The least space set aside for it and everything below it."),
    inherited(
        "recordsize",
        "RECSIZE",
        Syntax::PowerOfTwo { least: 4 << 10, most: 16 << 20 },
        "131072",
        "The size of the records that the files written from now on are stored in.",
    ),
    Definition {
        name: "mountpoint",
        column: "MOUNTPOINT",
        kinds: FS,
        nature: Nature::Inheritable,
        syntax: Syntax::Mountpoint,
        default: None,
        help: "The directory it is mounted at; none for nowhere, legacy to leave it to mount(8).",
    },
    inherited("checksum", "CHECKSUM", Syntax::Checksum, "on", "How data is checked; on is blake3."),
    inherited("compression", "COMPRESS", Syntax::Compression, "on", "How data is compressed; on is lz4."),
    inherited(
        "atime",
        "ATIME",
        ON_OFF,
        "on",
        "Whether reading a file updates its access time; what the kernel has cached is read without.",
    ),
    inherited("devices", "DEVICES", ON_OFF, "on", "Whether device nodes can be opened."),
    inherited("exec", "EXEC", ON_OFF, "on", "Whether programs can be run from it."),
    inherited("setuid", "SETUID", ON_OFF, "on", "Whether the set-user-id and set-group-id bits act."),
    inherited("readonly", "RDONLY", ON_OFF, "off", "Whether it refuses changes."),
    inherited(
        "snapdir",
        "SNAPDIR",
        Syntax::Choice(&["disabled", "hidden", "visible"]),
        "hidden",
        "Whether .zfs is listed; disabled: it is empty, and opening files is cheaper.",
    ),
    inherited("acltype", "ACLTYPE", Syntax::AclType, "off", "Which ACLs there are: none, or those of POSIX."),
    computed("createtxg", "CREATETXG", ALL, Syntax::Identifier, "The transaction group that created it."),
    own(
        "canmount",
        "CANMOUNT",
        Syntax::Choice(&["on", "off", "noauto"]),
        "on",
        "Whether it is mounted: with all, never, or only by name.",
    ),
    inherited("xattr", "XATTR", Syntax::Xattr, "on", "Whether extended attributes can be used; ACLs need them."),
    inherited("copies", "COPIES", Syntax::Integer { least: 1, most: 3 }, "1", "How many copies of data are stored."),
    inherited(
        "special_small_blocks",
        "SPECIAL_SMALL_BLOCKS",
        Syntax::PowerOfTwoOrZero { least: 512, most: 16 << 20 },
        "0",
        "Records up to this size, as stored, go to special vdevs, where there are any; 0 for none.",
    ),
    inherited(
        "alloc",
        "ALLOC",
        Syntax::Choice(&["striped", "roundrobin"]),
        "striped",
        "Whether a file is spread over all vdevs, or lies on one, and the next file on the next.",
    ),
    inherited("vdevs", "VDEVS", Syntax::Vdevs, "any", "The vdevs that its data go to as long as there is room."),
    inherited(
        "primarycache",
        "PRIMARYCACHE",
        CACHED,
        "all",
        "What of that which is read stays in the cache in memory: all, only metadata, or none.",
    ),
    inherited(
        "secondarycache",
        "SECONDARYCACHE",
        CACHED,
        "all",
        "What of that which is read goes to cache devices, where there are any: all, only metadata, or none.",
    ),
    own("refquota", "REFQUOTA", Syntax::Limit, "0", "The most space that it may reference, those below not counted."),
    own(
        "refreservation",
        "REFRESERV",
        Syntax::Limit,
        "0",
        "The least space set aside for it, those below not counted.",
    ),
    computed("guid", "GUID", ALL, Syntax::Identifier, "The number that identifies it; a received snapshot keeps it."),
    computed("usedbysnapshots", "USEDSNAP", FS, Syntax::Bytes, "Space that destroying its snapshots would free."),
    computed("usedbydataset", "USEDDS", FS, Syntax::Bytes, "Space that it takes itself."),
    computed("usedbychildren", "USEDCHILD", FS, Syntax::Bytes, "Space that the datasets below it take."),
    computed("usedbyrefreservation", "USEDREFRESERV", FS, Syntax::Bytes, "Space that its refreservation sets aside."),
    computed("defer_destroy", "DEFER_DESTROY", SNAP, ON_OFF, "Whether it goes when its last hold or clone goes."),
    computed("userrefs", "USERREFS", SNAP, Syntax::Count, "How many holds it has."),
    computed("objsetid", "OBJSETID", FS_SNAP, Syntax::Identifier, "The number of its tree in the pool."),
    inherited(
        "sync",
        "SYNC",
        Syntax::Choice(&["standard", "always", "disabled"]),
        "standard",
        "Which writes are durable when they return: those that ask, all, or none.",
    ),
    computed("refcompressratio", "REFRATIO", FS_SNAP, Syntax::Ratio, "The same for the space that it references."),
    computed("written", "WRITTEN", FS_SNAP, Syntax::Bytes, "Space referenced now that the snapshot before did not."),
    computed("logicalused", "LUSED", FS, Syntax::Bytes, "Used space before compression."),
    computed("logicalreferenced", "LREFER", ALL, Syntax::Bytes, "Referenced space before compression."),
    inherited("relatime", "RELATIME", ON_OFF, "on", "Whether access times are updated once a day or after a change."),
    computed("clones", "CLONES", SNAP, Syntax::Word, "The file systems cloned from it."),
    computed("receive_resume_token", "RECEIVE_RESUME_TOKEN", FS, Syntax::Word, "Where an interrupted receive stopped."),
    on_snapshots(computed("snapshots_changed", "SNAPSHOTS_CHANGED", FS, Syntax::Date, "When a snapshot came or went.")),
];
