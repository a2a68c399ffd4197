//! The structures of a pool as `pool debug` shows them: intact, damaged, and while the pool is in use.

use std::{fs, process::Stdio};

use insta::{Settings, assert_snapshot};
use pool::{device::Device, format::label::DATA_START};

use crate::{
    filters, image,
    lab::{self, Lab},
    states, three_days, wreck,
};

#[test]
fn structures_are_shown_and_damage_is_named() {
    let (lab, _filters) = (three_days(), filters_of_structures().bind_to_scope());
    assert_snapshot!(lab.session(&["pool debug file -d . tank:/monday", "pool debug file -d . -j tank:/monday"]), @r#"
    $ pool debug file -d . tank:/monday
    file: path /monday, inode 2
    inode: key (2, 16, 0x0), says Inode { file_type: Regular, mode: 420, flags: 0, nlink: 1, uid: [N], gid: [N], project: [N], rdev: 0, size: 6000, bytes: 6000, record_shift: 17, generation: [N], atime: [GUID], mtime: [GUID], ctime: [GUID], crtime: [GUID], parent: Link { dir: 1, offset: [GUID] }, own: Own { compression: None, record_shift: None } }
    extent: key (2, 80, 0x0), says 6000 bytes from 0 of its block, block [AT] [N]/6000 bytes, Lz4, Blake3, born [TXG]
    [exit 0]
    $ pool debug file -d . -j tank:/monday
    {"output_version":{"command":"pool debug","vers_major":0,"vers_minor":1}}
    {"depth":0,"what":"file","path":"/monday","inode":"2"}
    {"depth":0,"what":"inode","key":"(2, 16, 0x0)","says":"Inode { file_type: Regular, mode: 420, flags: 0, nlink: 1, uid: [N], gid: [N], project: [N], rdev: 0, size: 6000, bytes: 6000, record_shift: 17, generation: [N], atime: [GUID], mtime: [GUID], ctime: [GUID], crtime: [GUID], parent: Link { dir: 1, offset: [GUID] }, own: Own { compression: None, record_shift: None } }"}
    {"depth":0,"what":"extent","key":"(2, 80, 0x0)","says":"6000 bytes from 0 of its block","block":"[AT] [N]/6000 bytes, Lz4, Blake3, born [TXG]"}
    [exit 0]
    "#);
    let tree = lab.pool(&["debug", "tree", "-d", ".", "tank"]);
    assert!(tree.starts_with("leaf: level 0, from (0, 0, 0x0), entries "), "{tree}");
    for name in ["monday", "tuesday", "wednesday"] {
        assert!(tree.contains(&format!("says {name} -> ")), "{tree}");
    }
    let missing = lab.run("pool", &["debug", "file", "-d", ".", "tank:/no"]).fails(1);
    assert_eq!(missing, "pool: cannot look into '/no': No such file or directory\n");
    let labels = lab.pool(&["debug", "label", "tank.img"]);
    assert_eq!(labels.matches("label: number").count(), 4, "{labels}");
    let rings = lab.pool(&["debug", "uberblocks", "tank.img"]);
    assert_eq!(rings.matches("  uberblock: slot").count(), 4 * states(&lab).len(), "{rings}");
    let catalogue = lab.pool(&["debug", "catalogue", "-d", ".", "tank"]);
    assert!(catalogue.contains("dataset: key") && catalogue.contains("history: key"), "{catalogue}");
    let space = lab.pool(&["debug", "space", "-d", ".", "tank"]);
    assert_eq!(space.matches("  chunk: id").count(), 62, "{space}");
    let log = lab.pool(&["debug", "log", "-d", ".", "tank"]);
    assert!(log.matches("log block: txg").count() > 3 && !log.contains("damaged"), "{log}");
    for what in ["label", "uberblocks"] {
        let lines = lab.pool(&["debug", what, "-j", "tank.img"]);
        assert!(lines.starts_with("{\"output_version\":{\"command\":\"pool debug\","), "{lines}");
        for line in lines.lines().skip(1) {
            assert!(line.starts_with("{\"depth\":") && line.ends_with('}'), "{line}");
        }
    }
    // Everything behind the labels is overwritten, then the labels themselves.
    let device = image(&lab);
    device.write_at(DATA_START, &vec![0xee; 32 << 20]).unwrap();
    device.write_at(0, &vec![0x55; 128 << 10]).unwrap();
    drop(device);
    for (what, said) in [("space", "damaged chunk table"), ("log", "damaged log block")] {
        let shown = lab.pool(&["debug", what, "-d", ".", "tank"]);
        assert!(shown.contains("space root: chunks 62") && shown.contains(said), "{shown}");
    }
    let refused = lab.run("pool", &["debug", "catalogue", "-d", ".", "tank"]).fails(1);
    assert!(refused.contains("commands that still work: pool debug space tank"), "{refused}");
    assert!(lab.pool(&["debug", "label", "tank.img"]).starts_with("no label: number 0, offset 0\n"));
    fs::write(lab.path("noise"), lab::noise(4 << 20, 5)).unwrap();
    assert_eq!(lab.pool(&["debug", "label", "noise"]).matches("no label").count(), 4);
}

/// Replaces values in the structures that change from run to run.
fn filters_of_structures() -> Settings {
    let mut settings = filters();
    settings.add_filter(r"(uid|gid|generation|project): \d+", "$1: [N]");
    settings.add_filter(r"(.time|crtime): \d+", "$1: [TIME]");
    settings.add_filter(r"\d+:\d+ \d+/", "[AT] [N]/");
    settings.add_filter(r"born \d+ logically \d+", "born [TXG]");
    settings.add_filter(r"offset: \d{6,}", "offset: [HASH]");
    settings.add_filter(r"seed: \d+", "seed: [SEED]");
    settings
}

#[test]
fn a_damaged_tree_is_shown_around_the_damage() {
    let lab = three_days();
    let (newest, older) = (states(&lab)[0].clone(), states(&lab)[2].txg.0.to_string());
    wreck(&lab, &newest.catalogue);
    let shown = lab.pool(&["debug", "catalogue", "-d", ".", "tank"]);
    assert!(shown.contains("damaged node, and all under it: problem damaged block at chunk"), "{shown}");
    assert!(lab.pool(&["debug", "tree", "-d", ".", "-T", &older, "tank"]).contains("inode: key"));
    let mut command = lab.command("pool", &["debug", "uberblocks", "tank.img"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A reader that goes away early is no error.
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap()), (Some(0), String::new()));
}

#[test]
fn a_pool_in_use_shows_its_labels_and_nothing_that_changes() {
    if !lab::can_mount() {
        return;
    }
    let (lab, _filters) = (Lab::new(), filters().bind_to_scope());
    lab.create("tank", "64M");
    assert_snapshot!(lab.session(&["pool debug space tank", "pool debug tree tank"]), @r#"
    $ pool debug space tank
    pool: cannot look into 'tank': the pool is imported and changing
      export it first: pool export tank
    [exit 1]
    $ pool debug tree tank
    pool: cannot look into 'tank': the pool is imported and changing
      export it first: pool export tank
    [exit 1]
    "#);
    assert_eq!(lab.pool(&["debug", "label", "tank.img"]).matches("label: number").count(), 4);
}
