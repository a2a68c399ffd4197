//! Pools without a service, or with a stopped service.

use crate::{
    lab::{self, Lab, Stopped, wait_until},
    mounted, mounts_on,
};

const GONE: &str = "the service of 'tank' is not running";
const BACK: &str = "to start it: pool import tank";

#[track_caller]
fn says(said: &str, parts: &[&str]) {
    assert!(parts.iter().all(|part| said.contains(part)), "{said}");
}

#[test]
fn a_service_that_died_is_missed_by_name() {
    let Some(lab) = mounted(&["tank", "pond"]) else { return };
    std::fs::write(lab.mount("tank").join("file"), "text").unwrap();
    let whole = lab.pool(&["status", "-x"]);
    says(&whole, &["all pools are healthy"]);
    lab.fs(&["create", "tank/a"]);
    lab.kill("tank");
    // The kernel may take a moment longer; answers until then vary.
    wait_until("the mount is dead", || rustix::fs::statvfs(lab.mount("tank")).is_err());
    for words in [&["status"][..], &["status", "-x"], &["status", "tank"]] {
        says(&lab.pool(words), &["status: The service of the pool is not running", "'pool import tank'"]);
    }
    let listed = lab.run("pool", &["list", "-H", "-o", "name,health,size"]);
    assert!(listed.text().starts_with("pond\tONLINE\t") && listed.text().ends_with("\ntank\tUNAVAIL\t-\n"));
    assert_eq!((listed.stderr.as_str(), listed.code), ("", Some(0)));
    let shown: serde_json::Value = serde_json::from_str(&lab.pool(&["status", "-j"])).unwrap();
    let states = ["pond", "tank"].map(|name| shown["pools"][name]["state"].clone());
    assert_eq!(states, ["ONLINE", "UNAVAIL"]);
    says(&lab.run("fs", &["mount"]).stderr, &[GONE, BACK]);
    says(&lab.run("fs", &["unmount", "tank"]).fails(1), &[GONE, BACK]);
    let source = lab.mount("tank").join("file").display().to_string();
    says(&lab.run("fs", &["cp", &source, "pond:/"]).fails(1), &[GONE, BACK]);
    let below = format!("mountpoint={}", lab.mount("tank").join("pond").display());
    says(&lab.run("fs", &["create", "-o", &below, "pond/a"]).fails(1), &[GONE, BACK]);
    lab.pool(&["import", "tank"]);
    assert_eq!(mounts_on(&lab.mount("tank")).len(), 1);
    assert_eq!(mounts_on(&lab.mount("tank/a")).len(), 1);
    says(&lab.pool(&["status", "-x"]), &["all pools are healthy"]);
    assert_eq!(lab.run("pool", &["list"]).stderr, "");
}

#[test]
fn a_dead_mount_is_detached_by_its_owner_alone() {
    let Some(lab) = mounted(&["tank"]) else { return };
    let Some(other) = mounted(&["tank"]) else { return };
    for lab in [&lab, &other] {
        lab.kill("tank");
        wait_until("the mount is dead", || rustix::fs::statvfs(lab.mount("tank")).is_err());
    }
    other.pool(&["import", "tank"]);
    assert_eq!(mounts_on(&other.mount("tank")).len(), 1);
    assert_eq!(mounts_on(&lab.mount("tank")).len(), 1, "the pool of the same name of another owner was detached");
    assert!(rustix::fs::statvfs(lab.mount("tank")).is_err());
    lab.pool(&["import", "tank"]);
    assert_eq!(mounts_on(&lab.mount("tank")).len(), 1);
    assert!(rustix::fs::statvfs(lab.mount("tank")).is_ok());
}

#[test]
fn a_stopped_service_does_not_block_listing_other_mounts() {
    let Some(lab) = mounted(&["tank", "pond"]) else { return };
    let stopped = Stopped::new(lab.service("tank").unwrap());
    let silent = format!("its service (process {}) does not answer", stopped.0);
    assert_eq!(lab.pool(&["list", "-H", "-o", "name,health"]), "pond\tONLINE\ntank\tUNKNOWN\n");
    says(&lab.pool(&["status", "-x"]), &["pool: tank", "UNKNOWN", &silent, &format!("kill -CONT {}", stopped.0)]);
    says(&lab.fs(&["mount"]), &["pond"]);
    says(&lab.run("fs", &["list", "tank"]).fails(1), &[&format!("cannot open 'tank': {silent}")]);
    // A pool of the same name of another user is not blocked either.
    let other = Lab::mountless();
    other.pool(&["create", "-m", "none", "tank", "64M:tank.img"]);
    other.pool(&["export", "tank"]);
    drop(stopped);
    wait_until("it answers", || lab.run("pool", &["list"]).code == Some(0));
}

#[test]
fn a_pool_imported_to_be_read_only_is_destroyed_by_force() {
    let lab = Lab::mountless();
    lab.pool(&["create", "-m", "none", "tank", "64M:tank.img"]);
    lab.pool(&["export", "tank"]);
    lab.pool(&["import", "-d", ".", "-o", "readonly=on", "tank"]);
    let said = lab.run("pool", &["destroy", "tank"]).fails(1);
    says(&said, &["cannot destroy 'tank': it is imported read-only", "use -f to reopen the pool for writing"]);
    lab.pool(&["destroy", "-f", "tank"]);
    assert_eq!(lab.pool(&["list", "-H", "-o", "name"]), "");
    says(&lab.pool(&["import", "-D", "-d", "."]), &["pool: tank", "DESTROYED"]);
}

#[test]
fn without_mounts_no_service_is_missed() {
    let lab = lab::Lab::mountless();
    lab.pool(&["create", "-m", "none", "tank", "64M:tank.img"]);
    says(&lab.pool(&["status", "-x"]), &["all pools are healthy"]);
    assert_eq!(lab.run("pool", &["list"]).stderr, "");
}

/// Threads that answer a program stay on its CPU and give way to the program, so each request is several times as fast.
/// Closing a file, for which no program waits, must not end the courtesy.
#[test]
fn a_program_that_opens_file_after_file_keeps_its_threads() {
    const SCHED_IDLE: &str = "5";
    let Some(lab) = mounted(&["tank"]) else { return };
    if !rustix::process::getuid().is_root() {
        return;
    }
    let file = lab.mount("tank").join("file");
    std::fs::write(&file, "text").unwrap();
    let tasks = format!("/proc/{}/task", lab.service("tank").unwrap());
    let gives_way = || {
        std::fs::read_dir(&tasks).unwrap().flatten().any(|task| {
            // The policy is the thirty-ninth field after the name, counted from the state.
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit(") ").next().and_then(|fields| fields.split(' ').nth(38)) == Some(SCHED_IDLE)
        })
    };
    wait_until("a thread of the service gives way", || {
        (0..400).for_each(|_| drop(std::fs::File::open(&file).unwrap()));
        gives_way()
    });
}
