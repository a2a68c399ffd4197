//! The [`Executor`] of the programs: requests go to the owner of their pool, which the [`Client`] finds.

use std::{path::PathBuf, sync::Arc};

use pool::inspect::Sink;
use protocol::{
    DeviceRequest, Executor, Executors, Failure, HostRequest, HostResponse, Inspect, OnSaid, PoolRequest, Request,
    Response, Stream, VdevSpec,
};

use super::{client::Client, daemon, exposed, places::Places, registry::Registry, supervisor};

/// Existing files and devices that a request adds to a pool. New images are not included.
fn given_images(request: &Request) -> Vec<PathBuf> {
    let existing: Vec<&VdevSpec> = match request {
        Request::Device(DeviceRequest::AddVdevs { vdevs, spares, dry_run: false, .. }) => {
            vdevs.iter().flat_map(|vdev| &vdev.devices).chain(spares).collect()
        }
        Request::Device(DeviceRequest::Attach { new, dry_run: false, .. }) => vec![new],
        _ => Vec::new(),
    };
    let existing = existing.into_iter().filter(|spec| spec.create.is_none());
    existing.map(|spec| PathBuf::from(spec.path.as_os_str())).collect()
}

impl Executor for Client {
    fn known_pools(&mut self) -> Result<Vec<String>, Failure> {
        // Only the user of this process tidies the registry up.
        if self.acting.is_some() { self.registry.names() } else { self.own_pools() }
    }

    fn visible_pools(&mut self) -> Result<Vec<String>, Failure> {
        let mut names = self.known_pools()?;
        if self.acting.is_some() {
            return Ok(names);
        }
        let of_the_system = Places::of_the_system().and_then(|places| Registry::of(&places).names().ok());
        names.extend(of_the_system.unwrap_or_default());
        names.sort();
        names.dedup();
        Ok(names)
    }

    fn host(&mut self, request: HostRequest, progress: OnSaid<'_>) -> Result<HostResponse, Failure> {
        if self.acts_for_another() {
            return Err(Failure::not_permitted());
        }
        self.carry_out(request, progress)
    }

    fn call(
        &mut self,
        pool: &str,
        request: Request,
        stream: Option<Stream>,
        said: OnSaid<'_>,
    ) -> Result<Response, Failure> {
        // An executor for a user asks services only: nothing below is reached, whatever the registry lacks.
        if self.acting.is_some() && self.of_another(pool).is_none() {
            return Err(Failure::no_pool(pool));
        }
        if matches!(request, Request::Pool(PoolRequest::Pool { .. } | PoolRequest::Status)) {
            return self.show(pool, &request, said);
        }
        if let Some((places, indexed)) = self.of_another(pool) {
            return self.ask_another((&places, &indexed), request, stream, said);
        }
        let known = self.known(pool)?;
        let given = given_images(&request);
        let response = self.call_pool(known, request, stream, said)?;
        exposed::warn(given.into_iter());
        self.note_devices()?;
        Ok(response)
    }

    fn rest(&mut self) -> Result<(), Failure> {
        self.close_opened()
    }

    fn inspect(&mut self, what: &Inspect, sink: Sink<'_>) -> Result<(), Failure> {
        if self.acts_for_another() {
            return Err(Failure::not_permitted());
        }
        self.look_into(what, sink)
    }

    fn further(&self) -> Executors {
        Arc::new(|command, user| Box::new(Client::acting(command, user)))
    }

    fn serve(&mut self, pool: &str, supervised: bool) -> Result<(), Failure> {
        if supervised { supervisor::supervise(self, pool) } else { daemon::serve(&self.places, pool) }
    }
}
