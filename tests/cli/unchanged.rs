//! Refused requests change nothing: they leave no empty directory, no image, no partial result.

use std::fs;

use crate::lab::Lab;

#[test]
fn a_copy_without_directories_changes_nothing_if_there_is_one() {
    let lab = Lab::mountless();
    lab.pool(&["create", "-m", "none", "tank", "64M:tank.img"]);
    fs::create_dir(lab.path("folder")).unwrap();
    fs::write(lab.path("file"), "text").unwrap();
    for words in
        [&["cp", "folder", "tank:/new"][..], &["cp", "file", "folder", "tank:/"], &["cp", "folder/.", "tank:/x"]]
    {
        let said = lab.run("fs", words).fails(1);
        assert!(said.contains("it is a directory\n  use -r to copy directories"), "{said}");
        assert_eq!(lab.fs(&["ls", "tank:/"]), "");
    }
    lab.fs(&["cp", "-r", "folder", "tank:/"]);
    lab.fs(&["cp", "file", "tank:/"]);
    fs::create_dir(lab.path("out")).unwrap();
    for words in [&["cp", "tank:/folder", "new"][..], &["cp", "tank:/file", "tank:/folder", "out"]] {
        let said = lab.run("fs", words).fails(1);
        assert!(said.contains("it is a directory\n  use -r to copy directories"), "{said}");
    }
    assert!(!lab.path("new").exists());
    assert_eq!(fs::read_dir(lab.path("out")).unwrap().count(), 0);
}

#[test]
fn a_pool_that_is_not_created_leaves_no_image() {
    let lab = Lab::mountless();
    for words in [
        &["8191P:huge.img"][..],
        &["64M:first.img", "8191P:huge.img"],
        &["64M:first.img", "64M:nowhere/second.img"],
        &["64M:first.img", "/dev/null"],
    ] {
        let words: Vec<&str> = ["create", "-m", "none", "tank"].into_iter().chain(words.iter().copied()).collect();
        lab.run("pool", &words).fails(1);
        for image in ["huge.img", "first.img"] {
            assert!(!lab.path(image).exists(), "{words:?}");
        }
    }
}

#[test]
fn one_device_is_not_taken_twice() {
    let lab = Lab::mountless();
    fs::File::create(lab.path("a.img")).unwrap().set_len(64 << 20).unwrap();
    fs::hard_link(lab.path("a.img"), lab.path("b.img")).unwrap();
    std::os::unix::fs::symlink("a.img", lab.path("c.img")).unwrap();
    for (second, refusal) in
        [("a.img", "a.img is named twice"), ("b.img", "b.img are one device"), ("c.img", "c.img are one device")]
    {
        for options in [&["create", "-n"][..], &["create"]] {
            let words: Vec<&str> = options.iter().copied().chain(["-m", "none", "tank", "a.img", second]).collect();
            let said = lab.run("pool", &words).fails(1);
            assert!(said.contains("cannot create 'tank'") && said.contains(refusal), "{said}");
        }
    }
    for options in [&["create", "-n"][..], &["create"]] {
        let new = ["-m", "none", "tank", "64M:new.img", "64M:new.img"];
        let words: Vec<&str> = options.iter().copied().chain(new).collect();
        let said = lab.run("pool", &words).fails(1);
        assert!(said.contains("new.img is named twice"), "{said}");
    }
    lab.pool(&["create", "-m", "none", "tank", "64M:tank.img"]);
    for options in [&["add", "-n", "tank"][..], &["add", "tank"]] {
        let words: Vec<&str> = options.iter().copied().chain(["a.img", "b.img"]).collect();
        let said = lab.run("pool", &words).fails(1);
        assert!(said.contains("b.img are one device"), "{said}");
    }
}
