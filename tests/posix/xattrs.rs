//! Extended attributes: namespaces, limits, and capabilities, which a change of the file removes.

use std::{
    fs::{self, OpenOptions, Permissions},
    os::unix::{
        fs::{FileExt, PermissionsExt, chown, symlink},
        process::CommandExt,
    },
    path::Path,
    process::{Command, Stdio},
};

use rustix::{
    fs::{FallocateFlags, XattrFlags},
    io::Errno,
};

use crate::{is_root, lab::noise, mode, on_a_mount};

const CAPABILITY: &str = "security.capability";
/// `cap_net_raw+ep`, in the kernel's version 2.
const NET_RAW: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn set(path: &Path, name: &str, value: &[u8]) -> Result<(), Errno> {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty())
}

fn get(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; 70_000];
    let length = rustix::fs::lgetxattr(path, name, &mut value[..])?;
    value.truncate(length);
    Ok(value)
}

fn list(path: &Path) -> Vec<String> {
    let mut found = vec![0; 65_536];
    let length = rustix::fs::llistxattr(path, &mut found[..]).unwrap();
    let names = found[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut names: Vec<String> = names.map(|name| String::from_utf8(name.to_vec()).unwrap()).collect();
    names.sort();
    names
}

fn as_nobody(folder: &Path, script: &str) -> bool {
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(folder).uid(65534).gid(65534).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().unwrap().success()
}

#[test]
fn namespaces_are_kept_apart() {
    on_a_mount(|lab, place| {
        let (file, dir, link) = (place.join("file"), place.join("dir"), place.join("link"));
        fs::write(&file, "").unwrap();
        fs::create_dir(&dir).unwrap();
        symlink("file", &link).unwrap();
        set(&file, "user.name", b"1").unwrap();
        set(&dir, "user.name", b"2").unwrap();
        assert_eq!(get(&file, "user.name").unwrap(), b"1");
        assert_eq!(set(&link, "user.name", b"x"), Err(Errno::PERM), "only files and directories have user's");
        for (name, expected) in [
            ("system.name", Errno::OPNOTSUPP),
            ("system.posix_acl_other", Errno::OPNOTSUPP),
            ("other.name", Errno::OPNOTSUPP),
            ("name", Errno::OPNOTSUPP),
            ("user.", Errno::INVAL),
        ] {
            assert_eq!(set(&file, name, b"x"), Err(expected), "{name}");
        }
        if !is_root() {
            return assert_eq!(set(&file, "trusted.name", b"x"), Err(Errno::PERM));
        }
        for name in ["trusted.name", "security.name"] {
            for path in [&file, &dir, &link] {
                set(path, name, name.as_bytes()).unwrap();
                assert_eq!(get(path, name).unwrap(), name.as_bytes());
            }
        }
        assert_eq!(list(&file), ["security.name", "trusted.name", "user.name"]);
        fs::set_permissions(lab.path(""), Permissions::from_mode(0o711)).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        let reads = |name: &str| {
            let script = format!("getfattr --only-values -n {name} file");
            as_nobody(place, &script)
        };
        if Command::new("getfattr").arg("--version").stdout(Stdio::null()).status().is_ok() {
            assert!(reads("user.name") && reads("security.name"));
            assert!(!reads("trusted.name"), "only root sees those");
            assert!(!as_nobody(place, "setfattr -n user.mine -v 1 file"));
            assert!(!as_nobody(place, "setfattr -x user.name file"));
        }
    });
}

#[test]
fn values_and_lists_have_their_limits() {
    on_a_mount(|_, place| {
        let path = place.join("file");
        fs::write(&path, "").unwrap();
        // Sizes around the limit for inline values, a page, and the kernel's limit.
        for length in [0, 1, 2047, 2048, 2049, 4095, 4096, 4097, 65_535, 65_536] {
            let value = noise(length, length as u64);
            set(&path, "user.value", &value).unwrap();
            assert!(get(&path, "user.value").unwrap() == value, "{length}");
        }
        assert_eq!(set(&path, "user.value", &[0; 65_537]), Err(Errno::TOOBIG));
        assert_eq!(rustix::fs::getxattr(&path, "user.value", &mut [0; 65_535][..]), Err(Errno::RANGE));
        assert_eq!(rustix::fs::getxattr_query(&path, "user.value"), Ok(65_536));
        rustix::fs::removexattr(&path, "user.value").unwrap();

        let longest = format!("user.{}", "n".repeat(250));
        set(&path, &longest, b"x").unwrap();
        assert_eq!(set(&path, &format!("{longest}n"), b"x"), Err(Errno::RANGE));
        let name = |number: usize| format!("user.{number:0>245}");
        // Nearly the 64 KiB of names that the kernel returns.
        let mut wanted: Vec<String> = (0..260).map(name).chain([longest]).collect();
        wanted.iter().for_each(|name| set(&path, name, name.as_bytes()).unwrap());
        wanted.sort();
        assert!(list(&path) == wanted, "{} names", list(&path).len());
        wanted.iter().for_each(|name| assert_eq!(get(&path, name).unwrap(), name.as_bytes()));
        wanted.iter().for_each(|name| rustix::fs::removexattr(&path, name).unwrap());
        assert_eq!(list(&path), [""; 0]);
    });
}

#[test]
fn a_change_takes_capabilities_away() {
    if !is_root() {
        return;
    }
    on_a_mount(|lab, place| {
        fs::set_permissions(lab.path(""), Permissions::from_mode(0o711)).unwrap();
        let tool = place.join("tool");
        let lost = |what: &str, change: &dyn Fn()| {
            fs::write(&tool, "some content that is long enough to be cut").unwrap();
            chown(&tool, Some(65534), Some(65534)).unwrap();
            fs::set_permissions(&tool, Permissions::from_mode(0o777)).unwrap();
            set(&tool, CAPABILITY, &NET_RAW).unwrap();
            assert_eq!(get(&tool, CAPABILITY).unwrap(), NET_RAW, "{what}");
            change();
            assert_eq!(get(&tool, CAPABILITY), Err(Errno::NODATA), "{what}");
            assert!(!list(&tool).contains(&CAPABILITY.to_owned()));
        };
        let file = || OpenOptions::new().read(true).write(true).open(&tool).unwrap();
        let nobody = |script: &str| assert!(as_nobody(place, script), "{script}");
        lost("a write", &|| file().write_all_at(b"x", 3).unwrap());
        lost("another's write", &|| nobody("echo >> tool"));
        lost("a truncation", &|| file().set_len(5).unwrap());
        lost("another's truncation", &|| nobody(": > tool"));
        lost("a longer file", &|| file().set_len(5000).unwrap());
        lost("another owner", &|| chown(&tool, Some(1), None).unwrap());
        lost("another group", &|| chown(&tool, None, Some(1)).unwrap());
        lost("the same owner", &|| chown(&tool, Some(65534), Some(65534)).unwrap());
        lost("its owner's choice of its group", &|| nobody("chgrp 65534 tool"));
        let allocate = |flags| rustix::fs::fallocate(file(), flags, 0, 8192).unwrap();
        lost("allocation", &|| allocate(FallocateFlags::empty()));
        lost("a hole", &|| allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE));
        lost("zeros", &|| allocate(FallocateFlags::ZERO_RANGE));
        lost("a copy onto it", &|| {
            fs::write(place.join("source"), noise(5000, 3)).unwrap();
            let source = fs::File::open(place.join("source")).unwrap();
            rustix::fs::copy_file_range(source, None, file(), None, 5000).unwrap();
        });
        set(&tool, CAPABILITY, &NET_RAW).unwrap();
        fs::set_permissions(&tool, Permissions::from_mode(0o755)).unwrap();
        fs::rename(&tool, place.join("renamed")).unwrap();
        fs::read(place.join("renamed")).unwrap();
        assert_eq!(get(&place.join("renamed"), CAPABILITY).unwrap(), NET_RAW, "what is no change of it keeps them");
        assert!(!as_nobody(place, "setcap cap_net_raw+ep renamed"), "only root gives them");
    });
}

#[test]
fn set_id_bits_go_with_what_another_writes() {
    if !is_root() {
        return;
    }
    on_a_mount(|lab, place| {
        fs::set_permissions(lab.path(""), Permissions::from_mode(0o711)).unwrap();
        let tool = place.join("tool");
        for (script, left) in [
            ("echo >> tool", 0o777),
            (": > tool", 0o777),
            ("truncate -s 3 tool", 0o777),
            ("fallocate -l 100000 tool", 0o777),
            ("fallocate -p -o 0 -l 4096 tool", 0o777),
            ("cp tool copy-elsewhere 2>/dev/null; true", 0o6777),
            ("cat tool", 0o6777),
        ] {
            fs::write(&tool, noise(10_000, 7)).unwrap();
            fs::set_permissions(&tool, Permissions::from_mode(0o6777)).unwrap();
            assert!(as_nobody(place, script), "{script}");
            assert_eq!(mode(&tool), left, "{script}");
        }
        fs::set_permissions(&tool, Permissions::from_mode(0o6777)).unwrap();
        OpenOptions::new().write(true).open(&tool).unwrap().write_all_at(b"x", 0).unwrap();
        assert_eq!(mode(&tool), 0o6777, "root's own writing leaves them");
    });
}
