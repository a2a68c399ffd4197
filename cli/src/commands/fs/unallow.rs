//! `fs unallow`: takes delegated permissions back.

use clap::Args;
use dataset::name::DatasetName;
use protocol::{DatasetRequest, Exit, Failure};

use super::allow::{GranteeOptions, split};
use crate::args::common::name as name_of;
use crate::context::Context;

/// Arguments of `fs unallow`.
#[derive(Args, Debug)]
#[command(
    after_help = "Without permissions, all permissions of the users or groups on the file system are taken back. A permission that is
given on a file system above stays: 'fs allow FILESYSTEM' shows where each permission is given.

Examples:
  fs unallow ann tank/home
  fs unallow -r -g backup hold,release tank
  fs unallow -s @backup tank"
)]
pub struct Arguments {
    /// Include all descendants
    #[arg(short = 'r')]
    recursive: bool,
    #[command(flatten)]
    grantees: GranteeOptions,
    /// [USER|GROUP,...] [PERMISSION|@SET,...] FILESYSTEM
    #[arg(value_name = "WORD", required = true, num_args = 1..=3)]
    words: Vec<String>,
}

/// Takes delegated permissions back.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let Arguments { recursive, grantees, words } = arguments;
    let (names, permissions, name) = match &words[..] {
        [name] if grantees.is_named() => ("", Vec::new(), name),
        [permissions, name] if grantees.is_named() => ("", split(permissions), name),
        [names, name] if !grantees.is_named() => (names.as_str(), Vec::new(), name),
        [names, permissions, name] if !grantees.is_named() => (names.as_str(), split(permissions), name),
        _ => return Err(Failure::usage("usage: fs unallow [OPTIONS] [USER|GROUP,...] [PERMISSION,...] FILESYSTEM")),
    };
    let name: DatasetName = name_of("set permissions on", name)?;
    let from = grantees.grantees(names, &name)?;
    let (pool, reach) = (name.pool().to_owned(), grantees.reach());
    let request = DatasetRequest::Unallow { name, from, permissions, reach, recursive: *recursive };
    context.run(&pool, request)?;
    Ok(Exit::Done)
}
