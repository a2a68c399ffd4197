//! Starting a pool's service from a command, and waiting until it is ready.
//!
//! The service is this very program with the arguments `service NAME`, and its parent a supervisor, this
//! program too, unless that is not wanted. It keeps nothing of the command (see `hygiene`) but the pool's lock, until it is
//! ready: if the command is killed, others still wait for the service. It says over a pipe, in one frame, that it is ready
//! or why it is not: so a command that starts a service fails with the service's own words. What it says later goes to its
//! log.
//!
//! A service mounts nothing by itself. Who has started it has it mount what is to be mounted.

use std::{
    env,
    fs::{self, File, OpenOptions},
    io::{self, IsTerminal, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use protocol::{Failure, frame};

use super::{
    hygiene,
    lock::PoolLock,
    places::{Places, close_file, prepare_closed},
    supervisor,
};

/// The largest report.
const MAX_REPORT: usize = 1 << 20;

/// A log that has grown beyond this is put aside when a service starts.
const MAX_LOG: u64 = 8 << 20;

/// Where glibc looks for the settings of its heap.
const HEAP_VARIABLE: &str = "GLIBC_TUNABLES";

/// The service's heap gives large buffers pages of their own, and keeps up to 32 MiB of others that are free.
///
/// Each thread that serves a mount has a buffer of 16 MiB for requests, of which it uses the first megabyte. Left to
/// itself the heap puts such buffers among the small ones once the first was freed, and then every new mount waits until
/// it has cleared some 48 MiB of memory that used to be something else, all of which stays resident. Pages fresh from the
/// kernel are clear, and take no memory until they are used.
///
/// Two arenas are enough: what a thread frees into an arena of its own stays there while others ask the kernel for more,
/// which takes half a gigabyte with a million files.
const HEAP: &str = "glibc.malloc.arena_max=2:glibc.malloc.mmap_threshold=8388608:glibc.malloc.trim_threshold=33554432";

/// The words that begin the supervisor of a service.
pub const SUPERVISE: &str = "--supervise";

/// Starts the service of the pool whose lock this is, and returns when it listens.
pub fn start(places: &Places, lock: &PoolLock) -> Result<(), Failure> {
    match supervisor::is_wanted() {
        true => run(places, lock.pool(), &["service", SUPERVISE, lock.pool()], shared(lock)?),
        false => launch(places, lock.pool(), shared(lock)?),
    }
    .map(drop)
}

/// The standard input by which a process holds a lock while it starts.
pub(super) fn shared(lock: &PoolLock) -> Result<Stdio, Failure> {
    lock.shared().map_err(|error| failed(lock.pool(), &error))
}

fn failed(pool: &str, error: &io::Error) -> Failure {
    Failure::cannot("start the service of", pool, error)
}

/// Starts the service of `pool` itself, with this standard input, and returns it when it is ready.
pub(super) fn launch(places: &Places, pool: &str, input: Stdio) -> Result<Child, Failure> {
    run(places, pool, &["service", pool], input)
}

/// Runs this program with these words, and returns it when it has reported that all is well.
fn run(places: &Places, pool: &str, words: &[&str], input: Stdio) -> Result<Child, Failure> {
    let log = places.log(pool);
    let failed = |error: io::Error| failed(pool, &error);
    let mut child = Command::new(program().map_err(failed)?)
        .args(words)
        .current_dir("/")
        .env_clear()
        .envs(hygiene::trimmed(env::vars_os()))
        .env(HEAP_VARIABLE, heap(env::var(HEAP_VARIABLE).ok()))
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(open_log(&log)?)
        .spawn()
        .map_err(failed)?;
    let mut pipe = child.stdout.take().expect("it was asked for");
    match frame::read::<Result<(), Failure>>(&mut pipe, MAX_REPORT).map_err(failed)? {
        Some(Ok(())) => Ok(child),
        Some(Err(failure)) => {
            // It ends now. The supervisor starts one again and again, and must not gather the dead.
            let _ = child.wait();
            Err(failure)
        }
        None => Err(ended(child, pool, &log)),
    }
}

fn ended(mut child: Child, pool: &str, log: &Path) -> Failure {
    let how = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
    Failure::cannot("start the service of", pool, format!("it ended: {how}"))
        .hint(format!("its log: {}", log.display()))
}

/// Our settings of the heap, and behind them, where they win, those that somebody has made.
fn heap(set: Option<String>) -> String {
    match set {
        Some(set) if !set.is_empty() => format!("{HEAP}:{set}"),
        _ => HEAP.to_owned(),
    }
}

/// The absolute path of `pool`: this program, or the one beside it if this is `fs`.
fn program() -> io::Result<PathBuf> {
    let this = env::current_exe()?;
    let beside = this.with_file_name("pool");
    Ok(if beside.is_file() { beside } else { this })
}

/// Opens a log to be added to.
pub(super) fn open_log(path: &Path) -> Result<File, Failure> {
    prepare_closed(path)?;
    if fs::metadata(path).is_ok_and(|metadata| metadata.len() > MAX_LOG) {
        // If it stays, it grows further.
        let _ = fs::rename(path, path.with_extension("log.1"));
    }
    let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    let closed = opened.and_then(|log| close_file(&log).map(|()| log));
    closed.map_err(|error| Failure::cannot("open log", path.display(), error))
}

/// Tells the command that has started this service how that went. A service that was started by hand tells its terminal
/// nothing: what is wrong stands in the error it ends with. After that nothing is said on standard output any more. Before
/// it this process gives the pool's lock back, so that it is the command's alone.
pub fn report(result: &Result<(), Failure>) -> io::Result<()> {
    let given_back = hygiene::close_input();
    let mut out = io::stdout();
    if out.is_terminal() {
        return given_back;
    }
    let said = frame::encode(result, MAX_REPORT).and_then(|frame| out.write_all(&frame)).and_then(|()| out.flush());
    hygiene::close_output()?;
    said.and(given_back)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_the_heap_that_are_there_win() {
        assert_eq!(heap(None), HEAP);
        assert_eq!(heap(Some(String::new())), HEAP);
        assert!(heap(Some("glibc.malloc.arena_max=1".into())).ends_with(":glibc.malloc.arena_max=1"));
    }

    #[test]
    fn a_large_log_is_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log/tank.log");
        open_log(&path).unwrap().write_all(b"one line\n").unwrap();
        open_log(&path).unwrap().write_all(b"another\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one line\nanother\n");
        open_log(&path).unwrap().set_len(MAX_LOG + 1).unwrap();
        open_log(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
        assert_eq!(fs::metadata(folder.path().join("log/tank.log.1")).unwrap().len(), MAX_LOG + 1);
    }
}
