//! A pool gets a disk and is rebalanced, through the programs, with `pool status` at each stage.

mod lab;

use std::{fs, time::Instant};

use insta::{Settings, assert_snapshot};
use lab::{Lab, can_mount, noise, wait_until};

/// Replaces values that change from run to run.
fn filters() -> Settings {
    let mut settings = lab::output::filters_for_paths();
    settings.add_filter(
        r"[\d.]+[BKM]? in \d+ regions of 1M would be moved",
        "[SIZE] in [COUNT] regions of 1M would be moved",
    );
    settings.add_filter(r"moved [\d.]+[BKM]? in \d+h\d+m", "moved [SIZE] in [TIME]");
    settings.add_filter(
        r"[\d.]+[BKM]? copied out of [\d.]+[BKM]?, [\d.]+% done",
        "[SIZE] copied out of [SIZE], [SHARE]% done",
    );
    // The transport depends on the machine.
    settings.add_filter(r"mounts: \d+ through \S+\n", "");
    settings.add_filter(r"(?m)^ +busy: freeing .*\n", "");
    settings
}

const LEN: usize = 3_000_000;

/// A pool `tank` with files on its first disk, and an added second disk.
fn furnished(is_mounted: bool) -> Lab {
    let lab = Lab::new();
    let mountpoint = if is_mounted { lab.at("mnt/tank") } else { "none".to_owned() };
    lab.pool(&["create", "-m", &mountpoint, "tank", "100M:a.img"]);
    lab.fs(&["create", "-o", "compression=off", "tank/home"]);
    for seed in 0..15 {
        fs::write(lab.path("file"), noise(LEN, seed)).unwrap();
        lab.fs(&["cp", "file", &format!("tank/home:/{seed}")]);
    }
    lab.pool(&["sync", "tank"]);
    lab
}

/// Asserts that all files are in the pool, unchanged.
fn holds_all(lab: &Lab) {
    for seed in 0..15 {
        assert!(lab.fs_bytes(&["cat", &format!("tank/home:/{seed}")]) == noise(LEN, seed), "file {seed}");
    }
}

#[test]
fn a_disk_that_was_added_gets_its_share() {
    let (lab, _filters) = (furnished(false), filters().bind_to_scope());
    assert_snapshot!(
        lab.session(&[
            "pool rebalance tank",
            "pool rebalance -s tank",
            "pool rebalance -p tank",
            "pool add tank 100M:b.img",
            "pool rebalance -n tank",
            "pool rebalance -w tank",
            "pool rebalance -n tank",
            "pool wait -t rebalance tank",
            "pool status tank",
        ]),
        @r"
    $ pool rebalance tank
    Nothing to do: no two vdevs can exchange data
    [exit 0]
    $ pool rebalance -s tank
    pool: cannot stop the rebalance of 'tank': no rebalance is in progress
    [exit 1]
    $ pool rebalance -p tank
    pool: cannot pause the rebalance of 'tank': no rebalance is in progress
    [exit 1]
    $ pool add tank 100M:b.img
    [exit 0]
    $ pool rebalance -n tank
    [SIZE] in [COUNT] regions of 1M would be moved
    [exit 0]
    $ pool rebalance -w tank
    [exit 0]
    $ pool rebalance -n tank
    Nothing to do: all vdevs are about equally full
    [exit 0]
    $ pool wait -t rebalance tank
    [exit 0]
    $ pool status tank
      pool: tank
     state: ONLINE
    rebalance: moved [SIZE] in [TIME] on [DATE]
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  [LAB]/a.img  ONLINE  0  0  0
    	  [LAB]/b.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    "
    );
    holds_all(&lab);
    let history = lab.pool(&["history", "tank"]);
    assert!(history.contains("pool rebalance -w tank") && !history.contains("rebalance -n"), "{history}");
    lab.check("tank");
    lab.pool(&["remove", "-w", "tank", "a.img"]);
    holds_all(&lab);
    lab.check("tank");
}

#[test]
fn it_is_slowed_down_paused_and_goes_on_after_an_import() {
    if !can_mount() {
        return;
    }
    let (lab, _filters) = (furnished(true), filters().bind_to_scope());
    lab.pool(&["add", "tank", "100M:b.img"]);
    let begun = Instant::now();
    lab.pool(&["rebalance", "--limit", "4M", "tank"]);
    wait_until("it copies", || lab.pool(&["status", "tank"]).contains("copied out of"));
    let status = lab.pool(&["status", "tank"]);
    assert!(status.contains("rebalance: in progress since") && status.contains("limited to 4M/s"), "{status}");
    assert!(status.lines().all(|line| line.replace('\t', "        ").len() <= 80 || line.contains(".img")), "{status}");
    lab.pool(&["rebalance", "-p", "tank"]);
    lab.pool(&["wait", "-t", "rebalance", "tank"]);
    lab.pool(&["export", "tank"]);
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    let status = lab.pool(&["status", "tank"]);
    assert!(status.contains("rebalance: paused, started on"), "{status}");
    lab.pool(&["rebalance", "--limit", "8M", "tank"]);
    let files = lab.mount("tank").join("home");
    fs::write(files.join("new"), noise(LEN, 99)).unwrap();
    lab.pool(&["wait", "-t", "rebalance", "tank"]);
    let status = lab.pool(&["status", "tank"]);
    assert!(status.contains("rebalance: moved "), "{status}");
    // About 22 MB are moved.
    assert!(begun.elapsed().as_secs_f64() > 2.0, "{:?}", begun.elapsed());
    assert!(fs::read(files.join("new")).unwrap() == noise(LEN, 99));
    let events = lab.pool(&["events", "tank"]);
    assert!(events.contains("rebalance_resume") && events.contains("rebalance_finish"), "{events}");
    holds_all(&lab);
    lab.check("tank");
}

#[test]
fn one_thing_is_moved_at_a_time_and_a_removal_is_paused_too() {
    if !can_mount() {
        return;
    }
    let lab = furnished(true);
    lab.pool(&["add", "tank", "100M:b.img"]);
    lab.pool(&["remove", "--limit", "1M", "tank", "a.img"]);
    let refused = lab.session(&["pool rebalance tank"]);
    assert!(refused.contains("a removal is in progress; use pool remove -s to stop it"), "{refused}");
    lab.pool(&["remove", "-p", "tank"]);
    let status = lab.pool(&["status", "tank"]);
    assert!(status.contains("a.img paused, started on"), "{status}");
    assert!(lab.session(&["pool remove -p tank a.img"]).contains("[exit 2]"));
    assert!(lab.session(&["pool remove -p tank"]).contains("it is already paused"));
    lab.pool(&["remove", "--limit", "none", "tank", "a.img"]);
    assert!(!lab.pool(&["status", "tank"]).contains("limited to"));
    lab.pool(&["wait", "-t", "remove", "tank"]);
    assert!(!lab.pool(&["status", "tank"]).contains("a.img"));
    holds_all(&lab);
    lab.check("tank");
}
