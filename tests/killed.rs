//! The service is killed again and again under programs that rely on `fsync`; everything acknowledged survives.
//!
//! Appending writers, a writer that makes files, SQLite and git work in the mount until the service is gone. Then the
//! pool is imported again, and each finds all acknowledged data. `CENOTE_ROUNDS` sets the number of rounds; the default
//! is a few.

mod lab;

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    time::Duration,
};

use lab::{Lab, can_mount};

/// A program that relies on `fsync`.
struct Client {
    name: &'static str,
    /// Does the task of this number, and returns once the result is durable.
    act: fn(&Path, u64) -> io::Result<()>,
    /// The number of tasks whose results are there, in order and whole.
    count: fn(&Path) -> u64,
    /// The number of tasks acknowledged, or found.
    acknowledged: AtomicU64,
}

impl Client {
    fn new(name: &'static str, act: fn(&Path, u64) -> io::Result<()>, count: fn(&Path) -> u64) -> Client {
        Client { name, act, count, acknowledged: AtomicU64::new(0) }
    }

    /// Works until an error: the service is gone.
    fn work(&self, home: &Path) {
        for number in self.acknowledged.load(SeqCst) + 1.. {
            if (self.act)(home, number).is_err() {
                return;
            }
            self.acknowledged.store(number, SeqCst);
        }
    }

    fn check(&self, home: &Path, round: u64) {
        let (found, promised) = ((self.count)(home), self.acknowledged.load(SeqCst));
        assert!(found >= promised, "round {round}, {}: {found} of {promised} are there", self.name);
        assert!(found <= promised + 1, "round {round}, {}: {found} are there, {promised} were done", self.name);
        // Results found after an import stay: the next round continues from there.
        self.acknowledged.store(found, SeqCst);
    }
}

/// Appends a record of 4 KiB that consists of its number.
fn append(home: &Path, number: u64) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(home.join("journal"))?;
    file.write_all(&number.to_le_bytes().repeat(512))?;
    file.sync_data()
}

fn appended(home: &Path) -> u64 {
    let mut content = Vec::new();
    let Ok(mut file) = File::open(home.join("journal")) else { return 0 };
    file.read_to_end(&mut content).unwrap();
    let whole = content.chunks_exact(4096).zip(1u64..).filter(|(record, number)| {
        let (words, _) = record.as_chunks::<8>();
        words.iter().all(|word| u64::from_le_bytes(*word) == *number)
    });
    whole.count() as u64
}

/// As [`append`], but each write is durable when it returns, by the open flags.
fn append_at_once(home: &Path, number: u64) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let path = home.join("journal");
    let flags = rustix::fs::OFlags::DSYNC.bits().cast_signed();
    let mut file = OpenOptions::new().create(true).append(true).custom_flags(flags).open(&path)?;
    if number == 1 {
        // The first record needs the file's name as well.
        File::open(home)?.sync_all()?;
    }
    file.write_all(&number.to_le_bytes().repeat(512))
}

/// Makes a file, renames it to its number, and syncs its directory.
fn make(home: &Path, number: u64) -> io::Result<()> {
    let (new, named) = (home.join("new"), home.join(number.to_string()));
    File::create(&new)?.write_all(&number.to_le_bytes())?;
    fs::rename(&new, &named)?;
    File::open(&named)?.sync_all()
}

fn made(home: &Path) -> u64 {
    let there =
        |number: &u64| fs::read(home.join(number.to_string())).is_ok_and(|content| content == number.to_le_bytes());
    (1..).take_while(there).count() as u64
}

fn run(command: &mut Command) -> io::Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = || io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned());
    if output.status.success() { Ok(text) } else { Err(error()) }
}

fn sqlite(home: &Path, statement: &str) -> io::Result<String> {
    run(Command::new("sqlite3").arg(home.join("db")).arg(statement))
}

fn insert(home: &Path, number: u64) -> io::Result<()> {
    let create = "create table if not exists t (n integer primary key, pad blob);";
    // The commit is the durable removal of the journal, which only "extra" ensures.
    sqlite(home, &format!("pragma synchronous=extra; {create} insert into t values ({number}, randomblob(700));"))?;
    // But if opening the directory fails, SQLite succeeds without a message. So a success counts only if the service is
    // alive afterwards. This request is not answered from a cache, and makes nothing durable.
    rustix::fs::statvfs(home)?;
    Ok(())
}

fn insert_with_log(home: &Path, number: u64) -> io::Result<()> {
    let create = "create table if not exists t (n integer primary key, pad blob);";
    let mode = "pragma journal_mode=wal; pragma synchronous=full;";
    sqlite(home, &format!("{mode} {create} insert into t values ({number}, randomblob(700));")).map(drop)
}

fn inserted(home: &Path) -> u64 {
    if !home.join("db").exists() {
        return 0;
    }
    let integrity = sqlite(home, "pragma integrity_check").unwrap();
    assert_eq!(integrity.trim(), "ok", "{}", home.display());
    let count = sqlite(home, "select ifnull(max(n), 0), count(*) from t").unwrap_or_else(|_| "0|0".into());
    let (last, count) = count.trim().split_once('|').unwrap();
    assert_eq!(last, count, "rows are missing between others");
    count.parse().unwrap()
}

fn git(home: &Path, words: &[&str]) -> io::Result<String> {
    let settings = ["core.fsync=all", "user.name=a", "user.email=a@b", "gc.auto=0", "init.defaultBranch=main"];
    let mut command = Command::new("git");
    command.arg("-C").arg(home).args(settings.iter().flat_map(|setting| ["-c", setting])).args(words);
    run(command.env("HOME", "/nonexistent").env("GIT_CONFIG_NOSYSTEM", "1"))
}

fn commit(home: &Path, number: u64) -> io::Result<()> {
    if number == 1 {
        git(home, &["init", "-q"])?;
    }
    // A killed command leaves its lock behind, for its user to remove.
    let _ = fs::remove_file(home.join(".git/index.lock"));
    fs::write(home.join("file"), number.to_string())?;
    git(home, &["add", "file"])?;
    git(home, &["commit", "-q", "-m", &number.to_string()])?;
    // Git syncs its writes, but not the rename that commits.
    File::open(home.join(".git/refs/heads"))?.sync_all()
}

fn committed(home: &Path) -> u64 {
    for lock in ["index.lock", "HEAD.lock", "refs/heads/main.lock"] {
        let _ = fs::remove_file(home.join(".git").join(lock));
    }
    let Ok(count) = git(home, &["rev-list", "--count", "HEAD"]) else { return 0 };
    git(home, &["fsck", "--full"]).unwrap();
    count.trim().parse().unwrap()
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn clients() -> Vec<Client> {
    let mut clients = vec![
        Client::new("append", append, appended),
        Client::new("append-dsync", append_at_once, appended),
        Client::new("make", make, made),
    ];
    if is_there("sqlite3") {
        clients.push(Client::new("sqlite", insert, inserted));
        clients.push(Client::new("sqlite-wal", insert_with_log, inserted));
    }
    if is_there("git") {
        clients.push(Client::new("git", commit, committed));
    }
    clients
}

#[test]
fn what_was_acknowledged_survives_the_service() {
    if !can_mount() {
        return;
    }
    let rounds: u64 = std::env::var("CENOTE_ROUNDS").map_or(5, |rounds| rounds.parse().unwrap());
    let lab = Lab::new();
    lab.create("tank", "1G");
    let clients = clients();
    for client in &clients {
        lab.fs(&["create", &format!("tank/{}", client.name)]);
    }
    for round in 1..=rounds {
        std::thread::scope(|scope| {
            for client in &clients {
                scope.spawn(|| client.work(&lab.mount("tank").join(client.name)));
            }
            // The moment differs from round to round, before, in and after commits.
            std::thread::sleep(Duration::from_millis(300 + round * 1117 % 2900));
            lab.kill("tank");
        });
        lab.pool(&["import", "tank"]);
        clients.iter().for_each(|client| client.check(&lab.mount("tank").join(client.name), round));
    }
    assert!(clients.iter().all(|client| client.acknowledged.load(SeqCst) > 0), "nobody may be idle");
    lab.check("tank");
}
