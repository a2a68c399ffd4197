//! Operations of processes in the common folder.
//!
//! ```text
//! 0 .. 3     folders of self-describing files: a reader finds each file whole, whatever process moves it
//! nest-*     folders that are made and removed
//! log        records appended by all processes
//! counter    a number that all processes increase under a lock
//! board      a slot of a few bytes for each process, several to a page, written through maps and writes
//! ```
//!
//! A name may be absent, or taken, at any instant: the resulting error is as good as success. All remaining errors are
//! findings.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use rand::{Rng, SeedableRng, rngs::SmallRng, seq::IndexedRandom};
use rustix::{
    fs::{CWD, FlockOperation, RenameFlags},
    io::Errno,
};
use vmap::MapMut;

use crate::{Outcome, content};

const FOLDERS: u64 = 4;
/// The number of names in a folder.
const NAMES: u64 = 12;
/// The bytes of a log record: process and sequence number, eight bytes each.
const RECORD: usize = 16;
/// A slot of the board, in bytes.
const SLOT: usize = 200;

type Operation = fn(&mut Commons) -> Outcome<()>;

const OPERATIONS: [(u32, Operation); 11] = [
    (6, Commons::publish),
    (6, Commons::inspect),
    (3, Commons::link),
    (4, Commons::move_one),
    (2, Commons::take),
    (3, Commons::unlink),
    (3, Commons::list),
    (2, Commons::nest),
    (5, Commons::append),
    (3, Commons::count),
    (4, Commons::post),
];

/// A process in the common folder.
pub(crate) struct Commons {
    root: PathBuf,
    /// A private name, from which files are published.
    staging: PathBuf,
    number: u64,
    dice: SmallRng,
    log: File,
    appended: u64,
    counted: u64,
    slot: [u8; SLOT],
}

/// A process's results, for comparison with the common files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    /// The number of records appended.
    pub(crate) appended: u64,
    /// The number of increments of the counter.
    pub(crate) counted: u64,
}

/// Makes the common folder for so many processes.
pub(crate) fn prepare(root: &Path, processes: u64) -> io::Result<()> {
    fs::create_dir(root)?;
    (0..FOLDERS).try_for_each(|folder| fs::create_dir(root.join(folder.to_string())))?;
    fs::write(root.join("log"), [])?;
    fs::write(root.join("counter"), 0u64.to_le_bytes())?;
    fs::write(root.join("board"), vec![0; SLOT * processes as usize])
}

/// Judges the common folder after all processes have ended: every file is whole, and no record or increment is missing.
pub(crate) fn judge(root: &Path, accounts: &[Account]) -> Outcome<()> {
    let failed = |error: io::Error| format!("the commons: {error}");
    for folder in 0..FOLDERS {
        for entry in fs::read_dir(root.join(folder.to_string())).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let file = fs::read(&path).map_err(failed)?;
            content::verify(&file).map_err(|problem| format!("{}: {problem}", path.display()))?;
        }
    }
    let counter = fs::read(root.join("counter")).map_err(failed)?;
    let counted: u64 = accounts.iter().map(|account| account.counted).sum();
    if counter != counted.to_le_bytes() {
        return Err(format!("the counter is {counter:?} after {counted} increments"));
    }
    judge_log(&fs::read(root.join("log")).map_err(failed)?, accounts)
}

/// Checks that the log has just each process's records, once and in order.
fn judge_log(log: &[u8], accounts: &[Account]) -> Outcome<()> {
    let mut next = vec![0; accounts.len()];
    let (records, rest) = log.as_chunks::<RECORD>();
    for (at, record) in records.iter().enumerate() {
        let (who, which) = record.split_at(RECORD / 2);
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        match next.get_mut(word(who) as usize) {
            Some(wanted) if *wanted == word(which) => *wanted += 1,
            _ => return Err(format!("record {at} of the log is number {} of process {}", word(which), word(who))),
        }
    }
    let appended: Vec<u64> = accounts.iter().map(|account| account.appended).collect();
    if next == appended && rest.is_empty() {
        Ok(())
    } else {
        Err(format!("the log has {next:?} records and {} bytes, and {appended:?} were appended", rest.len()))
    }
}

/// Success, or an error that another process may have caused.
fn unless_others<T>(what: &str, path: &Path, found: Result<T, Errno>, by_others: &[Errno]) -> Outcome<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if by_others.contains(&error) => Ok(None),
        Err(error) => Err(format!("{what} {}: {error}", path.display())),
    }
}

fn failed(what: &str, path: &Path) -> impl FnOnce(io::Error) -> String {
    move |error| format!("{what} {}: {error}", path.display())
}

impl Commons {
    /// The process of this number in the common folder.
    pub(crate) fn enter(root: PathBuf, number: u64, seed: u64) -> Outcome<Commons> {
        let path = root.join("log");
        let log = OpenOptions::new().append(true).open(&path).map_err(failed("open", &path))?;
        let staging = root.join(format!("staging-{number}"));
        let dice = SmallRng::seed_from_u64(seed);
        Ok(Commons { root, staging, number, dice, log, appended: 0, counted: 0, slot: [0; SLOT] })
    }

    /// Does one random operation.
    pub(crate) fn act(&mut self) -> Outcome<()> {
        let (_, operation) = OPERATIONS.choose_weighted(&mut self.dice, |(weight, _)| *weight).expect("weights");
        operation(self)
    }

    /// The process's results.
    pub(crate) fn account(&self) -> Account {
        Account { appended: self.appended, counted: self.counted }
    }

    fn any_name(&mut self) -> PathBuf {
        let (folder, name) = (self.dice.random_range(0..FOLDERS), self.dice.random_range(0..NAMES));
        self.root.join(folder.to_string()).join(format!("file-{name}"))
    }

    fn publish(&mut self) -> Outcome<()> {
        let file = content::file(&mut self.dice);
        let path = self.any_name();
        let mut staged = File::create(&self.staging).map_err(failed("create", &self.staging))?;
        // In pieces, for writes of many sizes and places at the same time.
        for piece in file.chunks(self.dice.random_range(1000..50_000)) {
            staged.write_all(piece).map_err(failed("write", &self.staging))?;
        }
        if self.dice.random_bool(0.05) {
            staged.sync_all().map_err(failed("sync", &self.staging))?;
        }
        fs::rename(&self.staging, &path).map_err(failed("publish", &path))
    }

    fn inspect(&mut self) -> Outcome<()> {
        let path = self.any_name();
        let opened = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened.map_err(failed("open", &path))?,
        };
        verify(opened, &path)
    }

    fn link(&mut self) -> Outcome<()> {
        let (from, to) = (self.any_name(), self.any_name());
        unless_others("link", &from, rustix::fs::link(&from, &to), &[Errno::NOENT, Errno::EXIST]).map(drop)
    }

    fn move_one(&mut self) -> Outcome<()> {
        let (from, to) = (self.any_name(), self.any_name());
        let flags = [RenameFlags::empty(), RenameFlags::NOREPLACE, RenameFlags::EXCHANGE][self.dice.random_range(0..3)];
        let moved = rustix::fs::renameat_with(CWD, &from, CWD, &to, flags);
        unless_others("rename", &from, moved, &[Errno::NOENT, Errno::EXIST]).map(drop)
    }

    /// Takes a file out of the common folder: no other process can reach the file now, except under a second name.
    fn take(&mut self) -> Outcome<()> {
        let path = self.any_name();
        if unless_others("take", &path, rustix::fs::rename(&path, &self.staging), &[Errno::NOENT])?.is_none() {
            return Ok(());
        }
        verify(File::open(&self.staging).map_err(failed("open", &path))?, &path)?;
        fs::remove_file(&self.staging).map_err(failed("remove", &self.staging))
    }

    fn unlink(&mut self) -> Outcome<()> {
        let path = self.any_name();
        unless_others("unlink", &path, rustix::fs::unlink(&path), &[Errno::NOENT]).map(drop)
    }

    /// Checks a listing under concurrent changes: each file is named once at most, and only names in use are listed.
    fn list(&mut self) -> Outcome<()> {
        let folder = self.root.join(self.dice.random_range(0..FOLDERS).to_string());
        let entries = fs::read_dir(&folder).map_err(failed("list", &folder))?;
        let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        let mut names = names.collect::<io::Result<Vec<String>>>().map_err(failed("list", &folder))?;
        names.sort_unstable();
        let is_ours = |name: &String| name.strip_prefix("file-").is_some_and(|number| number.parse::<u64>().is_ok());
        let is_right = names.iter().all(is_ours) && names.is_sorted_by(|one, two| one < two);
        if is_right { Ok(()) } else { Err(format!("list {}: {names:?}", folder.display())) }
    }

    /// Makes or removes a folder with a file.
    fn nest(&mut self) -> Outcome<()> {
        let folder = self.root.join(format!("nest-{}", self.dice.random_range(0..3)));
        let file = folder.join(format!("egg-{}", self.dice.random_range(0..2)));
        if self.dice.random_bool(0.5) {
            unless_others("mkdir", &folder, rustix::fs::mkdir(&folder, 0o755.into()), &[Errno::EXIST])?;
            let egg = rustix::fs::symlink("nowhere", &file);
            unless_others("symlink", &file, egg, &[Errno::EXIST, Errno::NOENT]).map(drop)
        } else {
            unless_others("unlink", &file, rustix::fs::unlink(&file), &[Errno::NOENT])?;
            unless_others("rmdir", &folder, rustix::fs::rmdir(&folder), &[Errno::NOENT, Errno::NOTEMPTY]).map(drop)
        }
    }

    fn append(&mut self) -> Outcome<()> {
        let record: Vec<u8> = [self.number, self.appended].into_iter().flat_map(u64::to_le_bytes).collect();
        let written = self.log.write(&record).map_err(|error| format!("append: {error}"))?;
        self.appended += 1;
        if written == RECORD { Ok(()) } else { Err(format!("{written} bytes of a record were appended")) }
    }

    /// Increases the number, holding both kinds of locks.
    fn count(&mut self) -> Outcome<()> {
        let path = self.root.join("counter");
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(failed("open", &path))?;
        let locked = rustix::fs::flock(&file, FlockOperation::LockExclusive)
            .and_then(|()| rustix::fs::fcntl_lock(&file, FlockOperation::LockExclusive));
        locked.map_err(|error| format!("lock {}: {error}", path.display()))?;
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, 0).map_err(failed("read", &path))?;
        let more = u64::from_le_bytes(bytes) + 1;
        file.write_all_at(&more.to_le_bytes(), 0).map_err(failed("write", &path))?;
        self.counted += 1;
        Ok(())
    }

    /// Writes its slot in one way and reads it in another, while the rest of the page is being written by other
    /// processes.
    fn post(&mut self) -> Outcome<()> {
        let path = self.root.join("board");
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(failed("open", &path))?;
        let start = self.number as usize * SLOT;
        let mapped = MapMut::with_options().write().offset(start).len(SLOT).map(&file);
        let mut map = mapped.map_err(|error| format!("map {}: {error}", path.display()))?;
        if map[..] != self.slot {
            return Err(format!("the slot of process {} has changed", self.number));
        }
        self.dice.fill(&mut self.slot);
        let mut found = [0; SLOT];
        if self.dice.random_bool(0.5) {
            map.copy_from_slice(&self.slot);
            file.read_exact_at(&mut found, start as u64).map_err(failed("read", &path))?;
        } else {
            file.write_all_at(&self.slot, start as u64).map_err(failed("write", &path))?;
            found.copy_from_slice(&map);
        }
        let is_right = found == self.slot;
        if is_right { Ok(()) } else { Err(format!("the slot of process {} is not what it wrote", self.number)) }
    }
}

fn verify(mut opened: File, path: &Path) -> Outcome<()> {
    let mut file = Vec::new();
    opened.read_to_end(&mut file).map_err(failed("read", path))?;
    content::verify(&file).map_err(|problem| format!("{}: {problem}", path.display()))
}
