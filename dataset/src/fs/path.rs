//! From an inode to its path.

use rustix::io::Errno;

use super::{
    FileSystem,
    change::load_inode,
    directory::Dirent,
    failure::damaged,
    key::{self, Ino, ROOT},
};

/// No path has more parts: a longer chain of parents is a loop, and damage.
const DEPTH_MAX: usize = 1 << 16;

impl FileSystem {
    /// A path of the inode from the dataset's root, which begins with a slash; ENOENT if it has no name.
    pub fn path_of(&self, ino: Ino) -> Result<Vec<u8>, Errno> {
        let names = self.read_tree(|view| {
            let mut names: Vec<Vec<u8>> = Vec::new();
            let mut at = ino;
            while at != ROOT {
                let link = load_inode(view, at)?.parent;
                if link.dir == 0 || names.len() >= DEPTH_MAX {
                    return Err(Errno::NOENT.into());
                }
                let key = key::dirent(link.dir, link.offset);
                let entry = view.get(key)?.ok_or(Errno::NOENT)?;
                names.push(Dirent::decode(entry.body()).map_err(damaged(key))?.name.to_vec());
                at = link.dir;
            }
            Ok(names)
        })?;
        let mut path = Vec::new();
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        if path.is_empty() {
            path.push(b'/');
        }
        Ok(path)
    }
}
