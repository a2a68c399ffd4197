//! Directories: names, their hash, and lookup.
//!
//! The entries of a directory are in the order of a 48-bit hash of their names, keyed by the dataset's seed. Fifteen
//! more bits distinguish names with the same hash. So a lookup is one descent of the tree, and the offset of an entry
//! is stable while the entry exists: the offset is the cookie at which readdir continues.

use pool::{
    format::codec::{Malformed, Reader, Writer},
    tree::View,
};
use rustix::io::Errno;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{
    failure::{Failure, damaged},
    inode::FileType,
    key::{DIRENT, Ino, Window},
};

/// The longest name of a new entry, in bytes.
pub const NAME_MAX: usize = 255;
/// The longest name, in bytes, of an entry that came from OpenZFS.
pub const LONG_NAME_MAX: usize = 1023;

const DISCRIMINATOR_BITS: u32 = 15;
const HASH_BITS: u32 = 48;

/// A directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dirent<'a> {
    /// The inode number of the entry's object.
    pub ino: Ino,
    /// The object's type.
    pub file_type: FileType,
    /// 1 to [`LONG_NAME_MAX`] bytes, without `/` and NUL.
    pub name: &'a [u8],
}

impl<'a> Dirent<'a> {
    /// Encodes the body of an item.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.name.len() + 8);
        out.put_u8(self.file_type.code());
        out.put_varint(self.ino);
        out.put_bytes(self.name);
        out
    }

    /// Decodes the body of an item.
    pub fn decode(body: &'a [u8]) -> Result<Dirent<'a>, Malformed> {
        const WHAT: &str = "directory entry";
        let mut reader = Reader::new(body);
        let file_type = FileType::from_code(reader.u8(WHAT)?)?;
        let ino = reader.varint(WHAT)?;
        let name = reader.rest();
        if ino == 0 || check_old_name(name).is_err() {
            return Err(Malformed { what: WHAT });
        }
        Ok(Dirent { ino, file_type, name })
    }
}

/// Whether `name` is valid as a new entry: EINVAL, ENOENT or ENAMETOOLONG otherwise.
pub(super) fn check_name(name: &[u8]) -> Result<(), Errno> {
    if name.len() > NAME_MAX { Err(Errno::NAMETOOLONG) } else { check_old_name(name) }
}

/// Whether an entry can have the name.
pub(crate) fn check_old_name(name: &[u8]) -> Result<(), Errno> {
    match name {
        b"" => Err(Errno::NOENT),
        b"." | b".." => Err(Errno::INVAL),
        _ if name.len() > LONG_NAME_MAX => Err(Errno::NAMETOOLONG),
        _ if name.iter().any(|byte| matches!(byte, b'/' | 0)) => Err(Errno::INVAL),
        _ => Ok(()),
    }
}

/// The error for a name that is not there: of a name that no program can make, ENAMETOOLONG, as Linux reports.
pub(crate) fn absent(name: &[u8]) -> Errno {
    if name.len() > NAME_MAX { Errno::NAMETOOLONG } else { Errno::NOENT }
}

/// The offsets in a directory where an entry called `name` may be.
pub fn window(seed: u64, dir: Ino, name: &[u8]) -> Window {
    // The largest hash is unused, so that cookies, which lie a little above offsets, stay positive as signed numbers.
    let hash = (xxh3_64_with_seed(name, seed) >> (64 - HASH_BITS)).min((1 << HASH_BITS) - 2);
    Window { object: dir, kind: DIRENT, start: hash << DISCRIMINATOR_BITS, len: 1 << DISCRIMINATOR_BITS }
}

/// An entry found by a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The entry's offset in its directory.
    pub(super) offset: u64,
    /// The object's inode number.
    pub(super) ino: Ino,
    /// The object's type.
    pub(super) file_type: FileType,
}

/// The result of a lookup by name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub(super) found: Option<Found>,
    /// The free offset for a new entry of the name.
    free: Option<u64>,
}

impl Probe {
    /// The offset for a new entry; ENOSPC if all offsets of the hash are taken.
    pub(super) fn vacancy(&self) -> Result<u64, Errno> {
        self.free.ok_or(Errno::NOSPC)
    }
}

pub(super) fn probe(view: &View<'_>, seed: u64, dir: Ino, name: &[u8]) -> Result<Probe, Failure> {
    let window = window(seed, dir, name);
    let mut free = window.start;
    for entry in view.range(window.keys()) {
        let entry = entry?;
        let (key, dirent) = (entry.key(), Dirent::decode(entry.body()).map_err(damaged(entry.key()))?);
        if dirent.name == name {
            let found = Found { offset: key.offset, ino: dirent.ino, file_type: dirent.file_type };
            return Ok(Probe { found: Some(found), free: None });
        }
        if key.offset == free {
            free += 1;
        }
    }
    let free = (free < window.start + window.len).then_some(free);
    Ok(Probe { found: None, free })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_entry_round_trips(ino in 1u64.., name in "[^/\0]{3,60}") {
            let dirent = Dirent { ino, file_type: FileType::Fifo, name: name.as_bytes() };
            let body = dirent.encode();
            prop_assert_eq!(Dirent::decode(&body), Ok(dirent));
        }

        #[test]
        fn garbage_never_panics(body: Vec<u8>) {
            let _ = Dirent::decode(&body);
        }

        #[test]
        fn offsets_leave_room_for_cookies(seed: u64, name: Vec<u8>) {
            let window = window(seed, 1, &name);
            prop_assert!(window.start + window.len + 3 < i64::MAX as u64);
        }
    }

    #[test]
    fn names_that_cannot_be_are_refused() {
        assert_eq!(check_name(b""), Err(Errno::NOENT));
        assert_eq!(check_name(b".."), Err(Errno::INVAL));
        assert_eq!(check_name(b"a/b"), Err(Errno::INVAL));
        assert_eq!(check_name(b"a\0"), Err(Errno::INVAL));
        assert_eq!(check_name(&[b'a'; 256]), Err(Errno::NAMETOOLONG));
        assert_eq!(check_name(&[b'a'; 255]), Ok(()));
    }
}
