//! How pools leave this machine: export, abandon, destroy. A pool leaves the registry only after it was closed, or
//! with force if the pool cannot be opened.
//!
//! All steps run under the pool's lock, so no service is started in between (see `lock`). If the service crashes on
//! the way, no supervisor restarts the service, and the pool is closed here instead.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use protocol::{Failure, Response, ServiceRequest};

use crate::{
    client::Client,
    dead_mounts::detach_dead_mounts,
    execute::{OpenPool, devices},
    lock::PoolLock,
    registry::{DevicePath, KnownPool},
};

impl Client {
    /// Ends the service of the locked pool. Returns `true` if a service ran and exported the pool.
    fn shut_down(&self, lock: &PoolLock, force: bool, export: bool) -> Result<bool, Failure> {
        let pool = lock.pool();
        match self.ask(pool, ServiceRequest::Shutdown { force, export }, &mut None, &mut |_| Ok(None)) {
            Ok(Some(_)) => return Ok(true),
            // A crash of the service during the request is no failure: the pool is closed here instead.
            Err(failure) if !failure.is_unavailable() || self.is_served(pool) => return Err(failure),
            Ok(None) | Err(_) => {}
        }
        detach_dead_mounts(&self.registry, pool);
        // A socket left by a crash must not look like a crash again.
        let _ = std::fs::remove_file(self.places.socket(pool));
        Ok(false)
    }

    /// Makes the service of a pool end without its unwritten changes. Returns `false` if no service runs.
    fn give_up(&self, pool: &str) -> Result<bool, Failure> {
        let answer = self.ask(pool, ServiceRequest::Abandon, &mut None, &mut |_| Ok(None))?;
        if let Some(Response::GivenUp(txg)) = answer {
            // Without standard error the note is lost.
            let _ = writeln!(
                io::stderr(),
                "note: '{pool}' keeps the state of transaction group {txg}; later changes were discarded"
            );
        }
        Ok(answer.is_some())
    }

    pub(super) fn export_or_abandon(&mut self, pool: &str, force: bool, abandon: bool) -> Result<(), Failure> {
        self.known(pool)?;
        // The service is asked before waiting for the lock, because the holder of the lock may hang.
        let was_given_up = abandon && self.give_up(pool)?;
        let lock = self.turn(pool)?;
        // Another command may have restarted the service meanwhile.
        match was_given_up && !self.is_served(pool) || abandon && self.give_up(pool)? {
            true => self.registry.remove(&lock),
            false => self.export(&lock, force || abandon).map_err(|failure| failure.of("export", pool)),
        }
    }

    fn export(&mut self, lock: &PoolLock, force: bool) -> Result<(), Failure> {
        // Another command may have exported the pool during the wait.
        let known = self.known(lock.pool())?;
        if !self.shut_down(lock, force, true)? {
            let command = self.command.clone();
            match self.open(known.clone()) {
                Ok(opened) => opened.record(&command),
                Err(failure) => return self.forget_lost(lock, &known, force, failure),
            }
            self.take_opened(lock.pool()).map_or(Ok(()), OpenPool::export)?;
        }
        self.registry.remove(lock)
    }

    /// Removes an unopenable pool from the registry, with force only, and only if no other process has the pool open.
    fn forget_lost(&self, lock: &PoolLock, known: &KnownPool, force: bool, failure: Failure) -> Result<(), Failure> {
        let paths: Vec<PathBuf> = known.devices.iter().map(DevicePath::to_path).collect();
        if devices::are_in_use(&paths) {
            return Err(failure);
        }
        let name = &known.name;
        if !force {
            let hint = format!(
                "if the devices have moved: pool import -d DIR {name}; to forget the pool: pool export -f {name}"
            );
            return Err(failure.hint(hint));
        }
        // Without standard error the note is lost.
        let _ = writeln!(
            io::stderr(),
            "note: '{name}' was removed from the registry; its devices are unchanged: {failure}"
        );
        self.registry.remove(lock)
    }

    pub(super) fn destroy(&mut self, pool: &str, force: bool) -> Result<(), Failure> {
        self.known(pool)?;
        let lock = self.turn(pool)?;
        let known = self.known(pool)?;
        if known.read_only && !force {
            let hint = "use -f to reopen the pool for writing and destroy it";
            return Err(Failure::cannot("destroy", pool, "it is imported read-only").hint(hint));
        }
        self.shut_down(&lock, force, false)?;
        // Destroying writes the labels, so the pool is opened for writing.
        if let Err(failure) = self.open(KnownPool { read_only: false, ..known.clone() }) {
            return self.forget_lost(&lock, &known, force, failure);
        }
        self.take_opened(pool).map_or(Ok(()), OpenPool::destroy)?;
        // A log that cannot be removed is small, and belongs to a GUID that no other pool gets.
        let _ = std::fs::remove_file(self.places.events(known.guid));
        self.registry.remove(&lock)
    }
}
