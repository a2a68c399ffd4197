//! The table of the properties of pools, in the order of `pool get all`.

use super::{
    Definition, Kinds, Nature, Syntax, Typed,
    definition::{Backing, rows},
    setting::FailMode,
};

/// The computed properties of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the property of its name, and the table says what that is")]
pub enum Figure {
    Name,
    Size,
    Capacity,
    Altroot,
    Health,
    Guid,
    Version,
    DedupRatio,
    BcloneUsed,
    BcloneSaved,
    BcloneRatio,
    Free,
    Allocated,
    ExpandSize,
    Freeing,
    Leaked,
    Checkpoint,
    Fragmentation,
}

const ON_OFF: Syntax = Syntax::Choice(&["on", "off"]);

const fn computed(figure: Figure, syntax: Syntax) -> Definition {
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
        computed(Figure::Name, Syntax::Word),
        "The name.";
    SIZE: u64 = "size", "SIZE",
        computed(Figure::Size, Syntax::Bytes),
        "The space of all devices together.";
    CAPACITY: u64 = "capacity", "CAP",
        computed(Figure::Capacity, Syntax::Percent),
        "The part of it that is allocated.";
    ALTROOT: String = "altroot", "ALTROOT",
        computed(Figure::Altroot, Syntax::Word),
        "The directory below which its file systems are mounted while it is imported: see 'pool split -R'.";
    HEALTH: String = "health", "HEALTH",
        computed(Figure::Health, Syntax::Word),
        "Whether all devices answer and nothing is damaged: ONLINE if so.";
    GUID: u64 = "guid", "GUID",
        computed(Figure::Guid, Syntax::Identifier),
        "The number that identifies it.";
    VERSION: String = "version", "VERSION",
        computed(Figure::Version, Syntax::Word),
        "Always '-': pools name the features they need, feature@NAME.";
    DEDUPRATIO: String = "dedupratio", "DEDUP",
        computed(Figure::DedupRatio, Syntax::Ratio),
        "Always 1.00: nothing is deduplicated.";
    BCLONEUSED: u64 = "bcloneused", "BCLONE_USED",
        computed(Figure::BcloneUsed, Syntax::Bytes),
        "The space of blocks that several files share, each once.";
    BCLONESAVED: u64 = "bclonesaved", "BCLONE_SAVED",
        computed(Figure::BcloneSaved, Syntax::Bytes),
        "The space that sharing blocks saves.";
    BCLONERATIO: String = "bcloneratio", "BCLONE_RATIO",
        computed(Figure::BcloneRatio, Syntax::Ratio),
        "How often shared blocks are referred to on average.";
    FREE: u64 = "free", "FREE",
        computed(Figure::Free, Syntax::Bytes),
        "The space that is not allocated.";
    ALLOCATED: u64 = "allocated", "ALLOC",
        computed(Figure::Allocated, Syntax::Bytes),
        "The space that is allocated.";
    READONLY: bool = "readonly", "RDONLY",
        once(ON_OFF, "off"),
        "Whether it was imported to be read only; given with import.";
    ASHIFT: u8 = "ashift", "ASHIFT",
        once(Syntax::Integer { least: 9, most: 16 }, "12"),
        "The power of two of bytes in which space is allocated; 12 is 4K.";
    COMMENT: String = "comment", "COMMENT",
        settable(Syntax::Text { longest: 32 }, ""),
        "A text for the administrator.";
    FAILMODE: FailMode = "failmode", "FAILMODE",
        settable(Syntax::FailMode, "wait"),
        "What programs meet while the pool is suspended because a device failed: they wait, or get errors (continue).";
    EXPANDSIZE: u64 = "expandsize", "EXPANDSZ",
        computed(Figure::ExpandSize, Syntax::Bytes),
        "Space of devices that grew and is not used yet.";
    AUTOEXPAND: bool = "autoexpand", "EXPAND",
        settable(ON_OFF, "off"),
        "Whether the pool uses what its devices have grown, at import and while it is imported.";
    AUTOREPLACE: bool = "autoreplace", "REPLACE",
        settable(ON_OFF, "off"),
        "Whether a device that appears, without content, where one has failed takes its place.";
    AUTOTRIM: bool = "autotrim", "AUTOTRIM",
        settable(ON_OFF, "off"),
        "Whether devices are told by themselves what has become free; image files get holes there.";
    FREEING: u64 = "freeing", "FREEING",
        computed(Figure::Freeing, Syntax::Bytes),
        "Space of destroyed datasets that is still being freed.";
    LEAKED: u64 = "leaked", "LEAKED",
        computed(Figure::Leaked, Syntax::Bytes),
        "Space that freeing met damage in and gave up.";
    CHECKPOINT: u64 = "checkpoint", "CKPOINT",
        computed(Figure::Checkpoint, Syntax::Bytes),
        "Always '-': there are no checkpoints of whole pools.";
    FRAGMENTATION: u64 = "fragmentation", "FRAG",
        computed(Figure::Fragmentation, Syntax::Percent),
        "How much of the free space lies in regions that are partly used: pool defragment.";
    CACHE_SIZE: u64 = "cache_size", "CACHE_SIZE",
        settable(Syntax::AtLeast(16 << 20), "268435456"),
        "The most memory for data and metadata kept after reading; by default no more than an eighth of what there is.";
    DIRTY_LIMIT: u64 = "dirty_limit", "DIRTY_LIMIT",
        settable(Syntax::AtLeast(16 << 20), "134217728"),
        "The most memory for changes not on a device yet; writers wait beyond it. By default no more than a sixteenth of all.";
}
