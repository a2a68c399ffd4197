//! A device that is filled while its pool is exported, and while its service is killed, through the programs: what is shown of the
//! resilver goes on, and in the end the new device alone holds everything.

mod lab;

use std::{fs, ops::Range, thread, time::Duration};

use lab::{Lab, noise, wait_until};
use serde_json::Value;

/// So many files there are at first, and are added whenever the resilver was faster than who is to interrupt it.
const FILES: u64 = 24;
const LEN: usize = 10 << 20;
/// More than all that is ever written; images are sparse.
const SIZE: &str = "4G";

/// What is shown of a resilver.
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

/// A pool `tank` on one image, with files in it.
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

/// Begins to fill another device, has the pool closed in the midst of it and imported, and says what was shown before and after
/// that; none if the device was filled too fast.
fn interrupted(lab: &Lab, name: &str, close: impl Fn()) -> Option<(Shown, Shown)> {
    lab.pool(&["attach", "tank", "a.img", &format!("{SIZE}:{name}")]);
    let mut before = shown(lab);
    while before.runs && before.examined == 0 {
        before = shown(lab);
    }
    close();
    // One that began again would have begun in another second.
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
        // The commit of something else notes how far it is.
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
        // It is said to have ended a moment after the device has everything.
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
