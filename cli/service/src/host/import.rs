//! Importing pools: pools found on devices, and known pools without a service.

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

use super::{altroot, find_one};
use crate::{
    client::Client,
    dead_mounts::detach_dead_mounts,
    execute::{
        OpenPool, Opening,
        found::{self, Found},
    },
    exposed,
    lock::PoolLock,
    registry::{DevicePath, KnownPool},
};

impl Client {
    pub(super) fn importable(&self, search: &[PathBytes], wanted: Wanted) -> Result<HostResponse, Failure> {
        let mut found = found::find(search, wanted)?;
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
        let found = find_one("import", which, &import.search, import.wanted)?;
        self.import_found(&found, import).map(|name| vec![name])
    }

    /// The registry's entry of the pool to import, if any. A destroyed pool is never in the registry.
    pub(super) fn find_known_for(
        &self,
        import: &ImportPool,
        which: &PoolSelector,
    ) -> Result<Option<KnownPool>, Failure> {
        if import.wanted == Wanted::Living { self.find_known(which) } else { Ok(None) }
    }

    /// Restarts the services of all known pools without one, and imports all pools found. A failure does not stop the
    /// other imports.
    fn import_all(&mut self, import: &ImportPool) -> Result<Vec<String>, Failure> {
        let mut imported = Vec::new();
        let mut first = Ok(());
        let mut note = |name: String, result: Result<(), Failure>| match result {
            Ok(()) => imported.push(name),
            Err(failure) if first.is_ok() => first = Err(failure),
            Err(_) => {}
        };
        // The registry contains no destroyed pools.
        let names = if import.wanted == Wanted::Living { self.registry.names()? } else { Vec::new() };
        for name in names {
            let known = self.known(&name);
            let result =
                known.and_then(|known| self.import_known(&known, &ImportPool { new_name: None, ..import.clone() }));
            note(name, result.map(drop));
        }
        let known = self.known_guids().unwrap_or_default();
        for found in found::find(&import.search, import.wanted)? {
            if !known.contains(&found.label.pool.0) && !found.is_in_use() {
                let name = found.label.pool_name.clone();
                note(name, self.import_found(&found, import).map(drop));
            }
        }
        first.map(|()| imported)
    }

    /// Imports a pool already in the registry: its service may be missing, or its devices may have moved. Returns
    /// `false` if another command exported the pool before this command got the lock.
    ///
    /// After a crash of the service, its supervisor may be about to restart the service. The import and the
    /// supervisor do the same work, and the slower of the two finds the work done. So an import without further
    /// options succeeds in either order.
    fn import_known(&mut self, known: &KnownPool, import: &ImportPool) -> Result<bool, Failure> {
        let name = known.name.as_str();
        // As in ZFS, `import -a` accepts pools that are already imported.
        let is_one = import.which.is_some();
        let exists = || match (is_one, &import.new_name) {
            (true, None) => Err(Failure::cannot("import", name, "a pool with that name is already imported")),
            (true, Some(_)) => {
                let hint = format!("to import a copy of the pool too: pool reguid {name}, then import the copy");
                Err(Failure::cannot("import", name, "the pool is already imported").hint(hint))
            }
            (false, _) => Ok(true),
        };
        if self.is_served(name) || import.new_name.is_some() {
            return exists();
        }
        let lock = self.turn(name)?;
        let Some(known) = self.registry.get(name)?.filter(|now| now.is_numbered(known.guid)) else { return Ok(false) };
        if self.is_served(name) {
            if is_one && !asks_for_more(import, &known) {
                // Without standard error the note is lost.
                let _ = writeln!(
                    io::stderr(),
                    "note: '{name}' was already imported; its service had crashed and was restarted"
                );
                return Ok(true);
            }
            return exists();
        }
        detach_dead_mounts(&self.registry, name);
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
            // This open makes the pool belong to this host, as the service requires at its start.
            let (force, without_log) = (import.force, import.without_log);
            let pool = OpenPool::open(&known, &Opening { force, without_log, ..Opening::default() })?;
            let kept = keep(&pool, import);
            pool.close()?;
            kept?;
        } else if self.can_mount().is_err() {
            // Without a service, this open shows whether the pool can be opened.
            self.open(known.clone())?;
        }
        self.bring_up(&lock, &known)?;
        exposed::warn(known.devices.iter().map(DevicePath::to_path));
        Ok(true)
    }

    /// Imports a pool found on devices.
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

    /// Removes a newly found pool from the registry if no service could open the pool, for example because another
    /// process was faster. A pool with a running service stays imported, even with failed mounts.
    fn forget_unserved(&self, lock: &PoolLock, failure: Failure) -> Result<(), Failure> {
        if !self.is_served(lock.pool()) {
            self.registry.remove(lock)?;
        }
        Err(failure)
    }
}

/// With a new name in the import, the given name may mean another pool of the same name as the known pool. Finds such
/// a pool on the searched devices.
fn namesake(import: &ImportPool, known: &KnownPool) -> Result<Option<Found>, Failure> {
    if import.new_name.is_none() || !matches!(import.which, Some(PoolSelector::Name(_))) {
        return Ok(None);
    }
    let is_it = |found: &Found| found.label.pool_name == known.name.as_str() && !known.is_numbered(found.label.pool.0);
    let mut found: Vec<Found> = found::find(&import.search, import.wanted)?.into_iter().filter(is_it).collect();
    // If there are several, the user must give the GUID.
    Ok(if found.len() == 1 { found.pop() } else { None })
}

/// The devices to open. If the search lists single devices, only these are opened: a missing member is not opened at
/// its last known path.
fn opened_of(found: &Found, search: &[PathBytes]) -> Vec<DevicePath> {
    let is_device = |path: &PathBytes| !Path::new(path.as_os_str()).is_dir();
    match !search.is_empty() && search.iter().all(is_device) {
        true => found.present(),
        false => found.in_order(),
    }
}

/// Whether an import changes the registry entry or the use of a pool, besides starting its service.
fn asks_for_more(import: &ImportPool, known: &KnownPool) -> bool {
    let is_as_known = import.no_mount == known.no_mount && import.assignments.is_empty() && import.rewind.is_none();
    !is_as_known || import.force || import.without_log
}

/// Whether the import ignores the owner recorded in the labels. A destroyed pool has no owner.
pub(super) fn is_forced(import: &ImportPool) -> bool {
    import.force || import.wanted == Wanted::Destroyed
}

/// The properties to set in the pool itself. `readonly` and `altroot` hold as long as the pool is imported; constants
/// already have their value.
fn to_keep(import: &ImportPool) -> impl Iterator<Item = &Assignment> {
    let is_constant = |name: &str| Property::of_pool(name).is_ok_and(|property| property.is_constant());
    let is_of_the_import = |name: &str| READONLY.is(name) || ALTROOT.is(name);
    import.assignments.iter().filter(move |given| !is_of_the_import(&given.name) && !is_constant(&given.name))
}

fn keep(pool: &OpenPool, import: &ImportPool) -> Result<(), Failure> {
    let assignments: Vec<Assignment> = to_keep(import).cloned().collect();
    if assignments.is_empty() { Ok(()) } else { pool.set_pool(&assignments) }
}

/// Refuses properties that an import cannot set.
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

/// The txg of the older state shown by a read-only import; `None` for the newest.
fn shown_state(import: &ImportPool) -> Option<u64> {
    let read_only = given(&import.assignments, &READONLY) == Some(true);
    import.rewind.and_then(|rewind| rewind.to).filter(|_| read_only)
}

/// Paths of a known pool's devices: found by the search in `import`, or else the last known paths.
pub(super) fn devices_now(known: &KnownPool, import: &ImportPool) -> Result<Vec<DevicePath>, Failure> {
    if import.which.is_none() || import.search.is_empty() {
        return Ok(known.devices.clone());
    }
    let found =
        found::find(&import.search, import.wanted)?.into_iter().find(|found| known.is_numbered(found.label.pool.0));
    let Some(found) = found else { return Ok(known.devices.clone()) };
    found.complete().map(|()| found.in_order())
}
