//! What the program decides: where the page is served, and how command lines run.

use protocol::{Executor, Exit};
use std::ffi::OsString;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

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
