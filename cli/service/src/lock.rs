//! The lock that commands of one user take turns with at opening a pool, and at starting and ending its service.
//!
//! A pool has one owner at a time: its devices are locked by whoever opened them. Two commands that open the same pool
//! one after the other, or one that opens it while another starts its service, are no conflict, though, and should not
//! fail. So whoever is about to open a pool first waits here for a while.
//!
//! # Who holds it, and how long
//!
//! Three things say what a pool is to this machine: whether it has a service, what its labels say, and whether the registry
//! knows it. A command that changes one of them changes the others too, and the supervisor does so by itself when a service
//! has crashed. Both hold the lock from before they look whether there is a service until the registry says what is true:
//!
//! ```text
//! export, destroy    lock   ask the service to close the pool, or open and close it here   forget it    unlock
//! import, create     lock   open it   know it   start its service   have it mounted                     unlock
//! supervisor         lock   is it known still, and not served?   start its service   have it mounted    unlock
//! others             lock   is it served?  yes: unlock and ask       no: open it here, until they rest   unlock
//!                    (and stop waiting for it when the service answers, though not all is mounted)
//! ```
//!
//! So a restart comes before an export, which then ends the new service, or after it, and then finds nothing that is known. A
//! service that crashes during an export is not started again before the export is done, which goes on without it. The
//! registry takes the lock as an argument: what is known of a pool changes in no other way.
//!
//! Requests to a service need no lock, and hold none: they may take hours, and the service itself knows whether it is being
//! closed. Giving a pool up asks the service before it waits for the lock: the command that holds the lock may hang.
//!
//! The lock ends with its process. A process that is started under it has it as its standard input until it is ready, so it
//! outlives a command that is killed while a service starts. A command that holds it and asks for it again is given the same.

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

/// How long a command waits for another one.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// The same to note a change that the pool itself has made already. The holder may be mounting thousands of datasets.
pub const LONG_PATIENCE: Duration = Duration::from_secs(3600);
const PAUSE: Duration = Duration::from_millis(20);

/// Held as long as it or a clone of it lives.
#[derive(Clone, Debug)]
pub struct PoolLock(Arc<Locked>);

#[derive(Debug)]
struct Locked {
    pool: String,
    file: File,
}

impl PoolLock {
    /// Waits for the lock of `pool` at `path`, at most so long, and takes it. `command` is what others are told meanwhile.
    pub fn take(path: &Path, pool: &str, command: &str, patience: Duration) -> Result<PoolLock, Failure> {
        PoolLock::take_within(path, pool, command, patience, &|| false)?.ok_or_else(|| held(path, pool))
    }

    /// The same, unless there is no need of it any more; then `None`.
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

    /// Takes the lock if it is free.
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
        // It may come from a label, and is a file's.
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

    /// The pool that it is the lock of.
    pub fn pool(&self) -> &str {
        &self.0.pool
    }

    /// The standard input of a process that holds the lock too, until it closes that.
    pub fn shared(&self) -> io::Result<Stdio> {
        self.0.file.try_clone().map(Stdio::from)
    }
}

/// The locks that a command holds.
#[derive(Debug, Default)]
pub(super) struct Held(RefCell<Vec<Weak<Locked>>>);

impl Held {
    /// The lock of a pool, if it is held.
    pub(super) fn find(&self, pool: &str) -> Option<PoolLock> {
        let held = self.0.borrow();
        held.iter().filter_map(Weak::upgrade).find(|lock| lock.pool == pool).map(PoolLock)
    }

    /// Notes a lock that was just taken.
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
        assert!(refused.message.contains("fs receive tank/a"), "{}", refused.message);
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
