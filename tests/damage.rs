//! Damage in the image of a pool in use, and the programs' messages, word for word.
//!
//! The pools have services and are not mounted, so that the devices' counters last from command to command.

mod lab;

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    panic::AssertUnwindSafe,
};

use insta::{Settings, assert_snapshot};
use lab::{Lab, noise};

/// Replaces values that change from run to run.
fn filters() -> Settings {
    let mut settings = lab::output::filters_for_paths();
    settings.add_filter(r"in \d\d:\d\d:\d\d with", "in [TIME] with");
    // Destroyed datasets are freed in the background, sooner or later.
    settings.add_filter(r"(?m)^ +busy: freeing .*\n", "");
    settings
}

/// The content of the damaged file: incompressible, so tests find it in the image.
fn content() -> Vec<u8> {
    noise(100_000, 7)
}

/// A pool `tank` of one image with two files in `tank/home`, in one or more copies.
fn furnished(copies: &str) -> Lab {
    let lab = Lab::new();
    lab.pool(&["create", "-m", "none", "tank", "64M:tank.img"]);
    lab.fs(&["create", "-o", "compression=off", "-o", &format!("copies={copies}"), "tank/home"]);
    fs::write(lab.path("good"), noise(100_000, 8)).unwrap();
    fs::write(lab.path("spoiled"), content()).unwrap();
    lab.fs(&["cp", "good", "tank/home:/good"]);
    lab.fs(&["cp", "spoiled", "tank/home:/spoiled"]);
    lab.pool(&["sync", "tank"]);
    lab
}

/// Damages the first `copies` copies of the file in the image.
fn spoil(lab: &Lab, copies: usize) {
    lab.damages();
    spoil_secretly(lab, copies);
}

fn spoil_secretly(lab: &Lab, copies: usize) {
    let image = fs::read(lab.path("tank.img")).unwrap();
    let wanted = &content()[..64];
    // Blocks begin at sectors.
    let places = image.chunks(4096).enumerate().filter(|(_, sector)| sector.starts_with(wanted));
    let places: Vec<u64> = places.map(|(n, _)| n as u64 * 4096).collect();
    assert!(places.len() >= copies, "{} copies", places.len());
    let file = File::options().write(true).open(lab.path("tank.img")).unwrap();
    for at in &places[..copies] {
        file.write_all_at(b"these bytes were not written by the pool", at + 100).unwrap();
    }
}

/// Exports and imports the pool, which empties the caches.
fn reopen(lab: &Lab) {
    lab.pool(&["export", "tank"]);
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
}

#[test]
fn a_scrub_heals_what_has_a_second_copy() {
    let (lab, _filters) = (furnished("2"), filters().bind_to_scope());
    spoil(&lab, 1);
    lab.pool(&["scrub", "-w", "tank"]);
    assert_snapshot!(lab.shown("pool status -v tank"), @r"
      pool: tank
     state: ONLINE
    status: One or more devices had errors since the pool was imported.
    	No data is lost.
    action: Clear the errors: pool clear tank
    	If the errors return, replace the device: pool replace tank DEVICE NEW
      scan: scrub repaired 100K in [TIME] with 0 errors on [DATE]
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  [LAB]/tank.img  ONLINE  0  0  1

    errors: No known data errors
    [exit 0]
    ");
    lab.pool(&["clear", "tank", &lab.at("tank.img")]);
    lab.pool(&["scrub", "-w", "tank"]);
    assert_snapshot!(lab.shown("pool status -v tank"), @r"
      pool: tank
     state: ONLINE
      scan: scrub repaired 0B in [TIME] with 0 errors on [DATE]
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  [LAB]/tank.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    assert_snapshot!(lab.shown("pool status -x"), @r"
    all pools are healthy
    [exit 0]
    ");
    assert_snapshot!(lab.shown("pool clear tank nothing"), @r"
    pool: cannot clear errors for '[LAB]/nothing': no such device in pool
      to list the devices: pool status tank
    [exit 1]
    ");
    lab.check("tank");
}

#[test]
fn a_backup_repairs_what_has_no_good_copy() {
    let (lab, _filters) = (furnished("1"), filters().bind_to_scope());
    lab.fs(&["snapshot", "tank/home@monday"]);
    let backup = lab.fs_bytes(&["send", "tank/home@monday"]);
    spoil(&lab, 1);
    reopen(&lab);
    lab.run("fs", &["cat", "tank/home:/spoiled"]).fails(1);
    let status = lab.pool(&["status", "-v", "tank"]);
    assert!(status.contains("tank/home:/spoiled\n") && status.contains("tank/home@monday:/spoiled\n"), "{status}");
    let shown = |run: lab::Run| format!("{}{}[exit {}]", run.text(), run.stderr, run.code.unwrap());
    assert_snapshot!(shown(lab.feed("fs", &["receive", "-cn", "tank/home"], &backup)), @r"
    would repair 97.7K: 1 block of 1 file
    2 data errors are left; to list the files: pool status -v tank
    [exit 0]
    ");
    lab.run("fs", &["cat", "tank/home:/spoiled"]).fails(1);
    assert_snapshot!(shown(lab.feed("fs", &["receive", "-cv", "tank/home"], &backup)), @r"
    compared with tank/home@monday
    repaired 97.7K: 1 block of 1 file
    no known data errors are left; to verify the whole pool: pool scrub tank
    [exit 0]
    ");
    assert_eq!(lab.run("fs", &["cat", "tank/home:/spoiled"]).stdout, content());
    assert_eq!(lab.run("fs", &["cat", "tank/home@monday:/spoiled"]).stdout, content());
    assert_eq!(lab.run("fs", &["cat", "tank/home:/good"]).stdout, noise(100_000, 8));
    let status = lab.pool(&["status", "-v", "tank"]);
    assert!(status.contains("errors: No known data errors"), "{status}");
    lab.pool(&["scrub", "-w", "tank"]);
    assert_snapshot!(shown(lab.feed("fs", &["receive", "-c", "tank/home"], &backup)), @r"
    found no damaged block that the stream can repair
    no known data errors are left; to verify the whole pool: pool scrub tank
    [exit 0]
    ");
    let refused = lab.feed("fs", &["receive", "-c", "tank"], &backup).fails(1);
    assert!(refused.contains("needs the snapshot of the stream, tank/home@monday with the GUID"), "{refused}");
    lab.check("tank");
}

#[test]
fn reading_heals_what_has_a_second_copy() {
    let lab = furnished("2");
    spoil(&lab, 1);
    reopen(&lab);
    assert_eq!(lab.run("fs", &["cat", "tank/home:/spoiled"]).stdout, content());
    lab.check("tank");
}

#[test]
fn what_a_read_could_not_give_is_named_at_once() {
    for read_only in [false, true] {
        let lab = furnished("1");
        spoil(&lab, 1);
        lab.pool(&["export", "tank"]);
        let option = format!("readonly={}", if read_only { "on" } else { "off" });
        lab.pool(&["import", "-d", &lab.at(""), "-o", &option, "tank"]);
        lab.run("fs", &["cat", "tank/home:/spoiled"]).fails(1);
        let said = lab.pool(&["status", "-v", "tank"]);
        assert!(said.contains("Some files have unrecoverable errors") && said.contains("tank/home:/spoiled"), "{said}");
        assert!(!said.contains("No known data errors"), "{said}");
    }
}

#[test]
fn what_has_no_good_copy_is_named_until_it_is_gone() {
    let (lab, _filters) = (furnished("1"), filters().bind_to_scope());
    lab.fs(&["snapshot", "tank/home@monday"]);
    spoil(&lab, 1);
    reopen(&lab);
    assert_snapshot!(lab.shown("pool scrub -w tank"), @r"
    tank: 1 errors; to list the damage: pool status -v tank
    [exit 3]
    ");
    assert_snapshot!(lab.shown("pool status -v tank"), @r"
      pool: tank
     state: ONLINE
    status: Some files have unrecoverable errors.
    action: Restore the files from a backup, or delete them.
    	Then: pool scrub tank
      scan: scrub repaired 0B in [TIME] with 1 errors on [DATE]
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  [LAB]/tank.img  ONLINE  0  0  1

    errors: Permanent errors have been detected in the following files:

      tank/home:/spoiled
      tank/home@monday:/spoiled
    [exit 0]
    ");
    assert_snapshot!(lab.shown("fs cat tank/home:/spoiled"), @r"
    fs: cannot read 'tank/home:/spoiled': Input/output error
    [exit 1]
    ");
    assert_eq!(lab.run("fs", &["cat", "tank/home:/good"]).stdout, noise(100_000, 8));
    reopen(&lab);
    assert_snapshot!(lab.shown("pool status tank"), @r"
      pool: tank
     state: ONLINE
    status: Some files have unrecoverable errors.
    action: Restore the files from a backup, or delete them.
    	Then: pool scrub tank
      scan: scrub repaired 0B in [TIME] with 1 errors on [DATE]
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  [LAB]/tank.img  ONLINE  0  0  0

    errors: 2 data errors, use '-v' for a list
    [exit 0]
    ");
    lab.fs(&["rollback", "tank/home@monday"]);
    lab.fs(&["destroy", "-r", "tank/home"]);
    assert_snapshot!(lab.shown("pool status -v tank"), @r"
      pool: tank
     state: ONLINE
    status: Some files have unrecoverable errors.
    action: Restore the files from a backup, or delete them.
    	Then: pool scrub tank
      scan: scrub repaired 0B in [TIME] with 1 errors on [DATE]
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  [LAB]/tank.img  ONLINE  0  0  0

    errors: Permanent errors have been detected in the following files:

      <0x3>:<0x3>
      <0x5>:<0x3>
    [exit 0]
    ");
    lab.pool(&["scrub", "-w", "tank"]);
    assert_snapshot!(lab.shown("pool status -v tank"), @r"
      pool: tank
     state: ONLINE
      scan: scrub repaired 0B in [TIME] with 0 errors on [DATE]
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  [LAB]/tank.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
}

#[test]
fn scrub_of_parts_clears_repaired_damage() {
    let (lab, mut filters) = (furnished("1"), filters());
    filters.add_filter(r": [\d.]+K verified", ": [SIZE] verified");
    let _filters = filters.bind_to_scope();
    lab.fs(&["snapshot", "tank/home@monday"]);
    lab.fs(&["create", "tank/other"]);
    let image = fs::read(lab.path("tank.img")).unwrap();
    spoil(&lab, 1);
    reopen(&lab);
    assert_snapshot!(lab.session(&[
        "pool scrub tank/other tank:/ tank/home:/good",
        "pool scrub -e tank",
        "pool scrub tank/home@monday:/spoiled",
        "pool scrub tank/home",
        "pool scrub -e tank",
        "pool scrub tank/home:/",
        "pool scrub -p tank/home",
        "pool scrub tank/nowhere",
        "pool scrub tank/home:/nowhere",
        "pool scrub tank/home#mark",
        "pool scrub /etc/passwd",
    ]), @r"
    $ pool scrub tank/other tank:/ tank/home:/good
    tank/other: [SIZE] verified, 0B repaired, 0 errors
    tank:/: [SIZE] verified, 0B repaired, 0 errors
    tank/home:/good: [SIZE] verified, 0B repaired, 0 errors
    [exit 0]
    $ pool scrub -e tank
    tank: 0B verified, 0B repaired, 0 errors
    [exit 0]
    $ pool scrub tank/home@monday:/spoiled
    tank/home@monday:/spoiled: [SIZE] verified, 0B repaired, 1 errors
    to list the damage: pool status -v tank
    [exit 3]
    $ pool scrub tank/home
    tank/home: [SIZE] verified, 0B repaired, 1 errors
    to list the damage: pool status -v tank
    [exit 3]
    $ pool scrub -e tank
    tank: [SIZE] verified, 0B repaired, 2 errors
    to list the damage: pool status -v tank
    [exit 3]
    $ pool scrub tank/home:/
    tank/home:/: [SIZE] verified, 0B repaired, 1 errors
    to list the damage: pool status -v tank
    [exit 3]
    $ pool scrub -p tank/home
    pool: -p, -s and -e apply to whole pools
    [exit 2]
    $ pool scrub tank/nowhere
    pool: cannot open 'tank/nowhere': dataset does not exist
    [exit 1]
    $ pool scrub tank/home:/nowhere
    pool: cannot scrub 'tank/home:/nowhere': No such file or directory
    [exit 1]
    $ pool scrub tank/home#mark
    pool: cannot scrub 'tank/home#mark': a bookmark has no files
    [exit 1]
    $ pool scrub /etc/passwd
    pool: cannot open '/etc/passwd': no Cenote file system is mounted there
      name a file of an unmounted file system as DATASET:/PATH
    [exit 1]
    ");
    // Restores the damaged sectors.
    lab.pool(&["export", "tank"]);
    let now = fs::read(lab.path("tank.img")).unwrap();
    let file = File::options().write(true).open(lab.path("tank.img")).unwrap();
    for (n, sector) in now.chunks(4096).enumerate() {
        if sector[100..].starts_with(b"these bytes were not written by the pool") {
            file.write_all_at(&image[n * 4096..][..4096], n as u64 * 4096).unwrap();
        }
    }
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    assert!(lab.pool(&["status", "-v", "tank"]).contains("tank/home:/spoiled"));
    lab.pool(&["scrub", "-e", "tank"]);
    assert!(lab.pool(&["status", "-v", "tank"]).contains("No known data errors"));
    assert!(lab.pool(&["history", "tank"]).contains("pool scrub -e tank"));
    lab.check("tank");
}

#[test]
fn a_scrub_is_paused_resumed_and_stopped() {
    let (lab, _filters) = (furnished("1"), filters().bind_to_scope());
    assert_snapshot!(lab.shown("pool scrub -p tank"), @r"
    pool: cannot scrub 'tank': there is no active scrub
      to start a scrub: pool scrub
    [exit 1]
    ");
    assert_snapshot!(lab.shown("pool scrub -s -w tank"), @r"
    error: the argument '-s' cannot be used with '-w'

    Usage: pool scrub [OPTIONS] [POOL]...

    For more information, try '--help'.
    [exit 2]
    ");
    lab.pool(&["scrub", "-w", "tank"]);
    let status: serde_json::Value = serde_json::from_str(&lab.pool(&["status", "-j", "tank"])).unwrap();
    let stats = &status["pools"]["tank"]["scan_stats"];
    assert_eq!((stats["state"].as_str(), stats["errors"].as_str()), (Some("FINISHED"), Some("0")));
    // What is only planned begins nothing, and a scrub under way gets another limit.
    assert!(lab.pool(&["scrub", "-n", "tank"]).ends_with(" of tank would be verified\n"));
    assert!(!lab.pool(&["history", "tank"]).contains("scrub -n"));
    lab.pool(&["scrub", "--limit", "1", "tank"]);
    let status: serde_json::Value = serde_json::from_str(&lab.pool(&["status", "-j", "tank"])).unwrap();
    assert_eq!(status["pools"]["tank"]["scan_stats"]["state"].as_str(), Some("SCANNING"));
    lab.pool(&["scrub", "--limit", "none", "-w", "tank"]);
}

#[test]
fn damage_that_is_not_spoken_of_fails_a_test() {
    let end = |lab: Lab| std::panic::catch_unwind(AssertUnwindSafe(|| drop(lab)));
    let spoiled = || {
        let lab = furnished("2");
        spoil_secretly(&lab, 1);
        reopen(&lab);
        lab.fs_bytes(&["cat", "tank/home:/spoiled"]);
        lab
    };
    let lab = spoiled();
    let folder = lab.path("");
    let caught = end(lab).expect_err("a device has an error");
    let caught = caught.downcast_ref::<String>().unwrap();
    assert!(caught.contains("tank.img") && caught.contains("checksum_errors 1"), "{caught}");
    assert!(!folder.exists(), "the lab is cleared away all the same");
    // The counts outlive the service's end.
    let lab = spoiled();
    lab.pool(&["export", "tank"]);
    assert!(end(lab).is_err());
    let lab = spoiled();
    lab.damages();
    assert!(end(lab).is_ok());
}
