//! Attacks on the web server, each over raw connections: every property that the guide promises has an attack here.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::client::{Server, token};
use crate::lab::{Lab, can_mount};

/// A lab with a pool and its web server.
fn arrange() -> Option<(Lab, Server)> {
    if !can_mount() {
        return None;
    }
    let lab = Lab::new();
    lab.create("tank", "128M");
    lab.fs(&["create", "tank/home"]);
    let server = Server::start(&lab);
    Some((lab, server))
}

#[test]
fn nothing_is_shown_or_changed_without_a_session() {
    let Some((lab, server)) = arrange() else { return };
    for path in ["/", "/pool/tank", "/dataset/tank", "/files?at=tank&path=/", "/file?at=tank&path=/x"] {
        let reply = server.get(path, "");
        assert_eq!((reply.status, reply.body.contains("tank")), (303, false), "{path}: {reply:?}");
        assert!(reply.header("location").unwrap().starts_with("/sign-in"));
    }
    for path in ["/metrics", "/live/overview", "/live/pool/tank"] {
        assert_eq!(server.get(path, "").status, 401, "{path}");
    }
    for path in ["/change/destroy", "/run/destroy", "/receive?dataset=tank/x", "/sign-out"] {
        let reply = server.post(path, "Cookie: __Host-cenote-6789=guess\r\n", "dataset=tank/home&typed=tank/home");
        assert_eq!(reply.status, 401, "{path}: {reply:?}");
    }
    lab.fs(&["list", "tank/home"]);
}

#[test]
fn a_wrong_token_is_refused_and_attempts_are_limited() {
    let Some((lab, server)) = arrange() else { return };
    let token = token(&lab, &[]);
    let statuses: Vec<u16> = (0..14).map(|_| server.post("/sign-in", "", "token=guess").status).collect();
    assert_eq!(statuses[..10], [401; 10]);
    assert_eq!(statuses[10..], [429; 4]);
    let limited = server.post("/sign-in", "", "token=guess");
    assert!(limited.header("retry-after").is_some() && limited.header("set-cookie").is_none());
    // The owner is not locked out by the attempts of others.
    server.sign_in(&token);
}

#[test]
fn an_expired_token_and_its_sessions_end() {
    let Some((lab, server)) = arrange() else { return };
    let token = token(&lab, &["--expires", "2s"]);
    let session = server.sign_in(&token);
    thread::sleep(Duration::from_millis(2100));
    assert_eq!(server.page(&session, "/").status, 303);
    assert_eq!(server.submit(&session, "/run/snapshot", "dataset=tank&name=late").status, 401);
    assert_eq!(server.post("/sign-in", "", &format!("token={token}")).status, 401);
    assert!(lab.fs(&["list", "-H", "-t", "snapshot", "-r", "tank"]).is_empty());
}

#[test]
fn the_printed_fingerprint_is_that_of_the_certificate_kept() {
    let Some((lab, server)) = arrange() else { return };
    let order = lab.pool(&["web", "token", "-j"]);
    let order: serde_json::Value = serde_json::from_str(&order).unwrap();
    let fingerprint = order["token"]["fingerprint"].as_str().unwrap().to_owned();
    assert!(fingerprint.len() == 95 && server.greeting.contains(&fingerprint), "{}", server.greeting);
    drop(server);
    // The private key stands beside the certificate.
    let kept = lab.path("state/web");
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&kept), 0o700);
    let files: Vec<_> = fs::read_dir(&kept).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(
        files.len() >= 2 && files.iter().filter(|file| file.is_file()).all(|file| mode(file) == 0o600),
        "{files:?}"
    );
    // The next server has the same certificate, which a browser has accepted.
    assert!(Server::start(&lab).greeting.contains(&fingerprint));
}

#[test]
fn both_addresses_of_localhost_are_the_servers() {
    let Some((lab, server)) = arrange() else { return };
    if TcpListener::bind("[::1]:0").is_err() {
        return;
    }
    assert!(TcpListener::bind(("::1", server.port)).is_err(), "another program takes the other address");
    drop(server);
    let taken = TcpListener::bind("[::1]:0").unwrap();
    let place = format!("127.0.0.1:{}", taken.local_addr().unwrap().port());
    let refused = lab.run("pool", &["web", "--listen", &place]);
    assert!(refused.code == Some(1) && refused.stderr.contains("cannot listen on '[::1]:"), "{refused:?}");
}

#[test]
fn the_port_is_held_by_the_manager_before_the_server_starts() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new();
    lab.create("tank", "128M");
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = held.local_addr().unwrap().port();
    // The launcher hands its input over as descriptor 3, as systemd does.
    let launch = |input: Stdio, variables: &str| {
        let web = lab.command("pool", &["web"]);
        let script = format!("exec 3<&0 </dev/null; {variables} exec {} web", web.get_program().display());
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).envs(web.get_envs().filter_map(|(name, value)| Some((name, value?))));
        shell.stdin(input).stderr(Stdio::piped());
        shell
    };
    let server =
        Server::of(&lab, launch(OwnedFd::from(held.try_clone().unwrap()).into(), "LISTEN_PID=$$ LISTEN_FDS=1"));
    assert_eq!(server.port, port);
    let session = server.sign_in(&token(&lab, &[]));
    assert!(server.page(&session, "/").body.contains("tank"));
    // The server restarts: the port stays taken, and the next server gets the same.
    drop(server);
    assert!(TcpListener::bind(("127.0.0.1", port)).is_err());
    let server = Server::of(&lab, launch(OwnedFd::from(held).into(), "LISTEN_PID=$$ LISTEN_FDS=1"));
    assert_eq!(server.get("/sign-in", "").status, 200);
    // No service that the page starts keeps the port.
    drop(server);
    assert!(TcpListener::bind(("127.0.0.1", port)).is_ok());
    for (input, variables, why) in [
        (Stdio::from(fs::File::open("/dev/null").unwrap()), "LISTEN_PID=$$ LISTEN_FDS=1", "it is no listening socket"),
        (Stdio::null(), "LISTEN_PID=$$ LISTEN_FDS=3", "at most 2 addresses"),
    ] {
        let ended = launch(input, variables).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.code() == Some(1) && said.contains(why), "{said}");
    }
}

#[test]
fn a_restore_follows_no_link_of_a_user() {
    let Some((lab, server)) = arrange() else { return };
    let home = lab.mount("tank/home");
    fs::create_dir_all(home.join("ann/docs")).unwrap();
    fs::create_dir_all(home.join("bob")).unwrap();
    fs::write(home.join("ann/docs/keys"), "of ann").unwrap();
    fs::write(home.join("bob/keys"), "of bob").unwrap();
    lab.fs(&["snapshot", "tank/home@a"]);
    fs::rename(home.join("ann/docs"), home.join("ann/before")).unwrap();
    symlink("../bob", home.join("ann/docs")).unwrap();
    let session = server.sign_in(&token(&lab, &[]));
    let page = server.change(&session, "restore", "snapshot=tank/home%40a&path=/ann/docs/keys");
    assert!(page.contains("/ann/docs is a symbolic link") && page.contains("failed</span>"), "{page}");
    assert_eq!(fs::read_to_string(home.join("bob/keys")).unwrap(), "of bob");
}

#[test]
fn a_stream_is_written_through_no_link_of_a_user() {
    let Some((lab, server)) = arrange() else { return };
    lab.fs(&["snapshot", "tank/home@a"]);
    fs::create_dir(lab.path("private")).unwrap();
    symlink(lab.path("private"), lab.path("led")).unwrap();
    let session = server.sign_in(&token(&lab, &[]));
    let sent = |file: &str| server.change(&session, "send", &format!("snapshot=tank/home%40a&file={}", lab.at(file)));
    let page = sent("led/stream");
    assert!(page.contains("a folder of the path is a symbolic link") && page.contains("failed</span>"), "{page}");
    assert!(fs::read_dir(lab.path("private")).unwrap().next().is_none());
    let page = sent("private/stream");
    assert!(page.contains("done</span>") && lab.path("private/stream").exists(), "{page}");
}

#[test]
fn a_file_is_restored_whatever_colons_the_names_have() {
    let Some((lab, server)) = arrange() else { return };
    for dataset in ["tank/a:", "tank/a:/b:"] {
        lab.fs(&["create", dataset]);
        fs::write(lab.mount(dataset).join("file"), dataset).unwrap();
        lab.fs(&["snapshot", &format!("{dataset}@s")]);
        fs::remove_file(lab.mount(dataset).join("file")).unwrap();
    }
    let session = server.sign_in(&token(&lab, &[]));
    for dataset in ["tank/a:", "tank/a:/b:"] {
        let page = server.change(&session, "restore", &format!("snapshot={dataset}%40s&path=/file"));
        assert!(page.contains("done</span>"), "{page}");
        assert_eq!(fs::read_to_string(lab.mount(dataset).join("file")).unwrap(), dataset);
    }
    assert_eq!(lab.fs(&["cat", "tank/a:/b:@s://file"]), "tank/a:/b:");
}

#[test]
fn a_stream_is_received_as_shown_and_mounts_nothing_by_itself() {
    let Some((lab, server)) = arrange() else { return };
    let elsewhere = lab.at("elsewhere");
    lab.fs(&["create", "-o", &format!("mountpoint={elsewhere}"), "tank/led"]);
    lab.fs(&["snapshot", "tank/led@a"]);
    lab.fs(&["snapshot", "tank/home@a"]);
    let [led, plain] = ["led", "plain"].map(|name| lab.path(name));
    for (words, file) in [(&["send", "-p", "tank/led@a"][..], &led), (&["send", "tank/home@a"], &plain)] {
        let sent = lab.command("fs", words).stdout(fs::File::create(file).unwrap()).status().unwrap();
        assert!(sent.success());
    }
    lab.fs(&["destroy", "-r", "tank/led"]);
    let session = server.sign_in(&token(&lab, &[]));
    // An upload is not confirmed.
    let stream = fs::read(&led).unwrap();
    let head = format!(
        "POST /receive?dataset=tank/copy HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n\
         Cookie: {}\r\nX-Form: {}\r\n\r\n",
        server.host(),
        stream.len(),
        session.cookie,
        session.form
    );
    let reply = server.send(&[head.as_bytes(), &stream].concat());
    assert!(reply.status == 200 && reply.body.contains("not mounted"), "{reply:?}");
    assert_eq!(lab.fs(&["get", "-H", "-o", "value", "mounted", "tank/copy"]).trim(), "no");
    assert_ne!(lab.fs(&["get", "-H", "-o", "value", "mountpoint", "tank/copy"]).trim(), elsewhere);
    // The file is replaced between its dry run and the receive.
    let fields = format!("dataset=tank/second&file={}", plain.display());
    let shown = server.submit(&session, "/change/receive", &fields);
    assert!(shown.body.contains("tank/home@a"), "{shown:?}");
    let seen = shown.body.split("name=\"seen\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    fs::rename(&led, &plain).unwrap();
    let refused = server.submit(&session, "/run/receive", &format!("{fields}&seen={seen}"));
    assert!(refused.body.contains("the file has changed since the dry run"), "{refused:?}");
    assert!(!lab.fs(&["list", "-H", "-o", "name"]).contains("tank/second"));
    // A pipe keeps no thread.
    rustix::fs::mknodat(rustix::fs::CWD, lab.path("fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let refused = server.submit(&session, "/change/receive", &format!("dataset=tank/third&file={}", lab.at("fifo")));
    assert!(refused.body.contains("it is not a regular file"), "{refused:?}");
}

#[test]
fn a_session_ends_when_its_user_signs_out() {
    let Some((lab, server)) = arrange() else { return };
    let session = server.sign_in(&token(&lab, &[]));
    assert_eq!(server.submit(&session, "/sign-out", "").status, 303);
    assert_eq!(server.page(&session, "/").status, 303);
}

#[test]
fn a_revoked_token_ends_its_sessions_at_once() {
    let Some((lab, server)) = arrange() else { return };
    fs::write(lab.mount("tank").join("large"), vec![7; 48 << 20]).unwrap();
    let [kept, revoked] = [token(&lab, &["--read-only"]), token(&lab, &[])];
    let [other, session] = [&kept, &revoked].map(|token| server.sign_in(token));
    let ids = tokens(&lab);
    assert_eq!(ids.len(), 2);
    // The list tells no secret, and each row belongs to one token.
    let list = lab.pool(&["web", "token", "--list"]);
    assert!(!list.contains(&kept) && !list.contains(&revoked) && list.contains("read only"), "{list}");
    let id = ids.iter().find(|token| token["read_only"] == false).unwrap()["id"].as_str().unwrap().to_owned();
    // A live view and a download are under way.
    let ask = |path: &str| {
        let mut stream = server.connect();
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nCookie: {}\r\n\r\n", session.cookie);
        stream.write_all(head.as_bytes()).unwrap();
        let mut first = [0; 512];
        let count = stream.read(&mut first).unwrap();
        assert!(first[..count].starts_with(b"HTTP/1.1 200"), "{path}");
        stream
    };
    let (mut live, mut download) = (ask("/live/overview"), ask("/file?at=tank&path=/large"));
    lab.pool(&["web", "token", "--revoke", &id]);
    let begun = Instant::now();
    assert_eq!(server.page(&session, "/").status, 303);
    assert_eq!(server.submit(&session, "/run/snapshot", "dataset=tank&name=late").status, 401);
    assert_eq!(server.post("/sign-in", "", &format!("token={revoked}")).status, 401);
    assert_eq!(server.get("/metrics", &format!("Authorization: Bearer {revoked}\r\n")).status, 401);
    let (mut text, mut piece) = (String::new(), [0; 4096]);
    while !text.contains("the session has ended") {
        let count = live.read(&mut piece).unwrap();
        text += &String::from_utf8_lossy(&piece[..count]);
        assert!(count > 0 && begun.elapsed() < Duration::from_secs(3), "{text}");
    }
    let mut bytes = Vec::new();
    let _ = download.read_to_end(&mut bytes);
    assert!(bytes.len() < 40 << 20, "{}", bytes.len());
    assert_eq!(server.page(&other, "/").status, 200);
    assert_eq!(tokens(&lab).len(), 1);
    for unknown in [id.as_str(), "", &revoked, &"x".repeat(3000)] {
        assert!(lab.run("pool", &["web", "token", "--revoke", unknown]).fails(1).contains("no such token"));
    }
}

/// The valid tokens that the lab's owner sees.
fn tokens(lab: &Lab) -> Vec<serde_json::Value> {
    let list: serde_json::Value = serde_json::from_str(&lab.pool(&["web", "token", "--list", "-j"])).unwrap();
    list["tokens"].as_object().unwrap().values().cloned().collect()
}

#[test]
fn a_client_that_does_not_read_is_dropped() {
    let Some((lab, server)) = arrange() else { return };
    fs::write(lab.mount("tank").join("large"), vec![7; 8 << 20]).unwrap();
    let session = server.sign_in(&token(&lab, &[]));
    let request =
        format!("GET /file?at=tank&path=/large HTTP/1.1\r\nHost: localhost\r\nCookie: {}\r\n\r\n", session.cookie);
    // The owner has 32 places for downloads.
    let mut open: Vec<_> = (0..32).map(|_| server.connect()).collect();
    for stream in &mut open {
        stream.write_all(request.as_bytes()).unwrap();
        stream.read_exact(&mut [0; 64]).unwrap();
    }
    let full = server.page(&session, "/file?at=tank&path=/large");
    assert!(full.status == 400 && full.body.contains("too many downloads"), "{} {}", full.status, full.body);
    let begun = Instant::now();
    loop {
        let served = server.page(&session, "/file?at=tank&path=/large");
        if served.status == 200 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "the silent readers keep their places");
        thread::sleep(Duration::from_millis(500));
    }
    assert!(begun.elapsed() > Duration::from_secs(10), "a slow reader has time: {:?}", begun.elapsed());
    for mut stream in open {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        assert!(bytes.len() < 8 << 20, "a silent reader got {}", bytes.len());
    }
    let status = fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    let kilobytes: u64 = peak.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kilobytes < 128 << 10, "{peak}");
}

#[test]
fn transfers_show_their_progress() {
    let Some((lab, server)) = arrange() else { return };
    fs::write(lab.mount("tank/home").join("large"), crate::lab::noise(8 << 20, 3)).unwrap();
    lab.fs(&["snapshot", "tank/home@a"]);
    let session = server.sign_in(&token(&lab, &[]));
    let stream = lab.at("stream");
    let sent = server.change(&session, "send", &format!("snapshot=tank/home%40a&file={stream}"));
    let received = server.change(&session, "receive", &format!("dataset=tank/new&file={stream}"));
    for page in [&sent, &received] {
        assert!(page.contains("done</span>") && page.contains("aria-label=\"Progress\""), "{page}");
        assert!(page.contains("100%") && page.contains("8.0") && page.contains("/s"), "{page}");
        assert!(!page.contains("operation"), "{page}");
    }
    // The page shows the command without the option.
    assert!(sent.contains("fs send tank/home@a &gt; ") && !sent.contains("--progress"), "{sent}");
    // A stream that cannot be written fails with its reason.
    let refused = server.change(&session, "send", "snapshot=tank/home%40a&file=/nowhere/stream");
    assert!(refused.contains("failed</span>") && refused.contains("cannot create"), "{refused}");
}

#[test]
fn another_site_cannot_use_a_session() {
    let Some((lab, server)) = arrange() else { return };
    let session = server.sign_in(&token(&lab, &[]));
    let cookie = format!("Cookie: {}\r\n", session.cookie);
    let fields = format!("form={}&dataset=tank&name=forged", session.form);
    // Without the secret of the form, and with one of another session.
    let without = server.post("/run/snapshot", &cookie, "dataset=tank&name=forged");
    let other = server.sign_in(&token(&lab, &[]));
    let foreign = server.post("/run/snapshot", &cookie, &format!("form={}&dataset=tank&name=forged", other.form));
    // With the secret, from a page of another site.
    let origin = server.post("/run/snapshot", &format!("{cookie}Origin: https://evil.example\r\n"), &fields);
    let site = server.post("/run/snapshot", &format!("{cookie}Sec-Fetch-Site: cross-site\r\n"), &fields);
    let null = server.post("/run/snapshot", &format!("{cookie}Origin: null\r\n"), &fields);
    assert_eq!([without, foreign, origin, site, null].map(|reply| reply.status), [403; 5]);
    assert!(lab.fs(&["list", "-H", "-t", "snapshot", "-r", "tank"]).is_empty());
}

#[test]
fn the_cookie_and_the_headers_protect_the_browser() {
    let Some((lab, server)) = arrange() else { return };
    let reply = server.post("/sign-in", "", &format!("token={}", token(&lab, &[])));
    let cookie = reply.header("set-cookie").unwrap();
    for word in ["__Host-", "; Path=/", "; Secure", "; HttpOnly", "; SameSite=Strict"] {
        assert!(cookie.contains(word), "{cookie}");
    }
    for path in ["/sign-in", "/", "/assets/app.js", "/nothing"] {
        let reply = server.get(path, "");
        let policy = reply.header("content-security-policy").unwrap();
        assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
        assert!(!reply.body.contains("http://") && !reply.body.contains("https://"), "{path} loads from elsewhere");
    }
}

#[test]
fn a_read_only_token_changes_nothing() {
    let Some((lab, server)) = arrange() else { return };
    let session = server.sign_in(&token(&lab, &["--read-only"]));
    let page = server.page(&session, "/dataset/tank");
    assert!(page.body.contains("(read only)") && !page.body.contains("/change/"), "{page:?}");
    for path in ["/change/snapshot", "/run/snapshot"] {
        assert_eq!(server.submit(&session, path, "dataset=tank&name=a").status, 403);
    }
    let headers = format!("Cookie: {}\r\nX-Form: {}\r\n", session.cookie, session.form);
    assert_eq!(server.post("/receive?dataset=tank/x", &headers, "").status, 403);
    assert!(lab.fs(&["list", "-H", "-t", "snapshot", "-r", "tank"]).is_empty());
}

#[test]
fn destroying_needs_the_name_typed_again() {
    let Some((lab, server)) = arrange() else { return };
    let session = server.sign_in(&token(&lab, &[]));
    let confirm = server.submit(&session, "/change/destroy", "dataset=tank/home");
    assert!(confirm.body.contains("Type the name to confirm"), "{confirm:?}");
    for typed in ["", "&typed=tank", "&typed=tank/HOME"] {
        assert_eq!(server.submit(&session, "/run/destroy", &format!("dataset=tank/home{typed}")).status, 400);
    }
    lab.fs(&["list", "tank/home"]);
    let page = server.change(&session, "destroy", "dataset=tank/home&typed=tank/home");
    assert!(page.contains("done</span>"), "{page}");
    lab.run("fs", &["list", "tank/home"]).fails(1);
}

#[test]
fn no_word_of_a_form_reaches_a_shell() {
    let Some((lab, server)) = arrange() else { return };
    let session = server.sign_in(&token(&lab, &[]));
    let mark = lab.path("mark");
    for name in [format!("a;touch {}", mark.display()), format!("$(touch {})", mark.display()), "--help".to_owned()] {
        let encoded: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let reply = server.submit(&session, "/run/snapshot", &format!("dataset=tank&name={encoded}"));
        assert!(matches!(reply.status, 303 | 400), "{reply:?}");
    }
    let options = server.submit(&session, "/change/export", "pool=-a");
    assert_eq!(options.status, 400, "{options:?}");
    thread::sleep(Duration::from_millis(300));
    assert!(!mark.exists());
    lab.fs(&["list", "tank"]);
}

#[test]
fn file_names_are_escaped_whatever_bytes_they_hold() {
    use std::os::unix::ffi::OsStrExt;

    let Some((lab, server)) = arrange() else { return };
    let names: [&[u8]; 4] = [b"<script>alert(1)<", b"\"onload=\"x", b"\xff\xfe", b"a&b %41"];
    let folder = lab.mount("tank");
    for name in names {
        fs::write(folder.join(std::ffi::OsStr::from_bytes(name)), name).unwrap();
    }
    lab.fs(&["snapshot", "tank@a"]);
    let session = server.sign_in(&token(&lab, &[]));
    let page = server.page(&session, "/files?at=tank%40a&path=/");
    assert_eq!(page.status, 200, "{page:?}");
    assert!(!page.body.contains("<script>alert") && !page.body.contains("\"onload"), "{page:?}");
    for name in names {
        let escaped: String = name.iter().map(|byte| format!("%25{byte:02X}")).collect();
        let file = server.page(&session, &format!("/file?at=tank%40a&path=/{escaped}"));
        assert_eq!(file.status, 200, "{file:?}");
        let disposition = file.header("content-disposition").unwrap();
        assert!(disposition.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '), "{disposition}");
        let content = file.body.split("\r\n").nth(1).unwrap_or_default();
        assert_eq!(content, String::from_utf8_lossy(name));
    }
}

#[test]
fn malformed_requests_and_huge_bodies_are_refused() {
    let Some((lab, server)) = arrange() else { return };
    let session = server.sign_in(&token(&lab, &[]));
    let head = format!("Host: localhost\r\nCookie: {}\r\n", session.cookie);
    let long = "x".repeat(100 << 10);
    let statuses = [
        server.send(b"\0\0\0\0\r\n\r\n").status,
        server.send(b"GET / HTTP/9.9\r\n\r\n").status,
        server.send(format!("GET /{long} HTTP/1.1\r\n{head}\r\n").as_bytes()).status,
        server.send(format!("GET / HTTP/1.1\r\n{head}X: {long}\r\n\r\n").as_bytes()).status,
        server.submit(&session, "/change/snapshot", &format!("dataset=tank&name={long}")).status,
        server.post("/change/snapshot", &format!("Cookie: {}\r\n", session.cookie), "%zz=%&&==").status,
    ];
    assert!(statuses.iter().all(|status| *status == 0 || (400..500).contains(status)), "{statuses:?}");
    assert_eq!(server.page(&session, "/pool/%2e%2e%2fetc").status, 400);
    assert_eq!(server.page(&session, "/").status, 200);
}

#[test]
fn a_long_name_costs_little() {
    let Some((lab, server)) = arrange() else { return };
    let session = server.sign_in(&token(&lab, &["--read-only"]));
    let deep = "a/".repeat(10_000);
    let begun = Instant::now();
    for path in [format!("/dataset/{deep}"), format!("/snapshot/{deep}@x"), format!("/files?at={deep}&path=/")] {
        let reply = server.page(&session, &path);
        assert!(
            (400..500).contains(&reply.status) && reply.body.len() < 100 << 10,
            "{} {}",
            reply.status,
            reply.body.len()
        );
    }
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[test]
fn downloads_that_are_not_read_delay_no_page() {
    let Some((lab, server)) = arrange() else { return };
    fs::write(lab.mount("tank").join("large"), vec![7; 8 << 20]).unwrap();
    let session = server.sign_in(&token(&lab, &[]));
    let host = server.host();
    let request =
        format!("GET /file?at=tank&path=/large HTTP/1.1\r\nHost: {host}\r\nCookie: {}\r\n\r\n", session.cookie);
    let mut open = Vec::new();
    for _ in 0..80 {
        let mut stream = server.connect();
        stream.write_all(request.as_bytes()).unwrap();
        open.push(stream);
    }
    thread::sleep(Duration::from_millis(500));
    let begun = Instant::now();
    assert_eq!(server.page(&session, "/dataset/tank").status, 200);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    drop(open);
}

#[test]
fn http_without_tls_gets_an_explanation() {
    let Some((_lab, server)) = arrange() else { return };
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 400") && text.contains("https://"), "{text}");
}

#[test]
fn slow_clients_and_idle_streams_leave_the_page_quick_and_small() {
    let Some((lab, server)) = arrange() else { return };
    let session = server.sign_in(&token(&lab, &[]));
    // The usual limit of a shell is 1,024 descriptors; this process needs more, as the server does.
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let mut open = Vec::new();
    let request = format!("GET /live/overview HTTP/1.1\r\nHost: localhost\r\nCookie: {}\r\n\r\n", session.cookie);
    // A machine may allow fewer to both processes.
    let streams = maximum.map_or(1000, |maximum| (maximum / 2).min(1000));
    for _ in 0..streams {
        let mut stream = server.connect();
        stream.write_all(request.as_bytes()).unwrap();
        open.push(stream);
    }
    // Clients that send half a head and then nothing.
    for _ in 0..50 {
        let mut stream = server.connect();
        stream.write_all(b"GET / HTTP/1.1\r\nHost:").unwrap();
        open.push(stream);
    }
    let status = fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let resident = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    let kilobytes: u64 = resident.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kilobytes < 128 << 10, "{resident}");
    let begun = Instant::now();
    assert_eq!(server.page(&session, "/pool/tank").status, 200);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[test]
fn a_service_that_hangs_or_dies_is_reported_within_a_second() {
    let Some((lab, server)) = arrange() else { return };
    let session = server.sign_in(&token(&lab, &[]));
    assert!(server.page(&session, "/").body.contains("Nothing needs attention"));
    let service = lab.service("tank").unwrap();
    let signal = |name: &str| {
        assert!(std::process::Command::new("kill").args([name, &service.to_string()]).status().unwrap().success());
    };
    signal("-STOP");
    // A look may have ended just before; the next one begins a second later, and is late after another.
    let begun = Instant::now();
    while !server.page(&session, "/").body.contains("has not answered") {
        assert!(begun.elapsed() < Duration::from_secs(5), "the page does not report the service");
        thread::sleep(Duration::from_millis(50));
    }
    let reported = begun.elapsed();
    let asked = Instant::now();
    let page = server.page(&session, "/dataset/tank");
    assert_eq!(page.status, 400, "{page:?}");
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    signal("-CONT");
    assert!(reported < Duration::from_millis(2500), "{reported:?}");
    while !server.page(&session, "/").body.contains("Nothing needs attention") {
        assert!(begun.elapsed() < Duration::from_secs(20));
        thread::sleep(Duration::from_millis(50));
    }
    signal("-KILL");
    let killed = Instant::now();
    while server.page(&session, "/").body.contains("Nothing needs attention") {
        assert!(killed.elapsed() < Duration::from_secs(5));
        thread::sleep(Duration::from_millis(50));
    }
    lab.damages();
}

#[test]
fn the_end_of_the_server_ends_nothing_else() {
    let Some((lab, mut server)) = arrange() else { return };
    let session = server.sign_in(&token(&lab, &[]));
    assert_eq!(server.page(&session, "/").status, 200);
    assert!(std::process::Command::new("kill").arg(server.child.id().to_string()).status().unwrap().success());
    assert!(server.child.wait().unwrap().success());
    fs::write(lab.mount("tank").join("after"), "after").unwrap();
    lab.fs(&["snapshot", "tank@after"]);
    assert!(lab.run("pool", &["web", "token"]).fails(1).contains("no web server is running"));
}
