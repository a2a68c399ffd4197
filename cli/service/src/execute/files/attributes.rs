//! Attributes of files, for `fs setattr` and `fs getattr`.
//!
//! A recursive request skips files removed meanwhile, and files that cannot have an attribute, as `chattr -R` does:
//! symbolic links, and for some attributes special files.

use dataset::fs::{Attr, Attribute, Errno, FileAttributes, FileType, Ino};
use protocol::{Assignment, Failure, FileAttributesRecord, PathBytes};

use super::{reason, resolve::resolve, served::Served, walk::Walk};
use crate::execute::{job::Job, parts::Parts};

/// Sends the attributes of a file, and with `recursive` of everything below.
pub(super) fn get(fs: &Served, path: &[u8], shown: &str, recursive: bool, job: &mut Job<'_>) -> Result<(), Failure> {
    let failed = |errno| Failure::cannot("get attributes of", shown, reason(errno));
    let named = resolve(fs, path, false).map_err(failed)?;
    let mut parts = Parts::default();
    walk(fs, &named, recursive, job, &failed, &mut |below, attr, job| {
        let Some(attributes) = still_there(fs.same(attr).file_attributes(attr.ino), below).map_err(failed)? else {
            return Ok(());
        };
        let value =
            |attribute: Attribute| Assignment { name: attribute.name().to_owned(), value: attributes.get(attribute) };
        let values = Attribute::ALL.into_iter().map(value).collect();
        parts.push(FileAttributesRecord { path: PathBytes(below.to_vec()), values }, job)
    })?;
    parts.finish(job)
}

/// Sets attributes of a file, and with `recursive` of everything below; calls `changed` with each changed file.
pub(super) fn set(
    fs: &Served,
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
    let named = resolve(fs, path, false).map_err(failed)?;
    walk(fs, &named, recursive, job, &failed, &mut |below, attr, _| {
        let set = fs.set_file_attributes(attr.ino, |attributes| apply(assignments, attributes));
        let is_other = !matches!(attr.file_type, FileType::Regular | FileType::Directory);
        match still_there(set, below) {
            Err(Errno::OPNOTSUPP) if is_other && !below.is_empty() => {}
            set => {
                if set.map_err(failed)?.is_some() {
                    changed(attr.ino);
                }
            }
        }
        Ok(())
    })
}

fn apply(assignments: &[Assignment], attributes: &mut FileAttributes) -> Result<(), Errno> {
    assignments.iter().try_for_each(|Assignment { name, value }| {
        let attribute = Attribute::named(name).ok_or(Errno::INVAL)?;
        attributes.set(attribute, value).ok_or(Errno::INVAL)
    })
}

/// The result of an action on a file; `None` if the file is below the named directory and was removed meanwhile.
pub(super) fn still_there<T>(done: Result<T, Errno>, below: &[u8]) -> Result<Option<T>, Errno> {
    match done {
        Err(Errno::NOENT) if !below.is_empty() => Ok(None),
        done => done.map(Some),
    }
}

/// An action on a file, with the file's path below the named directory, and its `stat` attributes.
pub(super) type Visit<'a> = dyn FnMut(&[u8], &Attr, &mut Job<'_>) -> Result<(), Failure> + 'a;

/// Calls `each` with a file and, if recursive, with everything below, by name.
pub(super) fn walk(
    fs: &Served,
    named: &Attr,
    recursive: bool,
    job: &mut Job<'_>,
    failed: &dyn Fn(Errno) -> Failure,
    each: &mut Visit<'_>,
) -> Result<(), Failure> {
    job.check()?;
    each(b"", named, job)?;
    if recursive && named.file_type == FileType::Directory {
        let mut walk = Walk::new(fs, named, true, job);
        while let Some(attr) = walk.next().map_err(failed)? {
            job.check()?;
            each(walk.path(), &attr, job)?;
        }
    }
    Ok(())
}
