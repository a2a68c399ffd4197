//! Write latency when writers bring more than the device can take.
//!
//! Several threads write 4 KiB each into a file of their own, as fast as they are allowed, on a device in memory that
//! takes 20 ms for every write, one after another. The limit on dirty data is small, so the device sets the pace. The
//! question is evenness: a writer should wait a little each time, not long now and then. The distribution covers all
//! writes from the first on; beside it is the device's time for as many bytes as may be dirty.
//!
//! Run by `cargo bench --bench pressure`. Any other run (as a test) does everything once, on little data.

mod common;

use std::{
    io::{self, Write as _},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use common::{Result, make_dataset, make_pool, median, name};
use dataset::fs::{Caller, Errno, FileSystem, Ino, ROOT};
use parking_lot::Mutex;
use pool::{
    admin::NewVdev,
    device::{Device, MemoryDevice},
    txg::Committer,
    units::{GIB, MIB},
};

/// The limit on dirty data, in bytes.
const LIMIT: u64 = 4 * MIB;
/// The bytes of a write.
const WRITE: usize = 4096;
/// The bytes of each file.
const FILE: u64 = 64 * MIB;
const DATA: &str = "tank/data";

/// The amount of work.
struct Amount {
    writers: u64,
    time: Duration,
    per_write: Duration,
}

fn main() -> Result<()> {
    let amount = match std::env::args().any(|argument| argument == "--bench") {
        true => Amount { writers: 8, time: Duration::from_secs(20), per_write: Duration::from_millis(20) },
        false => Amount { writers: 2, time: Duration::from_millis(50), per_write: Duration::from_millis(1) },
    };
    let mut out = io::stdout().lock();
    write!(out, "{:12}{:>10}{:>10}{:>10}{:>10}", "ms", "writes/s", "median", "p90", "p99")?;
    writeln!(out, "{:>10}{:>10}{:>12}{:>14}", "p99.9", "max", "p99/median", "for the limit")?;
    for (title, order) in [("in order", in_order as Order), ("scattered", scattered)] {
        measure(&amount, order)?.print(title, &mut out)?;
    }
    Ok(())
}

/// The offset of a writer's n-th write.
type Order = fn(u64) -> u64;

fn in_order(index: u64) -> u64 {
    index * WRITE as u64 % FILE
}

/// A walk over the whole file in steps that share no factor with its size.
fn scattered(index: u64) -> u64 {
    index * 7919 * WRITE as u64 % FILE
}

/// A device that takes time for each write, one after another.
struct SlowDevice {
    memory: MemoryDevice,
    per_write: Mutex<Duration>,
    /// When its present work will be done.
    idle_at: Mutex<Instant>,
    writes: AtomicU64,
}

impl SlowDevice {
    fn new(size: u64) -> SlowDevice {
        SlowDevice {
            memory: MemoryDevice::new("slow", size),
            per_write: Mutex::default(),
            idle_at: Mutex::new(Instant::now()),
            writes: AtomicU64::new(0),
        }
    }

    fn take(&self, per_write: Duration) {
        *self.per_write.lock() = per_write;
    }
}

impl Device for SlowDevice {
    fn name(&self) -> &str {
        self.memory.name()
    }

    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.memory.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.writes.fetch_add(1, Relaxed);
        let done = {
            let mut idle_at = self.idle_at.lock();
            *idle_at = Instant::now().max(*idle_at) + *self.per_write.lock();
            *idle_at
        };
        thread::sleep(done.saturating_duration_since(Instant::now()));
        self.memory.write_at(offset, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.memory.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.memory.discard(offset, len)
    }
}

/// The duration of each write, and the device's work meanwhile.
struct Outcome {
    writes: Vec<Duration>,
    elapsed: Duration,
    busy: Duration,
}

fn measure(amount: &Amount, order: Order) -> Result<Outcome> {
    let device = Arc::new(SlowDevice::new(8 * GIB));
    let (_, datasets) = make_pool(&[NewVdev::Disk(device.clone())])?;
    make_dataset(&datasets, DATA, &[("compression", "off")])?;
    let fs = datasets.open_dataset(&name(DATA))?.fs().clone();
    let files: Result<Vec<Ino>> = (0..amount.writers)
        .map(|writer| Ok(fs.create(&Caller::default(), ROOT, format!("{writer}").as_bytes(), 0o644, true)?.ino))
        .collect();
    let engine = fs.head().engine();
    engine.commit()?;
    engine.tune(64 * MIB, LIMIT);
    let committer = Committer::spawn(engine, Duration::from_secs(5));
    device.take(amount.per_write);
    let (before, start) = (device.writes.load(Relaxed), Instant::now());
    let threads: Vec<_> = files?
        .into_iter()
        .map(|file| {
            let (fs, end) = (fs.clone(), start + amount.time);
            thread::spawn(move || write_until(&fs, file, order, end))
        })
        .collect();
    let mut writes = Vec::new();
    for thread in threads {
        writes.extend(thread.join().expect("no writer panics")?);
    }
    let elapsed = start.elapsed();
    let busy = amount.per_write * (device.writes.load(Relaxed) - before) as u32;
    device.take(Duration::ZERO);
    drop(committer);
    datasets.close_all()?;
    Ok(Outcome { writes, elapsed, busy })
}

/// Writes until `end`, and returns the duration of each write.
fn write_until(fs: &FileSystem, file: Ino, order: Order, end: Instant) -> std::result::Result<Vec<Duration>, Errno> {
    let content = [1; WRITE];
    let mut writes = Vec::new();
    loop {
        let start = Instant::now();
        if start >= end {
            return Ok(writes);
        }
        fs.write(file, order(writes.len() as u64), &content, false)?;
        writes.push(start.elapsed());
    }
}

impl Outcome {
    fn print(mut self, title: &str, out: &mut impl io::Write) -> io::Result<()> {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let middle = ms(median(&mut self.writes));
        // Sorted by now.
        let at = |share: f64| ms(self.writes[((self.writes.len() - 1) as f64 * share) as usize]);
        let bytes = (self.writes.len() * WRITE) as f64;
        let rate = self.writes.len() as f64 / self.elapsed.as_secs_f64();
        write!(out, "{title:12}{rate:>10.0}{middle:>10.3}{:>10.3}{:>10.3}", at(0.9), at(0.99))?;
        write!(out, "{:>10.3}{:>10.3}{:>12.1}", at(0.999), at(1.0), at(0.99) / middle)?;
        writeln!(out, "{:>14.0}", ms(self.busy) * LIMIT as f64 / bytes)
    }
}
