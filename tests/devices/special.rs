//! A disk of a special mirror dies.

use insta::assert_snapshot;

use crate::{create, export_and_check, filters, holds, lab::Lab, put, status};

#[test]
fn a_disk_of_a_special_mirror_dies_and_is_replaced() {
    let (lab, _filters) = (Lab::new(), filters().bind_to_scope());
    let Some(disks) = lab.disks(&["b"], "64M") else { return };
    create(&lab, &["mirror", "100M:a.img", "100M:c.img", "special", "mirror", &disks[0], "64M:s.img"]);
    put(&lab, 1);
    lab.pull("b");
    put(&lab, 2);
    assert_snapshot!(lab.session(&["pool status tank", "pool list -v -o name,health tank"]), @r"
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
    	  mirror-0  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	  [LAB]/c.img  ONLINE  0  0  0
    	special
    	  mirror-1  DEGRADED  0  0  0
    	  [LAB]/disk/b/image  UNAVAIL  [READ]  [WRITE]  0
    	  [LAB]/s.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    $ pool list -v -o name,health tank
    NAME  HEALTH
    tank  DEGRADED
      mirror-0  ONLINE
      [LAB]/a.img  ONLINE
      [LAB]/c.img  ONLINE
    special  -
      mirror-1  DEGRADED
      [LAB]/disk/b/image  UNAVAIL
      [LAB]/s.img  ONLINE
    [exit 0]
    ");
    lab.pool(&["replace", "-w", "tank", &lab.disk_path("b").display().to_string(), "64M:t.img"]);
    assert_snapshot!(status(&lab), @r"
    $ pool status tank
      pool: tank
     state: ONLINE
      scan: resilvered [SIZE] in [TIME] with 0 errors on [DATE]
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  mirror-0  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	  [LAB]/c.img  ONLINE  0  0  0
    	special
    	  mirror-1  ONLINE  0  0  0
    	  [LAB]/s.img  ONLINE  0  0  0
    	  [LAB]/t.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    // The new disk makes up for the loss of the other.
    lab.pool(&["offline", "tank", "s.img"]);
    holds(&lab, 1..=2);
    lab.pool(&["online", "tank", "s.img"]);
    lab.pool(&["wait", "-t", "resilver", "tank"]);
    export_and_check(&lab);
}
