//! The inode: a file's type, owner, times and lengths; names and content are separate items.
//!
//! Coded with variable length; see `dataset/FORMAT.md`, "Inode".

use pool::{
    block::compression::CompressionChoice,
    env::Nanos,
    format::codec::{Malformed, Reader, Writer, malformed},
    units::Txg,
};

use super::key::Ino;

const VERSION: u8 = 1;

/// The flags of an inode.
pub mod flag {
    /// Made without a name, and may still get one.
    pub const LINKABLE: u64 = 1;
    /// Data beyond the end is still being freed.
    pub const TRUNCATING: u64 = 2;
    /// Has the extended attribute `security.capability`, which a write removes.
    pub const CAPABILITY: u64 = 4;
    /// No process can change the file: see [`crate::fs::Attribute::Immutable`], as for the next four.
    pub const IMMUTABLE: u64 = 8;
    /// The file can only grow.
    pub const APPEND: u64 = 16;
    /// Backups skip the file.
    pub const NODUMP: u64 = 32;
    /// The access time stays.
    pub const NOATIME: u64 = 64;
    /// Content bypasses the caches.
    pub const DIRECT: u64 = 128;
    /// A compression of the file's own follows the fixed fields.
    pub(in crate::fs) const COMPRESSION: u64 = 256;
    /// A record size of the file's own follows the fixed fields.
    pub(in crate::fs) const RECORD_SIZE: u64 = 512;
    /// A directory whose new files inherit its project.
    pub const PROJECT: u64 = 1024;
    /// All known flags; an inode with more is damaged.
    pub(super) const ALL: u64 = 2047;
    /// The flags that announce optional fields; set only in the coded form.
    pub(super) const CODED: u64 = COMPRESSION | RECORD_SIZE;
}

/// What kind of file an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileType {
    /// A regular file, `S_IFREG`.
    Regular,
    /// A directory, `S_IFDIR`.
    Directory,
    /// A symbolic link, `S_IFLNK`.
    Symlink,
    /// A named pipe, `S_IFIFO`.
    Fifo,
    /// A Unix-domain socket.
    Socket,
    /// A block device, `S_IFBLK`.
    BlockDevice,
    /// A character device.
    CharDevice,
}

impl FileType {
    /// The type bits of `st_mode`, shifted down.
    pub fn code(self) -> u8 {
        match self {
            FileType::Fifo => 0o01,
            FileType::CharDevice => 0o02,
            FileType::Directory => 0o04,
            FileType::BlockDevice => 0o06,
            FileType::Regular => 0o10,
            FileType::Symlink => 0o12,
            FileType::Socket => 0o14,
        }
    }

    /// The type with the given bits.
    pub fn from_code(code: u8) -> Result<FileType, Malformed> {
        Ok(match code {
            0o01 => FileType::Fifo,
            0o02 => FileType::CharDevice,
            0o04 => FileType::Directory,
            0o06 => FileType::BlockDevice,
            0o10 => FileType::Regular,
            0o12 => FileType::Symlink,
            0o14 => FileType::Socket,
            _ => return malformed("file type"),
        })
    }

    /// The type bits of `st_mode`.
    pub fn mode_bits(self) -> u32 {
        u32::from(self.code()) << 12
    }
}

/// A name of an inode: a directory and the entry's offset in the directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link {
    /// The directory's inode number; 0 for none.
    pub dir: Ino,
    /// The entry's offset in the directory.
    pub offset: u64,
}

impl Link {
    /// The link of a file without a name.
    pub const NONE: Link = Link { dir: 0, offset: 0 };

    pub(super) fn encode(self, out: &mut impl Writer) {
        out.put_varint(self.dir);
        out.put_varint(self.offset);
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Link, Malformed> {
        Ok(Link { dir: reader.varint("link")?, offset: reader.varint("link")? })
    }
}

/// A file's own values, which override the dataset's properties.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// The compression of new blocks.
    pub compression: Option<CompressionChoice>,
    /// The record size as a power of two; used once the file has no blocks.
    pub record_shift: Option<u8>,
}

impl Own {
    /// The flags for the values that are set.
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

    /// Decodes the values that `flags` announces.
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

/// An inode in decoded form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Regular file, directory, symbolic link or special file.
    pub file_type: FileType,
    /// Permission and set-id bits.
    pub mode: u16,
    /// A union of the bits in [`flag`].
    pub flags: u64,
    /// The number of names; of a directory, two plus its subdirectories.
    pub nlink: u32,
    /// The owner's user id.
    pub uid: u32,
    /// The gid of the file's group.
    pub gid: u32,
    /// The id of the project charged with the file's space; 0 for none.
    pub project: u32,
    /// The device number of a device file.
    pub rdev: u32,
    /// The length of its content in bytes; of a directory, the number of its entries.
    pub size: u64,
    /// The sum of the extents' lengths in bytes: the size without the holes.
    pub bytes: u64,
    /// The record size as a power of two; 0 before the first block is written.
    pub record_shift: u8,
    /// The txg in which the file was made: with the inode number, never reused.
    pub generation: u64,
    /// When it was last read.
    pub atime: Nanos,
    /// When its content last changed.
    pub mtime: Nanos,
    /// When anything of it last changed.
    pub ctime: Nanos,
    /// When the file was made.
    pub crtime: Nanos,
    /// The first name; further names are items, see [`super::link`].
    pub parent: Link,
    /// The file's own values, which override the dataset's properties.
    pub own: Own,
}

/// The smallest record size, as a power of two.
pub const MIN_RECORD_SHIFT: u8 = 12;
/// The largest record size, as a power of two.
pub const MAX_RECORD_SHIFT: u8 = 24;
/// The greatest length of a file, in bytes.
pub const MAX_SIZE: u64 = i64::MAX as u64;

impl Inode {
    /// A new inode without a name, owned by root.
    pub fn new(file_type: FileType, mode: u16, txg: Txg, now: Nanos) -> Inode {
        Inode {
            file_type,
            mode,
            flags: 0,
            nlink: if file_type == FileType::Directory { 2 } else { 1 },
            uid: 0,
            gid: 0,
            project: 0,
            rdev: 0,
            size: 0,
            bytes: 0,
            record_shift: 0,
            generation: txg.0,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
            parent: Link::NONE,
            own: Own::default(),
        }
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type == FileType::Directory
    }

    /// Whether a flag is set.
    pub fn has(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }

    /// Sets or clears a flag.
    pub fn set(&mut self, flag: u64, on: bool) {
        self.flags = if on { self.flags | flag } else { self.flags & !flag };
    }

    /// Encodes the body of an item.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(96);
        out.put_u8(VERSION);
        out.put_u16(self.mode | u16::from(self.file_type.code()) << 12);
        out.put_varint(self.flags | self.own.flags());
        out.put_varint(u64::from(self.nlink));
        out.put_varint(u64::from(self.uid));
        out.put_varint(u64::from(self.gid));
        out.put_varint(u64::from(self.project));
        out.put_varint(u64::from(self.rdev));
        out.put_varint(self.size);
        out.put_varint(self.bytes);
        out.put_u8(self.record_shift);
        out.put_varint(self.generation);
        for time in [self.atime, self.mtime, self.ctime, self.crtime] {
            out.put_u64(time as u64);
        }
        self.parent.encode(&mut out);
        self.own.encode(&mut out);
        out
    }

    /// Decodes the body of an item.
    pub fn decode(body: &[u8]) -> Result<Inode, Malformed> {
        const WHAT: &str = "inode";
        let mut reader = Reader::new(body);
        if reader.u8(WHAT)? != VERSION {
            return malformed("inode's version");
        }
        let mode = reader.u16(WHAT)?;
        let mut inode = Inode {
            file_type: FileType::from_code((mode >> 12) as u8)?,
            mode: mode & 0o7777,
            flags: reader.varint(WHAT)?,
            nlink: reader.varint32(WHAT)?,
            uid: reader.varint32(WHAT)?,
            gid: reader.varint32(WHAT)?,
            project: reader.varint32(WHAT)?,
            rdev: reader.varint32(WHAT)?,
            size: reader.varint(WHAT)?,
            bytes: reader.varint(WHAT)?,
            record_shift: reader.u8(WHAT)?,
            generation: reader.varint(WHAT)?,
            atime: reader.u64(WHAT)? as i64,
            mtime: reader.u64(WHAT)? as i64,
            ctime: reader.u64(WHAT)? as i64,
            crtime: reader.u64(WHAT)? as i64,
            parent: Link::decode(&mut reader)?,
            own: Own::default(),
        };
        inode.own = Own::decode(inode.flags, &mut reader)?;
        reader.finish(WHAT)?;
        let shift_is_good = matches!(inode.record_shift, 0 | MIN_RECORD_SHIFT..=MAX_RECORD_SHIFT);
        if inode.flags & !flag::ALL != 0 || inode.size > MAX_SIZE || inode.bytes > MAX_SIZE || !shift_is_good {
            return malformed("inode's fields");
        }
        inode.flags &= !flag::CODED;
        Ok(inode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_inode() -> impl Strategy<Value = Inode> {
        let code = prop::sample::select(vec![1u8, 2, 4, 6, 8, 10, 12]);
        let ids = any::<[u32; 5]>();
        let sizes = (0..=MAX_SIZE, 0..=MAX_SIZE);
        let own = (prop::option::of(prop::sample::select(vec!["off", "zstd-19"])), prop::option::of(12u8..=24));
        let coded = (0u64..256, own);
        (code, 0u16..0o10000, coded, ids, sizes, 12u8..=24, any::<[i64; 4]>(), any::<[u64; 3]>()).prop_map(
            |(code, mode, (flags, own), ids, (size, bytes), record_shift, times, [generation, dir, offset])| Inode {
                file_type: FileType::from_code(code).unwrap(),
                mode,
                flags,
                nlink: ids[0],
                uid: ids[1],
                gid: ids[2],
                project: ids[3],
                rdev: ids[4],
                size,
                bytes,
                record_shift,
                generation,
                atime: times[0],
                mtime: times[1],
                ctime: times[2],
                crtime: times[3],
                parent: Link { dir, offset },
                own: Own { compression: own.0.and_then(CompressionChoice::parse), record_shift: own.1 },
            },
        )
    }

    proptest! {
        #[test]
        fn an_inode_round_trips(inode in any_inode()) {
            prop_assert_eq!(Inode::decode(&inode.encode()), Ok(inode));
        }

        #[test]
        fn garbage_behind_an_inode_never_panics(inode in any_inode(), more: Vec<u8>) {
            let mut body = inode.encode();
            body.extend(&more);
            prop_assert_eq!(Inode::decode(&body).is_ok(), more.is_empty());
        }

        #[test]
        fn garbage_never_panics(mut body: Vec<u8>) {
            let _ = Inode::decode(&body);
            body.splice(0..0, [VERSION, 0, 0x80]);
            let _ = Inode::decode(&body);
        }
    }
}
