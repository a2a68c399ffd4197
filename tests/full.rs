//! A full pool under many writers, through the real programs and a real mount, and emptied again.
//!
//! Writers of every kind work side by side until each was refused several times, with `ENOSPC` and no other error. A
//! reservation still has room when all else is full; quotas refuse with `EDQUOT`. Then the service is killed, the full
//! pool is imported, and all acknowledged data is there. Finally, every operation that frees space must work on a full
//! pool: deleting, truncating, rolling back, destroying snapshots and datasets. The space freed by each is filled again
//! before the next, so each is tried on a full pool.

mod lab;

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    time::{Duration, Instant},
};

use lab::{Lab, can_mount, noise};
use rustix::io::Errno;

/// How often each writer is refused before the pool counts as full.
const REFUSALS: u64 = 4;
/// The limit on waiting for the refusals.
const PATIENCE: Duration = Duration::from_secs(300);
const MIB: u64 = 1 << 20;
const RESERVED: u64 = 8 * MIB;
const QUOTA: u64 = 4 * MIB;
/// A quota counts nodes when they are written: the paths dirtied by the last changes may be added.
const NODES: u64 = 128 << 10;
/// The tolerance for "as before". Meanwhile the space layer has described each of the 62 chunks, in three copies of a
/// sector or more: three quarters of a megabyte. The rest is for the history and the catalogue.
const SLACK: u64 = MIB;

/// The operations that free space.
const WAYS: [&str; 5] = ["removing", "truncating", "rolling-back", "destroying-a-snapshot", "destroying-a-data-set"];

/// A kind of work: a series of tasks, done in order, by number from 1.
struct Kind {
    name: &'static str,
    /// Does a task, and returns once the result is durable.
    act: fn(&Path, u64) -> io::Result<()>,
    /// Removes the remains of a refused task.
    clear: fn(&Path, u64) -> io::Result<()>,
    /// Asserts that the results of all tasks up to this number are there.
    check: fn(&Path, u64),
}

const KINDS: [Kind; 6] = [
    Kind { name: "small", act: write_small, clear: remove_file, check: check_small },
    Kind { name: "append", act: append, clear: cut, check: check_appended },
    Kind { name: "big", act: write_big, clear: remove_file, check: check_big },
    Kind { name: "overwrite", act: overwrite, clear: |_, _| Ok(()), check: check_overwritten },
    Kind { name: "names", act: make_names, clear: remove_names, check: check_names },
    Kind { name: "churn", act: replace, clear: give_up, check: check_replaced },
];

fn file(home: &Path, number: u64) -> PathBuf {
    home.join(format!("f{number}"))
}

fn write_durably(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Ignores that a file does not exist.
fn if_there(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn remove_file(home: &Path, number: u64) -> io::Result<()> {
    if_there(fs::remove_file(file(home, number)))
}

/// A small file for every number.
fn small(number: u64) -> Vec<u8> {
    noise(100 + (number as usize * 977) % 12_000, number)
}

fn write_small(home: &Path, number: u64) -> io::Result<()> {
    write_durably(&file(home, number), &small(number))
}

fn check_small(home: &Path, count: u64) {
    (1..=count).for_each(|number| assert!(fs::read(file(home, number)).unwrap() == small(number), "small {number}"));
}

/// A file of about a megabyte for every number.
fn big(number: u64) -> Vec<u8> {
    noise(700_000 + (number as usize * 99_991) % 900_000, number)
}

fn write_big(home: &Path, number: u64) -> io::Result<()> {
    write_durably(&file(home, number), &big(number))
}

fn check_big(home: &Path, count: u64) {
    (1..=count).for_each(|number| assert!(fs::read(file(home, number)).unwrap() == big(number), "big {number}"));
}

/// One file, which grows by a record for every number.
const RECORD: usize = 6000;

fn append(home: &Path, number: u64) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(home.join("journal"))?;
    file.write_all(&noise(RECORD, number))?;
    file.sync_all()
}

fn cut(home: &Path, number: u64) -> io::Result<()> {
    let journal = OpenOptions::new().write(true).open(home.join("journal"));
    if_there(journal.and_then(|file| file.set_len((number - 1) * RECORD as u64)))
}

fn check_appended(home: &Path, count: u64) {
    let content = fs::read(home.join("journal")).unwrap();
    assert!(content.len() as u64 >= count * RECORD as u64, "{} bytes of {count} records", content.len());
    for (record, number) in content.chunks(RECORD).zip(1..=count) {
        assert!(record == noise(RECORD, number), "record {number}");
    }
}

/// One file of constant size: the first number makes it, each later number rewrites a piece.
const PIECES: u64 = 32;
const PIECE: usize = 64 << 10;

fn piece_of(number: u64) -> u64 {
    number * 7 % PIECES
}

fn overwrite(home: &Path, number: u64) -> io::Result<()> {
    let path = home.join("database");
    if number == 1 {
        return write_durably(&path, &noise(PIECES as usize * PIECE, 1));
    }
    let file = OpenOptions::new().write(true).open(path)?;
    file.write_all_at(&noise(PIECE, number), piece_of(number) * PIECE as u64)?;
    file.sync_data()
}

/// The piece after the last may have been written in part.
fn check_overwritten(home: &Path, count: u64) {
    let found = fs::read(home.join("database")).unwrap();
    let mut wanted = noise(PIECES as usize * PIECE, 1);
    let put = |content: &mut Vec<u8>, number| {
        content[piece_of(number) as usize * PIECE..][..PIECE].copy_from_slice(&noise(PIECE, number));
    };
    (2..=count).for_each(|number| put(&mut wanted, number));
    let mut next = wanted.clone();
    put(&mut next, count + 1);
    for (index, page) in found.chunks(4096).enumerate() {
        let place = index * 4096..index * 4096 + page.len();
        assert!(page == &wanted[place.clone()] || page == &next[place], "page {index} after {count} pieces");
    }
    assert_eq!(found.len(), wanted.len());
}

/// A directory for every number, renamed into place when it has content.
fn make_names(home: &Path, number: u64) -> io::Result<()> {
    let (new, named) = (home.join(format!("new-{number}")), home.join(format!("named-{number}")));
    fs::create_dir(&new)?;
    write_durably(&new.join("file"), &number.to_le_bytes())?;
    fs::rename(&new, &named)?;
    File::open(named)?.sync_all()
}

fn remove_names(home: &Path, number: u64) -> io::Result<()> {
    ["new", "named"].iter().try_for_each(|name| if_there(fs::remove_dir_all(home.join(format!("{name}-{number}")))))
}

fn check_names(home: &Path, count: u64) {
    for number in 1..=count {
        assert_eq!(fs::read(home.join(format!("named-{number}/file"))).unwrap(), number.to_le_bytes());
    }
}

/// A few files, replaced in turn. After each refusal another file is deleted, so that a full pool is not at rest.
const REPLACED: u64 = 8;

fn replace(home: &Path, number: u64) -> io::Result<()> {
    let content = [&number.to_le_bytes()[..], &big(number)].concat();
    write_durably(&home.join("new"), &content)?;
    fs::rename(home.join("new"), file(home, number % REPLACED))
}

fn give_up(home: &Path, number: u64) -> io::Result<()> {
    if_there(fs::remove_file(home.join("new")))?;
    // The number stays the same until success.
    (number..number + REPLACED)
        .map(|other| file(home, other % REPLACED))
        .find(|path| path.exists())
        .map_or(Ok(()), fs::remove_file)
}

fn check_replaced(home: &Path, _count: u64) {
    for path in (0..REPLACED).map(|number| file(home, number)).filter(|path| path.exists()) {
        let content = fs::read(&path).unwrap();
        let (number, rest) = content.split_first_chunk::<8>().expect("it is whole");
        assert!(rest == big(u64::from_le_bytes(*number)), "{}", path.display());
    }
}

/// A writer with a folder of its own.
struct Writer {
    kind: &'static Kind,
    home: PathBuf,
    acknowledged: AtomicU64,
    refusals: AtomicU64,
}

impl Writer {
    fn new(kind: &'static Kind, home: PathBuf) -> Writer {
        Writer { kind, home, acknowledged: AtomicU64::new(0), refusals: AtomicU64::new(0) }
    }

    /// Works until `stop`. Any other error than `refusal`, and any error of `clear`, fails the test.
    fn work(&self, refusal: Errno, stop: &AtomicBool) {
        while !stop.load(SeqCst) {
            let number = self.acknowledged.load(SeqCst) + 1;
            let Err(error) = (self.kind.act)(&self.home, number) else {
                self.acknowledged.store(number, SeqCst);
                continue;
            };
            assert_eq!(error.raw_os_error(), Some(refusal.raw_os_error()), "{} at {number}: {error}", self.kind.name);
            let cleared = (self.kind.clear)(&self.home, number);
            cleared.unwrap_or_else(|error| panic!("{} cannot clear away {number}: {error}", self.kind.name));
            self.refusals.fetch_add(1, SeqCst);
        }
    }

    /// Removes the remains of the last refused task, which may have become durable without its removal.
    fn recover(&self) {
        (self.kind.clear)(&self.home, self.acknowledged.load(SeqCst) + 1).unwrap();
    }

    fn check(&self) {
        let count = self.acknowledged.load(SeqCst);
        if count > 0 {
            (self.kind.check)(&self.home, count);
        }
    }

    /// The counts of tasks done and refused.
    fn figures(&self) -> (&'static str, u64, u64) {
        (self.kind.name, self.acknowledged.load(SeqCst), self.refusals.load(SeqCst))
    }
}

/// Runs all writers until each was refused often enough, and `meanwhile` has returned.
fn refuse_all(writers: &[Writer], refusal: Errno, meanwhile: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    let stop = &stop;
    writers.iter().for_each(|writer| writer.refusals.store(0, SeqCst));
    std::thread::scope(|scope| {
        let _stopping = Stopping(stop);
        let working: Vec<_> = writers.iter().map(|writer| scope.spawn(move || writer.work(refusal, stop))).collect();
        let begun = Instant::now();
        while writers.iter().any(|writer| writer.refusals.load(SeqCst) < REFUSALS) {
            let figures: Vec<_> = writers.iter().map(Writer::figures).collect();
            assert!(working.iter().all(|thread| !thread.is_finished()), "a writer has failed: {figures:?}");
            assert!(begun.elapsed() < PATIENCE, "{figures:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        meanwhile();
    });
}

/// Stops the writers, also after a failure.
struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn number(lab: &Lab, property: &str, dataset: &str) -> u64 {
    lab.fs(&["get", "-H", "-p", "-o", "value", property, dataset]).trim().parse().unwrap()
}

/// The available bytes, once all freed space has become available.
fn available(lab: &Lab) -> u64 {
    let mut before = 0;
    for _ in 0..40 {
        (0..4).for_each(|_| drop(lab.pool(&["sync", "tank"])));
        let now = number(lab, "available", "tank");
        if now <= before {
            return now;
        }
        before = now;
    }
    panic!("it does not come to rest");
}

/// Writes files until not even a small file has room.
fn fill_up(folder: &Path) {
    for (size, name) in [(MIB, "large"), (64 << 10, "middle"), (4096, "small"), (1, "tiny")] {
        let full = (0..).find_map(|index| {
            let content = noise(size as usize, index + 1);
            write_durably(&folder.join(format!("{name}-{index}")), &content).err()
        });
        let error = full.expect("the search ends only with a refusal");
        assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()), "{error}");
    }
}

fn remove_content(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }
}

/// The whole test of one pool.
struct Job {
    lab: Lab,
    writers: Vec<Writer>,
}

impl Job {
    fn new(ashift: &str) -> Job {
        let lab = Lab::new();
        let vdev = format!("64M:{}", lab.at("tank.img"));
        lab.pool(&["create", "-o", &format!("ashift={ashift}"), "-m", &lab.at("mnt/tank"), "tank", &vdev]);
        let writers: Vec<_> = KINDS.iter().map(|kind| Writer::new(kind, lab.mount("tank").join(kind.name))).collect();
        KINDS.iter().for_each(|kind| drop(lab.fs(&["create", &format!("tank/{}", kind.name)])));
        lab.fs(&["create", "-o", &format!("reservation={RESERVED}"), "tank/kept"]);
        lab.fs(&["create", "tank/filler"]);
        // On a full pool there would be no room for another dataset.
        WAYS.iter().for_each(|way| drop(lab.fs(&["create", &format!("tank/filler/{way}")])));
        Job { lab, writers }
    }

    fn check(&self) {
        self.writers.iter().for_each(Writer::check);
    }

    /// A quota on the datasets of several writers, and a refquota on a dataset with several writers.
    fn quotas(&self) {
        let lab = &self.lab;
        lab.fs(&["create", "-o", &format!("quota={QUOTA}"), "tank/bounded"]);
        lab.fs(&["create", "-o", &format!("refquota={QUOTA}"), "tank/shared"]);
        for dataset in ["bounded", "shared"] {
            let home = |kind: &Kind| lab.mount("tank").join(dataset).join(kind.name);
            for kind in &KINDS {
                match dataset {
                    "bounded" => drop(lab.fs(&["create", &format!("tank/bounded/{}", kind.name)])),
                    _ => fs::create_dir(home(kind)).unwrap(),
                }
            }
            let writers: Vec<_> = KINDS.iter().map(|kind| Writer::new(kind, home(kind))).collect();
            refuse_all(&writers, Errno::DQUOT, || ());
            writers.iter().for_each(Writer::check);
            let used = number(lab, "used", &format!("tank/{dataset}"));
            assert!(used <= QUOTA + NODES, "{dataset}: {used} bytes of {QUOTA}");
        }
        lab.fs(&["destroy", "-r", "tank/bounded"]);
        lab.fs(&["destroy", "-r", "tank/shared"]);
    }

    /// Every operation that frees space, each on a full pool.
    fn give_back(&self) {
        let lab = &self.lab;
        fill_up(&self.lab.mount("tank/filler"));
        self.free("removing", &["small", "churn", "names"], || {
            ["small", "churn", "names"].iter().for_each(|name| remove_content(&lab.mount("tank").join(name)));
        });
        self.free("truncating", &["append"], || {
            File::options().write(true).open(lab.mount("tank/append/journal")).unwrap().set_len(0).unwrap();
        });
        self.free("rolling-back", &[], || drop(lab.fs(&["rollback", "tank/overwrite@first"])));
        self.free("destroying-a-snapshot", &["big"], || {
            lab.fs(&["snapshot", "tank/big@full"]);
            remove_content(&lab.mount("tank/big"));
            lab.fs(&["destroy", "tank/big@full"]);
        });
        // The files that filled the pool after the last step.
        let filled = "filler/destroying-a-snapshot";
        self.free("destroying-a-data-set", &[filled], || drop(lab.fs(&["destroy", &format!("tank/{filled}")])));
        lab.fs(&["destroy", "-r", "tank/filler"]);
        lab.fs(&["destroy", "tank/overwrite@first"]);
    }

    /// Frees what these datasets refer to on a full pool, checks that it is available, and fills the pool again.
    fn free(&self, way: &str, datasets: &[&str], act: impl FnOnce()) {
        let held: u64 = datasets.iter().map(|name| number(&self.lab, "referenced", &format!("tank/{name}"))).sum();
        let before = available(&self.lab);
        act();
        let after = available(&self.lab);
        assert!(
            after + SLACK >= before + held,
            "{way}: of {held} bytes, {before} were available before, {after} after"
        );
        fill_up(&self.lab.mount("tank/filler").join(way));
    }
}

fn fill_and_empty(ashift: &str) {
    if !can_mount() {
        return;
    }
    let job = Job::new(ashift);
    let lab = &job.lab;
    job.quotas();
    overwrite(&lab.mount("tank/overwrite"), 1).unwrap();
    lab.fs(&["snapshot", "tank/overwrite@first"]);
    let empty = available(lab);

    let reserved = noise(RESERVED as usize * 3 / 4, 9);
    refuse_all(&job.writers, Errno::NOSPC, || write_durably(&lab.mount("tank/kept/late"), &reserved).unwrap());
    lab.kill("tank");
    lab.pool(&["import", "tank"]);
    job.writers.iter().for_each(Writer::recover);
    job.check();
    refuse_all(&job.writers, Errno::NOSPC, || ());
    lab.check("tank");
    job.check();

    job.give_back();
    let after = available(lab);
    assert!(after + SLACK >= empty, "{empty} bytes were available, {after} are");
    lab.check("tank");
    assert!(fs::read(lab.mount("tank/overwrite/database")).unwrap() == noise(PIECES as usize * PIECE, 1));
    assert!(fs::read(lab.mount("tank/kept/late")).unwrap() == reserved);
}

/// Like a program that replaces a backup: the file is removed, and its successor of the same size is written at once.
#[test]
fn a_removed_file_makes_room_for_its_successor_at_once() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new();
    lab.create("tank", "300M");
    lab.fs(&["set", "compression=off", "tank"]);
    let (file, content) = (lab.mount("tank").join("backup"), noise(180 << 20, 5));
    let free = || {
        let stat = rustix::fs::statvfs(lab.mount("tank")).unwrap();
        stat.f_bavail * stat.f_frsize
    };
    let empty = free();
    for round in 0..12 {
        fs::write(&file, &content).unwrap_or_else(|error| panic!("round {round}: {error}"));
        fs::remove_file(&file).unwrap();
    }
    // The kernel forgets the file within milliseconds. The commits, which would take 25 s, are not awaited.
    let end = Instant::now() + Duration::from_secs(3);
    while free() + 32 * MIB < empty {
        assert!(Instant::now() < end, "{empty} bytes were free, {} are", free());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_full_pool_of_4_kib_sectors() {
    fill_and_empty("12");
}

#[test]
fn a_full_pool_of_512_byte_sectors() {
    fill_and_empty("9");
}
