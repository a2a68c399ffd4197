//! Disks of a RAID-Z die in turn, until one too many is gone, and come back or are replaced.

use std::{
    fs,
    process::{Child, Command, Stdio},
};

use insta::assert_snapshot;

use crate::{
    content, create, export_and_check, fill, filters, holds,
    lab::{Lab, wait_until},
    put, status,
};

#[test]
fn a_raidz2_loses_three_disks_in_turn_and_recovers() {
    let (lab, _filters) = (Lab::new(), filters().bind_to_scope());
    let Some(disks) = lab.disks(&["b", "c", "d"], "100M") else { return };
    let disks: Vec<&str> = disks.iter().map(String::as_str).collect();
    create(&lab, &[&["raidz2", "100M:a.img"], &disks[..], &["100M:e.img"]].concat());
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
    	  raidz2-0  DEGRADED  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	  [LAB]/disk/b/image  UNAVAIL  [READ]  [WRITE]  0
    	  [LAB]/disk/c/image  ONLINE  0  0  0
    	  [LAB]/disk/d/image  ONLINE  0  0  0
    	  [LAB]/e.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    lab.pull("c");
    put(&lab, 3);
    holds(&lab, 1..=3);
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
    	  raidz2-0  DEGRADED  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	  [LAB]/disk/b/image  UNAVAIL  [READ]  [WRITE]  0
    	  [LAB]/disk/c/image  UNAVAIL  [READ]  [WRITE]  0
    	  [LAB]/disk/d/image  ONLINE  0  0  0
    	  [LAB]/e.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    lab.pull("d");
    let mut writer = write_durably(&lab, 4);
    wait_until("the pool is suspended", || lab.pool(&["status", "tank"]).contains("state: SUSPENDED"));
    assert_snapshot!(lab.session(&["pool status tank", "pool clear tank", "fs snapshot tank@now", "pool list -H -o name,health tank"]), @r"
    $ pool status tank
      pool: tank
     state: SUSPENDED
    status: One or more devices are faulted in response to I/O failures.
    	[LAB]/disk/d/image: cannot [DO]: [GONE]
    action: Make sure the affected devices are connected, then run 'pool clear tank'.
    	To discard unwritten data, run 'pool export --abandon tank'.
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  SUSPENDED  0  0  0
    	  raidz2-0  UNAVAIL  [READ]  [WRITE]  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	  [LAB]/disk/b/image  UNAVAIL  [READ]  [WRITE]  0
    	  [LAB]/disk/c/image  UNAVAIL  [READ]  [WRITE]  0
    	  [LAB]/disk/d/image  UNAVAIL  [READ]  [WRITE]  0
    	  [LAB]/e.img  ONLINE  0  0  0

    errors: List of errors unavailable: pool I/O is currently suspended
    [exit 0]
    $ pool clear tank
    pool: cannot clear errors for 'tank': [LAB]/disk/d/image: cannot [DO]: [GONE]
      check the path, the permissions and the device; for a pool: pool status
    [exit 1]
    $ fs snapshot tank@now
    fs: cannot use 'tank': pool I/O is currently suspended
      [LAB]/disk/d/image: cannot [DO]: [GONE]
      to see the devices: pool status tank; to resume when the devices are back: pool clear tank
      to discard unwritten data: pool export --abandon tank
    [exit 1]
    $ pool list -H -o name,health tank
    tank	SUSPENDED
    [exit 0]
    ");
    // Cached data is still readable.
    holds(&lab, 1..=1);
    assert!(writer.try_wait().unwrap().is_none(), "the writer waits");
    lab.plug("d");
    assert_snapshot!(lab.session(&["pool clear tank"]), @r"
    $ pool clear tank
    [exit 0]
    ");
    assert!(writer.wait().unwrap().success());
    holds(&lab, 1..=4);
    let replace = format!("pool replace tank {} 100M:f.img", lab.disk_path("b").display());
    fill(&lab);
    assert_snapshot!(lab.session(&[&replace]), @r"
    $ pool replace tank [LAB]/disk/b/image 100M:f.img
    [exit 0]
    ");
    lab.pool(&["wait", "-t", "replace", "tank"]);
    lab.plug("c");
    lab.pool(&["online", "tank", &lab.disk_path("c").display().to_string()]);
    lab.pool(&["wait", "-t", "resilver", "tank"]);
    assert_snapshot!(status(&lab), @r"
    $ pool status tank
      pool: tank
     state: ONLINE
      scan: resilvered [SIZE] in [TIME] with 0 errors on [DATE]
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  raidz2-0  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	  [LAB]/f.img  ONLINE  0  0  0
    	  [LAB]/disk/c/image  ONLINE  0  0  0
    	  [LAB]/disk/d/image  ONLINE  0  0  0
    	  [LAB]/e.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    lab.pool(&["scrub", "-w", "tank"]);
    assert!(lab.pool(&["status", "-x", "tank"]).contains("is healthy"));
    holds(&lab, 1..=4);
    export_and_check(&lab);
}

/// A program that writes a file into the pool: it succeeds when the file is durable.
fn write_durably(lab: &Lab, seed: u64) -> Child {
    fs::write(lab.path("source"), content(seed)).unwrap();
    let (from, to) = (lab.at("source"), lab.mount("tank").join(seed.to_string()));
    let mut command = Command::new("dd");
    command.arg(format!("if={from}")).arg(format!("of={}", to.display())).args(["bs=64k", "conv=fsync", "status=none"]);
    command.stderr(Stdio::null()).spawn().unwrap()
}
