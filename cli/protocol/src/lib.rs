//! Requests to pools and their responses: the vocabulary shared by all commands.
//!
//! Two crates build on `protocol`: `service` executes requests; `cli` turns arguments into requests and responses into
//! text.
//!
//! ```text
//! fs snapshot -r tank@a   ->  DatasetRequest::Snapshot { .. }  ->  executor  ->  Response::Done  ->  what is printed
//! ```
//!
//! A command turns its arguments into requests and renders the data of the responses; a command never sees an engine.
//! The executor of a request never sees arguments or a terminal. The executor runs in the command's process, on a pool
//! opened there, or in the pool's service, behind a socket. Both ways print the same text, because responses are data,
//! not text.
//!
//! - [`Request`]: a request within one imported pool. A request may cross a socket, so every type here is `serde`, and
//!   works with formats that are not self-describing.
//! - [`HostRequest`]: a request about the pools of this machine: create, import, export, destroy, check. Host requests
//!   stay in the command's process.
//! - [`Call`], [`Reply`]: the messages on the socket, in frames. A call with a stream has one file descriptor beside
//!   its frame; a call begins with the [`version`] of its sender.
//! - [`Executor`]: executes requests.
//!
//! Names are validated types and property values canonical text (`dataset::property`); paths are bytes.

mod access;
mod failure;
pub mod frame;
mod host;
mod job;
pub mod manager;
mod place;
mod record;
mod request;
mod response;
mod traits;
pub mod version;

use pool::inspect::Sink;
use serde::{Deserialize, Serialize};

pub use self::failure::{Exit, Failure, Kind, shell_word, unexpected_answer};
pub use self::host::*;
pub use self::job::{JobTarget, Order, ScrubPart};
pub use self::place::{Place, location, place};
pub use self::record::*;
pub use self::request::*;
pub use self::response::*;
pub use self::traits::{Permission, Suspended, Traits};

/// Progress of a long request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The operation in progress, for example `sending tank/home@monday`.
    pub what: String,
    /// Number of bytes processed.
    pub done: u64,
    /// Total number of bytes, if known.
    pub total: Option<u64>,
}

/// Output of a request before its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Said {
    /// Progress of the request; may be dropped.
    Progress(Progress),
    /// The next part of the response; never dropped.
    Part(Part),
}

/// Callback for output of a request before its end, called as often as the executor chooses. Returns output that cannot
/// be accepted yet; a failure aborts the request.
pub type OnSaid<'a> = &'a mut dyn FnMut(Said) -> Result<Option<Said>, Failure>;

/// One request on the socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// The command line, for the pool's history.
    pub command: String,
    /// Process id of the caller. The service fills in the kernel's record of the socket's peer.
    #[serde(skip)]
    pub process: Option<u32>,
    /// User id of the caller, from the same record.
    #[serde(skip)]
    pub user: Option<u32>,
    /// Group id of the caller, from the same record.
    #[serde(skip)]
    pub group: Option<u32>,
    /// User id of the user for whom the caller asks, with no more than the user's permissions. The service believes
    /// only a caller with its own user id: the web page of the owner.
    pub on_behalf: Option<u32>,
    /// The request to execute.
    pub request: Request,
}

impl Call {
    /// A call of the user of this process. The service adds the peer.
    pub fn new(command: impl Into<String>, request: impl Into<Request>) -> Call {
        let (command, request) = (command.into(), request.into());
        Call { command, process: None, user: None, group: None, on_behalf: None, request }
    }
}

/// One frame of an answer: any number of `Said` and `Alive`, perhaps `Stream`, then one `Done` or `Failed`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// Output before the end of the request.
    Said(Said),
    /// The service expects the stream of the request, beside one byte. Only a user other than the owner is asked: the
    /// stream of an owner travels with the call.
    Stream,
    /// Sign of life, sent periodically during any request.
    Alive,
    /// The response of a successful request.
    Done(Response),
    /// The request failed and changed nothing.
    Failed(Failure),
}

/// Far end of a byte stream: `send` and `cat` write to the descriptor, `receive` reads from it.
pub type Stream = std::os::fd::OwnedFd;

/// Makes executors for further command lines of this process: each with the command line, and the user for whom
/// requests are made. Executors with a user ask only services, and never open a pool in this process.
pub type Executors = std::sync::Arc<dyn Fn(String, Option<u32>) -> Box<dyn Executor> + Send + Sync>;

/// Executes requests. An executor knows the registry and the services; commands know only executors.
pub trait Executor {
    /// The names of the pools known on this machine, sorted.
    fn known_pools(&mut self) -> Result<Vec<String>, Failure>;

    /// The names of the pools to list, sorted: known pools, and for ordinary users root's known pools too.
    fn visible_pools(&mut self) -> Result<Vec<String>, Failure> {
        self.known_pools()
    }

    /// Executes a request about the pools of this machine.
    fn host(&mut self, request: HostRequest, progress: OnSaid<'_>) -> Result<HostResponse, Failure>;

    /// Executes a request within the known pool named `pool`; `stream` is present exactly for the requests that [need a
    /// stream](Traits::needs_stream).
    fn call(
        &mut self,
        pool: &str,
        request: Request,
        stream: Option<Stream>,
        said: OnSaid<'_>,
    ) -> Result<Response, Failure>;

    /// Closes pools opened only for this command, because no request may follow for a while and other processes may
    /// need them.
    fn rest(&mut self) -> Result<(), Failure>;

    /// Reads on-disk structures of an exported pool, and passes the findings to `sink`.
    fn inspect(&mut self, what: &Inspect, sink: Sink<'_>) -> Result<(), Failure>;

    /// Executors for further command lines.
    fn further(&self) -> Executors;

    /// Becomes the service of a pool, or with `supervised` the supervisor; returns when the pool is exported.
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
        let request = DatasetRequest::List {
            root: Some("tank/home@a".parse().unwrap()),
            depth: None,
            kinds: Kinds::ALL_DATASETS,
            properties: vec!["used".into()],
            range: Some(ListRange { skip: 100, most: 7 }),
        };
        let call = Call::new("fs list", request);
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
