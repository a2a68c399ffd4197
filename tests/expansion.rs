//! RAID-Z expansion through the programs: with files in use, with interruptions, and with devices lost afterwards.

mod lab;

use std::{
    fs,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use insta::assert_snapshot;
use lab::{Lab, can_mount, noise, output::filters_for_devices};

fn content(seed: u64) -> Vec<u8> {
    noise(400_000, seed)
}

fn put(lab: &Lab, seed: u64) {
    fs::write(lab.path("file"), content(seed)).unwrap();
    lab.fs(&["cp", "file", &format!("tank/home:/{seed}")]);
    lab.pool(&["sync", "tank"]);
}

fn holds(lab: &Lab, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        assert!(lab.fs_bytes(&["cat", &format!("tank/home:/{seed}")]) == content(seed), "file {seed}");
    }
}

/// A pool `tank` of a raidz1 of four images, with some files.
fn furnished() -> Lab {
    let lab = Lab::new();
    lab.pool(&["create", "-m", "none", "tank", "raidz1", "80M:a.img", "80M:b.img", "80M:c.img", "80M:d.img"]);
    lab.fs(&["create", "-o", "compression=off", "tank/home"]);
    (0..40).for_each(|seed| put(&lab, seed));
    lab
}

/// The pool's size in bytes.
fn size(lab: &Lab) -> u64 {
    lab.pool(&["list", "-Hp", "-o", "size", "tank"]).trim().parse().unwrap()
}

#[test]
fn a_raidz_gets_wider_and_any_device_may_be_lost_after_it() {
    let (lab, _filters) = (furnished(), filters_for_devices().bind_to_scope());
    let before = size(&lab);
    assert_snapshot!(lab.session(&[
        "pool attach tank raidz1-0 64M:small.img",
        "pool attach tank raidz1-1 80M:e.img",
        "pool attach -w tank raidz1-0 80M:e.img",
        "pool wait -t raidz_expand tank",
        "pool status tank",
    ]), @r"
    $ pool attach tank raidz1-0 64M:small.img
    pool: cannot attach to 'raidz1-0': [LAB]/small.img is too small: 64M, at least 80M needed
    [exit 1]
    $ pool attach tank raidz1-1 80M:e.img
    pool: cannot attach to 'raidz1-1': no such device in pool
      to list the devices: pool status tank
    [exit 1]
    $ pool attach -w tank raidz1-0 80M:e.img
    [exit 0]
    $ pool wait -t raidz_expand tank
    [exit 0]
    $ pool status tank
      pool: tank
     state: ONLINE
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  raidz1-0  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	  [LAB]/b.img  ONLINE  0  0  0
    	  [LAB]/c.img  ONLINE  0  0  0
    	  [LAB]/d.img  ONLINE  0  0  0
    	  [LAB]/e.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    assert!(size(&lab) > before + before / 6, "{before} and {}", size(&lab));
    holds(&lab, 0..40);
    (40..60).for_each(|seed| put(&lab, seed));
    lab.check("tank");
    lab.pool(&["export", "tank"]);
    for gone in ["a.img", "e.img"] {
        fs::rename(lab.path(gone), lab.path("away")).unwrap();
        lab.pool(&["import", "-d", &lab.at(""), "tank"]);
        holds(&lab, 0..60);
        lab.pool(&["export", "tank"]);
        fs::rename(lab.path("away"), lab.path(gone)).unwrap();
        lab.pool(&["import", "-d", &lab.at(""), "tank"]);
        lab.pool(&["wait", "-t", "resilver", "tank"]);
        lab.pool(&["export", "tank"]);
    }
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    lab.pool(&["scrub", "-w", "tank"]);
    let status = lab.pool(&["status", "tank"]);
    assert!(status.contains("state: ONLINE") && status.contains("with 0 errors"), "{status}");
}

#[test]
fn an_expansion_is_limited_paused_and_resumed() {
    if !can_mount() {
        return;
    }
    let lab = furnished();
    let before = size(&lab);
    let status = |part: &str| {
        lab::wait_until("the status says so", || lab.pool(&["status", "tank"]).contains(part));
    };
    assert!(lab.run("pool", &["attach", "-p", "tank"]).fails(1).contains("no RAID-Z expansion is in progress"));
    assert!(lab.run("pool", &["attach", "tank", "raidz1-0"]).fails(1).contains("no RAID-Z expansion is in progress"));
    lab.run("pool", &["attach", "tank", "a.img"]).fails(2);
    lab.pool(&["attach", "--limit", "64K", "tank", "raidz1-0", "80M:e.img"]);
    status("limited to 64K/s");
    assert!(lab.run("pool", &["attach", "tank", "raidz1-0"]).fails(1).contains("it is already running"));
    lab.pool(&["attach", "-p", "tank"]);
    status("expansion of raidz1-0 is paused");
    assert!(lab.run("pool", &["attach", "-p", "tank"]).fails(1).contains("it is already paused"));
    // The paused expansion has given back its reserved space.
    lab.pool(&["wait", "-t", "raidz_expand", "tank"]);
    (40..44).for_each(|seed| put(&lab, seed));
    lab.pool(&["export", "tank"]);
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    status("expansion of raidz1-0 is paused");
    let paused = lab.pool(&["status", "tank"]);
    std::thread::sleep(std::time::Duration::from_secs(2));
    let line = |text: &str| text.lines().find(|line| line.contains("of its rows")).map(str::to_owned);
    assert_eq!(line(&paused), line(&lab.pool(&["status", "tank"])));
    lab.pool(&["attach", "--limit", "1G", "-w", "tank", "raidz1-0"]);
    assert!(size(&lab) > before + before / 6, "{before} and {}", size(&lab));
    holds(&lab, 0..44);
    lab.check("tank");
}

#[test]
fn a_raidz_gets_wider_while_its_files_are_used() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new();
    let images = ["120M:a.img", "120M:b.img", "120M:c.img", "120M:d.img"];
    lab.pool(&[&["create", "-m", &lab.at("mnt/tank"), "tank", "raidz2"][..], &images].concat());
    let (folder, done, count) = (lab.mount("tank"), AtomicBool::new(false), AtomicU64::new(0));
    let bytes = |number: u64| noise(40_000 + number as usize % 7 * 30_000, number);
    let use_folder = || {
        for number in 0..400 {
            fs::write(folder.join(format!("file-{number}")), bytes(number)).unwrap();
            count.store(number + 1, Ordering::Release);
            let found = fs::read(folder.join(format!("file-{}", number / 2))).unwrap();
            assert!(found == bytes(number / 2), "file {}", number / 2);
            if done.load(Ordering::Acquire) {
                return;
            }
        }
    };
    let before = size(&lab);
    thread::scope(|scope| {
        let user = scope.spawn(use_folder);
        lab::wait_until("there is something", || count.load(Ordering::Acquire) > 50);
        lab.fs(&["snapshot", "tank@narrow"]);
        lab.pool(&["attach", "-w", "tank", "raidz2-0", "120M:e.img"]);
        done.store(true, Ordering::Release);
        user.join().unwrap();
    });
    assert!(size(&lab) > before, "{before} and {}", size(&lab));
    lab.check("tank");
    lab.pool(&["export", "tank"]);
    // An old device and the new device.
    ["b.img", "e.img"].iter().for_each(|image| fs::remove_file(lab.path(image)).unwrap());
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    for number in 0..count.load(Ordering::Acquire) {
        assert!(fs::read(folder.join(format!("file-{number}"))).unwrap() == bytes(number), "file {number}");
    }
    lab.check("tank");
}

#[test]
fn commands_attach_and_wait_repeatedly_without_a_service() {
    let (lab, _filters) = (Lab::mountless(), filters_for_devices().bind_to_scope());
    lab.pool(&["create", "-m", "none", "tank", "raidz1", "80M:a.img", "80M:b.img", "80M:c.img"]);
    // The pool stays open between a command's steps, although its devices change.
    assert_snapshot!(lab.session(&[
        "pool attach -w tank raidz1-0 80M:d.img",
        "pool attach -w tank raidz1-0 80M:e.img",
        "pool replace -w tank a.img 80M:f.img",
        "pool list -v -H -o name,health tank",
    ]), @r"
    $ pool attach -w tank raidz1-0 80M:d.img
    [exit 0]
    $ pool attach -w tank raidz1-0 80M:e.img
    [exit 0]
    $ pool replace -w tank a.img 80M:f.img
    [exit 0]
    $ pool list -v -H -o name,health tank
    tank	ONLINE
    raidz1-0	ONLINE
    [LAB]/f.img	ONLINE
    [LAB]/b.img	ONLINE
    [LAB]/c.img	ONLINE
    [LAB]/d.img	ONLINE
    [LAB]/e.img	ONLINE
    [exit 0]
    ");
    fs::remove_file(lab.path("a.img")).unwrap();
    lab.check("tank");
}
