//! A device that is an image file or a block device.
//!
//! Reads and writes go through the page cache with `pread`, `pwrite` and `pwritev`; a flush is `fdatasync`. Bypassing the page
//! cache (`O_DIRECT`) did not measure better on the whole, on image files or on loop devices: `benches/RESULTS.md`. A
//! discard punches a hole: a block device treats it as TRIM, a loop device passes it on. While open, the file carries
//! an advisory lock that ends with the process, however that ends: exclusive for writing, shared for reading. A block
//! device is also opened exclusively, which the kernel refuses while it is mounted. The file behind a loop device is
//! locked too, so that an image is one device under any name: a path, a link, a loop device, a partition on one.
//!
//! The lock excludes other Cenote processes on this machine; against a second machine see the host id in the label.

use std::{
    fs::{self, File, Metadata, OpenOptions, Permissions},
    io::{self, IoSlice, IoSliceMut, Seek, SeekFrom},
    os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use rustix::{
    fs::{FallocateFlags, FlockOperation, OFlags, fallocate, flock, major, minor},
    io::{Errno, ReadWriteFlags, preadv2, pwritev},
};

use super::{
    backing,
    holder::{LockedFile, holder_of},
    interface::{Device, Whereabouts, check_range},
    page_cache,
};
use crate::error::{Error, Holder, Result};

/// How often a held lock is tried, with a pause in between.
const LOCK_ATTEMPTS: u32 = 10;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(10);

/// The length of a long write, in bytes.
const LONG: usize = 256 << 10;
/// The most parts of one system call.
const MOST_PARTS: usize = 1024;

/// The mode of a new image, whatever the umask: a user who can read it can import a copy, and read every file in it.
const IMAGE_MODE: u32 = 0o600;

/// How a device is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// For reading, next to other readers.
    ReadOnly,
    /// For reading and writing, alone.
    ReadWrite,
    /// For reading content that is verified, such as labels, without a lock: excludes no other process, not even for a
    /// moment.
    Glance,
}

impl Access {
    /// The lock that goes with the access.
    fn lock(self) -> Option<FlockOperation> {
        match self {
            Access::ReadOnly => Some(FlockOperation::NonBlockingLockShared),
            Access::ReadWrite => Some(FlockOperation::NonBlockingLockExclusive),
            Access::Glance => None,
        }
    }
}

/// An image file or a block device.
#[derive(Debug)]
pub struct FileDevice {
    name: String,
    file: File,
    size: AtomicU64,
    /// Held by a long write to a file; `None` for a block device. The kernel writes to a file one write at a time, and a
    /// second writer would keep a CPU busy with waiting.
    writing: Option<Mutex<()>>,
    /// Set once the kernel refused to punch holes.
    is_solid: AtomicBool,
    /// The files behind a loop device: kept open, because they are locked.
    _behind: Vec<File>,
}

impl FileDevice {
    /// Opens an existing image file or block device and locks it.
    ///
    /// # Errors
    /// [`Error::Busy`] if another process holds it, [`Error::Request`] if it is neither a file nor a block device,
    /// [`Error::Device`] for other errors.
    pub fn open(path: &Path, access: Access) -> Result<FileDevice> {
        let name = path.display().to_string();
        let failed = |source| Error::Device { device: name.clone(), action: "open", source };
        let is_block = check_type(&name, &path.metadata().map_err(failed)?)?;
        let mut options = OpenOptions::new();
        options.read(true).write(access == Access::ReadWrite);
        if is_block && access == Access::ReadWrite {
            options.custom_flags(OFlags::EXCL.bits().cast_signed());
        }
        let mut attempt = 1;
        let file = loop {
            match options.open(path) {
                Ok(file) => break file,
                Err(source) if source.kind() != io::ErrorKind::ResourceBusy => return Err(failed(source)),
                Err(_) => {}
            }
            // Another Cenote process opens a device before locking it.
            let holder = FileDevice::open(path, Access::Glance)?.holder();
            if holder.is_some() || attempt == LOCK_ATTEMPTS {
                return Err(Error::Busy { device: name, holder: holder.unwrap_or(Holder::System) });
            }
            attempt += 1;
            pause();
        };
        FileDevice::locked(name, file, access)
    }

    /// Creates a sparse image file of `size` bytes, accessible to this user alone, and locks it for writing. Never
    /// overwrites anything, and leaves nothing behind on failure.
    ///
    /// # Errors
    /// [`Error::Device`], also if the path exists already.
    pub fn create(path: &Path, size: u64) -> Result<FileDevice> {
        let name = path.display().to_string();
        let failed = |source| Error::Device { device: name.clone(), action: "create", source };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(IMAGE_MODE);
        let file = options.open(path).map_err(failed)?;
        let mode = file.set_permissions(Permissions::from_mode(IMAGE_MODE));
        let made =
            mode.and_then(|()| file.set_len(size)).and_then(|()| file.sync_all()).and_then(|()| sync_parent(path));
        let device = made.map_err(failed).and_then(|()| FileDevice::locked(name.clone(), file, Access::ReadWrite));
        device.inspect_err(|_| {
            // If the removal fails too, a sparse file of the full size stays, and its next use names it.
            let _ = fs::remove_file(path);
        })
    }

    /// The holder of the device, as far as known. Takes no lock.
    pub fn holder(&self) -> Option<Holder> {
        let behind = backing::files(&self.file);
        let files = std::iter::once(&self.file).chain(&behind);
        files.filter_map(|file| file.metadata().ok()).find_map(|metadata| holder_of(locked_file(&metadata)))
    }

    /// Makes a long write wait until the one before is done, where the kernel would.
    fn alone(&self, len: usize) -> Option<MutexGuard<'_, ()>> {
        self.writing.as_ref().filter(|_| len >= LONG).map(Mutex::lock)
    }

    fn locked(name: String, mut file: File, access: Access) -> Result<FileDevice> {
        let behind = match access.lock() {
            Some(operation) => {
                lock(&name, &file, operation, pause)?;
                let behind = backing::files(&file);
                behind.iter().try_for_each(|behind| lock(&name, behind, operation, pause))?;
                page_cache::settle(&file, &behind).map_err(|source| Error::Device {
                    device: name.clone(),
                    action: "bring up to date",
                    source,
                })?;
                behind
            }
            None => {
                page_cache::look_anew(&file, &backing::files(&file));
                Vec::new()
            }
        };
        let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
        // The length in a block device's metadata is zero; a seek to the end shows the size.
        match file.seek(SeekFrom::End(0)) {
            Ok(size) => Ok(FileDevice {
                name,
                file,
                size: AtomicU64::new(size),
                writing: is_file.then(Mutex::default),
                is_solid: AtomicBool::new(false),
                _behind: behind,
            }),
            Err(source) => Err(Error::Device { device: name, action: "measure", source }),
        }
    }
}

fn pause() {
    thread::sleep(BETWEEN_ATTEMPTS);
}

/// Locks a file, or names the holder. A held lock is tried a few times: its holder may be about to end, or be a forked
/// child that has not executed its program yet.
fn lock(name: &str, file: &File, operation: FlockOperation, mut wait: impl FnMut()) -> Result<()> {
    for attempt in 1.. {
        match flock(file, operation) {
            Ok(()) => break,
            Err(Errno::WOULDBLOCK) if attempt < LOCK_ATTEMPTS => wait(),
            Err(Errno::WOULDBLOCK) => return Err(Error::Busy { device: name.to_owned(), holder: holder(file) }),
            Err(errno) => return Err(Error::Device { device: name.to_owned(), action: "lock", source: errno.into() }),
        }
    }
    Ok(())
}

/// Refuses anything but a file or a block device; returns whether it is a block device.
fn check_type(name: &str, metadata: &Metadata) -> Result<bool> {
    let kind = metadata.file_type();
    match kind.is_file() || kind.is_block_device() {
        true => Ok(kind.is_block_device()),
        false => Err(Error::Request(format!("{name} is neither a file nor a block device"))),
    }
}

/// The holder of the lock on a locked file.
fn holder(file: &File) -> Holder {
    let known = file.metadata().ok().and_then(|metadata| holder_of(locked_file(&metadata)));
    known.unwrap_or(Holder::Unknown)
}

fn locked_file(metadata: &Metadata) -> LockedFile {
    let (major, minor) = (major(metadata.dev()), minor(metadata.dev()));
    LockedFile { major, minor, inode: metadata.ino() }
}

/// Makes the name of a new file durable.
fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if parent != Path::new("") => File::open(parent)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

impl Device for FileDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    fn measure(&self) -> io::Result<u64> {
        // The file position moved here is not used elsewhere.
        (&self.file).seek(SeekFrom::End(0))
    }

    fn resize(&self, size: u64) {
        self.size.store(size, Ordering::Relaxed);
    }

    fn truncate(&self, size: u64) -> io::Result<bool> {
        let metadata = self.file.metadata()?;
        if !metadata.is_file() {
            return Ok(false);
        }
        if metadata.len() > size {
            self.file.set_len(size)?;
            self.file.sync_all()?;
        }
        Ok(true)
    }

    fn grow_back(&self, size: u64) -> io::Result<bool> {
        let metadata = self.file.metadata()?;
        if !metadata.is_file() {
            return Ok(false);
        }
        if metadata.len() < size {
            self.file.set_len(size)?;
            self.file.sync_all()?;
        }
        Ok(true)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }

    fn read_at_once(&self, offset: u64, buf: &mut [u8]) -> io::Result<bool> {
        let len = buf.len();
        // If the kernel or file system does not support this, the caller reads the ordinary way.
        Ok(preadv2(&self.file, &mut [IoSliceMut::new(buf)], offset, ReadWriteFlags::NOWAIT) == Ok(len))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        // A write past the end would make an image file grow.
        check_range(self.size(), offset, bytes.len() as u64)?;
        let _writing = self.alone(bytes.len());
        self.file.write_all_at(bytes, offset)
    }

    fn write_parts(&self, offset: u64, parts: &[Arc<Vec<u8>>]) -> io::Result<()> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        check_range(self.size(), offset, len as u64)?;
        let mut slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let (mut slices, mut at) = (&mut slices[..], offset);
        let _writing = self.alone(len);
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            match pwritev(&self.file, &slices[..slices.len().min(MOST_PARTS)], at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    at += written as u64;
                    IoSlice::advance_slices(&mut slices, written);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn is_in_place(&self) -> bool {
        let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        match (self.file.metadata(), Path::new(&self.name).metadata()) {
            (Ok(open), Ok(named)) => identity(open) == identity(named),
            _ => false,
        }
    }

    fn whereabouts(&self) -> Whereabouts {
        // A block device is the same under every node.
        let identity = |metadata: &Metadata| match metadata.file_type().is_block_device() {
            true => (0, metadata.rdev()),
            false => (metadata.dev(), metadata.ino()),
        };
        let Ok(open) = self.file.metadata() else { return Whereabouts::InPlace };
        match Path::new(&self.name).metadata() {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Whereabouts::Removed
            }
            Ok(named) if identity(&named) != identity(&open) => Whereabouts::Replaced,
            // The metadata of a block device does not show its length.
            Ok(_) if open.is_file() && open.len() < self.size() => Whereabouts::Cut(open.len()),
            _ => Whereabouts::InPlace,
        }
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(self.size(), offset, len)?;
        if len == 0 {
            return Ok(());
        }
        if self.is_solid.load(Ordering::Relaxed) {
            return Ok(());
        }
        match fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV) => {
                self.is_solid.store(true, Ordering::Relaxed);
                Ok(())
            }
            Err(errno) => Err(errno.into()),
        }
    }

    fn can_discard(&self) -> bool {
        !self.is_solid.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{error::ErrorKind, units::MIB};

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary folder")
    }

    #[test]
    fn what_was_written_is_there_after_reopening() {
        let folder = folder();
        let path = folder.path().join("disk");
        let device = FileDevice::create(&path, MIB).unwrap();
        device.write_at(4096, b"hello").unwrap();
        device.flush().unwrap();
        drop(device);
        let device = FileDevice::open(&path, Access::ReadOnly).unwrap();
        assert_eq!(device.size(), MIB);
        let mut buf = [0; 6];
        device.read_at(4096, &mut buf).unwrap();
        assert_eq!(&buf, b"hello\0");
        assert!(device.write_at(0, b"x").is_err());
    }

    #[test]
    fn creating_never_overwrites() {
        let folder = folder();
        let path = folder.path().join("disk");
        std::fs::write(&path, "precious").unwrap();
        assert_eq!(FileDevice::create(&path, MIB).unwrap_err().kind(), ErrorKind::Device);
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn an_image_that_cannot_be_made_leaves_nothing() {
        let path = folder().path().join("disk");
        assert!(FileDevice::create(&path, MIB).is_err(), "its folder is gone");
        let folder = folder();
        let path = folder.path().join("disk");
        assert_eq!(FileDevice::create(&path, 1 << 63).unwrap_err().kind(), ErrorKind::Device);
        assert!(!path.exists());
    }

    #[test]
    fn a_writer_excludes_everybody_and_is_named() {
        let folder = folder();
        let path = folder.path().join("disk");
        let writer = FileDevice::create(&path, MIB).unwrap();
        for access in [Access::ReadOnly, Access::ReadWrite] {
            let error = FileDevice::open(&path, access).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Busy);
            let named = format!("process {} (", std::process::id());
            assert!(error.to_string().contains(&named) || error.to_string().contains("another process"), "{error}");
        }
        drop(writer);
        let _first = FileDevice::open(&path, Access::ReadOnly).unwrap();
        let _second = FileDevice::open(&path, Access::ReadOnly).unwrap();
        assert!(matches!(FileDevice::open(&path, Access::ReadWrite), Err(Error::Busy { .. })));
    }

    #[test]
    fn a_holder_that_is_about_to_let_go_is_waited_for() {
        let folder = folder();
        let path = folder.path().join("disk");
        let mut writer = Some(FileDevice::create(&path, MIB).unwrap());
        let file = File::open(&path).unwrap();
        let exclusive = FlockOperation::NonBlockingLockExclusive;
        lock("disk", &file, exclusive, || drop(writer.take())).unwrap();
        let mut attempts = 1;
        let error = lock("disk", &File::open(&path).unwrap(), exclusive, || attempts += 1).unwrap_err();
        assert_eq!((error.kind(), attempts), (ErrorKind::Busy, LOCK_ATTEMPTS));
    }

    #[test]
    fn a_glance_neither_waits_for_anybody_nor_keeps_anybody_out() {
        let folder = folder();
        let path = folder.path().join("disk");
        let writer = FileDevice::create(&path, MIB).unwrap();
        let glance = FileDevice::open(&path, Access::Glance).unwrap();
        drop(writer);
        let _writer = FileDevice::open(&path, Access::ReadWrite).unwrap();
        assert!(glance.write_at(0, b"x").is_err());
        glance.read_at(0, &mut [0; 16]).unwrap();
    }

    #[test]
    fn an_image_under_other_names_is_the_same_device() {
        let folder = folder();
        let [path, link, name] = ["disk", "symlink", "hard link"].map(|name| folder.path().join(name));
        let _writer = FileDevice::create(&path, MIB).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        std::fs::hard_link(&path, &name).unwrap();
        for other in [link, name] {
            assert_eq!(FileDevice::open(&other, Access::ReadWrite).unwrap_err().kind(), ErrorKind::Busy);
        }
    }

    #[test]
    fn an_access_past_the_end_fails_and_changes_nothing() {
        let folder = folder();
        let path = folder.path().join("disk");
        let device = FileDevice::create(&path, MIB).unwrap();
        assert!(device.write_at(MIB - 1, b"xy").is_err());
        assert!(device.write_at(u64::MAX, b"xy").is_err());
        assert!(device.read_at(MIB - 1, &mut [0; 2]).is_err());
        assert_eq!(path.metadata().unwrap().len(), MIB);
    }

    #[test]
    fn a_discarded_range_reads_as_zeros_or_as_before() {
        let folder = folder();
        let device = FileDevice::create(&folder.path().join("disk"), MIB).unwrap();
        device.write_at(0, &[7; 8192]).unwrap();
        device.discard(0, 4096).unwrap();
        let mut buf = [1; 8192];
        device.read_at(0, &mut buf).unwrap();
        assert!(buf[..4096].iter().all(|byte| *byte == 0) || buf[..4096].iter().all(|byte| *byte == 7));
        assert!(buf[4096..].iter().all(|byte| *byte == 7));
        device.discard(0, 0).unwrap();
    }

    #[test]
    fn an_image_that_was_replaced_is_not_in_place() {
        let folder = folder();
        let path = folder.path().join("disk");
        let device = FileDevice::create(&path, MIB).unwrap();
        assert!(device.is_in_place() && device.whereabouts() == Whereabouts::InPlace);
        device.file.set_len(MIB / 2).unwrap();
        assert!(device.is_in_place() && device.whereabouts() == Whereabouts::Cut(MIB / 2));
        std::fs::copy(&path, folder.path().join("copy")).unwrap();
        std::fs::rename(folder.path().join("copy"), &path).unwrap();
        assert!(!device.is_in_place() && device.whereabouts() == Whereabouts::Replaced);
        std::fs::remove_file(&path).unwrap();
        assert!(!device.is_in_place() && device.whereabouts() == Whereabouts::Removed);
    }

    #[test]
    fn an_image_that_has_grown_is_larger_when_that_is_taken_note_of() {
        let folder = folder();
        let path = folder.path().join("disk");
        let device = FileDevice::create(&path, MIB).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(2 * MIB).unwrap();
        assert_eq!((device.size(), device.measure().unwrap()), (MIB, 2 * MIB));
        device.write_at(2 * MIB - 1, b"x").unwrap_err();
        device.resize(2 * MIB);
        device.write_at(2 * MIB - 1, b"x").unwrap();
        assert_eq!(device.size(), 2 * MIB);
    }

    #[test]
    fn an_image_is_cut_and_never_grows_by_it() {
        let folder = folder();
        let path = folder.path().join("disk");
        let device = FileDevice::create(&path, 2 * MIB).unwrap();
        device.resize(MIB);
        for size in [MIB, 2 * MIB] {
            assert!(device.truncate(size).unwrap());
            assert_eq!((path.metadata().unwrap().len(), device.size()), (MIB, MIB));
        }
    }

    #[test]
    fn what_was_just_written_is_read_at_once_or_not_at_all() {
        let folder = folder();
        let device = FileDevice::create(&folder.path().join("disk"), MIB).unwrap();
        device.write_at(100, b"hello").unwrap();
        let mut buf = [0; 5];
        if device.read_at_once(100, &mut buf).unwrap() {
            assert_eq!(&buf, b"hello");
        }
        assert!(!device.read_at_once(MIB - 1, &mut buf).unwrap());
    }

    #[test]
    fn a_folder_is_no_device() {
        let error = FileDevice::open(folder().path(), Access::ReadOnly).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Request);
    }
}
