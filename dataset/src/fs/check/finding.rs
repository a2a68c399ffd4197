//! The problems of a dataset's tree: each has a number with a fixed meaning, and a message.

use std::fmt;

use pool::format::{codec::Malformed, key::Key};

use crate::fs::{account::item::Amount, inode::Link, key::Ino};

/// A problem, with the object concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The object's number; 0 for the dataset itself.
    pub ino: Ino,
    /// The kind of problem, with the numbers found.
    pub problem: Problem,
}

/// The kinds of problems in a dataset's tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// An item cannot be decoded.
    Malformed(Key, Malformed),
    /// An item of an unknown kind, or of a kind that does not fit the object.
    Stray(Key),
    /// The master item is missing.
    NoMaster,
    /// The root directory is missing.
    NoRoot,
    /// The object's number is not below the master's `next`.
    BeyondNext,
    /// The dataset's count of inodes, and the actual number.
    Files(u64, u64),
    /// Items of an object without an inode.
    NoInode,
    /// The inode's link count, and the number of entries that lead to the inode.
    Links(u32, u64),
    /// The directory's size, and the number of its entries.
    Entries(u64, u64),
    /// An entry at an offset that does not fit the hash of its name.
    Misplaced(Key),
    /// The entry at the given directory and offset leads to no inode.
    Dangling(Link),
    /// The entry's type is not the inode's.
    EntryType(Link),
    /// The inode claims a name that leads elsewhere.
    NotItsName(Link),
    /// The number of names that the inode claims, and the number of entries.
    Names(u64, u64),
    /// The directory cannot be reached from the root.
    Unreachable,
    /// The inode's `bytes`, and the sum of its extents.
    Bytes(u64, u64),
    /// The extent at the given offset overlaps its predecessor.
    Overlap(u64),
    /// The extent at the given offset ends behind the file's end.
    BeyondEnd(u64),
    /// The extent at the given offset does not lie within one record.
    AcrossRecords(u64),
    /// The block of the extent or attribute is missing, or too short.
    Block(Key),
    /// The inode has no link and no orphan item, or both.
    Orphan,
    /// The inode is marked as being truncated without a marker item, or has a marker item only.
    Truncating,
    /// The file has capabilities, and is not marked so.
    Capability,
    /// The account under the given key: its stated usage, and the sum of the inodes charged.
    Account(Key, Amount, Amount),
}

/// Numbers the problems; a problem without a number does not compile. A number never changes its meaning.
macro_rules! numbers {
    ($($number:literal => $problem:pat,)*) => {
        impl Problem {
            /// The numbers of all problems.
            pub const NUMBERS: &[u16] = &[$($number),*];

            /// The problem's number in messages and in `pool check`.
            pub fn number(&self) -> u16 {
                match self {
                    $($problem => $number,)*
                }
            }
        }
    };
}

numbers! {
    1 => Problem::Malformed(..),
    2 => Problem::Stray(_),
    3 => Problem::NoMaster,
    4 => Problem::NoRoot,
    5 => Problem::BeyondNext,
    6 => Problem::Files(..),
    7 => Problem::NoInode,
    8 => Problem::Links(..),
    9 => Problem::Entries(..),
    10 => Problem::Misplaced(_),
    11 => Problem::Dangling(_),
    12 => Problem::EntryType(_),
    13 => Problem::NotItsName(_),
    14 => Problem::Names(..),
    15 => Problem::Unreachable,
    16 => Problem::Bytes(..),
    17 => Problem::Overlap(_),
    18 => Problem::BeyondEnd(_),
    19 => Problem::AcrossRecords(_),
    20 => Problem::Block(_),
    21 => Problem::Orphan,
    22 => Problem::Truncating,
    23 => Problem::Capability,
    24 => Problem::Account(..),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "F{:02} object {}: ", self.problem.number(), self.ino)?;
        match &self.problem {
            Problem::Malformed(key, malformed) => write!(f, "item {key}: {malformed}"),
            Problem::Stray(key) => write!(f, "item {key} is of no known kind"),
            Problem::NoMaster => write!(f, "the dataset has no master item"),
            Problem::NoRoot => write!(f, "the dataset has no root directory"),
            Problem::BeyondNext => write!(f, "its number was never given out"),
            Problem::Files(counted, found) => write!(f, "the dataset counts {counted} inodes and has {found}"),
            Problem::NoInode => write!(f, "it has items but no inode"),
            Problem::Links(counted, found) => write!(f, "its link count is {counted}, and its names ask for {found}"),
            Problem::Entries(counted, found) => write!(f, "it counts {counted} entries and has {found}"),
            Problem::Misplaced(key) => write!(f, "the name in item {key} does not belong there"),
            Problem::Dangling(link) => write!(f, "the entry {link} leads to no inode"),
            Problem::EntryType(link) => write!(f, "the entry {link} names another type"),
            Problem::NotItsName(link) => write!(f, "the entry {link} is not one of its names"),
            Problem::Names(claimed, found) => write!(f, "it claims {claimed} names and has {found}"),
            Problem::Unreachable => write!(f, "it cannot be reached from the root"),
            Problem::Bytes(counted, found) => write!(f, "it counts {counted} bytes and its extents hold {found}"),
            Problem::Overlap(offset) => write!(f, "its extent at {offset} overlaps the one before"),
            Problem::BeyondEnd(offset) => write!(f, "its extent at {offset} ends behind the end of the file"),
            Problem::AcrossRecords(offset) => write!(f, "its extent at {offset} does not lie within one record"),
            Problem::Block(key) => write!(f, "the block of item {key} is missing or too short"),
            Problem::Orphan => write!(f, "links and orphan item contradict each other"),
            Problem::Truncating => write!(f, "truncation mark and item contradict each other"),
            Problem::Capability => write!(f, "it has capabilities and is not marked so"),
            Problem::Account(key, counted, found) => {
                let Amount { bytes, objects } = found;
                write!(f, "the account in item {key} says {} bytes in {} objects", counted.bytes, counted.objects)?;
                write!(f, ", and {bytes} in {objects} are charged to it")
            }
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x} of directory {}", self.offset, self.dir)
    }
}
