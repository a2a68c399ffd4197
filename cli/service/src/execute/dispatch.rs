//! From a request to the code that executes the request, by subject.

use std::path::Path;

use dataset::admin::{Caller, DestroyRequest, DestroySnapshotsRequest};
use protocol::{
    DatasetRequest, DeviceRequest, Failure, FileRequest, ForeseenRecord, MountRequest, PoolRequest, Request, Response,
    ServiceRequest, Stream, StreamRequest,
};

use super::{check, job::Job, mounts::check_namespace, open_pool::OpenPool, patience::Patience, refusal::OrRefused};

impl OpenPool {
    /// Executes a request, and adds `command` to the history after a change.
    pub fn execute(
        &self,
        command: &str,
        request: impl Into<Request>,
        stream: Option<Stream>,
        job: &mut Job<'_>,
    ) -> Result<Response, Failure> {
        let request = request.into();
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
        match request {
            Request::Service(request) => about_service(&request),
            Request::Pool(request) => self.about_pool(request, job),
            Request::Device(request) => self.about_devices(request),
            Request::Dataset(request) => self.about_datasets(request, job),
            Request::Mount(request) => self.about_mounts(request),
            Request::Stream(request) => self.about_streams(request, stream, job),
            Request::File(request) => self.about_files(request, stream, job),
            Request::Job { kind, order } => self.order(kind, order, job),
            Request::ScrubPart(part) => self.scrub_part(&part, job).map(Response::Examined),
        }
    }

    fn about_pool(&self, request: PoolRequest, job: &mut Job<'_>) -> Result<Response, Failure> {
        match request {
            PoolRequest::Pool { properties, vdevs } => self.pool_record(&properties, vdevs).map(Response::Pool),
            PoolRequest::SetPool { assignments, dry_run: true } => self.foresee_set_pool(&assignments).map(foreseen),
            PoolRequest::SetPool { assignments, dry_run: false } => self.set_pool(&assignments).map(done),
            PoolRequest::Status => self.status().map(|status| Response::Status(Box::new(status))),
            PoolRequest::History { internal } => self.history(internal).map(Response::History),
            PoolRequest::Sync => self.engine().commit_anyway().or_refused("sync", self.name()).map(|_| Response::Done),
            PoolRequest::Check => check::check_live(self, job).map(Response::Checked),
            PoolRequest::Losses { devices } => self.losses(&devices, job).map(Response::Losses),
            PoolRequest::Events { after } => Ok(Response::Events(self.events.after(after))),
            PoolRequest::ClearEvents => Ok(Response::Cleared(self.events.clear())),
            PoolRequest::Activities => self.activities().map(Response::Activities),
            PoolRequest::Reopen => self.reopen_devices().map(done),
            PoolRequest::Clear { device } => self.clear(device.as_deref()).map(done),
            PoolRequest::IoCounters => Ok(Response::IoCounters(Box::new(self.io_counters()))),
            PoolRequest::CacheFigures => Ok(Response::Cache(self.cache_figures())),
            PoolRequest::Renumber { guid } => self.renumber(guid).map(done),
        }
    }

    fn about_devices(&self, request: DeviceRequest) -> Result<Response, Failure> {
        match request {
            DeviceRequest::AddVdevs { vdevs, spares, force, dry_run } => {
                self.add_vdevs(&vdevs, &spares, force, dry_run).map(Response::Layout)
            }
            DeviceRequest::Attach { device, new, replace: true, force, dry_run: true, .. } => {
                self.plan_replace(&device, &new, force).map(Response::Layout)
            }
            DeviceRequest::Attach { device, new, force, dry_run: true, .. } => {
                self.plan_attach(&device, &new, force).map(Response::Layout)
            }
            DeviceRequest::Attach { device, new, replace, force, limit, dry_run: false } => {
                self.attach(&device, &new, replace, force, limit).map(Response::Layout)
            }
            DeviceRequest::Detach { device, force } => self.detach(&device, force).map(Response::Layout),
            DeviceRequest::Split { name, devices, dry_run } => {
                self.split(&name, &devices, dry_run).map(Response::Split)
            }
            DeviceRequest::Offline { device, temporary } => self.offline(&device, temporary).map(done),
            DeviceRequest::Online { device, expand } => self.online(&device, expand).map(done),
        }
    }

    fn about_datasets(&self, request: DatasetRequest, job: &mut Job<'_>) -> Result<Response, Failure> {
        match request {
            DatasetRequest::List { root, depth, kinds, properties, range } => {
                let total = self.list(root, (depth, kinds, range), &properties, job)?;
                Ok(range.map_or(Response::Done, |_| Response::Listed(total)))
            }
            DatasetRequest::Create { name, parents, assignments, no_mount, dry_run } => {
                self.create_dataset(&name, parents, &assignments, no_mount, dry_run).map(Response::Created)
            }
            DatasetRequest::Destroy { name, recursive, dependents, force, wait, dry_run } => {
                let request = DestroyRequest { name, recursive, dependents };
                self.destroy_dataset(request, force, dry_run, &Patience::of(wait, job)).map(Response::Destroyed)
            }
            DatasetRequest::DestroySnapshots { set, recursive, dependents, defer, wait, dry_run } => {
                let request = DestroySnapshotsRequest { set, recursive, dependents, defer };
                self.destroy_snapshots(request, dry_run, &Patience::of(wait, job)).map(Response::Destroyed)
            }
            DatasetRequest::DestroyBookmark { name, dry_run } => {
                self.destroy_bookmark(&name, dry_run).map(Response::Destroyed)
            }
            DatasetRequest::Set { name, assignments, no_mount, dry_run: true } => {
                self.foresee_set(&name, &assignments, no_mount, job).map(foreseen)
            }
            DatasetRequest::Set { name, assignments, no_mount, dry_run: false } => {
                self.set(&name, &assignments, no_mount).map(done)
            }
            DatasetRequest::Inherit { name, property, recursive, received, dry_run } => {
                let no_mount = Caller::current().is_some();
                match dry_run {
                    true => self.foresee_inherit(&name, &property, recursive, received, no_mount).map(foreseen),
                    false => self.inherit(&name, &property, recursive, received, no_mount).map(done),
                }
            }
            DatasetRequest::Rename { from, to, parents, recursive, no_mount, force, dry_run: true } => {
                self.foresee_rename(&from, &to, (parents, recursive, no_mount, force)).map(foreseen)
            }
            DatasetRequest::Rename { from, to, parents, recursive, no_mount, force, dry_run: false } => {
                self.rename(&from, &to, parents, recursive, no_mount, force).map(done)
            }
            DatasetRequest::Snapshot { names, recursive, assignments } => {
                self.snapshot(names, recursive, &assignments).map(done)
            }
            DatasetRequest::Rollback { to, destroy_newer, destroy_clones, force, dry_run: true } => {
                self.foresee_rollback(&to, (destroy_newer, destroy_clones, force)).map(foreseen)
            }
            DatasetRequest::Rollback { to, destroy_newer, destroy_clones, force, dry_run: false } => {
                self.rollback(&to, destroy_newer, destroy_clones, force).map(done)
            }
            DatasetRequest::Clone { from, to, parents, assignments, no_mount } => {
                self.clone_snapshot(&from, &to, parents, &assignments, no_mount).map(done)
            }
            DatasetRequest::Promote { name } => self.promote(&name).map(done),
            DatasetRequest::Hold { tag, names, recursive } => self.hold(&tag, &names, recursive).map(done),
            DatasetRequest::Holds { names, recursive } => self.holds(&names, recursive).map(Response::Holds),
            DatasetRequest::Release { tag, names, recursive } => self.release(&tag, &names, recursive).map(done),
            DatasetRequest::Bookmark { from, to } => self.bookmark(&from, &to).map(done),
            DatasetRequest::Allow { name, to, permissions, reach } => {
                self.allow(&name, &to, &permissions, reach).map(done)
            }
            DatasetRequest::Unallow { name, from, permissions, reach, recursive } => {
                self.unallow(&name, &from, &permissions, reach, recursive).map(done)
            }
            DatasetRequest::Allowances { name } => self.allowances(&name).map(Response::Allowances),
            DatasetRequest::Accounts { name, kind } => self.accounts(&name, kind, job).map(Response::Accounts),
        }
    }

    fn about_mounts(&self, request: MountRequest) -> Result<Response, Failure> {
        match request {
            MountRequest::Mounts => Ok(Response::Mounts(self.mounts.as_ref().map(|m| m.list()).unwrap_or_default())),
            MountRequest::FileCounters => {
                Ok(Response::FileCounters(self.mounts.as_ref().map(|m| m.counters()).unwrap_or_default()))
            }
            MountRequest::Activity => {
                Ok(Response::Activity(self.mounts.as_ref().map(|m| m.watched()).unwrap_or_default()))
            }
            MountRequest::Mount { name, options, overlay } => self.mount(name.as_ref(), &options, overlay).map(done),
            MountRequest::MountAt { name, directory, options, remount, namespace } => {
                check_namespace(&name, namespace)?;
                self.mount_at(&name, Path::new(directory.as_os_str()), &options, remount).map(done)
            }
            MountRequest::Unmount { target, force } => self.unmount(target.as_ref(), force).map(done),
        }
    }

    fn about_streams(
        &self,
        request: StreamRequest,
        stream: Option<Stream>,
        job: &mut Job<'_>,
    ) -> Result<Response, Failure> {
        match request {
            StreamRequest::Diff { from, to } => self.diff(&from, &to, job).map(done),
            StreamRequest::Send { what, dry_run } => self.send(&what, dry_run, stream, job).map(Response::Sent),
            StreamRequest::SendSaved { dataset, dry_run, limit } => {
                let stream = if dry_run { None } else { Some(required(stream)?) };
                self.send_saved(&dataset, stream, limit, job).map(Response::Sent)
            }
            StreamRequest::DiscardPartial(name) => self.discard_partial(&name).map(done),
            StreamRequest::Correct(spec) => self.correct(&spec, required(stream)?, job).map(Response::Corrected),
            StreamRequest::Receive(spec) => self.receive(&spec, required(stream)?, job),
        }
    }

    fn about_files(
        &self,
        request: FileRequest,
        stream: Option<Stream>,
        job: &mut Job<'_>,
    ) -> Result<Response, Failure> {
        match request {
            FileRequest::Entries { location, directory_itself, recursive } => {
                self.entries(&location, directory_itself, recursive, job).map(done)
            }
            FileRequest::FileAttributes { location, recursive } => {
                self.file_attributes(&location, recursive, job).map(done)
            }
            FileRequest::SetFileAttributes { location, assignments, recursive } => {
                self.set_file_attributes(&location, &assignments, recursive, job).map(done)
            }
            FileRequest::Projects { location, reach } => self.projects(&location, reach, job).map(done),
            FileRequest::SetProject { location, change, recursive } => {
                self.set_project(&location, change, recursive, job).map(done)
            }
            FileRequest::Read { location } => self.read_file(&location, required(stream)?, job).map(done),
            FileRequest::CopyIn { sources, to, recursive, no_links } => {
                self.copy_in(&sources, &to, (recursive, no_links), job).map(Response::Copied)
            }
            FileRequest::CopyWithin { sources, to, recursive, no_links } => {
                self.copy_within(&sources, &to, (recursive, no_links), job).map(Response::Copied)
            }
            FileRequest::CopyOut { sources, to, recursive } => {
                self.copy_out(&sources, &to, recursive, job).map(Response::Copied)
            }
        }
    }
}

fn about_service(request: &ServiceRequest) -> Result<Response, Failure> {
    match request {
        ServiceRequest::Ping => Ok(Response::Done),
        // The process that has the pool open closes the pool.
        ServiceRequest::Shutdown { .. } | ServiceRequest::Abandon => Err(Failure::new("this pool has no service")),
    }
}

fn foreseen(record: ForeseenRecord) -> Response {
    Response::Foreseen(Box::new(record))
}

fn done(_: ()) -> Response {
    Response::Done
}

/// The stream of a request; an error if missing.
fn required(stream: Option<Stream>) -> Result<Stream, Failure> {
    stream.ok_or_else(|| Failure::new("the request came without its stream"))
}
