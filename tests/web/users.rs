//! Users other than the owner: a session does what `fs allow` grants its user, and nothing else.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::client::{Server, token};
use crate::lab::stranger::{Stranger, UID};
use crate::lab::{Lab, can_mount};

/// A lab with a pool, and a second user; `None` where file systems cannot be mounted, or users changed.
fn arrange() -> Option<(Lab, Stranger)> {
    if !can_mount() {
        return None;
    }
    let lab = Lab::new();
    let other = Stranger::of(&lab)?;
    lab.create("tank", "128M");
    Some((lab, other))
}

#[test]
fn a_second_user_sees_and_does_what_is_granted() {
    let Some((lab, other)) = arrange() else { return };
    for name in ["tank/home", "tank/other"] {
        lab.fs(&["create", name]);
    }
    let server = Server::start(&lab);
    let token_of_other = other.sh("pool web token").ok();
    let session = server.sign_in(token_of_other.trim());
    // Everything open to every user is shown, without the owner's history, devices' loss and files.
    crate::lab::wait_until("the first look has ended", || {
        server.page(&session, "/pool/tank").body.contains("tank.img")
    });
    assert!(!server.page(&session, "/pool/tank").body.contains("/change/scrub"));
    for path in ["/pool/tank/history", "/files?at=tank&path=/", "/file?at=tank&path=/x"] {
        let reply = server.page(&session, path);
        assert!(reply.status == 400 && reply.body.contains("permission denied"), "{path}: {reply:?}");
    }
    assert_eq!(server.get("/metrics", &format!("Authorization: Bearer {}\r\n", token_of_other.trim())).status, 403);
    assert_eq!(server.submit(&session, "/run/scrub", "pool=tank").status, 403);
    // A change needs a grant, where the change acts.
    let refused = server.change(&session, "snapshot", "dataset=tank/home&name=a");
    assert!(refused.contains("permission denied") && refused.contains("failed</span>"), "{refused}");
    lab.fs(&["allow", &UID.to_string(), "snapshot", "tank/home"]);
    let done = server.change(&session, "snapshot", "dataset=tank/home&name=a");
    assert!(done.contains("done</span>"), "{done}");
    let refused = server.change(&session, "snapshot", "dataset=tank/other&name=a");
    assert!(refused.contains("permission denied"), "{refused}");
    assert_eq!(lab.fs(&["list", "-H", "-o", "name", "-t", "snapshot", "-r", "tank"]).trim(), "tank/home@a");
    // The history names the user, and the commands of others stay private.
    assert!(lab.pool(&["history", "-l", "tank"]).contains(&UID.to_string()));
    let owner = server.sign_in(&token(&lab, &[]));
    assert!(server.page(&owner, "/tasks").body.contains("fs snapshot tank/home@a"));
    let of_owner = server.change(&owner, "snapshot", "dataset=tank/other&name=mine");
    assert!(of_owner.contains("done</span>"), "{of_owner}");
    assert!(!server.page(&session, "/tasks").body.contains("tank/other@mine"));
}

/// Perl that passes the bytes of one connection on to a port, and prints its own port.
const RELAY: &str = r#"use IO::Socket::INET; $| = 1;
my $here = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1) or die; print $here->sockport, "\n";
my $near = $here->accept; my $far = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $ARGV[0]) or die;
my ($from, $to) = fork ? ($near, $far) : ($far, $near);
while (sysread($from, my $bytes, 65536)) { syswrite($to, $bytes) } shutdown($to, 1)"#;

#[test]
fn a_cookie_of_one_user_is_no_session_for_another() {
    let Some((lab, other)) = arrange() else { return };
    if !other.has_perl() {
        return;
    }
    let server = Server::start(&lab);
    let session = server.sign_in(&token(&lab, &[]));
    let request =
        format!("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nCookie: {}\r\n\r\n", session.cookie);
    assert_eq!(server.send(request.as_bytes()).status, 200);
    let script = format!("perl -e '{}' {}", RELAY.replace('\'', "'\\''"), server.port);
    let mut relay = other.command(&script).stdout(Stdio::piped()).spawn().unwrap();
    let mut port = String::new();
    BufReader::new(relay.stdout.as_mut().unwrap()).read_line(&mut port).unwrap();
    let reply = server.send_at(port.trim().parse().unwrap(), request.as_bytes());
    assert_eq!((reply.status, reply.header("location")), (303, Some("/sign-in")), "{reply:?}");
    let _ = relay.kill();
    relay.wait().unwrap();
    assert_eq!(server.send(request.as_bytes()).status, 200);
}

#[test]
fn a_token_for_another_user_is_issued_by_root_only() {
    let Some((lab, other)) = arrange() else { return };
    let server = Server::start(&lab);
    assert!(other.sh("pool web token --user 0").fails(1).contains("permission denied"));
    let narrowed = server.sign_in(&token(&lab, &["--user", &UID.to_string()]));
    assert_eq!(server.submit(&narrowed, "/run/scrub", "pool=tank").status, 403);
}

#[test]
fn a_user_neither_sees_nor_revokes_the_token_of_another() {
    let Some((lab, other)) = arrange() else { return };
    let server = Server::start(&lab);
    let owner = server.sign_in(&token(&lab, &[]));
    let session = server.sign_in(other.sh("pool web token").ok().trim());
    let ids = |text: &str| {
        let rows = text.lines().skip(1).filter_map(|row| row.split_whitespace().next());
        rows.map(str::to_owned).collect::<Vec<_>>()
    };
    let (all, own) = (ids(&lab.pool(&["web", "token", "--list"])), ids(&other.sh("pool web token --list").ok()));
    assert_eq!((all.len(), own.len()), (2, 1));
    let foreign = all.iter().find(|id| **id != own[0]).unwrap();
    // A token of another user is refused in the words of a token that does not exist.
    let refused = other.sh(&format!("pool web token --revoke {foreign}")).fails(1);
    let unknown = other.sh("pool web token --revoke 00000000").fails(1);
    assert_eq!(refused.replace(foreign, "ID"), unknown.replace("00000000", "ID"));
    assert_eq!(server.page(&owner, "/").status, 200);
    // The own token, and root's right over all.
    let second = server.sign_in(other.sh("pool web token").ok().trim());
    other.sh(&format!("pool web token --revoke {}", own[0])).ok();
    assert_eq!([&session, &second, &owner].map(|session| server.page(session, "/").status), [303, 200, 200]);
    for id in ids(&lab.pool(&["web", "token", "--list"])) {
        lab.pool(&["web", "token", "--revoke", &id]);
    }
    assert_eq!([&second, &owner].map(|session| server.page(session, "/").status), [303, 303]);
    assert_eq!(lab.pool(&["web", "token", "--list"]), "");
}

#[test]
fn a_user_cannot_speak_for_another_at_the_socket_of_a_service() {
    let Some((lab, other)) = arrange() else { return };
    if !other.has_perl() {
        return;
    }
    // The call of a web page of root, from a user who is not root.
    let call = serde_json::json!({
        "version": protocol::version::VERSION,
        "call": { "command": "forged", "on_behalf": 0, "request": { "Pool": { "History": { "internal": false } } } },
    })
    .to_string();
    let script = format!(
        "perl -MIO::Socket::UNIX -e '$s = IO::Socket::UNIX->new(Peer => \"{}\"); $c = q({call}); \
         print $s pack(\"V\", length $c), $c; $s->flush; local $/; print <$s>'",
        lab.at("run/tank.sock")
    );
    let answer = other.sh(&script).text();
    assert!(answer.contains("permission denied") && !answer.contains("pool create"), "{answer}");
}

#[test]
fn the_server_of_root_keeps_few_rights() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let lab = Lab::new();
    let server = Server::start(&lab);
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let set = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
    };
    // CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_MODULE, CAP_SYS_PTRACE, CAP_SYS_BOOT, CAP_SYS_TIME, CAP_MKNOD.
    for number in [12, 13, 16, 19, 22, 25, 27] {
        assert_eq!([set("CapEff"), set("CapPrm"), set("CapBnd")].map(|set| set >> number & 1), [0; 3], "{number}");
    }
    // A pool that is created from the page is mounted all the same.
    let session = server.sign_in(&token(&lab, &[]));
    let fields = format!("pool=made&mountpoint={}&vdevs=128M:{}", lab.at("mnt/made"), lab.at("made.img"));
    let page = server.change(&session, "create-pool", &fields);
    assert!(page.contains("done</span>"), "{page}");
    assert!(Command::new("mountpoint").args(["-q", &lab.at("mnt/made")]).status().unwrap().success());
}

#[test]
fn a_registry_without_its_index_gives_no_user_more_rights() {
    let Some((lab, other)) = arrange() else { return };
    lab.fs(&["create", "tank/home"]);
    let server = Server::start(&lab);
    let session = server.sign_in(other.sh("pool web token").ok().trim());
    // As after a full disk, or a crash between the two files of a pool.
    std::fs::remove_file(lab.path("state/index/tank")).unwrap();
    let refused = server.change(&session, "snapshot", "dataset=tank/home&name=a");
    assert!(refused.contains("failed</span>"), "{refused}");
    assert_eq!(server.page(&session, "/pool/tank/history").status, 400);
    assert_eq!(lab.fs(&["list", "-H", "-t", "snapshot", "-r", "tank"]), "");
    assert!(!lab.pool(&["history", "tank"]).contains("fs snapshot"));
}

#[test]
fn a_path_in_place_of_a_name_is_not_looked_up() {
    let Some((lab, other)) = arrange() else { return };
    let server = Server::start(&lab);
    let session = server.sign_in(other.sh("pool web token").ok().trim());
    let said = |path: &str| {
        let reply = server.submit(&session, "/change/set", &format!("dataset={path}&property=compression&value=lz4"));
        assert_eq!(reply.status, 400, "{reply:?}");
        reply.body.replace(path, "PATH")
    };
    // The answer does not tell whether a file of root exists.
    assert_eq!(said("/etc/shadow"), said("/etc/shadow-of-nothing"));
}

#[test]
fn other_users_do_not_see_the_names_of_damaged_files() {
    let Some((lab, other)) = arrange() else { return };
    lab.damages();
    let secret = crate::lab::noise(4 << 20, 7);
    std::fs::write(lab.mount("tank").join("secret-plan"), &secret).unwrap();
    lab.pool(&["export", "tank"]);
    let image = lab.path("tank.img");
    let mut bytes = std::fs::read(&image).unwrap();
    let at = bytes.windows(64).position(|window| window == &secret[1 << 20..][..64]).unwrap();
    bytes[at..at + 64].fill(0);
    std::fs::write(&image, bytes).unwrap();
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    lab.run("pool", &["scrub", "-w", "tank"]);
    let server = Server::start(&lab);
    let owner = server.sign_in(&token(&lab, &[]));
    let session = server.sign_in(other.sh("pool web token").ok().trim());
    crate::lab::wait_until("the owner sees the name", || {
        server.page(&owner, "/pool/tank").body.contains("secret-plan")
    });
    let page = server.page(&session, "/pool/tank").body;
    assert!(page.contains("damaged files") && !page.contains("secret-plan"), "{page}");
}

#[test]
fn silent_callers_do_not_keep_the_owner_from_a_token() {
    let Some((lab, other)) = arrange() else { return };
    if !other.has_perl() {
        return;
    }
    let _server = Server::start(&lab);
    let script = format!(
        "perl -MIO::Socket::UNIX -e '$| = 1; @s = map {{ IO::Socket::UNIX->new(Peer => \"{}\") }} 1..60; \
         print \"open\\n\"; sleep 60'",
        lab.at("run/web/door")
    );
    let _silent = other.start(&script);
    let begun = std::time::Instant::now();
    token(&lab, &[]);
    assert!(begun.elapsed() < std::time::Duration::from_secs(2), "{:?}", begun.elapsed());
}
