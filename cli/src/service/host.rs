//! How pools come and go on this machine: create, destroy, import, export, check.
//!
//! The order of steps is chosen such that a failure between two of them loses nothing: a pool is on its devices before it
//! is known, and it is forgotten only after it was closed.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use dataset::name::DatasetName;
use fuse_mount::{detach_dead, mounts};
use pool::{admin::OpenOptions, device::Access, env::SystemEnv, inspect::Sink, units::Txg};

use super::{
    client::Client,
    registry::{DevicePath, KnownPool},
};
use crate::{
    context::unexpected_answer,
    execute::{
        Job, MountPlaces, OpenPool, Opening, OrRefused, check,
        devices::{self, Found, NewDevices, check_new},
        inspect, rewind, texts,
    },
    failure::Failure,
    protocol::{
        Assignment, CreatePool, HostRequest, HostResponse, ImportPool, Inspect, Layout, OnProgress, PathBytes,
        PoolSelector, Request, Response, Rewind, RewindReport,
    },
};

impl Client {
    /// Carries out a request about the pools of this machine.
    pub(super) fn carry_out(
        &mut self,
        request: HostRequest,
        progress: OnProgress<'_>,
    ) -> Result<HostResponse, Failure> {
        match request {
            HostRequest::Create(create) => self.create(&create).map(HostResponse::Layout),
            HostRequest::Destroy { pool, force } => self.destroy(&pool, force).map(|()| HostResponse::Done),
            HostRequest::Export { pools, force, abandon } => {
                let export = |pool: &String| self.export_or_abandon(pool, force, abandon);
                pools.iter().try_for_each(export).map(|()| HostResponse::Done)
            }
            HostRequest::Importable { search } => self.importable(&search),
            HostRequest::Import(import) if import.rewind.is_some() => self.rewind(&import).map(HostResponse::Rewound),
            HostRequest::Import(import) => self.import(&import).map(HostResponse::Imported),
            HostRequest::Check { pool, search } => self.check(&pool, &search, progress),
        }
    }

    fn create(&mut self, create: &CreatePool) -> Result<Layout, Failure> {
        const ACTION: &str = "create";
        let name = create.name.as_str();
        if self.registry.get(name)?.is_some() {
            return Err(Failure::cannot(ACTION, name, "pool already exists"));
        }
        if !create.force && self.can_mount().is_ok() {
            let places = MountPlaces::of_this_user(altroot(&create.pool_assignments).as_deref());
            places.check_root(&create.name, &create.root_assignments)?;
        }
        let layout = Layout { pool: name.to_owned(), vdevs: texts(&create.vdevs) };
        if create.dry_run {
            return check_new(&create.vdevs, ACTION, name, create.force).map(|()| layout);
        }
        let taken = NewDevices::take(&create.vdevs, ACTION, name, create.force)?;
        let (pool_assignments, root_assignments) = (&create.pool_assignments, &create.root_assignments);
        let pool = OpenPool::create(&create.name, taken.devices(), pool_assignments, root_assignments)?;
        let known = KnownPool {
            name: create.name.clone(),
            guid: pool.guid(),
            devices: create.vdevs.iter().map(|vdev| DevicePath::from(vdev.path.clone())).collect(),
            read_only: false,
            no_mount: false,
            altroot: altroot(pool_assignments),
            state: None,
        };
        pool.record(&self.command);
        pool.close()?;
        self.registry.put(&known)?;
        taken.keep();
        self.bring_up(&known)?;
        Ok(layout)
    }

    /// Starts the service of a known pool where mounting is possible, and says so where it is not.
    fn bring_up(&mut self, known: &KnownPool) -> Result<(), Failure> {
        match self.can_mount() {
            Ok(()) if known.no_mount => self.start_service(known.name.as_str()),
            Ok(()) => self.start_mounted(known),
            Err(None) => Ok(()),
            Err(Some(reason)) => {
                let note = format!("note: '{}' is not mounted: {reason}; its files: fs ls, fs cat, fs cp", known.name);
                // Without standard error there is nobody to tell.
                let _ = writeln!(io::stderr(), "{note}");
                Ok(())
            }
        }
    }

    /// Starts the service and has it mount what is to be mounted. What cannot be mounted is told; the pool stays imported.
    fn start_mounted(&mut self, known: &KnownPool) -> Result<(), Failure> {
        self.start_without_mounting(known)?;
        let mount = Request::Mount { name: None, options: Vec::new() };
        self.ask(known.name.as_str(), &mount, &mut None, &mut |_| {}).map(drop)
    }

    /// Ends the service of a pool, if it has one; `true` if it had, and has exported the pool.
    fn shut_down(&mut self, pool: &str, force: bool) -> Result<bool, Failure> {
        let was_served = self.ask(pool, &Request::Shutdown { force }, &mut None, &mut |_| {})?.is_some();
        if !was_served {
            detach_dead_mounts(pool);
        }
        Ok(was_served)
    }

    fn export_or_abandon(&mut self, pool: &str, force: bool, abandon: bool) -> Result<(), Failure> {
        self.known(pool)?;
        let answer = if abandon { self.ask(pool, &Request::Abandon, &mut None, &mut |_| {})? } else { None };
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

    fn destroy(&mut self, pool: &str, force: bool) -> Result<(), Failure> {
        let known = self.known(pool)?;
        self.shut_down(pool, force)?;
        if let Err(failure) = self.open(known.clone()) {
            return self.forget_lost(&known, force, failure);
        }
        self.take_opened(pool).map_or(Ok(()), OpenPool::destroy)?;
        self.registry.remove(pool)
    }

    fn importable(&self, search: &[PathBytes]) -> Result<HostResponse, Failure> {
        let mut found = devices::find(search)?;
        let known = self.known_guids()?;
        found.retain(|pool| !known.contains(&pool.label.pool.0) && pool.holder().is_none());
        Ok(HostResponse::Importable(found.iter().map(Found::describe).collect()))
    }

    fn known_guids(&self) -> Result<Vec<u64>, Failure> {
        let known = self.registry.names()?.into_iter().filter_map(|name| self.registry.get(&name).transpose());
        known.map(|known| known.map(|known| known.guid)).collect()
    }

    fn import(&mut self, import: &ImportPool) -> Result<Vec<String>, Failure> {
        match &import.which {
            None => self.import_all(import),
            Some(which) => match self.find_known(which)? {
                Some(known) => self.import_known(&known, import).map(|()| vec![known.name.to_string()]),
                None => self.import_found(&find_one(which, &import.search)?, import).map(|name| vec![name]),
            },
        }
    }

    /// Imports a pool after going back to an older state if need be, or says what that would lose. To be read only, the
    /// pool is shown at that state, and nothing is written.
    fn rewind(&mut self, import: &ImportPool) -> Result<RewindReport, Failure> {
        let (Some(which), Some(rewind)) = (&import.which, import.rewind) else {
            return Err(Failure::usage("only one pool at a time can go back: name it"));
        };
        let (name, paths) = self.closed_pool(which, import)?;
        let writes = !rewind.dry_run && on_or_off(&import.assignments, "readonly") != Some(true);
        let lock = self.lock(&name)?;
        let access = if writes { Access::ReadWrite } else { Access::ReadOnly };
        let devices = devices::open_all(&paths, access).or_refused("open", &name)?;
        let report = rewind::choose(&name, &devices, rewind.to, import.force || !writes)?;
        if rewind.dry_run {
            return Ok(report);
        }
        if writes && report.taken != report.newest {
            let options = OpenOptions { force: import.force, host: devices::host(), ..OpenOptions::default() };
            let to = Txg(report.taken.txg);
            pool::admin::rewind(&devices, to, &options, &SystemEnv).or_refused("rewind", &name)?;
        }
        drop((devices, lock));
        let at = Rewind { to: Some(report.taken.txg).filter(|_| !writes), ..rewind };
        match self.import(&ImportPool { rewind: Some(at), ..import.clone() }) {
            Ok(_) => Ok(RewindReport { dry_run: false, ..report }),
            Err(failure) if report.taken == report.newest => Err(failure),
            Err(failure) => {
                Err(failure.hint(format!("the pool has gone back to transaction group {}", report.taken.txg)))
            }
        }
    }

    /// The name and the devices of a pool that is known or found, and that nobody serves.
    fn closed_pool(&self, which: &PoolSelector, import: &ImportPool) -> Result<(String, Vec<PathBuf>), Failure> {
        let (name, devices) = match self.find_known(which)? {
            Some(known) if self.is_served(known.name.as_str()) => {
                let hint = format!("export it first: pool export {}", known.name);
                return Err(Failure::cannot("rewind", &known.name, "it is imported").hint(hint));
            }
            Some(known) => (known.name.to_string(), devices_now(&known, import)?),
            None => {
                let found = find_one(which, &import.search)?;
                found.complete()?;
                (found.label.pool_name.clone(), found.in_order())
            }
        };
        Ok((name, devices.iter().map(DevicePath::to_path).collect()))
    }

    /// Looks into a pool that nobody has open, or at what every device says of itself.
    pub(super) fn look_into(&mut self, what: &Inspect, sink: Sink<'_>) -> Result<(), Failure> {
        let (which, search) = match what {
            Inspect::Labels(path) => return inspect::labels(path, sink),
            Inspect::Uberblocks(path) => return inspect::uberblocks(path, sink),
            Inspect::Pool { pool, search, .. } => (pool, search),
        };
        let known = self.find_known(which)?;
        if let Some(served) = known.as_ref().filter(|known| self.is_served(known.name.as_str())) {
            let hint = format!("export it first: pool export {}", served.name);
            return Err(Failure::cannot("look into", &served.name, "it is in use, and changes all the time").hint(hint));
        }
        let lock = known.as_ref().map(|known| self.lock(known.name.as_str())).transpose()?;
        let (name, devices) = match known {
            Some(known) => (known.name.to_string(), known.devices),
            None => {
                let found = find_one(which, search)?;
                found.complete()?;
                (found.label.pool_name.clone(), found.in_order())
            }
        };
        let paths: Vec<PathBuf> = devices.iter().map(DevicePath::to_path).collect();
        let done = inspect::pool(&name, &paths, what, sink);
        drop(lock);
        done
    }

    fn find_known(&self, which: &PoolSelector) -> Result<Option<KnownPool>, Failure> {
        match which {
            PoolSelector::Name(name) => self.registry.get(name),
            PoolSelector::Guid(guid) => {
                let mut known =
                    self.registry.names()?.into_iter().filter_map(|name| self.registry.get(&name).transpose());
                known.find(|known| known.as_ref().is_ok_and(|known| known.guid == *guid)).transpose()
            }
        }
    }

    /// Brings every known pool back whose service ended, and imports all that are found. One that fails does not keep the
    /// others.
    fn import_all(&mut self, import: &ImportPool) -> Result<Vec<String>, Failure> {
        let mut imported = Vec::new();
        let mut first = Ok(());
        let mut note = |name: String, result: Result<(), Failure>| match result {
            Ok(()) => imported.push(name),
            Err(failure) if first.is_ok() => first = Err(failure),
            Err(_) => {}
        };
        for name in self.registry.names()? {
            let known = self.known(&name);
            let result =
                known.and_then(|known| self.import_known(&known, &ImportPool { new_name: None, ..import.clone() }));
            note(name, result);
        }
        let known = self.known_guids().unwrap_or_default();
        for found in devices::find(&import.search)? {
            if !known.contains(&found.label.pool.0) && found.holder().is_none() {
                let name = found.label.pool_name.clone();
                note(name, self.import_found(&found, import).map(drop));
            }
        }
        first.map(|()| imported)
    }

    /// A pool that is known: it is imported; what may be missing is its service, or its devices where they were.
    fn import_known(&mut self, known: &KnownPool, import: &ImportPool) -> Result<(), Failure> {
        let name = known.name.as_str();
        if self.is_served(name) || import.new_name.is_some() {
            // As in ZFS: to import all is content with what is there.
            let is_one = import.which.is_some();
            let exists = Failure::cannot("import", name, "a pool with that name is already imported");
            return if is_one { Err(exists) } else { Ok(()) };
        }
        detach_dead_mounts(name);
        let known = KnownPool {
            devices: devices_now(known, import)?,
            read_only: on_or_off(&import.assignments, "readonly").unwrap_or(known.read_only),
            no_mount: import.no_mount,
            altroot: altroot(&import.assignments).or_else(|| known.altroot.clone()),
            state: shown_state(import)
                .or(known.state.filter(|_| on_or_off(&import.assignments, "readonly") != Some(false))),
            ..known.clone()
        };
        self.registry.put(&known)?;
        if import.force {
            // The service that is started then finds it to be this host's.
            let _lock = self.lock(known.name.as_str())?;
            OpenPool::open(&known, &Opening { force: true, ..Opening::default() })?.close()?;
        } else if self.can_mount().is_err() {
            // Whether the pool can be opened is to be known now.
            self.open(known.clone())?;
        }
        self.bring_up(&known)
    }

    /// A pool that was found on devices.
    fn import_found(&mut self, found: &Found, import: &ImportPool) -> Result<String, Failure> {
        let old = found.label.pool_name.as_str();
        let refused = |why: String| Failure::cannot("import", old, why);
        let name: DatasetName = match &import.new_name {
            Some(name) => name.clone(),
            None => old.parse().map_err(|error| Failure::name("import", &error))?,
        };
        if self.registry.get(name.as_str())?.is_some() {
            let hint = format!("give it another name: pool import {} NEWNAME", found.label.pool);
            return Err(refused(format!("a pool named '{name}' is already imported")).hint(hint));
        }
        found.complete()?;
        let known = KnownPool {
            guid: found.label.pool.0,
            devices: found.in_order(),
            read_only: on_or_off(&import.assignments, "readonly").unwrap_or(false),
            no_mount: import.no_mount,
            altroot: altroot(&import.assignments),
            state: shown_state(import),
            name,
        };
        let lock = self.lock(known.name.as_str())?;
        let opening = Opening { force: import.force, rename: import.new_name.is_some(), mounting: false };
        let pool = OpenPool::open(&known, &opening)?;
        pool.record(&self.command);
        pool.close()?;
        drop(lock);
        self.registry.put(&known)?;
        self.bring_up(&known).or_else(|failure| self.forget_unserved(&known, failure))?;
        Ok(known.name.to_string())
    }

    /// Forgets a pool that was found just now and that no service could open, such as when another process was faster: it
    /// is not imported. One whose service runs is, whatever could not be mounted.
    fn forget_unserved(&self, known: &KnownPool, failure: Failure) -> Result<(), Failure> {
        if !self.is_served(known.name.as_str()) {
            self.registry.remove(known.name.as_str())?;
        }
        Err(failure)
    }

    fn check(
        &self,
        which: &PoolSelector,
        search: &[PathBytes],
        progress: OnProgress<'_>,
    ) -> Result<HostResponse, Failure> {
        let known = self.find_known(which)?;
        if let Some(known) = &known {
            match self.ask(known.name.as_str(), &Request::Check, &mut None, progress)? {
                Some(Response::Checked(report)) => return Ok(HostResponse::Checked(report)),
                Some(_) => return Err(unexpected_answer()),
                None => {}
            }
        }
        // Nobody serves it; what is known and not served is not changed while this command has its turn.
        let lock = known.as_ref().map(|known| self.lock(known.name.as_str())).transpose()?;
        let (name, devices) = match known {
            Some(known) => (known.name.to_string(), known.devices),
            None => {
                let found = find_one(which, search)?;
                (found.label.pool_name.clone(), found.in_order())
            }
        };
        let paths: Vec<PathBuf> = devices.iter().map(DevicePath::to_path).collect();
        let checked = check::check(&name, &paths, &mut Job::new(Vec::new(), progress));
        drop(lock);
        checked.map(HostResponse::Checked)
    }
}

fn altroot(assignments: &[Assignment]) -> Option<String> {
    assignments.iter().find(|a| a.name == "altroot" && !a.value.is_empty()).map(|a| a.value.clone())
}

/// What a switch was set to, if it was.
fn on_or_off(assignments: &[Assignment], property: &str) -> Option<bool> {
    assignments.iter().find(|a| a.name == property).map(|a| a.value == "on")
}

/// The older state that a pool is imported at, to be read only.
fn shown_state(import: &ImportPool) -> Option<u64> {
    let read_only = on_or_off(&import.assignments, "readonly") == Some(true);
    import.rewind.and_then(|rewind| rewind.to).filter(|_| read_only)
}

/// Where the devices of a known pool are: where it was said to look for them, or where they were.
fn devices_now(known: &KnownPool, import: &ImportPool) -> Result<Vec<DevicePath>, Failure> {
    if import.which.is_none() || import.search.is_empty() {
        return Ok(known.devices.clone());
    }
    let found = devices::find(&import.search)?.into_iter().find(|found| found.label.pool.0 == known.guid);
    let Some(found) = found else { return Ok(known.devices.clone()) };
    found.complete().map(|()| found.in_order())
}

/// Finds one pool by its name or number.
fn find_one(which: &PoolSelector, search: &[PathBytes]) -> Result<Found, Failure> {
    let (text, hint) = match which {
        PoolSelector::Name(name) => (name.clone(), "look elsewhere: pool import -d DIR"),
        PoolSelector::Guid(guid) => (guid.to_string(), "look elsewhere: pool import -d DIR"),
    };
    let is_it = |found: &Found| match which {
        PoolSelector::Name(name) => found.label.pool_name == *name,
        PoolSelector::Guid(guid) => found.label.pool.0 == *guid,
    };
    let mut matching: Vec<Found> = devices::find(search)?.into_iter().filter(is_it).collect();
    match matching.len() {
        0 => Err(Failure::cannot("import", text, "no such pool available").hint(hint)),
        1 => Ok(matching.remove(0)),
        _ => {
            let guids: Vec<String> = matching.iter().map(|found| found.label.pool.to_string()).collect();
            let hint = format!("use one of their numbers: {}", guids.join(", "));
            Err(Failure::cannot("import", text, "more than one matching pool").hint(hint))
        }
    }
}

/// Detaches what the pool's service left behind when it was killed.
fn detach_dead_mounts(pool: &str) {
    let within =
        |dataset: &str| dataset.strip_prefix(pool).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
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
