//! Reading directories.
//!
//! A cookie says where to continue: 0 before `.`, 1 before `..`, 2 before the entries, and offset plus 3 after the
//! entry at the offset. Entries keep their offsets, so reading a changing directory neither repeats nor loses an entry
//! that stays. Entries are read from the tree in batches, and passed to the caller without any lock.

use rustix::io::Errno;

use super::{
    attr::Attr,
    change::{load_directory, load_inode},
    create::resolve,
    directory::Dirent,
    failure::{Failure, damaged},
    file_system::FileSystem,
    inode::{FileType, Inode},
    key::{self, DIRENT, Ino},
};

const BATCH: usize = 128;
const FIRST_ENTRY: u64 = 2;
const AFTER: u64 = 3;

/// An entry as passed to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The inode number of the entry's object.
    pub ino: Ino,
    /// The object's type.
    pub file_type: FileType,
    /// The name, without a terminating NUL.
    pub name: &'a [u8],
    /// The cookie for continuing after the entry.
    pub cookie: u64,
}

/// An entry copied from the tree.
struct Taken {
    ino: Ino,
    file_type: FileType,
    name: Vec<u8>,
    cookie: u64,
}

impl Taken {
    fn as_entry(&self) -> DirEntry<'_> {
        DirEntry { ino: self.ino, file_type: self.file_type, name: &self.name, cookie: self.cookie }
    }
}

impl FileSystem {
    /// Passes the entries after `cookie`, `.` and `..` included, to `each` until `each` returns false or the directory
    /// ends.
    pub fn readdir(&self, dir: Ino, cookie: u64, each: &mut dyn FnMut(DirEntry<'_>) -> bool) -> Result<(), Errno> {
        self.walk_directory(dir, cookie, |batch| Ok(batch.iter().all(|taken| each(taken.as_entry()))))
    }

    /// As [`FileSystem::readdir`], with attributes, read in the order of the inode numbers: the order of storage.
    pub fn readdir_plus(
        &self,
        dir: Ino,
        cookie: u64,
        each: &mut dyn FnMut(DirEntry<'_>, &Attr) -> bool,
    ) -> Result<(), Errno> {
        self.walk_directory(dir, cookie, |batch| {
            let inodes = self.load_inodes(batch)?;
            let known = batch.iter().zip(&inodes).filter_map(|(taken, inode)| Some((taken, inode.as_ref()?)));
            for (taken, inode) in known {
                if !each(taken.as_entry(), &self.attr(taken.ino, inode)) {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    fn walk_directory(
        &self,
        dir: Ino,
        mut cookie: u64,
        mut hand_out: impl FnMut(&[Taken]) -> Result<bool, Errno>,
    ) -> Result<(), Errno> {
        if cookie == 0 {
            let inode = self.read_tree(|view| load_directory(view, dir))?;
            self.touch(dir, &inode);
        }
        loop {
            let batch = self.take_entries(dir, cookie)?;
            let Some(last) = batch.last() else { return Ok(()) };
            cookie = last.cookie;
            if !hand_out(&batch)? {
                return Ok(());
            }
        }
    }

    fn take_entries(&self, dir: Ino, cookie: u64) -> Result<Vec<Taken>, Errno> {
        self.read_tree(|view| {
            load_directory(view, dir)?;
            let mut taken = Vec::with_capacity(BATCH);
            for (at, name) in [&b"."[..], b".."].into_iter().enumerate().skip(cookie.min(FIRST_ENTRY) as usize) {
                let ino = resolve(view, self.seed(), dir, name)?;
                let cookie = at as u64 + 1;
                taken.push(Taken { ino, file_type: FileType::Directory, name: name.to_vec(), cookie });
            }
            let start = cookie.saturating_sub(FIRST_ENTRY);
            for entry in view.range(key::from(dir, DIRENT, start)).take(BATCH) {
                let entry = entry?;
                let Dirent { ino, file_type, name } = Dirent::decode(entry.body()).map_err(damaged(entry.key()))?;
                let cookie = entry.key().offset.saturating_add(AFTER);
                taken.push(Taken { ino, file_type, name: name.to_vec(), cookie });
            }
            Ok(taken)
        })
    }

    /// The inodes of a batch of entries; `None` for an inode removed meanwhile.
    fn load_inodes(&self, batch: &[Taken]) -> Result<Vec<Option<Inode>>, Errno> {
        let mut order: Vec<usize> = (0..batch.len()).collect();
        order.sort_unstable_by_key(|&index| batch[index].ino);
        let mut inodes = vec![None; batch.len()];
        self.read_tree(|view| {
            for &index in &order {
                if inodes[index].is_none() {
                    inodes[index] = match load_inode(view, batch[index].ino) {
                        Ok(inode) => Some(inode),
                        Err(Failure::Refused(_)) => None,
                        Err(failure) => return Err(failure),
                    };
                }
            }
            Ok(())
        })?;
        Ok(inodes)
    }
}
