//! Access control lists on a mount: checked by the kernel, inherited, consistent with modes, and preserved by programs
//! that copy files.

use std::{
    fs::{self, Permissions},
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::{fs::XattrFlags, io::Errno};

use crate::{
    is_root,
    lab::{Lab, can_mount},
    mode, sh,
};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
const NOBODY: u32 = 65534;

const OWNER: u16 = 1;
const USER: u16 = 2;
const GROUP: u16 = 4;
const MASK: u16 = 16;
const OTHER: u16 = 32;

/// A list as programs encode it: tag, permissions, user or group.
fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut coded = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        coded.extend(tag.to_le_bytes());
        coded.extend(permissions.to_le_bytes());
        coded.extend(id.to_le_bytes());
    }
    coded
}

/// A list of permissions for a single user.
fn only(user: u32, permissions: u16) -> Vec<u8> {
    let none = u32::MAX;
    list(&[(OWNER, 7, none), (USER, permissions, user), (GROUP, 0, none), (MASK, 7, none), (OTHER, 0, none)])
}

fn set(path: &Path, name: &str, value: &[u8]) -> Result<(), Errno> {
    rustix::fs::setxattr(path, name, value, XattrFlags::empty())
}

fn get(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; 4096];
    let length = rustix::fs::getxattr(path, name, &mut value[..])?;
    value.truncate(length);
    Ok(value)
}

/// Whether a script succeeds for this user and group.
fn succeeds_as(user: u32, group: u32, folder: &Path, script: &str) -> bool {
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(folder).uid(user).gid(group).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().unwrap().success()
}

fn has(program: &str) -> bool {
    Command::new("sh").args(["-c", "command -v \"$0\" >/dev/null", program]).status().is_ok_and(|found| found.success())
}

/// Runs a test in a mounted dataset with access control lists, accessible to other users.
fn with_lists(test: impl FnOnce(&Lab, PathBuf)) {
    if !can_mount() || !is_root() {
        return;
    }
    let lab = Lab::new();
    fs::set_permissions(lab.path(""), Permissions::from_mode(0o711)).unwrap();
    lab.create("tank", "256M");
    lab.fs(&["set", "acltype=posix", "tank"]);
    test(&lab, lab.mount("tank"));
    lab.check("tank");
}

#[test]
fn the_kernel_checks_lists_and_modes_follow() {
    with_lists(|_, place| {
        let file = place.join("file");
        fs::write(&file, "text").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        let reads = |user| succeeds_as(user, user, &place, "cat file");
        let writes = |user| succeeds_as(user, user, &place, "echo more >> file");
        assert!(!reads(NOBODY));
        set(&file, ACCESS, &only(NOBODY, 4)).unwrap();
        assert_eq!(mode(&file), 0o770, "the mode shows the mask");
        assert!(reads(NOBODY) && !writes(NOBODY) && !reads(1));
        set(&file, ACCESS, &only(NOBODY, 6)).unwrap();
        assert!(writes(NOBODY), "a list that was changed counts at once");

        fs::set_permissions(&file, Permissions::from_mode(0o740)).unwrap();
        assert!(reads(NOBODY) && !writes(NOBODY), "a mode that was set is the mask");
        assert_eq!(get(&file, ACCESS).unwrap()[20..28], list(&[(GROUP, 0, u32::MAX)])[4..]);
        assert!(!succeeds_as(NOBODY, NOBODY, &place, "chmod 777 file"));
        assert_eq!(get(&place, ACCESS), Err(Errno::NODATA));
        rustix::fs::removexattr(&file, ACCESS).unwrap();
        assert!(!reads(NOBODY));

        let minimal = list(&[(OWNER, 6, u32::MAX), (GROUP, 4, u32::MAX), (OTHER, 4, u32::MAX)]);
        set(&file, ACCESS, &minimal).unwrap();
        assert_eq!((mode(&file), get(&file, ACCESS)), (0o644, Err(Errno::NODATA)));
        assert_eq!(set(&file, ACCESS, b"\x02\0\0\0no list."), Err(Errno::INVAL));
        assert_eq!(set(&file, ACCESS, &list(&[(OWNER, 7, u32::MAX)])), Err(Errno::INVAL));
        assert_eq!(set(&file, DEFAULT, &minimal), Err(Errno::ACCESS));
        assert_eq!(set(&file, "system.other", b"x"), Err(Errno::OPNOTSUPP));
    });
}

#[test]
fn what_is_made_inherits_from_its_directory() {
    with_lists(|_, place| {
        let dir = place.join("dir");
        fs::create_dir(&dir).unwrap();
        sh(&place, "umask 027; touch masked; mkdir masked-dir; mkfifo fifo; ln -s x link");
        let of = |name: &str| mode(&place.join(name));
        assert_eq!((of("masked"), of("masked-dir"), of("fifo"), of("link")), (0o640, 0o750, 0o640, 0o777));

        set(&dir, DEFAULT, &only(NOBODY, 6)).unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(0o711)).unwrap();
        sh(&dir, "umask 077; echo text > file; mkdir sub; mkfifo sub/fifo; ln -s file link; echo 1 > sub/file");
        assert_eq!((of("dir/file"), of("dir/sub"), of("dir/sub/fifo")), (0o660, 0o770, 0o660));
        assert_eq!((of("dir/link"), get(&dir.join("sub"), DEFAULT).unwrap()), (0o777, only(NOBODY, 6)));
        assert!(succeeds_as(NOBODY, NOBODY, &dir, "cat file && echo more >> file"));
        assert!(!succeeds_as(1, 1, &dir, "cat file"));
        rustix::fs::removexattr(&dir, DEFAULT).unwrap();
        sh(&dir, "umask 077; touch private");
        assert_eq!((of("dir/private"), get(&dir.join("private"), ACCESS)), (0o600, Err(Errno::NODATA)));
    });
}

#[test]
fn the_set_group_bit_stays_with_the_group() {
    if !has("setfacl") {
        return;
    }
    with_lists(|_, place| {
        let file = place.join("file");
        fs::write(&file, "").unwrap();
        chown(&file, Some(NOBODY), Some(50)).unwrap();
        let change = |group| {
            fs::set_permissions(&file, Permissions::from_mode(0o2755)).unwrap();
            assert!(succeeds_as(NOBODY, group, &place, "setfacl -m u:1:r,m:rwx file"));
            mode(&file)
        };
        assert_eq!(change(NOBODY), 0o775, "somebody who is not in the group takes it away");
        assert_eq!(change(50), 0o2775);
    });
}

#[test]
fn copies_keep_lists() {
    with_lists(|lab, place| {
        let (source, planted) = (place.join("source"), only(NOBODY, 4));
        fs::create_dir(&source).unwrap();
        set(&source, DEFAULT, &planted).unwrap();
        sh(&source, "umask 022; echo text > file; mkdir sub; echo 1 > sub/plain; chmod 640 file");
        rustix::fs::removexattr(source.join("sub/plain"), ACCESS).unwrap();
        let same = |copy: &Path| {
            for (name, attribute) in [("", DEFAULT), ("file", ACCESS), ("sub", ACCESS), ("sub", DEFAULT)] {
                assert_eq!(get(&copy.join(name), attribute), get(&source.join(name), attribute), "{copy:?} {name}");
                assert!(get(&copy.join(name), attribute).is_ok(), "{name}");
            }
            assert_eq!(get(&copy.join("sub/plain"), ACCESS), Err(Errno::NODATA));
            let modes = |tree: &Path| ["", "file", "sub", "sub/plain"].map(|name| mode(&tree.join(name)));
            assert_eq!(modes(copy), modes(&source));
        };
        sh(&place, "cp -a source copied");
        same(&place.join("copied"));
        sh(&place, "mkdir untarred && tar --acls -cf source.tar -C source . && tar --acls -xpf source.tar -C untarred");
        same(&place.join("untarred"));
        if has("rsync") {
            sh(&place, "rsync -aHAX source/ synced/");
            same(&place.join("synced"));
        }
        if has("getfacl") && has("setfacl") {
            let shown = sh(&place, "getfacl -n source/file");
            assert!(shown.contains("user:65534:r--") && shown.contains("mask::r--"), "{shown}");
            sh(&place, "cp -r --no-preserve=mode source restored; setfacl -R -b -k restored");
            sh(&place, "(cd source && getfacl -RPn .) > lists; cd restored && setfacl --restore=../lists");
            same(&place.join("restored"));
        }

        lab.fs(&["cp", "-r", source.to_str().unwrap(), "tank:/by-fs"]);
        same(&place.join("by-fs"));
        lab.fs(&["snapshot", "tank@kept"]);
        same(&place.join(".zfs/snapshot/kept/source"));
        lab.fs(&["cp", "-r", "tank@kept:/source", place.join("out").to_str().unwrap()]);
        same(&place.join("out"));
        let stream = lab.fs_bytes(&["send", "-p", "tank@kept"]);
        lab.feed("fs", &["receive", "-x", "mountpoint", "tank/received"], &stream).ok();
        assert_eq!(lab.fs(&["get", "-H", "-o", "value,source", "acltype", "tank/received"]).trim(), "posix\treceived");
        same(&place.join("received/source"));

        let before = get(&source.join("file"), ACCESS);
        rustix::fs::removexattr(source.join("file"), ACCESS).unwrap();
        lab.fs(&["rollback", "tank@kept"]);
        assert_eq!(get(&source.join("file"), ACCESS), before);
        assert!(succeeds_as(NOBODY, NOBODY, &place, "cat source/file"));
    });
}

#[test]
fn the_property_acts_with_the_mount() {
    if !can_mount() || !is_root() {
        return;
    }
    let lab = Lab::new();
    lab.create("tank", "256M");
    lab.fs(&["create", "tank/below"]);
    let (place, below) = (lab.mount("tank"), lab.mount("tank/below"));
    fs::write(below.join("file"), "").unwrap();
    let refused = |path: &Path| {
        assert_eq!(get(path, ACCESS), Err(Errno::OPNOTSUPP));
        assert_eq!(set(path, ACCESS, &only(1, 4)), Err(Errno::OPNOTSUPP));
        assert_eq!(rustix::fs::removexattr(path, ACCESS), Err(Errno::OPNOTSUPP));
    };
    let file = below.join("file");
    refused(&file);
    lab.fs(&["set", "acltype=posixacl", "tank"]);
    assert_eq!(lab.fs(&["get", "-H", "-o", "value", "acltype", "tank/below"]).trim(), "posix");
    set(&file, ACCESS, &only(1, 4)).unwrap();
    assert_eq!(fs::metadata(&place).unwrap().dev(), fs::metadata(place.join(".")).unwrap().dev());

    // A dataset in use keeps its setting until the next mount.
    let held = fs::File::open(&file).unwrap();
    let said = lab.run("fs", &["set", "acltype=off", "tank/below"]).fails(1);
    assert!(said.contains("property set") && said.contains("in use"), "{said}");
    assert_eq!(get(&file, ACCESS).unwrap(), only(1, 4));
    drop(held);
    lab.fs(&["unmount", "tank/below"]);
    lab.fs(&["mount", "tank/below"]);
    refused(&file);
    let mut names = [0; 64];
    assert_eq!(rustix::fs::listxattr(&file, &mut names[..]), Ok(0), "they are hidden");
    lab.fs(&["unmount", "tank/below"]);
    lab.fs(&["mount", "-o", "acl", "tank/below"]);
    assert_eq!(get(&file, ACCESS).unwrap(), only(1, 4));
    lab.check("tank");
}

#[test]
fn an_empty_list_is_set_by_removing_the_list() {
    with_lists(|lab, _| {
        let file = lab.mount("tank").join("bare");
        fs::write(&file, b"").unwrap();
        // The values that setfacl -b sets, with and without a list to remove.
        for name in [ACCESS, DEFAULT] {
            let of = if name == DEFAULT { lab.mount("tank") } else { file.clone() };
            for before in [Some(only(1, 7)), None] {
                before.iter().for_each(|before| set(&of, name, before).unwrap());
                for empty in [list(&[]), Vec::new()] {
                    assert_eq!(set(&of, name, &empty), Ok(()), "{name}");
                    assert_eq!(get(&of, name), Err(Errno::NODATA));
                }
                assert_eq!(rustix::fs::removexattr(&of, name), Ok(()));
            }
        }
    });
}
