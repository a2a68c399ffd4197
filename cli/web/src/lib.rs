//! The web page of `pool web`: pools, datasets and jobs in a browser.
//!
//! ```text
//! browser ──TLS──▶ server ──▶ gate ──▶ pages ──▶ ask ───────┐ records of `protocol`
//!                             signed in?     └─▶ actions ──▶ tasks ─┤ command lines of `pool` and `fs`
//!                                                 watch ──────────────┴──▶ sockets of the pools' services
//! ```
//!
//! The server is a process of its own, and a client of the services' sockets. Stopping the server stops nothing else.
//!
//! - A page shows records of the crate `protocol`, the same records that the commands print.
//! - A change is a command line ([`actions`]). The page shows the command, runs its dry run, and after a confirmation
//!   runs the command through the code of the command-line programs ([`Commands`]). So validation, messages and
//!   permissions are those of the commands, and no shell is involved.
//! - Each request is made on behalf of the signed-in user ([`tokens`]). The service grants what `fs allow` grants.
//!
//! ```text
//! server   connections, TLS, limits          tokens   tokens, sessions, failed attempts
//! gate     who asks; headers; forgeries      door     the local socket that issues tokens
//! tls      the certificate                   ask      a request to a service, with a deadline
//! watch    each pool once a second           tasks    running commands and their output
//! actions  changes as command lines          pages    what is shown
//! live     server-sent events                figures  metrics
//! views    text shared by streams            rights   what root gives up
//! fields   fields of forms                   routes   addresses
//! notify   messages to systemd                 quota    shares of each user
//! ```

mod actions;
mod app;
mod ask;
pub mod door;
mod fields;
mod figures;
mod gate;
mod live;
mod notify;
mod pages;
mod quota;
mod rights;
mod routes;
mod server;
mod tasks;
mod tls;
pub mod tokens;
mod views;
mod watch;

use std::ffi::OsString;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

use protocol::{Executor, Exit};

pub use self::server::{Listening, serve};

/// Where and as which user the page is served.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address and port to listen on.
    pub listen: SocketAddr,
    /// Certificate chain and private key as PEM files; `None` for a self-signed certificate.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The owner's closed folder for the self-signed certificate.
    pub folder: PathBuf,
    /// Path of the local socket that issues tokens.
    pub door: PathBuf,
    /// User id of the owner of the pools, who runs this process.
    pub owner: u32,
    /// The name of a user, for display.
    pub name_of: fn(u32) -> String,
}

/// The command-line programs, which carry out changes.
pub trait Commands: Send + Sync + 'static {
    /// Runs a command line without a terminal, and returns its exit status. The first word is `pool` or `fs`.
    fn run(
        &self,
        words: &[OsString],
        executor: &mut dyn Executor,
        output: &mut dyn Write,
        error: &mut dyn Write,
    ) -> Exit;
}
