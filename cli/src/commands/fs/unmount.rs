//! `fs unmount`: unmounts file systems and snapshots.

use std::path::PathBuf;

use clap::Args;
use protocol::{Exit, Failure, MountRequest, PathBytes, Response, UnmountTarget, unexpected_answer};

use crate::args::common::{absolute, name};
use crate::context::Context;

/// Arguments of `fs unmount`.
#[derive(Args, Debug)]
#[command(after_help = "With -f, changes of mapped files are written back first. Open files then return errors.

Examples:
  fs unmount tank/home
  fs unmount /tank/home
  fs unmount -a")]
pub struct Arguments {
    /// Unmount all file systems
    #[arg(short = 'a', conflicts_with = "target", required_unless_present = "target")]
    all: bool,
    /// Unmount busy file systems
    #[arg(short = 'f')]
    force: bool,
    /// A file system, a snapshot, or a mount point
    #[arg(value_name = "FILESYSTEM|SNAPSHOT|MOUNTPOINT")]
    target: Option<String>,
}

/// Unmounts the named mounts, or all.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let force = arguments.force;
    match &arguments.target {
        None => unmount_all(force, context),
        Some(text) => {
            let (pool, target) = target(text, context)?;
            context.run(&pool, MountRequest::Unmount { target: Some(target), force })?;
            Ok(Exit::Done)
        }
    }
}

fn unmount_all(force: bool, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let mut exit = Exit::Done;
    for pool in context.executor.known_pools()? {
        match context.run(&pool, MountRequest::Unmount { target: None, force }) {
            Err(failure) if !failure.is_unavailable() => {
                context.report(&failure)?;
                exit = Exit::Failed;
            }
            _ => {}
        }
    }
    Ok(exit)
}

/// The mount for a name or a path, with its pool.
fn target(text: &str, context: &mut Context<'_>) -> Result<(String, UnmountTarget), Failure> {
    if !text.starts_with(['/', '.']) {
        let name: dataset::name::Name = name("unmount", text)?;
        return Ok((name.pool().to_owned(), UnmountTarget::Dataset(name)));
    }
    let (mut mounted, mut unanswered) = (Vec::new(), None);
    for pool in context.executor.known_pools()? {
        match context.call(&pool, MountRequest::Mounts) {
            Ok(Response::Mounts(mounts)) => {
                mounted.extend(mounts.into_iter().map(|mount| (mount.mountpoint, pool.clone())));
            }
            Ok(_) => return Err(unexpected_answer()),
            Err(failure) if failure.is_unavailable() => {}
            // The mount may belong to another pool, so the search continues.
            Err(failure) => _ = unanswered.get_or_insert(failure),
        }
    }
    let at = |path: PathBytes| {
        let found = mounted.iter().find(|(mountpoint, _)| *mountpoint == path);
        found.map(|(_, pool)| (pool.clone(), UnmountTarget::Mountpoint(path)))
    };
    let written = absolute(text.trim_end_matches('/'))?;
    let path = PathBuf::from(written.as_os_str());
    // The full path is resolved last, because a lookup at the mount point may wait for a service that does not respond.
    let by_parent = path.parent().and_then(|parent| Some(parent.canonicalize().ok()?.join(path.file_name()?).into()));
    let found = at(written).or_else(|| at(by_parent?)).or_else(|| at(path.canonicalize().ok()?.into()));
    let nothing = "no Cenote file system is mounted there";
    found.ok_or_else(|| {
        let nowhere = || Failure::cannot("unmount", text, nothing).hint("to list mounted file systems: fs mount");
        unanswered.unwrap_or_else(nowhere)
    })
}
