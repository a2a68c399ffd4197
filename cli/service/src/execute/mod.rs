//! Executing requests on a pool that this process owns.
//!
//! ```text
//! open_pool   the pool: engine, datasets, mounts; opening and closing    devices     this machine's devices
//! pool, dataset, property, accounts, snapshot, stream, files       one family of requests each
//! mounts      which datasets are mounted where, and keeping mounts in step with changes
//! background  freeing destroyed data               scrub       verifying and repairing
//! job         progress, cancelling, the stream beside a request       parts       answers sent in parts
//! suspended   resuming after a device failure, or giving up
//! check       verifying a pool; if in use, its last committed state
//! inspect     structures of a pool that no process has open
//! activity    background activity                  events      events since the pool was opened
//! losses      data lost if some devices fail       trim        returning free space to devices
//! jobs        the thread in which jobs take turns       orders      starting, pausing and stopping jobs, waiting
//! rebalance   spreading data evenly over vdevs
//! removal     removing a vdev from the pool        defragment  consolidating fragmented free space
//! growth      added space of devices               resize      shrinking devices
//! spares      adding and showing spares            automatic   spares stepping in, added space being used
//! rewind      choosing an older state to go back to     memory      default sizes of the cache
//! images      files found at the paths of devices       standing    conditions of the pool
//! vital       threads essential for the pool       patience    waiting for commands that read
//! refusal     errors of the layers below as failures     add      adding vdevs, spares and cache devices
//! vdev_records  the devices of a pool as records
//! ```
//!
//! Answers are data without formatting. A request that changes the pool is answered after its commit.

mod accounts;
mod activity;
mod add;
mod automatic;
mod background;
mod caches;
pub(crate) mod check;
mod dataset;
mod defragment;
pub(crate) mod devices;
mod events;
mod files;
mod growth;
mod images;
mod in_place;
pub(crate) mod inspect;
mod job;
mod jobs;
pub(crate) mod layout;
mod losses;
mod members;
mod memory;
mod mounts;
mod open_pool;
mod orders;
mod parts;
mod patience;
mod pool;
mod property;
mod rebalance;
mod refusal;
mod removal;
mod resize;
pub(crate) mod rewind;
mod scrub;
mod snapshot;
mod spares;
mod standing;
mod stream;
mod suspended;
#[cfg(test)]
mod tests;
mod trim;
mod vdev_records;
mod vital;

pub use self::{
    job::{Cancel, Job, JobStream},
    mounts::mount_namespace,
    open_pool::{OpenPool, Opening},
};
pub(crate) use self::{
    mounts::{Places as MountPlaces, check_namespace},
    refusal::OrRefused,
    suspended::refusal,
};

pub(crate) use self::open_pool::create_options;
use std::path::Path;

use self::patience::Patience;
use ::dataset::admin::{DestroyRequest, DestroySnapshotsRequest};
use ::pool::inspect::Sink;
use protocol::{Executor, Failure, HostRequest, HostResponse, Inspect, OnSaid, Request, Response, Stream};

impl OpenPool {
    /// Executes a request, and adds `command` to the history after a change.
    pub fn execute(
        &self,
        command: &str,
        request: Request,
        stream: Option<Stream>,
        job: &mut Job<'_>,
    ) -> Result<Response, Failure> {
        self.check_not_suspended(&request)?;
        let recorded = request.traits().is_recorded;
        if recorded {
            // The request may clear errors, so errors are sampled before.
            self.events.look();
        }
        let response = self.carry_out(request, stream, job)?;
        if recorded {
            self.record(command);
            self.events.note_command(command);
        }
        Ok(response)
    }

    fn carry_out(&self, request: Request, stream: Option<Stream>, job: &mut Job<'_>) -> Result<Response, Failure> {
        let done = |()| Response::Done;
        match request {
            Request::Ping => Ok(Response::Done),
            // The process that has the pool open closes the pool.
            Request::Shutdown { .. } | Request::Abandon => Err(Failure::new("this pool has no service")),
            Request::Pool { properties, vdevs } => self.pool_record(&properties, vdevs).map(Response::Pool),
            Request::SetPool { assignments } => self.set_pool(&assignments).map(done),
            Request::Status => self.status().map(|status| Response::Status(Box::new(status))),
            Request::History { internal } => self.history(internal).map(Response::History),
            Request::Sync => self.engine().commit_anyway().or_refused("sync", self.name()).map(|_| Response::Done),
            Request::Check => check::check_live(self, job).map(Response::Checked),
            Request::Job { kind, order } => self.order(kind, order, job),
            Request::ScrubPart(part) => self.scrub_part(&part, job).map(Response::Examined),
            Request::Clear { device } => self.clear(device.as_deref()).map(done),
            Request::Trim { action, devices, rate, wait } => {
                let bytes = self.trim((action, &devices), rate, wait, job)?;
                Ok(bytes.map_or(Response::Done, Response::Trimmed))
            }
            Request::Losses { devices } => self.losses(&devices, job).map(Response::Losses),
            Request::Events { after } => Ok(Response::Events(self.events.after(after))),
            Request::ClearEvents => Ok(Response::Cleared(self.events.clear())),
            Request::Activities => self.activities().map(Response::Activities),
            Request::Reopen => self.reopen_devices().map(done),
            Request::IoCounters => Ok(Response::IoCounters(self.io_counters())),
            Request::AddVdevs { vdevs, spares, force, dry_run } => {
                self.add_vdevs(&vdevs, &spares, force, dry_run).map(Response::Layout)
            }
            Request::Attach { device, new, replace, force, limit } => {
                self.attach(&device, &new, replace, force, limit).map(Response::Layout)
            }
            Request::Detach { device, force } => self.detach(&device, force).map(Response::Layout),
            Request::Split { name, devices, dry_run } => self.split(&name, &devices, dry_run).map(Response::Split),
            Request::Renumber { guid } => self.renumber(guid).map(done),
            Request::Offline { device, temporary } => self.offline(&device, temporary).map(done),
            Request::Online { device, expand } => self.online(&device, expand).map(done),
            Request::List { root, depth, kinds, properties } => {
                self.list(root, depth, kinds, &properties, job).map(done)
            }
            Request::Create { name, parents, assignments, no_mount, dry_run } => {
                self.create_dataset(&name, parents, &assignments, no_mount, dry_run).map(Response::Created)
            }
            Request::Destroy { name, recursive, dependents, force, wait, dry_run } => self
                .destroy_dataset(
                    DestroyRequest { name, recursive, dependents },
                    force,
                    dry_run,
                    &Patience::of(wait, job),
                )
                .map(Response::Destroyed),
            Request::DestroySnapshots { set, recursive, dependents, defer, wait, dry_run } => self
                .destroy_snapshots(
                    DestroySnapshotsRequest { set, recursive, dependents, defer },
                    dry_run,
                    &Patience::of(wait, job),
                )
                .map(Response::Destroyed),
            Request::DestroyBookmark { name, dry_run } => {
                self.destroy_bookmark(&name, dry_run).map(Response::Destroyed)
            }
            Request::Set { name, assignments, no_mount } => self.set(&name, &assignments, no_mount).map(done),
            Request::Inherit { name, property, recursive, received } => {
                self.inherit(&name, &property, recursive, received).map(done)
            }
            Request::Rename { from, to, parents, recursive, no_mount, force } => {
                self.rename(&from, &to, parents, recursive, no_mount, force).map(done)
            }
            Request::Mounts => Ok(Response::Mounts(self.mounts.as_ref().map(|m| m.list()).unwrap_or_default())),
            Request::Mount { name, options, overlay } => self.mount(name.as_ref(), &options, overlay).map(done),
            Request::MountAt { name, directory, options, remount, namespace } => {
                check_namespace(&name, namespace)?;
                self.mount_at(&name, Path::new(directory.as_os_str()), &options, remount).map(done)
            }
            Request::Unmount { target, force } => self.unmount(target.as_ref(), force).map(done),
            Request::Snapshot { names, recursive, assignments } => {
                self.snapshot(names, recursive, &assignments).map(done)
            }
            Request::Rollback { to, destroy_newer, destroy_clones, force } => {
                self.rollback(&to, destroy_newer, destroy_clones, force).map(done)
            }
            Request::Clone { from, to, parents, assignments, no_mount } => {
                self.clone_snapshot(&from, &to, parents, &assignments, no_mount).map(done)
            }
            Request::Promote { name } => self.promote(&name).map(done),
            Request::Hold { tag, names, recursive } => self.hold(&tag, &names, recursive).map(done),
            Request::Holds { names, recursive } => self.holds(&names, recursive).map(Response::Holds),
            Request::Release { tag, names, recursive } => self.release(&tag, &names, recursive).map(done),
            Request::Bookmark { from, to } => self.bookmark(&from, &to).map(done),
            Request::Diff { from, to } => self.diff(&from, &to, job).map(done),
            Request::Send { what, dry_run } => self.send(&what, dry_run, stream, job).map(Response::Sent),
            Request::Receive(spec) => self.receive(&spec, required(stream)?, job),
            Request::Entries { location, directory_itself, recursive } => {
                self.entries(&location, directory_itself, recursive, job).map(done)
            }
            Request::FileAttributes { location, recursive } => {
                self.file_attributes(&location, recursive, job).map(done)
            }
            Request::SetFileAttributes { location, assignments, recursive } => {
                self.set_file_attributes(&location, &assignments, recursive, job).map(done)
            }
            Request::Accounts { name, kind } => self.accounts(&name, kind, job).map(Response::Accounts),
            Request::Projects { location, reach } => self.projects(&location, reach, job).map(done),
            Request::SetProject { location, change, recursive } => {
                self.set_project(&location, change, recursive, job).map(done)
            }
            Request::Read { location } => self.read_file(&location, required(stream)?, job).map(done),
            Request::CopyIn { sources, to, recursive } => {
                self.copy_in(&sources, &to, recursive, job).map(Response::Copied)
            }
            Request::CopyWithin { sources, to, recursive } => {
                self.copy_within(&sources, &to, recursive, job).map(Response::Copied)
            }
            Request::CopyOut { sources, to, recursive } => {
                self.copy_out(&sources, &to, recursive, job).map(Response::Copied)
            }
        }
    }
}

/// The stream of a request; an error if missing.
fn required(stream: Option<Stream>) -> Result<Stream, Failure> {
    stream.ok_or_else(|| Failure::new("the request came without its stream"))
}

/// A machine without pools: every pool name is unknown. Shows exactly the checks that commands make before asking a
/// pool.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPools;

impl Executor for NoPools {
    fn known_pools(&mut self) -> Result<Vec<String>, Failure> {
        Ok(Vec::new())
    }

    fn host(&mut self, request: HostRequest, _said: OnSaid<'_>) -> Result<HostResponse, Failure> {
        match request {
            HostRequest::Importable { .. } => Ok(HostResponse::Importable(Vec::new())),
            HostRequest::Foreign { .. } => Ok(HostResponse::Foreign(Vec::new())),
            _ => Err(Failure::new("this machine has no pools")),
        }
    }

    fn call(
        &mut self,
        pool: &str,
        _request: Request,
        _stream: Option<Stream>,
        _said: OnSaid<'_>,
    ) -> Result<Response, Failure> {
        Err(Failure::no_pool(pool))
    }

    fn rest(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn inspect(&mut self, _what: &Inspect, _sink: Sink<'_>) -> Result<(), Failure> {
        Err(Failure::new("this machine has no pools"))
    }

    fn serve(&mut self, pool: &str, _supervised: bool) -> Result<(), Failure> {
        Err(Failure::no_pool(pool))
    }
}
