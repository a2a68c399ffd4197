//! The attributes of a file: from the system attributes of a ZPL of version 5, or from the older znode.
//!
//! System attributes (SA) are values without names behind a number, the layout, that says which attributes follow in
//! which order. The file system itself has the tables: a registry of the attributes with their lengths, and the
//! layouts. What does not fit into an object's bonus buffer is in its spill block, with a layout of its own.

use std::collections::HashMap;

use pool::{
    env::Nanos,
    format::codec::{Malformed, malformed},
};

use super::{
    fields::{Fields, Order},
    zap::Entry,
};

const WHAT: &str = "attributes of an object";
const MAGIC: u32 = 0x2f_505a;
const ZNODE: usize = 264;
/// Larger ids are of foreign domains; Linux shows their owner as this one.
const FOREIGN_ID: u32 = 65534;
const NANOS: i64 = 1_000_000_000;

/// Bits of [`Attributes::flags`].
pub(super) mod flag {
    /// The object belongs to extended attributes.
    pub(in crate::zfs) const XATTR: u64 = 1;
    pub(in crate::zfs) const IMMUTABLE: u64 = 1 << 36;
    pub(in crate::zfs) const APPEND: u64 = 1 << 38;
    pub(in crate::zfs) const NODUMP: u64 = 1 << 39;
    pub(in crate::zfs) const INHERITS_PROJECT: u64 = 1 << 46;
}

/// What an object says of its file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Attributes {
    /// As `st_mode`, with the type.
    pub(super) mode: u16,
    pub(super) size: u64,
    pub(super) generation: u64,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) project: u32,
    /// The object of the directory with a name of the file, or of the file for a directory of extended attributes.
    pub(super) parent: u64,
    /// The object of the directory of extended attributes; 0 for none.
    pub(super) xattr: u64,
    /// As Linux codes `st_rdev` in 32 bits.
    pub(super) rdev: u32,
    pub(super) flags: u64,
    pub(super) atime: Nanos,
    pub(super) mtime: Nanos,
    pub(super) ctime: Nanos,
    pub(super) crtime: Nanos,
    /// The target of a symbolic link, unless it is the object's content.
    pub(super) target: Option<Vec<u8>>,
    /// The coded list of extended attributes.
    pub(super) xattrs: Option<Vec<u8>>,
}

/// The tables of a file system's attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tables {
    /// Names and lengths by number; length 0 for a variable one.
    registry: HashMap<u16, (Kind, u16)>,
    layouts: HashMap<u16, Vec<u16>>,
}

/// The attributes that are of use here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Atime,
    Mtime,
    Ctime,
    Crtime,
    Generation,
    Mode,
    Size,
    Parent,
    Xattr,
    Rdev,
    Flags,
    Uid,
    Gid,
    Symlink,
    Xattrs,
    Project,
    Other,
}

impl Kind {
    fn of(name: &[u8]) -> Kind {
        match name {
            b"ZPL_ATIME" => Kind::Atime,
            b"ZPL_MTIME" => Kind::Mtime,
            b"ZPL_CTIME" => Kind::Ctime,
            b"ZPL_CRTIME" => Kind::Crtime,
            b"ZPL_GEN" => Kind::Generation,
            b"ZPL_MODE" => Kind::Mode,
            b"ZPL_SIZE" => Kind::Size,
            b"ZPL_PARENT" => Kind::Parent,
            b"ZPL_XATTR" => Kind::Xattr,
            b"ZPL_RDEV" => Kind::Rdev,
            b"ZPL_FLAGS" => Kind::Flags,
            b"ZPL_UID" => Kind::Uid,
            b"ZPL_GID" => Kind::Gid,
            b"ZPL_SYMLINK" => Kind::Symlink,
            b"ZPL_DXATTR" => Kind::Xattrs,
            b"ZPL_PROJID" => Kind::Project,
            _ => Kind::Other,
        }
    }
}

impl Tables {
    /// Takes an entry of the registry: the attribute's number in the lowest 16 bits, its length from bit 24 on.
    pub(super) fn register(&mut self, entry: &Entry) -> Result<(), Malformed> {
        let value = entry.value()?;
        self.registry.insert(value as u16, (Kind::of(&entry.name), (value >> 24) as u16));
        Ok(())
    }

    /// Takes an entry of the layouts: the attributes' numbers under the layout's number in decimal digits.
    pub(super) fn lay_out(&mut self, entry: &Entry) -> Result<(), Malformed> {
        let number = std::str::from_utf8(&entry.name).ok().and_then(|digits| digits.parse().ok());
        let number = number.ok_or(Malformed { what: "number of a layout of attributes" })?;
        self.layouts.insert(number, entry.values.iter().map(|value| *value as u16).collect());
        Ok(())
    }

    /// Decodes the attributes in a bonus buffer, and in the spill block if there is one.
    pub(super) fn decode(&self, parts: &[(&[u8], Order)]) -> Result<Attributes, Malformed> {
        let mut attributes = Attributes::default();
        for (bytes, order) in parts {
            self.part(&Fields::new(bytes, *order, WHAT), &mut attributes)?;
        }
        if attributes.mode == 0 { malformed("attributes of an object without a mode") } else { Ok(attributes) }
    }

    fn part(&self, fields: &Fields<'_>, attributes: &mut Attributes) -> Result<(), Malformed> {
        if fields.u32(0)? != MAGIC {
            return malformed(WHAT);
        }
        let info = fields.u16(4)?;
        let layout = self.layouts.get(&(info & 0x3ff)).ok_or(Malformed { what: "layout of an object's attributes" })?;
        let mut at = usize::from(info >> 10) * 8;
        let mut length_at = 6;
        for number in layout {
            let (kind, fixed) = *self.registry.get(number).ok_or(Malformed { what: "number of an attribute" })?;
            let mut len = usize::from(fixed);
            if fixed == 0 {
                len = usize::from(fields.u16(length_at)?);
                length_at += 2;
            }
            attributes.take(kind, fields, at, len)?;
            at = (at + len).next_multiple_of(8);
        }
        Ok(())
    }
}

impl Attributes {
    fn take(&mut self, kind: Kind, fields: &Fields<'_>, at: usize, len: usize) -> Result<(), Malformed> {
        let number = || fields.u64(at);
        match kind {
            Kind::Atime => self.atime = time(fields, at)?,
            Kind::Mtime => self.mtime = time(fields, at)?,
            Kind::Ctime => self.ctime = time(fields, at)?,
            Kind::Crtime => self.crtime = time(fields, at)?,
            Kind::Generation => self.generation = number()?,
            Kind::Mode => self.mode = number()? as u16,
            Kind::Size => self.size = number()?,
            Kind::Parent => self.parent = number()?,
            Kind::Xattr => self.xattr = number()?,
            Kind::Rdev => self.rdev = rdev(number()?, 20),
            Kind::Flags => self.flags = number()?,
            Kind::Uid => self.uid = id(number()?),
            Kind::Gid => self.gid = id(number()?),
            Kind::Project => self.project = u32::try_from(number()?).unwrap_or(0),
            Kind::Symlink => self.target = Some(fields.bytes(at, len)?.to_vec()),
            Kind::Xattrs => self.xattrs = Some(fields.bytes(at, len)?.to_vec()),
            Kind::Other => drop(fields.bytes(at, len)?),
        }
        Ok(())
    }

    /// Decodes a znode, the attributes of a ZPL up to version 4.
    pub(super) fn of_znode(bonus: &[u8], order: Order) -> Result<Attributes, Malformed> {
        let fields = Fields::new(bonus, order, "znode of an object");
        let mut attributes = Attributes {
            atime: time(&fields, 0)?,
            mtime: time(&fields, 16)?,
            ctime: time(&fields, 32)?,
            crtime: time(&fields, 48)?,
            generation: fields.u64(64)?,
            mode: fields.u64(72)? as u16,
            size: fields.u64(80)?,
            parent: fields.u64(88)?,
            xattr: fields.u64(104)?,
            rdev: old_rdev(fields.u64(112)?),
            flags: fields.u64(120)?,
            uid: id(fields.u64(128)?),
            gid: id(fields.u64(136)?),
            ..Attributes::default()
        };
        const LINK: u16 = 0o12;
        let size = usize::try_from(attributes.size).unwrap_or(usize::MAX);
        if attributes.mode >> 12 == LINK
            && let Ok(target) = fields.bytes(ZNODE, size)
        {
            attributes.target = Some(target.to_vec());
        }
        Ok(attributes)
    }
}

fn time(fields: &Fields<'_>, at: usize) -> Result<Nanos, Malformed> {
    let (seconds, nanos) = (fields.u64(at)?.cast_signed(), fields.u64(at + 8)?);
    let nanos = i64::try_from(nanos).unwrap_or(0).clamp(0, NANOS - 1);
    Ok(seconds.saturating_mul(NANOS).saturating_add(nanos))
}

fn id(id: u64) -> u32 {
    u32::try_from(id).unwrap_or(FOREIGN_ID)
}

/// A device's number in a znode: zfs-fuse takes 8 bits for the minor part, Linux 20, which makes the whole longer.
fn old_rdev(number: u64) -> u32 {
    rdev(number, if number >> 20 == 0 { 8 } else { 20 })
}

/// A device's number, as Linux codes it, from one whose minor part has the given number of bits.
fn rdev(number: u64, minor_bits: u32) -> u32 {
    // FreeBSD and illumos keep the minor part in 32 bits; a number of Linux is shorter.
    let minor_bits = if number >> 32 != 0 { 32 } else { minor_bits };
    let (major, minor) = ((number >> minor_bits) as u32, (number & ((1 << minor_bits) - 1)) as u32);
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & !0xff) << 12
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tables() -> Tables {
        let mut tables = Tables::default();
        let entry = |name: &str, values: &[u64]| Entry { name: name.into(), values: values.to_vec() };
        tables.register(&entry("ZPL_MODE", &[5 | 8 << 24])).unwrap();
        tables.register(&entry("ZPL_SYMLINK", &[17])).unwrap();
        tables.register(&entry("ZPL_MTIME", &[1 | 16 << 24])).unwrap();
        tables.lay_out(&entry("7", &[5, 17, 1])).unwrap();
        tables
    }

    #[test]
    fn values_follow_their_layout() {
        let mut bytes = MAGIC.to_be_bytes().to_vec();
        bytes.extend((7u16 | 1 << 10).to_be_bytes());
        bytes.extend(3u16.to_be_bytes());
        bytes.extend(0o120777u64.to_be_bytes());
        bytes.extend(b"a/b\0\0\0\0\0");
        bytes.extend((-2i64).to_be_bytes());
        bytes.extend(5u64.to_be_bytes());
        let attributes = tables().decode(&[(&bytes, Order::Big)]).unwrap();
        let target = Some(b"a/b".to_vec());
        assert_eq!(attributes, Attributes { mode: 0o120777, target, mtime: -2 * NANOS + 5, ..Attributes::default() });
        assert!(tables().decode(&[(&bytes[..30], Order::Big)]).is_err());
    }

    #[test]
    fn device_numbers_are_coded_anew() {
        assert_eq!(rdev(0x1031_1170, 20), (70000 & 0xff) | 259 << 8 | (70000 & !0xff) << 12);
        assert_eq!(rdev(0x103, 8), 0x103);
        // As FreeBSD and illumos store major 5, minor 300.
        assert_eq!(old_rdev(5 << 32 | 300), (300 & 0xff) | 5 << 8 | (300 & !0xff) << 12);
        assert_eq!(id(1 << 32), FOREIGN_ID);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(mut bytes: Vec<u8>, layout in 0u16..9) {
            let _ = Attributes::of_znode(&bytes, Order::Big);
            bytes.splice(0..0, MAGIC.to_le_bytes().into_iter().chain((layout | 1 << 10).to_le_bytes()));
            let _ = tables().decode(&[(&bytes, Order::Little)]);
        }
    }
}
