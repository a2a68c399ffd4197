//! A disk of a pool in use is shrunk and expanded, through the programs.

mod lab;

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    thread,
};

use insta::{Settings, assert_snapshot};
use lab::{Lab, can_mount, noise, wait_until};

const LEN: usize = 3_000_000;
const KEPT: std::ops::Range<u64> = 30..56;
/// 69 regions of 1 MiB, and space for labels.
const SMALL: u64 = 70 * (1 << 20) + (1 << 19);

/// Replaces values that change from run to run.
fn filters() -> Settings {
    let mut settings = lab::output::filters_for_paths();
    settings.add_filter(r"moved [\d.]+[BKM]? in \d+h\d+m", "moved [SIZE] in [TIME]");
    settings.add_filter(r"(?m)^[\d.]+[BKM]? would be moved off its end", "[SIZE] would be moved off its end");
    settings
        .add_filter(r"\d+ empty regions of 1M needed elsewhere, \d+ available", "[COUNT] needed, [COUNT] available");
    settings.add_filter(r"possible size: [\d.]+M", "possible size: [SIZE]");
    settings.add_filter(r"(?m)^mounts: .*\n", "");
    settings.add_filter(r"(?m)^ +busy: freeing .*\n", "");
    settings
}

/// A pool `tank` of two disks with data at their ends, and the path of its files.
fn furnished(is_mounted: bool) -> (Lab, PathBuf) {
    let lab = Lab::new();
    let mountpoint = if is_mounted { lab.at("mnt/tank") } else { "none".to_owned() };
    lab.pool(&["create", "-m", &mountpoint, "tank", "100M:a.img", "100M:b.img"]);
    lab.fs(&["create", "-o", "compression=off", "tank/home"]);
    for seed in 0..KEPT.end {
        fs::write(lab.path("file"), noise(LEN, seed)).unwrap();
        lab.fs(&["cp", "file", &format!("tank/home:/{seed}")]);
    }
    fs::write(lab.path("empty"), "").unwrap();
    (0..KEPT.start).for_each(|seed| drop(lab.fs(&["cp", "empty", &format!("tank/home:/{seed}")])));
    lab.pool(&["wait", "-t", "freeing", "tank"]);
    (0..6).for_each(|round| {
        fs::write(lab.path("file"), [round]).unwrap();
        lab.fs(&["cp", "file", "tank/home:/tick"]);
        lab.pool(&["sync", "tank"]);
    });
    let home = lab.mount("tank").join("home");
    (lab, home)
}

fn holds_all(lab: &Lab) {
    for seed in KEPT {
        assert!(lab.fs_bytes(&["cat", &format!("tank/home:/{seed}")]) == noise(LEN, seed), "file {seed}");
    }
}

fn length(lab: &Lab, image: &str) -> u64 {
    fs::metadata(lab.path(image)).unwrap().len()
}

fn size(lab: &Lab) -> u64 {
    lab.pool(&["list", "-Hp", "-o", "size", "tank"]).trim().parse().unwrap()
}

/// Signals the end, also when the test fails, so that waiting threads stop.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn json(lab: &Lab) -> serde_json::Value {
    let status: serde_json::Value = serde_json::from_str(&lab.pool(&["status", "-j", "tank"])).unwrap();
    status["pools"]["tank"]["resize_stats"].clone()
}

#[test]
fn a_disk_becomes_smaller_while_files_are_used_and_larger_again() {
    if !can_mount() {
        return;
    }
    let ((lab, home), _filters) = (furnished(true), filters().bind_to_scope());
    let before = size(&lab);
    let (is_over, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(SeqCst) {
                let round = rounds.fetch_add(1, SeqCst);
                let path = home.join(format!("new{}", round % 4));
                fs::write(&path, noise(100_000, round)).unwrap();
                assert!(fs::read(&path).unwrap() == noise(100_000, round));
            }
        });
        let _ending = Ending(&is_over);
        let said = lab.pool(&["resize", "-w", "tank", "b.img", "70M"]);
        assert!(said.contains("b.img: 70.5M (whole regions of 1M)"), "{said}");
    });
    assert!(rounds.load(SeqCst) > 3);
    assert_eq!((length(&lab, "a.img"), length(&lab, "b.img")), (100 << 20, SMALL));
    let stats = json(&lab);
    assert_eq!((&stats["state"], &stats["errors"]), (&"FINISHED".into(), &"0".into()), "{stats}");
    assert!(stats["copied"].as_str().unwrap().parse::<u64>().unwrap() > 5 << 20, "{stats}");
    let smaller = size(&lab);
    assert!(smaller < before - (28 << 20), "{before} {smaller}");
    holds_all(&lab);
    lab.check("tank");
    holds_all(&lab);
    let history = lab.pool(&["history", "tank"]);
    assert!(history.contains("pool resize -w tank b.img 70M"), "{history}");
    // The image gets its old size back, which counts as growth.
    fs::File::options().write(true).open(lab.path("b.img")).unwrap().set_len(100 << 20).unwrap();
    lab.pool(&["online", "-e", "tank", "b.img"]);
    assert_eq!(size(&lab), before);
    (0..20).for_each(|seed| fs::write(home.join(seed.to_string()), noise(LEN, seed)).unwrap());
    lab.check("tank");
    holds_all(&lab);
    assert!((0..20).all(|seed| fs::read(home.join(seed.to_string())).unwrap() == noise(LEN, seed)));
}

#[test]
fn the_job_is_limited_paused_and_resumed_after_a_kill() {
    if !can_mount() {
        return;
    }
    let ((lab, home), _filters) = (furnished(true), filters().bind_to_scope());
    lab.pool(&["resize", "--limit", "100K", "tank", "b.img", "-29M"]);
    wait_until("it copies", || lab.pool(&["status", "tank"]).contains("copied out of"));
    let status = lab.pool(&["status", "tank"]);
    assert!(status.contains("resize: in progress since") && status.contains("limited to 100K/s"), "{status}");
    let refused = lab.session(&["pool rebalance tank", "pool defragment tank", "pool online -e tank b.img"]);
    assert_eq!(refused.matches("a resize is in progress; use pool resize -s to stop it").count(), 3, "{refused}");
    lab.kill("tank");
    lab.pool(&["import", "tank"]);
    assert_eq!(json(&lab)["state"], "SCANNING");
    lab.pool(&["resize", "-p", "tank"]);
    lab.pool(&["wait", "-t", "resize", "tank"]);
    assert!(lab.pool(&["status", "tank"]).contains("resize: paused, started on"));
    lab.check("tank");
    assert_eq!((json(&lab)["state"].clone(), length(&lab, "b.img")), ("PAUSED".into(), 100 << 20));
    lab.pool(&["resize", "--limit", "1G", "tank", "b.img", "-29M"]);
    fs::write(home.join("new"), noise(LEN, 99)).unwrap();
    lab.pool(&["wait", "-t", "resize", "tank"]);
    wait_until("the image is cut", || length(&lab, "b.img") < 80 << 20);
    let events = lab.pool(&["events", "tank"]);
    assert!(events.contains("resize_resume") && events.contains("resize_finish"), "{events}");
    assert!(fs::read(home.join("new")).unwrap() == noise(LEN, 99));
    holds_all(&lab);
    lab.check("tank");
    holds_all(&lab);
}

#[test]
fn a_resize_that_waits_for_a_device_blocks_no_other_work() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new();
    let mountpoint = lab.at("mnt/tank");
    lab.pool(&["create", "-m", &mountpoint, "-O", "compression=off", "tank", "mirror", "100M:a.img", "100M:b.img"]);
    let mount = lab.mount("tank");
    (0..26).for_each(|seed| fs::write(mount.join(seed.to_string()), noise(LEN, seed)).unwrap());
    (0..16).for_each(|seed| fs::remove_file(mount.join(seed.to_string())).unwrap());
    lab.pool(&["wait", "-t", "freeing", "tank"]);
    (0..6).for_each(|round| {
        fs::write(mount.join("tick"), [round]).unwrap();
        lab.pool(&["sync", "tank"]);
    });
    lab.pool(&["resize", "--limit", "3M", "tank", "mirror-0", "72M"]);
    lab.pool(&["offline", "tank", "b.img"]);
    wait_until("everything has moved", || !json(&lab)["obstacle"].is_null());
    let status = lab.pool(&["status", "tank"]);
    assert!(
        status.contains("\tit is waiting for ") && status.contains("b.img, which is missing or incomplete"),
        "{status}"
    );
    lab.pool(&["wait", "-t", "resize", "tank"]);
    lab.pool(&["scrub", "-w", "tank"]);
    lab.pool(&["resize", "-p", "tank"]);
    lab.pool(&["online", "tank", "b.img"]);
    lab.pool(&["wait", "-t", "resilver", "tank"]);
    lab.pool(&["resize", "-w", "tank", "mirror-0", "72M"]);
    assert_eq!((&json(&lab)["state"], &json(&lab)["obstacle"]), (&"FINISHED".into(), &serde_json::Value::Null));
    assert!(["a.img", "b.img"].iter().all(|image| length(&lab, image) < 74 << 20));
    assert!((16..26).all(|seed| fs::read(mount.join(seed.to_string())).unwrap() == noise(LEN, seed)));
    lab.check("tank");
}

#[test]
fn impossible_resizes_are_refused() {
    let (lab, _filters) = (furnished(false).0, filters().bind_to_scope());
    lab.pool(&["create", "-m", "none", "wide", "raidz1", "100M:1.img", "100M:2.img", "100M:3.img"]);
    assert_snapshot!(
        lab.session(&[
            "pool resize -n tank b.img 70M",
            "pool resize tank b.img",
            "pool resize tank b.img plenty",
            "pool resize tank b.img 200M",
            "pool resize tank b.img 100M",
            "pool resize tank b.img 20M",
            "pool resize tank c.img 70M",
            "pool resize wide 1.img -20M",
            "pool resize -s tank",
            "pool resize -p tank",
            "pool resize -w tank b.img -29M",
            "pool status tank",
        ]),
        @r"
    $ pool resize -n tank b.img 70M
    new size of [LAB]/b.img: 70.5M (whole regions of 1M)
    [SIZE] would be moved off its end
    [COUNT] needed, [COUNT] available
    smallest possible size: [SIZE]
    [exit 0]
    $ pool resize tank b.img
    error: the following required arguments were not provided:
      <SIZE>

    Usage: pool resize [OPTIONS] <POOL> [DEVICE] [SIZE]

    For more information, try '--help'.
    [exit 2]
    $ pool resize tank b.img plenty
    pool: bad size: 'plenty' is not a number
    [exit 2]
    $ pool resize tank b.img 200M
    pool: cannot resize '[LAB]/b.img': [LAB]/b.img has 100M; to use added space: pool online -e
    [exit 1]
    $ pool resize tank b.img 100M
    pool: cannot resize '[LAB]/b.img': [LAB]/b.img has 100M and can only shrink by whole regions of 1M
    [exit 1]
    $ pool resize tank b.img 20M
    pool: cannot resize '[LAB]/b.img': 20M is too small: at least 64M needed
    [exit 1]
    $ pool resize tank c.img 70M
    pool: cannot resize '[LAB]/c.img': no such device in pool
      to list the devices: pool status tank
    [exit 1]
    $ pool resize wide 1.img -20M
    pool: cannot resize '[LAB]/1.img': raidz1-0 is a raidz, which cannot be shrunk; add a smaller vdev instead, then remove raidz1-0
    [exit 1]
    $ pool resize -s tank
    pool: cannot stop the resize of a device of 'tank': no resize is in progress
    [exit 1]
    $ pool resize -p tank
    pool: cannot pause the resize of a device of 'tank': no resize is in progress
    [exit 1]
    $ pool resize -w tank b.img -29M
    new size of [LAB]/b.img: 71.5M (whole regions of 1M)
    [exit 0]
    $ pool status tank
      pool: tank
     state: ONLINE
    resize: moved [SIZE] in [TIME] on [DATE]
    	[LAB]/b.img is now 71.5M
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	  [LAB]/b.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    "
    );
    assert_eq!(length(&lab, "b.img"), 71 * (1 << 20) + (1 << 19));
    let available: usize = lab.fs(&["get", "-Hp", "-o", "value", "available", "tank"]).trim().parse().unwrap();
    fs::write(lab.path("file"), noise(available - (2 << 20), 7)).unwrap();
    lab.fs(&["cp", "file", "tank/home:/large"]);
    let refused = lab.run("pool", &["resize", "tank", "b.img", "64M"]).fails(1);
    assert!(refused.contains("empty regions") && refused.contains("smallest possible size: "), "{refused}");
    holds_all(&lab);
    lab.check("tank");
}
