//! Single commands on the results of other commands: streams in one file, names with spaces, file names that are not
//! text, internal lines of the history.

use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt, path::Path};

use crate::{furnished, lab::Lab};

/// Streams of `tank/home`: a full stream of `monday`, and the increment up to `tuesday`.
fn streams(lab: &Lab) -> (Vec<u8>, Vec<u8>) {
    lab.fs(&["snapshot", "tank/home@tuesday"]);
    let full = lab.fs_bytes(&["send", "tank/home@monday"]);
    (full, lab.fs_bytes(&["send", "-i", "@monday", "tank/home@tuesday"]))
}

fn snapshots(lab: &Lab, of: &str) -> String {
    lab.fs(&["list", "-H", "-t", "snapshot", "-o", "name", "-r", of])
}

#[test]
fn a_file_with_several_streams_is_received_to_its_end() {
    let lab = furnished();
    let (full, more) = streams(&lab);
    let both = [full, more].concat();
    let said = lab.feed("fs", &["receive", "-nv", "tank/copy"], &both).ok();
    assert_eq!(said.lines().count(), 2, "{said}");
    lab.feed("fs", &["receive", "tank/copy"], &both).ok();
    assert_eq!(snapshots(&lab, "tank/copy"), "tank/copy@monday\ntank/copy@tuesday\n");
    let said = lab.feed("fs", &["receive", "tank/other"], &[&both[..], b"garbage"].concat()).fails(1);
    for part in ["is not a Cenote stream", "already received, and kept: tank/other@monday, tank/other@tuesday"] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(snapshots(&lab, "tank/other"), "tank/other@monday\ntank/other@tuesday\n");
    lab.check("tank");
}

#[test]
fn a_stream_of_openzfs_is_recognised_and_its_increment_applies() {
    let stream = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/zfs").join(format!("{name}.zst"));
        zstd::stream::decode_all(fs::File::open(path).unwrap()).unwrap()
    };
    let lab = furnished();
    let said = lab.feed("fs", &["receive", "-nv", "tank/copy"], &stream("std-full-s1")).ok();
    assert_eq!(said, "would receive full stream of tank/std@s1 into tank/copy@s1\n");
    lab.feed("fs", &["receive", "tank/copy"], &stream("std-full-s1")).ok();
    lab.feed("fs", &["receive", "tank/copy"], &stream("std-I-p-s1-s3")).ok();
    assert_eq!(snapshots(&lab, "tank/copy"), "tank/copy@s1\ntank/copy@s2\ntank/copy@s3\n");
    let said = lab.feed("fs", &["receive", "tank/more"], &stream("zvol-full")).fails(1);
    assert!(said.contains("it is a volume"), "{said}");
    lab.check("tank");
}

#[test]
fn a_property_is_not_both_given_and_left_out() {
    let lab = furnished();
    let (full, more) = streams(&lab);
    let said = lab.feed("fs", &["receive", "-o", "atime=off", "-x", "atime", "tank/copy"], &full).fails(1);
    assert!(said.contains("property 'atime' is given to both -o and -x"), "{said}");
    let said = lab.feed("fs", &["receive", "-o", "origin=tank/home@no", "tank/copy"], &more).fails(1);
    assert!(said.contains("does not exist"), "{said}");
    lab.feed("fs", &["receive", "-o", "origin=tank/home@monday", "tank/copy"], &more).ok();
    assert_eq!(lab.fs(&["get", "-H", "-o", "value", "origin", "tank/copy"]), "tank/home@monday\n");
    lab.check("tank");
}

#[test]
fn names_with_spaces_are_names_everywhere() {
    let lab = furnished();
    lab.fs(&["create", "tank/my files"]);
    lab.fs(&["cp", "text", "tank/my files:/a file"]);
    lab.fs(&["snapshot", "tank/my files@before lunch"]);
    lab.fs(&["bookmark", "tank/my files@before lunch", "tank/my files#at noon"]);
    lab.fs(&["set", "atime=off", "tank/my files"]);
    assert_eq!(lab.fs(&["ls", "tank/my files@before lunch:/"]), "a file\n");
    let stream = lab.fs_bytes(&["send", "-p", "tank/my files@before lunch"]);
    lab.feed("fs", &["receive", "tank/their files"], &stream).ok();
    lab.feed("fs", &["receive", "-d", "tank/home"], &stream).ok();
    lab.fs(&["rename", "tank/their files@before lunch", "@after lunch"]);
    let all = lab.fs(&["list", "-H", "-t", "all", "-o", "name", "-r", "tank"]);
    for name in ["tank/home/my files@before lunch", "tank/their files@after lunch", "tank/my files#at noon"] {
        assert!(all.lines().any(|line| line == name), "{all}");
    }
    lab.fs(&["destroy", "tank/my files@before lunch,no such%"]);
    for (name, said) in [("tank/ a", "spaces are only allowed inside"), ("tank/a ", "spaces are only allowed inside")] {
        assert!(lab.run("fs", &["create", name]).fails(1).contains(said));
    }
    assert!(lab.run("pool", &["create", "my tank", "64M:x.img"]).fails(1).contains("spaces are only allowed inside"));
    assert_eq!(lab.pool(&["get", "-H", "-o", "value", "feature@spaces_in_names", "tank"]), "active\n");
    lab.check("tank");
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    assert_eq!(lab.fs(&["get", "-H", "-o", "value", "atime", "tank/their files"]), "off\n");
}

#[test]
fn json_distinguishes_two_names_that_are_no_text() {
    let lab = furnished();
    fs::create_dir(lab.path("odd")).unwrap();
    for name in [&b"x\xfe"[..], b"x\xff", b"x\x1b[2J"] {
        fs::write(lab.path("odd").join(OsStr::from_bytes(name)), name).unwrap();
    }
    lab.fs(&["cp", "-r", "odd", "tank/home:/odd"]);
    let json = |words: &[&str]| serde_json::from_str::<serde_json::Value>(&lab.fs(words)).unwrap();
    let listed = json(&["ls", "-j", "tank/home:/odd"]);
    let entries = listed["files"]["tank/home:/odd"].as_array().unwrap();
    let bytes: Vec<_> = entries.iter().map(|entry| entry["name_bytes"].as_str()).collect();
    assert_eq!(bytes.iter().flatten().collect::<Vec<_>>(), [&"eP4=", &"eP8="], "{listed}");
    assert!(entries.iter().all(|entry| entry["name"].as_str().unwrap().starts_with('x')));
    let attributes = json(&["getattr", "-r", "-j", "tank/home:/odd"]);
    assert_eq!(attributes["files"].as_object().unwrap().len(), 4, "{attributes}");
    let changes = json(&["diff", "-j", "tank/home@monday"]);
    let paths = changes["changes"].as_array().unwrap().iter().filter(|change| change["path_bytes"].is_string());
    assert_eq!(paths.count(), 2, "{changes}");
    let said = lab.run("fs", &["cat", "tank/home:/odd/x\x1b[2Jno"]).fails(1);
    assert!(said.contains(r"\033[2J") && !said.contains('\x1b'), "{said:?}");
}

#[test]
fn the_history_shows_internal_lines_on_request() {
    let lab = furnished();
    lab.fs(&["rollback", "tank/home@monday"]);
    lab.fs(&["destroy", "-r", "tank/home"]);
    let (plain, all) = (lab.pool(&["history", "tank"]), lab.pool(&["history", "-i", "tank"]));
    assert!(!plain.contains("[internal]"), "{plain}");
    for what in [
        "create tank/home",
        "snapshot tank/home@monday",
        "rollback to tank/home@monday",
        "destroy tank/home and 1 more",
    ] {
        let is_recorded = |line: &str| line.contains("[internal] [txg:") && line.ends_with(&format!("] {what}"));
        assert!(all.lines().any(is_recorded), "{what}: {all}");
    }
    lab.check("tank");
}

#[test]
fn everything_in_a_pool_is_destroyed_and_the_pool_stays() {
    let lab = furnished();
    lab.fs(&["snapshot", "tank@x"]);
    let said = lab.run("fs", &["destroy", "tank"]).fails(1);
    assert!(said.contains("fs destroy -r") && said.contains("pool destroy"), "{said}");
    lab.fs(&["destroy", "-r", "tank"]);
    assert_eq!(lab.fs(&["list", "-H", "-t", "all", "-o", "name"]), "tank\n");
    lab.check("tank");
}

#[test]
fn a_question_mark_asks_for_help() {
    let lab = Lab::mountless();
    for (program, words, said) in [
        ("fs", &["-?"][..], "Usage: fs"),
        ("pool", &["-?"][..], "Usage: pool"),
        ("fs", &["send", "-?"][..], "Usage: fs send"),
        ("pool", &["create", "-?"][..], "Usage: pool create"),
    ] {
        assert!(lab.run(program, words).ok().contains(said), "{words:?}");
    }
    assert_eq!(lab.run("fs", &["cat", "--", "-?"]).code, Some(1));
}

#[test]
fn another_pool_of_a_known_name_is_imported_under_a_new_name() {
    let lab = Lab::mountless();
    for folder in ["here", "there"] {
        fs::create_dir(lab.path(folder)).unwrap();
    }
    lab.pool(&["create", "-m", "none", "small", "64M:there/small.img"]);
    lab.pool(&["export", "small"]);
    lab.pool(&["create", "-m", "none", "small", "64M:here/small.img"]);
    lab.pool(&["import", "-d", "there", "small", "other"]);
    assert_eq!(lab.pool(&["list", "-H", "-o", "name"]), "other\nsmall\n");
    assert!(lab.pool(&["status", "-P", "other"]).contains("there/small.img"));
}

#[test]
fn an_import_from_single_devices_opens_no_others() {
    let lab = Lab::mountless();
    lab.pool(&["create", "-m", "none", "tank", "mirror", "64M:a.img", "64M:b.img"]);
    lab.pool(&["export", "tank"]);
    lab.pool(&["import", "-d", "a.img", "tank"]);
    let status = lab.pool(&["status", "tank"]);
    assert!(status.contains("state: DEGRADED"), "{status}");
    lab.pool(&["export", "tank"]);
    lab.pool(&["import", "-d", ".", "tank"]);
    lab.pool(&["wait", "tank"]);
    let status = lab.pool(&["status", "tank"]);
    assert!(status.contains("state: ONLINE"), "{status}");
    lab.check("tank");
}

#[test]
fn an_export_that_fails_says_so_in_the_words_of_openzfs() {
    let lab = Lab::mountless();
    lab.pool(&["create", "-m", "none", "tank", "64M:tank.img"]);
    fs::rename(lab.path("tank.img"), lab.path("away.img")).unwrap();
    let refused = lab.run("pool", &["export", "tank"]).fails(1);
    assert!(refused.starts_with("pool: cannot export 'tank': "), "{refused}");
    assert!(refused.contains("pool import -d DIR tank"), "{refused}");
    fs::rename(lab.path("away.img"), lab.path("tank.img")).unwrap();
}
