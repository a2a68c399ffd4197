//! The findings of a check, each with a number that never changes its meaning.

use std::fmt;

/// The kind of damage. The number is stable: scripts and tests rely on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum Code {
    /// A tree node that is unreadable or not in its place.
    UnreadableNode = 1,
    /// A copy of a block that is unreadable or does not match its checksum.
    DamagedCopy = 2,
    /// Two different blocks with sectors in common.
    Overlap = 3,
    /// A referenced block that is not allocated: it may be overwritten at any time.
    NotAllocated = 4,
    /// Allocated space without a reference: it is lost.
    Leaked = 5,
    /// The newest state cannot be opened at all.
    UnreadablePool = 6,
    /// A senseless row of the catalogue.
    Catalogue = 100,
    /// A counter of a dataset that differs from the counted total.
    Counter = 101,
    /// A deadlist with wrong blocks, or without blocks that belong there.
    Deadlist = 102,
    /// The count of references to a shared block differs from the actual number.
    References = 103,
    /// A file system's inconsistency inside a dataset.
    FileSystem = 200,
}

/// Lists the codes, each with its name; a missing code does not compile.
macro_rules! codes {
    ($($code:ident: $name:literal,)*) => {
        impl Code {
            /// All codes, by number.
            pub const ALL: &[Code] = &[$(Code::$code),*];

            /// The code's name, in a few fixed words.
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
    /// The stable number, as printed after `C`.
    pub fn number(self) -> u16 {
        self as u16
    }
}

/// A defect found by a check, printed as `C004 ...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The kind of damage.
    pub code: Code,
    /// The structure, its place, and the numbers.
    pub what: String,
}

impl Finding {
    /// A finding of this kind; `what` names the structure, its place and the numbers.
    pub fn new(code: Code, what: impl Into<String>) -> Finding {
        Finding { code, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "C{:03} {}", self.code as u16, self.what)
    }
}
