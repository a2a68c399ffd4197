//! A pool changes its layout by commands while its files are in use: from a disk to a mirror, to a RAID-Z, and back to
//! a disk.
//!
//! Only a disk and a mirror can be converted by a command. Otherwise a vdev of the new kind is added and the old vdev
//! is removed, which moves its data.

mod lab;

use std::{
    fs::{self, File},
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use insta::{Settings, assert_snapshot};
use lab::{Lab, can_mount, noise, output::filters_for_devices, wait_until};

/// The number of files, which are rewritten again and again.
const FILES: u64 = 24;

/// Replaces values that change from run to run.
fn filters() -> Settings {
    let mut settings = filters_for_devices();
    settings.add_filter(r"copied [\d.]+[BKM]? in \d+h\d+m", "copied [SIZE] in [TIME]");
    settings
}

fn bytes(number: u64) -> Vec<u8> {
    noise(20_000 + number as usize % 7 * 25_000, number)
}

/// A writer and reader of files.
struct User {
    /// The last content written to each file.
    written: Mutex<[u64; FILES as usize]>,
    rounds: AtomicU64,
    is_done: AtomicBool,
}

impl User {
    fn new() -> User {
        User { written: Mutex::new([0; FILES as usize]), rounds: AtomicU64::new(0), is_done: AtomicBool::new(false) }
    }

    fn path(folder: &Path, file: u64) -> std::path::PathBuf {
        folder.join(format!("file-{file}"))
    }

    /// Works until `is_done` is set.
    fn work(&self, folder: &Path) {
        for number in 1.. {
            let file = number % FILES;
            let path = User::path(folder, file);
            fs::write(&path, bytes(number)).unwrap();
            if number.is_multiple_of(5) {
                File::open(&path).unwrap().sync_all().unwrap();
            }
            self.written.lock().unwrap()[file as usize] = number;
            self.check_file(folder, number / 2 % FILES);
            self.rounds.store(number, Ordering::Release);
            if self.is_done.load(Ordering::Acquire) {
                return;
            }
        }
    }

    fn check_file(&self, folder: &Path, file: u64) {
        let number = self.written.lock().unwrap()[file as usize];
        if number > 0 {
            assert!(fs::read(User::path(folder, file)).unwrap() == bytes(number), "file {file} of round {number}");
        }
    }

    /// Asserts that every file has the last content written.
    fn check(&self, folder: &Path) {
        (0..FILES).for_each(|file| self.check_file(folder, file));
    }

    /// Waits until every file was written once more.
    fn goes_on(&self) {
        let before = self.rounds.load(Ordering::Acquire);
        wait_until("files are written", || self.rounds.load(Ordering::Acquire) >= before + FILES);
    }
}

/// Stops the user, also when something else has failed.
struct Ending<'a>(&'a User);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.is_done.store(true, Ordering::Release);
    }
}

#[test]
fn a_disk_becomes_a_mirror_a_raidz_and_a_disk_again_in_use() {
    if !can_mount() {
        return;
    }
    let (lab, _filters) = (Lab::new(), filters().bind_to_scope());
    lab.pool(&["create", "-O", "compression=off", "-m", &lab.at("mnt/tank"), "tank", "100M:a.img"]);
    let (folder, user) = (lab.mount("tank"), User::new());
    fs::write(folder.join("from the disk"), noise(3_000_000, 7)).unwrap();
    lab.fs(&["snapshot", "tank@disk"]);
    thread::scope(|scope| {
        let _ending = Ending(&user);
        scope.spawn(|| user.work(&folder));
        user.goes_on();
        assert_snapshot!(lab.session(&[
            "pool attach -w tank a.img 100M:b.img",
            "pool status tank",
        ]), @r"
        $ pool attach -w tank a.img 100M:b.img
        [exit 0]
        $ pool status tank
          pool: tank
         state: ONLINE
          scan: resilvered [SIZE] in [TIME] with 0 errors on [DATE]
        config:

        	NAME  STATE  READ  WRITE  CKSUM
        	tank  ONLINE  0  0  0
        	  mirror-0  ONLINE  0  0  0
        	  [LAB]/a.img  ONLINE  0  0  0
        	  [LAB]/b.img  ONLINE  0  0  0

        errors: No known data errors
        [exit 0]
        ");
        user.goes_on();
        // Data is spread over both vdevs until the removal, so -f is needed.
        assert_snapshot!(lab.session(&[
            "pool add tank raidz1 100M:c.img 100M:d.img 100M:e.img",
            "pool add -f tank raidz1 100M:c.img 100M:d.img 100M:e.img",
            "pool status tank",
            "pool add tank raidz2 100M:f.img 100M:g.img 100M:h.img 100M:i.img",
        ]), @r"
        $ pool add tank raidz1 100M:c.img 100M:d.img 100M:e.img
        pool: cannot add to 'tank': mismatched replication level: pool uses 2-way mirror and new vdev is raidz1
          use -f to override; the pool is lost if any vdev fails
        [exit 1]
        $ pool add -f tank raidz1 100M:c.img 100M:d.img 100M:e.img
        [exit 0]
        $ pool status tank
          pool: tank
         state: ONLINE
          scan: resilvered [SIZE] in [TIME] with 0 errors on [DATE]
        config:

        	NAME  STATE  READ  WRITE  CKSUM
        	tank  ONLINE  0  0  0
        	  mirror-0  ONLINE  0  0  0
        	  [LAB]/a.img  ONLINE  0  0  0
        	  [LAB]/b.img  ONLINE  0  0  0
        	  raidz1-1  ONLINE  0  0  0
        	  [LAB]/c.img  ONLINE  0  0  0
        	  [LAB]/d.img  ONLINE  0  0  0
        	  [LAB]/e.img  ONLINE  0  0  0

        errors: No known data errors
        [exit 0]
        $ pool add tank raidz2 100M:f.img 100M:g.img 100M:h.img 100M:i.img
        pool: cannot add to 'tank': mismatched replication level: pool uses raidz1 and new vdev is raidz2
          use -f to override; the pool is lost if any vdev fails
        [exit 1]
        ");
        user.goes_on();
        assert_snapshot!(lab.session(&[
            "pool remove tank mirror-0",
            "pool wait -t remove tank",
            "pool status tank",
            "pool list -v -H -o name,health tank",
        ]), @r"
        $ pool remove tank mirror-0
        [exit 0]
        $ pool wait -t remove tank
        [exit 0]
        $ pool status tank
          pool: tank
         state: ONLINE
          scan: resilvered [SIZE] in [TIME] with 0 errors on [DATE]
        remove: Removal of vdev 0 copied [SIZE] in [TIME], completed on [DATE]
        config:

        	NAME  STATE  READ  WRITE  CKSUM
        	tank  ONLINE  0  0  0
        	  raidz1-1  ONLINE  0  0  0
        	  [LAB]/c.img  ONLINE  0  0  0
        	  [LAB]/d.img  ONLINE  0  0  0
        	  [LAB]/e.img  ONLINE  0  0  0

        errors: No known data errors
        [exit 0]
        $ pool list -v -H -o name,health tank
        tank	ONLINE
        raidz1-1	ONLINE
        [LAB]/c.img	ONLINE
        [LAB]/d.img	ONLINE
        [LAB]/e.img	ONLINE
        [exit 0]
        ");
        user.goes_on();
        assert_snapshot!(lab.session(&[
            "pool remove tank raidz1-1",
            "pool add tank 100M:f.img",
            "pool add -f tank 100M:f.img",
            "pool status tank",
        ]), @r"
        $ pool remove tank raidz1-1
        pool: cannot remove 'raidz1-1': it is the only vdev of the pool
        [exit 1]
        $ pool add tank 100M:f.img
        pool: cannot add to 'tank': mismatched replication level: pool uses raidz1 and new vdev is disk
          use -f to override; the pool is lost if any vdev fails
        [exit 1]
        $ pool add -f tank 100M:f.img
        [exit 0]
        $ pool status tank
          pool: tank
         state: ONLINE
          scan: resilvered [SIZE] in [TIME] with 0 errors on [DATE]
        remove: Removal of vdev 0 copied [SIZE] in [TIME], completed on [DATE]
        config:

        	NAME  STATE  READ  WRITE  CKSUM
        	tank  ONLINE  0  0  0
        	  raidz1-1  ONLINE  0  0  0
        	  [LAB]/c.img  ONLINE  0  0  0
        	  [LAB]/d.img  ONLINE  0  0  0
        	  [LAB]/e.img  ONLINE  0  0  0
        	  [LAB]/f.img  ONLINE  0  0  0

        errors: No known data errors
        [exit 0]
        ");
        user.goes_on();
        assert_snapshot!(lab.session(&[
            "pool remove -w tank raidz1-1",
            "pool status tank",
        ]), @r"
        $ pool remove -w tank raidz1-1
        [exit 0]
        $ pool status tank
          pool: tank
         state: ONLINE
          scan: resilvered [SIZE] in [TIME] with 0 errors on [DATE]
        remove: Removal of vdev 1 copied [SIZE] in [TIME], completed on [DATE]
        config:

        	NAME  STATE  READ  WRITE  CKSUM
        	tank  ONLINE  0  0  0
        	  [LAB]/f.img  ONLINE  0  0  0

        errors: No known data errors
        [exit 0]
        ");
        user.goes_on();
    });
    user.check(&folder);
    let old = || fs::read(lab.mount("tank/.zfs/snapshot/disk/from the disk")).unwrap();
    assert!(old() == noise(3_000_000, 7));
    lab.pool(&["scrub", "-w", "tank"]);
    let status = lab.pool(&["status", "tank"]);
    assert!(status.contains("with 0 errors") && status.contains("No known data errors"), "{status}");
    // The old devices are free: the last disk is the whole pool.
    lab.pool(&["export", "tank"]);
    ["a", "b", "c", "d", "e"].iter().for_each(|image| fs::remove_file(lab.path(&format!("{image}.img"))).unwrap());
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    user.check(&folder);
    assert!(old() == noise(3_000_000, 7));
    lab.check("tank");
}

#[test]
fn vdevs_that_stand_unequally_much_are_mixed_only_by_force() {
    let (lab, _filters) = (Lab::mountless(), filters().bind_to_scope());
    let (mirror, wide) = ("mirror 64M:a.img 64M:b.img", "64M:c.img 64M:d.img 64M:e.img 64M:f.img");
    let three = "raidz1 64M:x.img 64M:y.img 64M:z.img";
    assert_snapshot!(lab.session(&[
        &format!("pool create -m none tank {mirror} raidz1 {wide}"),
        &format!("pool create -m none tank {three} raidz2 {wide}"),
    ]), @r"
    $ pool create -m none tank mirror 64M:a.img 64M:b.img raidz1 64M:c.img 64M:d.img 64M:e.img 64M:f.img
    pool: cannot create 'tank': mismatched replication level: both 2-way mirror and raidz1 vdevs are named
      use -f to override; the pool is lost if any vdev fails
    [exit 1]
    $ pool create -m none tank raidz1 64M:x.img 64M:y.img 64M:z.img raidz2 64M:c.img 64M:d.img 64M:e.img 64M:f.img
    pool: cannot create 'tank': mismatched replication level: both raidz1 and raidz2 vdevs are named
      use -f to override; the pool is lost if any vdev fails
    [exit 1]
    ");
    assert!(!lab.path("a.img").exists() && !lab.path("x.img").exists(), "who is refused leaves nothing");
    lab.pool(&[
        "create",
        "-f",
        "-m",
        "none",
        "tank",
        "mirror",
        "64M:a.img",
        "64M:b.img",
        "raidz1",
        "64M:x.img",
        "64M:y.img",
        "64M:z.img",
    ]);
    // The highest redundancy counts, and a mirror of two equals the raidz beside it.
    assert_snapshot!(lab.session(&[
        &format!("pool add tank raidz2 {wide}"),
        "pool add tank 64M:g.img",
        "pool list -v -H -o name,health tank",
    ]), @r"
    $ pool add tank raidz2 64M:c.img 64M:d.img 64M:e.img 64M:f.img
    pool: cannot add to 'tank': mismatched replication level: pool uses raidz1 and new vdev is raidz2
      use -f to override; the pool is lost if any vdev fails
    [exit 1]
    $ pool add tank 64M:g.img
    pool: cannot add to 'tank': mismatched replication level: pool uses raidz1 and new vdev is disk
      use -f to override; the pool is lost if any vdev fails
    [exit 1]
    $ pool list -v -H -o name,health tank
    tank	ONLINE
    mirror-0	ONLINE
    [LAB]/a.img	ONLINE
    [LAB]/b.img	ONLINE
    raidz1-1	ONLINE
    [LAB]/x.img	ONLINE
    [LAB]/y.img	ONLINE
    [LAB]/z.img	ONLINE
    [exit 0]
    ");
    assert!(!lab.path("c.img").exists() && !lab.path("g.img").exists(), "who is refused leaves nothing");
    lab.pool(&["add", "-f", "tank", "raidz2", "64M:c.img", "64M:d.img", "64M:e.img", "64M:f.img"]);
    lab.pool(&["export", "tank"]);
    lab.pool(&["check", "-d", &lab.at(""), "tank"]);
}
