//! The file behind a loop device.
//!
//! A loop device and the file behind it have separate locks in the kernel, but are one device to Cenote. So a lock on
//! either is taken on both. The kernel names the file in `/sys`, by its path when the loop device was set up. A file
//! moved or removed since, or not accessible to this process, is not found, and then only the loop device is locked.
//! Device mapper and the like are not followed: they open the devices below exclusively.

use std::{
    fs::{self, File},
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

use rustix::fs::{major, minor};

/// The most loop devices stacked on each other.
pub(super) const MAX_DEPTH: usize = 8;

/// The files behind `device`, the nearest first; none behind an ordinary file or disk.
pub(super) fn files(device: &File) -> Vec<File> {
    let mut found: Vec<File> = Vec::new();
    while let Some(file) = behind(found.last().unwrap_or(device)).filter(|_| found.len() < MAX_DEPTH) {
        found.push(file);
    }
    found
}

fn behind(device: &File) -> Option<File> {
    let metadata = device.metadata().ok().filter(|metadata| metadata.file_type().is_block_device())?;
    let entry = format!("/sys/dev/block/{}:{}", major(metadata.rdev()), minor(metadata.rdev()));
    File::open(named_in(Path::new(&entry))?).ok()
}

/// The backing file of a loop device, or of a partition on one, by its entry in `/sys`.
pub(super) fn named_in(entry: &Path) -> Option<PathBuf> {
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
    fn loop_devices_and_partitions_are_found_by_sysfs() {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("loop0");
        fs::create_dir_all(disk.join("loop")).unwrap();
        fs::create_dir(disk.join("loop0p1")).unwrap();
        fs::write(disk.join("loop/backing_file"), "/images/a file\n").unwrap();
        for entry in [disk.clone(), disk.join("loop0p1")] {
            assert_eq!(named_in(&entry), Some(PathBuf::from("/images/a file")));
        }
        assert_eq!(named_in(folder.path()), None);
    }
}
