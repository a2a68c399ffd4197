//! `fs`: administers file systems, snapshots, clones and streams. Also answers to `zfs`.

use std::process::ExitCode;

use cli::execute::NoPools;
use cli::run::{Program, main as run};

fn main() -> ExitCode {
    run(Program::Fs, |_command_line| NoPools)
}
