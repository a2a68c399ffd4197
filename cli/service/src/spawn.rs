//! Starting a pool's service from a command, and waiting until the service is ready.
//!
//! The service is this program with the arguments `service NAME`. Its parent is a supervisor, again this program,
//! unless supervision is off. The service inherits nothing from the command (see `hygiene`) except the pool's lock,
//! and holds the lock until ready: if the command is killed, later commands still wait for the service. The service
//! reports over a pipe, in one frame, success or the reason of its failure, so the command fails with the service's
//! own message. Later output goes to the service's log.
//!
//! A service mounts nothing by itself: its starter asks for the mounts.

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
};

/// Maximum size of a report, in bytes.
const MAX_REPORT: usize = 1 << 20;

/// Size in bytes above which a log is renamed when a service starts.
const MAX_LOG: u64 = 8 << 20;

/// Environment variable with the settings of glibc's heap.
const HEAP_VARIABLE: &str = "GLIBC_TUNABLES";

/// The service's heap maps each large buffer separately, and keeps up to 32 MiB of free memory.
///
/// Each thread of a mount has a 16 MiB request buffer, and uses only its first megabyte. With glibc's defaults, the
/// heap would place large buffers among the small ones as soon as the first was freed. Each new mount would then wait
/// until some 48 MiB of reused memory are cleared, and all 48 MiB would stay resident. Fresh pages from the kernel
/// are already clear, and take no memory until first use.
///
/// Two arenas are enough: memory freed into an arena stays there, while threads of the remaining arenas ask the
/// kernel for more, at a cost of half a gigabyte with a million files.
const HEAP: &str = "glibc.malloc.arena_max=2:glibc.malloc.mmap_threshold=8388608:glibc.malloc.trim_threshold=33554432";

/// If set to `0`, a crashed service is not restarted until `pool import`.
const SWITCH: &str = "CENOTE_RESTART";

/// The option of `service` that runs the supervisor.
pub const SUPERVISE: &str = "--supervise";

/// Starts the service of the locked pool, under a supervisor if wanted, and returns when the service listens.
pub fn start(places: &Places, lock: &PoolLock) -> Result<(), Failure> {
    match is_supervised() {
        true => run(places, lock.pool(), &["service", SUPERVISE, lock.pool()], shared(lock)?),
        false => launch(places, lock.pool(), shared(lock)?),
    }
    .map(drop)
}

/// Whether services are started under a supervisor.
fn is_supervised() -> bool {
    env::var_os(SWITCH).is_none_or(|value| value != "0")
}

/// A standard input through which a child process holds the lock while starting.
pub(super) fn shared(lock: &PoolLock) -> Result<Stdio, Failure> {
    lock.shared().map_err(|error| failed(lock.pool(), &error))
}

fn failed(pool: &str, error: &io::Error) -> Failure {
    Failure::cannot("start the service of", pool, error)
}

/// Starts the service of `pool` itself, with this standard input. Returns the child when the service is ready.
pub(super) fn launch(places: &Places, pool: &str, input: Stdio) -> Result<Child, Failure> {
    run(places, pool, &["service", pool], input)
}

/// Runs this program with these arguments. Returns the child after a report of success.
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
            // The child is ending. The supervisor starts services repeatedly and must not accumulate zombies.
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

/// The built-in heap settings, followed by the user's settings, which take precedence.
fn heap(set: Option<String>) -> String {
    match set {
        Some(set) if !set.is_empty() => format!("{HEAP}:{set}"),
        _ => HEAP.to_owned(),
    }
}

/// The absolute path of the `pool` program: the file next to the running program, or the running program if there is
/// none.
fn program() -> io::Result<PathBuf> {
    let this = env::current_exe()?;
    let beside = this.with_file_name("pool");
    Ok(if beside.is_file() { beside } else { this })
}

/// Opens a log for appending. A log above [`MAX_LOG`] is first renamed to `.log.1`.
pub(super) fn open_log(path: &Path) -> Result<File, Failure> {
    prepare_closed(path)?;
    if fs::metadata(path).is_ok_and(|metadata| metadata.len() > MAX_LOG) {
        // If the rename fails, the log continues to grow.
        let _ = fs::rename(path, path.with_extension("log.1"));
    }
    let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    let closed = opened.and_then(|log| close_file(&log).map(|()| log));
    closed.map_err(|error| Failure::cannot("open log", path.display(), error))
}

/// Reports the result of the start to the starting command, then closes standard output. The pool's lock is given
/// back before the report, so afterwards only the command holds the lock. A service started by hand reports nothing
/// to its terminal: its exit error has the reason.
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
