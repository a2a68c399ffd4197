//! Carrying requests out.

mod job;

pub use self::job::{Cancel, Job, JobStream};

use crate::failure::Failure;
use crate::protocol::{Executor, HostRequest, HostResponse, OnProgress, Request, Response, Stream};

/// A machine on which no pool is known or can be: every name is unknown. What commands check before they ask a pool
/// shows in full on it.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPools;

impl Executor for NoPools {
    fn known_pools(&mut self) -> Result<Vec<String>, Failure> {
        Ok(Vec::new())
    }

    fn host(&mut self, request: HostRequest, _progress: OnProgress<'_>) -> Result<HostResponse, Failure> {
        match request {
            HostRequest::Importable { .. } => Ok(HostResponse::Importable(Vec::new())),
            _ => Err(Failure::new("this machine has no pools")),
        }
    }

    fn call(
        &mut self,
        pool: &str,
        _request: Request,
        _stream: Option<Stream>,
        _progress: OnProgress<'_>,
    ) -> Result<Response, Failure> {
        Err(Failure::no_pool(pool))
    }

    fn serve(&mut self, pool: &str) -> Result<(), Failure> {
        Err(Failure::no_pool(pool))
    }
}
