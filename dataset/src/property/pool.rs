//! The table of the properties of pools, in the order of `pool get all`.

use super::{Definition, Kinds, Nature, Syntax};

const ON_OFF: Syntax = Syntax::Choice(&["on", "off"]);

const fn computed(name: &'static str, column: &'static str, syntax: Syntax, help: &'static str) -> Definition {
    Definition { name, column, kinds: Kinds::POOL, nature: Nature::ReadOnly, syntax, default: None, help }
}

const fn settable(
    name: &'static str,
    column: &'static str,
    syntax: Syntax,
    default: &'static str,
    help: &'static str,
) -> Definition {
    Definition { name, column, kinds: Kinds::POOL, nature: Nature::Settable, syntax, default: Some(default), help }
}

const fn once(definition: Definition) -> Definition {
    Definition { nature: Nature::SetOnce, ..definition }
}

/// Every property of a pool; its features, `feature@name`, come in addition.
pub static POOL: &[Definition] = &[
    computed("name", "NAME", Syntax::Word, "The name."),
    computed("size", "SIZE", Syntax::Bytes, "The space of all devices together."),
    computed("capacity", "CAP", Syntax::Percent, "The part of it that is allocated."),
    computed(
        "altroot",
        "ALTROOT",
        Syntax::Word,
        "The directory below which its file systems are mounted while it is imported: see 'pool split -R'.",
    ),
    computed("health", "HEALTH", Syntax::Word, "Whether all devices answer and nothing is damaged: ONLINE if so."),
    computed("guid", "GUID", Syntax::Identifier, "The number that identifies it."),
    computed("version", "VERSION", Syntax::Word, "Always '-': pools name the features they need, feature@NAME."),
    computed("dedupratio", "DEDUP", Syntax::Ratio, "Always 1.00: nothing is deduplicated."),
    computed("bcloneused", "BCLONE_USED", Syntax::Bytes, "The space of blocks that several files share, each once."),
    computed("bclonesaved", "BCLONE_SAVED", Syntax::Bytes, "The space that sharing blocks saves."),
    computed("bcloneratio", "BCLONE_RATIO", Syntax::Ratio, "How often shared blocks are referred to on average."),
    computed("free", "FREE", Syntax::Bytes, "The space that is not allocated."),
    computed("allocated", "ALLOC", Syntax::Bytes, "The space that is allocated."),
    once(settable("readonly", "RDONLY", ON_OFF, "off", "Whether it was imported to be read only; given with import.")),
    once(settable(
        "ashift",
        "ASHIFT",
        Syntax::Integer { least: 9, most: 16 },
        "12",
        "The power of two of bytes in which space is allocated; 12 is 4K.",
    )),
    settable("comment", "COMMENT", Syntax::Text { longest: 32 }, "", "A text for the administrator."),
    settable(
        "failmode",
        "FAILMODE",
        Syntax::FailMode,
        "wait",
        "What programs meet while the pool is suspended because a device failed: they wait, or get errors (continue).",
    ),
    computed("expandsize", "EXPANDSZ", Syntax::Bytes, "Space of devices that grew and is not used yet."),
    settable(
        "autoexpand",
        "EXPAND",
        ON_OFF,
        "off",
        "Whether the pool uses what its devices have grown, at import and while it is imported.",
    ),
    settable(
        "autoreplace",
        "REPLACE",
        ON_OFF,
        "off",
        "Whether a device that appears, without content, where one has failed takes its place.",
    ),
    settable(
        "autotrim",
        "AUTOTRIM",
        ON_OFF,
        "off",
        "Whether devices are told by themselves what has become free; image files get holes there.",
    ),
    computed("freeing", "FREEING", Syntax::Bytes, "Space of destroyed datasets that is still being freed."),
    computed("leaked", "LEAKED", Syntax::Bytes, "Space that freeing met damage in and gave up."),
    computed("checkpoint", "CKPOINT", Syntax::Bytes, "Always '-': there are no checkpoints of whole pools."),
    computed(
        "fragmentation",
        "FRAG",
        Syntax::Percent,
        "How much of the free space lies in regions that are partly used: pool defragment.",
    ),
    settable(
        "cache_size",
        "CACHE_SIZE",
        Syntax::AtLeast(16 << 20),
        "268435456",
        "The most memory for data and metadata kept after reading; by default no more than an eighth of what there is.",
    ),
    settable(
        "dirty_limit",
        "DIRTY_LIMIT",
        Syntax::AtLeast(16 << 20),
        "134217728",
        "The most memory for changes not on a device yet; writers wait beyond it. By default no more than a sixteenth of all.",
    ),
];
