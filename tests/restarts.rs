//! A service crashes while commands export, destroy, import and mount its pool, and its supervisor restarts it.
//!
//! In every order of events, a pool is exported exactly if the command reports success, and no command fails because of
//! the restart.

mod lab;

use std::{
    fs::{self, File},
    io::ErrorKind,
    path::PathBuf,
    process::{Child, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use lab::{Lab, Run, Stopped, can_mount, wait_until};

/// Longer than a supervisor's first pause.
const PAUSE: Duration = Duration::from_millis(1300);

/// A pool with two file systems and a file in one of them, whose service is restarted after crashes.
fn supervised() -> Option<Lab> {
    if !can_mount() {
        return None;
    }
    let mut lab = Lab::new();
    lab.restart_services();
    lab.create("tank", "128M");
    lab.fs(&["create", "tank/a"]);
    lab.fs(&["create", "tank/b"]);
    fs::write(file(&lab), "kept").unwrap();
    lab.pool(&["sync", "tank"]);
    Some(lab)
}

fn file(lab: &Lab) -> PathBuf {
    lab.mount("tank/a").join("file")
}

fn is_mounted(lab: &Lab, dataset: &str) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.matches(&format!(" {} ", lab.mount(dataset).display())).count() == 1
}

/// Whether the service is back, with everything mounted.
fn is_back(lab: &Lab) -> bool {
    fs::read_to_string(file(lab)).is_ok_and(|text| text == "kept") && is_mounted(lab, "tank/b")
}

fn start(lab: &Lab, words: &[&str]) -> Child {
    lab.command("pool", words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn end(words: &[&str], child: Child) -> Run {
    Run::of("pool", words, child.wait_with_output().unwrap())
}

/// Kills the service, and makes the supervisor and commands wait for the lock until it is dropped.
fn crashed_and_locked(lab: &Lab) -> File {
    let lock = File::options().write(true).open(lab.path("run/tank.lock")).unwrap();
    lock.lock().unwrap();
    lab.kill("tank");
    sleep(PAUSE);
    lock
}

/// Kills the service, and stops its supervisor while it starts another service, with the lock.
fn crashed_and_restarting(lab: &Lab) -> Stopped {
    let lock = crashed_and_locked(lab);
    lock.set_len(0).unwrap();
    drop(lock);
    let begun = Instant::now();
    while !fs::read_to_string(lab.path("run/tank.lock")).unwrap().contains("--supervise") {
        assert!(begun.elapsed() < Duration::from_secs(20), "no supervisor has taken the lock");
    }
    Stopped::new(lab.supervisors()[0])
}

/// The result of a command that has found no service, and gets the lock after the supervisor has restarted the service.
fn restarted_before(lab: &Lab, program: &str, words: &[&str]) -> Run {
    let lock = crashed_and_locked(lab);
    let mut command = lab.command(program, words);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    sleep(Duration::from_millis(300));
    let waiting = Stopped::new(child.id());
    drop(lock);
    wait_until("everything is back", || is_back(lab));
    drop(waiting);
    end(words, child)
}

/// Asserts that the pool is not registered, has no service, gets none, and is intact on its image.
#[track_caller]
fn assert_gone(lab: &Lab, words: &[&str]) {
    wait_until("the supervisor has ended", || lab.supervisors().is_empty());
    assert_eq!(lab.service("tank"), None, "{words:?}");
    for name in ["state/pools/tank.json", "state/index/tank"] {
        assert!(!lab.path(name).exists(), "{words:?}: {name}");
    }
    let folder = lab.at("");
    let import = if words[0] == "destroy" { &["import", "-D", "-d"][..] } else { &["import", "-d"] };
    lab.pool(&[import, &[&folder, "tank"]].concat());
    assert!(is_back(lab), "{words:?}");
}

const ENDS: [&[&str]; 3] = [&["export", "tank"], &["export", "-f", "tank"], &["destroy", "tank"]];

#[test]
fn an_export_waits_for_a_restart_under_way() {
    let Some(lab) = supervised() else { return };
    for words in ENDS {
        let restarting = crashed_and_restarting(&lab);
        let child = start(&lab, words);
        sleep(Duration::from_millis(300));
        drop(restarting);
        end(words, child).ok();
        assert_gone(&lab, words);
    }
}

#[test]
fn an_export_that_races_with_a_restart_is_final() {
    let Some(lab) = supervised() else { return };
    for words in ENDS.into_iter().chain(ENDS) {
        // Chance decides which of the two gets the lock first.
        let lock = crashed_and_locked(&lab);
        let child = start(&lab, words);
        sleep(Duration::from_millis(50));
        drop(lock);
        end(words, child).ok();
        assert_gone(&lab, words);
    }
}

#[test]
fn a_crash_during_an_export_does_not_bring_the_pool_back() {
    let Some(lab) = supervised() else { return };
    for words in ENDS {
        // The stopped service has the request, and never answers.
        let stopped = Stopped::new(lab.service("tank").unwrap());
        let child = start(&lab, words);
        sleep(Duration::from_millis(200));
        lab.kill("tank");
        drop(stopped);
        end(words, child).ok();
        assert_gone(&lab, words);
    }
    for delay in [5, 10, 15, 20, 30, 40, 60] {
        let words = &["export", "tank"][..];
        let service = lab.service("tank").unwrap();
        let child = start(&lab, words);
        sleep(Duration::from_millis(delay));
        let _ = std::process::Command::new("kill").args(["-9", &service.to_string()]).stderr(Stdio::null()).status();
        end(words, child).ok();
        assert_gone(&lab, words);
    }
}

#[test]
fn an_import_meets_a_restart() {
    let Some(lab) = supervised() else { return };
    // The import comes first, and the supervisor finds the service running.
    lab.kill("tank");
    assert_eq!(lab.run("pool", &["import", "tank"]).stderr, "");
    assert!(is_back(&lab));
    wait_until("the first supervisor has ended", || lab.supervisors().len() == 1);
    // The import comes second, and waits for the supervisor.
    let run = restarted_before(&lab, "pool", &["import", "tank"]);
    assert_eq!(run.stderr, "note: 'tank' was already imported; its service had crashed and was restarted\n");
    run.ok();
    // An import with further options is refused.
    let refused = restarted_before(&lab, "pool", &["import", "-o", "readonly=on", "tank"]);
    for run in [refused, lab.run("pool", &["import", "tank"])] {
        let said = run.fails(1);
        assert!(said.contains("cannot import 'tank': a pool with that name is already imported"), "{said}");
    }
    assert!(is_back(&lab));
}

#[test]
fn a_pool_that_is_exported_is_not_imported_by_a_waiting_import() {
    let Some(lab) = supervised() else { return };
    let lock = crashed_and_locked(&lab);
    let folder = lab.at("");
    let words = &["import", "-d", &folder, "tank"][..];
    let (export, import) = (start(&lab, &["export", "tank"]), start(&lab, words));
    sleep(Duration::from_millis(50));
    drop(lock);
    // In either order both are done.
    end(&["export", "tank"], export).ok();
    end(words, import).ok();
    let is_known = lab.path("state/pools/tank.json").exists();
    assert_eq!(lab.service("tank").is_some(), is_known);
    assert_eq!(is_back(&lab), is_known);
}

#[test]
fn a_mount_after_a_crash_brings_everything_back() {
    let Some(lab) = supervised() else { return };
    for words in [["mount", "tank/a"], ["mount", "-a"]] {
        lab.kill("tank");
        lab.fs(&words);
        assert!(is_back(&lab) && is_mounted(&lab, "tank"), "{words:?}");
        wait_until("the first supervisor has ended", || lab.supervisors().len() == 1);
    }
    // The supervisor has mounted the dataset before the command gets the lock.
    restarted_before(&lab, "fs", &["mount", "tank/a"]).ok();
    assert!(is_back(&lab));
    // A service that ended normally has unmounted everything, so only the requested dataset is mounted.
    let service = lab.service("tank").unwrap();
    assert!(std::process::Command::new("kill").arg(service.to_string()).status().unwrap().success());
    wait_until("the supervisor has ended", || lab.supervisors().is_empty());
    lab.fs(&["mount", "tank/a"]);
    assert!(is_mounted(&lab, "tank/a") && !is_mounted(&lab, "tank/b"));
    lab.kill("tank");
    wait_until("everything is back", || is_back(&lab));
}

#[test]
fn a_restart_keeps_options_and_mounts_that_were_asked_for() {
    let Some(lab) = supervised() else { return };
    lab.fs(&["create", "-o", "canmount=noauto", "tank/n"]);
    lab.fs(&["unmount", "tank/b"]);
    lab.fs(&["mount", "-o", "ro", "tank/b"]);
    lab.fs(&["mount", "tank/n"]);
    let is_read_only =
        || fs::write(lab.mount("tank/b").join("f"), "").is_err_and(|why| why.kind() == ErrorKind::ReadOnlyFilesystem);
    let get = |property| lab.fs(&["get", "-Ho", "value,source", property, "tank/b"]);
    assert!(is_read_only());
    for _ in 0..2 {
        lab.kill("tank");
        wait_until("everything is back", || is_back(&lab) && is_mounted(&lab, "tank/n"));
        assert!(is_read_only());
        assert_eq!(get("readonly"), "on\ttemporary\n");
    }
    // Neither survives a boot of the machine, an unmount, or an export.
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let memory = lab.path("state/pools/tank.mounts");
    let text = fs::read_to_string(&memory).unwrap();
    assert_eq!(text.matches(boot.trim()).count(), 2, "{text}");
    fs::write(&memory, text.replace(boot.trim(), "another")).unwrap();
    lab.kill("tank");
    wait_until("everything is back", || is_back(&lab));
    assert!(!is_read_only() && !is_mounted(&lab, "tank/n"));
    lab.fs(&["mount", "tank/n"]);
    lab.fs(&["unmount", "tank/n"]);
    lab.kill("tank");
    wait_until("everything is back", || is_back(&lab));
    assert!(!is_mounted(&lab, "tank/n"));
    lab.fs(&["mount", "tank/n"]);
    lab.pool(&["export", "tank"]);
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    assert!(is_back(&lab) && !is_mounted(&lab, "tank/n"));
}
