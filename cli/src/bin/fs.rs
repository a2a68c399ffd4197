//! `fs`: administers file systems, snapshots, clones and streams. Also answers to `zfs`.

use std::process::ExitCode;

use cli::run::{Program, main as run};
use cli::service::Client;

fn main() -> ExitCode {
    run(Program::Fs, Client::new)
}
