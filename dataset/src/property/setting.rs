//! The types that the engine, a file system and a mount act on, and the words that stand for their values.

use pool::{
    block::compression::CompressionChoice, format::pointer::Checksum, space::Preferred, txg::Caching, units::VdevId,
};

use super::typed::Setting;

/// Lists the words of a type once, for what may be written and for what it means.
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

/// A type whose values are words.
pub(super) trait Words {
    /// All of them, in the order in which help lists them.
    const WORDS: &'static [&'static str];
}

words! {
    Durability { "standard" => Standard, "always" => Always, "disabled" => Disabled }
    SnapDir { "disabled" => Disabled, "hidden" => Hidden, "visible" => Visible }
    CanMount { "on" => On, "off" => Off, "noauto" => NoAuto }
    Spread { "striped" => Striped, "roundrobin" => RoundRobin }
    AclType { "off" => Off, "posix" => Posix }
    FailMode { "wait" => Wait, "continue" => Continue }
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

/// Whether `.zfs` is there and listed: the property `snapdir`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SnapDir {
    /// Not listed, but there for programs that name it.
    #[default]
    Hidden,
    /// Listed.
    Visible,
    /// There, so that its name cannot be taken, but with no snapshots in it: then opening a file needs no request.
    Disabled,
}

/// Whether a dataset is mounted: the property `canmount`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CanMount {
    /// With all others.
    On,
    /// Never.
    Off,
    /// Only by name.
    NoAuto,
}

/// Which access control lists there are: the property `acltype`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclType {
    /// None.
    Off,
    /// Those of POSIX.
    Posix,
}

/// How files are spread over vdevs: the property `alloc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Each file lies on all vdevs.
    Striped,
    /// Each file lies on one vdev, the next file on the next.
    RoundRobin,
}

/// What programs meet while a pool is suspended: the property `failmode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailMode {
    /// They wait.
    Wait,
    /// They get errors.
    Continue,
}

impl Setting for CompressionChoice {
    fn read(canonical: &str) -> Option<CompressionChoice> {
        CompressionChoice::parse(canonical)
    }
}

/// The word in `vdevs` for all special vdevs.
pub(crate) const SPECIAL: &str = "special";

/// Names of vdevs as they are kept: numbers behind a word for people. Those of other pools are passed over.
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
