//! `fs cp` into a mounted dataset with cached files: the kernel learns of just the copied files.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use vmap::MapMut;

use crate::mounted;

/// The bytes of a file in the kernel's page cache.
fn kept(file: &Path) -> u64 {
    let said = Command::new("fincore").args(["--bytes", "--noheadings", "--output", "RES"]).arg(file).output().unwrap();
    String::from_utf8(said.stdout).unwrap().trim().parse().unwrap()
}

#[test]
fn a_copy_replaces_what_the_kernel_has_cached() {
    let Some(lab) = mounted(&["tank"]) else { return };
    lab.fs(&["create", "tank/from"]);
    let (from, to) = (lab.mount("tank/from"), lab.mount("tank"));
    for dir in ["dir", "dir/new"] {
        fs::create_dir(from.join(dir)).unwrap();
    }
    for file in ["file", "other", "dir/file", "dir/new/file"] {
        fs::write(from.join(file), b"new").unwrap();
    }
    fs::hard_link(from.join("file"), from.join("second")).unwrap();
    fs::set_permissions(from.join("dir"), fs::Permissions::from_mode(0o711)).unwrap();
    // Lookups before the copy, successful or not.
    fs::create_dir(to.join("dir")).unwrap();
    fs::write(to.join("file"), b"older").unwrap();
    fs::hard_link(to.join("file"), to.join("name")).unwrap();
    let open = File::open(to.join("file")).unwrap();
    fs::write(to.join("untouched"), [b'u'; 8192]).unwrap();
    assert_eq!(fs::read(to.join("untouched")).unwrap().len(), 8192);
    let list = |dir: &Path| {
        let mut names: Vec<String> =
            fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(list(&to), ["dir", "file", "from", "name", "untouched"]);
    assert_eq!(list(&to.join("dir")).len(), 0);
    for absent in ["other", "second", "dir/file", "dir/new"] {
        assert!(!to.join(absent).exists());
    }
    assert_eq!((open.metadata().unwrap().nlink(), fs::metadata(to.join("file")).unwrap().len()), (2, 5));
    lab.fs(&["cp", "-r", "tank/from:/.", "tank:/"]);
    assert_eq!(list(&to), ["dir", "file", "from", "name", "other", "second", "untouched"]);
    assert_eq!(list(&to.join("dir")), ["file", "new"]);
    for there in ["file", "other", "second", "dir/file", "dir/new/file"] {
        assert_eq!(fs::read(to.join(there)).unwrap(), b"new", "{there}");
    }
    assert_eq!(fs::metadata(to.join("second")).unwrap().nlink(), 2);
    assert_eq!(fs::metadata(to.join("dir")).unwrap().mode() & 0o777, 0o711);
    // The replaced file stays for its open descriptors, and under its other name.
    assert_eq!((open.metadata().unwrap().nlink(), fs::read(to.join("name")).unwrap()), (1, b"older".to_vec()));
    assert_eq!(kept(&to.join("untouched")), 8192);
    // The same for a copy from outside the pool.
    fs::write(lab.path("outside"), b"from outside").unwrap();
    assert!(!to.join("outside").exists());
    lab.fs(&["cp", &lab.at("outside"), "tank:/"]);
    lab.fs(&["cp", &lab.at("outside"), "tank:/name"]);
    for there in ["outside", "name"] {
        assert_eq!(fs::read(to.join(there)).unwrap(), b"from outside");
    }
    assert_eq!(open.metadata().unwrap().nlink(), 0);
    assert_eq!(kept(&to.join("untouched")), 8192);
    drop(open);
    lab.check("tank");
}

#[test]
fn what_was_changed_through_a_mapping_is_copied_and_shown() {
    let Some(lab) = mounted(&["tank"]) else { return };
    lab.fs(&["create", "tank/from"]);
    let path = lab.mount("tank/from").join("file");
    fs::write(&path, [b'.'; 8192]).unwrap();
    let (mut map, _) = MapMut::with_options().open(&path).unwrap();
    for letter in [b'a', b'b', b'c'] {
        map.fill(letter);
        let found = match letter {
            b'a' => {
                lab.fs(&["cp", "tank/from:/file", "tank:/copy"]);
                fs::read(lab.mount("tank").join("copy")).unwrap()
            }
            b'b' => {
                lab.fs(&["cp", "tank/from:/file", &lab.at("outside")]);
                fs::read(lab.path("outside")).unwrap()
            }
            _ => lab.fs(&["cat", "tank/from:/file"]).into_bytes(),
        };
        assert!(found == [letter; 8192], "{}: {:?}", char::from(letter), char::from(found[0]));
    }
}
