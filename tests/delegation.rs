//! Permissions that `fs allow` gives to another user of the machine, through the real programs and the service's socket.
//!
//! Root runs these tests, and becomes the other user. If that is impossible, the tests are skipped; with
//! `CENOTE_REQUIRE_USERS` they fail.

mod lab;

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
};

use protocol::version::VERSION;

use lab::{
    Lab, can_mount,
    stranger::{Stranger, UID},
};

/// A pool with `tank/home` and `tank/other`, and the other user.
fn arrange() -> Option<(Lab, Stranger)> {
    if !can_mount() {
        return None;
    }
    let lab = Lab::new();
    let other = Stranger::of(&lab)?;
    lab.create("tank", "128M");
    lab.fs(&["create", "tank/home"]);
    lab.fs(&["create", "tank/other"]);
    Some((lab, other))
}

/// Runs `fs allow` as root, for the other user.
fn allow(lab: &Lab, permissions: &str, name: &str) {
    lab.fs(&["allow", &UID.to_string(), permissions, name]);
}

#[track_caller]
fn refused(other: &Stranger, script: &str) -> String {
    let said = other.sh(&format!("{script} 2>&1 >/dev/null")).text();
    assert!(said.contains("permission denied"), "{script}: {said}");
    said
}

#[test]
fn each_request_needs_its_own_permission_where_it_acts() {
    let Some((lab, other)) = arrange() else { return };
    lab.fs(&["snapshot", "tank/home@a"]);
    lab.fs(&["clone", "tank/home@a", "tank/clone"]);
    lab.fs(&["snapshot", "tank/clone@c"]);
    lab.fs(&["create", "tank/home/old"]);
    // Each command with the permissions it needs, and the dataset on which root gives them.
    let table: &[(&str, &[(&str, &str)])] = &[
        ("fs create tank/home/new", &[("create,mount", "tank/home")]),
        ("fs create -o compression=off tank/home/plain", &[("create,mount,compression", "tank/home")]),
        ("fs set compression=off tank/home", &[("compression", "tank/home")]),
        ("fs set me:note=x tank/home", &[("userprop", "tank/home")]),
        ("fs inherit compression tank/home", &[("compression", "tank/home")]),
        ("fs set userquota@0=10M tank/home", &[("userquota", "tank/home")]),
        ("fs userspace tank/home", &[("userused,userquota", "tank/home")]),
        ("fs snapshot tank/home@b", &[("snapshot", "tank/home")]),
        ("fs snapshot -r tank/home@r", &[("snapshot", "tank/home")]),
        ("fs hold keep tank/home@a", &[("hold", "tank/home")]),
        ("fs holds tank/home@a", &[("hold", "tank/home")]),
        ("fs release keep tank/home@a", &[("release", "tank/home")]),
        ("fs bookmark tank/home@a tank/home#a", &[("bookmark", "tank/home")]),
        ("fs destroy tank/home#a", &[("destroy", "tank/home")]),
        ("fs diff tank/home@a tank/home", &[("diff", "tank/home")]),
        ("fs send tank/home@a", &[("send", "tank/home")]),
        ("fs rename tank/home@b tank/home@d", &[("rename,mount,create", "tank/home")]),
        ("fs rename tank/home/old tank/other/old", &[("rename,mount", "tank/home"), ("create,mount", "tank/other")]),
        ("fs rollback tank/clone@c", &[("rollback", "tank/clone")]),
        ("fs clone tank/home@a tank/other/clone", &[("clone", "tank/home"), ("create,mount", "tank/other")]),
        ("fs promote tank/clone", &[("promote,mount", "tank/clone"), ("promote", "tank/home")]),
        ("fs destroy tank/home@r", &[("destroy,mount", "tank/home")]),
        ("fs destroy -r tank/home/new", &[("destroy,mount", "tank/home")]),
    ];
    let me = UID.to_string();
    for (script, needs) in table {
        for given in 0..needs.len() {
            let said = refused(&other, script);
            assert!(said.contains(&format!("fs allow {me} ")), "{script}: {said}");
            let (permissions, name) = needs[given];
            // Every permission but the last one is not enough.
            if let Some((most, _)) = permissions.rsplit_once(',') {
                lab.fs(&["allow", &me, most, name]);
                refused(&other, script);
            }
            lab.fs(&["allow", &me, permissions, name]);
        }
        other.sh(&format!("{script} > /dev/null")).ok();
        needs.iter().for_each(|(_, name)| _ = lab.fs(&["unallow", &me, name]));
    }
    assert_eq!(lab.fs(&["allow", "tank/home"]), "");
    // New file systems belong to their creator, and only root mounts them.
    assert_eq!(lab.fs(&["get", "-H", "-o", "value", "mounted", "tank/home/plain"]), "no\n");
    lab.fs(&["mount", "tank/home/plain"]);
    let path = lab.fs(&["get", "-H", "-o", "value", "mountpoint", "tank/home/plain"]);
    assert_eq!(fs::metadata(path.trim()).unwrap().uid(), UID);
    let history = lab.pool(&["history", "-l", "tank"]);
    let line = history.lines().find(|line| line.contains("fs hold keep")).unwrap();
    assert!(line.contains(&me), "{line}");
}

#[test]
fn a_permission_counts_where_it_reaches() {
    let Some((lab, other)) = arrange() else { return };
    let me = UID.to_string();
    lab.fs(&["create", "tank/home/below"]);
    lab.fs(&["allow", "-l", &me, "compression", "tank/home"]);
    lab.fs(&["allow", "-d", &me, "atime", "tank/home"]);
    other.sh("fs set compression=off tank/home").ok();
    refused(&other, "fs set compression=off tank/home/below");
    other.sh("fs set atime=off tank/home/below").ok();
    refused(&other, "fs set atime=off tank/home");
    refused(&other, "fs set compression=off tank");
    lab.fs(&["allow", "-l", &me, "destroy,mount", "tank/home"]);
    refused(&other, "fs destroy -r tank/home");
    lab.fs(&["unallow", &me, "destroy,mount", "tank/home"]);
    // Only a parent with the permission for itself gets a new dataset, also from a stream.
    lab.fs(&["snapshot", "tank/other@a"]);
    lab.fs(&["allow", &me, "send", "tank/other"]);
    lab.fs(&["allow", "-d", &me, "receive,create,mount", "tank/home"]);
    refused(&other, "fs send tank/other@a | fs receive -d tank/home/new");
    other.sh("fs send tank/other@a | fs receive -d tank/home/below").ok();
    lab.fs(&["unallow", &me, "receive,create,mount", "tank/home"]);
    // Sets are found above the dataset where they are given, and within sets; groups and all users count too.
    lab.fs(&["allow", "-s", "@inner", "exec", "tank"]);
    lab.fs(&["allow", "-s", "@outer", "@inner,readonly", "tank"]);
    lab.fs(&["allow", "-g", &me, "@outer", "tank/home"]);
    lab.fs(&["allow", "-e", "snapshot", "tank/home"]);
    other.sh("fs set exec=off tank/home; fs set readonly=off tank/home/below; fs snapshot tank/home@s").ok();
    lab.fs(&["allow", "-s", "@outer", "devices", "tank/home"]);
    refused(&other, "fs set exec=off tank/home");
    let shown = lab.fs(&["allow", "tank/home"]);
    assert_eq!(other.sh("fs allow tank/home").ok(), shown, "all users see the permissions");
    let expected = format!(
        "---- Permissions on tank/home ----------------------------------------\n\
         Permission sets:\n\t@outer devices\n\
         Local permissions:\n\tuser (unknown: {me}) compression\n\
         Descendent permissions:\n\tuser (unknown: {me}) atime\n\
         Local+Descendent permissions:\n\tgroup (unknown: {me}) @outer\n\teveryone snapshot\n\
         ---- Permissions on tank ---------------------------------------------\n\
         Permission sets:\n\t@inner exec\n\t@outer @inner,readonly\n"
    );
    assert_eq!(shown, expected);
    // Grants follow a rename, are no properties, and go with the dataset.
    assert!(!lab.fs(&["get", "all", "tank/home"]).contains("allow"));
    lab.fs(&["rename", "tank/home", "tank/house"]);
    assert!(lab.fs(&["allow", "tank/house"]).contains("compression"));
    lab.pool(&["export", "tank"]);
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    other.sh("fs set compression=on tank/house").ok();
    lab.fs(&["destroy", "-r", "tank/house"]);
    lab.fs(&["create", "tank/house"]);
    refused(&other, "fs set compression=off tank/house");
}

#[test]
fn creators_get_the_permissions_of_creation() {
    let Some((lab, other)) = arrange() else { return };
    allow(&lab, "create,mount", "tank/home");
    lab.fs(&["allow", "-c", "destroy,mount,quota,@later", "tank"]);
    lab.fs(&["create", "tank/home/of-root"]);
    refused(&other, "fs create -o atime=off tank/home/mine");
    other.sh("fs create -p -o quota=1G tank/home/mine/deep").ok();
    let shown = other.sh("fs allow tank/home/mine").ok();
    assert!(
        shown.contains(&format!("Local permissions:\n\tuser (unknown: {UID}) @later,destroy,mount,quota\n")),
        "{shown}"
    );
    refused(&other, "fs destroy tank/home/of-root");
    other.sh("fs destroy tank/home/mine/deep; fs destroy tank/home/mine").ok();
}

#[test]
fn permissions_are_given_on_by_users_who_have_them() {
    let Some((lab, other)) = arrange() else { return };
    let me = UID.to_string();
    refused(&other, "fs allow -e snapshot tank/home");
    lab.fs(&["allow", "-l", &me, "allow,snapshot", "tank/home"]);
    refused(&other, "fs allow -e snapshot tank/home");
    other.sh("fs allow -l -e snapshot tank/home").ok();
    for script in [
        "fs allow -l -e destroy tank/home",
        "fs allow -l -e allow tank/home",
        "fs allow -l -e @set tank/home",
        "fs allow -s @set snapshot tank/home",
        "fs allow -c snapshot tank/home",
        "fs unallow -e tank/home",
        "fs unallow root tank/home",
    ] {
        refused(&other, script);
    }
    other.sh(&format!("fs unallow {me} snapshot tank/home")).ok();
    assert!(lab.run("fs", &["allow", "ann-of-nowhere", "create", "tank"]).fails(1).contains("no such user or group"));
    assert!(lab.run("fs", &["allow", "root", "fly", "tank"]).fails(1).contains("invalid permission 'fly'"));
    lab.fs(&["unallow", "-r", &me, "tank"]);
    refused(&other, "fs allow -l -e snapshot tank/home");
}

#[test]
fn a_user_sends_and_receives_what_is_delegated() {
    let Some((lab, other)) = arrange() else { return };
    let home = lab.fs(&["get", "-H", "-o", "value", "mountpoint", "tank/home"]);
    fs::write(format!("{}/file", home.trim()), vec![7; 3 << 20]).unwrap();
    lab.fs(&["set", "exec=off", "tank/home"]);
    lab.fs(&["set", "me:note=x", "tank/home"]);
    lab.fs(&["snapshot", "tank/home@a"]);
    allow(&lab, "send", "tank/home");
    refused(&other, "fs send tank/home@a | fs receive tank/other/copy");
    allow(&lab, "receive,create,mount,userprop", "tank/other");
    other.sh("fs send -p tank/home@a | fs receive tank/other/copy").ok();
    // Of the properties in a stream, those count that the user may set.
    assert_eq!(lab.fs(&["get", "-H", "-o", "value", "exec,me:note", "tank/other/copy"]), "on\nx\n");
    // Through files, which this user's programs read and write.
    let folder = lab.path("folder");
    fs::create_dir(&folder).unwrap();
    chown(&folder, Some(UID), Some(UID)).unwrap();
    let file = lab.at("folder/stream");
    other.sh(&format!("fs send tank/home@a > {file}; fs receive tank/other/second < {file}")).ok();
    assert!(fs::metadata(&file).unwrap().len() > 3000);
    lab.fs(&["mount", "tank/other/second"]);
    let second = lab.fs(&["get", "-H", "-o", "value", "mountpoint", "tank/other/second"]);
    assert_eq!(fs::read(format!("{}/file", second.trim())).unwrap(), vec![7; 3 << 20]);
    // Holds of a stream need a permission of their own.
    lab.fs(&["hold", "keep", "tank/home@a"]);
    let held = lab.at("folder/held");
    fs::write(&held, lab.fs_bytes(&["send", "-h", "tank/home@a"])).unwrap();
    let without = other.sh(&format!("fs receive tank/other/without 2>&1 < {held}")).text();
    let wanted =
        "tank/other/without@a: 1 hold of the stream is left out, because this user lacks the permission 'hold'\n";
    assert_eq!(without, wanted);
    assert_eq!(other.sh(&format!("fs receive -h tank/other/skipped 2>&1 < {held}")).text(), "");
    allow(&lab, "hold", "tank/other");
    assert_eq!(other.sh(&format!("fs receive tank/other/with 2>&1 < {held}")).text(), "");
    for (copy, tags) in [("without", ""), ("skipped", ""), ("with", "keep")] {
        let holds = lab.fs(&["holds", "-H", &format!("tank/other/{copy}@a")]);
        assert_eq!(holds.split('\t').nth(1).unwrap_or_default(), tags, "{copy}");
    }
    lab.fs(&["unallow", &UID.to_string(), "hold", "tank/other"]);
    lab.fs(&["release", "keep", "tank/home@a"]);
    lab.fs(&["release", "keep", "tank/other/with@a"]);
    for copy in ["without", "skipped", "with"] {
        lab.fs(&["destroy", "-r", &format!("tank/other/{copy}")]);
    }
    // -F destroys; a clone shows the origin's files, also if the stream alone names the origin.
    refused(&other, &format!("fs receive -F tank/other/second < {file}"));
    lab.fs(&["clone", "tank/home@a", "tank/clone"]);
    lab.fs(&["snapshot", "tank/clone@b"]);
    let clone = lab.at("folder/clone");
    fs::write(&clone, lab.fs_bytes(&["send", "-i", "tank/home@a", "tank/clone@b"])).unwrap();
    refused(&other, &format!("fs receive -o origin=tank/home@a tank/other/third < {clone}"));
    lab.fs(&["destroy", "-r", "tank/other/copy"]);
    lab.fs(&["destroy", "-r", "tank/other/second"]);
    let said = refused(&other, &format!("fs receive tank/other/third < {clone}"));
    assert!(said.contains(&format!("fs allow {UID} clone tank/home")), "{said}");
    allow(&lab, "clone", "tank/home");
    other.sh(&format!("fs receive tank/other/third < {clone}")).ok();
}

/// Root mounts what a user receives, and a stream brings files of any owner: a set-uid program would make the user root.
#[test]
fn files_that_a_user_brings_have_no_powers() {
    let Some((lab, other)) = arrange() else { return };
    let value = |properties: &str, name: &str| lab.fs(&["get", "-H", "-o", "value", properties, name]);
    let home = value("mountpoint", "tank/home");
    lab.fs(&["snapshot", "tank/home@a"]);
    let program = format!("{}/shell", home.trim());
    fs::write(&program, "#!/bin/sh").unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o4755)).unwrap();
    lab.fs(&["snapshot", "tank/home@b"]);
    let (full, next) = (lab.at("full"), lab.at("next"));
    fs::write(&full, lab.fs_bytes(&["send", "tank/home@a"])).unwrap();
    fs::write(&next, lab.fs_bytes(&["send", "-i", "@a", "tank/home@b"])).unwrap();
    // Into a file system that root has mounted.
    lab.feed("fs", &["receive", "tank/other/live"], &fs::read(&full).unwrap()).ok();
    allow(&lab, "receive,create,mount,rename,clone", "tank/other");
    let said = other.sh(&format!("fs receive tank/other/live < {next} 2>&1")).text();
    assert!(said.contains("set-uid programs") && said.contains("setuid,devices"), "{said}");
    assert!(!fs::exists(format!("{}/shell", value("mountpoint", "tank/other/live").trim())).unwrap());
    // A new file system, and its next state.
    other.sh(&format!("fs receive tank/other/new < {full} && fs receive tank/other/new < {next}")).ok();
    assert_eq!(value("setuid,devices", "tank/other/new"), "off\noff\n");
    // Where a parent holds the powers back, neither a rename nor a clone gives them.
    lab.fs(&["create", "-o", "setuid=off", "-o", "devices=off", "tank/jail"]);
    allow(&lab, "receive,create,mount,rename,clone", "tank/jail");
    other.sh(&format!("fs receive tank/jail/one < {full} && fs receive tank/jail/one < {next}")).ok();
    assert_eq!(lab.fs(&["get", "-H", "-o", "source", "setuid", "tank/jail/one"]), "inherited from tank/jail\n");
    other.sh("fs clone tank/jail/one@b tank/other/clone && fs rename tank/jail/one tank/other/one").ok();
    assert_eq!(value("setuid,devices", "tank/other/clone"), "off\noff\n");
    assert_eq!(value("setuid,devices", "tank/other/one"), "off\noff\n");
    // The user who may set the properties gives the powers; a clone of root's files keeps them.
    allow(&lab, "setuid,devices", "tank/other");
    other.sh(&format!("fs receive tank/other/live < {next}")).ok();
    lab.fs(&["unallow", &UID.to_string(), "setuid,devices", "tank/other"]);
    other.sh("fs clone tank/other/live@b tank/other/kept").ok();
    assert_eq!(value("setuid,devices", "tank/other/kept"), "on\non\n");
}

#[test]
fn numbers_about_the_files_of_others_are_not_for_everybody() {
    let Some((lab, other)) = arrange() else { return };
    let home = lab.fs(&["get", "-H", "-o", "value", "mountpoint", "tank/home"]);
    for (name, user) in [("root", 0), ("other", UID)] {
        let path = format!("{}/{name}", home.trim());
        fs::write(&path, "some bytes").unwrap();
        chown(&path, Some(user), Some(user)).unwrap();
    }
    let values = |script: &str| other.sh(script).ok();
    let get = format!("fs get -Hp -o value userused@0,userused@{UID},groupused@{UID} tank/home");
    assert_eq!(values(&get), "-\n10\n10\n");
    allow(&lab, "userused", "tank/home");
    assert_ne!(values("fs get -Hp -o value userused@0 tank/home"), "-\n");
}

/// A service writes to no other file than a pipe for another user. Without the program, which would make a pipe.
#[test]
fn a_stream_of_another_user_is_a_pipe() {
    let Some((lab, other)) = arrange() else { return };
    if !other.has_perl() {
        return;
    }
    lab.fs(&["snapshot", "tank/home@a"]);
    let call = format!(
        r#"{{"version":{VERSION},"call":{{"command":"x","request":{{"Stream":{{"Send":{{"what":{{"snapshot":"tank/home@a","base":null,"intermediates":false,"replicate":false,"skip_missing":false,"properties":false,"backup":false,"exclude":[],"holds":false,"size":null,"resume":null,"format":"Cenote","limit":null}},"dry_run":false}}}}}}}}}}"#
    );
    // Perl sends the byte without a descriptor.
    let script = format!(
        "perl -MIO::Socket::UNIX -e 'my $s = IO::Socket::UNIX->new(Peer => \"{}\") or die; my $c = q({call}); \
         print $s pack(\"V\", length $c), $c; $s->flush; read $s, my $h, 4; read $s, my $r, unpack(\"V\", $h); print $r; \
         print $s \"x\" if $r =~ /Stream/; $s->flush; local $/; print <$s>'",
        lab.at("run/tank.sock")
    );
    let said = other.sh(&script).ok();
    assert!(said.contains("permission denied") && !said.contains("Stream"), "no stream is asked for: {said}");
    allow(&lab, "send", "tank/home");
    let said = other.sh(&script).ok();
    assert!(said.contains("Stream") && said.contains("must be a pipe"), "{said}");
}
