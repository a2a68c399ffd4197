//! `pool`: administers storage pools. Also answers to `zpool`.

use std::process::ExitCode;

use cli::execute::NoPools;
use cli::run::{Program, main as run};

fn main() -> ExitCode {
    run(Program::Pool, |_command_line| NoPools)
}
