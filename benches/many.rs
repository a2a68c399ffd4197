//! The engine's cost of one file, which must not depend on the number of files: ten thousand, or more than three
//! million.
//!
//! Folders of thirty files and up to ten folders each, files of 512 bytes: made depth first as programs do, walked with
//! all attributes, and removed. Counted is the CPU time of the whole process until nothing is dirty, including commits,
//! compression, checksums and the kernel's part of I/O; each phase begins with an empty cache. There is no mount: its
//! requests cost the same for any number of files.
//!
//! `cargo bench --bench many` uses up to 100,000 files, with `-- --full` 3,330,000 in 111,000 folders. Any other run
//! (as a test) does everything once, on little data. The image is in `TMPDIR`, sparse.

mod common;
#[path = "common/memory.rs"]
mod memory;

use std::{
    io::{self, Write as _},
    path::Path,
    sync::Arc,
    time::Duration,
};

use common::{Result, make_dataset, make_pool, median, name};
use dataset::{
    admin::{Datasets, Progress},
    fs::{Caller, FileSystem, FileType, Ino, ROOT},
};
use memory::peak_memory;
use pool::{
    admin::NewVdev,
    device::FileDevice,
    txg::{Committer, Engine, Settings},
    units::{GIB, MIB},
};
use rustix::time::{ClockId, clock_gettime};

/// The number of files in a folder and of folders in a folder, and the bytes of a file.
const FILES: usize = 30;
const FOLDERS: usize = 10;
const FILE: usize = 512;
/// How often each number of files is measured.
const RUNS: usize = 3;
/// The size of the device, a sparse file.
const DEVICE: u64 = 32 * GIB;
/// The most that a file may cost, relative to the smallest number of files.
const FLAT: f64 = 1.15;

const PHASES: [&str; 3] = ["create", "walk", "remove"];

/// Median CPU time of the three phases, and the peak memory until then.
struct Column {
    folders: usize,
    phases: [Duration; PHASES.len()],
    peak: u64,
}

impl Column {
    /// Microseconds for each file.
    fn each(&self, phase: usize) -> f64 {
        self.phases[phase].as_secs_f64() * 1e6 / (self.folders * FILES) as f64
    }
}

fn main() -> Result<()> {
    let given = |flag: &str| std::env::args().any(|argument| argument == flag);
    let (sizes, runs): (&[usize], _) = match (given("--bench"), given("--full")) {
        (false, _) => (&[3, 33], 1),
        (true, false) => (&[333, 3_330], RUNS),
        (true, true) => (&[333, 3_330, 33_300, 111_000], RUNS),
    };
    let folder = tempfile::tempdir()?;
    let columns = sizes.iter().map(|folders| measure(folder.path(), *folders, runs)).collect::<Result<Vec<_>>>()?;
    print(&columns)?;
    Ok(())
}

fn measure(place: &Path, folders: usize, runs: usize) -> Result<Column> {
    let all = (0..runs).map(|_| run(place, folders)).collect::<Result<Vec<_>>>()?;
    let phases = std::array::from_fn(|phase| median(&mut all.iter().map(|phases| phases[phase]).collect::<Vec<_>>()));
    Ok(Column { folders, phases, peak: peak_memory()? })
}

/// Makes, walks and removes all files of a new pool.
fn run(place: &Path, folders: usize) -> Result<[Duration; PHASES.len()]> {
    let image = place.join(format!("{folders}.img"));
    let (_, datasets) = make_pool(&[NewVdev::Disk(Arc::new(FileDevice::create(&image, DEVICE)?))])?;
    make_dataset(&datasets, "tank/data", &[])?;
    let engine = datasets.engine().clone();
    let committer = Committer::spawn(engine.clone(), Duration::from_secs(5));
    let fs = datasets.open_dataset(&name("tank/data"))?.fs().clone();
    let phases = [
        timed(&engine, || make(&fs, ROOT, 0, folders))?,
        timed(&engine, || {
            let seen = walk(&fs, ROOT)?;
            assert_eq!(seen, folders * FILES);
            Ok(())
        })?,
        timed(&engine, || {
            remove(&fs, ROOT)?;
            free(&datasets)
        })?,
    ];
    drop(committer);
    drop(fs);
    datasets.close_all()?;
    std::fs::remove_file(&image)?;
    Ok(phases)
}

/// The CPU time of a phase, from an empty cache until nothing is dirty.
fn timed(engine: &Engine, phase: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let settings = Settings::default();
    engine.tune(0, settings.dirty);
    engine.tune(settings.cache, settings.dirty);
    let now = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let began = now();
    phase()?;
    engine.commit()?;
    Ok(now() - began)
}

/// Fills the folder of this number, and the folders below.
fn make(fs: &FileSystem, folder: Ino, number: usize, folders: usize) -> Result<()> {
    let caller = Caller::default();
    for index in 0..FILES {
        let file = fs.create(&caller, folder, format!("file-{index}").as_bytes(), 0o644, true)?.ino;
        let mut content = [0; FILE];
        content[..16].copy_from_slice(&(number as u128 * FILES as u128 + index as u128).to_le_bytes());
        fs.write(file, 0, &content, false)?;
    }
    for inner in (number * FOLDERS + 1..=number * FOLDERS + FOLDERS).filter(|inner| *inner < folders) {
        let made = fs.mkdir(&caller, folder, format!("folder-{inner}").as_bytes(), 0o755)?.ino;
        make(fs, made, inner, folders)?;
    }
    Ok(())
}

/// Reads all attributes; returns the number of files.
fn walk(fs: &FileSystem, folder: Ino) -> Result<usize> {
    let (mut files, mut folders) = (0, Vec::new());
    fs.readdir_plus(folder, 0, &mut |entry, attr| {
        match entry.file_type {
            FileType::Directory if !is_dots(entry.name) => folders.push(attr.ino),
            FileType::Directory => {}
            _ => {
                assert_eq!(attr.size, FILE as u64);
                files += 1;
            }
        }
        true
    })?;
    folders.into_iter().try_fold(files, |files, folder| Ok(files + walk(fs, folder)?))
}

/// Removes the content of a folder.
fn remove(fs: &FileSystem, folder: Ino) -> Result<()> {
    let mut names = Vec::new();
    fs.readdir(folder, 0, &mut |entry| {
        if !is_dots(entry.name) {
            names.push((entry.name.to_vec(), entry.ino, entry.file_type));
        }
        true
    })?;
    for (name, ino, file_type) in names {
        match file_type {
            FileType::Directory => {
                remove(fs, ino)?;
                fs.rmdir(folder, &name)?;
            }
            _ => fs.unlink(folder, &name)?,
        }
    }
    Ok(())
}

fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// Frees all removed files.
fn free(datasets: &Datasets) -> Result<()> {
    while datasets.background_step()? == Progress::Worked {}
    Ok(())
}

fn print(columns: &[Column]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "processor time of a file of {FILE} bytes in µs; in brackets: times the first column")?;
    write!(out, "{:18}", "files")?;
    columns.iter().try_for_each(|column| write!(out, "{:>20}", column.folders * FILES))?;
    writeln!(out)?;
    for (phase, title) in PHASES.iter().enumerate() {
        write!(out, "{title:18}")?;
        for column in columns {
            write!(
                out,
                "{:>20}",
                format!("{:.1} ({:.2})", column.each(phase), column.each(phase) / columns[0].each(phase))
            )?;
        }
        let worst = columns.iter().map(|column| column.each(phase) / columns[0].each(phase)).fold(0.0, f64::max);
        writeln!(out, "{}", if worst > FLAT { "  not flat" } else { "" })?;
    }
    write!(out, "{:18}", "peak of memory")?;
    columns.iter().try_for_each(|column| write!(out, "{:>20}", format!("{} MiB", column.peak / MIB)))?;
    writeln!(out)
}
