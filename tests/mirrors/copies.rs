//! Split brain, older copies of devices, copies of whole pools, and pools that are split.

use std::fs;

use insta::assert_snapshot;

use crate::{
    content, filters, furnished, holds,
    lab::{Lab, can_mount},
    put,
};

#[test]
fn devices_that_went_on_without_each_other_are_not_put_together() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
    lab.pool(&["export", "tank"]);
    for side in ["a", "b"] {
        fs::create_dir(lab.path(side)).unwrap();
        fs::rename(lab.path(&format!("{side}.img")), lab.path(&format!("{side}/{side}.img"))).unwrap();
    }
    for side in ["a", "b"] {
        lab.pool(&["import", "-d", &lab.at(side), "tank"]);
        put(&lab, if side == "a" { 2 } else { 3 });
        lab.pool(&["export", "tank"]);
    }
    let both = format!("pool import -d {} -d {} tank", lab.at("a"), lab.at("b"));
    let listed = format!("pool import -d {} -d {}", lab.at("a"), lab.at("b"));
    assert_snapshot!(lab.session(&[&listed, &both]), @r"
    $ pool import -d [LAB]/a -d [LAB]/b
      pool: tank
      id: [GUID]
     state: UNAVAIL
    status: Devices were modified separately (split brain): [LAB]/[SIDE]
    	and the other devices.
    action: Import one side while the devices of the other side are disconnected, then
    	detach the other devices (pool detach), and attach them again (pool attach),
    	which discards their content.
    config:

    	tank  UNAVAIL
    	  mirror-0  ONLINE
    	  [LAB]/a/a.img  ONLINE
    	  [LAB]/b/b.img  ONLINE
    [exit 0]
    $ pool import -d [LAB]/a -d [LAB]/b tank
    pool: cannot open 'tank': pool tank is split: [LAB]/[SIDE] and the other devices were modified separately (split brain)
      import one side while the devices of the other side are disconnected;
      then detach the other devices (pool detach), and attach them again (pool attach), which discards their content
    [exit 1]
    ");
}

#[test]
fn a_pool_of_mirrors_is_split_and_both_go_on() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
    lab.pool(&["add", "tank", "mirror", "80M:c.img", "80M:d.img"]);
    assert_snapshot!(lab.session(&["pool split tank tank", "pool split tank copy a.img b.img", "pool split -n tank copy c.img"]), @r"
    $ pool split tank tank
    pool: cannot split 'tank': a pool named 'tank' exists already
    [exit 1]
    $ pool split tank copy a.img b.img
    pool: cannot split 'tank': [LAB]/b.img and [LAB]/a.img belong to the same mirror; name one device for each mirror
    [exit 1]
    $ pool split -n tank copy c.img
    would create 'copy' with the following layout:

    	copy
    	  [LAB]/b.img  (from mirror-0)
    	  [LAB]/c.img  (from mirror-1)
    [exit 0]
    ");
    put(&lab, 2);
    assert_snapshot!(lab.session(&["pool split tank copy c.img", "pool list -H -o name,health"]), @r"
    $ pool split tank copy c.img
    [exit 0]
    $ pool list -H -o name,health
    tank	ONLINE
    [exit 0]
    ");
    put(&lab, 3);
    lab.pool(&["import", "-d", ".", "copy"]);
    assert_snapshot!(lab.session(&["pool status"]), @r"
    $ pool status
      pool: copy
     state: ONLINE
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	copy  ONLINE  0  0  0
    	  [LAB]/b.img  ONLINE  0  0  0
    	  [LAB]/c.img  ONLINE  0  0  0

    errors: No known data errors

      pool: tank
     state: ONLINE
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	  [LAB]/d.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    holds(&lab, &[1, 2, 3]);
    for seed in [1, 2] {
        assert!(lab.fs_bytes(&["cat", &format!("copy/home:/{seed}")]) == content(seed), "file {seed}");
    }
    for pool in ["tank", "copy"] {
        lab.pool(&["export", pool]);
        lab.pool(&["check", "-d", ".", pool]);
        lab.pool(&["import", "-d", ".", pool]);
    }
}

#[test]
fn an_older_copy_of_a_device_is_skipped_under_any_name() {
    for copy in ["0.img", "z.img"] {
        let lab = furnished();
        lab.pool(&["export", "tank"]);
        // The older copy replaces a lost device at its path.
        fs::copy(lab.path("a.img"), lab.path(copy)).unwrap();
        fs::copy(lab.path("a.img"), lab.path("b.img")).unwrap();
        let before = fs::read(lab.path(copy)).unwrap();
        fs::rename(lab.path(copy), lab.path("aside")).unwrap();
        lab.pool(&["import", "-d", &lab.at("a.img"), "tank"]);
        put(&lab, 2);
        lab.pool(&["export", "tank"]);
        fs::rename(lab.path("aside"), lab.path(copy)).unwrap();
        lab.pool(&["import", "-d", &lab.at(""), "tank"]);
        holds(&lab, &[1, 2]);
        lab.check("tank");
        assert!(fs::read(lab.path(copy)).unwrap() == before, "it is left as it was");
        assert!(fs::read(lab.path("b.img")).unwrap() == before, "so is the one in another's place");
    }
}

#[test]
fn a_copy_of_a_pool_is_imported_beside_it_after_reguid() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
    lab.pool(&["export", "tank"]);
    fs::create_dir(lab.path("copies")).unwrap();
    for image in ["a.img", "b.img"] {
        fs::copy(lab.path(image), lab.path(&format!("copies/{image}"))).unwrap();
    }
    lab.pool(&["import", "-d", &lab.at("copies"), "tank", "copy"]);
    let guid = |pool: &str| lab.pool(&["get", "-H", "-o", "value", "guid", pool]);
    let before = guid("copy");
    lab.pool(&["reguid", "copy"]);
    assert_ne!(guid("copy"), before);
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    assert_eq!(guid("tank"), before);
    let taken = lab.session(&[&format!("pool reguid -g {} tank", guid("copy").trim())]);
    assert!(taken.contains("already") && taken.contains("[exit 1]"), "{taken}");
    lab.pool(&["reguid", "-g", "77", "copy"]);
    assert_eq!(guid("copy"), "77\n");
    put(&lab, 2);
    holds(&lab, &[1, 2]);
    assert!(lab.fs_bytes(&["cat", "copy/home:/1"]) == content(1));
    lab.check("tank");
    lab.pool(&["export", "copy"]);
    lab.pool(&["check", "-d", &lab.at("copies"), "copy"]);
    lab.pool(&["import", "-d", &lab.at("copies"), "77"]);
    assert!(lab.fs_bytes(&["cat", "copy/home:/1"]) == content(1));
}

#[test]
fn split_imports_the_new_pool_with_altroot_and_properties() {
    if !can_mount() {
        return;
    }
    let (lab, _filters) = (Lab::new(), filters().bind_to_scope());
    let home = lab.at("mnt/tank");
    lab.pool(&["create", "-m", &home, "tank", "mirror", "80M:a.img", "80M:b.img"]);
    fs::write(lab.mount("tank/file"), content(1)).unwrap();
    assert_snapshot!(lab.session(&[
        "pool split -o nonsense=1 tank copy",
        "pool split -R below/it tank copy",
        "pool split -R //. tank copy",
        "pool split -R /dev/null tank copy",
        "pool list -H -o name,health,altroot",
    ]), @r"
    $ pool split -o nonsense=1 tank copy
    pool: cannot split 'tank': invalid property 'nonsense'
      to list the properties: pool get --help
      user properties have a colon in their name, as in 'me:note'
    [exit 1]
    $ pool split -R below/it tank copy
    pool: the directory 'below/it' is not an absolute path
    [exit 2]
    $ pool split -R //. tank copy
    pool: the directory '//.' is the root directory
    [exit 2]
    $ pool split -R /dev/null tank copy
    pool: the directory '/dev/null' is not a directory
    [exit 2]
    $ pool list -H -o name,health,altroot
    tank	ONLINE	-
    [exit 0]
    ");
    let split = lab
        .run("pool", &["split", "-R", &lab.at("new"), "-o", "comment=split off", "-o", "autotrim=on", "tank", "copy"]);
    split.ok();
    assert_snapshot!(lab.session(&[
        "pool list -H -o name,health,altroot",
        "pool get -H -o name,property,value,source comment,autotrim,altroot copy",
        "pool get -H -o name,property,value,source comment,autotrim tank",
    ]), @r"
    $ pool list -H -o name,health,altroot
    copy	ONLINE	[LAB]/new
    tank	ONLINE	-
    [exit 0]
    $ pool get -H -o name,property,value,source comment,autotrim,altroot copy
    copy	comment	split off	local
    copy	autotrim	on	local
    copy	altroot	[LAB]/new	-
    [exit 0]
    $ pool get -H -o name,property,value,source comment,autotrim tank
    tank	comment	-	default
    tank	autotrim	off	default
    [exit 0]
    ");
    let below = lab.path(&format!("new{home}/file"));
    assert!(fs::read(&below).unwrap() == content(1));
    assert_eq!(lab.fs(&["get", "-H", "-o", "value", "mountpoint", "copy"]), format!("{}{home}\n", lab.at("new")));
    // Both pools are used independently.
    fs::write(&below, content(2)).unwrap();
    assert!(fs::read(lab.mount("tank/file")).unwrap() == content(1));
    for pool in ["tank", "copy"] {
        lab.pool(&["export", pool]);
        lab.pool(&["check", "-d", &lab.at(""), pool]);
    }
    // An altroot is for one import; a property is permanent.
    lab.pool(&["import", "-N", "-d", &lab.at(""), "copy"]);
    assert_eq!(lab.pool(&["get", "-H", "-o", "value", "comment,altroot", "copy"]), "split off\n-\n");
    lab.pool(&["export", "copy"]);
    // With properties only, it is exported again.
    lab.pool(&["import", "-N", "-d", &lab.at("a.img"), "tank"]);
    lab.pool(&["attach", "-w", "tank", "a.img", "80M:c.img"]);
    lab.pool(&["split", "-o", "comment=exported", "tank", "other", "c.img"]);
    assert_eq!(lab.pool(&["list", "-H", "-o", "name"]), "tank\n");
    lab.pool(&["import", "-N", "-d", &lab.at("c.img"), "other"]);
    assert_eq!(lab.pool(&["get", "-H", "-o", "value", "comment", "other"]), "exported\n");
}
