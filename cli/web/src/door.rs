//! The local socket at which users get tokens.
//!
//! Every user may connect. The kernel reports the caller, so a token belongs to the calling user. Only
//! root and the owner of this process may order a token for another user. The owner of a page for one user alone thus
//! decides who else may sign in.

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
use crate::tokens::{Grant, LONGEST};

/// Maximum size of a message at the socket, in bytes.
const MAX: usize = 4096;

/// Time limit of a connection.
const PATIENCE: Duration = Duration::from_secs(5);

/// An order of a token.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// The user who will sign in; `None` for the caller.
    pub user: Option<u32>,
    /// Validity, in seconds.
    pub seconds: u64,
    /// Whether the token only reads.
    pub read_only: bool,
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

/// Orders a token from the server that listens on `path`; `None` if none listens.
pub fn order(path: &Path, order: &Order) -> Result<Option<Issued>, Failure> {
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
    let answer: Option<Result<Issued, Failure>> = frame::read(&mut socket, MAX).map_err(lost)?;
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
    let answer = issue(app, caller, &order);
    frame::send(&mut socket, &frame::encode(&answer, MAX)?, None)
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

fn issue(app: &App, caller: u32, order: &Order) -> Result<Issued, Failure> {
    let user = order.user.unwrap_or(caller);
    if user != caller && caller != 0 && caller != app.config.owner {
        return Err(Failure::new("permission denied")
            .hint("a token for another user is issued by root, or by the owner of the web server"));
    }
    let valid = Duration::from_secs(order.seconds);
    if valid.is_zero() || valid > LONGEST {
        return Err(Failure::usage("a token is valid for at most 366d"));
    }
    let grant = Grant { user, read_only: order.read_only, until: Instant::now() + valid };
    let token = app.tokens.issue(grant).ok_or_else(|| Failure::new("the user has too many tokens"))?;
    Ok(Issued { token, url: app.url.clone(), fingerprint: app.fingerprint.clone() })
}
