//! Quotas of users, groups and projects, enforced on programs of these users; and usage reports.

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown},
        process::CommandExt,
    },
    path::Path,
    process::Command,
};

use crate::{
    is_root,
    lab::{Lab, noise, wait_until},
    on_a_mount, sh,
};

/// Otherwise unused users, and a group.
const ANN: u32 = 54_321;
const BOB: u32 = 54_322;
const STAFF: u32 = 54_399;

/// Runs a script as a user of the group; returns its standard error, and whether it succeeded.
fn as_user(user: u32, folder: &Path, script: &str) -> (String, bool) {
    let mut shell = Command::new("sh");
    let output = shell.args(["-ec", script]).current_dir(folder).uid(user).gid(STAFF).output().unwrap();
    (String::from_utf8_lossy(&output.stderr).into_owned(), output.status.success())
}

fn exceeds(user: u32, folder: &Path, script: &str) {
    let (said, done) = as_user(user, folder, script);
    assert!(!done && said.contains("quota exceeded"), "{script}: {said}");
}

fn works(user: u32, folder: &Path, script: &str) {
    let (said, done) = as_user(user, folder, script);
    assert!(done, "{script}: {said}");
}

/// Waits until so many files are charged to a user: the kernel takes time to forget unlinked files.
fn wait_for_objects(lab: &Lab, user: u32, count: &str) {
    wait_until("unlinked files are let go of", || value(lab, &format!("userobjused@{user}"), "tank") == count);
}

fn value(lab: &Lab, property: &str, of: &str) -> String {
    lab.fs(&["get", "-Hp", "-o", "value", property, of]).trim().to_owned()
}

#[test]
fn a_user_meets_the_quota_in_the_call_itself() {
    if !is_root() {
        return;
    }
    on_a_mount(|lab, place| {
        fs::set_permissions(lab.path(""), fs::Permissions::from_mode(0o755)).unwrap();
        let home = place.join("home");
        fs::create_dir(&home).unwrap();
        fs::set_permissions(&home, fs::Permissions::from_mode(0o777)).unwrap();
        works(ANN, &home, "head -c 300000 /dev/urandom > old");
        let ann = format!("@{ANN}");
        lab.fs(&["set", &format!("userquota{ann}=1M"), &format!("userobjquota{ann}=3"), "tank"]);
        assert_eq!(value(lab, &format!("userused{ann}"), "tank"), "300000");
        assert_eq!(fs::metadata(home.join("old")).unwrap().blocks(), 300_000_u64.div_ceil(512));

        works(ANN, &home, "head -c 700000 /dev/urandom > new");
        exceeds(ANN, &home, "head -c 100000 /dev/urandom >> new");
        works(ANN, &home, "rm old");
        wait_for_objects(lab, ANN, "1");
        works(ANN, &home, "touch a b");
        exceeds(ANN, &home, "touch c");
        exceeds(ANN, &home, "mkdir c");
        works(BOB, &home, "head -c 2000000 /dev/urandom > bob; mkdir bobs");
        works(ANN, &home, "rm a b; dd if=new of=new bs=4096 count=10 conv=notrunc 2>&1");
        wait_for_objects(lab, ANN, "1");

        let lines = lab.fs(&["userspace", "-Hp", "-o", "name,used,quota,objused,objquota", "-S", "used", "tank"]);
        let new = fs::metadata(home.join("new")).unwrap().len();
        let expected = format!("{BOB}\t2000000\t0\t2\t0\n{ANN}\t{new}\t1048576\t1\t3\nroot\t0\t0\t2\t0\n");
        assert_eq!(lines, expected);
        assert_eq!(value(lab, &format!("groupobjused@{STAFF}"), "tank"), "3");
        lab.fs(&["set", &format!("groupquota@{STAFF}=1M"), "tank"]);
        exceeds(BOB, &home, "head -c 1 /dev/urandom >> bob");
        lab.fs(&["set", &format!("groupquota@{STAFF}=none"), &format!("groupobjquota@{STAFF}=3"), "tank"]);
        exceeds(BOB, &home, "touch more");
        let groups = lab.fs(&["groupspace", "-Hp", "-o", "name,used,quota,objused,objquota", "tank"]);
        assert_eq!(
            groups.lines().find(|line| line.starts_with(&STAFF.to_string())),
            Some(&*format!("{STAFF}\t{}\t0\t3\t3", 2_000_000 + new))
        );
        lab.fs(&["set", &format!("groupobjquota@{STAFF}=none"), "tank"]);
        chown(home.join("bob"), Some(ANN), None).unwrap_err();
        lab.fs(&["snapshot", "tank@a"]);
        fs::remove_file(home.join("bob")).unwrap();
        wait_for_objects(lab, BOB, "1");
        assert_eq!(value(lab, &format!("userused@{BOB}"), "tank"), "0");
        assert_eq!(value(lab, &format!("userused@{BOB}"), "tank@a"), "2000000");

        // After an import all quotas are still known.
        lab.pool(&["export", "tank"]);
        lab.pool(&["import", "-d", ".", "tank"]);
        assert_eq!(value(lab, &format!("userquota{ann}"), "tank"), "1048576");
        exceeds(ANN, &home, "head -c 500000 /dev/urandom >> new");
    });
}

#[test]
fn projects_are_charged_together() {
    if !is_root() {
        return;
    }
    on_a_mount(|lab, place| {
        let papers = place.join("papers");
        fs::create_dir_all(papers.join("old")).unwrap();
        fs::write(papers.join("old/one"), noise(10_000, 1)).unwrap();
        fs::write(place.join("other"), b"text").unwrap();
        lab.fs(&["project", "-r", "-s", "-p", "7", &papers.display().to_string()]);
        fs::write(papers.join("two"), noise(20_000, 2)).unwrap();
        let listed = "    7 P tank:/papers\n    7 P tank:/papers/old\n    7 - tank:/papers/two\n";
        assert_eq!(lab.fs(&["project", "tank:/papers"]), listed);
        assert_eq!(lab.fs(&["project", "-d", "tank:/papers"]), "    7 P tank:/papers\n");
        assert_eq!(lab.fs(&["projectspace", "-Hp", "tank"]), "Project\t0\t4\t0\t2\t0\nProject\t7\t30000\t0\t4\t0\n");
        lab.fs(&["set", "projectquota@7=40000", "tank"]);
        let refused = fs::write(papers.join("three"), noise(20_000, 3)).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::QuotaExceeded);
        assert_eq!(fs::metadata(papers.join("three")).unwrap().len(), 10_000, "what fitted is there");
        fs::remove_file(papers.join("three")).unwrap();
        wait_until("it is let go of", || value(lab, "projectused@7", "tank") == "30000");
        lab.fs(&["set", "projectobjquota@7=4", "tank"]);
        let refused = fs::write(papers.join("three"), b"").unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::QuotaExceeded);
        lab.fs(&["set", "projectobjquota@7=none", "tank"]);
        assert_eq!(
            fs::hard_link(place.join("other"), papers.join("other")).unwrap_err().kind(),
            std::io::ErrorKind::CrossesDevices
        );
        sh(place, "mv other papers/other");
        assert_eq!(lab.fs(&["project", "-c", "-r", "tank:/papers"]), "", "moving has copied it");

        if Command::new("lsattr").arg("-V").output().is_ok() {
            let shown = sh(place, "lsattr -pd papers");
            assert!(shown.trim_start().starts_with("7 ") && shown.contains('P'), "{shown}");
            sh(place, "chattr -p 9 papers/two");
            assert_eq!(
                lab.fs(&["project", "-c", "tank:/papers"]),
                "tank:/papers/two - project ID is not set properly (9/7)\n"
            );
        }
        lab.fs(&["project", "-C", "-r", "tank:/papers"]);
        assert_eq!(value(lab, "projectused@7", "tank"), "0");
        assert_eq!(value(lab, "projectquota@7", "tank"), "40000");
    });
}

/// Attributes are not charged. So a quota bounds the attributes of each file separately, or they would evade the quota.
#[test]
fn attributes_are_no_way_around_a_quota() {
    if !is_root() {
        return;
    }
    on_a_mount(|lab, place| {
        let file = |name: &str, owner: u32| {
            let path = place.join(name);
            fs::write(&path, "").unwrap();
            chown(&path, Some(owner), Some(STAFF)).unwrap();
            path
        };
        let set = |path: &Path, name: &str, length: usize| {
            rustix::fs::setxattr(path, name, &vec![b'x'; length], rustix::fs::XattrFlags::empty())
        };
        let refused = Err(rustix::io::Errno::DQUOT);
        let f = file("f", ANN);
        set(&f, "user.before", 60_000).unwrap();
        set(&f, "user.small", 100).unwrap();
        lab.fs(&["set", &format!("userquota@{ANN}=1M"), "tank"]);
        // Existing attributes stay and may shrink; they cannot grow, and none can be added.
        for (name, length) in [("user.before", 60_001), ("user.more", 1), ("user.small", 101)] {
            assert_eq!(set(&f, name, length), refused, "{name}");
        }
        for (name, length) in [("user.before", 50_000), ("user.small", 100), ("user.before", 2000), ("user.more", 1900)]
        {
            assert_eq!(set(&f, name, length), Ok(()), "{name}");
        }
        assert_eq!(set(&f, "user.last", 60_000), refused);
        // This bound applies to each file, and the object quota bounds the number of files.
        lab.fs(&["set", &format!("userobjquota@{ANN}=20"), "tank"]);
        for number in 2..=20 {
            let path = file(&number.to_string(), ANN);
            assert_eq!(set(&path, "user.a", 60_000), refused);
            assert_eq!(set(&path, "user.a", 4000), Ok(()));
        }
        fs::write(place.join("21"), "").unwrap();
        assert!(chown(place.join("21"), Some(ANN), None).is_err(), "one file more than the quota of objects");
        // Without a quota there is no bound.
        assert_eq!(set(&file("bob", BOB), "user.a", 60_000), Ok(()));
    });
}
