//! Devices that die in use, and their replacement, through the programs and a mount, with `pool status` at each stage:
//! RAID-Z, spares, logs, special vdevs and cache devices; and rot beyond repair.
//!
//! A device dies like a disk that is pulled out: see `lab/disks.rs`. Common helpers are in this file; the kinds of
//! device have a file each.

mod back;
mod cache;
#[path = "../lab/mod.rs"]
mod lab;
mod logs;
mod losses;
mod raidz;
mod rot;
mod spares;
mod special;
mod status;
mod wrong;

use std::{
    collections::HashSet,
    fs::{self, File},
    os::unix::fs::FileExt,
};

use insta::Settings;
use lab::{Lab, noise, output::filters_for_devices};

/// Replaces values that change from run to run.
fn filters() -> Settings {
    let mut settings = filters_for_devices();
    // The number of requests before the failure is noticed, and the errors, depend on timing.
    settings.add_filter(r"(UNAVAIL|FAULTED)  \d+  \d+  0", "$1  [READ]  [WRITE]  0");
    settings.add_filter(r"\d+  \d+  0  \(being replaced\)", "[READ]  [WRITE]  0  (being replaced)");
    let gone = "(Transport endpoint is not connected|Software caused connection abort|Operation canceled)";
    settings.add_filter(&format!(r"cannot (write|flush|read|open): {gone}( \(os error \d+\))?"), "cannot [DO]: [GONE]");
    settings
}

fn content(seed: u64) -> Vec<u8> {
    noise(300_000, seed)
}

/// Writes and syncs a file with this content.
#[track_caller]
fn put(lab: &Lab, seed: u64) {
    let path = lab.mount("tank").join(seed.to_string());
    fs::write(&path, content(seed)).unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    lab.pool(&["sync", "tank"]);
}

/// Asserts that these files are in the pool, unchanged.
#[track_caller]
fn holds(lab: &Lab, seeds: std::ops::RangeInclusive<u64>) {
    for seed in seeds {
        assert!(fs::read(lab.mount("tank").join(seed.to_string())).unwrap() == content(seed), "file {seed}");
    }
}

fn status(lab: &Lab) -> String {
    lab.session(&["pool status tank"])
}

/// A device's line of `pool status`.
fn line(lab: &Lab, device: &str) -> String {
    let status = lab.pool(&["status", "tank"]);
    let line = status.lines().find(|line| line.contains(device)).unwrap_or_else(|| panic!("{device}: {status}"));
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A mounted pool `tank` of these vdevs.
#[track_caller]
fn create(lab: &Lab, vdevs: &[&str]) {
    lab.pool(&[&["create", "-O", "compression=off", "-m", &lab.at("mnt/tank"), "tank"], vdevs].concat());
}

/// Writes enough data for a resilver to take a moment.
fn fill(lab: &Lab) {
    fs::write(lab.mount("tank").join("large"), noise(40 << 20, 99)).unwrap();
    lab.pool(&["sync", "tank"]);
}

/// Exports and checks the pool.
#[track_caller]
fn export_and_check(lab: &Lab) {
    lab.pool(&["export", "tank"]);
    let mut places = vec!["-d".to_owned(), lab.at("")];
    for entry in fs::read_dir(lab.path("disk")).into_iter().flatten() {
        let place = entry.unwrap().path();
        // A disk that was pulled out leaves a mount without a service.
        if place.metadata().is_ok() {
            places.extend(["-d".to_owned(), place.display().to_string()]);
        }
    }
    let places: Vec<&str> = places.iter().map(String::as_str).collect();
    lab.pool(&[&["check"], &places[..], &["tank"]].concat());
}

/// Damages all places in an image with a part of this content.
fn rot(lab: &Lab, image: &str, content: &[u8]) {
    lab.damages();
    let bytes = fs::read(lab.path(image)).unwrap();
    let parts: HashSet<&[u8]> = content.chunks_exact(4096).collect();
    let places: Vec<u64> = bytes
        .chunks_exact(4096)
        .enumerate()
        .filter(|(_, sector)| parts.contains(sector))
        .map(|(at, _)| at as u64 * 4096)
        .collect();
    assert!(places.len() > 20, "{} places", places.len());
    let file = File::options().write(true).open(lab.path(image)).unwrap();
    places.iter().for_each(|at| file.write_all_at(&[0xee; 512], *at).unwrap());
}
