//! The cost of durability on mounted file systems, side by side: fsyncs and database commits a second.
//!
//! `cargo bench --bench commits -- cenote=/mnt/a ext4=/mnt/b …`: each folder is a mounted file system, all on the same
//! disk for a fair comparison. Every row is measured on each in turn, so that all have the same conditions, several
//! times; the table shows the medians, and the factor between the first and each other.
//!
//! * `fsync`: threads that write 4 KiB behind the end of a file of their own and call `fsync`.
//! * `sqlite`: one row inserted a transaction, with `synchronous=extra`, with a write-ahead log and with a rollback
//!   journal.
//! * `postgres`: `pgbench`'s simple update, with all defaults; left out without PostgreSQL.
//!
//! Without folders, as in a test run, everything is tried once, for a moment, in a temporary folder.

#[path = "common/middle.rs"]
mod middle;

use std::{
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::{fs::chown, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use middle::{Result, median};

/// The bytes of a write.
const WRITE: usize = 4096;

/// A file system to measure.
struct Peer {
    name: String,
    dir: PathBuf,
}

/// The duration and the number of measurements.
struct Amount {
    time: Duration,
    repeats: usize,
}

/// A kind of measurement.
#[derive(Clone, Copy)]
enum Row {
    Fsync { threads: usize },
    Sqlite { journal: &'static str },
    Postgres { clients: usize },
}

const ROWS: [Row; 7] = [
    Row::Fsync { threads: 1 },
    Row::Fsync { threads: 4 },
    Row::Fsync { threads: 16 },
    Row::Sqlite { journal: "wal" },
    Row::Sqlite { journal: "delete" },
    Row::Postgres { clients: 1 },
    Row::Postgres { clients: 8 },
];

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Row::Fsync { threads } => write!(f, "fsync, {threads} threads"),
            Row::Sqlite { journal } => write!(f, "sqlite, {journal}"),
            Row::Postgres { clients } => write!(f, "postgres, {clients} clients"),
        }
    }
}

fn main() -> Result<()> {
    let peers: Vec<Peer> = std::env::args().filter_map(|argument| peer(&argument)).collect();
    if !peers.is_empty() {
        return table(&peers, &Amount { time: Duration::from_secs(5), repeats: 3 });
    }
    let folder = std::env::temp_dir().join(format!("cenote-commits-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let tried = table(
        &[Peer { name: "here".into(), dir: folder.clone() }],
        &Amount { time: Duration::from_millis(20), repeats: 1 },
    );
    fs::remove_dir_all(&folder)?;
    tried
}

fn peer(argument: &str) -> Option<Peer> {
    let (name, dir) = argument.split_once('=').filter(|(name, _)| !name.starts_with('-'))?;
    Some(Peer { name: name.into(), dir: dir.into() })
}

fn table(peers: &[Peer], amount: &Amount) -> Result<()> {
    let mut out = io::stdout().lock();
    write!(out, "{:22}", "a second")?;
    peers.iter().try_for_each(|peer| write!(out, "{:>18}", peer.name))?;
    writeln!(out)?;
    for row in ROWS {
        let mut measured = vec![Vec::new(); peers.len()];
        for repeat in 0..amount.repeats {
            for at in 0..peers.len() {
                // Each repeat begins with another peer.
                let at = (at + repeat) % peers.len();
                if let Some(rate) = row.measure(&peers[at].dir, amount.time)? {
                    measured[at].push(rate);
                }
            }
        }
        row.print(&mut measured, &mut out)?;
    }
    Ok(())
}

impl Row {
    fn print(self, measured: &mut [Vec<f64>], out: &mut impl Write) -> io::Result<()> {
        write!(out, "{:22}", self.to_string())?;
        if measured[0].is_empty() {
            return writeln!(out, "  (the program is not there)");
        }
        let medians: Vec<f64> = measured.iter_mut().map(|rates| median(rates)).collect();
        write!(out, "{:>18.0}", medians[0])?;
        medians[1..].iter().try_for_each(|rate| write!(out, "{rate:>10.0} ({:4.2}x)", medians[0] / rate))?;
        writeln!(out)?;
        out.flush()
    }

    /// The rate a second, in a new folder below `dir`; `None` if the necessary program is not installed.
    fn measure(self, dir: &Path, time: Duration) -> Result<Option<f64>> {
        let folder = dir.join("commits");
        fs::create_dir(&folder)?;
        let rate = match self {
            Row::Fsync { threads } => fsyncs(&folder, threads, time).map(Some),
            Row::Sqlite { journal } if is_there("sqlite3") => sqlite(&folder, journal, time).map(Some),
            Row::Postgres { clients } if is_there("postgres") && is_there("pgbench") => {
                postgres(&folder, clients, time).map(Some)
            }
            _ => Ok(None),
        };
        fs::remove_dir_all(&folder)?;
        rate
    }
}

fn is_there(program: &str) -> bool {
    let asked = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

fn fsyncs(folder: &Path, threads: usize, time: Duration) -> Result<f64> {
    let done = AtomicU64::new(0);
    let start = Instant::now();
    let append = |thread: usize| -> io::Result<()> {
        let mut file = File::create(folder.join(thread.to_string()))?;
        while start.elapsed() < time {
            file.write_all(&[thread as u8; WRITE])?;
            file.sync_all()?;
            done.fetch_add(1, Relaxed);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || append(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a writer does not panic"))
    })?;
    Ok(done.into_inner() as f64 / start.elapsed().as_secs_f64())
}

/// Transactions of one row each, a few hundred at a time until the time is over.
fn sqlite(folder: &Path, journal: &str, time: Duration) -> Result<f64> {
    const BATCH: u32 = 200;
    let database = folder.join("db");
    let run = |script: &str| -> Result<()> {
        let mut child = Command::new("sqlite3").arg(&database).stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        child.stdin.take().expect("it was asked for").write_all(script.as_bytes())?;
        if child.wait()?.success() { Ok(()) } else { Err("sqlite3 failed".into()) }
    };
    run(&format!("PRAGMA journal_mode={journal}; CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT);"))?;
    let inserts = "INSERT INTO t (v) VALUES (hex(randomblob(50)));\n".repeat(BATCH as usize);
    let batch = format!("PRAGMA synchronous=extra;\n{inserts}");
    let (start, mut batches) = (Instant::now(), 0);
    while batches == 0 || start.elapsed() < time {
        run(&batch)?;
        batches += 1;
    }
    Ok(f64::from(batches * BATCH) / start.elapsed().as_secs_f64())
}

/// A new database for each run. PostgreSQL refuses to run as root, so as root another user runs it.
fn postgres(folder: &Path, clients: usize, time: Duration) -> Result<f64> {
    let server = Server::start(folder)?;
    let rate = server.rate(clients, time);
    server.stop()?;
    rate
}

struct Server {
    data: PathBuf,
    /// The folder of its socket: socket paths must be short, and file systems differ in their support of sockets.
    socket: PathBuf,
}

impl Server {
    fn start(folder: &Path) -> Result<Server> {
        let socket = std::env::temp_dir().join(format!("cenote-pg-{}", std::process::id()));
        let server = Server { data: folder.join("pg"), socket };
        for folder in [&server.data, &server.socket] {
            fs::create_dir_all(folder)?;
            if let Some((user, group)) = other_user() {
                chown(folder, Some(user), Some(group))?;
            }
        }
        server.run("initdb", &["-U", "bench", "-A", "trust", "-N", "-D", &server.data()])?;
        let options = format!("-k {} -c listen_addresses=", server.socket.display());
        let log = server.socket.join("log").display().to_string();
        server.run("pg_ctl", &["start", "-w", "-s", "-D", &server.data(), "-l", &log, "-o", &options])?;
        Ok(server)
    }

    fn rate(&self, clients: usize, time: Duration) -> Result<f64> {
        self.run("pgbench", &["-i", "-q", "-s", "5", "postgres"])?;
        let (clients, seconds) = (clients.to_string(), time.as_secs().max(1).to_string());
        let output = self.run("pgbench", &["-n", "-N", "-c", &clients, "-j", "2", "-T", &seconds, "postgres"])?;
        let rate = output.lines().find_map(|line| line.strip_prefix("tps = "));
        let rate = rate.and_then(|rest| rest.split(' ').next()).ok_or("pgbench does not say how fast it was")?;
        Ok(rate.parse()?)
    }

    fn stop(self) -> Result<()> {
        self.run("pg_ctl", &["stop", "-w", "-s", "-m", "fast", "-D", &self.data()])?;
        Ok(fs::remove_dir_all(&self.socket)?)
    }

    fn data(&self) -> String {
        self.data.display().to_string()
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(program);
        command.args(arguments).env("PGHOST", &self.socket).env("PGUSER", "bench").current_dir(&self.socket);
        if let Some((user, group)) = other_user() {
            command.uid(user).gid(group);
        }
        // Not to a pipe: the server would inherit it and keep it open.
        let out = self.socket.join("out");
        let file = OpenOptions::new().create(true).write(true).truncate(true).open(&out)?;
        let status = command.stdout(file.try_clone()?).stderr(file).status()?;
        let output = fs::read_to_string(&out)?;
        if status.success() { Ok(output) } else { Err(format!("{program} fails: {output}").into()) }
    }
}

/// The user `nobody`, if this is root.
fn other_user() -> Option<(u32, u32)> {
    rustix::process::geteuid().is_root().then_some((65534, 65534))
}
