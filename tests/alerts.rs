//! Alerts, notifications about them, and whose hooks run.

mod lab;

use std::{
    fs::{self, Permissions},
    io::{Read, Write},
    net::TcpListener,
    os::unix::{fs::PermissionsExt, net::UnixDatagram},
    process::Command,
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use lab::{Lab, can_mount, wait_until};
use serde_json::Value;

/// A file of a lab with this mode.
fn plant(lab: &Lab, name: &str, text: &str, mode: u32) {
    let path = lab.path(name);
    let folder = path.parent().unwrap();
    fs::create_dir_all(folder).unwrap();
    fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
}

/// A web server that answers each request with `status`; the requests arrive at the returned end.
fn listener(status: &'static str) -> (u16, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (requests, received) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                text.extend(&buffer[..count]);
                let shown = String::from_utf8_lossy(&text);
                let length = shown
                    .to_lowercase()
                    .split("content-length: ")
                    .nth(1)
                    .and_then(|rest| rest.lines().next()?.trim().parse().ok());
                let body = shown.split_once("\r\n\r\n").map(|(_, body)| body.len());
                if body.is_some_and(|body| length.is_none_or(|length: usize| body >= length)) {
                    break;
                }
            }
            let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            if requests.send(String::from_utf8_lossy(&text).into_owned()).is_err() {
                return;
            }
        }
    });
    (port, received)
}

/// The number of events of a class with a state, and their details.
fn alerts(lab: &Lab, word: &str) -> Vec<Value> {
    let json: Value = serde_json::from_str(&lab.pool(&["events", "-j", "tank"])).unwrap();
    let class = format!("alert.fs.cenote.{word}");
    json["events"].as_array().unwrap().iter().filter(|event| event["class"] == *class).cloned().collect()
}

#[test]
fn a_quota_and_a_full_pool_are_alerted_once() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new();
    let (port, requests) = listener("204 No Content");
    let fake = |name: &str| format!("#!/bin/sh\n{{ printf '<%s>' \"$@\"; echo; cat; echo END; }} >>{}\n", lab.at(name));
    plant(&lab, "bin/sendmail", &fake("mails"), 0o755);
    plant(&lab, "bin/notify-send", &fake("shown"), 0o755);
    let text = format!(
        "[[mail]]\nto = ['root', 'ann@example.org']\nprogram = '{}'\n[[webhook]]\nurl = 'http://127.0.0.1:{port}/hook'\n\
         authorization = 'Bearer x'\n[[desktop]]\nprogram = '{}'\nevents = ['alert.fs.cenote.near_capacity']\n",
        lab.at("bin/sendmail"),
        lab.at("bin/notify-send")
    );
    plant(&lab, "config/notify.toml", &text, 0o600);
    lab.create("tank", "128M");
    lab.fs(&["create", "-o", "quota=10M", "-o", "compression=off", "tank/home"]);
    assert!(!lab.pool(&["status", "tank"]).contains("status:"));
    fs::write(
        lab.mount("tank/home").join("file"),
        vec![7; 9 << 20].iter().enumerate().map(|(at, byte)| byte ^ (at * at) as u8).collect::<Vec<u8>>(),
    )
    .unwrap();
    lab.pool(&["sync", "tank"]);
    wait_until("the quota is an alert", || !alerts(&lab, "near_quota").is_empty());
    let status = lab.pool(&["status", "tank"]);
    assert!(status.contains("status: tank/home has used 9") && status.contains("of its quota of 10M."), "{status}");
    assert!(
        status.contains(
            "action: Delete files or snapshots of tank/home, or raise the limit: fs set quota=SIZE tank/home"
        )
    );
    assert!(lab.pool(&["status", "-x", "tank"]).contains("is healthy"));
    lab.pool(&["set", "capacity_warn=5", "tank"]);
    wait_until("the capacity is an alert", || !alerts(&lab, "near_capacity").is_empty());
    let json: Value = serde_json::from_str(&lab.pool(&["status", "-j", "tank"])).unwrap();
    let words: Vec<&str> = json["pools"]["tank"]["alerts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|alert| alert["class"].as_str().unwrap())
        .collect();
    assert_eq!(words, ["near_quota", "near_capacity"]);
    let read = |name: &str| fs::read_to_string(lab.path(name)).unwrap_or_default();
    wait_until("all are told", || read("mails").matches("END").count() == 2 && read("shown").contains("END"));
    let mails = read("mails");
    assert!(mails.contains("<-oi><--><root><ann@example.org>\nTo: root, ann@example.org\n"), "{mails}");
    assert!(mails.contains("Subject: [cenote] tank: notice: near_quota (tank/home)\n"), "{mails}");
    assert!(
        read("shown").contains("<--app-name=Cenote><-u><low><--><[cenote] tank: notice: near_capacity>"),
        "{}",
        read("shown")
    );
    let request = requests.recv_timeout(Duration::from_secs(10)).unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(
        head.starts_with("POST /hook HTTP/1.1") && head.to_lowercase().contains("authorization: bearer x"),
        "{head}"
    );
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!((body["pool"].as_str(), body["class"].as_str()), (Some("tank"), Some("alert.fs.cenote.near_quota")));
    assert_eq!(body["details"]["alert_state"], "active");
    // A new service says nothing again, and neither do later looks.
    lab.pool(&["export", "tank"]);
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    thread::sleep(Duration::from_secs(11));
    assert_eq!((alerts(&lab, "near_quota").len(), alerts(&lab, "near_capacity").len()), (1, 1));
    assert_eq!(read("mails").matches("END").count(), 2);
    // The end is told once too.
    lab.pool(&["set", "capacity_warn=0", "tank"]);
    let begun = Instant::now();
    while alerts(&lab, "near_capacity").len() < 2 {
        // The condition has to be absent for half a minute.
        assert!(begun.elapsed() < Duration::from_secs(90), "the alert ends");
        thread::sleep(Duration::from_millis(200));
    }
    assert!(begun.elapsed() > Duration::from_secs(25), "{:?}", begun.elapsed());
    assert_eq!(alerts(&lab, "near_capacity")[1]["details"]["alert_state"], "cleared");
}

#[test]
fn a_target_that_hangs_delays_no_command() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new();
    let hangs = format!("#!/bin/sh\nsleep 1000 &\necho $! >>{}\nwait\n", lab.at("hanging"));
    plant(&lab, "bin/hangs", &hangs, 0o755);
    let text = format!("[[mail]]\nto = 'root'\nevents = ['*']\nprogram = '{}'\n", lab.at("bin/hangs"));
    plant(&lab, "config/notify.toml", &text, 0o600);
    lab.create("tank", "128M");
    let begun = Instant::now();
    for number in 0..10 {
        lab.fs(&["create", &format!("tank/{number}")]);
    }
    wait_until("the program hangs", || fs::read_to_string(lab.path("hanging")).is_ok_and(|text| text.ends_with('\n')));
    lab.pool(&["export", "tank"]);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    // The program ends with the service, and so do its children.
    let hanging = fs::read_to_string(lab.path("hanging")).unwrap();
    wait_until("the program has ended", || {
        hanging.lines().all(|process| {
            let state = fs::read_to_string(format!("/proc/{process}/stat"));
            state.is_err() || state.is_ok_and(|state| state.contains(") Z "))
        })
    });
}

#[test]
fn a_test_message_goes_to_targets_and_foreign_files_are_refused() {
    let lab = Lab::mountless();
    lab.blank("tank.img", 64 << 20);
    lab.pool(&["create", "tank", &lab.at("tank.img")]);
    let none = lab.run("pool", &["events", "--test-notify", "tank"]).fails(1);
    assert!(none.contains("the file names no target, or does not exist"), "{none}");
    let (port, requests) = listener("500 Internal Server Error");
    plant(&lab, "bin/sendmail", &format!("#!/bin/sh\ncat >{}\n", lab.at("mail")), 0o755);
    plant(&lab, "bin/fails", "#!/bin/sh\nexit 3\n", 0o755);
    let text = format!(
        "[[mail]]\nto = 'root'\nfrom = 'pool@example.org'\nprogram = '{}'\n[[webhook]]\nurl = 'http://127.0.0.1:{port}/secret'\n\
         [[desktop]]\nprogram = '{}'\n",
        lab.at("bin/sendmail"),
        lab.at("bin/fails")
    );
    plant(&lab, "config/notify.toml", &text, 0o600);
    let absent = lab.run("pool", &["events", "--test-notify", "tonk"]);
    assert!(absent.code != Some(0) && absent.stderr.contains("'tonk'"), "{}", absent.stderr);
    assert!(!lab.path("mail").exists(), "no message about a pool that does not exist");
    let run = lab.run("pool", &["events", "--test-notify", "tank"]);
    assert_eq!((run.code, run.text().as_str()), (Some(1), "tank: mail to root: sent\n"), "{}", run.stderr);
    assert!(
        run.stderr.contains(&format!("webhook http://127.0.0.1:{port}': the server answered 500")),
        "{}",
        run.stderr
    );
    assert!(run.stderr.contains("desktop': it ended with") && !run.stderr.contains("secret"), "{}", run.stderr);
    assert!(requests.recv_timeout(Duration::from_secs(5)).unwrap().contains("sysevent.fs.cenote.notify_test"));
    assert!(fs::read_to_string(lab.path("mail")).unwrap().contains("Subject: [cenote] tank: notice: test\n"));
    plant(&lab, "config/notify.toml", &text, 0o620);
    let refused = lab.run("pool", &["events", "--test-notify", "tank"]).fails(1);
    assert!(refused.contains("another user owns or can write the file (mode 620)"), "{refused}");
}

/// The next message to systemd that satisfies a condition; others are skipped.
#[track_caller]
fn heard(socket: &UnixDatagram, what: &str, mut is_meant: impl FnMut(&str) -> bool) -> String {
    let (begun, mut buffer, mut all) = (Instant::now(), [0; 4096], Vec::new());
    while begun.elapsed() < Duration::from_secs(20) {
        if let Ok(count) = socket.recv(&mut buffer) {
            let message = String::from_utf8_lossy(&buffer[..count]).into_owned();
            if is_meant(&message) {
                return message;
            }
            all.push(message);
        }
    }
    panic!("waited in vain for {what}: {all:?}");
}

fn signal(process: u32, name: &str) {
    assert!(Command::new("kill").args([name, &process.to_string()]).status().unwrap().success());
}

#[test]
fn systemd_hears_of_the_imports_and_of_a_service_that_hangs() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new();
    lab.create("tank", "128M");
    fs::write(lab.mount("tank").join("file"), "kept").unwrap();
    lab.pool(&["sync", "tank"]);
    lab.kill("tank");
    let socket = UnixDatagram::bind(lab.path("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut command = lab.command("pool", &["import", "-a", "--watch"]);
    command.env("NOTIFY_SOCKET", lab.path("notify")).env("WATCHDOG_USEC", "900000");
    let mut main = command.spawn().unwrap();
    heard(&socket, "the first message", |message| {
        assert_eq!(message, "READY=1");
        true
    });
    assert_eq!(fs::read_to_string(lab.mount("tank").join("file")).unwrap(), "kept", "ready comes after the mounts");
    for _ in 0..3 {
        heard(&socket, "a sign of life", |message| message == "WATCHDOG=1\nSTATUS=1 pool is served");
    }
    let service = lab.service("tank").unwrap();
    signal(service, "-STOP");
    heard(&socket, "the hang", |message| message.starts_with("STATUS=") && message.contains("does not answer"));
    // From here on no sign of life comes, for longer than the watchdog waits.
    let (begun, mut buffer) = (Instant::now(), [0; 4096]);
    while begun.elapsed() < Duration::from_secs(6) {
        if let Ok(count) = socket.recv(&mut buffer) {
            assert!(!String::from_utf8_lossy(&buffer[..count]).contains("WATCHDOG"));
        }
    }
    signal(service, "-CONT");
    heard(&socket, "a sign of life again", |message| message.starts_with("WATCHDOG=1"));
    signal(main.id(), "-TERM");
    heard(&socket, "the end", |message| message == "STOPPING=1");
    assert!(main.wait().unwrap().success());
    assert_eq!(lab.service("tank"), Some(service), "the service goes on");
}
