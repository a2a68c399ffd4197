//! A cache device dies and comes back; a cache device taken offline stays offline.

use insta::assert_snapshot;

use crate::{
    create, export_and_check, filters, holds,
    lab::{Lab, wait_until},
    line, put, status,
};

#[test]
fn a_cache_device_dies_and_returns_and_offline_stays_offline() {
    let (lab, _filters) = (Lab::new(), filters().bind_to_scope());
    let Some(disks) = lab.disks(&["b"], "64M") else { return };
    create(&lab, &["200M:a.img", "cache", &disks[0]]);
    let cache = lab.disk_path("b").display().to_string();
    put(&lab, 1);
    lab.pull("b");
    lab.pool(&["set", "comment=labels are written", "tank"]);
    wait_until("it is known to be gone", || {
        put(&lab, 2);
        lab.pool(&["export", "tank"]);
        lab.pool(&["import", "-d", &lab.at("a.img"), "tank"]);
        !line(&lab, "disk/b").contains("ONLINE")
    });
    assert_snapshot!(status(&lab), @r"
    $ pool status tank
      pool: tank
     state: ONLINE
    status: A cache device is missing or has failed.
    	No data is lost; reads use the other devices.
    action: If the device is back: pool online tank [LAB]/disk/b/image
    	If the device is lost: pool remove tank [LAB]/disk/b/image
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	cache
    	  [LAB]/disk/b/image  UNAVAIL  [READ]  [WRITE]  0

    errors: No known data errors
    [exit 0]
    ");
    lab.plug("b");
    assert_snapshot!(lab.session(&[&format!("pool online tank {cache}"), "pool status tank", &format!("pool remove -n tank {cache}")]), @r"
    $ pool online tank [LAB]/disk/b/image
    [exit 0]
    $ pool status tank
      pool: tank
     state: ONLINE
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	cache
    	  [LAB]/disk/b/image  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    $ pool remove -n tank [LAB]/disk/b/image
    [LAB]/disk/b/image would be removed at once: it holds no pool data
    [exit 0]
    ");
    // Offline until the next import, and for good.
    let again = || {
        lab.pool(&["export", "tank"]);
        lab.pool(&["import", "-d", &lab.at("a.img"), "-d", &cache, "tank"]);
        line(&lab, "disk/b")
    };
    lab.pool(&["offline", "-t", "tank", &cache]);
    assert!(again().ends_with("ONLINE 0 0 0"));
    lab.pool(&["offline", "tank", &cache]);
    assert!(again().ends_with("OFFLINE 0 0 0"));
    lab.kill("tank");
    lab.pool(&["import", "tank"]);
    assert_snapshot!(lab.session(&["pool status tank", "pool status -x", "pool clear tank"]), @r"
    $ pool status tank
      pool: tank
     state: ONLINE
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	cache
    	  [LAB]/disk/b/image  OFFLINE  0  0  0

    errors: No known data errors
    [exit 0]
    $ pool status -x
    all pools are healthy
    [exit 0]
    $ pool clear tank
    [exit 0]
    ");
    assert!(again().ends_with("OFFLINE 0 0 0"), "no word but one takes it back");
    lab.pool(&["offline", "-t", "tank", &cache]);
    assert!(again().ends_with("ONLINE 0 0 0"), "only until the next import");
    lab.pool(&["offline", "tank", &cache]);
    lab.pool(&["export", "tank"]);
    wait_until("nobody has it open", || lab.service("tank").is_none());
    assert_snapshot!(lab.session(&[&format!("pool import -d {} -d {cache}", lab.at("a.img"))]), @r"
    $ pool import -d [LAB]/a.img -d [LAB]/disk/b/image
      pool: tank
      id: [GUID]
     state: ONLINE
    action: The pool can be imported using its name or numeric identifier.
    config:

    	tank  ONLINE
    	  [LAB]/a.img  ONLINE
    	cache
    	  [LAB]/disk/b/image  OFFLINE
    [exit 0]
    ");
    lab.pool(&["import", "-d", &lab.at("a.img"), "-d", &cache, "tank"]);
    lab.pool(&["online", "tank", &cache]);
    assert!(again().ends_with("ONLINE 0 0 0"));
    holds(&lab, 1..=2);
    export_and_check(&lab);
}
