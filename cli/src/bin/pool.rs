//! `pool`: administers storage pools. Also runs as `zpool`, `fs`, `zfs`, `zstream`, `zstreamdump` and
//! `mount.cenote`, by its name at the start.

use std::process::ExitCode;

use cli::program::Program;
use cli::run::main as run;
use service::Client;

fn main() -> ExitCode {
    let named = std::env::args_os().next().and_then(|word| Program::named(&word));
    run(named.unwrap_or(Program::Pool), Client::new)
}
