//! File handles that outlive mounts, as NFS servers and Samba use: an inode number and a generation. A Perl script
//! makes the system calls, which need root, and in Rust would need `unsafe` code.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use crate::{has_perl, is_root, lab::Lab, on_a_mount};

/// The error for a handle of a removed file.
const STALE: Result<String, i32> = Err(116);

fn script(words: &[&str]) -> Result<String, i32> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/posix/handle.pl");
    let Output { status, stdout, stderr } =
        Command::new("perl").env("LC_ALL", "C").arg(script).args(words).output().unwrap();
    assert!(stderr.is_empty(), "{}", String::from_utf8_lossy(&stderr));
    if status.success() { Ok(String::from_utf8(stdout).unwrap()) } else { Err(status.code().unwrap()) }
}

fn take(path: &Path) -> String {
    script(&["take", path.to_str().unwrap()]).unwrap()
}

fn show(mount: &Path, handle: &str) -> Result<String, i32> {
    script(&["show", mount.to_str().unwrap(), handle])
}

fn inode(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

/// Runs a test where handles can be used.
fn with_handles(test: impl FnOnce(&Lab, &Path)) {
    if is_root() && has_perl() {
        on_a_mount(test);
    }
}

#[test]
fn a_handle_leads_to_its_file_across_remounts_and_renames() {
    with_handles(|lab, place| {
        let folder = place.join("folder/below");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("file"), "text").unwrap();
        let paths: Vec<PathBuf> = vec![folder.join("file"), folder.clone(), place.to_owned()];
        let handles: Vec<String> = paths.iter().map(|path| take(path)).collect();
        let numbers: Vec<u64> = paths.iter().map(|path| inode(path)).collect();
        let leads_there = || {
            assert_eq!(show(place, &handles[0]).as_deref(), Ok("text"));
            assert_eq!(show(place, &handles[1]).as_deref(), Ok(folder.to_str().unwrap()));
            assert_eq!(show(place, &handles[2]).as_deref(), Ok(place.to_str().unwrap()));
        };
        leads_there();
        lab.check("tank");
        leads_there();
        assert_eq!(paths.iter().map(|path| inode(path)).collect::<Vec<_>>(), numbers);
        assert_eq!(paths.iter().map(|path| take(path)).collect::<Vec<_>>(), handles);

        fs::rename(folder.join("file"), place.join("elsewhere")).unwrap();
        fs::write(folder.join("file"), "another").unwrap();
        lab.check("tank");
        leads_there();
        fs::remove_file(place.join("elsewhere")).unwrap();
        assert_eq!(show(place, &handles[0]), STALE);
        lab.check("tank");
        assert_eq!(show(place, &handles[0]), STALE);
    });
}

#[test]
fn a_reused_inode_number_does_not_take_over_the_handle() {
    with_handles(|lab, place| {
        fs::write(place.join("first"), "first").unwrap();
        lab.fs(&["snapshot", "tank@before"]);
        fs::write(place.join("late"), "late").unwrap();
        let (handle, number) = (take(&place.join("late")), inode(&place.join("late")));
        lab.fs(&["rollback", "tank@before"]);
        assert_eq!(show(place, &handle), STALE);
        fs::write(place.join("later"), "later").unwrap();
        assert_eq!(inode(&place.join("later")), number, "the number is taken over, or this shows nothing");
        assert_eq!(show(place, &handle), STALE);
        lab.check("tank");
        assert_eq!(show(place, &handle), STALE);
        assert_eq!(show(place, &take(&place.join("later"))).as_deref(), Ok("later"));
    });
}

#[test]
fn a_handle_into_a_snapshot_leads_to_no_other_snapshot() {
    with_handles(|lab, place| {
        for text in ["one", "two"] {
            fs::write(place.join("file"), text).unwrap();
            lab.fs(&["snapshot", &format!("tank@{text}")]);
        }
        let of = |snapshot: &str| place.join(".zfs/snapshot").join(snapshot).join("file");
        let handle = take(&of("one"));
        assert_eq!(show(place, &handle).as_deref(), Ok("one"));
        lab.check("tank");
        // The snapshot opened first gets the slot number that the second had before.
        assert_eq!(fs::read_to_string(of("two")).unwrap(), "two");
        assert_eq!(show(place, &handle), STALE);
    });
}

#[test]
fn listing_snapshots_does_not_disturb_a_process_in_one() {
    on_a_mount(|lab, place| {
        fs::write(place.join("file"), "text").unwrap();
        lab.fs(&["snapshot", "tank@one"]);
        let inside = place.join(".zfs/snapshot/one");
        let script = "cat file; ls -l .. > /dev/null; find .. -maxdepth 2 > /dev/null; cat file; ls .";
        assert_eq!(crate::sh(&inside, script), "texttextfile\n");
    });
}
