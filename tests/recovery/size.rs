//! Devices that are not as large as they were.

use std::fs::{self, File};

use super::lab::{Lab, noise};

/// A pool with a file, exported, on an image of a hundred megabytes.
fn exported() -> Lab {
    let lab = Lab::mountless();
    lab.pool(&["create", "-m", "none", "tank", "100M:tank.img"]);
    fs::write(lab.path("file"), noise(20 << 20, 3)).unwrap();
    lab.fs(&["cp", "file", "tank:/file"]);
    lab.pool(&["export", "tank"]);
    lab
}

fn resize(lab: &Lab, size: u64) {
    File::options().write(true).open(lab.path("tank.img")).unwrap().set_len(size).unwrap();
}

#[test]
fn a_device_that_was_cut_short_is_named_with_what_it_lacks_and_comes_back_as_it_was() {
    let lab = exported();
    resize(&lab, 90 << 20);
    let listed = lab.pool(&["import", "-d", "."]);
    assert!(listed.contains("UNAVAIL") && listed.contains("smaller than they were"), "{listed}");
    for words in
        [&["import", "-d", ".", "tank"][..], &["check", "-d", ".", "tank"], &["import", "-d", ".", "-F", "tank"]]
    {
        let refused = lab.run("pool", words).fails(1);
        assert!(
            refused.contains("tank.img has 94371840 bytes, but its label says 104857600\n"),
            "{words:?}: {refused}"
        );
        assert!(refused.contains("truncate -s 104857600 "), "{words:?}: {refused}");
    }
    resize(&lab, 100 << 20);
    lab.pool(&["import", "-d", ".", "tank"]);
    lab.pool(&["export", "tank"]);
}

/// The size of the pool and what its devices have grown, in bytes.
fn sizes(lab: &Lab) -> Vec<String> {
    let told = lab.pool(&["get", "-H", "-p", "-o", "value", "size,expandsize", "tank"]);
    told.lines().map(str::to_owned).collect()
}

#[test]
fn what_a_device_has_grown_is_used_from_the_next_import_on_if_wanted() {
    let lab = exported();
    resize(&lab, 180 << 20);
    lab.pool(&["import", "-d", ".", "tank"]);
    let (before, grown) = ((98 << 20).to_string(), (80 << 20).to_string());
    assert_eq!(sizes(&lab), [&*before, &*grown]);
    lab.pool(&["set", "autoexpand=on", "tank"]);
    lab.pool(&["export", "tank"]);
    lab.pool(&["import", "-d", ".", "tank"]);
    assert_eq!(sizes(&lab), [&*(178 << 20).to_string(), "-"]);
    for copy in 0..5 {
        lab.fs(&["cp", "file", &format!("tank:/copy{copy}")]);
    }
    lab.pool(&["export", "tank"]);
    lab.pool(&["check", "-d", ".", "tank"]);
    resize(&lab, 100 << 20);
    lab.run("pool", &["import", "-d", ".", "tank"]).fails(1);
    resize(&lab, 180 << 20);
}
