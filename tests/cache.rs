//! Cache devices through the programs: adding, status, content after an import, and a pool whose cache device is
//! truncated, damaged, removed or put back in use.

mod lab;

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::FileExt,
};

use insta::{Settings, assert_snapshot};
use lab::{Lab, noise, wait_until};

const FILES: u64 = 5;
const FILE: usize = 8 << 20;

/// Replaces values that change from run to run.
fn filters() -> Settings {
    let mut settings = lab::output::filters_for_devices();
    settings.add_filter(r"process \d+", "process [PID]");
    settings
}

/// A pool with more data than the cache in memory holds, and a cache device.
fn made() -> Lab {
    let lab = Lab::new();
    lab.pool(&["create", "-m", "none", "-O", "compression=off", "tank", "200M:a.img", "cache", "100M:c.img"]);
    lab.pool(&["set", "cache_size=16M", "tank"]);
    for number in 0..FILES {
        fs::write(lab.path("file"), noise(FILE, number)).unwrap();
        lab.fs(&["cp", "file", &format!("tank:/{number}")]);
    }
    lab.pool(&["sync", "tank"]);
    lab
}

/// Reads everything, and verifies it.
fn read_all(lab: &Lab) {
    for number in 0..FILES {
        assert!(lab.fs_bytes(&["cat", &format!("tank:/{number}")]) == noise(FILE, number), "file {number}");
    }
}

/// One column of `pool list -v` for a device.
fn listed(lab: &Lab, device: &str, column: usize) -> String {
    let list = lab.pool(&["list", "-v", "-Hp", "-o", "name,allocated,health", "tank"]);
    let line = list.lines().find(|line| line.contains(device)).unwrap_or_else(|| panic!("{device}: {list}"));
    line.split('\t').nth(column).unwrap().to_owned()
}

/// The bytes on the cache device.
fn held(lab: &Lab) -> u64 {
    listed(lab, "c.img", 1).parse().unwrap()
}

fn state(lab: &Lab) -> String {
    listed(lab, "c.img", 2)
}

/// Reads until most of the data is on the cache device.
fn warm(lab: &Lab) {
    wait_until("most of it is on the cache device", || {
        read_all(lab);
        held(lab) >= FILES * FILE as u64 / 2
    });
}

#[test]
fn a_cache_device_is_named_shown_and_leaves_at_once() {
    let _filters = filters().bind_to_scope();
    let lab = Lab::new();
    let line = "pool create -m none tank mirror 100M:a.img 100M:b.img cache 64M:c.img";
    assert_snapshot!(lab.session(&[&line.replace("create", "create -n"), line, "pool status tank"]), @r"
    $ pool create -n -m none tank mirror 100M:a.img 100M:b.img cache 64M:c.img
    would create 'tank' with the following layout:

    	tank
    	  mirror-0
    	  [LAB]/a.img
    	  [LAB]/b.img
    	cache
    	  [LAB]/c.img

    space: 98M
    mirror-0: any one device may fail; if a second device of the same vdev fails, the pool is lost
    [exit 0]
    $ pool create -m none tank mirror 100M:a.img 100M:b.img cache 64M:c.img
    [exit 0]
    $ pool status tank
      pool: tank
     state: ONLINE
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  mirror-0  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	  [LAB]/b.img  ONLINE  0  0  0
    	cache
    	  [LAB]/c.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    assert_snapshot!(lab.session(&[
        "pool list -v -o name,size,health tank",
        "pool get -H -o property,value size tank",
        "pool add -n tank cache 64M:d.img",
        "pool add tank cache 64M:d.img log 64M:e.img",
        "pool status tank",
    ]), @r"
    $ pool list -v -o name,size,health tank
    NAME  SIZE  HEALTH
    tank  98M  ONLINE
      mirror-0  98M  ONLINE
      [LAB]/a.img  -  ONLINE
      [LAB]/b.img  -  ONLINE
    cache  -  -
      [LAB]/c.img  62.5M  ONLINE
    [exit 0]
    $ pool get -H -o property,value size tank
    size	98M
    [exit 0]
    $ pool add -n tank cache 64M:d.img
    would update 'tank' to the following configuration:

    	tank
    	  mirror-0
    	  [LAB]/a.img
    	  [LAB]/b.img
    	cache
    	  [LAB]/c.img
    	  [LAB]/d.img

    space: 98M
    mirror-0: any one device may fail; if a second device of the same vdev fails, the pool is lost
    [exit 0]
    $ pool add tank cache 64M:d.img log 64M:e.img
    [exit 0]
    $ pool status tank
      pool: tank
     state: ONLINE
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  mirror-0  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	  [LAB]/b.img  ONLINE  0  0  0
    	logs
    	  [LAB]/e.img  ONLINE  0  0  0
    	cache
    	  [LAB]/c.img  ONLINE  0  0  0
    	  [LAB]/d.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    let iostat = lab.pool(&["iostat", "-vHp", "tank"]);
    let names: Vec<&str> = iostat.lines().filter_map(|line| line.split('\t').next()).collect();
    let images = ["a.img", "b.img", "e.img", "c.img", "d.img"].map(|image| lab.at(image));
    let [a, b, e, c, d] = images.each_ref().map(String::as_str);
    assert_eq!(names, ["tank", "mirror-0", a, b, "logs", e, "cache", c, d]);
    assert_snapshot!(lab.session(&[
        "pool remove -n tank c.img",
        "pool remove tank c.img",
        "pool offline tank d.img",
        "pool status tank",
        "pool online tank d.img",
        "pool add tank cache c.img",
        "pool status tank",
    ]), @r"
    $ pool remove -n tank c.img
    [LAB]/c.img would be removed at once: it holds no pool data
    [exit 0]
    $ pool remove tank c.img
    [exit 0]
    $ pool offline tank d.img
    [exit 0]
    $ pool status tank
      pool: tank
     state: ONLINE
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  mirror-0  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	  [LAB]/b.img  ONLINE  0  0  0
    	logs
    	  [LAB]/e.img  ONLINE  0  0  0
    	cache
    	  [LAB]/d.img  OFFLINE  0  0  0

    errors: No known data errors
    [exit 0]
    $ pool online tank d.img
    [exit 0]
    $ pool add tank cache c.img
    [exit 0]
    $ pool status tank
      pool: tank
     state: ONLINE
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  mirror-0  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	  [LAB]/b.img  ONLINE  0  0  0
    	logs
    	  [LAB]/e.img  ONLINE  0  0  0
    	cache
    	  [LAB]/d.img  ONLINE  0  0  0
    	  [LAB]/c.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    lab.check("tank");
}

#[test]
fn what_a_cache_device_cannot_be_is_refused() {
    let _filters = filters().bind_to_scope();
    let lab = Lab::new();
    lab.pool(&["create", "-m", "none", "tank", "100M:a.img", "cache", "64M:c.img"]);
    assert_snapshot!(lab.session(&[
        "pool add tank cache mirror 64M:d.img 64M:e.img",
        "pool add tank cache 32M:d.img",
        "pool add tank cache",
        "pool create other cache 64M:d.img",
        "pool create other c.img",
        "pool labelclear c.img",
        "pool attach tank c.img 64M:d.img",
        "pool detach tank c.img",
        "pool replace tank a.img c.img",
        "pool status tank",
    ]), @r"
    $ pool add tank cache mirror 64M:d.img 64M:e.img
    pool: cannot add to 'tank': a cache device is always a single device, and needs no redundancy
      name vdevs before the word 'cache'
    [exit 1]
    $ pool add tank cache 32M:d.img
    pool: cannot add to 'tank': [LAB]/d.img is too small: 32M, at least 64M needed
    [exit 1]
    $ pool add tank cache
    pool: cannot add to 'tank': 'cache' is followed by no device
      name the devices after the word: cache DEVICE
    [exit 1]
    $ pool create other cache 64M:d.img
    pool: cannot create 'other': a pool needs at least one device
    [exit 1]
    $ pool create other c.img
    pool: cannot create 'other': [LAB]/c.img is in use by process [PID] (pool service tank)
    [exit 1]
    $ pool labelclear c.img
    pool: cannot clear the labels of '[LAB]/c.img': it belongs to pool 'tank', which is in use by process [PID] (pool service tank)
      take the device out of the pool: pool detach tank [LAB]/c.img, or pool remove tank [LAB]/c.img
      or destroy the pool: pool destroy tank
    [exit 1]
    $ pool attach tank c.img 64M:d.img
    pool: cannot attach to '[LAB]/c.img': [LAB]/c.img is a cache device, and belongs to no vdev
    [exit 1]
    $ pool detach tank c.img
    pool: cannot detach '[LAB]/c.img': [LAB]/c.img is a cache device, and belongs to no vdev
    [exit 1]
    $ pool replace tank a.img c.img
    pool: cannot replace '[LAB]/a.img': [LAB]/c.img is already a device of the pool
      to list the devices: pool status tank
    [exit 1]
    $ pool status tank
      pool: tank
     state: ONLINE
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	cache
    	  [LAB]/c.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    lab.pool(&["destroy", "tank"]);
    lab.pool(&["create", "-m", "none", "other", "c.img"]);
}

#[test]
fn the_cache_is_warm_after_import_and_obeys_secondarycache() {
    let lab = made();
    warm(&lab);
    lab.pool(&["export", "tank"]);
    lab.pool(&["import", "-d", &lab.at("."), "tank"]);
    wait_until("it knows what it holds", || held(&lab) >= FILES * FILE as u64 / 2);
    read_all(&lab);
    let status = lab.pool(&["status", "-j", "tank"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let cache = &status["pools"]["tank"]["l2cache"][lab.at("c.img")];
    assert_eq!((cache["state"].as_str(), cache["checksum_errors"].as_str()), (Some("ONLINE"), Some("0")), "{status}");
    // With the property off, an empty cache device stays empty.
    lab.pool(&["remove", "tank", "c.img"]);
    lab.fs(&["set", "secondarycache=none", "tank"]);
    lab.pool(&["add", "tank", "cache", "c.img"]);
    (0..3).for_each(|_| read_all(&lab));
    assert_eq!(held(&lab), 0);
    lab.fs(&["set", "secondarycache=all", "tank"]);
    warm(&lab);
    // After a kill, flushed content of the cache device is found again.
    lab.kill("tank");
    lab.pool(&["import", "tank"]);
    wait_until("it knows what it holds", || held(&lab) >= FILES * FILE as u64 / 4);
    read_all(&lab);
    lab.check("tank");
}

#[test]
fn a_cache_device_that_rots_or_shrinks_in_use_costs_nothing() {
    let _filters = filters().bind_to_scope();
    let lab = made();
    lab.damages();
    warm(&lab);
    // The content of every segment, with intact headers.
    let image = OpenOptions::new().write(true).open(lab.path("c.img")).unwrap();
    let segment = 4 << 20;
    for at in (0..23).map(|number| (1 << 20) + number * segment) {
        image.write_all_at(&vec![0x5a; segment as usize - (32 << 10)], at + (32 << 10)).unwrap();
    }
    read_all(&lab);
    wait_until("it was seen", || {
        read_all(&lab);
        let status: serde_json::Value = serde_json::from_str(&lab.pool(&["status", "-j", "tank"])).unwrap();
        let errors =
            status["pools"]["tank"]["l2cache"][lab.at("c.img")]["checksum_errors"].as_str().unwrap().to_owned();
        errors.parse::<u64>().unwrap() > 0
    });
    assert_eq!(state(&lab), "ONLINE");
    lab.pool(&["clear", "tank"]);
    warm(&lab);
    // Rotten blocks that were never requested have been counted by now, too.
    lab.pool(&["clear", "tank"]);
    image.set_len(0).unwrap();
    wait_until("the cache device is faulted", || {
        read_all(&lab);
        state(&lab) != "ONLINE"
    });
    assert_snapshot!(lab.session(&["pool status tank", "pool status -x", "pool online tank c.img"]), @r"
    $ pool status tank
      pool: tank
     state: ONLINE
    status: A cache device is missing or has failed.
    	No data is lost; reads use the other devices.
    action: If the device is back: pool online tank [LAB]/c.img
    	If the device is lost: pool remove tank [LAB]/c.img
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	cache
    	  [LAB]/c.img  FAULTED  1  0  0

    errors: No known data errors
    [exit 0]
    $ pool status -x
      pool: tank
     state: ONLINE
    status: A cache device is missing or has failed.
    	No data is lost; reads use the other devices.
    action: If the device is back: pool online tank [LAB]/c.img
    	If the device is lost: pool remove tank [LAB]/c.img
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	cache
    	  [LAB]/c.img  FAULTED  1  0  0

    errors: No known data errors
    [exit 0]
    $ pool online tank c.img
    pool: cannot online '[LAB]/c.img': [LAB]/c.img is a different device; remove the cache device, then add it again
    [exit 1]
    ");
    // A new image of the same name is another device.
    fs::remove_file(lab.path("c.img")).unwrap();
    assert_snapshot!(lab.session(&["pool remove tank c.img", "pool add tank cache 100M:c.img", "pool status -x tank"]), @r"
    $ pool remove tank c.img
    [exit 0]
    $ pool add tank cache 100M:c.img
    [exit 0]
    $ pool status -x tank
    pool 'tank' is healthy
    [exit 0]
    ");
    read_all(&lab);
    lab.check("tank");
}

#[test]
fn a_missing_cache_device_comes_back_after_import() {
    let _filters = filters().bind_to_scope();
    let lab = made();
    warm(&lab);
    lab.pool(&["export", "tank"]);
    fs::create_dir(lab.path("away")).unwrap();
    fs::rename(lab.path("c.img"), lab.path("away/c.img")).unwrap();
    assert_snapshot!(lab.session(&["pool import -d .", "pool import -d . tank", "pool status tank"]), @r"
    $ pool import -d .
      pool: tank
      id: [GUID]
     state: ONLINE
    action: The pool can be imported using its name or numeric identifier.
    config:

    	tank  ONLINE
    	  [LAB]/a.img  ONLINE
    	cache
    	  [LAB]/c.img  UNAVAIL
    [exit 0]
    $ pool import -d . tank
    [exit 0]
    $ pool status tank
      pool: tank
     state: ONLINE
    status: A cache device is missing or has failed.
    	No data is lost; reads use the other devices.
    action: If the device is back: pool online tank [LAB]/c.img
    	If the device is lost: pool remove tank [LAB]/c.img
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	cache
    	  [LAB]/c.img  UNAVAIL  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    read_all(&lab);
    fs::rename(lab.path("away/c.img"), lab.path("c.img")).unwrap();
    assert_snapshot!(lab.session(&["pool online tank c.img", "pool status tank"]), @r"
    $ pool online tank c.img
    [exit 0]
    $ pool status tank
      pool: tank
     state: ONLINE
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	cache
    	  [LAB]/c.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    wait_until("it knows what it holds", || held(&lab) > 0);
    read_all(&lab);
    lab.pool(&["export", "tank"]);
    // First truncated, then a device of another pool.
    OpenOptions::new().write(true).open(lab.path("c.img")).unwrap().set_len(70 << 20).unwrap();
    lab.pool(&["import", "-d", &lab.at("."), "tank"]);
    assert_eq!(state(&lab), "UNAVAIL");
    read_all(&lab);
    lab.pool(&["export", "tank"]);
    lab.pool(&["create", "-f", "-m", "none", "other", "c.img"]);
    lab.pool(&["import", "-d", &lab.at("a.img"), "tank"]);
    assert_eq!(state(&lab), "UNAVAIL");
    read_all(&lab);
    lab.pool(&["remove", "tank", "c.img"]);
    assert!(!lab.pool(&["status", "tank"]).contains("c.img"));
    lab.pool(&["status", "other"]);
    lab.check("tank");
}
