//! Requests to the pool's service itself.

use serde::{Deserialize, Serialize};

/// A request to the pool's service itself. The comment on each variant
/// ends with the [`Response`](crate::Response) it expects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServiceRequest {
    /// Asks whether the service responds. `Done`
    Ping,
    /// Unmount everything, commit, close the pool and end the service; `force` includes busy file systems. `Done`
    Shutdown {
        /// Unmount busy file systems lazily.
        force: bool,
        /// The pool is exported: its history records the command line.
        export: bool,
    },
    /// Discard uncommitted writes, unmount lazily, close the pool and end the service. `GivenUp`, or `Done` if there
    /// were no uncommitted writes.
    Abandon,
}
