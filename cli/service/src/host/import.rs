//! How pools come to this machine: what is found on devices, and what is known and not served, is imported.

use std::{
    io::{self, Write},
    path::Path,
};

use dataset::{
    name::DatasetName,
    property::{
        Nature, POOL, Property, definition,
        pool::{ALTROOT, READONLY},
    },
};
use protocol::{Assignment, Failure, HostResponse, ImportPool, PathBytes, PoolSelector, Wanted, given};

use super::{altroot, find_one, leave::detach_dead_mounts};
use crate::{
    client::Client,
    execute::{
        OpenPool, Opening,
        devices::{self, Found},
    },
    exposed,
    lock::PoolLock,
    registry::{DevicePath, KnownPool},
};

impl Client {
    pub(super) fn importable(&self, search: &[PathBytes], wanted: Wanted) -> Result<HostResponse, Failure> {
        let mut found = devices::find(search, wanted)?;
        let known = self.known_guids()?;
        found.retain(|pool| !known.contains(&pool.label.pool.0) && !pool.is_in_use());
        Ok(HostResponse::Importable(found.iter().map(Found::describe).collect()))
    }

    pub(super) fn known_guids(&self) -> Result<Vec<u64>, Failure> {
        let known = self.registry.names()?.into_iter().filter_map(|name| self.registry.get(&name).transpose());
        known.map(|known| known.map(|known| known.guid)).collect()
    }

    pub(super) fn import(&mut self, import: &ImportPool) -> Result<Vec<String>, Failure> {
        check_assignments(import)?;
        let Some(which) = &import.which else { return self.import_all(import) };
        if let Some(known) = self.find_known_for(import, which)? {
            if let Some(namesake) = namesake(import, &known)? {
                return self.import_found(&namesake, import).map(|name| vec![name]);
            }
            if self.import_known(&known, import)? {
                return Ok(vec![known.name.to_string()]);
            }
        }
        let found = find_one(which, &import.search, import.wanted)?;
        self.import_found(&found, import).map(|name| vec![name])
    }

    /// The known pool that is to be imported, if it is one: those that are known here were not destroyed.
    pub(super) fn find_known_for(
        &self,
        import: &ImportPool,
        which: &PoolSelector,
    ) -> Result<Option<KnownPool>, Failure> {
        if import.wanted == Wanted::Living { self.find_known(which) } else { Ok(None) }
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
        // One that is known here was not destroyed.
        let names = if import.wanted == Wanted::Living { self.registry.names()? } else { Vec::new() };
        for name in names {
            let known = self.known(&name);
            let result =
                known.and_then(|known| self.import_known(&known, &ImportPool { new_name: None, ..import.clone() }));
            note(name, result.map(drop));
        }
        let known = self.known_guids().unwrap_or_default();
        for found in devices::find(&import.search, import.wanted)? {
            if !known.contains(&found.label.pool.0) && !found.is_in_use() {
                let name = found.label.pool_name.clone();
                note(name, self.import_found(&found, import).map(drop));
            }
        }
        first.map(|()| imported)
    }

    /// A pool that is known: it is imported; what may be missing is its service, or its devices where they were. `false` if
    /// another command has exported it before this one had its turn.
    ///
    /// If the service has crashed, its supervisor may be about to start it again. Either of them does so, and the other finds
    /// it done: that is no reason to fail for an import that wants the pool as it is known.
    fn import_known(&mut self, known: &KnownPool, import: &ImportPool) -> Result<bool, Failure> {
        let name = known.name.as_str();
        // As in ZFS: to import all is content with what is there.
        let is_one = import.which.is_some();
        let exists = || match is_one {
            true => Err(Failure::cannot("import", name, "a pool with that name is already imported")),
            false => Ok(true),
        };
        if self.is_served(name) || import.new_name.is_some() {
            return exists();
        }
        let lock = self.turn(name)?;
        let Some(known) = self.registry.get(name)?.filter(|now| now.is_numbered(known.guid)) else { return Ok(false) };
        if self.is_served(name) {
            if is_one && !asks_for_more(import, &known) {
                // Without standard error there is nobody to tell.
                let _ = writeln!(
                    io::stderr(),
                    "note: '{name}' was already imported; its service had crashed and was restarted"
                );
                return Ok(true);
            }
            return exists();
        }
        detach_dead_mounts(name);
        let known = KnownPool {
            devices: devices_now(&known, import)?,
            read_only: given(&import.assignments, &READONLY).unwrap_or(known.read_only),
            no_mount: import.no_mount,
            altroot: altroot(&import.assignments).or_else(|| known.altroot.clone()),
            state: shown_state(import).or(known.state.filter(|_| given(&import.assignments, &READONLY) != Some(false))),
            ..known
        };
        self.registry.put(&lock, &known)?;
        if import.force || import.without_log || to_keep(import).next().is_some() {
            // The service that is started then finds it to be this host's.
            let (force, without_log) = (import.force, import.without_log);
            let pool = OpenPool::open(&known, &Opening { force, without_log, ..Opening::default() })?;
            let kept = keep(&pool, import);
            pool.close()?;
            kept?;
        } else if self.can_mount().is_err() {
            // Whether the pool can be opened is to be known now.
            self.open(known.clone())?;
        }
        self.bring_up(&lock, &known)?;
        exposed::warn(known.devices.iter().map(DevicePath::to_path));
        Ok(true)
    }

    /// A pool that was found on devices.
    fn import_found(&mut self, found: &Found, import: &ImportPool) -> Result<String, Failure> {
        let old = found.label.pool_name.as_str();
        let refused = |why: String| Failure::cannot("import", old, why);
        let name: DatasetName = match &import.new_name {
            Some(name) => name.clone(),
            None => old.parse().map_err(|error| Failure::name("import", &error))?,
        };
        let lock = self.turn(name.as_str())?;
        if self.registry.get(name.as_str())?.is_some() {
            let hint =
                format!("import under another name: pool import{} {} NEWNAME", import.wanted.flag(), found.label.pool);
            return Err(refused(format!("a pool named '{name}' is already imported")).hint(hint));
        }
        found.complete()?;
        let known = KnownPool {
            guid: found.label.pool.0,
            former: None,
            devices: opened_of(found, &import.search),
            read_only: given(&import.assignments, &READONLY).unwrap_or(false),
            no_mount: import.no_mount,
            altroot: altroot(&import.assignments),
            state: shown_state(import),
            name,
        };
        let opening = Opening {
            force: is_forced(import),
            without_log: import.without_log,
            rename: import.new_name.is_some(),
            mounting: false,
        };
        let pool = OpenPool::open(&known, &opening)?;
        pool.record(&self.command);
        let kept = keep(&pool, import);
        pool.close()?;
        kept?;
        self.registry.put(&lock, &known)?;
        self.bring_up(&lock, &known).or_else(|failure| self.forget_unserved(&lock, failure))?;
        if known.devices != found.in_order() && self.is_served(known.name.as_str()) {
            // A missing device may return to its path; the next start of the service looks there.
            self.registry.put(&lock, &KnownPool { devices: found.in_order(), ..known.clone() })?;
        }
        exposed::warn(known.devices.iter().map(DevicePath::to_path));
        Ok(known.name.to_string())
    }

    /// Forgets a pool that was found just now and that no service could open, such as when another process was faster: it
    /// is not imported. One whose service runs is, whatever could not be mounted.
    fn forget_unserved(&self, lock: &PoolLock, failure: Failure) -> Result<(), Failure> {
        if !self.is_served(lock.pool()) {
            self.registry.remove(lock)?;
        }
        Err(failure)
    }
}

/// The pool that is meant by the name of a known one, if the import gives a new name: another pool of the same name, on the
/// devices that are searched.
fn namesake(import: &ImportPool, known: &KnownPool) -> Result<Option<Found>, Failure> {
    if import.new_name.is_none() || !matches!(import.which, Some(PoolSelector::Name(_))) {
        return Ok(None);
    }
    let is_it = |found: &Found| found.label.pool_name == known.name.as_str() && !known.is_numbered(found.label.pool.0);
    let mut found: Vec<Found> = devices::find(&import.search, import.wanted)?.into_iter().filter(is_it).collect();
    // Of several, the GUID has to be named.
    Ok(if found.len() == 1 { found.pop() } else { None })
}

/// The devices of a pool to be opened. A search of single devices is for those alone: a missing member is not taken from its
/// former path.
fn opened_of(found: &Found, search: &[PathBytes]) -> Vec<DevicePath> {
    let is_device = |path: &PathBytes| !Path::new(path.as_os_str()).is_dir();
    match !search.is_empty() && search.iter().all(is_device) {
        true => found.present(),
        false => found.in_order(),
    }
}

/// Whether an import is to change how the pool is known or used, beside having it served.
fn asks_for_more(import: &ImportPool, known: &KnownPool) -> bool {
    let is_as_known = import.no_mount == known.no_mount && import.assignments.is_empty() && import.rewind.is_none();
    !is_as_known || import.force || import.without_log
}

/// Whether it is no hindrance what labels say of who has the pool. One that was destroyed nobody has.
pub(super) fn is_forced(import: &ImportPool) -> bool {
    import.force || import.wanted == Wanted::Destroyed
}

/// The properties to set in the pool itself. `readonly` and `altroot` hold for as long as the pool is imported; constants
/// have their value anyhow.
fn to_keep(import: &ImportPool) -> impl Iterator<Item = &Assignment> {
    let is_constant = |name: &str| Property::of_pool(name).is_ok_and(|property| property.is_constant());
    let is_of_the_import = |name: &str| READONLY.is(name) || ALTROOT.is(name);
    import.assignments.iter().filter(move |given| !is_of_the_import(&given.name) && !is_constant(&given.name))
}

fn keep(pool: &OpenPool, import: &ImportPool) -> Result<(), Failure> {
    let assignments: Vec<Assignment> = to_keep(import).cloned().collect();
    if assignments.is_empty() { Ok(()) } else { pool.set_pool(&assignments) }
}

/// Refuses a property that an import cannot set.
pub(super) fn check_assignments(import: &ImportPool) -> Result<(), Failure> {
    let read_only = given(&import.assignments, &READONLY) == Some(true);
    let name = match &import.which {
        Some(PoolSelector::Name(name)) => name.clone(),
        Some(PoolSelector::Guid(guid)) => guid.to_string(),
        None => "all".to_owned(),
    };
    for given in to_keep(import) {
        let refused = |why: String| Err(Failure::cannot("import", &name, why));
        let settable = definition(POOL, &given.name).is_some_and(|d| d.nature == Nature::Settable);
        if !settable {
            return refused(format!("property '{}' cannot be set by an import", given.name));
        }
        if read_only {
            return refused(format!("property '{}' cannot be set in a pool that is imported read-only", given.name));
        }
    }
    Ok(())
}

/// The older state that a pool is imported at, to be read only.
fn shown_state(import: &ImportPool) -> Option<u64> {
    let read_only = given(&import.assignments, &READONLY) == Some(true);
    import.rewind.and_then(|rewind| rewind.to).filter(|_| read_only)
}

/// Where the devices of a known pool are: where it was said to look for them, or where they were.
pub(super) fn devices_now(known: &KnownPool, import: &ImportPool) -> Result<Vec<DevicePath>, Failure> {
    if import.which.is_none() || import.search.is_empty() {
        return Ok(known.devices.clone());
    }
    let found =
        devices::find(&import.search, import.wanted)?.into_iter().find(|found| known.is_numbered(found.label.pool.0));
    let Some(found) = found else { return Ok(known.devices.clone()) };
    found.complete().map(|()| found.in_order())
}
