//! Devices of a mirror that are offline, absent for a while, or rotten, and then healthy again.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    os::unix::fs::FileExt,
    process::Stdio,
};

use insta::assert_snapshot;

use crate::{
    content, filters, furnished, holds,
    lab::{Lab, wait_until},
    put, status, wait_for_resilver,
};

#[test]
fn a_device_is_taken_offline_and_comes_back() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
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

    errors: No known data errors
    [exit 0]
    ");
    lab.pool(&["offline", "tank", "b.img"]);
    put(&lab, 2);
    assert_snapshot!(status(&lab), @r"
    $ pool status tank
      pool: tank
     state: DEGRADED
    status: One or more devices have been taken offline by the administrator.
    	Sufficient replicas exist; the pool continues in a degraded state.
    action: Bring the device online: pool online tank DEVICE
    	or replace it: pool replace tank DEVICE NEW
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  DEGRADED  0  0  0
    	  mirror-0  DEGRADED  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	  [LAB]/b.img  OFFLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    assert_snapshot!(lab.session(&["pool offline tank a.img", "pool detach tank a.img", "pool list -H -o name,health"]), @r"
    $ pool offline tank a.img
    pool: cannot offline '[LAB]/a.img': no other device has all data of [LAB]/a.img
    [exit 1]
    $ pool detach tank a.img
    pool: cannot detach '[LAB]/a.img': no other device has all data of [LAB]/a.img
    [exit 1]
    $ pool list -H -o name,health
    tank	DEGRADED
    [exit 0]
    ");
    lab.pool(&["online", "tank", "b.img"]);
    wait_for_resilver(&lab);
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

    errors: No known data errors
    [exit 0]
    ");
    lab.pool(&["offline", "tank", "a.img"]);
    holds(&lab, &[1, 2]);
    lab.pool(&["online", "tank", "a.img"]);
    wait_for_resilver(&lab);
    lab.check("tank");
}

#[test]
fn a_returned_device_is_reopened_and_resilvered_on_demand() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
    lab.pool(&["export", "tank"]);
    fs::rename(lab.path("b.img"), lab.path("away")).unwrap();
    lab.pool(&["import", "-d", &lab.at("a.img"), "tank"]);
    put(&lab, 2);
    assert_snapshot!(lab.session(&["pool reopen tank", "pool list -H -o health"]), @r"
    $ pool reopen tank
    [exit 0]
    $ pool list -H -o health
    DEGRADED
    [exit 0]
    ");
    let refused = lab.run("pool", &["labelclear", "-f", "a.img"]).fails(1);
    assert!(refused.contains("it belongs to pool 'tank', which is in use by process "), "{refused}");
    fs::rename(lab.path("away"), lab.path("b.img")).unwrap();
    lab.pool(&["reopen"]);
    wait_for_resilver(&lab);
    lab.pool(&["resilver", "tank"]);
    lab.pool(&["wait", "tank"]);
    lab.pool(&["offline", "tank", "a.img"]);
    holds(&lab, &[1, 2]);
    lab.pool(&["reopen", "tank"]);
    assert!(status(&lab).contains("OFFLINE"), "an offline device stays offline");
    lab.pool(&["online", "tank", "a.img"]);
    lab.pool(&["wait", "-t", "resilver", "tank"]);
    assert!(!status(&lab).contains("(resilvering"));
    lab.pool(&["replace", "tank", "a.img", "80M:c.img"]);
    lab.pool(&["scrub", "tank"]);
    let shown = lab.pool(&["wait", "-Hp", "-t", "replace,scrub", "tank", "0.05"]);
    assert!(shown.lines().last() == Some("-\t-"), "{shown}");
    assert!(!status(&lab).contains("a.img"), "it was replaced");
    assert_events(&lab);
    fs::remove_file(lab.path("a.img")).unwrap();
    lab.check("tank");
}

#[test]
fn a_pool_is_listed_degraded_while_a_device_of_it_is_offline() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
    lab.pool(&["offline", "tank", "b.img"]);
    lab.pool(&["export", "tank"]);
    assert_snapshot!(lab.session(&[&format!("pool import -d {}", lab.at(""))]), @r"
    $ pool import -d [LAB]/
      pool: tank
      id: [GUID]
     state: DEGRADED
    status: One or more devices are offline, or faulted after too many errors.
    action: The pool can be imported in a degraded state.
    config:

    	tank  DEGRADED
    	  mirror-0  DEGRADED
    	  [LAB]/a.img  ONLINE
    	  [LAB]/b.img  OFFLINE
    [exit 0]
    ");
}

#[test]
fn a_device_that_another_one_lacks_blocks_for_is_not_given_up() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
    lab.pool(&["offline", "tank", "b.img"]);
    lab.pool(&["export", "tank"]);
    let image = fs::read(lab.path("a.img")).unwrap();
    lab.damages();
    let wanted = &content(1)[8192..12288];
    let place = image.chunks(4096).position(|sector| sector == wanted).unwrap() as u64 * 4096;
    let file = File::options().write(true).open(lab.path("a.img")).unwrap();
    file.write_all_at(&[0xee; 512], place).unwrap();
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    assert_snapshot!(lab.session(&["pool replace -w tank b.img 80M:c.img"]), @r"
    $ pool replace -w tank b.img 80M:c.img
    pool: cannot resilver '[LAB]/c.img': one block cannot be read from any other device
      the replacement stays incomplete; details: pool status -v tank
    [exit 1]
    ");
    assert_snapshot!(lab.session(&["pool status -v tank"]), @r"
    $ pool status -v tank
      pool: tank
     state: DEGRADED
    status: One or more devices could not be resilvered: some blocks have no good copy.
    	A device under replacement stays attached until the blocks are recovered.
    action: If a device with good copies can return: pool online tank DEVICE
    	Otherwise restore or delete the files listed by 'pool status -v'.
    	Then: pool clear tank
    	or give up the blocks: pool detach -f tank DEVICE
      scan: resilvered [SIZE] in [TIME] with 1 errors on [DATE]
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  DEGRADED  0  0  0
    	  mirror-0  DEGRADED  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  1
    	  [LAB]/b.img  OFFLINE  0  0  0  (being replaced)
    	  [LAB]/c.img  ONLINE  0  0  0  (incomplete, replaces [LAB]/b.img)

    errors: Permanent errors have been detected in the following files:

      tank/home:/1
    [exit 0]
    ");
    // This device has the data lost on its peer, and is still attached.
    lab.pool(&["online", "tank", "b.img"]);
    wait_until("the resilver is done", || !lab.pool(&["status", "tank"]).contains("b.img"));
    lab.pool(&["detach", "tank", "a.img"]);
    holds(&lab, &[1]);
    fs::remove_file(lab.path("a.img")).unwrap();
    fs::remove_file(lab.path("b.img")).unwrap();
    lab.check("tank");
}

#[test]
fn what_rots_on_one_device_is_healed_by_reading_and_by_a_scrub() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
    lab.damages();
    lab.pool(&["export", "tank"]);
    let image = fs::read(lab.path("a.img")).unwrap();
    let wanted = content(1);
    let blocks = image.chunks(4096).enumerate().filter(|(_, sector)| wanted.chunks(4096).any(|part| part == *sector));
    let places: Vec<u64> = blocks.map(|(n, _)| n as u64 * 4096).collect();
    assert!(places.len() > 50, "{} sectors", places.len());
    let file = File::options().write(true).open(lab.path("a.img")).unwrap();
    places.iter().for_each(|at| file.write_all_at(&[0xee; 512], *at).unwrap());
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    holds(&lab, &[1]);
    lab.pool(&["scrub", "-w", "tank"]);
    let status = status(&lab);
    assert!(status.contains("with 0 errors") && status.contains("No known data errors"), "{status}");
    let errors = |device: &str| {
        let line = status.lines().find(|line| line.contains(device)).unwrap();
        line.split_whitespace().nth(4).unwrap().to_owned()
    };
    assert!(errors("a.img") != "0" && errors("b.img") == "0", "{status}");
    lab.pool(&["clear", "tank"]);
    lab.pool(&["scrub", "-w", "tank"]);
    assert!(lab.pool(&["status", "-x", "tank"]).contains("is healthy"));
    let events = lab.pool(&["events", "-j", "tank"]);
    let classes = ["ereport.fs.zfs.checksum", "sysevent.fs.zfs.vdev_clear", "sysevent.fs.zfs.scrub_finish"];
    assert!(classes.iter().all(|class| events.contains(class)), "{events}");
    lab.pool(&["export", "tank"]);
    let healed = fs::read(lab.path("a.img")).unwrap();
    assert!(places.iter().all(|at| healed[*at as usize..*at as usize + 512] != [0xee; 512]));
}

/// Asserts the events and their order.
fn assert_events(lab: &Lab) {
    let events = lab.pool(&["events", "-v", "tank"]);
    let mut rest = &events[..];
    for what in [
        "pool_import",
        "vdev_state = \"ONLINE\"\n        vdev_laststate = \"UNAVAIL\"",
        "resilver_finish",
        "history_command = \"pool resilver tank\"",
        "vdev_state = \"OFFLINE\"",
        "history_command = \"pool offline tank a.img\"",
        "vdev_attach",
        "scrub_start",
        "scrub_finish",
    ] {
        let at = rest.find(what).unwrap_or_else(|| panic!("{what} is not in {rest} of {events}"));
        rest = &rest[at + what.len()..];
    }
    assert!(events.contains("vdev_remove"), "{events}");
    let count = lab.pool(&["events", "-H", "tank"]).lines().count();
    assert_eq!(lab.pool(&["events", "-c", "tank"]), format!("cleared {count} events\n"));
    assert_eq!(lab.pool(&["events", "-H"]), "");
    let mut follow = lab.command("pool", &["events", "-fH"]).stdout(Stdio::piped()).spawn().unwrap();
    lab.pool(&["set", "comment=new", "tank"]);
    let mut line = String::new();
    BufReader::new(follow.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.ends_with("\tsysevent.fs.zfs.history_event\n"), "{line}");
    follow.kill().unwrap();
    follow.wait().unwrap();
}
