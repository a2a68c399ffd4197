//! `completions`: a completion script for a shell.

use clap::Args;
use protocol::{Exit, Failure};

use crate::context::Context;

/// Arguments of `completions`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fs completions bash > ~/.local/share/bash-completion/completions/fs
  pool completions zsh > ~/.zfunc/_pool")]
pub struct Arguments {
    /// The shell
    shell: clap_complete::Shell,
}

/// Prints the completion script of the program in `command`.
pub fn run(arguments: &Arguments, mut command: clap::Command, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, context.program, &mut script);
    context.console.output.write_all(&script)?;
    Ok(Exit::Done)
}
