//! The file behind a loop device, and the loop devices over a file.
//!
//! A loop device and the file behind it are two files to the kernel's locks, though one device to us. Whoever locks the one
//! locks the other too. The kernel names the file in `/sys`, by its path when the loop device was set up: one that has been
//! moved or removed since, or that this process may not open, is not found, and then only the loop device is locked.
//! Device mapper and the like are not followed: they open what lies below them exclusively.
//!
//! To the page cache they are as many devices as they have names, each with a memory of its own: what was read by one stays
//! there when another one is written, and what was written by one may come to the file long after that. Of a process that
//! was killed, locks end before what it has written arrives.

use std::{
    fs::{self, File, Metadata},
    iter,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

use rustix::fs::{major, minor};

/// How many loop devices may lie on each other.
const MAX_DEPTH: usize = 8;

/// The files behind `device`, the nearest first; none behind an ordinary file or disk.
pub(super) fn files(device: &File) -> Vec<File> {
    let mut found: Vec<File> = Vec::new();
    while let Some(file) = behind(found.last().unwrap_or(device)).filter(|_| found.len() < MAX_DEPTH) {
        found.push(file);
    }
    found
}

/// The loop devices over a file or over each other, and their partitions, the lowest first, as far as this process may open
/// them.
pub(super) fn above(file: &File) -> Vec<File> {
    let loops = loops();
    let mut found = Vec::new();
    let mut lower: Vec<Identity> = file.metadata().iter().map(identity).collect();
    for _ in 0..MAX_DEPTH {
        let over = loops.iter().filter(|(_, backing)| lower.contains(backing)).flat_map(|(entry, _)| nodes(entry));
        let files: Vec<File> = over.filter_map(|node| File::open(node).ok()).collect();
        lower = files.iter().filter_map(|file| file.metadata().ok()).map(|metadata| identity(&metadata)).collect();
        found.extend(files);
    }
    found
}

/// The same for two names of one file or of one block device.
type Identity = (bool, u64, u64);

fn identity(metadata: &Metadata) -> Identity {
    match metadata.file_type().is_block_device() {
        true => (true, metadata.rdev(), 0),
        false => (false, metadata.dev(), metadata.ino()),
    }
}

/// The loop devices in `/sys` that are set up, and what is behind each.
fn loops() -> Vec<(PathBuf, Identity)> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten().map(|entry| entry.path());
    let backed = |entry: PathBuf| {
        let behind = named_in(&entry)?.metadata().ok()?;
        Some((entry, identity(&behind)))
    };
    entries.filter_map(backed).collect()
}

/// The device nodes of a disk in `/sys` and its partitions.
fn nodes(entry: &Path) -> Vec<PathBuf> {
    let Some(disk) = entry.file_name() else { return Vec::new() };
    let parts =
        fs::read_dir(entry).into_iter().flatten().flatten().filter(|part| part.path().join("partition").exists());
    let names = iter::once(disk.to_owned()).chain(parts.map(|part| part.file_name()));
    names.map(|name| Path::new("/dev").join(name)).collect()
}

fn behind(device: &File) -> Option<File> {
    let metadata = device.metadata().ok().filter(|metadata| metadata.file_type().is_block_device())?;
    let entry = format!("/sys/dev/block/{}:{}", major(metadata.rdev()), minor(metadata.rdev()));
    File::open(named_in(Path::new(&entry))?).ok()
}

/// What the kernel says of a loop device, or of a partition on one.
fn named_in(entry: &Path) -> Option<PathBuf> {
    let text = ["loop/backing_file", "../loop/backing_file"]
        .iter()
        .find_map(|place| fs::read_to_string(entry.join(place)).ok())?;
    Some(PathBuf::from(text.strip_suffix('\n').unwrap_or(&text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_behind_an_ordinary_file() {
        assert!(files(&tempfile::tempfile().unwrap()).is_empty());
    }

    #[test]
    fn loop_devices_and_their_partitions_are_known_by_what_the_kernel_says() {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("loop0");
        fs::create_dir_all(disk.join("loop")).unwrap();
        fs::create_dir(disk.join("loop0p1")).unwrap();
        fs::write(disk.join("loop/backing_file"), "/images/a file\n").unwrap();
        for entry in [disk.clone(), disk.join("loop0p1")] {
            assert_eq!(named_in(&entry), Some(PathBuf::from("/images/a file")));
        }
        assert_eq!(named_in(folder.path()), None);
        fs::write(disk.join("loop0p1/partition"), "1\n").unwrap();
        assert_eq!(nodes(&disk), [PathBuf::from("/dev/loop0"), PathBuf::from("/dev/loop0p1")]);
    }
}
