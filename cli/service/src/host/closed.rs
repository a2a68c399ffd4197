//! Operations on a pool that no process has open: going back to an older state, inspecting structures, checking.

use dataset::property::pool::READONLY;
use pool::{admin::OpenOptions, device::Access, env::SystemEnv, inspect::Sink, units::Txg};
use protocol::{
    Failure, HostResponse, ImportPool, Inspect, OnSaid, PathBytes, PoolRequest, PoolSelector, Response, Rewind,
    RewindReport, Wanted, given, unexpected_answer,
};

use super::{
    find_one,
    import::{check_assignments, devices_now, is_forced},
};
use crate::{
    client::Client,
    execute::{
        Job, OrRefused, check,
        devices::{self, Closed},
        found::Found,
        inspect, rewind,
    },
    lock::PoolLock,
    registry::{DevicePath, KnownPool},
};

/// The closed form of a pool in the registry, on these devices.
fn as_known(known: &KnownPool, devices: &[DevicePath]) -> Closed {
    Closed {
        name: known.name.to_string(),
        numbers: known.former.into_iter().chain([known.guid]).collect(),
        paths: devices.iter().map(DevicePath::to_path).collect(),
    }
}

/// The closed form of a pool found on devices.
fn as_found(found: &Found) -> Closed {
    Closed {
        name: found.label.pool_name.clone(),
        numbers: found.numbers(),
        paths: found.in_order().iter().map(DevicePath::to_path).collect(),
    }
}

impl Client {
    /// Imports a pool, going back to an older state if necessary, or reports the resulting loss in a dry run. A
    /// read-only import shows the older state and writes nothing.
    pub(super) fn rewind(&mut self, import: &ImportPool) -> Result<RewindReport, Failure> {
        let (Some(which), Some(rewind)) = (&import.which, import.rewind) else {
            return Err(Failure::usage("only a single named pool can be rewound"));
        };
        check_assignments(import)?;
        // Held until the pool is imported; the import below uses the same lock.
        let (closed, _lock) = self.closed_pool(which, import)?;
        let name = closed.name.clone();
        let writes = !rewind.dry_run && given(&import.assignments, &READONLY) != Some(true);
        let access = if writes { Access::ReadWrite } else { Access::ReadOnly };
        let devices = devices::open_closed(&closed, access).or_refused("open", &name)?;
        let report = rewind::choose(&name, &devices, rewind.to, is_forced(import) || !writes)?;
        if rewind.dry_run {
            return Ok(report);
        }
        if writes && report.taken != report.newest {
            let options = OpenOptions { force: is_forced(import), host: devices::host(), ..OpenOptions::default() };
            let to = Txg(report.taken.txg);
            pool::admin::rewind(&devices, to, &options, &SystemEnv).or_refused("rewind", &name)?;
        }
        drop(devices);
        let at = Rewind { to: Some(report.taken.txg).filter(|_| !writes), ..rewind };
        match self.import(&ImportPool { rewind: Some(at), ..import.clone() }) {
            Ok(_) => Ok(RewindReport { dry_run: false, ..report }),
            Err(failure) if report.taken == report.newest => Err(failure),
            Err(failure) => {
                Err(failure.hint(format!("the pool was rewound to transaction group {}", report.taken.txg)))
            }
        }
    }

    /// A known or found pool, together with its lock. No service serves the pool while the lock is held.
    fn closed_pool(&mut self, which: &PoolSelector, import: &ImportPool) -> Result<(Closed, PoolLock), Failure> {
        let Some(known) = self.find_known_for(import, which)? else {
            let found = find_one("import", which, &import.search, import.wanted)?;
            found.complete()?;
            let name = import.new_name.as_ref().map_or(found.label.pool_name.as_str(), |name| name.as_str());
            let lock = self.turn(name)?;
            return Ok((as_found(&found), lock));
        };
        let Some(lock) = self.lock_unserved(known.name.as_str())? else {
            let hint = format!("export it first: pool export {}", known.name);
            return Err(Failure::cannot("rewind", &known.name, "it is imported").hint(hint));
        };
        let known = self.known(known.name.as_str())?;
        Ok((as_known(&known, &devices_now(&known, import)?), lock))
    }

    /// Inspects the structures of a pool that no process has open, or the labels of single devices.
    pub(crate) fn look_into(&mut self, what: &Inspect, sink: Sink<'_>) -> Result<(), Failure> {
        let (which, search) = match what {
            Inspect::Labels(path) => return inspect::labels(path, sink),
            Inspect::Uberblocks(path) => return inspect::uberblocks(path, sink),
            Inspect::Pool { pool, search, .. } => (pool, search),
        };
        let known = self.find_known(which)?;
        let lock = known.as_ref().map(|known| self.lock_unserved(known.name.as_str())).transpose()?;
        if let (Some(known), Some(None)) = (&known, &lock) {
            let hint = format!("export it first: pool export {}", known.name);
            return Err(Failure::cannot("look into", &known.name, "the pool is imported and changing").hint(hint));
        }
        let closed = match known {
            Some(known) => as_known(&known, &known.devices),
            None => {
                let found = find_one("look into", which, search, Wanted::Living)?;
                found.complete()?;
                as_found(&found)
            }
        };
        let done = inspect::pool(&closed, what, sink);
        drop(lock);
        done
    }

    pub(super) fn check(
        &mut self,
        which: &PoolSelector,
        search: &[PathBytes],
        progress: OnSaid<'_>,
    ) -> Result<HostResponse, Failure> {
        let known = self.find_known(which)?;
        let mut lock = None;
        if let Some(known) = &known {
            let name = known.name.as_str();
            // A service may be starting, so ask again until the lock is free.
            while lock.is_none() {
                match self.ask(name, PoolRequest::Check, &mut None, progress)? {
                    Some(Response::Checked(report)) => return Ok(HostResponse::Checked(report)),
                    Some(_) => return Err(unexpected_answer()),
                    None => lock = self.lock_unserved(name)?,
                }
            }
        }
        // No service runs, and no other command changes an unserved pool while this command holds the lock.
        let closed = match known {
            Some(known) => as_known(&known, &known.devices),
            None => as_found(&find_one("check", which, search, Wanted::Living)?),
        };
        let checked = check::check(&closed, &mut Job::new(Vec::new(), progress));
        drop(lock);
        checked.map(HostResponse::Checked)
    }
}
