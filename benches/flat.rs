//! Costs that follow the requested work: administration with ten files and with a million.
//!
//! For each number of files, a pool is made in an image file and a dataset filled. Then each operation runs several
//! times, always with nothing dirty, with an empty cache, so that every node is read from the device, and with ten
//! relevant files changed. A walk of the tree would show in the device's reads long before it showed in time. The
//! requests are those of the commands, without their process, socket and mount.
//!
//! Numbers are medians, except for operations that can be done only once. Reads and writes are those of the device
//! behind the labels; import reads the labels too, which is the same for every pool. The import after a crash finds a
//! nearly full intent log, twice as long as a running pool lets it become, with changes of files all over the tree, and
//! replays it. Only freeing a destroyed dataset grows with its size: this happens in the background, in small steps,
//! and its row shows the total.
//!
//! `cargo bench --bench flat` measures up to 100,000 files, with `-- --full` a million. Any other run (as a test) does
//! everything once. The image is in `TMPDIR`.

mod common;
#[path = "common/memory.rs"]
mod memory;

use std::{
    collections::BTreeMap,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use common::{POOL, Result, make_dataset, make_pool, median, name};
use dataset::{
    admin::{Datasets, DestroyRequest, DestroySnapshotsRequest, Progress, RollbackRequest, SendFrom, SendRequest},
    fs::{Caller, FileSystem, Ino, ROOT},
    name::{Name, SnapshotSet, SnapshotSpan},
};
use memory::peak_memory;
use pool::{
    admin::{NewVdev, OpenOptions, open},
    device::{Access, FileDevice},
    env::SystemEnv,
    txg::{Committer, Engine, Settings},
    units::{GIB, KIB, MIB},
    vdev::Counts,
};

/// How often each operation is measured.
const RUNS: usize = 7;
/// The size of the device, a sparse file.
const DEVICE: u64 = 16 * GIB;
/// The bytes of a file.
const FILE: usize = 512;
/// The number of files in a directory.
const PER_DIRECTORY: usize = 1000;
/// The number of files changed before an operation about a change.
const CHANGED: usize = 10;
/// The bytes of the intent log at the import after a crash; there is room for 16 MiB.
const LOGGED: u64 = 15 * MIB;
/// The bytes of a file written between two fsyncs.
const LOGGED_FILE: usize = 4 << 10;

const DATA: &str = "tank/data";
const CLONE: &str = "tank/clone";

/// The operations, in the order of printing. Each is measured by [`Bench::step`].
const OPERATIONS: [&str; 10] = [
    "snapshot",
    "clone",
    "destroy clone",
    "incremental send",
    "rollback",
    "destroy snapshot",
    "import",
    IMPORT_CRASHED,
    "destroy dataset*",
    "free dataset*",
];

const IMPORT_CRASHED: &str = "import, full log";

/// The cost of an operation.
#[derive(Clone, Copy)]
struct Cost {
    time: Duration,
    device: Counts,
    /// The length of the written stream, in bytes.
    stream: u64,
}

/// The costs of every operation on one number of files.
#[derive(Default)]
struct Column {
    files: usize,
    costs: BTreeMap<&'static str, Vec<Cost>>,
    peak: u64,
}

struct Bench {
    image: PathBuf,
    datasets: Arc<Datasets>,
    column: Column,
    /// Makes each change differ from the earlier changes.
    round: u8,
}

fn main() -> Result<()> {
    let given = |flag: &str| std::env::args().any(|argument| argument == flag);
    let (sizes, runs): (&[usize], _) = match (given("--bench"), given("--full")) {
        (false, _) => (&[10, 1000], 1),
        (true, false) => (&[10, 10_000, 100_000], RUNS),
        (true, true) => (&[10, 10_000, 100_000, 1_000_000], RUNS),
    };
    let folder = tempfile::tempdir()?;
    let measure = |files: &usize| Bench::new(folder.path(), *files)?.measure(runs);
    let columns = sizes.iter().map(measure).collect::<Result<Vec<_>>>()?;
    print(&columns, runs)?;
    Ok(())
}

impl Bench {
    fn new(folder: &Path, files: usize) -> Result<Bench> {
        let image = folder.join(format!("{files}.img"));
        let (_, datasets) = make_pool(&[NewVdev::Disk(Arc::new(FileDevice::create(&image, DEVICE)?))])?;
        make_dataset(&datasets, DATA, &[])?;
        let bench = Bench { image, datasets, column: Column { files, ..Column::default() }, round: 0 };
        let committer = Committer::spawn(bench.engine().clone(), Duration::from_secs(5));
        fill(&*bench.fs(DATA)?, files)?;
        drop(committer);
        Ok(bench)
    }

    fn measure(mut self, runs: usize) -> Result<Column> {
        for _ in 0..runs {
            self.run()?;
            self = self.import("import", close)?;
        }
        for _ in 0..runs {
            self.fill_log()?;
            self = self.import(IMPORT_CRASHED, crash)?;
        }
        let request = DestroyRequest { name: name(DATA), recursive: true, dependents: false };
        self.step("destroy dataset*", |bench| Ok(bench.datasets.destroy(request.clone(), false).map(|_| 0)?))?;
        self.step("free dataset*", |bench| bench.free().map(|()| 0))?;
        close(self.datasets)?;
        std::fs::remove_file(&self.image)?;
        Ok(Column { peak: peak_memory()?, ..self.column })
    }

    /// Every operation once, each from the state that the previous one has left.
    fn run(&mut self) -> Result<()> {
        self.step("snapshot", |bench| bench.snapshot("before").map(|()| 0))?;
        self.step("clone", |bench| {
            let snapshot = format!("{DATA}@before").parse()?;
            bench.datasets.clone_snapshot(&snapshot, &name(CLONE), false, Vec::new(), (0, 0))?;
            Ok(0)
        })?;
        self.change(CLONE)?;
        let request = DestroyRequest { name: name(CLONE), recursive: false, dependents: false };
        self.step("destroy clone", |bench| Ok(bench.datasets.destroy(request.clone(), false).map(|_| 0)?))?;
        self.free()?;
        self.change(DATA)?;
        self.snapshot("after")?;
        self.step("incremental send", |bench| bench.send())?;
        self.change(DATA)?;
        let request = RollbackRequest { snapshot: format!("{DATA}@after").parse()?, later: false, dependents: false };
        self.step("rollback", |bench| Ok(bench.datasets.rollback(request.clone()).map(|_| 0)?))?;
        self.destroy_snapshot("after")?;
        self.step("destroy snapshot", |bench| bench.destroy_snapshot("before").map(|()| 0))?;
        self.free()
    }

    /// Measures an operation, which returns the length of its stream.
    fn step(&mut self, operation: &'static str, act: impl Fn(&Bench) -> Result<u64>) -> Result<()> {
        self.engine().commit()?;
        let settings = Settings::default();
        self.engine().tune(0, settings.dirty);
        self.engine().tune(settings.cache, settings.dirty);
        let (before, start) = (self.counts(), Instant::now());
        let stream = act(self)?;
        self.note(operation, Cost { time: start.elapsed(), device: since(self.counts(), before), stream });
        Ok(())
    }

    fn note(&mut self, operation: &'static str, cost: Cost) {
        self.column.costs.entry(operation).or_default().push(cost);
    }

    /// Closes the pool by `leave` and measures opening it, with the dataset.
    fn import(self, operation: &'static str, leave: fn(Arc<Datasets>) -> Result<()>) -> Result<Bench> {
        let Bench { image, datasets, column, round } = self;
        leave(datasets)?;
        let start = Instant::now();
        let device = Arc::new(FileDevice::open(&image, Access::ReadWrite)?);
        let pool = open(vec![device], &OpenOptions::default(), Arc::new(SystemEnv))?;
        let datasets = Datasets::open(pool.engine().clone(), name(POOL)).expect("the pool opens");
        let mut bench = Bench { image, datasets, column, round };
        bench.fs(DATA)?;
        bench.note(operation, Cost { time: start.elapsed(), device: bench.counts(), stream: 0 });
        Ok(bench)
    }

    fn engine(&self) -> &Arc<Engine> {
        self.datasets.engine()
    }

    fn fs(&self, dataset: &str) -> Result<Arc<FileSystem>> {
        Ok(self.datasets.open_dataset(&name(dataset))?.fs().clone())
    }

    fn counts(&self) -> Counts {
        self.engine().storage().vdevs.all()[0].leaves()[0].counters().snapshot()
    }

    fn snapshot(&self, snapshot: &str) -> Result<()> {
        self.datasets.snapshot(vec![format!("{DATA}@{snapshot}").parse()?], false, Vec::new())?;
        Ok(())
    }

    fn destroy_snapshot(&self, snapshot: &str) -> Result<()> {
        let set = SnapshotSet { dataset: name(DATA), spans: vec![SnapshotSpan::One(snapshot.into())] };
        let request = DestroySnapshotsRequest { set, recursive: false, dependents: false, defer: false };
        self.datasets.destroy_snapshots(request, false)?;
        Ok(())
    }

    fn send(&self) -> Result<u64> {
        let request = SendRequest {
            from: Some(SendFrom::Base(Name::Snapshot(format!("{DATA}@before").parse()?))),
            ..SendRequest::plain(format!("{DATA}@after").parse()?)
        };
        Ok(self.datasets.send(&request, dataset::error::Reader::default(), &mut io::sink(), 2, &mut |_| ())?.bytes)
    }

    /// Rewrites ten files, spread over all.
    fn change(&mut self, dataset: &str) -> Result<()> {
        let fs = self.fs(dataset)?;
        self.write_spread(&fs, FILE)
    }

    fn write_spread(&mut self, fs: &FileSystem, bytes: usize) -> Result<()> {
        self.round = self.round.wrapping_add(1);
        for index in 0..CHANGED {
            let file = find(fs, index * self.column.files / CHANGED)?;
            fs.write(file, 0, &vec![self.round; bytes], false)?;
        }
        Ok(())
    }

    /// Changes files all over the tree, each time followed by an fsync and never by a commit, until the log is full.
    fn fill_log(&mut self) -> Result<()> {
        // The log of an opened pool begins with its first commit.
        self.change(DATA)?;
        self.engine().commit()?;
        let before = self.engine().log_stats();
        let fs = self.fs(DATA)?;
        let full = |bytes: u64| bytes - before.bytes >= LOGGED;
        while !full(self.engine().log_stats().bytes) {
            self.write_spread(&fs, LOGGED_FILE)?;
            fs.fsync(ROOT)?;
        }
        assert_eq!(self.engine().log_stats().commits, before.commits, "the log took every change");
        Ok(())
    }

    /// Frees all destroyed datasets.
    fn free(&self) -> Result<()> {
        while self.datasets.background_step()? == Progress::Worked {}
        Ok(())
    }
}

/// Closes the pool, and releases the lock on its image.
fn close(datasets: Arc<Datasets>) -> Result<()> {
    datasets.close_all()?;
    datasets.engine().commit()?;
    Ok(())
}

/// Leaves the pool as a killed service does: without the commit of a close.
fn crash(datasets: Arc<Datasets>) -> Result<()> {
    datasets.engine().abandon();
    Ok(())
}

fn directory_name(index: usize) -> String {
    format!("directory-{}", index / PER_DIRECTORY)
}

fn file_name(index: usize) -> String {
    format!("file-{index}")
}

fn fill(fs: &FileSystem, files: usize) -> Result<()> {
    let caller = Caller::default();
    let mut directory = ROOT;
    for index in 0..files {
        if index % PER_DIRECTORY == 0 {
            directory = fs.mkdir(&caller, ROOT, directory_name(index).as_bytes(), 0o755)?.ino;
        }
        let file = fs.create(&caller, directory, file_name(index).as_bytes(), 0o644, true)?.ino;
        let mut content = [0; FILE];
        content[..8].copy_from_slice(&index.to_le_bytes());
        fs.write(file, 0, &content, false)?;
    }
    Ok(())
}

fn find(fs: &FileSystem, index: usize) -> Result<Ino> {
    let directory = fs.lookup(ROOT, directory_name(index).as_bytes())?.ino;
    Ok(fs.lookup(directory, file_name(index).as_bytes())?.ino)
}

fn since(now: Counts, then: Counts) -> Counts {
    Counts {
        reads: now.reads - then.reads,
        writes: now.writes - then.writes,
        read_bytes: now.read_bytes - then.read_bytes,
        written_bytes: now.written_bytes - then.written_bytes,
        ..now
    }
}

impl Column {
    /// The median of one number over an operation's runs.
    fn middle<T: PartialOrd + Copy>(&self, operation: &str, number: impl Fn(&Cost) -> T) -> T {
        median(&mut self.costs[operation].iter().map(number).collect::<Vec<_>>())
    }
}

fn print(columns: &[Column], runs: usize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{FILE} bytes a file, {CHANGED} changed, medians of {runs} (*: once); in brackets: times the first column"
    )?;
    write!(out, "{:18}{:9}", "", "files")?;
    columns.iter().try_for_each(|column| write!(out, "{:>26}", column.files))?;
    writeln!(out)?;
    for operation in OPERATIONS {
        let mut row = |title: &str, label: &str, cell: &dyn Fn(&Column) -> String| {
            write!(out, "{title:18}{label:9}")?;
            columns.iter().try_for_each(|column| write!(out, "{:>26}", cell(column)))?;
            writeln!(out)
        };
        row(operation, "time", &|column| {
            let time = |column: &Column| column.middle(operation, |cost| cost.time.as_secs_f64() * 1e3);
            format!("{:.2} ms ({:.2})", time(column), time(column) / time(&columns[0]))
        })?;
        row("", "read", &|column| {
            let number = |which: fn(&Counts) -> u64| column.middle(operation, |cost| which(&cost.device));
            volume(number(|device| device.reads), number(|device| device.read_bytes))
        })?;
        row("", "written", &|column| {
            let number = |which: fn(&Counts) -> u64| column.middle(operation, |cost| which(&cost.device));
            volume(number(|device| device.writes), number(|device| device.written_bytes))
        })?;
        if columns[0].middle(operation, |cost| cost.stream) > 0 {
            row("", "stream", &|column| format!("{} B", column.middle(operation, |cost| cost.stream)))?;
        }
    }
    write!(out, "{:27}", "peak of memory")?;
    columns.iter().try_for_each(|column| write!(out, "{:>26}", format!("{} MiB", column.peak / MIB)))?;
    writeln!(out)
}

/// Requests and their bytes.
fn volume(requests: u64, bytes: u64) -> String {
    format!("{requests} = {:.1} KiB", bytes as f64 / KIB as f64)
}
