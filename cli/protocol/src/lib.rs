//! What can be asked of a pool, and what is answered: the one vocabulary of every command.
//!
//! The crates `service`, which carries requests out, and `cli`, which turns arguments into requests and answers into text,
//! stand on this one.
//!
//! ```text
//! fs snapshot -r tank@a   ->  Request::Snapshot { .. }  ->  executor  ->  Response::Done  ->  what is printed
//! ```
//!
//! A command turns its arguments into requests and renders the data of the responses; it never sees an engine. Whoever
//! carries a request out, in this process on a pool it opened or in the pool's service over its socket, never sees
//! arguments or a terminal. That is why both ways print the same, and why the answers are data, not text.
//!
//! - [`Request`]: within one imported pool. It may cross a socket, so every type here is `serde`, and works with formats
//!   that do not describe themselves.
//! - [`HostRequest`]: about the pools of this machine: create, import, export, destroy, check. It stays in the process
//!   of the command.
//! - [`Call`], [`Reply`]: what crosses the socket, in frames; a call with a stream has one file descriptor beside it, and
//!   the [`version`] of its sender before it.
//! - [`Executor`]: who carries requests out.
//!
//! Names are validated types and property values canonical text (`dataset::property`); paths are bytes.

mod access;
mod failure;
pub mod frame;
mod host;
mod job;
mod record;
mod request;
mod traits;
pub mod version;

use pool::inspect::Sink;
use serde::{Deserialize, Serialize};

pub use self::failure::{Exit, Failure, Kind, unexpected_answer};
pub use self::host::*;
pub use self::job::{JobTarget, Order};
pub use self::record::*;
pub use self::request::*;
pub use self::traits::{Permission, Suspended, Traits};

/// How far a long request has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// What is being done, for example `sending tank/home@monday`.
    pub what: String,
    /// Bytes done.
    pub done: u64,
    /// Bytes altogether, if that is known.
    pub total: Option<u64>,
}

/// What a request says before it ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Said {
    /// How far it has come; may be dropped.
    Progress(Progress),
    /// The next part of its answer; never dropped.
    Part(Part),
}

/// Called with what a request says before it ends, as often as the executor likes. Gives back what it cannot take yet; a
/// failure ends the request.
pub type OnSaid<'a> = &'a mut dyn FnMut(Said) -> Result<Option<Said>, Failure>;

/// One request as it crosses the socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// The command line, for the pool's history.
    pub command: String,
    /// The process that asks, by what the kernel says of the socket: the service fills it in.
    #[serde(skip)]
    pub process: Option<u32>,
    /// Its user, likewise.
    #[serde(skip)]
    pub user: Option<u32>,
    /// What is asked.
    pub request: Request,
}

/// One frame of an answer: any number of `Said` and `Alive`, then one `Done` or `Failed`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// Still at it.
    Said(Said),
    /// Still alive: said now and then, whatever is asked.
    Alive,
    /// The request was carried out.
    Done(Response),
    /// It was not, and nothing was changed.
    Failed(Failure),
}

/// The far end of a request that carries a stream of bytes: `send` and `cat` write to it, `receive` reads from it.
pub type Stream = std::os::fd::OwnedFd;

/// Carries out requests. It knows the registry and the services; commands know only this.
pub trait Executor {
    /// The names of the pools known on this machine, sorted.
    fn known_pools(&mut self) -> Result<Vec<String>, Failure>;

    /// The names of the pools that can be listed: those known, and for ordinary users those of root too. Sorted.
    fn visible_pools(&mut self) -> Result<Vec<String>, Failure> {
        self.known_pools()
    }

    /// Carries out a request about the pools of this machine.
    fn host(&mut self, request: HostRequest, progress: OnSaid<'_>) -> Result<HostResponse, Failure>;

    /// Carries out a request within the known pool of that name; `stream` is there exactly for the requests that
    /// [need one](Traits::needs_stream).
    fn call(
        &mut self,
        pool: &str,
        request: Request,
        stream: Option<Stream>,
        said: OnSaid<'_>,
    ) -> Result<Response, Failure>;

    /// Nothing is asked for a while, perhaps: what is open only for this command is closed, so that others may have it.
    fn rest(&mut self) -> Result<(), Failure>;

    /// Looks into the structures of a pool that nobody has open, and hands out what it finds.
    fn inspect(&mut self, what: &Inspect, sink: Sink<'_>) -> Result<(), Failure>;

    /// Becomes the service of a pool, or the supervisor of one; returns when the pool is exported.
    fn serve(&mut self, pool: &str, supervised: bool) -> Result<(), Failure>;
}

#[cfg(test)]
mod tests {
    use dataset::property::{Kinds, Source};

    use super::*;

    fn there_and_back<T: Serialize + for<'a> Deserialize<'a>>(value: &T) -> T {
        let bytes = postcard::to_allocvec(value).unwrap();
        postcard::from_bytes(&bytes).unwrap()
    }

    #[test]
    fn calls_and_replies_cross_a_socket_unchanged() {
        let request = Request::List {
            root: Some("tank/home@a".parse().unwrap()),
            depth: None,
            kinds: Kinds::ALL_DATASETS,
            properties: vec!["used".into()],
        };
        let call = Call { command: "fs list".into(), process: None, user: None, request };
        assert_eq!(there_and_back(&call), call);
        let property = PropertyRecord {
            name: "quota".into(),
            value: "0".into(),
            source: Source::Inherited("tank".into()),
            received: Some("5".into()),
        };
        let record = DatasetRecord { name: "tank#b".parse().unwrap(), createtxg: 7, properties: vec![property] };
        for reply in [
            Reply::Said(Said::Part(Part::Datasets(vec![Chain::default().shared(record)]))),
            Reply::Said(Said::Progress(Progress { what: "sending".into(), done: 1, total: None })),
            Reply::Failed(Failure::no_pool("tank")),
        ] {
            assert_eq!(there_and_back(&reply), reply);
        }
    }

    #[test]
    fn a_name_that_is_none_does_not_arrive() {
        let bytes = postcard::to_allocvec("tank/../etc").unwrap();
        assert!(postcard::from_bytes::<dataset::name::DatasetName>(&bytes).is_err());
    }
}
