//! Pools on block devices, through the programs: a loop device works like an image file, with and without mounts.
//! Locking the device locks the file behind it, and trimmed space is freed in that file.
//!
//! The tests need a user who may set up loop devices.

mod lab;

use std::{
    fs,
    io::{self, Seek},
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use lab::{Lab, can_mount, loops::Loop, noise, wait_until};

/// Held by each of these tests: a detached device may become another test's next, under a path that a label still
/// names.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The allocated size of a file, in bytes.
fn taken(file: &Path) -> u64 {
    fs::metadata(file).unwrap().blocks() * 512
}

#[test]
fn a_pool_on_a_loop_device_works_and_trims() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    for direct_io in [false, true] {
        let lab = Lab::new();
        let file = lab.path("behind");
        let Some(disk) = Loop::over(&file, 200, direct_io) else { return };
        lab.pool(&["create", "-O", "compression=off", "-m", &lab.at("mnt/tank"), "tank", &disk.device]);
        fs::write(lab.mount("tank/kept"), noise(3_000_000, 1)).unwrap();
        fs::write(lab.mount("tank/large"), noise(60 << 20, 2)).unwrap();
        lab.pool(&["sync", "tank"]);
        let before = taken(&file);
        assert!(before > 60 << 20, "{before}");
        // The file is the same device under another name.
        let refused = lab.run("pool", &["create", "other", &lab.at("behind")]).fails(1);
        assert!(refused.contains("in use") || refused.contains("tank"), "{refused}");
        lab.kill("tank");
        lab.pool(&["import", "tank"]);
        assert!(fs::read(lab.mount("tank/large")).unwrap() == noise(60 << 20, 2));
        fs::remove_file(lab.mount("tank/large")).unwrap();
        // Blocks of states within reach of a rewind are kept.
        wait_until("what was freed is given back to the file", || {
            lab.pool(&["sync", "tank"]);
            lab.pool(&["trim", "-w", "tank"]);
            taken(&file) + (50 << 20) < before
        });
        assert!(fs::read(lab.mount("tank/kept")).unwrap() == noise(3_000_000, 1));
        lab.pool(&["export", "tank"]);
        lab.pool(&["check", "-d", &disk.device, "tank"]);
        // The pool can be imported from the file itself, too.
        drop(disk);
        lab.pool(&["import", "-d", &lab.at("behind"), "tank"]);
        assert!(fs::read(lab.mount("tank/kept")).unwrap() == noise(3_000_000, 1));
    }
}

#[test]
fn a_pool_on_loop_devices_needs_no_mount() {
    let _alone = alone();
    let lab = Lab::mountless();
    let (one, two) = (lab.path("one"), lab.path("two"));
    let (Some(first), Some(second)) = (Loop::over(&one, 80, false), Loop::over(&two, 80, false)) else { return };
    lab.pool(&["create", "-m", "none", "tank", "mirror", &first.device, &second.device]);
    fs::write(lab.path("file"), noise(1_000_000, 3)).unwrap();
    lab.fs(&["cp", "file", "tank:/file"]);
    lab.pool(&["offline", "tank", &first.device]);
    assert!(lab.fs_bytes(&["cat", "tank:/file"]) == noise(1_000_000, 3));
    lab.pool(&["online", "tank", &first.device]);
    lab.pool(&["scrub", "-w", "tank"]);
    lab.pool(&["export", "tank"]);
    lab.pool(&["check", "-d", &first.device, "-d", &second.device, "tank"]);
}

fn read_through(mut device: &fs::File) {
    device.rewind().unwrap();
    assert_eq!(io::copy(&mut device, &mut io::sink()).unwrap(), 80 << 20);
}

/// The kernel caches a loop device and the file behind it separately. Pages read through the device stay cached while
/// it is open, even if the file is written meanwhile.
#[test]
fn the_page_cache_of_a_loop_device_is_not_believed() {
    let _alone = alone();
    let lab = Lab::mountless();
    for direct_io in [false, true] {
        let file = lab.path("behind");
        let Some(disk) = Loop::over(&file, 80, direct_io) else { return };
        let remembers = fs::File::open(&disk.device).unwrap();
        let label = || {
            let (mut remembered, mut there) = (vec![0; 512 << 10], vec![0; 512 << 10]);
            remembers.read_exact_at(&mut remembered, 0).unwrap();
            fs::File::open(&file).unwrap().read_exact_at(&mut there, 0).unwrap();
            (remembered, there)
        };
        read_through(&remembers);
        lab.pool(&["create", "-m", "none", "tank", &lab.at("behind")]);
        lab.pool(&["export", "tank"]);
        let (remembered, there) = label();
        assert!(remembered.iter().all(|byte| *byte == 0) && there != remembered, "the system remembers nothing");
        // The labels on the device are found,
        assert!(lab.pool(&["import", "-d", &disk.device]).contains("pool: tank"));
        read_through(&remembers);
        lab.pool(&["import", "-d", &lab.at("behind"), "tank"]);
        lab.fs(&["create", "tank/new"]);
        lab.pool(&["export", "tank"]);
        // and everything below them.
        lab.pool(&["import", "-d", &disk.device, "tank"]);
        assert_eq!(lab.fs(&["list", "-H", "-o", "name", "tank/new"]), "tank/new\n");
        lab.pool(&["destroy", "-f", "tank"]);
        drop(disk);
        fs::remove_file(&file).unwrap();
    }
}

#[test]
fn of_loop_devices_on_each_other_each_is_read_anew() {
    let _alone = alone();
    let lab = Lab::mountless();
    let Some(lower) = Loop::over(&lab.path("behind"), 80, false) else { return };
    let Some(upper) = Loop::on(Path::new(&lower.device), false) else { return };
    // The upper device holds the lower device open.
    read_through(&fs::File::open(&upper.device).unwrap());
    lab.pool(&["create", "-m", "none", "tank", &lab.at("behind")]);
    lab.pool(&["export", "tank"]);
    assert!(lab.pool(&["import", "-d", &upper.device]).contains("pool: tank"));
    read_through(&fs::File::open(&upper.device).unwrap());
    lab.pool(&["import", "-d", &lab.at("behind"), "tank"]);
    lab.fs(&["create", "tank/new"]);
    lab.pool(&["export", "tank"]);
    lab.pool(&["import", "-d", &upper.device, "tank"]);
    assert_eq!(lab.fs(&["list", "-H", "-o", "name", "tank/new"]), "tank/new\n");
    lab.pool(&["destroy", "-f", "tank"]);
    drop(upper);
}

/// The system delays a killed process's writes through a loop device. A delayed write must not overwrite the file's
/// newer content.
#[test]
fn what_a_loop_device_has_not_written_yet_comes_over_nothing() {
    let _alone = alone();
    let lab = Lab::mountless();
    for on_another in [false, true] {
        let file = lab.path("behind");
        let Some(lower) = Loop::over(&file, 80, false) else { return };
        let upper = if on_another { Loop::on(Path::new(&lower.device), false) } else { None };
        if on_another && upper.is_none() {
            return;
        }
        let device = &upper.as_ref().unwrap_or(&lower).device;
        let dead = fs::File::options().write(true).open(device).unwrap();
        // From the end backwards: when the write-back is late, it begins with the front labels.
        for at in (0..80).rev() {
            dead.write_all_at(&vec![0xab; 1 << 20], at << 20).unwrap();
        }
        lab.pool(&["create", "-m", "none", "tank", &lab.at("behind")]);
        lab.fs(&["create", "tank/new"]);
        lab.pool(&["export", "tank"]);
        dead.sync_all().unwrap();
        lab.pool(&["import", "-d", &lab.at("behind"), "tank"]);
        assert_eq!(lab.fs(&["list", "-H", "-o", "name", "tank/new"]), "tank/new\n");
        lab.pool(&["destroy", "-f", "tank"]);
        drop((dead, upper));
        drop(lower);
        fs::remove_file(&file).unwrap();
    }
}

#[test]
fn a_raidz_with_log_on_loop_devices_replaces_a_device() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let lab = Lab::new();
    let disk = |name: &str| Loop::over(&lab.path(name), 80, false);
    let (Some(one), Some(two), Some(three)) = (disk("one"), disk("two"), disk("three")) else { return };
    let (Some(log), Some(new)) = (disk("log"), disk("new")) else { return };
    let all = [&one, &two, &three].map(|disk| disk.device.as_str());
    lab.pool(
        &[
            &["create", "-O", "compression=off", "-m", &lab.at("mnt/tank"), "tank", "raidz1"],
            &all[..],
            &["log", &log.device],
        ]
        .concat(),
    );
    let layout = lab.pool(&["status", "tank"]);
    assert!(layout.contains("raidz1-0") && layout.contains("logs\n"), "{layout}");
    let file = lab.mount("tank/file");
    fs::write(&file, noise(20 << 20, 4)).unwrap();
    // Synced data goes to the log, and survives the service's death.
    lab.pool(&["sync", "tank"]);
    fs::write(lab.mount("tank/promised"), noise(300_000, 5)).unwrap();
    fs::File::open(lab.mount("tank/promised")).unwrap().sync_all().unwrap();
    lab.kill("tank");
    lab.pool(&["import", "tank"]);
    assert!(fs::read(lab.mount("tank/promised")).unwrap() == noise(300_000, 5));
    // One device is gone, like a disk pulled out of a machine that was off.
    lab.pool(&["export", "tank"]);
    let gone = two.device.clone();
    drop(two);
    let places: Vec<&str> = [&one, &three, &log].iter().flat_map(|disk| ["-d", disk.device.as_str()]).collect();
    lab.pool(&[&["import"], &places[..], &["tank"]].concat());
    assert!(fs::read(&file).unwrap() == noise(20 << 20, 4));
    assert_eq!(lab.pool(&["list", "-H", "-o", "health", "tank"]), "DEGRADED\n");
    lab.pool(&["replace", "-w", "tank", &gone, &new.device]);
    lab.pool(&["scrub", "-w", "tank"]);
    assert!(lab.pool(&["status", "-x", "tank"]).contains("is healthy"));
    lab.pool(&["export", "tank"]);
    // The new device makes up for the loss of another.
    drop(one);
    let places: Vec<&str> = [&three, &log, &new].iter().flat_map(|disk| ["-d", disk.device.as_str()]).collect();
    lab.pool(&[&["import"], &places[..], &["tank"]].concat());
    assert!(fs::read(&file).unwrap() == noise(20 << 20, 4));
    assert!(fs::read(lab.mount("tank/promised")).unwrap() == noise(300_000, 5));
    lab.pool(&["export", "tank"]);
    lab.pool(&[&["check"], &places[..], &["tank"]].concat());
}
