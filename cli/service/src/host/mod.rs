//! How pools come and go on this machine: create, destroy, import, export, check.
//!
//! The order of the steps ensures that a failure between two steps loses nothing. A pool is written to its devices
//! before it is registered, and is unregistered only after the close. Each operation holds the pool's lock from
//! beginning to end.
//!
//! ```text
//! import   pools found on devices, or known, without a service
//! leave    export, abandon, destroy
//! closed   operations on a pool that no process has open
//! labels   erasing the labels of a device
//! renumber another GUID for a pool
//! ```

mod closed;
mod import;
mod labels;
mod leave;
mod renumber;

use std::io::{self, Write};

use dataset::name::DatasetName;
use dataset::property::pool::ALTROOT;
use pool::format::label::classes::VdevClasses;
use protocol::{
    Assignment, CreatePool, Failure, HostRequest, HostResponse, Layout, OnSaid, PathBytes, PoolSelector, Wanted, given,
    search_options, searched,
};

use super::{
    client::Client,
    exposed,
    lock::PoolLock,
    registry::{DevicePath, KnownPool},
};
use crate::execute::{
    MountPlaces, OpenPool, create_options,
    devices::{NewDevices, check_new, measure},
    found::{self, Found},
    layout::{apart, asked, check_replication, devices_of, estimate, grouped, shown_caches},
};

impl Client {
    /// Executes a request about the pools of this machine.
    pub(super) fn carry_out(&mut self, request: HostRequest, progress: OnSaid<'_>) -> Result<HostResponse, Failure> {
        match request {
            HostRequest::Create(create) => self.create(&create).map(HostResponse::Layout),
            HostRequest::Destroy { pool, force } => self.destroy(&pool, force).map(|()| HostResponse::Done),
            HostRequest::Export { pools, force, abandon } => {
                let export = |pool: &String| self.export_or_abandon(pool, force, abandon);
                pools.iter().try_for_each(export).map(|()| HostResponse::Done)
            }
            HostRequest::Importable { search, wanted } => self.importable(&search, wanted),
            HostRequest::Foreign { search } => found::foreign(&search).map(HostResponse::Foreign),
            HostRequest::Measure { pool, devices } => measure(&devices, &pool).map(HostResponse::Measured),
            HostRequest::Import(import) if import.rewind.is_some() => self.rewind(&import).map(HostResponse::Rewound),
            HostRequest::Import(import) => self.import(&import).map(HostResponse::Imported),
            HostRequest::ClearLabels { device, force } => {
                self.clear_labels(&device, force).map(|()| HostResponse::Done)
            }
            HostRequest::Renumber { pool, guid } => self.renumber(&pool, guid, progress).map(|()| HostResponse::Done),
            HostRequest::Check { pool, search } => self.check(&pool, &search, progress),
        }
    }

    fn create(&mut self, create: &CreatePool) -> Result<Layout, Failure> {
        const ACTION: &str = "create";
        let name = create.name.as_str();
        self.check_unknown(&create.name)?;
        if !create.force && self.can_mount().is_ok() {
            let places = MountPlaces::of_this_user(altroot(&create.pool_assignments).as_deref());
            places.check_root(&create.name, &create.root_assignments)?;
        }
        if !create.force {
            check_replication(&create.vdevs, &[], &VdevClasses::new(), ACTION, name)?;
        }
        let (vdevs, caches) = apart(&create.vdevs);
        let spares = create.spares.iter().map(|spare| spare.path.to_text()).collect();
        let paths = caches.iter().map(|cache| cache.path.to_text()).collect::<Vec<_>>();
        let shown = asked(&vdevs, 0).into_iter().chain(shown_caches(paths.into_iter())).collect();
        let mut layout = Layout { pool: name.to_owned(), vdevs: shown, spares, size: 0 };
        let specs = devices_of(&vdevs);
        let all: Vec<_> = specs.iter().chain(&caches).chain(&create.spares).cloned().collect();
        if create.dry_run {
            let devices = check_new(&all, ACTION, name, create.force)?;
            let sector = 1 << create_options(&create.name, &create.pool_assignments).ashift;
            layout.size = estimate(&mut layout.vdevs, &vdevs, &devices, sector, None);
            return Ok(layout);
        }
        if all.len() > specs.len() {
            // The check takes no device; the pool's creation does.
            check_new(&all, ACTION, name, create.force)?;
        }
        let lock = self.turn(name)?;
        self.check_unknown(&create.name)?;
        let taken = NewDevices::take(&specs, ACTION, name, create.force)?;
        let (pool_assignments, root_assignments) = (&create.pool_assignments, &create.root_assignments);
        let pool =
            OpenPool::create(&create.name, &grouped(&vdevs, taken.devices()), pool_assignments, root_assignments)?;
        pool.add_spares(&create.spares, create.force)?;
        pool.add_caches(&caches, create.force)?;
        let known = KnownPool {
            name: create.name.clone(),
            guid: pool.guid(),
            former: None,
            devices: all.iter().map(|device| DevicePath::from(device.path.clone())).collect(),
            read_only: false,
            no_mount: false,
            altroot: altroot(pool_assignments),
            state: None,
        };
        pool.record(&self.command);
        layout.size = pool.engine().space_totals().size;
        exposed::warn(known.devices.iter().map(DevicePath::to_path));
        pool.close()?;
        self.registry.put(&lock, &known)?;
        taken.keep();
        self.bring_up(&lock, &known)?;
        Ok(layout)
    }

    /// Refuses to create a pool under the name of a known pool.
    fn check_unknown(&self, name: &DatasetName) -> Result<(), Failure> {
        match self.registry.get(name.as_str())? {
            Some(_) => Err(Failure::cannot("create", name, "pool already exists")),
            None => Ok(()),
        }
    }

    /// Starts the service of a known pool if mounting is possible, and otherwise prints a note. The service mounts
    /// the datasets; a failed mount is reported, and the pool stays imported.
    fn bring_up(&mut self, lock: &PoolLock, known: &KnownPool) -> Result<(), Failure> {
        match self.can_mount() {
            Ok(()) => {
                self.close_opened()?;
                self.start_service(lock)?;
                self.have_mounted(known)
            }
            Err(None) => Ok(()),
            Err(Some(reason)) => {
                let note = format!("note: '{}' is not mounted: {reason}; its files: fs ls, fs cat, fs cp", known.name);
                // Without standard error the note is lost.
                let _ = writeln!(io::stderr(), "{note}");
                Ok(())
            }
        }
    }

    fn find_known(&self, which: &PoolSelector) -> Result<Option<KnownPool>, Failure> {
        match which {
            PoolSelector::Name(name) if self.registry.is_closed() => Err(Failure::not_permitted_in(name)),
            PoolSelector::Name(name) => self.registry.get(name),
            PoolSelector::Guid(guid) => {
                let mut known =
                    self.registry.names()?.into_iter().filter_map(|name| self.registry.get(&name).transpose());
                known.find(|known| known.as_ref().is_ok_and(|known| known.guid == *guid)).transpose()
            }
        }
    }
}

fn altroot(assignments: &[Assignment]) -> Option<String> {
    given(assignments, &ALTROOT).filter(|altroot| !altroot.is_empty())
}

/// Finds a single pool by name or GUID; `action` begins the message of a failure.
fn find_one(action: &str, which: &PoolSelector, search: &[PathBytes], wanted: Wanted) -> Result<Found, Failure> {
    let text = match which {
        PoolSelector::Name(name) => name.clone(),
        PoolSelector::Guid(guid) => guid.to_string(),
    };
    let is_it = |found: &Found| match which {
        PoolSelector::Name(name) => found.label.pool_name == *name,
        PoolSelector::Guid(guid) => found.label.pool.0 == *guid,
    };
    let mut matching: Vec<Found> = found::find(search, wanted)?.into_iter().filter(is_it).collect();
    match matching.len() {
        0 if wanted == Wanted::Living && found::find(search, Wanted::Destroyed)?.iter().any(is_it) => {
            let hint = format!("to recover the pool: pool import -D{} {text}", search_options(search));
            Err(Failure::cannot(action, text, "the pool was destroyed").hint(hint))
        }
        0 => {
            let (places, flag) = (searched(search), wanted.flag());
            let elsewhere = match action {
                "import" => format!("pool import{flag} -d DIR {text}"),
                _ => "the same command with -d DIR".to_owned(),
            };
            let hint = format!("searched: {places}\nto search another directory: {elsewhere}");
            Err(Failure::cannot(action, text, "no such pool available").hint(hint))
        }
        1 => Ok(matching.remove(0)),
        _ => {
            let guids: Vec<String> = matching.iter().map(|found| found.label.pool.to_string()).collect();
            let hint = format!("use a GUID: {}", guids.join(", "));
            Err(Failure::cannot(action, text, "more than one matching pool").hint(hint))
        }
    }
}
