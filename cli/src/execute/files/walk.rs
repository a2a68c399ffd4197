//! Going through directories, however deep they are and however many entries they have.
//!
//! Nothing here recurses, and what is kept in memory is bounded: for each directory on the way down its identity and the
//! name that was handed out last, and of all of them together [`KEPT`] entries. What is not kept is listed again.
//!
//! A directory is kept from one step to the next by its identity. One that was removed meanwhile has no entries any more;
//! one whose number belongs to another file since a rollback or a receive is an error.

use std::{
    collections::{BinaryHeap, VecDeque},
    vec,
};

use dataset::fs::{Attr, Errno, FileSystem, FileType, Handle};

use super::served::Served;
use crate::execute::job::{Cancel, Job};

/// One listing of a directory keeps at most so many entries, the first ones by name.
const LISTED: usize = 8 << 10;
/// All directories on the way down keep at most so many, about 400 bytes each.
const KEPT: usize = 4 * LISTED;
/// Entries that are not sorted are taken by so many.
const TAKEN: usize = 256;
/// A long listing looks after so many entries whether it is still wanted.
const GLANCE: usize = 4096;

/// An entry of a directory: its name, and the file.
pub(super) type Named = (Vec<u8>, Attr);

/// An entry in the order of names.
struct ByName(Named);

impl PartialEq for ByName {
    fn eq(&self, other: &ByName) -> bool {
        self.0.0 == other.0.0
    }
}

impl Eq for ByName {}

impl PartialOrd for ByName {
    fn partial_cmp(&self, other: &ByName) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByName {
    fn cmp(&self, other: &ByName) -> std::cmp::Ordering {
        self.0.0.cmp(&other.0.0)
    }
}

/// A directory that is gone through.
struct Level {
    dir: Handle,
    /// How long the path of its entries is without their names, in bytes.
    prefix: usize,
    /// The name that was handed out last; empty before the first.
    after: Vec<u8>,
    /// The entries that come next.
    ready: VecDeque<Named>,
    /// Whether there may be more behind them.
    more: bool,
}

/// Everything in a directory by name, and if that is wanted below it, each directory before what is in it.
pub(super) struct Walk<'a> {
    fs: &'a Served,
    recursive: bool,
    cancels: Vec<Cancel>,
    levels: Vec<Level>,
    /// The path of what was handed out last.
    path: Vec<u8>,
    /// How many entries all levels keep.
    kept: usize,
    /// The directory that was handed out last: what is in it comes next.
    below: Option<Handle>,
}

impl<'a> Walk<'a> {
    /// Of the directory `top`, until the job is cancelled.
    pub(super) fn new(fs: &'a Served, top: &Attr, recursive: bool, job: &Job<'_>) -> Walk<'a> {
        let below = Some(fs.handle(top));
        Walk { fs, recursive, cancels: job.cancels(), levels: Vec::new(), path: Vec::new(), kept: 0, below }
    }

    /// The path of what was handed out last, from the top.
    pub(super) fn path(&self) -> &[u8] {
        &self.path
    }

    /// The next file. What follows after an error, or after the job was cancelled, is not complete.
    pub(super) fn next(&mut self) -> Result<Option<Attr>, Errno> {
        if let Some(dir) = self.below.take() {
            if !self.levels.is_empty() {
                self.path.push(b'/');
            }
            let (prefix, after, ready) = (self.path.len(), Vec::new(), VecDeque::new());
            self.levels.push(Level { dir, prefix, after, ready, more: true });
        }
        loop {
            let is_top = self.levels.len() == 1;
            let Some(level) = self.levels.last_mut() else { return Ok(None) };
            if level.ready.is_empty() && level.more {
                match list(self.fs, level, &self.cancels) {
                    Err(Errno::NOENT) if !is_top => level.more = false,
                    listed => listed?,
                }
                self.kept += level.ready.len();
                self.keep_bounded();
                continue;
            }
            let Some((name, attr)) = level.ready.pop_front() else {
                self.levels.pop();
                continue;
            };
            self.kept -= 1;
            self.path.truncate(level.prefix);
            self.path.extend_from_slice(&name);
            level.after = name;
            if self.recursive && attr.file_type == FileType::Directory {
                self.below = Some(self.fs.handle(&attr));
            }
            return Ok(Some(attr));
        }
    }

    /// Forgets what the outer directories have listed, if it is too much: it is needed last.
    fn keep_bounded(&mut self) {
        let inner = self.levels.len().saturating_sub(1);
        for level in &mut self.levels[..inner] {
            if self.kept <= KEPT {
                return;
            }
            if !level.ready.is_empty() {
                self.kept -= level.ready.len();
                (level.ready, level.more) = (VecDeque::new(), true);
            }
        }
    }
}

/// Lists what comes next in a directory.
fn list(fs: &FileSystem, level: &mut Level, cancels: &[Cancel]) -> Result<(), Errno> {
    let mut first: BinaryHeap<ByName> = BinaryHeap::new();
    let (mut more, mut seen) = (false, 0_usize);
    fs.only([level.dir]).readdir_plus(level.dir.ino(), 0, &mut |entry, attr| {
        seen += 1;
        let is_wanted = entry.name > &level.after[..] && !is_dot(entry.name);
        let is_early = || first.len() < LISTED || first.peek().is_some_and(|last| entry.name < &last.0.0[..]);
        if is_wanted && is_early() {
            first.push(ByName((entry.name.to_vec(), *attr)));
        }
        more |= is_wanted && first.len() >= LISTED;
        if first.len() > LISTED {
            first.pop();
        }
        seen % GLANCE != 0 || !cancels.iter().any(Cancel::is_cancelled)
    })?;
    level.more = more;
    level.ready = first.into_sorted_vec().into_iter().map(|ByName(named)| named).collect();
    Ok(())
}

fn is_dot(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

/// The entries of one directory in the order that they are stored in, some at a time.
pub(super) struct Entries {
    dir: Handle,
    /// Where reading goes on; `None` behind the last.
    cookie: Option<u64>,
    ready: vec::IntoIter<Named>,
}

impl Entries {
    /// Of this directory.
    pub(super) fn new(dir: Handle) -> Entries {
        Entries { dir, cookie: Some(0), ready: Vec::new().into_iter() }
    }

    /// The next one.
    pub(super) fn next(&mut self, fs: &FileSystem) -> Result<Option<Named>, Errno> {
        loop {
            if let Some(named) = self.ready.next() {
                return Ok(Some(named));
            }
            let Some(mut cookie) = self.cookie else { return Ok(None) };
            let mut taken = Vec::with_capacity(TAKEN);
            let mut is_full = false;
            fs.only([self.dir]).readdir_plus(self.dir.ino(), cookie, &mut |entry, attr| {
                if !is_dot(entry.name) {
                    taken.push((entry.name.to_vec(), *attr));
                }
                cookie = entry.cookie;
                is_full = taken.len() >= TAKEN;
                !is_full
            })?;
            self.cookie = is_full.then_some(cookie);
            self.ready = taken.into_iter();
        }
    }
}
