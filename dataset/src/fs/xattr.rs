//! Extended attributes.
//!
//! They are stored as they come, but for access control lists (see [`super::acl`]); what security labels mean is the kernel's
//! business. An attribute is found by a hash of its name; a large value is a block of its own.
//!
//! Accounts charge content alone (see [`super::account`]), so attributes would be a way around a quota of bytes. While one
//! of a file's owners has such a quota, the names and values of its attributes may take [`UNDER_QUOTA`] bytes together, as
//! much as ext4 has for them; a call that would make them more is refused. What is there already stays, and may shrink. So
//! attributes are bounded by a quota of objects. Access control lists have a bound of their own and are not counted.

use pool::{
    error::Error as PoolError,
    format::{
        codec::{Malformed, Reader, Writer, malformed},
        key::Key,
    },
    tree::{Block, Entry, View},
};
use rustix::io::Errno;
use xxhash_rust::xxh3::xxh3_64;

use super::{
    FileSystem, METADATA,
    acl::is_acl,
    change::{Change, load_inode},
    failure::{self, Failure, damaged},
    inode::flag,
    key::{self, Ino, Window, XATTR},
};

/// The longest name, in bytes.
pub const XATTR_NAME_MAX: usize = 255;
/// The longest value, in bytes.
pub const XATTR_VALUE_MAX: usize = 64 << 10;
/// What the attributes of a file may take together, in bytes, while one of its owners has a quota of bytes.
pub const UNDER_QUOTA: usize = 4 << 10;
/// A longer value is a block of its own.
const INLINE_MAX: usize = 2 << 10;

const NAMESPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
pub(super) const CAPABILITY: &[u8] = b"security.capability";
const WINDOW: u64 = 16;

/// Whether an attribute may, must or must not exist before it is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetXattr {
    /// Either way.
    #[default]
    Any,
    /// It must not: `XATTR_CREATE`.
    Create,
    /// It must: `XATTR_REPLACE`.
    Replace,
}

/// The body of an attribute's item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xattr<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The value.
    pub value: Value<'a>,
}

/// A value, or how long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// The value itself.
    Inline(&'a [u8]),
    /// The item's block holds it; this is its length.
    Block(u32),
}

impl<'a> Xattr<'a> {
    /// The body.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u8(matches!(self.value, Value::Block(_)).into());
        out.put_prefixed(self.name);
        match self.value {
            Value::Inline(value) => out.put_bytes(value),
            Value::Block(len) => out.put_varint(len.into()),
        }
        out
    }

    /// The attribute with this body.
    pub fn decode(body: &'a [u8]) -> Result<Xattr<'a>, Malformed> {
        const WHAT: &str = "extended attribute";
        let mut reader = Reader::new(body);
        let tag = reader.u8(WHAT)?;
        let name = reader.prefixed(WHAT)?;
        let value = match tag {
            0 => Value::Inline(reader.rest()),
            1 => {
                let len = reader.varint32(WHAT)?;
                reader.finish(WHAT)?;
                Value::Block(len)
            }
            _ => return malformed(WHAT),
        };
        Ok(Xattr { name, value })
    }
}

/// Where the attribute called `name` stands.
pub fn window(ino: Ino, name: &[u8]) -> Window {
    // The last window is left out, so that its end is a number.
    let start = (xxh3_64(name) & !(WINDOW - 1)).min(!(2 * WINDOW - 1));
    Window { object: ino, kind: XATTR, start, len: WINDOW }
}

fn check_name(name: &[u8]) -> Result<(), Errno> {
    if name.is_empty() || name.len() > XATTR_NAME_MAX {
        return Err(Errno::RANGE);
    }
    if is_acl(name) {
        return Ok(());
    }
    match NAMESPACES.iter().find(|prefix| name.starts_with(prefix)) {
        None => Err(Errno::OPNOTSUPP),
        Some(prefix) if name.len() == prefix.len() => Err(Errno::INVAL),
        Some(_) => Ok(()),
    }
}

pub(super) fn decode(entry: &Entry) -> Result<Xattr<'_>, Failure> {
    Xattr::decode(entry.body()).map_err(damaged(entry.key()))
}

/// The item of the attribute called `name`, or where it would be put.
pub(super) fn find(view: &View<'_>, ino: Ino, name: &[u8]) -> Result<Result<Entry, Option<Key>>, Failure> {
    let window = window(ino, name);
    let mut free = window.start;
    for entry in view.range(window.keys()) {
        let entry = entry?;
        if decode(&entry)?.name == name {
            return Ok(Ok(entry));
        }
        if entry.key().offset == free {
            free += 1;
        }
    }
    Ok(Err((free < window.start + window.len).then(|| Key::new(ino, XATTR, free))))
}

fn delete(change: &mut Change<'_>, entry: &Entry) {
    change.delete(entry.key());
    if let Some(block) = entry.block() {
        change.kill(block);
    }
}

/// Where an attribute is to be put, after taking away what stands there. ENOSPC if there is no place for it.
pub(super) fn replace(change: &mut Change<'_>, ino: Ino, name: &[u8]) -> Result<Key, Failure> {
    match find(&change.view, ino, name)? {
        Ok(old) => {
            delete(change, &old);
            Ok(old.key())
        }
        Err(free) => Ok(free.ok_or(Errno::NOSPC)?),
    }
}

/// Takes an attribute away, if it is there.
pub(super) fn delete_named(change: &mut Change<'_>, ino: Ino, name: &[u8]) -> Result<bool, Failure> {
    let found = find(&change.view, ino, name)?;
    if let Ok(entry) = &found {
        delete(change, entry);
    }
    Ok(found.is_ok())
}

/// Takes a file's capabilities away: its content or owner changes.
pub(super) fn drop_capability(change: &mut Change<'_>, ino: Ino) -> Result<(), Failure> {
    if change.inode(ino)?.has(flag::CAPABILITY) {
        delete_named(change, ino, CAPABILITY)?;
        change.edit(ino)?.set(flag::CAPABILITY, false);
    }
    Ok(())
}

impl Value<'_> {
    fn len(&self) -> usize {
        match self {
            Value::Inline(value) => value.len(),
            Value::Block(len) => *len as usize,
        }
    }
}

/// EDQUOT if an owner of the file has a quota of bytes, and an attribute of this name and length makes the file's
/// attributes longer than they may be then.
fn check_quota(change: &mut Change<'_>, ino: Ino, name: &[u8], len: usize) -> Result<(), Failure> {
    if !change.has_byte_quota(ino)? {
        return Ok(());
    }
    let (mut whole, mut old) = (name.len() + len, 0);
    for entry in change.view.range(key::from(ino, XATTR, 0)) {
        let entry = entry?;
        let other = decode(&entry)?;
        match other.name == name {
            true => old = name.len() + other.value.len(),
            false if is_acl(other.name) => {}
            false => whole += other.name.len() + other.value.len(),
        }
        // The rest would not change the answer, unless it is the old one, whose place is known.
        if whole > UNDER_QUOTA {
            break;
        }
    }
    if whole <= UNDER_QUOTA {
        return Ok(());
    }
    if let (0, Ok(entry)) = (old, find(&change.view, ino, name)?) {
        old = name.len() + decode(&entry)?.value.len();
    }
    if name.len() + len <= old { Ok(()) } else { Err(Errno::DQUOT.into()) }
}

impl FileSystem {
    /// The value of an attribute; ENODATA if there is none.
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Errno> {
        check_name(name)?;
        self.check_acl_name(name)?;
        loop {
            let (value, block) = self.read_tree(|view| {
                let Ok(entry) = find(view, ino, name)? else {
                    load_inode(view, ino)?;
                    return Err(Errno::NODATA.into());
                };
                match decode(&entry)?.value {
                    Value::Inline(value) => Ok((value.to_vec(), None)),
                    Value::Block(len) => {
                        let missing = Malformed { what: "extended attribute without its block" };
                        let block = entry.block().ok_or(missing).map_err(damaged(entry.key()))?;
                        Ok((Vec::new(), Some((entry.key(), block, len as usize, view.seen()))))
                    }
                }
            })?;
            let Some((key, block, len, seen)) = block else { return Ok(value) };
            match self.head.bytes_at(key, &block, seen) {
                // It was freed meanwhile: what it is now is looked up.
                Err(PoolError::Stale) => {}
                Err(error) => return Err(failure::errno(&error)),
                Ok(bytes) => return bytes.get(..len).map(<[u8]>::to_vec).ok_or(Errno::IO),
            }
        }
    }

    /// Sets an attribute; EDQUOT if an owner's quota bounds attributes and this makes them longer than that. An access control list is set as by who may keep the set-group bit.
    pub fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], how: SetXattr) -> Result<(), Errno> {
        self.writable()?;
        check_name(name)?;
        if is_acl(name) {
            return self.set_acl(ino, name, value, false);
        }
        if value.len() > XATTR_VALUE_MAX {
            return Err(Errno::TOOBIG);
        }
        self.admit(METADATA + value.len() as u64)?;
        let policy = self.options().policy;
        self.update_tree(|change| {
            let now = change.now;
            let inode = change.edit(ino)?;
            inode.check_free()?;
            inode.ctime = now;
            if name == CAPABILITY {
                inode.set(flag::CAPABILITY, true);
            }
            match (find(&change.view, ino, name)?.is_ok(), how) {
                (true, SetXattr::Create) => return Err(Errno::EXIST.into()),
                (false, SetXattr::Replace) => return Err(Errno::NODATA.into()),
                _ => {}
            }
            check_quota(change, ino, name, value.len())?;
            let key = replace(change, ino, name)?;
            if value.len() <= INLINE_MAX {
                change.put(key, Xattr { name, value: Value::Inline(value) }.encode(), None);
            } else {
                let block = Block::Pending(self.head.record(change.txg(), policy, value.to_vec()));
                let body = Xattr { name, value: Value::Block(value.len() as u32) }.encode();
                change.put(key, body, Some(&block));
            }
            Ok(())
        })
    }

    /// The names of all attributes. Which of them the asker may see is for the caller to say.
    pub fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>, Errno> {
        self.read_tree(|view| {
            load_inode(view, ino)?;
            let mut names = Vec::new();
            for entry in view.range(key::from(ino, XATTR, 0)) {
                names.push(decode(&entry?)?.name.to_vec());
            }
            names.retain(|name| self.check_acl_name(name).is_ok());
            Ok(names)
        })
    }

    /// Removes an attribute. An access control list need not be there: to set an empty one means to remove it.
    pub fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<(), Errno> {
        self.writable()?;
        check_name(name)?;
        self.check_acl_name(name)?;
        self.update_tree(|change| {
            let now = change.now;
            let inode = change.edit(ino)?;
            inode.check_free()?;
            inode.ctime = now;
            if name == CAPABILITY {
                inode.set(flag::CAPABILITY, false);
            }
            if delete_named(change, ino, name)? || is_acl(name) { Ok(()) } else { Err(Errno::NODATA.into()) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_attribute_round_trips(name: Vec<u8>, value: Vec<u8>, len: u32) {
            for value in [Value::Inline(&value), Value::Block(len)] {
                let xattr = Xattr { name: &name, value };
                let body = xattr.encode();
            prop_assert_eq!(Xattr::decode(&body), Ok(xattr));
            }
        }

        #[test]
        fn garbage_never_panics(body: Vec<u8>) {
            let _ = Xattr::decode(&body);
        }
    }

    #[test]
    fn only_known_namespaces_are_taken() {
        assert_eq!(check_name(b"user.a"), Ok(()));
        assert_eq!(check_name(b"system.posix_acl_access"), Ok(()));
        assert_eq!(check_name(b"system.posix_acl_more"), Err(Errno::OPNOTSUPP));
        assert_eq!(check_name(b"user."), Err(Errno::INVAL));
        assert_eq!(check_name(b"other.a"), Err(Errno::OPNOTSUPP));
        assert_eq!(check_name(&[b'u'; 256]), Err(Errno::RANGE));
    }
}
