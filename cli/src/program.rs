//! The programs of the binaries, and the names that start them.

use std::ffi::OsStr;
use std::path::Path;

/// The programs in the binaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `pool`, also started as `zpool`.
    Pool,
    /// `fs`, also started as `zfs`.
    Fs,
    /// `zstream`, also started as `zstreamdump`: OpenZFS's names for parts of `fs stream`.
    Zstream,
    /// `mount.cenote`, also started as `mount.zfs`: the helper of mount(8).
    Mount,
}

impl Program {
    /// The program named `first_word`, if any.
    pub fn named(first_word: &OsStr) -> Option<Program> {
        match Path::new(first_word).file_name()?.to_str()? {
            "pool" | "zpool" => Some(Program::Pool),
            "fs" | "zfs" => Some(Program::Fs),
            "zstream" | "zstreamdump" => Some(Program::Zstream),
            "mount.cenote" | "mount.fuse.cenote" | "mount.zfs" => Some(Program::Mount),
            _ => None,
        }
    }
}
