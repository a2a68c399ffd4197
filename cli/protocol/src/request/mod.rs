//! Requests within one imported pool.
//!
//! ```text
//! service   the service itself           device    devices of the pool         mount   mounts
//! pool      the whole pool               dataset   datasets and snapshots      file    files, without a mount
//! stream    comparing, sending, receiving
//! ```
//!
//! Orders to jobs are in `job`, responses in `response`.

mod dataset;
mod device;
mod file;
mod mount;
mod pool;
mod service;
mod stream;

use ::dataset::jobs::Kind;
use serde::{Deserialize, Serialize};

pub use self::{dataset::*, device::*, file::*, mount::*, pool::*, service::*, stream::*};
use super::job::{JobTarget, Order, ScrubPart};

/// A request to one pool. The comment on each variant of a subject ends with the [`Response`](crate::Response) it
/// expects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// A request to the pool's service itself.
    Service(ServiceRequest),
    /// A request about the whole pool: properties, state, history, errors.
    Pool(PoolRequest),
    /// A request that changes the devices of the pool.
    Device(DeviceRequest),
    /// A request about datasets, snapshots and bookmarks, with their properties.
    Dataset(DatasetRequest),
    /// A request about mounts, which only a service has.
    Mount(MountRequest),
    /// A request that compares, sends or receives states of datasets.
    Stream(StreamRequest),
    /// A request about files of a dataset or a snapshot, without a mount.
    File(FileRequest),
    /// Give an order to a job. See [`Order`] for the responses.
    Job {
        /// Kind of the job, such as a scrub.
        kind: Kind,
        /// Plan, start, pause, stop or wait.
        order: Order,
    },
    /// Scrub a part of the pool at once. `Examined`
    ScrubPart(ScrubPart),
}

impl From<ServiceRequest> for Request {
    fn from(request: ServiceRequest) -> Request {
        Request::Service(request)
    }
}

impl From<PoolRequest> for Request {
    fn from(request: PoolRequest) -> Request {
        Request::Pool(request)
    }
}

impl From<DeviceRequest> for Request {
    fn from(request: DeviceRequest) -> Request {
        Request::Device(request)
    }
}

impl From<DatasetRequest> for Request {
    fn from(request: DatasetRequest) -> Request {
        Request::Dataset(request)
    }
}

impl From<MountRequest> for Request {
    fn from(request: MountRequest) -> Request {
        Request::Mount(request)
    }
}

impl From<StreamRequest> for Request {
    fn from(request: StreamRequest) -> Request {
        Request::Stream(request)
    }
}

impl From<FileRequest> for Request {
    fn from(request: FileRequest) -> Request {
        Request::File(request)
    }
}

impl Request {
    /// An order to a job of one kind.
    pub fn job(kind: Kind, order: Order) -> Request {
        Request::Job { kind, order }
    }

    /// A request to start or resume a job of the whole pool; `limit` is in bytes per second.
    pub fn start(kind: Kind, limit: Option<u64>) -> Request {
        Request::job(kind, Order::Start { target: JobTarget::Pool, limit })
    }

    /// A request to pause a job.
    pub fn pause(kind: Kind) -> Request {
        Request::job(kind, Order::Pause(JobTarget::Pool))
    }

    /// A request to stop a job.
    pub fn stop(kind: Kind) -> Request {
        Request::job(kind, Order::Stop(JobTarget::Pool))
    }

    /// A request to wait for a job of the whole pool.
    pub fn wait(kind: Kind) -> Request {
        Request::job(kind, Order::Wait(JobTarget::Pool))
    }
}
