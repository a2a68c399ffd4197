//! Spares of mirrors: added, put in, released, and kept for good.

use std::fs::{self, File};

use insta::assert_snapshot;

use crate::{
    filters, furnished, holds,
    lab::{Lab, wait_until},
    put, status, wait_for_resilver,
};

#[test]
fn spares_and_vdevs_are_added_together_or_not_at_all() {
    let (lab, _filters) = (Lab::mountless(), filters().bind_to_scope());
    lab.pool(&["create", "-m", "none", "-o", "ashift=16", "tank", "80M:a.img"]);
    let columns = (1..=6).map(|n| format!("80M:{n}.img")).collect::<Vec<_>>().join(" ");
    assert_snapshot!(lab.session(&[&format!("pool add -f tank spare 80M:s.img raidz1 {columns}"), "pool list -v -H -o name tank"]), @r"
    $ pool add -f tank spare 80M:s.img raidz1 80M:1.img 80M:2.img 80M:3.img 80M:4.img 80M:5.img 80M:6.img
    pool: cannot add to 'tank': the regions of this pool, 1M, are too small for a raidz of this width
    [exit 1]
    $ pool list -v -H -o name tank
    tank
    [LAB]/a.img
    [exit 0]
    ");
    assert!(!lab.path("s.img").exists() && !lab.path("1.img").exists());
    lab.pool(&["add", "-f", "tank", "spare", "80M:s.img", "mirror", "80M:1.img", "80M:2.img"]);
    let status = lab.pool(&["status", "tank"]);
    assert!(status.contains("mirror-1") && status.contains("AVAIL"), "{status}");
    lab.check("tank");
}

#[test]
fn a_spare_that_is_too_small_for_every_device_takes_a_force() {
    let (lab, _filters) = (Lab::mountless(), filters().bind_to_scope());
    lab.pool(&["create", "-m", "none", "tank", "mirror", "90M:a.img", "90M:b.img"]);
    assert_snapshot!(lab.session(&["pool add -n tank spare 70M:s.img", "pool add tank spare 70M:s.img"]), @r"
    $ pool add -n tank spare 70M:s.img
    pool: cannot add to 'tank': the spare [LAB]/s.img is too small for any vdev: 70M, at least 90M needed
      use -f to add the spare anyway
    [exit 1]
    $ pool add tank spare 70M:s.img
    pool: cannot add to 'tank': the spare [LAB]/s.img is too small for any vdev: 70M, at least 90M needed
      use -f to add the spare anyway
    [exit 1]
    ");
    assert!(!lab.path("s.img").exists());
    lab.pool(&["add", "-f", "tank", "spare", "70M:s.img"]);
    // It fits a device that is added with it.
    lab.pool(&["remove", "tank", "s.img"]);
    lab.pool(&["add", "tank", "spare", "70M:t.img", "mirror", "70M:c.img", "70M:d.img"]);
    lab.check("tank");
}

#[test]
fn a_spare_is_in_use_until_the_device_is_back() {
    let (lab, _filters) = (Lab::new(), filters().bind_to_scope());
    lab.pool(&["create", "-m", "none", "tank", "mirror", "80M:a.img", "80M:b.img", "spare", "80M:c.img"]);
    lab.fs(&["create", "-o", "compression=off", "tank/home"]);
    put(&lab, 1);
    assert_snapshot!(status(&lab), @r"
    $ pool status tank
      pool: tank
     state: ONLINE
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  mirror-0  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	  [LAB]/b.img  ONLINE  0  0  0
    	spares
    	  [LAB]/c.img  AVAIL

    errors: No known data errors
    [exit 0]
    ");
    for taking in ["pool create other c.img", "pool labelclear c.img", "pool add tank spare c.img"] {
        assert!(lab.session(&[taking]).contains("[exit 1]"), "{taking}");
    }
    lab.pool(&["export", "tank"]);
    assert!(lab.session(&["pool labelclear c.img"]).contains("which is exported"));
    fs::create_dir(lab.path("elsewhere")).unwrap();
    fs::rename(lab.path("b.img"), lab.path("elsewhere/b.img")).unwrap();
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    wait_until("the spare has stepped in", || lab.pool(&["status", "tank"]).contains("INUSE"));
    wait_for_resilver(&lab);
    put(&lab, 2);
    assert_snapshot!(status(&lab), @r"
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
    	  mirror-0  DEGRADED  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	  spare-1  DEGRADED  0  0  0
    	  [LAB]/b.img  UNAVAIL  0  0  0
    	  [LAB]/c.img  ONLINE  0  0  0
    	spares
    	  [LAB]/c.img  INUSE  currently in use

    errors: No known data errors
    [exit 0]
    ");
    assert_snapshot!(lab.session(&["pool remove tank c.img"]), @r"
    $ pool remove tank c.img
    pool: cannot remove '[LAB]/c.img': the spare [LAB]/c.img is in use; pool detach returns it
    [exit 1]
    ");
    fs::rename(lab.path("elsewhere/b.img"), lab.path("b.img")).unwrap();
    lab.pool(&["online", "tank", "b.img"]);
    wait_until("the spare stands by again", || lab.pool(&["status", "tank"]).contains("  AVAIL"));
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
    	  [LAB]/c.img  AVAIL

    errors: No known data errors
    [exit 0]
    ");
    let history = lab.pool(&["history", "-i", "tank"]);
    assert!(history.contains("c.img replaced ") && history.contains("c.img is available again"), "{history}");
    holds(&lab, &[1, 2]);
    lab.pool(&["remove", "tank", "c.img"]);
    lab.pool(&["create", "-m", "none", "other", "c.img"]);
    lab.check("tank");
}

#[test]
fn a_spare_or_a_new_device_replaces_a_device_for_good() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
    lab.pool(&["add", "tank", "spare", "80M:c.img"]);
    lab.pool(&["export", "tank"]);
    fs::remove_file(lab.path("b.img")).unwrap();
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    wait_until("the spare has stepped in", || lab.pool(&["status", "tank"]).contains("INUSE"));
    wait_for_resilver(&lab);
    lab.pool(&["detach", "tank", "b.img"]);
    lab.pool(&["set", "autoreplace=on", "tank"]);
    lab.pool(&["export", "tank"]);
    fs::remove_file(lab.path("a.img")).unwrap();
    File::create(lab.path("a.img")).unwrap().set_len(80 << 20).unwrap();
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    wait_until("what has appeared has taken the place", || {
        let status = lab.pool(&["status", "tank"]);
        status.contains(" state: ONLINE") && !status.contains("(resilvering") && !status.contains("being replaced")
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
    	  [LAB]/c.img  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    holds(&lab, &[1]);
    lab.check("tank");
}
