//! The stream of one snapshot: the objects that differ from the base, or all objects.
//!
//! The difference of the trees arrives in the order of keys, so all items of an inode come together, and objects
//! ascend. Extended attributes have numbers above all files, and follow in a second pass over the inodes concerned.

use std::ops::Range;

use pool::format::{codec::Malformed, key::Key};

use crate::{
    error::{Error, Result},
    fs::{
        Ino, ROOT,
        file::extent::Extent,
        key::{DATASET, DIRENT, EXTENT, INODE, XATTR},
    },
    lineage::difference::{self, Change, Found},
};

use super::{
    Receiver, Source, directory,
    file::{Content, Subject},
    frame::{Frames, Head, Object},
    numbers::{self, kind},
    tree::{Tree, decoded},
    zap::Map,
};

/// The version of the file system's format: the last one without tables of attributes.
const ZPL_VERSION: u64 = 4;

/// Writes the stream of a snapshot.
pub(super) fn send(source: &Source, receiver: Receiver, frames: &mut Frames<'_>) -> Result<()> {
    let begin = &source.begin;
    frames.begin(&Head {
        name: format!("{}@{}", begin.dataset, begin.snapshot),
        guid: begin.guid.0,
        from: begin.base.as_ref().map_or(0, |base| base.guid.0),
        creation: begin.creation.div_euclid(1_000_000_000).max(0) as u64,
        clone: begin.clone,
    })?;
    let mut sender = Sender {
        base: Tree::new(source.base.clone()),
        tree: Tree::new(Some(source.tree.clone())),
        receiver,
        frames,
        current: None,
        rows: Vec::new(),
    };
    if source.base.is_none() {
        sender.file_system()?;
    }
    let (base, tree) = (source.base.as_deref(), Some(&*source.tree));
    difference::compare(base, tree, |change| sender.change(&change))?;
    sender.finish()
}

/// The inode whose items arrive.
struct Current {
    ino: Ino,
    /// The file; `None` if gone or without a name.
    subject: Option<Subject>,
    /// The content of a file that is no directory.
    content: Option<Content>,
}

struct Sender<'a, 'f> {
    base: Tree,
    tree: Tree,
    receiver: Receiver,
    frames: &'a mut Frames<'f>,
    current: Option<Current>,
    /// The inodes whose extended attributes differ.
    rows: Vec<Ino>,
}

impl Sender<'_, '_> {
    /// Sends the objects that every file system has.
    fn file_system(&mut self) -> Result<()> {
        let master = [
            ("VERSION", ZPL_VERSION),
            ("ROOT", numbers::object(ROOT)),
            ("DELETE_QUEUE", numbers::DELETED),
            ("normalization", 0),
            ("utf8only", 0),
            ("casesensitivity", 0),
        ];
        let master = master.map(|(name, value)| (name.as_bytes().to_vec(), value));
        for (number, type_, entries) in
            [(numbers::MASTER, kind::MASTER, &master[..]), (numbers::DELETED, kind::DELETED, &[])]
        {
            let map = Map::build(entries, directory::salt(number)).expect("few names fit");
            let object = Object { number, type_, bonus_type: kind::NONE, block: map.block as u32, bonus: &[] };
            self.frames.object(&object)?;
            directory::put(number, type_, &map, None, self.frames)?;
        }
        Ok(())
    }

    fn change(&mut self, change: &Change) -> Result<()> {
        let key = change.key;
        if key.object == DATASET || ![INODE, XATTR, DIRENT, EXTENT].contains(&key.kind) {
            return Ok(());
        }
        if self.current.as_ref().is_none_or(|current| current.ino != key.object) {
            self.end_object()?;
            self.begin_object(key.object)?;
        }
        match key.kind {
            XATTR => self.add_row(key.object),
            EXTENT => self.change_content(change)?,
            _ => {}
        }
        Ok(())
    }

    fn begin_object(&mut self, ino: Ino) -> Result<()> {
        if !numbers::is_known(ino) {
            return Err(Error::NotSent {
                problem: format!("inode {ino} is too large a number for ZFS"),
                remedy: "copy the files to a new dataset, and send a snapshot of that dataset",
            });
        }
        let (old, new) = (self.base.inode(ino)?, self.tree.inode(ino)?);
        let owners = |inode: &crate::fs::inode::Inode| (inode.uid, inode.gid);
        let differs = old.as_ref().map(owners) != new.as_ref().map(owners);
        let (mut subject, mut content) = (None, None);
        match new {
            Some(inode) => {
                let of = Subject { ino, inode, old };
                if !of.inode.is_dir() {
                    content = Some(Content::begin(&of, &self.tree, self.receiver, self.frames)?);
                }
                subject = Some(of);
            }
            None if old.is_some() => self.frames.free_objects(numbers::object(ino), 1)?,
            None => {}
        }
        self.current = Some(Current { ino, subject, content });
        if differs && (self.tree.has_xattrs(ino)? || self.base.has_xattrs(ino)?) {
            self.add_row(ino);
        }
        Ok(())
    }

    fn add_row(&mut self, ino: Ino) {
        if self.rows.last() != Some(&ino) {
            self.rows.push(ino);
        }
    }

    fn change_content(&mut self, change: &Change) -> Result<()> {
        let Some(Current { subject: Some(subject), content: Some(content), .. }) = &mut self.current else {
            return Ok(());
        };
        let mut end = change.key.offset;
        for found in [&change.old, &change.new].into_iter().flatten() {
            end = end.max(extent(change.key, found)?.end);
        }
        content.change(subject, change.key.offset..end, &mut self.tree, self.frames)
    }

    fn end_object(&mut self) -> Result<()> {
        let Some(Current { subject: Some(subject), content, .. }) = self.current.take() else { return Ok(()) };
        match content {
            Some(mut content) => content.finish(&subject, &mut self.tree, self.frames),
            None => directory::send(&subject, &self.base, &self.tree, self.receiver, self.frames),
        }
    }

    fn finish(mut self) -> Result<()> {
        self.end_object()?;
        for ino in std::mem::take(&mut self.rows) {
            super::attributes::send(ino, &self.base, &mut self.tree, self.frames)?;
        }
        self.frames.end()
    }
}

/// The bytes of a file that an extent covers.
fn extent(key: Key, found: &Found) -> Result<Range<u64>> {
    let len = match decoded(key, Extent::decode(found.body()))? {
        Extent::Inline(bytes) => bytes.len() as u64,
        Extent::Part { len, .. } => len.into(),
    };
    let end = key.offset.checked_add(len).ok_or(Malformed { what: "extent's range" });
    Ok(key.offset..decoded(key, end)?)
}
