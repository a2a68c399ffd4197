//! The benefit of several disks: sequential writing and reading, scrub and resilver.
//!
//! The disks are simulated ([`disk`]) with a rate and a seek cost, so the result shows how well the disks are kept
//! busy, not the machine. Every result is a ratio to the rate of one disk, or to the same work on one disk. Files are
//! as large as a film or as small as 10 KB, and hold random bytes, so compression saves nothing.
//!
//! Run by `cargo bench --bench disks`, or `cargo bench --bench disks -- raidz2` for the rows with that title, and `--
//! two-files` for that table. Any other run (as a test) does everything once, on little data.

mod common;
#[path = "common/disk.rs"]
mod disk;

use std::{
    hint::black_box,
    io::{self, Write as _},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use common::{POOL, Result, make_dataset, make_pool, median, name};
use dataset::{
    admin::{Assignment, Datasets, Progress},
    fs::{Caller, FileSystem, Ino, ROOT},
    jobs::{ResilverState, Stride},
    name::Name,
};
use disk::{Disk, Speed};
use pool::{
    admin::{NewVdev, OpenOptions, Pool, open},
    device::Device,
    env::SystemEnv,
    units::{GIB, KIB, MIB},
    vdev::raidz::parity,
};

const DATA: &str = "tank/data";
/// The bytes of one read or write.
const STEP: u64 = MIB;
/// The bytes of a small file.
const SMALL: u64 = 10 * KIB;

/// The amount of work.
struct Amount {
    bytes: u64,
    speed: Speed,
    runs: usize,
}

fn main() -> Result<()> {
    let amount = match std::env::args().any(|argument| argument == "--bench") {
        true => Amount { bytes: 256 * MIB, speed: Speed { rate: 150e6, seek: Duration::from_millis(8) }, runs: 3 },
        false => Amount { bytes: 2 * MIB, speed: Speed { rate: 1e9, seek: Duration::from_micros(100) }, runs: 1 },
    };
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let is_wanted = |title: &str| title.contains(&wanted);
    let mut out = io::stdout().lock();
    if std::env::args().any(|argument| argument == "two-files") {
        return print_two_files(&amount, &mut out);
    }
    writeln!(
        out,
        "{:24}{:>12}{:>12}{:>12}{:>12}",
        "share of a disk's rate", "write", "1 stream", "2 streams", "seeks"
    )?;
    for (title, shape) in SHAPES.into_iter().filter(|(title, _)| is_wanted(title)) {
        let mut runs: Vec<Stream> = (0..amount.runs).map(|_| stream(&amount, shape)).collect::<Result<_>>()?;
        let mut middle = |of: fn(&Stream) -> f64| median(&mut runs.iter_mut().map(|run| of(run)).collect::<Vec<_>>());
        let (write, one, two) = (middle(|run| run.write), middle(|run| run.one), middle(|run| run.two));
        let seeks = middle(|run| run.seeks as f64);
        writeln!(out, "{title:24}{write:>12.2}{one:>12.2}{two:>12.2}{seeks:>12.0}")?;
    }
    writeln!(out, "\n{:24}{:>12}{:>12}{:>12}{:>12}", "share of a disk's rate", "scrub", "seeks", "resilver", "seeks")?;
    // Enough data that one-time costs, such as writing labels, do not matter.
    let much = 4 * amount.bytes;
    for (title, kind, bytes, size) in [
        ("mirror, large files", &MIRROR, much, much / 2),
        ("mirror, files of 10 KB", &MIRROR, amount.bytes, SMALL),
        ("raidz2, large files", &RAIDZ2, much, much / 2),
        ("raidz2, files of 10 KB", &RAIDZ2, amount.bytes, SMALL),
    ]
    .into_iter()
    .filter(|(title, ..)| is_wanted(title))
    {
        let mut runs: Vec<Walks> =
            (0..amount.runs).map(|_| walks(&amount, kind, bytes, size)).collect::<Result<_>>()?;
        let mut middle = |of: fn(&Walks) -> f64| median(&mut runs.iter_mut().map(|run| of(run)).collect::<Vec<_>>());
        let (scrub, resilver) = (middle(|run| run.scrub), middle(|run| run.resilver));
        let (scrubbing, resilvering) = (middle(|run| run.scrub_seeks as f64), middle(|run| run.resilver_seeks as f64));
        writeln!(out, "{title:24}{scrub:>12.2}{scrubbing:>12.0}{resilver:>12.2}{resilvering:>12.0}")?;
    }
    print_two_files(&amount, &mut out)?;
    writeln!(out, "\n{:24}{:>12}{:>12}{:>12}{:>12}", "share of memcpy", "encode", "lose 1", "lose 2", "lose 3")?;
    for (data, parity) in [(2, 1), (4, 2), (8, 3)] {
        let title = format!("{data} data, {parity} parity");
        if !is_wanted(&title) {
            continue;
        }
        write!(out, "{title:24}")?;
        for lost in 0..=parity {
            let mut runs: Vec<f64> = (0..amount.runs).map(|_| parity_share(data, parity, lost)).collect();
            write!(out, "{:>12.2}", median(&mut runs))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Prints Sun QFS's table, for disks as slow as in its time.
fn print_two_files(amount: &Amount, out: &mut impl io::Write) -> Result<()> {
    let speed = Speed { rate: amount.speed.rate.min(36e6), ..amount.speed };
    let slow = Amount { speed, ..*amount };
    writeln!(out, "\n{:24}{:>12}{:>12}", "two files at once", "MB/s", "seeks")?;
    for alloc in ["striped", "roundrobin"] {
        let mut runs: Vec<(f64, u64)> = (0..slow.runs).map(|_| two_files(&slow, alloc)).collect::<Result<_>>()?;
        let mut middle =
            |of: fn(&(f64, u64)) -> f64| median(&mut runs.iter_mut().map(|run| of(run)).collect::<Vec<_>>());
        let (rate, seeks) = (middle(|run| run.0 * 36.0), middle(|run| run.1 as f64));
        writeln!(out, "{alloc:24}{rate:>12.1}{seeks:>12.0}")?;
    }
    Ok(())
}

/// The speed of computing parity, or `lost` data columns, as a share of copying the data of the same rows.
fn parity_share(data: usize, parity: usize, lost: usize) -> f64 {
    const COLUMN: usize = 32 << 10;
    const TIMES: u32 = 1000;
    let mut columns: Vec<Vec<u8>> = (0..data + parity).map(|column| noise(column as u64, COLUMN as u64)).collect();
    let mut copies = columns[..data].to_vec();
    let (mut computing, mut copying) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..TIMES {
        let start = Instant::now();
        let mut rows: Vec<&mut [u8]> = black_box(&mut columns).iter_mut().map(|column| &mut column[..]).collect();
        match lost {
            0 => parity::encode(&mut rows, data),
            lost => parity::recover(&mut rows, data, (0..lost).fold(0, |set, column| set | parity::bit(column))),
        }
        computing += start.elapsed();
        let start = Instant::now();
        black_box(&mut copies)
            .iter_mut()
            .zip(black_box(&columns))
            .for_each(|(copy, column)| copy.copy_from_slice(column));
        copying += start.elapsed();
    }
    copying.as_secs_f64() / computing.as_secs_f64()
}

/// The number of disks, and the vdevs made of them.
type Shape = (usize, fn(Vec<Arc<dyn Device>>) -> Vec<NewVdev>);

const SHAPES: [(&str, Shape); 5] = [
    ("one disk", (1, stripe)),
    ("mirror of two", (2, mirror)),
    ("two striped", (2, stripe)),
    ("raidz1 of three", (3, |devices| vec![NewVdev::RaidZ { parity: 1, devices }])),
    ("raidz2 of six", (6, raidz2)),
];

/// A pool for scrub and resilver.
struct Kind {
    shape: Shape,
    /// The number of disks with a row's data.
    data: u64,
    /// Whether the new disk replaces another.
    replaces: bool,
}

const MIRROR: Kind = Kind { shape: (2, mirror), data: 1, replaces: false };
const RAIDZ2: Kind = Kind { shape: (6, raidz2), data: 4, replaces: true };

fn raidz2(devices: Vec<Arc<dyn Device>>) -> Vec<NewVdev> {
    vec![NewVdev::RaidZ { parity: 2, devices }]
}

fn stripe(devices: Vec<Arc<dyn Device>>) -> Vec<NewVdev> {
    devices.into_iter().map(NewVdev::Disk).collect()
}

fn mirror(devices: Vec<Arc<dyn Device>>) -> Vec<NewVdev> {
    vec![NewVdev::Mirror(devices)]
}

/// Disks, and a pool of them.
struct Lab {
    disks: Vec<Arc<Disk>>,
}

impl Lab {
    /// Disks that take no time yet.
    fn new(amount: &Amount, count: usize) -> Lab {
        let disk = |number| Arc::new(Disk::new(format!("disk{number}"), 4 * GIB, amount.speed));
        Lab { disks: (0..count).map(disk).collect() }
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.disks.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect()
    }

    fn make(&self, shape: fn(Vec<Arc<dyn Device>>) -> Vec<NewVdev>, disks: usize) -> Result<Opened> {
        let devices = self.devices()[..disks].to_vec();
        let (pool, datasets) = make_pool(&shape(devices))?;
        make_dataset(&datasets, DATA, &[("compression", "off")])?;
        Ok(Opened { pool, datasets })
    }

    /// Opens the pool again, with an empty cache.
    fn open(&self, disks: usize) -> Result<Opened> {
        let pool = open(self.devices()[..disks].to_vec(), &OpenOptions::default(), Arc::new(SystemEnv))?;
        let datasets = Datasets::open(pool.engine().clone(), name(POOL))?;
        Ok(Opened { pool, datasets })
    }

    /// The share of a disk's rate that `work` achieves, which moves this many bytes; and the number of seeks.
    fn timed(&self, amount: &Amount, bytes: u64, work: impl FnOnce() -> Result<()>) -> Result<(f64, u64)> {
        self.disks.iter().for_each(|disk| {
            disk.take_seeks();
            disk.set_going(true);
        });
        let start = Instant::now();
        let done = work();
        let taken = start.elapsed().as_secs_f64();
        self.disks.iter().for_each(|disk| disk.set_going(false));
        done?;
        Ok((bytes as f64 / taken / amount.speed.rate, self.disks.iter().map(|disk| disk.take_seeks()).sum()))
    }
}

struct Opened {
    pool: Pool,
    datasets: Arc<Datasets>,
}

impl Opened {
    fn fs(&self) -> Result<Arc<FileSystem>> {
        Ok(self.datasets.open_dataset(&name(DATA))?.fs().clone())
    }

    fn close(self) -> Result<()> {
        self.datasets.close_all()?;
        self.pool.export()?;
        Ok(())
    }
}

/// The results of streams, as shares of a disk's rate.
struct Stream {
    write: f64,
    one: f64,
    two: f64,
    /// Of reading two.
    seeks: u64,
}

fn stream(amount: &Amount, (count, shape): Shape) -> Result<Stream> {
    let lab = Lab::new(amount, count);
    let opened = lab.make(shape, count)?;
    let fs = opened.fs()?;
    let half = amount.bytes / 2;
    let files = [create(&fs, 0)?, create(&fs, 1)?];
    let (write, _) = lab.timed(amount, amount.bytes, || {
        files.iter().try_for_each(|file| write_file(&fs, *file, half))?;
        Ok(fs.head().engine().commit().map(drop)?)
    })?;
    drop(fs);
    opened.close()?;
    let opened = lab.open(count)?;
    let fs = opened.fs()?;
    let (one, _) = lab.timed(amount, half, || read_file(&fs, files[0], half))?;
    drop(fs);
    opened.close()?;
    let opened = lab.open(count)?;
    let fs = opened.fs()?;
    let (two, seeks) = lab.timed(amount, amount.bytes, || read_at_once(&fs, files, half))?;
    drop(fs);
    opened.close()?;
    Ok(Stream { write, one, two, seeks })
}

/// Sun QFS's table: two files are read at once from two disks, with the layout of the property `alloc`. Returns their
/// combined share of one disk's rate, and the number of seeks.
fn two_files(amount: &Amount, alloc: &str) -> Result<(f64, u64)> {
    let lab = Lab::new(amount, 2);
    let opened = lab.make(stripe, 2)?;
    let assignment = Assignment { property: "alloc".into(), value: alloc.into() };
    opened.datasets.set(&[Name::Dataset(name(DATA))], &[assignment])?;
    let fs = opened.fs()?;
    let half = amount.bytes / 2;
    let files = [create(&fs, 0)?, create(&fs, 1)?];
    files.iter().try_for_each(|file| write_file(&fs, *file, half))?;
    fs.head().engine().commit()?;
    drop(fs);
    opened.close()?;
    let opened = lab.open(2)?;
    let fs = opened.fs()?;
    let read = lab.timed(amount, amount.bytes, || read_at_once(&fs, files, half))?;
    drop(fs);
    opened.close()?;
    Ok(read)
}

/// Reads two files with a thread each.
fn read_at_once(fs: &FileSystem, files: [Ino; 2], len: u64) -> Result<()> {
    thread::scope(|scope| {
        let readers = files.map(|file| scope.spawn(move || read_file(fs, file, len).map_err(|e| e.to_string())));
        readers.into_iter().try_for_each(|reader| Ok(reader.join().expect("no reader panics")?))
    })
}

/// The results of walks over the whole pool, as shares of a disk's rate.
struct Walks {
    scrub: f64,
    scrub_seeks: u64,
    resilver: f64,
    resilver_seeks: u64,
}

/// Scrubs a pool with files of `size` bytes each, and resilvers one more disk. The work of each disk counts, so each
/// has the same amount: `bytes`.
fn walks(amount: &Amount, kind: &Kind, bytes: u64, size: u64) -> Result<Walks> {
    let Kind { shape: (count, shape), data, replaces } = *kind;
    let total = bytes * data;
    let lab = Lab::new(amount, count + 1);
    let opened = lab.make(shape, count)?;
    let fs = opened.fs()?;
    for index in 0..total / size {
        let file = create(&fs, index)?;
        write_file(&fs, file, size)?;
    }
    fs.head().engine().commit()?;
    drop(fs);
    opened.close()?;
    let opened = lab.open(count)?;
    let bytes = opened.datasets.engine().space_totals().allocated / data;
    let (scrub, scrub_seeks) = lab.timed(amount, bytes, || {
        opened.datasets.scrub().start()?;
        step_through(Stride::of_scrub(), |bytes| opened.datasets.scrub().advance(bytes))
    })?;
    let status = opened.datasets.scrub().status()?.ok_or("there was no scrub")?;
    assert!(status.errors == 0 && status.examined >= total, "the scrub has seen everything");
    opened.close()?;
    let opened = lab.open(count)?;
    opened.pool.attach("disk0", lab.disks[count].clone(), replaces)?;
    let (resilver, resilver_seeks) = lab.timed(amount, bytes, || {
        step_through(Stride::of_copying(), |bytes| opened.datasets.resilver().advance(bytes))
    })?;
    let status = opened.datasets.resilver().status().ok_or("there was no resilver")?;
    assert!(status.state == ResilverState::Finished && status.copied >= total, "everything was copied");
    Ok(Walks { scrub, scrub_seeks, resilver, resilver_seeks })
}

/// Does all steps as the service does on an otherwise idle pool.
fn step_through(mut stride: Stride, step: impl Fn(u64) -> dataset::error::Result<Progress>) -> Result<()> {
    stride.set_alone(true);
    loop {
        let start = Instant::now();
        if step(stride.bytes())? != Progress::Worked {
            return Ok(());
        }
        stride.took(start.elapsed());
    }
}

fn create(fs: &FileSystem, index: u64) -> Result<Ino> {
    Ok(fs.create(&Caller::default(), ROOT, format!("{index}").as_bytes(), 0o644, true)?.ino)
}

/// Incompressible bytes.
fn noise(seed: u64, len: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut bytes = Vec::with_capacity(len as usize + 8);
    while bytes.len() < len as usize {
        bytes.extend(next());
    }
    bytes.truncate(len as usize);
    bytes
}

fn write_file(fs: &FileSystem, file: Ino, len: u64) -> Result<()> {
    let content = noise(file, STEP.min(len));
    for offset in (0..len).step_by(STEP as usize) {
        fs.write(file, offset, &content[..(len - offset).min(STEP) as usize], false)?;
    }
    Ok(())
}

fn read_file(fs: &FileSystem, file: Ino, len: u64) -> Result<()> {
    let mut bytes = Vec::new();
    for offset in (0..len).step_by(STEP as usize) {
        bytes.clear();
        fs.read(file, offset, STEP as usize, &mut bytes)?;
        assert_eq!(bytes.len() as u64, (len - offset).min(STEP), "a file is as long as it was written");
    }
    Ok(())
}
