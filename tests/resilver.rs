//! A resilver during which the pool is exported, and its service killed, through the programs: the status of the
//! resilver continues, and in the end the new device alone holds everything.

mod lab;

use std::{fs, ops::Range, thread, time::Duration};

use lab::{Lab, noise, wait_until};
use serde_json::Value;

/// The number of files at first, and the number added whenever the resilver was too fast to be interrupted.
const FILES: u64 = 24;
const LEN: usize = 10 << 20;
/// More than all data ever written; images are sparse.
const SIZE: &str = "4G";

/// The status of a resilver.
#[derive(Debug)]
struct Shown {
    runs: bool,
    /// In seconds; 0 if there was none since the pool was opened.
    start: u64,
    examined: u64,
}

fn shown(lab: &Lab) -> Shown {
    let status: Value = serde_json::from_str(&lab.pool(&["status", "-j", "tank"])).unwrap();
    let scan = &status["pools"]["tank"]["scan_stats"];
    let number = |name: &str| scan[name].as_str().map_or(0, |number| number.parse().unwrap());
    let runs = scan["function"] == "RESILVER" && scan["state"] == "SCANNING";
    Shown { runs, start: number("start_time"), examined: number("examined") }
}

/// A pool `tank` on one image, with files.
fn furnished() -> Lab {
    let lab = Lab::new();
    lab.pool(&["create", "-m", "none", "tank", &format!("{SIZE}:a.img")]);
    lab.fs(&["create", "-o", "compression=off", "tank/home"]);
    put_all(&lab, 0..FILES);
    lab
}

fn put_all(lab: &Lab, numbers: Range<u64>) {
    numbers.for_each(|number| put(lab, number));
    lab.pool(&["sync", "tank"]);
}

fn put(lab: &Lab, number: u64) {
    fs::write(lab.path("file"), noise(LEN, number)).unwrap();
    lab.fs(&["cp", "file", &format!("tank/home:/{number}")]);
}

/// Attaches a device, closes the pool in the middle of the resilver, imports it, and returns the status before and
/// after; `None` if the resilver was too fast.
fn interrupted(lab: &Lab, name: &str, close: impl Fn()) -> Option<(Shown, Shown)> {
    lab.pool(&["attach", "tank", "a.img", &format!("{SIZE}:{name}")]);
    let mut before = shown(lab);
    while before.runs && before.examined == 0 {
        before = shown(lab);
    }
    close();
    // A resilver that had restarted would show a later second.
    thread::sleep(Duration::from_millis(1500));
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    let after = shown(lab);
    lab.pool(&["wait", "-t", "resilver", "tank"]);
    (before.runs && after.start != 0).then_some((before, after))
}

#[test]
fn a_resilver_goes_on_after_an_export_and_after_a_kill() {
    let lab = furnished();
    let mut files = FILES;
    let export = || drop(lab.pool(&["export", "tank"]));
    let kill = || {
        // An unrelated commit records the resilver's progress.
        lab.fs(&["set", "it:is=noted", "tank/home"]);
        lab.kill("tank");
    };
    for (how, close) in [("export", &export as &dyn Fn()), ("kill", &kill)] {
        let attempt = |number: usize| {
            let name = format!("{how}{number}.img");
            let found = interrupted(&lab, &name, close);
            if found.is_none() {
                lab.pool(&["detach", "tank", &name]);
                fs::remove_file(lab.path(&name)).unwrap();
                put_all(&lab, files..files + FILES);
                files += FILES;
            }
            found.map(|found| (name, found))
        };
        let (name, (before, after)) = (0..8).find_map(attempt).expect("a resilver is slow enough to be interrupted");
        assert_eq!(before.start, after.start, "{how}: it is the same one");
        assert!(after.examined >= before.examined, "{how}: it goes on: {before:?}, {after:?}");
        // The status changes a moment after the device is complete.
        wait_until("the resilver has ended", || {
            let status = lab.pool(&["status", "tank"]);
            status.contains("scan: resilvered") && status.contains("with 0 errors")
        });
        lab.pool(&["export", "tank"]);
        lab.pool(&["import", "-d", &lab.at(&name), "tank"]);
        for number in 0..files {
            let content = lab.fs_bytes(&["cat", &format!("tank/home:/{number}")]);
            assert!(content == noise(LEN, number), "{how}: file {number} on the new device alone");
        }
        lab.pool(&["export", "tank"]);
        lab.pool(&["import", "-d", &lab.at(""), "tank"]);
        lab.pool(&["wait", "-t", "resilver", "tank"]);
        lab.pool(&["detach", "tank", &name]);
        fs::remove_file(lab.path(&name)).unwrap();
        lab.check("tank");
    }
}

#[test]
fn a_resilver_is_paused_and_limited_until_its_end() {
    let lab = furnished();
    let mut files = FILES;
    let import = || drop(lab.pool(&["import", "-d", &lab.at(""), "tank"]));
    // A resilver may finish before the pause.
    loop {
        let new = format!("{files}.img");
        lab.pool(&["attach", "tank", "a.img", &format!("{SIZE}:{new}")]);
        if lab.run("pool", &["resilver", "-p", "tank"]).code == Some(0) {
            break;
        }
        lab.pool(&["detach", "tank", &new]);
        put_all(&lab, files..files + FILES);
        files += FILES;
    }
    assert!(lab.run("pool", &["resilver", "-p", "tank"]).fails(1).contains("it is already paused"));
    // A paused activity counts as finished, and delays no other job.
    lab.pool(&["wait", "-t", "resilver,replace", "tank"]);
    lab.pool(&["scrub", "-w", "tank"]);
    lab.pool(&["export", "tank"]);
    import();
    let says = |words: &str| wait_until(words, || lab.pool(&["status", "tank"]).contains(words));
    says("scan: resilver paused, started on");
    lab.pool(&["resilver", "--limit", "64K", "tank"]);
    says("scan: resilver in progress since");
    says("limited to 64K/s");
    lab.kill("tank");
    import();
    says("limited to 64K/s");
    lab.pool(&["resilver", "--limit", "none", "tank"]);
    lab.pool(&["wait", "-t", "resilver", "tank"]);
    wait_until("the resilver has ended", || !lab.pool(&["status", "tank"]).contains("resilvering"));
    let refused = lab.session(&["pool resilver -p tank", "pool resilver --limit 1M tank"]);
    assert_eq!(refused.matches("no resilver is in progress").count(), 2, "{refused}");
    lab.pool(&["detach", "tank", "a.img"]);
    lab.check("tank");
}
