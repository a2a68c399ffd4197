//! The environment that a service inherits, its restart after a crash, and ending it by force.

mod lab;

use std::{
    fs,
    os::unix::net::UnixStream,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use lab::{Lab, can_mount, wait_until};

#[test]
fn a_service_keeps_nothing_of_its_starter() {
    if !can_mount() {
        return;
    }
    for restarting in [false, true] {
        let mut lab = Lab::new();
        if restarting {
            lab.restart_services();
        }
        let lock = lab.at("lock");
        // The caller has a lock, a pipe, many variables and a umask of its own.
        let script = "exec 9>\"$0\"; flock 9; umask 0; export SECRET=x LD_DEBUG_OUTPUT=/x; exec 7>&1; exec \"$@\"";
        lab.through(["sh", "-c", script, &lock].map(str::to_owned).to_vec());
        let (point, image) = (lab.at("mnt"), format!("128M:{}", lab.at("tank.img")));
        let command = lab.command("pool", &["create", "-m", &point, "tank", &image]).stdout(Stdio::piped()).output();
        assert!(command.unwrap().status.success());
        assert!(
            Command::new("flock").args(["-n", &lock, "true"]).status().unwrap().success(),
            "the lock is still held"
        );
        let service = lab.service("tank").unwrap();
        let stat = fs::read_to_string(format!("/proc/{service}/stat")).unwrap();
        let parent: u32 = stat.rsplit(") ").next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        for process in if restarting { vec![service, parent] } else { vec![service] } {
            let of = |name: &str| format!("/proc/{process}/{name}");
            let environment = fs::read(of("environ")).unwrap();
            assert!(!String::from_utf8_lossy(&environment).contains("SECRET"));
            assert_eq!(fs::read_link(of("cwd")).unwrap().to_str(), Some("/"));
            // The service reports readiness on its standard output, and closes it next.
            for standard in ["fd/0", "fd/1"] {
                let is_closed = || fs::read_link(of(standard)).unwrap() == Path::new("/dev/null");
                wait_until("a standard descriptor is closed", is_closed);
            }
            assert!(fs::read_to_string(of("status")).unwrap().contains("Umask:\t0022"));
            let limits = fs::read_to_string(of("limits")).unwrap();
            let files: Vec<&str> =
                limits.lines().find(|line| line.starts_with("Max open files")).unwrap().split_whitespace().collect();
            assert_eq!(files[3], files[4], "as many descriptors as are allowed");
            if may_protect() {
                assert_eq!(fs::read_to_string(of("oom_score_adj")).unwrap(), "-900\n");
            }
        }
    }
}

#[test]
fn a_service_that_crashes_is_started_again() {
    if !can_mount() {
        return;
    }
    let mut lab = Lab::new();
    lab.restart_services();
    lab.create("tank", "128M");
    lab.fs(&["create", "tank/home"]);
    let file = lab.mount("tank/home").join("file");
    fs::write(&file, "kept").unwrap();
    lab.pool(&["sync", "tank"]);
    for _ in 0..2 {
        let crashed = lab.service("tank").unwrap();
        lab.kill("tank");
        wait_until("another service is there", || lab.service("tank").is_some_and(|pid| pid != crashed));
        wait_until("its file systems are back", || fs::read_to_string(&file).is_ok_and(|text| text == "kept"));
        let dead = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert_eq!(dead.matches(&format!(" {} ", lab.at("mnt/tank/home"))).count(), 1, "{dead}");
    }
    // A service asked to end stays away, and so does its supervisor.
    let service = lab.service("tank").unwrap();
    assert!(Command::new("kill").arg(service.to_string()).status().unwrap().success());
    wait_until("the service is gone", || lab.service("tank").is_none());
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!((lab.service("tank"), lab.supervisors()), (None, Vec::new()));
    lab.pool(&["import", "tank"]);
    lab.kill("tank");
    lab.pool(&["export", "tank"]);
    wait_until("the supervisor has ended", || lab.supervisors().is_empty());
    assert_eq!(lab.service("tank"), None);
}

/// Whether this user may protect a process from the out-of-memory killer.
fn may_protect() -> bool {
    let tried = Command::new("sh").args(["-c", "echo -900 > /proc/self/oom_score_adj"]).stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

#[test]
fn a_service_without_descriptors_exports_its_pool() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new();
    lab.create("tank", "128M");
    fs::write(lab.mount("tank").join("file"), "kept").unwrap();
    let service = lab.service("tank").unwrap();
    // From now on it can open no further descriptor.
    let open = fs::read_dir(format!("/proc/{service}/fd")).unwrap();
    let numbers = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u64>().ok());
    let limit = format!("--nofile={}:", numbers.max().unwrap() + 1);
    assert!(Command::new("prlimit").args(["--pid", &service.to_string(), &limit]).status().unwrap().success());
    let mut idle = Vec::new();
    while let Ok(peer) = UnixStream::connect(lab.path("run/tank.sock")) {
        idle.push(peer);
        if idle.len() == 20 {
            break;
        }
    }
    let log = || fs::read_to_string(lab.path("state/log/tank.log")).unwrap();
    wait_until("its descriptors are used up", || log().contains("no descriptors left"));
    lab.pool(&["export", "tank"]);
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    assert_eq!(fs::read_to_string(lab.mount("tank").join("file")).unwrap(), "kept");
}

/// A hook of a lab, with this text and mode.
fn plant_hook(lab: &Lab, name: &str, text: &str, mode: u32) {
    use std::os::unix::fs::PermissionsExt;

    let folder = lab.path("config/events.d");
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(folder.join(name), text).unwrap();
    fs::set_permissions(folder.join(name), fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn hooks_run_after_their_events_with_the_variables_of_zed() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new();
    let said = lab.at("said");
    let tells =
        |name: &str| format!("#!/bin/sh\necho {name} $ZEVENT_EID $ZEVENT_SUBCLASS $ZEVENT_POOL $SECRET >>{said}\n");
    plant_hook(&lab, "scrub_finish-tell", &tells("scrub"), 0o755);
    plant_hook(&lab, "all-tell", &tells("all"), 0o755);
    plant_hook(&lab, "all-writable", &tells("writable"), 0o777);
    plant_hook(&lab, "all-not-executable", &tells("plain"), 0o644);
    plant_hook(&lab, "history_event-fails", "#!/bin/sh\nexit 3\n", 0o755);
    lab.create("tank", "128M");
    lab.pool(&["scrub", "-w", "tank"]);
    let text = || fs::read_to_string(&said).unwrap_or_default();
    wait_until("the hooks of the scrub have run", || text().contains("scrub "));
    let text = text();
    assert!(text.contains("all 1 pool_import tank\n") && text.contains("scrub_finish tank\n"), "{text}");
    assert!(!text.contains("writable") && !text.contains("plain"), "{text}");
    let log = fs::read_to_string(lab.path("state/log/tank.log")).unwrap();
    assert!(log.contains("all-writable is not run"), "{log}");
}

#[test]
fn a_hook_that_hangs_delays_hooks_and_nothing_else() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new();
    let said = lab.at("said");
    plant_hook(&lab, "scrub_start-hangs", "#!/bin/sh\nsleep 1000 & wait\n", 0o755);
    plant_hook(&lab, "scrub_finish-tell", &format!("#!/bin/sh\necho done >{said}\n"), 0o755);
    lab.create("tank", "128M");
    let begun = std::time::Instant::now();
    lab.pool(&["scrub", "-w", "tank"]);
    lab.fs(&["create", "tank/home"]);
    assert!(begun.elapsed() < Duration::from_secs(8), "the hook delays commands");
    wait_until("the hook after the hanging hook has run", || Path::new(&said).exists());
}

#[test]
fn events_survive_a_restart_of_the_service() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new();
    lab.create("tank", "128M");
    lab.pool(&["scrub", "-w", "tank"]);
    let before = lab.pool(&["events", "-H", "tank"]);
    assert!(before.contains("scrub_finish"), "{before}");
    // Records are written by a thread of their own.
    let logged = || {
        let logs = fs::read_dir(lab.path("state/events")).unwrap();
        logs.map(|log| fs::read_to_string(log.unwrap().path()).unwrap()).collect::<String>()
    };
    wait_until("the events are in the log", || logged().contains("scrub_finish"));
    lab.kill("tank");
    lab.pool(&["import", "tank"]);
    let after = lab.pool(&["events", "-H", "tank"]);
    assert!(after.starts_with(&before) && after.len() > before.len(), "{before}\n{after}");
    lab.pool(&["events", "-c"]);
    wait_until("the log is empty", || logged().lines().count() <= 1);
    lab.pool(&["destroy", "-f", "tank"]);
    assert!(fs::read_dir(lab.path("state/events")).unwrap().next().is_none());
}
