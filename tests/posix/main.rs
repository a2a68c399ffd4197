//! The behaviour that programs expect of a Linux file system, tested on a real mount.
//!
//! Each test makes a pool of its own, and checks the pool at the end. Tests that need root run only as root.
//!
//! ```text
//! names        directories: renames, links, special files, names of any kind, inode numbers
//! content      bytes and space: holes, appending, locks, direct input and output
//! attributes   modes, owners, times, extended attributes
//! xattrs       namespaces and limits of extended attributes; capabilities
//! acl          access control lists
//! flags        attributes of single files, such as immutable and compression
//! quotas       accounting, quotas and projects
//! handles      files named by handles that outlive mounts
//! locks        locks between processes
//! watching     inotify
//! crowds       many names, changed by several threads at once
//! extremes     the longest names and paths, the largest files
//! ```

#[path = "../lab/mod.rs"]
mod lab;

mod acl;
mod attributes;
mod content;
mod crowds;
mod extremes;
mod flags;
mod handles;
mod locks;
mod names;
mod quotas;
mod watching;
mod xattrs;

use std::{fs, os::unix::fs::MetadataExt, path::Path, process::Command};

use lab::{Lab, can_mount};

/// Whether Perl is available, for scripts that play other processes or would be `unsafe` code in Rust. Required where
/// mounts are required.
fn has_perl() -> bool {
    let is_there = Command::new("perl").arg("-v").output().is_ok_and(|output| output.status.success());
    assert!(is_there || std::env::var_os("CENOTE_REQUIRE_FUSE").is_none(), "there is no Perl here");
    is_there
}

/// Runs a test in a mounted dataset of a new pool, which must pass a check afterwards.
fn on_a_mount(test: impl FnOnce(&Lab, &Path)) {
    on_a_mount_of("256M", test);
}

/// The same on a pool of another size.
fn on_a_mount_of(size: &str, test: impl FnOnce(&Lab, &Path)) {
    if !can_mount() {
        return;
    }
    let lab = Lab::new();
    lab.create("tank", size);
    test(&lab, &lab.mount("tank"));
    lab.check("tank");
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn sh(folder: &Path, script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).current_dir(folder).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn git_works_on_it() {
    on_a_mount(|lab, place| {
        let planted = place.join("origin");
        fs::create_dir(&planted).unwrap();
        lab::plant(&planted);
        let git = "export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a \
                   GIT_COMMITTER_EMAIL=a";
        sh(
            &planted,
            &format!("{git}; git init -q; git add .; git commit -qm one; git rm -qr dir-0; git commit -qm two"),
        );
        sh(place, &format!("{git}; git clone -q origin clone; cd clone; git gc -q; git fsck --strict; git status"));
        assert_eq!(sh(place, "cd clone; git log --oneline | wc -l; git status --porcelain").trim(), "2");
        lab.fs(&["snapshot", "tank@repository"]);
        sh(&place.join("clone"), &format!("{git}; git checkout -q HEAD~1; git -c gc.auto=0 repack -qad; git fsck"));
    });
}
