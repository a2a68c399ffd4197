//! The objects of a received file system, kept as items beside its files.
//!
//! The description of every object is kept. Content is kept as *pages*, one a block, of objects that are no files, and
//! of files without a name: values of extended attributes, and files that were deleted while in use. The content of a
//! file with a name is the content of the inode `object + 1`, or of inode 1 for the root directory.

use std::sync::Arc;

use pool::format::codec::{Malformed, Reader, Writer, malformed};
use rustix::io::Errno;

use super::{
    attributes::{Attributes, Tables},
    compression::MAX_BLOCK,
    fields::Order,
    zap::{self, Entry, Page},
};
use crate::fs::{
    FileSystem, Item,
    key::{Ino, OBJECT, PAGE, SPILL},
};

/// The object that leads to all others.
const MASTER: u64 = 1;
/// The most entries of the master object and of the tables of attributes.
const TABLE_MAX: usize = 4096;
/// OpenZFS's types of objects.
pub(super) mod kind {
    pub(in crate::zfs) const FILE: u32 = 19;
    pub(in crate::zfs) const DIRECTORY: u32 = 20;
    pub(in crate::zfs) const MASTER: u32 = 21;
    pub(in crate::zfs) const SA_MASTER: u32 = 45;
    pub(in crate::zfs) const SA_REGISTRY: u32 = 46;
    pub(in crate::zfs) const SA_LAYOUTS: u32 = 47;
    /// Of a bonus buffer.
    pub(in crate::zfs) const ZNODE: u32 = 17;
    /// Of a bonus buffer.
    pub(in crate::zfs) const SA: u32 = 44;
}

/// Why a stream cannot be applied.
#[derive(Debug)]
pub(super) enum Failure {
    /// The stream contradicts itself.
    Bad(String),
    /// The receiving file system refuses the change.
    Refused(Errno),
}

impl From<Malformed> for Failure {
    fn from(malformed: Malformed) -> Failure {
        Failure::Bad(malformed.to_string())
    }
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Failure {
        Failure::Refused(errno)
    }
}

/// The failure of a stream that contradicts itself.
pub(super) fn bad<T>(problem: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Bad(problem.into()))
}

/// The description of an object, as kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Description {
    pub(super) type_: u32,
    pub(super) bonus_type: u32,
    /// The size of its blocks, in bytes.
    pub(super) block: u32,
    pub(super) slots: u8,
    pub(super) order: Order,
    /// Whether the content of a file is kept as pages.
    pub(super) is_hidden: bool,
    pub(super) bonus: Vec<u8>,
}

impl Description {
    /// Whether the content is kept as pages.
    pub(super) fn is_paged(&self) -> bool {
        self.type_ != kind::FILE || self.is_hidden
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bonus.len() + 16);
        for number in [self.type_, self.bonus_type, self.block] {
            out.put_varint(number.into());
        }
        out.put_bytes(&[self.slots, tag(self.order), u8::from(self.is_hidden)]);
        out.put_bytes(&self.bonus);
        out
    }

    fn decode(bytes: &[u8]) -> Result<Description, Malformed> {
        const WHAT: &str = "description of a foreign object";
        let mut reader = Reader::new(bytes);
        let [type_, bonus_type, block] = [reader.varint32(WHAT)?, reader.varint32(WHAT)?, reader.varint32(WHAT)?];
        if !(1..=MAX_BLOCK).contains(&(block as usize)) {
            return malformed(WHAT);
        }
        let (slots, order, is_hidden) = (reader.u8(WHAT)?, order(reader.u8(WHAT)?), reader.u8(WHAT)? != 0);
        Ok(Description { type_, bonus_type, block, slots, order, is_hidden, bonus: reader.rest().to_vec() })
    }
}

fn tag(order: Order) -> u8 {
    u8::from(order == Order::Big)
}

fn order(tag: u8) -> Order {
    if tag == 0 { Order::Little } else { Order::Big }
}

/// What the master object says.
#[derive(Clone, Debug, Default)]
pub(super) struct Master {
    /// The root directory.
    pub(super) root: u64,
    /// A directory without a name for shares, which stays empty; 0 for none.
    pub(super) shares: u64,
    pub(super) tables: Tables,
}

/// The objects in a tree.
pub(super) struct Objects {
    pub(super) fs: Arc<FileSystem>,
}

/// The number under which an object's items are kept, and its file unless it is the root directory.
pub(super) fn ino(object: u64) -> Ino {
    // A forged number may be any; no object has the greatest.
    object.saturating_add(1)
}

impl Objects {
    pub(super) fn description(&self, object: u64) -> Result<Option<Description>, Failure> {
        let item = self.fs.foreign(ino(object), OBJECT, 0)?;
        Ok(item.map(|item| Description::decode(&item.bytes)).transpose()?)
    }

    pub(super) fn describe(&self, object: u64, description: &Description) -> Result<(), Failure> {
        Ok(self.fs.put_foreign(ino(object), OBJECT, 0, Item { tag: 0, bytes: description.encode() })?)
    }

    /// Drops an object's description, spill block and pages.
    pub(super) fn forget(&self, object: u64) -> Result<(), Failure> {
        for kind in [OBJECT, SPILL] {
            self.fs.drop_foreign(ino(object), kind, 0, 1)?;
        }
        self.free_pages(object, 0, u64::MAX)
    }

    /// The first object from the given number on.
    pub(super) fn next(&self, from: u64) -> Result<Option<u64>, Failure> {
        Ok(self.fs.next_object(ino(from))?.map(|ino| ino - 1))
    }

    pub(super) fn put_spill(&self, object: u64, bytes: Vec<u8>, order: Order) -> Result<(), Failure> {
        Ok(self.fs.put_foreign(ino(object), SPILL, 0, Item { tag: tag(order), bytes })?)
    }

    pub(super) fn drop_spill(&self, object: u64) -> Result<(), Failure> {
        Ok(self.fs.drop_foreign(ino(object), SPILL, 0, 1)?)
    }

    pub(super) fn put_page(&self, object: u64, offset: u64, bytes: Vec<u8>, order: Order) -> Result<(), Failure> {
        Ok(self.fs.put_foreign(ino(object), PAGE, offset, Item { tag: tag(order), bytes })?)
    }

    pub(super) fn page(&self, object: u64, offset: u64) -> Result<Option<Page>, Failure> {
        let item = self.fs.foreign(ino(object), PAGE, offset)?;
        Ok(item.map(|Item { tag, bytes }| Page { bytes, order: order(tag) }))
    }

    /// The offset of the first page from `offset` on.
    pub(super) fn next_page(&self, object: u64, offset: u64) -> Result<Option<u64>, Failure> {
        Ok(self.fs.next_foreign(ino(object), PAGE, offset)?)
    }

    /// Drops the pages that begin at `from` or behind, and before `end`.
    pub(super) fn free_pages(&self, object: u64, from: u64, end: u64) -> Result<(), Failure> {
        Ok(self.fs.drop_foreign(ino(object), PAGE, from, end)?)
    }

    /// The first `len` bytes of an object's pages.
    pub(super) fn content(&self, object: u64, len: usize) -> Result<Vec<u8>, Failure> {
        let mut content = vec![0; len];
        let mut at = 0;
        while let Some(offset) = self.next_page(object, at)?.filter(|offset| *offset < len as u64) {
            let page = self.page(object, offset)?.map_or(Vec::new(), |page| page.bytes);
            let rest = &mut content[offset as usize..];
            let count = page.len().min(rest.len());
            rest[..count].copy_from_slice(&page[..count]);
            at = offset + 1;
        }
        Ok(content)
    }

    /// Calls `each` with the entries of a map.
    pub(super) fn entries(
        &self,
        object: u64,
        each: &mut dyn FnMut(Entry) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Some(description) = self.description(object)? else {
            return bad(format!("object {object} is missing"));
        };
        let named = |failure| match failure {
            Failure::Bad(problem) => Failure::Bad(format!("object {object}: {problem}")),
            refused => refused,
        };
        zap::entries(u64::from(description.block), &mut |at| self.page(object, at), each).map_err(named)
    }

    /// The attributes of an object; `None` if it is no file.
    pub(super) fn attributes(
        &self,
        object: u64,
        description: &Description,
        tables: &Tables,
    ) -> Result<Option<Attributes>, Failure> {
        let bonus = (&description.bonus[..], description.order);
        match description.bonus_type {
            kind::ZNODE => Ok(Some(Attributes::of_znode(bonus.0, bonus.1)?)),
            kind::SA => {
                let spill = self.fs.foreign(ino(object), SPILL, 0)?;
                let spill = spill.as_ref().map(|item| (&item.bytes[..], order(item.tag)));
                // An old sender does not report that a spill block is gone, so the bonus counts more.
                let parts: Vec<_> = spill.into_iter().chain([bonus]).collect();
                let decoded = tables.decode(&parts);
                let named = |malformed| Failure::Bad(format!("object {object}: {malformed}"));
                decoded.map(Some).map_err(named)
            }
            _ => Ok(None),
        }
    }

    /// Calls `each` with the entries of a table of the file system, which is read again whenever it may have changed.
    fn table(&self, object: u64, each: &mut dyn FnMut(&Entry) -> Result<(), Malformed>) -> Result<(), Failure> {
        let mut count = 0;
        self.entries(object, &mut |entry| {
            count += 1;
            if count > TABLE_MAX {
                return bad(format!("object {object} is a table with too many entries"));
            }
            Ok(each(&entry)?)
        })
    }

    /// What the master object says now.
    pub(super) fn master(&self) -> Result<Master, Failure> {
        let mut master = Master::default();
        let (mut tables, mut registry, mut layouts) = (0, 0, 0);
        self.table(MASTER, &mut |entry| {
            match &entry.name[..] {
                b"ROOT" => master.root = entry.value()?,
                b"SHARES" => master.shares = entry.value()?,
                b"SA_ATTRS" => tables = entry.value()?,
                _ => {}
            }
            Ok(())
        })?;
        if tables != 0 {
            self.table(tables, &mut |entry| {
                match &entry.name[..] {
                    b"REGISTRY" => registry = entry.value()?,
                    b"LAYOUTS" => layouts = entry.value()?,
                    _ => {}
                }
                Ok(())
            })?;
            // Neither exists before the first file with system attributes.
            if registry != 0 {
                self.table(registry, &mut |entry| master.tables.register(entry))?;
            }
            if layouts != 0 {
                self.table(layouts, &mut |entry| master.tables.lay_out(entry))?;
            }
        }
        if master.root == 0 { bad("the file system has no root directory") } else { Ok(master) }
    }
}
