//! A disk of a mirrored log dies, and then the whole log is lost.

use std::fs;

use insta::assert_snapshot;

use crate::{create, export_and_check, filters, holds, lab::Lab, put, status};

#[test]
fn a_log_mirror_replaces_a_disk_and_a_lost_log_degrades() {
    let (lab, _filters) = (Lab::new(), filters().bind_to_scope());
    let Some(disks) = lab.disks(&["b"], "64M") else { return };
    create(&lab, &["100M:a.img", "log", "mirror", "64M:l.img", &disks[0]]);
    put(&lab, 1);
    lab.pull("b");
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
    	  [LAB]/a.img  ONLINE  0  0  0
    	logs
    	  mirror-1  DEGRADED  0  0  0
    	  [LAB]/l.img  ONLINE  0  0  0
    	  [LAB]/disk/b/image  UNAVAIL  [READ]  [WRITE]  0

    errors: No known data errors
    [exit 0]
    ");
    lab.pool(&["replace", "-w", "tank", &lab.disk_path("b").display().to_string(), "64M:m.img"]);
    assert_snapshot!(status(&lab), @r"
    $ pool status tank
      pool: tank
     state: ONLINE
      scan: resilvered [SIZE] in [TIME] with 0 errors on [DATE]
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	logs
    	  mirror-1  ONLINE  0  0  0
    	  [LAB]/l.img  ONLINE  0  0  0
    	  [LAB]/m.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    put(&lab, 3);
    lab.pool(&["export", "tank"]);
    fs::create_dir(lab.path("away")).unwrap();
    ["l.img", "m.img"].iter().for_each(|image| fs::rename(lab.path(image), lab.path("away").join(image)).unwrap());
    assert_snapshot!(lab.session(&["pool import -d .", "pool import -d . tank", "pool import -m -d . tank", "pool status tank"]), @r"
    $ pool import -d .
      pool: tank
      id: [GUID]
     state: DEGRADED
    status: Devices of the intent log are missing from the system.
    action: Connect the devices and import the pool, or use the '-m' flag, which discards
    	synchronous writes since the last commit.
    config:

    	tank  DEGRADED
    	  [LAB]/a.img  ONLINE
    	logs
    	  mirror-1  UNAVAIL
    	  [LAB]/l.img  UNAVAIL
    	  [LAB]/m.img  UNAVAIL
    [exit 0]
    $ pool import -d . tank
    pool: cannot open 'tank': the intent log of pool tank is on [LAB]/l.img and [LAB]/m.img, which are missing
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
    	  [LAB]/a.img  ONLINE  0  0  0
    	logs
    	  mirror-1  UNAVAIL  [READ]  [WRITE]  0
    	  [LAB]/l.img  UNAVAIL  [READ]  [WRITE]  0
    	  [LAB]/m.img  UNAVAIL  [READ]  [WRITE]  0

    errors: No known data errors
    [exit 0]
    ");
    holds(&lab, 1..=3);
    lab.pool(&["remove", "-w", "tank", "mirror-1"]);
    assert!(lab.pool(&["status", "-x", "tank"]).contains("is healthy"));
    put(&lab, 4);
    export_and_check(&lab);
}
