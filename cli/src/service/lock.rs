//! The lock that commands of one user take turns with at opening a pool.
//!
//! A pool has one owner at a time: its devices are locked by whoever opened them. Two commands that open the same pool
//! one after the other, or one that opens it while another starts its service, are no conflict, though, and should not
//! fail. So whoever is about to open a pool first waits here for a while. The lock ends with its process.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use super::places::{close_file, prepare_shared};
use crate::failure::Failure;

/// How long a command waits for another one.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);

/// Held while it lives.
#[derive(Debug)]
pub struct PoolLock {
    _file: File,
}

impl PoolLock {
    /// Waits for the lock of `pool` at `path` and takes it. `command` is what others are told meanwhile.
    pub fn take(path: &Path, pool: &str, command: &str) -> Result<PoolLock, Failure> {
        PoolLock::take_within(path, pool, command, PATIENCE)
    }

    fn take_within(path: &Path, pool: &str, command: &str, patience: Duration) -> Result<PoolLock, Failure> {
        prepare_shared(path)?;
        let failed = |error: io::Error| Failure::cannot("lock", path.display(), error);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(path).map_err(failed)?;
        close_file(&file).map_err(failed)?;
        let deadline = Instant::now() + patience;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(PAUSE),
                Err(TryLockError::WouldBlock) => return Err(held(path, pool)),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
        }
        file.set_len(0).map_err(failed)?;
        writeln!(file, "process {} ({command})", std::process::id()).map_err(failed)?;
        Ok(PoolLock { _file: file })
    }
}

fn held(path: &Path, pool: &str) -> Failure {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let holder: String = line.chars().filter(|c| !c.is_control()).take(200).collect();
    let holder = if holder.is_empty() { "another command" } else { &holder };
    Failure::cannot("open", pool, format!("it is in use by {holder}")).hint("wait until that is done")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_take_turns() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/tank.lock");
        let first = PoolLock::take(&path, "tank", "fs receive tank/a").unwrap();
        let refused = PoolLock::take_within(&path, "tank", "fs list", Duration::from_millis(30)).unwrap_err();
        assert!(refused.message.contains("fs receive tank/a"), "{}", refused.message);
        let second = thread::spawn({
            let path = path.clone();
            move || PoolLock::take(&path, "tank", "fs list").map(drop)
        });
        thread::sleep(Duration::from_millis(50));
        drop(first);
        assert_eq!(second.join().unwrap(), Ok(()));
    }
}
