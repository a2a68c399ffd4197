//! The directories of this machine on the path of a copy, from the top to the deepest.
//!
//! A tree may be deeper than the limit of open files, and its paths longer than the system accepts. So only the
//! deepest directories stay open; of the others only the identity is kept. On the way back, such a directory is
//! opened through the `..` of its child and must have the recorded identity. The check fails if another process has
//! moved the child meanwhile.
//!
//! Names to be copied later wait here, level by level, so memory is bounded by the depth and the waiting names.

use std::{
    cmp::Ordering,
    collections::VecDeque,
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use dataset::fs::Errno;

use super::handle::Handle;

/// Maximum number of open directories below the top.
const WINDOW: usize = 32;
/// Maximum size of the waiting names, in bytes: some millions of directories.
const WAITING: usize = 256 << 20;
/// Length, in bytes, of each end of a long path in a message.
const SHOWN: usize = 1000;

/// A path of directories, with `L` for each directory and `W` for each waiting name.
pub(super) struct Trail<L, W> {
    top: Handle,
    levels: Vec<Level<L, W>>,
    /// Handles of the deepest directories below the top, shallowest first.
    open: VecDeque<Handle>,
    path: Vec<u8>,
    waiting: usize,
    /// Directories with a remembered place: index of the parent in this list, and name.
    places: Vec<(usize, Vec<u8>)>,
}

struct Level<L, W> {
    identity: (u64, u64),
    /// Length of the parent's path, in bytes.
    above: usize,
    what: L,
    waiting: Vec<(Vec<u8>, W)>,
    place: Option<usize>,
}

impl<L, W> Trail<L, W> {
    /// A trail that starts in a directory with this path.
    pub(super) fn new(top: Handle, path: &Path, what: L) -> Result<Trail<L, W>, Errno> {
        let path = path.as_os_str().as_bytes();
        let path = path.strip_suffix(b"/.").or(path.strip_suffix(b"/")).unwrap_or(path).to_vec();
        let identity = top.meta()?.identity;
        let first = Level { identity, above: path.len(), what, waiting: Vec::new(), place: Some(0) };
        let (levels, places) = (vec![first], vec![(0, Vec::new())]);
        Ok(Trail { top, levels, open: VecDeque::new(), path, waiting: 0, places })
    }

    /// The deepest directory, always open.
    pub(super) fn dir(&self) -> &Handle {
        self.open.back().unwrap_or(&self.top)
    }

    /// The data kept for the deepest directory.
    pub(super) fn what(&self) -> &L {
        &self.last().what
    }

    /// The path of `name` in the deepest directory, for messages; a long path is shortened to both ends.
    pub(super) fn shown(&self, name: &[u8]) -> PathBuf {
        let mut path = self.path.clone();
        if !name.is_empty() || path.is_empty() {
            path.extend([b"/", name].concat());
        }
        if path.len() > 2 * SHOWN {
            path = [&path[..SHOWN], b"/.../", &path[path.len() - SHOWN..]].concat();
        }
        PathBuf::from(OsString::from_vec(path))
    }

    /// Descends into the directory `dir`, an entry `name` of the deepest directory.
    pub(super) fn enter(&mut self, dir: Handle, name: &[u8], what: L) -> Result<(), Errno> {
        let identity = dir.meta()?.identity;
        let above = self.path.len();
        self.path.extend([b"/", name].concat());
        self.levels.push(Level { identity, above, what, waiting: Vec::new(), place: None });
        self.open.push_back(dir);
        if self.open.len() > WINDOW {
            self.open.pop_front();
        }
        Ok(())
    }

    /// Goes back up, and returns the directory left; `None` at the start of the trail. The parent is open before the
    /// caller can give the left directory a mode that denies access.
    pub(super) fn leave(&mut self) -> Result<Option<(Handle, L)>, Errno> {
        let Some(left) = self.open.pop_back() else { return Ok(None) };
        let Some(level) = self.levels.pop() else { return Ok(None) };
        self.path.truncate(level.above);
        if self.open.is_empty() && self.levels.len() > 1 {
            let above = Handle::directory(&left, OsStr::new(".."))?;
            if above.meta()?.identity != self.last().identity {
                return Err(Errno::STALE);
            }
            self.open.push_back(above);
        }
        Ok(Some((left, level.what)))
    }

    /// The directory in which the trail starts.
    pub(super) fn end(mut self) -> (Handle, Option<L>) {
        (self.top, self.levels.pop().map(|level| level.what))
    }

    /// Queues a name of the deepest directory; on error, returns the reason.
    pub(super) fn wait(&mut self, name: Vec<u8>, what: W) -> Result<(), &'static str> {
        self.waiting += size::<W>(&name);
        if self.waiting > WAITING {
            return Err("too many directories wait to be copied");
        }
        self.last_mut().waiting.push((name, what));
        Ok(())
    }

    /// Sorts the waiting names of the deepest directory; [`Trail::next`] returns the first in `order`.
    pub(super) fn arrange(&mut self, order: impl Fn(&(Vec<u8>, W), &(Vec<u8>, W)) -> Ordering) {
        self.last_mut().waiting.sort_by(|one, other| order(other, one));
    }

    /// Takes the next waiting name of the deepest directory.
    pub(super) fn next(&mut self) -> Option<(Vec<u8>, W)> {
        let next = self.last_mut().waiting.pop()?;
        self.waiting -= size::<W>(&next.0);
        Some(next)
    }

    /// The place of the deepest directory, an argument for [`Trail::find_at`].
    pub(super) fn place(&mut self) -> usize {
        let known = self.levels.iter().rposition(|level| level.place.is_some()).unwrap_or(0);
        let mut place = self.levels[known].place.unwrap_or(0);
        for at in known + 1..self.levels.len() {
            let end = self.levels.get(at + 1).map_or(self.path.len(), |below| below.above);
            self.places.push((place, self.path[self.levels[at].above + 1..end].to_vec()));
            place = self.places.len() - 1;
            self.levels[at].place = Some(place);
        }
        place
    }

    /// Opens `name` in the directory of a place, without following any link.
    pub(super) fn find_at(&self, place: usize, name: &[u8]) -> Result<Handle, Errno> {
        if self.last().place == Some(place) {
            return Handle::find(self.dir(), OsStr::from_bytes(name));
        }
        let mut names = Vec::new();
        let mut at = place;
        while at != 0 {
            names.push(&self.places[at].1);
            at = self.places[at].0;
        }
        let mut dir: Option<Handle> = None;
        for name in names.into_iter().rev() {
            dir = Some(Handle::find(dir.as_ref().unwrap_or(&self.top), OsStr::from_bytes(name))?);
        }
        Handle::find(dir.as_ref().unwrap_or(&self.top), OsStr::from_bytes(name))
    }

    fn last(&self) -> &Level<L, W> {
        self.levels.last().expect("the first directory is never left")
    }

    fn last_mut(&mut self) -> &mut Level<L, W> {
        self.levels.last_mut().expect("the first directory is never left")
    }
}

/// Memory of a waiting name, in bytes.
fn size<W>(name: &[u8]) -> usize {
    name.len() + size_of::<(Vec<u8>, W)>()
}
