//! Extended attributes.
//!
//! Values are stored as given, except access control lists (see [`super::acl`]); the kernel interprets security labels.
//! An attribute is found by a hash of its name; a large value is a block of its own.
//!
//! Accounts charge content alone (see [`super::account`]), so attributes could bypass a quota of bytes. While an owner
//! of a file has a quota of bytes, the names and values of the file's attributes may take [`UNDER_QUOTA`] bytes
//! together, as much as on ext4; a call that would exceed the limit is refused. Existing attributes stay, and may
//! shrink. So a quota of objects also bounds attributes. Access control lists have a bound of their own and are not
//! counted.

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
    acl::is_acl,
    change::{Change, load_inode},
    failure::{self, Failure, damaged},
    file_system::{FileSystem, METADATA},
    inode::flag,
    key::{self, Ino, Window, XATTR},
};

/// The longest name, in bytes.
pub const XATTR_NAME_MAX: usize = 255;
/// The longest value, in bytes.
pub const XATTR_VALUE_MAX: usize = 64 << 10;
/// The limit for all attributes of a file together, in bytes, while an owner has a quota of bytes.
pub const UNDER_QUOTA: usize = 4 << 10;
/// The longest value in the item itself, in bytes; a longer value is a block.
const INLINE_MAX: usize = 2 << 10;

const NAMESPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
pub(super) const CAPABILITY: &[u8] = b"security.capability";
const WINDOW: u64 = 16;

/// Whether an attribute may, must or must not exist before it is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetXattr {
    /// The attribute may exist or not.
    #[default]
    Any,
    /// The attribute must not exist: `XATTR_CREATE`.
    Create,
    /// The attribute must exist: `XATTR_REPLACE`.
    Replace,
}

/// A decoded item of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xattr<'a> {
    /// The name with its namespace, such as `user.x`.
    pub name: &'a [u8],
    /// Inline, or in the item's block.
    pub value: Value<'a>,
}

/// The value of an attribute, or its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// The value, small enough for the tree.
    Inline(&'a [u8]),
    /// The value is in the item's block and has the given length in bytes.
    Block(u32),
}

impl<'a> Xattr<'a> {
    /// Encodes the body of an item.
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

    /// Decodes the body of an item.
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

/// The offsets where the attribute called `name` may be.
pub fn window(ino: Ino, name: &[u8]) -> Window {
    // The last window is unused, so that the end of every window fits into 64 bits.
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

/// The item of the attribute called `name`, or else the key for a new item, if any is free.
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

/// The key for an attribute's new item; an existing item is deleted. ENOSPC if all keys of the hash are taken.
pub(super) fn replace(change: &mut Change<'_>, ino: Ino, name: &[u8]) -> Result<Key, Failure> {
    match find(&change.view, ino, name)? {
        Ok(old) => {
            delete(change, &old);
            Ok(old.key())
        }
        Err(free) => Ok(free.ok_or(Errno::NOSPC)?),
    }
}

/// Deletes an attribute; false if missing.
pub(super) fn delete_named(change: &mut Change<'_>, ino: Ino, name: &[u8]) -> Result<bool, Failure> {
    let found = find(&change.view, ino, name)?;
    if let Ok(entry) = &found {
        delete(change, entry);
    }
    Ok(found.is_ok())
}

/// Deletes a file's capabilities, because its content or owner changes.
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

/// EDQUOT if an owner of the file has a quota of bytes, and an attribute with the given name and length would exceed
/// [`UNDER_QUOTA`].
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
        // Further attributes do not change the answer, except the one being replaced, whose key is known.
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
    /// The value of an attribute; ENODATA if missing.
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
                // The block was freed meanwhile: look the attribute up again.
                Err(PoolError::Stale) => {}
                Err(error) => return Err(failure::errno(&error)),
                Ok(bytes) => return bytes.get(..len).map(<[u8]>::to_vec).ok_or(Errno::IO),
            }
        }
    }

    /// Sets an attribute. EDQUOT if an owner has a quota of bytes and the attributes would exceed [`UNDER_QUOTA`].
    /// Setting an access control list keeps the set-group bit.
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
            self.put_value(change, key, name, value);
            Ok(())
        })
    }

    /// Puts the item of an attribute: the value in the item if small, else as a block.
    pub(super) fn put_value(&self, change: &mut Change<'_>, key: Key, name: &[u8], value: &[u8]) {
        if value.len() <= INLINE_MAX {
            change.put(key, Xattr { name, value: Value::Inline(value) }.encode(), None);
        } else {
            let block = Block::Pending(self.head.record(change.txg(), self.options().policy, value.to_vec()));
            let body = Xattr { name, value: Value::Block(value.len() as u32) }.encode();
            change.put(key, body, Some(&block));
        }
    }

    /// The names of all attributes. The caller removes the names that the requesting process may not see.
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

    /// Removes an attribute; ENODATA if missing. Removing a missing access control list succeeds.
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
