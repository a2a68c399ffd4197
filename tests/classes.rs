//! Vdevs of a class, through the programs: their names, `pool status`, the effect of their loss, and removal.

mod lab;

use std::fs;

use insta::{Settings, assert_snapshot};
use lab::{Lab, noise};

/// Replaces values that change from run to run.
fn filters() -> Settings {
    let mut settings = lab::output::filters_for_devices();
    settings.add_filter(r"copied [\d.]+[BKM]? in \d+h\d+m", "copied [SIZE] in [TIME]");
    settings.add_filter(r"\(guid \d+\)", "(guid [GUID])");
    settings
}

const MIRROR: [&str; 3] = ["mirror", "100M:a.img", "100M:b.img"];

fn made(vdevs: &[&str]) -> Lab {
    let lab = Lab::new();
    lab.pool(&[&["create", "-m", "none", "tank"], vdevs].concat());
    lab
}

/// Puts a file into the pool, and commits.
fn keep(lab: &Lab, name: &str, seed: u64) {
    fs::write(lab.path("file"), noise(1_000_000, seed)).unwrap();
    lab.fs(&["cp", "file", &format!("tank:/{name}")]);
    lab.pool(&["sync", "tank"]);
}

fn has(lab: &Lab, name: &str, seed: u64) {
    assert!(lab.fs_bytes(&["cat", &format!("tank:/{name}")]) == noise(1_000_000, seed), "{name}");
}

#[test]
fn special_and_log_vdevs_are_added_shown_apart_and_removed() {
    let _filters = filters().bind_to_scope();
    let lab = Lab::new();
    let line = "pool create -m none tank mirror 100M:a.img 100M:b.img special mirror 64M:c.img 64M:d.img log 64M:e.img";
    assert_snapshot!(lab.session(&[&line.replace("create", "create -n"), line, "pool status tank"]), @r"
    $ pool create -n -m none tank mirror 100M:a.img 100M:b.img special mirror 64M:c.img 64M:d.img log 64M:e.img
    would create 'tank' with the following layout:

    	tank
    	  mirror-0
    	  [LAB]/a.img
    	  [LAB]/b.img
    	special
    	  mirror-1
    	  [LAB]/c.img
    	  [LAB]/d.img
    	logs
    	  [LAB]/e.img

    space: 160M
    mirror-0, mirror-1: any one device of each may fail; if a second device of the same vdev fails, the pool is lost
    [LAB]/e.img: no redundancy: if any device fails, synchronous writes since the last commit are lost if power fails as well
    [exit 0]
    $ pool create -m none tank mirror 100M:a.img 100M:b.img special mirror 64M:c.img 64M:d.img log 64M:e.img
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
    	special
    	  mirror-1  ONLINE  0  0  0
    	  [LAB]/c.img  ONLINE  0  0  0
    	  [LAB]/d.img  ONLINE  0  0  0
    	logs
    	  [LAB]/e.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    lab.fs(&["set", "special_small_blocks=16K", "tank"]);
    keep(&lab, "one", 1);
    assert_snapshot!(lab.session(&["pool remove -w tank e.img", "pool status tank"]), @r"
    $ pool remove -w tank e.img
    [exit 0]
    $ pool status tank
      pool: tank
     state: ONLINE
    remove: Removal of vdev 2 copied [SIZE] in [TIME], completed on [DATE]
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  mirror-0  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	  [LAB]/b.img  ONLINE  0  0  0
    	special
    	  mirror-1  ONLINE  0  0  0
    	  [LAB]/c.img  ONLINE  0  0  0
    	  [LAB]/d.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    assert_snapshot!(lab.session(&["pool remove -w tank mirror-1", "pool status tank"]), @r"
    $ pool remove -w tank mirror-1
    [exit 0]
    $ pool status tank
      pool: tank
     state: ONLINE
    remove: Removal of vdev 1 copied [SIZE] in [TIME], completed on [DATE]
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  mirror-0  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	  [LAB]/b.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    has(&lab, "one", 1);
    assert_snapshot!(lab.session(&["pool remove tank mirror-0", "pool add tank log e.img", "pool status tank"]), @r"
    $ pool remove tank mirror-0
    pool: cannot remove 'mirror-0': it is the only vdev of the pool
    [exit 1]
    $ pool add tank log e.img
    [exit 0]
    $ pool status tank
      pool: tank
     state: ONLINE
    remove: Removal of vdev 1 copied [SIZE] in [TIME], completed on [DATE]
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  mirror-0  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	  [LAB]/b.img  ONLINE  0  0  0
    	logs
    	  [LAB]/e.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    lab.check("tank");
    has(&lab, "one", 1);
}

#[test]
fn what_stands_less_than_the_pool_is_refused_unless_one_insists() {
    let _filters = filters().bind_to_scope();
    let lab = made(&MIRROR);
    assert_snapshot!(
        lab.session(&[
            "pool add tank special 64M:c.img",
            "pool add -n tank log 64M:c.img",
            "pool add tank log raidz1 64M:c.img 64M:d.img",
            "pool add -f tank special 64M:c.img",
            "pool simulate lose tank c.img",
        ]),
        @r"
        $ pool add tank special 64M:c.img
        pool: cannot add to 'tank': mismatched replication level: other vdevs tolerate the loss of 1 device, the special disk of none
          use -f to override; the pool is lost if the special vdev fails
        [exit 1]
        $ pool add -n tank log 64M:c.img
        would update 'tank' to the following configuration:

        	tank
        	  mirror-0
        	  [LAB]/a.img
        	  [LAB]/b.img
        	logs
        	  [LAB]/c.img

        space: 98M
        mirror-0: any one device may fail; if a second device of the same vdev fails, the pool is lost
        [LAB]/c.img: no redundancy: if any device fails, synchronous writes since the last commit are lost if power fails as well
        [exit 0]
        $ pool add tank log raidz1 64M:c.img 64M:d.img
        pool: cannot add to 'tank': a log is a single device or a mirror, not a raidz
        [exit 1]
        $ pool add -f tank special 64M:c.img
        [exit 0]
        $ pool simulate lose tank c.img
        [LAB]/c.img without [LAB]/c.img: lost

        the pool could not be imported without [LAB]/c.img;
        blocks with and without a remaining copy:

        NAME  BLOCKS  LOST  FILES  LOST
        <metadata>  11  6  0  0  damaged
        tank  1  0  1  0  all blocks remain
        [exit 1]
        "
    );
}

#[test]
fn a_lost_log_is_reported_and_the_pool_goes_on() {
    let _filters = filters().bind_to_scope();
    let lab = made(&[&MIRROR[..], &["log", "64M:e.img"]].concat());
    keep(&lab, "one", 1);
    assert_snapshot!(lab.session(&["pool simulate lose tank e.img"]), @r"
    $ pool simulate lose tank e.img
    [LAB]/e.img without [LAB]/e.img: lost, with synchronous writes since the last commit if power fails as well

    nothing would be lost:

    NAME  BLOCKS  LOST  FILES  LOST
    tank  -  0  -  0  survives
    [exit 0]
    ");
    lab.pool(&["export", "tank"]);
    fs::rename(lab.path("e.img"), lab.path("gone")).unwrap();
    fs::write(lab.path("gone"), b"").unwrap();
    assert_snapshot!(
        lab.session(&[
            "pool import -d . tank",
            "pool import -m -d . tank",
            "pool status tank",
            "pool online tank e.img",
            "pool remove -w tank e.img",
            "pool status tank",
        ]),
        @r"
        $ pool import -d . tank
        pool: cannot open 'tank': the intent log of pool tank is on [LAB]/e.img, which is missing
          search the directories of all devices: pool import -d DIR -d DIR tank
          if the log is lost: pool import -m tank; synchronous writes since the last commit are lost
        [exit 1]
        $ pool import -m -d . tank
        [exit 0]
        $ pool status tank
          pool: tank
         state: DEGRADED
        status: A log device is missing.
        	The pool continues with the intent log on other devices.
        action: If the device is back: pool export tank; pool import tank
        	If the device is lost: pool remove tank DEVICE
        config:

        	NAME  STATE  READ  WRITE  CKSUM
        	tank  DEGRADED  0  0  0
        	  mirror-0  ONLINE  0  0  0
        	  [LAB]/a.img  ONLINE  0  0  0
        	  [LAB]/b.img  ONLINE  0  0  0
        	logs
        	  [LAB]/e.img  UNAVAIL  0  0  0

        errors: No known data errors
        [exit 0]
        $ pool online tank e.img
        pool: cannot online '[LAB]/e.img': [LAB]/e.img belongs to a missing log vdev: if the device is back, export and import the pool; if the device is lost: pool remove
        [exit 1]
        $ pool remove -w tank e.img
        [exit 0]
        $ pool status tank
          pool: tank
         state: ONLINE
        remove: Removal of vdev 1 copied [SIZE] in [TIME], completed on [DATE]
        config:

        	NAME  STATE  READ  WRITE  CKSUM
        	tank  ONLINE  0  0  0
        	  mirror-0  ONLINE  0  0  0
        	  [LAB]/a.img  ONLINE  0  0  0
        	  [LAB]/b.img  ONLINE  0  0  0

        errors: No known data errors
        [exit 0]
        "
    );
    has(&lab, "one", 1);
    keep(&lab, "two", 2);
    lab.check("tank");
    has(&lab, "two", 2);
}

#[test]
fn a_dataset_chooses_vdevs_for_its_data() {
    let _filters = filters().bind_to_scope();
    let lab = made(&["-f", "100M:a.img", "100M:b.img", "special", "64M:c.img", "log", "64M:l.img"]);
    assert_snapshot!(
        lab.session(&[
            &format!("fs create -o vdevs={} tank/b", lab.at("b.img")),
            "fs get -H -o value,source vdevs tank/b",
            "fs set vdevs=special,disk-0 tank",
            "fs get -H -o value,source vdevs tank",
            "fs set vdevs=disk-0,mirror-1 tank",
            "fs set vdevs=disk-0,disk-3 tank",
            "fs set vdevs= tank",
            "fs inherit vdevs tank/b",
            "fs get -H -o value,source vdevs tank/b",
        ]),
        @r"
    $ fs create -o vdevs=[LAB]/b.img tank/b
    [exit 0]
    $ fs get -H -o value,source vdevs tank/b
    disk-1	local
    [exit 0]
    $ fs set vdevs=special,disk-0 tank
    [exit 0]
    $ fs get -H -o value,source vdevs tank
    special,disk-0	local
    [exit 0]
    $ fs set vdevs=disk-0,mirror-1 tank
    fs: cannot set property for 'tank': bad value 'disk-0,mirror-1' for 'vdevs': the pool has no vdev 'mirror-1'
      values: use vdev names as in pool status
    [exit 1]
    $ fs set vdevs=disk-0,disk-3 tank
    fs: cannot set property for 'tank': bad value 'disk-0,disk-3' for 'vdevs': 'disk-3' is a log vdev, which stores no data
      values: use vdev names as in pool status
    [exit 1]
    $ fs set vdevs= tank
    fs: cannot set property for 'tank': bad value '' for 'vdevs': must be any, or a comma-separated list of vdevs and special
    [exit 1]
    $ fs inherit vdevs tank/b
    [exit 0]
    $ fs get -H -o value,source vdevs tank/b
    special,disk-0	inherited from tank
    [exit 0]
    "
    );
    lab.fs(&["set", "vdevs=disk-1", "tank/b"]);
    lab.fs(&["set", "compression=off", "tank"]);
    fs::write(lab.path("file"), noise(10_000_000, 1)).unwrap();
    lab.fs(&["cp", "file", "tank/b:/file"]);
    lab.pool(&["sync", "tank"]);
    let listed = lab.pool(&["list", "-vHp", "-o", "name,allocated", "tank"]);
    let allocated = |disk: &str| -> u64 {
        let line = listed.lines().find(|line| line.contains(disk)).unwrap_or_else(|| panic!("{disk}: {listed}"));
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    assert!(allocated("b.img") >= 10_000_000 && allocated("a.img") < 2_000_000, "{listed}");
}
