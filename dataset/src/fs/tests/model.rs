//! Random operations on the file system and on a plain model of one, side by side.
//!
//! Every result and every error must be the same, and so must everything that can be seen at the end; and the checker
//! must find nothing.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::world::World;
use crate::fs::{Attr, Caller, Errno, FallocateFlags, FileType, Ino, ROOT, RenameFlags, SetAttr, SetXattr, Whence};

#[derive(Clone, Debug)]
enum Op {
    Create { dir: usize, name: u8 },
    Mkdir { dir: usize, name: u8 },
    Symlink { dir: usize, name: u8, target: Vec<u8> },
    Link { file: usize, dir: usize, name: u8 },
    Unlink { dir: usize, name: u8 },
    Rmdir { dir: usize, name: u8 },
    Rename { from: (usize, u8), to: (usize, u8), noreplace: bool, exchange: bool },
    Write { file: usize, offset: u64, len: usize, seed: u8 },
    Truncate { file: usize, size: u64 },
    Punch { file: usize, offset: u64, len: u64 },
    Zero { file: usize, offset: u64, len: u64, keep_size: bool },
    Read { file: usize, offset: u64, len: usize },
    Copy { from: usize, source: u64, to: usize, target: u64, len: u64 },
    SetXattr { file: usize, name: u8, len: usize, how: u8 },
    RemoveXattr { file: usize, name: u8 },
    Open { file: usize },
    Close { file: usize },
    Commit,
    Evict,
    Reap,
    RecordSize { shift: u8 },
}

fn any_op() -> impl Strategy<Value = Op> {
    let at = (0usize..8, 0u8..5);
    let range = prop_oneof![
        (0u64..3000, 1u64..1500),
        (0u64..60_000, 1u64..20_000),
        (0u64..12, 1u64..6).prop_map(|(o, l)| (o * 4096, l * 4096))
    ];
    prop_oneof![
        3 => at.clone().prop_map(|(dir, name)| Op::Create { dir, name }),
        2 => at.clone().prop_map(|(dir, name)| Op::Mkdir { dir, name }),
        1 => (at.clone(), prop::collection::vec(1u8.., 0..50))
            .prop_map(|((dir, name), target)| Op::Symlink { dir, name, target }),
        2 => (0usize..16, at.clone()).prop_map(|(file, (dir, name))| Op::Link { file, dir, name }),
        2 => at.clone().prop_map(|(dir, name)| Op::Unlink { dir, name }),
        1 => at.clone().prop_map(|(dir, name)| Op::Rmdir { dir, name }),
        4 => (at.clone(), at, any::<bool>(), 0u8..3)
            .prop_map(|(from, to, noreplace, exchange)| Op::Rename { from, to, noreplace, exchange: exchange == 0 }),
        12 => (0usize..16, range.clone(), any::<u8>())
            .prop_map(|(file, (offset, len), seed)| Op::Write { file, offset, len: len as usize, seed }),
        2 => (0usize..16, prop_oneof![0u64..70_000, 0u64..1500, Just(0)]).prop_map(|(file, size)| Op::Truncate { file, size }),
        4 => (0usize..16, range.clone()).prop_map(|(file, (offset, len))| Op::Punch { file, offset, len }),
        1 => (0usize..16, range.clone(), any::<bool>())
            .prop_map(|(file, (offset, len), keep_size)| Op::Zero { file, offset, len, keep_size }),
        2 => (0usize..16, range.clone()).prop_map(|(file, (offset, len))| Op::Read { file, offset, len: len as usize }),
        1 => (0usize..16, range, 0usize..16, 0u64..60_000)
            .prop_map(|(from, (source, len), to, target)| Op::Copy { from, source, to, target, len }),
        2 => (0usize..16, 0u8..3, prop_oneof![0usize..50, 2000usize..9000], 0u8..3)
            .prop_map(|(file, name, len, how)| Op::SetXattr { file, name, len, how }),
        1 => (0usize..16, 0u8..3).prop_map(|(file, name)| Op::RemoveXattr { file, name }),
        1 => (0usize..16).prop_map(|file| Op::Open { file }),
        1 => (0usize..16).prop_map(|file| Op::Close { file }),
        3 => Just(Op::Commit),
        1 => Just(Op::Evict),
        1 => Just(Op::Reap),
        1 => (12u8..15).prop_map(|shift| Op::RecordSize { shift }),
    ]
}

#[derive(Clone, Debug, Default)]
struct Node {
    file_type: Option<FileType>,
    data: Vec<u8>,
    entries: BTreeMap<Vec<u8>, Ino>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    names: BTreeSet<(Ino, Vec<u8>)>,
    open: u64,
}

impl Node {
    fn new(file_type: FileType) -> Node {
        Node { file_type: Some(file_type), ..Node::default() }
    }

    fn is_dir(&self) -> bool {
        self.file_type == Some(FileType::Directory)
    }
}

struct Model {
    nodes: BTreeMap<Ino, Node>,
}

impl Model {
    fn new() -> Model {
        Model { nodes: BTreeMap::from([(ROOT, Node::new(FileType::Directory))]) }
    }

    fn pick(&self, index: usize, wanted: impl Fn(&Node) -> bool) -> Option<Ino> {
        let found: Vec<Ino> = self.nodes.iter().filter(|(_, node)| wanted(node)).map(|(ino, _)| *ino).collect();
        found.get(index % found.len().max(1)).copied()
    }

    fn dir(&self, index: usize) -> Ino {
        self.pick(index, Node::is_dir).expect("the root is always there")
    }

    fn find(&self, dir: Ino, name: &[u8]) -> Option<Ino> {
        self.nodes[&dir].entries.get(name).copied()
    }

    fn alive(&self, dir: Ino) -> bool {
        dir == ROOT || !self.nodes[&dir].names.is_empty()
    }

    fn check_vacant(&self, dir: Ino, name: &[u8]) -> Result<(), Errno> {
        match self.find(dir, name) {
            _ if !self.alive(dir) => Err(Errno::NOENT),
            Some(_) => Err(Errno::EXIST),
            None => Ok(()),
        }
    }

    fn add(&mut self, dir: Ino, name: &[u8], ino: Ino, node: Node) {
        self.nodes.insert(ino, node);
        self.enter(dir, name, ino);
    }

    fn enter(&mut self, dir: Ino, name: &[u8], ino: Ino) {
        self.nodes.get_mut(&dir).unwrap().entries.insert(name.to_vec(), ino);
        self.nodes.get_mut(&ino).unwrap().names.insert((dir, name.to_vec()));
    }

    fn leave(&mut self, dir: Ino, name: &[u8]) -> Ino {
        let ino = self.nodes.get_mut(&dir).unwrap().entries.remove(name).unwrap();
        self.nodes.get_mut(&ino).unwrap().names.remove(&(dir, name.to_vec()));
        ino
    }

    fn forget_if_unused(&mut self, ino: Ino) {
        let node = &self.nodes[&ino];
        if ino != ROOT && node.names.is_empty() && node.open == 0 {
            self.nodes.remove(&ino);
        }
    }

    fn remove(&mut self, dir: Ino, name: &[u8], directory: bool) -> Result<(), Errno> {
        if !self.alive(dir) {
            return Err(Errno::NOENT);
        }
        let node = &self.nodes[&self.find(dir, name).ok_or(Errno::NOENT)?];
        match (node.is_dir(), directory) {
            (true, false) => return Err(Errno::ISDIR),
            (false, true) => return Err(Errno::NOTDIR),
            (true, true) if !node.entries.is_empty() => return Err(Errno::NOTEMPTY),
            _ => {}
        }
        let ino = self.leave(dir, name);
        self.forget_if_unused(ino);
        Ok(())
    }

    fn is_below(&self, dir: Ino, ancestor: Ino) -> bool {
        let mut at = dir;
        loop {
            if at == ancestor {
                return true;
            }
            match self.nodes[&at].names.first() {
                Some((parent, _)) => at = *parent,
                None => return false,
            }
        }
    }

    fn rename(&mut self, from: (Ino, &[u8]), to: (Ino, &[u8]), flags: RenameFlags) -> Result<(), Errno> {
        if flags.noreplace && flags.exchange {
            return Err(Errno::INVAL);
        }
        if !self.alive(from.0) || !self.alive(to.0) {
            return Err(Errno::NOENT);
        }
        let moved = self.find(from.0, from.1).ok_or(Errno::NOENT)?;
        let replaced = self.find(to.0, to.1);
        match replaced {
            None if flags.exchange => return Err(Errno::NOENT),
            Some(_) if flags.noreplace => return Err(Errno::EXIST),
            Some(other) if other == moved => return Ok(()),
            _ => {}
        }
        if self.nodes[&moved].is_dir() && from.0 != to.0 && self.is_below(to.0, moved) {
            return Err(Errno::INVAL);
        }
        if let Some(other) = replaced.filter(|_| flags.exchange) {
            if self.nodes[&other].is_dir() && from.0 != to.0 && self.is_below(from.0, other) {
                return Err(Errno::INVAL);
            }
            self.leave(from.0, from.1);
            self.leave(to.0, to.1);
            self.enter(from.0, from.1, other);
            self.enter(to.0, to.1, moved);
            return Ok(());
        }
        if let Some(other) = replaced {
            match (self.nodes[&moved].is_dir(), self.nodes[&other].is_dir()) {
                (false, true) => return Err(Errno::ISDIR),
                (true, false) => return Err(Errno::NOTDIR),
                (true, true) if !self.nodes[&other].entries.is_empty() => return Err(Errno::NOTEMPTY),
                _ => {}
            }
            self.leave(to.0, to.1);
            self.forget_if_unused(other);
        }
        self.leave(from.0, from.1);
        self.enter(to.0, to.1, moved);
        Ok(())
    }

    fn data(&mut self, ino: Ino) -> &mut Vec<u8> {
        &mut self.nodes.get_mut(&ino).unwrap().data
    }

    fn write(&mut self, ino: Ino, offset: u64, data: &[u8]) {
        let (from, to) = (offset as usize, offset as usize + data.len());
        let content = self.data(ino);
        content.resize(content.len().max(to), 0);
        content[from..to].copy_from_slice(data);
    }

    fn zero(&mut self, ino: Ino, offset: u64, len: u64, keep_size: bool) {
        let end = (offset + len) as usize;
        let content = self.data(ino);
        if !keep_size && content.len() < end {
            content.resize(end, 0);
        }
        let end = end.min(content.len());
        let from = (offset as usize).min(end);
        content[from..end].fill(0);
    }

    fn slice(&self, ino: Ino, offset: u64, len: usize) -> &[u8] {
        let data = &self.nodes[&ino].data;
        let from = (offset as usize).min(data.len());
        &data[from..(from + len).min(data.len())]
    }
}

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

struct Both {
    world: World,
    model: Model,
}

impl Both {
    fn apply(&mut self, op: &Op) {
        let caller = Caller { uid: 1000, gid: 100 };
        let fs = self.world.fs.clone();
        let model = &mut self.model;
        let made = |made: Result<Attr, Errno>, expected: Result<(), Errno>| match (made, expected) {
            (Ok(attr), Ok(())) => Some(attr.ino),
            (Err(one), Err(two)) if one == two => None,
            (made, expected) => panic!("made {made:?}, expected {expected:?}"),
        };
        match op {
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
                        // A directory that is gone is only noticed when the name is entered.
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
                let flags = RenameFlags { noreplace: *noreplace, exchange: *exchange };
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
                fs.release(ino, 1);
                model.nodes.get_mut(&ino).unwrap().open -= 1;
                model.forget_if_unused(ino);
            }
            Op::Commit => self.world.commit(),
            Op::Evict => self.world.evict(),
            Op::Reap => drop(fs.reap_orphans(10)),
            Op::RecordSize { shift } => {
                let mut options = fs.options();
                options.recordsize = 1 << shift;
                fs.set_options(options);
            }
        }
    }

    /// Compares everything that can be seen, and has the checker look.
    fn compare(&self) {
        let fs = &self.world.fs;
        for (&ino, node) in &self.model.nodes {
            let attr = fs.getattr(ino).expect("the model has it");
            assert_eq!(Some(attr.file_type), node.file_type);
            self.compare_names(ino, node, &attr);
            let names: BTreeSet<Vec<u8>> = fs.listxattr(ino).unwrap().into_iter().collect();
            assert_eq!(names, node.xattrs.keys().cloned().collect());
            for (name, value) in &node.xattrs {
                assert_eq!(fs.getxattr(ino, name).as_ref(), Ok(value));
            }
            match attr.file_type {
                FileType::Directory => self.compare_entries(ino, node),
                FileType::Symlink => assert_eq!(fs.readlink(ino).as_ref(), Ok(&node.data)),
                _ => self.compare_content(ino, node, &attr),
            }
        }
        while fs.reap_orphans(100) {}
        self.world.check();
        let (files, free) = fs.statfs().map(|stat| (stat.files, stat.files_free)).unwrap();
        assert_eq!(files - free, self.model.nodes.len() as u64);
    }

    fn compare_names(&self, ino: Ino, node: &Node, attr: &Attr) {
        let fs = &self.world.fs;
        let links = match (node.is_dir(), self.model.alive(ino) || !node.is_dir()) {
            (true, true) => 2 + node.entries.values().filter(|ino| self.model.nodes[ino].is_dir()).count(),
            (true, false) => 0,
            (false, _) => node.names.len(),
        };
        assert_eq!(attr.nlink as usize, links);
        let path = fs.path_of(ino);
        if ino != ROOT && node.names.is_empty() {
            return assert_eq!(path, Err(Errno::NOENT));
        }
        let path = path.unwrap();
        let mut at = ROOT;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            at = fs.lookup(at, name).unwrap().ino;
        }
        assert_eq!(at, ino);
    }

    fn compare_entries(&self, dir: Ino, node: &Node) {
        let fs = &self.world.fs;
        let mut seen = BTreeMap::new();
        let mut cookie = 0;
        // Two entries at a time, so that cookies are used.
        loop {
            let mut taken = 0;
            fs.readdir_plus(dir, cookie, &mut |entry, attr| {
                assert_eq!((entry.ino, entry.file_type), (attr.ino, attr.file_type));
                assert!(seen.insert(entry.name.to_vec(), entry.ino).is_none(), "an entry was seen twice");
                cookie = entry.cookie;
                taken += 1;
                taken < 2
            })
            .unwrap();
            if taken == 0 {
                break;
            }
        }
        assert_eq!(seen.remove(&b"."[..]), Some(dir));
        assert_eq!(seen.remove(&b".."[..]), Some(node.names.first().map_or(dir, |(parent, _)| *parent)));
        assert_eq!(seen, node.entries);
        let mut names = Vec::new();
        fs.readdir(dir, 2, &mut |entry| {
            names.push(entry.name.to_vec());
            true
        })
        .unwrap();
        assert_eq!(names.len(), node.entries.len());
    }

    fn compare_content(&self, ino: Ino, node: &Node, attr: &Attr) {
        let fs = &self.world.fs;
        assert_eq!(attr.size, node.data.len() as u64);
        let mut bytes = Vec::new();
        fs.read(ino, 0, node.data.len() + 10, &mut bytes).unwrap();
        assert!(bytes == node.data, "content differs");
        let mut at = 0;
        while at < attr.size {
            let data = fs.seek(ino, at, Whence::Data);
            let data = if data == Err(Errno::NXIO) { attr.size } else { data.unwrap() };
            assert!(node.data[at as usize..data as usize].iter().all(|byte| *byte == 0), "data in a hole");
            if data == attr.size {
                break;
            }
            assert_eq!(fs.seek(ino, data, Whence::Data), Ok(data));
            at = fs.seek(ino, data, Whence::Hole).unwrap();
            assert!(at > data);
        }
        assert_eq!(fs.seek(ino, attr.size, Whence::Hole), Err(Errno::NXIO));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn it_behaves_like_the_model(seed: u64, ops in prop::collection::vec(any_op(), 1..150)) {
        let mut both = Both { world: World::new(seed), model: Model::new() };
        for op in &ops {
            both.apply(op);
        }
        both.compare();
        both.world = both.world.reopen();
        // What was open is not any more, and what had no name is gone.
        both.model.nodes.retain(|ino, node| *ino == ROOT || !node.names.is_empty());
        while both.world.fs.reap_orphans(100) {}
        both.compare();
    }
}
