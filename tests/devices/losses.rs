//! The predicted and the real effect of losing RAID-Z devices: their images are removed, and the pool is imported.

use std::fs;

use insta::assert_snapshot;
use serde_json::Value;

use crate::{
    content, filters,
    lab::{Lab, noise, wait_until},
    rot,
};

/// An unmounted pool `tank` of these vdevs, with a file.
fn furnished(vdevs: &[&str]) -> Lab {
    let lab = Lab::new();
    lab.pool(&[&["create", "-O", "compression=off", "-m", "none", "tank"], vdevs].concat());
    put(&lab, 1);
    lab
}

fn put(lab: &Lab, seed: u64) {
    fs::write(lab.path("file"), content(seed)).unwrap();
    lab.fs(&["cp", "file", &format!("tank:/{seed}")]);
    lab.pool(&["sync", "tank"]);
}

fn import(lab: &Lab) {
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
}

/// The prediction for a loss of these images: whether the pool survives, and how many more devices may then be lost.
fn said(lab: &Lab, lost: &[&str]) -> (bool, u64) {
    let run = lab.run("pool", &[&["simulate", "lose", "-j", "tank"], lost].concat());
    let all: Value = serde_json::from_str(&run.text()).unwrap_or_else(|_| panic!("{}{}", run.text(), run.stderr));
    let survives = all["losses"]["survives"].as_bool().unwrap();
    assert_eq!(run.code, Some(i32::from(!survives)), "{all}");
    let vdevs = all["losses"]["vdevs"].as_array().unwrap();
    assert_eq!(vdevs.len(), 1, "{all}");
    assert_eq!(vdevs[0]["survives"], survives);
    let files = all["losses"]["datasets"].as_array().unwrap().iter().find(|of| of["name"] == "tank").unwrap();
    assert_eq!(files["lost_files"] == "0", survives, "{all}");
    // A pool whose only vdev is lost has no files.
    assert!(survives || files["lost_files"] == files["files"], "{all}");
    (survives, vdevs[0]["left"].as_str().unwrap().parse().unwrap())
}

/// The truth about a loss of these images: whether the pool can be imported, with these files. Nothing is written.
fn is(lab: &Lab, lost: &[&str], seeds: &[u64]) -> bool {
    fs::create_dir_all(lab.path("away")).unwrap();
    let away = |image: &&&str| lab.path("away").join(image);
    let present: Vec<&&str> = lost.iter().filter(|image| lab.path(image).exists()).collect();
    present.iter().for_each(|image| fs::rename(lab.path(image), away(image)).unwrap());
    let run = lab.run("pool", &["import", "-o", "readonly=on", "-d", &lab.at(""), "tank"]);
    let survives = run.code == Some(0);
    if survives {
        for seed in seeds {
            assert!(lab.fs_bytes(&["cat", &format!("tank:/{seed}")]) == content(*seed), "file {seed} without {lost:?}");
        }
        lab.pool(&["export", "tank"]);
    } else {
        assert!(run.fails(1).contains("missing"));
    }
    present.iter().for_each(|image| fs::rename(away(image), lab.path(image)).unwrap());
    survives
}

/// Asserts that the prediction for each of these losses is as wanted, and true.
#[track_caller]
fn check_all(lab: &Lab, seeds: &[u64], wanted: &[(&[&str], (bool, u64))]) {
    for (lost, wanted) in wanted {
        assert_eq!(said(lab, lost), *wanted, "without {lost:?}");
    }
    lab.pool(&["export", "tank"]);
    for (lost, (survives, _)) in wanted {
        assert_eq!(is(lab, lost, seeds), *survives, "without {lost:?}");
    }
    import(lab);
}

#[test]
fn a_raidz2_survives_just_the_stated_losses() {
    let (lab, _filters) = (
        furnished(&["raidz2", "80M:a.img", "80M:b.img", "80M:c.img", "80M:d.img", "80M:e.img"]),
        filters().bind_to_scope(),
    );
    assert_snapshot!(lab.session(&["pool simulate lose tank b.img d.img"]), @r"
    $ pool simulate lose tank b.img d.img
    raidz2-0 without [LAB]/b.img, [LAB]/d.img: 3 devices are left, with all data

    nothing would be lost:

    NAME  BLOCKS  LOST  FILES  LOST
    tank  -  0  -  0  survives
    [exit 0]
    ");
    let more = lab.shown("pool simulate lose tank a.img b.img c.img");
    assert!(more.contains("raidz2-0 without") && more.contains(": lost\n") && more.ends_with("[exit 1]"), "{more}");
    assert!(more.contains("the pool could not be imported"), "{more}");
    check_all(
        &lab,
        &[1],
        &[
            (&["a.img"], (true, 4)),
            (&["a.img", "b.img"], (true, 3)),
            (&["b.img", "e.img"], (true, 3)),
            (&["a.img", "b.img", "c.img"], (false, 2)),
            (&["c.img", "d.img", "e.img"], (false, 2)),
        ],
    );
    // An offline device lacks later writes, and does not count.
    lab.pool(&["offline", "tank", "e.img"]);
    put(&lab, 2);
    check_all(
        &lab,
        &[1, 2],
        &[
            (&["e.img"], (true, 4)),
            (&["a.img"], (true, 3)),
            (&["a.img", "e.img"], (true, 3)),
            (&["a.img", "b.img"], (false, 2)),
            (&["b.img", "c.img", "e.img"], (false, 2)),
        ],
    );
    // The same is true after the import.
    lab.pool(&["export", "tank"]);
    fs::remove_file(lab.path("a.img")).unwrap();
    import(&lab);
    assert_eq!(said(&lab, &["b.img"]), (false, 2));
    lab.pool(&["online", "tank", "e.img"]);
    lab.pool(&["wait", "-t", "resilver", "tank"]);
    check_all(&lab, &[1, 2], &[(&["b.img"], (true, 3)), (&["b.img", "c.img"], (false, 2))]);
}

#[test]
fn a_raidz3_survives_just_the_stated_losses() {
    let images = ["80M:a.img", "80M:b.img", "80M:c.img", "80M:d.img", "80M:e.img", "80M:f.img"];
    let lab = furnished(&[&["raidz3"], &images[..]].concat());
    check_all(
        &lab,
        &[1],
        &[
            (&["a.img", "c.img", "e.img"], (true, 3)),
            (&["d.img", "e.img", "f.img"], (true, 3)),
            (&["a.img", "b.img", "c.img", "d.img"], (false, 2)),
        ],
    );
}

#[test]
fn a_spare_counts_when_it_has_everything() {
    let lab = furnished(&["raidz1", "80M:a.img", "80M:b.img", "80M:c.img", "spare", "80M:s.img"]);
    let said = lab.pool(&["simulate", "lose", "tank", "s.img"]);
    assert!(said.contains("s.img: nothing is lost with it") && said.contains("nothing would be lost"), "{said}");
    lab.pool(&["export", "tank"]);
    fs::remove_file(lab.path("b.img")).unwrap();
    import(&lab);
    wait_until("the spare has everything", || {
        let status = lab.pool(&["status", "tank"]);
        status.contains("INUSE") && status.contains("scan: resilvered") && !status.contains("(resilvering")
    });
    put(&lab, 2);
    check_all(
        &lab,
        &[1, 2],
        &[
            (&["b.img"], (true, 3)),
            (&["a.img"], (true, 2)),
            (&["s.img"], (true, 2)),
            (&["b.img", "c.img"], (true, 2)),
            (&["a.img", "s.img"], (false, 1)),
            (&["a.img", "c.img"], (false, 1)),
        ],
    );
}

#[test]
fn a_replacing_device_counts_only_when_complete() {
    let lab = furnished(&["raidz1", "80M:a.img", "80M:b.img", "80M:c.img"]);
    let large = noise(4 << 20, 2);
    fs::write(lab.path("large"), &large).unwrap();
    lab.fs(&["cp", "large", "tank:/large"]);
    lab.pool(&["export", "tank"]);
    // Blocks without a good copy keep the replacement from completing.
    ["b.img", "c.img"].iter().for_each(|image| rot(&lab, image, &large));
    import(&lab);
    lab.pool(&["replace", "tank", "a.img", "80M:f.img"]);
    wait_until("the replacement is stuck", || lab.pool(&["status", "tank"]).contains("(incomplete, replaces"));
    check_all(
        &lab,
        &[1],
        &[
            (&["f.img"], (true, 3)),
            (&["a.img"], (true, 2)),
            (&["a.img", "f.img"], (true, 2)),
            (&["b.img", "f.img"], (true, 2)),
            (&["a.img", "b.img"], (false, 1)),
            (&["b.img", "c.img", "f.img"], (false, 1)),
        ],
    );
}
