//! The projects of files, for `fs project`.

use dataset::fs::{Attr, Errno, FileType, Ino, Project};
use protocol::{Failure, PathBytes, ProjectChange, ProjectReach, ProjectRecord};

use super::{
    attributes::{still_there, walk},
    reason,
    resolve::resolve,
    served::Served,
    walk::Walk,
};
use crate::execute::{job::Job, parts::Parts};

/// Sends the project of a file; depending on `reach`, also of the directory's entries or of everything below.
pub(super) fn get(
    fs: &Served,
    path: &[u8],
    shown: &str,
    reach: ProjectReach,
    job: &mut Job<'_>,
) -> Result<(), Failure> {
    let failed = |errno| Failure::cannot("get the project of", shown, reason(errno));
    let mut parts = Parts::default();
    let mut record = |below: &[u8], attr: &Attr, job: &mut Job<'_>| -> Result<(), Failure> {
        if !below.is_empty() && !has_project(attr.file_type) {
            return Ok(());
        }
        let project = still_there(fs.same(attr).project(attr.ino), below).map_err(failed)?;
        let Some(Project { id, inherit }) = project else { return Ok(()) };
        let directory = attr.file_type == FileType::Directory;
        parts.push(ProjectRecord { path: PathBytes(below.to_vec()), id, inherit, directory }, job)
    };
    let named = resolve(fs, path, false).map_err(failed)?;
    walk(fs, &named, reach == ProjectReach::Below, job, &failed, &mut record)?;
    if reach == ProjectReach::Children && named.file_type == FileType::Directory {
        let mut walk = Walk::new(fs, &named, false, job);
        while let Some(attr) = walk.next().map_err(failed)? {
            job.check()?;
            record(walk.path(), &attr, job)?;
        }
    }
    parts.finish(job)
}

/// Sets the project of a file, and with `recursive` of everything below; calls `changed` with each changed file. With
/// inheritance but without a project id, the id is the file's own.
pub(super) fn set(
    fs: &Served,
    path: &[u8],
    shown: &str,
    change: ProjectChange,
    recursive: bool,
    job: &mut Job<'_>,
    changed: &mut dyn FnMut(Ino),
) -> Result<(), Failure> {
    let failed = |errno: Errno| Failure::cannot("set the project of", shown, reason(errno));
    let named = resolve(fs, path, false).map_err(failed)?;
    let id = match (change.id, change.inherit) {
        (None, Some(true)) => Some(fs.project(named.ino).map_err(failed)?.id),
        (given, _) => given,
    };
    walk(fs, &named, recursive, job, &failed, &mut |below, attr, _| {
        if !below.is_empty() && !has_project(attr.file_type) {
            return Ok(());
        }
        let is_dir = attr.file_type == FileType::Directory;
        let set = fs.project(attr.ino).and_then(|before| {
            let inherit = is_dir && change.inherit.unwrap_or(before.inherit);
            fs.set_project(attr.ino, Project { id: id.unwrap_or(before.id), inherit })
        });
        if still_there(set, below).map_err(failed)?.is_some() {
            changed(attr.ino);
        }
        Ok(())
    })
}

/// As in other commands, only regular files and directories have a project.
fn has_project(file_type: FileType) -> bool {
    matches!(file_type, FileType::Regular | FileType::Directory)
}
