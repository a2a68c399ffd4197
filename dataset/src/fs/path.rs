//! From an inode to its path.
//!
//! A caller that asks for the paths of many files of an unchanging tree keeps the directories of the last path
//! ([`Paths`]). Most files share directories with the last path, so a path costs few lookups at any depth.

use std::collections::HashMap;

use rustix::io::Errno;

use super::{
    change::load_inode,
    directory::Dirent,
    failure::damaged,
    file_system::FileSystem,
    key::{self, Ino, ROOT},
};

/// The most components of a path: a longer chain of parents is a loop, and counts as damage.
const DEPTH_MAX: usize = 1 << 16;

/// Finds paths in a tree that does not change.
#[derive(Debug, Default)]
pub struct Paths {
    /// The path of the last directory.
    path: Vec<u8>,
    /// The directories on the path, and where in `path` each ends.
    way: Vec<(Ino, usize)>,
    /// The index in `way` of each directory.
    places: HashMap<Ino, usize>,
    /// The number of names looked up.
    #[cfg(test)]
    pub(super) looked_up: usize,
}

impl FileSystem {
    /// A path of the inode from the dataset's root, with a leading slash; ENOENT if the inode has no name.
    pub fn path_of(&self, ino: Ino) -> Result<Vec<u8>, Errno> {
        Paths::default().of(self, ino)
    }
}

impl Paths {
    /// A path of the inode, as [`FileSystem::path_of`].
    pub fn of(&mut self, fs: &FileSystem, ino: Ino) -> Result<Vec<u8>, Errno> {
        let (known, below) = fs.read_tree(|view| {
            let mut below: Vec<(Ino, Vec<u8>)> = Vec::new();
            let mut at = ino;
            loop {
                let known = if at == ROOT { Some(0) } else { self.places.get(&at).map(|place| place + 1) };
                if let Some(known) = known {
                    let depth = known + below.len();
                    return if depth > DEPTH_MAX { Err(Errno::NOENT.into()) } else { Ok((known, below)) };
                }
                let link = load_inode(view, at)?.parent;
                if link.dir == 0 || below.len() >= DEPTH_MAX {
                    return Err(Errno::NOENT.into());
                }
                let key = key::dirent(link.dir, link.offset);
                let entry = view.get(key)?.ok_or(Errno::NOENT)?;
                below.push((at, Dirent::decode(entry.body()).map_err(damaged(key))?.name.to_vec()));
                at = link.dir;
            }
        })?;
        #[cfg(test)]
        {
            self.looked_up += below.len();
        }
        let Some(((_, last), directories)) = below.split_first() else { return Ok(self.up_to(known).to_vec()) };
        let mut known = known;
        if !directories.is_empty() {
            self.leave(known);
            directories.iter().rev().for_each(|(directory, name)| self.enter(*directory, name));
            known = self.way.len();
        }
        let above = if known == 0 { &[] } else { self.up_to(known) };
        Ok([above, b"/", last].concat())
    }

    /// The path of the directory at the given depth.
    fn up_to(&self, steps: usize) -> &[u8] {
        match steps.checked_sub(1) {
            None => b"/",
            Some(last) => &self.path[..self.way[last].1],
        }
    }

    /// Truncates the path to the given depth.
    fn leave(&mut self, steps: usize) {
        for (directory, _) in self.way.drain(steps..) {
            self.places.remove(&directory);
        }
        self.path.truncate(self.way.last().map_or(0, |(_, end)| *end));
    }

    fn enter(&mut self, directory: Ino, name: &[u8]) {
        self.path.push(b'/');
        self.path.extend_from_slice(name);
        self.places.insert(directory, self.way.len());
        self.way.push((directory, self.path.len()));
    }
}
