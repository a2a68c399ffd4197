//! The table of the properties of pools, in the order of `pool get all`.

use pool::{
    admin::DEFAULT_ASHIFT,
    txg::{DEFAULT_CACHE, DEFAULT_DIRTY},
};

use super::{
    decimal::decimal,
    definition::{Backing, Definition, Kinds, Nature, rows},
    figure::PoolFigure,
    setting::FailMode,
    syntax::Syntax,
    typed::Typed,
};

const ON_OFF: Syntax = Syntax::Choice(&["on", "off"]);

/// The least value of `cache_size` and of `dirty_limit`, in bytes.
pub const LEAST_MEMORY: u64 = 16 << 20;

/// The least `scrub_interval`, in seconds.
const HOUR: u64 = 3600;

const fn computed(figure: PoolFigure, syntax: Syntax) -> Definition {
    Definition { backing: Backing::Pool(figure), ..Definition::new(Kinds::POOL, Nature::ReadOnly, syntax, None) }
}

const fn settable(syntax: Syntax, default: &'static str) -> Definition {
    Definition::new(Kinds::POOL, Nature::Settable, syntax, Some(default))
}

const fn once(syntax: Syntax, default: &'static str) -> Definition {
    Definition::new(Kinds::POOL, Nature::SetOnce, syntax, Some(default))
}

rows! {
    /// All properties of a pool, except its features, `feature@name`.
    POOL;

    NAME: String = "name", "NAME",
        computed(PoolFigure::Name, Syntax::Word),
        "The name.";
    SIZE: u64 = "size", "SIZE",
        computed(PoolFigure::Size, Syntax::Count),
        "Total space of all devices.";
    CAPACITY: u64 = "capacity", "CAP",
        computed(PoolFigure::Capacity, Syntax::Percent),
        "Percentage of space allocated.";
    ALTROOT: String = "altroot", "ALTROOT",
        computed(PoolFigure::Altroot, Syntax::Word),
        "Alternate root directory of all mount points until export: see 'pool import -R'.";
    HEALTH: String = "health", "HEALTH",
        computed(PoolFigure::Health, Syntax::Word),
        "Health of the pool: ONLINE, DEGRADED, SUSPENDED or UNAVAIL.";
    GUID: u64 = "guid", "GUID",
        computed(PoolFigure::Guid, Syntax::Identifier),
        "The GUID.";
    VERSION: String = "version", "VERSION",
        computed(PoolFigure::Version, Syntax::Word),
        "Always '-': pools use feature flags, feature@NAME.";
    DEDUPRATIO: String = "dedupratio", "DEDUP",
        computed(PoolFigure::DedupRatio, Syntax::Ratio),
        "Always 1.00: no deduplication.";
    BCLONEUSED: u64 = "bcloneused", "BCLONE_USED",
        computed(PoolFigure::BcloneUsed, Syntax::Count),
        "Space of cloned blocks, each counted once.";
    BCLONESAVED: u64 = "bclonesaved", "BCLONE_SAVED",
        computed(PoolFigure::BcloneSaved, Syntax::Count),
        "Space saved by block cloning.";
    BCLONERATIO: String = "bcloneratio", "BCLONE_RATIO",
        computed(PoolFigure::BcloneRatio, Syntax::Ratio),
        "Average number of references to a cloned block.";
    FREE: u64 = "free", "FREE",
        computed(PoolFigure::Free, Syntax::Count),
        "Space not allocated.";
    ALLOCATED: u64 = "allocated", "ALLOC",
        computed(PoolFigure::Allocated, Syntax::Count),
        "Space allocated.";
    READONLY: bool = "readonly", "RDONLY",
        once(ON_OFF, "off"),
        "Whether the pool is imported read-only; set by import.";
    ASHIFT: u8 = "ashift", "ASHIFT",
        once(Syntax::Integer { least: 9, most: 16 }, decimal!(DEFAULT_ASHIFT as u64)),
        "Sector size as a power of two; 12 is 4K.";
    COMMENT: String = "comment", "COMMENT",
        settable(Syntax::Text { longest: 32 }, ""),
        "Free text for the administrator.";
    FAILMODE: FailMode = "failmode", "FAILMODE",
        settable(Syntax::FailMode, "wait"),
        "Behaviour of a suspended pool: programs wait, or get I/O errors (continue).";
    EXPANDSIZE: u64 = "expandsize", "EXPANDSZ",
        computed(PoolFigure::ExpandSize, Syntax::Bytes),
        "Space added to devices and not used yet.";
    AUTOEXPAND: bool = "autoexpand", "EXPAND",
        settable(ON_OFF, "off"),
        "Whether the pool expands automatically into space added to devices.";
    AUTOREPLACE: bool = "autoreplace", "REPLACE",
        settable(ON_OFF, "off"),
        "Whether a new empty device at the path of a failed device replaces it automatically.";
    AUTOTRIM: bool = "autotrim", "AUTOTRIM",
        settable(ON_OFF, "off"),
        "Whether freed space is trimmed continuously; image files become sparse.";
    FREEING: u64 = "freeing", "FREEING",
        computed(PoolFigure::Freeing, Syntax::Count),
        "Space of destroyed datasets still to be freed.";
    LEAKED: u64 = "leaked", "LEAKED",
        computed(PoolFigure::Leaked, Syntax::Count),
        "Space lost because damage prevented freeing.";
    CHECKPOINT: u64 = "checkpoint", "CKPOINT",
        computed(PoolFigure::Checkpoint, Syntax::Bytes),
        "Always '-': no pool checkpoints.";
    FRAGMENTATION: u64 = "fragmentation", "FRAG",
        computed(PoolFigure::Fragmentation, Syntax::Percent),
        "Share of free space in partly used regions: see 'pool defragment'.";
    LOAD_GUID: u64 = "load_guid", "LOAD_GUID",
        computed(PoolFigure::LoadGuid, Syntax::Identifier),
        "A random number, drawn each time the pool is opened.";
    CACHE_SIZE: u64 = "cache_size", "CACHE_SIZE",
        settable(Syntax::AtLeast(LEAST_MEMORY), decimal!(DEFAULT_CACHE)),
        "Limit of the read cache (ARC) in memory. The default is lower if 1/8 of memory is less.";
    DIRTY_LIMIT: u64 = "dirty_limit", "DIRTY_LIMIT",
        settable(Syntax::AtLeast(LEAST_MEMORY), decimal!(DEFAULT_DIRTY)),
        "Limit of pending writes in memory; writers beyond the limit wait. The default is lower if 1/16 of memory is less.";
    SLOW_IO_MS: u64 = "slow_io_ms", "SLOW_IO_MS",
        settable(Syntax::Integer { least: 1, most: 3_600_000 }, "30000"),
        "A request to a device that takes more milliseconds counts as slow: see 'pool status -s'.";
    SLOW_IO_N: u64 = "slow_io_n", "SLOW_IO_N",
        settable(Syntax::Integer { least: 1, most: 1000 }, "10"),
        "Number of slow requests within slow_io_t seconds after which 'pool status' reports a device.";
    SLOW_IO_T: u64 = "slow_io_t", "SLOW_IO_T",
        settable(Syntax::Integer { least: 1, most: 86_400 }, "30"),
        "Seconds for slow_io_n.";
    CAPACITY_WARN: u64 = "capacity_warn", "CAP_WARN",
        settable(Syntax::Integer { least: 0, most: 100 }, "80"),
        "Percentage of space allocated from which 'pool status' warns; 0 for no warning.";
    SCRUB_INTERVAL: u64 = "scrub_interval", "SCRUB_EVERY",
        settable(Syntax::Interval { least: HOUR }, "0"),
        "Time after a scrub when the next scrub is due and starts by itself, such as 30d; off for never.";
}
