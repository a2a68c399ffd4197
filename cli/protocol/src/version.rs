//! The version of the protocol, and what is said where a program and a service differ in it.
//!
//! A service goes on with the code that it was started with, while the programs on disk are replaced. So a call carries the
//! version of its sender, and a service decodes no further if the version is not its own. Calls had no version before
//! version 1: a service of that time closes the connection on a call that has one, and [`before_versions`] tells it from a
//! service that has crashed.
//!
//! The refusal is a [`Reply::Failed`](crate::Reply). Programs of every version decode it: a [`Failure`] keeps the names of its
//! fields and variants, and what is added to it has a default.

use std::{cmp::Ordering, io};

use serde::{Deserialize, Serialize};

use crate::{Call, Exit, Failure, Kind, Request, frame};

/// The version of this code. It is raised with every change of what crosses the socket.
pub const VERSION: u32 = 1;

/// A call as it crosses the socket.
#[derive(Serialize, Deserialize)]
struct Envelope<C> {
    /// The sender's version.
    version: u32,
    /// The call, in the form of that version.
    call: C,
}

/// What a call of every version can be decoded as.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    version: Option<u32>,
}

/// The version of a sender whose calls this code does not take; `None` before version 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign(pub Option<u32>);

/// Codes a call as one frame.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] if it is too large.
pub fn encode(call: &Call) -> io::Result<Vec<u8>> {
    frame::encode(&Envelope { version: VERSION, call }, frame::MAX_CALL)
}

/// Decodes the body of a call's frame, of which `len` bytes were announced.
///
/// # Errors
/// An error if it is no call of any version.
pub fn decode(body: &[u8], len: usize) -> io::Result<Result<Call, Foreign>> {
    let head: Head = frame::decode(body, len)?;
    let foreign = Foreign(head.version);
    if head.version != Some(VERSION) {
        return Ok(Err(foreign));
    }
    // A change without a new version is met here.
    Ok(frame::decode::<Envelope<Call>>(body, len).map(|envelope| envelope.call).map_err(|_| foreign))
}

/// Codes the question whether a service is there, as programs did before version 1.
pub fn before_versions() -> io::Result<Vec<u8>> {
    let call = Call { command: String::new(), process: None, user: None, request: Request::Ping };
    frame::encode(&call, frame::MAX_CALL)
}

/// The service of a pool as it is spoken of where versions differ.
#[derive(Clone, Copy, Debug)]
pub struct Service<'a> {
    /// The pool's name.
    pub pool: &'a str,
    /// The service's process.
    pub process: u32,
    /// The version of its code; `None` before version 1.
    pub version: Option<u32>,
    /// The path of its program, which is shown only if the service is the newer one.
    pub program: &'a str,
}

impl Service<'_> {
    /// The failure of a program of this version that asks the service.
    pub fn differs_from(&self, program: Option<u32>) -> Failure {
        let Service { pool, process, version, program: path } = *self;
        let (age, remedy) = match version.cmp(&program) {
            Ordering::Less => ("an older", format!("restart the service: kill {process}; pool import {pool}")),
            Ordering::Greater => ("a newer", format!("use the program of that version: {path}")),
            Ordering::Equal => ("another", format!("restart the service: kill {process}; pool import {pool}")),
        };
        let problem = format!("its service (process {process}) runs {age} version of Cenote than this program");
        let speaks = format!("the service speaks {}, this program {}", named(version), named(program));
        let failure = Failure::cannot("use", pool, problem).hint(format!("{speaks}\n{remedy}"));
        // A program from before version 1 takes a service that is unavailable for one that has crashed, and removes its socket.
        let exit = if program.is_none() { Exit::Failed } else { Exit::Unavailable };
        Failure { kind: Kind::OtherVersion, exit, ..failure }
    }
}

/// A version as it is printed.
fn named(version: Option<u32>) -> String {
    version.map_or_else(|| "a protocol before version 1".to_owned(), |version| format!("protocol version {version}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reply;

    fn call() -> Call {
        Call { command: "fs list".into(), process: None, user: None, request: Request::Sync }
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
    fn a_call_of_another_version_is_told_by_its_version() {
        assert_eq!(decoded(br#"{"version":7,"call":{"wish":"Levitate"}}"#), Err(Foreign(Some(7))));
        assert_eq!(decoded(br#"{"command":"fs list","request":"Ping"}"#), Err(Foreign(None)));
        assert_eq!(decoded(br#"{"command":"fs list","request":{"Levitate":{}}}"#), Err(Foreign(None)));
        let same = format!(r#"{{"version":{VERSION},"call":{{"command":"x","request":"Levitate"}}}}"#);
        assert_eq!(decoded(same.as_bytes()), Err(Foreign(Some(VERSION))));
        assert!(decode(b"{]", 2).is_err(), "what is no call of any version is no call");
    }

    #[test]
    fn a_service_before_versions_takes_its_question_and_no_other_call() {
        assert!(frame::decode::<Call>(body(&before_versions().unwrap()), before_versions().unwrap().len() - 4).is_ok());
        let today = encode(&call()).unwrap();
        assert!(frame::decode::<Call>(body(&today), today.len() - frame::HEADER).is_err());
    }

    #[test]
    fn a_program_before_versions_reads_the_refusal() {
        /// As programs had these before there were versions.
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
        let reply = serde_json::to_vec(&Reply::Failed(service.differs_from(None))).unwrap();
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
            let failure = service.differs_from(program);
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
        insta::assert_snapshot!(said(Some(1), Some(1)), @r"
        cannot use 'tank': its service (process 412) runs another version of Cenote than this program
        the service speaks protocol version 1, this program protocol version 1
        restart the service: kill 412; pool import tank
        ");
    }
}
