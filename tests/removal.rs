//! Removing a vdev from a pool in use, through the programs, with `pool status` at each stage.

mod lab;

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use insta::{Settings, assert_snapshot};
use lab::{Lab, can_mount, noise, wait_until};

/// Replaces values that change from run to run.
fn filters() -> Settings {
    let mut settings = lab::output::filters_for_devices();
    settings.add_filter(r"copied [\d.]+[BKM]? in \d+h\d+m", "copied [SIZE] in [TIME]");
    settings.add_filter(r"(?m)^[\d.]+[BKM]? would be moved", "[SIZE] would be moved");
    settings.add_filter(r"\d+ empty regions", "[COUNT] empty regions");
    settings.add_filter(r"\d+ (are )?available", "[COUNT] ${1}available");
    settings
}

fn content(seed: u64) -> Vec<u8> {
    noise(3_000_000, seed)
}

/// A pool `tank` of these vdevs, with files.
fn furnished(vdevs: &[&str]) -> Lab {
    let lab = Lab::new();
    lab.pool(&[&["create", "-m", "none", "tank"], vdevs].concat());
    lab.fs(&["create", "-o", "compression=off", "tank/home"]);
    for seed in 0..6 {
        fs::write(lab.path("file"), content(seed)).unwrap();
        lab.fs(&["cp", "file", &format!("tank/home:/{seed}")]);
    }
    lab.pool(&["sync", "tank"]);
    lab
}

/// Asserts that all files are in the pool, unchanged.
fn holds_all(lab: &Lab) {
    for seed in 0..6 {
        assert!(lab.fs_bytes(&["cat", &format!("tank/home:/{seed}")]) == content(seed), "file {seed}");
    }
}

#[test]
fn a_disk_leaves_and_is_free_for_another_pool() {
    let (lab, _filters) = (furnished(&["100M:a.img", "100M:b.img"]), filters().bind_to_scope());
    assert_snapshot!(lab.session(&["pool remove -n tank b.img", "pool remove -w tank b.img", "pool status tank"]), @r"
    $ pool remove -n tank b.img
    [SIZE] would be moved off [LAB]/b.img
    [COUNT] empty regions of 1M needed elsewhere, [COUNT] available
    [exit 0]
    $ pool remove -w tank b.img
    [exit 0]
    $ pool status tank
      pool: tank
     state: ONLINE
    remove: Removal of vdev 1 copied [SIZE] in [TIME], completed on [DATE]
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    holds_all(&lab);
    lab.pool(&["create", "-m", "none", "other", "b.img"]);
    lab.pool(&["export", "other"]);
    lab.pool(&["export", "tank"]);
    fs::remove_file(lab.path("b.img")).unwrap();
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    holds_all(&lab);
    lab.check("tank");
}

#[test]
fn removal_refuses_a_missing_device_and_reports_lack_of_space() {
    let lab = furnished(&["100M:a.img", "100M:b.img", "100M:c.img"]);
    let _filters = filters().bind_to_scope();
    fs::write(lab.path("file"), noise(110_000_000, 9)).unwrap();
    lab.fs(&["cp", "file", "tank/home:/large"]);
    lab.pool(&["sync", "tank"]);
    assert_snapshot!(lab.session(&["pool remove tank c.img d.img", "pool remove -n tank b.img c.img"]), @r"
    $ pool remove tank c.img d.img
    pool: cannot remove '[LAB]/d.img': no such device in pool
      to list the devices: pool status tank
    [exit 1]
    $ pool remove -n tank b.img c.img
    [SIZE] would be moved off [LAB]/b.img
    [COUNT] empty regions of 1M needed elsewhere, [COUNT] available
    [SIZE] would be moved off [LAB]/c.img
    [COUNT] empty regions of 1M needed elsewhere, [COUNT] available
    [exit 0]
    ");
    for name in ["a.img", "b.img", "c.img"] {
        assert!(lab.pool(&["status", "tank"]).contains(name));
    }
    fs::write(lab.path("file"), noise(70_000_000, 10)).unwrap();
    lab.fs(&["cp", "file", "tank/home:/larger"]);
    lab.pool(&["sync", "tank"]);
    assert_snapshot!(lab.session(&["pool remove -n tank b.img"]), @r"
    $ pool remove -n tank b.img
    [SIZE] would be moved off [LAB]/b.img
    [COUNT] empty regions of 1M needed elsewhere, [COUNT] available: too few
    [exit 1]
    ");
}

#[test]
fn what_cannot_be_removed_is_refused_with_the_reason() {
    let lab = furnished(&["mirror", "100M:a.img", "100M:b.img", "mirror", "100M:c.img", "100M:d.img"]);
    let _filters = filters().bind_to_scope();
    assert_snapshot!(
        lab.session(&[
            "pool remove tank c.img",
            "pool remove tank mirror-7",
            "pool remove -s tank",
            "pool remove -w tank mirror-0",
            "pool remove tank mirror-1",
            "pool list -H -o name,health",
        ]),
        @r"
        $ pool remove tank c.img
        pool: cannot remove '[LAB]/c.img': [LAB]/c.img is a device of mirror-1: only a whole vdev can be removed, such as 'mirror-1'; pool detach takes a device out of its mirror
        [exit 1]
        $ pool remove tank mirror-7
        pool: cannot remove 'mirror-7': no such device in pool
          to list the devices: pool status tank
        [exit 1]
        $ pool remove -s tank
        pool: cannot stop the removal of a vdev from 'tank': no removal is in progress
        [exit 1]
        $ pool remove -w tank mirror-0
        [exit 0]
        $ pool remove tank mirror-1
        pool: cannot remove 'mirror-1': it is the only vdev of the pool
        [exit 1]
        $ pool list -H -o name,health
        tank	ONLINE
        [exit 0]
        "
    );
    holds_all(&lab);
    lab.check("tank");
}

#[test]
fn without_enough_room_nothing_is_moved() {
    let lab = furnished(&["80M:a.img", "200M:b.img"]);
    let _filters = filters().bind_to_scope();
    for seed in 6..50 {
        fs::write(lab.path("file"), content(seed)).unwrap();
        lab.fs(&["cp", "file", &format!("tank/home:/{seed}")]);
    }
    assert_snapshot!(lab.session(&["pool remove tank b.img", "pool list -H -o name,health"]), @r"
    $ pool remove tank b.img
    pool: cannot remove '[LAB]/b.img': its data needs [COUNT] empty regions of 1M on other vdevs, and [COUNT] are available
      free some space, or add a device: pool add
    [exit 1]
    $ pool list -H -o name,health
    tank	ONLINE
    [exit 0]
    ");
    holds_all(&lab);
}

/// Writes file after file into a folder and reads old files, until `done` is set.
fn use_folder(folder: &Path, done: &AtomicBool, count: &AtomicU64) {
    for number in 0.. {
        let file = |number: u64| folder.join(format!("file-{number}"));
        let content = |number: u64| noise(40_000 + number as usize % 7 * 30_000, number);
        fs::write(file(number), content(number)).unwrap();
        count.store(number + 1, Ordering::Release);
        assert!(fs::read(file(number / 2)).unwrap() == content(number / 2), "file {}", number / 2);
        if done.load(Ordering::Acquire) || number > 400 {
            return;
        }
    }
}

#[test]
fn the_registry_forgets_a_disk_removed_without_a_waiter() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new();
    lab.pool(&["create", "-m", &lab.at("mnt/tank"), "tank", "100M:a.img", "100M:b.img"]);
    let known = || fs::read_to_string(lab.path("state/pools/tank.json")).unwrap();
    assert!(known().contains("b.img"));
    lab.pool(&["remove", "tank", "b.img"]);
    wait_until("it has left", || lab.pool(&["status", "tank"]).contains("remove: Removal of vdev 1 copied"));
    wait_until("the registry knows", || !known().contains("b.img"));
    assert!(known().contains("a.img"));
}

#[test]
fn files_are_used_while_a_disk_leaves() {
    if !can_mount() {
        return;
    }
    let (lab, _filters) = (Lab::new(), filters().bind_to_scope());
    let mountpoint = lab.at("mnt/tank");
    lab.pool(&["create", "-m", &mountpoint, "tank", "300M:a.img", "300M:b.img"]);
    let (folder, done, count) = (lab.mount("tank"), AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let user = scope.spawn(|| use_folder(&folder, &done, &count));
        wait_until("there is something", || count.load(Ordering::Acquire) > 20);
        lab.fs(&["snapshot", "tank@before"]);
        lab.pool(&["remove", "tank", "b.img"]);
        lab.fs(&["snapshot", "tank@after"]);
        wait_until("it has left", || lab.pool(&["status", "tank"]).contains("remove: Removal of vdev 1 copied"));
        done.store(true, Ordering::Release);
        user.join().unwrap();
    });
    for number in 0..count.load(Ordering::Acquire) {
        let found = fs::read(folder.join(format!("file-{number}"))).unwrap();
        assert!(found == noise(40_000 + number as usize % 7 * 30_000, number), "file {number}");
    }
    lab.pool(&["scrub", "-w", "tank"]);
    let status = lab.pool(&["status", "tank"]);
    assert!(status.contains("with 0 errors") && !status.contains("b.img"), "{status}");
    lab.check("tank");
}
