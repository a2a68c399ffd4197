//! A spare is put in for a dead disk, and becomes available again; a new disk at a dead disk's path replaces the dead
//! disk.

use std::fs::{self, File};

use insta::assert_snapshot;

use crate::{
    create, export_and_check, filters, holds,
    lab::{Lab, wait_until},
    line, put, status,
};

#[test]
fn a_spare_is_inuse_until_the_dead_disk_is_replaced() {
    let (lab, _filters) = (Lab::new(), filters().bind_to_scope());
    let Some(disks) = lab.disks(&["b"], "100M") else { return };
    create(&lab, &["raidz1", "100M:a.img", &disks[0], "100M:c.img", "spare", "120M:s.img"]);
    put(&lab, 1);
    assert_snapshot!(lab.session(&["pool list -v -o name,size,health tank"]), @r"
    $ pool list -v -o name,size,health tank
    NAME  SIZE  HEALTH
    tank  196M  ONLINE
      raidz1-0  196M  ONLINE
      [LAB]/a.img  -  ONLINE
      [LAB]/disk/b/image  -  ONLINE
      [LAB]/c.img  -  ONLINE
    spare  -  -
      [LAB]/s.img  118M  AVAIL
    [exit 0]
    ");
    lab.pull("b");
    put(&lab, 2);
    wait_until("the spare has everything", || {
        let status = lab.pool(&["status", "tank"]);
        status.contains("INUSE") && status.contains("scan: resilvered")
    });
    assert_snapshot!(lab.session(&["pool status tank", "pool list -v -o name,size,health tank"]), @r"
    $ pool status tank
      pool: tank
     state: DEGRADED
    status: One or more devices are missing or do not respond.
    	Sufficient replicas exist; the pool continues in a degraded state.
    action: Connect the device and bring it online: pool online tank DEVICE
    	or replace it: pool replace tank DEVICE NEW
      scan: resilvered [SIZE] in [TIME] with 0 errors on [DATE]
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  DEGRADED  0  0  0
    	  raidz1-0  DEGRADED  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	  spare-1  DEGRADED  0  0  0
    	  [LAB]/disk/b/image  UNAVAIL  [READ]  [WRITE]  0
    	  [LAB]/s.img  ONLINE  0  0  0
    	  [LAB]/c.img  ONLINE  0  0  0
    	spares
    	  [LAB]/s.img  INUSE  currently in use

    errors: No known data errors
    [exit 0]
    $ pool list -v -o name,size,health tank
    NAME  SIZE  HEALTH
    tank  196M  DEGRADED
      raidz1-0  196M  DEGRADED
      [LAB]/a.img  -  ONLINE
      spare-1  -  DEGRADED
      [LAB]/disk/b/image  -  UNAVAIL
      [LAB]/s.img  -  ONLINE
      [LAB]/c.img  -  ONLINE
    spare  -  -
      [LAB]/s.img  118M  INUSE
    [exit 0]
    ");
    holds(&lab, 1..=2);
    let old = lab.disk_path("b").display().to_string();
    assert_snapshot!(lab.session(&["pool detach tank s.img"]), @r"
    $ pool detach tank s.img
    pool: cannot detach '[LAB]/s.img': no other device of raidz1-0 has all data of [LAB]/s.img: replace [LAB]/disk/b/image instead
    [exit 1]
    ");
    lab.plug("b");
    lab.pool(&["online", "tank", &old]);
    // For a moment the spare is in neither list.
    wait_until("the spare stands by", || lab.pool(&["status", "tank"]).contains("AVAIL"));
    lab.pool(&["replace", "-w", "tank", &old, "100M:d.img"]);
    assert_snapshot!(status(&lab), @r"
    $ pool status tank
      pool: tank
     state: ONLINE
      scan: resilvered [SIZE] in [TIME] with 0 errors on [DATE]
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  raidz1-0  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	  [LAB]/d.img  ONLINE  0  0  0
    	  [LAB]/c.img  ONLINE  0  0  0
    	spares
    	  [LAB]/s.img  AVAIL

    errors: No known data errors
    [exit 0]
    ");
    holds(&lab, 1..=2);
    // A new disk at a failed disk's path replaces the failed disk automatically.
    lab.pool(&["remove", "tank", "s.img"]);
    lab.pool(&[
        "replace",
        "-w",
        "tank",
        "d.img",
        &format!("100M:{}", lab.disk_path("b").with_file_name("new").display()),
    ]);
    lab.pool(&["set", "autoreplace=on", "tank"]);
    lab.pull("b");
    put(&lab, 3);
    assert!(status(&lab).contains("state: DEGRADED"));
    lab.plug("b");
    let place = lab.disk_path("b").with_file_name("new");
    fs::remove_file(&place).unwrap();
    File::create(&place).unwrap().set_len(100 << 20).unwrap();
    wait_until("it was replaced", || {
        let status = lab.pool(&["status", "tank"]);
        status.contains(" state: ONLINE") && !status.contains("replace") && !status.contains("(resilvering")
    });
    assert_snapshot!(status(&lab), @r"
    $ pool status tank
      pool: tank
     state: ONLINE
      scan: resilvered [SIZE] in [TIME] with 0 errors on [DATE]
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  raidz1-0  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	  [LAB]/disk/b/new  ONLINE  0  0  0
    	  [LAB]/c.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    holds(&lab, 1..=3);
    export_and_check(&lab);
}

#[test]
fn a_spare_is_put_in_on_demand_and_its_device_replaced() {
    let (lab, _filters) = (Lab::new(), filters().bind_to_scope());
    let Some(disks) = lab.disks(&["b"], "100M") else { return };
    create(&lab, &["raidz1", "100M:a.img", &disks[0], "100M:c.img", "spare", "100M:s.img"]);
    put(&lab, 1);
    lab.pool(&["replace", "-w", "tank", "a.img", "s.img"]);
    assert!(line(&lab, "s.img").contains("ONLINE"));
    assert_snapshot!(lab.session(&["pool replace tank c.img s.img", "pool detach tank s.img"]), @r"
    $ pool replace tank c.img s.img
    pool: cannot replace '[LAB]/c.img': the spare [LAB]/s.img is already in use
    [exit 1]
    $ pool detach tank s.img
    [exit 0]
    ");
    assert!(line(&lab, "s.img").contains("AVAIL"));
    lab.pull("b");
    put(&lab, 2);
    wait_until("the spare has everything", || {
        let status = lab.pool(&["status", "tank"]);
        status.contains("INUSE") && status.contains("scan: resilvered") && !status.contains("(resilvering")
    });
    let old = lab.disk_path("b").display().to_string();
    assert!(lab.pool(&["status", "tank"]).contains("pool replace tank DEVICE NEW"));
    lab.pool(&["replace", "-w", "tank", &old, "100M:d.img"]);
    wait_until("the spare stands by", || lab.pool(&["status", "tank"]).contains("AVAIL"));
    assert_snapshot!(status(&lab), @r"
    $ pool status tank
      pool: tank
     state: ONLINE
      scan: resilvered [SIZE] in [TIME] with 0 errors on [DATE]
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  raidz1-0  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	  [LAB]/d.img  ONLINE  0  0  0
    	  [LAB]/c.img  ONLINE  0  0  0
    	spares
    	  [LAB]/s.img  AVAIL

    errors: No known data errors
    [exit 0]
    ");
    holds(&lab, 1..=2);
    export_and_check(&lab);
}
