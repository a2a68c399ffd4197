//! `fs upgrade`: as in ZFS, shows the version of file systems; Cenote has a single one.

use clap::Args;
use dataset::property::{Kinds, dataset::TYPE};
use protocol::{Exit, Failure};

use super::select::{Selection, collect};
use crate::args::common::Recursion;
use crate::context::Context;

/// The version of all file systems, also the property `version`.
const VERSION: &str = "5";

/// Arguments of `fs upgrade`.
#[derive(Args, Debug)]
#[command(
    after_help = "All file systems have version 5, so there is nothing to upgrade. New structures come as features of the pool: pool upgrade.

Examples:
  fs upgrade
  fs upgrade -a"
)]
pub struct Arguments {
    /// List the supported versions
    #[arg(short = 'v', conflicts_with_all = ["all", "names"])]
    list: bool,
    /// All file systems
    #[arg(short = 'a', conflicts_with = "names")]
    all: bool,
    /// Include all descendants
    #[arg(short = 'r')]
    recursive: bool,
    /// The version to upgrade to: 5 or current
    #[arg(short = 'V', value_name = "VERSION", value_parser = version)]
    to: Option<String>,
    /// The file systems
    #[arg(value_name = "FILESYSTEM")]
    names: Vec<String>,
}

fn version(text: &str) -> Result<String, String> {
    let is_known = matches!(text, VERSION | "current");
    is_known.then(|| VERSION.to_owned()).ok_or_else(|| format!("all file systems have version {VERSION}"))
}

/// Prints the version, or how many file systems have the version already.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    if arguments.list {
        let text = format!("The following filesystem versions are supported:\n\n  {VERSION}\n");
        return context.print(&text).map(|()| Exit::Done);
    }
    if !arguments.all && arguments.names.is_empty() {
        let text = format!(
            "This system is currently running filesystem version {VERSION}.\n\n\
             All filesystems are formatted with the current version.\n"
        );
        return context.print(&text).map(|()| Exit::Done);
    }
    let recursion = Recursion { recursive: arguments.recursive, depth: None };
    let kinds = Kinds::FILESYSTEM;
    let properties = vec![TYPE.name.to_owned()];
    let selection = Selection {
        names: &arguments.names,
        recursion: &recursion,
        kinds: Some(kinds),
        default_kinds: kinds,
        properties,
    };
    let (records, exit) = collect(&selection, context)?;
    context.print(&format!("0 filesystems upgraded\n{} filesystems already at this version\n", records.len()))?;
    Ok(exit)
}
