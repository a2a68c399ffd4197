//! The expected content of a home: a tree of nodes, as plain as possible.
//!
//! A change of names either happens or returns the error that the system must return.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use rustix::io::Errno;

/// A node, by number, independent of its names.
pub(crate) type Id = u32;
/// The home itself.
pub(crate) const HOME: Id = 0;

/// The kind and content of a node.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// A regular file, with its bytes.
    File(Vec<u8>),
    /// A directory, with its names.
    Directory(BTreeMap<String, Id>),
    /// A symbolic link, with its target.
    Link(String),
}

/// A file, directory or link.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) body: Body,
    pub(crate) mode: u32,
    pub(crate) attributes: BTreeMap<String, Vec<u8>>,
}

/// A name in a directory.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) dir: Id,
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

/// A home.
pub(crate) struct Model {
    nodes: BTreeMap<Id, Node>,
    next: Id,
}

impl Node {
    fn new(body: Body, mode: u32) -> Node {
        Node { body, mode, attributes: BTreeMap::new() }
    }

    pub(crate) fn is_dir(&self) -> bool {
        matches!(self.body, Body::Directory(_))
    }

    fn entries(&self) -> Option<&BTreeMap<String, Id>> {
        match &self.body {
            Body::Directory(entries) => Some(entries),
            _ => None,
        }
    }
}

impl Model {
    /// An empty home.
    pub(crate) fn new(mode: u32) -> Model {
        Model { nodes: BTreeMap::from([(HOME, Node::new(Body::Directory(BTreeMap::new()), mode))]), next: HOME + 1 }
    }

    /// An existing node.
    pub(crate) fn node(&self, id: Id) -> &Node {
        &self.nodes[&id]
    }

    pub(crate) fn node_mut(&mut self, id: Id) -> &mut Node {
        self.nodes.get_mut(&id).expect("the node is there")
    }

    /// The bytes of a file.
    pub(crate) fn content(&mut self, id: Id) -> &mut Vec<u8> {
        match &mut self.node_mut(id).body {
            Body::File(content) => content,
            other => panic!("{other:?} is no file"),
        }
    }

    /// Every name below the home, in order, each with its node.
    pub(crate) fn places(&self) -> Vec<(Place, Id)> {
        let mut places = Vec::new();
        self.collect(HOME, Path::new(""), &mut places);
        places
    }

    fn collect(&self, dir: Id, at: &Path, places: &mut Vec<(Place, Id)>) {
        for (name, &id) in self.node(dir).entries().into_iter().flatten() {
            let path = at.join(name);
            places.push((Place { dir, name: name.clone(), path: path.clone() }, id));
            self.collect(id, &path, places);
        }
    }

    /// The names of a directory.
    pub(crate) fn names(&self, dir: Id) -> Vec<&str> {
        self.node(dir).entries().into_iter().flatten().map(|(name, _)| name.as_str()).collect()
    }

    /// The number of links as `stat` shows it.
    pub(crate) fn links(&self, id: Id) -> u64 {
        if let Some(entries) = self.node(id).entries() {
            return 2 + entries.values().filter(|id| self.node(**id).is_dir()).count() as u64;
        }
        let all = self.nodes.values().filter_map(Node::entries).flat_map(BTreeMap::values);
        all.filter(|other| **other == id).count() as u64
    }

    /// The node of a name.
    pub(crate) fn at(&self, place: &Place) -> Option<Id> {
        self.node(place.dir).entries()?.get(&place.name).copied()
    }

    fn entries_mut(&mut self, dir: Id) -> &mut BTreeMap<String, Id> {
        match &mut self.node_mut(dir).body {
            Body::Directory(entries) => entries,
            other => panic!("{other:?} is not a directory"),
        }
    }

    /// A new node with this name.
    pub(crate) fn make(&mut self, place: &Place, body: Body, mode: u32) -> Result<Id, Errno> {
        if self.at(place).is_some() {
            return Err(Errno::EXIST);
        }
        let id = self.next;
        self.next += 1;
        self.nodes.insert(id, Node::new(body, mode));
        self.entries_mut(place.dir).insert(place.name.clone(), id);
        Ok(id)
    }

    /// One more name.
    pub(crate) fn link(&mut self, id: Id, place: &Place) -> Result<(), Errno> {
        if self.at(place).is_some() {
            return Err(Errno::EXIST);
        }
        if self.node(id).is_dir() {
            return Err(Errno::PERM);
        }
        self.entries_mut(place.dir).insert(place.name.clone(), id);
        Ok(())
    }

    /// `unlink`.
    pub(crate) fn unlink(&mut self, place: &Place) -> Result<(), Errno> {
        let id = self.at(place).ok_or(Errno::NOENT)?;
        if self.node(id).is_dir() {
            return Err(Errno::ISDIR);
        }
        self.take(place);
        Ok(())
    }

    /// `rmdir`.
    pub(crate) fn rmdir(&mut self, place: &Place) -> Result<(), Errno> {
        let id = self.at(place).ok_or(Errno::NOENT)?;
        match self.node(id).entries() {
            None => Err(Errno::NOTDIR),
            Some(entries) if !entries.is_empty() => Err(Errno::NOTEMPTY),
            Some(_) => {
                self.take(place);
                Ok(())
            }
        }
    }

    /// `rename`, replacing an existing target unless `keep` forbids that.
    pub(crate) fn rename(&mut self, from: &Place, to: &Place, keep: bool) -> Result<(), Errno> {
        let moved = self.at(from).ok_or(Errno::NOENT)?;
        let replaced = self.at(to);
        if keep && replaced.is_some() {
            return Err(Errno::EXIST);
        }
        if self.holds(moved, to.dir) {
            return Err(Errno::INVAL);
        }
        if let Some(other) = replaced {
            if other != moved && self.holds(other, from.dir) {
                return Err(Errno::NOTEMPTY);
            }
            if other == moved {
                return Ok(());
            }
            self.check_replaceable(moved, other)?;
            self.take(to);
        }
        self.entries_mut(from.dir).remove(&from.name);
        self.entries_mut(to.dir).insert(to.name.clone(), moved);
        Ok(())
    }

    /// `rename` that swaps two names.
    pub(crate) fn exchange(&mut self, one: &Place, two: &Place) -> Result<(), Errno> {
        let first = self.at(one).ok_or(Errno::NOENT)?;
        let second = self.at(two).ok_or(Errno::NOENT)?;
        if self.holds(first, two.dir) || self.holds(second, one.dir) {
            return Err(Errno::INVAL);
        }
        self.entries_mut(one.dir).insert(one.name.clone(), second);
        self.entries_mut(two.dir).insert(two.name.clone(), first);
        Ok(())
    }

    fn check_replaceable(&self, moved: Id, replaced: Id) -> Result<(), Errno> {
        match (self.node(moved).is_dir(), self.node(replaced).entries()) {
            (false, Some(_)) => Err(Errno::ISDIR),
            (true, None) => Err(Errno::NOTDIR),
            (true, Some(entries)) if !entries.is_empty() => Err(Errno::NOTEMPTY),
            _ => Ok(()),
        }
    }

    /// Whether `below` is `dir` or lies in it.
    fn holds(&self, dir: Id, below: Id) -> bool {
        dir == below
            || self
                .node(dir)
                .entries()
                .into_iter()
                .flatten()
                .any(|(_, id)| self.node(*id).is_dir() && self.holds(*id, below))
    }

    /// Removes a name, and with the last name the node.
    fn take(&mut self, place: &Place) {
        let id = self.entries_mut(place.dir).remove(&place.name).expect("the name is there");
        if self.node(id).is_dir() || self.links(id) == 0 {
            self.nodes.remove(&id);
        }
    }
}
