//! Options for one mount only, and mounts that stay during renames.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use vmap::MapMut;

use crate::{mounted, mounts_on};

#[test]
fn what_holds_for_one_mount_ends_with_it() {
    let Some(lab) = mounted(&["tank"]) else { return };
    let file = lab.mount("tank").join("file");
    let refused = lab.run("fs", &["mount", "-o", "ro", "tank"]).fails(1);
    assert!(refused.contains("already mounted\n  to change mount options: fs unmount tank"), "{refused}");
    lab.fs(&["unmount", "tank"]);
    lab.fs(&["mount", "-o", "ro", "tank"]);
    assert!(fs::write(&file, "refused").is_err());
    lab.fs(&["set", "compression=lz4", "tank"]);
    assert!(fs::write(&file, "refused").is_err());
    lab.fs(&["unmount", "tank"]);
    lab.fs(&["mount", "tank"]);
    fs::write(&file, "taken").unwrap();
    lab.fs(&["unmount", "tank"]);
    lab.fs(&["set", "readonly=on", "tank"]);
    lab.fs(&["mount", "-o", "rw", "tank"]);
    fs::write(&file, "taken").unwrap();
    lab.fs(&["unmount", "tank"]);
    lab.fs(&["mount", "tank"]);
    assert!(fs::write(&file, "refused").is_err());
}

/// Otherwise a program could map a file of a snapshot, and change what other programs see.
#[test]
fn nothing_in_a_snapshot_can_be_opened_to_be_written() {
    let Some(lab) = mounted(&["tank"]) else { return };
    let place = lab.mount("tank");
    fs::write(place.join("file"), "original").unwrap();
    fs::set_permissions(place.join("file"), fs::Permissions::from_mode(0o666)).unwrap();
    lab.fs(&["snapshot", "tank@a"]);
    let file = place.join(".zfs/snapshot/a/file");
    let refused = |options: &mut OpenOptions| {
        let error = options.open(&file).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::ROFS.raw_os_error()));
    };
    refused(OpenOptions::new().read(true).write(true));
    refused(OpenOptions::new().write(true));
    refused(OpenOptions::new().append(true));
    refused(OpenOptions::new().write(true).truncate(true));
    refused(OpenOptions::new().write(true).create(true));
    if rustix::process::geteuid().is_root() {
        fs::set_permissions(lab.path(""), fs::Permissions::from_mode(0o711)).unwrap();
        let script = format!("exec 3<> {}", file.display());
        let output = Command::new("bash").args(["-c", &script]).uid(65534).gid(65534).output().unwrap();
        assert!(String::from_utf8_lossy(&output.stderr).contains("Read-only file system"), "{output:?}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "original");
    // Existing content can be read in every way, and copied.
    let copied =
        Command::new("cp").arg("-a").arg(place.join(".zfs/snapshot/a")).arg(lab.path("copy")).status().unwrap();
    assert!(copied.success());
    assert_eq!(fs::read_to_string(lab.path("copy").join("file")).unwrap(), "original");
    lab.pool(&["export", "tank"]);
}

#[test]
fn snapshots_that_cannot_be_browsed_make_opening_cheap() {
    let Some(lab) = mounted(&["tank"]) else { return };
    let place = lab.mount("tank");
    fs::write(place.join("file"), "content").unwrap();
    lab.fs(&["snapshot", "tank@a"]);
    let opens = || {
        let said = lab.fs(&["mount", "-j"]);
        let behind = said.split_once("\"open\"").map_or("0", |(_, behind)| behind).to_owned();
        let digits = behind.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit);
        digits.collect::<String>().parse::<u64>().unwrap()
    };
    assert!(place.join(".zfs/snapshot/a/file").exists());
    lab.fs(&["set", "snapdir=disabled", "tank"]);
    assert!(!place.join(".zfs/snapshot").exists());
    assert_eq!(fs::read_dir(place.join(".zfs")).unwrap().count(), 0);
    assert!(fs::create_dir(place.join(".zfs")).is_err());
    let before = opens();
    (0..10).for_each(|_| assert_eq!(fs::read(place.join("file")).unwrap(), b"content"));
    assert!(opens() <= before + 1, "{before} and {}", opens());
    lab.fs(&["set", "snapdir=visible", "tank"]);
    assert!(place.join(".zfs/snapshot/a/file").exists());
    lab.pool(&["export", "tank"]);
}

#[test]
fn mounts_stay_where_they_are_if_a_renaming_is_to_leave_them() {
    let Some(lab) = mounted(&["tank"]) else { return };
    lab.fs(&["create", "-p", "tank/old/below"]);
    let folder = lab.mount("tank/old");
    let open = File::create(folder.join("file")).unwrap();
    lab.fs(&["rename", "-u", "tank/old", "tank/new"]);
    assert_eq!(mounts_on(&folder).len(), 1);
    open.set_len(3).unwrap();
    drop(open);
    let shown = lab.fs(&["mount"]);
    let line = shown.lines().find(|line| line.starts_with("tank/new ")).unwrap();
    assert!(line.ends_with(&folder.display().to_string()), "{shown}");
    assert!(shown.contains("tank/new/below"), "{shown}");
    lab.fs(&["snapshot", "tank/new@a"]);
    assert!(folder.join(".zfs/snapshot/a/file").exists());
    lab.fs(&["unmount", "tank/new"]);
    assert!(mounts_on(&folder).is_empty());
    lab.fs(&["mount", "tank/new"]);
    assert!(lab.mount("tank/new").join("file").exists());
    lab.pool(&["export", "tank"]);
}

/// A live mapping's changes are in the kernel alone, and could not be written back afterwards. While a file is open for
/// writing, the kernel's superblock stays writable.
#[test]
fn readonly_on_writes_mapped_changes_back() {
    let Some(lab) = mounted(&["tank"]) else { return };
    lab.fs(&["create", "tank/below"]);
    let paths = [lab.mount("tank").join("file"), lab.mount("tank/below").join("file")];
    let maps = paths.each_ref().map(|path| {
        fs::write(path, [b'.'; 8192]).unwrap();
        let (mut map, _) = MapMut::with_options().open(path).unwrap();
        map[4096..].fill(b'm');
        map
    });
    let said = lab.run("fs", &["set", "readonly=on", "tank"]).fails(1);
    assert!(said.contains("cannot remount") && said.contains("it takes effect at the next mount"), "{said}");
    assert!(fs::write(&paths[1], "refused").is_err());
    drop(maps);
    lab.check("tank");
    for path in &paths {
        let content = fs::read(path).unwrap();
        assert!(content[..4096] == [b'.'; 4096] && content[4096..] == [b'm'; 4096], "{}", path.display());
    }
}

/// Whether `file` stores and returns an attribute; false if attributes are unsupported.
fn takes_attributes(file: &Path) -> bool {
    let mut value = [0; 8];
    match rustix::fs::setxattr(file, "user.colour", b"red", XattrFlags::empty()) {
        Ok(()) => {
            assert_eq!(rustix::fs::getxattr(file, "user.colour", &mut value[..]), Ok(3));
            true
        }
        Err(errno) => {
            assert_eq!(errno, Errno::OPNOTSUPP);
            assert_eq!(rustix::fs::getxattr(file, "user.colour", &mut value[..]), Err(Errno::OPNOTSUPP));
            assert_eq!(rustix::fs::listxattr(file, &mut value[..]), Err(Errno::OPNOTSUPP));
            assert_eq!(rustix::fs::removexattr(file, "user.colour"), Err(Errno::OPNOTSUPP));
            false
        }
    }
}

#[test]
fn extended_attributes_can_be_turned_off_and_are_kept() {
    let Some(lab) = mounted(&["tank"]) else { return };
    let asked = || -> u64 {
        let listed: serde_json::Value = serde_json::from_str(&lab.fs(&["mount", "-j"])).unwrap();
        listed["datasets"]["tank"]["requests"]["getxattr"].as_u64().unwrap_or(0)
    };
    let file = lab.mount("tank").join("file");
    fs::write(&file, "before").unwrap();
    assert!(takes_attributes(&file));
    lab.fs(&["set", "xattr=off", "tank"]);
    assert!(!takes_attributes(&file));
    // The kernel stops asking after the first answer.
    (0..20).for_each(|number| fs::write(lab.mount("tank").join(format!("new-{number}")), "content").unwrap());
    assert!(asked() <= 1, "{}", asked());
    // ACLs are extended attributes.
    lab.fs(&["set", "acltype=posix", "tank"]);
    assert!(takes_attributes(&file));
    lab.fs(&["set", "acltype=off", "tank"]);
    assert!(!takes_attributes(&file));
    let open = File::open(&file).unwrap();
    let said = lab.run("fs", &["set", "xattr=on", "tank"]).fails(1);
    assert!(said.contains("takes effect only after a remount"), "{said}");
    drop(open);
    lab.fs(&["set", "xattr=on", "tank"]);
    let mut value = [0; 8];
    assert_eq!(rustix::fs::getxattr(&file, "user.colour", &mut value[..]), Ok(3));
    (0..20).for_each(|number| fs::write(lab.mount("tank").join(format!("more-{number}")), "content").unwrap());
    assert!(asked() >= 20, "{}", asked());
}

#[test]
fn a_mount_that_is_made_anew_is_what_it_was() {
    let Some(lab) = mounted(&["tank"]) else { return };
    lab.fs(&["create", "-o", "canmount=noauto", "tank/kept"]);
    lab.fs(&["create", "tank/other"]);
    lab.fs(&["mount", "-o", "ro", "tank/kept"]);
    let is_kept = |dataset: &str| {
        let place = lab.mount(dataset);
        assert_eq!(mounts_on(&place).len(), 1, "{dataset}");
        let refused = fs::write(place.join("file"), "refused").unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::ROFS.raw_os_error()), "{dataset}");
    };
    lab.fs(&["set", "xattr=off", "tank"]);
    is_kept("tank/kept");
    // A failed rename changes nothing, and a successful one keeps the mount.
    let said = lab.run("fs", &["rename", "tank/kept", "tank/other"]).fails(1);
    assert!(said.contains("exists"), "{said}");
    is_kept("tank/kept");
    lab.fs(&["rename", "tank/kept", "tank/renamed"]);
    is_kept("tank/renamed");
    lab.fs(&["set", &format!("mountpoint={}", lab.mount("elsewhere").display()), "tank/renamed"]);
    is_kept("elsewhere");
    lab.fs(&["set", "canmount=off", "tank/renamed"]);
    assert!(mounts_on(&lab.mount("elsewhere")).is_empty());
    lab.fs(&["set", "canmount=noauto", "tank/renamed"]);
    assert!(mounts_on(&lab.mount("elsewhere")).is_empty());
    lab.fs(&["mount", "tank/renamed"]);
    fs::write(lab.mount("elsewhere").join("file"), "taken").unwrap();
}

#[test]
fn a_mount_is_found_by_a_path_with_a_symbolic_link() {
    let Some(lab) = mounted(&["tank"]) else { return };
    let top = lab.mount("tank");
    lab.fs(&["create", "tank/my files"]);
    assert_eq!(mounts_on(&top.join("my\\040files")).len(), 1);
    std::os::unix::fs::symlink(lab.path("mnt"), lab.path("way")).unwrap();
    std::os::unix::fs::symlink(top.join("my files"), lab.path("link")).unwrap();
    for way in ["way/tank/my files", "way/tank/my files/", "link"] {
        lab.fs(&["unmount", &lab.at(way)]);
        assert!(lab.run("fs", &["unmount", &lab.at(way)]).fails(1).contains("no Cenote file system is mounted there"));
        lab.fs(&["mount", "tank/my files"]);
    }
}
