//! `fs unmount`: file systems go out of the directory tree.

use clap::Args;

use crate::args::common::{absolute, name};
use crate::context::{Context, unexpected_answer};
use crate::failure::{Exit, Failure};
use crate::protocol::{Request, Response, UnmountTarget};

/// Arguments of `fs unmount`.
#[derive(Args, Debug)]
#[command(after_help = "With -f, what programs have changed in mappings is written before. Whatever they do with files
that they still have open fails afterwards.

Examples:
  fs unmount tank/home
  fs unmount /tank/home
  fs unmount -a")]
pub struct Arguments {
    /// Everything
    #[arg(short = 'a', conflicts_with = "target", required_unless_present = "target")]
    all: bool,
    /// Even what is in use
    #[arg(short = 'f')]
    force: bool,
    /// A file system or a snapshot, or the directory it is mounted at
    #[arg(value_name = "FILESYSTEM|SNAPSHOT|MOUNTPOINT")]
    target: Option<String>,
}

/// Unmounts.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let force = arguments.force;
    match &arguments.target {
        None => unmount_all(force, context),
        Some(text) => {
            let (pool, target) = target(text, context)?;
            context.run(&pool, Request::Unmount { target: Some(target), force })?;
            Ok(Exit::Done)
        }
    }
}

fn unmount_all(force: bool, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let mut exit = Exit::Done;
    for pool in context.executor.known_pools()? {
        match context.run(&pool, Request::Unmount { target: None, force }) {
            Err(failure) if !failure.is_unavailable() => {
                context.report(&failure)?;
                exit = Exit::Failed;
            }
            _ => {}
        }
    }
    Ok(exit)
}

/// What is meant, and the pool it belongs to.
fn target(text: &str, context: &mut Context<'_>) -> Result<(String, UnmountTarget), Failure> {
    if !text.starts_with(['/', '.']) {
        let name: dataset::name::Name = name("unmount", text)?;
        return Ok((name.pool().to_owned(), UnmountTarget::Dataset(name)));
    }
    let path = absolute(text.trim_end_matches('/'))?;
    for pool in context.executor.known_pools()? {
        let mounts = match context.call(&pool, Request::Mounts) {
            Ok(Response::Mounts(mounts)) => mounts,
            Ok(_) => return Err(unexpected_answer()),
            Err(failure) if failure.is_unavailable() => continue,
            Err(failure) => return Err(failure),
        };
        if mounts.iter().any(|mount| mount.mountpoint == path) {
            return Ok((pool, UnmountTarget::Mountpoint(path)));
        }
    }
    Err(Failure::cannot("unmount", text, "no file system of a pool is mounted there").hint("what is mounted: fs mount"))
}
