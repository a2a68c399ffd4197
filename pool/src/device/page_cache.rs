//! Consistency of the page cache between several names of a device.
//!
//! A loop device and the file behind are the same device, but have separate page caches. Pages read through one name
//! stay cached, as long as any process has the name open, while the device is written through another. And writes to a
//! loop device may reach the file much later: a killed process loses its locks before its writes have arrived, and as
//! long as another process has the loop device open, the kernel takes its time.
//!
//! So a process with a fresh lock on a device [settles](settle) the device before any read or write: first pending
//! writes under all other names are flushed, then cached pages are dropped.
//!
//! A loop device is found only if its file is still where the kernel found the file at setup, and is accessible to this
//! process. Memory mappings of a block device by other programs keep their view.

use std::{
    fs::{self, File, Metadata},
    io::{self, Seek, SeekFrom},
    iter,
    num::NonZeroU64,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use crossbeam_channel::{RecvTimeoutError, bounded};
use rustix::fs::{Advice, fadvise, major, minor};

use super::backing::{MAX_DEPTH, named_in};

/// The longest search for loop devices. A search takes longer only if an unrelated loop device has its file in a file
/// system without an answer, perhaps on this very pool.
const FIND: Duration = Duration::from_secs(2);
/// The longest wait for their pending writes.
const WRITE: Duration = Duration::from_secs(60);

/// Makes reads of a freshly locked device return its true content, and its writes last. `behind` are the backing files,
/// the nearest first. No process that respects the locks writes any more.
///
/// # Errors
/// If the backing file does not take pending writes of loop devices in time.
pub(super) fn settle(file: &File, behind: &[File]) -> io::Result<()> {
    let loops = loops();
    if !loops.is_empty() {
        let lowest = identity(&behind.last().unwrap_or(file).metadata()?);
        write_out(move || above(lowest, loops), FIND, WRITE)?;
    }
    for_each_block_device(file, behind, |file| forget(file, 0, None));
    Ok(())
}

/// Bytes at the beginning and the end, enough for the labels.
const EDGE: u64 = 1 << 20;

/// Makes the next read of labels come from the device, without dropping other cached pages of the process that has it
/// open.
pub(super) fn look_anew(file: &File, behind: &[File]) {
    for_each_block_device(file, behind, |mut file| {
        forget(file, 0, NonZeroU64::new(EDGE));
        if let Ok(size) = file.seek(SeekFrom::End(0)) {
            forget(file, size.saturating_sub(EDGE), None);
        }
    });
}

/// The lowest first, because the upper ones are read through it. An ordinary file has one page cache, which is never
/// stale.
fn for_each_block_device(file: &File, behind: &[File], act: impl Fn(&File)) {
    let is_block = |file: &&File| file.metadata().is_ok_and(|metadata| metadata.file_type().is_block_device());
    behind.iter().rev().chain([file]).filter(is_block).for_each(act);
}

fn forget(file: &File, from: u64, len: Option<NonZeroU64>) {
    // This is advice: pages mapped, or just being read or written, stay.
    let _ = fadvise(file, from, len, Advice::DontNeed);
}

/// Flushes pending writes of the devices that `find` returns, the last first. If the search takes too long, none are
/// flushed.
fn write_out(
    find: impl FnOnce() -> Vec<File> + Send + 'static,
    find_in: Duration,
    write_in: Duration,
) -> io::Result<()> {
    let (sender, receiver) = bounded(2);
    thread::Builder::new().name("settle".to_owned()).spawn(move || {
        let found = find();
        // The receiver may be gone.
        let _ = sender.send(());
        for device in found.iter().rev() {
            // Writes that fail are lost, and overwrite nothing later.
            let _ = device.sync_data();
        }
        drop(found);
        let _ = sender.send(());
    })?;
    if receiver.recv_timeout(find_in) == Err(RecvTimeoutError::Timeout) {
        tracing::warn!("the file of some loop device does not answer; what that has still to write is not waited for");
        return Ok(());
    }
    match receiver.recv_timeout(write_in) {
        Err(RecvTimeoutError::Timeout) => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

/// Equal for two names of one file or of one block device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Identity {
    File { device: u64, inode: u64 },
    Block(u64),
}

fn identity(metadata: &Metadata) -> Identity {
    match metadata.file_type().is_block_device() {
        true => Identity::Block(metadata.rdev()),
        false => Identity::File { device: metadata.dev(), inode: metadata.ino() },
    }
}

/// The loop devices in `/sys`, with the path of the file behind each.
fn loops() -> Vec<(PathBuf, PathBuf)> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter_map(|entry| named_in(&entry).map(|behind| (entry, behind))).collect()
}

/// The loop devices over a file or over each other, and their partitions, the lowest first.
fn above(lowest: Identity, loops: Vec<(PathBuf, PathBuf)>) -> Vec<File> {
    let known = |(entry, behind): (PathBuf, PathBuf)| Some((entry, identity(&behind.metadata().ok()?)));
    let loops: Vec<(PathBuf, Identity)> = loops.into_iter().filter_map(known).collect();
    let (mut found, mut lower) = (Vec::new(), vec![lowest]);
    for _ in 0..MAX_DEPTH {
        let over = loops.iter().filter(|(_, behind)| lower.contains(behind));
        let files: Vec<File> = over.flat_map(|(entry, _)| nodes(entry)).filter_map(opened).collect();
        lower = files.iter().filter_map(|file| file.metadata().ok()).map(|metadata| identity(&metadata)).collect();
        found.extend(files);
    }
    found
}

/// A disk in `/sys` and its partitions.
fn nodes(disk: &Path) -> Vec<PathBuf> {
    let parts = fs::read_dir(disk).into_iter().flatten().flatten().map(|part| part.path());
    iter::once(disk.to_owned()).chain(parts.filter(|part| part.join("partition").exists())).collect()
}

/// Opens the device of an entry in `/sys`, if the node of its name in `/dev` has the same number.
fn opened(entry: PathBuf) -> Option<File> {
    let number = fs::read_to_string(entry.join("dev")).ok()?;
    let file = File::open(Path::new("/dev").join(entry.file_name()?)).ok()?;
    let metadata = file.metadata().ok().filter(|metadata| metadata.file_type().is_block_device())?;
    (number.trim_end() == format!("{}:{}", major(metadata.rdev()), minor(metadata.rdev()))).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_and_its_partitions_have_memories_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("loop0");
        for inner in ["loop0p1", "queue"] {
            fs::create_dir_all(disk.join(inner)).unwrap();
        }
        fs::write(disk.join("loop0p1/partition"), "1\n").unwrap();
        assert_eq!(nodes(&disk), [disk.clone(), disk.join("loop0p1")]);
        assert!(opened(disk).is_none(), "its number is not known");
    }

    #[test]
    fn who_does_not_answer_is_waited_for_so_long() {
        let (brief, long) = (Duration::from_millis(10), Duration::from_secs(60));
        let silent = || {
            thread::sleep(Duration::from_secs(600));
            Vec::new()
        };
        assert!(write_out(silent, brief, long).is_ok(), "it may be another one's");
        assert!(write_out(Vec::new, long, long).is_ok());
        let file = tempfile::tempfile().unwrap();
        assert!(write_out(move || vec![file], long, long).is_ok());
        assert!(settle(&tempfile::tempfile().unwrap(), &[]).is_ok());
    }
}
