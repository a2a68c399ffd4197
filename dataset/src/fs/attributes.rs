//! Attributes that single files have beside what `stat` shows, which `fs setattr`, `fs getattr` and, in part, `chattr` and
//! `lsattr` are about.
//!
//! They stand in the inode: a flag each, and behind its fields what a flag alone does not say (`dataset/FORMAT.md`,
//! "Inode"). The first one that is set makes the pool's feature `file_attributes` active, before anything is written that
//! older programs could not read.
//!
//! | attribute | acts | inherited from the directory |
//! | --- | --- | --- |
//! | `immutable` | nobody changes the file, its attributes or its names; in a directory nothing is made or removed | no |
//! | `append` | as `immutable`, but its content may grow at the end; in a directory names may be made | no |
//! | `nodump` | backup programs leave it out, if they ask | yes |
//! | `noatime` | reading does not change its access time | yes |
//! | `direct` | its content goes past the caches | files, directories |
//! | `compression`, `recordsize` | in the place of the dataset's properties, for what is written from then on | files, directories |
//!
//! What is immutable is so for everybody, root too, as in other file systems of Linux; who may change the attribute is for
//! the kernel to say (`CAP_LINUX_IMMUTABLE`). A rollback, a received stream and destroying a dataset do not change files
//! but replace them, and go by none of this.

use pool::{
    block::compression::CompressionChoice,
    format::{
        codec::{Malformed, Reader, Writer, malformed},
        label::FILE_ATTRIBUTES,
    },
    tree::View,
};
use rustix::io::Errno;

use super::{
    FileSystem, METADATA, Options,
    change::load_inode,
    failure,
    inode::{FileType, Inode, MAX_RECORD_SHIFT, MIN_RECORD_SHIFT, flag},
    key::{self, Ino},
    project::Project,
};

/// An attribute of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attribute {
    /// Nobody changes it.
    Immutable,
    /// It only grows.
    Append,
    /// Backups leave it out.
    NoDump,
    /// Its access time stays.
    NoAtime,
    /// How it is compressed.
    Compression,
    /// How large its records are.
    RecordSize,
    /// It goes past the caches.
    Direct,
}

/// The word for a value that the dataset's property gives.
const INHERIT: &str = "inherit";
/// The same, as it is shown.
const NOT_SET: &str = "-";

impl Attribute {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Attribute; 7] = [
        Attribute::Immutable,
        Attribute::Append,
        Attribute::NoDump,
        Attribute::NoAtime,
        Attribute::Compression,
        Attribute::RecordSize,
        Attribute::Direct,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Attribute::Immutable => "immutable",
            Attribute::Append => "append",
            Attribute::NoDump => "nodump",
            Attribute::NoAtime => "noatime",
            Attribute::Compression => "compression",
            Attribute::RecordSize => "recordsize",
            Attribute::Direct => "direct",
        }
    }

    /// The attribute of this name.
    pub fn named(name: &str) -> Option<Attribute> {
        Attribute::ALL.into_iter().find(|attribute| attribute.name() == name)
    }

    /// What may be written as its value.
    pub fn values(self) -> &'static str {
        match self {
            Attribute::Compression => "on | off | lz4 | zstd[-LEVEL] | zstd-fast[-LEVEL] | gzip[-LEVEL] | inherit",
            Attribute::RecordSize => "a power of two from 4K to 16M | inherit",
            _ => "on | off",
        }
    }

    /// Its flag in the inode, if that is all there is.
    fn flag(self) -> Option<u64> {
        match self {
            Attribute::Immutable => Some(flag::IMMUTABLE),
            Attribute::Append => Some(flag::APPEND),
            Attribute::NoDump => Some(flag::NODUMP),
            Attribute::NoAtime => Some(flag::NOATIME),
            Attribute::Direct => Some(flag::DIRECT),
            Attribute::Compression | Attribute::RecordSize => None,
        }
    }
}

/// The flags that are attributes.
const FLAGS: u64 = flag::IMMUTABLE | flag::APPEND | flag::NODUMP | flag::NOATIME | flag::DIRECT;
/// Those that anything gets from its directory.
const INHERITED: u64 = flag::NODUMP | flag::NOATIME;
/// Those that only what has content can have, or pass on.
const OF_CONTENT: u64 = flag::DIRECT;

/// The values that a file has of its own in the place of its dataset's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// How new blocks are compressed.
    pub compression: Option<CompressionChoice>,
    /// The record size, as a power of two, from when the file has no blocks.
    pub record_shift: Option<u8>,
}

impl Own {
    /// The flags that say what of it is there.
    pub(super) fn flags(&self) -> u64 {
        let flag = |there, flag| if there { flag } else { 0 };
        flag(self.compression.is_some(), flag::COMPRESSION) | flag(self.record_shift.is_some(), flag::RECORD_SIZE)
    }

    pub(super) fn encode(&self, out: &mut impl Writer) {
        if let Some(compression) = self.compression {
            out.put_prefixed(compression.to_string().as_bytes());
        }
        if let Some(shift) = self.record_shift {
            out.put_u8(shift);
        }
    }

    /// What stands there, as `flags` says.
    pub(super) fn decode(flags: u64, reader: &mut Reader<'_>) -> Result<Own, Malformed> {
        const WHAT: &str = "inode's attributes";
        let mut own = Own::default();
        if flags & flag::COMPRESSION != 0 {
            let text = reader.prefixed(WHAT)?;
            let choice = std::str::from_utf8(text).ok().and_then(CompressionChoice::parse);
            own.compression = choice.filter(|choice| choice.to_string().as_bytes() == text);
            if own.compression.is_none() {
                return malformed(WHAT);
            }
        }
        if flags & flag::RECORD_SIZE != 0 {
            own.record_shift = match reader.u8(WHAT)? {
                shift @ MIN_RECORD_SHIFT..=MAX_RECORD_SHIFT => Some(shift),
                _ => return malformed(WHAT),
            };
        }
        Ok(own)
    }
}

/// The attributes of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileAttributes {
    flags: u64,
    own: Own,
}

impl FileAttributes {
    fn of(inode: &Inode) -> FileAttributes {
        FileAttributes { flags: inode.flags & FLAGS, own: inode.own }
    }

    /// Whether an attribute that is on or off is on, or one that has a value has one of its own.
    pub fn has(&self, attribute: Attribute) -> bool {
        match attribute {
            Attribute::Compression => self.own.compression.is_some(),
            Attribute::RecordSize => self.own.record_shift.is_some(),
            other => other.flag().is_some_and(|flag| self.flags & flag != 0),
        }
    }

    /// How the file's new blocks are compressed, if it is not as the dataset says.
    pub fn compression(&self) -> Option<CompressionChoice> {
        self.own.compression
    }

    /// Sets or takes away how the file's new blocks are compressed.
    pub fn set_compression(&mut self, compression: Option<CompressionChoice>) {
        self.own.compression = compression;
    }

    /// Turns an attribute that is on or off on or off.
    pub fn turn(&mut self, attribute: Attribute, on: bool) {
        let flag = attribute.flag().expect("it is on or off");
        self.flags = if on { self.flags | flag } else { self.flags & !flag };
    }

    /// An attribute's value, as [`FileAttributes::set`] takes it but for `-`, which says that there is none.
    pub fn get(&self, attribute: Attribute) -> String {
        let own = match attribute {
            Attribute::Compression => self.own.compression.map(|choice| choice.to_string()),
            Attribute::RecordSize => self.own.record_shift.map(|shift| (1u64 << shift).to_string()),
            other => Some(if self.has(other) { "on" } else { "off" }.to_owned()),
        };
        own.unwrap_or_else(|| NOT_SET.to_owned())
    }

    /// Sets an attribute to what a user has written; `None` if that is no value of it. Sizes are plain numbers.
    pub fn set(&mut self, attribute: Attribute, value: &str) -> Option<()> {
        match (attribute, value) {
            (Attribute::Compression, INHERIT) => self.own.compression = None,
            (Attribute::Compression, text) => self.own.compression = Some(CompressionChoice::parse(text)?),
            (Attribute::RecordSize, INHERIT) => self.own.record_shift = None,
            (Attribute::RecordSize, text) => {
                let size = text.parse::<u64>().ok().filter(|size| size.is_power_of_two())?;
                let shift = size.ilog2() as u8;
                self.own.record_shift =
                    Some(shift).filter(|shift| (MIN_RECORD_SHIFT..=MAX_RECORD_SHIFT).contains(shift));
                self.own.record_shift?;
            }
            (other, "on") => self.turn(other, true),
            (other, "off") => self.turn(other, false),
            _ => return None,
        }
        Some(())
    }

    /// Whether a file of this type can have them.
    fn fits(&self, file_type: FileType) -> bool {
        match file_type {
            FileType::Regular | FileType::Directory => true,
            FileType::Symlink => *self == FileAttributes::default(),
            _ => self.flags & OF_CONTENT == 0 && self.own == Own::default(),
        }
    }

    fn apply(&self, inode: &mut Inode) {
        inode.flags = inode.flags & !FLAGS | self.flags;
        inode.own = self.own;
    }
}

/// Gives something new what its directory passes on.
pub(super) fn inherit(inode: &mut Inode, dir: &Inode) {
    inode.flags |= dir.flags & INHERITED;
    if matches!(inode.file_type, FileType::Regular | FileType::Directory) {
        inode.flags |= dir.flags & OF_CONTENT;
        inode.own = dir.own;
    }
}

impl Inode {
    /// EPERM if nobody may change it, not even to make it longer.
    pub(super) fn check_mutable(&self) -> Result<(), Errno> {
        if self.has(flag::IMMUTABLE) { Err(Errno::PERM) } else { Ok(()) }
    }

    /// EPERM if nothing of it may change but that it grows: for its attributes and its names, and for what is in it.
    pub(super) fn check_free(&self) -> Result<(), Errno> {
        if self.has(flag::IMMUTABLE | flag::APPEND) { Err(Errno::PERM) } else { Ok(()) }
    }
}

impl Options {
    /// The options as they are for a file, whose own values come first.
    pub(super) fn of(mut self, inode: &Inode) -> Options {
        if let Some(compression) = inode.own.compression {
            self.policy.compression = compression;
        }
        if let Some(shift) = inode.own.record_shift {
            self.recordsize = 1 << shift;
        }
        self
    }

    /// These options for what is stored of the file of this number.
    pub(super) fn placed(mut self, ino: Ino) -> Options {
        self.policy.placement.file = self.whole_files.then_some(ino);
        self
    }
}

impl FileSystem {
    /// The attributes of a file.
    pub fn file_attributes(&self, ino: Ino) -> Result<FileAttributes, Errno> {
        self.read_tree(|view| Ok(FileAttributes::of(&load_inode(view, ino)?)))
    }

    /// Changes the attributes of a file to what `edit` makes of them.
    ///
    /// # Errors
    /// EOPNOTSUPP if a file of this type cannot have them, or if the pool's feature is not enabled, and what `edit` refuses.
    pub fn set_file_attributes(
        &self,
        ino: Ino,
        edit: impl Fn(&mut FileAttributes) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        self.set_attributes_and_project(ino, |attributes, _| edit(attributes))
    }

    /// Changes the attributes and the project of a file to what `edit` makes of them: both, or nothing.
    ///
    /// # Errors
    /// As [`FileSystem::set_file_attributes`] and [`FileSystem::set_project`].
    pub fn set_attributes_and_project(
        &self,
        ino: Ino,
        edit: impl Fn(&mut FileAttributes, &mut Project) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        self.writable()?;
        let edited = |inode: &Inode| {
            let (mut attributes, mut project) = (FileAttributes::of(inode), Project::of(inode));
            edit(&mut attributes, &mut project)?;
            Ok::<_, Errno>((attributes, project))
        };
        let inode = self.read_tree(|view| load_inode(view, ino))?;
        let (attributes, project) = edited(&inode)?;
        let (other, moves) = (attributes != FileAttributes::of(&inode), project != Project::of(&inode));
        if !other && !moves {
            return Ok(());
        }
        if (other && !attributes.fits(inode.file_type)) || !project.fits(inode.file_type) {
            return Err(Errno::OPNOTSUPP);
        }
        if other && attributes != FileAttributes::default() {
            self.use_attributes()?;
        }
        if moves && project != Project::default() {
            self.use_accounts()?;
        }
        self.admit(METADATA)?;
        self.under_quota(|| {
            self.try_update(|change| {
                let now = change.now;
                let inode = change.edit(ino)?;
                let before = *inode;
                let (attributes, project) = edited(inode)?;
                attributes.apply(inode);
                if project != Project::of(&before) {
                    // What binds the file may come or go in the same change.
                    before.check_free().or_else(|_| inode.check_free())?;
                    project.apply(inode);
                }
                inode.ctime = now;
                if attributes.has(Attribute::Direct) {
                    change.put(key::direct(), [], None);
                }
                Ok(())
            })
        })
    }

    /// Whether any file has ever been told to go past the caches.
    pub fn has_direct_files(&self) -> Result<bool, Errno> {
        self.read_tree(|view: &View<'_>| Ok(view.get(key::direct())?.is_some()))
    }

    fn use_attributes(&self) -> Result<(), Errno> {
        let engine = self.head.engine();
        if !self.options().attributes && !engine.is_active(FILE_ATTRIBUTES) {
            return Err(Errno::OPNOTSUPP);
        }
        engine.activate(FILE_ATTRIBUTES).map_err(|error| failure::errno(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_are_shown() {
        let cases = [
            (Attribute::Immutable, "on", true),
            (Attribute::Direct, "off", false),
            (Attribute::Compression, "zstd-7", true),
            (Attribute::Compression, "off", true),
            (Attribute::RecordSize, "16384", true),
        ];
        for (attribute, value, has) in cases {
            let mut attributes = FileAttributes::default();
            attributes.set(attribute, value).unwrap();
            assert_eq!((attributes.get(attribute).as_str(), attributes.has(attribute)), (value, has));
            attributes.set(attribute, if attribute.flag().is_some() { "off" } else { INHERIT }).unwrap();
            assert_eq!(attributes, FileAttributes::default());
        }
        let mut attributes = FileAttributes::default();
        assert_eq!(attributes.get(Attribute::Compression), "-");
        for (attribute, value) in [
            (Attribute::Append, "yes"),
            (Attribute::Compression, "fast"),
            (Attribute::RecordSize, "2048"),
            (Attribute::RecordSize, "33554432"),
            (Attribute::RecordSize, "5000"),
        ] {
            assert_eq!(attributes.set(attribute, value), None, "{value}");
        }
    }

    #[test]
    fn every_attribute_is_found_by_its_name() {
        for attribute in Attribute::ALL {
            assert_eq!(Attribute::named(attribute.name()), Some(attribute));
        }
        assert_eq!(Attribute::named("other"), None);
    }
}
