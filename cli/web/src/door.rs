//! The local socket at which users get, list and revoke tokens.
//!
//! Every user may connect. The kernel reports the caller, so a token belongs to the calling user. Only
//! root and the owner of this process may order a token for another user, and see and revoke tokens of other users. The
//! owner of a page for one user alone thus decides about further users.

use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use protocol::{Failure, frame};
use rustix::net::sockopt::socket_peercred;
use serde::{Deserialize, Serialize};

use crate::app::App;
use crate::quota::Lasting;
use crate::tokens::{Grant, LONGEST, TokenRecord};

/// Maximum size of an order and of an answer, in bytes.
const MAX: usize = 4096;
const MAX_ANSWER: usize = 1 << 20;

/// Time limit of a connection.
const PATIENCE: Duration = Duration::from_secs(5);

/// An order about tokens.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Order {
    /// A new token with the address of the page. `Issued`
    Issue {
        /// The user to sign in; `None` for the caller.
        user: Option<u32>,
        /// Validity, in seconds.
        seconds: u64,
        /// Whether the token only reads.
        read_only: bool,
    },
    /// The valid tokens of the caller; of every user, for root and the owner. `Tokens`
    List,
    /// The end of a token and of the token's sessions. `Revoked`
    Revoke {
        /// Id from the list of tokens.
        id: String,
    },
}

/// The answer to an order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// A new token, with the address of the page.
    Issued(Issued),
    /// Valid tokens, in order of issue.
    Tokens(Vec<TokenRecord>),
    /// Whether a token had the id.
    Revoked(bool),
}

/// A token, and where to use it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Issued {
    /// The secret that signs in.
    pub token: String,
    /// Address of the page.
    pub url: String,
    /// SHA-256 fingerprint of the certificate, in hexadecimal pairs.
    pub fingerprint: String,
}

/// Gives an order to the server on `path`; `None` without a server.
pub fn order(path: &Path, order: &Order) -> Result<Option<Answer>, Failure> {
    let mut socket = match UnixStream::connect(path) {
        Ok(socket) => socket,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        Err(error) => return Err(Failure::cannot("connect to", path.display(), error)),
    };
    let lost = |error: io::Error| Failure::new(format!("the web server does not answer: {error}"));
    socket.set_read_timeout(Some(PATIENCE)).map_err(lost)?;
    frame::send(&mut socket, &frame::encode(order, MAX)?, None).map_err(lost)?;
    let answer: Option<Result<Answer, Failure>> = frame::read(&mut socket, MAX_ANSWER).map_err(lost)?;
    answer.unwrap_or_else(|| Err(Failure::new("the web server closed the connection"))).map(Some)
}

/// Opens the socket, which every user may connect to.
pub(crate) fn open(path: &Path) -> Result<UnixListener, Failure> {
    let failed = |error: io::Error| Failure::cannot("listen on", path.display(), error);
    match UnixStream::connect(path) {
        Ok(_) => {
            return Err(Failure::new("another web server of this user is running").hint("to sign in: pool web token"));
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path).map_err(failed)?,
        Err(_) => {}
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666)).map_err(failed)?;
    Ok(listener)
}

/// Answers orders, each on a thread of its own. A user has few connections at a time, so a silent caller delays no
/// other user.
pub(crate) fn attend(listener: UnixListener, app: Arc<App>) -> io::Result<()> {
    thread::Builder::new().name("door".into()).spawn(move || {
        for socket in listener.incoming() {
            let served = socket.and_then(|socket| admit(socket, &app));
            if let Err(error) = served {
                tracing::debug!("an order of a token failed: {error}");
                thread::sleep(Duration::from_millis(10));
            }
        }
    })?;
    Ok(())
}

/// Begins to serve a connection, unless its user has too many.
fn admit(socket: UnixStream, app: &Arc<App>) -> io::Result<()> {
    let caller = socket_peercred(&socket)?.uid.as_raw();
    let other = (!app.is_owner(caller)).then_some(caller);
    let Some(place) = app.quota.enter(Lasting::Order, other) else { return Ok(()) };
    let app = app.clone();
    let served = move || {
        if let Err(error) = serve(socket, caller, &app) {
            tracing::debug!("an order of a token failed: {error}");
        }
        drop(place);
    };
    thread::Builder::new().name("door-caller".into()).spawn(served).map(drop)
}

fn serve(mut socket: UnixStream, caller: u32, app: &App) -> io::Result<()> {
    socket.set_write_timeout(Some(PATIENCE))?;
    let mut ordered = Timely { socket: &socket, deadline: Instant::now() + PATIENCE };
    let Some(order) = frame::read::<Order>(&mut ordered, MAX)? else { return Ok(()) };
    let answer = carry_out(app, caller, &order);
    frame::send(&mut socket, &frame::encode(&answer, MAX_ANSWER)?, None)
}

/// Reads from a socket until a deadline.
struct Timely<'a> {
    socket: &'a UnixStream,
    deadline: Instant,
}

impl Read for Timely<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.set_read_timeout(Some(left))?;
        (&mut &*self.socket).read(buffer)
    }
}

/// Carries out an order. Callers other than root and the owner see only own tokens: the token of another user is
/// unknown.
fn carry_out(app: &App, caller: u32, order: &Order) -> Result<Answer, Failure> {
    let own = (!app.is_owner(caller)).then_some(caller);
    match order {
        Order::Issue { user, seconds, read_only } => {
            issue(app, caller, user.unwrap_or(caller), Duration::from_secs(*seconds), *read_only).map(Answer::Issued)
        }
        Order::List => Ok(Answer::Tokens(app.tokens.list(own))),
        Order::Revoke { id } => Ok(Answer::Revoked(app.tokens.revoke(id, own))),
    }
}

fn issue(app: &App, caller: u32, user: u32, valid: Duration, read_only: bool) -> Result<Issued, Failure> {
    if user != caller && !app.is_owner(caller) {
        return Err(Failure::new("permission denied")
            .hint("a token for another user is issued by root, or by the owner of the web server"));
    }
    if valid.is_zero() || valid > LONGEST {
        return Err(Failure::usage("a token is valid for at most 366d"));
    }
    let grant = Grant { user, read_only, until: Instant::now() + valid };
    let full = || Failure::new("the user has too many tokens").hint("to end one: pool web token --revoke ID");
    let token = app.tokens.issue(grant).ok_or_else(full)?;
    Ok(Issued { token, url: app.url.clone(), fingerprint: app.fingerprint.clone() })
}
