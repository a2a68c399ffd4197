//! Dry runs of changes of properties, names and trees: they change nothing, say what the real run then does, and are
//! refused as the real run is.

use std::{collections::BTreeMap, fs, process::Command};

use crate::{
    lab::{Lab, noise, stranger::Stranger},
    mounted,
};

/// The settable values of all datasets and snapshots, as `value (source)`, by dataset and property.
fn values(lab: &Lab) -> BTreeMap<(String, String), String> {
    let mut found = BTreeMap::new();
    for line in lab.fs(&["get", "-r", "-H", "-o", "name,property,value,source", "all", "tank"]).lines() {
        let [name, property, value, source] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        // Computed values have no source.
        if source != "-" {
            found.insert((name.to_owned(), property.to_owned()), format!("{value} ({source})"));
        }
    }
    found
}

/// The present mounts: datasets and places.
fn mounts(lab: &Lab) -> String {
    lab.fs(&["list", "-r", "-H", "-o", "name,mounted,mountpoint", "-t", "filesystem", "tank"])
}

/// Everything that a dry run leaves as before.
fn state(lab: &Lab) -> (BTreeMap<(String, String), String>, String, String, String) {
    let history = lab.pool(&["history", "tank"]);
    (values(lab), mounts(lab), lab.fs(&["list", "-H", "-o", "name", "-t", "all", "-r", "tank"]), history)
}

/// The command with `-n` and `-v`, whose output is returned; the state stays as before.
fn dry(lab: &Lab, words: &[&str]) -> String {
    let before = state(lab);
    let dry: Vec<&str> = [&words[..1], &["-n", "-v"], &words[1..]].concat();
    let said = lab.fs(&dry);
    assert_eq!(state(lab), before, "{words:?}");
    said
}

/// Runs a change of properties, and compares the difference with the dry run.
fn agrees(lab: &Lab, words: &[&str]) {
    let said = dry(lab, words);
    let (before, placed) = (values(lab), mounts(lab));
    lab.fs(words);
    let after = values(lab);
    let keys: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let shown =
        |all: &BTreeMap<_, String>, key: &(String, String)| all.get(key).cloned().unwrap_or_else(|| "-".to_owned());
    // A snapshot follows its dataset, and is not listed apart.
    let follows = |key: &(String, String)| key.0.contains('@') && !shown(&after, key).ends_with("(local)");
    let differ = keys.into_iter().filter(|key| before.get(key) != after.get(key) && !follows(key));
    let mut happened: Vec<String> = differ
        .map(|key| format!("would change {} of {}: {} -> {}", key.1, key.0, shown(&before, key), shown(&after, key)))
        .collect();
    let mut foreseen: Vec<String> = said.lines().filter(|l| l.contains("change")).map(str::to_owned).collect();
    happened.sort();
    foreseen.sort();
    assert_eq!(foreseen, happened, "{words:?}");
    let moved: Vec<&str> = said.lines().filter(|line| line.contains("mount") && !line.contains("change")).collect();
    assert!(moved.is_empty() || mounts(lab) != placed || said.contains("remount"), "{words:?}: {moved:?}");
    for line in moved.iter().filter_map(|line| line.strip_prefix("would move the mount of ")) {
        let (name, places) = line.split_once(": ").unwrap();
        let place = places.split(" -> ").nth(1).unwrap();
        assert!(mounts(lab).contains(&format!("{name}\tyes\t{place}\n")), "{line}");
    }
}

#[test]
fn a_dry_run_of_properties_says_what_then_changes() {
    let Some(lab) = mounted(&["tank"]) else { return };
    for name in ["tank/a", "tank/a/b", "tank/a/b/c", "tank/d"] {
        lab.fs(&["create", name]);
    }
    lab.fs(&["snapshot", "-r", "tank@x"]);
    lab.fs(&["set", "compression=lz4", "tank/a/b"]);
    let place = format!("mountpoint={}", lab.at("elsewhere"));
    for words in [
        &["set", "compression=zstd", "tank"][..],
        &["set", "compression=zstd", "atime=off", "tank/a"],
        &["set", "quota=40M", "tank/a"],
        &["set", "me:note=read this", "tank/a"],
        &["set", "me:note=of a snapshot", "tank/a@x"],
        &["set", &place, "tank/a"],
        &["set", "canmount=off", "tank/a/b"],
        &["set", "canmount=on", "tank/a/b"],
        &["set", "xattr=off", "tank/a"],
        &["inherit", "compression", "tank/a"],
        &["inherit", "-r", "compression", "tank"],
        &["inherit", "mountpoint", "tank/a"],
        &["inherit", "me:note", "tank/a"],
    ] {
        agrees(&lab, words);
    }
    assert_eq!(dry(&lab, &["inherit", "compression", "tank/d"]), "nothing would change\n");
    // Quotas of users are no part of `all`.
    let said = dry(&lab, &["set", "userquota@0=30M", "tank/d"]);
    assert_eq!(said, "would change userquota@0 of tank/d: none -> 30M (local)\n");
    // Without -v, effects on many datasets are counted.
    let said = lab.fs(&["set", "-n", "compression=gzip", "tank"]);
    assert_eq!(said.lines().count(), 2, "{said}");
    assert!(said.ends_with("would change compression of 4 more (-v lists all)\n"), "{said}");
}

#[test]
fn a_dry_run_of_a_rename_says_what_then_moves() {
    let Some(lab) = mounted(&["tank"]) else { return };
    for name in ["tank/a", "tank/a/b", "tank/other"] {
        lab.fs(&["create", name]);
    }
    lab.fs(&["set", "compression=zstd", "tank/other"]);
    let said = dry(&lab, &["rename", "-p", "tank/a", "tank/other/deep/a"]);
    let (from, to) = (lab.mount("tank/a/b"), lab.mount("tank/other/deep/a/b"));
    for line in [
        "would create tank/other/deep",
        "would rename tank/a to tank/other/deep/a",
        "would rename tank/a/b to tank/other/deep/a/b",
        "would change compression of tank/other/deep/a/b: on (default) -> zstd (inherited from tank/other)",
        &format!("would move the mount of tank/a/b: {} -> {}", from.display(), to.display()),
    ] {
        assert!(said.lines().any(|said| said == line), "'{line}' is not in:\n{said}");
    }
    lab.fs(&["rename", "-p", "tank/a", "tank/other/deep/a"]);
    assert!(mounts(&lab).contains(&format!("tank/other/deep/a/b\tyes\t{}\n", to.display())));
    assert_eq!(lab.fs(&["get", "-Ho", "value", "compression", "tank/other/deep/a/b"]).trim(), "zstd");
    lab.fs(&["snapshot", "-r", "tank@x"]);
    let said = dry(&lab, &["rename", "-r", "tank@x", "@y"]);
    lab.fs(&["rename", "-r", "tank@x", "@y"]);
    let renamed: Vec<String> =
        lab.fs(&["list", "-H", "-o", "name", "-t", "snapshot", "-r", "tank"]).lines().map(str::to_owned).collect();
    assert_eq!(said.lines().count(), renamed.len());
    assert!(renamed.iter().all(|name| said.contains(&format!(" to {name}\n"))), "{said}");
}

#[test]
fn a_dry_run_of_a_rollback_says_what_is_lost() {
    let Some(lab) = mounted(&["tank"]) else { return };
    lab.fs(&["create", "tank/a"]);
    lab.fs(&["snapshot", "tank/a@one"]);
    fs::write(lab.mount("tank/a").join("file"), noise(2 << 20, 1)).unwrap();
    lab.fs(&["snapshot", "tank/a@two"]);
    lab.fs(&["bookmark", "tank/a@two", "tank/a#two"]);
    lab.fs(&["clone", "tank/a@two", "tank/clone"]);
    let said = dry(&lab, &["rollback", "-R", "tank/a@one"]);
    for line in ["would destroy tank/clone", "would destroy tank/a@two", "would destroy tank/a#two"] {
        assert!(said.lines().any(|said| said == line), "{said}");
    }
    assert!(said.contains("would unmount tank/clone from "), "{said}");
    assert!(said.contains("would free 2."), "{said}");
    lab.fs(&["rollback", "-R", "tank/a@one"]);
    assert_eq!(lab.fs(&["list", "-H", "-o", "name", "-t", "all", "-r", "tank"]), "tank\ntank/a\ntank/a@one\n");
    assert!(dry(&lab, &["rollback", "tank/a@one"]).starts_with("would free "));
}

/// The command with `-n` fails as the command itself, and the command changes nothing.
fn refused_alike(lab: &Lab, program: &str, words: &[&str], code: i32) -> String {
    let dry: Vec<&str> = [&words[..1], &["-n"], &words[1..]].concat();
    let foreseen = lab.run(program, &dry).fails(code);
    let real = lab.run(program, words).fails(code);
    assert_eq!(foreseen, real, "{words:?}");
    real
}

#[test]
fn a_dry_run_is_refused_as_the_real_run() {
    let Some(lab) = mounted(&["tank"]) else { return };
    for name in ["tank/a", "tank/a/b", "tank/full"] {
        lab.fs(&["create", name]);
    }
    fs::write(lab.mount("tank/full").join("file"), noise(4 << 20, 1)).unwrap();
    lab.fs(&["snapshot", "tank/a@one"]);
    lab.fs(&["snapshot", "tank/a@two"]);
    lab.fs(&["snapshot", "tank/a@three"]);
    lab.fs(&["hold", "keep", "tank/a@three"]);
    lab.pool(&["sync"]);
    for words in [
        &["set", "quota=1M", "tank/full"][..],
        &["set", "reservation=10G", "tank/a"],
        &["set", "compression=lz4", "tank/nothing"],
        &["set", "compression=lz4", "tank/a@one"],
        &["set", "userquota@0=1M", "tank/a@one"],
        &["set", "vdevs=mirror-7", "tank/a"],
        &["inherit", "compression", "tank/nothing"],
        &["rename", "tank/a", "tank/full"],
        &["rename", "tank/a", "tank/no/parent"],
        &["rename", "tank/a@one", "tank/a@two"],
        &["rollback", "tank/a@one"],
        &["rollback", "-r", "tank/a@one"],
        &["rollback", "tank/a@nothing"],
    ] {
        refused_alike(&lab, "fs", words, 1);
    }
    refused_alike(&lab, "fs", &["set", "compression=never", "tank/a"], 1);
    refused_alike(&lab, "pool", &["set", "altroot=/x", "tank"], 1);
    // A program in a mount prevents its move.
    let mut user = Command::new("sleep").arg("60").current_dir(lab.mount("tank/a/b")).spawn().unwrap();
    let place = format!("mountpoint={}", lab.at("elsewhere"));
    let said = refused_alike(&lab, "fs", &["set", &place, "tank/a"], 1);
    assert!(said.contains("it is in use"), "{said}");
    refused_alike(&lab, "fs", &["rename", "tank/a", "tank/c"], 1);
    user.kill().unwrap();
    user.wait().unwrap();
    lab.fs(&["set", "-n", &place, "tank/a"]);
}

#[test]
fn a_dry_run_of_a_pool_property_shows_both_values() {
    let Some(lab) = mounted(&["tank"]) else { return };
    let before = lab.pool(&["history", "tank"]);
    let said = lab.pool(&["set", "-n", "comment=the first", "tank"]);
    assert_eq!(said, "would change comment of tank: - (default) -> the first (local)\n");
    assert_eq!(lab.pool(&["get", "-Ho", "value", "comment", "tank"]).trim(), "-");
    assert_eq!(lab.pool(&["history", "tank"]), before);
    lab.pool(&["set", "comment=the first", "tank"]);
    assert_eq!(lab.pool(&["set", "-n", "comment=the first", "tank"]), "nothing would change\n");
}

#[test]
fn a_dry_run_needs_the_permission_of_the_real_run() {
    let Some(lab) = mounted(&["tank"]) else { return };
    let Some(other) = Stranger::of(&lab) else { return };
    lab.fs(&["create", "tank/a"]);
    lab.fs(&["snapshot", "tank/a@x"]);
    for words in [
        "set -n compression=zstd tank/a",
        "rename -n tank/a tank/b",
        "rollback -n tank/a@x",
        "inherit -n compression tank/a",
    ] {
        let said = other.sh(&format!("fs {words}")).fails(1);
        assert!(said.contains("permission denied"), "{said}");
    }
    assert!(other.sh("pool set -n comment=x tank").fails(1).contains("permission denied"));
    lab.fs(&["allow", "-e", "compression", "tank"]);
    assert!(other.sh("fs set -n compression=zstd tank/a").ok().contains("-> zstd (local)"));
    assert_eq!(lab.fs(&["get", "-Ho", "source", "compression", "tank/a"]).trim(), "default");
}
