//! The types used by the engine, file systems and mounts, with the words for their values.

use pool::{
    block::compression::CompressionChoice,
    format::pointer::Checksum,
    space::Preferred,
    txg::{Caching, Redundancy},
    units::VdevId,
};

/// A type that property values are read as.
pub trait Setting: Sized {
    /// The value of a canonical text; `None` for an invalid text.
    fn read(canonical: &str) -> Option<Self>;
}

/// Lists the words of a type once, for parsing and for help.
macro_rules! words {
    ($($type:ident { $($word:literal => $value:ident),* $(,)? })*) => { $(
        impl Words for $type {
            const WORDS: &'static [&'static str] = &[$($word),*];
        }

        impl Setting for $type {
            fn read(canonical: &str) -> Option<$type> {
                match canonical {
                    $($word => Some($type::$value),)*
                    _ => None,
                }
            }
        }
    )* };
}

/// A type with words as values.
pub(super) trait Words {
    /// All words, in the order of help.
    const WORDS: &'static [&'static str];
}

words! {
    Durability { "standard" => Standard, "always" => Always, "disabled" => Disabled }
    SnapDir { "disabled" => Disabled, "hidden" => Hidden, "visible" => Visible }
    CanMount { "on" => On, "off" => Off, "noauto" => NoAuto }
    Spread { "striped" => Striped, "roundrobin" => RoundRobin }
    AclType { "off" => Off, "posix" => Posix }
    FailMode { "wait" => Wait, "continue" => Continue }
    DirectIo { "standard" => Standard, "always" => Always, "disabled" => Disabled }
    Redundancy { "all" => All, "most" => Most, "some" => Critical, "none" => Nothing }
    Caching { "all" => All, "metadata" => Metadata, "none" => None }
    Checksum { "on" => Blake3, "off" => Off, "blake3" => Blake3, "xxh3" => Xxh3, "sha256" => Sha256 }
}

/// When changes become durable: the property `sync`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// On fsync, and with the next commit.
    #[default]
    Standard,
    /// Before the change returns.
    Always,
    /// With the next commit; fsync returns at once.
    Disabled,
}

/// Access to `.zfs`: the property `snapdir`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SnapDir {
    /// Not listed, but accessible by name.
    #[default]
    Hidden,
    /// Listed in the root directory.
    Visible,
    /// Accessible and reserved, but without snapshots: then opening a file needs no request.
    Disabled,
}

/// Which reads and writes bypass the caches: the property `direct`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirectIo {
    /// Those of files opened with `O_DIRECT`, and of files with the attribute `direct`.
    #[default]
    Standard,
    /// Those of all files.
    Always,
    /// Those of files with the attribute `direct`.
    Disabled,
}

/// Whether a dataset is mounted: the property `canmount`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CanMount {
    /// Mounted with all other datasets.
    On,
    /// Never mounted, even by name.
    Off,
    /// Mounted only by name.
    NoAuto,
}

/// The kind of access control lists: the property `acltype`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclType {
    /// No lists: permission bits only.
    Off,
    /// POSIX lists, access and default.
    Posix,
}

/// The placement of files on vdevs: the property `alloc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Each file is spread over all vdevs.
    Striped,
    /// Each file is on one vdev, and the next file on the next vdev.
    RoundRobin,
}

/// The behaviour of a suspended pool towards programs: the property `failmode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailMode {
    /// Programs wait until the pool goes on.
    Wait,
    /// Programs get errors.
    Continue,
}

impl Setting for CompressionChoice {
    fn read(canonical: &str) -> Option<CompressionChoice> {
        CompressionChoice::parse(canonical)
    }
}

/// The word in `vdevs` for all special vdevs.
pub(crate) const SPECIAL: &str = "special";

/// Stored names of vdevs: numbers behind a word for readers. Names of other pools' vdevs are skipped.
impl Setting for Preferred {
    fn read(canonical: &str) -> Option<Preferred> {
        Some(canonical.split(',').fold(Preferred::default(), |preferred, item| match item.rsplit_once('-') {
            None if item == SPECIAL => preferred.and_special(),
            Some((_, number)) => number.parse().map_or(preferred, |number| preferred.and(VdevId(number))),
            None => preferred,
        }))
    }
}

impl Setting for bool {
    fn read(canonical: &str) -> Option<bool> {
        match canonical {
            "on" => Some(true),
            "off" => Some(false),
            _ => None,
        }
    }
}

impl Setting for u8 {
    fn read(canonical: &str) -> Option<u8> {
        canonical.parse().ok()
    }
}

impl Setting for u32 {
    fn read(canonical: &str) -> Option<u32> {
        canonical.parse().ok()
    }
}

impl Setting for u64 {
    fn read(canonical: &str) -> Option<u64> {
        canonical.parse().ok()
    }
}

impl Setting for String {
    fn read(canonical: &str) -> Option<String> {
        Some(canonical.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_kept_are_vdevs_and_others_are_nothing() {
        let none = Preferred::default();
        for nothing in ["any", "", "mirror-x", "mirror-", "disk-99999999999", "disk-64", "tank"] {
            assert_eq!(Preferred::read(nothing), Some(none), "{nothing}");
        }
        let both = none.and(VdevId(1)).and(VdevId(3)).and_special();
        assert_eq!(Preferred::read("mirror-3,special,disk-1"), Some(both));
    }
}
