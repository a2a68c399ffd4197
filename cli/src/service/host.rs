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

use super::{
    client::Client,
    registry::{DevicePath, KnownPool},
};
use crate::{
    execute::{
        Job, MountPlaces, OpenPool, Opening, check,
        devices::{self, Found, NewDevices, check_new},
        texts,
    },
    failure::Failure,
    protocol::{
        Assignment, CreatePool, HostRequest, HostResponse, ImportPool, Layout, OnProgress, PathBytes, PoolSelector,
        Request, Response,
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
        found.retain(|pool| !known.contains(&pool.label.pool.0));
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
            if !known.contains(&found.label.pool.0) {
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
            ..known.clone()
        };
        self.registry.put(&known)?;
        if self.can_mount().is_err() {
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
        if let Some(missing) = found.missing().first() {
            return Err(refused(format!("its device {missing} is missing")).hint("look there too: pool import -d DIR"));
        }
        let known = KnownPool {
            guid: found.label.pool.0,
            devices: found.in_order(),
            read_only: on_or_off(&import.assignments, "readonly").unwrap_or(false),
            no_mount: import.no_mount,
            altroot: altroot(&import.assignments),
            name,
        };
        let lock = self.lock(known.name.as_str())?;
        let opening = Opening { force: import.force, rename: import.new_name.is_some(), mounting: false };
        let pool = OpenPool::open(&known, &opening)?;
        pool.record(&self.command);
        pool.close()?;
        drop(lock);
        self.registry.put(&known)?;
        self.bring_up(&known)?;
        Ok(known.name.to_string())
    }

    fn check(
        &self,
        which: &PoolSelector,
        search: &[PathBytes],
        progress: OnProgress<'_>,
    ) -> Result<HostResponse, Failure> {
        if let Some(known) = self.find_known(which)? {
            let name = known.name;
            return Err(
                Failure::cannot("check", &name, "it is imported").hint(format!("export it first: pool export {name}"))
            );
        }
        let found = find_one(which, search)?;
        let paths: Vec<PathBuf> = found.in_order().iter().map(DevicePath::to_path).collect();
        check::check(&found.label.pool_name, &paths, &mut Job::new(Vec::new(), progress)).map(HostResponse::Checked)
    }
}

fn altroot(assignments: &[Assignment]) -> Option<String> {
    assignments.iter().find(|a| a.name == "altroot" && !a.value.is_empty()).map(|a| a.value.clone())
}

/// What a switch was set to, if it was.
fn on_or_off(assignments: &[Assignment], property: &str) -> Option<bool> {
    assignments.iter().find(|a| a.name == property).map(|a| a.value == "on")
}

/// Where the devices of a known pool are: where it was said to look for them, or where they were.
fn devices_now(known: &KnownPool, import: &ImportPool) -> Result<Vec<DevicePath>, Failure> {
    if import.which.is_none() || import.search.is_empty() {
        return Ok(known.devices.clone());
    }
    let found = devices::find(&import.search)?.into_iter().find(|found| found.label.pool.0 == known.guid);
    let Some(found) = found else { return Ok(known.devices.clone()) };
    match found.missing().first() {
        None => Ok(found.in_order()),
        Some(missing) => Err(Failure::cannot("import", &known.name, format!("its device {missing} is missing"))
            .hint("look there too: pool import -d DIR")),
    }
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
