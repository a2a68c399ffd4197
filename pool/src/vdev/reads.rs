//! Reads with a check, and what they find.

use crate::{
    error::{Error, Result},
    units::Guid,
};

/// Returns whether bytes are the expected content.
pub type Check<'a> = &'a dyn Fn(&[u8]) -> bool;

/// A read under way. Called with the [`Check`], it waits for the bytes and returns `None` if the read failed or the
/// check did. Only errors returned by a device are counted; a checksum mismatch is not attributed to a device.
pub type Begun = Box<dyn FnOnce(Check<'_>) -> Option<Vec<u8>> + Send>;

/// How many copies of the bytes to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sources {
    /// Any one source will do.
    Any,
    /// Every source, and each must pass.
    All,
}

/// The outcome of a read with a [`Check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The first source passed.
    Good,
    /// A source passed after another had failed its check or could not be read.
    Elsewhere,
    /// No source passed the check.
    Bad,
}

/// The content of every source of some bytes.
#[derive(Debug, Default)]
pub struct Examined {
    /// The bytes of the first good source.
    pub good: Option<Vec<u8>>,
    /// GUIDs of the bad sources, with the error of each that could not be read.
    pub bad: Vec<(Guid, Option<Error>)>,
}

impl Examined {
    pub(super) fn of_one(source: Guid, read: Result<Vec<u8>>, is_good: Check<'_>) -> Examined {
        let mut examined = Examined::default();
        examined.add(source, read, is_good);
        examined
    }

    /// True if every source is good.
    pub fn is_whole(&self) -> bool {
        self.good.is_some() && self.bad.is_empty()
    }

    pub(super) fn add(&mut self, source: Guid, read: Result<Vec<u8>>, is_good: Check<'_>) {
        match read {
            Ok(bytes) if is_good(&bytes) => drop(self.good.get_or_insert(bytes)),
            Ok(_) => self.bad.push((source, None)),
            Err(error) => self.bad.push((source, Some(error))),
        }
    }
}
