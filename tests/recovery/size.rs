//! Devices whose size has changed.

use std::fs::{self, File};

use super::lab::{Lab, can_mount, noise, wait_until};

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
    resize_image(lab, "tank.img", size);
}

fn resize_image(lab: &Lab, image: &str, size: u64) {
    File::options().write(true).open(lab.path(image)).unwrap().set_len(size).unwrap();
}

#[test]
fn a_truncated_device_is_named_and_comes_back() {
    let lab = exported();
    resize(&lab, 90 << 20);
    let listed = lab.pool(&["import", "-d", "."]);
    assert!(listed.contains("UNAVAIL") && listed.contains("smaller than before"), "{listed}");
    for words in
        [&["import", "-d", ".", "tank"][..], &["check", "-d", ".", "tank"], &["import", "-d", ".", "-F", "tank"]]
    {
        let refused = lab.run("pool", words).fails(1);
        assert!(refused.contains("tank.img has 90M, but its label says 100M\n"), "{words:?}: {refused}");
        assert!(refused.contains("truncate -s 104857600 "), "{words:?}: {refused}");
    }
    resize(&lab, 100 << 20);
    lab.pool(&["import", "-d", ".", "tank"]);
    lab.pool(&["export", "tank"]);
}

/// The pool's size and its devices' unused growth, in bytes.
fn sizes(lab: &Lab) -> Vec<String> {
    let output = lab.pool(&["get", "-H", "-p", "-o", "value", "size,expandsize", "tank"]);
    output.lines().map(str::to_owned).collect()
}

#[test]
fn a_grown_device_is_used_from_the_next_import_with_autoexpand() {
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

#[test]
fn a_device_grown_in_use_is_expanded_on_demand_or_by_autoexpand() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new();
    lab.pool(&["create", "-m", &lab.at("mnt/tank"), "tank", "mirror", "100M:a.img", "100M:b.img"]);
    let folder = lab.mount("tank");
    let put = |name: &str| fs::write(folder.join(name), noise(30 << 20, 7)).unwrap();
    let bytes = |mebibytes: u64| (mebibytes << 20).to_string();
    put("before");
    resize_image(&lab, "a.img", 180 << 20);
    lab.pool(&["online", "-e", "tank", &lab.at("a.img")]);
    assert_eq!(sizes(&lab), [&*bytes(98), "-"], "the other one is as large as it was");
    resize_image(&lab, "b.img", 180 << 20);
    wait_until("the service has seen it", || sizes(&lab) == [bytes(98), bytes(80)]);
    assert!(lab.pool(&["list", "-H", "-o", "expandsize", "tank"]).contains("80M"));
    lab.pool(&["online", "-e", "tank", &lab.at("b.img")]);
    assert_eq!(sizes(&lab), [&*bytes(178), "-"]);
    ["one", "two", "three"].iter().for_each(|name| put(name));
    // From now on by autoexpand.
    lab.pool(&["set", "autoexpand=on", "tank"]);
    ["a.img", "b.img"].iter().for_each(|image| resize_image(&lab, image, 260 << 20));
    wait_until("the service has used it", || sizes(&lab) == [&*bytes(258), "-"]);
    assert!(lab.pool(&["history", "-i", "tank"]).contains("expanded by 80M"));
    ["four", "five", "six"].iter().for_each(|name| put(name));
    lab.check("tank");
    lab.pool(&["export", "tank"]);
    fs::remove_file(lab.path("a.img")).unwrap();
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    for name in ["before", "one", "two", "three", "four", "five", "six"] {
        assert!(fs::read(folder.join(name)).unwrap() == noise(30 << 20, 7), "{name}");
    }
    lab.check("tank");
}

#[test]
fn a_raidz_that_has_got_a_device_more_grows_too() {
    let lab = Lab::new();
    lab.pool(&["create", "-m", "none", "tank", "raidz1", "80M:a.img", "80M:b.img", "80M:c.img"]);
    fs::write(lab.path("file"), noise(20 << 20, 3)).unwrap();
    lab.fs(&["cp", "file", "tank:/file"]);
    lab.pool(&["attach", "-w", "tank", "raidz1-0", "80M:d.img"]);
    let size = |lab: &Lab| sizes(lab)[0].parse::<u64>().unwrap();
    let before = size(&lab);
    ["a.img", "b.img", "c.img", "d.img"].iter().for_each(|image| resize_image(&lab, image, 160 << 20));
    lab.pool(&["online", "-e", "tank", &lab.at("d.img")]);
    let more = size(&lab) - before;
    // Three of four devices hold data, and part of a region may remain unused.
    assert!((230 << 20..=241 << 20).contains(&more), "{more}");
    for copy in 0..12 {
        lab.fs(&["cp", "file", &format!("tank:/copy{copy}")]);
    }
    lab.check("tank");
    lab.pool(&["export", "tank"]);
    fs::remove_file(lab.path("b.img")).unwrap();
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    for copy in 0..12 {
        assert!(lab.fs_bytes(&["cat", &format!("tank:/copy{copy}")]) == noise(20 << 20, 3), "copy {copy}");
    }
}
