//! The limits on another user of the machine with root's pools: images, registry, sockets, locks.
//! `docs/src/security.md` names these tests.

mod lab;

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use lab::{Lab, can_mount, memory, stranger::Stranger, wait_until};
use protocol::version::VERSION;

fn mode(lab: &Lab, name: &str) -> u32 {
    lab.path(name).metadata().unwrap_or_else(|error| panic!("{name}: {error}")).permissions().mode() & 0o7777
}

/// A lab that runs its commands under a umask.
fn under(mask: &str) -> Lab {
    let mut lab = Lab::new();
    lab.through(["sh", "-c", "umask \"$0\"; exec \"$@\"", mask].map(str::to_owned).to_vec());
    lab
}

#[test]
fn whatever_the_umask_files_are_for_their_owner() {
    if !can_mount() {
        return;
    }
    for mask in ["0", "022", "0277"] {
        let lab = under(mask);
        lab.create("tank", "128M");
        lab.pool(&["attach", "tank", &lab.at("tank.img"), &format!("128M:{}", lab.at("b.img"))]);
        lab.pool(&["add", "-f", "tank", &format!("128M:{}", lab.at("c.img"))]);
        lab.pool(&["replace", "tank", &lab.at("c.img"), &format!("128M:{}", lab.at("d.img"))]);
        for name in
            ["tank.img", "b.img", "c.img", "d.img", "state/pools/tank.json", "state/log/tank.log", "run/tank.lock"]
        {
            assert_eq!(mode(&lab, name), 0o600, "{name} under umask {mask}");
        }
        assert_eq!([mode(&lab, "state/pools"), mode(&lab, "state/log")], [0o700; 2], "umask {mask}");
        // The service writes the events a moment after their command.
        let events = lab.path("state/events");
        let kept = || fs::read_dir(&events).into_iter().flatten().flatten().map(|entry| entry.path());
        let is_log = |path: &PathBuf| path.extension().is_some_and(|end| end == "jsonl");
        wait_until("events are kept", || kept().any(|path| is_log(&path)));
        for path in kept().filter(is_log) {
            assert_eq!(
                path.metadata().unwrap().permissions().mode() & 0o7777,
                0o600,
                "{} under {mask}",
                path.display()
            );
        }
        assert_eq!(mode(&lab, "state/events"), 0o700, "umask {mask}");
        assert_eq!([mode(&lab, "state/index/tank"), mode(&lab, "run/tank.sock")], [0o644, 0o666], "umask {mask}");
        assert_eq!([mode(&lab, "state"), mode(&lab, "state/index"), mode(&lab, "run")], [0o755; 3], "umask {mask}");
    }
}

#[test]
fn an_image_that_others_can_open_is_warned_of() {
    let lab = Lab::mountless();
    fs::set_permissions(lab.path(""), Permissions::from_mode(0o755)).unwrap();
    let image = |name: &str, mode: u32| {
        fs::File::create(lab.path(name)).unwrap().set_len(128 << 20).unwrap();
        fs::set_permissions(lab.path(name), Permissions::from_mode(mode)).unwrap();
        lab.at(name)
    };
    let warned = |words: &[&str], of: &str| {
        let run = lab.run("pool", words);
        let output = run.stderr.clone();
        run.ok();
        let remedy = format!("chmod 600 {of}\n");
        assert!(output.starts_with("warning: ") && output.ends_with(&remedy), "{words:?}: {output}");
    };
    let (a, b, c, d) = (image("a.img", 0o644), image("b.img", 0o640), image("c.img", 0o666), image("d.img", 0o600));
    warned(&["create", "tank", &a], &a);
    warned(&["attach", "tank", &a, &b], &b);
    warned(&["add", "-f", "tank", &c], &c);
    assert_eq!(lab.run("pool", &["attach", "tank", &c, &d]).stderr, "", "a closed image is nothing to warn of");
    lab.pool(&["export", "tank"]);
    fs::set_permissions(lab.path("a.img"), Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(lab.path("b.img"), Permissions::from_mode(0o600)).unwrap();
    warned(&["import", "-d", &lab.at(""), "tank"], &c);
}

#[test]
fn another_user_lists_gets_and_sees_the_status() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new();
    let Some(other) = Stranger::of(&lab) else { return };
    lab.create("tank", "128M");
    lab.fs(&["create", "tank/home"]);
    lab.fs(&["snapshot", "tank/home@a"]);
    let both = |script: &str| {
        let mut words = script.split(' ');
        let program = words.next().unwrap();
        let own = lab.run(program, &words.collect::<Vec<_>>()).ok();
        assert_eq!(other.sh(script).ok(), own, "{script}");
    };
    for script in [
        "pool list -H -o name,size,health,guid",
        "pool get -H all tank",
        "fs list -H -r -t all -o name,mountpoint tank",
        "fs get -H mountpoint,compression tank/home",
    ] {
        both(script);
    }
    assert!(other.sh("pool status tank").ok().contains("state: ONLINE"));
    for script in [
        "fs create tank/x",
        "fs destroy tank/home",
        "fs snapshot tank@b",
        "fs rollback tank/home@a",
        "fs set compression=off tank",
        "fs send tank/home@a",
        "fs cat tank:/x",
        "fs ls tank:/",
        "fs cp /etc/passwd tank:/",
        "fs cp tank:/x /tmp",
        "fs unmount tank/home",
        "fs diff tank/home@a",
        "fs userspace tank",
        "pool scrub tank",
        "pool trim tank",
        "pool initialize tank",
        "pool initialize -n tank",
        "pool initialize -s tank",
        "pool initialize -c tank",
        "pool initialize -u tank",
        "pool export tank",
        "pool export -f tank",
        "pool export --abandon tank",
        "pool destroy -f tank",
        "pool set comment=x tank",
        "pool history tank",
        "pool events tank",
        "pool sync tank",
        "pool check tank",
    ] {
        let refused = other.sh(&format!("{script} > /dev/null")).fails(1);
        assert!(refused.contains("permission denied"), "{script}: {refused}");
    }
    assert_eq!(lab.fs(&["list", "-H", "-r", "-t", "all", "-o", "name", "tank"]), "tank\ntank/home\ntank/home@a\n");
}

#[test]
fn a_service_refuses_another_user_by_itself() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new();
    let Some(other) = Stranger::of(&lab).filter(Stranger::has_perl) else { return };
    lab.create("tank", "128M");
    // Without the program, which would refuse earlier: a request as it crosses the socket.
    let ask = |request: &str| {
        let call = format!(r#"{{"version":{VERSION},"call":{{"command":"x","request":{request}}}}}"#);
        let script = format!(
            "perl -MIO::Socket::UNIX -e 'my $s = IO::Socket::UNIX->new(Peer => \"{}\") or die; my $c = q({call}); \
             print $s pack(\"V\", length $c), $c; $s->flush; local $/; print <$s>'",
            lab.at("run/tank.sock")
        );
        other.sh(&script).ok()
    };
    assert!(ask(r#"{"Service":"Ping"}"#).contains(r#"{"Done":"Done"}"#));
    for request in [
        r#"{"Service":"Abandon"}"#,
        r#"{"Pool":"Sync"}"#,
        r#"{"Service":{"Shutdown":{"force":true,"export":false}}}"#,
        r#"{"Dataset":{"Destroy":{"name":"tank","recursive":true,"dependents":true,"force":true,"wait":false,"dry_run":false}}}"#,
    ] {
        let answer = ask(request);
        assert!(answer.contains("permission denied"), "{request}: {answer}");
    }
    assert_eq!(lab.pool(&["list", "-H", "-o", "health", "tank"]), "ONLINE\n");
}

#[test]
fn others_learn_of_a_dead_pool_by_the_index() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new();
    let Some(other) = Stranger::of(&lab) else { return };
    lab.create("tank", "128M");
    let guid = lab.pool(&["get", "-H", "-o", "value", "guid", "tank"]);
    let index = other.sh(&format!("cat {}", lab.at("state/index/tank"))).ok();
    assert_eq!(index, format!("{{\"version\":1,\"name\":\"tank\",\"guid\":{},\"state\":\"ONLINE\"}}\n", guid.trim()));
    for closed in ["state/pools/tank.json", "state/log/tank.log", "run/tank.lock", "tank.img"] {
        other.sh(&format!("cat {} 2>&1", lab.at(closed))).fails(1);
    }
    other.sh(&format!("ls {} 2>&1", lab.at("state/pools"))).fails(2);
    lab.kill("tank");
    let shown = other.sh("pool list tank 2>&1").text();
    assert!(shown.contains("tank") && !shown.contains("no such pool") && !shown.contains("ONLINE"), "{shown}");
    lab.pool(&["import", "tank"]);
    lab.pool(&["export", "tank"]);
    assert!(!lab.path("state/index/tank").exists());
    // The owner deletes the registry entry by hand, and checks the rest.
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    lab.kill("tank");
    fs::remove_file(lab.path("state/pools/tank.json")).unwrap();
    assert!(other.sh("pool list 2>&1").text().contains("tank"));
    assert_eq!(lab.pool(&["list", "-H"]), "");
    assert_eq!(other.sh("pool list -H").ok(), "");
}

#[test]
fn a_hostile_peer_does_not_keep_the_owner_waiting() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new();
    let Some(other) = Stranger::of(&lab).filter(Stranger::has_perl) else { return };
    lab.create("tank", "128M");
    let socket = lab.at("run/tank.sock");
    // The client is silent, announces a message without sending it, sends noise, asks and never reads; a thousand
    // times.
    let script = format!(
        "ulimit -n 2048; exec perl -MIO::Socket::UNIX -e '$| = 1; my @s; $SIG{{PIPE}} = q(IGNORE); \
         my $ask = q({{\"command\":\"x\",\"request\":\"Status\"}}); for my $i (1..1000) {{ \
         my $s = IO::Socket::UNIX->new(Peer => \"{socket}\") or next; push @s, $s; \
         my $d = (\"\", pack(\"V\", 60000), pack(\"V\", 4294967295), \"x\" x 4096, pack(\"V\", length $ask).$ask)[$i % 5]; \
         syswrite $s, $d if length $d }} print scalar(@s), \"\\n\"; sleep 60'"
    );
    let hostile = other.start(&script);
    let begun = Instant::now();
    for _ in 0..5 {
        assert_eq!(lab.pool(&["list", "-H", "-o", "health", "tank"]), "ONLINE\n");
    }
    lab.fs(&["create", "tank/home"]);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let service = lab.service("tank").unwrap();
    let open = fs::read_dir(format!("/proc/{service}/fd")).unwrap().count();
    assert!(open < 200, "the service holds {open} descriptors");
    lab.pool(&["export", "tank"]);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    drop(hostile);
}

#[test]
fn a_user_who_locks_an_image_is_named_with_the_remedy() {
    let lab = Lab::mountless();
    let Some(other) = Stranger::of(&lab) else { return };
    lab.create("tank", "128M");
    lab.pool(&["export", "tank"]);
    let image = lab.at("tank.img");
    // Another user cannot lock a new image, but can lock a readable image.
    other.sh(&format!("flock -n {image} true 2>&1")).fails(66);
    fs::set_permissions(&image, Permissions::from_mode(0o644)).unwrap();
    let holder = other.start(&format!("exec 9< {image}; flock 9; echo locked; exec sleep 60"));
    let pid = holder.0.id();
    let words = ["import", "-d", &lab.at(""), "tank"];
    let refused = lab.run("pool", &words).fails(1);
    let user = lab::stranger::UID;
    for part in
        [format!("process {pid} of user {user} (sleep 60)"), format!("kill {pid}"), format!("chmod 600 {image}")]
    {
        assert!(refused.contains(&part), "{part}: {refused}");
    }
    // Nor does the lock hide the pool from the list of importable pools.
    assert!(lab.pool(&["import", "-d", &lab.at("")]).contains("pool: tank"));
    let refused = lab.run("pool", &["import", "-a", "-d", &lab.at("")]).fails(1);
    assert!(refused.contains(&format!("process {pid} of user {user}")), "{refused}");
    assert!(Command::new("kill").arg(pid.to_string()).status().unwrap().success());
    wait_until("the lock is free", || Command::new("flock").args(["-n", &image, "true"]).status().unwrap().success());
    lab.pool(&words);
    // The process that took the lock has ended; the message names the process with the inherited lock.
    lab.pool(&["export", "tank"]);
    let heir = other.start(&format!("exec 9< {image}; sh -c 'flock 9'; echo locked; exec sleep 61"));
    let refused = lab.run("pool", &words).fails(1);
    assert!(refused.contains(&format!("process {} of user {user} (sleep 61)", heir.0.id())), "{refused}");
}

#[test]
fn a_list_of_very_many_snapshots_takes_bounded_memory() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new();
    let Some(other) = Stranger::of(&lab) else { return };
    lab.create("tank", "256M");
    let names: Vec<String> = (0..100).map(|number| format!("tank/{number}")).collect();
    names.iter().for_each(|name| _ = lab.fs(&["create", "-u", name]));
    for number in 0..100 {
        lab.fs(&["snapshot", "-r", &format!("tank@with-a-name-of-some-length-{number}")]);
    }
    let service = lab.service("tank").unwrap();
    // From now on the peak is counted anew.
    fs::write(format!("/proc/{service}/clear_refs"), "5").unwrap();
    let rested = memory(service, "VmHWM");
    let list = "fs get -H -r -t all all tank | wc -l";
    let listed = other.sh(&format!("for n in 1 2 3; do {list} & done; {list}; wait")).ok();
    let lines: usize = listed.split_whitespace().map(|lines| lines.parse::<usize>().unwrap()).sum();
    assert!(lines > 4 * 10_000 * 5, "{lines}");
    let peak = memory(service, "VmHWM");
    assert!(peak < rested + (48 << 20), "{} MiB, and {} MiB at rest", peak >> 20, rested >> 20);
}
