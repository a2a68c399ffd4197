//! `man`: the manual pages, made of the same definitions as `--help`.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::context::Context;
use crate::failure::{Exit, Failure};

/// Arguments of `man`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fs man ~/.local/share/man/man1      write fs.1, fs-create.1 and so on
  pool man | man -l -                 read the page of the program")]
pub struct Arguments {
    /// The directory to write the pages of all subcommands to; without it the program's page is printed
    directory: Option<PathBuf>,
}

/// Prints or writes the pages of the program that `command` describes.
pub fn run(arguments: &Arguments, mut command: clap::Command, context: &mut Context<'_>) -> Result<Exit, Failure> {
    command.build();
    match &arguments.directory {
        Some(directory) => write_all(&command, directory)?,
        None => context.console.output.write_all(&page(&command)?)?,
    }
    Ok(Exit::Done)
}

fn page(command: &clap::Command) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    Ok(page)
}

fn write_all(program: &clap::Command, directory: &Path) -> Result<(), Failure> {
    let cannot = |error| Failure::cannot("write to", directory.display(), error);
    fs::create_dir_all(directory).map_err(cannot)?;
    fs::write(directory.join(format!("{}.1", program.get_name())), page(program)?).map_err(cannot)?;
    for subcommand in program.get_subcommands().filter(|command| !command.is_hide_set()) {
        // Building gave it the display name, `fs-create`.
        let name = subcommand.get_display_name().unwrap_or_else(|| subcommand.get_name());
        fs::write(directory.join(format!("{name}.1")), page(subcommand)?).map_err(cannot)?;
    }
    Ok(())
}
