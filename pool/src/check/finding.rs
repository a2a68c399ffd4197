//! What a check can find, each with a number that never changes its meaning.

use std::fmt;

/// What kind of damage was found. The number is stable: scripts and tests go by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum Code {
    /// A tree node that cannot be read or is not what its parent says.
    UnreadableNode = 1,
    /// A copy of a block that cannot be read or does not match its checksum.
    DamagedCopy = 2,
    /// Two different blocks that share sectors.
    Overlap = 3,
    /// A block that is referred to and not allocated: it may be overwritten at any time.
    NotAllocated = 4,
    /// Space that is allocated and not referred to: it is lost.
    Leaked = 5,
    /// The newest state cannot be opened at all.
    UnreadablePool = 6,
    /// A row of the catalogue that makes no sense.
    Catalogue = 100,
    /// A counter of a dataset that differs from what it counts.
    Counter = 101,
    /// A deadlist that holds what it should not, or lacks what it should hold.
    Deadlist = 102,
    /// A count of references to a shared block that differs from how many there are.
    References = 103,
    /// A file system's inconsistency inside a dataset.
    FileSystem = 200,
}

/// Lists the codes, each with what it is called; one that is not here does not compile.
macro_rules! codes {
    ($($code:ident: $name:literal,)*) => {
        impl Code {
            /// All of them, by their numbers.
            pub const ALL: &[Code] = &[$(Code::$code),*];

            /// What it is called, in a few fixed words.
            pub fn name(self) -> &'static str {
                match self {
                    $(Code::$code => $name,)*
                }
            }
        }
    };
}

codes! {
    UnreadableNode: "unreadable node",
    DamagedCopy: "damaged block",
    Overlap: "overlapping blocks",
    NotAllocated: "unallocated block",
    Leaked: "leaked space",
    UnreadablePool: "unreadable pool",
    Catalogue: "catalogue",
    Counter: "wrong counter",
    Deadlist: "deadlist",
    References: "references",
    FileSystem: "file system",
}

impl Code {
    /// Its number.
    pub fn number(self) -> u16 {
        self as u16
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its kind.
    pub code: Code,
    /// Which structure, where, and with which numbers.
    pub what: String,
}

impl Finding {
    /// A finding.
    pub fn new(code: Code, what: impl Into<String>) -> Finding {
        Finding { code, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "C{:03} {}", self.code as u16, self.what)
    }
}
