//! The executor of a machine without pools.

use std::sync::Arc;

use pool::inspect::Sink;
use protocol::{Executor, Executors, Failure, HostRequest, HostResponse, Inspect, OnSaid, Request, Response, Stream};

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

    fn further(&self) -> Executors {
        Arc::new(|_, _| Box::new(NoPools))
    }

    fn serve(&mut self, pool: &str, _supervised: bool) -> Result<(), Failure> {
        Err(Failure::no_pool(pool))
    }
}
