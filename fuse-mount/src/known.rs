//! The names that the kernel must forget when everything in a file system may have changed.
//!
//! Invalidating a name drops all names below, and detaches the mounts there. So without mounts below, the names in the
//! root are enough. For a mount below, the walk follows its path: the directories on the path are listed like the root,
//! and their names on the path are *ways*. A way is kept if it leads to the same directory before and after the change.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use dataset::fs::{FileSystem, Ino, ROOT};

type Entry = (Ino, Vec<u8>);

/// The names in the root and in each directory that leads to a mount.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    names: BTreeSet<Entry>,
    /// Names that lead to a mount, each with its object and generation.
    ways: BTreeMap<Entry, (Ino, u64)>,
}

impl Known {
    /// The names at present, with mounts on the paths `below`.
    pub(crate) fn collect(live: &FileSystem, below: &[PathBuf]) -> Known {
        let mut known = Known::default();
        known.list(live, ROOT);
        below.iter().for_each(|path| known.follow(live, path));
        known
    }

    /// The names to invalidate, with `self` from before a change and `after` from after it.
    pub(crate) fn changed(self, after: Known) -> Vec<Entry> {
        let is_kept = |entry: &Entry| self.ways.get(entry).is_some_and(|target| after.ways.get(entry) == Some(target));
        self.names.union(&after.names).filter(|entry| !is_kept(entry)).cloned().collect()
    }

    fn follow(&mut self, live: &FileSystem, path: &Path) {
        let mut dir = ROOT;
        for name in path {
            let Ok(attr) = live.lookup(dir, name.as_bytes()) else { return };
            self.list(live, dir);
            self.ways.insert((dir, name.as_bytes().to_vec()), (attr.ino, attr.generation));
            dir = attr.ino;
        }
    }

    fn list(&mut self, live: &FileSystem, dir: Ino) {
        let listed = live.readdir(dir, 0, &mut |entry| {
            self.names.insert((dir, entry.name.to_vec()));
            true
        });
        if let Err(error) = listed {
            tracing::warn!(%error, dir, "a directory cannot be listed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(names: &[(Ino, &str)], ways: &[(Ino, &str, Ino)]) -> Known {
        let entry = |dir: Ino, name: &str| (dir, name.as_bytes().to_vec());
        Known {
            names: names.iter().map(|&(dir, name)| entry(dir, name)).collect(),
            ways: ways.iter().map(|&(dir, name, ino)| (entry(dir, name), (ino, 0))).collect(),
        }
    }

    #[test]
    fn a_way_is_kept_while_it_leads_to_the_same_directory() {
        let before = || known(&[(1, "a"), (1, "b"), (2, "c"), (2, "d")], &[(1, "a", 2), (2, "c", 3)]);
        let same = known(&[(1, "a"), (1, "e"), (2, "c")], &[(1, "a", 2), (2, "c", 3)]);
        let forgotten = |after| before().changed(after).into_iter().map(|(_, name)| name).collect::<Vec<_>>();
        assert_eq!(forgotten(same), [b"b", b"e", b"d"]);
        let other = known(&[(1, "a"), (2, "c")], &[(1, "a", 2), (2, "c", 4)]);
        assert_eq!(forgotten(other), [b"b", b"c", b"d"]);
        assert_eq!(forgotten(known(&[], &[])), [b"a", b"b", b"c", b"d"]);
    }
}
