//! The records of one object: its description, and the blocks that changed.

use std::ops::Range;

use crate::{
    error::Result,
    fs::{FileType, Ino, inode::Inode},
};

use super::{
    Receiver,
    frame::{Frames, Object},
    numbers::{self, kind},
    tree::Tree,
    znode::{self, Znode},
};

/// The largest block, which every ZFS reads, in bytes.
const RECORD: u64 = 128 << 10;
const SECTOR: u64 = 512;

/// The size of a file's blocks: one block as long as the content, or several of the largest size.
pub(super) fn block_of(size: u64) -> u64 {
    size.clamp(1, RECORD).next_multiple_of(SECTOR)
}

/// A file or directory being sent, and its state in the base.
pub(super) struct Subject {
    pub(super) ino: Ino,
    pub(super) inode: Inode,
    /// The inode in the base.
    pub(super) old: Option<Inode>,
}

impl Subject {
    pub(super) fn object(&self) -> u64 {
        numbers::object(self.ino)
    }

    /// Describes the object.
    pub(super) fn describe(
        &self,
        tree: &Tree,
        receiver: Receiver,
        block: u64,
        target: Option<&[u8]>,
        frames: &mut Frames<'_>,
    ) -> Result<()> {
        let znode = Znode::of(self.ino, &self.inode, tree.has_xattrs(self.ino)?, receiver);
        let type_ = if self.inode.is_dir() { kind::DIRECTORY } else { kind::CONTENT };
        describe(self.object(), type_, block, &znode.encode(target), frames)
    }
}

/// Describes an object with a znode.
pub(super) fn describe(object: u64, type_: u32, block: u64, bonus: &[u8], frames: &mut Frames<'_>) -> Result<()> {
    frames.object(&Object { number: object, type_, bonus_type: kind::ZNODE, block: block as u32, bonus })
}

/// A file's content, while its changes are found.
pub(super) struct Content {
    /// The size of the file's blocks.
    block: u64,
    /// The changed blocks not sent yet.
    changed: Range<u64>,
    /// Whether the receiver may have content under the changed blocks.
    is_update: bool,
}

impl Content {
    /// Describes a file that is no directory, and begins its content.
    pub(super) fn begin(
        subject: &Subject,
        tree: &Tree,
        receiver: Receiver,
        frames: &mut Frames<'_>,
    ) -> Result<Content> {
        let Subject { ino, inode, old } = subject;
        if inode.file_type == FileType::Symlink {
            let target = tree.target(*ino)?;
            let block = block_of(target.len() as u64);
            subject.describe(tree, receiver, block, Some(&target), frames)?;
            if !znode::fits(&target) {
                frames.write(subject.object(), kind::CONTENT, 0, &padded(&target, block))?;
            }
            return Ok(Content { block, changed: 0..0, is_update: false });
        }
        let content = |inode: &Inode| if inode.file_type == FileType::Regular { inode.size } else { 0 };
        let (size, old) = (content(inode), old.as_ref().map(content));
        let block = block_of(size);
        subject.describe(tree, receiver, block, None, frames)?;
        let is_same = old.is_some_and(|old| block_of(old) == block);
        let count = size.div_ceil(block);
        match old {
            Some(_) if is_same => frames.cut(subject.object(), count * block)?,
            // Blocks of another size are sent again, all of them.
            Some(_) => frames.cut(subject.object(), 0)?,
            None => {}
        }
        let changed = if old.is_some() && !is_same { 0..count } else { 0..0 };
        Ok(Content { block, changed, is_update: is_same })
    }

    /// Notes that bytes of the file changed. Ranges ascend by their start.
    pub(super) fn change(
        &mut self,
        subject: &Subject,
        bytes: Range<u64>,
        tree: &mut Tree,
        frames: &mut Frames<'_>,
    ) -> Result<()> {
        let count = subject.inode.size.div_ceil(self.block);
        let blocks = bytes.start / self.block..bytes.end.div_ceil(self.block).min(count);
        if subject.inode.file_type != FileType::Regular || blocks.is_empty() {
            return Ok(());
        }
        if blocks.start > self.changed.end {
            self.finish(subject, tree, frames)?;
            self.changed = blocks;
        } else if self.changed.is_empty() {
            self.changed = blocks;
        } else {
            self.changed.end = self.changed.end.max(blocks.end);
        }
        Ok(())
    }

    /// Sends the changed blocks found so far.
    pub(super) fn finish(&mut self, subject: &Subject, tree: &mut Tree, frames: &mut Frames<'_>) -> Result<()> {
        let Range { start, end } = std::mem::take(&mut self.changed);
        if start == end {
            return Ok(());
        }
        let (object, size) = (subject.object(), self.block);
        let mut blocks = Blocks { object, size, next: start, buffer: Vec::new(), is_update: self.is_update, frames };
        let bytes = start * size..(end * size).min(subject.inode.size);
        tree.content(subject.ino, &subject.inode, bytes, &mut |at, piece| blocks.add(at, piece))?;
        blocks.finish(end)
    }
}

/// Gathers pieces of content into blocks, and sends these.
struct Blocks<'a, 'f> {
    object: u64,
    /// The size of a block.
    size: u64,
    /// The block under way, or the next one.
    next: u64,
    /// The block under way; empty for none.
    buffer: Vec<u8>,
    is_update: bool,
    frames: &'a mut Frames<'f>,
}

impl Blocks<'_, '_> {
    fn add(&mut self, at: u64, piece: &[u8]) -> Result<()> {
        let (mut at, mut piece) = (at, piece);
        while !piece.is_empty() {
            self.go_to(at / self.size)?;
            let within = (at % self.size) as usize;
            let len = piece.len().min(self.size as usize - within);
            self.buffer.resize(self.size as usize, 0);
            self.buffer[within..within + len].copy_from_slice(&piece[..len]);
            (at, piece) = (at + len as u64, &piece[len..]);
        }
        Ok(())
    }

    /// Sends the block under way and the hole behind it, unless the block is `block`.
    fn go_to(&mut self, block: u64) -> Result<()> {
        if !self.buffer.is_empty() && self.next < block {
            self.frames.write(self.object, kind::CONTENT, self.next * self.size, &self.buffer)?;
            self.buffer.clear();
            self.next += 1;
        }
        if self.next < block {
            if self.is_update {
                self.frames.free(self.object, self.next * self.size, (block - self.next) * self.size)?;
            }
            self.next = block;
        }
        Ok(())
    }

    fn finish(mut self, end: u64) -> Result<()> {
        self.go_to(end)
    }
}

/// Content with zeros up to the end of its block.
pub(super) fn padded(content: &[u8], block: u64) -> Vec<u8> {
    let mut bytes = content.to_vec();
    bytes.resize(block as usize, 0);
    bytes
}
