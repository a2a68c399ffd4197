//! `pool`: administers storage pools. Also answers to `zpool`.

use std::process::ExitCode;

use cli::run::{Program, main as run};
use cli::service::Client;

fn main() -> ExitCode {
    run(Program::Pool, Client::new)
}
