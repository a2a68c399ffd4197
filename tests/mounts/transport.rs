//! How the kernel's requests come: by the choice of an environment variable, or by what there is.

use std::fs;
use std::process::Output;

use crate::lab::{self, Lab};

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// A lab and what became of making and mounting a pool in it, with requests to come this way.
fn created(transport: &str) -> Option<(Lab, Output)> {
    if !lab::can_mount() {
        return None;
    }
    let lab = Lab::new();
    let (mount, image) = (lab.mount("tank"), format!("64M:{}", lab.at("tank.img")));
    let mut command = lab.command("pool", &["create", "-m", &mount.display().to_string(), "tank", &image]);
    let output = command.env("CENOTE_TRANSPORT", transport).output().unwrap();
    Some((lab, output))
}

fn check_serving(lab: &Lab, transport: &str, shown: &str) {
    fs::write(lab.mount("tank").join("file"), "content").unwrap();
    assert_eq!(fs::read(lab.mount("tank").join("file")).unwrap(), b"content");
    let listed: serde_json::Value = serde_json::from_str(&lab.fs(&["mount", "-j"])).unwrap();
    let mounted = &listed["datasets"]["tank"];
    assert_eq!(mounted["transport"], transport, "{listed}");
    assert_eq!(mounted["requests"]["create"], 1, "{listed}");
    let status = lab.pool(&["status", "-v", "tank"]);
    assert!(status.contains(&format!("mounts: 1 through {shown}\n")), "{status}");
}

#[test]
fn the_device_carries_requests_wherever_there_is_fuse() {
    let Some((lab, created)) = created("fuse") else { return };
    assert!(created.status.success(), "{created:?}");
    check_serving(&lab, "fuse", "/dev/fuse");
}

#[test]
fn io_uring_carries_requests_where_the_kernel_lets_it() {
    let Some((lab, created)) = created("uring") else { return };
    let complaint = String::from_utf8_lossy(&created.stderr).into_owned();
    if fs::read_to_string(SWITCH).is_ok_and(|switch| switch.trim() == "Y") {
        assert_eq!(complaint, "");
        check_serving(&lab, "uring", "io_uring");
    } else {
        assert!(complaint.contains("the kernel does not offer io_uring"), "{complaint}");
    }
}

#[test]
fn there_are_no_other_ways() {
    let Some((_lab, created)) = created("pigeon") else { return };
    let complaint = String::from_utf8_lossy(&created.stderr).into_owned();
    assert!(complaint.contains("CENOTE_TRANSPORT is neither 'fuse' nor 'uring'"), "{complaint}");
}
