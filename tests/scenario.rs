//! Users' workflows, through the real programs and, where possible, a real mount.

mod lab;

use std::{
    fs::{self, File},
    io::{ErrorKind, Write},
    os::unix::fs::MetadataExt,
    process::{Command, Stdio},
};

use lab::{Lab, assert_same, can_mount, noise, plant};

/// Copies a tree with all metadata.
fn copy(from: &std::path::Path, to: &std::path::Path) {
    let status = Command::new("cp").arg("-a").arg(format!("{}/.", from.display())).arg(to).status().unwrap();
    assert!(status.success());
}

#[test]
fn a_day_with_a_mounted_pool() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new();
    lab.create("tank", "1G");
    lab.fs(&["create", "-o", "compression=zstd-3", "tank/home"]);
    let (home, planted) = (lab.mount("tank/home"), lab.path("planted"));
    fs::create_dir(&planted).unwrap();
    plant(&planted);
    copy(&planted, &home);
    assert_same(&planted, &home);

    lab.fs(&["snapshot", "tank/home@one"]);
    fs::remove_dir_all(home.join("dir-1")).unwrap();
    fs::write(home.join("dir-2/file-2"), "changed").unwrap();
    assert_same(&planted, &home.join(".zfs/snapshot/one"));
    lab.fs(&["rollback", "tank/home@one"]);
    assert_same(&planted, &home);

    lab.fs(&["clone", "tank/home@one", "tank/clone"]);
    fs::write(lab.mount("tank/clone").join("new"), "only here").unwrap();
    assert!(!home.join("new").exists());
    lab.fs(&["promote", "tank/clone"]);
    assert_eq!(lab.fs(&["get", "-H", "-o", "value", "origin", "tank/home"]).trim(), "tank/clone@one");

    lab.check("tank");
    assert_same(&planted, &home);
    assert_eq!(fs::read_to_string(lab.mount("tank/clone").join("new")).unwrap(), "only here");
    lab.pool(&["destroy", "-f", "tank"]);
    assert!(lab.service("tank").is_none());
}

#[test]
fn streams_carry_everything_to_another_pool() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new();
    lab.create("tank", "1G");
    lab.create("vault", "1G");
    // Reading a copy must not count as a change.
    lab.fs(&["set", "atime=off", "vault"]);
    lab.fs(&["create", "tank/home"]);
    let (home, planted) = (lab.mount("tank/home"), lab.path("planted"));
    fs::create_dir(&planted).unwrap();
    plant(&planted);
    copy(&planted, &home);
    lab.fs(&["snapshot", "tank/home@one"]);
    let full = lab.run("fs", &["send", "tank/home@one"]);
    assert_eq!(full.code, Some(0), "{}", full.stderr);
    lab.feed("fs", &["receive", "vault/copy"], &full.stdout).ok();
    assert_same(&planted, &lab.mount("vault/copy"));

    fs::write(home.join("dir-0/added"), "later").unwrap();
    fs::remove_file(home.join("dir-4/file-4")).unwrap();
    lab.fs(&["snapshot", "tank/home@two"]);
    let increment = lab.run("fs", &["send", "-i", "one", "tank/home@two"]);
    assert!(increment.stdout.len() < full.stdout.len() / 2, "{} of {}", increment.stdout.len(), full.stdout.len());

    // Damaged, truncated and repeated streams change nothing.
    let mut flipped = increment.stdout.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0x40;
    lab.feed("fs", &["receive", "vault/copy"], &flipped).fails(1);
    lab.feed("fs", &["receive", "vault/copy"], &increment.stdout[..increment.stdout.len() - 60]).fails(1);
    lab.feed("fs", &["receive", "vault/copy"], &full.stdout).fails(1);
    lab.feed("fs", &["receive", "vault/other"], b"no stream at all").fails(1);
    assert_same(&planted, &lab.mount("vault/copy"));
    assert_eq!(
        lab.fs(&["list", "-H", "-r", "-t", "all", "-o", "name", "vault"]),
        "vault\nvault/copy\nvault/copy@one\n"
    );

    lab.feed("fs", &["receive", "vault/copy"], &increment.stdout).ok();
    assert_same(&home, &lab.mount("vault/copy"));
    lab.check("vault");
    assert_same(&home, &lab.mount("vault/copy"));
}

/// The token of the interrupted receive into a dataset.
fn token(lab: &Lab, dataset: &str) -> String {
    lab.fs(&["get", "-H", "-o", "value", "receive_resume_token", dataset]).trim().to_owned()
}

#[test]
fn an_interrupted_receive_is_resumed_after_anything() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new();
    lab.create("tank", "512M");
    lab.create("vault", "512M");
    lab.fs(&["create", "tank/home"]);
    let home = lab.mount("tank/home");
    for file in 0..40 {
        fs::write(home.join(format!("file-{file}")), noise(1 << 20, file + 1)).unwrap();
    }
    lab.fs(&["snapshot", "tank/home@one"]);
    let full = lab.fs_bytes(&["send", "tank/home@one"]);

    // The pipe is cut.
    let cut = lab.feed("fs", &["receive", "-s", "vault/copy"], &full[..full.len() / 4]).fails(1);
    assert!(cut.contains("fs send -t"), "{cut}");
    let first = token(&lab, "vault/copy");
    let words = lab.fs(&["stream", "token", &first]);
    assert!(words.contains("tank/home@one") && words.contains("full stream"), "{words}");
    let planned = lab.fs(&["send", "-n", "-v", "-t", &first]);
    assert!(
        planned.starts_with("resume token contents:\n") && planned.contains("\ttoname = tank/home@one\n"),
        "{planned}"
    );
    assert_eq!(lab.fs(&["get", "-H", "-o", "value", "mounted", "vault/copy"]).trim(), "no");
    let refused = lab.feed("fs", &["receive", "vault/copy"], &full).fails(1);
    assert!(refused.contains("contains partially-complete state") && refused.contains("fs receive -A vault/copy"));
    lab.run("fs", &["mount", "vault/copy"]).fails(1);
    lab.fs(&["mount", "-a"]);

    // The service is killed in the middle of the rest.
    let rest = lab.fs_bytes(&["send", "-t", &first]);
    assert!(rest.len() < full.len() * 4 / 5, "{} of {}", rest.len(), full.len());
    let mut command = lab.command("fs", &["receive", "-s", "vault/copy"]);
    let mut receive = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut pipe = receive.stdin.take().unwrap();
    pipe.write_all(&rest[..rest.len() * 2 / 3]).unwrap();
    lab.pool(&["sync", "vault"]);
    lab.kill("vault");
    drop(pipe);
    assert!(!receive.wait().unwrap().success());
    lab.pool(&["import", "-d", ".", "vault"]);
    let second = token(&lab, "vault/copy");
    assert_ne!(second, first);
    assert!(lab.fs_bytes(&["send", "-t", &second]).len() < rest.len());

    // The pool is exported, and the rest comes.
    lab.pool(&["export", "vault"]);
    lab.pool(&["import", "-d", ".", "vault"]);
    assert_eq!(token(&lab, "vault/copy"), second);
    assert_eq!(lab.pool(&["get", "-H", "-o", "value", "feature@extensible_dataset", "vault"]).trim(), "active");
    let rest = lab.fs_bytes(&["send", "-t", &second]);
    lab.feed("fs", &["receive", "-s", "vault/copy"], &rest).ok();
    assert_same(&home, &lab.mount("vault/copy"));
    assert_eq!(token(&lab, "vault/copy"), "-");
    lab.feed("fs", &["receive", "vault/late"], &rest).fails(1);

    // An increment is discarded, and then received once more from its file.
    fs::write(home.join("added"), noise(8 << 20, 99)).unwrap();
    lab.fs(&["snapshot", "tank/home@two"]);
    let more = lab.fs_bytes(&["send", "-i", "@one", "tank/home@two"]);
    lab.feed("fs", &["receive", "-s", "vault/copy"], &more[..more.len() / 2]).fails(1);
    lab.fs(&["receive", "-A", "vault/copy"]);
    assert_eq!(token(&lab, "vault/copy"), "-");
    lab.feed("fs", &["receive", "-s", "vault/copy"], &more[..more.len() / 2]).fails(1);
    lab.feed("fs", &["receive", "-s", "-F", "vault/copy"], &more).ok();
    assert_same(&home, &lab.mount("vault/copy"));
    // A stream file that was cut is completed, to the byte.
    let (path, file) = (lab.path("cut"), lab.at("cut"));
    fs::write(&path, &full[..full.len() / 2]).unwrap();
    lab.fs(&["send", "--resume", "tank/home@one", &file]);
    assert!(fs::read(&path).unwrap() == full);
    lab.fs(&["send", "--resume", "tank/home@one", &file]);
    fs::write(&path, &more[..more.len() - 1]).unwrap();
    lab.run("fs", &["send", "--resume", "tank/home@one", &file]).fails(1);
    lab.fs(&["send", "--resume", "tank/home@two", &file]);
    assert!(fs::read(&path).unwrap() == more);
    // What follows a damage may be whole, so a damaged file keeps all of its bytes.
    let mut damaged = more.clone();
    damaged[more.len() / 2] ^= 1;
    fs::write(&path, &damaged).unwrap();
    assert!(lab.run("fs", &["send", "--resume", "tank/home@two", &file]).fails(1).contains("is damaged"));
    assert!(fs::read(&path).unwrap() == damaged);
    for wrong in ["1-0-0-", "nonsense", &second.replace('0', "1")] {
        assert!(lab.run("fs", &["send", "-t", wrong]).fails(1).contains("cannot resume send"), "{wrong}");
        lab.run("fs", &["stream", "token", wrong]).fails(1);
    }
    lab.check("vault");
}

#[test]
fn mounts_follow_a_replication_that_destroys_and_renames() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new();
    lab.create("tank", "256M");
    lab.create("vault", "256M");
    for name in ["tank/a", "tank/a/old", "tank/a/old/below", "tank/a/gone"] {
        lab.fs(&["create", name]);
        fs::write(lab.mount(name).join("name"), name).unwrap();
    }
    lab.fs(&["snapshot", "-r", "tank/a@one"]);
    let send = |words: &[&str]| lab.run("fs", &[&["send", "-R"], words].concat()).stdout;
    lab.feed("fs", &["receive", "vault/a"], &send(&["tank/a@one"])).ok();
    assert_eq!(fs::read_to_string(lab.mount("vault/a/old/below/name")).unwrap(), "tank/a/old/below");
    lab.fs(&["snapshot", "vault/a/old@later"]);

    lab.fs(&["rename", "tank/a/old", "tank/a/new"]);
    lab.fs(&["destroy", "-r", "tank/a/gone"]);
    lab.fs(&["snapshot", "-r", "tank/a@two"]);
    let more = send(&["-i", "@one", "tank/a@two"]);
    // A file system in use is not removed.
    let used = fs::File::open(lab.mount("vault/a/gone/name")).unwrap();
    let refused = lab.feed("fs", &["receive", "-F", "vault/a"], &more).fails(1);
    assert!(refused.contains("vault/a/gone"), "{refused}");
    drop(used);
    lab.feed("fs", &["receive", "-F", "vault/a"], &more).ok();
    let names = "vault/a\nvault/a@one\nvault/a@two\nvault/a/new\nvault/a/new@one\nvault/a/new@two\n\
                 vault/a/new/below\nvault/a/new/below@one\nvault/a/new/below@two\n";
    assert_eq!(lab.fs(&["list", "-H", "-r", "-t", "all", "-o", "name", "vault/a"]), names);
    assert_eq!(fs::read_to_string(lab.mount("vault/a/new/below/name")).unwrap(), "tank/a/old/below");
    for gone in ["vault/a/old", "vault/a/gone"] {
        assert!(!lab.mount(gone).exists(), "{gone}");
    }
    let mounted = lab.fs(&["get", "-H", "-r", "-t", "filesystem", "-o", "value", "mounted", "vault"]);
    assert_eq!(mounted, "yes\n".repeat(4));
    lab.check("vault");
}

#[test]
fn mounts_follow_what_was_moved_out_of_the_way() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new();
    lab.create("tank", "256M");
    lab.create("vault", "256M");
    for name in ["tank/a", "tank/a/gone", "tank/a/gone/kept", "tank/a/gone/kept/below", "tank/a/taken"] {
        lab.fs(&["create", name]);
        fs::write(lab.mount(name).join("name"), name).unwrap();
    }
    lab.fs(&["snapshot", "-r", "tank/a@one"]);
    let send = |words: &[&str]| lab.run("fs", &[&["send", "-R"], words].concat()).stdout;
    lab.feed("fs", &["receive", "vault/a"], &send(&["tank/a@one"])).ok();
    lab.fs(&["rename", "tank/a/gone/kept", "tank/a/kept"]);
    lab.fs(&["destroy", "-r", "tank/a/gone"]);
    lab.fs(&["rename", "tank/a/taken", "tank/a/other"]);
    lab.fs(&["create", "tank/a/taken"]);
    fs::write(lab.mount("tank/a/taken").join("name"), "another").unwrap();
    lab.fs(&["snapshot", "-r", "tank/a@two"]);
    lab.feed("fs", &["receive", "-F", "vault/a"], &send(&["-i", "@one", "tank/a@two"])).ok();
    let names = lab.fs(&["list", "-H", "-r", "-t", "filesystem", "-o", "name,mounted", "vault/a"]);
    let expected = ["vault/a", "vault/a/kept", "vault/a/kept/below", "vault/a/other", "vault/a/taken"];
    assert_eq!(names, expected.map(|name| format!("{name}\tyes\n")).concat());
    assert_eq!(fs::read_to_string(lab.mount("vault/a/taken/name")).unwrap(), "another");
    assert_eq!(fs::read_to_string(lab.mount("vault/a/other/name")).unwrap(), "tank/a/taken");
    assert_eq!(fs::read_to_string(lab.mount("vault/a/kept/below/name")).unwrap(), "tank/a/gone/kept/below");
    assert!(!lab.mount("vault/a/gone").exists());
    lab.check("vault");
}

#[test]
fn everything_works_without_mounts_and_services() {
    let lab = Lab::mountless();
    lab.create("tank", "256M");
    lab.fs(&["create", "tank/home"]);
    let planted = lab.path("planted");
    fs::create_dir(&planted).unwrap();
    plant(&planted);
    lab.fs(&["cp", "-r", &format!("{}/.", planted.display()), "tank/home:/"]);
    lab.fs(&["snapshot", "tank/home@one"]);
    let text = lab.fs(&["cat", "tank/home@one:/dir-1/file-1"]);
    assert_eq!(text, fs::read_to_string(planted.join("dir-1/file-1")).unwrap());
    assert!(lab.fs(&["ls", "tank/home:/"]).contains("dir-3"));
    let back = lab.path("back");
    fs::create_dir(&back).unwrap();
    lab.fs(&["cp", "-r", "tank/home@one:/.", &back.display().to_string()]);
    assert_same(&planted, &back);
    lab.check("tank");
}

#[test]
fn a_killed_service_keeps_what_it_promised() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new();
    lab.create("tank", "256M");
    for round in 0..4 {
        let dataset = format!("tank/round-{round}");
        lab.fs(&["create", &dataset]);
        let mut file = File::create(lab.mount(&dataset).join("synced")).unwrap();
        file.write_all(format!("round {round}").repeat(1000).as_bytes()).unwrap();
        file.sync_all().unwrap();
        drop(file);
        lab.fs(&["snapshot", &format!("{dataset}@kept")]);
        fs::write(lab.mount(&dataset).join("later"), "perhaps").unwrap();
        lab.kill("tank");
        lab.pool(&["import", "tank"]);
        for earlier in 0..=round {
            let place = lab.mount(&format!("tank/round-{earlier}"));
            let text = fs::read_to_string(place.join("synced")).unwrap();
            assert_eq!(text, format!("round {earlier}").repeat(1000));
            let snapshot = fs::read_to_string(place.join(".zfs/snapshot/kept/synced")).unwrap();
            assert_eq!(snapshot, text);
        }
    }
    lab.check("tank");
}

#[test]
fn a_full_pool_says_so_and_can_be_emptied() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new();
    lab.create("tank", "64M");
    lab.fs(&["create", "tank/data"]);
    let place = lab.mount("tank/data");
    let noise = noise(1_000_000, 1);
    let error = (0..200).find_map(|number| fs::write(place.join(format!("file-{number}")), &noise).err());
    assert_eq!(error.expect("64 MiB are full at last").kind(), ErrorKind::StorageFull);
    lab.fs(&["snapshot", "tank/data@full"]);
    for entry in fs::read_dir(&place).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    lab.fs(&["rollback", "tank/data@full"]);
    assert!(fs::read_dir(&place).unwrap().count() > 10);
    for entry in fs::read_dir(&place).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    lab.fs(&["destroy", "tank/data@full"]);
    lab::wait_until("the space is back", || fs::write(place.join("again"), noise.repeat(20)).is_ok());
    lab.check("tank");
}

#[test]
fn quotas_hold() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new();
    lab.create("tank", "256M");
    lab.fs(&["create", "-o", "quota=10M", "-o", "compression=off", "tank/small"]);
    let place = lab.mount("tank/small");
    let error = fs::write(place.join("large"), vec![1; 20_000_000]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::QuotaExceeded);
    fs::remove_file(place.join("large")).unwrap();
    lab.fs(&["set", "quota=none", "tank/small"]);
    fs::write(place.join("large"), vec![1; 20_000_000]).unwrap();
    lab.check("tank");
}

#[test]
fn wrong_requests_are_refused_by_name_and_change_nothing() {
    let lab = Lab::mountless();
    lab.create("tank", "64M");
    let image = lab.at("tank.img");
    lab.run("pool", &["create", "other", &format!("64M:{image}")]).fails(1);
    lab.run("pool", &["create", "other", &format!("63M:{}", lab.at("tiny.img"))]).fails(1);
    lab.run("pool", &["create", "mirror", &format!("64M:{}", lab.at("x.img"))]).fails(1);
    assert!(!lab.path("tiny.img").exists() && !lab.path("x.img").exists());
    lab.run("pool", &["create", "tank", &format!("64M:{}", lab.at("y.img"))]).fails(1);
    lab.run("pool", &["frobnicate"]).fails(2);
    lab.run("fs", &["create", "tank/a#b"]).fails(1);
    lab.run("fs", &["create", "tank/none/below"]).fails(1);
    lab.run("fs", &["create", "-o", "recordsize=100", "tank/x"]).fails(1);
    let refused = lab.run("fs", &["create", "-o", "encryption=on", "tank/x"]).fails(1);
    assert!(refused.contains("encryption"), "{refused}");
    lab.run("fs", &["snapshot", "tank/none@x"]).fails(1);
    lab.run("fs", &["rollback", "tank@none"]).fails(1);
    assert_eq!(lab.fs(&["list", "-H", "-r", "-t", "all", "-o", "name"]), "tank\n");

    let foreign = lab.at("foreign.img");
    File::create(&foreign).unwrap().set_len(64 << 20).unwrap();
    if Command::new("mkfs.ext4").args(["-q", "-F", &foreign]).status().is_ok_and(|status| status.success()) {
        let refused = lab.run("pool", &["create", "other", &foreign]).fails(1);
        assert!(refused.contains("ext"), "{refused}");
    }
    lab.pool(&["create", "-f", "other", &foreign]);
    let garbage = lab.at("garbage.img");
    fs::write(&garbage, [0xa5; 100_000]).unwrap();
    lab.run("pool", &["import", "-d", &lab.at(""), "garbage"]).fails(1);
    assert!(fs::metadata(&garbage).unwrap().size() == 100_000);
    lab.run("fs", &["destroy", "tank"]).fails(1);
}

#[test]
fn a_stream_file_is_an_archive() {
    let lab = Lab::mountless();
    lab.create("tank", "1G");
    lab.fs(&["create", "tank/home"]);
    let (planted, restored) = (lab.path("planted"), lab.path("restored"));
    fs::create_dir(&planted).unwrap();
    plant(&planted);
    let content = noise(300_000, 77);
    fs::write(planted.join("noise"), &content).unwrap();
    lab.fs(&["cp", "-r", &lab.at("planted/."), "tank/home:/"]);
    lab.fs(&["snapshot", "tank/home@one"]);
    let (full, increment) = (lab.at("full"), lab.at("increment"));
    fs::write(&full, lab.fs_bytes(&["send", "tank/home@one"])).unwrap();
    fs::write(planted.join("dir-2/file-2"), "changed").unwrap();
    fs::write(planted.join("new"), "new").unwrap();
    lab.fs(&["cp", "-r", &lab.at("planted/."), "tank/home:/"]);
    lab.fs(&["snapshot", "tank/home@two"]);
    fs::write(&increment, lab.fs_bytes(&["send", "-i", "@one", "tank/home@two"])).unwrap();
    let expected = lab.fs(&["ls", "-lpR", "tank/home@two"]);
    lab.pool(&["destroy", "-f", "tank"]);

    let info = lab.fs(&["stream", "info", &full, &increment]);
    assert!(info.contains("tank/home@one  -") && info.contains("tank/home@two  @one"), "{info}");
    let verified = lab.fs(&["stream", "verify", &full, &increment]);
    assert_eq!(verified.matches(": good, 1 stream, ").count(), 2, "{verified}");
    assert_eq!(lab.fs(&["stream", "ls", "-lpR", "-b", &full, &increment, "/"]), expected);
    let changes = lab.fs(&["stream", "ls", "-b", &full, &increment]);
    // A copy replaces files, so each is a new one.
    assert!(["M\t/\n", "+\t/new\n", "-\t/noise\n"].iter().all(|line| changes.contains(line)), "{changes}");
    assert_eq!(lab.fs(&["stream", "cat", "-b", &full, &increment, "/new", "/dir-2/file-2"]), "newchanged");
    let alone = lab.run("fs", &["stream", "ls", &increment]);
    assert!(alone.stderr.contains("give the stream of 'tank/home@one': -b FILE"), "{}", alone.stderr);
    fs::create_dir(&restored).unwrap();
    lab.fs(&["stream", "cp", "-r", "-b", &full, &increment, "/.", &lab.at("restored")]);
    assert_same(&planted, &restored);
    let records = lab.fs(&["stream", "dump", &increment]);
    assert!(records.contains("BEGIN   tank/home@two, GUID ") && records.contains("TRAILER index at "), "{records}");

    // A file with both streams shows both, and an increment finds its base.
    let both = lab.at("both");
    fs::write(&both, [fs::read(&full).unwrap(), fs::read(&increment).unwrap()].concat()).unwrap();
    assert_eq!(lab.fs(&["stream", "ls", "-lpR", &both, "/"]), expected);
    assert_eq!(lab.fs(&["stream", "cat", "-s", "@two", &both, "/new"]), "new");
    lab.run("fs", &["stream", "cat", "-s", "@one", &both, "/new"]).fails(1);

    // The full stream and the increment become one stream of the last snapshot.
    let merged = lab.at("merged");
    fs::write(&merged, lab.fs_bytes(&["stream", "merge", &full, &increment])).unwrap();
    assert_eq!(lab.fs(&["stream", "ls", "-lpR", &merged]), expected);
    let said = lab.run("fs", &["stream", "merge", &increment, &full]).fails(1);
    assert!(said.contains("its snapshot tank/home@two is not a base of tank/home@one"), "{said}");

    // Damage is named, and everything else is copied.
    let mut bytes = fs::read(&full).unwrap();
    let probe = &content[200_000..][..64];
    let at = bytes.windows(64).position(|window| window == probe).expect("noise is stored as it is");
    bytes[at] ^= 1;
    fs::write(&full, &bytes).unwrap();
    let said = lab.run("fs", &["stream", "verify", &full]).fails(1);
    assert!(said.contains("(snapshot tank/home@one, file '/noise')"), "{said}");
    let said = lab.run("fs", &["stream", "cat", &full, "/noise"]).fails(1);
    assert!(said.contains("damaged at byte"), "{said}");
    let said = lab.run("fs", &["stream", "cp", "-r", "--skip-damaged", &full, "/.", &lab.at("partial")]).fails(1);
    assert!(said.contains("skipped: '/noise', bytes 131072 to 262144"), "{said}");
    let partial = fs::read(lab.path("partial/noise")).unwrap();
    assert_eq!((&partial[..131_072], &partial[262_144..]), (&content[..131_072], &content[262_144..]));
    assert!(lab.path("partial/dir-2/file-2").exists());
    fs::write(&full, &bytes[..bytes.len() / 2]).unwrap();
    let said = lab.run("fs", &["stream", "info", &full]).fails(1);
    assert!(said.contains("the file ends too early"), "{said}");
}

#[test]
fn of_two_receives_into_one_dataset_the_second_is_refused() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new();
    lab.create("tank", "256M");
    lab.create("vault", "256M");
    lab.fs(&["create", "tank/home"]);
    let home = lab.mount("tank/home");
    for file in 0..16 {
        fs::write(home.join(format!("file-{file}")), noise(1 << 20, file + 1)).unwrap();
    }
    lab.fs(&["snapshot", "tank/home@one"]);
    let full = lab.fs_bytes(&["send", "tank/home@one"]);
    let begin = |stream: &[u8]| {
        let mut command = lab.command("fs", &["receive", "-s", "vault/copy"]);
        let mut receive = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut pipe = receive.stdin.take().unwrap();
        pipe.write_all(stream).unwrap();
        (receive, pipe)
    };
    let half = full.len() / 2;
    let (first, mut pipe) = begin(&full[..half]);
    lab::wait_until("the first receive has begun", || lab.run("fs", &["list", "vault/copy"]).code == Some(0));
    let refused = lab.feed("fs", &["receive", "-s", "vault/copy"], &full).fails(1);
    assert!(refused.contains("a stream is being received into it"), "{refused}");
    let refused = lab.feed("fs", &["receive", "-A", "vault/copy"], &[]).fails(1);
    assert!(refused.contains("a stream is being received into it"), "{refused}");
    pipe.write_all(&full[half..]).unwrap();
    drop(pipe);
    let output = first.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_same(&home, &lab.mount("vault/copy"));
    assert_eq!(token(&lab, "vault/copy"), "-");
    lab.check("vault");
}
