//! Applies the records of one stream: descriptions and pages of objects, and the content of files.
//!
//! Which object is which file is derived after the last record, in [`super::build`]. What happens meanwhile keeps the
//! receiving file system consistent: an object that goes, or whose number now belongs to another file, takes its file
//! and all of its names along, and the directories that had the names are looked through at the end.

use std::sync::Arc;

use roaring::RoaringTreemap;
use rustix::io::Errno;

use super::{
    attributes::{Attributes, flag},
    compression::decompress,
    fields::Order,
    objects::{Description, Failure, Master, Objects, bad, ino, kind},
    record::{MAX_OBJECT, Object, Record},
};
use crate::fs::{FallocateFlags, FileSystem, FileType, key::Ino};

/// Blocks are sent in parts of at most this size, in bytes, unless the stream has large blocks.
const SMALL_BLOCK: u32 = 128 << 10;
/// The sender states for each object whether it has a spill block.
const TELLS_OF_SPILLS: u32 = 8;

/// A stream being applied.
pub(super) struct Applier {
    pub(super) objects: Objects,
    /// The byte order of the stream.
    order: Order,
    tells_of_spills: bool,
    /// The objects that records mention.
    pub(super) touched: RoaringTreemap,
    /// The directories, by inode, that have lost an entry.
    pub(super) bereft: RoaringTreemap,
    /// What the master object said when last read.
    master: Option<Master>,
    /// Whether the master object or a table has changed since.
    is_stale: bool,
    /// The object that the last records belong to.
    current: Option<(u64, Description)>,
}

impl Applier {
    pub(super) fn new(fs: Arc<FileSystem>, order: Order, flags: u32) -> Applier {
        Applier {
            objects: Objects { fs },
            order,
            tells_of_spills: flags & TELLS_OF_SPILLS != 0,
            touched: RoaringTreemap::new(),
            bereft: RoaringTreemap::new(),
            master: None,
            is_stale: true,
            current: None,
        }
    }

    /// Applies a record that belongs to an object.
    pub(super) fn apply(&mut self, record: &Record, payload: &[u8]) -> Result<(), Failure> {
        match *record {
            Record::Object(object) => self.object(object, payload),
            Record::FreeObjects { first, count } => self.free_objects(first, first.saturating_add(count)),
            Record::Write { object, offset, len, compression } => {
                let content = match compression {
                    0 => payload.to_vec(),
                    _ => decompress(compression, payload, len)?,
                };
                self.write(object, offset, content)
            }
            Record::Embedded { object, offset, len, compression, content, stored } => {
                let mut bytes = decompress(compression, &payload[..stored], content)?;
                bytes.resize(len, 0);
                match i64::try_from(offset) {
                    Ok(_) => self.write(object, offset, bytes),
                    Err(_) => self.spill(object, bytes),
                }
            }
            Record::Spill { object, len, compression } => {
                let bytes = decompress(compression, payload, len)?;
                self.spill(object, bytes)
            }
            Record::Free { object, offset, len } => self.free(object, offset, offset.saturating_add(len)),
            Record::Copy => bad("the stream is deduplicated (zfs send -D)"),
            _ => bad("a record of an encrypted or redacted stream"),
        }
    }

    /// The master object as of now; `None` if it or a table has not come yet.
    fn known_master(&mut self) -> Option<&Master> {
        if self.is_stale {
            self.is_stale = false;
            self.master = self.objects.master().ok();
        }
        self.master.as_ref()
    }

    /// The generation and the flags in a description, if they are known already.
    fn identity(&mut self, description: &Description) -> Option<(u64, u64)> {
        // The spill block never has either.
        let (bonus, order) = (&description.bonus[..], description.order);
        let attributes = match description.bonus_type {
            kind::ZNODE => Attributes::of_znode(bonus, order).ok()?,
            kind::SA => self.known_master()?.tables.decode(&[(bonus, order)]).ok()?,
            _ => return None,
        };
        Some((attributes.generation, attributes.flags))
    }

    fn object(&mut self, object: Object, payload: &[u8]) -> Result<(), Failure> {
        let number = object.number;
        let bonus = payload.get(..object.bonus).unwrap_or_default().to_vec();
        let mut new = Description {
            type_: object.type_,
            bonus_type: object.bonus_type,
            block: object.block,
            slots: object.slots,
            order: self.order,
            is_hidden: false,
            bonus,
        };
        let old = self.objects.description(number)?;
        let identity = self.identity(&new);
        new.is_hidden = match identity {
            _ if new.type_ != kind::FILE => false,
            Some((_, flags)) if flags & flag::XATTR != 0 => true,
            _ => false,
        };
        if let Some(old) = &old {
            let before = self.identity(old);
            let is_same = before.zip(identity).map(|(old, new)| old.0 == new.0);
            if old.type_ != new.type_ || old.slots != new.slots || is_same == Some(false) {
                self.free_object(number)?;
            } else {
                new.is_hidden |= old.is_hidden && new.type_ == kind::FILE;
                if loses_content(old, &new, is_same) {
                    self.drop_content(number, old)?;
                }
            }
        }
        let keeps_spill = if self.tells_of_spills { object.spills } else { new.bonus_type == kind::SA };
        if !keeps_spill {
            self.objects.drop_spill(number)?;
        }
        if new.slots > 1 {
            self.free_objects(number + 1, number + u64::from(new.slots))?;
        }
        self.mention(number, new.type_);
        if old.as_ref() != Some(&new) || self.objects.description(number)?.is_none() {
            self.objects.describe(number, &new)?;
        }
        self.current = Some((number, new));
        Ok(())
    }

    fn mention(&mut self, object: u64, type_: u32) {
        self.touched.insert(object);
        let leads = [kind::MASTER, kind::SA_MASTER, kind::SA_REGISTRY, kind::SA_LAYOUTS];
        self.is_stale |= leads.contains(&type_);
    }

    /// The description of an object that a record changes.
    fn described(&mut self, object: u64) -> Result<Description, Failure> {
        if let Some((_, description)) = self.current.as_ref().filter(|(number, _)| *number == object) {
            return Ok(description.clone());
        }
        match self.objects.description(object)? {
            Some(description) => {
                self.current = Some((object, description.clone()));
                self.mention(object, description.type_);
                Ok(description)
            }
            None => bad(format!("object {object} has content but no description")),
        }
    }

    fn write(&mut self, object: u64, offset: u64, content: Vec<u8>) -> Result<(), Failure> {
        let description = self.described(object)?;
        self.mention(object, description.type_);
        if !description.is_paged() {
            self.host(object, description.block)?;
            return Ok(self.objects.fs.write_back(ino(object), offset, &content, false)?);
        }
        let block = u64::from(description.block);
        if !offset.is_multiple_of(block.min(SMALL_BLOCK.into())) || content.len() as u64 > block {
            return bad(format!("object {object} has a block at byte {offset}, between two of its blocks"));
        }
        self.objects.free_pages(object, offset, offset + content.len() as u64)?;
        self.objects.put_page(object, offset, content, self.order)
    }

    /// Makes sure that the content of a file can be written.
    fn host(&mut self, object: u64, block: u32) -> Result<(), Failure> {
        match self.objects.fs.host_content(ino(object), block) {
            // The number belonged to a file of another type, and its tables have not come yet.
            Err(Errno::EXIST) => {
                self.remove_file(object)?;
                Ok(self.objects.fs.host_content(ino(object), block)?)
            }
            done => Ok(done?),
        }
    }

    fn spill(&mut self, object: u64, bytes: Vec<u8>) -> Result<(), Failure> {
        self.described(object)?;
        self.objects.put_spill(object, bytes, self.order)
    }

    fn free(&mut self, object: u64, offset: u64, end: u64) -> Result<(), Failure> {
        let Ok(description) = self.described(object) else { return Ok(()) };
        if description.is_paged() {
            return self.objects.free_pages(object, offset, end);
        }
        let fs = &self.objects.fs;
        let Some(inode) = fs.inode(ino(object))?.filter(|inode| inode.file_type == FileType::Regular) else {
            return Ok(());
        };
        if offset >= inode.size {
            return Ok(());
        }
        self.host(object, description.block)?;
        let fs = &self.objects.fs;
        if end >= inode.size {
            return Ok(fs.cut_content(ino(object), offset)?);
        }
        let punch = FallocateFlags { keep_size: true, punch_hole: true, zero_range: false };
        Ok(fs.fallocate(ino(object), punch, offset, end - offset)?)
    }

    fn free_objects(&mut self, first: u64, end: u64) -> Result<(), Failure> {
        let mut at = first;
        while at < end.min(MAX_OBJECT) {
            match self.objects.next(at)? {
                Some(object) if object < end => {
                    self.free_object(object)?;
                    self.touched.insert(object);
                    at = object + 1;
                }
                _ => break,
            }
        }
        Ok(())
    }

    /// Drops an object with its file, and with the names of the file.
    fn free_object(&mut self, object: u64) -> Result<(), Failure> {
        self.current = None;
        self.remove_file(object)?;
        self.objects.forget(object)
    }

    /// Drops the file of an object, with its names and its entries.
    pub(super) fn remove_file(&mut self, object: u64) -> Result<(), Failure> {
        let ino = ino(object);
        self.strip_names(ino)?;
        self.remove_entries(ino)?;
        Ok(self.objects.fs.remove_inode(ino)?)
    }

    /// Removes all names of a file.
    pub(super) fn strip_names(&mut self, ino: Ino) -> Result<(), Failure> {
        while let Some(dir) = self.objects.fs.strip_name(ino)? {
            self.bereft.insert(dir);
        }
        Ok(())
    }

    /// Removes all entries of a directory.
    fn remove_entries(&mut self, dir: Ino) -> Result<(), Failure> {
        loop {
            let entries = self.objects.fs.entries(dir, 0)?;
            if entries.is_empty() {
                return Ok(());
            }
            for named in entries {
                self.remove_entry(dir, named)?;
            }
        }
    }

    pub(super) fn remove_entry(&mut self, dir: Ino, named: crate::fs::Named) -> Result<(), Failure> {
        if self.objects.fs.remove_entry(dir, named)? {
            self.touched.insert(named.ino - 1);
        }
        Ok(())
    }

    fn drop_content(&mut self, object: u64, old: &Description) -> Result<(), Failure> {
        self.objects.free_pages(object, 0, u64::MAX)?;
        if !old.is_paged() {
            self.objects.fs.clear_content(ino(object))?;
        }
        Ok(())
    }
}

/// Whether an object's content goes because of a new description with the same type. The sender sends a map, or a file
/// with one block, anew when its block grows. Only the size of the parts in which blocks come may change beside that.
fn loses_content(old: &Description, new: &Description, is_same: Option<bool>) -> bool {
    if old.block == new.block {
        return false;
    }
    if new.type_ != kind::FILE || old.is_hidden != new.is_hidden {
        return true;
    }
    let is_large = |block: u32| block >= SMALL_BLOCK;
    let parts_changed = is_large(old.block) && is_large(new.block);
    !(parts_changed && (is_same == Some(true) || new.block > old.block))
}
