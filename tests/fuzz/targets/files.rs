//! A file system with hostile items. The input edits items of a real dataset, behind all checksums; then every possible
//! request of a mount is made. Any answer is right, as long as there is one, and no sector is lost or freed twice.

use std::collections::BTreeSet;

use dataset::fs::{
    self, Caller, Errno, FallocateFlags, FileSystem, Ino, ROOT, RenameFlags, SetAttr, SetQuota, SetXattr, Whence,
};
use dataset::property::OwnerKind;
use pool::txg::{Head, Plain};

use super::{
    edit,
    world::{HOME, World},
};

/// Numbers below this, counted from the root's, have been files.
const KNOWN: Ino = 16;
/// The most files to visit: a hostile tree may have cycles.
const VISITS: usize = 64;
/// More steps than freeing everything can take.
const STEPS: usize = 10_000;

pub(super) fn run(input: &[u8]) -> bool {
    let world = World::new();
    let fs = world.fs(HOME);
    let edits = apply(fs.head(), input);
    // As at a later open, if the tree can be opened at all.
    let _ = fs.tree_replaced();
    visit_all(&fs);
    change_all(&fs);
    world.check_space();
    edits > 0
}

/// Writes the bodies of the input into the tree; an item with a block keeps the block. Returns the number of edits.
fn apply(head: &Head, mut input: &[u8]) -> usize {
    let known = edit::keys(head);
    let mut edits = 0;
    while let Some((key, body)) = edit::take(&mut input, &known) {
        head.admit(1 << 16).expect("there is room");
        let put = head.update(|view, batch| -> Result<(), Plain> {
            let block = view.get(key)?.and_then(|entry| entry.block());
            batch.put(key, body, block.as_ref());
            Ok(())
        });
        put.expect("memory does not fail");
        edits += 1;
    }
    edits
}

/// Reads every reachable file, and the numbers that the dataset began with.
pub(super) fn visit_all(fs: &FileSystem) {
    let _ = (fs.statfs(), fs::check::check(fs.head()), OwnerKind::ALL.map(|kind| fs.accounts(kind)));
    for ino in reachable(fs) {
        let attr = fs.getattr(ino);
        let size = attr.as_ref().map_or(0, |attr| attr.size);
        let _ = (fs.path_of(ino), fs.readlink(ino));
        for attribute in fs.listxattr(ino).into_iter().flatten() {
            let _ = fs.getxattr(ino, &attribute);
        }
        for offset in [0, 4096, size.saturating_sub(100), size] {
            let mut out = Vec::new();
            let _ = fs.read(ino, offset, 5000, &mut out);
            assert!(out.len() <= 5000);
            let _ = (fs.seek(ino, offset, Whence::Data), fs.seek(ino, offset, Whence::Hole));
        }
    }
}

fn reachable(fs: &FileSystem) -> BTreeSet<Ino> {
    let mut seen: BTreeSet<Ino> = (ROOT..ROOT + KNOWN).collect();
    let mut to_list: Vec<Ino> = seen.iter().copied().collect();
    while let Some(dir) = to_list.pop() {
        let mut names = 0;
        let _ = fs.readdir_plus(dir, 0, &mut |entry, _| {
            if seen.len() < VISITS && seen.insert(entry.ino) {
                to_list.push(entry.ino);
            }
            names += 1;
            assert!(names < 10 * VISITS, "a directory never ends");
            true
        });
    }
    seen
}

/// Changes every reachable file, and removes all that can be removed.
pub(super) fn change_all(fs: &FileSystem) {
    let caller = Caller::default();
    let punch = FallocateFlags { punch_hole: true, keep_size: true, zero_range: false };
    for ino in reachable(fs) {
        let _ = fs.write(ino, 10_000, &[1; 20_000], true);
        let _ = fs.fallocate(ino, punch, 0, 12_345);
        let _ = fs.fallocate(ino, FallocateFlags { punch_hole: false, ..punch }, 200_000, 200_000);
        let _ = fs.setxattr(ino, b"user.long", b"short", SetXattr::Any);
        let _ = fs.removexattr(ino, b"user.short");
        let _ = fs.copy_range(ino, 0, ROOT + 2, 5000, 100_000);
        let _ = fs.setattr(&caller, ino, &SetAttr { size: Some(9_000), mode: Some(0o700), ..SetAttr::default() });
        let _ = fs.create(&caller, ino, b"new", 0o644, false);
        let _ = fs.link(ino, ROOT, b"linked");
        let _ = fs.rename(ROOT, b"linked", ino, b"moved", RenameFlags::default());
        let _ = fs.fsync(ino);
    }
    let _ = fs.set_quota(OwnerKind::User, 0, SetQuota { bytes: Some(1 << 20), objects: None });
    for dir in reachable(fs) {
        remove_all(fs, dir);
    }
    finish(fs);
}

fn remove_all(fs: &FileSystem, dir: Ino) {
    let mut names = Vec::new();
    let _ = fs.readdir(dir, 0, &mut |entry| {
        names.push(entry.name.to_vec());
        names.len() < VISITS
    });
    for name in names {
        let removed = fs.unlink(dir, &name);
        if matches!(removed, Err(Errno::ISDIR | Errno::PERM)) {
            let _ = fs.rmdir(dir, &name);
        }
    }
}

/// Frees the rest of removed files, as the background does.
fn finish(fs: &FileSystem) {
    assert!(!fs.reap_orphans(STEPS), "freeing never ends");
}
