//! The protocol version, and the refusal when a program and a service differ in version.
//!
//! A service keeps running its old code while the programs on disk are replaced. So a call carries the version of its
//! sender, and a service decodes a call no further if the version differs from its own. Calls had no version before
//! version 1. A service of that age closes the connection on a call with a version; [`before_versions`] distinguishes
//! the service from a crashed service.
//!
//! The refusal is a [`Reply::Failed`](crate::Reply). Programs of every version decode the refusal: a [`Failure`] keeps
//! the names of its fields and variants on the socket, and every added field has a default.
//!
//! Builds of one version work together, because a version has one form of every message. `cli/protocol/wire.txt` lists
//! all types on the socket, and a test compares the list with the code: a changed type needs a new version.
//!
//! ```text
//! 1   a call carries its version; some builds send `Response::Received` in another form
//! 2   one record describes every job
//! 3   requests are grouped by subject; a failure carries operation, object and reason apart
//! 4   trim is a job, and an order to pause or stop has a target; an attach has a dry run
//! 5   a send names the format of its stream
//! 6   users other than the owner may have permissions; the service asks such a user for the stream of a request
//! 7   a receive can repair damaged blocks of existing snapshots
//! 8   a send and a receive have a limit; a send can leave out datasets, and
//!     send received values only, holds and the expected size
//! 9   the web page of an owner makes requests on behalf of a user;
//!     figures of mounts, devices and caches
//! 10  a send can write the partial state of an interrupted receive
//! 11  states are values of one type; a copy into a dataset can refuse links;
//!     properties, renames and rollbacks have a dry run; initialization is a job;
//!     a status has alerts
//! 12  a list can be asked for in parts; a receive names the snapshots that it has skipped
//! ```

use std::{cmp::Ordering, io};

use serde::{Deserialize, Serialize};

use crate::{Call, Exit, Failure, Kind, frame};

/// Version of this code. Every change of the messages on the socket increments the version.
pub const VERSION: u32 = 12;

/// A call as encoded on the socket.
#[derive(Serialize, Deserialize)]
struct Envelope<C> {
    /// Version of the sender.
    version: u32,
    /// The call, encoded as in `version`.
    call: C,
}

/// The common part of calls of all versions.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    version: Option<u32>,
}

/// The version of a sender whose call this code cannot decode; `None` before version 1. A call of this code's own
/// version that cannot be decoded comes from a defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign(pub Option<u32>);

/// Encodes a call as one frame.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] if the call is larger than [`frame::MAX_CALL`].
pub fn encode(call: &Call) -> io::Result<Vec<u8>> {
    frame::encode(&Envelope { version: VERSION, call }, frame::MAX_CALL)
}

/// Decodes the body of a call's frame, with the announced length `len`. The inner error is a call of another version.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if the body is not a call of any version; [`io::ErrorKind::UnexpectedEof`] if bytes
/// are missing.
pub fn decode(body: &[u8], len: usize) -> io::Result<Result<Call, Foreign>> {
    let head: Head = frame::decode(body, len)?;
    let foreign = Foreign(head.version);
    if head.version != Some(VERSION) {
        return Ok(Err(foreign));
    }
    Ok(frame::decode::<Envelope<Call>>(body, len).map(|envelope| envelope.call).map_err(|_| foreign))
}

/// Encodes a `Ping` as programs did before version 1, to probe for an old service.
pub fn before_versions() -> io::Result<Vec<u8>> {
    frame::encode(&serde_json::json!({ "command": "", "request": "Ping" }), frame::MAX_CALL)
}

/// A pool's service, described for messages about a version difference.
#[derive(Clone, Copy, Debug)]
pub struct Service<'a> {
    /// Name of the served pool.
    pub pool: &'a str,
    /// Process id of the service.
    pub process: u32,
    /// Version of the service's code; `None` before version 1.
    pub version: Option<u32>,
    /// Path of the service's program; shown only if the service is newer than the caller.
    pub program: &'a str,
}

impl Service<'_> {
    /// The service's answer to a call of version `program` that the service cannot decode.
    pub fn refuses(&self, program: Option<u32>) -> Failure {
        let Service { pool, process, version, program: path } = *self;
        let (age, remedy) = match version.cmp(&program) {
            Ordering::Less => ("an older", format!("restart the service: kill {process}; pool import {pool}")),
            Ordering::Greater => ("a newer", format!("use the program of that version: {path}")),
            Ordering::Equal => {
                let hint = format!("nothing was changed; use the service's own program: {path}");
                return self.undecodable("cannot read the request").hint(hint);
            }
        };
        let problem = format!("its service (process {process}) runs {age} version of Cenote than this program");
        let speaks = format!("the service speaks {}, this program {}", named(version), named(program));
        let failure = Failure::cannot("use", pool, problem).hint(format!("{speaks}\n{remedy}"));
        // A program from before version 1 mistakes an unavailable service for a crashed service, and removes the
        // socket.
        let exit = if program.is_none() { Exit::Failed } else { Exit::Unavailable };
        Failure { kind: Kind::OtherVersion, exit, ..failure }
    }

    /// The failure of a program of the service's version that cannot decode the service's answer.
    pub fn unread(&self) -> Failure {
        let pool = self.pool;
        self.undecodable("gave an answer that this program cannot read").hint(format!(
            "the command may or may not have completed; to see the pool: pool status {pool}\n\
             to restart the service with this program: pool export {pool}; pool import {pool}"
        ))
    }

    fn undecodable(&self, what: &str) -> Failure {
        let Service { pool, process, version, .. } = *self;
        let problem = format!("its service (process {process}) {what}, although both speak {}", named(version));
        Failure { kind: Kind::Undecodable, exit: Exit::Unavailable, ..Failure::cannot("use", pool, problem) }
    }
}

/// A version as text for a message.
fn named(version: Option<u32>) -> String {
    version.map_or_else(|| "a protocol before version 1".to_owned(), |version| format!("protocol version {version}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PoolRequest, Reply};

    fn call() -> Call {
        Call::new("fs list", PoolRequest::Sync)
    }

    fn body(frame: &[u8]) -> &[u8] {
        &frame[frame::HEADER..]
    }

    fn decoded(body: &[u8]) -> Result<Call, Foreign> {
        decode(body, body.len()).unwrap()
    }

    #[test]
    fn a_call_of_this_version_comes_back() {
        assert_eq!(decoded(body(&encode(&call()).unwrap())), Ok(call()));
    }

    #[test]
    fn a_call_of_another_version_is_known_by_its_version() {
        assert_eq!(decoded(br#"{"version":7,"call":{"wish":"Levitate"}}"#), Err(Foreign(Some(7))));
        assert_eq!(decoded(br#"{"command":"fs list","request":"Ping"}"#), Err(Foreign(None)));
        assert_eq!(decoded(br#"{"command":"fs list","request":{"Levitate":{}}}"#), Err(Foreign(None)));
        let same = format!(r#"{{"version":{VERSION},"call":{{"command":"x","request":"Levitate"}}}}"#);
        assert_eq!(decoded(same.as_bytes()), Err(Foreign(Some(VERSION))));
        assert!(decode(b"{]", 2).is_err(), "what is no call of any version is no call");
    }

    #[test]
    fn a_service_before_versions_takes_only_its_own_question() {
        /// A call as decoded before version 1.
        #[derive(Deserialize)]
        struct OldCall {
            command: String,
            request: OldRequest,
        }
        #[derive(Debug, PartialEq, Deserialize)]
        enum OldRequest {
            Ping,
        }
        let question = before_versions().unwrap();
        let OldCall { command, request } = frame::decode(body(&question), question.len() - frame::HEADER).unwrap();
        assert_eq!((command.as_str(), request), ("", OldRequest::Ping));
        let today = encode(&call()).unwrap();
        assert!(frame::decode::<OldCall>(body(&today), today.len() - frame::HEADER).is_err());
    }

    #[test]
    fn a_program_before_versions_reads_the_refusal() {
        /// The fields and variants that programs knew before version 1.
        #[derive(Deserialize)]
        enum OldReply {
            Failed(OldFailure),
        }
        #[derive(Deserialize)]
        struct OldFailure {
            message: String,
            hint: Option<String>,
            exit: Exit,
        }
        let service = Service { pool: "tank", process: 412, version: Some(1), program: "/usr/bin/pool" };
        let reply = serde_json::to_vec(&Reply::Failed(service.refuses(None))).unwrap();
        let OldReply::Failed(OldFailure { message, hint, exit }) = serde_json::from_slice(&reply).unwrap();
        insta::assert_snapshot!(message, @"cannot use 'tank': its service (process 412) runs a newer version of Cenote than this program");
        insta::assert_snapshot!(hint.unwrap(), @r"
        the service speaks protocol version 1, this program a protocol before version 1
        use the program of that version: /usr/bin/pool
        ");
        assert_eq!(exit, Exit::Failed);
    }

    #[test]
    fn the_remedy_replaces_what_is_older() {
        let said = |service, program| {
            let service = Service { pool: "tank", process: 412, version: service, program: "/usr/bin/pool" };
            let failure = service.refuses(program);
            format!("{failure}\n{}", failure.hint.as_deref().unwrap())
        };
        insta::assert_snapshot!(said(None, Some(1)), @r"
        cannot use 'tank': its service (process 412) runs an older version of Cenote than this program
        the service speaks a protocol before version 1, this program protocol version 1
        restart the service: kill 412; pool import tank
        ");
        insta::assert_snapshot!(said(Some(2), Some(1)), @r"
        cannot use 'tank': its service (process 412) runs a newer version of Cenote than this program
        the service speaks protocol version 2, this program protocol version 1
        use the program of that version: /usr/bin/pool
        ");
    }

    #[test]
    fn builds_of_one_version_are_not_of_different_versions() {
        let service = Service { pool: "tank", process: 412, version: Some(1), program: "/usr/bin/pool" };
        let said = |failure: Failure| format!("{failure}\n{}", failure.hint.as_deref().unwrap());
        insta::assert_snapshot!(said(service.refuses(Some(1))), @r"
        cannot use 'tank': its service (process 412) cannot read the request, although both speak protocol version 1
        nothing was changed; use the service's own program: /usr/bin/pool
        ");
        insta::assert_snapshot!(said(service.unread()), @r"
        cannot use 'tank': its service (process 412) gave an answer that this program cannot read, although both speak protocol version 1
        the command may or may not have completed; to see the pool: pool status tank
        to restart the service with this program: pool export tank; pool import tank
        ");
    }
}
