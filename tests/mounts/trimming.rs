//! Giving free space back, and initializing free space, while the pool is mounted and in use.

use std::{fs, os::unix::fs::MetadataExt};

use crate::lab::{Lab, can_mount, noise, small_file_system, wait_until};

fn stored(lab: &Lab) -> u64 {
    ["a.img", "b.img"].iter().map(|image| lab.path(image).metadata().unwrap().blocks() * 512).max().unwrap()
}

/// A mounted mirror.
fn furnished() -> Lab {
    let lab = Lab::new();
    lab.pool(&["create", "-m", &lab.at("mnt/tank"), "tank", "mirror", "300M:a.img", "300M:b.img"]);
    lab
}

#[test]
fn what_becomes_free_is_given_back_by_itself_if_that_is_wanted() {
    if !can_mount() {
        return;
    }
    let lab = furnished();
    let folder = lab.mount("tank");
    fs::write(folder.join("kept"), noise(20 << 20, 1)).unwrap();
    let large = |name: &str| fs::write(folder.join(name), noise(80 << 20, 2)).unwrap();
    large("first");
    lab.pool(&["sync", "tank"]);
    fs::remove_file(folder.join("first")).unwrap();
    (0..6).for_each(|_| drop(lab.pool(&["sync", "tank"])));
    assert!(stored(&lab) > 95 << 20, "nobody has asked for it: {}", stored(&lab));
    lab.pool(&["set", "autotrim=on", "tank"]);
    wait_until("what became free is given back", || {
        lab.pool(&["sync", "tank"]);
        stored(&lab) < 50 << 20
    });
    large("second");
    lab.fs(&["snapshot", "tank@held"]);
    fs::remove_file(folder.join("second")).unwrap();
    (0..10).for_each(|_| drop(lab.pool(&["sync", "tank"])));
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert!(stored(&lab) > 95 << 20, "a snapshot has it: {}", stored(&lab));
    lab.fs(&["destroy", "tank@held"]);
    wait_until("what the snapshot held is given back", || {
        lab.pool(&["sync", "tank"]);
        stored(&lab) < 50 << 20
    });
    lab.check("tank");
    assert!(fs::read(folder.join("kept")).unwrap() == noise(20 << 20, 1));
    lab.pool(&["scrub", "-w", "tank"]);
    assert!(lab.pool(&["status", "tank"]).contains("with 0 errors"));
}

#[test]
fn trimming_is_suspended_resumed_canceled_and_shown() {
    if !can_mount() {
        return;
    }
    let lab = furnished();
    let status = |part: &str| {
        let status = lab.pool(&["status", "-t", "tank"]);
        assert_eq!(status.matches(part).count(), 2, "{part}: {status}");
    };
    status("(untrimmed)");
    assert!(!lab.pool(&["status", "tank"]).contains("trimmed"));
    assert!(lab.run("pool", &["trim", "-s", "tank"]).fails(1).contains("there is no active trim"));
    assert!(lab.run("pool", &["trim", "tank", "nothing"]).fails(1).contains("no such device"));
    lab.pool(&["trim", "-r", "1M", "tank", &lab.at("a.img")]);
    status("% trimmed, started at ");
    assert!(lab.run("pool", &["trim", "tank"]).fails(1).contains("a trim is already in progress"));
    lab.pool(&["trim", "-s", "tank"]);
    status("% trimmed, suspended, started at ");
    assert!(lab.run("pool", &["trim", "-s", "tank"]).fails(1).contains("there is no active trim"));
    lab.pool(&["wait", "-t", "trim", "tank"]);
    lab.pool(&["trim", "--limit", "1M", "tank", "mirror-0"]);
    status("% trimmed, started at ");
    lab.pool(&["trim", "--limit", "2M", "tank"]);
    lab.pool(&["trim", "-c", "tank"]);
    status("(untrimmed)");
    let planned = lab.pool(&["trim", "-n", "tank"]);
    assert!(planned.ends_with(" of free space of tank would be trimmed\n"), "{planned}");
    status("(untrimmed)");
    let output = lab.pool(&["trim", "-w", "tank"]);
    assert!(output.starts_with("tank: ") && output.ends_with(" of free space given back\n"), "{output}");
    status("(100% trimmed, completed at ");
    lab.pool(&["trim", "tank"]);
    lab.pool(&["wait", "-t", "trim", "tank"]);
    status("(100% trimmed, completed at ");
    lab.check("tank");
    status("(untrimmed)");
}

#[test]
fn initialization_makes_thin_space_thick_and_keeps_data() {
    if !can_mount() {
        return;
    }
    let lab = furnished();
    let folder = lab.mount("tank");
    fs::write(folder.join("kept"), noise(20 << 20, 1)).unwrap();
    lab.pool(&["sync", "tank"]);
    assert!(stored(&lab) < 100 << 20, "the images are sparse: {}", stored(&lab));
    let status = |part: &str| {
        let status = lab.pool(&["status", "-i", "tank"]);
        assert_eq!(status.matches(part).count(), 2, "{part}: {status}");
    };
    status("(uninitialized)");
    assert!(lab.run("pool", &["initialize", "-c", "tank"]).fails(1).contains("there is no active initialization"));
    assert!(lab.run("pool", &["initialize", "tank", "nothing"]).fails(1).contains("no such device"));
    assert!(lab.run("pool", &["initialize", "-s", "-w", "tank"]).fails(2).contains("cannot be used with"));
    lab.pool(&["initialize", "--limit", "1M", "tank", &lab.at("a.img")]);
    status("% initialized, started at ");
    assert_eq!(lab.pool(&["status", "tank"]).matches("(initializing)").count(), 2, "said without being asked");
    assert!(lab.run("pool", &["initialize", "tank"]).fails(1).contains("an initialization is already in progress"));
    assert!(lab.run("pool", &["initialize", "-u", "tank"]).fails(1).contains("an initialization is in progress"));
    // A trim is independent of an initialization.
    lab.pool(&["trim", "-w", "tank"]);
    lab.pool(&["initialize", "-s", "tank"]);
    status("% initialized, suspended, started at ");
    lab.pool(&["wait", "-t", "initialize", "tank"]);
    lab.pool(&["initialize", "-c", "tank"]);
    status("(uninitialized)");
    let planned = lab.pool(&["initialize", "-n", "tank"]);
    assert!(planned.ends_with(" of free space of tank would be initialized\n"), "{planned}");
    lab.pool(&["initialize", "tank"]);
    // Files are written, removed and replaced meanwhile.
    for round in 0..20_u64 {
        fs::write(folder.join(format!("{}", round % 5)), noise(4 << 20, round)).unwrap();
        lab.pool(&["sync", "tank"]);
    }
    lab.pool(&["wait", "-t", "initialize", "tank"]);
    status("(100% initialized, completed at ");
    let json: serde_json::Value = serde_json::from_str(&lab.pool(&["status", "-ij", "tank"])).unwrap();
    let device = &json["pools"]["tank"]["vdevs"]["tank"]["vdevs"]["mirror-0"]["vdevs"][&lab.at("a.img")];
    assert_eq!((&device["init_state"], &device["init_errors"]), (&"COMPLETE".into(), &"0".into()), "{json}");
    assert!(stored(&lab) > 250 << 20, "the images are thick: {}", stored(&lab));
    for round in 15..20_u64 {
        assert!(fs::read(folder.join(format!("{}", round % 5))).unwrap() == noise(4 << 20, round), "{round}");
    }
    lab.pool(&["initialize", "-u", "tank"]);
    status("(uninitialized)");
    lab.check("tank");
    assert!(fs::read(folder.join("kept")).unwrap() == noise(20 << 20, 1));
    lab.pool(&["scrub", "-w", "tank"]);
    assert!(lab.pool(&["status", "tank"]).contains("with 0 errors"));
}

#[test]
fn a_failed_initialization_is_shown_with_its_command() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new();
    lab.damages();
    if !small_file_system(&lab.path("small"), "40m") {
        return;
    }
    lab.pool(&["create", "-m", &lab.at("mnt/tank"), "tank", &format!("200M:{}", lab.at("small/a.img"))]);
    assert!(lab.run("pool", &["initialize", "-w", "tank"]).code != Some(0));
    assert!(lab.pool(&["status", "tank"]).contains("(initialization failed: pool status -i)"));
    let status = lab.pool(&["status", "-i", "tank"]);
    assert!(
        status.contains("% initialized, failed at ") && status.contains("; to try again: pool initialize)"),
        "{status}"
    );
    let json: serde_json::Value = serde_json::from_str(&lab.pool(&["status", "-ij", "tank"])).unwrap();
    let device = &json["pools"]["tank"]["vdevs"]["tank"]["vdevs"][&lab.at("small/a.img")];
    assert_eq!((&device["init_state"], &device["init_errors"]), (&"CANCELED".into(), &"1".into()), "{json}");
}
