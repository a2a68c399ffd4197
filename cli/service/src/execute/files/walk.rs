//! Walking directories of any depth and any number of entries.
//!
//! The walk does not recurse, and its memory is bounded. For each directory on the path the walk keeps the identity,
//! the read position and the last name returned. All directories together keep at most [`KEPT`] entries.
//!
//! A directory is read once, in runs: [`LISTED`] entries are read in stored order, which is not by name, and returned
//! sorted. So a directory of moderate size is sorted by name, and the work is linear in the number of entries.
//! Entries of a run that were not kept are read again, from the start of the run to its end.
//!
//! Between steps a directory is known by its identity. A directory removed meanwhile is treated as empty. If its
//! inode number belongs to another file since a rollback or a receive, the walk fails.

use std::{collections::VecDeque, vec};

use dataset::fs::{Attr, Errno, FileSystem, FileType, Handle};

use super::served::Served;
use crate::execute::job::{Cancel, Job};

/// Maximum number of entries in a run of a recursive walk.
const LISTED: usize = 8 << 10;
/// Maximum number of entries kept for all directories on the path, about 400 bytes each. Also the length of a run in
/// a walk of a single directory.
const KEPT: usize = 4 * LISTED;
/// Number of unsorted entries read at once.
const TAKEN: usize = 256;
/// A long listing checks for cancellation after this many entries.
const GLANCE: usize = 4096;

/// An entry of a directory: its name, and the file.
pub(super) type Named = (Vec<u8>, Attr);

/// A directory on the path of the walk.
struct Level {
    dir: Handle,
    /// Length in bytes of the path of the entries, without their names.
    prefix: usize,
    /// The cookie at which the current run begins.
    from: u64,
    /// The end of the run, once known.
    to: Option<End>,
    /// The last name returned from the run; empty before the first.
    after: Vec<u8>,
    /// The next entries to return, sorted.
    ready: VecDeque<Named>,
    /// The run has entries besides `ready` and must be read again.
    more: bool,
}

/// The end of a run of entries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// At this directory cookie.
    At(u64),
    /// At the end of the directory.
    Last,
}

impl Level {
    fn new(dir: Handle, prefix: usize) -> Level {
        Level { dir, prefix, from: 0, to: None, after: Vec::new(), ready: VecDeque::new(), more: true }
    }

    /// Reads the next entries of the run: up to `most` entries, the first by name. Returns the number of entries
    /// examined.
    fn read(&mut self, fs: &FileSystem, most: usize, cancels: &[Cancel]) -> Result<usize, Errno> {
        let (mut run, mut end, mut seen) = (Vec::new(), End::Last, 0_usize);
        self.more = false;
        let (known, after, more) = (self.to, &self.after, &mut self.more);
        fs.only([self.dir]).readdir_plus(self.dir.ino(), self.from, &mut |entry, attr| {
            if matches!(known, Some(End::At(cookie)) if entry.cookie > cookie) {
                return false;
            }
            seen += 1;
            if entry.name > &after[..] && !is_dot(entry.name) {
                run.push((entry.name.to_vec(), *attr));
            }
            if known.is_none() && run.len() >= most {
                end = End::At(entry.cookie);
                return false;
            }
            // A run can grow after its first read.
            if run.len() >= 2 * most {
                keep_first(&mut run, most);
                *more = true;
            }
            seen % GLANCE != 0 || !cancels.iter().any(Cancel::is_cancelled)
        })?;
        self.to.get_or_insert(end);
        self.more |= run.len() > most;
        keep_first(&mut run, most);
        self.ready = run.into();
        Ok(seen)
    }

    /// Starts the next run; `false` at the end of the directory.
    fn go_on(&mut self) -> bool {
        let Some(End::At(cookie)) = self.to else { return false };
        (self.from, self.to, self.more) = (cookie, None, true);
        self.after.clear();
        true
    }

    /// Drops the entries in `ready`. Returns their number.
    fn forget(&mut self) -> usize {
        self.more |= !self.ready.is_empty();
        std::mem::take(&mut self.ready).len()
    }
}

/// Keeps the first `most` entries by name.
fn keep_first(run: &mut Vec<Named>, most: usize) {
    run.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    run.truncate(most);
}

fn is_dot(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

/// Walks a directory by name (approximately, if the directory is very large), optionally with its subdirectories. A
/// directory comes before its entries.
pub(super) struct Walk<'a> {
    fs: &'a Served,
    recursive: bool,
    cancels: Vec<Cancel>,
    levels: Vec<Level>,
    /// The path of the last entry returned.
    path: Vec<u8>,
    /// Maximum number of entries in a run.
    run: usize,
    /// Number of entries kept by all levels together.
    kept: usize,
    /// Number of entries read so far.
    read: usize,
    /// The last entry returned, if a directory: its entries come next.
    below: Option<Handle>,
}

impl<'a> Walk<'a> {
    /// A walk of the directory `top`, until the job is cancelled.
    pub(super) fn new(fs: &'a Served, top: &Attr, recursive: bool, job: &Job<'_>) -> Walk<'a> {
        Walk {
            fs,
            recursive,
            cancels: job.cancels(),
            levels: Vec::new(),
            path: Vec::new(),
            run: if recursive { LISTED } else { KEPT },
            kept: 0,
            read: 0,
            below: Some(fs.handle(top)),
        }
    }

    /// The path of the last entry returned, relative to the top.
    pub(super) fn path(&self) -> &[u8] {
        &self.path
    }

    /// The next file. After an error or a cancellation, the results are incomplete.
    pub(super) fn next(&mut self) -> Result<Option<Attr>, Errno> {
        if let Some(dir) = self.below.take() {
            if !self.levels.is_empty() {
                self.path.push(b'/');
            }
            self.levels.push(Level::new(dir, self.path.len()));
        }
        loop {
            let is_top = self.levels.len() == 1;
            let Some(level) = self.levels.last_mut() else { return Ok(None) };
            if level.ready.is_empty() && level.more {
                match level.read(self.fs, self.run, &self.cancels) {
                    // The directory was removed.
                    Err(Errno::NOENT) if !is_top => _ = self.levels.pop(),
                    read => {
                        self.read += read?;
                        self.kept += level.ready.len();
                        self.keep_bounded();
                    }
                }
                continue;
            }
            let Some((name, attr)) = level.ready.pop_front() else {
                if !level.go_on() {
                    self.levels.pop();
                }
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

    /// Drops listed entries of the outer directories when there are too many: the outermost are needed last.
    fn keep_bounded(&mut self) {
        let inner = self.levels.len().saturating_sub(1);
        for level in &mut self.levels[..inner] {
            if self.kept <= KEPT {
                return;
            }
            self.kept -= level.forget();
        }
    }
}

/// The entries of one directory in stored order, read in batches.
pub(super) struct Entries {
    dir: Handle,
    /// The next cookie to read; `None` at the end.
    cookie: Option<u64>,
    ready: vec::IntoIter<Named>,
}

impl Entries {
    /// Reads the directory `dir` from its start.
    pub(super) fn new(dir: Handle) -> Entries {
        Entries { dir, cookie: Some(0), ready: Vec::new().into_iter() }
    }

    /// The next entry; `None` at the end.
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

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, sync::Arc};

    use dataset::{
        admin::Datasets,
        fs::{Caller, ROOT},
    };
    use pool::{
        admin::{CreateOptions, create},
        device::MemoryDevice,
        env::SeededEnv,
    };

    use super::*;

    const CALLER: Caller = Caller { uid: 0, gid: 0, umask: 0 };

    /// The file system of a new pool in memory.
    fn files() -> (Arc<Datasets>, Served) {
        let options = CreateOptions::new("tank");
        let device = Arc::new(MemoryDevice::new("disk", 128 << 20));
        let pool = create(vec![device], &options, Arc::new(SeededEnv::new(1))).unwrap();
        let name = "tank".parse().unwrap();
        let datasets = Datasets::create_root(pool.engine().clone(), name, (0, 0)).unwrap();
        let fs = datasets.open_dataset(&datasets.pool_name()).unwrap().fs().clone();
        (datasets, Served::new(fs, None))
    }

    fn make(fs: &FileSystem, name: &str) {
        fs.create(&CALLER, ROOT, name.as_bytes(), 0o600, true).unwrap();
    }

    /// The names, in order, and the number of entries read; `meanwhile` is called before each.
    fn names(fs: &Served, run: usize, recursive: bool, mut meanwhile: impl FnMut(usize)) -> (Vec<String>, usize) {
        let mut ignore = |_| Ok(None);
        let job = Job::new(Vec::new(), &mut ignore);
        let mut walk = Walk { run, ..Walk::new(fs, &fs.getattr(ROOT).unwrap(), recursive, &job) };
        let mut names = Vec::new();
        loop {
            meanwhile(names.len());
            if walk.next().unwrap().is_none() {
                return (names, walk.read);
            }
            names.push(String::from_utf8(walk.path().to_vec()).unwrap());
        }
    }

    #[test]
    fn a_large_directory_is_read_once_in_sorted_runs() {
        let (_datasets, fs) = files();
        let made: BTreeSet<String> = (0..1000).map(|number| format!("{number:04}")).collect();
        made.iter().for_each(|name| make(&fs, name));
        let (listed, read) = names(&fs, 2000, false, |_| {});
        assert!(listed.iter().eq(&made), "one run is sorted");
        assert!(read < 1010, "{read}");
        let (listed, read) = names(&fs, 100, false, |_| {});
        assert_eq!(listed.len(), 1000);
        assert!(listed.chunks(100).all(<[String]>::is_sorted));
        assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), made);
        assert!(read < 1010, "{read} entries were read for 1000");
    }

    #[test]
    fn what_stays_in_a_directory_that_changes_is_listed_once() {
        let (_datasets, fs) = files();
        (0..300).for_each(|number| make(&fs, &format!("{number}")));
        for directory in 0..10 {
            fs.mkdir(&CALLER, ROOT, format!("d{directory}").as_bytes(), 0o700).unwrap();
        }
        let meanwhile = |listed: usize| {
            if listed < 100 {
                make(&fs, &format!("new {listed}"));
                fs.unlink(ROOT, format!("{}", 200 + listed).as_bytes()).unwrap();
            }
        };
        let (listed, _) = names(&fs, 20, true, meanwhile);
        let once: BTreeSet<&String> = listed.iter().collect();
        assert_eq!(once.len(), listed.len());
        let stays = (0..200).map(|number| format!("{number}")).chain((0..10).map(|number| format!("d{number}")));
        stays.for_each(|name| assert!(once.contains(&name), "{name}"));
    }

    #[test]
    fn what_was_forgotten_of_a_run_is_read_again() {
        let (_datasets, fs) = files();
        (0..50).for_each(|number| make(&fs, &format!("{number:02}")));
        let mut level = Level::new(fs.handle(&fs.getattr(ROOT).unwrap()), 0);
        let mut listed = Vec::new();
        loop {
            if level.ready.is_empty() && level.more {
                level.read(&fs, 20, &[]).unwrap();
            }
            match level.ready.pop_front() {
                Some((name, _)) => {
                    level.after.clone_from(&name);
                    listed.push(name);
                }
                None if level.go_on() => continue,
                None => break,
            }
            if listed.len() % 3 == 0 {
                level.forget();
                // The run grows beyond its maximum.
                make(&fs, &format!("new {}", listed.len()));
                make(&fs, &format!("more {}", listed.len()));
            }
            assert!(listed.len() < 500);
        }
        let once: BTreeSet<&Vec<u8>> = listed.iter().collect();
        assert_eq!(once.len(), listed.len());
        (0..50).for_each(|number| assert!(once.contains(&format!("{number:02}").into_bytes()), "{number}"));
    }
}
