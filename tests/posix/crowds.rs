//! Directories with many names, changed by several programs at once.
//!
//! `CENOTE_NAMES` sets the number of names in a large directory; the default is some ten thousand.

use std::{
    collections::HashMap,
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::Path,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use rand::{Rng, SeedableRng, rngs::SmallRng};
use rustix::{
    fs::{CWD, RenameFlags, renameat_with},
    io::Errno,
};

use crate::{names, on_a_mount_of, sh};

/// The number of renaming threads, and of each thread's renames.
const RENAMERS: u64 = 4;
const RENAMES: usize = 1500;
/// The number of renamed files and directories, and of the places over which they are spread.
const TOKENS: usize = 24;
const PLACES: usize = 4;

/// Whether another thread's rename may have caused this error.
fn in_the_game(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::EXIST | Errno::INVAL | Errno::NOTEMPTY | Errno::NOTDIR | Errno::ISDIR)
}

/// Renames at random without ever replacing a name: everything stays, somewhere.
fn rename_about(root: &Path, seed: u64) {
    let mut dice = SmallRng::seed_from_u64(seed);
    for _ in 0..RENAMES {
        let mut any = || {
            let (place, token) = (dice.random_range(0..PLACES), dice.random_range(0..TOKENS));
            // Every other token is a directory, into which tokens may move.
            let below = if dice.random_ratio(1, 4) {
                format!("token-{}/", dice.random_range(0..TOKENS))
            } else {
                String::new()
            };
            root.join(format!("place-{place}/{below}token-{token}"))
        };
        let (from, to) = (any(), any());
        let how = if dice.random_ratio(1, 3) { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE };
        if let Err(error) = renameat_with(CWD, &from, CWD, &to, how) {
            assert!(in_the_game(error), "{} to {}: {error}", from.display(), to.display());
        }
    }
}

#[test]
fn nothing_is_lost_or_doubled_in_a_storm_of_renames() {
    on_a_mount_of("256M", |lab, root| {
        (0..PLACES).for_each(|place| fs::create_dir(root.join(format!("place-{place}"))).unwrap());
        for token in 0..TOKENS {
            let path = root.join(format!("place-{}/token-{token}", token % PLACES));
            if token % 2 == 0 { fs::create_dir(path).unwrap() } else { fs::write(path, token.to_string()).unwrap() }
        }
        // By inode number: an exchange gives a token another token's name.
        let all = || {
            let listed = sh(root, "find . -mindepth 2 -printf '%i %y\\n'");
            let mut all: Vec<String> = listed.lines().map(str::to_owned).collect();
            all.sort();
            all
        };
        let before = all();
        assert_eq!(before.len(), TOKENS);
        thread::scope(|scope| (0..RENAMERS).for_each(|seed| drop(scope.spawn(move || rename_about(root, seed)))));
        assert_eq!(all(), before);
        let contents = || sh(root, "find . -type f -exec cat {} + | fold -w1 | sort | tr -d '\\n'");
        let links = || sh(root, "find . -type d -printf '%p %n\\n' | sort");
        let (content, count) = (contents(), links());
        lab.check("tank");
        assert_eq!((all(), contents(), links()), (before, content, count));
    });
}

fn count() -> usize {
    std::env::var("CENOTE_NAMES").map_or(20_000, |count| count.parse().unwrap())
}

/// How often a listing shows each permanent name.
fn listed(folder: &Path) -> HashMap<String, usize> {
    let mut seen = HashMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        *seen.entry(name).or_insert(0) += 1;
    }
    seen
}

/// Makes and removes other names until `done`, so that the directory keeps about the same size.
fn come_and_go(folder: &Path, seed: u64, done: &AtomicBool) {
    for number in 0u64.. {
        if done.load(Relaxed) {
            return;
        }
        drop(File::create(folder.join(format!("passing-{seed}-{number}"))).unwrap());
        if let Some(old) = number.checked_sub(100) {
            fs::remove_file(folder.join(format!("passing-{seed}-{old}"))).unwrap();
        }
    }
}

#[test]
fn a_large_directory_is_read_while_names_come_and_go() {
    on_a_mount_of("4G", |lab, place| {
        let (folder, count) = (place.join("many"), count());
        fs::create_dir(&folder).unwrap();
        (0..count).for_each(|number| drop(File::create(folder.join(format!("stays-{number}"))).unwrap()));
        let stays = |seen: &HashMap<String, usize>| {
            (0..count).for_each(|number| assert_eq!(seen.get(&format!("stays-{number}")), Some(&1), "{number}"));
            assert!(seen.values().all(|times| *times == 1), "a name is seen twice");
        };
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for seed in 0..2 {
                let (folder, done) = (&folder, &done);
                scope.spawn(move || come_and_go(folder, seed, done));
            }
            let readers: Vec<_> =
                (0..2).map(|_| scope.spawn(|| (0..3).map(|_| listed(&folder)).collect::<Vec<_>>())).collect();
            let seen: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
            done.store(true, Relaxed);
            seen.into_iter().for_each(|seen| seen.unwrap().iter().for_each(stays));
        });
        lab.check("tank");
        stays(&listed(&folder));
        // Names are found by lookup as well as by listing.
        for number in (0..count).step_by(count / 1000) {
            assert_eq!(fs::metadata(folder.join(format!("stays-{number}"))).unwrap().len(), 0);
        }
        fs::remove_dir_all(&folder).unwrap();
        assert!(names(place).is_empty());
        assert_eq!(fs::metadata(place).unwrap().nlink(), 2);
    });
}
