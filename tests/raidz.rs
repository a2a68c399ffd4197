//! RAID-Z pools through the programs: as many devices die as there is parity, devices are replaced, and rot is
//! repaired.
//!
//! The pools have services and, unless otherwise stated, are not mounted, so that reads go to the devices.

mod lab;

use std::{
    fs::{self, File},
    os::unix::fs::{FileExt, MetadataExt},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use insta::assert_snapshot;
use lab::{Lab, can_mount, noise, output::filters_for_devices, small_file_system, wait_until};

fn content(seed: u64) -> Vec<u8> {
    noise(300_000, seed)
}

/// A pool `tank` of five images with double parity, with a file.
fn furnished() -> Lab {
    let lab = Lab::new();
    lab.pool(&[
        "create",
        "-m",
        "none",
        "tank",
        "raidz2",
        "80M:a.img",
        "80M:b.img",
        "80M:c.img",
        "80M:d.img",
        "80M:e.img",
    ]);
    lab.fs(&["create", "-o", "compression=off", "tank/home"]);
    put(&lab, 1);
    lab
}

/// Puts a file with this content into the pool.
fn put(lab: &Lab, seed: u64) {
    fs::write(lab.path("file"), content(seed)).unwrap();
    lab.fs(&["cp", "file", &format!("tank/home:/{seed}")]);
    lab.pool(&["sync", "tank"]);
}

/// Asserts that these files are in the pool, unchanged.
fn holds(lab: &Lab, seeds: &[u64]) {
    for seed in seeds {
        assert!(lab.fs_bytes(&["cat", &format!("tank/home:/{seed}")]) == content(*seed), "file {seed}");
    }
}

fn status(lab: &Lab) -> String {
    lab.session(&["pool status tank"])
}

#[test]
fn a_raidz_loses_as_many_devices_as_parity_and_replaces_them() {
    let (lab, _filters) = (furnished(), filters_for_devices().bind_to_scope());
    lab.pool(&["export", "tank"]);
    ["b.img", "d.img"].iter().for_each(|image| fs::remove_file(lab.path(image)).unwrap());
    assert_snapshot!(lab.session(&[&format!("pool import -d {}", lab.at(""))]), @r"
    $ pool import -d [LAB]/
      pool: tank
      id: [GUID]
     state: DEGRADED
    status: One or more devices are missing from the system.
    	The remaining devices have all data.
    action: The pool can be imported despite missing devices, in a degraded state.
    config:

    	tank  DEGRADED
    	  raidz2-0  DEGRADED
    	  [LAB]/a.img  ONLINE
    	  [LAB]/b.img  UNAVAIL
    	  [LAB]/c.img  ONLINE
    	  [LAB]/d.img  UNAVAIL
    	  [LAB]/e.img  ONLINE
    [exit 0]
    ");
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    holds(&lab, &[1]);
    put(&lab, 2);
    assert_snapshot!(status(&lab), @r"
    $ pool status tank
      pool: tank
     state: DEGRADED
    status: One or more devices are missing or do not respond.
    	Sufficient replicas exist; the pool continues in a degraded state.
    action: Connect the device and bring it online: pool online tank DEVICE
    	or replace it: pool replace tank DEVICE NEW
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  DEGRADED  0  0  0
    	  raidz2-0  DEGRADED  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	  [LAB]/b.img  UNAVAIL  0  0  0
    	  [LAB]/c.img  ONLINE  0  0  0
    	  [LAB]/d.img  UNAVAIL  0  0  0
    	  [LAB]/e.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    lab.pool(&["replace", "-w", "tank", "b.img", "80M:f.img"]);
    lab.pool(&["replace", "-w", "tank", "d.img", "80M:g.img"]);
    assert_snapshot!(status(&lab), @r"
    $ pool status tank
      pool: tank
     state: ONLINE
      scan: resilvered [SIZE] in [TIME] with 0 errors on [DATE]
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  raidz2-0  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	  [LAB]/f.img  ONLINE  0  0  0
    	  [LAB]/c.img  ONLINE  0  0  0
    	  [LAB]/g.img  ONLINE  0  0  0
    	  [LAB]/e.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    // The new devices make up for the loss of two others.
    lab.pool(&["export", "tank"]);
    ["a.img", "e.img"].iter().for_each(|image| fs::remove_file(lab.path(image)).unwrap());
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    holds(&lab, &[1, 2]);
    lab.check("tank");
}

#[test]
fn one_device_more_than_there_is_parity_is_one_too_many() {
    let (lab, _filters) = (furnished(), filters_for_devices().bind_to_scope());
    lab.pool(&["export", "tank"]);
    fs::create_dir(lab.path("away")).unwrap();
    let away = ["a.img", "c.img", "d.img"];
    away.iter().for_each(|image| fs::rename(lab.path(image), lab.path(&format!("away/{image}"))).unwrap());
    assert_snapshot!(lab.session(&[
        &format!("pool import -d {}", lab.at("")),
        &format!("pool import -d {} tank", lab.at("")),
    ]), @r"
    $ pool import -d [LAB]/
      pool: tank
      id: [GUID]
     state: UNAVAIL
    status: One or more devices are missing from the system.
    action: The pool cannot be imported. Attach the missing devices and try again.
    config:

    	tank  UNAVAIL
    	  raidz2-0  UNAVAIL
    	  [LAB]/a.img  UNAVAIL
    	  [LAB]/b.img  ONLINE
    	  [LAB]/c.img  UNAVAIL
    	  [LAB]/d.img  UNAVAIL
    	  [LAB]/e.img  ONLINE
    [exit 0]
    $ pool import -d [LAB]/ tank
    pool: cannot import 'tank': its devices [LAB]/a.img, [LAB]/c.img, [LAB]/d.img are missing
      search the directories of all devices: pool import -d DIR -d DIR tank
    [exit 1]
    ");
    fs::rename(lab.path("away/c.img"), lab.path("c.img")).unwrap();
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    holds(&lab, &[1]);
}

#[test]
fn a_device_is_taken_offline_and_comes_back() {
    let (lab, _filters) = (furnished(), filters_for_devices().bind_to_scope());
    lab.pool(&["offline", "tank", "b.img"]);
    lab.pool(&["offline", "tank", "c.img"]);
    put(&lab, 2);
    assert_snapshot!(lab.session(&["pool offline tank a.img", "pool list -H -o name,health"]), @r"
    $ pool offline tank a.img
    pool: cannot offline '[LAB]/a.img': raidz2-0 needs 3 complete devices, including [LAB]/a.img
    [exit 1]
    $ pool list -H -o name,health
    tank	DEGRADED
    [exit 0]
    ");
    lab.pool(&["online", "tank", "b.img"]);
    lab.pool(&["online", "tank", "c.img"]);
    wait_until("the resilver is done", || lab.pool(&["list", "-H", "-o", "health", "tank"]).contains("ONLINE"));
    wait_until("no device is resilvered", || !lab.pool(&["status", "tank"]).contains("(resilvering"));
    lab.pool(&["offline", "tank", "a.img"]);
    lab.pool(&["offline", "tank", "e.img"]);
    holds(&lab, &[1, 2]);
    lab.pool(&["export", "tank"]);
    lab.pool(&["check", "-d", &lab.at(""), "tank"]);
}

#[test]
fn what_rots_is_healed_by_reading_and_by_a_scrub() {
    let (lab, _filters) = (furnished(), filters_for_devices().bind_to_scope());
    lab.damages();
    lab.pool(&["export", "tank"]);
    for image in ["a.img", "d.img"] {
        let file = File::options().write(true).open(lab.path(image)).unwrap();
        // Everything between the labels.
        (1..79).for_each(|mib| file.write_all_at(&[0xee; 1 << 20], mib << 20).unwrap());
    }
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    holds(&lab, &[1]);
    lab.pool(&["scrub", "-w", "tank"]);
    let status = status(&lab);
    assert!(status.contains("with 0 errors") && status.contains("No known data errors"), "{status}");
    let errors = |device: &str| {
        let line = status.lines().find(|line| line.contains(device)).unwrap();
        line.split_whitespace().nth(4).unwrap().to_owned()
    };
    assert!(["a.img", "d.img"].iter().all(|rotten| errors(rotten) != "0"), "{status}");
    assert!(["b.img", "c.img", "e.img"].iter().all(|good| errors(good) == "0"), "{status}");
    lab.pool(&["clear", "tank"]);
    lab.pool(&["scrub", "-w", "tank"]);
    assert!(lab.pool(&["status", "-x", "tank"]).contains("is healthy"));
    // After the repair they make up for the loss of two others.
    lab.pool(&["export", "tank"]);
    ["b.img", "c.img"].iter().for_each(|image| fs::remove_file(lab.path(image)).unwrap());
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    holds(&lab, &[1]);
    lab.check("tank");
}

#[test]
fn what_cannot_be_is_refused_in_words() {
    let (lab, _filters) = (furnished(), filters_for_devices().bind_to_scope());
    assert_snapshot!(lab.session(&[
        "pool attach tank a.img 80M:x.img",
        "pool detach tank a.img",
        "pool replace tank a.img 64M:small.img",
    ]), @r"
    $ pool attach tank a.img 80M:x.img
    pool: cannot attach to '[LAB]/a.img': [LAB]/a.img is a device of a raidz; to expand the raidz, name the raidz, such as raidz1-0
    [exit 1]
    $ pool detach tank a.img
    pool: cannot detach '[LAB]/a.img': raidz2-0 cannot lose a device: replace [LAB]/a.img instead
    [exit 1]
    $ pool replace tank a.img 64M:small.img
    pool: cannot replace '[LAB]/a.img': [LAB]/small.img is too small: 64M, at least 80M needed
    [exit 1]
    ");
}

/// The pool's size, as `list` shows it.
fn size(lab: &Lab) -> String {
    lab.pool(&["list", "-H", "-o", "size", "tank"]).trim().to_owned()
}

#[test]
fn devices_of_different_sizes_use_their_extra_space() {
    let (lab, _filters) = (Lab::new(), filters_for_devices().bind_to_scope());
    for (image, size) in [("a.img", 80), ("b.img", 160), ("c.img", 160), ("d.img", 80), ("e.img", 80), ("f.img", 80)] {
        lab.blank(image, size << 20);
    }
    assert_snapshot!(lab.session(&[
        "pool create -n -m none tank raidz1 a.img b.img c.img",
        "pool create -n -m none tank raidz1 a.img d.img e.img",
        "pool create -n -m none tank raidz2 a.img b.img c.img",
        "pool create -m none tank raidz1 a.img b.img c.img",
        "pool list -o name,size tank",
        "pool add -n tank raidz1 d.img e.img f.img",
        "pool replace tank b.img 80M:small.img",
        "pool replace tank a.img 64M:smaller.img",
        "pool status tank",
    ]), @r"
    $ pool create -n -m none tank raidz1 a.img b.img c.img
    would create 'tank' with the following layout:

    	tank
    	  raidz1-0
    	  [LAB]/a.img
    	  [LAB]/b.img
    	  [LAB]/c.img

    space: 236M
    raidz1-0: any one device may fail; if a second device of the same vdev fails, the pool is lost
    [exit 0]
    $ pool create -n -m none tank raidz1 a.img d.img e.img
    would create 'tank' with the following layout:

    	tank
    	  raidz1-0
    	  [LAB]/a.img
    	  [LAB]/d.img
    	  [LAB]/e.img

    space: 156M
    raidz1-0: any one device may fail; if a second device of the same vdev fails, the pool is lost
    [exit 0]
    $ pool create -n -m none tank raidz2 a.img b.img c.img
    would create 'tank' with the following layout:

    	tank
    	  raidz2-0
    	  [LAB]/a.img
    	  [LAB]/b.img
    	  [LAB]/c.img

    space: 78M
    raidz2-0: its devices differ in size; 160M of the larger devices is unused
    raidz2-0: any 2 devices may fail; if one more device of the same vdev fails, the pool is lost
    [exit 0]
    $ pool create -m none tank raidz1 a.img b.img c.img
    [exit 0]
    $ pool list -o name,size tank
    NAME  SIZE
    tank  236M
    [exit 0]
    $ pool add -n tank raidz1 d.img e.img f.img
    would update 'tank' to the following configuration:

    	tank
    	  raidz1-0
    	  [LAB]/b.img
    	  [LAB]/c.img
    	  [LAB]/a.img
    	  raidz1-1
    	  [LAB]/d.img
    	  [LAB]/e.img
    	  [LAB]/f.img

    space: 392M
    raidz1-0, raidz1-1: any one device of each may fail; if a second device of the same vdev fails, the pool is lost
    [exit 0]
    $ pool replace tank b.img 80M:small.img
    pool: cannot replace '[LAB]/b.img': [LAB]/small.img is too small: 80M, at least 160M needed
    [exit 1]
    $ pool replace tank a.img 64M:smaller.img
    pool: cannot replace '[LAB]/a.img': [LAB]/smaller.img is too small: 64M, at least 80M needed
    [exit 1]
    $ pool status tank
      pool: tank
     state: ONLINE
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  raidz1-0  ONLINE  0  0  0
    	  [LAB]/b.img  ONLINE  0  0  0
    	  [LAB]/c.img  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    assert_eq!(size(&lab), "236M");
    lab.fs(&["create", "-o", "compression=off", "tank/home"]);
    put(&lab, 1);
    lab.pool(&["replace", "-w", "tank", "a.img", "80M:n.img"]);
    lab.pool(&["export", "tank"]);
    fs::remove_file(lab.path("b.img")).unwrap();
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    holds(&lab, &[1]);
    lab.check("tank");
}

#[test]
fn a_larger_replacement_widens_rows_behind_the_smallest_device() {
    let lab = Lab::new();
    lab.pool(&["create", "-m", "none", "tank", "raidz1", "80M:a.img", "160M:b.img", "160M:c.img"]);
    lab.fs(&["create", "-o", "compression=off", "tank/home"]);
    put(&lab, 1);
    let before = size(&lab);
    lab.pool(&["replace", "-w", "tank", "a.img", "160M:n.img"]);
    assert_eq!(size(&lab), before);
    lab.pool(&["online", "-e", "tank", "n.img"]);
    lab.pool(&["wait", "-t", "raidz_expand", "tank"]);
    // 78 regions of 2 MiB in rows of all three devices as before, and 80 instead of 40 in rows of two.
    assert_eq!((before.as_str(), size(&lab).as_str()), ("236M", "316M"));
    holds(&lab, &[1]);
    lab.check("tank");
}

#[test]
fn files_stay_in_use_while_a_device_dies_and_is_replaced() {
    if !can_mount() {
        return;
    }
    let (lab, _filters) = (Lab::new(), filters_for_devices().bind_to_scope());
    if !small_file_system(&lab.path("small"), "24m") {
        return;
    }
    lab.damages();
    let on_small = lab.at("small/b.img");
    let dying = format!("120M:{on_small}");
    lab.pool(&["create", "-m", &lab.at("mnt/tank"), "tank", "raidz", "120M:a.img", &dying, "120M:c.img", "120M:d.img"]);
    let (folder, done, count) = (lab.mount("tank"), AtomicBool::new(false), AtomicU64::new(0));
    let bytes = |number: u64| noise(40_000 + number as usize % 7 * 30_000, number);
    let use_folder = || {
        for number in 0.. {
            fs::write(folder.join(format!("file-{number}")), bytes(number)).unwrap();
            count.store(number + 1, Ordering::Release);
            let found = fs::read(folder.join(format!("file-{}", number / 2))).unwrap();
            assert!(found == bytes(number / 2), "file {}", number / 2);
            if done.load(Ordering::Acquire) || number == 1500 {
                return;
            }
        }
    };
    thread::scope(|scope| {
        let user = scope.spawn(use_folder);
        // The file system below the image runs full.
        wait_until("the device has died", || lab.pool(&["status", "tank"]).contains("state: DEGRADED"));
        lab.fs(&["snapshot", "tank@degraded"]);
        lab.pool(&["replace", "-w", "tank", &on_small, "120M:e.img"]);
        lab.pool(&["scrub", "-w", "tank"]);
        done.store(true, Ordering::Release);
        user.join().unwrap();
    });
    let status = lab.pool(&["status", "tank"]);
    assert!(status.contains("state: ONLINE") && status.contains("with 0 errors"), "{status}");
    assert!(status.contains("e.img") && !status.contains("b.img"), "{status}");
    // The new device makes up for the loss of any other.
    lab.pool(&["export", "tank"]);
    fs::remove_file(lab.path("c.img")).unwrap();
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    assert!(count.load(Ordering::Acquire) > 10);
    for number in 0..count.load(Ordering::Acquire) {
        assert!(fs::read(folder.join(format!("file-{number}"))).unwrap() == bytes(number), "file {number}");
    }
    lab.check("tank");
}

#[test]
fn a_degraded_pool_is_checked_with_a_foreign_file_at_a_path() {
    let lab = furnished();
    lab.pool(&["export", "tank"]);
    let looked_at = || {
        lab.pool(&["check", "-d", &lab.at(""), "tank"]);
        lab.pool(&["import", "-F", "-n", "-d", &lab.at(""), "tank"]);
        lab.pool(&["debug", "catalogue", "-d", &lab.at(""), "tank"]);
    };
    // An empty file, a device of another pool in use, and one of a pool not in use.
    File::create(lab.path("b.img")).unwrap().set_len(80 << 20).unwrap();
    looked_at();
    lab.pool(&["create", "-m", "none", "other", "b.img"]);
    looked_at();
    lab.pool(&["export", "other"]);
    looked_at();
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    holds(&lab, &[1]);
}

#[test]
fn the_predicted_space_is_the_real_space() {
    let lab = Lab::mountless();
    let vdevs = ["raidz2", "70M:a.img", "70M:b.img", "70M:c.img", "70M:d.img", "70M:e.img"];
    let line = |extra: &'static [&str]| [&["create"], extra, &["-m", "none", "tank"], &vdevs[..]].concat();
    let said = lab.pool(&line(&["-n"]));
    assert!(vdevs[1..].iter().all(|image| !lab.path(&image[4..]).exists()), "an image was made");
    assert_eq!(lab.pool(&["list", "-H"]), "");
    lab.pool(&line(&[]));
    let size = lab.pool(&["list", "-H", "-o", "size", "tank"]);
    assert!(said.lines().any(|line| line == format!("space: {}", size.trim())), "{size}{said}");
    assert!(said.contains("raidz2-0: any 2 devices may fail"), "{said}");
    let add = |extra: &'static [&str]| {
        let more = ["tank", "raidz2", "70M:f.img", "70M:g.img", "70M:h.img", "70M:i.img"];
        lab.pool(&[&["add"], extra, &more[..]].concat())
    };
    let said = add(&["-n"]);
    assert!(!lab.path("f.img").exists(), "an image was made");
    add(&[]);
    let size = lab.pool(&["list", "-H", "-o", "size", "tank"]);
    assert!(said.lines().any(|line| line == format!("space: {}", size.trim())), "{size}{said}");
}

#[test]
fn of_triple_parity_three_devices_are_lost_and_replaced() {
    let (lab, _filters) = (Lab::new(), filters_for_devices().bind_to_scope());
    assert_snapshot!(lab.session(&[
        "pool create -m none tank raidz3 80M:a.img 80M:b.img 80M:c.img",
        "pool create -m none tank raidz3 80M:a.img 80M:b.img 80M:c.img 80M:d.img 80M:e.img 80M:f.img",
    ]), @r"
    $ pool create -m none tank raidz3 80M:a.img 80M:b.img 80M:c.img
    pool: cannot create 'tank': a raidz3 has 4 to 32 devices
      name devices after the word: raidz3 DEVICE DEVICE DEVICE DEVICE
    [exit 1]
    $ pool create -m none tank raidz3 80M:a.img 80M:b.img 80M:c.img 80M:d.img 80M:e.img 80M:f.img
    [exit 0]
    ");
    lab.fs(&["create", "-o", "compression=off", "tank/home"]);
    put(&lab, 1);
    lab.pool(&["export", "tank"]);
    ["a.img", "c.img", "f.img"].iter().for_each(|image| fs::remove_file(lab.path(image)).unwrap());
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    holds(&lab, &[1]);
    put(&lab, 2);
    assert_snapshot!(status(&lab), @r"
    $ pool status tank
      pool: tank
     state: DEGRADED
    status: One or more devices are missing or do not respond.
    	Sufficient replicas exist; the pool continues in a degraded state.
    action: Connect the device and bring it online: pool online tank DEVICE
    	or replace it: pool replace tank DEVICE NEW
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  DEGRADED  0  0  0
    	  raidz3-0  DEGRADED  0  0  0
    	  [LAB]/a.img  UNAVAIL  0  0  0
    	  [LAB]/b.img  ONLINE  0  0  0
    	  [LAB]/c.img  UNAVAIL  0  0  0
    	  [LAB]/d.img  ONLINE  0  0  0
    	  [LAB]/e.img  ONLINE  0  0  0
    	  [LAB]/f.img  UNAVAIL  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    for (old, new) in [("a.img", "80M:g.img"), ("c.img", "80M:h.img"), ("f.img", "80M:i.img")] {
        lab.pool(&["replace", "-w", "tank", old, new]);
    }
    assert!(lab.pool(&["status", "-x", "tank"]).contains("is healthy"));
    // The new devices make up for the loss of the old ones.
    lab.pool(&["export", "tank"]);
    ["b.img", "d.img", "e.img"].iter().for_each(|image| fs::remove_file(lab.path(image)).unwrap());
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    holds(&lab, &[1, 2]);
    lab.check("tank");
}

#[test]
fn free_space_is_given_back_by_all_devices() {
    let (lab, _filters) = (furnished(), filters_for_devices().bind_to_scope());
    fs::write(lab.path("large"), noise(40 << 20, 9)).unwrap();
    lab.fs(&["cp", "large", "tank/home:/large"]);
    lab.fs(&["create", "-o", "compression=off", "tank/gone"]);
    lab.fs(&["cp", "large", "tank/gone:/large"]);
    lab.pool(&["sync", "tank"]);
    let images = ["a.img", "b.img", "c.img", "d.img", "e.img"];
    let stored = || images.map(|image| fs::metadata(lab.path(image)).unwrap().blocks() * 512);
    let before = stored();
    assert_snapshot!(lab.session(&["pool status -t tank"]), @r"
    $ pool status -t tank
      pool: tank
     state: ONLINE
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  raidz2-0  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0  (untrimmed)
    	  [LAB]/b.img  ONLINE  0  0  0  (untrimmed)
    	  [LAB]/c.img  ONLINE  0  0  0  (untrimmed)
    	  [LAB]/d.img  ONLINE  0  0  0  (untrimmed)
    	  [LAB]/e.img  ONLINE  0  0  0  (untrimmed)

    errors: No known data errors
    [exit 0]
    ");
    lab.fs(&["destroy", "tank/gone"]);
    // Blocks of states within reach of a rewind are kept.
    wait_until("what was freed is given back", || {
        lab.pool(&["sync", "tank"]);
        lab.pool(&["trim", "-w", "tank"]);
        stored().iter().zip(before).all(|(after, before)| after + (10 << 20) < before)
    });
    assert_snapshot!(lab.session(&["pool status -t tank", "pool wait -t trim tank"]), @r"
    $ pool status -t tank
      pool: tank
     state: ONLINE
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  raidz2-0  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0  (100% trimmed, completed at [DATE])
    	  [LAB]/b.img  ONLINE  0  0  0  (100% trimmed, completed at [DATE])
    	  [LAB]/c.img  ONLINE  0  0  0  (100% trimmed, completed at [DATE])
    	  [LAB]/d.img  ONLINE  0  0  0  (100% trimmed, completed at [DATE])
    	  [LAB]/e.img  ONLINE  0  0  0  (100% trimmed, completed at [DATE])

    errors: No known data errors
    [exit 0]
    $ pool wait -t trim tank
    [exit 0]
    ");
    holds(&lab, &[1]);
    assert!(lab.fs_bytes(&["cat", "tank/home:/large"]) == noise(40 << 20, 9));
    // The remaining data is complete on each device: any two devices may be lost.
    lab.pool(&["export", "tank"]);
    lab.pool(&["check", "-d", &lab.at(""), "tank"]);
    ["b.img", "d.img"].iter().for_each(|image| fs::remove_file(lab.path(image)).unwrap());
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    assert!(lab.fs_bytes(&["cat", "tank/home:/large"]) == noise(40 << 20, 9));
    lab.check("tank");
}
