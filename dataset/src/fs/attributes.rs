//! Attributes of single files beyond `stat`, which `fs setattr` and `fs getattr` and, in part, `chattr` and `lsattr`
//! show and change.
//!
//! Attributes are stored in the inode: a flag each, and values behind the fixed fields (`dataset/FORMAT.md`, "Inode").
//! Setting the first attribute activates the pool's feature `file_attributes` before anything is written that older
//! programs could not read.
//!
//! | attribute | effect | inherited from the directory |
//! | --- | --- | --- |
//! | `immutable` | the file, its attributes and its names cannot change; in a directory nothing is made or removed | no |
//! | `append` | as `immutable`, but the content may grow at the end; in a directory names may be made | no |
//! | `nodump` | backup programs that honour the flag skip the file | yes |
//! | `noatime` | reading does not change the access time | yes |
//! | `direct` | content bypasses the caches | files, directories |
//! | `compression`, `recordsize` | override the dataset's properties for new writes | files, directories |
//!
//! An immutable file is immutable for root too, as on other file systems of Linux. The kernel decides which process may
//! change the attribute (`CAP_LINUX_IMMUTABLE`). A rollback, a received stream and destroying a dataset replace files
//! rather than change files, and ignore attributes.

use pool::{block::compression::CompressionChoice, format::label::FILE_ATTRIBUTES, tree::View};
use rustix::io::Errno;

use super::{
    change::load_inode,
    failure,
    file_system::{FileSystem, METADATA},
    inode::{FileType, Inode, MAX_RECORD_SHIFT, MIN_RECORD_SHIFT, Own, flag},
    key::{self, Ino},
    options::Options,
    project::Project,
};
use crate::property::dataset::{COMPRESSION, RECORDSIZE};

/// An attribute of a single file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attribute {
    /// No process can change the file.
    Immutable,
    /// The file can only grow.
    Append,
    /// Backups skip the file.
    NoDump,
    /// The access time stays.
    NoAtime,
    /// The compression of new blocks.
    Compression,
    /// The record size, in bytes.
    RecordSize,
    /// Content bypasses the caches.
    Direct,
}

/// The value that resets an attribute to the dataset's property.
const INHERIT: &str = "inherit";
/// The value shown for an attribute that the dataset's property decides.
const NOT_SET: &str = "-";

impl Attribute {
    /// All attributes, in display order.
    pub const ALL: [Attribute; 7] = [
        Attribute::Immutable,
        Attribute::Append,
        Attribute::NoDump,
        Attribute::NoAtime,
        Attribute::Compression,
        Attribute::RecordSize,
        Attribute::Direct,
    ];

    /// The name in commands and output.
    pub fn name(self) -> &'static str {
        match self {
            Attribute::Immutable => "immutable",
            Attribute::Append => "append",
            Attribute::NoDump => "nodump",
            Attribute::NoAtime => "noatime",
            Attribute::Compression => COMPRESSION.name,
            Attribute::RecordSize => RECORDSIZE.name,
            Attribute::Direct => "direct",
        }
    }

    /// The attribute with the given name.
    pub fn named(name: &str) -> Option<Attribute> {
        Attribute::ALL.into_iter().find(|attribute| attribute.name() == name)
    }

    /// The syntax of valid values, for help and messages.
    pub fn values(self) -> &'static str {
        match self {
            Attribute::Compression => "on | off | lz4 | zstd[-LEVEL] | zstd-fast[-LEVEL] | gzip[-LEVEL] | inherit",
            Attribute::RecordSize => "a power of two from 4K to 16M | inherit",
            _ => "on | off",
        }
    }

    /// The flag in the inode, for attributes that are on or off.
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

/// The flags of all attributes that are on or off.
const FLAGS: u64 = flag::IMMUTABLE | flag::APPEND | flag::NODUMP | flag::NOATIME | flag::DIRECT;
/// Flags that every new file inherits from its directory.
const INHERITED: u64 = flag::NODUMP | flag::NOATIME;
/// Flags that only regular files and directories can have and inherit.
const OF_CONTENT: u64 = flag::DIRECT;

/// The attributes of a file, as read from and written to the inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileAttributes {
    flags: u64,
    own: Own,
}

impl FileAttributes {
    fn of(inode: &Inode) -> FileAttributes {
        FileAttributes { flags: inode.flags & FLAGS, own: inode.own }
    }

    /// Whether an on/off attribute is on, or another has a value of its own.
    pub fn has(&self, attribute: Attribute) -> bool {
        match attribute {
            Attribute::Compression => self.own.compression.is_some(),
            Attribute::RecordSize => self.own.record_shift.is_some(),
            other => other.flag().is_some_and(|flag| self.flags & flag != 0),
        }
    }

    /// The compression of the file's new blocks; `None` if the dataset's property decides.
    pub fn compression(&self) -> Option<CompressionChoice> {
        self.own.compression
    }

    /// Sets the compression of the file's new blocks; `None` leaves the choice to the dataset's property.
    pub fn set_compression(&mut self, compression: Option<CompressionChoice>) {
        self.own.compression = compression;
    }

    /// Turns an on/off attribute on or off. Panics for attributes with values.
    pub fn turn(&mut self, attribute: Attribute, on: bool) {
        let flag = attribute.flag().expect("it is on or off");
        self.flags = if on { self.flags | flag } else { self.flags & !flag };
    }

    /// An attribute's value in the syntax of [`FileAttributes::set`], or `-` for an attribute without a value of its
    /// own.
    pub fn get(&self, attribute: Attribute) -> String {
        let own = match attribute {
            Attribute::Compression => self.own.compression.map(|choice| choice.to_string()),
            Attribute::RecordSize => self.own.record_shift.map(|shift| (1u64 << shift).to_string()),
            other => Some(if self.has(other) { "on" } else { "off" }.to_owned()),
        };
        own.unwrap_or_else(|| NOT_SET.to_owned())
    }

    /// Sets an attribute to a value that a user has typed; `None` if the value is invalid. Sizes are plain numbers of
    /// bytes.
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

    /// Whether a file of the given type can have the attributes.
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

/// Gives a new inode the attributes that its directory passes on.
pub(super) fn inherit(inode: &mut Inode, dir: &Inode) {
    inode.flags |= dir.flags & INHERITED;
    if matches!(inode.file_type, FileType::Regular | FileType::Directory) {
        inode.flags |= dir.flags & OF_CONTENT;
        inode.own = dir.own;
    }
}

impl Inode {
    /// EPERM if the inode is immutable.
    pub(super) fn check_mutable(&self) -> Result<(), Errno> {
        if self.has(flag::IMMUTABLE) { Err(Errno::PERM) } else { Ok(()) }
    }

    /// EPERM if the inode is immutable or append-only: checked for changes of attributes, names and content other than
    /// growth.
    pub(super) fn check_free(&self) -> Result<(), Errno> {
        if self.has(flag::IMMUTABLE | flag::APPEND) { Err(Errno::PERM) } else { Ok(()) }
    }
}

impl Options {
    /// The options for a file: the file's own values override the dataset's.
    pub(super) fn of(mut self, inode: &Inode) -> Options {
        if let Some(compression) = inode.own.compression {
            self.policy.compression = compression;
        }
        if let Some(shift) = inode.own.record_shift {
            self.recordsize = 1 << shift;
        }
        self
    }

    /// The options for blocks of the file with the given number.
    pub(super) fn placed(mut self, ino: Ino) -> Options {
        self.policy.placement.file = self.whole_files.then_some(ino);
        self
    }
}

impl FileSystem {
    /// The attributes of a file; ENOENT without an inode.
    pub fn file_attributes(&self, ino: Ino) -> Result<FileAttributes, Errno> {
        self.read_tree(|view| Ok(FileAttributes::of(&load_inode(view, ino)?)))
    }

    /// Changes the attributes of a file with `edit`, in one batch.
    ///
    /// # Errors
    /// EOPNOTSUPP if the file's type cannot have the attributes or the pool's feature is not enabled, and the errors of
    /// `edit`.
    pub fn set_file_attributes(
        &self,
        ino: Ino,
        edit: impl Fn(&mut FileAttributes) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        self.set_attributes_and_project(ino, |attributes, _| edit(attributes))
    }

    /// Changes the attributes and the project of a file with `edit`: both, or neither.
    ///
    /// # Errors
    /// The errors of [`FileSystem::set_file_attributes`] and [`FileSystem::set_project`].
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
                    // The same change may set or clear `immutable` or `append`.
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

    /// Whether any file has, or has ever had, the attribute `direct`.
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
