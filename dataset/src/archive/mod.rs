//! The files in a stream file, read without a pool.
//!
//! A stream contains the items of a file system's tree ([`crate::fs`]); [`crate::stream::archive`] finds them in the
//! file. This module reads directories, attributes and content from them. Nothing is kept but what the layer below
//! keeps, so a look into a large file costs little.
//!
//! A stream alone may be an increment. Then only changed parts of the file system are there, and everything else is in
//! the streams below, or not known: [`Error::Archive`] with the missing base.

mod changes;

use std::{collections::VecDeque, ops, sync::Arc};

use pool::format::{codec::Malformed, key::Key};

use crate::{
    fs::{
        Attr, Errno, FileType, Ino, ROOT,
        directory::{self, Dirent},
        file::extent::Extent,
        inode::{Inode, Link, MAX_SIZE},
        key::{self, DIRENT, EXTENT, XATTR},
        master::Master,
        xattr::{Value, Xattr},
    },
    stream::archive::{self, Item, Layers, Stored},
};

pub use changes::{Change, Changed};

/// The most symbolic links in one path, as in the kernel.
const MAX_LINKS: usize = 40;
/// The most components of a path.
const DEPTH_MAX: usize = 1 << 16;
/// The preferred size of reads without a size of the file's own, in bytes.
const BLOCK_SIZE: u32 = 128 << 10;

/// Why a file of a stream cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such file, or the file is of another type.
    #[error("{}", std::io::Error::from(*.0).to_string().split(" (os error").next().unwrap_or_default())]
    File(Errno),
    /// The file is in a damaged or missing part.
    #[error(transparent)]
    Archive(#[from] archive::Error),
}

/// The result of reading files of a stream.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Gets the name and the value of an extended attribute.
pub type EachXattr<'a, E> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<(), E>;

/// Gets a piece of a file: its place in the file, and its bytes or their damage.
pub type EachPiece<'a, E> = &'a mut dyn FnMut(ops::Range<u64>, Result<&[u8]>) -> Result<(), E>;

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name, 1 to 255 bytes.
    pub name: Vec<u8>,
    /// The inode number of the entry's object.
    pub ino: Ino,
    /// The object's type.
    pub file_type: FileType,
    /// The entry's offset in the directory; entries ascend.
    pub offset: u64,
}

/// The file system of a stream.
pub struct Tree<'a> {
    layers: Layers<'a>,
    /// The seed of the hash of names; `None` if the stream does not tell.
    seed: Option<u64>,
}

impl<'a> Tree<'a> {
    /// The file system of the stream on top of the layers.
    ///
    /// # Errors
    /// If the stream is damaged.
    pub fn new(layers: Layers<'a>) -> Result<Tree<'a>> {
        let seed = match layers.get(key::master()) {
            Err(archive::Error::Base { .. }) => None,
            found => {
                let master = found?.ok_or(Error::File(Errno::NOENT))?;
                Some(decoded(&master, Master::decode(&master.body))?.seed)
            }
        };
        Ok(Tree { layers, seed })
    }

    /// The stream on top.
    pub fn stream(&self) -> &'a Stored {
        self.layers.top()
    }

    /// The base that is missing; `None` if all files are here.
    pub fn missing(&self) -> Option<String> {
        self.layers.missing()
    }

    /// The file at a path. A symbolic link at the end is followed with `follow`, or if the path ends with a slash.
    ///
    /// # Errors
    /// If there is no such file, or not here.
    pub fn find(&self, path: &[u8], follow: bool) -> Result<Attr> {
        let wants_directory = path.ends_with(b"/");
        let mut at = self.attr(ROOT)?;
        let (mut rest, mut links) = (parts(path), 0);
        while let Some(part) = rest.pop_front() {
            let next = match &part[..] {
                b"." => continue,
                b".." => self.attr(self.inode(at.ino)?.parent.dir.max(ROOT))?,
                name => self.attr(self.lookup(&at, name)?)?,
            };
            if next.file_type != FileType::Symlink || rest.is_empty() && !follow && !wants_directory {
                at = next;
                continue;
            }
            links += 1;
            if links > MAX_LINKS {
                return Err(Error::File(Errno::LOOP));
            }
            let target = self.link_target(&next)?;
            if target.starts_with(b"/") {
                at = self.attr(ROOT)?;
            }
            parts(&target).into_iter().rev().for_each(|part| rest.push_front(part));
        }
        match wants_directory && at.file_type != FileType::Directory {
            true => Err(Error::File(Errno::NOTDIR)),
            false => Ok(at),
        }
    }

    /// The attributes of a file.
    ///
    /// # Errors
    /// `ENOENT` without an inode, and as [`Tree::find`].
    pub fn attr(&self, ino: Ino) -> Result<Attr> {
        let inode = self.inode(ino)?;
        let block_size = if inode.record_shift == 0 { BLOCK_SIZE } else { 1 << inode.record_shift };
        Ok(Attr::of(ino, &inode, block_size))
    }

    /// The attributes of an entry's file. A directory has one place, which its inode names: so a walk down always ends,
    /// even through a forged stream.
    ///
    /// # Errors
    /// As [`Tree::attr`], and if a directory belongs elsewhere.
    pub fn attr_of(&self, dir: Ino, entry: &Entry) -> Result<Attr> {
        if entry.file_type == FileType::Directory {
            let item = self.layers.get(key::inode(entry.ino))?.ok_or(Error::File(Errno::NOENT))?;
            let Inode { parent, .. } = decoded(&item, Inode::decode(&item.body))?;
            if parent != (Link { dir, offset: entry.offset }) {
                decoded(&item, Err(Malformed { what: "place of a directory" }))?;
            }
        }
        let attr = self.attr(entry.ino)?;
        // What the entry says decides whether a walk goes down.
        if attr.file_type == entry.file_type { Ok(attr) } else { Err(Error::File(Errno::IO)) }
    }

    /// Passes the entries of a directory from `offset` on, in stored order, until `each` returns false.
    ///
    /// # Errors
    /// If the directory is damaged. Entries that only a missing base has are left out.
    pub fn entries(&self, dir: Ino, offset: u64, each: &mut dyn FnMut(Entry) -> bool) -> Result<()> {
        self.scan(key::from(dir, DIRENT, offset), &mut |item| {
            let Dirent { ino, file_type, name } = decoded(&item, Dirent::decode(&item.body))?;
            Ok(each(Entry { name: name.to_vec(), ino, file_type, offset: item.key.offset }))
        })
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// If the target is damaged or not here.
    pub fn link_target(&self, link: &Attr) -> Result<Vec<u8>> {
        let item = self.layers.get(key::extent(link.ino, 0))?.ok_or(Error::File(Errno::IO))?;
        match decoded(&item, Extent::decode(&item.body))? {
            Extent::Inline(target) => Ok(target.to_vec()),
            Extent::Part { .. } => Err(Error::File(Errno::INVAL)),
        }
    }

    /// Passes the extended attributes of a file.
    ///
    /// # Errors
    /// If an attribute is damaged or not here.
    pub fn xattrs<E: From<Error>>(&self, ino: Ino, each: EachXattr<'_, E>) -> Result<(), E> {
        let mut outcome = Ok(());
        self.scan(key::from(ino, XATTR, 0), &mut |item| {
            let Xattr { name, value } = decoded(&item, Xattr::decode(&item.body))?;
            outcome = match value {
                Value::Inline(value) => each(name, value),
                Value::Block(len) => {
                    let content = self.content(&item)?;
                    let value = decoded(&item, part(&content, 0, len))?;
                    each(name, value)
                }
            };
            Ok(outcome.is_ok())
        })?;
        outcome
    }

    /// Passes the content of a regular file: offsets ascend, and what lies between is a hole. Damage of a piece is
    /// passed too, and ends the file unless `each` accepts it.
    ///
    /// # Errors
    /// Those of `each`, and damage of the list of pieces.
    pub fn data<E: From<Error>>(&self, file: &Attr, each: EachPiece<'_, E>) -> Result<(), E> {
        let (mut outcome, mut reached) = (Ok(()), 0);
        self.scan(key::from(file.ino, EXTENT, 0), &mut |item| {
            let at = item.key.offset;
            let extent = decoded(&item, Extent::decode(&item.body))?;
            let len = match extent {
                Extent::Inline(bytes) => bytes.len() as u64,
                Extent::Part { len, .. } => len.into(),
            };
            let end = at.checked_add(len).filter(|end| at >= reached && *end <= MAX_SIZE);
            let end = decoded(&item, end.ok_or(Malformed { what: "extent's range" }))?;
            reached = end;
            // Data beyond the end is being freed.
            let (stop, len) = (end.min(file.size), end.min(file.size).saturating_sub(at));
            if len == 0 {
                return Ok(at < file.size);
            }
            outcome = match extent {
                Extent::Inline(bytes) => each(at..stop, Ok(&bytes[..len as usize])),
                Extent::Part { start, .. } => match self.content(&item) {
                    Ok(content) => match decoded(&item, part(&content, start, len as u32)) {
                        Ok(bytes) => each(at..stop, Ok(bytes)),
                        Err(error) => each(at..stop, Err(error.into())),
                    },
                    Err(error) => each(at..stop, Err(error)),
                },
            };
            Ok(outcome.is_ok())
        })?;
        outcome
    }

    /// A path of the file, with a leading slash. Directories that only a missing base has are shown by inode number.
    ///
    /// # Errors
    /// If the path is damaged; `ENOENT` without a name.
    pub fn path_of(&self, ino: Ino) -> Result<Vec<u8>> {
        let (mut at, mut names) = (ino, Vec::new());
        while at != ROOT {
            let named = self.inode(at).and_then(|inode| {
                let Link { dir, offset } = inode.parent;
                let item = self.layers.get(key::dirent(dir, offset))?.ok_or(Error::File(Errno::NOENT))?;
                Ok((dir, decoded(&item, Dirent::decode(&item.body))?.name.to_vec()))
            });
            match named {
                Ok((dir, name)) => {
                    names.push(name);
                    at = dir;
                }
                Err(Error::Archive(archive::Error::Base { .. })) => {
                    names.push(format!("<inode {at}>").into_bytes());
                    break;
                }
                Err(error) => return Err(error),
            }
            // A longer chain of parents is a loop.
            if names.len() > DEPTH_MAX {
                return Err(Error::File(Errno::LOOP));
            }
        }
        let path: Vec<u8> = names.iter().rev().flat_map(|name| [b"/", &name[..]].concat()).collect();
        Ok(if path.is_empty() { b"/".to_vec() } else { path })
    }

    fn inode(&self, ino: Ino) -> Result<Inode> {
        let item = self.layers.get(key::inode(ino))?.ok_or(Error::File(Errno::NOENT))?;
        Ok(decoded(&item, Inode::decode(&item.body))?)
    }

    fn lookup(&self, dir: &Attr, name: &[u8]) -> Result<Ino> {
        if dir.file_type != FileType::Directory {
            return Err(Error::File(Errno::NOTDIR));
        }
        // Without the seed, all names are compared.
        let keys = self
            .seed
            .map_or_else(|| key::from(dir.ino, DIRENT, 0), |seed| directory::window(seed, dir.ino, name).keys());
        let mut found = None;
        self.scan(keys, &mut |item| {
            let dirent = decoded(&item, Dirent::decode(&item.body))?;
            found = (dirent.name == name).then_some(dirent.ino);
            Ok(found.is_none())
        })?;
        match (found, self.missing()) {
            (Some(ino), _) => Ok(ino),
            (None, Some(base)) => Err(archive::Error::Base { base }.into()),
            (None, None) => Err(Error::File(Errno::NOENT)),
        }
    }

    /// As [`Layers::scan`], with errors of this module.
    fn scan(&self, keys: ops::Range<Key>, each: &mut dyn FnMut(Item) -> Result<bool>) -> Result<()> {
        let mut outcome = Ok(());
        self.layers.scan(keys, &mut |item| {
            Ok(each(item).unwrap_or_else(|error| {
                outcome = Err(error);
                false
            }))
        })?;
        outcome
    }

    fn content(&self, item: &Item) -> Result<Arc<Vec<u8>>> {
        let content = self.layers.content(item)?;
        Ok(decoded(item, content.ok_or(Malformed { what: "item without its block" }))?)
    }
}

/// The decoded body of an item, or the damage.
fn decoded<T>(item: &Item, decoded: Result<T, Malformed>) -> archive::Result<T> {
    decoded.map_err(|malformed| archive::Error::Damaged {
        offset: item.range(),
        problem: format!("{malformed}, in the item under {}", item.key),
    })
}

fn part(content: &[u8], start: u32, len: u32) -> Result<&[u8], Malformed> {
    let end = start.checked_add(len).ok_or(Malformed { what: "part of a block" })?;
    content.get(start as usize..end as usize).ok_or(Malformed { what: "part of a block" })
}

fn parts(path: &[u8]) -> VecDeque<Vec<u8>> {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).map(<[u8]>::to_vec).collect()
}
