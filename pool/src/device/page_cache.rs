//! What the system's page cache has of a device under its other names.
//!
//! A loop device and the file behind it are one device, and two to the page cache, each with a memory of its own. What was
//! read by one stays there, for as long as anybody has it open, when the other one is written. What was written by a loop
//! device may come to the file long after that: a process that is killed loses its locks before what it has written is
//! there, and as long as somebody else has the loop device open, the system takes its time.
//!
//! So whoever has locked a device [settles](settle) that before it reads or writes anything: first what is still to be
//! written under other names arrives, then what is remembered is dropped.
//!
//! Of loop devices only those are known whose file is still where the kernel says it was when they were set up, and that
//! this process may open. What programs have mapped of a block device stays as they see it.

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

/// How long is waited until loop devices are found. It takes longer only where the file of some other one lies in a file
/// system that does not answer, this very pool's perhaps.
const FIND: Duration = Duration::from_secs(2);
/// How long is waited until they are written.
const WRITE: Duration = Duration::from_secs(60);

/// Has a device that was just locked, with the files `behind` it, the nearest first, be what is read from it, and what is
/// written to it stay. Nobody else who heeds these locks writes any more.
///
/// # Errors
/// If loop devices over it have something to write, and their file does not take it in time.
pub(super) fn settle(file: &File, behind: &[File]) -> io::Result<()> {
    let loops = loops();
    if !loops.is_empty() {
        let lowest = identity(&behind.last().unwrap_or(file).metadata()?);
        write_out(move || above(lowest, loops), FIND, WRITE)?;
    }
    for_each_block_device(file, behind, |file| forget(file, 0, None));
    Ok(())
}

/// Where labels are, at the beginning and the end, in bytes: what is looked for at a glance.
const EDGE: u64 = 1 << 20;

/// Has labels read anew, without taking the memory of the rest from who has the device open.
pub(super) fn look_anew(file: &File, behind: &[File]) {
    for_each_block_device(file, behind, |mut file| {
        forget(file, 0, NonZeroU64::new(EDGE));
        if let Ok(size) = file.seek(SeekFrom::End(0)) {
            forget(file, size.saturating_sub(EDGE), None);
        }
    });
}

/// The lowest first: the others are read through it. Of an ordinary file there is one memory, which is never old.
fn for_each_block_device(file: &File, behind: &[File], act: impl Fn(&File)) {
    let is_block = |file: &&File| file.metadata().is_ok_and(|metadata| metadata.file_type().is_block_device());
    behind.iter().rev().chain([file]).filter(is_block).for_each(act);
}

fn forget(file: &File, from: u64, len: Option<NonZeroU64>) {
    // It is advice: what is mapped, or just being read or written, stays.
    let _ = fadvise(file, from, len, Advice::DontNeed);
}

/// Has what was written to devices that `find` finds arrive, the last first. None are found if that takes too long.
fn write_out(
    find: impl FnOnce() -> Vec<File> + Send + 'static,
    find_in: Duration,
    write_in: Duration,
) -> io::Result<()> {
    let (tell, told) = bounded(2);
    thread::Builder::new().name("settle".to_owned()).spawn(move || {
        let found = find();
        // Nobody may be waiting any more.
        let _ = tell.send(());
        for device in found.iter().rev() {
            // What cannot be written is nowhere then, and comes over nothing.
            let _ = device.sync_data();
        }
        drop(found);
        let _ = tell.send(());
    })?;
    if told.recv_timeout(find_in) == Err(RecvTimeoutError::Timeout) {
        tracing::warn!("the file of some loop device does not answer; what that has still to write is not waited for");
        return Ok(());
    }
    match told.recv_timeout(write_in) {
        Err(RecvTimeoutError::Timeout) => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

/// The same for two names of one file or of one block device.
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

/// The loop devices that are set up, as `/sys` has them, and the paths of what is behind each.
fn loops() -> Vec<(PathBuf, PathBuf)> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter_map(|entry| named_in(&entry).map(|behind| (entry, behind))).collect()
}

/// Those of the loop devices that are over a file or over each other, and their partitions, the lowest first.
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

/// The device of that entry, if what has its name in `/dev` is it.
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
