//! Items of foreign objects: what the next increment needs, and no program sees.
//!
//! A body begins with one byte for the receiver, and says whether the bytes follow or are the item's block. The items
//! of an object stand behind the items of the file with the same number, and go with the file.

use pool::{
    error::Error as PoolError,
    format::{
        codec::{Malformed, Reader, Writer, malformed},
        key::Key,
    },
    tree::Block,
};
use rustix::io::Errno;

use crate::fs::{
    failure::{self, Failure, damaged},
    file::discard::discard,
    file_system::{FileSystem, METADATA},
    key::{Ino, OBJECT},
    orphan::STEP,
};

/// The most bytes in the item itself; more bytes are a block.
const INLINE_MAX: usize = 2 << 10;
/// The number of items that one search through the tree passes.
const LOOK: usize = 256;
const WHAT: &str = "item of a foreign object";

/// The content of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// A byte that means something to the receiver.
    pub(crate) tag: u8,
    pub(crate) bytes: Vec<u8>,
}

/// The bytes of an item's body: the content, or its length in the block.
fn decode(body: &[u8]) -> Result<(u8, Result<&[u8], usize>), Malformed> {
    let mut reader = Reader::new(body);
    let (tag, form) = (reader.u8(WHAT)?, reader.u8(WHAT)?);
    match form {
        0 => Ok((tag, Ok(reader.rest()))),
        1 => {
            let len = reader.varint32(WHAT)? as usize;
            reader.finish(WHAT)?;
            Ok((tag, Err(len)))
        }
        _ => malformed(WHAT),
    }
}

/// Whether a body is well-formed, with a block of `block` bytes or none.
pub(in crate::fs) fn check(body: &[u8], block: Option<u64>) -> Result<(), Malformed> {
    match (decode(body)?.1, block) {
        (Ok(_), None) => Ok(()),
        (Err(len), Some(block)) if len as u64 <= block => Ok(()),
        _ => malformed(WHAT),
    }
}

impl FileSystem {
    /// Puts an item, replacing any under the same key; numbers of new files begin behind `ino`.
    pub(crate) fn put_foreign(&self, ino: Ino, kind: u8, offset: u64, item: Item) -> Result<(), Errno> {
        let Item { tag, bytes } = item;
        self.admit(METADATA + bytes.len() as u64)?;
        let policy = self.options().policy;
        let key = Key::new(ino, kind, offset);
        self.update_tree(|change| {
            discard(change, key..key.successor(), 0, 1)?;
            change.reserve(ino)?;
            let mut body = vec![tag, u8::from(bytes.len() > INLINE_MAX)];
            if bytes.len() <= INLINE_MAX {
                body.put_bytes(&bytes);
                change.put(key, body, None);
            } else {
                body.put_varint(bytes.len() as u64);
                let block = Block::Pending(self.head.record(change.txg(), policy, bytes.clone()));
                change.put(key, body, Some(&block));
            }
            Ok(())
        })
    }

    /// The item of an object.
    pub(crate) fn foreign(&self, ino: Ino, kind: u8, offset: u64) -> Result<Option<Item>, Errno> {
        let key = Key::new(ino, kind, offset);
        loop {
            let found = self.read_tree(|view| {
                let Some(entry) = view.get(key)? else { return Ok(None) };
                let (tag, content) = decode(entry.body()).map_err(damaged(key))?;
                Ok(Some(match content {
                    Ok(bytes) => (tag, Ok(bytes.to_vec())),
                    Err(len) => {
                        let missing = Malformed { what: "foreign object's item without its block" };
                        let block = entry.block().ok_or(missing).map_err(damaged(key))?;
                        (tag, Err((block, len, view.seen())))
                    }
                }))
            })?;
            let (tag, block, len, seen) = match found {
                None => return Ok(None),
                Some((tag, Ok(bytes))) => return Ok(Some(Item { tag, bytes })),
                Some((tag, Err((block, len, seen)))) => (tag, block, len, seen),
            };
            match self.head.bytes_at(key, &block, seen) {
                Err(PoolError::Stale) => {}
                Err(error) => return Err(failure::errno(&error)),
                Ok(bytes) => {
                    let bytes = bytes.get(..len).ok_or(Errno::IO)?.to_vec();
                    return Ok(Some(Item { tag, bytes }));
                }
            }
        }
    }

    /// The offset of an object's first item of a kind from `offset` on.
    pub(crate) fn next_foreign(&self, ino: Ino, kind: u8, offset: u64) -> Result<Option<u64>, Errno> {
        let range = Key::new(ino, kind, offset)..Key::new(ino, kind + 1, 0);
        self.read_tree(|view| Ok(view.first(range.clone())?.map(|entry| entry.key().offset)))
    }

    /// Deletes an object's items of a kind from `offset` to `end`.
    pub(crate) fn drop_foreign(&self, ino: Ino, kind: u8, offset: u64, end: u64) -> Result<(), Errno> {
        let range = Key::new(ino, kind, offset)..Key::new(ino, kind, end.max(offset));
        while self.read_tree(|view| Ok(view.first(range.clone())?.is_some()))? {
            self.admit(METADATA)?;
            self.update_tree(|change| discard(change, range.clone(), 0, STEP).map(drop))?;
        }
        Ok(())
    }

    /// The first object with a description from the number `from` on.
    pub(crate) fn next_object(&self, from: Ino) -> Result<Option<Ino>, Errno> {
        let mut at = Key::new(from, OBJECT, 0);
        loop {
            let found = self.read_tree(|view| {
                for _ in 0..LOOK {
                    let Some(entry) = view.first(at..Key::MAX)? else { return Ok::<_, Failure>(Some(None)) };
                    let key = entry.key();
                    if key.kind == OBJECT {
                        return Ok(Some(Some(key.object)));
                    }
                    let object = if key.kind > OBJECT { key.object.saturating_add(1) } else { key.object };
                    at = Key::new(object, OBJECT, 0);
                }
                Ok(None)
            })?;
            if let Some(found) = found {
                return Ok(found);
            }
        }
    }
}
