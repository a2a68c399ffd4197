//! The status of pools whose images were removed, truncated or replaced, or that cannot be opened at all.

use std::fs;

use crate::{
    lab::{Lab, Stopped, wait_until},
    mounted,
};

fn health(lab: &Lab, pool: &str) -> String {
    lab.pool(&["list", "-H", "-o", "health", pool]).trim_end().to_owned()
}

/// The state of a pool's only device, and its note.
fn device(lab: &Lab, pool: &str) -> (String, String) {
    let shown: serde_json::Value = serde_json::from_str(&lab.pool(&["status", "-j", pool])).unwrap();
    let vdevs = shown["pools"][pool]["vdevs"][pool]["vdevs"].as_object().unwrap();
    let device = vdevs.values().next().unwrap();
    let text = |key: &str| device[key].as_str().unwrap_or_default().to_owned();
    (text("state"), text("note"))
}

#[track_caller]
fn speaks_of(lab: &Lab, pool: &str, parts: &[&str]) {
    let said = lab.pool(&["status", "-x", pool]);
    assert!(parts.iter().all(|part| said.contains(part)), "{said}");
}

#[test]
fn an_image_that_is_removed_is_missed_at_once() {
    let Some(lab) = mounted(&["tank"]) else { return };
    let image = lab.path("tank.img");
    fs::rename(&image, lab.path("elsewhere")).unwrap();
    assert_eq!(health(&lab, "tank"), "DEGRADED");
    assert_eq!(device(&lab, "tank").0, "REMOVED");
    speaks_of(&lab, "tank", &["removed, renamed or replaced while in use", "Do not export", "pool attach tank"]);
    fs::copy(lab.path("elsewhere"), &image).unwrap();
    assert_eq!(device(&lab, "tank"), ("REMOVED".into(), "(path now names another file)".into()));
    let events = lab.pool(&["events", "-v"]);
    assert!(events.contains("vdev_state = \"REMOVED\""), "{events}");
    fs::rename(lab.path("elsewhere"), &image).unwrap();
    assert_eq!((health(&lab, "tank").as_str(), device(&lab, "tank").0.as_str()), ("ONLINE", "ONLINE"));
    lab.check("tank");
}

#[test]
fn an_image_that_is_removed_is_replaced_without_a_loss() {
    let Some(lab) = mounted(&["tank"]) else { return };
    fs::write(lab.mount("tank").join("file"), "text").unwrap();
    fs::remove_file(lab.path("tank.img")).unwrap();
    let (old, new) = (lab.at("tank.img"), lab.at("new.img"));
    lab.pool(&["attach", "-w", "tank", &old, &format!("64M:{new}")]);
    lab.pool(&["detach", "tank", &old]);
    assert_eq!(health(&lab, "tank"), "ONLINE");
    lab.check("tank");
    assert_eq!(fs::read(lab.mount("tank").join("file")).unwrap(), b"text");
}

#[test]
fn a_truncated_image_is_missed_and_repaired_by_a_scrub() {
    let Some(lab) = mounted(&["tank"]) else { return };
    let image = fs::File::options().write(true).open(lab.path("tank.img")).unwrap();
    let size = image.metadata().unwrap().len();
    lab.damages();
    image.set_len(size - (1 << 20)).unwrap();
    assert_eq!((health(&lab, "tank").as_str(), device(&lab, "tank").0.as_str()), ("DEGRADED", "DEGRADED"));
    speaks_of(&lab, "tank", &["truncated while in use", "pool scrub tank"]);
    lab.pool(&["scrub", "-w", "tank"]);
    assert_eq!((health(&lab, "tank").as_str(), image.metadata().unwrap().len()), ("ONLINE", size));
}

#[test]
fn a_pool_that_cannot_be_opened_keeps_no_other_from_being_shown() {
    let Some(lab) = mounted(&["tank", "pond"]) else { return };
    lab.kill("tank");
    wait_until("the mount is dead", || rustix::fs::statvfs(lab.mount("tank")).is_err());
    fs::rename(lab.path("tank.img"), lab.path("elsewhere")).unwrap();
    assert_eq!(lab.pool(&["list", "-H", "-o", "name,health"]), "pond\tONLINE\ntank\tUNAVAIL\n");
    let listed: serde_json::Value = serde_json::from_str(&lab.pool(&["list", "-j"])).unwrap();
    assert_eq!(listed["pools"]["tank"]["properties"]["size"]["value"], "-");
    speaks_of(&lab, "tank", &["state: UNAVAIL", "pool import tank", "(not found)"]);
    assert_eq!(device(&lab, "tank").0, "UNAVAIL");
    for words in [&["list", "-H", "-o", "name"][..], &["mount"], &["mount", "-a"], &["get", "-H", "type"]] {
        let run = lab.run("fs", words);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{words:?}");
        assert!(!run.text().contains("tank"), "{}", run.text());
    }
    for words in [&["status", "-x"][..], &["history"], &["sync"], &["events"], &["iostat"], &["get", "health"]] {
        assert_eq!(lab.run("pool", words).code, Some(0), "{words:?}");
    }
    let said = lab.run("fs", &["list", "tank"]).fails(1);
    assert!(said.contains("cannot open 'tank'"), "{said}");
    fs::rename(lab.path("elsewhere"), lab.path("tank.img")).unwrap();
    lab.pool(&["import", "tank"]);
    assert_eq!(health(&lab, "tank"), "ONLINE");
}

/// The image lies on another pool, whose service is stopped.
#[test]
fn a_device_that_does_not_answer_is_shown_as_such() {
    let Some(lab) = mounted(&["outer"]) else { return };
    let image = lab.mount("outer").join("inner.img").display().to_string();
    let place = lab.mount("inner").display().to_string();
    lab.pool(&["create", "-m", &place, "inner", &format!("64M:{image}")]);
    let stopped = Stopped::new(lab.service("outer").unwrap());
    fs::write(lab.mount("inner").join("file"), "text").unwrap();
    let mut syncing = lab.command("pool", &["sync", "inner"]).spawn().unwrap();
    wait_until("it is missed", || health(&lab, "inner") == "DEGRADED");
    let (state, note) = device(&lab, "inner");
    assert!(state == "DEGRADED" && note.starts_with("(not responding for "), "{state} {note}");
    speaks_of(&lab, "inner", &["do not respond", "60 seconds is faulted"]);
    let events = lab.pool(&["events", "inner"]);
    assert!(events.contains("ereport.fs.zfs.deadman"), "{events}");
    drop(stopped);
    assert!(syncing.wait().unwrap().success());
    assert_eq!(health(&lab, "inner"), "ONLINE");
    lab.unharmed();
}
