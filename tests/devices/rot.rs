//! Rot on one device is repaired; rot on all devices is named.

use std::fs;

use insta::assert_snapshot;

use crate::{
    content, create, filters, holds,
    lab::{self, Lab},
    put, rot,
};

#[test]
fn rot_on_one_device_is_repaired_and_rot_on_all_is_named() {
    if !lab::can_mount() {
        return;
    }
    let (lab, mut filters) = (Lab::new(), filters());
    filters.add_filter(r"ONLINE  0  0  [1-9]\d*", "ONLINE  0  0  [CKSUM]");
    let _filters = filters.bind_to_scope();
    create(&lab, &["mirror", "80M:a.img", "80M:b.img"]);
    (1..=2).for_each(|seed| put(&lab, seed));
    lab.pool(&["export", "tank"]);
    rot(&lab, "a.img", &content(1));
    lab.pool(&["import", "-d", ".", "tank"]);
    lab.pool(&["scrub", "-w", "tank"]);
    assert_snapshot!(lab.session(&["pool status -v tank"]), @r"
    $ pool status -v tank
      pool: tank
     state: ONLINE
    status: One or more devices had errors since the pool was imported.
    	No data is lost.
    action: Clear the errors: pool clear tank
    	If the errors return, replace the device: pool replace tank DEVICE NEW
      scan: scrub repaired [SIZE] in [TIME] with 0 errors on [DATE]
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  mirror-0  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  [CKSUM]
    	  [LAB]/b.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    lab.pool(&["clear", "tank"]);
    lab.pool(&["export", "tank"]);
    ["a.img", "b.img"].iter().for_each(|image| rot(&lab, image, &content(2)));
    lab.pool(&["import", "-d", ".", "tank"]);
    lab.run("pool", &["scrub", "-w", "tank"]).fails(3);
    let mut more = insta::Settings::clone_current();
    more.add_filter(r"with \d+ errors", "with [N] errors");
    more.bind(|| {
        assert_snapshot!(lab.session(&["pool status tank", "pool status -v tank"]), @r"
    $ pool status tank
      pool: tank
     state: ONLINE
    status: Some files have unrecoverable errors.
    action: Restore the files from a backup, or delete them.
    	Then: pool scrub tank
      scan: scrub repaired [SIZE] in [TIME] with [N] errors on [DATE]
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  mirror-0  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  [CKSUM]
    	  [LAB]/b.img  ONLINE  0  0  [CKSUM]

    errors: 1 data errors, use '-v' for a list
    [exit 0]
    $ pool status -v tank
      pool: tank
     state: ONLINE
    status: Some files have unrecoverable errors.
    action: Restore the files from a backup, or delete them.
    	Then: pool scrub tank
      scan: scrub repaired [SIZE] in [TIME] with [N] errors on [DATE]
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  mirror-0  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  [CKSUM]
    	  [LAB]/b.img  ONLINE  0  0  [CKSUM]

    errors: Permanent errors have been detected in the following files:

      tank:/2
    [exit 0]
    ")
    });
    holds(&lab, 1..=1);
    assert!(fs::read(lab.mount("tank/2")).is_err());
    fs::remove_file(lab.mount("tank/2")).unwrap();
    lab.pool(&["sync", "tank"]);
    lab.pool(&["scrub", "-w", "tank"]);
    lab.pool(&["clear", "tank"]);
    assert_snapshot!(lab.session(&["pool status -v tank"]), @r"
    $ pool status -v tank
      pool: tank
     state: ONLINE
      scan: scrub repaired [SIZE] in [TIME] with 0 errors on [DATE]
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  mirror-0  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	  [LAB]/b.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    lab.check("tank");
    holds(&lab, 1..=1);
}
