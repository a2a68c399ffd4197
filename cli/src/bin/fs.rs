//! `fs`: administers file systems, snapshots, clones and streams. Also runs as `zfs`, as `zstream` and
//! `zstreamdump`, and as `mount.cenote`, the helper of mount(8) for the type `cenote`.

use std::process::ExitCode;

use cli::program::Program;
use cli::run::main as run;
use service::Client;

fn main() -> ExitCode {
    let named = std::env::args_os().next().and_then(|word| Program::named(&word));
    run(named.filter(|program| *program != Program::Pool).unwrap_or(Program::Fs), Client::new)
}
