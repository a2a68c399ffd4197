//! The lock under which commands of one user take turns at opening a pool, and at starting and ending its service.
//!
//! A pool has one owner at a time: the process that opened the pool has locked its devices. But two commands that
//! open the same pool one after the other do not conflict, and neither do a command that opens the pool and a command
//! that starts its service. Both should succeed, so a command that is about to open a pool first waits here for a
//! while.
//!
//! # Who holds the lock, and how long
//!
//! Three facts define the state of a pool on this machine: whether a service runs, what the labels say, and whether
//! the registry knows the pool. A command that changes one changes the others too; after a crash of the service, so
//! does the supervisor. Both hold the lock from before the check for a service until the registry is correct:
//!
//! ```text
//! export, destroy    lock   ask the service to close the pool, or open and close here      unregister   unlock
//! import, create     lock   open the pool   register   start the service   ask for the mounts           unlock
//! supervisor         lock   still registered, not served?   start the service   ask for the mounts      unlock
//! other commands     lock   served?  yes: unlock and ask     no: open here until the command rests      unlock
//!                    (waiting ends early once the service answers, even if mounts are still missing)
//! ```
//!
//! So a restart happens before an export, which then ends the new service, or after the export, when the pool is no
//! longer known. If a service crashes during an export, the export continues without the service, and no restart
//! happens before the end of the export. Changes of the registry take the lock as an argument, so no entry changes
//! without the lock.
//!
//! Requests to a service neither need nor hold the lock: a request may take hours, and the service itself refuses
//! requests while the pool is being closed. `pool export --abandon` asks the service before waiting for the lock,
//! because the holder of the lock may hang.
//!
//! The lock ends with its process. A process started under the lock has the lock file as its standard input until the
//! process is ready. So the lock outlives a command that is killed while a service starts. A command that asks again
//! for a lock it holds gets the same lock.

use std::{
    cell::RefCell,
    fs::{File, OpenOptions, TryLockError},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    process::Stdio,
    sync::{Arc, Weak},
    thread,
    time::{Duration, Instant},
};

use protocol::Failure;

use super::{
    places::{close_file, prepare_shared},
    registry::is_pool_name,
};

/// How long a command waits for another command's lock.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// As [`PATIENCE`], to note a change already made in the pool. The holder may be mounting thousands of datasets.
pub const LONG_PATIENCE: Duration = Duration::from_secs(3600);
const PAUSE: Duration = Duration::from_millis(20);

/// Proof that this process holds the lock. The last clone to be dropped releases the lock.
#[derive(Clone, Debug)]
pub struct PoolLock(Arc<Locked>);

#[derive(Debug)]
struct Locked {
    pool: String,
    file: File,
}

impl PoolLock {
    /// Waits up to `patience` for the lock of `pool` at `path`, and takes the lock. Waiting commands show `command`
    /// to their users as the holder.
    pub fn take(path: &Path, pool: &str, command: &str, patience: Duration) -> Result<PoolLock, Failure> {
        PoolLock::take_within(path, pool, command, patience, &|| false)?.ok_or_else(|| held(path, pool))
    }

    /// As [`PoolLock::take`], but gives up and returns `None` as soon as `is_needless` holds.
    pub fn take_unless(
        path: &Path,
        pool: &str,
        command: &str,
        is_needless: &dyn Fn() -> bool,
    ) -> Result<Option<PoolLock>, Failure> {
        match PoolLock::take_within(path, pool, command, PATIENCE, is_needless)? {
            None if !is_needless() => Err(held(path, pool)),
            taken => Ok(taken),
        }
    }

    /// Takes the lock, or returns `None` if another process holds the lock.
    pub fn try_take(path: &Path, pool: &str, command: &str) -> Result<Option<PoolLock>, Failure> {
        PoolLock::take_within(path, pool, command, Duration::ZERO, &|| false)
    }

    fn take_within(
        path: &Path,
        pool: &str,
        command: &str,
        patience: Duration,
        is_needless: &dyn Fn() -> bool,
    ) -> Result<Option<PoolLock>, Failure> {
        // The name may come from a label, and becomes a file name.
        if !is_pool_name(pool) {
            return Err(Failure::cannot("open", pool, "invalid pool name"));
        }
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
                Err(TryLockError::WouldBlock) if Instant::now() < deadline && !is_needless() => thread::sleep(PAUSE),
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
        }
        file.set_len(0).map_err(failed)?;
        writeln!(file, "process {} ({command})", std::process::id()).map_err(failed)?;
        Ok(Some(PoolLock(Arc::new(Locked { pool: pool.to_owned(), file }))))
    }

    /// The name of the locked pool.
    pub fn pool(&self) -> &str {
        &self.0.pool
    }

    /// A standard input for a child process. The child also holds the lock, until the child closes its standard
    /// input.
    pub fn shared(&self) -> io::Result<Stdio> {
        self.0.file.try_clone().map(Stdio::from)
    }
}

/// The locks held by one command.
#[derive(Debug, Default)]
pub(super) struct Held(RefCell<Vec<Weak<Locked>>>);

impl Held {
    /// The lock of a pool, if this command holds the lock.
    pub(super) fn find(&self, pool: &str) -> Option<PoolLock> {
        let held = self.0.borrow();
        held.iter().filter_map(Weak::upgrade).find(|lock| lock.pool == pool).map(PoolLock)
    }

    /// Remembers a newly taken lock.
    pub(super) fn note(&self, lock: PoolLock) -> PoolLock {
        let mut held = self.0.borrow_mut();
        held.retain(|lock| lock.strong_count() > 0);
        held.push(Arc::downgrade(&lock.0));
        lock
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
        let first = PoolLock::take(&path, "tank", "fs receive tank/a", PATIENCE).unwrap();
        assert!(
            PoolLock::take_within(&path, "tank", "fs list", Duration::from_millis(30), &|| false).unwrap().is_none()
        );
        assert!(PoolLock::take_unless(&path, "tank", "fs list", &|| true).unwrap().is_none());
        assert!(PoolLock::try_take(&path, "tank", "fs list").unwrap().is_none());
        let refused = held(&path, "tank");
        assert!(refused.to_string().contains("fs receive tank/a"), "{}", refused.to_string());
        let second = thread::spawn({
            let path = path.clone();
            move || PoolLock::take(&path, "tank", "fs list", PATIENCE).map(drop)
        });
        thread::sleep(Duration::from_millis(50));
        drop(first);
        assert_eq!(second.join().unwrap(), Ok(()));
    }

    #[test]
    fn a_name_that_is_none_makes_no_file() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["../tank", "", "tank/a", "."] {
            let path = folder.path().join(format!("run/{name}.lock"));
            assert!(PoolLock::take(&path, name, "pool import -F", PATIENCE).is_err(), "{name}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_command_that_holds_a_lock_is_given_it_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tank.lock");
        let held = Held::default();
        let first = held.note(PoolLock::take(&path, "tank", "pool import", PATIENCE).unwrap());
        let again = held.find("tank").unwrap();
        assert!(held.find("other").is_none());
        drop(first);
        assert!(PoolLock::try_take(&path, "tank", "fs list").unwrap().is_none());
        drop(again);
        assert!(held.find("tank").is_none());
        assert!(PoolLock::try_take(&path, "tank", "fs list").unwrap().is_some());
    }

    #[test]
    fn a_process_started_under_a_lock_has_it_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tank.lock");
        let lock = PoolLock::take(&path, "tank", "pool import", PATIENCE).unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").stdin(lock.shared().unwrap()).spawn().unwrap();
        drop(lock);
        assert!(PoolLock::try_take(&path, "tank", "fs list").unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(PoolLock::try_take(&path, "tank", "fs list").unwrap().is_some());
    }
}
