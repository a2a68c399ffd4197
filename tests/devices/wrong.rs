//! A device with checksum errors: a spare replaces the device, which stays out of use until brought back online.

use std::fs;

use insta::assert_snapshot;

use crate::{
    create, export_and_check, filters, holds,
    lab::{self, Lab, noise, wait_until},
    put, rot, status,
};

/// A file with enough blocks for too many checksum errors.
fn large() -> Vec<u8> {
    noise(4 << 20, 77)
}

#[test]
fn a_device_with_checksum_errors_makes_way_for_a_spare() {
    if !lab::can_mount() {
        return;
    }
    let (lab, mut filters) = (Lab::new(), filters());
    filters.add_filter(r"(ONLINE|FAULTED)  0  0  [1-9]\d*", "$1  0  0  [CKSUM]");
    let _filters = filters.bind_to_scope();
    create(&lab, &["mirror", "80M:a.img", "80M:b.img", "spare", "80M:s.img"]);
    fs::write(lab.mount("tank/large"), large()).unwrap();
    put(&lab, 1);
    lab.pool(&["export", "tank"]);
    rot(&lab, "b.img", &large());
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    assert_snapshot!(lab.session(&["pool scrub -w tank"]), @r"
    $ pool scrub -w tank
    [exit 0]
    ");
    wait_until("the device is out of use", || status(&lab).contains("too many errors"));
    assert_snapshot!(status(&lab), @r"
    $ pool status tank
      pool: tank
     state: DEGRADED
    status: One or more devices are faulted in response to persistent errors.
    	Sufficient replicas exist; the pool continues in a degraded state.
    action: Replace the device: pool replace tank DEVICE NEW
    	If it was repaired: pool clear tank
      scan: resilvered [SIZE] in [TIME] with 0 errors on [DATE]
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  DEGRADED  0  0  0
    	  mirror-0  DEGRADED  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	  spare-1  DEGRADED  0  0  0
    	  [LAB]/b.img  FAULTED  0  0  [CKSUM]  (too many errors)
    	  [LAB]/s.img  ONLINE  0  0  0
    	spares
    	  [LAB]/s.img  INUSE  currently in use

    errors: No known data errors
    [exit 0]
    ");
    // The spare was complete before the device was faulted.
    let events = lab.pool(&["events", "tank"]);
    let at = |class: &str| events.find(class).unwrap_or_else(|| panic!("{class}: {events}"));
    assert!(at("resilver_finish") < at("statechange"), "{events}");
    lab.pool(&["export", "tank"]);
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    put(&lab, 2);
    assert_snapshot!(status(&lab), @r"
    $ pool status tank
      pool: tank
     state: DEGRADED
    status: One or more devices are faulted in response to persistent errors.
    	Sufficient replicas exist; the pool continues in a degraded state.
    action: Replace the device: pool replace tank DEVICE NEW
    	If it was repaired: pool clear tank
      scan: scrub repaired [SIZE] in [TIME] with 0 errors on [DATE]
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  DEGRADED  0  0  0
    	  mirror-0  DEGRADED  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	  spare-1  DEGRADED  0  0  0
    	  [LAB]/b.img  FAULTED  [READ]  [WRITE]  0  (too many errors)
    	  [LAB]/s.img  ONLINE  0  0  0
    	spares
    	  [LAB]/s.img  INUSE  currently in use

    errors: No known data errors
    [exit 0]
    ");
    assert!(fs::read(lab.mount("tank/large")).unwrap() == large());
    assert_snapshot!(lab.session(&["pool clear tank"]), @r"
    $ pool clear tank
    [exit 0]
    ");
    wait_until("the spare stands by", || {
        let status = status(&lab);
        status.contains("AVAIL") && !status.contains("(resilvering")
    });
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
    	  [LAB]/b.img  ONLINE  0  0  0
    	spares
    	  [LAB]/s.img  AVAIL

    errors: No known data errors
    [exit 0]
    ");
    // After the resilver the device alone holds everything.
    lab.pool(&["offline", "tank", "a.img"]);
    holds(&lab, 1..=2);
    assert!(fs::read(lab.mount("tank/large")).unwrap() == large());
    lab.pool(&["online", "tank", "a.img"]);
    lab.pool(&["wait", "-t", "resilver", "tank"]);
    export_and_check(&lab);
}
