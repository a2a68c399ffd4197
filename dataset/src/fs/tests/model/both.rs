//! One operation on the file system and on the model, with equal results.

use super::{
    Op,
    plain::{Model, Node},
};
use crate::{
    fs::{
        Attr, Attribute, Caller, Errno, FallocateFlags, FileAttributes, FileType, RenameFlags, SetAttr, SetQuota,
        SetXattr, tests::world::World,
    },
    property::OwnerKind,
};

/// The file system and its model.
pub(super) struct Both {
    pub(super) world: World,
    pub(super) model: Model,
}

impl Both {
    /// Applies an operation to both, and compares the results.
    pub(super) fn apply(&mut self, op: &Op) {
        let caller = Caller { uid: 1000, gid: 100, umask: 0 };
        let fs = self.world.fs.clone();
        let model = &mut self.model;
        let made = |made: Result<Attr, Errno>, expected: Result<(), Errno>| match (made, expected) {
            (Ok(attr), Ok(())) => Some(attr.ino),
            (Err(one), Err(two)) if one == two => None,
            (made, expected) => panic!("made {made:?}, expected {expected:?}"),
        };
        match op {
            // From the first quota on, the checker verifies the accounts.
            Op::Account => fs.set_quota(OwnerKind::User, 7, SetQuota::default()).unwrap(),
            Op::Create { dir, name: index } => {
                let (dir, name) = (model.dir(*dir), name(*index));
                let vacant = model.check_vacant(dir, &name);
                if let Some(ino) = made(fs.create(&caller, dir, &name, 0o644, true), vacant) {
                    model.add(dir, &name, ino, Node::new(FileType::Regular));
                }
            }
            Op::Mkdir { dir, name: index } => {
                let (dir, name) = (model.dir(*dir), name(*index));
                let vacant = model.check_vacant(dir, &name);
                if let Some(ino) = made(fs.mkdir(&caller, dir, &name, 0o755), vacant) {
                    model.add(dir, &name, ino, Node::new(FileType::Directory));
                }
            }
            Op::Symlink { dir, name: index, target } => {
                let (dir, name) = (model.dir(*dir), name(*index));
                let vacant = if target.is_empty() { Err(Errno::NOENT) } else { model.check_vacant(dir, &name) };
                if let Some(ino) = made(fs.symlink(&caller, dir, &name, target), vacant) {
                    model.add(dir, &name, ino, Node { data: target.clone(), ..Node::new(FileType::Symlink) });
                }
            }
            Op::Link { file, dir, name: index } => {
                let Some(ino) = model.pick(*file, |node| !node.is_dir()) else { return };
                let (dir, name) = (model.dir(*dir), name(*index));
                let allowed = if model.nodes[&ino].names.is_empty() {
                    Err(Errno::NOENT)
                } else {
                    match model.check_vacant(dir, &name) {
                        // A removed directory is noticed only when the name is entered.
                        Err(Errno::EXIST) | Ok(()) if !model.alive(dir) => Err(Errno::NOENT),
                        vacant => vacant,
                    }
                };
                if made(fs.link(ino, dir, &name), allowed).is_some() {
                    model.enter(dir, &name, ino);
                }
            }
            Op::Unlink { dir, name: index } => {
                let (dir, name) = (model.dir(*dir), name(*index));
                assert_eq!(fs.unlink(dir, &name), model.remove(dir, &name, false));
            }
            Op::Rmdir { dir, name: index } => {
                let (dir, name) = (model.dir(*dir), name(*index));
                assert_eq!(fs.rmdir(dir, &name), model.remove(dir, &name, true));
            }
            Op::Rename { from, to, noreplace, exchange } => {
                let flags = RenameFlags { noreplace: *noreplace, exchange: *exchange, whiteout: None };
                let (from_name, to_name) = (name(from.1), name(to.1));
                let (from, to) = (model.dir(from.0), model.dir(to.0));
                let expected = model.rename((from, &from_name), (to, &to_name), flags);
                assert_eq!(fs.rename(from, &from_name, to, &to_name, flags), expected);
            }
            Op::Write { file, offset, len, seed } => {
                let Some(ino) = model.pick(*file, is_regular) else { return };
                let data = pattern(*seed, *len);
                assert_eq!(fs.write(ino, *offset, &data, false), Ok(*len));
                model.write(ino, *offset, &data);
            }
            Op::Truncate { file, size } => {
                let Some(ino) = model.pick(*file, is_regular) else { return };
                let set = SetAttr { size: Some(*size), ..SetAttr::default() };
                assert_eq!(fs.setattr(&caller, ino, &set).map(|attr| attr.size), Ok(*size));
                model.data(ino).resize(*size as usize, 0);
            }
            Op::Punch { file, offset, len } => {
                let Some(ino) = model.pick(*file, is_regular) else { return };
                let flags = FallocateFlags { punch_hole: true, keep_size: true, ..FallocateFlags::default() };
                assert_eq!(fs.fallocate(ino, flags, *offset, *len), Ok(()));
                model.zero(ino, *offset, *len, true);
            }
            Op::Zero { file, offset, len, keep_size } => {
                let Some(ino) = model.pick(*file, is_regular) else { return };
                let flags = FallocateFlags { zero_range: true, keep_size: *keep_size, ..FallocateFlags::default() };
                assert_eq!(fs.fallocate(ino, flags, *offset, *len), Ok(()));
                model.zero(ino, *offset, *len, *keep_size);
            }
            Op::Read { file, offset, len } => {
                let Some(ino) = model.pick(*file, is_regular) else { return };
                let mut bytes = b"before".to_vec();
                assert_eq!(fs.read(ino, *offset, *len, &mut bytes), Ok(()));
                assert!(bytes[6..] == *model.slice(ino, *offset, *len), "content differs");
            }
            Op::Copy { from, source, to, target, len } => {
                let (Some(from), Some(to)) = (model.pick(*from, is_regular), model.pick(*to, is_regular)) else {
                    return;
                };
                let overlap = from == to && *source < target + len && *target < source + len;
                let bytes = model.slice(from, *source, *len as usize).to_vec();
                let expected = if overlap { Err(Errno::INVAL) } else { Ok(bytes.len() as u64) };
                assert_eq!(fs.copy_range(from, *source, to, *target, *len), expected);
                if expected.is_ok() && !bytes.is_empty() {
                    model.write(to, *target, &bytes);
                }
            }
            Op::SetXattr { file, name: index, len, how } => {
                let ino = model.pick(*file, |_| true).expect("the root is always there");
                let (name, value) = (xattr_name(*index), pattern(3, *len));
                let how = [SetXattr::Any, SetXattr::Create, SetXattr::Replace][usize::from(*how)];
                let xattrs = &mut model.nodes.get_mut(&ino).unwrap().xattrs;
                let expected = match (how, xattrs.contains_key(&name)) {
                    (SetXattr::Create, true) => Err(Errno::EXIST),
                    (SetXattr::Replace, false) => Err(Errno::NODATA),
                    _ => Ok(()),
                };
                assert_eq!(fs.setxattr(ino, &name, &value, how), expected);
                if expected.is_ok() {
                    xattrs.insert(name, value);
                }
            }
            Op::RemoveXattr { file, name: index } => {
                let ino = model.pick(*file, |_| true).expect("the root is always there");
                let name = xattr_name(*index);
                let expected = model.nodes.get_mut(&ino).unwrap().xattrs.remove(&name).map(|_| ()).ok_or(Errno::NODATA);
                assert_eq!(fs.removexattr(ino, &name), expected);
            }
            Op::Open { file } => {
                let ino = model.pick(*file, |_| true).expect("the root is always there");
                fs.retain(ino);
                model.nodes.get_mut(&ino).unwrap().open += 1;
            }
            Op::Close { file } => {
                let Some(ino) = model.pick(*file, |node| node.open > 0) else { return };
                // Odd files wait for the next call, or for the background.
                if fs.release(ino, 1) && file % 2 == 0 {
                    fs.free_unused();
                }
                model.nodes.get_mut(&ino).unwrap().open -= 1;
                model.forget_if_unused(ino);
            }
            Op::Commit => self.world.commit(),
            Op::Evict => self.world.evict(),
            Op::Reap => drop(fs.reap_orphans(10)),
            Op::Attribute { file, attribute, value } => {
                let ino =
                    model.pick(*file, |node| is_regular(node) || node.is_dir()).expect("the root is always there");
                let (attribute, values) = SETTINGS[usize::from(*attribute)];
                let set = |attributes: &mut FileAttributes| {
                    attributes.set(attribute, values[usize::from(*value)]).ok_or(Errno::INVAL)
                };
                assert_eq!(fs.set_file_attributes(ino, set), Ok(()));
                set(&mut model.nodes.get_mut(&ino).unwrap().attributes).unwrap();
            }
            Op::RecordSize { shift } => {
                let mut options = fs.options();
                options.recordsize = 1 << shift;
                fs.set_options(options);
            }
        }
    }
}

/// Attributes without effects on visible state other than the attribute itself, and some values.
const SETTINGS: [(Attribute, [&str; 3]); 4] = [
    (Attribute::Compression, ["inherit", "zstd-3", "off"]),
    (Attribute::RecordSize, ["inherit", "4096", "32768"]),
    (Attribute::Direct, ["off", "on", "on"]),
    (Attribute::NoDump, ["off", "on", "on"]),
];

fn name(index: u8) -> Vec<u8> {
    vec![b'a' + index; usize::from(index) * 40 + 1]
}

fn xattr_name(index: u8) -> Vec<u8> {
    [b"user.".as_slice(), &name(index)].concat()
}

fn pattern(seed: u8, len: usize) -> Vec<u8> {
    // A seed of zero gives zeros, so that holes are written too.
    (0..len).map(|index| (index as u8).wrapping_mul(31).wrapping_add(7).wrapping_mul(seed)).collect()
}

fn is_regular(node: &Node) -> bool {
    node.file_type == Some(FileType::Regular)
}
