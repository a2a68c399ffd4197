//! Bytes and the space they take: holes, preallocation, appending, locks, direct I/O, and the space that a mount
//! reports.

use std::{
    fs::{self, File, OpenOptions},
    io::Read,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    process::Command,
};

use rustix::{
    fs::{FallocateFlags, FlockOperation, OFlags, SeekFrom as Place},
    io::Errno,
};

use crate::{
    has_perl,
    lab::{noise, wait_until},
    on_a_mount, sh,
};

#[test]
fn large_removed_files_give_their_space_back() {
    on_a_mount(|lab, place| {
        // Small records make many items, more than one step of freeing takes.
        lab.fs(&["set", "recordsize=4K", "compression=off", "tank"]);
        fs::write(place.join("large"), noise(20 << 20, 1)).unwrap();
        let open = File::open(place.join("large")).unwrap();
        fs::remove_file(place.join("large")).unwrap();
        lab.pool(&["sync"]);
        let referenced =
            || lab.fs(&["get", "-H", "-p", "-o", "value", "referenced", "tank"]).trim().parse::<u64>().unwrap();
        assert!(20 << 20 < referenced());
        drop(open);
        wait_until("the space is back", || {
            lab.pool(&["sync"]);
            referenced() < 1 << 20
        });
    });
}

#[test]
fn copies_share_their_blocks() {
    on_a_mount(|lab, place| {
        let content = noise(8 << 20, 5);
        fs::write(place.join("source"), &content).unwrap();
        lab.pool(&["sync"]);
        sh(place, "cp --reflink=auto source copy");
        let get = |name| lab.pool(&["get", "-H", "-p", "-o", "value", name, "tank"]).trim().to_owned();
        lab.pool(&["sync"]);
        assert_eq!([get("bcloneused"), get("bclonesaved")], [(8 << 20).to_string(), (8 << 20).to_string()]);
        assert_eq!(get("feature@block_cloning"), "active");
        assert!(fs::read(place.join("copy")).unwrap() == content);
        // Source and copy change independently.
        let copy = OpenOptions::new().write(true).open(place.join("copy")).unwrap();
        copy.write_all_at(b"changed", 3 << 20).unwrap();
        fs::remove_file(place.join("source")).unwrap();
        let mut changed = content.clone();
        changed[3 << 20..(3 << 20) + 7].copy_from_slice(b"changed");
        assert!(fs::read(place.join("copy")).unwrap() == changed);
        wait_until("the source is let go of", || {
            lab.pool(&["sync"]);
            get("bclonesaved") == "0"
        });
    });
}

#[test]
fn a_file_comes_back_out_of_a_snapshot_without_a_copy() {
    on_a_mount(|lab, place| {
        let content = noise(8 << 20, 6);
        fs::write(place.join("file"), &content).unwrap();
        lab.fs(&["snapshot", "tank@before"]);
        fs::write(place.join("file"), b"overwritten").unwrap();
        sh(place, "cp --reflink=auto .zfs/snapshot/before/file back");
        assert!(fs::read(place.join("back")).unwrap() == content);
        lab.pool(&["sync"]);
        let saved = || lab.pool(&["get", "-H", "-p", "-o", "value", "bclonesaved", "tank"]).trim().to_owned();
        assert_eq!(saved(), (8 << 20).to_string());
        // The restored blocks no longer need the snapshot.
        lab.fs(&["destroy", "tank@before"]);
        wait_until("the snapshot is let go of", || {
            lab.pool(&["sync"]);
            saved() == "0"
        });
        assert!(fs::read(place.join("back")).unwrap() == content);
    });
}

/// A virtual machine writes its image past the cache while a backup reads the image.
#[test]
fn what_is_written_past_the_cache_is_seen_through_it() {
    if !has_perl() {
        return;
    }
    on_a_mount(|_, place| {
        const BLOCKS: usize = 8;
        fs::write(place.join("image"), noise(BLOCKS * (64 << 10), 7)).unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/posix/aio.pl");
        let mut command = Command::new("perl");
        command.arg(script).arg(place.join("image")).args(["400", &BLOCKS.to_string()]);
        let output = command.output().unwrap();
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), b"0".as_slice()), "{output:?}");
    });
}

#[test]
fn sparse_files_and_fallocate() {
    on_a_mount(|_, place| {
        let path = place.join("sparse");
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        let seek = |place| rustix::fs::seek(&file, place);
        file.set_len(1 << 30).unwrap();
        assert_eq!(seek(Place::Data(0)), Err(Errno::NXIO));
        assert_eq!(seek(Place::Hole(0)), Ok(0));
        let content = noise(1 << 20, 3);
        file.write_all_at(&content, 512 << 20).unwrap();
        file.sync_all().unwrap();
        let data = seek(Place::Data(0)).unwrap();
        assert!((500 << 20..=512 << 20).contains(&data), "{data}");
        let hole = seek(Place::Hole(data)).unwrap();
        assert!((513 << 20..520 << 20).contains(&hole), "{hole}");
        assert_eq!(seek(Place::Hole(1 << 31)), Err(Errno::NXIO));
        assert!(file.metadata().unwrap().blocks() * 512 < 4 << 20);

        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let inner = (512 << 20) + 1000;
        rustix::fs::fallocate(&file, punch, inner, 500_000).unwrap();
        let mut found = vec![1; content.len()];
        file.read_exact_at(&mut found, 512 << 20).unwrap();
        let mut wanted = content.clone();
        wanted[1000..501_000].fill(0);
        assert!(found == wanted);
        rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, inner + 600_000, 1000).unwrap();
        wanted[601_000..602_000].fill(0);
        file.read_exact_at(&mut found, 512 << 20).unwrap();
        assert!(found == wanted);

        let small = File::create(place.join("small")).unwrap();
        rustix::fs::fallocate(&small, FallocateFlags::empty(), 0, 1_000_000).unwrap();
        assert_eq!(small.metadata().unwrap().len(), 1_000_000);
        rustix::fs::fallocate(&small, FallocateFlags::KEEP_SIZE, 0, 2_000_000).unwrap();
        assert_eq!(small.metadata().unwrap().len(), 1_000_000);
        let collapse = rustix::fs::fallocate(&small, FallocateFlags::COLLAPSE_RANGE, 0, 4096);
        assert!(matches!(collapse, Ok(()) | Err(Errno::OPNOTSUPP)), "{collapse:?}");

        // Bytes cut off by truncation stay zero when the file grows again.
        file.set_len((512 << 20) + 100).unwrap();
        file.set_len(513 << 20).unwrap();
        file.read_exact_at(&mut found, 512 << 20).unwrap();
        assert!(found[..100] == wanted[..100] && found[100..].iter().all(|byte| *byte == 0));
        assert!(file.metadata().unwrap().blocks() * 512 < 1 << 20);
    });
}

#[test]
fn several_processes_append() {
    on_a_mount(|_, place| {
        let script =
            "for writer in 1 2 3 4; do (for line in $(seq 200); do echo \"$writer $line\" >> log; done) & done; wait";
        sh(place, script);
        let text = fs::read_to_string(place.join("log")).unwrap();
        assert_eq!(text.lines().count(), 800);
        for writer in 1..=4 {
            let own: Vec<&str> = text.lines().filter(|line| line.starts_with(&format!("{writer} "))).collect();
            let wanted: Vec<String> = (1..=200).map(|line| format!("{writer} {line}")).collect();
            assert_eq!(own, wanted);
        }
    });
}

#[test]
fn locks_exclude() {
    on_a_mount(|_, place| {
        let path = place.join("lock");
        let first = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        let second = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        rustix::fs::flock(&first, FlockOperation::LockExclusive).unwrap();
        let refused = rustix::fs::flock(&second, FlockOperation::NonBlockingLockShared);
        assert_eq!(refused, Err(Errno::WOULDBLOCK));
        rustix::fs::flock(&first, FlockOperation::Unlock).unwrap();
        rustix::fs::flock(&second, FlockOperation::NonBlockingLockExclusive).unwrap();
        drop(second);
        // Record locks belong to processes: another process must be refused.
        rustix::fs::fcntl_lock(&first, FlockOperation::LockExclusive).unwrap();
        if Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success()) {
            let script = "import fcntl,sys\ntry: fcntl.lockf(open('lock','r+'), fcntl.LOCK_EX|fcntl.LOCK_NB)\n\
                          except BlockingIOError: sys.exit(7)";
            let status = Command::new("python3").args(["-c", script]).current_dir(place).status().unwrap();
            assert_eq!(status.code(), Some(7));
        }
        rustix::fs::fcntl_lock(&first, FlockOperation::Unlock).unwrap();
    });
}

#[test]
fn the_space_of_a_mount_adds_up() {
    on_a_mount(|lab, place| {
        lab.fs(&["set", "compression=off", "tank"]);
        let stat = || {
            lab.pool(&["sync"]);
            rustix::fs::statvfs(place).unwrap()
        };
        let before = stat();
        assert!(before.f_bavail <= before.f_bfree && before.f_bfree <= before.f_blocks);
        assert!(before.f_frsize.is_power_of_two() && before.f_namemax == 255);
        assert!(before.f_blocks * before.f_frsize > 200 << 20);
        fs::write(place.join("file"), noise(20 << 20, 4)).unwrap();
        let after = stat();
        let taken = (before.f_bavail - after.f_bavail) * before.f_frsize;
        assert!((20 << 20..24 << 20).contains(&taken), "{taken}");
        let used = (after.f_blocks - after.f_bfree) * after.f_frsize;
        assert!((20 << 20..24 << 20).contains(&used), "{used}");
        assert!(before.f_blocks.abs_diff(after.f_blocks) * before.f_frsize < 4 << 20);
        assert!(after.f_files > after.f_ffree && after.f_files - after.f_ffree >= 2);
    });
}

#[test]
fn direct_input_and_output() {
    on_a_mount(|_, place| {
        fs::write(place.join("source"), noise(3_000_000, 5)).unwrap();
        let copy = "dd if=source of=copy bs=64K iflag=direct oflag=direct conv=fsync status=none; cmp source copy";
        sh(place, copy);
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::DIRECT.bits() as i32)
            .open(place.join("source"))
            .unwrap();
        let mut text = Vec::new();
        (&file).read_to_end(&mut text).unwrap();
        assert!(text == noise(3_000_000, 5));
    });
}
