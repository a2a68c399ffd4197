//! A plain model of a file system: a map of nodes, each with bytes, entries and attributes as maps.

use std::collections::{BTreeMap, BTreeSet};

use crate::fs::{Attribute, Errno, FileAttributes, FileType, Ino, ROOT, RenameFlags};

/// A file or a directory.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub(super) file_type: Option<FileType>,
    pub(super) data: Vec<u8>,
    pub(super) entries: BTreeMap<Vec<u8>, Ino>,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) names: BTreeSet<(Ino, Vec<u8>)>,
    pub(super) open: u64,
    pub(super) attributes: FileAttributes,
}

impl Node {
    pub(super) fn new(file_type: FileType) -> Node {
        Node { file_type: Some(file_type), ..Node::default() }
    }

    pub(super) fn is_dir(&self) -> bool {
        self.file_type == Some(FileType::Directory)
    }
}

/// All nodes of the model.
pub(super) struct Model {
    pub(super) nodes: BTreeMap<Ino, Node>,
}

impl Model {
    pub(super) fn new() -> Model {
        Model { nodes: BTreeMap::from([(ROOT, Node::new(FileType::Directory))]) }
    }

    pub(super) fn pick(&self, index: usize, wanted: impl Fn(&Node) -> bool) -> Option<Ino> {
        let found: Vec<Ino> = self.nodes.iter().filter(|(_, node)| wanted(node)).map(|(ino, _)| *ino).collect();
        found.get(index % found.len().max(1)).copied()
    }

    pub(super) fn dir(&self, index: usize) -> Ino {
        self.pick(index, Node::is_dir).expect("the root is always there")
    }

    pub(super) fn find(&self, dir: Ino, name: &[u8]) -> Option<Ino> {
        self.nodes[&dir].entries.get(name).copied()
    }

    pub(super) fn alive(&self, dir: Ino) -> bool {
        dir == ROOT || !self.nodes[&dir].names.is_empty()
    }

    pub(super) fn check_vacant(&self, dir: Ino, name: &[u8]) -> Result<(), Errno> {
        match self.find(dir, name) {
            _ if !self.alive(dir) => Err(Errno::NOENT),
            Some(_) => Err(Errno::EXIST),
            None => Ok(()),
        }
    }

    pub(super) fn add(&mut self, dir: Ino, name: &[u8], ino: Ino, node: Node) {
        let mut attributes = self.nodes[&dir].attributes;
        if node.file_type == Some(FileType::Symlink) {
            // Without content, all attributes but `nodump` have no meaning.
            let nodump = attributes.has(Attribute::NoDump);
            attributes = FileAttributes::default();
            attributes.turn(Attribute::NoDump, nodump);
        }
        self.nodes.insert(ino, Node { attributes, ..node });
        self.enter(dir, name, ino);
    }

    pub(super) fn enter(&mut self, dir: Ino, name: &[u8], ino: Ino) {
        self.nodes.get_mut(&dir).unwrap().entries.insert(name.to_vec(), ino);
        self.nodes.get_mut(&ino).unwrap().names.insert((dir, name.to_vec()));
    }

    pub(super) fn leave(&mut self, dir: Ino, name: &[u8]) -> Ino {
        let ino = self.nodes.get_mut(&dir).unwrap().entries.remove(name).unwrap();
        self.nodes.get_mut(&ino).unwrap().names.remove(&(dir, name.to_vec()));
        ino
    }

    pub(super) fn forget_if_unused(&mut self, ino: Ino) {
        let node = &self.nodes[&ino];
        if ino != ROOT && node.names.is_empty() && node.open == 0 {
            self.nodes.remove(&ino);
        }
    }

    pub(super) fn remove(&mut self, dir: Ino, name: &[u8], directory: bool) -> Result<(), Errno> {
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

    pub(super) fn is_below(&self, dir: Ino, ancestor: Ino) -> bool {
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

    pub(super) fn rename(&mut self, from: (Ino, &[u8]), to: (Ino, &[u8]), flags: RenameFlags) -> Result<(), Errno> {
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

    pub(super) fn data(&mut self, ino: Ino) -> &mut Vec<u8> {
        &mut self.nodes.get_mut(&ino).unwrap().data
    }

    pub(super) fn write(&mut self, ino: Ino, offset: u64, data: &[u8]) {
        let (from, to) = (offset as usize, offset as usize + data.len());
        let content = self.data(ino);
        content.resize(content.len().max(to), 0);
        content[from..to].copy_from_slice(data);
    }

    pub(super) fn zero(&mut self, ino: Ino, offset: u64, len: u64, keep_size: bool) {
        let end = (offset + len) as usize;
        let content = self.data(ino);
        if !keep_size && content.len() < end {
            content.resize(end, 0);
        }
        let end = end.min(content.len());
        let from = (offset as usize).min(end);
        content[from..end].fill(0);
    }

    pub(super) fn slice(&self, ino: Ino, offset: u64, len: usize) -> &[u8] {
        let data = &self.nodes[&ino].data;
        let from = (offset as usize).min(data.len());
        &data[from..(from + len).min(data.len())]
    }
}
