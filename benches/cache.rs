//! The benefit of a cache device: small random reads of more data than memory holds, on a simulated disk, without and
//! with a cache device.
//!
//! The disk takes 8 ms for a seek and gives 150 MB/s, the cache device 100 µs and 500 MB/s ([`disk`]). So the result
//! depends on the number of disk requests, not on the machine. Each row reads the same places in the same order:
//! without a cache device, with a warm cache device, and with it after an export and import.
//!
//! Run by `cargo bench --bench cache`. Any other run (as a test) does everything once, on little data.

mod common;
#[expect(dead_code, reason = "how often heads move is counted by another benchmark")]
#[path = "common/disk.rs"]
mod disk;

use std::{
    io::{self, Write as _},
    sync::Arc,
    time::{Duration, Instant},
};

use common::{POOL, Result, make_dataset, make_pool, median, name};
use dataset::{
    admin::Datasets,
    fs::{Caller, FileSystem, Ino, ROOT},
};
use disk::{Disk, Speed};
use pool::{
    admin::{NewVdev, OpenOptions, Pool, open},
    device::Device,
    env::SystemEnv,
    txg::Settings,
    units::{GIB, KIB, MIB},
};

const DATA: &str = "tank/data";
/// The bytes of a record, and of a read.
const RECORD: u64 = 16 * KIB;
/// The bytes fed to the cache device at a time: less than its queue's limit.
const PORTION: u64 = 4 * MIB;
/// The bytes that memory holds.
const MEMORY: u64 = 8 * MIB;

/// The amount of work.
struct Amount {
    bytes: u64,
    reads: u64,
    runs: usize,
    disk: Speed,
}

fn main() -> Result<()> {
    let amount = match std::env::args().any(|argument| argument == "--bench") {
        true => {
            let disk = Speed { rate: 150e6, seek: Duration::from_millis(8) };
            Amount { bytes: 128 * MIB, reads: 400, runs: 3, disk }
        }
        false => {
            let disk = Speed { rate: 1e9, seek: Duration::from_micros(500) };
            Amount { bytes: 16 * MIB, reads: 20, runs: 1, disk }
        }
    };
    let mut runs: Vec<[f64; 3]> = (0..amount.runs).map(|_| run(&amount)).collect::<Result<_>>()?;
    let mut middle = |row: usize| median(&mut runs.iter_mut().map(|run| run[row]).collect::<Vec<_>>());
    let rates = [middle(0), middle(1), middle(2)];
    let mut out = io::stdout().lock();
    writeln!(out, "{:24}{:>12}{:>12}", "random reads of 16 KiB", "a second", "times")?;
    for (title, rate) in ["no cache device", "a warm one", "after an import"].into_iter().zip(rates) {
        writeln!(out, "{title:24}{rate:>12.0}{:>12.1}", rate / rates[0])?;
    }
    Ok(())
}

/// The reads a second without a cache device, with one, and with it after an import.
fn run(amount: &Amount) -> Result<[f64; 3]> {
    let disk = Arc::new(Disk::new("disk", GIB, amount.disk));
    let fast = Speed { rate: 500e6, seek: Duration::from_micros(100) };
    let cache = Arc::new(Disk::new("cache", GIB, fast));
    let (pool, datasets) = make_pool(&[NewVdev::Disk(disk.clone())])?;
    make_dataset(&datasets, DATA, &[("compression", "off"), ("recordsize", "16K"), ("atime", "off")])?;
    let fs = datasets.open_dataset(&name(DATA))?.fs().clone();
    let file = fs.create(&Caller::default(), ROOT, b"file", 0o644, true)?.ino;
    for offset in (0..amount.bytes).step_by(MIB as usize) {
        let content: Vec<u8> = (0..MIB).map(|at| ((at ^ offset).wrapping_mul(0x9e37_79b9) >> 11) as u8).collect();
        fs.write(file, offset, &content, false)?;
    }
    drop(fs);
    close(&pool, &datasets)?;
    let disks = [&disk, &cache];
    let (pool, datasets) = opened(&[&disk])?;
    let without = measure(amount, &disks, &datasets, file)?;
    let device: Arc<dyn Device> = cache.clone();
    pool.add_caches(&[device])?;
    pool.engine().secondary().finish();
    warm(amount, &pool, &datasets, file)?;
    let with = measure(amount, &disks, &datasets, file)?;
    close(&pool, &datasets)?;
    drop((pool, datasets));
    let (pool, datasets) = opened(&disks)?;
    pool.engine().secondary().finish();
    let imported = measure(amount, &disks, &datasets, file)?;
    close(&pool, &datasets)?;
    Ok([without, with, imported])
}

fn close(pool: &Pool, datasets: &Datasets) -> Result<()> {
    datasets.close_all()?;
    pool.engine().secondary().finish();
    Ok(pool.export()?)
}

fn opened(disks: &[&Arc<Disk>]) -> Result<(Pool, Arc<Datasets>)> {
    let devices = disks.iter().map(|disk| Arc::clone(disk) as Arc<dyn Device>).collect();
    let settings = Settings { cache: MEMORY, ..Settings::default() };
    let pool = open(devices, &OpenOptions { settings, ..OpenOptions::default() }, Arc::new(SystemEnv))?;
    let datasets = Datasets::open(pool.engine().clone(), name(POOL))?;
    Ok((pool, datasets))
}

/// Reads everything, and feeds it to the cache device, while the disks take no time.
fn warm(amount: &Amount, pool: &Pool, datasets: &Datasets, file: Ino) -> Result<()> {
    let fs = datasets.open_dataset(&name(DATA))?.fs().clone();
    pool.engine().forget_read();
    for portion in (0..amount.bytes).step_by(PORTION as usize) {
        (portion..portion + PORTION).step_by(RECORD as usize).try_for_each(|offset| read(&fs, file, offset))?;
        pool.engine().secondary().finish();
    }
    Ok(())
}

/// The reads a second from unpredictable places.
fn measure(amount: &Amount, disks: &[&Arc<Disk>], datasets: &Datasets, file: Ino) -> Result<f64> {
    let fs = datasets.open_dataset(&name(DATA))?.fs().clone();
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut place = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % (amount.bytes / RECORD) * RECORD
    };
    disks.iter().for_each(|disk| disk.set_going(true));
    let start = Instant::now();
    let done = (0..amount.reads).try_for_each(|_| read(&fs, file, place()));
    let taken = start.elapsed().as_secs_f64();
    disks.iter().for_each(|disk| disk.set_going(false));
    done?;
    Ok(amount.reads as f64 / taken)
}

fn read(fs: &FileSystem, file: Ino, offset: u64) -> Result<()> {
    let mut bytes = Vec::new();
    fs.read(file, offset, RECORD as usize, &mut bytes)?;
    assert_eq!(bytes.len() as u64, RECORD, "the file is as long as it was written");
    Ok(())
}
