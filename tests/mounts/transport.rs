//! The transport of the kernel's requests: chosen by an environment variable, or by availability.

use std::fs;
use std::process::{Child, Command, Output, Stdio};

use crate::lab::{self, Lab, Stopped, wait_until};

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// A lab, and the result of making and mounting a pool there with this transport.
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

/// Whether the kernel offers io_uring. If not, and `CENOTE_TRANSPORT` demands it, the test fails.
fn has_ring() -> bool {
    let has = fs::read_to_string(SWITCH).is_ok_and(|switch| switch.trim() == "Y");
    assert!(has || std::env::var_os("CENOTE_TRANSPORT").is_none_or(|name| name != "uring"), "no FUSE over io_uring");
    has
}

fn check_serving(lab: &Lab, transport: &str, shown: &str) {
    fs::write(lab.mount("tank").join("file"), "content").unwrap();
    assert_eq!(fs::read(lab.mount("tank").join("file")).unwrap(), b"content");
    let listed: serde_json::Value = serde_json::from_str(&lab.fs(&["mount", "-j"])).unwrap();
    let mounted = &listed["datasets"]["tank"];
    assert_eq!(mounted["transport"], transport, "{listed}");
    assert_eq!(mounted["requests"]["create"], 1, "{listed}");
    let status = lab.pool(&["status", "tank"]);
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
    // A container may have fewer CPUs than its machine, which is a reason to refuse.
    if complaint.contains("may not use all CPUs") {
        return;
    }
    if has_ring() {
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

/// Programs that wait for a service when it is killed get an error with each transport.
#[test]
fn no_program_waits_for_a_killed_service() {
    for transport in ["fuse", "uring"] {
        let Some((lab, created)) = created(transport) else { return };
        if created.status.success() {
            check_killing(&lab);
        } else {
            assert!(transport == "uring" && !has_ring(), "{created:?}");
        }
    }
}

fn check_killing(lab: &Lab) {
    let mount = lab.mount("tank");
    let _stopped = Stopped::new(lab.service("tank").unwrap());
    let ask = |number| {
        let mut command = Command::new("stat");
        command.arg(mount.join(format!("absent{number}"))).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    let asking: Vec<Child> = (0..8).map(ask).collect();
    // The programs wait for nothing else.
    wait_until("all of them wait", || asking.iter().all(sleeps));
    lab.kill("tank");
    for mut child in asking {
        assert!(!child.wait().unwrap().success());
    }
    lab.pool(&["import", "tank"]);
    fs::write(mount.join("file"), "content").unwrap();
}

fn sleeps(child: &Child) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['S', 'D']))
}
