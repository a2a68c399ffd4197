//! The number of requests of each kind from the kernel. Benchmarks divide by these counts, and tests prove that
//! unnecessary requests (open, flush, release) have disappeared.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// FUSE's number for a rename request with flags.
pub(crate) const RENAME2: u32 = 45;

macro_rules! opcodes {
    ($($variant:ident = $number:literal, $name:literal;)*) => {
        /// A kind of request, with FUSE's number.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Opcode {
            $(#[doc = concat!("FUSE's `", $name, "`.")] $variant = $number,)*
        }

        impl Opcode {
            /// Every kind, in the order of the enumeration.
            pub const ALL: &'static [Opcode] = &[$(Opcode::$variant,)*];

            /// The kind with this number; renaming has two numbers.
            pub(crate) fn of(number: u32) -> Option<Opcode> {
                match number {
                    RENAME2 => Some(Opcode::Rename),
                    $($number => Some(Opcode::$variant),)*
                    _ => None,
                }
            }

            /// The kind's name, in lower case.
            pub fn name(self) -> &'static str {
                match self {
                    $(Opcode::$variant => $name,)*
                }
            }
        }
    };
}

opcodes! {
    Lookup = 1, "lookup";
    Forget = 2, "forget";
    GetAttr = 3, "getattr";
    SetAttr = 4, "setattr";
    ReadLink = 5, "readlink";
    Symlink = 6, "symlink";
    MkNod = 8, "mknod";
    MkDir = 9, "mkdir";
    Unlink = 10, "unlink";
    RmDir = 11, "rmdir";
    Rename = 12, "rename";
    Link = 13, "link";
    Open = 14, "open";
    Read = 15, "read";
    Write = 16, "write";
    StatFs = 17, "statfs";
    Release = 18, "release";
    FSync = 20, "fsync";
    SetXattr = 21, "setxattr";
    GetXattr = 22, "getxattr";
    ListXattr = 23, "listxattr";
    RemoveXattr = 24, "removexattr";
    Flush = 25, "flush";
    OpenDir = 27, "opendir";
    ReadDir = 28, "readdir";
    ReleaseDir = 29, "releasedir";
    FSyncDir = 30, "fsyncdir";
    Create = 35, "create";
    Destroy = 38, "destroy";
    Ioctl = 39, "ioctl";
    FAllocate = 43, "fallocate";
    ReadDirPlus = 44, "readdirplus";
    LSeek = 46, "lseek";
    CopyFileRange = 47, "copy_file_range";
    Statx = 52, "statx";
}

/// The largest number of a kind, plus one.
const NUMBERS: usize = Opcode::Statx as usize + 1;

/// The requests served by a mount since its start, and the bytes of its reads and writes.
#[derive(Debug)]
pub struct Counters {
    since: Instant,
    requests: [AtomicU64; NUMBERS],
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

impl Default for Counters {
    fn default() -> Counters {
        let zero = || AtomicU64::new(0);
        Counters {
            since: Instant::now(),
            requests: std::array::from_fn(|_| zero()),
            read_bytes: zero(),
            written_bytes: zero(),
        }
    }
}

impl Counters {
    pub(crate) fn count(&self, opcode: Opcode) {
        self.requests[opcode as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_read(&self, bytes: u64) {
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn count_written(&self, bytes: u64) {
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The time since the mount was made.
    pub fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    /// Bytes given to the kernel by reads.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// Bytes taken from the kernel by writes.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// The number of requests of this kind.
    pub fn get(&self, opcode: Opcode) -> u64 {
        self.requests[opcode as usize].load(Ordering::Relaxed)
    }

    /// Every kind that came at least once, with its count.
    pub fn seen(&self) -> Vec<(Opcode, u64)> {
        Opcode::ALL.iter().map(|&opcode| (opcode, self.get(opcode))).filter(|&(_, count)| count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_by_kind() {
        let counters = Counters::default();
        counters.count(Opcode::Read);
        counters.count(Opcode::Read);
        counters.count(Opcode::CopyFileRange);
        assert_eq!(counters.get(Opcode::Read), 2);
        assert_eq!(counters.seen(), [(Opcode::Read, 2), (Opcode::CopyFileRange, 1)]);
        assert_eq!(Opcode::Read.name(), "read");
    }

    #[test]
    fn kinds_are_known_by_their_numbers() {
        assert!(Opcode::ALL.iter().all(|&opcode| Opcode::of(opcode as u32) == Some(opcode)));
        assert_eq!([26, 45, 4096].map(Opcode::of), [None, Some(Opcode::Rename), None]);
    }
}
