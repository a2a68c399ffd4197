//! The longest names and paths, and the largest files.

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::{FileExt, MetadataExt},
    path::PathBuf,
};

use rustix::{
    fs::{AtFlags, Mode, OFlags, SeekFrom},
    io::Errno,
};

use crate::{names, on_a_mount};

/// The longest path in bytes that the kernel takes, without the zero byte.
const LONGEST_PATH: usize = 4095;
/// The largest file size that the kernel allows.
const LARGEST: u64 = i64::MAX as u64;

#[test]
fn names_of_255_bytes_are_made_moved_linked_and_removed() {
    on_a_mount(|lab, place| {
        let name = |letter: &str| place.join(letter.repeat(255));
        fs::write(name("a"), "text").unwrap();
        fs::hard_link(name("a"), name("b")).unwrap();
        fs::rename(name("a"), name("c")).unwrap();
        fs::create_dir(name("d")).unwrap();
        std::os::unix::fs::symlink(name("c"), name("e")).unwrap();
        lab.check("tank");
        assert_eq!(names(place), ["b", "c", "d", "e"].map(|letter| letter.repeat(255)));
        assert_eq!(fs::read_to_string(name("e")).unwrap(), "text");
        assert_eq!(fs::metadata(name("b")).unwrap().nlink(), 2);
        let too_long = place.join("f".repeat(256));
        for refused in
            [fs::rename(name("b"), &too_long), fs::hard_link(name("b"), &too_long), fs::create_dir(&too_long)]
        {
            assert_eq!(refused.unwrap_err().raw_os_error(), Some(Errno::NAMETOOLONG.raw_os_error()));
        }
        ["b", "c", "e"].iter().for_each(|letter| fs::remove_file(name(letter)).unwrap());
        fs::remove_dir(name("d")).unwrap();
    });
}

#[test]
fn the_longest_path_works_and_a_longer_one_works_in_parts() {
    on_a_mount(|lab, place| {
        let mut folder: PathBuf = place.to_owned();
        while folder.as_os_str().len() + 1 + 255 < LONGEST_PATH {
            folder.push("d".repeat(200));
            fs::create_dir(&folder).unwrap();
        }
        let file = folder.join("f".repeat(LONGEST_PATH - folder.as_os_str().len() - 1));
        assert_eq!(file.as_os_str().len(), LONGEST_PATH);
        fs::write(&file, "far").unwrap();
        let longer = folder.join("f".repeat(LONGEST_PATH - folder.as_os_str().len()));
        assert_eq!(fs::write(&longer, "").unwrap_err().raw_os_error(), Some(Errno::NAMETOOLONG.raw_os_error()));

        // Beyond the reach of a single path: ten folders further down.
        let mut below = File::open(&folder).unwrap();
        for _ in 0..10 {
            let name = "e".repeat(255);
            rustix::fs::mkdirat(&below, &name, Mode::RWXU).unwrap();
            below = rustix::fs::openat(&below, &name, OFlags::DIRECTORY, Mode::empty()).unwrap().into();
        }
        rustix::fs::symlinkat("target", &below, "deepest").unwrap();
        drop(below);
        lab.check("tank");
        assert_eq!(fs::read_to_string(&file).unwrap(), "far");
        let mut below = File::open(&folder).unwrap();
        for _ in 0..10 {
            below = rustix::fs::openat(&below, "e".repeat(255), OFlags::DIRECTORY, Mode::empty()).unwrap().into();
        }
        let found = rustix::fs::statat(&below, "deepest", AtFlags::SYMLINK_NOFOLLOW).unwrap();
        assert_eq!(found.st_size, 6);
        fs::remove_dir_all(place.join("d".repeat(200))).unwrap();
        assert!(names(place).is_empty());
    });
}

#[test]
fn the_largest_file_is_written_and_read_at_its_end() {
    on_a_mount(|lab, place| {
        let path = place.join("largest");
        let open = || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        let file = open();
        file.set_len(LARGEST).unwrap();
        assert_eq!(file.metadata().unwrap().len(), LARGEST);
        let mut byte = [1];
        assert_eq!(file.read_at(&mut byte, LARGEST - 1).unwrap(), 1);
        assert_eq!(byte, [0]);
        assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(0)), Err(Errno::NXIO));
        let begin = LARGEST - 3;
        file.write_all_at(b"end", begin).unwrap();
        file.sync_all().unwrap();
        drop(file);
        lab.check("tank");

        let file = open();
        assert_eq!(file.metadata().unwrap().len(), LARGEST);
        assert!(file.metadata().unwrap().blocks() * 512 < 1 << 20);
        // A read across the hole and the end returns only existing bytes.
        let mut found = [1; 4];
        assert_eq!(file.read_at(&mut found, begin - 1).unwrap(), 4);
        assert_eq!(&found, b"\0end");
        let data = rustix::fs::seek(&file, SeekFrom::Data(0)).unwrap();
        assert!((LARGEST - (16 << 20)..=begin).contains(&data), "{data}");
        assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(data)), Ok(LARGEST));
        assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(5)), Ok(5));

        // The kernel has no offsets beyond.
        assert!(matches!(file.write_at(b"more", LARGEST - 2), Ok(0..=2) | Err(_)));
        assert!(file.write_at(b"more", LARGEST).is_err());
        assert!(rustix::fs::ftruncate(&file, LARGEST + 1).is_err());
        rustix::fs::fallocate(
            &file,
            rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE,
            0,
            LARGEST,
        )
        .unwrap();
        assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(0)), Err(Errno::NXIO));
        drop(file);
        fs::remove_file(&path).unwrap();
    });
}
