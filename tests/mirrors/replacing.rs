//! Replaced devices: after a failure, or on request; and mirrors that get wider or narrower.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use insta::assert_snapshot;

use crate::{
    content, filters, furnished, holds,
    lab::{Lab, can_mount, noise, small_file_system, wait_until},
    put, status, wait_for_resilver,
};

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
    status: One or more devices are missing from the system.
    	The remaining devices have all data.
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
    status: One or more devices are missing or do not respond.
    	Sufficient replicas exist; the pool continues in a degraded state.
    action: Connect the device and bring it online: pool online tank DEVICE
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
    // The new device alone is the pool.
    lab.pool(&["export", "tank"]);
    fs::rename(lab.path("a.img"), lab.path("away")).unwrap();
    fs::create_dir(lab.path("alone")).unwrap();
    fs::rename(lab.path("c.img"), lab.path("alone/c.img")).unwrap();
    lab.pool(&["import", "-d", &lab.at("alone"), "tank"]);
    holds(&lab, &[1, 2]);
    lab.pool(&["export", "tank"]);
    lab.pool(&["check", "-d", &lab.at("alone"), "tank"]);
}

/// Puts a new image at the path of an old image, while the pool is closed.
fn put_a_new_one_in_the_place_of(lab: &Lab, image: &str) {
    lab.kill("tank");
    fs::remove_file(lab.path(image)).unwrap();
    lab.pool(&["import", "tank"]);
    File::create(lab.path(image)).unwrap().set_len(80 << 20).unwrap();
}

/// The registered paths of the pool's devices.
fn known(lab: &Lab) -> Vec<String> {
    let text = fs::read_to_string(lab.path("state/pools/tank.json")).unwrap();
    let paths = text.lines().filter(|line| line.contains(".img"));
    paths.map(|path| path.rsplit('/').next().unwrap().trim_matches(|c| c == '"' || c == ',').to_owned()).collect()
}

#[test]
fn a_planned_replacement_shows_the_layout_and_changes_nothing() {
    let lab = furnished();
    let before = lab.pool(&["status", "tank"]);
    let plan = |words: &[&str]| lab.run("pool", &[&["replace", "-n", "tank"], words].concat());
    let said = plan(&["b.img", "80M:c.img"]).ok();
    assert!(said.starts_with("would update 'tank' to the following configuration:"), "{said}");
    assert!(said.contains("c.img") && said.contains("a.img") && !said.contains("b.img"), "{said}");
    assert!(!lab.path("c.img").exists(), "an image was made");
    assert!(plan(&["b.img", "64M:c.img"]).fails(1).contains("too small"));
    assert!(plan(&["b.img", "a.img"]).fails(1).contains("already a device of the pool"));
    assert!(plan(&["b.img"]).fails(1).contains("in use in pool 'tank'"));
    let said = plan(&["-f", "b.img"]).ok();
    assert!(said.contains("a.img") && said.contains("b.img"), "{said}");
    lab.pool(&["add", "tank", "spare", "80M:s.img"]);
    let said = plan(&["b.img", "s.img"]).ok();
    assert!(said.contains("s.img") && !said.contains("b.img"), "{said}");
    lab.pool(&["remove", "tank", "s.img"]);
    assert_eq!(lab.pool(&["status", "tank"]), before);
    assert!(lab.run("pool", &["replace", "-n", "-w", "tank", "b.img", "80M:c.img"]).fails(2).contains("-w"));
}

#[test]
fn a_new_device_at_the_same_path_replaces_the_old_one() {
    let lab = furnished();
    put_a_new_one_in_the_place_of(&lab, "a.img");
    lab.pool(&["replace", "-w", "tank", "a.img", "a.img"]);
    assert_eq!(known(&lab), ["a.img", "b.img"]);
    assert!(lab.pool(&["status", "-x", "tank"]).contains("is healthy"));
    // A service killed before the detach leaves both devices in the labels, and an old registry file may have both.
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
fn a_device_that_was_wiped_replaces_itself() {
    let lab = furnished();
    lab.damages();
    let label = 1 << 20;
    let image = File::options().write(true).open(lab.path("b.img")).unwrap();
    // It holds a pool: this pool.
    assert!(lab.run("pool", &["replace", "tank", "b.img"]).fails(1).contains("pool 'tank'"));
    assert!(lab.pool(&["status", "-x", "tank"]).contains("is healthy"));
    let len = image.metadata().unwrap().len();
    (0..len / label).for_each(|at| image.write_all_at(&vec![0; label as usize], at * label).unwrap());
    drop(image);
    lab.pool(&["replace", "-w", "tank", "b.img"]);
    assert!(lab.pool(&["status", "-x", "tank"]).contains("is healthy"));
    lab.pool(&["replace", "-f", "-w", "tank", "a.img"]);
    assert!(lab.pool(&["status", "-x", "tank"]).contains("is healthy"));
    holds(&lab, &[1]);
    lab.pool(&["scrub", "-w", "tank"]);
    assert_eq!(known(&lab), ["a.img", "b.img"]);
    lab.pool(&["export", "tank"]);
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    holds(&lab, &[1]);
}

#[test]
fn a_stuck_replacement_is_completed_or_cancelled() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
    put(&lab, 2);
    lab.pool(&["detach", "tank", "b.img"]);
    lab.pool(&["export", "tank"]);
    let image = fs::read(lab.path("a.img")).unwrap();
    lab.damages();
    let wanted = &content(1)[8192..12288];
    let place = image.chunks(4096).position(|sector| sector == wanted).unwrap() as u64 * 4096;
    let file = File::options().write(true).open(lab.path("a.img")).unwrap();
    file.write_all_at(&[0xee; 512], place).unwrap();
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    lab.run("pool", &["replace", "-w", "tank", "a.img", "80M:c.img"]).fails(1);
    // The new device is no longer wanted.
    lab.pool(&["detach", "tank", "c.img"]);
    let status = lab.pool(&["status", "tank"]);
    assert!(status.contains("a.img") && !status.contains("c.img") && !status.contains("mirror"), "{status}");
    lab.run("pool", &["replace", "-w", "-f", "tank", "a.img", "c.img"]).fails(1);
    assert_snapshot!(lab.session(&["pool detach tank a.img", "pool detach -f tank a.img"]), @r"
    $ pool detach tank a.img
    pool: cannot detach '[LAB]/a.img': [LAB]/c.img lacks one block without a good copy on other devices
      affected: tank/home:/1
      to give up the blocks: pool detach -f tank [LAB]/a.img
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

/// Writes files into a folder and reads them until `done`, counting them in `count`.
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
fn files_stay_in_use_while_a_device_dies_and_is_replaced() {
    if !can_mount() {
        return;
    }
    let (lab, _filters) = (Lab::new(), filters().bind_to_scope());
    lab.damages();
    if !small_file_system(&lab.path("small"), "24m") {
        return;
    }
    let on_small = lab.at("small/b.img");
    let mountpoint = lab.at("mnt/tank");
    lab.pool(&["create", "-m", &mountpoint, "tank", "mirror", "200M:a.img", &format!("200M:{on_small}")]);
    let (folder, done, count) = (lab.mount("tank"), AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let user = scope.spawn(|| use_folder(&folder, &done, &count));
        // The file system below the image runs full.
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
    // The new device alone holds everything.
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
    status: One or more devices are missing or do not respond.
    	Sufficient replicas exist; the pool continues in a degraded state.
    action: Connect the device and bring it online: pool online tank DEVICE
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
fn a_mirror_gets_a_third_device_and_offline_t_ends_at_import() {
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
    	Sufficient replicas exist; the pool continues in a degraded state.
    action: Bring the device online: pool online tank DEVICE
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
    // Without the flag it stays offline.
    lab.pool(&["offline", "tank", "b.img"]);
    lab.pool(&["export", "tank"]);
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    let shown = status(&lab);
    assert!(shown.lines().any(|line| line.contains("b.img") && line.contains("OFFLINE")), "{shown}");
    lab.pool(&["online", "tank", "b.img"]);
    lab.pool(&["wait", "-t", "resilver", "tank"]);
    // Each of the three alone holds everything.
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
