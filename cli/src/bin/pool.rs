//! `pool`: administers storage pools. Also answers to `zpool`, and to `fs` and `zfs` when started under those names.

use std::{path::PathBuf, process::ExitCode};

use cli::run::{Program, main as run};
use cli::service::Client;

fn main() -> ExitCode {
    let name = std::env::args_os().next().map(PathBuf::from);
    let program = match name.as_deref().and_then(|path| path.file_name()).and_then(|name| name.to_str()) {
        Some("fs" | "zfs") => Program::Fs,
        _ => Program::Pool,
    };
    run(program, Client::new)
}
