//! The death and replacement of a mirror's device, and all further operations on mirrors, through the programs, with
//! `pool status` at each stage.
//!
//! The pools have services and are not mounted, so that reads go to the devices. This file has the common helpers.

mod away;
mod copies;
#[path = "../lab/mod.rs"]
mod lab;
mod refused;
mod replacing;
mod spares;

use std::fs;

use insta::Settings;
use lab::{Lab, noise, wait_until};

/// Replaces values that change from run to run.
fn filters() -> Settings {
    let mut settings = lab::output::filters_for_devices();
    settings.add_filter(r"/[ab]/[ab]\.img(\s+)and the other", "/[SIDE]${1}and the other");
    settings
}

fn content(seed: u64) -> Vec<u8> {
    noise(300_000, seed)
}

/// A pool `tank` that is a mirror of two images, with a file.
fn furnished() -> Lab {
    let lab = Lab::new();
    lab.pool(&["create", "-m", "none", "tank", "mirror", "80M:a.img", "80M:b.img"]);
    lab.fs(&["create", "-o", "compression=off", "tank/home"]);
    put(&lab, 1);
    lab
}

/// Puts a file with this content into the pool.
fn put(lab: &Lab, seed: u64) {
    fs::write(lab.path("file"), content(seed)).unwrap();
    lab.fs(&["cp", "file", &format!("tank/home:/{seed}")]);
    lab.pool(&["sync", "tank"]);
}

/// Asserts that these files are in the pool, unchanged.
fn holds(lab: &Lab, seeds: &[u64]) {
    for seed in seeds {
        assert!(lab.fs_bytes(&["cat", &format!("tank/home:/{seed}")]) == content(*seed), "file {seed}");
    }
}

fn wait_for_resilver(lab: &Lab) {
    wait_until("the resilver is done", || {
        let status = lab.pool(&["status", "tank"]);
        status.contains("scan: resilvered") && !status.contains("(resilvering")
    });
}

fn status(lab: &Lab) -> String {
    lab.session(&["pool status tank"])
}
