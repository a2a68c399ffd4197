//! The death of a mirror's device and its replacement, and everything else that an operator does with mirrors, through the
//! programs, with what `pool status` says at each stage.
//!
//! The pools have services and are not mounted, so that what was read is read from the devices.

mod lab;

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    os::unix::fs::FileExt,
    path::Path,
    process::Stdio,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use insta::{Settings, assert_snapshot};
use lab::{Lab, can_mount, noise, small_file_system, wait_until};

/// Replaces what differs from run to run.
fn filters() -> Settings {
    let mut settings = lab::told::filters_for_devices();
    settings.add_filter(r"/[ab]/[ab]\.img(\s+)holds", "/[SIDE]${1}holds");
    settings
}

fn content(seed: u64) -> Vec<u8> {
    noise(300_000, seed)
}

/// A pool `tank` that is a mirror of two images, with a file in it.
fn furnished() -> Lab {
    let lab = Lab::new();
    lab.pool(&["create", "-m", "none", "tank", "mirror", "80M:a.img", "80M:b.img"]);
    lab.fs(&["create", "-o", "compression=off", "tank/home"]);
    put(&lab, 1);
    lab
}

/// Puts a file with this content into the pool.
fn put(lab: &Lab, seed: u64) {
    fs::write(lab.path("file"), content(seed)).unwrap();
    lab.fs(&["cp", "file", &format!("tank/home:/{seed}")]);
    lab.pool(&["sync", "tank"]);
}

/// Whether these files are in the pool, as they were put there.
fn holds(lab: &Lab, seeds: &[u64]) {
    for seed in seeds {
        assert!(lab.fs_bytes(&["cat", &format!("tank/home:/{seed}")]) == content(*seed), "file {seed}");
    }
}

fn wait_for_resilver(lab: &Lab) {
    wait_until("the resilver is done", || {
        let status = lab.pool(&["status", "tank"]);
        status.contains("scan: resilvered") && !status.contains("(resilvering")
    });
}

fn status(lab: &Lab) -> String {
    lab.session(&["pool status tank"])
}

#[test]
fn a_device_is_put_out_of_use_and_comes_back() {
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
    	There are sufficient replicas for the pool to go on in a degraded state.
    action: Use: pool online tank DEVICE
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
    pool: cannot offline '[LAB]/a.img': no other device holds all that [LAB]/a.img holds
    [exit 1]
    $ pool detach tank a.img
    pool: cannot detach '[LAB]/a.img': no other device holds all that [LAB]/a.img holds
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
fn a_device_dies_and_is_replaced() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
    lab.pool(&["export", "tank"]);
    fs::remove_file(lab.path("b.img")).unwrap();
    assert_snapshot!(lab.session(&[&format!("pool import -d {}", lab.at(""))]), @r"
    $ pool import -d [LAB]/
      pool: tank
      id: [GUID]
     state: DEGRADED
    status: One or more devices are missing from the system,
    	and others hold all that they hold.
    action: The pool can be imported despite missing devices, in a degraded state.
    config:

    	tank  DEGRADED
    	  mirror-0  DEGRADED
    	  [LAB]/a.img  ONLINE
    	  [LAB]/b.img  UNAVAIL
    [exit 0]
    ");
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    put(&lab, 2);
    assert_snapshot!(status(&lab), @r"
    $ pool status tank
      pool: tank
     state: DEGRADED
    status: One or more devices could not be used: they are missing or do not answer.
    	There are sufficient replicas for the pool to go on in a degraded state.
    action: Attach the device and use: pool online tank DEVICE
    	or replace it: pool replace tank DEVICE NEW
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  DEGRADED  0  0  0
    	  mirror-0  DEGRADED  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	  [LAB]/b.img  UNAVAIL  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    assert_snapshot!(lab.session(&["pool replace -w tank b.img 80M:c.img"]), @r"
    $ pool replace -w tank b.img 80M:c.img
    [exit 0]
    ");
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

    errors: No known data errors
    [exit 0]
    ");
    // The new one alone is the pool.
    lab.pool(&["export", "tank"]);
    fs::rename(lab.path("a.img"), lab.path("away")).unwrap();
    fs::create_dir(lab.path("alone")).unwrap();
    fs::rename(lab.path("c.img"), lab.path("alone/c.img")).unwrap();
    lab.pool(&["import", "-d", &lab.at("alone"), "tank"]);
    holds(&lab, &[1, 2]);
    lab.pool(&["export", "tank"]);
    lab.pool(&["check", "-d", &lab.at("alone"), "tank"]);
}

/// Has a new image stand where one was, while nobody has it open.
fn put_a_new_one_in_the_place_of(lab: &Lab, image: &str) {
    lab.kill("tank");
    fs::remove_file(lab.path(image)).unwrap();
    lab.pool(&["import", "tank"]);
    File::create(lab.path(image)).unwrap().set_len(80 << 20).unwrap();
}

/// The paths that are known of the pool's devices.
fn known(lab: &Lab) -> Vec<String> {
    let text = fs::read_to_string(lab.path("state/pools/tank.json")).unwrap();
    let paths = text.lines().filter(|line| line.contains(".img"));
    paths.map(|path| path.rsplit('/').next().unwrap().trim_matches(|c| c == '"' || c == ',').to_owned()).collect()
}

#[test]
fn a_device_is_replaced_by_a_new_one_at_its_path_and_the_pool_is_known_by_each_path_once() {
    let lab = furnished();
    put_a_new_one_in_the_place_of(&lab, "a.img");
    lab.pool(&["replace", "-w", "tank", "a.img", "a.img"]);
    assert_eq!(known(&lab), ["a.img", "b.img"]);
    assert!(lab.pool(&["status", "-x", "tank"]).contains("is healthy"));
    // A service that is killed before the old device has left leaves both in the labels, and a file of old may have both.
    put_a_new_one_in_the_place_of(&lab, "b.img");
    lab.pool(&["replace", "tank", "b.img"]);
    lab.kill("tank");
    let file = lab.path("state/pools/tank.json");
    let twice = fs::read_to_string(&file)
        .unwrap()
        .replace("\"devices\": [", &format!("\"devices\": [\n\"{}\",", lab.at("b.img")));
    fs::write(&file, twice).unwrap();
    assert!(lab.pool(&["list", "-H", "-o", "name"]).contains("tank"));
    lab.pool(&["import", "tank"]);
    wait_until("the old one has left", || lab.pool(&["status", "-x", "tank"]).contains("is healthy"));
    holds(&lab, &[1]);
    lab.pool(&["destroy", "tank"]);
    assert_eq!(lab.pool(&["list", "-H", "-o", "name"]), "");
}

#[test]
fn a_device_that_was_away_is_opened_anew_and_filled_again_at_will() {
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
    assert!(status(&lab).contains("OFFLINE"), "what was put out of use stays so");
    lab.pool(&["online", "tank", "a.img"]);
    lab.pool(&["wait", "-t", "resilver", "tank"]);
    assert!(!status(&lab).contains("(resilvering"));
    lab.pool(&["replace", "tank", "a.img", "80M:c.img"]);
    lab.pool(&["scrub", "tank"]);
    let shown = lab.pool(&["wait", "-Hp", "-t", "replace,scrub", "tank", "0.05"]);
    assert!(shown.lines().last() == Some("-\t-"), "{shown}");
    assert!(!status(&lab).contains("a.img"), "it was replaced");
    told(&lab);
    fs::remove_file(lab.path("a.img")).unwrap();
    lab.check("tank");
}

/// What has happened so far in the order in which it has, and afterwards.
fn told(lab: &Lab) {
    let told = lab.pool(&["events", "-v", "tank"]);
    let mut rest = &told[..];
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
        let at = rest.find(what).unwrap_or_else(|| panic!("{what} is not in {rest} of {told}"));
        rest = &rest[at + what.len()..];
    }
    assert!(told.contains("vdev_remove"), "{told}");
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

#[test]
fn a_single_device_becomes_a_mirror_and_is_one_again() {
    let (lab, _filters) = (Lab::new(), filters().bind_to_scope());
    lab.pool(&["create", "-m", "none", "tank", "80M:a.img"]);
    lab.fs(&["create", "tank/home"]);
    put(&lab, 1);
    lab.pool(&["attach", "-w", "tank", "a.img", "80M:b.img"]);
    put(&lab, 2);
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
    lab.pool(&["detach", "tank", "a.img"]);
    assert_snapshot!(status(&lab), @r"
    $ pool status tank
      pool: tank
     state: ONLINE
      scan: resilvered [SIZE] in [TIME] with 0 errors on [DATE]
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  [LAB]/b.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    fs::remove_file(lab.path("a.img")).unwrap();
    lab.pool(&["export", "tank"]);
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    holds(&lab, &[1, 2]);
    lab.check("tank");
}

#[test]
fn what_rots_on_one_device_is_healed_by_reading_and_by_a_scrub() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
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

#[test]
fn what_does_not_fit_is_refused_in_words() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
    assert_snapshot!(lab.session(&[
        "pool create other mirror 64M:x.img",
        "pool create other 64M:w.img mirror 64M:x.img 64M:y.img",
        "pool create other mirror 64M:x.img 64M:y.img mirror 64M:z.img 64M:w.img 64M:v.img",
        "pool create -n other mirror 64M:x.img 64M:y.img mirror 64M:z.img 64M:w.img",
        "pool add tank 64M:x.img",
        "pool add -n tank mirror 64M:x.img 64M:y.img",
        "pool attach tank a.img 64M:small.img",
        "pool attach tank nowhere.img 80M:x.img",
        "pool detach tank nowhere.img",
    ]), @r"
    $ pool create other mirror 64M:x.img
    pool: cannot create 'other': a mirror has 2 to 16 devices
      name them after the word: mirror DEVICE DEVICE
    [exit 1]
    $ pool create other 64M:w.img mirror 64M:x.img 64M:y.img
    pool: cannot create 'other': mismatched replication level: both disk and 2-way mirror vdevs are named
      use -f to have it so: data is spread over all vdevs, and lost with any of them
    [exit 1]
    $ pool create other mirror 64M:x.img 64M:y.img mirror 64M:z.img 64M:w.img 64M:v.img
    pool: cannot create 'other': mismatched replication level: both 2-way mirror and 3-way mirror vdevs are named
      use -f to have it so: data is spread over all vdevs, and lost with any of them
    [exit 1]
    $ pool create -n other mirror 64M:x.img 64M:y.img mirror 64M:z.img 64M:w.img
    would create 'other' with the following layout:

    	other
    	  mirror-0
    	  [LAB]/x.img
    	  [LAB]/y.img
    	  mirror-1
    	  [LAB]/z.img
    	  [LAB]/w.img

    space: 124M
    mirror-0, mirror-1: any one device of each may be lost; with a second one of the same vdev, the pool is lost
    [exit 0]
    $ pool add tank 64M:x.img
    pool: cannot add to 'tank': mismatched replication level: pool uses 2-way mirror and new vdev is disk
      use -f to have it so: data is spread over all vdevs, and lost with any of them
    [exit 1]
    $ pool add -n tank mirror 64M:x.img 64M:y.img
    would update 'tank' to the following configuration:

    	tank
    	  mirror-0
    	  [LAB]/a.img
    	  [LAB]/b.img
    	  mirror-1
    	  [LAB]/x.img
    	  [LAB]/y.img

    space: 140M
    mirror-0, mirror-1: any one device of each may be lost; with a second one of the same vdev, the pool is lost
    [exit 0]
    $ pool attach tank a.img 64M:small.img
    pool: cannot attach to '[LAB]/a.img': [LAB]/small.img is too small: it has 67108864 bytes, and it takes 83886080
    [exit 1]
    $ pool attach tank nowhere.img 80M:x.img
    pool: cannot attach to '[LAB]/nowhere.img': no such device in pool: [LAB]/nowhere.img
    [exit 1]
    $ pool detach tank nowhere.img
    pool: cannot detach '[LAB]/nowhere.img': no such device in pool: [LAB]/nowhere.img
    [exit 1]
    ");
}

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
    status: Devices were used without each other: [LAB]/[SIDE]
    	holds changes that the others lack, and they hold some that it lacks.
    action: The pool cannot be imported with all of them. Each side is whole:
    	import one of them while the devices of the other are away, then
    	'pool detach' these, and 'pool attach' gives up what they hold.
    config:

    	tank  UNAVAIL
    	  mirror-0  ONLINE
    	  [LAB]/a/a.img  ONLINE
    	  [LAB]/b/b.img  ONLINE
    [exit 0]
    $ pool import -d [LAB]/a -d [LAB]/b tank
    pool: cannot open 'tank': pool tank is split: [LAB]/[SIDE] holds changes that the other devices lack, and they hold some that it lacks
      each side is whole: import one of them while the devices of the other are away;
      then 'pool detach' these, and 'pool attach' gives up what they hold
    [exit 1]
    ");
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
    status: One or more devices are out of use, offline or after too many errors.
    action: The pool can be imported as it is, in a degraded state.
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
    let wanted = &content(1)[8192..12288];
    let place = image.chunks(4096).position(|sector| sector == wanted).unwrap() as u64 * 4096;
    let file = File::options().write(true).open(lab.path("a.img")).unwrap();
    file.write_all_at(&[0xee; 512], place).unwrap();
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    assert_snapshot!(lab.session(&["pool replace -w tank b.img 80M:c.img"]), @r"
    $ pool replace -w tank b.img 80M:c.img
    pool: cannot resilver '[LAB]/c.img': one block cannot be read from any other device
      it stays as it is; see: pool status -v tank
    [exit 1]
    ");
    assert_snapshot!(lab.session(&["pool status -v tank"]), @r"
    $ pool status -v tank
      pool: tank
     state: DEGRADED
    status: One or more devices could not be resilvered: there is no good copy of some blocks.
    	A device that is being replaced stays until there is.
    action: If a device that has them can come back: pool online tank DEVICE
    	Otherwise restore or delete the files that 'pool status -v' names.
    	Then: pool clear tank
    	or let the old device go without them: pool detach -f tank DEVICE
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
    // It has what the other one has lost, and is still there.
    lab.pool(&["online", "tank", "b.img"]);
    wait_until("the resilver is done", || !lab.pool(&["status", "tank"]).contains("b.img"));
    lab.pool(&["detach", "tank", "a.img"]);
    holds(&lab, &[1]);
    fs::remove_file(lab.path("a.img")).unwrap();
    fs::remove_file(lab.path("b.img")).unwrap();
    lab.check("tank");
}

#[test]
fn spares_and_vdevs_are_added_together_or_not_at_all() {
    let (lab, _filters) = (Lab::mountless(), filters().bind_to_scope());
    lab.pool(&["create", "-m", "none", "-o", "ashift=16", "tank", "80M:a.img"]);
    let columns = (1..=6).map(|n| format!("80M:{n}.img")).collect::<Vec<_>>().join(" ");
    assert_snapshot!(lab.session(&[&format!("pool add -f tank spare 80M:s.img raidz1 {columns}"), "pool list -v -H -o name tank"]), @r"
    $ pool add -f tank spare 80M:s.img raidz1 80M:1.img 80M:2.img 80M:3.img 80M:4.img 80M:5.img 80M:6.img
    pool: cannot add to 'tank': the regions of this pool, 1048576 bytes, are too small for a raidz of so many devices
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
    pool: cannot add to 'tank': the spare [LAB]/s.img has 73400320 bytes, and is too small to step in for any device: that takes 94371840
      use -f to have it stand by anyway
    [exit 1]
    $ pool add tank spare 70M:s.img
    pool: cannot add to 'tank': the spare [LAB]/s.img has 73400320 bytes, and is too small to step in for any device: that takes 94371840
      use -f to have it stand by anyway
    [exit 1]
    ");
    assert!(!lab.path("s.img").exists());
    lab.pool(&["add", "-f", "tank", "spare", "70M:s.img"]);
    // It may step in for one that comes with it.
    lab.pool(&["remove", "tank", "s.img"]);
    lab.pool(&["add", "tank", "spare", "70M:t.img", "mirror", "70M:c.img", "70M:d.img"]);
    lab.check("tank");
}

#[test]
fn a_replacement_that_cannot_complete_is_brought_to_its_end_or_given_up() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
    put(&lab, 2);
    lab.pool(&["detach", "tank", "b.img"]);
    lab.pool(&["export", "tank"]);
    let image = fs::read(lab.path("a.img")).unwrap();
    let wanted = &content(1)[8192..12288];
    let place = image.chunks(4096).position(|sector| sector == wanted).unwrap() as u64 * 4096;
    let file = File::options().write(true).open(lab.path("a.img")).unwrap();
    file.write_all_at(&[0xee; 512], place).unwrap();
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    lab.run("pool", &["replace", "-w", "tank", "a.img", "80M:c.img"]).fails(1);
    // The new one is not wanted any more.
    lab.pool(&["detach", "tank", "c.img"]);
    let status = lab.pool(&["status", "tank"]);
    assert!(status.contains("a.img") && !status.contains("c.img") && !status.contains("mirror"), "{status}");
    lab.run("pool", &["replace", "-w", "-f", "tank", "a.img", "c.img"]).fails(1);
    assert_snapshot!(lab.session(&["pool detach tank a.img", "pool detach -f tank a.img"]), @r"
    $ pool detach tank a.img
    pool: cannot detach '[LAB]/a.img': [LAB]/c.img lacks one block that no other device gives
      what is lost is of: tank/home:/1
      if [LAB]/a.img cannot give it back, let it go: pool detach -f tank [LAB]/a.img
    [exit 1]
    $ pool detach -f tank a.img
    [exit 0]
    ");
    let status = lab.pool(&["status", "-v", "tank"]);
    assert!(!status.contains("a.img") && !status.contains("mirror") && status.contains("state: ONLINE"), "{status}");
    assert!(status.contains("tank/home:/1\n"), "{status}");
    fs::remove_file(lab.path("a.img")).unwrap();
    lab.pool(&["export", "tank"]);
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    holds(&lab, &[2]);
    assert_ne!(lab.run("fs", &["cat", "tank/home:/1"]).code, Some(0));
    lab.fs(&["destroy", "tank/home"]);
    lab.pool(&["wait", "-t", "freeing", "tank"]);
    lab.check("tank");
}

/// Writes files into a folder and reads them until `done`; how many there are.
fn use_folder(folder: &Path, done: &AtomicBool, count: &AtomicU64) {
    for number in 0.. {
        let (name, wanted) =
            (folder.join(format!("file-{number}")), noise(40_000 + number as usize % 7 * 30_000, number));
        fs::write(&name, &wanted).unwrap();
        count.store(number + 1, Ordering::Release);
        let earlier = number / 2;
        let found = fs::read(folder.join(format!("file-{earlier}"))).unwrap();
        assert!(found == noise(40_000 + earlier as usize % 7 * 30_000, earlier), "file {earlier}");
        if done.load(Ordering::Acquire) || number == 400 {
            return;
        }
    }
}

#[test]
fn files_are_used_while_a_device_dies_and_another_one_takes_its_place() {
    if !can_mount() {
        return;
    }
    let (lab, _filters) = (Lab::new(), filters().bind_to_scope());
    if !small_file_system(&lab.path("small"), "24m") {
        return;
    }
    let on_small = lab.at("small/b.img");
    let mountpoint = lab.at("mnt/tank");
    lab.pool(&["create", "-m", &mountpoint, "tank", "mirror", "200M:a.img", &format!("200M:{on_small}")]);
    let (folder, done, count) = (lab.mount("tank"), AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let user = scope.spawn(|| use_folder(&folder, &done, &count));
        // The file system below it runs full.
        wait_until("the device has died", || lab.pool(&["status", "tank"]).contains("state: DEGRADED"));
        lab.fs(&["snapshot", "tank@degraded"]);
        lab.pool(&["replace", "-w", "tank", &on_small, "200M:c.img"]);
        lab.pool(&["scrub", "-w", "tank"]);
        done.store(true, Ordering::Release);
        user.join().unwrap();
    });
    let status = lab.pool(&["status", "tank"]);
    assert!(status.contains("state: ONLINE") && status.contains("with 0 errors"), "{status}");
    assert!(status.contains("c.img") && !status.contains("b.img"), "{status}");
    // The new one alone is all of it.
    lab.pool(&["export", "tank"]);
    fs::create_dir(lab.path("alone")).unwrap();
    fs::rename(lab.path("a.img"), lab.path("away")).unwrap();
    fs::rename(lab.path("c.img"), lab.path("alone/c.img")).unwrap();
    lab.pool(&["import", "-d", &lab.at("alone"), "tank"]);
    assert!(count.load(Ordering::Acquire) > 10);
    for number in 0..count.load(Ordering::Acquire) {
        let found = fs::read(folder.join(format!("file-{number}"))).unwrap();
        assert!(found == noise(40_000 + number as usize % 7 * 30_000, number), "file {number}");
    }
    assert_snapshot!(lab.session(&["pool status tank"]), @r"
    $ pool status tank
      pool: tank
     state: DEGRADED
    status: One or more devices could not be used: they are missing or do not answer.
    	There are sufficient replicas for the pool to go on in a degraded state.
    action: Attach the device and use: pool online tank DEVICE
    	or replace it: pool replace tank DEVICE NEW
      scan: scrub repaired [SIZE] in [TIME] with 0 errors on [DATE]
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  DEGRADED  0  0  0
    	  mirror-0  DEGRADED  0  0  0
    	  [LAB]/a.img  UNAVAIL  0  0  0
    	  [LAB]/alone/c.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    lab.pool(&["export", "tank"]);
    lab.pool(&["check", "-d", &lab.at("alone"), "tank"]);
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
    pool: cannot split 'tank': [LAB]/b.img and [LAB]/a.img are of one mirror, of which one device leaves
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
fn a_spare_steps_in_and_stands_by_again_when_the_device_is_back() {
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
    status: One or more devices could not be used: they are missing or do not answer.
    	There are sufficient replicas for the pool to go on in a degraded state.
    action: Attach the device and use: pool online tank DEVICE
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
    pool: cannot remove '[LAB]/c.img': the spare [LAB]/c.img is in use; pool detach gives it back
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
    let history = lab.pool(&["history", "tank"]);
    assert!(history.contains("c.img stepped in for") && history.contains("c.img stands by again"), "{history}");
    holds(&lab, &[1, 2]);
    lab.pool(&["remove", "tank", "c.img"]);
    lab.pool(&["create", "-m", "none", "other", "c.img"]);
    lab.check("tank");
}

#[test]
fn a_spare_takes_the_place_of_a_device_for_good_and_an_empty_one_that_appears_does() {
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

#[test]
fn an_older_copy_of_a_device_is_passed_over_whatever_it_is_called() {
    for copy in ["0.img", "z.img"] {
        let lab = furnished();
        lab.pool(&["export", "tank"]);
        // It takes the place of one that is lost, where the pool would look for that.
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
fn a_copy_of_a_pool_is_imported_beside_it_once_it_has_another_number() {
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
fn what_is_split_off_is_imported_below_a_directory_with_properties_of_its_own() {
    if !can_mount() {
        return;
    }
    let (lab, _filters) = (Lab::new(), filters().bind_to_scope());
    let home = lab.at("mnt/tank");
    lab.pool(&["create", "-m", &home, "tank", "mirror", "80M:a.img", "80M:b.img"]);
    fs::write(lab.mount("tank/file"), content(1)).unwrap();
    assert_snapshot!(lab.session(&[
        "pool split -o nonsense=1 tank copy",
        "pool split -o altroot=/x tank copy",
        "pool split -R below/it tank copy",
        "pool split -R //. tank copy",
        "pool split -R /dev/null tank copy",
        "pool list -H -o name,health,altroot",
    ]), @r"
    $ pool split -o nonsense=1 tank copy
    pool: cannot split 'tank': invalid property 'nonsense'
      user properties have a colon in their name, as in 'me:backup'
    [exit 1]
    $ pool split -o altroot=/x tank copy
    pool: cannot split 'tank': 'altroot' is readonly
    [exit 1]
    $ pool split -R below/it tank copy
    pool: the directory 'below/it' is not an absolute path
    [exit 2]
    $ pool split -R //. tank copy
    pool: the directory '//.' is the root, below which the other pool is mounted
    [exit 2]
    $ pool split -R /dev/null tank copy
    pool: the directory '/dev/null' is no directory
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
    // Each goes on without the other.
    fs::write(&below, content(2)).unwrap();
    assert!(fs::read(lab.mount("tank/file")).unwrap() == content(1));
    for pool in ["tank", "copy"] {
        lab.pool(&["export", pool]);
        lab.pool(&["check", "-d", &lab.at(""), pool]);
    }
    // A directory is for one import, and a property for good.
    lab.pool(&["import", "-N", "-d", &lab.at(""), "copy"]);
    assert_eq!(lab.pool(&["get", "-H", "-o", "value", "comment,altroot", "copy"]), "split off\n-\n");
    lab.pool(&["export", "copy"]);
    // With properties alone it is exported again.
    lab.pool(&["import", "-N", "-d", &lab.at("a.img"), "tank"]);
    lab.pool(&["attach", "-w", "tank", "a.img", "80M:c.img"]);
    lab.pool(&["split", "-o", "comment=exported", "tank", "other", "c.img"]);
    assert_eq!(lab.pool(&["list", "-H", "-o", "name"]), "tank\n");
    lab.pool(&["import", "-N", "-d", &lab.at("c.img"), "other"]);
    assert_eq!(lab.pool(&["get", "-H", "-o", "value", "comment", "other"]), "exported\n");
}

#[test]
fn a_mirror_gets_a_third_device_and_one_that_is_offline_for_now_is_back_after_an_import() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
    assert_snapshot!(lab.session(&["pool attach -w tank b.img 80M:c.img", "pool status tank"]), @r"
    $ pool attach -w tank b.img 80M:c.img
    [exit 0]
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
    	  [LAB]/c.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    assert_snapshot!(lab.session(&["pool offline -t tank a.img", "pool status tank"]), @r"
    $ pool offline -t tank a.img
    [exit 0]
    $ pool status tank
      pool: tank
     state: DEGRADED
    status: One or more devices have been taken offline by the administrator.
    	There are sufficient replicas for the pool to go on in a degraded state.
    action: Use: pool online tank DEVICE
    	or replace it: pool replace tank DEVICE NEW
      scan: resilvered [SIZE] in [TIME] with 0 errors on [DATE]
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  DEGRADED  0  0  0
    	  mirror-0  DEGRADED  0  0  0
    	  [LAB]/a.img  OFFLINE  0  0  0
    	  [LAB]/b.img  ONLINE  0  0  0
    	  [LAB]/c.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    put(&lab, 2);
    lab.pool(&["export", "tank"]);
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
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
    	  [LAB]/c.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    // Without the flag it stays so.
    lab.pool(&["offline", "tank", "b.img"]);
    lab.pool(&["export", "tank"]);
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    let shown = status(&lab);
    assert!(shown.lines().any(|line| line.contains("b.img") && line.contains("OFFLINE")), "{shown}");
    lab.pool(&["online", "tank", "b.img"]);
    lab.pool(&["wait", "-t", "resilver", "tank"]);
    // Any one of the three is all of it.
    lab.pool(&["export", "tank"]);
    fs::create_dir(lab.path("alone")).unwrap();
    for image in ["a.img", "b.img", "c.img"] {
        fs::copy(lab.path(image), lab.path("alone").join(image)).unwrap();
        lab.pool(&["import", "-o", "readonly=on", "-d", &lab.at("alone"), "tank"]);
        holds(&lab, &[1, 2]);
        lab.pool(&["export", "tank"]);
        fs::remove_file(lab.path("alone").join(image)).unwrap();
    }
    lab.pool(&["check", "-d", &lab.at(""), "tank"]);
}
