//! `pool status` for devices: as JSON, in exact numbers, during resilvers and moves, and the order of its messages.

use std::fs;

use insta::{Settings, assert_snapshot};
use serde_json::Value;

use crate::{
    create, filters, holds,
    lab::{self, Lab, noise, small_file_system, wait_until},
    put, rot,
};

fn json(lab: &Lab) -> Value {
    serde_json::from_str(&lab.pool(&["status", "-j", "tank"])).unwrap()
}

/// Like [`filters`], also for figures of jobs under way.
fn filters_for_progress() -> Settings {
    let mut settings = filters();
    settings
        .add_filter(r"\b[\d.]+[BKM] / [\d.]+[BKM] scanned at [\d.]+[BKMG]/s", "[SIZE] / [SIZE] scanned at [RATE]/s");
    settings.add_filter(r"\b[\d.]+[BKM] resilvered,", "[SIZE] resilvered,");
    settings.add_filter(r"\b[\d.]+[BKM] (copied out )?of [\d.]+[BKM]", "[SIZE] ${1}of [SIZE]");
    settings.add_filter(r"at [\d.]+[BKMG]/s([, ])", "at [RATE]/s$1");
    settings.add_filter(r"\b\d+\.\d\d%", "[SHARE]%");
    settings
        .add_filter(r"(\d\d:\d\d:\d\d|\d+h\d+m) to go|no estimated (completion )?time|no estimate yet", "[TIME] to go");
    settings.add_filter(r"with [1-9]\d* errors", "with [N] errors");
    settings
}

#[test]
fn status_of_a_degraded_raidz_equals_its_json() {
    if !lab::can_mount() {
        return;
    }
    let (lab, mut filters) = (Lab::new(), filters_for_progress());
    filters.add_filter(r"ONLINE  0  0  [1-9]\d*", "ONLINE  0  0  [CKSUM]");
    filters.add_filter(r#""(txg|\w+_time|seconds|to_examine|examined|repaired|processed|\w*bytes_per_scan|issued|pass_start|alloc_space)": "\d+""#, r#""$1": "[N]""#);
    filters.add_filter(r#""(checksum_errors|errors)": "[1-9]\d*""#, r#""$1": "[COUNT]""#);
    filters.add_filter(r"had \d+ errors?", "had [COUNT] errors");
    filters.add_filter(r#""transports": \{[^}]*\}"#, r#""transports": {}"#);
    let _filters = filters.bind_to_scope();
    create(&lab, &["raidz1", "80M:a.img", "80M:b.img", "80M:c.img", "log", "64M:l.img", "spare", "80M:s.img"]);
    (1..=2).for_each(|seed| put(&lab, seed));
    // No spare is put in for an offline device.
    lab.pool(&["offline", "tank", "c.img"]);
    assert_snapshot!(lab.session(&["pool status tank"]), @r"
    $ pool status tank
      pool: tank
     state: DEGRADED
    status: One or more devices have been taken offline by the administrator.
    	Sufficient replicas exist; the pool continues in a degraded state.
    action: Bring the device online: pool online tank DEVICE
    	or replace it: pool replace tank DEVICE NEW
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  DEGRADED  0  0  0
    	  raidz1-0  DEGRADED  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	  [LAB]/b.img  ONLINE  0  0  0
    	  [LAB]/c.img  OFFLINE  0  0  0
    	logs
    	  [LAB]/l.img  ONLINE  0  0  0
    	spares
    	  [LAB]/s.img  AVAIL

    errors: No known data errors
    [exit 0]
    ");
    lab.pool(&["export", "tank"]);
    rot(&lab, "a.img", &crate::content(2));
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    lab.run("pool", &["scrub", "-w", "tank"]).fails(3);
    // Existing losses are mentioned before possible losses, which the devices' states show.
    assert_snapshot!(lab.session(&["pool status -v tank", "pool status --json tank"]), @r#"
    $ pool status -v tank
      pool: tank
     state: DEGRADED
    status: Some files have unrecoverable errors.
    action: Restore the files from a backup, or delete them.
    	Then: pool scrub tank
      scan: scrub repaired [SIZE] in [TIME] with [N] errors on [DATE]
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  DEGRADED  0  0  0
    	  raidz1-0  DEGRADED  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  [CKSUM]
    	  [LAB]/b.img  ONLINE  0  0  [CKSUM]
    	  [LAB]/c.img  OFFLINE  0  0  0
    	logs
    	  [LAB]/l.img  ONLINE  0  0  0
    	spares
    	  [LAB]/s.img  AVAIL

    errors: Permanent errors have been detected in the following files:

      tank:/2
    [exit 0]
    $ pool status --json tank
    {
      "output_version": {
      "command": "pool status",
      "vers_major": 0,
      "vers_minor": 1
      },
      "pools": {
      "tank": {
      "name": "tank",
      "state": "DEGRADED",
      "pool_guid": "[GUID]",
      "txg": "[N]",
      "status": "Some files have unrecoverable errors.",
      "action": "Restore the files from a backup, or delete them.\nThen: pool scrub tank",
      "alerts": [
      {
      "class": "data_damaged",
      "severity": "critical",
      "subject": null,
      "problem": "Some files have unrecoverable errors.",
      "action": "Restore the files from a backup, or delete them.\nThen: pool scrub tank"
      },
      {
      "class": "device_offline",
      "severity": "warning",
      "subject": null,
      "problem": "One or more devices have been taken offline by the administrator.\nSufficient replicas exist; the pool continues in a degraded state.",
      "action": "Bring the device online: pool online tank DEVICE\nor replace it: pool replace tank DEVICE NEW"
      },
      {
      "class": "device_errors",
      "severity": "warning",
      "subject": "[LAB]/a.img",
      "problem": "[LAB]/a.img had [COUNT] errors since the pool was imported.",
      "action": "Check the devices, and verify the pool: pool scrub tank\nThen clear the errors: pool clear tank"
      },
      {
      "class": "device_errors",
      "severity": "warning",
      "subject": "[LAB]/b.img",
      "problem": "[LAB]/b.img had [COUNT] errors since the pool was imported.",
      "action": "Check the devices, and verify the pool: pool scrub tank\nThen clear the errors: pool clear tank"
      }
      ],
      "transports": {},
      "spa_version": "5000",
      "zpl_version": "5",
      "scan_stats": {
      "function": "SCRUB",
      "state": "FINISHED",
      "paused": false,
      "start_time": "[N]",
      "end_time": "[N]",
      "seconds": "[N]",
      "limit": null,
      "to_examine": "[N]",
      "examined": "[N]",
      "repaired": "[N]",
      "errors": "[COUNT]",
      "skipped": "0",
      "processed": "[N]",
      "bytes_per_scan": "[N]",
      "issued_bytes_per_scan": "[N]",
      "issued": "[N]",
      "pass_start": "[N]"
      },
      "vdevs": {
      "tank": {
      "name": "tank",
      "vdev_type": "root",
      "guid": "[GUID]",
      "class": "normal",
      "state": "DEGRADED",
      "total_space": "163577856",
      "alloc_space": "[N]",
      "read_errors": "0",
      "write_errors": "0",
      "checksum_errors": "0",
      "vdevs": {
      "raidz1-0": {
      "name": "raidz1-0",
      "vdev_type": "raidz",
      "guid": "[GUID]",
      "class": "normal",
      "state": "DEGRADED",
      "total_space": "163577856",
      "alloc_space": "[N]",
      "read_errors": "0",
      "write_errors": "0",
      "checksum_errors": "0",
      "vdevs": {
      "[LAB]/a.img": {
      "name": "[LAB]/a.img",
      "vdev_type": "file",
      "guid": "[GUID]",
      "path": "[LAB]/a.img",
      "class": "normal",
      "state": "ONLINE",
      "total_space": "163577856",
      "alloc_space": "[N]",
      "read_errors": "0",
      "write_errors": "0",
      "checksum_errors": "[COUNT]",
      "slow_ios": "0"
      },
      "[LAB]/b.img": {
      "name": "[LAB]/b.img",
      "vdev_type": "file",
      "guid": "[GUID]",
      "path": "[LAB]/b.img",
      "class": "normal",
      "state": "ONLINE",
      "total_space": "163577856",
      "alloc_space": "[N]",
      "read_errors": "0",
      "write_errors": "0",
      "checksum_errors": "[COUNT]",
      "slow_ios": "0"
      },
      "[LAB]/c.img": {
      "name": "[LAB]/c.img",
      "vdev_type": "file",
      "guid": "[GUID]",
      "path": "[LAB]/c.img",
      "class": "normal",
      "state": "OFFLINE",
      "total_space": "163577856",
      "alloc_space": "[N]",
      "read_errors": "0",
      "write_errors": "0",
      "checksum_errors": "0",
      "slow_ios": "0"
      }
      }
      }
      }
      }
      },
      "spares": {
      "[LAB]/s.img": {
      "name": "[LAB]/s.img",
      "vdev_type": "file",
      "guid": "[GUID]",
      "path": "[LAB]/s.img",
      "class": "spare",
      "state": "AVAIL"
      }
      },
      "error_count": "1",
      "errlist": [
      "tank:/2"
      ],
      "unexamined_count": "0",
      "logs": {
      "[LAB]/l.img": {
      "name": "[LAB]/l.img",
      "vdev_type": "file",
      "guid": "[GUID]",
      "path": "[LAB]/l.img",
      "class": "log",
      "state": "ONLINE",
      "total_space": "65011712",
      "alloc_space": "[N]",
      "read_errors": "0",
      "write_errors": "0",
      "checksum_errors": "0",
      "slow_ios": "0"
      }
      }
      }
      }
    }
    [exit 0]
    "#);
    fs::remove_file(lab.mount("tank/2")).unwrap();
    lab.pool(&["sync", "tank"]);
    lab.pool(&["online", "tank", "c.img"]);
    lab.pool(&["wait", "-t", "resilver", "tank"]);
    lab.pool(&["scrub", "-w", "tank"]);
    lab.pool(&["clear", "tank"]);
    let of = &json(&lab)["pools"]["tank"];
    assert_eq!(
        [&of["state"], &of["status"], &of["action"]],
        [&Value::from("ONLINE"), &Value::Null, &Value::Null],
        "{of}"
    );
    assert_eq!([&of["error_count"], &of["scan_stats"]["errors"]], ["0", "0"], "{of}");
    assert!(of["errlist"].as_array().unwrap().is_empty(), "{of}");
    holds(&lab, 1..=1);
}

#[test]
fn a_device_that_refuses_writes_counts_write_errors_only() {
    if !lab::can_mount() {
        return;
    }
    let lab = Lab::new();
    lab.damages();
    if !small_file_system(&lab.path("small"), "12m") {
        return;
    }
    let on_small = lab.at("small/b.img");
    create(&lab, &["mirror", "100M:a.img", &format!("100M:{on_small}")]);
    // The file system below the image runs full.
    fs::write(lab.mount("tank/large"), noise(20 << 20, 5)).unwrap();
    wait_until("the device has died", || {
        lab.pool(&["sync", "tank"]);
        lab.pool(&["status", "tank"]).contains("state: DEGRADED")
    });
    let device = || json(&lab)["pools"]["tank"]["vdevs"]["tank"]["vdevs"]["mirror-0"]["vdevs"][&on_small].clone();
    // Requests from before its death fail later.
    let (mut before, mut status) = (device(), String::new());
    wait_until("it has been told of all requests", || {
        status = lab.pool(&["status", "-p", "tank"]);
        let after = device();
        std::mem::replace(&mut before, after.clone()) == after
    });
    let device = before;
    let number = |name: &str| device[name].as_str().unwrap().parse::<u64>().unwrap();
    assert_eq!([number("read_errors"), number("checksum_errors")], [0, 0], "{device}");
    assert!(number("write_errors") > 0, "{device}");
    let line = status.lines().find(|line| line.contains(&on_small)).unwrap();
    let columns: Vec<&str> = line.split_whitespace().skip(1).take(4).collect();
    let state = device["state"].as_str().unwrap();
    assert_eq!(columns, [state, "0", &number("write_errors").to_string(), "0"], "{status}");
    assert_eq!(fs::read(lab.mount("tank/large")).unwrap().len(), 20 << 20);
}

/// Starts a replacement and returns the status during the resilver; `None` if the resilver was too fast.
fn while_resilvered(lab: &Lab, old: &str, new: &str) -> Option<String> {
    lab.pool(&["replace", "tank", old, &format!("500M:{new}")]);
    let mut shown = String::new();
    wait_until("the resilver is seen or over", || {
        shown = lab.session(&["pool status tank"]);
        !shown.contains("(resilvering, ") || shown.contains("resilver in progress")
    });
    lab.pool(&["wait", "-t", "replace,resilver", "tank"]);
    fs::remove_file(lab.path(old)).unwrap();
    shown.contains("(resilvering, ").then_some(shown)
}

#[test]
fn status_shows_a_resilver_and_its_device_while_it_runs() {
    let (lab, _filters) = (Lab::new(), filters_for_progress().bind_to_scope());
    lab.pool(&[
        "create",
        "-O",
        "compression=off",
        "-m",
        "none",
        "tank",
        "raidz1",
        "500M:a.img",
        "500M:b.img",
        "500M:c.img",
    ]);
    let grow = |number: u64| {
        fs::write(lab.path("file"), noise(24 << (20 + number.min(4)), number)).unwrap();
        lab.fs(&["cp", "file", &format!("tank:/{number}")]);
        lab.pool(&["sync", "tank"]);
    };
    grow(1);
    // Two devices replace each other in turn; after each resilver too fast to be seen, the data is doubled.
    let attempt = |number: u64| {
        let [old, new] = if number.is_multiple_of(2) { ["b.img", "d.img"] } else { ["d.img", "b.img"] };
        let shown = while_resilvered(&lab, old, new);
        shown.is_none().then(|| grow(number + 2));
        shown.map(|shown| shown.replace("b.img", "[ONE]").replace("d.img", "[OTHER]"))
    };
    let shown = (0..5).find_map(attempt).expect("a resilver is slow enough to be seen");
    assert_snapshot!(shown, @r"
    $ pool status tank
      pool: tank
     state: ONLINE
    status: One or more devices are being resilvered. The pool stays online.
    action: Wait for the resilver to complete.
      scan: resilver in progress since [DATE]
    	[SIZE] / [SIZE] scanned at [RATE]/s
    	[SIZE] resilvered, [SHARE]% done, [TIME] to go
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  raidz1-0  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	  [LAB]/[ONE]  ONLINE  [READ]  [WRITE]  0  (being replaced)
    	  [LAB]/[OTHER]  ONLINE  0  0  0  (resilvering, replaces [LAB]/[ONE])
    	  [LAB]/c.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    let status = lab.pool(&["status", "tank"]);
    assert!(status.contains("state: ONLINE") && status.contains("scan: resilvered"), "{status}");
    assert!(lab.fs_bytes(&["cat", "tank:/1"]) == noise(24 << 21, 1));
}

/// The status, as soon as it contains `part`.
fn when_shown(lab: &Lab, part: &str) -> String {
    let mut shown = String::new();
    wait_until(part, || {
        shown = lab.session(&["pool status tank"]);
        shown.contains(part)
    });
    shown
}

#[test]
fn what_moves_is_shown_as_long_as_it_goes_on() {
    let (lab, _filters) = (Lab::new(), filters_for_progress().bind_to_scope());
    let fill = || {
        fs::write(lab.path("file"), noise(12 << 20, 3)).unwrap();
        lab.fs(&["cp", "file", "tank:/file"]);
        lab.pool(&["sync", "tank"]);
    };
    lab.pool(&["create", "-O", "compression=off", "-m", "none", "tank", "80M:a.img"]);
    fill();
    lab.pool(&["add", "tank", "80M:b.img"]);
    lab.pool(&["rebalance", "--limit", "100K", "tank"]);
    assert_snapshot!(when_shown(&lab, "% done"), @r"
    $ pool status tank
      pool: tank
     state: ONLINE
    rebalance: in progress since [DATE]
    	[SIZE] copied out of [SIZE] at [RATE]/s, [SHARE]% done, [TIME] to go
    	limited to 100K/s
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	  [LAB]/b.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    lab.pool(&["rebalance", "-s", "tank"]);
    lab.pool(&["remove", "--limit", "100K", "tank", "a.img"]);
    assert_snapshot!(when_shown(&lab, "% done"), @r"
    $ pool status tank
      pool: tank
     state: ONLINE
    remove: Evacuation of [LAB]/a.img in progress since [DATE]
    	[SIZE] copied out of [SIZE] at [RATE]/s, [SHARE]% done, [TIME] to go
    	limited to 100K/s
    rebalance: canceled on [DATE]
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0  (removing)
    	  [LAB]/b.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    lab.pool(&["remove", "-s", "tank"]);
    assert!(lab.fs_bytes(&["cat", "tank:/file"]) == noise(12 << 20, 3));
    lab.pool(&["destroy", "tank"]);
    lab.pool(&[
        "create",
        "-O",
        "compression=off",
        "-m",
        "none",
        "tank",
        "raidz1",
        "80M:c.img",
        "80M:d.img",
        "80M:e.img",
    ]);
    fill();
    lab.pool(&["attach", "--limit", "100K", "tank", "raidz1-0", "80M:f.img"]);
    assert_snapshot!(when_shown(&lab, "copied at"), @r"
    $ pool status tank
      pool: tank
     state: ONLINE
    expand: expansion of raidz1-0 in progress
    	[SHARE]% of its rows use all 4 devices
    	[SIZE] of [SIZE] copied at [RATE]/s for the next rows, [TIME] to go
    	limited to 100K/s
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  raidz1-0  ONLINE  0  0  0
    	  [LAB]/c.img  ONLINE  0  0  0
    	  [LAB]/d.img  ONLINE  0  0  0
    	  [LAB]/e.img  ONLINE  0  0  0
    	  [LAB]/f.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    lab.pool(&["attach", "--limit", "1G", "-w", "tank", "raidz1-0"]);
    assert!(!lab.pool(&["status", "tank"]).contains("expand:"));
    assert!(lab.fs_bytes(&["cat", "tank:/file"]) == noise(12 << 20, 3));
}
