//! The znode: owner, mode, times and length of a file, 264 bytes beside the object's description.
//!
//! A symbolic link's target follows, if there is room. A znode ends with an access list of six entries, which repeats
//! the mode: what each of owner, group and all others is denied and allowed.

use pool::env::Nanos;

use crate::fs::{
    Ino, ROOT,
    inode::{FileType, Inode, flag},
};

use super::{Receiver, numbers};

const LEN: usize = 264;
/// The most bytes beside an object's description.
const BONUS: usize = 320;
const NANOS: i64 = 1_000_000_000;

/// The bits of a znode's flags.
mod bit {
    pub(super) const XATTR: u64 = 1;
    /// The access list says what the mode says.
    pub(super) const TRIVIAL: u64 = 1 << 2;
    pub(super) const INHERITS: u64 = 1 << 6;
    /// Every user may execute or enter.
    pub(super) const EXECUTABLE: u64 = 1 << 8;
    pub(super) const IMMUTABLE: u64 = 1 << 36;
    pub(super) const APPEND: u64 = 1 << 38;
    pub(super) const NODUMP: u64 = 1 << 39;
}

/// What a znode says of its file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Znode {
    /// As `st_mode`, with the type.
    pub(super) mode: u32,
    pub(super) size: u64,
    pub(super) links: u64,
    /// The object of a directory with a name of the file.
    pub(super) parent: u64,
    /// The object of the directory of extended attributes; 0 for none.
    pub(super) xattrs: u64,
    pub(super) generation: u64,
    pub(super) uid: u32,
    pub(super) gid: u32,
    rdev: u64,
    flags: u64,
    /// Access, change of content, change of anything, creation.
    times: [Nanos; 4],
}

impl Znode {
    /// The znode of an inode.
    pub(super) fn of(ino: Ino, inode: &Inode, has_xattrs: bool, receiver: Receiver) -> Znode {
        let own = |from, to| if inode.has(from) { to } else { 0 };
        let flags = own(flag::IMMUTABLE, bit::IMMUTABLE) | own(flag::APPEND, bit::APPEND);
        Znode {
            mode: inode.file_type.mode_bits() | u32::from(inode.mode),
            // ZFS counts "." and "..", which are not stored.
            size: if inode.is_dir() { inode.size + 2 } else { inode.size },
            links: inode.nlink.into(),
            parent: numbers::object(if ino == ROOT { ROOT } else { inode.parent.dir }),
            xattrs: if has_xattrs { numbers::xattrs(ino) } else { 0 },
            generation: inode.generation.max(1),
            uid: inode.uid,
            gid: inode.gid,
            rdev: rdev(inode.rdev, receiver),
            flags: flags | own(flag::NODUMP, bit::NODUMP),
            times: [inode.atime, inode.mtime, inode.ctime, inode.crtime],
        }
    }

    /// The znode of the directory of a file's extended attributes, or of one attribute.
    pub(super) fn of_xattrs(inode: &Inode, file_type: FileType, size: u64, parent: u64) -> Znode {
        Znode {
            mode: file_type.mode_bits() | if file_type == FileType::Directory { 0o1777 } else { 0o644 },
            size,
            links: if file_type == FileType::Directory { 2 } else { 1 },
            parent,
            xattrs: 0,
            generation: inode.generation.max(1),
            uid: inode.uid,
            gid: inode.gid,
            rdev: 0,
            flags: bit::XATTR,
            times: [inode.crtime; 4],
        }
    }

    /// Encodes the znode, with the target of a symbolic link if the target fits.
    pub(super) fn encode(&self, target: Option<&[u8]>) -> Vec<u8> {
        let mut out = Vec::with_capacity(BONUS);
        for time in self.times {
            out.extend(time.div_euclid(NANOS).to_le_bytes());
            out.extend(time.rem_euclid(NANOS).to_le_bytes());
        }
        let (owner, group) = (self.uid.into(), self.gid.into());
        let fields = [self.generation, self.mode.into(), self.size, self.parent, self.links, self.xattrs];
        for field in fields.into_iter().chain([self.rdev, self.flags(), owner, group]) {
            out.extend(field.to_le_bytes());
        }
        const PADDING: usize = 32;
        out.resize(out.len() + PADDING, 0);
        access_list(self.mode, &mut out);
        out.resize(LEN, 0);
        if let Some(target) = target.filter(|target| fits(target)) {
            out.extend(target);
        }
        out
    }

    fn flags(&self) -> u64 {
        let directory = self.mode >> 12 == u32::from(FileType::Directory.code());
        let inherits = if directory { bit::INHERITS } else { 0 };
        let executable = if self.mode & 0o111 == 0o111 { bit::EXECUTABLE } else { 0 };
        self.flags | bit::TRIVIAL | inherits | executable
    }
}

/// Whether the target of a symbolic link fits behind a znode; a longer one is the object's content.
pub(super) fn fits(target: &[u8]) -> bool {
    LEN + target.len() <= BONUS
}

/// A device's number as the receiver codes it, from Linux's 32 bits.
fn rdev(rdev: u32, receiver: Receiver) -> u64 {
    let (major, minor) = (rdev >> 8 & 0xfff, rdev & 0xff | rdev >> 12 & 0xf_ff00);
    match receiver {
        Receiver::OpenZfs => u64::from(major) << 20 | u64::from(minor),
        Receiver::ZfsFuse => rdev.into(),
    }
}

/// The access list of a mode: its head, and a denying and an allowing entry for each of owner, group, and others.
fn access_list(mode: u32, out: &mut Vec<u8>) {
    const VERSION: u16 = 1;
    const ENTRIES: u16 = 6;
    const ENTRY: u32 = 8;
    const ALLOW: u16 = 0;
    const DENY: u16 = 1;
    const OWNER: u16 = 0x1000;
    const GROUP: u16 = 0x2040;
    const OTHERS: u16 = 0x4000;
    /// What only owners may: set attributes, times, the access list and the owner.
    const OF_OWNERS: u32 = 0xc_0110;
    /// What every user may: read attributes and the access list, and wait for writes.
    const OF_ALL: u32 = 0x12_0088;
    out.extend(0u64.to_le_bytes());
    out.extend((u32::from(ENTRIES) * ENTRY).to_le_bytes());
    out.extend(VERSION.to_le_bytes());
    out.extend(ENTRIES.to_le_bytes());
    let mut entry = |type_: u16, who: u16, mask: u32| {
        out.extend(type_.to_le_bytes());
        out.extend(who.to_le_bytes());
        out.extend(mask.to_le_bytes());
    };
    entry(DENY, OWNER, rights(!mode >> 6));
    entry(ALLOW, OWNER, rights(mode >> 6) | OF_OWNERS);
    entry(DENY, GROUP, rights(!mode >> 3));
    entry(ALLOW, GROUP, rights(mode >> 3));
    entry(DENY, OTHERS, rights(!mode) | OF_OWNERS);
    entry(ALLOW, OTHERS, rights(mode) | OF_ALL);
}

/// The rights of three bits of a mode: read; write and append; execute.
fn rights(bits: u32) -> u32 {
    let right = |bit: u32, mask: u32| if bits & bit != 0 { mask } else { 0 };
    right(4, 1) | right(2, 6) | right(1, 0x20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_list_repeats_its_mode() {
        let mut list = Vec::new();
        access_list(0o100644, &mut list);
        let hex: String = list.iter().map(|byte| format!("{byte:02x}")).collect();
        // As zfs-fuse writes it.
        assert_eq!(
            hex,
            "0000000000000000300000000100060001000010200000000000001017010c00010040202600000000004020010000000100004036010c000000004089001200"
        );
    }

    #[test]
    fn device_numbers_follow_the_receiver() {
        let null = 0x103;
        assert_eq!(rdev(null, Receiver::OpenZfs), 0x10_0003);
        assert_eq!(rdev(null, Receiver::ZfsFuse), 0x103);
        let big = (70000 & 0xff) | 259 << 8 | (70000 & !0xff) << 12;
        assert_eq!(rdev(big, Receiver::OpenZfs), 0x1031_1170);
    }
}
