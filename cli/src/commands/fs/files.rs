//! Files as arguments of commands: by location in a dataset, as `tank/home:/ann`, or by path in a mount.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use dataset::fs::Attribute;
use dataset::name::Name;
use protocol::{Failure, Location, PathBytes, Place, place};

use super::select::mount_above;
use crate::context::Context;

/// Directory of snapshots in a mount.
const SNAPSHOTS: &str = ".zfs/snapshot";

/// The file for an argument. A symbolic link at the end of the path is not followed.
pub(in crate::commands) fn located(text: &OsStr, context: &mut Context<'_>) -> Result<Location, Failure> {
    match place(text)? {
        Place::Inside(location) => Ok(location),
        Place::Outside(path) => mounted(Path::new(path.as_os_str()), context),
    }
}

fn mounted(path: &Path, context: &mut Context<'_>) -> Result<Location, Failure> {
    let real = real(path).map_err(|error| Failure::cannot("open", path.display(), error))?;
    let known = context.executor.visible_pools()?;
    let mount = mount_above(&real, &known, context).ok_or_else(|| {
        Failure::cannot("open", path.display(), "no Cenote file system is mounted there")
            .hint("name a file of an unmounted file system as DATASET:/PATH")
    })?;
    let below = real.strip_prefix(mount.mountpoint.as_os_str()).unwrap_or(&real);
    let Ok(inside) = below.strip_prefix(SNAPSHOTS) else { return Ok(at(mount.dataset, below)) };
    let mut parts = inside.components();
    let snapshot = parts.next().map(|part| part.as_os_str().to_string_lossy().into_owned()).unwrap_or_default();
    let name = mount.dataset.dataset().snapshot(&snapshot).map_err(|error| Failure::name("open", &error))?;
    Ok(at(Name::Snapshot(name), parts.as_path()))
}

fn at(name: Name, below: &Path) -> Location {
    Location { name, path: PathBytes([b"/", below.as_os_str().as_bytes()].concat()) }
}

/// The path with symbolic links resolved, except at its end.
fn real(path: &Path) -> std::io::Result<PathBuf> {
    path.symlink_metadata()?;
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if path.is_symlink() => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            Ok(parent.canonicalize()?.join(name))
        }
        _ => path.canonicalize(),
    }
}

/// The attribute named `name`.
pub(super) fn attribute(name: &str) -> Result<Attribute, Failure> {
    Attribute::named(name).ok_or_else(|| {
        let known: Vec<&str> = Attribute::ALL.iter().map(|attribute| attribute.name()).collect();
        Failure::usage(format!("'{name}' is not a file attribute"))
            .hint(format!("file attributes: {}", known.join(", ")))
    })
}

/// Splits off the arguments before the first file, as `is_file` decides.
pub(super) fn split(words: &[OsString], is_file: impl Fn(&OsStr) -> bool) -> (&[OsString], &[OsString]) {
    let count = words.iter().take_while(|word| !is_file(word)).count();
    words.split_at(count)
}
