//! The threads of a service: as many as the work takes, and not as many as there are mounts.

use std::fs;

use crate::mounted;

const MOUNTS: usize = 40;
/// The threads of a service with one mount, and some for work under way.
const THREADS: usize = 36;

#[test]
fn mounts_share_threads_used_or_not() {
    // Through io_uring each mount has threads of its own, one for each CPU at least.
    if std::env::var("CENOTE_TRANSPORT").is_ok_and(|transport| transport == "uring") {
        return;
    }
    let Some(lab) = mounted(&["tank"]) else { return };
    let names: Vec<String> = (0..MOUNTS).map(|number| format!("tank/d{number}")).collect();
    names.iter().for_each(|name| drop(lab.fs(&["create", name])));
    let service = lab.service("tank").unwrap();
    let threads = || fs::read_dir(format!("/proc/{service}/task")).unwrap().count();
    assert!(threads() < THREADS, "{} for {MOUNTS} mounts", threads());
    for name in &names {
        let file = lab.mount(name).join("file");
        fs::write(&file, "content").unwrap();
        fs::File::open(&file).unwrap().sync_all().unwrap();
        fs::remove_file(&file).unwrap();
    }
    assert!(threads() < THREADS, "{} for {MOUNTS} mounts that were all used", threads());
}

/// Threads come to a busy mount and leave an idle mount, and no request is lost.
#[test]
fn a_mount_is_served_however_its_use_changes() {
    let Some(lab) = mounted(&["tank"]) else { return };
    let place = lab.mount("tank");
    for round in 0..3 {
        for number in 0..1500 {
            let file = place.join(format!("file-{}", number % 100));
            fs::write(&file, number.to_string()).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), number.to_string());
            fs::remove_file(&file).unwrap();
        }
        // Long enough for two checks that find the mount idle.
        std::thread::sleep(std::time::Duration::from_millis(2600 * (round % 2)));
    }
    let open = fs::File::create(place.join("open")).unwrap();
    lab.run("fs", &["unmount", "tank"]).fails(1);
    drop(open);
    lab.fs(&["unmount", "tank"]);
    lab.fs(&["mount", "tank"]);
    assert!(place.join("open").exists());
}
