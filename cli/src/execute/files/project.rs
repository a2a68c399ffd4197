//! Which project files are of, for `fs project`.

use dataset::fs::{Attr, Errno, FileSystem, FileType, Ino, Project};

use super::{attributes::walk, list::directory, reason, resolve::resolve};
use crate::{
    execute::job::Job,
    failure::Failure,
    protocol::{PathBytes, ProjectChange, ProjectReach, ProjectRecord},
};

/// The project of a file, and then of what is in it or below it if that is asked for.
pub(super) fn get(
    fs: &FileSystem,
    path: &[u8],
    shown: &str,
    reach: ProjectReach,
    job: &mut Job<'_>,
) -> Result<Vec<ProjectRecord>, Failure> {
    let failed = |errno| Failure::cannot("get the project of", shown, reason(errno));
    let mut records = Vec::new();
    let mut record = |below: &[u8], attr: &Attr| -> Result<(), Errno> {
        if below.is_empty() || has_project(attr.file_type) {
            let Project { id, inherit } = fs.project(attr.ino)?;
            let directory = attr.file_type == FileType::Directory;
            records.push(ProjectRecord { path: PathBytes(below.to_vec()), id, inherit, directory });
        }
        Ok(())
    };
    let named = resolve(fs, path, false).map_err(failed)?;
    if reach == ProjectReach::Children && named.file_type == FileType::Directory {
        record(b"", &named).map_err(failed)?;
        let children = directory(fs, named.ino, b"").map_err(failed)?;
        children.iter().try_for_each(|(below, attr)| record(below, attr)).map_err(failed)?;
    } else {
        walk(fs, path, reach == ProjectReach::Below, job, failed, &mut record)?;
    }
    Ok(records)
}

/// Has a file, and everything below it if that is asked for, be of a project; `changed` is told which files.
pub(super) fn set(
    fs: &FileSystem,
    path: &[u8],
    shown: &str,
    change: ProjectChange,
    recursive: bool,
    job: &mut Job<'_>,
    changed: &mut dyn FnMut(Ino),
) -> Result<(), Failure> {
    let failed = |errno| Failure::cannot("set the project of", shown, reason(errno));
    walk(fs, path, recursive, job, failed, &mut |below, attr| {
        if !below.is_empty() && !has_project(attr.file_type) {
            return Ok(());
        }
        let before = fs.project(attr.ino)?;
        let is_dir = attr.file_type == FileType::Directory;
        let after =
            Project { id: change.id.unwrap_or(before.id), inherit: is_dir && change.inherit.unwrap_or(before.inherit) };
        fs.set_project(attr.ino, after)?;
        changed(attr.ino);
        Ok(())
    })
}

/// As elsewhere, only files and directories are asked and told.
fn has_project(file_type: FileType) -> bool {
    matches!(file_type, FileType::Regular | FileType::Directory)
}
