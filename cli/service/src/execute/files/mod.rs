//! Files of a dataset or a snapshot without a mount: listing, reading, and copying in and out.
//!
//! All access uses [`dataset::fs::FileSystem`], the object that a mount of the same dataset would serve. So a command
//! and a mount may be in use together; a change by a command notifies the mount.
//!
//! ```text
//! resolve    a path to an inode        list       entries as records
//! host       this machine's files: attributes, names, holes
//! handle     a file of this machine, held by a descriptor       trail      directories on the path of a copy
//! copy_in    host to dataset          copy_out   dataset to host          copy_within   within a pool
//! walk       directories, at any depth         parts      (in execute) answers sent in parts
//! attributes attributes such as immutable or compression of single files         project    projects of files
//! requests   locations to file systems             served     a file system, and its mount
//! source     files to read, wherever they are      archive    the files of a stream file
//! ```

pub(super) mod archive;
mod attributes;
mod copy_in;
mod copy_out;
mod copy_within;
mod handle;
mod host;
mod list;
mod project;
mod requests;
mod resolve;
mod served;
mod source;
mod trail;
mod walk;

use std::{io::Write, path::Path};

use dataset::fs::{Attr, Errno, FileSystem, FileType, Ino, SetXattr, Whence, acl};

pub(crate) use list::kind;

use host::Xattr;
use protocol::Failure;
use resolve::resolve;
use served::Served;

use super::{
    job::{Job, JobStream},
    mounts::unserved_at,
};

/// Number of bytes moved per step: some records of the default size.
const CHUNK: usize = 1 << 20;

/// The file at a path. A symbolic link at the end is not followed.
pub(super) fn find(fs: &FileSystem, path: &[u8]) -> Result<Attr, Errno> {
    resolve(fs, path, false)
}

/// The failure if a file seen by a command has been replaced.
const REPLACED: &str = "its file system was rolled back, received into or destroyed while the command ran";

/// The system's text for an error of a pool's file, without the error number.
pub(crate) fn reason(errno: Errno) -> String {
    if errno == Errno::STALE {
        return REPLACED.to_owned();
    }
    system_text(&errno.into())
}

/// The system's text for an error, without the error number.
pub fn system_text(error: &std::io::Error) -> String {
    error.to_string().split(" (os error").next().unwrap_or_default().to_owned()
}

/// The failure of an action on a file of this machine.
fn cannot_here(action: &str, path: &Path, errno: Errno) -> Failure {
    let why = match errno {
        Errno::STALE => "another process has moved or replaced the file or a parent directory".to_owned(),
        errno => reason(errno),
    };
    let failure = Failure::cannot(action, path.display(), why);
    match unserved_at(path).filter(|_| errno == Errno::NOTCONN) {
        Some(pool) => failure.hint(Failure::unserved(pool)),
        None => failure,
    }
}

/// Encodes major and minor into a device number, as file systems store the number.
fn encode_device(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// Decodes a device number into major and minor.
fn decode_device(rdev: u32) -> (u32, u32) {
    ((rdev >> 8) & 0xfff, (rdev & 0xff) | ((rdev >> 12) & 0xf_ff00))
}

/// Writes a regular file's content to `to`; holes as zeros.
fn read(fs: &Served, path: &[u8], shown: &str, to: &mut JobStream, job: &mut Job<'_>) -> Result<(), Failure> {
    let failed = |errno| Failure::cannot("read", shown, reason(errno));
    let attr = resolve(fs, path, true).map_err(failed)?;
    let file = fs.content(&attr);
    match attr.file_type {
        FileType::Regular => {}
        FileType::Directory => return Err(failed(Errno::ISDIR)),
        _ => return Err(Failure::cannot("read", shown, "it is not a regular file")),
    }
    fs.write_back(attr.ino);
    let mut buffer = Vec::with_capacity(CHUNK);
    let mut offset = 0;
    loop {
        job.check()?;
        buffer.clear();
        file.read(attr.ino, offset, CHUNK, &mut buffer).map_err(failed)?;
        if buffer.is_empty() {
            return Ok(());
        }
        // The reader, such as `head`, has read enough.
        match to.write_all(&buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            written => written.map_err(|error| Failure::cannot("write", shown, error))?,
        }
        offset += buffer.len() as u64;
        job.report(shown, offset, Some(attr.size));
    }
}

/// Sets the extended attributes of a copy from its source. Attributes specific to other file systems are skipped. An
/// access control list inherited from the copy's directory is removed if the source has none.
fn set_xattrs(fs: &FileSystem, to: Ino, xattrs: &[Xattr]) -> Result<(), Errno> {
    let lists = [acl::ACCESS, acl::DEFAULT].into_iter();
    for inherited in lists.filter(|list| xattrs.iter().all(|(name, _)| name != list)) {
        match fs.removexattr(to, inherited) {
            Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            removed => removed?,
        }
    }
    for (name, value) in xattrs {
        match fs.setxattr(to, name, value, SetXattr::Any) {
            Err(Errno::OPNOTSUPP) => {}
            set => set?,
        }
    }
    Ok(())
}

/// The next data range of a file, at or after `offset`.
fn next_data(fs: &FileSystem, attr: &Attr, offset: u64) -> Result<Option<(u64, u64)>, Errno> {
    match fs.seek(attr.ino, offset, Whence::Data) {
        Ok(start) => Ok(Some((start, fs.seek(attr.ino, start, Whence::Hole)?))),
        Err(Errno::NXIO) => Ok(None),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_come_back() {
        for (major, minor) in [(1, 3), (8, 0), (259, 0x12345), (0xfff, 0xf_ffff)] {
            assert_eq!(decode_device(encode_device(major, minor)), (major, minor));
        }
    }

    #[test]
    fn a_reason_has_no_number() {
        assert_eq!(reason(Errno::NOENT), "No such file or directory");
    }
}
