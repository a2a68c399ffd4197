//! How pools leave this machine: export, giving up, destroy. A pool is forgotten only after it was closed, or when it
//! cannot be opened and that was asked for by force.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use fuse_mount::{detach_dead, mounts};

use crate::{
    execute::{OpenPool, devices},
    failure::Failure,
    protocol::{Request, Response},
    service::{
        client::Client,
        registry::{DevicePath, KnownPool},
    },
};

impl Client {
    /// Ends the service of a pool, if it has one; `true` if it had, and has exported the pool.
    fn shut_down(&mut self, pool: &str, force: bool) -> Result<bool, Failure> {
        let was_served = self.ask(pool, &Request::Shutdown { force }, &mut None, &mut |_| Ok(None))?.is_some();
        if !was_served {
            detach_dead_mounts(pool);
        }
        Ok(was_served)
    }

    pub(super) fn export_or_abandon(&mut self, pool: &str, force: bool, abandon: bool) -> Result<(), Failure> {
        self.known(pool)?;
        let answer = if abandon { self.ask(pool, &Request::Abandon, &mut None, &mut |_| Ok(None))? } else { None };
        match answer {
            Some(Response::GivenUp(txg)) => {
                // Without standard error there is nobody to tell.
                let _ = writeln!(
                    io::stderr(),
                    "note: '{pool}' is left as of transaction group {txg}; what came later was given up"
                );
                self.registry.remove(pool)
            }
            Some(_) => self.registry.remove(pool),
            None => self.export(pool, force || abandon),
        }
    }

    fn export(&mut self, pool: &str, force: bool) -> Result<(), Failure> {
        let known = self.known(pool)?;
        if !self.shut_down(pool, force)? {
            let command = self.command.clone();
            match self.open(known.clone()) {
                Ok(opened) => opened.record(&command),
                Err(failure) => return self.forget_lost(&known, force, failure),
            }
            self.take_opened(pool).map_or(Ok(()), OpenPool::export)?;
        }
        self.registry.remove(pool)
    }

    /// Forgets a pool that cannot be opened, if that was asked for by force and nobody else has it open.
    fn forget_lost(&self, known: &KnownPool, force: bool, failure: Failure) -> Result<(), Failure> {
        let paths: Vec<PathBuf> = known.devices.iter().map(DevicePath::to_path).collect();
        if devices::are_in_use(&paths) {
            return Err(failure);
        }
        let name = &known.name;
        if !force {
            let hint =
                format!("if its devices have moved: pool import -d DIR {name}; to forget it: pool export -f {name}");
            return Err(failure.hint(hint));
        }
        // Without standard error there is nobody to tell.
        let _ = writeln!(
            io::stderr(),
            "note: '{name}' is not known here any more; its devices are as they were: {failure}"
        );
        self.registry.remove(name.as_str())
    }

    pub(super) fn destroy(&mut self, pool: &str, force: bool) -> Result<(), Failure> {
        let known = self.known(pool)?;
        if known.read_only && !force {
            let hint = "use -f to open it to be written, and destroy it";
            return Err(Failure::cannot("destroy", pool, "it is imported read-only").hint(hint));
        }
        self.shut_down(pool, force)?;
        // Its labels say that it is destroyed, so they must be written.
        if let Err(failure) = self.open(KnownPool { read_only: false, ..known.clone() }) {
            return self.forget_lost(&known, force, failure);
        }
        self.take_opened(pool).map_or(Ok(()), OpenPool::destroy)?;
        self.registry.remove(pool)
    }
}

/// Detaches what the pool's service left behind when it was killed.
pub(in crate::service) fn detach_dead_mounts(pool: &str) {
    let within =
        |dataset: &str| dataset.strip_prefix(pool).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '@']));
    let mut dead = match mounts() {
        Ok(mounts) => mounts,
        Err(error) => return tracing::warn!("{error}"),
    };
    dead.retain(|mount| within(&mount.dataset));
    for mount in dead.iter().rev() {
        if let Err(error) = detach_dead(&mount.mountpoint) {
            tracing::warn!("{error}");
        }
    }
}
