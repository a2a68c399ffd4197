//! Defragmenting a pool full of holes, through the programs, while its files are in use.

mod lab;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    thread,
};

use insta::assert_snapshot;
use lab::{Lab, can_mount, noise, wait_until};

const LEN: usize = 30_000;

fn file(home: &Path, number: u64) -> PathBuf {
    home.join((number % 16).to_string()).join(number.to_string())
}

/// A pool `tank` that was filled with small files, of which every second was deleted. Returns the pool, its mount and
/// the number of files before.
fn furnished() -> (Lab, PathBuf, u64) {
    let lab = Lab::new();
    let mountpoint = lab.at("mnt/tank");
    lab.pool(&["create", "-m", &mountpoint, "tank", "100M:a.img"]);
    lab.fs(&["create", "-o", "compression=off", "tank/home"]);
    let home = lab.mount("tank").join("home");
    (0..16).for_each(|folder| fs::create_dir(home.join(folder.to_string())).unwrap());
    let write = |number: &u64| fs::write(file(&home, *number), noise(LEN, *number));
    let full = (0..).map(|number| (number, write(&number))).find(|(_, written)| written.is_err());
    let (count, refused) = full.unwrap();
    assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert!(count > 2000, "{count}");
    fs::remove_file(file(&home, count)).unwrap_or_default();
    (0..count).filter(|number| number % 2 > 0).for_each(|number| fs::remove_file(file(&home, number)).unwrap());
    settle(&lab, &home);
    (lab, home, count)
}

/// Commits until freed space can be reused.
fn settle(lab: &Lab, home: &Path) {
    lab.pool(&["wait", "-t", "freeing", "tank"]);
    for round in 0..6 {
        fs::write(home.join("tick"), [round]).unwrap();
        lab.pool(&["sync", "tank"]);
    }
}

fn holds_all(home: &Path, count: u64) {
    for number in (0..count).step_by(2) {
        assert!(fs::read(file(home, number)).unwrap() == noise(LEN, number), "file {number}");
    }
}

/// The number of empty regions, now and after a defragmentation; `None` if nothing would be moved.
fn empty(lab: &Lab) -> Option<(u64, u64)> {
    let said = lab.pool(&["defragment", "-n", "tank"]);
    let numbers =
        said.lines().nth(1)?.strip_prefix("empty regions: ")?.strip_suffix(" after")?.split_once(" before, ")?;
    Some((numbers.0.parse().unwrap(), numbers.1.parse().unwrap()))
}

fn fragmentation(lab: &Lab) -> u64 {
    lab.pool(&["list", "-Hp", "-o", "fragmentation", "tank"]).trim().parse().unwrap()
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
    status["pools"]["tank"]["defragment_stats"].clone()
}

fn number(stats: &serde_json::Value, name: &str) -> u64 {
    stats[name].as_str().unwrap().parse().unwrap()
}

#[test]
fn holes_become_whole_regions_while_files_are_used() {
    if !can_mount() {
        return;
    }
    let (lab, home, count) = furnished();
    let (now, then) = empty(&lab).expect("there are holes");
    assert!(now <= 9 && then >= now + 15, "{now} {then}");
    let before = fragmentation(&lab);
    assert!(before > 60, "{before}");
    let (is_over, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(SeqCst) {
                let round = rounds.fetch_add(1, SeqCst);
                let path = home.join(format!("new{}", round % 8));
                fs::write(&path, noise(LEN, round)).unwrap();
                assert!(fs::read(&path).unwrap() == noise(LEN, round));
                let number = round * 2 % count / 2 * 2;
                assert!(fs::read(file(&home, number)).unwrap() == noise(LEN, number), "file {number}");
            }
        });
        let _ending = Ending(&is_over);
        lab.pool(&["defragment", "-w", "tank"]);
    });
    assert!(rounds.load(SeqCst) > 3);
    holds_all(&home, count);
    settle(&lab, &home);
    let after = fragmentation(&lab);
    assert!(after < before / 2, "{before} {after}");
    let stats = json(&lab);
    assert_eq!((&stats["state"], number(&stats, "errors")), (&"FINISHED".into(), 0), "{stats}");
    let gained = number(&stats, "regions_emptied") - number(&stats, "regions_filled");
    assert!(gained >= then - now - 4 && number(&stats, "map_memory") > 0, "{now} {then} {stats}");
    let status = lab.pool(&["status", "tank"]);
    assert!(status.contains("defragment: moved ") && status.contains("of memory used for maps"), "{status}");
    lab.check("tank");
    // Before, nothing had room in whole regions; now a file has, and the remaining holes stay.
    let large = noise((gained as usize - 4) << 20, 7);
    fs::write(home.join("large"), &large).unwrap();
    settle(&lab, &home);
    assert!(fs::read(home.join("large")).unwrap() == large);
    assert!(fragmentation(&lab) >= after, "{after}");
    let history = lab.pool(&["history", "tank"]);
    assert!(history.contains("pool defragment -w tank") && !history.contains("defragment -n"), "{history}");
    lab.pool(&["export", "tank"]);
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    holds_all(&home, count);
    assert!(fs::read(home.join("large")).unwrap() == large);
    lab.check("tank");
}

#[test]
fn the_job_is_limited_paused_and_resumed_after_a_kill() {
    if !can_mount() {
        return;
    }
    let (lab, home, count) = furnished();
    let (now, then) = empty(&lab).expect("there are holes");
    lab.pool(&["defragment", "--limit", "3M", "tank"]);
    wait_until("it copies", || lab.pool(&["status", "tank"]).contains("copied out of"));
    let status = lab.pool(&["status", "tank"]);
    assert!(status.contains("defragment: in progress since") && status.contains("limited to 3M/s"), "{status}");
    assert!(status.contains("regions emptied"), "{status}");
    let refused = lab.session(&["pool rebalance tank", "pool remove tank a.img"]);
    assert!(refused.contains("a defragmentation is in progress; use pool defragment -s to stop it"), "{refused}");
    wait_until("some regions are emptied", || number(&json(&lab), "regions_emptied") > 0);
    lab.kill("tank");
    lab.pool(&["import", "tank"]);
    let stats = json(&lab);
    assert!(stats["state"] == "SCANNING" && number(&stats, "regions_emptied") > 0, "{stats}");
    holds_all(&home, count);
    lab.pool(&["defragment", "-p", "tank"]);
    lab.pool(&["wait", "-t", "defragment", "tank"]);
    assert!(lab.pool(&["status", "tank"]).contains("defragment: paused, started on"));
    lab.check("tank");
    lab.pool(&["export", "tank"]);
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    assert_eq!(json(&lab)["state"], "PAUSED");
    lab.pool(&["defragment", "--limit", "1G", "tank"]);
    fs::write(home.join("new"), noise(LEN, 99)).unwrap();
    lab.pool(&["wait", "-t", "defragment", "tank"]);
    let stats = json(&lab);
    assert_eq!(stats["state"], "FINISHED", "{stats}");
    let gained = number(&stats, "regions_emptied") - number(&stats, "regions_filled");
    assert!(gained >= then - now - 4, "{now} {then} {stats}");
    let events = lab.pool(&["events", "tank"]);
    assert!(events.contains("defragment_resume") && events.contains("defragment_finish"), "{events}");
    assert!(fs::read(home.join("new")).unwrap() == noise(LEN, 99));
    holds_all(&home, count);
    lab.check("tank");
}

#[test]
fn where_nothing_is_to_be_gained_nothing_is_moved() {
    let (lab, _filters) = (Lab::new(), lab::output::filters_for_paths().bind_to_scope());
    lab.pool(&["create", "-m", "none", "tank", "100M:a.img"]);
    assert_snapshot!(
        lab.session(&[
            "pool defragment -n tank",
            "pool defragment -w tank",
            "pool defragment -s tank",
            "pool defragment -p tank",
            "pool defragment -p -w tank",
            "pool wait -t defragment tank",
        ]),
        @r"
    $ pool defragment -n tank
    Nothing to do: no further region could be emptied
    [exit 0]
    $ pool defragment -w tank
    Nothing to do: no further region could be emptied
    [exit 0]
    $ pool defragment -s tank
    pool: cannot stop the defragmentation of 'tank': no defragmentation is in progress
    [exit 1]
    $ pool defragment -p tank
    pool: cannot pause the defragmentation of 'tank': no defragmentation is in progress
    [exit 1]
    $ pool defragment -p -w tank
    error: the argument '-p' cannot be used with '-w'

    Usage: pool defragment [OPTIONS] <POOL>

    For more information, try '--help'.
    [exit 2]
    $ pool wait -t defragment tank
    [exit 0]
    "
    );
}
