//! Pools destroyed by mistake, and ways to recover them.

use std::fs;

use insta::assert_snapshot;

use crate::{filters, furnished, lab::Lab};

#[test]
fn a_pool_that_was_destroyed_comes_back_whole() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
    lab.pool(&["destroy", "tank"]);
    assert_snapshot!(lab.session(&[
        "pool import -d .",
        "pool import -d . tank",
        "pool import -a -d .",
        "pool list",
        "pool import -D -d .",
        "pool import -D -F -n -d . tank",
        "pool import -D -d . tank",
        "pool list -H -o name,health",
        "pool import -d .",
        "pool import -D -d .",
        "pool import -D tank",
        "fs list -H -o name -t all",
    ]), @r"
    $ pool import -d .
    pool: no pools available to import
      pool 'tank' was destroyed; to recover the pool: pool import -D -d [LAB] tank
      searched: [LAB]
      to search another directory: pool import -d DIR
    [exit 1]
    $ pool import -d . tank
    pool: cannot import 'tank': the pool was destroyed
      to recover the pool: pool import -D -d [LAB] tank
    [exit 1]
    $ pool import -a -d .
    [exit 0]
    $ pool list
    no pools available
    [exit 0]
    $ pool import -D -d .
      pool: tank
        id: [GUID]
     state: ONLINE (DESTROYED)
    action: The pool can be imported using its name or numeric identifier.
    	The pool was destroyed; the '-D' flag recovers it.
    config:

    	tank                               ONLINE
    	  [LAB]/tank.img  ONLINE
    [exit 0]
    $ pool import -D -F -n -d . tank
    the newest state of pool 'tank' is readable: transaction group [TXG], of [DATE]
    Nothing would be lost. Nothing was written.
    [exit 0]
    $ pool import -D -d . tank
    [exit 0]
    $ pool list -H -o name,health
    tank	ONLINE
    [exit 0]
    $ pool import -d .
    pool: no pools available to import
      searched: [LAB]
      to search another directory: pool import -d DIR
    [exit 1]
    $ pool import -D -d .
    pool: no destroyed pools available to import
      searched: [LAB]
      to search another directory: pool import -D -d DIR
    [exit 1]
    $ pool import -D tank
    pool: cannot import 'tank': no such pool available
      searched: /dev
      to search another directory: pool import -D -d DIR tank
    [exit 1]
    $ fs list -H -o name -t all
    tank
    tank/home
    tank/home@monday
    [exit 0]
    ");
    let text = fs::read_to_string(lab.path("text")).unwrap();
    assert_eq!(lab.fs(&["cat", "tank/home:/second"]), text);
    lab.pool(&["check", "tank"]);
    lab.pool(&["destroy", "tank"]);
    let found: serde_json::Value = serde_json::from_str(&lab.pool(&["import", "-D", "-d", ".", "-j"])).unwrap();
    let pool = found["pools"].as_object().unwrap().values().next().unwrap();
    assert_eq!((&pool["name"], &pool["destroyed"]), (&"tank".into(), &true.into()));
    // Another pool has its name by now.
    lab.pool(&["create", "-m", "none", "tank", "64M:other.img"]);
    assert_snapshot!(lab.session(&["pool import -D -d . tank", "pool import -D -d . tank back"]), @r"
    $ pool import -D -d . tank
    pool: cannot import 'tank': a pool named 'tank' is already imported
      import under another name: pool import -D [GUID] NEWNAME
    [exit 1]
    $ pool import -D -d . tank back
    [exit 0]
    ");
    assert_eq!(lab.fs(&["cat", "back/home:/second"]), text);
    lab.pool(&["destroy", "tank"]);
    lab.pool(&["destroy", "back"]);
    lab.pool(&["import", "-D", "-a", "-d", "."]);
    assert_eq!(lab.pool(&["list", "-H", "-o", "name"]), "back\ntank\n");
}

#[test]
fn a_destroyed_pool_comes_back_from_its_unused_devices() {
    let (lab, _filters) = (Lab::mountless(), filters().bind_to_scope());
    lab.pool(&["create", "-m", "none", "tank", "mirror", "64M:a.img", "64M:b.img"]);
    lab.pool(&["destroy", "tank"]);
    lab.pool(&["create", "-m", "none", "other", "b.img"]);
    assert_snapshot!(lab.session(&[
        "pool import -D -d .",
        "pool import -D -d . -o readonly=on tank",
        "pool status tank",
        "pool export tank",
        "pool import -D -d . tank",
        "pool status tank",
        "pool status other",
        "pool destroy tank",
        "pool labelclear a.img",
        "pool import -D -d . tank",
    ]), @r"
    $ pool import -D -d .
      pool: tank
        id: [GUID]
     state: DEGRADED (DESTROYED)
    status: One or more devices are missing from the system.
    	The remaining devices have all data.
    action: The pool can be imported despite missing devices, in a degraded state.
    	The pool was destroyed; the '-D' flag recovers it.
    config:

    	tank                              DEGRADED
    	  mirror-0                        DEGRADED
    	    [LAB]/a.img  ONLINE
    	    [LAB]/b.img  UNAVAIL
    [exit 0]
    $ pool import -D -d . -o readonly=on tank
    [exit 0]
    $ pool status tank
      pool: tank
     state: DEGRADED
    status: One or more devices are missing or do not respond.
    	Sufficient replicas exist; the pool continues in a degraded state.
    action: Connect the device and bring it online: pool online tank DEVICE
    	or replace it: pool replace tank DEVICE NEW
    config:

    	NAME                              STATE     READ  WRITE  CKSUM
    	tank                              DEGRADED     0      0      0
    	  mirror-0                        DEGRADED     0      0      0
    	    [LAB]/a.img  ONLINE       0      0      0
    	    [LAB]/b.img  UNAVAIL      0      0      0

    errors: No known data errors
    [exit 0]
    $ pool export tank
    [exit 0]
    $ pool import -D -d . tank
    [exit 0]
    $ pool status tank
      pool: tank
     state: DEGRADED
    status: One or more devices are missing or do not respond.
    	Sufficient replicas exist; the pool continues in a degraded state.
    action: Connect the device and bring it online: pool online tank DEVICE
    	or replace it: pool replace tank DEVICE NEW
    config:

    	NAME                              STATE     READ  WRITE  CKSUM
    	tank                              DEGRADED     0      0      0
    	  mirror-0                        DEGRADED     0      0      0
    	    [LAB]/a.img  ONLINE       0      0      0
    	    [LAB]/b.img  UNAVAIL      0      0      0

    errors: No known data errors
    [exit 0]
    $ pool status other
      pool: other
     state: ONLINE
    config:

    	NAME                            STATE   READ  WRITE  CKSUM
    	other                           ONLINE     0      0      0
    	  [LAB]/b.img  ONLINE     0      0      0

    errors: No known data errors
    [exit 0]
    $ pool destroy tank
    [exit 0]
    $ pool labelclear a.img
    [exit 0]
    $ pool import -D -d . tank
    pool: cannot import 'tank': no such pool available
      searched: [LAB]
      to search another directory: pool import -D -d DIR tank
    [exit 1]
    ");
}
