//! How many requests of each kind the kernel sent: what a benchmark divides by, and the proof that the requests which
//! are meant to disappear (open, flush, release) did.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! opcodes {
    ($($variant:ident $name:literal,)*) => {
        /// A kind of request.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Opcode {
            $(#[doc = concat!("FUSE's `", $name, "`.")] $variant,)*
        }

        impl Opcode {
            /// Every kind, in the order of the enumeration.
            pub const ALL: &'static [Opcode] = &[$(Opcode::$variant,)*];

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
    Lookup "lookup",
    Forget "forget",
    GetAttr "getattr",
    SetAttr "setattr",
    ReadLink "readlink",
    MkNod "mknod",
    MkDir "mkdir",
    Unlink "unlink",
    RmDir "rmdir",
    Symlink "symlink",
    Rename "rename",
    Link "link",
    Open "open",
    Read "read",
    Write "write",
    Flush "flush",
    Release "release",
    FSync "fsync",
    OpenDir "opendir",
    ReadDir "readdir",
    ReadDirPlus "readdirplus",
    ReleaseDir "releasedir",
    FSyncDir "fsyncdir",
    StatFs "statfs",
    SetXattr "setxattr",
    GetXattr "getxattr",
    ListXattr "listxattr",
    RemoveXattr "removexattr",
    Create "create",
    FAllocate "fallocate",
    LSeek "lseek",
    CopyFileRange "copy_file_range",
    Ioctl "ioctl",
}

/// Requests served by one mount since it was made.
#[derive(Debug)]
pub struct Counters([AtomicU64; Opcode::ALL.len()]);

impl Default for Counters {
    fn default() -> Counters {
        Counters(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Counters {
    pub(crate) fn count(&self, opcode: Opcode) {
        self.0[opcode as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How many of this kind there were.
    pub fn get(&self, opcode: Opcode) -> u64 {
        self.0[opcode as usize].load(Ordering::Relaxed)
    }

    /// Every kind that came at least once, with its number.
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
}
