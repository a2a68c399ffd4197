//! Attributes of files, for `fs setattr` and `fs getattr`.
//!
//! Going below a directory, what cannot have attributes is passed over, as `chattr -R` does: symbolic links, and for some
//! attributes special files.

use dataset::fs::{Attr, Attribute, Errno, FileAttributes, FileSystem, FileType, Ino};

use super::{list::directory, reason, resolve::resolve};
use crate::{
    execute::job::Job,
    failure::Failure,
    protocol::{Assignment, FileAttributesRecord, PathBytes},
};

/// The attributes of a file, and of everything below it if that is asked for.
pub(super) fn get(
    fs: &FileSystem,
    path: &[u8],
    shown: &str,
    recursive: bool,
    job: &mut Job<'_>,
) -> Result<Vec<FileAttributesRecord>, Failure> {
    let failed = |errno| Failure::cannot("get attributes of", shown, reason(errno));
    let mut records = Vec::new();
    walk(fs, path, recursive, job, failed, &mut |below, attr| {
        let attributes = fs.file_attributes(attr.ino)?;
        let value =
            |attribute: Attribute| Assignment { name: attribute.name().to_owned(), value: attributes.get(attribute) };
        let values = Attribute::ALL.into_iter().map(value).collect();
        records.push(FileAttributesRecord { path: PathBytes(below.to_vec()), values });
        Ok(())
    })?;
    Ok(records)
}

/// Sets attributes of a file, and of everything below it if that is asked for; `changed` is told which files.
pub(super) fn set(
    fs: &FileSystem,
    path: &[u8],
    shown: &str,
    assignments: &[Assignment],
    recursive: bool,
    job: &mut Job<'_>,
    changed: &mut dyn FnMut(Ino),
) -> Result<(), Failure> {
    let failed = |errno| {
        let failure = Failure::cannot("set attributes of", shown, reason(errno));
        match errno {
            Errno::OPNOTSUPP if !fs.options().attributes => {
                failure.hint("the pool's feature is disabled: pool set feature@file_attributes=enabled POOL")
            }
            _ => failure,
        }
    };
    walk(fs, path, recursive, job, failed, &mut |below, attr| {
        let set = fs.set_file_attributes(attr.ino, |attributes| apply(assignments, attributes));
        let is_other = !matches!(attr.file_type, FileType::Regular | FileType::Directory);
        match set {
            Err(Errno::OPNOTSUPP) if is_other && !below.is_empty() => return Ok(()),
            set => set?,
        }
        changed(attr.ino);
        Ok(())
    })
}

fn apply(assignments: &[Assignment], attributes: &mut FileAttributes) -> Result<(), Errno> {
    assignments.iter().try_for_each(|Assignment { name, value }| {
        let attribute = Attribute::named(name).ok_or(Errno::INVAL)?;
        attributes.set(attribute, value).ok_or(Errno::INVAL)
    })
}

/// What is done with a file: its path below what was asked for, and what `stat` shows.
pub(super) type Visit<'a> = dyn FnMut(&[u8], &Attr) -> Result<(), Errno> + 'a;

/// Calls `each` with the file that `path` names and, going below it, with everything there, by name.
pub(super) fn walk(
    fs: &FileSystem,
    path: &[u8],
    recursive: bool,
    job: &mut Job<'_>,
    failed: impl Fn(Errno) -> Failure,
    each: &mut Visit<'_>,
) -> Result<(), Failure> {
    let mut todo = vec![(Vec::new(), resolve(fs, path, false).map_err(&failed)?)];
    while let Some((below, attr)) = todo.pop() {
        job.check()?;
        each(&below, &attr).map_err(&failed)?;
        if recursive && attr.file_type == FileType::Directory {
            let prefix = if below.is_empty() { below } else { [&below[..], b"/"].concat() };
            let found = directory(fs, attr.ino, &prefix).map_err(&failed)?;
            todo.extend(found.into_iter().rev());
        }
    }
    Ok(())
}
