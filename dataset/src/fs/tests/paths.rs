//! Paths of many files, found one after the other.

use super::world::World;
use crate::fs::{Caller, Ino, Paths, ROOT, RenameFlags};

const CALLER: Caller = Caller { uid: 0, gid: 0, umask: 0 };

#[test]
fn the_paths_of_a_deep_tree_cost_what_its_names_do() {
    let world = World::new(41);
    let fs = &world.fs;
    let (mut at, mut wanted, mut made) = (ROOT, Vec::new(), Vec::new());
    for level in 0..1000 {
        at = fs.mkdir(&CALLER, at, b"d", 0o700).unwrap().ino;
        wanted.extend_from_slice(b"/d");
        made.push((at, wanted.clone()));
        if level % 100 == 0 {
            let file = fs.create(&CALLER, at, b"file", 0o600, true).unwrap().ino;
            made.push((file, [&wanted[..], b"/file"].concat()));
        }
    }
    let mut paths = Paths::default();
    for (ino, path) in &made {
        assert_eq!(paths.of(fs, *ino).unwrap(), *path);
    }
    assert!(paths.looked_up < 3 * made.len(), "{} names were looked up for {} paths", paths.looked_up, made.len());
    // In reverse order the directories are on the path already.
    let before = paths.looked_up;
    for (ino, path) in made.iter().rev() {
        assert_eq!(paths.of(fs, *ino).unwrap(), *path);
    }
    assert!(paths.looked_up - before < 3 * made.len());
}

#[test]
fn paths_do_not_depend_on_those_before() {
    let world = World::new(42);
    let fs = &world.fs;
    let mut directories: Vec<Ino> = vec![ROOT];
    let mut all: Vec<Ino> = Vec::new();
    let mut state = 7_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % below
    };
    for number in 0..400 {
        let dir = directories[random(directories.len())];
        let name = format!("{number}");
        let made = match random(2) {
            0 => fs.mkdir(&CALLER, dir, name.as_bytes(), 0o700).unwrap().ino,
            _ => fs.create(&CALLER, dir, name.as_bytes(), 0o600, true).unwrap().ino,
        };
        if fs.getattr(made).unwrap().file_type == crate::fs::FileType::Directory {
            directories.push(made);
        }
        all.push(made);
    }
    fs.rename(ROOT, b"0", ROOT, b"renamed", RenameFlags::default()).unwrap();
    all.push(ROOT);
    let mut paths = Paths::default();
    for _ in 0..2000 {
        let ino = all[random(all.len())];
        assert_eq!(paths.of(fs, ino), fs.path_of(ino));
    }
    assert_eq!(paths.of(fs, ROOT).unwrap(), b"/");
    assert!(paths.of(fs, 1 << 40).is_err());
}
